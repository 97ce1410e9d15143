//! Receive side of a subflow: received packets and due acknowledgements.
//!
//! Source: RFC 4340 §11.3 (Ack Ratio), RFC 4341 §6.

use skybraid_units::{Duration, Instant};

use super::ack_vector::{AckVector, Place};

/// Receive side of a subflow.
#[derive(Debug)]
pub struct Receiver {
    vector: AckVector,
    /// Arrival time of the newest packet.
    arrived_at: Instant,
    /// Data packets per acknowledgement, as requested by the peer.
    ratio: u32,
    delay: Duration,
    unacknowledged: u32,
    ack_at: Instant,
    ack_now: bool,
    confirm: bool,
}

impl Receiver {
    /// Creates a receiver that acknowledges every `ratio` data packets, and within `delay`.
    pub fn new(ratio: u32, delay: Duration) -> Self {
        Self {
            vector: AckVector::EMPTY,
            arrived_at: Instant::ZERO,
            ratio: ratio.max(1),
            delay,
            unacknowledged: 0,
            ack_at: Instant::FAR_FUTURE,
            ack_now: false,
            confirm: false,
        }
    }

    /// Ack vector of the received packets.
    pub const fn vector(&self) -> AckVector {
        self.vector
    }

    /// Time since the arrival of the newest packet.
    pub fn elapsed(&self, now: Instant) -> Duration {
        now.since(self.arrived_at)
    }

    /// Records the arrival of a packet.
    pub fn receive(&mut self, now: Instant, sequence: u64, has_data: bool) -> Place {
        let place = self.vector.insert(sequence);
        if matches!(place, Place::Ahead(_)) {
            self.arrived_at = now;
        }
        if has_data {
            self.unacknowledged += 1;
            if self.unacknowledged >= self.ratio {
                self.ack_now = true;
            } else {
                self.ack_at = self.ack_at.min(now + self.delay);
            }
        }
        place
    }

    /// Changes the ratio at the peer's request.
    pub fn set_ratio(&mut self, ratio: u8) {
        self.ratio = u32::from(ratio.max(1));
        self.confirm = true;
    }

    /// Ratio, and whether the peer waits for its confirmation.
    pub const fn ratio(&self) -> (u32, bool) {
        (self.ratio, self.confirm)
    }

    /// Requests an immediate acknowledgement.
    pub const fn acknowledge_now(&mut self) {
        self.ack_now = true;
    }

    /// True if an acknowledgement must be sent at once.
    pub const fn must_acknowledge(&self) -> bool {
        self.ack_now
    }

    /// True if received data is not acknowledged yet.
    pub const fn has_unacknowledged(&self) -> bool {
        self.unacknowledged > 0
    }

    /// Records an outgoing acknowledgement. `alone` is true for a pure one, which also confirms a
    /// ratio.
    pub const fn on_ack_sent(&mut self, alone: bool) {
        self.unacknowledged = 0;
        self.ack_now = false;
        self.ack_at = Instant::FAR_FUTURE;
        self.confirm &= !alone;
    }

    /// Instant at which the delayed acknowledgement is due.
    pub const fn next_wakeup(&self) -> Instant {
        self.ack_at
    }

    /// Requests the delayed acknowledgement if its time has come.
    pub fn wake(&mut self, now: Instant) {
        if self.ack_at <= now {
            self.ack_now = true;
            self.ack_at = Instant::FAR_FUTURE;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_and_the_delay_bound_an_acknowledgement() {
        let mut receiver = Receiver::new(2, Duration::from_millis(40));
        let now = Instant::from_millis(5);
        receiver.receive(now, 1, true);
        assert!(!receiver.must_acknowledge());
        assert_eq!(receiver.next_wakeup(), Instant::from_millis(45));
        receiver.receive(now, 2, true);
        assert!(receiver.must_acknowledge());
        receiver.set_ratio(4);
        receiver.on_ack_sent(true);
        for sequence in 3..6 {
            receiver.receive(now, sequence, true);
            assert!(!receiver.must_acknowledge());
        }
        receiver.receive(now, 6, false);
        assert!(!receiver.must_acknowledge(), "packets without data are not acknowledged");
        receiver.wake(Instant::from_millis(45));
        assert!(receiver.must_acknowledge());
    }
}
