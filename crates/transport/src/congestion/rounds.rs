//! Round trips, counted by delivered data.

use super::Acked;

/// Round detector: a round ends when data sent after its start is acknowledged (`windowEnd` of RFC
/// 9406 §4.2, counted in delivered bytes, so that holes do not stop it).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rounds {
    /// [`Acked::delivered`] once all data in flight at the start of the round is acknowledged.
    end: u64,
}

impl Rounds {
    /// Returns true if this acknowledgement ends a round, and starts the next one. True for the
    /// very first.
    pub(super) fn end_with(&mut self, acked: &Acked) -> bool {
        let over = acked.delivered.get() > self.end;
        if over {
            self.begin(acked);
        }
        over
    }

    /// Starts a round with this acknowledgement.
    pub(super) fn begin(&mut self, acked: &Acked) {
        self.end = acked.delivered.get() + acked.in_flight_after.get();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skybraid_units::Bytes;

    #[test]
    fn a_round_ends_when_data_sent_after_its_start_is_acknowledged() {
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
