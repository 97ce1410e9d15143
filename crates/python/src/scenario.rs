//! Scenarios that have been read and checked, and their runs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use skybraid_emulator::capture::{Captures, Entry};
use skybraid_link::Fate;
use skybraid_scenario::{LinkPerformance, Requirement, Route};
use skybraid_sim::{Observer, PacketEvent};
use skybraid_traffic::video::{EncodedClip, EncodedFrame};
use skybraid_units::invariant::Promised as _;
use skybraid_units::{Duration, Instant, Seed};

use crate::algorithms::{self, Classes, Fault};
use crate::columns;
use crate::error::{Interrupted, bad_input, from_system};
use crate::intervals::KnownLinks;
use crate::orbit::OrbitService;
use crate::progress::Progress;
use crate::run::{Run, record};

/// A scenario.
#[pyclass(module = "skybraid._core", frozen)]
pub struct Scenario {
    pub(crate) scenario: skybraid_scenario::Scenario,
    /// File name in errors.
    pub(crate) file: String,
}

#[pymethods]
impl Scenario {
    #[staticmethod]
    #[pyo3(signature = (text, file, overrides = Vec::new()))]
    fn parse(text: &str, file: &str, overrides: Vec<(String, String)>) -> PyResult<Self> {
        let scenario = skybraid_scenario::Scenario::parse(text, Path::new(file), &overrides)
            .map_err(bad_input)?;
        Ok(Self { scenario, file: file.to_string() })
    }

    fn variant(&self, text: &str, overrides: Vec<(String, String)>) -> PyResult<Self> {
        let scenario = self.scenario.parse_variant(text, &overrides).map_err(bad_input)?;
        Ok(Self { scenario, file: self.file.clone() })
    }

    #[getter]
    fn name(&self) -> &str {
        &self.scenario.name
    }

    #[getter]
    fn seed(&self) -> u64 {
        self.scenario.seed.0
    }

    #[getter]
    fn duration_s(&self) -> f64 {
        self.scenario.duration.as_secs_f64()
    }

    fn toml(&self) -> &str {
        self.scenario.toml()
    }

    /// Returns the satellite service of a link, by default of the only link that has one.
    #[pyo3(signature = (link = None))]
    fn orbit(&self, link: Option<&str>) -> PyResult<OrbitService> {
        let links = self.scenario.links.iter();
        let orbits: Vec<_> =
            links.filter_map(|link| link.orbit.as_ref().map(|orbit| (&link.name, orbit))).collect();
        let names: Vec<&str> = orbits.iter().map(|(name, _)| name.as_str()).collect();
        let chosen = match link {
            Some(link) => orbits.iter().find(|(name, _)| *name == link),
            None if orbits.len() == 1 => orbits.first(),
            None => None,
        };
        let found =
            link.map_or_else(|| format!("{} of them", orbits.len()), |link| format!("`{link}`"));
        match chosen {
            Some((_, orbit)) => Ok(OrbitService::of(Arc::clone(orbit))),
            None if names.is_empty() => Err(bad_input(format!(
                "{}: found no path or link with a table `orbit`, expected one",
                self.file
            ))),
            None => Err(bad_input(format!(
                "path: found {found}, expected one that has satellites: {}",
                names.join(", ")
            ))),
        }
    }

    fn inputs(&self) -> Vec<(String, String)> {
        let inputs = self.scenario.inputs.iter();
        inputs.map(|input| (input.file.clone(), input.sha256.clone())).collect()
    }

    /// Returns warnings about valid but probably unintended settings. The simulator ignores more than the
    /// emulator.
    #[pyo3(signature = (emulated = false))]
    fn warnings(&self, emulated: bool) -> Vec<String> {
        let mut warnings = self.scenario.warnings.clone();
        if !emulated && !self.scenario.testbed.is_plain() {
            warnings.push("the simulator leaves out what `[testbed]` says".to_string());
        }
        warnings
    }

    /// Returns whether the seed may change anything in a simulated run.
    fn is_random(&self) -> bool {
        self.scenario.is_random()
    }

    /// Returns the clocks of the traces without a start of the run.
    fn unplaced_traces(&self) -> Vec<String> {
        self.scenario.unplaced_traces.clone()
    }

    /// Returns what the scenario says of its links beyond what its runs see of them.
    fn known_links(slf: Py<Self>) -> KnownLinks {
        KnownLinks::of(slf)
    }

    /// Returns the flows of the file, each of which may expand to several.
    fn flows(&self) -> Vec<String> {
        let mut groups: Vec<String> =
            self.scenario.flows.iter().map(|flow| flow.group.clone()).collect();
        groups.dedup();
        groups
    }

    /// Rejects a network: the emulator supports paths between two hosts only.
    fn needs_two_hosts(&self) -> PyResult<()> {
        self.scenario.needs_two_hosts().map_err(bad_input)
    }

    /// Returns name, kind and group of each node.
    fn nodes(&self) -> Vec<(String, &'static str, String)> {
        let nodes = self.scenario.nodes.iter();
        nodes.map(|node| (node.name.clone(), node.kind.name(), node.group.clone())).collect()
    }

    /// Returns the name of each link and those of the nodes at its ends.
    fn links(&self) -> Vec<(String, String, String)> {
        let name = |node: usize| {
            let node = self.scenario.nodes.get(node).promised("an end of the link");
            node.map(|node| node.name.clone()).unwrap_or_default()
        };
        let links = self.scenario.links.iter();
        links.map(|link| (link.name.clone(), name(link.ends[0]), name(link.ends[1]))).collect()
    }

    /// Returns the route of each subflow in a run with the random streams of `seed`.
    fn routes<'py>(&self, py: Python<'py>, seed: u64) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for found in self.scenario.routes(Seed(seed)) {
            for ((route, ways), direction) in
                found.routes.iter().zip(found.ways).zip(columns::DIRECTIONS)
            {
                let links = match route {
                    Route::Fixed(hops) => Some(
                        hops.iter()
                            .filter_map(|hop| {
                                let link = self.scenario.links.get(hop.link());
                                link.promised("a link of the route")
                            })
                            .map(|link| link.name.clone())
                            .collect::<Vec<_>>(),
                    ),
                    Route::Spread { .. } => None,
                };
                let flow = self.scenario.flows.get(found.flow).map(|flow| &flow.name);
                list.append(dict!(
                    py, "flow": flow, "stretch": found.segment, "subflow": found.subflow,
                    "direction": direction, "links": links, "ways": ways,
                ))?;
            }
        }
        Ok(list)
    }

    fn paths(&self) -> Vec<String> {
        self.scenario.links.iter().map(|link| link.name.clone()).collect()
    }

    /// Returns the tracks of the nodes that have one: name, whether the node moves, and latitude and longitude in
    /// degrees and altitude in m at each time of `times_s` since the start of the run.
    fn tracks<'py>(&self, py: Python<'py>, times_s: Vec<f64>) -> Vec<NodeTrack<'py>> {
        let nodes = self.scenario.nodes.iter().zip(&self.scenario.tracks);
        let known = nodes.filter_map(|(node, track)| Some((node, track.as_ref()?)));
        known
            .map(|(node, track)| {
                let at = |time: &f64| track.at(Duration::from_secs_f64(*time));
                let places: Vec<_> = times_s.iter().map(at).collect();
                let latitude: Vec<f64> = places.iter().map(|place| place.latitude()).collect();
                let longitude: Vec<f64> = places.iter().map(|place| place.longitude()).collect();
                let altitude: Vec<f64> = places.iter().map(|place| place.altitude()).collect();
                let [latitude, longitude, altitude] =
                    [latitude, longitude, altitude].map(|values| values.into_pyarray(py));
                (node.name.clone(), !track.is_fixed(), latitude, longitude, altitude)
            })
            .collect()
    }

    fn requirements<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        let mut seen = BTreeSet::new();
        for flow in &self.scenario.flows {
            if !seen.insert(&flow.group) {
                continue;
            }
            for requirement in &flow.requirements {
                let (metric, deadline_ms, target) = match requirement {
                    Requirement::Share { deadline, share } => {
                        ("share", deadline.map(|span| span.as_millis_f64()), share.ratio())
                    }
                    Requirement::Delay { percentile, delay } => {
                        ("percentile", Some(delay.as_millis_f64()), percentile.ratio())
                    }
                    Requirement::Goodput { rate } => ("goodput", None, rate.as_bps() as f64),
                    Requirement::Frames { share, within } => {
                        ("frames", Some(within.as_millis_f64()), share.ratio())
                    }
                    Requirement::FrameRate { min, worst: false } => ("frame_rate", None, *min),
                    Requirement::FrameRate { min, worst: true } => ("worst_frame_rate", None, *min),
                    Requirement::Freezes { max } => ("freezes", None, *max),
                    Requirement::Ssim { share, .. } => ("ssim", None, share.ratio()),
                    Requirement::LinkPerformance(performance) => {
                        link_performance(&list, &flow.group, performance)?;
                        continue;
                    }
                };
                let flow = &flow.group;
                let entry = dict!(
                    py, "flow": flow, "metric": metric, "deadline_ms": deadline_ms, "target": target,
                );
                if let Requirement::Ssim { min, .. } = requirement {
                    entry.set_item("ssim", min)?;
                }
                list.append(entry)?;
            }
        }
        Ok(list)
    }

    /// Returns the encoder settings of the video flows of the file, by name. `clip` is `model` if there is
    /// nothing to encode.
    fn videos<'py>(&self, py: Python<'py>) -> PyResult<BTreeMap<String, Bound<'py, PyDict>>> {
        let mut videos = BTreeMap::new();
        for flow in &self.scenario.flows {
            let Some(video) = flow.traffic.video() else { continue };
            let entry = dict!(
                py,
                "clip": &video.clip,
                "codec": video.codec.name(),
                "rate_bps": video.rate.as_bps(),
                "fps": video.fps,
                "key_every_s": video.key_every.as_secs_f64(),
                "intra_refresh": video.intra_refresh,
                "slices": video.slices,
                "packet_bytes": video.packet.get(),
                "jitter_buffer_ms": video.jitter_buffer.as_millis_f64(),
                "controlled": video.is_controlled(),
            );
            videos.insert(flow.group.clone(), entry);
        }
        Ok(videos)
    }

    /// Returns the scenario with an encoded clip for a flow: for each frame whether it is a key frame, and
    /// the bytes of its NAL units.
    fn with_clip(&self, flow: &str, frames: Vec<(bool, Vec<u32>)>) -> PyResult<Self> {
        let frames = frames.into_iter().map(|(key, units)| EncodedFrame { key, units });
        let clip = EncodedClip::new(frames.collect())
            .map_err(|error| bad_input(format!("flow.{flow}.traffic.clip: {error}")))?;
        let scenario = self.scenario.clone().with_clip(flow, clip);
        Ok(Self { scenario, file: self.file.clone() })
    }

    /// Returns kind and name of each algorithm that the driver must supply, each once.
    fn custom(&self) -> BTreeSet<(&'static str, String)> {
        let transports = self.scenario.flows.iter().map(|flow| &flow.transport);
        let names = transports.flat_map(|transport| {
            let scheduler = transport.scheduler.custom().map(|custom| ("scheduler", custom.name()));
            let control = transport.congestion.custom().map(|custom| ("congestion", custom.name()));
            scheduler.into_iter().chain(control)
        });
        names.map(|(kind, name)| (kind, name.to_string())).collect()
    }

    /// Simulates the scenario with this root seed. `schedulers` and `congestion` are the registered classes
    /// by name.
    #[pyo3(signature = (
        seed, tables, progress = None, captures = None,
        schedulers = Classes::new(), congestion = Classes::new()
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn run(
        &self,
        py: Python<'_>,
        seed: u64,
        tables: Vec<String>,
        progress: Option<Py<PyAny>>,
        captures: Option<&str>,
        schedulers: Classes,
        congestion: Classes,
    ) -> PyResult<Run> {
        self.scenario.needs_flows().map_err(bad_input)?;
        self.scenario.needs_clips().map_err(bad_input)?;
        let mut setup = self.scenario.setup(Seed(seed), record(&tables)?);
        let fault = Fault::default();
        algorithms::supply(py, &mut setup, &self.file, &schedulers, &congestion, &fault)?;
        let paths: Vec<String> = self.paths();
        let captures = captures
            .map(|folder| Captures::create(Path::new(folder), &paths))
            .transpose()
            .map_err(from_system)?;
        let mut watch = Watch { progress: Progress::new(progress, fault), captures };
        let outcome = py.detach(|| skybraid_sim::run(&setup, &mut watch));
        let wall_s = watch.progress.wall_s();
        watch.progress.finish()?;
        if let Some(captures) = watch.captures {
            captures.finish().map_err(from_system)?;
        }
        let outcome = outcome.map_err(|stopped| {
            Interrupted::new_err(format!("stopped after {} of the flight", stopped.at))
        })?;
        Ok(Run::new(&setup, outcome, Instant::ZERO + setup.duration, wall_s))
    }
}

/// Track of a node: name, whether it moves, latitude, longitude and altitude over time.
type NodeTrack<'py> =
    (String, bool, Bound<'py, PyArray1<f64>>, Bound<'py, PyArray1<f64>>, Bound<'py, PyArray1<f64>>);

/// Adds the parameters of a required link performance, each a requirement of its own.
fn link_performance(
    list: &Bound<'_, PyList>,
    flow: &str,
    performance: &LinkPerformance,
) -> PyResult<()> {
    let LinkPerformance { continuity, availability, integrity, .. } = performance;
    let parameters = [
        ("expiration", Some(continuity)),
        ("continuity", Some(continuity)),
        ("availability", availability.as_ref()),
        ("integrity", integrity.as_ref()),
    ];
    for (metric, target) in parameters {
        let Some(target) = target else { continue };
        list.append(dict!(
            list.py(),
            "flow": flow,
            "metric": metric,
            "deadline_ms": performance.expiration.as_millis_f64(),
            "target": target.ratio(),
            "lost_after_ms": performance.lost_after.as_millis_f64(),
            "check_bits": performance.check_bits,
        ))?;
    }
    Ok(())
}

/// Reports progress and writes captures.
struct Watch {
    progress: Progress,
    captures: Option<Captures>,
}

impl Watch {
    /// Passes a packet to the captures by `write`.
    fn capture(
        &mut self,
        event: &PacketEvent<'_>,
        write: impl FnOnce(&mut Captures, &Entry<'_>) -> std::io::Result<()>,
    ) {
        let Some(captures) = &mut self.captures else { return };
        let entry = Entry {
            entered: event.entered,
            arrives: match event.fate {
                Fate::Delivered { at } => Some(at),
                Fate::Held | Fate::Lost { .. } => None,
            },
            path: event.link,
            uplink: event.uplink,
            flow: event.flow,
            segment: event.segment,
        };
        if let Err(error) = write(captures, &entry) {
            self.progress.fail(from_system(error));
        }
    }
}

impl Observer for Watch {
    fn progress(&mut self, now: Instant) -> bool {
        self.progress.report(now)
    }

    fn wants_packets(&self) -> bool {
        self.captures.is_some()
    }

    fn packet(&mut self, event: &PacketEvent<'_>) {
        self.capture(event, Captures::write);
    }

    fn released(&mut self, event: &PacketEvent<'_>) {
        self.capture(event, Captures::write_arrival);
    }
}
