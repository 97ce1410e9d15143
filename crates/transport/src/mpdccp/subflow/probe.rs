//! Probes of a path: packets of the handshake and Syncs, whose answers show that the path works.
//!
//! Source: RFC 4340 §5.7 (Sync and SyncAck).

use skybraid_units::{Duration, Instant};

use crate::segment::DccpKind;

/// Packets of a handshake that are remembered: a driver may repeat one well before its answer can be there.
const MAX_SENT: usize = 4;

/// Probe in flight, and the Sync and SyncAck that are due.
#[derive(Debug, Default)]
pub struct Probe {
    /// Last packets of the handshake or last Syncs, newest first: number and time of sending.
    sent: [Option<(u64, Instant)>; MAX_SENT],
    sync_due: bool,
    sync_ack_due: bool,
}

impl Probe {
    /// True if a Sync or SyncAck is due.
    #[inline]
    pub const fn is_due(&self) -> bool {
        self.sync_due || self.sync_ack_due
    }

    /// True if a Sync is due.
    pub const fn is_sync_due(&self) -> bool {
        self.sync_due
    }

    /// True if a probe waits for its answer.
    pub const fn is_in_flight(&self) -> bool {
        matches!(self.sent, [Some(_), ..])
    }

    /// Requests a Sync, or cancels the one requested.
    pub const fn set_sync_due(&mut self, due: bool) {
        self.sync_due = due;
    }

    /// Processes a Sync of the peer.
    pub const fn on_sync(&mut self) {
        self.sync_ack_due = true;
    }

    /// Takes the packet that is due; an answer to the peer comes first.
    pub fn take_due(&mut self) -> Option<DccpKind> {
        if core::mem::take(&mut self.sync_ack_due) {
            return Some(DccpKind::SyncAck);
        }
        core::mem::take(&mut self.sync_due).then_some(DccpKind::Sync)
    }

    /// Records that packet `number` leaves as a probe.
    pub const fn on_sent(&mut self, number: u64, now: Instant) {
        let [first, second, third, _] = self.sent;
        self.sent = [Some((number, now)), first, second, third];
    }

    /// Ends the probe if packet `acked` is one that was sent for it, and returns its age. Every packet has a number of
    /// its own, so that a repeated one is not confused with the original (Karn's algorithm).
    pub fn end(&mut self, now: Instant, acked: u64) -> Option<Duration> {
        let (_, at) = self.sent.into_iter().flatten().find(|(number, _)| *number == acked)?;
        self.forget();
        Some(now.since(at))
    }

    /// Ends the probe without an answer.
    pub const fn forget(&mut self) {
        self.sent = [None; MAX_SENT];
    }

    /// Cancels the probe and the Sync that is due: the path makes progress.
    pub const fn on_progress(&mut self) {
        self.sync_due = false;
        self.forget();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_to_a_probe_that_was_repeated_is_a_sample() {
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        let mut probe = Probe::default();
        probe.on_sent(7, at(0));
        probe.on_sent(9, at(100));
        assert_eq!(probe.end(at(150), 8), None);
        assert_eq!(probe.end(at(150), 7), Some(Duration::from_millis(150)));
        assert_eq!(probe.end(at(160), 9), None, "answered before");
    }

    #[test]
    fn the_peers_sync_is_answered_before_an_own_one_leaves() {
        let mut probe = Probe::default();
        probe.set_sync_due(true);
        probe.on_sync();
        let due = core::array::from_fn(|_| probe.take_due());
        assert_eq!(due, [Some(DccpKind::SyncAck), Some(DccpKind::Sync), None]);
    }
}
