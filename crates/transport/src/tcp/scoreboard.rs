//! What a subflow has sent and not yet seen acknowledged, and which of it is lost.
//!
//! Source: RFC 6675 (SACK-based loss recovery: `Update`, `IsLost`, `pipe`); RFC 6582 where the peer
//! sends no SACK. A retransmission is taken for lost by time, as RFC 8985 §6.2 does: when something
//! that was sent later, by more than a quarter of the least round-trip time, has arrived.

use alloc::collections::VecDeque;

use skybraid_units::{Duration, Instant};

use crate::PathSet;
use crate::congestion::RateSample;
use crate::segment::Sacks;
use crate::tcp::rate::{RateSampler, Sending};

/// A run of stream bytes that is always sent whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Data sequence number of the first byte.
    pub dsn: u64,
    /// Bytes.
    pub len: u32,
    /// Number of the first message that ends in it.
    pub first_message: u32,
    /// How many messages end in it.
    pub messages: u16,
    /// Paths that have carried it, or have been told to.
    pub carried_by: PathSet,
}

impl Chunk {
    /// Data sequence number just behind the last byte.
    pub const fn end(&self) -> u64 {
        self.dsn + self.len as u64
    }
}

/// A segment that has been sent.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// Subflow sequence number of its first byte.
    pub seq: u64,
    /// What it carries.
    pub chunk: Chunk,
    /// When it was last sent.
    pub at: Instant,
    state: State,
    retransmitted: bool,
    sending: Sending,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    InFlight,
    Lost,
    Sacked,
}

impl Sent {
    fn end(&self) -> u64 {
        self.seq + u64::from(self.chunk.len)
    }
}

/// Segments that must be acknowledged above another before that one is taken for lost
/// (`DupThresh` of RFC 6675).
pub const DUPLICATE_THRESHOLD: u32 = 3;

/// What an acknowledgement brought.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// Bytes acknowledged for the first time, cumulatively or selectively.
    pub delivered: u64,
    /// Bytes by which the cumulative acknowledgement advanced.
    pub advanced: u64,
    /// Round-trip time of the earliest segment newly acknowledged that was sent only once.
    pub rtt: Option<Duration>,
    /// The same of the latest such segment.
    pub latest_rtt: Option<Duration>,
    /// At least one segment was newly taken for lost.
    pub found_loss: bool,
    /// Bytes newly taken for lost.
    pub lost: u64,
    /// The delivery rate.
    pub rate: Option<RateSample>,
}

/// The scoreboard of one subflow.
#[derive(Debug)]
pub struct Scoreboard {
    sent: VecDeque<Sent>,
    una: u64,
    next: u64,
    pipe: u64,
    lost: u64,
    losses: u64,
    lost_bytes: u64,
    rate: RateSampler,
    /// Everything below this that is not selectively acknowledged has been judged.
    judged: u64,
    highest_sacked: u64,
    /// SACK blocks of the last acknowledgement, so that only news is looked at.
    known: Sacks,
    known_ack: u64,
    /// First entry that may need retransmission, as an index into `sent`.
    cursor: usize,
    duplicate_acks: u32,
    segment: u64,
    /// Segments sent again, in the order of sending.
    resent: VecDeque<(Instant, u64)>,
    /// When the segment was sent that was sent last of all that have arrived.
    newest_arrived: Instant,
    least_rtt: Duration,
}

impl Scoreboard {
    /// An empty scoreboard. `segment` is the largest payload of a segment in bytes.
    pub fn new(segment: u64) -> Self {
        Self {
            sent: VecDeque::new(),
            una: 0,
            next: 0,
            pipe: 0,
            lost: 0,
            losses: 0,
            lost_bytes: 0,
            rate: RateSampler::default(),
            judged: 0,
            highest_sacked: 0,
            known: Sacks::NONE,
            known_ack: 0,
            cursor: 0,
            duplicate_acks: 0,
            segment: segment.max(1),
            resent: VecDeque::new(),
            newest_arrived: Instant::ZERO,
            least_rtt: Duration::MAX,
        }
    }

    /// Oldest sequence number not acknowledged (SND.UNA).
    pub const fn una(&self) -> u64 {
        self.una
    }

    /// Next sequence number to be sent (SND.NXT).
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// Bytes in flight (`pipe` of RFC 6675): neither acknowledged nor taken for lost, or sent again.
    pub const fn in_flight(&self) -> u64 {
        self.pipe
    }

    /// Everything sent has been acknowledged.
    pub fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    /// Bytes taken for lost and not yet sent again.
    pub const fn lost(&self) -> u64 {
        self.lost
    }

    /// Segments taken for lost since the start, each time anew.
    pub const fn losses(&self) -> u64 {
        self.losses
    }

    /// Bytes acknowledged since the start.
    pub const fn delivered(&self) -> u64 {
        self.rate.delivered()
    }

    /// The application has nothing to send although the window is open.
    pub fn note_app_limited(&mut self) {
        self.rate.note_app_limited(self.pipe);
    }

    /// The application held data back when the segments were sent that would leave now.
    pub const fn is_app_limited(&self) -> bool {
        self.rate.is_app_limited()
    }

    /// Chunks that are not acknowledged, oldest first.
    pub fn outstanding(&self) -> impl Iterator<Item = Chunk> + '_ {
        self.sent.iter().filter(|sent| sent.state != State::Sacked).map(|sent| sent.chunk)
    }

    /// Takes note of new data being sent. Returns its sequence number.
    pub fn send(&mut self, now: Instant, chunk: Chunk) -> u64 {
        let seq = self.next;
        if self.pipe == 0 {
            self.rate.restart(now);
        }
        self.next += u64::from(chunk.len);
        self.pipe += u64::from(chunk.len);
        self.sent.push_back(Sent {
            seq,
            chunk,
            at: now,
            state: State::InFlight,
            retransmitted: false,
            sending: self.rate.sending(self.pipe, self.lost_bytes),
        });
        seq
    }

    /// The oldest lost segment that has not been sent again.
    pub fn next_lost(&mut self) -> Option<(u64, Chunk)> {
        if self.lost == 0 {
            return None;
        }
        while let Some(sent) = self.sent.get(self.cursor) {
            if sent.state == State::Lost {
                return Some((sent.seq, sent.chunk));
            }
            self.cursor += 1;
        }
        None
    }

    /// Takes note of the segment of [`next_lost`](Self::next_lost) being sent again.
    pub fn retransmit(&mut self, now: Instant) {
        if let Some(sent) = self.sent.get_mut(self.cursor)
            && sent.state == State::Lost
        {
            let len = u64::from(sent.chunk.len);
            sent.state = State::InFlight;
            sent.retransmitted = true;
            sent.at = now;
            if self.pipe == 0 {
                self.rate.restart(now);
            }
            self.pipe += len;
            self.lost -= len;
            sent.sending = self.rate.sending(self.pipe, self.lost_bytes);
            self.resent.push_back((now, sent.seq));
            self.cursor += 1;
        }
    }

    /// Processes an acknowledgement. `sack` says whether the peer sends SACK blocks at all.
    pub fn acknowledge(&mut self, now: Instant, ack: u64, sacks: &Sacks, sack: bool) -> Progress {
        let mut progress = Progress::default();
        if ack > self.next {
            return progress;
        }
        let before = self.una;
        let lost_before = self.lost_bytes;
        self.take_cumulative(now, ack, &mut progress);
        if sack {
            self.take_sacks(now, ack, sacks, &mut progress);
            progress.found_loss = self.judge();
            self.judge_retransmissions();
        } else if progress.advanced > 0 {
            self.duplicate_acks = 0;
        } else if ack == before && !self.sent.is_empty() {
            self.duplicate_acks += 1;
            // Each duplicate stands for a segment that has left the network (RFC 5681 §3.2).
            self.pipe = self.pipe.saturating_sub(self.segment);
            if self.duplicate_acks == DUPLICATE_THRESHOLD {
                progress.found_loss = self.mark_first_lost();
            }
        }
        progress.lost = self.lost_bytes - lost_before;
        progress.rate = self.rate.sample(self.least_rtt, self.lost_bytes);
        progress
    }

    /// Marks the oldest segment lost, as a partial acknowledgement says without SACK (RFC 6582
    /// §3.2 step 3).
    pub fn mark_first_lost(&mut self) -> bool {
        let Some(sent) = self.sent.front_mut() else {
            return false;
        };
        if sent.state != State::InFlight {
            return false;
        }
        let len = u64::from(sent.chunk.len);
        sent.state = State::Lost;
        self.pipe = self.pipe.saturating_sub(len);
        self.lost += len;
        self.losses += 1;
        self.lost_bytes += len;
        self.cursor = 0;
        true
    }

    /// Takes everything outstanding for lost, as after a timeout (RFC 6298 §5.4, RFC 6675 §5.1).
    pub fn mark_all_lost(&mut self) {
        for sent in &mut self.sent {
            if sent.state == State::InFlight {
                sent.state = State::Lost;
                self.lost += u64::from(sent.chunk.len);
                self.losses += 1;
                self.lost_bytes += u64::from(sent.chunk.len);
            }
        }
        self.pipe = 0;
        self.cursor = 0;
        self.duplicate_acks = 0;
        self.resent.clear();
    }

    fn take_cumulative(&mut self, now: Instant, ack: u64, progress: &mut Progress) {
        let mut covers_resent = false;
        while let Some(sent) = self.sent.front() {
            if sent.end() > ack {
                break;
            }
            let len = u64::from(sent.chunk.len);
            match sent.state {
                State::InFlight => self.pipe = self.pipe.saturating_sub(len),
                State::Lost => self.lost -= len,
                State::Sacked => {}
            }
            covers_resent |= sent.retransmitted;
            if sent.state != State::Sacked {
                let arrived = *sent;
                self.note_arrival(now, &arrived, progress);
            }
            progress.advanced += len;
            self.sent.pop_front();
            self.cursor = self.cursor.saturating_sub(1);
        }
        if covers_resent {
            // What lay behind the hole may have arrived long ago, with its acknowledgements lost: no
            // sample (Karn's rule; Linux's FLAG_RETRANS_DATA_ACKED).
            progress.rtt = None;
            progress.latest_rtt = None;
        }
        self.una += progress.advanced;
        if self.sent.is_empty() {
            self.pipe = 0;
        }
    }

    fn note_arrival(&mut self, now: Instant, sent: &Sent, progress: &mut Progress) {
        progress.delivered += u64::from(sent.chunk.len);
        self.rate.arrived(now, u64::from(sent.chunk.len), sent.at, &sent.sending);
        let rtt = now.since(sent.at);
        if !sent.retransmitted {
            progress.rtt = progress.rtt.or(Some(rtt));
            progress.latest_rtt = Some(progress.latest_rtt.map_or(rtt, |least| least.min(rtt)));
            self.least_rtt = self.least_rtt.min(rtt);
        } else if rtt < self.least_rtt {
            // Too early for the retransmission: the first copy had arrived after all.
            return;
        }
        self.newest_arrived = self.newest_arrived.max(sent.at);
    }

    fn take_sacks(&mut self, now: Instant, ack: u64, sacks: &Sacks, progress: &mut Progress) {
        for (start, end) in sacks.iter(ack) {
            let end = end.min(self.next);
            let mut from = start.max(self.una);
            for (known_start, known_end) in self.known.iter(self.known_ack) {
                if known_start <= from && from < known_end {
                    from = known_end;
                }
            }
            if from >= end {
                continue;
            }
            let mut index = self.sent.partition_point(|sent| sent.seq < from);
            while let Some(sent) = self.sent.get_mut(index).filter(|sent| sent.end() <= end) {
                index += 1;
                let len = u64::from(sent.chunk.len);
                match sent.state {
                    State::InFlight => self.pipe = self.pipe.saturating_sub(len),
                    State::Lost => self.lost -= len,
                    State::Sacked => continue,
                }
                sent.state = State::Sacked;
                let arrived = *sent;
                self.note_arrival(now, &arrived, progress);
            }
            self.highest_sacked = self.highest_sacked.max(end);
        }
        self.known = *sacks;
        self.known_ack = ack;
    }

    /// Judges what lies below the third segment from the top that was selectively acknowledged.
    fn judge(&mut self) -> bool {
        if self.highest_sacked <= self.una {
            return false;
        }
        let top = self.sent.partition_point(|sent| sent.seq < self.highest_sacked);
        let mut seen = 0;
        let mut line = None;
        for sent in self.sent.range(..top).rev() {
            if sent.seq < self.judged {
                break;
            }
            if sent.state == State::Sacked {
                seen += 1;
                if seen == DUPLICATE_THRESHOLD {
                    line = Some(sent.seq);
                    break;
                }
            }
        }
        let Some(line) = line else { return false };
        let first = self.sent.partition_point(|sent| sent.seq < self.judged);
        let mut found = false;
        for (index, sent) in self.sent.range_mut(first..).enumerate() {
            if sent.seq >= line {
                break;
            }
            if sent.state == State::InFlight && !sent.retransmitted {
                let len = u64::from(sent.chunk.len);
                sent.state = State::Lost;
                self.pipe = self.pipe.saturating_sub(len);
                self.lost += len;
                self.losses += 1;
                self.lost_bytes += len;
                self.cursor = self.cursor.min(first + index);
                found = true;
            }
        }
        self.judged = line;
        found
    }

    /// Takes retransmissions for lost that later segments have overtaken.
    fn judge_retransmissions(&mut self) {
        while let Some((at, seq)) = self.resent.front().copied() {
            let stale = seq < self.una;
            if !stale && at + self.least_rtt / 4 >= self.newest_arrived {
                break;
            }
            self.resent.pop_front();
            let index = self.sent.partition_point(|sent| sent.seq < seq);
            if let Some(sent) = self.sent.get_mut(index)
                && (sent.seq, sent.at, sent.state) == (seq, at, State::InFlight)
            {
                let len = u64::from(sent.chunk.len);
                sent.state = State::Lost;
                self.pipe = self.pipe.saturating_sub(len);
                self.lost += len;
                self.losses += 1;
                self.lost_bytes += len;
                self.cursor = self.cursor.min(index);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn board(segments: u32) -> Scoreboard {
        let mut board = Scoreboard::new(1000);
        for index in 0..segments {
            board.send(
                Instant::ZERO,
                Chunk {
                    dsn: u64::from(index) * 1000,
                    len: 1000,
                    first_message: index,
                    messages: 1,
                    carried_by: PathSet::EMPTY,
                },
            );
        }
        board
    }

    fn sacks(ack: u64, blocks: &[(u64, u64)]) -> Sacks {
        let mut sacks = Sacks::NONE;
        for (start, end) in blocks {
            sacks.push(ack, start * 1000, end * 1000);
        }
        sacks
    }

    #[test]
    fn a_segment_is_lost_once_three_above_it_are_acknowledged() {
        let mut board = board(10);
        let at = Instant::from_millis(100);
        assert!(!board.acknowledge(at, 0, &sacks(0, &[(1, 3)]), true).found_loss);
        let progress = board.acknowledge(at, 0, &sacks(0, &[(1, 4)]), true);
        assert!(progress.found_loss);
        assert_eq!(progress.delivered, 1000);
        assert_eq!(board.in_flight(), 6000);
        assert_eq!(board.next_lost().map(|(seq, _)| seq), Some(0));
        board.retransmit(at);
        assert_eq!((board.in_flight(), board.lost()), (7000, 0));
    }

    #[test]
    fn all_holes_below_the_third_highest_acknowledged_segment_are_lost() {
        let mut board = board(10);
        let at = Instant::from_millis(100);
        board.acknowledge(at, 0, &sacks(0, &[(6, 9), (3, 4), (1, 2)]), true);
        let mut lost = alloc::vec::Vec::new();
        while let Some((seq, _)) = board.next_lost() {
            lost.push(seq / 1000);
            board.retransmit(at);
        }
        assert_eq!(lost, [0, 2, 4, 5]);
    }

    #[test]
    fn a_retransmission_is_lost_once_something_sent_later_has_arrived() {
        let mut board = board(10);
        let at = Instant::from_millis(100);
        board.acknowledge(at, 0, &sacks(0, &[(1, 4)]), true);
        board.next_lost();
        board.retransmit(at);
        board.acknowledge(Instant::from_millis(101), 0, &sacks(0, &[(1, 10)]), true);
        assert_eq!(board.lost(), 0);
        let later = Instant::from_millis(130);
        let chunk = Chunk {
            dsn: 10_000,
            len: 1000,
            first_message: 10,
            messages: 1,
            carried_by: PathSet::EMPTY,
        };
        board.send(later, chunk);
        board.acknowledge(Instant::from_millis(230), 0, &sacks(0, &[(1, 11)]), true);
        assert_eq!(board.next_lost().map(|(seq, _)| seq), Some(0));
    }

    #[test]
    fn an_acknowledgement_that_covers_a_retransmission_gives_no_round_trip_time() {
        let mut board = board(10);
        board.mark_all_lost();
        board.next_lost();
        board.retransmit(Instant::from_millis(300));
        let progress = board.acknowledge(Instant::from_millis(400), 5000, &Sacks::NONE, true);
        assert_eq!((progress.advanced, progress.rtt), (5000, None));
        let progress = board.acknowledge(Instant::from_millis(401), 6000, &Sacks::NONE, true);
        assert!(progress.rtt.is_some());
    }

    #[test]
    fn an_acknowledgement_of_what_was_never_sent_is_ignored() {
        let mut board = board(2);
        let progress = board.acknowledge(Instant::ZERO, 99_000, &Sacks::NONE, true);
        assert_eq!(progress.advanced, 0);
        assert_eq!(board.in_flight(), 2000);
    }

    #[test]
    fn without_sack_the_third_duplicate_acknowledgement_finds_the_loss() {
        let mut board = board(10);
        let at = Instant::from_millis(100);
        assert!(!board.acknowledge(at, 0, &Sacks::NONE, false).found_loss);
        assert!(!board.acknowledge(at, 0, &Sacks::NONE, false).found_loss);
        assert!(board.acknowledge(at, 0, &Sacks::NONE, false).found_loss);
        assert_eq!(board.next_lost().map(|(seq, _)| seq), Some(0));
    }

    proptest::proptest! {
        #[test]
        fn bytes_in_flight_are_exactly_those_neither_acknowledged_nor_lost(
            events in proptest::collection::vec((0u64..40, 0u64..40, 1u64..6, 0u8..4), 1..60)
        ) {
            let mut board = board(40);
            for (ack, start, length, what) in events {
                let at = Instant::from_millis(1);
                let ack = ack.max(board.una() / 1000);
                match what {
                    0 => drop(board.acknowledge(at, ack * 1000, &Sacks::NONE, true)),
                    1 | 2 => {
                        let una = board.una();
                        let mut blocks = Sacks::NONE;
                        if start * 1000 > una {
                            blocks.push(una, start * 1000, (start + length) * 1000);
                        }
                        board.acknowledge(at, una, &blocks, true);
                    }
                    _ => {
                        if board.next_lost().is_some() {
                            board.retransmit(at);
                        } else {
                            board.mark_all_lost();
                        }
                    }
                }
                let counted: u64 = board
                    .sent
                    .iter()
                    .filter(|sent| sent.state == State::InFlight)
                    .map(|sent| u64::from(sent.chunk.len))
                    .sum();
                proptest::prop_assert_eq!(board.in_flight(), counted);
                let lost: u64 = board
                    .sent
                    .iter()
                    .filter(|sent| sent.state == State::Lost)
                    .map(|sent| u64::from(sent.chunk.len))
                    .sum();
                proptest::prop_assert_eq!(board.lost(), lost);
            }
        }
    }
}
