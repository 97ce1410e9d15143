//! What a subflow has sent and not yet seen acknowledged, and which of it is lost.
//!
//! Source: RFC 8985 §6 (RACK); RFC 6675 (`Update`, `IsLost`, `pipe`); RFC 6582 where the peer sends no
//! SACK. Under RFC 6675, which never finds a retransmission lost, one is taken for lost by time: when
//! something that was sent later, by more than a quarter of the least round-trip time, has arrived.

use alloc::collections::VecDeque;

use skybraid_units::{Duration, Instant};

use crate::PathSet;
use crate::congestion::RateSample;
use crate::segment::Sacks;
use crate::tcp::rack::{Arrival, Rack};
use crate::tcp::rate::{RateSampler, Sending};

mod judge;

/// How losses are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LossDetection {
    /// By time, with tail loss probes (RFC 8985).
    #[default]
    Rack,
    /// By counting selective acknowledgements (RFC 6675).
    Sack,
    /// By counting duplicate acknowledgements; the peer sends no SACK (RFC 6582).
    NewReno,
}

/// An acknowledgement, and what the subflow knows beside it.
#[derive(Clone, Copy, Debug)]
pub struct Acknowledgement<'a> {
    /// When it arrived.
    pub now: Instant,
    /// Next sequence number that the peer expects.
    pub ack: u64,
    /// Selective acknowledgements.
    pub sacks: &'a Sacks,
    /// The timestamp that the peer echoes.
    pub echo: Instant,
    /// One that repeats the last counts as a duplicate: it says nothing of addresses or of closing
    /// (RFC 8684 §3.4.1).
    pub may_be_duplicate: bool,
    /// A loss is being repaired.
    pub recovering: bool,
    /// Smoothed round-trip time.
    pub srtt: Duration,
}

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
    /// The stream of these messages.
    pub stream: u8,
    /// Bytes of a further message follow behind the last one that ends in it.
    pub tail: bool,
    /// Subflows that have carried it, or have been told to.
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
    /// It was sent three times or more.
    repeatedly: bool,
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
    /// The oldest segment had been sent again, once, and the acknowledgement answers the original
    /// (RFC 3522).
    pub original_arrived: bool,
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
    detection: LossDetection,
    rack: Rack,
    sacked_segments: u32,
    /// When RACK has something to judge.
    judge_at: Instant,
    /// Bytes that duplicate acknowledgements have taken out of the pipe ahead of the cumulative one.
    inflation: u64,
}

impl Scoreboard {
    /// An empty scoreboard. `segment` is the largest payload of a segment in bytes.
    pub fn new(segment: u64, detection: LossDetection) -> Self {
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
            detection,
            rack: Rack::default(),
            sacked_segments: 0,
            judge_at: Instant::FAR_FUTURE,
            inflation: 0,
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

    /// Something has been acknowledged out of order.
    pub const fn has_sacked(&self) -> bool {
        self.sacked_segments > 0
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

    /// Chunks that are not cumulatively acknowledged, oldest first. What is acknowledged selectively is
    /// among them: behind a hole it has not come to the connection (RFC 8684 §3.3.6).
    pub fn outstanding(&self) -> impl Iterator<Item = Chunk> + '_ {
        self.sent.iter().map(|sent| sent.chunk)
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
            repeatedly: false,
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
            sent.repeatedly = sent.retransmitted;
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

    /// Processes an acknowledgement.
    pub fn acknowledge(&mut self, it: &Acknowledgement<'_>) -> Progress {
        let mut progress = Progress::default();
        if it.ack > self.next {
            return progress;
        }
        let before = self.una;
        let lost_before = self.lost_bytes;
        self.take_cumulative(it, &mut progress);
        match self.detection {
            LossDetection::NewReno => {
                self.count_duplicates(it.ack == before && it.may_be_duplicate, &mut progress);
            }
            LossDetection::Sack => {
                self.take_sacks(it, &mut progress);
                progress.found_loss = self.judge();
                self.judge_retransmissions();
            }
            LossDetection::Rack => {
                if it.sacks.duplicate(it.ack).is_some() {
                    self.rack.duplicate_reported(self.una, self.next);
                }
                self.take_sacks(it, &mut progress);
                progress.found_loss = self.judge_by_time(it.now, it.recovering, it.srtt);
            }
        }
        progress.lost = self.lost_bytes - lost_before;
        progress.rate = self.rate.sample(self.least_rtt, self.lost_bytes);
        progress
    }

    /// Takes a segment for lost unless it is known to be, or to have arrived. True if it did.
    fn take_for_lost(&mut self, index: usize) -> bool {
        let Some(sent) = self.sent.get_mut(index) else { return false };
        if sent.state != State::InFlight {
            return false;
        }
        let len = u64::from(sent.chunk.len);
        sent.state = State::Lost;
        self.pipe = self.pipe.saturating_sub(len);
        self.lost += len;
        self.losses += 1;
        self.lost_bytes += len;
        self.cursor = self.cursor.min(index);
        true
    }

    /// Sends the newest segment once more as a tail loss probe, whether it is lost or not.
    pub fn probe(&mut self, now: Instant) -> Option<(u64, Chunk)> {
        let last = self.sent.len().checked_sub(1)?;
        self.take_for_lost(last);
        self.cursor = last;
        let (seq, chunk) = self.next_lost()?;
        self.losses -= 1;
        self.lost_bytes -= u64::from(chunk.len);
        self.retransmit(now);
        Some((seq, chunk))
    }

    fn take_cumulative(&mut self, it: &Acknowledgement<'_>, progress: &mut Progress) {
        let mut covers_resent = false;
        while let Some(sent) = self.sent.front() {
            if sent.end() > it.ack {
                break;
            }
            let len = u64::from(sent.chunk.len);
            match sent.state {
                State::InFlight => self.pipe = self.pipe.saturating_sub(len),
                State::Lost => self.lost -= len,
                State::Sacked => self.sacked_segments -= 1,
            }
            if progress.advanced == 0 {
                progress.original_arrived =
                    sent.retransmitted && !sent.repeatedly && it.echo < sent.at;
            }
            covers_resent |= sent.retransmitted;
            if sent.state != State::Sacked {
                let arrived = *sent;
                self.note_arrival(it, &arrived, progress);
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

    fn note_arrival(&mut self, it: &Acknowledgement<'_>, sent: &Sent, progress: &mut Progress) {
        let now = it.now;
        progress.delivered += u64::from(sent.chunk.len);
        self.rate.arrived(now, u64::from(sent.chunk.len), sent.at, &sent.sending);
        if self.detection == LossDetection::Rack {
            let arrival = Arrival {
                sent_at: sent.at,
                end: sent.end(),
                retransmitted: sent.retransmitted,
                echo: it.echo,
            };
            self.rack.arrived(now, &arrival);
        }
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

    fn take_sacks(&mut self, it: &Acknowledgement<'_>, progress: &mut Progress) {
        if it.sacks.is_empty() {
            self.known = Sacks::NONE;
            self.known_ack = it.ack;
            return;
        }
        let mut blocks = [(u64::MAX, 0); 3];
        for (slot, block) in blocks.iter_mut().zip(it.sacks.iter(it.ack)) {
            *slot = block;
        }
        blocks.sort_unstable();
        for (start, end) in blocks {
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
                self.sacked_segments += 1;
                self.note_arrival(it, &arrived, progress);
            }
            self.highest_sacked = self.highest_sacked.max(end);
        }
        self.known = *it.sacks;
        self.known_ack = it.ack;
    }
}

#[cfg(test)]
mod tests;
