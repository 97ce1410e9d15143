//! Complete network of nodes and wires with all addresses and routes, and its instance in the kernel.

use std::io;

use super::sysctl::{has_ipv6, let_forward, prepare_emulator, prepare_node};
use super::{Path, switch_offloads_off};
use skybraid_io::netlink::{Namespace, Network, Route, Rule, VethEnd};

/// Plan of a network. The first node is the vehicle, the second terminates the flows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Vehicle, ground (or server), then all others.
    pub nodes: Vec<NodePlan>,
    /// Wires between the nodes.
    pub wires: Vec<Wire>,
    /// Routes in addition to those implied by addresses.
    pub routes: Vec<RoutePlan>,
    /// Rules with the indices of their nodes.
    pub rules: Vec<(usize, Rule)>,
    /// Paths from vehicle to ground.
    pub paths: Vec<Path>,
}

/// Plan of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodePlan {
    /// Name.
    pub name: String,
    /// Whether the node forwards packets.
    pub routes: bool,
    /// The node is the caller's network, which already exists.
    pub here: bool,
}

/// A wire between two nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wire {
    /// Name.
    pub name: String,
    /// Largest IP packet, in bytes.
    pub mtu: u32,
    /// Whether the wire is emulated; if not, it is as fast as the machine.
    pub emulated: bool,
    /// Ends toward the vehicle and toward the ground.
    pub ends: [End; 2],
}

/// One end of a wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// Index of the node.
    pub node: usize,
    /// Interface name.
    pub interface: String,
    /// Interface addresses; the first is the default of sockets.
    pub addresses: Vec<Network>,
}

/// A route of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutePlan {
    /// Index of the node.
    pub node: usize,
    /// Interface name.
    pub interface: String,
    /// Destination.
    pub to: Network,
    /// Next hop.
    pub via: Option<std::net::IpAddr>,
    /// Source address of unbound sockets.
    pub source: Option<std::net::IpAddr>,
    /// Routing table.
    pub table: u32,
}

/// A node of a testbed.
#[derive(Debug)]
pub struct Node {
    /// Name.
    pub name: String,
    /// Namespace of the sockets and programs.
    pub namespace: Namespace,
}

/// An interface of the emulator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Interface index in the emulator's namespace, for packet sockets.
    pub index: u32,
    /// Interface name: `v` or `g` with the segment's index.
    pub name: String,
}

/// A stretch whose frames are forwarded by the emulator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Name.
    pub name: String,
    /// Largest IP packet, in bytes.
    pub mtu: u32,
    /// Interfaces of the emulator toward the vehicle and toward the ground.
    pub ends: [Port; 2],
}

/// A network of namespaces, removed when this value and all sockets and programs in it are gone.
#[derive(Debug)]
pub struct Testbed {
    /// Vehicle, ground (or server), then all others.
    pub nodes: Vec<Node>,
    /// Namespace of the segments' inner ends.
    pub emulator: Namespace,
    /// Emulated stretches; those of the paths come first, at the indices of the paths.
    pub segments: Vec<Segment>,
    /// Paths from vehicle to ground.
    pub paths: Vec<Path>,
}

impl Layout {
    /// Creates the network.
    ///
    /// # Errors
    /// Permissions or kernel features are missing, or names or addresses conflict.
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
            made.create_wire(wire)?;
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

/// Unwraps an item of node `node`, which every part of a layout must have.
fn known<T>(found: Option<T>, node: usize) -> io::Result<T> {
    found.ok_or_else(|| io::Error::other(format!("the layout names node {node}, which it lacks")))
}

impl Testbed {
    /// Returns the vehicle.
    pub fn vehicle(&self) -> &Node {
        &self.nodes[0]
    }

    /// Returns the node where the vehicle's flows end: the ground, or the server behind the gateway.
    pub fn ground(&self) -> &Node {
        &self.nodes[1]
    }

    /// Returns the node of this name.
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.name == name)
    }

    /// Returns the segment of this name.
    pub fn segment(&self, name: &str) -> Option<&Segment> {
        self.segments.iter().find(|segment| segment.name == name)
    }

    fn outer<'a>(&'a self, end: &'a End) -> io::Result<VethEnd<'a>> {
        let node = known(self.nodes.get(end.node), end.node)?;
        Ok(VethEnd { namespace: &node.namespace, name: &end.interface })
    }

    /// Creates the interfaces of a wire, which stay down at the nodes.
    fn create_wire(&mut self, wire: &Wire) -> io::Result<()> {
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
