//! Scenarios that have been read and checked.

use std::collections::BTreeMap;
use std::path::Path as FilePath;
use std::sync::Arc;

use skybraid_host::{AddressChange, Host};
use skybraid_link::{PathConfig, TraceSource};
use skybraid_track::Track;
use skybraid_traffic::TrafficConfig;
use skybraid_traffic::video::EncodedClip;
use skybraid_transport::split::Cache;
use skybraid_transport::{Class, TransportConfig};
use skybraid_units::{Duration, Instant, Probability, Rate, Seed};

use crate::{
    Correlation, Input, Link, Node, NodeKind, OutageGroup, Routing, ScenarioError, Testbed,
    composer,
};

/// Requirement on a flow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Requirement {
    /// Minimum share of messages delivered, within the deadline if there is one.
    Share {
        /// Maximum time from writing to complete delivery; unlimited without it.
        deadline: Option<Duration>,
        /// Above zero.
        share: Probability,
    },
    /// Maximum of a percentile of the one-way delay of messages.
    Delay {
        /// Above zero.
        percentile: Probability,
        /// Above zero.
        delay: Duration,
    },
    /// Minimum rate of delivered message bytes, from the start of the flow to its stop.
    Goodput {
        /// Above zero.
        rate: Rate,
    },
    /// Minimum share of video frames shown undamaged within a time from capture.
    Frames {
        /// Above zero.
        share: Probability,
        /// Above zero.
        within: Duration,
    },
    /// Minimum rate of shown video frames.
    FrameRate {
        /// Frames per second, above zero.
        min: f64,
        /// Whether the worst second counts instead of the average.
        worst: bool,
    },
    /// Maximum rate of freezes of the picture.
    Freezes {
        /// Freezes per minute, zero or more.
        max: f64,
    },
    /// Minimum share of decoded video frames with a minimum structural similarity.
    Ssim {
        /// Above zero.
        share: Probability,
        /// Above 0, at most 1.
        min: f64,
    },
    /// Required link performance.
    LinkPerformance(LinkPerformance),
}

/// Required link performance (RLP): the four parameters of a link for command and control.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkPerformance {
    /// Transaction expiration time: the time from writing after which a message counts as failed; above zero.
    pub expiration: Duration,
    /// Minimum share of the transactions begun on an available link that complete before they expire; above zero.
    pub continuity: Probability,
    /// Minimum share of the time in which the link is available; above zero.
    pub availability: Option<Probability>,
    /// Minimum share of the transactions that complete without an undetected error; above zero.
    pub integrity: Option<Probability>,
    /// Time without a completed transaction after which the link counts as lost; above zero.
    pub lost_after: Duration,
    /// Length in bits of the check that finds damaged messages.
    pub check_bits: Option<u32>,
}

impl Requirement {
    /// Returns the deadline of a message that the requirement sets.
    pub const fn deadline(&self) -> Option<Duration> {
        match self {
            Self::Share { deadline, .. } => *deadline,
            Self::LinkPerformance(performance) => Some(performance.expiration),
            _ => None,
        }
    }

    /// Returns whether only a video can have the requirement.
    pub const fn is_of_video(&self) -> bool {
        !matches!(
            self,
            Self::Share { .. }
                | Self::Delay { .. }
                | Self::Goodput { .. }
                | Self::LinkPerformance(_)
        )
    }
}

/// A proxy that splits a flow's connection.
#[derive(Clone, Debug, PartialEq)]
pub struct SplitAt {
    /// Node of the proxy, as an index into [`Scenario::nodes`].
    pub node: usize,
    /// Cache for each direction.
    pub cache: Cache,
    /// Transport from the proxy on, away from the opening end; checked.
    pub transport: TransportConfig,
    /// Interfaces of the node, as in [`Flow::interfaces`].
    pub interfaces: Vec<Option<usize>>,
}

/// A flow of messages, ready to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// Name of the flow: that of the group, followed by a suffix if the group has several flows.
    pub name: String,
    /// Name of the group in the scenario.
    pub group: String,
    /// Opening node and other node, as indices into [`Scenario::nodes`].
    pub nodes: [usize; 2],
    /// Sending end: [`Host::Vehicle`] denotes the opening node.
    pub from: Host,
    /// Class of the messages.
    pub class: Class,
    /// Start of the flow.
    pub start: Instant,
    /// Stop of the flow, after its start and not after the end of the run.
    pub stop: Instant,
    /// Traffic source; checked.
    pub traffic: TrafficConfig,
    /// Transport; checked.
    pub transport: Arc<TransportConfig>,
    /// For each subflow the first link from the opening node, as an index into [`Scenario::links`]; `None`
    /// leaves the choice to routing. At least one.
    pub interfaces: Vec<Option<usize>>,
    /// Proxies that split the connection, from the opening node on; simulator only.
    pub proxies: Vec<SplitAt>,
    /// Smallest required deadline, which messages carry.
    pub deadline: Option<Duration>,
    /// Requirements, in the order of the file.
    pub requirements: Vec<Requirement>,
    /// Flow whose connection this one shares, as an index into [`Scenario::flows`]; transport and paths are
    /// then those of that flow.
    pub rides_with: Option<usize>,
    /// Number of copies of each message that the application writes, 1 to 8.
    pub copies: u8,
}

/// A scenario that has been read and checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Name of the scenario; by default that of the file.
    pub name: String,
    /// Length of the run, above zero.
    pub duration: Duration,
    /// Root seed; 1 by default.
    pub seed: Seed,
    /// Nodes in the order of the file; in a scenario of paths the vehicle and the ground station.
    pub nodes: Vec<Node>,
    /// Links in the order of the file, at least one. Between two hosts each link is a path.
    pub links: Vec<Link>,
    /// Track of each node; `None` where the scenario gives no place.
    pub tracks: Vec<Option<Track>>,
    /// Outages shared by links.
    pub outages: Vec<OutageGroup>,
    /// Correlation between links.
    pub correlations: Vec<Correlation>,
    /// Routing of the network.
    pub routing: Routing,
    /// Flows in the order of the file, group by group.
    pub flows: Vec<Flow>,
    /// Address changes by time.
    pub address_changes: Vec<AddressChange>,
    /// Network between the hosts and their paths; emulator only.
    pub testbed: Testbed,
    /// Files read, in the order in which they are named, each once.
    pub inputs: Vec<Input>,
    /// Clocks of the traces without a start of the run, each once: the name of the file, or that of measurements
    /// made `together`. A run starts at the start of such a trace.
    pub unplaced_traces: Vec<String>,
    /// Warnings about valid but probably unintended settings.
    pub warnings: Vec<String>,
    /// Traces loaded, which variants share.
    pub(crate) traces: Vec<TraceSource>,
    pub(crate) file: String,
    pub(crate) toml: String,
}

impl Scenario {
    /// Reads the scenario `text` of the file `file`, and the trace files that it names relative to `file`. `file`
    /// itself is not opened. Each override is a dotted key, such as `path.lte.uplink.rate` or `event.0.at`, and a
    /// value, which is TOML if it parses as TOML, else text.
    ///
    /// # Errors
    /// Unknown keys, missing or wrong units, values that are out of range or contradict each other, trace files
    /// that cannot be read or are too short, wrong overrides. See [`ScenarioError`].
    pub fn parse(
        text: &str,
        file: &FilePath,
        overrides: &[(String, String)],
    ) -> Result<Self, ScenarioError> {
        composer::compose(text, file, &BTreeMap::new(), overrides, None)
    }

    /// Reads the scenario `text` as [`parse`](Self::parse) does, with the texts `given` in place of files, by their
    /// names in the scenario. A file of another name is read from disk.
    ///
    /// # Errors
    /// As for [`parse`](Self::parse).
    pub fn parse_with_files(
        text: &str,
        file: &FilePath,
        given: &BTreeMap<String, String>,
        overrides: &[(String, String)],
    ) -> Result<Self, ScenarioError> {
        composer::compose(text, file, given, overrides, None)
    }

    /// Reads `text` as another version of this scenario's file, as [`parse`](Self::parse) does. Traces that this
    /// scenario has loaded are shared: their files are not read again.
    ///
    /// # Errors
    /// As for [`parse`](Self::parse).
    pub fn parse_variant(
        &self,
        text: &str,
        overrides: &[(String, String)],
    ) -> Result<Self, ScenarioError> {
        let file = FilePath::new(&self.file);
        composer::compose(text, file, &BTreeMap::new(), overrides, Some(self))
    }

    /// Reads the scenario file at `path`; see [`parse`](Self::parse).
    ///
    /// # Errors
    /// The file cannot be read, or as for [`parse`](Self::parse).
    pub fn load(
        path: impl AsRef<FilePath>,
        overrides: &[(String, String)],
    ) -> Result<Self, ScenarioError> {
        let path = path.as_ref();
        let text = crate::inputs::read_main_file(path)?;
        Self::parse(&text, path, overrides)
    }

    /// Returns the effective text: the scenario as written, with the overrides applied. Parsing it as the same
    /// file returns the same scenario.
    pub fn toml(&self) -> &str {
        &self.toml
    }

    /// Rejects a scenario without flows. Its links can be emulated for other programs, but there is nothing to
    /// run.
    ///
    /// # Errors
    /// The scenario has no flow.
    pub fn needs_flows(&self) -> Result<(), ScenarioError> {
        if !self.flows.is_empty() {
            return Ok(());
        }
        Err(ScenarioError::Invalid {
            file: self.file.clone(),
            line: None,
            key: "flow".to_string(),
            problem: "found no flow, expected at least one table `[flow.NAME]`".to_string(),
        })
    }

    /// Returns the scenario with the encoded `clip` in the flows of `group`.
    pub fn with_clip(mut self, group: &str, clip: EncodedClip) -> Self {
        let clip = Arc::new(clip);
        for flow in self.flows.iter_mut().filter(|flow| flow.group == group) {
            if let TrafficConfig::Video(video) = &mut flow.traffic {
                video.encoded = Some(Arc::clone(&clip));
            }
        }
        self
    }

    /// Rejects a scenario with a clip that is not encoded.
    ///
    /// # Errors
    /// A clip is not encoded.
    pub fn needs_clips(&self) -> Result<(), ScenarioError> {
        let missing = self.flows.iter().find_map(|flow| {
            let video = flow.traffic.video()?;
            (!video.is_model() && video.encoded.is_none()).then_some((flow, video))
        });
        let Some((flow, video)) = missing else { return Ok(()) };
        Err(ScenarioError::Invalid {
            file: self.file.clone(),
            line: None,
            key: format!("flow.{}.traffic.clip", flow.group),
            problem: format!(
                "`{}` has not been encoded; expected `model`, or an encoder",
                video.clip
            ),
        })
    }

    /// Rejects a network, for drivers that support only paths between two hosts.
    ///
    /// # Errors
    /// The nodes are not a vehicle and a ground station, in this order, a link leads from the ground station to
    /// the vehicle, or there are proxies.
    pub fn needs_two_hosts(&self) -> Result<(), ScenarioError> {
        let rejected = |key: &str, problem: String| {
            let (file, key) = (self.file.clone(), key.to_string());
            Err(ScenarioError::Invalid { file, line: None, key, problem })
        };
        let kinds: Vec<NodeKind> = self.nodes.iter().map(|node| node.kind).collect();
        if kinds != [NodeKind::Vehicle, NodeKind::Ground]
            || self.links.iter().any(|link| link.ends != [0, 1])
        {
            let found = self.nodes.len();
            let problem = format!(
                "found a network of {found} nodes, expected links from a vehicle to a ground station; \
                 other networks are simulated only"
            );
            return rejected("node", problem);
        }
        match self.flows.iter().find(|flow| !flow.proxies.is_empty()) {
            Some(flow) => {
                let problem = "found `proxies`, which are simulated only; `[testbed]` has proxies of \
                               the kernel";
                rejected(&format!("flow.{}", flow.group), problem.to_string())
            }
            None => Ok(()),
        }
    }

    /// Returns, for each measurement that runs replay in one piece and that is longer than a run, `windows` evenly
    /// spaced windows of a run's length, each as `bins` values that grow as the link gets worse.
    pub fn measurements(&self, windows: u32, bins: u32) -> Vec<Vec<Vec<f64>>> {
        let (windows, run) = (i64::from(windows.max(1)), self.duration);
        let step = run / i64::from(bins.max(1));
        let mut links: Vec<_> = self.links.iter().map(|link| link.config.clone()).collect();
        let mut seen: Vec<&TraceSource> = Vec::new();
        for source in links.iter_mut().flat_map(PathConfig::traces_mut) {
            let known = seen.iter().any(|known| known.file.reads_as(&source.file));
            let longer = source.length().is_some_and(|length| length > run);
            if !known && longer && source.file.sampling.resample.is_none() {
                seen.push(source);
            }
        }
        let of = |source: &&TraceSource| {
            let length = source.length().unwrap_or_default();
            let window = |number: i64| {
                let start = Duration::from_nanos(length.as_nanos() / windows * number);
                source.badness(start, step).take(bins as usize).collect()
            };
            (0..windows).map(window).collect()
        };
        seen.iter().map(of).collect()
    }
}
