//! Tail loss probes: a segment that avoids the timeout after the loss of the last segments.
//!
//! Source: RFC 8985 §7.

use skybraid_units::Duration;

/// Probe timeout before the first round-trip time sample (RFC 8985 §7.2).
const INITIAL_TIMEOUT: Duration = Duration::from_secs(1);

/// Tail loss probe of one subflow.
#[derive(Clone, Copy, Debug, Default)]
pub struct TailProbe {
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
    /// Returns the probe timeout (RFC 8985 §7.2), bounded by the time left until the retransmission
    /// timeout. `alone` is true if a single segment is in flight, whose acknowledgement the peer
    /// may delay by `ack_delay`.
    pub fn timeout(
        srtt: Option<Duration>,
        alone: bool,
        ack_delay: Duration,
        rto_left: Duration,
    ) -> Duration {
        let wait = match srtt {
            Some(srtt) => srtt * 2 + if alone { ack_delay } else { Duration::ZERO },
            None => INITIAL_TIMEOUT,
        };
        wait.min(rto_left)
    }

    /// Records that a round-trip time sample was taken.
    pub fn on_rtt_sample(&mut self) {
        self.sampled = true;
    }

    /// True if a probe may be sent: none is in progress, and a sample was taken since the last one.
    pub const fn is_allowed(&self) -> bool {
        self.end.is_none() && self.sampled
    }

    /// Records a probe sent when all data below `next` has been sent. `repeats` is true if the
    /// probe repeats data.
    pub fn on_sent(&mut self, next: u64, repeats: bool) {
        *self = Self { end: Some(next), repeats, sampled: false };
    }

    /// Ends the episode: a timeout or a recovery has taken over.
    pub fn abandon(&mut self) {
        self.end = None;
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

    // Source: RFC 8985 §7.2; the vectors of the algorithm reference, §1.5.
    #[test]
    fn the_probe_timeout_is_bounded_by_the_retransmission_timeout() {
        let timeout = |alone, left| TailProbe::timeout(Some(ms(50)), alone, ms(200), ms(left));
        assert_eq!(timeout(false, 1000), ms(100));
        assert_eq!(timeout(true, 1000), ms(300));
        assert_eq!(timeout(true, 250), ms(250));
        assert_eq!(TailProbe::timeout(None, false, ms(40), ms(3000)), ms(1000));
    }

    #[test]
    fn a_second_probe_needs_a_sample_after_the_first() {
        let mut probe = TailProbe::default();
        assert!(!probe.is_allowed());
        probe.on_rtt_sample();
        assert!(probe.is_allowed());
        probe.on_sent(5000, true);
        probe.on_rtt_sample();
        assert!(!probe.is_allowed());
        probe.on_ack(5000, Some(5000), false);
        assert!(probe.is_allowed());
    }

    #[test]
    fn an_acknowledgement_beyond_a_repeated_probe_shows_a_loss() {
        let sent = || {
            let mut probe = TailProbe::default();
            probe.on_sent(5000, true);
            probe
        };
        assert_eq!(sent().on_ack(6000, None, false), Verdict::RepairedLoss);
        assert_eq!(sent().on_ack(6000, Some(5000), false), Verdict::NoLoss);
        assert_eq!(sent().on_ack(5000, None, true), Verdict::NoLoss);
        let mut new_data = TailProbe::default();
        new_data.on_sent(6000, false);
        assert_eq!(new_data.on_ack(7000, None, false), Verdict::NoLoss);
    }
}
