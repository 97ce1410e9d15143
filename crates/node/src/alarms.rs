//! Conditions to be fixed, each reported once.

use std::collections::BTreeMap;
use std::sync::mpsc::SyncSender;

use skybraid_gateway::Event;
use skybraid_gateway::event::What;
use skybraid_units::Instant;

/// Forwards alarms. An alarm is repeated only after it has been cleared.
pub struct Alarms {
    events: SyncSender<Event>,
    raised: BTreeMap<String, String>,
    now: Instant,
}

impl Alarms {
    /// Creates alarms sent to `events`; excess alarms are dropped.
    pub fn new(events: SyncSender<Event>) -> Self {
        Self { events, raised: BTreeMap::new(), now: Instant::ZERO }
    }

    /// Sets the time of subsequent alarms.
    pub fn at(&mut self, now: Instant) {
        self.now = now;
    }

    /// Forwards an event from elsewhere.
    pub fn pass(&self, event: Event) {
        self.events.try_send(event).ok();
    }

    /// Raises the alarm `key` with `text`, unless it is already raised.
    pub fn raise(&mut self, key: &str, text: String) {
        if !self.raised.contains_key(key) {
            self.raised.insert(key.to_owned(), text.clone());
            self.pass(Event { at: self.now, what: What::Alarm { text } });
        }
    }

    /// Returns the texts of raised alarms by key.
    pub const fn raised(&self) -> &BTreeMap<String, String> {
        &self.raised
    }

    /// Clears the alarm `key`.
    pub fn clear(&mut self, key: &str) {
        self.raised.remove(key);
    }
}
