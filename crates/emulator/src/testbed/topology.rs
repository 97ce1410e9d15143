//! Paths from vehicle to ground, with their nodes and addresses.
//!
//! Path N has 10.N.0.1 at the vehicle and 10.N.0.2 at its far end (IPv6: `fd73:6b79:0:N::1`, `::2`). Proxies
//! on the path do not change these addresses; the stretches between the nodes have networks 10.(100+N).K.0/30
//! (IPv6: `fd73:6b79:N+1:K::/64`), K counted from the vehicle. A server behind the gateway has 10.255.0.2
//! (IPv6: `fd73:6b79:0:ff::2`). Packets that the vehicle sends from a path's address take this path, by a
//! rule for each; all other nodes route by destination. Nested testbeds have their own addresses ([`Block`]).

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::blocks::{Block, MAX_NESTED_PATHS};
use super::{End, Layout, NodePlan, RoutePlan, Testbed, Wire};
use skybraid_io::netlink::{Network, Route, Rule};

/// Maximum paths that the address plan supports.
const MAX_PATHS: usize = 100;

/// Minimum MTU for IPv6 (RFC 8200 §5).
const MIN_IPV6_MTU: u32 = 1280;

/// Maximum length of an interface name in bytes (`IFNAMSIZ` minus the terminating NUL).
const MAX_NAME: usize = 15;

/// First of the vehicle's routing tables, one for each path.
const FIRST_TABLE: u32 = 100;

/// Priority of the first of the vehicle's rules, one for each path.
const FIRST_PRIORITY: u32 = 1000;

/// Paths of a testbed and their nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    paths: Vec<PathPlan>,
    server: Option<Server>,
    /// Address block of a nested testbed, whose ground is an existing node.
    nested: Option<Block>,
}

/// Both ends of a path.
struct Ends {
    /// Addresses of the vehicle and the ground on the path.
    hosts: [Addresses; 2],
    /// Prefix length of the IPv4 network of `hosts`.
    prefix: u8,
    interfaces: [String; 2],
    /// Index of the node at the far end.
    far: usize,
    /// The node at the far end is a gateway.
    behind: bool,
    /// Addresses of testbeds inside the vehicle.
    inside: Block,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct PathPlan {
    name: String,
    mtu: u32,
    vehicle_proxy: bool,
    ground_proxy: bool,
}

impl PathPlan {
    const fn has_proxies(&self) -> bool {
        self.vehicle_proxy || self.ground_proxy
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Server {
    /// Whether the stretch to the gateway is emulated as a segment.
    emulated: bool,
    mtu: u32,
}

/// An address of each family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// IPv4 address.
    pub v4: Ipv4Addr,
    /// IPv6 address; usable if the kernel has IPv6 and the path's MTU is at least 1280 bytes.
    pub v6: Ipv6Addr,
}

/// A path from vehicle to ground.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// Path name in the scenario.
    pub name: String,
    /// Interface name at the vehicle and at the far end.
    pub interface: String,
    /// Largest IP packet, in bytes.
    pub mtu: u32,
    /// Vehicle's address on the path.
    pub vehicle: Addresses,
    /// Address where the flows of the path end: the ground's on the path, or the server's only one.
    pub ground: Addresses,
}

impl Plan {
    /// Creates a plan of vehicle and ground with the given paths (name, MTU in bytes) in between.
    pub fn direct(paths: &[(&str, u32)]) -> Self {
        let plan = |&(name, mtu): &(&str, u32)| PathPlan {
            name: name.to_owned(),
            mtu,
            vehicle_proxy: false,
            ground_proxy: false,
        };
        Self { paths: paths.iter().map(plan).collect(), server: None, nested: None }
    }

    /// Creates a plan whose paths end at a gateway; the flows end at a server behind it, which has one
    /// address. The wire between them has the maximum of the paths' MTUs and no emulation.
    pub fn behind_gateway(paths: &[(&str, u32)]) -> Self {
        let mtu = paths.iter().map(|path| path.1).max().unwrap_or(1500);
        Self { server: Some(Server { emulated: false, mtu }), ..Self::direct(paths) }
    }

    /// Makes the stretch between gateway and server an emulated segment named `server`.
    #[must_use]
    pub fn with_server_segment(mut self, mtu: u32) -> Self {
        self.server = self.server.map(|_| Server { emulated: true, mtu });
        self
    }

    /// Adds nodes to the path: `NAME-vp` between the segments `NAME.a` and `NAME`, on the vehicle's side, and
    /// `NAME-gp` between `NAME` and `NAME.b`, on the ground's.
    #[must_use]
    pub fn with_proxies(mut self, path: &str, vehicle_side: bool, ground_side: bool) -> Self {
        for plan in self.paths.iter_mut().filter(|plan| plan.name == path) {
            plan.vehicle_proxy = vehicle_side;
            plan.ground_proxy = ground_side;
        }
        self
    }

    /// Makes the caller's network, a node of another testbed, the ground, so that the vehicle's packets are
    /// routed on from there. Other testbeds may already be nested there.
    ///
    /// # Errors
    /// Testbeds are nested too deeply, there are too many in this node, or the plan has too many paths,
    /// proxies or a server.
    pub fn nested_here(mut self) -> io::Result<Self> {
        let refuse = |text: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        if self.paths.len() > MAX_NESTED_PATHS {
            return refuse(&format!(
                "a testbed within another has {MAX_NESTED_PATHS} paths at most"
            ));
        }
        if self.server.is_some() || self.paths.iter().any(PathPlan::has_proxies) {
            return refuse("a testbed within another has neither proxies nor a server");
        }
        self.nested = Some(Block::free_here()?);
        Ok(self)
    }

    /// Computes nodes, wires, addresses and routes.
    ///
    /// # Errors
    /// There is no path, there are more than 100, or two have the same name.
    pub fn layout(&self) -> io::Result<Layout> {
        let names: BTreeSet<_> = self.paths.iter().map(|path| &path.name).collect();
        if self.paths.is_empty() || self.paths.len() > MAX_PATHS || names.len() < self.paths.len() {
            let found: Vec<_> = self.paths.iter().map(|path| path.name.as_str()).collect();
            let text = format!(
                "a testbed has 1 … {MAX_PATHS} paths of different names, not {} [{}]",
                found.len(),
                found.join(", ")
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let mut work = Work::default();
        work.node("vehicle", false);
        let far = match self.server {
            None => work.node("ground", self.nested.is_some()),
            Some(server) => {
                let host = work.node("server", false);
                let gateway = work.node("gateway", true);
                work.add_server(server, host, gateway);
                gateway
            }
        };
        if let Some(ground) = work.layout.nodes.get_mut(far) {
            ground.here = self.nested.is_some();
        }
        let interfaces = interface_names(&self.paths);
        for (number, (plan, interface)) in self.paths.iter().zip(interfaces).enumerate() {
            // The ground may already have an interface of this name.
            let at_far = match self.nested {
                None => interface.clone(),
                Some(block) => block.interface(&interface, number),
            };
            let ends = Ends {
                hosts: [1, 2].map(|last| match self.nested {
                    None => host(number, last),
                    Some(block) => block.host(number, last),
                }),
                prefix: if self.nested.is_some() { Block::PATH_PREFIX } else { 24 },
                interfaces: [interface, at_far],
                far,
                behind: self.server.is_some(),
                inside: self.nested.map_or(Block::VEHICLE, Block::of_vehicle),
            };
            work.add_path(number, plan, ends);
        }
        Ok(work.finish())
    }

    /// Creates the network.
    ///
    /// # Errors
    /// As [`Plan::layout`] and [`Layout::build`].
    pub fn build(&self) -> io::Result<Testbed> {
        self.layout()?.build()
    }
}

impl Testbed {
    /// Returns the environment of programs at `node`: the node's name, and the addresses of vehicle and
    /// ground on the first path and on each path.
    pub fn environment(&self, node: &str) -> Vec<(String, String)> {
        let mut variables = vec![("SKYBRAID_NODE".to_owned(), node.to_owned())];
        let mut add = |suffix: &str, path: &Path| {
            variables.push((format!("SKYBRAID_VEHICLE{suffix}"), path.vehicle.v4.to_string()));
            variables.push((format!("SKYBRAID_GROUND{suffix}"), path.ground.v4.to_string()));
        };
        if let Some(first) = self.paths.first() {
            add("", first);
        }
        for path in &self.paths {
            let plain =
                |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
            let name: String = path.name.chars().map(plain).collect();
            add(&format!("_{name}"), path);
        }
        variables
    }
}

/// Returns the end-to-end address of one end of path `number`.
fn host(number: usize, last: u8) -> Addresses {
    let v4 = Ipv4Addr::new(10, number as u8, 0, last);
    let v6 = Ipv6Addr::new(0xfd73, 0x6b79, 0, number as u16, 0, 0, 0, u16::from(last));
    Addresses { v4, v6 }
}

/// Returns the address of one end of stretch `leg` of path `number`.
fn inner(number: usize, leg: usize, last: u8) -> Addresses {
    let v4 = Ipv4Addr::new(10, 100 + number as u8, leg as u8, last);
    let third = number as u16 + 1;
    let v6 = Ipv6Addr::new(0xfd73, 0x6b79, third, leg as u16, 0, 0, 0, u16::from(last));
    Addresses { v4, v6 }
}

/// Network number of the server among those of the paths.
const SERVER_NETWORK: usize = 255;

impl Addresses {
    /// Returns both addresses as networks with these prefix lengths.
    pub(super) fn networks(self, v4: u8, v6: u8) -> [Network; 2] {
        let v4 = Network { address: self.v4.into(), prefix: v4 };
        [v4, Network { address: self.v6.into(), prefix: v6 }]
    }

    fn both(self) -> [IpAddr; 2] {
        [self.v4.into(), self.v6.into()]
    }
}

/// A path's nodes from the vehicle to the far end, and the stretches between them.
struct PathRoute<'a> {
    number: usize,
    plan: &'a PathPlan,
    ends: Ends,
    /// Indices of the nodes, from the vehicle to the far end.
    stations: Vec<usize>,
    /// Suffixes of the stretches' names; that of the emulated path itself is empty.
    legs: Vec<&'static str>,
    /// Whether the path has IPv6.
    ipv6: bool,
}

impl<'a> PathRoute<'a> {
    /// Adds the nodes of the path's proxies to `work`.
    fn new(work: &mut Work, number: usize, plan: &'a PathPlan, ends: Ends) -> Self {
        let mut stations = vec![0];
        let mut legs = Vec::new();
        if plan.vehicle_proxy {
            stations.push(work.node(&format!("{}-vp", plan.name), true));
            legs.push(".a");
        }
        legs.push("");
        if plan.ground_proxy {
            stations.push(work.node(&format!("{}-gp", plan.name), true));
            legs.push(".b");
        }
        stations.push(ends.far);
        Self { number, plan, ends, stations, legs, ipv6: plan.mtu >= MIN_IPV6_MTU }
    }

    const fn last_leg(&self) -> usize {
        self.legs.len() - 1
    }

    /// Returns the name of a proxy's interface to the stretch `leg`.
    fn interface(&self, leg: usize) -> String {
        format!("{}{}", self.ends.interfaces[0], self.legs[leg])
    }

    fn wire(&self, leg: usize) -> Wire {
        let name = format!("{}{}", self.plan.name, self.legs[leg]);
        let ends = [self.end(leg, 0), self.end(leg, 1)];
        Wire { name, mtu: self.plan.mtu, emulated: true, ends }
    }

    /// Returns one end of the stretch `leg`; side 0 is the vehicle's.
    fn end(&self, leg: usize, side: usize) -> End {
        let last = self.last_leg();
        let outer = if side == 0 { leg == 0 } else { leg == last };
        let host = self.ends.hosts[side];
        let between = inner(self.number, leg, side as u8 + 1).networks(30, 64);
        let addresses = match (last, outer) {
            (0, _) => usable(host.networks(self.ends.prefix, 64), self.ipv6),
            (_, true) => [host.networks(32, 128), between]
                .into_iter()
                .flat_map(|networks| usable(networks, self.ipv6))
                .collect(),
            (_, false) => usable(between, self.ipv6),
        };
        let interface =
            if outer { self.ends.interfaces[side].clone() } else { self.interface(leg) };
        End { node: self.stations[leg + side], interface, addresses }
    }

    fn hop_from_vehicle(&self, table: u32) -> Hop<'_> {
        let [vehicle, ground] = self.ends.hosts;
        Hop {
            node: 0,
            interface: &self.ends.interfaces[0],
            via: if self.last_leg() > 0 { inner(self.number, 0, 2) } else { ground },
            source: Some(vehicle),
            table,
            ipv6: self.ipv6,
        }
    }

    fn hop_from_far(&self, via: Addresses) -> Hop<'_> {
        Hop {
            node: self.ends.far,
            interface: &self.ends.interfaces[1],
            via,
            source: Some(self.ends.hosts[1]),
            table: Route::MAIN,
            ipv6: self.ipv6,
        }
    }
}

/// A layout under construction.
#[derive(Default)]
struct Work {
    layout: Layout,
    /// Wires to be placed after those of the paths' main segments.
    later: Vec<Wire>,
}

/// Next hop of a route, in both address families.
struct Hop<'a> {
    node: usize,
    interface: &'a str,
    via: Addresses,
    source: Option<Addresses>,
    table: u32,
    /// Whether the path has IPv6.
    ipv6: bool,
}

const EVERYWHERE: [Network; 2] = [Network::ALL_V4, Network::ALL_V6];

impl Work {
    fn node(&mut self, name: &str, routes: bool) -> usize {
        self.layout.nodes.push(NodePlan { name: name.to_owned(), routes, here: false });
        self.layout.nodes.len() - 1
    }

    fn route(&mut self, to: [Network; 2], hop: &Hop<'_>) {
        for (kind, to) in to.into_iter().enumerate().take(if hop.ipv6 { 2 } else { 1 }) {
            self.layout.routes.push(RoutePlan {
                node: hop.node,
                interface: hop.interface.to_owned(),
                to,
                via: Some(hop.via.both()[kind]),
                source: hop.source.map(|source| source.both()[kind]),
                table: hop.table,
            });
        }
    }

    fn add_server(&mut self, server: Server, host_node: usize, gateway: usize) {
        let ipv6 = server.mtu >= MIN_IPV6_MTU;
        let [near, far] = [1, 2].map(|last| host(SERVER_NETWORK, last));
        let end = |node, interface: &str, address: Addresses| End {
            node,
            interface: interface.to_owned(),
            addresses: usable(address.networks(24, 64), ipv6),
        };
        self.later.push(Wire {
            name: "server".to_owned(),
            mtu: server.mtu,
            emulated: server.emulated,
            ends: [end(gateway, "server", near), end(host_node, "gateway", far)],
        });
        let interface = "gateway";
        let (node, table) = (host_node, Route::MAIN);
        self.route(EVERYWHERE, &Hop { node, interface, via: near, source: None, table, ipv6 });
    }

    fn add_path(&mut self, number: usize, plan: &PathPlan, ends: Ends) {
        let route = PathRoute::new(self, number, plan, ends);
        for (leg, suffix) in route.legs.iter().enumerate() {
            let wire = route.wire(leg);
            if suffix.is_empty() {
                self.layout.wires.push(wire);
            } else {
                self.later.push(wire);
            }
        }
        self.route_from_vehicle(&route);
        if route.last_leg() > 0 {
            self.route_through_proxies(&route);
        }
        let Ends { hosts: [vehicle, ground], interfaces: [interface, _], behind, .. } = route.ends;
        let ground = if behind { host(SERVER_NETWORK, 2) } else { ground };
        let name = plan.name.clone();
        self.layout.paths.push(Path { name, interface, mtu: plan.mtu, vehicle, ground });
    }

    /// Routes packets from the vehicle's address on the path through its own table, and all others through the first
    /// path.
    fn route_from_vehicle(&mut self, route: &PathRoute<'_>) {
        let PathRoute { number, ends, ipv6, .. } = route;
        let vehicle = ends.hosts[0];
        let table = FIRST_TABLE + *number as u32;
        self.route(EVERYWHERE, &route.hop_from_vehicle(table));
        if self.layout.paths.is_empty() {
            self.route(EVERYWHERE, &route.hop_from_vehicle(Route::MAIN));
            if route.last_leg() == 0 && !ends.behind {
                self.route(
                    ends.inside.networks(),
                    &Hop { source: None, ..route.hop_from_far(vehicle) },
                );
            }
        }
        for (kind, from) in vehicle.both().into_iter().enumerate().take(if *ipv6 { 2 } else { 1 }) {
            let rule = Rule {
                ipv6: kind == 1,
                from: Some(Network::host(from)),
                priority: FIRST_PRIORITY + *number as u32,
                table,
                ..Rule::default()
            };
            self.layout.rules.push((0, rule));
        }
    }

    /// Routes the path's networks between its ends and its proxies.
    fn route_through_proxies(&mut self, route: &PathRoute<'_>) {
        let PathRoute { number, ends, stations, ipv6, .. } = route;
        let last = route.last_leg();
        let end_to_end = host(*number, 0).networks(24, 64);
        let between = inner(*number, 0, 0).networks(16, 48);
        let far_hop = route.hop_from_far(inner(*number, last, 1));
        for hop in [route.hop_from_vehicle(Route::MAIN), far_hop] {
            self.route(end_to_end, &hop);
            self.route(between, &hop);
        }
        for (station, &node) in stations.iter().enumerate().take(last + 1).skip(1) {
            let hop = |leg: usize, side: u8, interface| Hop {
                node,
                interface,
                via: inner(*number, leg, side),
                source: None,
                table: Route::MAIN,
                ipv6: *ipv6,
            };
            let (back, on) = (route.interface(station - 1), route.interface(station));
            self.route(EVERYWHERE, &hop(station, 2, &on));
            self.route(ends.hosts[0].networks(32, 128), &hop(station - 1, 1, &back));
            for leg in 0..station - 1 {
                let network = inner(*number, leg, 0).networks(30, 64);
                self.route(network, &hop(station - 1, 1, &back));
            }
        }
    }

    fn finish(mut self) -> Layout {
        self.layout.wires.append(&mut self.later);
        self.layout
    }
}

/// Returns the networks that an interface can have.
fn usable(networks: [Network; 2], ipv6: bool) -> Vec<Network> {
    networks.into_iter().take(if ipv6 { 2 } else { 1 }).collect()
}

/// Returns unique names of the paths' interfaces: the path names, truncated to the kernel's limit.
fn interface_names(paths: &[PathPlan]) -> Vec<String> {
    let reserved = ["lo", "all", "default", "server", "gateway", ".", ".."];
    let mut taken: BTreeSet<String> = reserved.map(str::to_owned).into();
    let mut names = Vec::new();
    for path in paths {
        let forbidden = |c: char| c.is_whitespace() || c.is_control() || "/:%".contains(c);
        let clean: String = path.name.chars().map(|c| if forbidden(c) { '_' } else { c }).collect();
        let suffixes: &[&str] = if path.has_proxies() { &["", ".a", ".b"] } else { &[""] };
        let max_len = MAX_NAME - suffixes.last().map_or(0, |suffix| suffix.len());
        let candidates = (1..).map(|number| {
            let tail = if number == 1 { String::new() } else { format!("{number}") };
            let mut name = clean.clone();
            while name.len() + tail.len() > max_len {
                name.pop();
            }
            name + &tail
        });
        let free = |name: &String| {
            !name.is_empty() && suffixes.iter().all(|end| !taken.contains(&format!("{name}{end}")))
        };
        // The candidates are unlimited.
        let name = candidates.into_iter().find(free).unwrap_or_default();
        taken.extend(suffixes.iter().map(|suffix| format!("{name}{suffix}")));
        names.push(name);
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(plan: &Plan) -> Vec<String> {
        plan.layout().unwrap().paths.into_iter().map(|path| path.interface).collect()
    }

    #[test]
    fn interfaces_bear_the_paths_names_cut_to_the_kernels_limit() {
        let plan = Plan::direct(&[
            ("lte", 1500),
            ("satellite-geostationary", 1500),
            ("satellite-geostationary-2", 1500),
            ("a path", 1500),
            ("all", 1500),
        ]);
        assert_eq!(names(&plan), ["lte", "satellite-geost", "satellite-geos2", "a_path", "all2"]);
        let plan = Plan::direct(&[("satellite-geostationary", 1500), ("satellite-geo.a", 1500)])
            .with_proxies("satellite-geostationary", true, false);
        assert_eq!(names(&plan), ["satellite-geo", "satellite-geo.2"]);
    }

    #[test]
    fn a_path_with_two_proxies_has_three_segments() {
        let layout =
            Plan::direct(&[("lte", 1500), ("sat", 1400)]).with_proxies("sat", true, true).layout();
        let layout = layout.unwrap();
        let nodes: Vec<_> = layout.nodes.iter().map(|node| node.name.as_str()).collect();
        assert_eq!(nodes, ["vehicle", "ground", "sat-vp", "sat-gp"]);
        let wires: Vec<_> = layout.wires.iter().map(|wire| wire.name.as_str()).collect();
        assert_eq!(wires, ["lte", "sat", "sat.a", "sat.b"]);
        let text =
            |end: &End| -> Vec<String> { end.addresses.iter().map(Network::to_string).collect() };
        assert_eq!(text(&layout.wires[0].ends[0]), ["10.0.0.1/24", "fd73:6b79::1/64"]);
        assert_eq!(text(&layout.wires[1].ends[0]), ["10.101.1.1/30", "fd73:6b79:2:1::1/64"]);
        assert_eq!(
            text(&layout.wires[2].ends[0]),
            ["10.1.0.1/32", "fd73:6b79:0:1::1/128", "10.101.0.1/30", "fd73:6b79:2::1/64"]
        );
        assert_eq!(layout.wires[3].ends[1].addresses[0].to_string(), "10.1.0.2/32");
        assert_eq!(layout.wires[3].ends[1].interface, "sat");
    }

    // Source: RFC 8200 §5: every link has an MTU of 1280 bytes or greater.
    #[test]
    fn a_path_too_narrow_for_ipv6_has_none() {
        let layout = Plan::direct(&[("narrow", 576)]).layout().unwrap();
        assert!(
            layout.wires.iter().flat_map(|wire| &wire.ends).all(|end| end.addresses.len() == 1)
        );
        assert!(layout.routes.iter().all(|route| route.to.address.is_ipv4()));
        assert!(layout.rules.iter().all(|(_, rule)| !rule.ipv6));
    }

    #[test]
    fn two_paths_of_one_name_are_refused() {
        let error = Plan::direct(&[("lte", 1500), ("lte", 1500)]).layout().unwrap_err();
        assert!(error.to_string().contains("different names, not 2 [lte, lte]"), "{error}");
        assert!(Plan::direct(&[]).layout().is_err());
    }
}
