//! Loss recovery of a subflow: its phase, the window in it, and what shows that it was spurious.
//!
//! Source: RFC 6582 and RFC 6675 (phases), RFC 9937 (the window), RFC 4015 (undoing).

use alloc::boxed::Box;

use crate::congestion::ControlState;
use crate::tcp::prr::Reduction;
use crate::tcp::spurious::Undo;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    /// Fast recovery until this sequence number is acknowledged.
    Fast(u64),
    /// Recovery from a timeout until this sequence number is acknowledged.
    Timeout(u64),
}

/// Loss recovery of one subflow.
#[derive(Debug)]
pub struct Recovery {
    phase: Phase,
    /// The first retransmission of a recovery ignores the window (RFC 6675 §5 step 4.3).
    first_retransmission: bool,
    /// True if a spurious recovery is undone.
    undoes: bool,
    /// There since the first recovery.
    response: Option<Box<Response>>,
}

/// Reduction of the window in a recovery, and what undoes it.
#[derive(Debug)]
struct Response {
    reduction: Option<Reduction>,
    undo: Undo,
}

impl Recovery {
    /// Creates the state outside a recovery. Without `undo`, no recovery counts as spurious.
    pub const fn new(undo: bool) -> Self {
        Self { phase: Phase::Open, first_retransmission: false, undoes: undo, response: None }
    }

    fn response(&mut self) -> &mut Response {
        let undo = Undo::new(self.undoes);
        self.response.get_or_insert_with(|| Box::new(Response { reduction: None, undo }))
    }

    /// True outside a recovery.
    #[inline]
    pub const fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open)
    }

    /// True in fast recovery.
    #[inline]
    pub const fn is_fast(&self) -> bool {
        matches!(self.phase, Phase::Fast(_))
    }

    /// Begins fast recovery until `point` is acknowledged. `before` is the control's state, to be restored if the
    /// recovery is spurious.
    #[cold]
    pub fn begin(&mut self, point: u64, before: ControlState) {
        self.phase = Phase::Fast(point);
        self.first_retransmission = true;
        self.response().undo.on_recovery_started(before);
    }

    /// Leads the window of this recovery by proportional rate reduction.
    #[cold]
    pub fn reduce(&mut self, reduction: Reduction) {
        self.response().reduction = Some(reduction);
    }

    /// Begins the recovery from a timeout until `point` is acknowledged. `before` is the control's state before the
    /// first of several timeouts.
    #[cold]
    pub fn on_timeout(&mut self, point: u64, before: Option<ControlState>) {
        self.phase = Phase::Timeout(point);
        self.first_retransmission = true;
        let response = self.response();
        response.reduction = None;
        if let Some(before) = before {
            response.undo.on_recovery_started(before);
        }
    }

    /// True if data up to `una` ends the recovery.
    #[inline]
    pub const fn is_complete(&self, una: u64) -> bool {
        match self.phase {
            Phase::Fast(point) | Phase::Timeout(point) => una >= point,
            Phase::Open => false,
        }
    }

    /// Ends the recovery.
    #[cold]
    pub fn end(&mut self) {
        self.phase = Phase::Open;
        if let Some(response) = &mut self.response {
            response.reduction = None;
        }
    }

    /// Records an acknowledgement that advances. Returns the state to restore if the recovery was spurious.
    #[inline]
    pub fn on_advanced(&mut self, original_arrived: bool) -> Option<ControlState> {
        let before = self.response.as_mut()?.undo.on_advanced(original_arrived)?;
        (!self.is_open()).then_some(before)
    }

    /// True if the next retransmission ignores the window.
    #[inline]
    pub const fn ignores_window(&self) -> bool {
        self.first_retransmission
    }

    /// Records the retransmission of a segment.
    #[inline]
    pub const fn on_retransmitted(&mut self) {
        self.first_retransmission = false;
    }

    /// Records the transmission of data, new or not.
    #[inline]
    pub fn on_sent(&mut self, bytes: u32) {
        if let Some(response) = &mut self.response
            && let Some(reduction) = &mut response.reduction
        {
            reduction.on_sent(u64::from(bytes));
        }
    }

    /// Returns the window after an acknowledgement, if proportional rate reduction sets it.
    #[inline]
    pub fn window(&mut self, delivered: u64, in_flight: u64, safe: bool) -> Option<u64> {
        let reduction = self.response.as_mut()?.reduction.as_mut()?;
        Some(reduction.on_ack(delivered, in_flight, safe))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skybraid_units::Bytes;

    const BEFORE: ControlState =
        ControlState { window: Bytes::new(20_000), threshold: Bytes::new(90_000) };

    // Source: RFC 6582 §3.2: recovery ends when all data outstanding at its start is acknowledged.
    #[test]
    fn a_recovery_lasts_until_its_point_is_acknowledged() {
        let mut recovery = Recovery::new(true);
        assert!(recovery.is_open() && !recovery.is_complete(u64::MAX));
        recovery.begin(5000, BEFORE);
        recovery.reduce(Reduction::new(1000, 5000, 2000));
        assert!(recovery.is_fast() && recovery.ignores_window());
        recovery.on_retransmitted();
        assert!(!recovery.ignores_window() && !recovery.is_complete(4999));
        assert!(recovery.window(1000, 3000, false).is_some());
        recovery.on_timeout(6000, None);
        assert!(!recovery.is_fast() && recovery.ignores_window());
        assert_eq!(recovery.window(1000, 3000, false), None, "slow start");
        assert!(!recovery.is_complete(5999) && recovery.is_complete(6000));
        recovery.end();
        assert!(recovery.is_open());
    }

    // Source: RFC 4015: the state before the first of several timeouts is restored.
    #[test]
    fn the_state_before_the_first_timeout_is_restored() {
        let mut recovery = Recovery::new(true);
        recovery.on_timeout(5000, Some(BEFORE));
        recovery.on_timeout(5000, None);
        assert_eq!(recovery.on_advanced(true).map(|state| state.window), Some(BEFORE.window));
        recovery.begin(5000, BEFORE);
        recovery.end();
        assert!(recovery.on_advanced(true).is_none(), "the recovery is over");
    }
}
