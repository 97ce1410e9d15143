//! The packets that a subflow has sent, and what has become of them.
//!
//! Source: RFC 4341 §5 (`pipe`, NUMDUPACK). Nothing is sent again: a packet is in flight, then
//! acknowledged or taken for lost.

use alloc::collections::VecDeque;

use skybraid_units::{Duration, Instant};

use super::AckVector;
use crate::congestion::RateSample;
use crate::tcp::rate::{RateSampler, Sending};

/// A packet is lost once this many later ones have been acknowledged.
const NUMDUPACK: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    InFlight,
    /// Acknowledged, lost, or not data.
    Settled,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    at: Instant,
    payload: u32,
    state: State,
    sending: Sending,
}

/// What an acknowledgement brought.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// It told of packets that no other had told of, data or not.
    pub news: bool,
    /// Data packets acknowledged for the first time.
    pub delivered: u32,
    /// Their payload bytes.
    pub payload: u64,
    /// Number of the first of them.
    pub first: Option<u64>,
    /// Since when the newest packet, if it is acknowledged only now, had been sent.
    pub newest_age: Option<Duration>,
    /// Data packets newly taken for lost.
    pub lost: u32,
    /// Number of the last of them.
    pub last_lost: Option<u64>,
    /// The delivery rate, each packet counted as a full segment.
    pub rate: Option<RateSample>,
}

/// The packets that a subflow has sent. Each data packet counts as a full segment, whatever its size:
/// DCCP controls packets.
#[derive(Debug)]
pub struct Flight {
    segment: u64,
    /// Packets from number `base` on.
    sent: VecDeque<Sent>,
    base: u64,
    /// Data packets in flight.
    pipe: u64,
    losses: u64,
    known: AckVector,
    rate: RateSampler,
    least_age: Duration,
}

impl Flight {
    /// Nothing sent. `segment` is the largest payload of a packet.
    pub fn new(segment: u32) -> Self {
        Self {
            segment: u64::from(segment),
            sent: VecDeque::new(),
            base: 1,
            pipe: 0,
            losses: 0,
            known: AckVector::EMPTY,
            rate: RateSampler::default(),
            least_age: Duration::MAX,
        }
    }

    /// Number of the next packet.
    pub fn next(&self) -> u64 {
        self.base + self.sent.len() as u64
    }

    /// Number of the newest packet that the peer has told of; 0 for none.
    pub const fn newest_known(&self) -> u64 {
        self.known.newest()
    }

    /// Data packets in flight.
    pub const fn pipe(&self) -> u64 {
        self.pipe
    }

    /// The same in bytes.
    pub const fn in_flight(&self) -> u64 {
        self.pipe * self.segment
    }

    /// Data packets taken for lost so far.
    pub const fn losses(&self) -> u64 {
        self.losses
    }

    /// Bytes acknowledged so far.
    pub const fn delivered(&self) -> u64 {
        self.rate.delivered()
    }

    /// There is nothing to send although the window is open.
    pub fn note_app_limited(&mut self) {
        self.rate.note_app_limited(self.in_flight());
    }

    /// The application held data back when the packets were sent that would leave now.
    pub const fn is_app_limited(&self) -> bool {
        self.rate.is_app_limited()
    }

    /// A packet without data leaves. Returns its number.
    pub fn send_control(&mut self, now: Instant) -> u64 {
        let number = self.next();
        if self.sent.is_empty() {
            self.base += 1;
        } else {
            let sending = self.rate.sending(0, 0);
            self.sent.push_back(Sent { at: now, payload: 0, state: State::Settled, sending });
        }
        number
    }

    /// A data packet leaves. Returns its number.
    pub fn send(&mut self, now: Instant, payload: u32) -> u64 {
        let number = self.next();
        if self.pipe == 0 {
            self.rate.restart(now);
        }
        self.pipe += 1;
        let sending = self.rate.sending(self.in_flight(), self.losses * self.segment);
        self.sent.push_back(Sent { at: now, payload, state: State::InFlight, sending });
        number
    }

    /// Takes in what the peer tells.
    pub fn acknowledge(&mut self, now: Instant, acks: &AckVector) -> Progress {
        let mut progress = Progress::default();
        if acks.newest() >= self.next() {
            return progress;
        }
        let newest = acks.newest();
        for number in self.known.merge(acks).iter() {
            progress.news = true;
            let Some(index) = number.checked_sub(self.base) else { continue };
            let Some(sent) = self.sent.get_mut(index as usize) else { continue };
            if number == newest {
                progress.newest_age = Some(now.since(sent.at));
            }
            if sent.state == State::InFlight {
                sent.state = State::Settled;
                self.pipe -= 1;
                progress.delivered += 1;
                progress.payload += u64::from(sent.payload);
                progress.first = Some(number);
                self.rate.arrived(now, self.segment, sent.at, &sent.sending);
            }
        }
        if let Some(age) = progress.newest_age {
            self.least_age = self.least_age.min(age);
        }
        self.judge(&mut progress);
        if progress.delivered > 0 {
            let least =
                if self.least_age == Duration::MAX { Duration::ZERO } else { self.least_age };
            progress.rate = self.rate.sample(least, self.losses * self.segment);
        }
        progress
    }

    /// Takes for lost what has three acknowledged packets behind it, and forgets what is settled.
    fn judge(&mut self, progress: &mut Progress) {
        let threshold = self.known.iter().nth(NUMDUPACK - 1).unwrap_or(0);
        while let Some(sent) = self.sent.front() {
            if sent.state == State::InFlight {
                if self.base >= threshold {
                    break;
                }
                self.pipe -= 1;
                self.losses += 1;
                progress.lost += 1;
                progress.last_lost = Some(self.base);
            }
            self.sent.pop_front();
            self.base += 1;
        }
    }

    /// Takes all that is in flight for lost.
    pub fn abandon(&mut self) {
        self.losses += self.pipe;
        self.pipe = 0;
        self.base = self.next();
        self.sent.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: i64) -> Instant {
        Instant::from_millis(ms)
    }

    fn vector(numbers: &[u64]) -> AckVector {
        let mut vector = AckVector::EMPTY;
        for number in numbers {
            vector.insert(*number);
        }
        vector
    }

    fn flight(packets: i64) -> Flight {
        let mut flight = Flight::new(1000);
        for number in 1..=packets {
            assert_eq!(flight.send(at(number), 500), number as u64);
        }
        flight
    }

    // Source: RFC 4341 §5 (NUMDUPACK = 3).
    #[test]
    fn a_packet_is_lost_once_three_later_ones_are_acknowledged() {
        let mut flight = flight(6);
        let two = flight.acknowledge(at(100), &vector(&[1, 3, 4]));
        assert_eq!((two.delivered, two.lost, flight.pipe()), (3, 0, 3));
        assert_eq!(two.newest_age, Some(Duration::from_millis(96)));
        let three = flight.acknowledge(at(101), &vector(&[1, 3, 4, 6]));
        assert_eq!((three.delivered, three.lost, three.last_lost), (1, 1, Some(2)));
        assert_eq!((flight.pipe(), flight.losses()), (1, 1));
        assert_eq!(flight.in_flight(), 1000, "a packet counts as a full segment");
    }

    #[test]
    fn an_acknowledgement_seen_before_brings_nothing() {
        let mut flight = flight(3);
        flight.acknowledge(at(100), &vector(&[1, 2]));
        let again = flight.acknowledge(at(101), &vector(&[1, 2]));
        assert!(!again.news && again.delivered == 0);
        let forged = flight.acknowledge(at(101), &vector(&[9]));
        assert!(!forged.news);
    }

    #[test]
    fn what_was_abandoned_and_arrives_after_all_is_news_but_not_delivered_again() {
        let mut flight = flight(3);
        flight.abandon();
        assert_eq!((flight.pipe(), flight.losses(), flight.next()), (0, 3, 4));
        let late = flight.acknowledge(at(100), &vector(&[1, 2, 3]));
        assert!(late.news && late.delivered == 0);
    }

    // The known limit: RFC 4340's vectors may be longer, these are not.
    #[test]
    fn what_a_vector_of_256_packets_no_longer_tells_of_counts_as_lost() {
        let mut flight = flight(300);
        let all: alloc::vec::Vec<u64> = (1..=300).collect();
        let progress = flight.acknowledge(at(400), &vector(&all));
        assert_eq!((progress.delivered, progress.lost), (256, 44));
    }

    #[test]
    fn packets_without_data_take_numbers_but_no_room() {
        let mut flight = Flight::new(1000);
        assert_eq!(flight.send_control(at(0)), 1);
        assert_eq!(flight.send(at(0), 500), 2);
        assert_eq!(flight.send_control(at(0)), 3);
        assert_eq!(flight.send(at(0), 500), 4);
        assert_eq!(flight.pipe(), 2);
        let all = flight.acknowledge(at(10), &vector(&[1, 2, 3, 4]));
        assert_eq!((all.delivered, all.first, flight.pipe()), (2, Some(2), 0));
        assert_eq!(flight.next(), 5);
    }
}
