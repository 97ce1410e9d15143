//! What has happened since the start: events for the log, and counters of refused input.

use alloc::collections::VecDeque;
use alloc::string::String;

use skybraid_units::{Duration, Instant};

use crate::event::{Event, What};
use crate::session::Refusal;
use crate::snapshot::RefusedSnapshot;

/// Maximum number of pending events; the oldest are dropped first.
const MAX_EVENTS: usize = 1_000;

/// Events and refused input.
#[derive(Debug)]
pub(super) struct Record {
    started: Instant,
    events: VecDeque<Event>,
    refused: RefusedSnapshot,
}

impl Record {
    pub fn new(now: Instant) -> Self {
        Self { started: now, events: VecDeque::new(), refused: RefusedSnapshot::default() }
    }

    pub fn uptime(&self, now: Instant) -> Duration {
        now.since(self.started)
    }

    /// Records an event.
    pub fn event(&mut self, at: Instant, what: What) {
        if self.events.len() >= MAX_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(Event { at, what });
    }

    /// Records a problem that needs fixing.
    pub fn alarm(&mut self, at: Instant, text: impl Into<String>) {
        self.event(at, What::Alarm { text: text.into() });
    }

    /// Returns the oldest event that has not been fetched.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Counters of refused input.
    pub const fn refused(&self) -> RefusedSnapshot {
        self.refused
    }

    /// Counts a datagram that belongs to no session.
    pub const fn on_refused(&mut self, refusal: Refusal) {
        let refused = &mut self.refused;
        *match refusal {
            Refusal::Foreign => &mut refused.foreign,
            Refusal::Forged => &mut refused.forged,
            Refusal::Replayed => &mut refused.replayed,
            Refusal::Stranger => &mut refused.strangers,
            Refusal::Cookie => &mut refused.cookies,
        } += 1;
    }

    /// Counts an authentic datagram that cannot be parsed.
    pub const fn on_unreadable(&mut self) {
        self.refused.unreadable += 1;
    }

    /// Counts a frame with a wrong signature. The first raises an alarm, as the keys may differ.
    pub fn on_wrong_signature(&mut self, now: Instant) {
        self.refused.signatures += 1;
        if self.refused.signatures == 1 {
            let text = "a MAVLink frame with a wrong signature was dropped: forged, or `signing.key` is \
                        not the key of the autopilot and its ground stations";
            self.alarm(now, text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_events_go_first_and_a_wrong_key_alarms_once() {
        let mut record = Record::new(Instant::ZERO);
        let at = Instant::from_millis;
        for ms in 0..1_500 {
            record.alarm(at(ms), "text");
        }
        assert_eq!(record.poll_event().map(|event| event.at), Some(at(500)));
        let mut record = Record::new(Instant::ZERO);
        record.on_wrong_signature(at(1));
        record.on_wrong_signature(at(2));
        assert_eq!(record.refused().signatures, 2);
        assert_eq!(record.poll_event().map(|event| event.at), Some(at(1)));
        assert_eq!(record.poll_event(), None);
    }
}
