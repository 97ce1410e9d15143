//! Tail loss probes: one segment sent in time may spare the timeout that a lost tail would cost.
//!
//! Source: RFC 8985 §7.

use skybraid_units::Duration;

/// Probe timeout before the first round-trip time sample (RFC 8985 §7.2).
const INITIAL_TIMEOUT: Duration = Duration::from_secs(1);

/// The probe of one subflow.
#[derive(Clone, Copy, Debug, Default)]
pub struct TailProbe {
    /// Everything below this was sent when the probe was, until the probe's episode ends.
    end: Option<u64>,
    /// The probe carried data that had been sent before.
    repeats: bool,
    /// A round-trip time sample was taken since the last probe.
    sampled: bool,
}

/// What an acknowledgement says of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing, or that nothing had been lost.
    NoLoss,
    /// The probe repaired a loss: one congestion response is due (RFC 8985 §7.4.2).
    RepairedLoss,
}

impl TailProbe {
    /// How long to wait for an acknowledgement before probing (RFC 8985 §7.2), bounded by the time left
    /// until the retransmission timeout. `alone` says that a single segment is in flight, whose
    /// acknowledgement the peer may delay by `ack_delay`.
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

    /// A round-trip time was measured.
    pub fn sampled(&mut self) {
        self.sampled = true;
    }

    /// A probe may be sent: none is under way, and the network has answered since the last one.
    pub const fn is_allowed(&self) -> bool {
        self.end.is_none() && self.sampled
    }

    /// A probe leaves when everything below `next` has been sent; `repeats` says that its data had been
    /// sent before.
    pub fn sent(&mut self, next: u64, repeats: bool) {
        *self = Self { end: Some(next), repeats, sampled: false };
    }

    /// The timeout came after all, or recovery took over: the episode is over.
    pub fn abandon(&mut self) {
        self.end = None;
    }

    /// An acknowledgement arrived. `duplicate` is the end of data that the peer had before, if it
    /// reports any; `bare_duplicate` says that it is a duplicate acknowledgement without SACK.
    pub fn acknowledged(
        &mut self,
        ack: u64,
        duplicate: Option<u64>,
        bare_duplicate: bool,
    ) -> Verdict {
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
    fn the_probe_waits_two_round_trips_and_for_a_delayed_acknowledgement_but_not_past_the_timeout()
    {
        let timeout = |alone, left| TailProbe::timeout(Some(ms(50)), alone, ms(200), ms(left));
        assert_eq!(timeout(false, 1000), ms(100));
        assert_eq!(timeout(true, 1000), ms(300));
        assert_eq!(timeout(true, 250), ms(250));
        assert_eq!(TailProbe::timeout(None, false, ms(40), ms(3000)), ms(1000));
    }

    #[test]
    fn a_second_probe_needs_an_answer_to_the_first() {
        let mut probe = TailProbe::default();
        assert!(!probe.is_allowed());
        probe.sampled();
        assert!(probe.is_allowed());
        probe.sent(5000, true);
        probe.sampled();
        assert!(!probe.is_allowed());
        probe.acknowledged(5000, Some(5000), false);
        assert!(probe.is_allowed());
    }

    #[test]
    fn an_acknowledgement_beyond_a_repeated_probe_without_a_duplicate_report_means_a_repaired_loss()
    {
        let sent = || {
            let mut probe = TailProbe::default();
            probe.sent(5000, true);
            probe
        };
        assert_eq!(sent().acknowledged(6000, None, false), Verdict::RepairedLoss);
        assert_eq!(sent().acknowledged(6000, Some(5000), false), Verdict::NoLoss);
        assert_eq!(sent().acknowledged(5000, None, true), Verdict::NoLoss);
        let mut new_data = TailProbe::default();
        new_data.sent(6000, false);
        assert_eq!(new_data.acknowledged(7000, None, false), Verdict::NoLoss);
    }
}
