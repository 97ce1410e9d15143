//! What somebody has to fix, said once.

use std::collections::BTreeSet;
use std::sync::mpsc::SyncSender;

use skybraid_gateway::Event;
use skybraid_gateway::event::What;
use skybraid_units::Instant;

/// Passes alarms on. One is said again only after it has been cleared.
pub struct Alarms {
    events: SyncSender<Event>,
    raised: BTreeSet<String>,
    now: Instant,
}

impl Alarms {
    /// Alarms that go to `events`; what does not fit is lost.
    pub fn new(events: SyncSender<Event>) -> Self {
        Self { events, raised: BTreeSet::new(), now: Instant::ZERO }
    }

    /// The time of what follows.
    pub fn at(&mut self, now: Instant) {
        self.now = now;
    }

    /// Passes another's event on.
    pub fn pass(&self, event: Event) {
        self.events.try_send(event).ok();
    }

    /// Says `text` of the thing `key`, unless something has been said of it already.
    pub fn raise(&mut self, key: &str, text: String) {
        if !self.raised.contains(key) {
            self.raised.insert(key.to_owned());
            self.pass(Event { at: self.now, what: What::Alarm { text } });
        }
    }

    /// All is well with the thing `key`.
    pub fn clear(&mut self, key: &str) {
        self.raised.remove(key);
    }
}
