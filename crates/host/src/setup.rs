//! What is to be run.

use alloc::string::String;
use alloc::vec::Vec;

use skybraid_link::{Direction, LinkConfig};
use skybraid_traffic::TrafficConfig;
use skybraid_transport::{Class, PathId, PathInfo, TransportConfig};
use skybraid_units::{Duration, Instant, Seed};

use crate::record::Record;

/// One of the two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Host {
    /// The aircraft. It opens connections; what it sends goes by the uplinks.
    Vehicle,
    /// The ground station; what it sends goes by the downlinks.
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

/// A path between vehicle and ground.
#[derive(Clone, Debug)]
pub struct PathSetup {
    /// Its name; random streams derive from it.
    pub name: String,
    /// Vehicle to ground.
    pub uplink: LinkConfig,
    /// Ground to vehicle.
    pub downlink: LinkConfig,
    /// What transports are told of it.
    pub info: PathInfo,
}

/// A flow of messages.
#[derive(Clone, Debug)]
pub struct FlowSetup {
    /// Its name.
    pub name: String,
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
    /// The flow in whose connection this one rides, as a position in [`Setup::flows`]; `None` for a
    /// connection of its own. Such a flow's own transport and paths do not count.
    pub rides_with: Option<usize>,
    /// How many times the application writes each message, at least 1. The other side's application
    /// uses the first and drops the rest.
    pub copies: u8,
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
    /// The paths.
    pub paths: Vec<PathSetup>,
    /// The flows.
    pub flows: Vec<FlowSetup>,
    /// Addresses that come and go, in order of time.
    pub address_changes: Vec<AddressChange>,
    /// What is kept beside the summary.
    pub record: Record,
}
