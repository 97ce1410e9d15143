//! Service of a terminal by a constellation over a run: serving satellites, handovers, gaps and delays.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use skybraid_track::Track;
use skybraid_units::{Angle, Duration, Instant, Promised};

use crate::choice::{Choice, Pass};
use crate::constellation::Constellation;
use crate::epoch::Epoch;
use crate::route::{Route, Station, fastest_gateway, fastest_route};
use crate::visibility::{LIGHT, Observer, Span, intersection, union};

/// Ground station that connects satellites to the other end of the link.
#[derive(Clone, Debug, PartialEq)]
pub struct Gateway {
    /// Position over time.
    pub track: Track,
    /// One-way delay from the gateway to the other end of the link.
    pub ground: Duration,
}

/// Signal speed in fibre, relative to the speed of light.
const FIBRE: f64 = 2.0 / 3.0;

/// Returns the one-way delay over a great circle of fibre: `metres` at 2/3 of the speed of light.
pub fn over_ground(metres: f64) -> Duration {
    Duration::from_secs_f64(metres / (FIBRE * LIGHT))
}

/// A terminal with its gateways and its selection strategy.
#[derive(Clone, Debug)]
pub struct Terminal {
    /// Position over time.
    pub track: Track,
    /// Elevation mask of the terminal.
    pub mask: Angle,
    /// Gateways; without a gateway there is no service.
    pub gateways: Vec<Gateway>,
    /// Elevation mask of the gateways.
    pub gateway_mask: Angle,
    /// Selection strategy.
    pub choice: Choice,
    /// Whether satellites forward packets over inter-satellite links.
    pub isl: bool,
    /// Interruption at a handover.
    pub handover_gap: Duration,
    /// Interval of the delay samples, in whole milliseconds; at least 1 ms.
    pub step: Duration,
}

/// Span in which one satellite serves.
#[derive(Clone, Debug, PartialEq)]
pub struct Serving {
    /// Name of the satellite.
    pub satellite: String,
    /// Start of the span.
    pub from: Instant,
    /// End of the span, exclusive.
    pub to: Instant,
}

/// A change from one satellite to another without a gap in visibility.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handover {
    /// Start of service by the new satellite.
    pub at: Instant,
    /// Interruption; zero for make-before-break.
    pub gap: Duration,
}

/// Sample of the service, which holds until the next sample or the end of the serving span.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Time of the sample.
    pub at: Instant,
    /// One-way delay from the terminal to the other end: up, between satellites, down and over ground.
    pub delay: Duration,
    /// Elevation at the terminal, in degrees.
    pub elevation: f64,
    /// Number of the gateway in the terminal's list.
    pub gateway: usize,
    /// Number of inter-satellite links on the route.
    pub hops: usize,
}

/// Service of a terminal over a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Service {
    /// Length of the run.
    pub length: Duration,
    /// Serving spans, in order.
    pub serving: Vec<Serving>,
    /// Handovers, in order.
    pub handovers: Vec<Handover>,
    /// Gaps in which no satellite serves (start, length).
    pub gaps: Vec<(Instant, Duration)>,
    /// Samples of delay and elevation, at the start of every serving span and at multiples of the step.
    pub samples: Vec<Sample>,
}

/// Minimum, median over time, and maximum of the delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delays {
    /// Minimum delay.
    pub min: Duration,
    /// Median delay, weighted by time.
    pub median: Duration,
    /// Maximum delay.
    pub max: Duration,
}

/// Time in ms for which a route over inter-satellite links is kept.
const REROUTE: i64 = 1000;

const fn instant(millis: i64) -> Instant {
    Instant::from_millis(millis)
}

/// Returns the service of `terminal` by `constellation` in a run of `length` that begins at `start`.
pub fn serve(
    constellation: &Constellation,
    terminal: &Terminal,
    start: Epoch,
    length: Duration,
) -> Service {
    let end = (length.as_nanos() + 999_999) / 1_000_000;
    let observer = Observer::new(&terminal.track, terminal.mask, start);
    let stations: Vec<Station> = terminal
        .gateways
        .iter()
        .map(|gateway| Station {
            observer: Observer::new(&gateway.track, terminal.gateway_mask, start),
            ground: gateway.ground,
        })
        .collect();
    let run = Run { constellation, terminal, start, end, observer, stations };
    let passes = run.passes();
    let satellites = constellation.satellites();
    let height = |satellite: usize, at: i64| {
        let satellite = satellites.get(satellite).promised("the satellite of a pass");
        let sight = satellite.and_then(|satellite| run.observer.sight(satellite, at));
        sight.map_or(-2.0, |sight| sight.sine)
    };
    let served = terminal.choice.serve(&passes, start, end, height);
    let mut service = Service { length, ..Service::default() };
    let mut until = 0;
    for pass in &served {
        if pass.from > until {
            service.gaps.push((instant(until), Duration::from_millis(pass.from - until)));
        } else if until > 0 {
            let gap = terminal.handover_gap;
            service.handovers.push(Handover { at: instant(pass.from), gap });
        }
        until = pass.to;
        let satellite = satellites.get(pass.satellite).promised("the satellite of a pass");
        let name = satellite.map_or("", |satellite| satellite.name());
        let (from, to) = (instant(pass.from), instant(pass.to));
        service.serving.push(Serving { satellite: name.to_string(), from, to });
        run.sample(pass, &mut service.samples);
    }
    if until < end {
        service.gaps.push((instant(until), length - (instant(until) - Instant::ZERO)));
    }
    service
}

/// Inputs of the computation.
struct Run<'a> {
    constellation: &'a Constellation,
    terminal: &'a Terminal,
    start: Epoch,
    end: i64,
    observer: Observer<'a>,
    stations: Vec<Station<'a>>,
}

impl Run<'_> {
    /// Returns the spans in which each satellite can serve: it is visible to the terminal, and it, or a
    /// satellite that it reaches over links, is visible to a gateway.
    fn passes(&self) -> Vec<Pass> {
        let mut found = Vec::new();
        let mut push = |satellite: usize, spans: Vec<Span>| {
            found.extend(spans.into_iter().map(|(from, to)| Pass { satellite, from, to }));
        };
        let satellites = self.constellation.satellites();
        let over_gateways = |satellite: usize| -> Vec<Span> {
            let satellite = satellites.get(satellite).promised("a satellite of this number");
            let Some(satellite) = satellite else { return Vec::new() };
            let stations = self.stations.iter();
            let seen = stations.map(|station| station.observer.passes(satellite, self.end));
            union(seen.flatten().collect())
        };
        let over_terminal =
            satellites.iter().map(|satellite| self.observer.passes(satellite, self.end));
        let groups = if self.terminal.isl { self.constellation.link_groups() } else { Vec::new() };
        // With links, a satellite can serve while any satellite of its group is visible to a gateway.
        let mut by_group = alloc::collections::BTreeMap::<usize, Vec<Span>>::new();
        for (satellite, group) in groups.iter().enumerate() {
            by_group.entry(*group).or_default().extend(over_gateways(satellite));
        }
        for spans in by_group.values_mut() {
            *spans = union(core::mem::take(spans));
        }
        for (satellite, seen) in over_terminal.enumerate() {
            if seen.is_empty() {
                continue;
            }
            let group = groups.get(satellite).and_then(|group| by_group.get(group));
            let spans = match group {
                Some(connected) => intersection(&seen, connected),
                None => intersection(&seen, &over_gateways(satellite)),
            };
            push(satellite, spans);
        }
        found
    }

    /// Adds the samples of one serving span.
    fn sample(&self, pass: &Pass, samples: &mut Vec<Sample>) {
        let step = (self.terminal.step.as_nanos() / 1_000_000).max(1);
        let satellite = self.constellation.satellites().get(pass.satellite);
        let Some(satellite) = satellite.promised("the satellite of a pass") else { return };
        let mut route: Option<(i64, Route)> = None;
        let mut at = pass.from;
        while at < pass.to {
            let now = at;
            at = (at / step + 1) * step;
            let Some(sight) = self.observer.sight(satellite, now) else { continue };
            let rest = if self.terminal.isl {
                self.over_links(pass.satellite, now, &mut route)
            } else {
                let position = satellite.position(self.start + Duration::from_millis(now));
                position
                    .and_then(|position| fastest_gateway(position, &self.stations, now))
                    .map(|(gateway, seconds)| (gateway, seconds, 0))
            };
            let Some((gateway, rest, hops)) = rest else { continue };
            let delay = Duration::from_secs_f64(sight.range / LIGHT + rest);
            let elevation = sight.elevation();
            samples.push(Sample { at: instant(now), delay, elevation, gateway, hops });
        }
    }

    /// Returns the gateway, the seconds from the serving satellite to the other end, and the number of links.
    /// The route is kept for [`REROUTE`] while its gateway sees its last satellite.
    fn over_links(
        &self,
        satellite: usize,
        now: i64,
        route: &mut Option<(i64, Route)>,
    ) -> Option<(usize, f64, usize)> {
        let seconds =
            |route: &Route| route.seconds(self.constellation, self.start, &self.stations, now);
        let summary = |route: &Route, seconds: f64| {
            (route.gateway, seconds, route.satellites.len().saturating_sub(1))
        };
        if let Some((since, kept)) = route.as_ref()
            && now - since < REROUTE
            && let Some(seconds) = seconds(kept)
        {
            return Some(summary(kept, seconds));
        }
        let found = fastest_route(self.constellation, self.start, satellite, &self.stations, now)?;
        let result = seconds(&found).map(|seconds| summary(&found, seconds));
        *route = Some((now, found));
        result
    }
}

impl Service {
    /// Returns the delay from each instant on, beginning at the start of the run. In a gap the last delay
    /// stays; before the first serving span the first delay holds. Empty without service.
    pub fn delay_steps(&self) -> Vec<(Instant, Duration)> {
        let mut steps: Vec<(Instant, Duration)> = Vec::new();
        for sample in &self.samples {
            if steps.last().is_none_or(|(_, delay)| *delay != sample.delay) {
                let at = if steps.is_empty() { Instant::ZERO } else { sample.at };
                steps.push((at, sample.delay));
            }
        }
        steps
    }

    /// Returns every sample with the time for which it holds.
    pub fn held(&self) -> impl Iterator<Item = (&Sample, Duration)> {
        let mut serving = self.serving.iter();
        let mut current = serving.next();
        self.samples.iter().enumerate().map(move |(index, sample)| {
            while current.is_some_and(|span| span.to <= sample.at) {
                current = serving.next();
            }
            let end = current.map_or(sample.at, |span| span.to);
            let next = self.samples.get(index + 1).map_or(end, |next| next.at);
            (sample, end.min(next) - sample.at)
        })
    }

    /// Returns minimum, median and maximum delay; `None` without service.
    pub fn delays(&self) -> Option<Delays> {
        let mut held: Vec<(Duration, Duration)> =
            self.held().map(|(sample, span)| (sample.delay, span)).collect();
        held.sort_unstable();
        let total = held.iter().fold(Duration::ZERO, |sum, (_, span)| sum + *span);
        let mut so_far = Duration::ZERO;
        let median = held.iter().find(|(_, span)| {
            so_far += *span;
            so_far * 2 >= total
        });
        let ((min, _), (max, _), (median, _)) = (held.first()?, held.last()?, median?);
        Some(Delays { min: *min, median: *median, max: *max })
    }

    /// Returns the handovers per hour of service; zero without service.
    pub fn handovers_per_hour(&self) -> f64 {
        let served = self.serving.iter().map(|span| (span.to - span.from).as_secs_f64());
        let hours = served.sum::<f64>() / 3600.0;
        if hours > 0.0 { self.handovers.len() as f64 / hours } else { 0.0 }
    }
}
