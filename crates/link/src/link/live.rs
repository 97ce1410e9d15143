//! Live control: changes to a link during a run.
//!
//! A change affects the packets that are admitted after it: a fate once returned does not change, and a queued packet
//! departs at the rate at which it was admitted. The exception is a cut, which loses all packets that have not
//! departed; the driver, which holds the packets, must drop them by [`Link::last_departure`]. Handovers,
//! reconfigurations and discontinuous reception continue.

use alloc::vec::Vec;
use core::mem::replace;

use skybraid_units::{Duration, Instant, Rate, Seed};

use super::Link;
use crate::delay::{Delay, DelaySource};
use crate::loss::{LossProcess, LossSource};
use crate::outage::{Outages, Schedule};
use crate::rate::{RateCursor, RateSource};

/// Scripted state that live control has replaced.
#[derive(Clone, Debug, Default)]
pub(super) struct Scripted {
    outages: Saved<Outages>,
    rates: Saved<Schedule<RateCursor>>,
    delays: Saved<Schedule<Delay>>,
    losses: Saved<Schedule<Vec<LossProcess>>>,
}

/// Replaced state: that of packets and that of [`Link::conditions`].
#[derive(Clone, Debug)]
struct Saved<T>(Option<(T, T)>);

impl<T> Default for Saved<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: Clone> Saved<T> {
    /// Replaces both states by `new` and saves the scripted ones.
    fn replace_by(&mut self, packets: &mut T, view: &mut T, new: T) {
        let old = (replace(packets, new.clone()), replace(view, new));
        self.0.get_or_insert(old);
    }

    /// Restores the scripted states, if they were replaced.
    fn restore(&mut self, packets: &mut T, view: &mut T) {
        if let Some(saved) = self.0.take() {
            (*packets, *view) = saved;
        }
    }
}

impl Link {
    /// Departure of the last packet admitted, as sent or dropped. After [`Fate::Delivered`](super::Fate::Delivered),
    /// it is the departure of that packet.
    pub const fn last_departure(&self) -> Instant {
        self.free
    }

    /// Minimum propagation delay of any packet, now and after scripted changes. For a normal, exponential or mixed
    /// distribution it is `plus` alone.
    pub fn min_delay(&self) -> Duration {
        self.delays.all().map(Delay::min).min().unwrap_or(Duration::ZERO)
    }

    /// Takes the link down at `now`, until [`restore`](Self::restore). Packets that have not departed by `now` are
    /// removed from the queue; `held` is how many of these the receiver was to hold
    /// ([`Fate::Held`](crate::Fate::Held)).
    pub fn cut(&mut self, now: Instant, held: usize) {
        let forever = Duration::from_nanos(Instant::FAR_FUTURE.as_nanos() - now.as_nanos());
        let outages = Outages::new(&[(now, forever)], None);
        self.view.scripted.outages.replace_by(&mut self.outages, &mut self.view.outages, outages);
        self.queue.remove_queued(now);
        self.free = self.free.min(now.max(self.now));
        if let Some(access) = &mut self.access {
            access.on_cut(now);
            access.remove_newest_held(held);
        }
        if let Some(line) = &mut self.line {
            line.on_cut(now);
        }
    }

    /// Ends a [`cut`](Self::cut) and restores the scripted outages.
    pub fn restore(&mut self) {
        self.view.scripted.outages.restore(&mut self.outages, &mut self.view.outages);
    }

    /// Whether the link is [`cut`](Self::cut).
    pub const fn is_cut(&self) -> bool {
        self.view.scripted.outages.0.is_some()
    }

    /// Replaces the scripted rate by a constant one. At a rate of zero every packet is lost, since it never departs.
    pub fn set_rate(&mut self, rate: Rate) {
        self.set_rate_source(&RateSource::Constant(rate), Seed::default());
    }

    /// Replaces the scripted rate by `source`, whose series is in the time of the run. Draws come from `seed`.
    pub fn set_rate_source(&mut self, source: &RateSource, seed: Seed) {
        let new =
            Schedule::new(RateCursor::new(source, seed, "live.rate", "live.rate"), Vec::new());
        let view = &mut *self.view;
        view.scripted.rates.replace_by(self.service.rates_mut(), view.service.rates_mut(), new);
        // A packet at a rate of zero occupies the link for ever; the new rate frees it.
        if self.free == Instant::FAR_FUTURE {
            self.free = self.now;
        }
    }

    /// Replaces the scripted delay by `source`. Draws come from `seed`.
    pub fn set_delay(&mut self, source: &DelaySource, seed: Seed) {
        let new = Schedule::new(Delay::new(source, seed, "live.delay", "live.delay"), Vec::new());
        let view = &mut *self.view;
        view.scripted.delays.replace_by(&mut self.delays, &mut view.delays, new);
    }

    /// Replaces the scripted losses by `sources`; the first model that loses a packet sets the cause. Draws come from
    /// `seed`.
    pub fn set_loss(&mut self, sources: &[LossSource], seed: Seed) {
        let process = |source| LossProcess::new(source, seed, "live.loss", "live.loss");
        let new = Schedule::new(sources.iter().map(process).collect(), Vec::new());
        let view = &mut *self.view;
        view.scripted.losses.replace_by(&mut self.losses, &mut view.losses, new);
    }

    /// Restores the scripted rate, delay, losses and outages.
    pub fn reset(&mut self) {
        self.restore();
        let view = &mut *self.view;
        view.scripted.rates.restore(self.service.rates_mut(), view.service.rates_mut());
        view.scripted.delays.restore(&mut self.delays, &mut view.delays);
        view.scripted.losses.restore(&mut self.losses, &mut view.losses);
    }
}
