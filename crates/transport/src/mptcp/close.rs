//! Closing of a connection.
//!
//! Source: RFC 8684 §3.3.3 (DATA_FIN takes one data sequence number); RFC 9293 §3.6. A FIN is sent
//! in a segment of its own after the last byte; TIME-WAIT is not modelled.

use skybraid_units::Instant;

use super::connection::Connection;
use super::reassembly::Reassembly;
use crate::endpoint::Transmit;
use crate::segment::Flags;

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
    pub(super) const fn is_requested(&self) -> bool {
        self.requested
    }

    pub(super) const fn on_data_ack(&mut self, data_una: u64, write_end: u64) {
        if self.requested && data_una > write_end {
            self.acknowledged = true;
            self.due = false;
            self.repeat_at = Instant::FAR_FUTURE;
        }
    }

    pub(super) const fn on_fin(&mut self, dsn: u64) {
        self.peer_fin = Some(dsn);
    }

    /// Takes the peer's FIN once all data before it has arrived. Returns true if it must be
    /// acknowledged.
    pub(super) fn take_fin(&mut self, reassembly: &mut Reassembly) -> bool {
        let Some(fin) = self.peer_fin.filter(|fin| *fin <= reassembly.next()) else { return false };
        if !self.peer_done && fin == reassembly.next() {
            reassembly.take_fin();
            self.peer_done = true;
        }
        self.peer_fin = None;
        true
    }

    pub(super) const fn next_wakeup(&self) -> Instant {
        self.repeat_at
    }

    pub(super) fn wake(&mut self, now: Instant) {
        if self.repeat_at <= now {
            self.due = true;
            self.repeat_at = Instant::FAR_FUTURE;
        }
    }
}

impl Connection {
    /// Closes the sending side: the application writes no more; written data is still delivered.
    pub fn close(&mut self) {
        if !self.closing.requested {
            self.closing.requested = true;
            self.closing.due = true;
        }
    }

    /// True once the peer has closed and all its data has arrived.
    pub const fn peer_has_closed(&self) -> bool {
        self.closing.peer_done
    }

    /// True once both sides have closed and each knows that the other has.
    pub const fn is_closed(&self) -> bool {
        self.closing.acknowledged && self.closing.peer_done
    }

    pub(super) fn poll_fin(&mut self, now: Instant) -> Option<Transmit> {
        if !self.closing.due || self.next_dsn < self.write_end || !self.reinject.is_empty() {
            return None;
        }
        let dsn = self.write_end;
        let transmit = self.signal(now, Flags::FIN, |tcp| tcp.dsn = dsn)?;
        self.closing.due = false;
        self.closing.repeat_at = now + self.probe_interval();
        Some(transmit)
    }
}
