//! State of the session with the peer, and which alarms about it have been raised.

use skybraid_units::{Duration, Instant};

/// Silence on all paths after which the peer is presumed gone.
const PEER_LOST: Duration = Duration::from_secs(1);
/// Interval of silence at which the aircraft requests a new session.
const ASK_AGAIN: Duration = Duration::from_millis(300);

/// State of the session.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SessionStatus {
    up: bool,
    expired: bool,
    established: u64,
    peer_restarts: u64,
    /// The peer is silent on all paths, and when a new session was last requested for that.
    lost: bool,
    asked: Option<Instant>,
    reported_overdue: bool,
    reported_duplicate: bool,
}

impl SessionStatus {
    /// Whether datagrams may be sent and received.
    pub const fn is_up(&self) -> bool {
        self.up
    }

    /// Whether the last session has ended without a successor.
    pub const fn is_expired(&self) -> bool {
        self.expired
    }

    /// Whether the peer is presumed gone.
    pub const fn is_peer_lost(&self) -> bool {
        self.lost
    }

    /// Number of sessions since the start.
    pub const fn established(&self) -> u64 {
        self.established
    }

    /// Number of restarts of the peer since the first session.
    pub const fn peer_restarts(&self) -> u64 {
        self.peer_restarts
    }

    /// Records a new session, with a peer that has `restarted`.
    pub fn on_established(&mut self, restarted: bool) {
        self.peer_restarts += u64::from(restarted && self.established > 0);
        self.established += 1;
        (self.up, self.expired, self.reported_overdue) = (true, false, false);
    }

    /// Records the end of the session.
    pub const fn on_expired(&mut self) {
        (self.up, self.expired) = (false, true);
    }

    /// Records that the peer is heard.
    pub const fn on_heard(&mut self) {
        self.lost = false;
    }

    /// Returns true once for each silence that has become long; the peer was last `heard` on any path.
    pub fn take_loss(&mut self, now: Instant, heard: Instant) -> bool {
        now.since(heard) >= PEER_LOST && !core::mem::replace(&mut self.lost, true)
    }

    /// Returns true whenever the aircraft must request a new session: the silent peer may have restarted.
    pub fn take_request(&mut self, now: Instant, heard: Instant) -> bool {
        let since = self.asked.unwrap_or(heard).max(heard);
        let is_due = now.since(since) >= ASK_AGAIN;
        if is_due {
            self.asked = Some(now);
        }
        is_due
    }

    /// Returns true once for each session whose change of keys is overdue.
    pub const fn take_overdue(&mut self, is_overdue: bool) -> bool {
        is_overdue && !core::mem::replace(&mut self.reported_overdue, true)
    }

    /// Returns true when two gateways with the peer's key begin to be heard.
    pub const fn take_duplicate(&mut self, is_duplicated: bool) -> bool {
        !core::mem::replace(&mut self.reported_duplicate, is_duplicated) && is_duplicated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_peer_is_reported_once_and_asked_again_and_again() {
        let mut status = SessionStatus::default();
        let at = |ms| Instant::from_millis(ms);
        let counts = |status: &mut SessionStatus, from: i64| {
            let times = (from..from + 2_000).step_by(10).map(at);
            times.fold((0, 0), |(lost, asked), now| {
                let is_lost = status.take_loss(now, at(from));
                let asks = status.take_request(now, at(from));
                (lost + u32::from(is_lost), asked + u32::from(asks))
            })
        };
        assert_eq!(counts(&mut status, 0), (1, 6));
        assert!(status.is_peer_lost());
        status.on_heard();
        assert_eq!(counts(&mut status, 5_000), (1, 6));
    }

    #[test]
    fn the_first_session_counts_as_no_restart() {
        let mut status = SessionStatus::default();
        for restarted in [true, false, true] {
            status.on_established(restarted);
        }
        assert_eq!((status.established(), status.peer_restarts()), (3, 1));
        status.on_expired();
        assert!(!status.is_up() && status.is_expired());
    }
}
