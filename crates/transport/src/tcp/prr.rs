//! Proportional rate reduction: how fast the window shrinks in a recovery.
//!
//! Source: RFC 9937. Amounts are in bytes, in whole segments as in the RFC's figures.

/// Window reduction of one recovery.
#[derive(Clone, Copy, Debug)]
pub struct Reduction {
    segment: u64,
    /// Bytes not known to be delivered at the start of the recovery (`RecoverFS`).
    recover_fs: u64,
    /// Window at the end of the recovery (`ssthresh`).
    target: u64,
    delivered: u64,
    sent: u64,
}

impl Reduction {
    /// Creates the reduction of a recovery that starts with `recover_fs` undelivered bytes and ends
    /// with a window of `target`.
    pub const fn new(segment: u64, recover_fs: u64, target: u64) -> Self {
        let recover_fs = if recover_fs == 0 { 1 } else { recover_fs };
        Self { segment, recover_fs, target, delivered: 0, sent: 0 }
    }

    /// Records the transmission of data.
    pub const fn on_sent(&mut self, bytes: u64) {
        self.sent += bytes;
    }

    /// Processes an acknowledgement that delivered `newly` bytes and leaves `in_flight`. `safe` is
    /// true if it advanced and revealed no further loss. Returns the window.
    pub fn on_ack(&mut self, newly: u64, in_flight: u64, safe: bool) -> u64 {
        if newly > 0 {
            self.delivered += newly;
        }
        let share = u128::from(self.delivered) * u128::from(self.target);
        let proportional =
            u64::try_from(share.div_ceil(u128::from(self.recover_fs))).unwrap_or(u64::MAX);
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
    // algorithm reference, §1.6 vector A. At acknowledgement 19 the figure sends, while the text's
    // strict comparison waits for acknowledgement 20; this follows the text.
    #[test]
    fn after_one_loss_every_other_acknowledgement_sends() {
        let mut prr = Reduction::new(1, 20, 10);
        // Limited transmit has sent two segments; segments 1 and 2 have arrived, 0 is lost.
        let mut in_flight = 22 - 3 - 1;
        let (mut windows, mut sends) = (Vec::new(), Vec::new());
        for _ack in 3..=21 {
            let window = prr.on_ack(1, in_flight, false);
            let quota = window - in_flight;
            windows.push(window);
            sends.push(quota);
            prr.on_sent(quota);
            in_flight = in_flight + quota - 1;
        }
        assert_eq!(windows[..6], [19, 18, 18, 17, 17, 16]);
        assert_eq!(sends[..6], [1, 0, 1, 0, 1, 0]);
        assert_eq!(sends[14..], [1, 0, 0, 1, 1]);
    }

    // Source: RFC 9937 §8, second figure; the algorithm reference, §1.6 vector B: the first 15 of
    // 20 are lost and the window falls to what the acknowledgements show the network to deliver.
    #[test]
    fn after_many_losses_each_acknowledgement_sends_one_segment() {
        let mut prr = Reduction::new(1, 20, 10);
        let mut in_flight = 22 - 3 - 15;
        for _ack in 17..=19 {
            let window = prr.on_ack(1, in_flight, false);
            assert_eq!((in_flight, window), (4, 5));
            prr.on_sent(window - in_flight);
            in_flight = window - 1;
        }
    }

    // Source: the hand vectors of the algorithm reference, §1.6.
    #[test]
    fn the_window_matches_the_hand_vectors() {
        let prr = Reduction { segment: 1, recover_fs: 20, target: 10, delivered: 2, sent: 1 };
        assert_eq!({ prr }.on_ack(1, 15, false) - 15, 1);
        assert_eq!({ prr }.on_ack(1, 7, true) - 7, 3);
        assert_eq!({ prr }.on_ack(1, 7, false) - 7, 2);
    }
}
