//! A scenario that has been read and checked.

use std::path::Path as FilePath;
use std::sync::Arc;

use skybraid_host::{AddressChange, Host};
use skybraid_track::Track;
use skybraid_traffic::TrafficConfig;
use skybraid_traffic::video::EncodedClip;
use skybraid_transport::split::Cache;
use skybraid_transport::{Class, TransportConfig};
use skybraid_units::{Duration, Instant, Probability, Rate, Seed};

use crate::{Input, Link, Node, NodeKind, OutageGroup, Routing, ScenarioError, Testbed, compose};

/// What a flow must achieve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Requirement {
    /// At least this share of the messages arrives, within the deadline where there is one.
    Share {
        /// From writing to whole arrival; without it a message may take as long as it likes.
        deadline: Option<Duration>,
        /// Above zero.
        share: Probability,
    },
    /// This percentile of the one-way delay of messages is at most so long.
    Delay {
        /// Above zero.
        percentile: Probability,
        /// Above zero.
        delay: Duration,
    },
    /// The bytes of arrived messages per time, from the flow's start to its stop, are at least so many.
    Goodput {
        /// Above zero.
        rate: Rate,
    },
    /// At least this share of a video's frames is shown undamaged within this time of being taken.
    Frames {
        /// Above zero.
        share: Probability,
        /// Above zero.
        within: Duration,
    },
    /// At least so many frames of a video are shown a second.
    FrameRate {
        /// Frames a second, above zero.
        least: f64,
        /// In the worst second, not on average.
        worst: bool,
    },
    /// The picture freezes at most so often.
    Freezes {
        /// Times a minute, zero or more.
        most: f64,
    },
    /// At least this share of a video's decoded frames has at least this structural similarity.
    Ssim {
        /// Above zero.
        share: Probability,
        /// Above 0, at most 1.
        least: f64,
    },
}

impl Requirement {
    /// Only a video has it.
    pub const fn is_of_video(&self) -> bool {
        !matches!(self, Self::Share { .. } | Self::Delay { .. } | Self::Goodput { .. })
    }
}

/// A proxy that splits a flow's connection.
#[derive(Clone, Debug, PartialEq)]
pub struct SplitAt {
    /// Where, as a position in [`Scenario::nodes`].
    pub node: usize,
    /// Its memory for each direction.
    pub cache: Cache,
    /// How the flow is carried from here on, away from the end that opens; checked.
    pub transport: TransportConfig,
    /// As [`Flow::interfaces`], of this node.
    pub interfaces: Vec<Option<usize>>,
}

/// A flow of messages, ready to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// Its name: that of the group, with what sets it apart behind where the group has several.
    pub name: String,
    /// The name under which the scenario has it.
    pub group: String,
    /// The node that opens connections and the other, as positions in [`Scenario::nodes`].
    pub nodes: [usize; 2],
    /// Which of them sends: [`Host::Vehicle`] stands for the first.
    pub from: Host,
    /// What the messages are for.
    pub class: Class,
    /// When it begins.
    pub start: Instant,
    /// When it ends; later than its start, not later than the run.
    pub stop: Instant,
    /// What is sent; checked.
    pub traffic: TrafficConfig,
    /// How it is carried; checked.
    pub transport: TransportConfig,
    /// For each subflow the link by which it leaves the node that opens, as a position in
    /// [`Scenario::links`]; `None` leaves that to routing. At least one.
    pub interfaces: Vec<Option<usize>>,
    /// Where its connection is split, from the node that opens on; the simulator alone does that.
    pub proxies: Vec<SplitAt>,
    /// The smallest deadline that is required, which messages carry.
    pub deadline: Option<Duration>,
    /// What it must achieve, in the order of the file.
    pub requirements: Vec<Requirement>,
    /// The flow in whose connection it rides, as a position in [`Scenario::flows`]; its transport and
    /// paths are then that flow's.
    pub rides_with: Option<usize>,
    /// How many times the application writes each message, 1 to 8.
    pub copies: u8,
}

/// A scenario that has been read and checked: what is to be run.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Its name; the file's where the scenario gives none.
    pub name: String,
    /// How long the run is; above zero.
    pub duration: Duration,
    /// The root seed; 1 unless said.
    pub seed: Seed,
    /// The nodes in the order of the file; of a scenario of paths, vehicle and ground.
    pub nodes: Vec<Node>,
    /// The links in the order of the file; at least one. Between two hosts, each is a path.
    pub links: Vec<Link>,
    /// Where each node is, for those of which the scenario says it.
    pub tracks: Vec<Option<Track>>,
    /// Outages that links share.
    pub outages: Vec<OutageGroup>,
    /// How packets find their way.
    pub routing: Routing,
    /// The flows in the order of the file, each group's one after the other.
    pub flows: Vec<Flow>,
    /// Addresses that come and go, in order of time.
    pub address_changes: Vec<AddressChange>,
    /// What stands between the hosts and their paths, in the emulator.
    pub testbed: Testbed,
    /// The trace files that were read, in the order in which they are named, each once.
    pub inputs: Vec<Input>,
    /// Clocks of the traces for which neither they nor `traces` say where a run begins, each once: the name
    /// of the file, or what measurements were made `together`. A run begins at their beginnings.
    pub unplaced_traces: Vec<String>,
    /// What is allowed but probably not meant, in words.
    pub warnings: Vec<String>,
    pub(crate) file: String,
    pub(crate) toml: String,
}

impl Scenario {
    /// Reads the scenario `text` of the file `file` and the trace files that it names, whose places
    /// are relative to `file`. `file` itself is not opened. Each override is a key with dots, such as
    /// `path.lte.uplink.rate` or `event.0.at`, and a value: TOML where it reads as TOML, else text.
    ///
    /// # Errors
    /// Unknown keys, missing or wrong units, values out of range or at odds with one another, trace
    /// files that cannot be read or do not fit, wrong overrides. See [`ScenarioError`].
    pub fn parse(
        text: &str,
        file: &FilePath,
        overrides: &[(String, String)],
    ) -> Result<Self, ScenarioError> {
        compose::scenario(text, file, overrides)
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

    /// The effective text: the scenario as written, with the overrides in their places. Reading it as
    /// the same file gives the same scenario.
    pub fn toml(&self) -> &str {
        &self.toml
    }

    /// Refuses a scenario without flows: its links can be emulated for other programs, but there is
    /// nothing to fly.
    ///
    /// # Errors
    /// There is no flow.
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

    /// The same scenario, where the flows called `group` play `clip`, which is what an encoder made of theirs.
    pub fn with_clip(mut self, group: &str, clip: EncodedClip) -> Self {
        let clip = Arc::new(clip);
        for flow in self.flows.iter_mut().filter(|flow| flow.group == group) {
            if let TrafficConfig::Video(video) = &mut flow.traffic {
                video.encoded = Some(Arc::clone(&clip));
            }
        }
        self
    }

    /// Refuses a scenario with a clip that nobody has encoded.
    ///
    /// # Errors
    /// There is one.
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

    /// Refuses a network, for drivers that know only paths between two hosts.
    ///
    /// # Errors
    /// There are other nodes than a vehicle and a ground station, in this order, or links that lead from
    /// the ground station to the vehicle, or proxies.
    pub fn needs_two_hosts(&self) -> Result<(), ScenarioError> {
        let refused = |key: &str, problem: String| {
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
            return refused("node", problem);
        }
        match self.flows.iter().find(|flow| !flow.proxies.is_empty()) {
            Some(flow) => {
                let problem = "found `proxies`, which are simulated only; `[testbed]` has proxies of \
                               the kernel";
                refused(&format!("flow.{}", flow.group), problem.to_string())
            }
            None => Ok(()),
        }
    }

    /// The position of the link or path called `name` in [`links`](Self::links).
    pub fn link_index(&self, name: &str) -> Option<usize> {
        self.links.iter().position(|link| link.name == name)
    }
}
