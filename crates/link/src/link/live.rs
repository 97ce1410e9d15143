//! What whoever watches a run may do to a link while packets are on it.
//!
//! A packet whose fate is told keeps it: what is set holds for the packets that are admitted from
//! then on, and a packet in the queue leaves at the rate under which it was admitted. A cut is the
//! exception: it loses what has not left, which whoever holds the packets sees to by
//! [`Link::last_departure`]. Handovers, reconfigurations and discontinuous reception go on.

use alloc::vec::Vec;
use core::mem::replace;

use skybraid_units::{Duration, Instant, Rate, Seed};

use super::Link;
use crate::delay::{Delay, DelaySource};
use crate::loss::{LossProcess, LossSource};
use crate::outage::{Outages, Schedule};
use crate::rate::{RateCursor, RateSource};

/// What is scripted, set aside while something else holds.
#[derive(Clone, Debug, Default)]
pub(super) struct Scripted {
    outages: Kept<Outages>,
    rates: Kept<Schedule<RateCursor>>,
    delays: Kept<Schedule<Delay>>,
    losses: Kept<Schedule<Vec<LossProcess>>>,
}

/// What packets met, and what the reader of [`Link::conditions`] saw.
#[derive(Clone, Debug)]
struct Kept<T>(Option<(T, T)>);

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: Clone> Kept<T> {
    /// Puts `new` in both places; what was there first is kept.
    fn set(&mut self, packets: &mut T, reader: &mut T, new: T) {
        let old = (replace(packets, new.clone()), replace(reader, new));
        self.0.get_or_insert(old);
    }

    /// Puts back what was there first.
    fn put_back(&mut self, packets: &mut T, reader: &mut T) {
        if let Some(kept) = self.0.take() {
            (*packets, *reader) = kept;
        }
    }
}

impl Link {
    /// When the last packet admitted leaves or has left: its last bit then is on the way, or it is
    /// dropped there. After [`Fate::Delivered`](super::Fate::Delivered) it is that packet's departure.
    pub const fn last_departure(&self) -> Instant {
        self.free
    }

    /// The least propagation delay that a packet can meet, whatever is scripted. A normal, exponential
    /// or mixed delay has no bound above what is added to it.
    pub fn least_delay(&self) -> Duration {
        self.delays.all().map(Delay::least).min().unwrap_or(Duration::ZERO)
    }

    /// Takes the link down at `now`, until [`restore`](Self::restore). Packets that have not left by
    /// then no longer count as queued.
    pub fn cut(&mut self, now: Instant) {
        let forever = Duration::from_nanos(Instant::FAR_FUTURE.as_nanos() - now.as_nanos());
        let outages = Outages::new(&[(now, forever)]);
        self.view.scripted.outages.set(&mut self.outages, &mut self.view.outages, outages);
        self.queue.lose_unsent(now);
        self.free = self.free.min(now.max(self.now));
    }

    /// Ends a [`cut`](Self::cut); the scripted outages hold again.
    pub fn restore(&mut self) {
        self.view.scripted.outages.put_back(&mut self.outages, &mut self.view.outages);
    }

    /// Whether the link is [`cut`](Self::cut).
    pub const fn is_cut(&self) -> bool {
        self.view.scripted.outages.0.is_some()
    }

    /// Serialises at `rate` in place of what is scripted. A rate of zero takes every packet as one
    /// that never leaves.
    pub fn set_rate(&mut self, rate: Rate) {
        self.set_rate_source(&RateSource::Constant(rate), Seed::default());
    }

    /// Serialises at `source`, whose series runs on the time of the run, in place of what is scripted.
    /// Draws come from `seed`.
    pub fn set_rate_source(&mut self, source: &RateSource, seed: Seed) {
        let new = Schedule::new(RateCursor::new(source, seed), Vec::new());
        let view = &mut *self.view;
        view.scripted.rates.set(self.service.rates_mut(), view.service.rates_mut(), new);
        // A link whose rate was zero for ever has promised never to send again.
        if self.free == Instant::FAR_FUTURE {
            self.free = self.now;
        }
    }

    /// Delays by `source` in place of what is scripted. Draws come from `seed`.
    pub fn set_delay(&mut self, source: &DelaySource, seed: Seed) {
        let new = Schedule::new(Delay::new(source, seed, "live.delay"), Vec::new());
        let view = &mut *self.view;
        view.scripted.delays.set(&mut self.delays, &mut view.delays, new);
    }

    /// Loses by `sources` in place of what is scripted; the first that hits names the cause. Draws
    /// come from `seed`.
    pub fn set_loss(&mut self, sources: &[LossSource], seed: Seed) {
        let process = |source| LossProcess::new(source, seed, "live.loss", "live.loss");
        let new = Schedule::new(sources.iter().map(process).collect(), Vec::new());
        let view = &mut *self.view;
        view.scripted.losses.set(&mut self.losses, &mut view.losses, new);
    }

    /// Rate, delay, loss and outages are again as scripted.
    pub fn reset(&mut self) {
        self.restore();
        let view = &mut *self.view;
        view.scripted.rates.put_back(self.service.rates_mut(), view.service.rates_mut());
        view.scripted.delays.put_back(&mut self.delays, &mut view.delays);
        view.scripted.losses.put_back(&mut self.losses, &mut view.losses);
    }
}
