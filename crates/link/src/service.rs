//! Serialisation: how long a packet takes at a rate that changes, halts and ramps up.

use alloc::vec::{IntoIter, Vec};

use skybraid_units::{Bytes, Duration, Instant, Rate, Seed};

use crate::config::LinkConfig;
use crate::drx::{Drx, Radio};
use crate::handover::HandoverTimeline;
use crate::outage::{Change, Schedule, merged};
use crate::rate::RateCursor;
use crate::reconfiguration::BoundaryTimeline;
use crate::trace::mahimahi::TUNNEL_HEADER;

/// The ramp after a connection set-up is followed in steps of this length, each at the rate of its
/// middle.
const RAMP_STEP: Duration = Duration::from_millis(10);

/// How many pieces of rate a packet may cross before the link counts as one that will never send it.
const MOST_PIECES: u32 = 1_000_000;

/// What happens to a packet that is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Served {
    /// Its last bit leaves at this instant.
    At(Instant),
    /// Service is not finished when the outage begins.
    Cut,
    /// The rate stays zero for ever.
    Never,
}

/// A packet to be sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    /// When the packet is there and the radio awake.
    pub ready: Instant,
    /// When the packet before it has left.
    pub free: Instant,
    /// Size with overhead.
    pub size: Bytes,
    /// When the next outage begins.
    pub limit: Instant,
}

/// Rate and halts of one direction. Jobs must come in order.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    rates: Schedule<RateCursor>,
    halts: Halts,
}

impl Service {
    pub fn new(config: &LinkConfig, path: &str, seed: Seed) -> Self {
        let changes = config.changes.iter().filter_map(|(from, change)| match change {
            Change::Rate(rate) => Some((*from, RateCursor::new(rate, seed))),
            Change::Delay(_) | Change::Loss(_) => None,
        });
        Self {
            rates: Schedule::new(RateCursor::new(&config.rate, seed), changes.collect()),
            halts: Halts::new(config, path, seed),
        }
    }

    /// The rates, to be replaced.
    pub const fn rates_mut(&mut self) -> &mut Schedule<RateCursor> {
        &mut self.rates
    }

    /// Start and end of the last halt that a packet met.
    #[inline]
    pub const fn last_halt(&self) -> (Instant, Instant) {
        self.halts.last
    }

    /// When the job's first bit can leave; the limit if not before.
    pub fn head(&mut self, job: Job) -> Instant {
        let mut at = job.ready.max(job.free);
        for _ in 0..MOST_PIECES {
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

    /// Sends a packet. `ramp` is the ramp that the radio is on, if any.
    pub fn serve(&mut self, job: Job, ramp: Option<(&Radio, &Drx)>) -> Served {
        let start = job.ready.max(job.free);
        if ramp.is_none() && self.halts.is_empty() {
            let (cursor, until) = self.rates.at(start);
            let (rate, until) = match cursor {
                RateCursor::Constant(rate) => (*rate, until),
                RateCursor::Series(cursor) => {
                    let (rate, step) = cursor.at(start);
                    (Rate::from_bps(rate as u64), until.min(step))
                }
                RateCursor::Opportunities(_) => (Rate::ZERO, start),
            };
            let end = start + rate.time_for(job.size);
            if end <= until && end <= job.limit && end < Instant::FAR_FUTURE {
                return Served::At(end);
            }
        }
        self.serve_in_pieces(job, ramp)
    }

    fn serve_in_pieces(&mut self, job: Job, ramp: Option<(&Radio, &Drx)>) -> Served {
        let mut at = job.ready.max(job.free);
        // Bits times 10⁹, so that a rate times nanoseconds is counted exactly.
        let mut need = u128::from(job.size.bits()) * 1_000_000_000;
        for _ in 0..MOST_PIECES {
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
                RateCursor::Constant(rate) => (*rate, change),
                RateCursor::Series(cursor) => {
                    let (rate, step) = cursor.at(at);
                    (Rate::from_bps(rate as u64), change.min(step))
                }
                RateCursor::Opportunities(cursor) => {
                    let stop = change.min(job.limit);
                    let mut bytes = need.div_ceil(8_000_000_000) as u64 + TUNNEL_HEADER;
                    for piece in 0.. {
                        let opportunity = cursor.next_usable(at, job.ready);
                        if opportunity >= stop {
                            break;
                        }
                        if piece > MOST_PIECES {
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
            };
            if rate == Rate::ZERO {
                at = until.min(job.limit);
                continue;
            }
            let (rate, until) = match ramp {
                Some((radio, drx)) => ramped(rate, until, at, radio, drx),
                None => (rate, until),
            };
            let until = until.min(job.limit).min(self.halts.next_start());
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

    /// The rate at `at` for a reader; zero during a halt. Draws on nothing but the time.
    pub fn shown(&mut self, at: Instant) -> Rate {
        let rate = self.rates.at(at).0.shown(at);
        if self.halts.resume(at) > at { Rate::ZERO } else { rate }
    }
}

/// The rate on a ramp and how long that step of it lasts.
fn ramped(full: Rate, until: Instant, at: Instant, radio: &Radio, drx: &Drx) -> (Rate, Instant) {
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

/// Spans during which nothing is sent. Instants asked for must not decrease.
#[derive(Clone, Debug)]
struct Halts {
    sources: Vec<(HaltTimeline, (Instant, Instant))>,
    /// Nothing is sent before this.
    resumed: Instant,
    /// The last halt that held an instant asked for, from that instant on.
    last: (Instant, Instant),
}

#[derive(Clone, Debug)]
enum HaltTimeline {
    Handover(HandoverTimeline),
    Boundary(BoundaryTimeline),
    Scripted(IntoIter<(Instant, Instant)>),
}

impl HaltTimeline {
    fn next(&mut self) -> (Instant, Instant) {
        match self {
            Self::Handover(timeline) => timeline.next(),
            Self::Boundary(timeline) => timeline.next(),
            Self::Scripted(spans) => {
                spans.next().unwrap_or((Instant::FAR_FUTURE, Instant::FAR_FUTURE))
            }
        }
    }
}

impl Halts {
    fn new(config: &LinkConfig, path: &str, seed: Seed) -> Self {
        let handovers = config
            .handover
            .as_ref()
            .map(|handover| HaltTimeline::Handover(HandoverTimeline::new(handover, path, seed)));
        let interrupting = config
            .reconfiguration
            .as_ref()
            .filter(|it| it.interruption.constant() != Some(Duration::ZERO));
        let boundaries =
            interrupting.map(|it| HaltTimeline::Boundary(BoundaryTimeline::new(it, path, seed)));
        let spans = merged(&config.halts);
        let scripted = (!spans.is_empty()).then(|| HaltTimeline::Scripted(spans.into_iter()));
        let sources =
            handovers.into_iter().chain(boundaries).chain(scripted).map(|mut timeline| {
                let first = timeline.next();
                (timeline, first)
            });
        Self {
            sources: sources.collect(),
            resumed: Instant::ZERO,
            last: (Instant::ZERO, Instant::ZERO),
        }
    }

    fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// `at`, or the end of the halt that holds it.
    fn resume(&mut self, at: Instant) -> Instant {
        if self.sources.is_empty() {
            return at;
        }
        if at < self.resumed {
            return self.resumed;
        }
        let mut clear = at;
        for _ in 0..MOST_PIECES {
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
                return clear;
            }
        }
        self.resumed = Instant::FAR_FUTURE;
        self.resumed
    }

    /// When the next halt begins, after the instant that `resume` last gave.
    fn next_start(&self) -> Instant {
        self.sources.iter().map(|(_, (start, _))| *start).min().unwrap_or(Instant::FAR_FUTURE)
    }
}
