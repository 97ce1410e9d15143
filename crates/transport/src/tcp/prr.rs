//! Proportional rate reduction: how fast the window shrinks in a recovery.
//!
//! Source: RFC 9937. Amounts are whole segments, as in its figures, told in bytes.

/// The reduction of one recovery.
#[derive(Clone, Copy, Debug)]
pub struct Reduction {
    segment: u64,
    /// Bytes not known to be delivered when the recovery began (`RecoverFS`).
    flight: u64,
    /// Where the window is to arrive (`ssthresh`).
    target: u64,
    delivered: u64,
    sent: u64,
}

impl Reduction {
    /// A recovery begins with `flight` bytes not known to be delivered and is to end with a window of
    /// `target`.
    pub const fn new(segment: u64, flight: u64, target: u64) -> Self {
        let flight = if flight == 0 { 1 } else { flight };
        Self { segment, flight, target, delivered: 0, sent: 0 }
    }

    /// Data leaves.
    pub const fn sent(&mut self, bytes: u64) {
        self.sent += bytes;
    }

    /// An acknowledgement delivered `newly` bytes and leaves `in_flight`. `safe` says that it advanced
    /// and showed no further loss. Returns the window.
    pub fn acknowledged(&mut self, newly: u64, in_flight: u64, safe: bool) -> u64 {
        if newly > 0 {
            self.delivered += newly;
        }
        let share = u128::from(self.delivered) * u128::from(self.target);
        let proportional =
            u64::try_from(share.div_ceil(u128::from(self.flight))).unwrap_or(u64::MAX);
        let proportional = proportional.div_ceil(self.segment) * self.segment;
        let mut quota = if in_flight > self.target {
            proportional.saturating_sub(self.sent)
        } else {
            let catch_up = self.delivered.saturating_sub(self.sent).max(newly);
            let growth = if safe { self.segment } else { 0 };
            (self.target - in_flight).min(catch_up + growth)
        };
        if self.sent == 0 {
            quota = quota.max(self.segment);
        }
        in_flight + quota
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    // Source: RFC 9937 §8, first figure: 20 segments in flight, segment 0 lost, ssthresh 10; the
    // algorithm reference, §1.6 vector A. At acknowledgement 19 the figure sends and the text's strict
    // comparison waits for acknowledgement 20; this follows the text.
    #[test]
    fn one_loss_in_twenty_sends_a_segment_on_every_other_acknowledgement() {
        let mut prr = Reduction::new(1, 20, 10);
        // Two segments left by limited transmit; segments 1 and 2 have arrived, number 0 is lost.
        let mut in_flight = 22 - 3 - 1;
        let (mut windows, mut sends) = (Vec::new(), Vec::new());
        for _ack in 3..=21 {
            let window = prr.acknowledged(1, in_flight, false);
            let quota = window - in_flight;
            windows.push(window);
            sends.push(quota);
            prr.sent(quota);
            in_flight = in_flight + quota - 1;
        }
        assert_eq!(windows[..6], [19, 18, 18, 17, 17, 16]);
        assert_eq!(sends[..6], [1, 0, 1, 0, 1, 0]);
        assert_eq!(sends[14..], [1, 0, 0, 1, 1]);
    }

    // Source: RFC 9937 §8, second figure; the algorithm reference, §1.6 vector B: the first 15 of 20 are
    // lost and the window falls to what the acknowledgements show the network to deliver.
    #[test]
    fn fifteen_losses_in_twenty_repair_one_segment_per_acknowledgement() {
        let mut prr = Reduction::new(1, 20, 10);
        let mut in_flight = 22 - 3 - 15;
        for _ack in 17..=19 {
            let window = prr.acknowledged(1, in_flight, false);
            assert_eq!((in_flight, window), (4, 5));
            prr.sent(window - in_flight);
            in_flight = window - 1;
        }
    }

    // Source: the hand vectors of the algorithm reference, §1.6.
    #[test]
    fn the_hand_vectors_come_out() {
        let prr = Reduction { segment: 1, flight: 20, target: 10, delivered: 2, sent: 1 };
        assert_eq!({ prr }.acknowledged(1, 15, false) - 15, 1);
        assert_eq!({ prr }.acknowledged(1, 7, true) - 7, 3);
        assert_eq!({ prr }.acknowledged(1, 7, false) - 7, 2);
    }
}
