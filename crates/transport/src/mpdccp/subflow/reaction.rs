//! Reactions of a subflow to losses: one for each window of data.
//!
//! Source: RFC 4341 §5.

/// Last reaction to a loss.
#[derive(Debug, Default)]
pub struct Reaction {
    /// Packets from this number on were sent after the reaction.
    next: u64,
    recovering: bool,
}

impl Reaction {
    /// True until a packet sent after the reaction is known to have arrived or to be lost.
    pub const fn is_recovering(&self) -> bool {
        self.recovering
    }

    /// Ends the recovery if the newest packet whose fate is known was sent after the reaction. Returns true if so.
    pub const fn end(&mut self, newest_known: u64) -> bool {
        let ends = self.recovering && newest_known >= self.next;
        self.recovering &= !ends;
        ends
    }

    /// True if the loss of packet `lost` requires a reaction.
    pub const fn is_due(&self, lost: u64) -> bool {
        lost >= self.next
    }

    /// Records a reaction; packet `next` is sent after it.
    pub const fn begin(&mut self, next: u64) {
        self.next = next;
        self.recovering = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_of_data_requires_one_reaction() {
        let mut reaction = Reaction::default();
        assert!(reaction.is_due(3));
        reaction.begin(10);
        assert!(!reaction.is_due(9) && reaction.is_due(10));
        assert!(!reaction.end(9) && reaction.is_recovering());
        assert!(reaction.end(10) && !reaction.is_recovering());
        assert!(!reaction.end(11), "ended before");
    }
}
