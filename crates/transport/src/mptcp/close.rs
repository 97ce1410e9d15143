//! Closing of a connection.
//!
//! Source: RFC 8684 §3.3.3 (DATA_FIN takes one data sequence number); RFC 9293 §3.6. A FIN is sent
//! in a segment of its own after the last byte; TIME-WAIT is not modelled.

use skybraid_units::Instant;

use super::receive::ReceiveSide;

/// State of the closing handshake.
#[derive(Debug)]
pub struct Closing {
    requested: bool,
    due: bool,
    repeat_at: Instant,
    acknowledged: bool,
    /// Data sequence number of the peer's FIN.
    peer_fin: Option<u64>,
    peer_done: bool,
}

impl Default for Closing {
    fn default() -> Self {
        Self {
            requested: false,
            due: false,
            repeat_at: Instant::FAR_FUTURE,
            acknowledged: false,
            peer_fin: None,
            peer_done: false,
        }
    }
}

impl Closing {
    /// Closes the sending side.
    pub const fn request(&mut self) {
        if !self.requested {
            self.requested = true;
            self.due = true;
        }
    }

    /// True once the sending side is closed.
    #[inline]
    pub const fn is_requested(&self) -> bool {
        self.requested
    }

    /// True if a FIN must be sent after the last byte.
    #[inline]
    pub const fn is_due(&self) -> bool {
        self.due
    }

    /// Records that a FIN was sent, which is repeated at `repeat_at` unless it is acknowledged.
    pub const fn on_sent(&mut self, repeat_at: Instant) {
        self.due = false;
        self.repeat_at = repeat_at;
    }

    /// True once the peer has closed and all its data has arrived.
    pub const fn peer_has_closed(&self) -> bool {
        self.peer_done
    }

    /// True once both sides have closed and each knows that the other has.
    pub const fn is_closed(&self) -> bool {
        self.acknowledged && self.peer_done
    }

    /// Processes a data acknowledgement: one beyond the last byte written covers the FIN.
    #[inline]
    pub const fn on_data_ack(&mut self, data_una: u64, write_end: u64) {
        if self.requested && data_una > write_end {
            self.acknowledged = true;
            self.due = false;
            self.repeat_at = Instant::FAR_FUTURE;
        }
    }

    /// Records the peer's FIN at `dsn`.
    pub const fn on_fin(&mut self, dsn: u64) {
        self.peer_fin = Some(dsn);
    }

    /// Takes the peer's FIN once all data before it has arrived. Returns true if it must be
    /// acknowledged.
    #[inline]
    pub fn take_fin(&mut self, receive: &mut ReceiveSide) -> bool {
        let Some(fin) = self.peer_fin.filter(|fin| *fin <= receive.next()) else { return false };
        if !self.peer_done && fin == receive.next() {
            receive.take_fin();
            self.peer_done = true;
        }
        self.peer_fin = None;
        true
    }

    /// Time at which an unacknowledged FIN is repeated.
    #[inline]
    pub const fn next_wakeup(&self) -> Instant {
        self.repeat_at
    }

    /// Repeats the FIN if that is due.
    #[inline]
    pub fn wake(&mut self, now: Instant) {
        if self.repeat_at <= now {
            self.due = true;
            self.repeat_at = Instant::FAR_FUTURE;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Source: RFC 8684 §3.3.3: DATA_FIN takes one data sequence number after the last byte.
    #[test]
    fn both_fins_are_acknowledged_beyond_the_last_byte() {
        let at = Instant::from_millis;
        let (mut closing, mut receive) = (Closing::default(), ReceiveSide::new(1000));
        closing.request();
        assert!(closing.is_due());
        closing.on_sent(at(1000));
        closing.on_data_ack(500, 500);
        closing.wake(at(1000));
        assert!(closing.is_due(), "only the data was acknowledged");
        closing.on_data_ack(501, 500);
        assert!(!closing.is_due() && !closing.is_closed());
        closing.on_fin(0);
        assert!(closing.take_fin(&mut receive) && closing.is_closed());
        assert_eq!(receive.next(), 1);
        // A repeated FIN is acknowledged again, but takes no further number.
        closing.on_fin(0);
        assert!(closing.take_fin(&mut receive));
        assert_eq!(receive.next(), 1);
    }
}
