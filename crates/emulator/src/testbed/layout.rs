//! A network of nodes and wires worked out to every address and route, and its real form.

use std::io;

use super::sysctl::{has_ipv6, let_forward, prepare_emulator, prepare_node};
use super::{Path, switch_offloads_off};
use skybraid_io::netlink::{Namespace, Network, Route, Rule, VethEnd};

/// A network before it is made. The first node is the vehicle, the second is where its flows end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Vehicle, ground (or server), then all others.
    pub nodes: Vec<NodePlan>,
    /// What connects them.
    pub wires: Vec<Wire>,
    /// Routes besides those that addresses bring.
    pub routes: Vec<RoutePlan>,
    /// Rules with the positions of their nodes.
    pub rules: Vec<(usize, Rule)>,
    /// The ways from vehicle to ground.
    pub paths: Vec<Path>,
}

/// A node before it is made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodePlan {
    /// Its name.
    pub name: String,
    /// Whether it passes on packets for others.
    pub routes: bool,
    /// It is the network in which the caller is, which is there already.
    pub here: bool,
}

/// A wire between two nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wire {
    /// Its name.
    pub name: String,
    /// Largest IP packet, in bytes.
    pub mtu: u32,
    /// Whether it leads through the emulator; if not, it is as fast as the machine.
    pub emulated: bool,
    /// Its end toward the vehicle, then the one toward the ground.
    pub ends: [End; 2],
}

/// One end of a wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// Position of its node.
    pub node: usize,
    /// The interface's name.
    pub interface: String,
    /// The interface's addresses; the first is the one that sockets get by themselves.
    pub addresses: Vec<Network>,
}

/// A route of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutePlan {
    /// Position of the node.
    pub node: usize,
    /// The interface's name.
    pub interface: String,
    /// Whither.
    pub to: Network,
    /// The next node.
    pub via: Option<std::net::IpAddr>,
    /// Source address of sockets that have not chosen one.
    pub source: Option<std::net::IpAddr>,
    /// The routing table.
    pub table: u32,
}

/// A node of a testbed.
#[derive(Debug)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Where its sockets and programs live.
    pub namespace: Namespace,
}

/// An interface of the emulator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its number in the emulator's namespace, for packet sockets.
    pub index: u32,
    /// Its name: `v` or `g` with the segment's position.
    pub name: String,
}

/// A stretch whose frames the emulator carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its name.
    pub name: String,
    /// Largest IP packet, in bytes.
    pub mtu: u32,
    /// The emulator's interface toward the vehicle, then the one toward the ground.
    pub ends: [Port; 2],
}

/// A network of namespaces. It is gone when this value and all sockets and programs in it are.
#[derive(Debug)]
pub struct Testbed {
    /// Vehicle, ground (or server), then all others.
    pub nodes: Vec<Node>,
    /// Where the segments' inner ends lie.
    pub emulator: Namespace,
    /// The emulated stretches; those of the paths come first, at the paths' positions.
    pub segments: Vec<Segment>,
    /// The ways from vehicle to ground.
    pub paths: Vec<Path>,
}

impl Layout {
    /// Makes it.
    ///
    /// # Errors
    /// Rights or kernel features are missing, or names or addresses clash.
    pub fn build(&self) -> io::Result<Testbed> {
        let nodes = self.nodes.iter().map(|plan| {
            let namespace = if plan.here {
                let here = Namespace::current(&plan.name)?;
                let_forward(&here)?;
                here
            } else {
                let made = Namespace::create(&plan.name)?;
                prepare_node(&made, plan.routes)?;
                made
            };
            Ok(Node { name: plan.name.clone(), namespace })
        });
        let nodes = nodes.collect::<io::Result<Vec<_>>>()?;
        let emulator = Namespace::create("emulator")?;
        prepare_emulator(&emulator)?;
        let mut made = Testbed { nodes, emulator, segments: Vec::new(), paths: self.paths.clone() };
        let netlinks = made.nodes.iter().map(|node| node.namespace.netlink());
        let mut netlinks = netlinks.collect::<io::Result<Vec<_>>>()?;
        let usable = |network: &&Network| network.address.is_ipv4() || has_ipv6();
        for wire in &self.wires {
            made.lay(wire)?;
            for end in &wire.ends {
                let netlink = known(netlinks.get_mut(end.node), end.node)?;
                let index = netlink.link(&end.interface)?.index;
                for &network in end.addresses.iter().filter(usable) {
                    netlink.add_address(index, network)?;
                }
                netlink.set_up(index)?;
            }
        }
        for plan in self.routes.iter().filter(|route| usable(&&route.to)) {
            let netlink = known(netlinks.get_mut(plan.node), plan.node)?;
            let interface = netlink.link(&plan.interface)?.index;
            let &RoutePlan { to, via, source, table, .. } = plan;
            netlink.add_route(&Route { to, via, interface, source, table, local: false })?;
        }
        for (node, rule) in self.rules.iter().filter(|(_, rule)| !rule.ipv6 || has_ipv6()) {
            known(netlinks.get_mut(*node), *node)?.add_rule(rule)?;
        }
        Ok(made)
    }
}

/// What belongs to node `node`, which every part of a layout must have.
fn known<T>(found: Option<T>, node: usize) -> io::Result<T> {
    found.ok_or_else(|| io::Error::other(format!("the layout names node {node}, which it lacks")))
}

impl Testbed {
    /// The vehicle.
    pub fn vehicle(&self) -> &Node {
        &self.nodes[0]
    }

    /// The node where the vehicle's flows end: the ground, or the server behind the gateway.
    pub fn ground(&self) -> &Node {
        &self.nodes[1]
    }

    /// The node of this name.
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.name == name)
    }

    /// The segment of this name.
    pub fn segment(&self, name: &str) -> Option<&Segment> {
        self.segments.iter().find(|segment| segment.name == name)
    }

    fn outer<'a>(&'a self, end: &'a End) -> io::Result<VethEnd<'a>> {
        let node = known(self.nodes.get(end.node), end.node)?;
        Ok(VethEnd { namespace: &node.namespace, name: &end.interface })
    }

    /// Makes the interfaces of a wire, which stay switched off at the nodes.
    fn lay(&mut self, wire: &Wire) -> io::Result<()> {
        let [near, far] = &wire.ends;
        let [near, far] = [self.outer(near)?, self.outer(far)?];
        let mut netlink = self.emulator.netlink()?;
        if !wire.emulated {
            netlink.add_veth([near, far], wire.mtu)?;
            switch_offloads_off(near.namespace, near.name)?;
            return switch_offloads_off(far.namespace, far.name);
        }
        let position = self.segments.len();
        let mut port = |outer: VethEnd<'_>, name: String| {
            let inner = VethEnd { namespace: &self.emulator, name: &name };
            netlink.add_veth([outer, inner], wire.mtu)?;
            switch_offloads_off(outer.namespace, outer.name)?;
            switch_offloads_off(inner.namespace, inner.name)?;
            let index = netlink.link(&name)?.index;
            netlink.set_up(index)?;
            io::Result::Ok(Port { index, name })
        };
        let ends = [port(near, format!("v{position}"))?, port(far, format!("g{position}"))?];
        self.segments.push(Segment { name: wire.name.clone(), mtu: wire.mtu, ends });
        Ok(())
    }
}
