//! Keys of a scenario file for serde. Only names and units are checked here.

use std::convert::Infallible;

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use skybraid_link::{
    Along, AlongConfig, ChangeConfig, DelayConfig, DirectionConfig, Draw, DrxConfig, FlightConfig,
    HandoverConfig, HarqConfig, Losses, PathConfig, QueueConfig, RandomSpansConfig, RateConfig,
    ReconfigurationConfig, SpreadConfig, Start, Switch,
};
use skybraid_orbit::OrbitConfig;
use skybraid_track::{Position, TrackConfig};
use skybraid_traffic::TrafficConfig;
use skybraid_transport::split::Cache;
use skybraid_transport::{Class, TransportConfig};
use skybraid_units::form::{self, OneOrMany};
use skybraid_units::{Bytes, Duration, Probability, Rate, defaults};

use crate::cells::CellsFile;
use crate::correlation::CorrelationFile;
use crate::coverage::CoverageFile;
use crate::network::{Ecmp, Metric, NodeKind};
use crate::shared_outages::OutagesFile;
use crate::{Server, Surroundings};

/// A scenario file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScenarioFile {
    pub name: Option<String>,
    pub duration: Duration,
    #[serde(default = "first_seed")]
    pub seed: u64,
    pub traces: Option<TraceStart>,
    #[serde(default)]
    pub path: Named<LinkFile>,
    #[serde(default)]
    pub node: Named<NodeFile>,
    #[serde(default)]
    pub link: Named<LinkFile>,
    #[serde(default)]
    pub routing: RoutingFile,
    #[serde(default)]
    pub route: Vec<RouteFile>,
    #[serde(default)]
    pub flow: Named<FlowFile>,
    #[serde(default)]
    pub event: Vec<EventFile>,
    #[serde(default)]
    pub outages: Vec<OutagesFile>,
    #[serde(default)]
    pub correlation: Vec<CorrelationFile>,
    #[serde(default)]
    pub testbed: TestbedFile,
    /// Read by campaigns only.
    #[serde(default, rename = "sweep")]
    pub _sweep: Option<IgnoredAny>,
}

defaults! { first_seed: u64 = 1; }

/// Start of the run within traces that have no start of their own.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum TraceStart {
    /// The start of the trace.
    Replay,
    /// A random place, drawn from the seed.
    Random,
}

impl TraceStart {
    /// Returns the equivalent `start` of a trace.
    pub const fn start(self) -> Start {
        match self {
            Self::Replay => Start::At(Duration::ZERO),
            Self::Random => Start::Random,
        }
    }
}

/// `[node.NAME]`.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct NodeFile {
    pub kind: Option<NodeKind>,
    /// Number of nodes in the group; a single node without a number by default.
    pub count: Option<u32>,
    /// Whether the node forwards packets of others; by default routers do.
    pub forwards: Option<bool>,
    /// Position of the node, or of all nodes of the group.
    pub position: Option<Position>,
    pub track: Option<TrackConfig>,
}

/// `[path.NAME]` and `[link.NAME]`.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct LinkFile {
    /// Ends of a `[link.NAME]`, required there and not allowed in paths.
    pub from: Option<String>,
    pub to: Option<String>,
    /// Routing metric of a `[link.NAME]`.
    pub weight: Option<u32>,
    pub preset: Option<String>,
    pub mtu: Option<Bytes>,
    pub cost: Option<u32>,
    pub backup: Option<bool>,
    pub priority: Option<u8>,
    pub down: Option<Vec<(Duration, Duration)>>,
    /// Values for both directions.
    pub rate: Option<RateConfig>,
    pub delay: Option<DelayConfig>,
    pub reorder: Option<bool>,
    pub queue: Option<QueueConfig>,
    pub loss: Option<Losses>,
    pub harq: Option<Switch<HarqConfig>>,
    pub overhead: Option<Bytes>,
    pub uplink: DirectionConfig,
    pub downlink: DirectionConfig,
    pub drx: Option<Switch<DrxConfig>>,
    pub handover: Option<Switch<HandoverConfig>>,
    pub stall: Option<Switch<RandomSpansConfig>>,
    pub outage: Option<Switch<RandomSpansConfig>>,
    pub reconfiguration: Option<Switch<ReconfigurationConfig>>,
    pub flight: Vec<FlightConfig>,
    pub spread: Option<SpreadConfig>,
    pub draw: Option<Draw>,
    pub along: Option<AlongConfig>,
    /// Allowed in a scenario only.
    pub cells: Option<CellsFile>,
    pub coverage: Option<CoverageFile>,
    pub orbit: Option<OrbitConfig>,
}

impl LinkFile {
    /// Returns the path's keys, with the values for both directions copied into each.
    pub fn into_path(self) -> PathConfig {
        let both = PathConfig {
            uplink: DirectionConfig {
                rate: self.rate,
                access: None,
                delay: self.delay,
                reorder: self.reorder,
                queue: self.queue,
                loss: self.loss,
                harq: self.harq,
                overhead: self.overhead,
                changes: Vec::new(),
            },
            ..PathConfig::default()
        };
        let both = PathConfig { downlink: both.uplink.clone(), ..both };
        let own = PathConfig {
            preset: self.preset,
            mtu: self.mtu,
            cost: self.cost,
            backup: self.backup,
            priority: self.priority,
            down: self.down,
            halts: Vec::new(),
            uplink: self.uplink,
            downlink: self.downlink,
            drx: self.drx,
            handover: self.handover,
            stall: self.stall,
            outage: self.outage,
            reconfiguration: self.reconfiguration,
            flight: self.flight,
            spread: self.spread,
            draw: self.draw,
            along: self.along,
            factors: Along::default(),
        };
        own.with_defaults(&both)
    }
}

/// `[routing]`.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RoutingFile {
    pub by: Metric,
    pub ecmp: Ecmp,
    pub fragment_size: Option<Bytes>,
}

/// `[[route]]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RouteFile {
    pub at: String,
    pub to: String,
    pub via: String,
}

/// An entry of a flow's `proxies`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProxyFile {
    pub at: String,
    #[serde(default)]
    pub cache: Cache,
    pub transport: Option<TransportConfig>,
}

/// `[testbed]`.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TestbedFile {
    pub server: Option<Server>,
    pub path: Named<Surroundings>,
}

/// `[flow.NAME]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FlowFile {
    pub from: String,
    /// Required unless the scenario has just a vehicle and a ground.
    pub to: Option<String>,
    /// Number of connections between each pair of nodes.
    pub connections: Option<u32>,
    #[serde(default)]
    pub proxies: Vec<ProxyFile>,
    #[serde(default)]
    pub start: Duration,
    pub stop: Option<Duration>,
    pub class: Option<Class>,
    pub traffic: TrafficConfig,
    pub transport: Option<TransportConfig>,
    /// Flow whose connection this one shares.
    pub with: Option<String>,
    /// Number of copies that the application writes of each message.
    pub copies: Option<u32>,
    #[serde(default, deserialize_with = "requirements")]
    pub require: OneOrMany<RequireFile>,
}

fn requirements<'de, D: Deserializer<'de>>(from: D) -> Result<OneOrMany<RequireFile>, D::Error> {
    form::one_or_many(from, "a table, the name of a requirement profile, or a list of them")
}

/// One entry of `require`: a table, or the name of a profile.
pub(crate) enum RequireFile {
    Profile(String),
    Table(Box<RequirementFile>),
}

impl<'de> Deserialize<'de> for RequireFile {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        form::text_or_table(
            from,
            "a table or the name of a requirement profile",
            |name| Ok::<_, Infallible>(Self::Profile(name.to_string())),
            |table| Ok::<_, Infallible>(Self::Table(Box::new(table))),
        )
    }
}

/// One table of `require`.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RequirementFile {
    pub deadline: Option<Duration>,
    pub share: Option<Probability>,
    pub delay: Option<Duration>,
    pub percentile: Option<Probability>,
    pub goodput: Option<Rate>,
    pub frames: Option<Probability>,
    pub within: Option<Duration>,
    pub frame_rate: Option<f64>,
    pub worst_frame_rate: Option<f64>,
    pub freezes: Option<f64>,
    pub ssim: Option<f64>,
    pub ssim_share: Option<Probability>,
    pub rlp: Option<LinkPerformanceFile>,
}

/// `require.rlp`.
#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LinkPerformanceFile {
    pub expiration: Duration,
    pub continuity: Probability,
    pub availability: Option<Probability>,
    pub integrity: Option<Probability>,
    pub lost_after: Option<Duration>,
    pub check_bits: Option<u32>,
}

/// `[[event]]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventFile {
    pub at: Duration,
    #[serde(default)]
    pub path: Named<PathEvent>,
    #[serde(default)]
    pub link: Named<PathEvent>,
    #[serde(default)]
    pub flow: Named<FlowEvent>,
}

/// Changes by an event to the connection of a flow.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct FlowEvent {
    /// Path on which the vehicle loses its address.
    pub remove_path: Option<String>,
    /// Path on which the vehicle gains an address.
    pub add_path: Option<String>,
}

/// Changes by an event to a path or link.
#[derive(Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct PathEvent {
    pub down: Option<Duration>,
    pub rate: Option<RateConfig>,
    pub delay: Option<DelayConfig>,
    pub loss: Option<Losses>,
    pub uplink: DirectionEvent,
    pub downlink: DirectionEvent,
}

/// Changes by an event to one direction of a path.
#[derive(Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct DirectionEvent {
    pub rate: Option<RateConfig>,
    pub delay: Option<DelayConfig>,
    pub loss: Option<Losses>,
}

impl DirectionEvent {
    /// Returns the changes with their keys.
    pub fn changes(self) -> impl Iterator<Item = (&'static str, ChangeConfig)> {
        let changes = [
            self.rate.map(|rate| ("rate", ChangeConfig::Rate(rate))),
            self.delay.map(|delay| ("delay", ChangeConfig::Delay(delay))),
            self.loss.map(|losses| ("loss", ChangeConfig::Loss(losses))),
        ];
        changes.into_iter().flatten()
    }
}

/// A table whose keys are names, in the order of the file.
pub(crate) struct Named<T>(pub Vec<(String, T)>);

impl<T> Default for Named<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Named<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        form::entries(from, "a table of names").map(Self)
    }
}
