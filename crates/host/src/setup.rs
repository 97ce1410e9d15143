//! The setup of a run: links, paths, routes and flows.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use skybraid_link::{Direction, LinkConfig};
use skybraid_traffic::TrafficConfig;
use skybraid_transport::split::Cache;
use skybraid_transport::{Class, PathId, PathInfo, TransportConfig};
use skybraid_units::{Duration, Instant, Seed, named};

use crate::ids::DirectedLink;
use crate::record::Record;

named! {
    /// End of a connection.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Host {
        /// The aircraft, or the initiator of the connection; sends on the uplinks.
        Vehicle = "vehicle",
        /// The ground station, or the responder of the connection; sends on the downlinks.
        Ground = "ground",
    }
}

impl Host {
    /// Direction of the links on which this host sends.
    pub const fn sends(self) -> Direction {
        match self {
            Self::Vehicle => Direction::Uplink,
            Self::Ground => Direction::Downlink,
        }
    }
}

/// A link between two nodes, in both directions. See [`DirectedLink`] for the numbers of the directions.
#[derive(Clone, Debug)]
pub struct LinkSetup {
    /// Name of the link; the names of its random streams derive from it.
    pub name: String,
    /// Numbers of the two nodes. Between two hosts: vehicle 0, ground 1.
    pub ends: [usize; 2],
    /// Direction from the first node to the second.
    pub uplink: LinkConfig,
    /// Direction from the second node to the first.
    pub downlink: LinkConfig,
    /// Configured properties, for transports, of a path that begins with this link.
    pub info: PathInfo,
}

/// The way of packets from one end of a connection to the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// Over these [directed links](DirectedLink) in order; at least one.
    Fixed(Vec<DirectedLink>),
    /// Hop by hop: each node forwards each packet to one of the links that [`Setup::forwarding`] lists for the
    /// node.
    Spread {
        /// Node at which the route starts.
        from: usize,
        /// Position of the table in [`Setup::forwarding`].
        table: usize,
    },
}

/// Forwarding table of one destination: the directed links on which each node may forward a packet. A node
/// without links is the destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forwarding {
    /// Directed links by node.
    pub next: Vec<Vec<DirectedLink>>,
    /// Whether each node uses its links in turn (round robin) rather than at random.
    pub in_turn: bool,
}

/// A path that subflows of a connection may use.
#[derive(Clone, Debug)]
pub struct PathSetup {
    /// Name in tables.
    pub name: String,
    /// Route from the initiator to its peer.
    pub uplink: Route,
    /// Route from the peer to the initiator.
    pub downlink: Route,
    /// Configured properties, for the transport.
    pub info: PathInfo,
}

impl PathSetup {
    /// Returns the path that consists of link number `number`.
    pub fn over(number: usize, link: &LinkSetup) -> Self {
        let [uplink, downlink] = DirectedLink::both(number);
        Self {
            name: link.name.clone(),
            uplink: Route::Fixed(alloc::vec![uplink]),
            downlink: Route::Fixed(alloc::vec![downlink]),
            info: link.info,
        }
    }

    /// Returns one path per link, for links between two hosts.
    pub fn over_each(links: &[LinkSetup]) -> Vec<Self> {
        links.iter().enumerate().map(|(number, link)| Self::over(number, link)).collect()
    }
}

/// A proxy that splits a flow's connection in two.
#[derive(Clone, Debug)]
pub struct ProxySetup {
    /// Name in tables.
    pub name: String,
    /// Buffer limits for each direction.
    pub cache: Cache,
    /// Transport of the next connection, away from the initiator.
    pub transport: TransportConfig,
    /// Paths of the next connection, as positions in [`Setup::paths`].
    pub paths: Vec<usize>,
}

/// A flow of messages.
#[derive(Clone, Debug)]
pub struct FlowSetup {
    /// Name of the flow.
    pub name: String,
    /// Name under which results of several flows are pooled; the flow's own name if it is not pooled.
    pub group: String,
    /// Sending host.
    pub from: Host,
    /// Traffic class of the messages.
    pub class: Class,
    /// Start of the traffic.
    pub start: Instant,
    /// End of the traffic.
    pub stop: Instant,
    /// Source of the messages.
    pub traffic: TrafficConfig,
    /// Transport of the connection; flows of one kind share it.
    pub transport: Arc<TransportConfig>,
    /// Paths of the connection, as positions in [`Setup::paths`].
    pub paths: Vec<usize>,
    /// Deadline that messages carry, for schedulers.
    pub deadline: Option<Duration>,
    /// Deadlines by which messages are judged.
    pub judged_by: Vec<Duration>,
    /// Deadlines by which the frames of a video are judged.
    pub frames_within: Vec<Duration>,
    /// Whether a requirement bounds a percentile of the delays.
    pub judges_delays: bool,
    /// Flow whose connection carries this one, as a position in [`Setup::flows`]; `None` for a connection of its
    /// own. A carried flow's own `transport` and `paths` are ignored.
    pub rides_with: Option<usize>,
    /// Number of times that the application writes each message, at least 1. The receiving application uses the
    /// first copy and drops the others.
    pub copies: u8,
    /// Proxies that split the connection, from the initiator on.
    pub proxies: Vec<ProxySetup>,
}

/// Change of an address of the vehicle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressChange {
    /// Time of the change.
    pub at: Instant,
    /// Flow that owns the connection, as a position in [`Setup::flows`].
    pub flow: usize,
    /// Path, in the connection's own numbering.
    pub path: PathId,
    /// Whether the address is added rather than removed.
    pub added: bool,
}

/// A run: its network, its flows and what is recorded.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Root seed.
    pub seed: Seed,
    /// Duration of the run.
    pub duration: Duration,
    /// Links of the network.
    pub links: Vec<LinkSetup>,
    /// Paths of all connections.
    pub paths: Vec<PathSetup>,
    /// Tables of the routes that are [`Route::Spread`].
    pub forwarding: Vec<Forwarding>,
    /// Size in bytes beyond which IP cuts a packet into fragments; `None` if it never does.
    pub fragment_size: Option<u32>,
    /// Flows of messages.
    pub flows: Vec<FlowSetup>,
    /// Address changes, in order of time.
    pub address_changes: Vec<AddressChange>,
    /// Tables that are kept next to the summary.
    pub record: Record,
}

/// A run is larger than the numbers in its tables and packets allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge {
    /// Kind of item that exceeds its limit: `flow`, `path`, `link` or `duration`.
    pub of: &'static str,
    /// Unit of the limit.
    pub counted: &'static str,
    /// Count in the setup.
    pub found: usize,
    /// Maximum count.
    pub max: usize,
}

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "found {} {}, expected at most {}", self.found, self.counted, self.max)
    }
}

impl core::error::Error for TooLarge {}

impl Setup {
    /// Maximum records: those of the flows, and one more for the answers to each answered flow.
    pub const MAX_RECORDS: usize = u16::MAX as usize;
    /// Maximum flows in one connection.
    pub const MAX_STREAMS: usize = 1 << 8;
    /// Maximum paths.
    pub const MAX_PATHS: usize = 1 << 16;
    /// Maximum links, each of which has two directions.
    pub const MAX_LINKS: usize = 1 << 15;
    /// Maximum duration in seconds: the simulator's agenda ends after 36 years.
    pub const MAX_SECONDS: usize = 1 << 30;

    /// Checks that everything can be numbered.
    ///
    /// # Errors
    /// There are more records, flows in one connection, paths, links or seconds than the numbers allow.
    pub fn check(&self) -> Result<(), TooLarge> {
        let answered = self.flows.iter().filter(|flow| flow.traffic.is_answered()).count();
        let mut carried = alloc::vec![1; self.flows.len()];
        for carrier in self.flows.iter().filter_map(|flow| flow.rides_with) {
            if let Some(count) = carried.get_mut(carrier) {
                *count += 1;
            }
        }
        let in_one = carried.into_iter().max().unwrap_or(0);
        let records = self.flows.len() + answered;
        for (of, counted, found, max) in [
            ("flow", "flows and records of answers", records, Self::MAX_RECORDS),
            ("flow", "flows in one connection", in_one, Self::MAX_STREAMS),
            ("path", "paths", self.paths.len(), Self::MAX_PATHS),
            ("link", "links", self.links.len(), Self::MAX_LINKS),
            ("duration", "seconds", self.duration.as_secs_f64() as usize, Self::MAX_SECONDS),
        ] {
            if found > max {
                return Err(TooLarge { of, counted, found, max });
            }
        }
        Ok(())
    }
}
