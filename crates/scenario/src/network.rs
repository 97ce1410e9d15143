//! Nodes and links: groups into their members, names into numbers.

use std::sync::Arc;

use serde::Deserialize;
use skybraid_link::{LinkConfig, PathConfig};
use skybraid_transport::PathInfo;

use crate::file::{NodeFile, RouteFile};
use crate::flight::Cells;
use crate::key::KeyPath;
use crate::orbit::Orbit;
use crate::wording::unknown;

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeKind {
    /// An aircraft. It opens connections and forwards nothing.
    Vehicle,
    /// A ground station. It forwards nothing.
    Ground,
    /// Anything else: router, base station, satellite, host. It forwards.
    Router,
}

impl NodeKind {
    /// The name used in scenarios.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Vehicle => "vehicle",
            Self::Ground => "ground",
            Self::Router => "router",
        }
    }
}

/// A node of the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its name: that of the group, with its number behind where the group has one.
    pub name: String,
    /// The name under which the scenario has it.
    pub group: String,
    /// What it is.
    pub kind: NodeKind,
    /// Packets for others pass through it.
    pub forwards: bool,
}

/// A link between two nodes, ready to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// Its name; random streams derive from it.
    pub name: String,
    /// The name under which the scenario has it.
    pub group: String,
    /// The nodes that it joins, as positions in [`Scenario::nodes`](crate::Scenario::nodes).
    pub ends: [usize; 2],
    /// What shortest paths add up.
    pub weight: u32,
    /// All keys: the scenario's, the preset's where the scenario leaves them out, and the events'.
    pub config: PathConfig,
    /// From the first node to the second; between two hosts, from the vehicle to the ground.
    pub uplink: LinkConfig,
    /// Back.
    pub downlink: LinkConfig,
    /// What transports are told of a path that begins with it.
    pub info: PathInfo,
    /// The radio cells under it, which halt it at handovers.
    pub cells: Option<Cells>,
    /// The satellites under it, which give its delay over time.
    pub orbit: Option<Arc<Orbit>>,
}

/// What shortest paths add up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// The weights of the links: 1 each unless said.
    #[default]
    Weight,
    /// The propagation delays at the start of the run.
    Delay,
}

/// Which of several equally short ways a packet takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ecmp {
    /// A hash of connection, subflow, direction and node decides (RFC 2992).
    #[default]
    Flow,
    /// Each packet is sent at random.
    Packet,
    /// Each node sends packets by its links in turn.
    RoundRobin,
    /// The link that stands first in the scenario.
    Off,
}

/// A static route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticRoute {
    /// The nodes at which it holds.
    pub at: Vec<usize>,
    /// The destinations for which it holds.
    pub to: Vec<usize>,
    /// The directed links by which packets leave one of these nodes; a node takes its own.
    pub via: Vec<usize>,
}

/// How packets find their way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routing {
    /// What shortest paths add up.
    pub by: Metric,
    /// Which of several equally short ways a packet takes.
    pub ecmp: Ecmp,
    /// Routes that go before shortest paths; of several for a node and destination the last holds.
    pub fixed: Vec<StaticRoute>,
}

/// The name of the aircraft and of the ground station between which paths lie.
pub(crate) const HOSTS: [&str; 2] = ["vehicle", "ground"];

/// A group has at most so many members.
const MOST_MEMBERS: u32 = 100_000;

/// The two hosts of a scenario of paths.
pub(crate) fn two_hosts() -> Vec<Node> {
    HOSTS.iter().flat_map(|name| members(name, &NodeFile::default()).unwrap_or_default()).collect()
}

/// The nodes of a group.
///
/// # Errors
/// The key at fault and what is wrong.
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
        Some(count) if (1..=MOST_MEMBERS).contains(&count) => {
            Ok((1..=count).map(|number| node(format!("{group}-{number}"))).collect())
        }
        Some(count) => Err(("count", format!("found {count}, expected 1 to {MOST_MEMBERS}"))),
    }
}

/// The nodes that `name` means: a group or a single node.
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

/// A link before its keys are checked.
pub(crate) struct Wiring {
    pub name: String,
    pub group: String,
    pub ends: [usize; 2],
    pub weight: u32,
    pub config: PathConfig,
    pub cells: Option<Cells>,
    pub orbit: Option<Arc<Orbit>>,
}

/// The links of a group: one between every node of the first of `ends` and every node of the second.
///
/// # Errors
/// The key at fault and what is wrong.
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
        let name = nodes.get(*both).map(|node| node.name.clone()).unwrap_or_default();
        return Err(("to", format!("found a link from `{name}` to itself")));
    }
    if from.len().saturating_mul(to.len()) > MOST_MEMBERS as usize {
        let (from, to) = (from.len(), to.len());
        let problem = format!("found {from} times {to} links, expected at most {MOST_MEMBERS}");
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
                if let (Some(node), 2..) = (nodes.get(*end), others.len()) {
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
/// The key at fault and what is wrong.
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
        let [a, b] = link.ends;
        for (directed, from, to) in [(2 * number, a, b), (2 * number + 1, b, a)] {
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

/// The key of a node's, link's or flow's table.
pub(crate) fn table(kind: &str, name: &str) -> KeyPath {
    KeyPath::dotted(kind).key(name)
}
