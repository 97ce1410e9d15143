//! Tail loss probes: a segment that avoids the timeout after the loss of the last segments.
//!
//! Source: RFC 8985 §7.

use skybraid_units::{Duration, Instant};

/// Probe timeout before the first round-trip time sample (RFC 8985 §7.2).
const INITIAL_TIMEOUT: Duration = Duration::from_secs(1);

/// Tail loss probe of one subflow.
#[derive(Clone, Copy, Debug)]
pub struct TailProbe {
    enabled: bool,
    /// Maximum delay of the peer's acknowledgements.
    ack_delay: Duration,
    at: Instant,
    /// A probe must be sent, regardless of the window.
    due: bool,
    /// Sequence number up to which data had been sent at the time of the probe; `None` outside an
    /// episode.
    end: Option<u64>,
    /// True if the probe repeats data.
    repeats: bool,
    /// True if a round-trip time sample was taken since the last probe.
    sampled: bool,
}

/// Result of an acknowledgement for the probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No loss, or no result yet.
    NoLoss,
    /// The probe repaired a loss: one congestion response is due (RFC 8985 §7.4.2).
    RepairedLoss,
}

impl TailProbe {
    /// Creates the state of a subflow whose peer delays acknowledgements by `ack_delay` at most.
    pub const fn new(enabled: bool, ack_delay: Duration) -> Self {
        Self {
            enabled,
            ack_delay,
            at: Instant::FAR_FUTURE,
            due: false,
            end: None,
            repeats: false,
            sampled: false,
        }
    }

    /// Instant of the next probe; [`Instant::FAR_FUTURE`] if none is planned.
    #[inline]
    pub const fn at(&self) -> Instant {
        self.at
    }

    /// True if a probe must be sent.
    #[inline]
    pub const fn is_due(&self) -> bool {
        self.due
    }

    /// Plans the next probe (RFC 8985 §7.2), not after the retransmission timeout at `rto_at`. `alone` is true if a
    /// single segment is in flight, whose acknowledgement the peer may delay.
    pub fn arm(&mut self, now: Instant, srtt: Option<Duration>, alone: bool, rto_at: Instant) {
        if self.enabled && self.end.is_none() && self.sampled {
            let wait = match srtt {
                Some(srtt) => srtt * 2 + if alone { self.ack_delay } else { Duration::ZERO },
                None => INITIAL_TIMEOUT,
            };
            self.at = now + wait.min(rto_at.since(now));
        } else {
            self.disarm();
        }
    }

    /// Plans no probe.
    pub const fn disarm(&mut self) {
        self.at = Instant::FAR_FUTURE;
    }

    /// Fires the expired timer: a probe is due if data is outstanding. Returns whether it has expired.
    #[inline]
    pub fn wake(&mut self, now: Instant, outstanding: bool) -> bool {
        let expired = self.at <= now;
        if expired {
            self.disarm();
            self.due = outstanding;
        }
        expired
    }

    /// Takes a due probe.
    pub const fn take_due(&mut self) -> bool {
        core::mem::replace(&mut self.due, false)
    }

    /// Records that a round-trip time sample was taken.
    pub fn on_rtt_sample(&mut self) {
        self.sampled = true;
    }

    /// Records a probe sent when all data below `next` has been sent. `repeats` is true if the
    /// probe repeats data.
    pub const fn on_sent(&mut self, next: u64, repeats: bool) {
        *self = Self { end: Some(next), repeats, sampled: false, due: false, ..*self };
    }

    /// Ends the episode: a recovery has taken over.
    pub const fn abandon(&mut self) {
        self.end = None;
        self.disarm();
    }

    /// Ends the episode and drops a due probe: a timeout has taken over.
    pub const fn cancel(&mut self) {
        self.abandon();
        self.due = false;
    }

    /// Processes an acknowledgement. `duplicate` is the end of the duplicate range that the peer
    /// reports, if any; `bare_duplicate` is true for a duplicate acknowledgement without SACK.
    pub fn on_ack(&mut self, ack: u64, duplicate: Option<u64>, bare_duplicate: bool) -> Verdict {
        let Some(end) = self.end.filter(|end| ack >= *end) else {
            return Verdict::NoLoss;
        };
        if !self.repeats || duplicate == Some(end) {
            self.end = None;
        } else if ack > end {
            self.end = None;
            return Verdict::RepairedLoss;
        } else if bare_duplicate {
            self.end = None;
        }
        Verdict::NoLoss
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: i64) -> Duration {
        Duration::from_millis(ms)
    }

    fn at(ms: i64) -> Instant {
        Instant::from_millis(ms)
    }

    /// A probe that may be sent, towards a peer that delays acknowledgements by 200 ms.
    fn probe() -> TailProbe {
        let mut probe = TailProbe::new(true, ms(200));
        probe.on_rtt_sample();
        probe
    }

    // Source: RFC 8985 §7.2; the vectors of the algorithm reference, §1.5.
    #[test]
    fn the_probe_timeout_is_bounded_by_the_retransmission_timeout() {
        let planned = |srtt, alone, rto| {
            let mut probe = probe();
            probe.arm(at(0), srtt, alone, at(rto));
            probe.at()
        };
        assert_eq!(planned(Some(ms(50)), false, 1000), at(100));
        assert_eq!(planned(Some(ms(50)), true, 1000), at(300));
        assert_eq!(planned(Some(ms(50)), true, 250), at(250));
        assert_eq!(planned(None, false, 3000), at(1000));
    }

    #[test]
    fn a_second_probe_needs_a_sample_after_the_first() {
        let is_allowed = |probe: &mut TailProbe| {
            probe.arm(at(0), Some(ms(50)), false, at(1000));
            probe.at() < Instant::FAR_FUTURE
        };
        let mut probe = TailProbe::new(true, ms(200));
        assert!(!is_allowed(&mut probe));
        probe.on_rtt_sample();
        assert!(is_allowed(&mut probe));
        assert!(!probe.wake(at(99), true) && probe.wake(at(100), true) && probe.take_due());
        probe.on_sent(5000, true);
        probe.on_rtt_sample();
        assert!(!is_allowed(&mut probe));
        probe.on_ack(5000, Some(5000), false);
        assert!(is_allowed(&mut probe));
    }

    #[test]
    fn an_acknowledgement_beyond_a_repeated_probe_shows_a_loss() {
        let sent = || {
            let mut probe = probe();
            probe.on_sent(5000, true);
            probe
        };
        assert_eq!(sent().on_ack(6000, None, false), Verdict::RepairedLoss);
        assert_eq!(sent().on_ack(6000, Some(5000), false), Verdict::NoLoss);
        assert_eq!(sent().on_ack(5000, None, true), Verdict::NoLoss);
        let mut new_data = probe();
        new_data.on_sent(6000, false);
        assert_eq!(new_data.on_ack(7000, None, false), Verdict::NoLoss);
    }
}
