//! Nodes and links of a network: expansion of groups, and resolution of names to indices.

use std::ops::RangeInclusive;
use std::sync::Arc;

use serde::Deserialize;
use skybraid_host::DirectedLink;
use skybraid_link::{LinkConfig, PathConfig, Population};
use skybraid_transport::PathInfo;
use skybraid_units::invariant::Promised as _;
use skybraid_units::{Bytes, named};

use crate::cells::Cells;
use crate::file::{NodeFile, RouteFile};
use crate::key::KeyPath;
use crate::orbit::Orbit;
use crate::wording::unknown;

named! {
    /// Kind of a node.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum NodeKind {
        /// An aircraft, which opens connections and does not forward.
        Vehicle = "vehicle",
        /// A ground station, which does not forward.
        Ground = "ground",
        /// Any other node, such as a router, base station, satellite or host, which forwards.
        Router = "router",
    }
}

/// A node of the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Name of the node: that of the group, followed by a number if the group has several members.
    pub name: String,
    /// Name of the group in the scenario.
    pub group: String,
    /// Kind of the node.
    pub kind: NodeKind,
    /// Whether the node forwards packets of others.
    pub forwards: bool,
}

/// A link between two nodes, ready to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// Name of the link, from which its random streams are derived.
    pub name: String,
    /// Name of the group in the scenario.
    pub group: String,
    /// Nodes at both ends, as indices into [`Scenario::nodes`](crate::Scenario::nodes).
    pub ends: [usize; 2],
    /// Routing metric.
    pub weight: u32,
    /// All keys: those of the scenario, completed by the preset's, and those of events.
    pub config: PathConfig,
    /// Direction from the first node to the second; between two hosts from the vehicle to the ground.
    pub uplink: LinkConfig,
    /// Direction from the second node to the first.
    pub downlink: LinkConfig,
    /// Family of flights; each run draws one in place of `uplink` and `downlink`, which are then those of the
    /// median flight.
    pub population: Option<Population>,
    /// Path information for transports whose path starts with this link.
    pub info: PathInfo,
    /// Radio cells of the link, which halt it at handovers.
    pub cells: Option<Cells>,
    /// Satellites of the link, which determine its delay over time.
    pub orbit: Option<Arc<Orbit>>,
}

/// Metric that shortest paths minimise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Weights of the links, 1 by default.
    #[default]
    Weight,
    /// Propagation delays at the start of the run.
    Delay,
}

/// Choice among several shortest paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ecmp {
    /// By a hash of connection, subflow, direction and node (RFC 2992).
    #[default]
    Flow,
    /// At random for each packet.
    Packet,
    /// Round robin at each node.
    RoundRobin,
    /// The first link in the order of the scenario.
    Off,
}

/// A static route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticRoute {
    /// Nodes at which the route holds.
    pub at: Vec<usize>,
    /// Destinations for which the route holds.
    pub to: Vec<usize>,
    /// Directed links by which packets leave one of these nodes; a node uses its own.
    pub(crate) via: Vec<DirectedLink>,
}

/// Routing of a network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routing {
    /// Metric that shortest paths minimise.
    pub by: Metric,
    /// Choice among several shortest paths.
    pub ecmp: Ecmp,
    /// Size beyond which IPv4 cuts a packet into fragments that are routed apart; without it, none is cut.
    pub fragment_size: Option<Bytes>,
    /// Static routes, which override shortest paths. The last one for a node and destination holds.
    pub fixed: Vec<StaticRoute>,
}

/// Names of the aircraft and of the ground station in a scenario of paths.
pub(crate) const HOSTS: [&str; 2] = ["vehicle", "ground"];

/// Range of the size of fragments: the smallest MTU of IPv4 (RFC 791 §3.2) and its largest packet.
pub(crate) const FRAGMENT_SIZE: RangeInclusive<u64> = 68..=65_535;

/// Maximum number of members of a group.
const MAX_MEMBERS: u32 = 100_000;

/// Returns the two hosts of a scenario of paths.
pub(crate) fn two_hosts() -> Vec<Node> {
    let host = |name: &&str| members(name, &NodeFile::default()).ok().promised("a host");
    HOSTS.iter().filter_map(host).flatten().collect()
}

/// Returns the nodes of a group.
///
/// # Errors
/// A key and the problem with its value.
pub(crate) fn members(group: &str, read: &NodeFile) -> Result<Vec<Node>, (&'static str, String)> {
    let by_name = match group {
        "vehicle" => NodeKind::Vehicle,
        "ground" => NodeKind::Ground,
        _ => NodeKind::Router,
    };
    let kind = read.kind.unwrap_or(by_name);
    let forwards = read.forwards.unwrap_or(kind == NodeKind::Router);
    let node = |name: String| Node { name, group: group.to_string(), kind, forwards };
    match read.count {
        None => Ok(vec![node(group.to_string())]),
        Some(count) if (1..=MAX_MEMBERS).contains(&count) => {
            Ok((1..=count).map(|number| node(format!("{group}-{number}"))).collect())
        }
        Some(count) => Err(("count", format!("found {count}, expected 1 to {MAX_MEMBERS}"))),
    }
}

/// Returns the nodes called `name`: those of a group, or a single node.
pub(crate) fn find_nodes(nodes: &[Node], name: &str) -> Result<Vec<usize>, String> {
    let of = |fits: &dyn Fn(&Node) -> bool| -> Vec<usize> {
        let found = nodes.iter().enumerate().filter(|(_, node)| fits(node));
        found.map(|(number, _)| number).collect()
    };
    let group = of(&|node| node.group == name);
    if !group.is_empty() {
        return Ok(group);
    }
    let single = of(&|node| node.name == name);
    if !single.is_empty() {
        return Ok(single);
    }
    let mut known: Vec<&str> = nodes.iter().map(|node| node.group.as_str()).collect();
    known.dedup();
    Err(unknown("node", name, &known))
}

/// A link before validation of its keys.
pub(crate) struct Wiring {
    pub name: String,
    pub group: String,
    pub ends: [usize; 2],
    pub weight: u32,
    pub config: PathConfig,
    pub cells: Option<Cells>,
    pub orbit: Option<Arc<Orbit>>,
}

/// Returns the links of a group: one between each node of the first of `ends` and each of the second.
///
/// # Errors
/// A key and the problem with its value.
pub(crate) fn wirings(
    group: &str,
    ends: [&Option<String>; 2],
    weight: Option<u32>,
    config: &PathConfig,
    nodes: &[Node],
) -> Result<Vec<Wiring>, (&'static str, String)> {
    let end = |key: &'static str, name: &Option<String>| {
        let expected = || (key, "expected the name of a node or of a group of nodes".to_string());
        let name = name.as_deref().ok_or_else(expected)?;
        find_nodes(nodes, name).map_err(|problem| (key, problem))
    };
    let (from, to) = (end("from", ends[0])?, end("to", ends[1])?);
    if let Some(both) = from.iter().find(|node| to.contains(node)) {
        let node = nodes.get(*both).promised("a node found by name");
        let name = node.map(|node| node.name.clone()).unwrap_or_default();
        return Err(("to", format!("found a link from `{name}` to itself")));
    }
    if from.len().saturating_mul(to.len()) > MAX_MEMBERS as usize {
        let (from, to) = (from.len(), to.len());
        let problem = format!("found {from} times {to} links, expected at most {MAX_MEMBERS}");
        return Err(("to", problem));
    }
    let weight = weight.unwrap_or(1);
    if weight == 0 {
        return Err(("weight", "expected above zero".to_string()));
    }
    let mut made = Vec::new();
    for a in &from {
        for b in &to {
            let mut name = group.to_string();
            for (end, others) in [(a, &from), (b, &to)] {
                let node = nodes.get(*end).promised("a node found by name");
                if let (Some(node), 2..) = (node, others.len()) {
                    name.push('.');
                    name.push_str(&node.name);
                }
            }
            let config = config.clone();
            let (group, ends) = (group.to_string(), [*a, *b]);
            made.push(Wiring { name, group, ends, weight, config, cells: None, orbit: None });
        }
    }
    Ok(made)
}

/// Reads a static route.
///
/// # Errors
/// A key and the problem with its value.
pub(crate) fn static_route(
    read: &RouteFile,
    nodes: &[Node],
    links: &[Wiring],
) -> Result<StaticRoute, (&'static str, String)> {
    let at = find_nodes(nodes, &read.at).map_err(|problem| ("at", problem))?;
    let to = find_nodes(nodes, &read.to).map_err(|problem| ("to", problem))?;
    let named = |link: &Wiring| link.name == read.via || link.group == read.via;
    let next = find_nodes(nodes, &read.via).unwrap_or_default();
    let mut via = Vec::new();
    for (number, link) in links.iter().enumerate() {
        for directed in DirectedLink::both(number) {
            let [from, to] = directed.orient(link.ends);
            if at.contains(&from) && (named(link) || next.contains(&to)) {
                via.push(directed);
            }
        }
    }
    if via.is_empty() {
        let (at, via) = (&read.at, &read.via);
        let problem = format!("found no link `{via}` and no link to a node `{via}` at `{at}`");
        return Err(("via", problem));
    }
    Ok(StaticRoute { at, to, via })
}

/// Returns the key of the table of a node, link or flow.
pub(crate) fn table(kind: &str, name: &str) -> KeyPath {
    KeyPath::dotted(kind).key(name)
}
