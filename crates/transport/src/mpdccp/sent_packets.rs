//! Sent packets of a subflow and their fate.
//!
//! Source: RFC 4341 §5 (`pipe`, NUMDUPACK). Nothing is retransmitted: a packet is in flight, then
//! acknowledged or marked lost.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use skybraid_units::{Duration, Instant, Promised};

use super::AckVector;
use crate::congestion::RateSample;
use crate::tcp::rate::RateSampler;

/// Number of later packets whose acknowledgement marks a packet lost.
const NUMDUPACK: u32 = 3;
/// Maximum of that number where packets overtake each other, and of lost packets that are remembered.
const MAX_REORDERING: u32 = 64;
/// Losses in a row after which fewer later packets mark one lost again.
const CALM: u32 = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    InFlight,
    /// In flight without data: a probe whose fate is of interest.
    Probe,
    /// Acknowledged, lost, or not data.
    Settled,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    at: Instant,
    sequence: u64,
    payload: u32,
    state: State,
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fate {
    /// Time of sending.
    pub sent_at: Instant,
    /// Sequence number of its datagram within the connection; none for a probe.
    pub sequence: Option<u64>,
    /// False if it is lost.
    pub arrived: bool,
}

/// Records the fate of a packet that was in flight, if fates are of interest.
fn record(fates: &mut Option<Vec<Fate>>, sent: &Sent, arrived: bool) {
    if let Some(fates) = fates
        && sent.state != State::Settled
    {
        let sequence = (sent.state == State::InFlight).then_some(sent.sequence);
        fates.push(Fate { sent_at: sent.at, sequence, arrived });
    }
}

/// Result of an acknowledgement.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// True if the ack vector reports packets for the first time, data or not.
    pub news: bool,
    /// Data packets acknowledged for the first time.
    pub delivered: u32,
    /// Payload of these packets in bytes.
    pub payload: u64,
    /// Number of the oldest of them.
    pub first: Option<u64>,
    /// Age of the newest packet, if it is acknowledged for the first time.
    pub newest_age: Option<Duration>,
    /// Data packets newly marked lost.
    pub lost: u32,
    /// Number of the last of them.
    pub last_lost: Option<u64>,
    /// Delivery rate sample; each packet counts as a full segment.
    pub rate: Option<RateSample>,
}

/// Order in which packets arrive: how many may overtake one that is not lost (as RFC 8985 §6.2 adapts to it, counted in
/// packets).
#[derive(Debug)]
struct Reordering {
    /// Number of later packets whose acknowledgement marks a packet lost.
    later: u32,
    /// Newest packets marked lost, oldest first.
    lost: VecDeque<u64>,
    /// Losses since one of them arrived after all.
    calm: u32,
}

impl Default for Reordering {
    fn default() -> Self {
        Self { later: NUMDUPACK, lost: VecDeque::new(), calm: 0 }
    }
}

impl Reordering {
    fn on_lost(&mut self, number: u64) {
        if self.lost.len() >= MAX_REORDERING as usize {
            self.lost.pop_front();
        }
        self.lost.push_back(number);
        self.calm += 1;
        if self.calm >= CALM {
            self.later = (self.later * 3 / 4).max(NUMDUPACK);
            self.calm = 0;
        }
    }

    /// Records that a packet is acknowledged for the first time after it was removed, together with `newest`.
    fn on_late(&mut self, number: u64, newest: u64) {
        if self.lost.contains(&number) {
            let overtook = u32::try_from(newest - number).unwrap_or(u32::MAX);
            self.later = self.later.max(overtook.min(MAX_REORDERING));
            self.calm = 0;
        }
    }
}

/// Sent packets of a subflow. Each data packet counts as a full segment, whatever its size: DCCP
/// controls packets.
#[derive(Debug)]
pub struct SentPackets {
    segment: u64,
    /// Packets from number `base` on.
    sent: VecDeque<Sent>,
    base: u64,
    /// Data packets in flight.
    pipe: u64,
    losses: u64,
    known: AckVector,
    reordering: Option<Reordering>,
    rate: RateSampler,
    min_age: Duration,
    /// Fates since they were taken last, if they are of interest.
    fates: Option<Vec<Fate>>,
}

impl SentPackets {
    /// Creates an empty list, which samples delivery rates if `rates` is true. `segment` is the maximum payload of a
    /// packet.
    pub fn new(segment: u32, rates: bool) -> Self {
        Self {
            segment: u64::from(segment),
            sent: VecDeque::new(),
            base: 1,
            pipe: 0,
            losses: 0,
            known: AckVector::EMPTY,
            reordering: None,
            rate: RateSampler::new(rates),
            min_age: Duration::MAX,
            fates: None,
        }
    }

    /// From now on, packets that arrive after they were marked lost raise the number of later packets that marks one.
    pub fn follow_reordering(&mut self) {
        self.reordering.get_or_insert_default();
    }

    /// Starts recording fates for [`take_fates`](Self::take_fates).
    pub fn record_fates(&mut self) {
        self.fates = Some(Vec::new());
    }

    /// Takes the fates known since the last call, oldest packet first.
    pub fn take_fates(&mut self) -> impl Iterator<Item = Fate> + '_ {
        self.fates.iter_mut().flat_map(|fates| fates.drain(..))
    }

    /// True if no packet is in flight, probes included.
    pub fn all_settled(&self) -> bool {
        self.sent.iter().all(|sent| sent.state == State::Settled)
    }

    /// Number of the next packet.
    pub fn next(&self) -> u64 {
        self.base + self.sent.len() as u64
    }

    /// Number of the newest packet reported by the peer; 0 for none.
    pub const fn newest_known(&self) -> u64 {
        self.known.newest()
    }

    /// Data packets in flight.
    pub const fn pipe(&self) -> u64 {
        self.pipe
    }

    /// Bytes in flight, each packet counted as a full segment.
    pub const fn in_flight(&self) -> u64 {
        self.pipe * self.segment
    }

    /// Time of sending of data packet number `place` after the newest that the peer has reported, if that many are in
    /// flight. Older ones without an acknowledgement are most likely lost.
    pub fn sent_after_reported(&self, place: usize) -> Option<Instant> {
        let reported = (self.known.newest() + 1).saturating_sub(self.base) as usize;
        let later = self.sent.iter().skip(reported);
        later.filter(|sent| sent.state == State::InFlight).map(|sent| sent.at).nth(place)
    }

    /// Data packets marked lost so far.
    pub const fn losses(&self) -> u64 {
        self.losses
    }

    /// Bytes acknowledged so far.
    pub const fn delivered(&self) -> u64 {
        self.rate.delivered()
    }

    /// Marks the flow as application-limited: the window is open but there is nothing to send.
    pub fn note_app_limited(&mut self) {
        self.rate.note_app_limited(self.in_flight());
    }

    /// True if packets sent now count as application-limited.
    pub const fn is_app_limited(&self) -> bool {
        self.rate.is_app_limited()
    }

    /// Records the transmission of a packet without data. Returns its number.
    pub fn on_control_sent(&mut self, now: Instant) -> u64 {
        let number = self.next();
        if self.sent.is_empty() {
            self.base += 1;
        } else {
            self.push_control(now, State::Settled);
        }
        number
    }

    /// Records the transmission of a packet without data whose fate is of interest. Returns its number.
    pub fn on_probe_sent(&mut self, now: Instant) -> u64 {
        let number = self.next();
        self.push_control(now, State::Probe);
        number
    }

    /// Records that a probe was acknowledged by its number alone.
    pub fn on_probe_acked(&mut self, number: u64) {
        let index = number.checked_sub(self.base);
        let sent = index.and_then(|index| self.sent.get_mut(index as usize));
        if let Some(sent) = sent.filter(|sent| sent.state == State::Probe) {
            record(&mut self.fates, sent, true);
            sent.state = State::Settled;
        }
    }

    fn push_control(&mut self, now: Instant, state: State) {
        self.sent.push_back(Sent { at: now, sequence: 0, payload: 0, state });
        self.rate.on_sent(0, 0);
    }

    /// Records the transmission of a data packet with a datagram of the connection. Returns its number.
    pub fn on_sent(&mut self, now: Instant, sequence: u64, payload: u32) -> u64 {
        let number = self.next();
        if self.pipe == 0 {
            self.rate.restart(now);
        }
        self.pipe += 1;
        self.sent.push_back(Sent { at: now, sequence, payload, state: State::InFlight });
        self.rate.on_sent(self.in_flight(), self.losses * self.segment);
        number
    }

    /// Processes an ack vector of the peer.
    pub fn on_ack(&mut self, now: Instant, acks: &AckVector) -> Progress {
        let mut progress = Progress::default();
        if acks.newest() >= self.next() {
            return progress;
        }
        let newest = acks.newest();
        for number in self.known.merge(acks).iter() {
            progress.news = true;
            let Some(index) = number.checked_sub(self.base) else {
                if let Some(reordering) = &mut self.reordering {
                    reordering.on_late(number, newest);
                }
                continue;
            };
            let sent = self.sent.get_mut(index as usize).promised("a sent packet");
            let Some(sent) = sent else { continue };
            if number == newest {
                progress.newest_age = Some(now.since(sent.at));
            }
            record(&mut self.fates, sent, true);
            let state = core::mem::replace(&mut sent.state, State::Settled);
            if state == State::InFlight {
                self.pipe -= 1;
                progress.delivered += 1;
                progress.payload += u64::from(sent.payload);
                progress.first = Some(number);
                self.rate.on_delivered(now, index as usize, self.segment, sent.at);
            }
        }
        if let Some(age) = progress.newest_age {
            self.min_age = self.min_age.min(age);
        }
        self.detect_losses(&mut progress);
        if progress.delivered > 0 {
            let min = if self.min_age == Duration::MAX { Duration::ZERO } else { self.min_age };
            progress.rate = self.rate.sample(min, self.losses * self.segment);
        }
        progress
    }

    /// Marks packets lost that precede three acknowledged ones, and removes the settled packets.
    fn detect_losses(&mut self, progress: &mut Progress) {
        let later = self.reordering.as_ref().map_or(NUMDUPACK, |reordering| reordering.later);
        let threshold = self.known.nth_newest(later);
        while let Some(sent) = self.sent.front() {
            if sent.state != State::Settled && self.base >= threshold {
                break;
            }
            record(&mut self.fates, sent, false);
            if sent.state == State::InFlight {
                self.pipe -= 1;
                self.losses += 1;
                if let Some(reordering) = &mut self.reordering {
                    reordering.on_lost(self.base);
                }
                progress.lost += 1;
                progress.last_lost = Some(self.base);
            }
            self.sent.pop_front();
            self.rate.on_removed(1);
            self.base += 1;
        }
    }

    /// Marks all packets in flight lost.
    pub fn abandon(&mut self) {
        self.sent.iter().for_each(|sent| record(&mut self.fates, sent, false));
        self.losses += self.pipe;
        self.pipe = 0;
        self.base = self.next();
        self.rate.on_removed(self.sent.len());
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

    fn sent_packets(packets: i64) -> SentPackets {
        let mut sent = SentPackets::new(1000, false);
        for number in 1..=packets {
            assert_eq!(sent.on_sent(at(number), number as u64, 500), number as u64);
        }
        sent
    }

    // Source: RFC 4341 §5 (NUMDUPACK = 3).
    #[test]
    fn a_packet_is_lost_once_three_later_ones_are_acknowledged() {
        let mut sent = sent_packets(6);
        let two = sent.on_ack(at(100), &vector(&[1, 3, 4]));
        assert_eq!((two.delivered, two.lost, sent.pipe()), (3, 0, 3));
        assert_eq!(two.newest_age, Some(Duration::from_millis(96)));
        let three = sent.on_ack(at(101), &vector(&[1, 3, 4, 6]));
        assert_eq!((three.delivered, three.lost, three.last_lost), (1, 1, Some(2)));
        assert_eq!((sent.pipe(), sent.losses()), (1, 1));
        assert_eq!(sent.in_flight(), 1000, "a packet counts as a full segment");
    }

    #[test]
    fn a_packet_that_arrives_after_all_lets_later_ones_be_overtaken() {
        let mut sent = sent_packets(200);
        sent.follow_reordering();
        // Every fifth packet arrives ten packets later.
        let (mut seen, mut lost) = (AckVector::EMPTY, Vec::new());
        for number in 1..=200_u64 {
            if number % 5 != 0 {
                seen.insert(number);
            }
            if number > 10 && number % 5 == 0 {
                seen.insert(number - 10);
            }
            let progress = sent.on_ack(at(300), &seen);
            lost.extend(progress.last_lost.map(|_| number));
        }
        assert!(lost.len() <= 2 && lost.iter().all(|number| *number < 20), "{lost:?}");
    }

    #[test]
    fn packets_after_the_newest_reported_one_show_a_queue() {
        let mut sent = sent_packets(6);
        assert_eq!(sent.sent_after_reported(0), Some(at(1)));
        sent.on_ack(at(100), &vector(&[1, 3]));
        assert_eq!(
            [0, 2, 3].map(|place| sent.sent_after_reported(place)),
            [Some(at(4)), Some(at(6)), None]
        );
        sent.abandon();
        assert_eq!(sent.sent_after_reported(0), None);
    }

    #[test]
    fn a_repeated_acknowledgement_has_no_effect() {
        let mut sent = sent_packets(3);
        sent.on_ack(at(100), &vector(&[1, 2]));
        let again = sent.on_ack(at(101), &vector(&[1, 2]));
        assert!(!again.news && again.delivered == 0);
        let forged = sent.on_ack(at(101), &vector(&[9]));
        assert!(!forged.news);
    }

    #[test]
    fn an_abandoned_packet_that_arrives_is_not_delivered_again() {
        let mut sent = sent_packets(3);
        sent.abandon();
        assert_eq!((sent.pipe(), sent.losses(), sent.next()), (0, 3, 4));
        let late = sent.on_ack(at(100), &vector(&[1, 2, 3]));
        assert!(late.news && late.delivered == 0);
    }

    // A known limit: RFC 4340's vectors may be longer, these are not.
    #[test]
    fn a_packet_beyond_a_vector_of_256_packets_counts_as_lost() {
        let mut sent = sent_packets(300);
        let all: Vec<u64> = (1..=300).collect();
        let progress = sent.on_ack(at(400), &vector(&all));
        assert_eq!((progress.delivered, progress.lost), (256, 44));
    }

    #[test]
    fn packets_without_data_take_numbers_but_no_window() {
        let mut sent = SentPackets::new(1000, false);
        assert_eq!(sent.on_control_sent(at(0)), 1);
        assert_eq!(sent.on_sent(at(0), 0, 500), 2);
        assert_eq!(sent.on_control_sent(at(0)), 3);
        assert_eq!(sent.on_sent(at(0), 0, 500), 4);
        assert_eq!(sent.pipe(), 2);
        let all = sent.on_ack(at(10), &vector(&[1, 2, 3, 4]));
        assert_eq!((all.delivered, all.first, sent.pipe()), (2, Some(2), 0));
        assert_eq!(sent.next(), 5);
    }
}
