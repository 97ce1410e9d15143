//! Recoveries that were not needed: nothing had been lost, only delayed.
//!
//! Source: RFC 3522 (Eifel detection) and RFC 4015 (response). The first acknowledgement that advances
//! in a recovery echoes an older timestamp than that of the retransmission of the oldest segment: the
//! original arrived.

use crate::congestion::Before;

/// What is needed to take a reaction back.
#[derive(Clone, Copy, Debug)]
pub struct Undo {
    enabled: bool,
    before: Option<Before>,
}

impl Undo {
    /// Without `enabled` nothing is ever taken back.
    pub const fn new(enabled: bool) -> Self {
        Self { enabled, before: None }
    }

    /// A recovery begins; `before` is how congestion control stood.
    pub const fn begin(&mut self, before: Before) {
        self.before = Some(before);
    }

    /// An acknowledgement advanced; `original_arrived` says that the oldest segment had been sent again,
    /// once, and that the acknowledgement answers the original. Returns what to go back to if it shows
    /// that nothing had been lost; only the first one of a recovery can.
    pub fn advanced(&mut self, original_arrived: bool) -> Option<Before> {
        self.before.take().filter(|_| original_arrived && self.enabled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skybraid_units::Bytes;

    // Source: RFC 3522 §3.2.
    #[test]
    fn the_first_acknowledgement_of_a_recovery_decides() {
        let before = Before { window: Bytes::new(20_000), threshold: Bytes::new(90_000) };
        for (enabled, original_arrived) in [(true, true), (true, false), (false, true)] {
            let mut undo = Undo::new(enabled);
            undo.begin(before);
            assert_eq!(undo.advanced(original_arrived).is_some(), enabled && original_arrived);
            assert!(undo.advanced(true).is_none());
        }
    }
}
