//! Losses that do not depend on the rate: those of a radio, not of a full queue.
//!
//! BBR takes what is delivered for the path's bandwidth. Where a fifth or more of the packets is lost at any rate, what
//! each probe for more bandwidth delivers is less than the estimate, which decays round by round. The share of such
//! losses is measured while less than the bandwidth is sent, in the phase that drains the queue: a policer or a short
//! queue loses little then.

use skybraid_units::Rate;

use crate::congestion::model::times;

/// Segments that are acknowledged after a lost one before its loss is reported (RFC 4341 §5).
const REPORT_LAG: u64 = 3;
/// Segments that are remembered, and those that count as delivered before the first measurement.
const MEMORY: f64 = 128.0;
const PRIOR: f64 = 4.0;
/// Maximum share that is made up for.
const MAX_SHARE: f64 = 0.6;

/// Share of packets that are lost at any rate.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RandomLoss {
    /// Segments sent while draining, and those of them that were lost.
    sent: f64,
    lost: f64,
    /// Segments whose fate has been reported in the phase of draining, up to the lag.
    lag: u64,
}

impl RandomLoss {
    /// Records segments that were `acked` and `lost`; `draining` is true if the phase that drains the queue has just
    /// been acknowledged.
    pub(super) fn on_delivery(&mut self, draining: bool, acked: u64, lost: u64) {
        let counts = if draining { self.lag >= REPORT_LAG } else { self.lag > 0 };
        self.lag = if draining {
            (self.lag + acked + lost).min(REPORT_LAG)
        } else {
            self.lag.saturating_sub(acked + lost)
        };
        if !counts {
            return;
        }
        self.sent += (acked + lost) as f64;
        self.lost += lost as f64;
        if self.sent > MEMORY {
            self.sent /= 2.0;
            self.lost /= 2.0;
        }
    }

    /// Share of the packets that are lost at any rate.
    fn share(&self) -> f64 {
        (self.lost / (self.sent + PRIOR)).min(MAX_SHARE)
    }

    /// Rate at which packets must be sent for `delivered` to arrive.
    pub(super) fn make_up(&self, delivered: Rate) -> Rate {
        if self.lost > 0.0 { times(delivered, 1.0 / (1.0 - self.share())) } else { delivered }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// Packets of a phase that a path delivers at most.
    const ROOM: u64 = 40;

    /// Share after `cycles` of the phases with the pacing gains of BBR over a path that is full with [`ROOM`] packets
    /// in a phase and loses one of `random` besides. Fates are reported in the phase in which packets are sent, those
    /// of lost ones three packets later.
    fn share(cycles: u64, random: u64) -> f64 {
        let mut loss = RandomLoss::default();
        let (mut late, mut number) = (Vec::<bool>::new(), 0_u64);
        let delivered = ROOM as f64 * if random > 0 { 1.0 - 1.0 / random as f64 } else { 1.0 };
        for _ in 0..cycles {
            for (phase, gain) in super::super::CYCLE.into_iter().enumerate() {
                let sent = (delivered * gain / (1.0 - loss.share())) as u64;
                for place in 0..sent {
                    number += 1;
                    let is_lost = random > 0 && number.is_multiple_of(random) || place >= ROOM;
                    late.push(is_lost);
                    let is_reported = late.iter().nth_back(3).is_some_and(|lost| *lost);
                    loss.on_delivery(phase == 1, u64::from(!is_lost), u64::from(is_reported));
                }
            }
        }
        loss.share()
    }

    #[test]
    fn a_third_that_is_lost_at_any_rate_is_made_up_for() {
        let found = share(60, 3);
        assert!((0.28..0.38).contains(&found), "{found}");
        let rate = Rate::from_mbps(1.0);
        assert_eq!(RandomLoss::default().make_up(rate), rate);
    }

    #[test]
    fn a_policer_is_not_taken_for_a_lossy_path() {
        let found = share(200, 0);
        assert!(found < 0.05, "{found}");
    }
}
