//! Spurious recoveries: data was only delayed, not lost.
//!
//! Source: RFC 3522 (Eifel detection) and RFC 4015 (response). The original of the oldest segment
//! has arrived if the first acknowledgement that advances in a recovery echoes a timestamp older
//! than that of the retransmission.

use crate::congestion::ControlState;

/// State needed to undo a congestion response.
#[derive(Clone, Copy, Debug)]
pub struct Undo {
    enabled: bool,
    before: Option<ControlState>,
}

impl Undo {
    /// Creates the state; without `enabled`, nothing is ever undone.
    pub const fn new(enabled: bool) -> Self {
        Self { enabled, before: None }
    }

    /// Records the start of a recovery and the congestion control's state before it.
    pub const fn on_recovery_started(&mut self, before: ControlState) {
        self.before = Some(before);
    }

    /// Records an acknowledgement that advances. `original_arrived` is true if the oldest segment
    /// was retransmitted once and the acknowledgement is for the original. Returns the state to
    /// restore if the recovery was spurious; only the first such acknowledgement of a recovery can
    /// show that.
    pub fn on_advanced(&mut self, original_arrived: bool) -> Option<ControlState> {
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
        let before = ControlState { window: Bytes::new(20_000), threshold: Bytes::new(90_000) };
        for (enabled, original_arrived) in [(true, true), (true, false), (false, true)] {
            let mut undo = Undo::new(enabled);
            undo.on_recovery_started(before);
            assert_eq!(undo.on_advanced(original_arrived).is_some(), enabled && original_arrived);
            assert!(undo.on_advanced(true).is_none());
        }
    }
}
