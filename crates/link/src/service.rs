//! Serialisation of packets at a rate that changes, halts and ramps up.

use alloc::format;
use alloc::vec::{IntoIter, Vec};

use skybraid_units::{Bytes, Duration, Instant, Rate, Seed};

use crate::config::LinkConfig;
use crate::delay::Delay;
use crate::delay_line::{DelayLine, Effects};
use crate::drx::{Drx, Radio};
use crate::outage::{Change, Schedule, merged};
use crate::rate::RateCursor;
use crate::reconfiguration::BoundaryTimeline;
use crate::timeline::Timeline;
use crate::trace::mahimahi::TUNNEL_HEADER;

/// Step of the ramp after a connection set-up; each step has the rate of its middle.
const RAMP_STEP: Duration = Duration::from_millis(10);

/// Maximum number of pieces of constant rate per packet; a packet that needs more counts as never sent.
const MAX_PIECES: u32 = 1_000_000;

/// Result of the service of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Served {
    /// Departure of the last bit.
    At(Instant),
    /// An outage begins before the last bit departs.
    Cut,
    /// The rate stays zero.
    Never,
}

/// A packet to be serialised.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    /// Time at which the packet has arrived and the radio is awake.
    pub ready: Instant,
    /// Departure of the packet before it.
    pub free: Instant,
    /// Size with overhead.
    pub size: Bytes,
    /// Start of the next outage.
    pub limit: Instant,
}

/// Rate and halts of one direction. Jobs must be in order.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    rates: Schedule<RateCursor>,
    halts: Halts,
}

impl Service {
    pub fn new(config: &LinkConfig, path: &str, direction: &str, seed: Seed) -> Self {
        let own = format!("{path}.{direction}.rate");
        let both = format!("{path}.rate");
        let changes = config.changes.iter().enumerate();
        let changes = changes.filter_map(|(index, (from, change))| match change {
            Change::Rate(rate) => {
                let number = index + 1;
                let (own, both) = (format!("{own}.{number}"), format!("{both}.{number}"));
                Some((*from, RateCursor::new(rate, seed, &own, &both)))
            }
            Change::Delay(_) | Change::Loss(_) => None,
        });
        let rate = RateCursor::new(&config.rate, seed, &own, &both);
        Self {
            rates: Schedule::new(rate, changes.collect()),
            halts: Halts::new(config, path, seed),
        }
    }

    /// The rates, for live control.
    pub const fn rates_mut(&mut self) -> &mut Schedule<RateCursor> {
        &mut self.rates
    }

    /// Last halt that delayed a packet, from the instant at which the packet met it to its end.
    #[inline]
    pub const fn last_halt(&self) -> (Instant, Instant) {
        self.halts.last
    }

    /// Passes a packet through a delay line with this service's rate and halts.
    pub fn pass(
        &mut self,
        line: &mut DelayLine,
        (now, awake, size): (Instant, Instant, Bytes),
        delay: &mut Delay,
        ramp: Option<(&Radio, &Drx)>,
    ) -> Option<Instant> {
        let Self { rates, halts } = self;
        let effects = Effects { now, awake, size, rate: rates.at(now).0, delay };
        let ramp = |rate: Rate, at: Instant| match ramp {
            Some((radio, drx)) => ramped(rate, Instant::FAR_FUTURE, at, radio, drx).0,
            None => rate,
        };
        line.pass(effects, |at| halts.resume(at), ramp)
    }

    /// Returns `at`, or the end of the halt that contains it. Queries must be in order of time.
    pub fn resume(&mut self, at: Instant) -> Instant {
        self.halts.resume(at)
    }

    /// Returns the time at which the job's first bit can depart, at most the limit.
    pub fn head(&mut self, job: Job) -> Instant {
        let mut at = job.ready.max(job.free);
        for _ in 0..MAX_PIECES {
            if at < job.limit {
                at = self.halts.resume(at);
            }
            if at >= job.limit {
                return job.limit;
            }
            let (RateCursor::Opportunities(cursor), until) = self.rates.at(at) else { return at };
            let opportunity = cursor.next_usable(at, job.ready);
            if opportunity >= until {
                at = until;
                continue;
            }
            at = self.halts.resume(opportunity);
            if at == opportunity {
                return at.min(job.limit);
            }
        }
        job.limit
    }

    /// Serialises a packet. `ramp` is the radio whose rate ramps up, if it does.
    pub fn serve(&mut self, job: Job, ramp: Option<(&Radio, &Drx)>) -> Served {
        let start = job.ready.max(job.free);
        if ramp.is_none() && start < Instant::FAR_FUTURE {
            let start = self.halts.resume(start);
            if start < job.limit {
                let (cursor, until) = self.rates.at(start);
                let (rate, step) = cursor.step(start).unwrap_or((Rate::ZERO, start));
                let end = start + rate.time_for(job.size);
                let stop = until.min(step).min(job.limit).min(self.halts.next_start);
                if end <= stop && end < Instant::FAR_FUTURE {
                    return Served::At(end);
                }
            }
        }
        self.serve_in_pieces(job, ramp)
    }

    fn serve_in_pieces(&mut self, job: Job, ramp: Option<(&Radio, &Drx)>) -> Served {
        let mut at = job.ready.max(job.free);
        // Bits times 10⁹, so that the product of rate and nanoseconds is exact.
        let mut need = u128::from(job.size.bits()) * 1_000_000_000;
        for _ in 0..MAX_PIECES {
            if at < Instant::FAR_FUTURE {
                at = self.halts.resume(at);
            }
            if at == Instant::FAR_FUTURE {
                return Served::Never;
            }
            if at >= job.limit {
                return Served::Cut;
            }
            let (cursor, change) = self.rates.at(at);
            let (rate, until) = match cursor {
                RateCursor::Opportunities(cursor) => {
                    let stop = change.min(job.limit);
                    let mut bytes = need.div_ceil(8_000_000_000) as u64 + TUNNEL_HEADER;
                    for piece in 0.. {
                        let opportunity = cursor.next_usable(at, job.ready);
                        if opportunity >= stop {
                            break;
                        }
                        if piece > MAX_PIECES {
                            return Served::Never;
                        }
                        at = self.halts.resume(opportunity);
                        if at > opportunity {
                            continue;
                        }
                        bytes -= cursor.take(bytes);
                        if bytes == 0 {
                            return Served::At(opportunity);
                        }
                    }
                    need = u128::from(bytes.saturating_sub(TUNNEL_HEADER).max(1)) * 8_000_000_000;
                    at = at.max(stop);
                    continue;
                }
                cursor => {
                    let (rate, step) = cursor.step(at).unwrap_or((Rate::ZERO, change));
                    (rate, change.min(step))
                }
            };
            if rate == Rate::ZERO {
                at = until.min(job.limit);
                continue;
            }
            let (rate, until) = match ramp {
                Some((radio, drx)) => ramped(rate, until, at, radio, drx),
                None => (rate, until),
            };
            let until = until.min(job.limit).min(self.halts.next_start);
            let capacity = u128::from(rate.as_bps()) * (until - at).as_nanos().max(0) as u128;
            if need <= capacity {
                let nanos = need.div_ceil(u128::from(rate.as_bps().max(1)));
                return Served::At(at + Duration::from_nanos(nanos as i64));
            }
            need -= capacity;
            at = until;
        }
        Served::Never
    }

    /// Returns the rate at `at` for display; zero during a halt.
    pub fn rate(&mut self, at: Instant) -> Rate {
        let rate = self.rates.at(at).0.mean_rate(at);
        if self.halts.resume(at) > at { Rate::ZERO } else { rate }
    }
}

/// Returns the rate at `at` on a ramp, with the end of that step.
pub(crate) fn ramped(
    full: Rate,
    until: Instant,
    at: Instant,
    radio: &Radio,
    drx: &Drx,
) -> (Rate, Instant) {
    let Some(from) = radio.ramp(at, drx) else { return (full, until) };
    if drx.ramp_from >= full {
        return (full, until);
    }
    if at < from {
        return (drx.ramp_from, until.min(from));
    }
    let step = (at - from).as_nanos() / RAMP_STEP.as_nanos();
    let middle = RAMP_STEP * step + RAMP_STEP / 2;
    let share = (middle.as_nanos() as f64 / drx.ramp_for.as_nanos() as f64).min(1.0);
    let rise = (full.as_bps() - drx.ramp_from.as_bps()) as f64 * share;
    let end = (from + RAMP_STEP * (step + 1)).min(from + drx.ramp_for);
    (Rate::from_bps(drx.ramp_from.as_bps() + rise as u64), until.min(end))
}

/// Spans during which nothing is sent. Queries must be in order of time.
#[derive(Clone, Debug)]
struct Halts {
    /// Timelines with their current or next halt.
    sources: Vec<(HaltTimeline, (Instant, Instant))>,
    /// Start of the next halt after the last one looked for: until then nothing needs to be looked for.
    next_start: Instant,
    /// End of the last halt.
    resumed: Instant,
    /// Last halt that contained a query, from that query on.
    last: (Instant, Instant),
}

#[derive(Clone, Debug)]
enum HaltTimeline {
    Random(Timeline),
    Boundary(BoundaryTimeline),
    Scripted(IntoIter<(Instant, Instant)>),
}

impl HaltTimeline {
    fn next(&mut self) -> (Instant, Instant) {
        match self {
            Self::Random(timeline) => timeline.next(),
            Self::Boundary(timeline) => timeline.next(),
            Self::Scripted(spans) => {
                spans.next().unwrap_or((Instant::FAR_FUTURE, Instant::FAR_FUTURE))
            }
        }
    }
}

impl Halts {
    fn new(config: &LinkConfig, path: &str, seed: Seed) -> Self {
        let handovers = config.handover.as_ref().map(|handover| handover.timeline(seed, path));
        let stalls = config.stall.as_ref();
        let stalls = stalls.map(|stall| stall.timeline(seed, &format!("{path}.stall")));
        let random = handovers.into_iter().chain(stalls).map(HaltTimeline::Random);
        let interrupting = config
            .reconfiguration
            .as_ref()
            .filter(|config| config.interruption.constant() != Some(Duration::ZERO));
        let boundaries = interrupting
            .map(|config| HaltTimeline::Boundary(BoundaryTimeline::new(config, path, seed)));
        let spans = merged(&config.halts);
        let scripted = (!spans.is_empty()).then(|| HaltTimeline::Scripted(spans.into_iter()));
        let sources = random.chain(boundaries).chain(scripted).map(|mut timeline| {
            let first = timeline.next();
            (timeline, first)
        });
        let mut halts = Self {
            sources: sources.collect(),
            next_start: Instant::FAR_FUTURE,
            resumed: Instant::ZERO,
            last: (Instant::ZERO, Instant::ZERO),
        };
        halts.find_next();
        halts
    }

    /// Returns `at`, or the end of the halt that contains it.
    #[inline]
    fn resume(&mut self, at: Instant) -> Instant {
        if at < self.resumed {
            self.resumed
        } else if at < self.next_start {
            at
        } else {
            self.pass_halts(at)
        }
    }

    /// Passes the halts that have ended or contain `at`. Returns `at`, or the end of the last of those that contain it
    /// and follow one another without a gap.
    fn pass_halts(&mut self, at: Instant) -> Instant {
        let mut clear = at;
        for _ in 0..MAX_PIECES {
            let before = clear;
            for (timeline, halt) in &mut self.sources {
                while halt.1 <= clear && halt.1 < Instant::FAR_FUTURE {
                    *halt = timeline.next();
                }
                if halt.0 <= clear {
                    clear = halt.1;
                }
            }
            if clear == before {
                if clear > at {
                    self.resumed = clear;
                    self.last = (at, clear);
                }
                self.find_next();
                return clear;
            }
        }
        self.resumed = Instant::FAR_FUTURE;
        self.resumed
    }

    /// Finds the start of the next halt among the halts of all timelines.
    fn find_next(&mut self) {
        let starts = self.sources.iter().map(|(_, (start, _))| *start);
        self.next_start = starts.min().unwrap_or(Instant::FAR_FUTURE);
    }
}
