//! Maximum age of delivered messages.
//!
//! Control is judged by the upper bound of its age: a one-way delay is at most the round trip, so what may
//! be older than its deadline is taken to be. Other classes are judged by the estimate, which is wrong by
//! no more than half of the lowest round trip. Before clocks could be compared nothing is known of an age:
//! control waits for the comparison, which takes a round trip, and is judged then with that time added.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::vec::Vec;

use skybraid_units::{Duration, Instant};

use super::Gateway;
use super::local::Incoming;
use crate::Class;
use crate::event::What;
use crate::health::Path;
use crate::stats::Dropped;

/// Maximum number of control messages that wait for the clocks to be compared; the oldest go first.
const MAX_HELD: usize = 256;

/// Control messages whose age cannot be known yet.
#[derive(Debug, Default)]
pub(super) struct Unjudged {
    held: VecDeque<(Incoming, Vec<u8>)>,
    /// The alarm about a round trip longer than the deadline of control stands.
    told: bool,
}

/// Verdict on a message's age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Within the deadline of its class.
    InTime,
    /// It is, or may be, older than that.
    Late,
    /// Clocks have not been compared.
    Unknown,
}

impl Gateway {
    /// Judges a message by its transit time.
    pub(super) fn verdict(&self, now: Instant, class: Class, transit: Duration) -> Verdict {
        let Some(life) = self.config.class.deadline(class) else { return Verdict::InTime };
        match self.age(now, class, transit) {
            Some(age) if age > life => Verdict::Late,
            None if class == Class::Control => Verdict::Unknown,
            _ => Verdict::InTime,
        }
    }

    /// The age that counts: for control what it may be at most, for other classes the estimate.
    fn age(&self, now: Instant, class: Class, transit: Duration) -> Option<Duration> {
        match class {
            Class::Control => self.clock.max_incoming_delay(now, transit),
            _ => self.clock.incoming_delay(now, transit),
        }
    }

    /// Lower bound of the time from here to the peer by any path that is heard, as far as it is known. For
    /// control it is zero: the peer judges.
    pub(super) fn min_outgoing_delay(&self, now: Instant, class: Class) -> Duration {
        let delay = |path: &Path| self.clock.outgoing_delay(now, path.outgoing_transit.least()?);
        let heard = self.paths.iter().filter(|path| path.is_heard() && class != Class::Control);
        heard.filter_map(delay).min().unwrap_or_default().max(Duration::ZERO)
    }

    /// The time at which a message becomes too old to be delivered.
    pub(super) fn expires(&self, now: Instant, class: Class, transit: Duration) -> Instant {
        match (self.config.class.deadline(class), self.age(now, class, transit)) {
            (Some(life), Some(age)) => now + (life - age),
            (Some(life), None) => now + life,
            (None, _) => Instant::FAR_FUTURE,
        }
    }

    /// Keeps a control message until clocks have been compared.
    pub(super) fn hold(&mut self, incoming: &Incoming, bytes: &[u8]) {
        if self.unjudged.held.len() >= MAX_HELD && self.unjudged.held.pop_front().is_some() {
            self.drop_message(Class::Control, Dropped::Late);
        }
        self.unjudged.held.push_back((*incoming, bytes.to_vec()));
    }

    /// Judges what has been held, if clocks are compared by now.
    pub(super) fn judge_held(&mut self, now: Instant) {
        if !self.clock.is_compared() {
            return;
        }
        while let Some((incoming, bytes)) = self.unjudged.held.pop_front() {
            match self.verdict(now, incoming.class, incoming.transit(now)) {
                Verdict::InTime => self.take_turn(now, &incoming, &bytes),
                _ => self.drop_message(Class::Control, Dropped::Late),
            }
        }
    }

    /// Reports when no control can be shown to be in time, since the lowest round trip exceeds its deadline.
    pub(super) fn watch_round_trip(&mut self, now: Instant) {
        let life = self.config.class.deadline(Class::Control);
        let (Some(life), Some(lowest)) = (life, self.clock.round_trip(now)) else { return };
        let exceeds = lowest > life;
        if exceeds && !self.unjudged.told {
            let (lowest, life) = (lowest.as_millis_f64(), life.as_millis_f64());
            let text = format!(
                "control may be older than its deadline on every path and is dropped: the lowest round trip is \
                 {lowest:.0} ms, class.control.deadline {life:.0} ms"
            );
            self.record_event(now, What::Alarm { text });
        }
        self.unjudged.told = exceeds;
    }
}
