//! What a constellation does for a terminal over a run: who serves when, with what delay.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use skybraid_track::Track;
use skybraid_units::{Angle, Duration, Instant};

use crate::choice::{Choice, Pass};
use crate::constellation::Constellation;
use crate::epoch::Epoch;
use crate::route::{Route, Station, down, quickest};
use crate::visibility::{LIGHT, Observer, Span, any, both};

/// Where satellites come down to the ground.
#[derive(Clone, Debug, PartialEq)]
pub struct Gateway {
    /// Where it is.
    pub track: Track,
    /// One way from it to the other end of the link.
    pub ground: Duration,
}

/// Share of the speed of light at which signals run in fibre.
const FIBRE: f64 = 2.0 / 3.0;

/// The time over ground between two places: the great circle at 2/3 of the speed of light.
pub fn over_ground(metres: f64) -> Duration {
    Duration::from_secs_f64(metres / (FIBRE * LIGHT))
}

/// A terminal, its gateways and how it is served.
#[derive(Clone, Debug)]
pub struct Terminal {
    /// Where it is.
    pub track: Track,
    /// What stands lower is not used.
    pub mask: Angle,
    /// The gateways; without any there is no service.
    pub gateways: Vec<Gateway>,
    /// The same for the gateways.
    pub gateway_mask: Angle,
    /// How it chooses its satellite.
    pub choice: Choice,
    /// Whether satellites pass packets on to one another.
    pub isl: bool,
    /// How long nothing is sent at a handover.
    pub handover_gap: Duration,
    /// Delays are told this often, in whole milliseconds; at least 1 ms.
    pub step: Duration,
}

/// One satellite serves, from an instant to before another.
#[derive(Clone, Debug, PartialEq)]
pub struct Serving {
    /// Name of the satellite.
    pub satellite: String,
    /// From then on.
    pub from: Instant,
    /// Until before then.
    pub to: Instant,
}

/// A change from one satellite to another without a gap in sight between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handover {
    /// When the new one begins.
    pub at: Instant,
    /// How long nothing is sent; zero for make before break.
    pub gap: Duration,
}

/// The service at one instant; it holds until the next sample or the end of the serving satellite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// When.
    pub at: Instant,
    /// One way from the terminal to the other end: up, between satellites, down and over ground.
    pub delay: Duration,
    /// Degrees above the terminal's horizon.
    pub elevation: f64,
    /// Number of the gateway in the terminal's list.
    pub gateway: usize,
    /// Links between satellites on the way.
    pub hops: usize,
}

/// What a constellation does for a terminal over a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Service {
    /// Length of the run.
    pub length: Duration,
    /// Who serves when, in order.
    pub serving: Vec<Serving>,
    /// The handovers, in order.
    pub handovers: Vec<Handover>,
    /// When no satellite serves: start and length.
    pub gaps: Vec<(Instant, Duration)>,
    /// Delay and elevation: at the start of every serving satellite and at whole steps of the run.
    pub samples: Vec<Sample>,
}

/// Least, median (over time) and most delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delays {
    /// The least.
    pub min: Duration,
    /// Half of the time it is at most this.
    pub median: Duration,
    /// The most.
    pub max: Duration,
}

/// For how long a route over links is kept before it is looked for again, in ms.
const REROUTE: i64 = 1000;

const fn instant(millis: i64) -> Instant {
    Instant::from_millis(millis)
}

/// The service of `terminal` by `constellation` in a run of `length` that begins at `start`.
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
        let satellite = satellites.get(satellite);
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
        let name = satellites.get(pass.satellite).map_or("", |satellite| satellite.name());
        let (from, to) = (instant(pass.from), instant(pass.to));
        service.serving.push(Serving { satellite: name.to_string(), from, to });
        run.sample(pass, &mut service.samples);
    }
    if until < end {
        service.gaps.push((instant(until), length - (instant(until) - Instant::ZERO)));
    }
    service
}

/// What all steps need.
struct Run<'a> {
    constellation: &'a Constellation,
    terminal: &'a Terminal,
    start: Epoch,
    end: i64,
    observer: Observer<'a>,
    stations: Vec<Station<'a>>,
}

impl Run<'_> {
    /// When each satellite could serve: the terminal sees it, and a gateway sees it too or, with
    /// links, one that it reaches.
    fn passes(&self) -> Vec<Pass> {
        let mut found = Vec::new();
        let mut push = |satellite: usize, spans: Vec<Span>| {
            found.extend(spans.into_iter().map(|(from, to)| Pass { satellite, from, to }));
        };
        let satellites = self.constellation.satellites();
        let over_gateways = |satellite: usize| -> Vec<Span> {
            let Some(satellite) = satellites.get(satellite) else { return Vec::new() };
            let seen = self.stations.iter().map(|it| it.observer.passes(satellite, self.end));
            any(seen.flatten().collect())
        };
        let over_terminal = satellites.iter().map(|it| self.observer.passes(it, self.end));
        let groups = if self.terminal.isl { self.constellation.reach() } else { Vec::new() };
        // With links a satellite may serve while any of its group is over a gateway.
        let mut by_group = alloc::collections::BTreeMap::<usize, Vec<Span>>::new();
        for (satellite, group) in groups.iter().enumerate() {
            by_group.entry(*group).or_default().extend(over_gateways(satellite));
        }
        for spans in by_group.values_mut() {
            *spans = any(core::mem::take(spans));
        }
        for (satellite, seen) in over_terminal.enumerate() {
            if seen.is_empty() {
                continue;
            }
            let group = groups.get(satellite).and_then(|group| by_group.get(group));
            let spans = match group {
                Some(connected) => both(&seen, connected),
                None => both(&seen, &over_gateways(satellite)),
            };
            push(satellite, spans);
        }
        found
    }

    /// Samples of one serving satellite.
    fn sample(&self, pass: &Pass, samples: &mut Vec<Sample>) {
        let step = (self.terminal.step.as_nanos() / 1_000_000).max(1);
        let Some(satellite) = self.constellation.satellites().get(pass.satellite) else { return };
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
                    .and_then(|position| down(position, &self.stations, now))
                    .map(|(gateway, seconds)| (gateway, seconds, 0))
            };
            let Some((gateway, rest, hops)) = rest else { continue };
            let delay = Duration::from_secs_f64(sight.range / LIGHT + rest);
            let elevation = sight.elevation();
            samples.push(Sample { at: instant(now), delay, elevation, gateway, hops });
        }
    }

    /// Gateway, seconds from the serving satellite to the other end, and links on the way. The route
    /// is kept for a while unless its gateway loses it.
    fn over_links(
        &self,
        satellite: usize,
        now: i64,
        route: &mut Option<(i64, Route)>,
    ) -> Option<(usize, f64, usize)> {
        let seconds =
            |route: &Route| route.seconds(self.constellation, self.start, &self.stations, now);
        let told = |route: &Route, seconds: f64| {
            (route.gateway, seconds, route.satellites.len().saturating_sub(1))
        };
        if let Some((since, kept)) = route.as_ref()
            && now - since < REROUTE
            && let Some(seconds) = seconds(kept)
        {
            return Some(told(kept, seconds));
        }
        let found = quickest(self.constellation, self.start, satellite, &self.stations, now)?;
        let answer = seconds(&found).map(|seconds| told(&found, seconds));
        *route = Some((now, found));
        answer
    }
}

impl Service {
    /// The delay from each instant on, beginning at the start of the run; where none serves, the last
    /// one stays, and before the first satellite the first one holds. Empty without any service.
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

    /// Every sample with the time for which it holds.
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

    /// Least, median and most delay; `None` without any service.
    pub fn delays(&self) -> Option<Delays> {
        let mut held: Vec<(Duration, Duration)> =
            self.held().map(|(sample, span)| (sample.delay, span)).collect();
        held.sort_unstable();
        let whole = held.iter().fold(Duration::ZERO, |sum, (_, span)| sum + *span);
        let mut so_far = Duration::ZERO;
        let median = held.iter().find(|(_, span)| {
            so_far += *span;
            so_far * 2 >= whole
        });
        let ((min, _), (max, _), (median, _)) = (held.first()?, held.last()?, median?);
        Some(Delays { min: *min, median: *median, max: *max })
    }

    /// Handovers per hour of service; zero without any.
    pub fn handovers_per_hour(&self) -> f64 {
        let served = self.serving.iter().map(|span| (span.to - span.from).as_secs_f64());
        let hours = served.sum::<f64>() / 3600.0;
        if hours > 0.0 { self.handovers.len() as f64 / hours } else { 0.0 }
    }
}
