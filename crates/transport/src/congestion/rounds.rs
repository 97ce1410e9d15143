//! Round trips, counted by what is delivered.

use super::Acked;

/// Tells when a round trip is over: when data has been acknowledged that was sent after the round
/// began (`windowEnd` of RFC 9406 §4.2, counted in delivered bytes, so that holes do not stop it).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rounds {
    /// [`Acked::delivered`] once all is acknowledged that was in flight when the round began.
    end: u64,
}

impl Rounds {
    /// This acknowledgement ends a round, and the next one begins. True for the first of all.
    pub(super) fn end_with(&mut self, acked: &Acked) -> bool {
        let over = acked.delivered.get() > self.end;
        if over {
            self.begin(acked);
        }
        over
    }

    /// A round begins with this acknowledgement.
    pub(super) fn begin(&mut self, acked: &Acked) {
        self.end = acked.delivered.get() + acked.in_flight_after.get();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skybraid_units::Bytes;

    #[test]
    fn a_round_is_over_when_data_sent_after_its_beginning_is_acknowledged() {
        let mut rounds = Rounds::default();
        let mut ends = |delivered, in_flight_after| {
            rounds.end_with(&Acked {
                delivered: Bytes::new(delivered),
                in_flight_after: Bytes::new(in_flight_after),
                ..Acked::default()
            })
        };
        assert!(ends(1, 9));
        assert!(!ends(9, 9));
        assert!(!ends(10, 10));
        assert!(ends(11, 10));
        assert!(!ends(21, 10));
    }
}
