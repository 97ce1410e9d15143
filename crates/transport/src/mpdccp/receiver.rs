//! The receiving half of a subflow: what has arrived, and when an acknowledgement is due.
//!
//! Source: RFC 4340 §11.3 (Ack Ratio), RFC 4341 §6.

use skybraid_units::{Duration, Instant};

use super::ack_vector::{AckVector, Place};

/// The receiving half of a subflow.
#[derive(Debug)]
pub struct Receiver {
    vector: AckVector,
    /// When the newest packet arrived.
    arrived_at: Instant,
    /// Data packets for each acknowledgement, as the peer wants it.
    ratio: u32,
    delay: Duration,
    unacknowledged: u32,
    ack_at: Instant,
    ack_now: bool,
    confirm: bool,
}

impl Receiver {
    /// An acknowledgement leaves for every `ratio` data packets, and within `delay`.
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

    /// What has arrived.
    pub const fn vector(&self) -> AckVector {
        self.vector
    }

    /// How long ago the newest packet arrived.
    pub fn elapsed(&self, now: Instant) -> Duration {
        now.since(self.arrived_at)
    }

    /// Takes note of a packet.
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

    /// The peer asks for another ratio.
    pub fn set_ratio(&mut self, ratio: u8) {
        self.ratio = u32::from(ratio.max(1));
        self.confirm = true;
    }

    /// The ratio and that the peer waits for its confirmation.
    pub const fn ratio(&self) -> (u32, bool) {
        (self.ratio, self.confirm)
    }

    /// Asks for an acknowledgement.
    pub const fn acknowledge_now(&mut self) {
        self.ack_now = true;
    }

    /// An acknowledgement must leave at once.
    pub const fn must_acknowledge(&self) -> bool {
        self.ack_now
    }

    /// Data has arrived that has not been acknowledged.
    pub const fn has_news(&self) -> bool {
        self.unacknowledged > 0
    }

    /// An acknowledgement leaves; alone, so that it can confirm a ratio, or with data.
    pub const fn acknowledged(&mut self, alone: bool) {
        self.unacknowledged = 0;
        self.ack_now = false;
        self.ack_at = Instant::FAR_FUTURE;
        self.confirm &= !alone;
    }

    /// When a delayed acknowledgement falls due.
    pub const fn next_wakeup(&self) -> Instant {
        self.ack_at
    }

    /// The delayed acknowledgement falls due if its time has come.
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
    fn an_acknowledgement_stands_for_as_many_packets_as_the_ratio_says_or_waits_for_its_delay() {
        let mut receiver = Receiver::new(2, Duration::from_millis(40));
        let now = Instant::from_millis(5);
        receiver.receive(now, 1, true);
        assert!(!receiver.must_acknowledge());
        assert_eq!(receiver.next_wakeup(), Instant::from_millis(45));
        receiver.receive(now, 2, true);
        assert!(receiver.must_acknowledge());
        receiver.set_ratio(4);
        receiver.acknowledged(true);
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
