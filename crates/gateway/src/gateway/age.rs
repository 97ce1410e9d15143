//! Maximum age of delivered messages.
//!
//! Control is judged by the upper bound of its age, since a one-way delay is at most the round trip: a
//! message that may be past its deadline counts as late. Other classes are judged by the estimated age, with
//! an error of at most half the lowest round trip. Before the clocks are compared, ages are unknown: control
//! waits one round trip for the comparison, and that wait counts as age. So it does after a message from the future,
//! which proves that a clock was stepped or stopped. What was stamped before the comparison began again is dropped.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::vec::Vec;

use skybraid_units::{Duration, Instant};

use super::Gateway;
use super::local::Incoming;
use crate::Class;
use crate::health::Path;
use crate::stats::Dropped;

/// Maximum control messages that wait for the clock comparison; the oldest are dropped first.
const MAX_HELD: usize = 256;

/// Control messages whose age cannot be known yet.
#[derive(Debug, Default)]
pub(super) struct UnknownAge {
    held: VecDeque<(Incoming, Vec<u8>)>,
    /// Whether the alarm that the round trip exceeds the control deadline is active.
    reported: bool,
}

/// Verdict on a message's age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Within the deadline of its class.
    InTime,
    /// Past the deadline, or possibly so.
    Late,
    /// Clocks not compared yet.
    Unknown,
}

impl Gateway {
    /// Judges a message by its transit time.
    pub(super) fn verdict(&self, now: Instant, class: Class, transit: Duration) -> Verdict {
        let Some(life) = self.config.class.deadline(class) else { return Verdict::InTime };
        let is_doubtful = class == Class::Control && self.peer.clock.is_before_step(now, transit);
        match self.age(now, class, transit) {
            _ if is_doubtful => Verdict::Late,
            Some(age) if age > life => Verdict::Late,
            None if class == Class::Control => Verdict::Unknown,
            _ => Verdict::InTime,
        }
    }

    /// Returns the age to judge by: the upper bound for control, the estimate for other classes.
    fn age(&self, now: Instant, class: Class, transit: Duration) -> Option<Duration> {
        match class {
            Class::Control => self.peer.clock.max_incoming_delay(now, transit),
            _ => self.peer.clock.incoming_delay(now, transit),
        }
    }

    /// Returns true if control with this delay is past its deadline.
    pub(super) fn is_late_for_control(&self, delay: Option<Duration>) -> bool {
        let life = self.config.class.deadline(Class::Control);
        delay.zip(life).is_some_and(|(delay, life)| delay > life)
    }

    /// Time from here to the peer by the fastest path that is heard, queues included, as far as it is known. For
    /// control it is zero: the peer judges.
    pub(super) fn min_outgoing_delay(&self, now: Instant, class: Class) -> Duration {
        let delay = |path: &Path| {
            let transit = path.timing.outgoing();
            let transit = transit.smoothed()? + transit.jitter() * 2;
            self.peer.clock.outgoing_delay(now, transit)
        };
        let heard = self.paths.heard().filter(|_| class != Class::Control);
        heard.filter_map(delay).min().unwrap_or_default().max(Duration::ZERO)
    }

    /// Returns when a message becomes too old for delivery.
    pub(super) fn expires(&self, now: Instant, class: Class, transit: Duration) -> Instant {
        match (self.config.class.deadline(class), self.age(now, class, transit)) {
            (Some(life), Some(age)) => now + (life - age),
            (Some(life), None) => now + life,
            (None, _) => Instant::FAR_FUTURE,
        }
    }

    /// Keeps a control message until clocks have been compared.
    pub(super) fn hold(&mut self, incoming: &Incoming, bytes: &[u8]) {
        if self.peer.unknown_age.held.len() >= MAX_HELD
            && self.peer.unknown_age.held.pop_front().is_some()
        {
            self.drop_message(Class::Control, Dropped::Late);
        }
        self.peer.unknown_age.held.push_back((*incoming, bytes.to_vec()));
    }

    /// Judges held messages if the clocks have been compared.
    pub(super) fn judge_held(&mut self, now: Instant) {
        if !self.peer.clock.is_compared() {
            return;
        }
        while let Some((incoming, bytes)) = self.peer.unknown_age.held.pop_front() {
            match self.verdict(now, incoming.class, incoming.transit(now)) {
                Verdict::InTime => self.take_turn(now, &incoming, &bytes),
                _ => self.drop_message(Class::Control, Dropped::Late),
            }
        }
    }

    /// Reports a lowest round trip above the control deadline, by which no control can be proved in time.
    pub(super) fn watch_round_trip(&mut self, now: Instant) {
        let life = self.config.class.deadline(Class::Control);
        let (Some(life), Some(lowest)) = (life, self.peer.clock.round_trip(now)) else { return };
        let exceeds = lowest > life;
        if exceeds && !self.peer.unknown_age.reported {
            let (lowest, life) = (lowest.as_millis_f64(), life.as_millis_f64());
            let text = format!(
                "control may be older than its deadline on every path and is dropped: the lowest round trip is \
                 {lowest:.0} ms, class.control.deadline {life:.0} ms"
            );
            self.record.alarm(now, text);
        }
        self.peer.unknown_age.reported = exceeds;
    }
}
