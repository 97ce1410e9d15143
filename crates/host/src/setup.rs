//! What is to be run.

use alloc::string::String;
use alloc::vec::Vec;

use skybraid_link::{Direction, LinkConfig};
use skybraid_traffic::TrafficConfig;
use skybraid_transport::split::Cache;
use skybraid_transport::{Class, PathId, PathInfo, TransportConfig};
use skybraid_units::{Duration, Instant, Seed};

use crate::record::Record;

/// One of the two ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Host {
    /// The aircraft, or whoever opens the connection; what it sends goes by the uplinks.
    Vehicle,
    /// The ground station, or whoever answers; what it sends goes by the downlinks.
    Ground,
}

impl Host {
    /// The name used in scenarios and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Vehicle => "vehicle",
            Self::Ground => "ground",
        }
    }

    /// The direction in which what this host sends travels.
    pub const fn sends(self) -> Direction {
        match self {
            Self::Vehicle => Direction::Uplink,
            Self::Ground => Direction::Downlink,
        }
    }
}

/// A link between two nodes, in both directions. Directed links are numbered: that of link `n` from its
/// first node to its second is `2 n`, the other `2 n + 1`.
#[derive(Clone, Debug)]
pub struct LinkSetup {
    /// Its name; random streams derive from it.
    pub name: String,
    /// The nodes that it joins, by number. Between two hosts: vehicle 0, ground 1.
    pub ends: [usize; 2],
    /// From the first node to the second.
    pub uplink: LinkConfig,
    /// Back.
    pub downlink: LinkConfig,
    /// What transports are told of a path that begins with this link.
    pub info: PathInfo,
}

/// How packets find their way from one end of a connection to the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// By these directed links, one after the other; at least one.
    Fixed(Vec<usize>),
    /// Each packet by itself: at each node by one of the links that [`Setup::forwarding`] offers there.
    Spread {
        /// Where it starts.
        from: usize,
        /// Which table, as a position in [`Setup::forwarding`].
        table: usize,
    },
}

/// For one destination: the directed links by which a packet may leave each node. A packet has arrived
/// where there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forwarding {
    /// By node.
    pub next: Vec<Vec<usize>>,
    /// The choice goes round in place of being drawn.
    pub in_turn: bool,
}

/// A path of a connection, which a subflow may use.
#[derive(Clone, Debug)]
pub struct PathSetup {
    /// Its name in tables.
    pub name: String,
    /// From the end that opens to the other.
    pub uplink: Route,
    /// Back.
    pub downlink: Route,
    /// What the transport is told of it.
    pub info: PathInfo,
}

impl PathSetup {
    /// The path that consists of link number `number`.
    pub fn over(number: usize, link: &LinkSetup) -> Self {
        Self {
            name: link.name.clone(),
            uplink: Route::Fixed(alloc::vec![2 * number]),
            downlink: Route::Fixed(alloc::vec![2 * number + 1]),
            info: link.info,
        }
    }

    /// Between two hosts, each link is a path.
    pub fn over_each(links: &[LinkSetup]) -> Vec<Self> {
        links.iter().enumerate().map(|(number, link)| Self::over(number, link)).collect()
    }
}

/// A proxy that splits a flow's connection in two.
#[derive(Clone, Debug)]
pub struct ProxySetup {
    /// Its name in tables.
    pub name: String,
    /// Its memory for each direction.
    pub cache: Cache,
    /// How the flow is carried from here on, away from the end that opens.
    pub transport: TransportConfig,
    /// Which paths may carry it from here on, as positions in [`Setup::paths`].
    pub paths: Vec<usize>,
}

/// A flow of messages.
#[derive(Clone, Debug)]
pub struct FlowSetup {
    /// Its name.
    pub name: String,
    /// The name under which it is told together with others; its own where it stands alone.
    pub group: String,
    /// Who sends.
    pub from: Host,
    /// What the messages are for.
    pub class: Class,
    /// When it begins.
    pub start: Instant,
    /// When it ends.
    pub stop: Instant,
    /// What is sent.
    pub traffic: TrafficConfig,
    /// How it is carried.
    pub transport: TransportConfig,
    /// Which paths may carry it, as positions in [`Setup::paths`].
    pub paths: Vec<usize>,
    /// The deadline that messages carry, for schedulers.
    pub deadline: Option<Duration>,
    /// Deadlines against which arrivals are counted.
    pub judged_by: Vec<Duration>,
    /// Deadlines against which the frames of a video are counted.
    pub frames_within: Vec<Duration>,
    /// Whether a requirement asks for a percentile of the delays.
    pub judges_delays: bool,
    /// The flow in whose connection this one rides, as a position in [`Setup::flows`]; `None` for a
    /// connection of its own. Such a flow's own transport and paths do not count.
    pub rides_with: Option<usize>,
    /// How many times the application writes each message, at least 1. The other side's application
    /// uses the first and drops the rest.
    pub copies: u8,
    /// Proxies that split the connection, from the end that opens on.
    pub proxies: Vec<ProxySetup>,
}

/// An address of the vehicle comes or goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressChange {
    /// When.
    pub at: Instant,
    /// Whose connection, as a position in [`Setup::flows`].
    pub flow: usize,
    /// The path, by the connection's own numbering.
    pub path: PathId,
    /// It comes rather than goes.
    pub added: bool,
}

/// A run.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The root seed.
    pub seed: Seed,
    /// How long.
    pub duration: Duration,
    /// The links.
    pub links: Vec<LinkSetup>,
    /// The paths of all connections.
    pub paths: Vec<PathSetup>,
    /// For paths whose packets each find their own way.
    pub forwarding: Vec<Forwarding>,
    /// The flows.
    pub flows: Vec<FlowSetup>,
    /// Addresses that come and go, in order of time.
    pub address_changes: Vec<AddressChange>,
    /// What is kept beside the summary.
    pub record: Record,
}
