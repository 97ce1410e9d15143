//! Scoreboard of a subflow: sent segments, acknowledgements and losses.
//!
//! Source: RFC 8985 §6 (RACK); RFC 6675 (`Update`, `IsLost`, `pipe`); RFC 6582 if the peer sends no
//! SACK. RFC 6675 never detects a lost retransmission; here one is marked lost once a segment sent
//! later, by more than a quarter of the minimum round-trip time, has arrived.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use skybraid_units::{Duration, Instant, Promised};

use crate::PathSet;
use crate::congestion::RateSample;
use crate::segment::Sacks;
use crate::tcp::rack::{Rack, SegmentDelivery};
use crate::tcp::rate::RateSampler;

mod detection;

/// Loss detection algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LossDetection {
    /// By time, with tail loss probes (RFC 8985).
    #[default]
    Rack,
    /// By counting selective acknowledgements (RFC 6675).
    Sack,
    /// By counting selective acknowledgements, as ns-3 did at least until 2020: a recovery begins with the third
    /// acknowledgement with news of segments out of order since the cumulative one advanced, other lost segments are
    /// retransmitted without one, and a partial acknowledgement repeats a retransmission that it does not cover.
    Ns3,
    /// By counting duplicate acknowledgements; the peer sends no SACK (RFC 6582).
    NewReno,
}

/// An acknowledgement, and the state of the subflow that its processing needs.
#[derive(Clone, Copy, Debug)]
pub struct Acknowledgement<'a> {
    /// Time of arrival.
    pub now: Instant,
    /// Next sequence number expected by the peer.
    pub ack: u64,
    /// Selective acknowledgements.
    pub sacks: &'a Sacks,
    /// Timestamp echoed by the peer.
    pub echo: Instant,
    /// True if a repetition counts as a duplicate acknowledgement: it carries no address or closing
    /// signal (RFC 8684 §3.4.1).
    pub may_be_duplicate: bool,
    /// True during a recovery.
    pub recovering: bool,
    /// Smoothed round-trip time.
    pub srtt: Duration,
}

/// A range of stream bytes that is always sent as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Data sequence number of the first byte.
    pub dsn: u64,
    /// Length in bytes.
    pub len: u32,
    /// Number of the first message that ends in the chunk.
    pub first_message: u32,
    /// Number of messages that end in the chunk.
    pub messages: u16,
    /// Stream of these messages.
    pub stream: u8,
    /// True if bytes of another message follow the last message that ends in the chunk.
    pub tail: bool,
    /// Subflows that have carried the chunk or have it queued.
    pub carried_by: PathSet,
}

impl Chunk {
    /// Data sequence number after the last byte.
    pub const fn end(&self) -> u64 {
        self.dsn + self.len as u64
    }
}

/// A sent segment.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// Subflow sequence number of the first byte.
    pub seq: u64,
    /// Chunk of the segment.
    pub chunk: Chunk,
    /// Time of the last transmission.
    pub at: Instant,
    state: State,
    retransmitted: bool,
    /// True if sent three times or more.
    repeatedly: bool,
}

// A cache line holds one.
const _: () = assert!(size_of::<Sent>() <= 64);

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

    /// True if it is in flight for the first time.
    fn was_sent_once(&self) -> bool {
        !self.retransmitted && self.state == State::InFlight
    }
}

/// Number of segments acknowledged above a segment after which it counts as lost (`DupThresh` of
/// RFC 6675).
pub const DUPLICATE_THRESHOLD: u32 = 3;

/// Result of an acknowledgement.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// Bytes acknowledged for the first time, cumulatively or selectively.
    pub delivered: u64,
    /// Bytes by which the cumulative acknowledgement advanced.
    pub advanced: u64,
    /// Round-trip time of the earliest newly acknowledged segment that was sent once.
    pub rtt: Option<Duration>,
    /// Round-trip time of the latest newly acknowledged segment that was sent once.
    pub latest_rtt: Option<Duration>,
    /// True if the oldest segment was retransmitted once and the acknowledgement is for the
    /// original (RFC 3522).
    pub original_arrived: bool,
    /// True if at least one segment was newly marked lost.
    pub found_loss: bool,
    /// Bytes newly marked lost.
    pub lost: u64,
    /// Delivery rate sample.
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
    /// Loss detection is complete for all segments below this that are not selectively
    /// acknowledged.
    judged: u64,
    highest_sacked: u64,
    /// There since the first SACK block or retransmission.
    repairs: Option<Box<Repairs>>,
    /// First entry that may need retransmission, as an index into `sent`.
    cursor: usize,
    duplicate_acks: u32,
    segment: u64,
    /// Time of sending of the most recently sent segment that has arrived.
    newest_arrived: Instant,
    min_rtt: Duration,
    detection: LossDetection,
    rack: Rack,
    sacked_segments: u32,
    /// Next instant at which RACK must detect losses.
    detect_at: Instant,
    /// Bytes that duplicate acknowledgements removed from `pipe` before the cumulative
    /// acknowledgement.
    inflation: u64,
}

/// Segments that arrived out of order, or were retransmitted.
#[derive(Debug, Default)]
struct Repairs {
    /// SACK blocks of the last acknowledgement, to skip what is known.
    known: Sacks,
    known_ack: u64,
    /// Retransmitted segments in the order of their retransmission.
    resent: VecDeque<(Instant, u64)>,
}

impl Scoreboard {
    /// Creates an empty scoreboard, which samples delivery rates if `rates` is true. `segment` is the maximum payload
    /// of a segment in bytes.
    pub fn new(segment: u64, detection: LossDetection, rates: bool) -> Self {
        Self {
            sent: VecDeque::new(),
            una: 0,
            next: 0,
            pipe: 0,
            lost: 0,
            losses: 0,
            lost_bytes: 0,
            rate: RateSampler::new(rates),
            judged: 0,
            highest_sacked: 0,
            repairs: None,
            cursor: 0,
            duplicate_acks: 0,
            segment: segment.max(1),
            newest_arrived: Instant::ZERO,
            min_rtt: Duration::MAX,
            detection,
            rack: Rack::default(),
            sacked_segments: 0,
            detect_at: Instant::FAR_FUTURE,
            inflation: 0,
        }
    }

    /// Oldest unacknowledged sequence number (SND.UNA).
    pub const fn una(&self) -> u64 {
        self.una
    }

    /// Next sequence number to send (SND.NXT).
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// Bytes in flight (`pipe` of RFC 6675): not acknowledged, and not marked lost since the last
    /// transmission.
    pub const fn in_flight(&self) -> u64 {
        self.pipe
    }

    /// True if a segment is acknowledged out of order.
    pub const fn has_sacked(&self) -> bool {
        self.sacked_segments > 0
    }

    /// True if all sent data is acknowledged.
    pub fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    /// Bytes marked lost and not yet retransmitted.
    pub const fn lost(&self) -> u64 {
        self.lost
    }

    /// Segments marked lost since the start; a segment counts once per loss.
    pub const fn losses(&self) -> u64 {
        self.losses
    }

    /// Bytes acknowledged since the start.
    pub const fn delivered(&self) -> u64 {
        self.rate.delivered()
    }

    /// Marks the flow as application-limited: the window is open but there is nothing to send.
    pub fn note_app_limited(&mut self) {
        self.rate.note_app_limited(self.pipe);
    }

    /// True if segments sent now count as application-limited.
    pub const fn is_app_limited(&self) -> bool {
        self.rate.is_app_limited()
    }

    /// Returns the chunks not cumulatively acknowledged, oldest first. They include those
    /// acknowledged selectively: after a hole, they have not reached the connection (RFC 8684
    /// §3.3.6).
    pub fn outstanding(&self) -> impl Iterator<Item = Chunk> + '_ {
        self.sent.iter().map(|sent| sent.chunk)
    }

    /// Records the transmission of new data. Returns its sequence number.
    pub fn on_sent(&mut self, now: Instant, chunk: Chunk) -> u64 {
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
        });
        self.rate.on_sent(self.pipe, self.lost_bytes);
        seq
    }

    /// Returns the oldest lost segment that has not been retransmitted.
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

    /// Records the retransmission of the segment of [`next_lost`](Self::next_lost).
    #[cold]
    pub fn on_retransmitted(&mut self, now: Instant) {
        let sent = self.sent.get_mut(self.cursor).filter(|sent| sent.state == State::Lost);
        let Some(sent) = sent.promised("a lost segment at the cursor") else { return };
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
        self.rate.on_resent(self.cursor, self.pipe, self.lost_bytes);
        self.repairs.get_or_insert_default().resent.push_back((now, sent.seq));
        self.cursor += 1;
    }

    /// Processes an acknowledgement.
    pub fn acknowledge(&mut self, acked: &Acknowledgement<'_>) -> Progress {
        let mut progress = Progress::default();
        if acked.ack > self.next {
            return progress;
        }
        let before = self.una;
        let lost_before = self.lost_bytes;
        self.take_cumulative(acked, &mut progress);
        match self.detection {
            LossDetection::NewReno => {
                self.count_duplicates(acked.ack == before && acked.may_be_duplicate, &mut progress);
            }
            LossDetection::Sack => {
                self.take_sacks(acked, &mut progress);
                progress.found_loss = self.detect_by_sacks();
                self.detect_lost_retransmissions();
            }
            LossDetection::Ns3 => {
                let sacked_before = self.sacked_segments;
                self.take_sacks(acked, &mut progress);
                self.detect_by_sacks();
                let has_news = self.sacked_segments > sacked_before;
                progress.found_loss =
                    self.count_news(has_news, acked.recovering, progress.advanced);
            }
            LossDetection::Rack => {
                if acked.sacks.duplicate(acked.ack).is_some() {
                    self.rack.on_duplicate(self.una, self.next);
                }
                self.take_sacks(acked, &mut progress);
                if self.is_in_order() {
                    self.detect_at = Instant::FAR_FUTURE;
                } else {
                    let Acknowledgement { now, recovering, srtt, .. } = *acked;
                    progress.found_loss = self.detect_by_time(now, recovering, srtt);
                }
            }
        }
        progress.lost = self.lost_bytes - lost_before;
        progress.rate = self.rate.sample(self.min_rtt, self.lost_bytes);
        progress
    }

    /// Marks a segment lost unless it has arrived or is marked already. Returns true if newly
    /// marked.
    #[cold]
    fn mark_lost(&mut self, index: usize) -> bool {
        let sent = self.sent.get_mut(index).promised("a sent segment");
        let Some(sent) = sent else { return false };
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

    /// Retransmits the newest segment as a tail loss probe, lost or not.
    #[cold]
    pub fn resend_newest(&mut self, now: Instant) -> Option<(u64, Chunk)> {
        let last = self.sent.len().checked_sub(1)?;
        self.mark_lost(last);
        self.cursor = last;
        let (seq, chunk) = self.next_lost()?;
        self.losses -= 1;
        self.lost_bytes -= u64::from(chunk.len);
        self.on_retransmitted(now);
        Some((seq, chunk))
    }

    fn take_cumulative(&mut self, acked: &Acknowledgement<'_>, progress: &mut Progress) {
        let (mut removed, more) = self.take_in_order(acked, progress);
        if more {
            removed += self.take_repaired(acked, removed, progress);
        }
        self.rate.on_removed(removed);
        self.cursor = self.cursor.saturating_sub(removed);
        self.una += progress.advanced;
        if self.sent.is_empty() {
            self.pipe = 0;
        }
    }

    /// Removes the acknowledged segments before the first one that was retransmitted, marked lost or acknowledged
    /// selectively. They were sent in this order, so the first and the last one alone are measured. Returns their
    /// number, and whether the next segment is acknowledged as well.
    #[inline]
    fn take_in_order(
        &mut self,
        acked: &Acknowledgement<'_>,
        progress: &mut Progress,
    ) -> (usize, bool) {
        let Some(first) = self.sent.front() else { return (0, false) };
        let (start, first_end, first_at) = (first.seq, first.end(), first.at);
        let (mut at, mut end, mut removed) = (first_at, first_end, 0);
        let more = loop {
            let Some(sent) = self.sent.front().filter(|sent| sent.end() <= acked.ack) else {
                break false;
            };
            if !sent.was_sent_once() {
                break true;
            }
            (at, end) = (sent.at, sent.end());
            self.rate.on_delivered(acked.now, removed, u64::from(sent.chunk.len), at);
            self.sent.pop_front();
            removed += 1;
        };
        if removed > 0 {
            let (bytes, rtt) = (end - start, acked.now.since(at));
            self.pipe = self.pipe.saturating_sub(bytes);
            if self.detection == LossDetection::Rack {
                self.rack.on_delivered_in_order(rtt, first_end, (at, end));
            }
            self.min_rtt = self.min_rtt.min(rtt);
            self.newest_arrived = self.newest_arrived.max(at);
            progress.delivered = bytes;
            progress.advanced = bytes;
            progress.rtt = Some(acked.now.since(first_at));
            progress.latest_rtt = Some(rtt);
        }
        (removed, more)
    }

    /// Removes the acknowledged segments from one on that was retransmitted, marked lost or acknowledged selectively;
    /// `before` others were removed. Returns their number.
    #[cold]
    fn take_repaired(
        &mut self,
        acked: &Acknowledgement<'_>,
        before: usize,
        progress: &mut Progress,
    ) -> usize {
        let (mut covers_resent, mut removed) = (false, 0);
        while self.sent.front().is_some_and(|sent| sent.end() <= acked.ack)
            && let Some(sent) = self.sent.pop_front()
        {
            let len = u64::from(sent.chunk.len);
            match sent.state {
                State::InFlight => self.pipe = self.pipe.saturating_sub(len),
                State::Lost => self.lost -= len,
                State::Sacked => self.sacked_segments -= 1,
            }
            if progress.advanced == 0 {
                progress.original_arrived =
                    sent.retransmitted && !sent.repeatedly && acked.echo < sent.at;
            }
            covers_resent |= sent.retransmitted;
            if sent.state != State::Sacked {
                self.on_delivered(acked, before + removed, &sent, progress);
            }
            progress.advanced += len;
            removed += 1;
        }
        if covers_resent {
            // Segments after the hole may have arrived long ago with their acknowledgements lost:
            // no sample (Karn's algorithm; Linux's FLAG_RETRANS_DATA_ACKED).
            progress.rtt = None;
            progress.latest_rtt = None;
        }
        removed
    }

    /// Records the delivery of `sent`, which was sent as number `index` of the segments that are known.
    fn on_delivered(
        &mut self,
        acked: &Acknowledgement<'_>,
        index: usize,
        sent: &Sent,
        progress: &mut Progress,
    ) {
        let now = acked.now;
        progress.delivered += u64::from(sent.chunk.len);
        self.rate.on_delivered(now, index, u64::from(sent.chunk.len), sent.at);
        if self.detection == LossDetection::Rack {
            let delivery = SegmentDelivery {
                sent_at: sent.at,
                end: sent.end(),
                retransmitted: sent.retransmitted,
                echo: acked.echo,
            };
            self.rack.on_delivered(now, &delivery);
        }
        let rtt = now.since(sent.at);
        if !sent.retransmitted {
            progress.rtt = progress.rtt.or(Some(rtt));
            progress.latest_rtt = Some(progress.latest_rtt.map_or(rtt, |min| min.min(rtt)));
            self.min_rtt = self.min_rtt.min(rtt);
        } else if rtt < self.min_rtt {
            // Too early for the retransmission: the original has arrived.
            return;
        }
        self.newest_arrived = self.newest_arrived.max(sent.at);
    }

    #[inline]
    fn take_sacks(&mut self, acked: &Acknowledgement<'_>, progress: &mut Progress) {
        if !acked.sacks.is_empty() {
            self.take_blocks(acked, progress);
        } else if let Some(repairs) = &mut self.repairs {
            repairs.known = Sacks::NONE;
        }
    }

    #[cold]
    fn take_blocks(&mut self, acked: &Acknowledgement<'_>, progress: &mut Progress) {
        let mut blocks = [(u64::MAX, 0); 3];
        for (slot, block) in blocks.iter_mut().zip(acked.sacks.iter(acked.ack)) {
            *slot = block;
        }
        blocks.sort_unstable();
        let repairs = self.repairs.get_or_insert_default();
        let known = core::mem::replace(&mut repairs.known, *acked.sacks);
        let known_ack = core::mem::replace(&mut repairs.known_ack, acked.ack);
        for (start, end) in blocks {
            let end = end.min(self.next);
            let mut from = start.max(self.una);
            for (known_start, known_end) in known.iter(known_ack) {
                if known_start <= from && from < known_end {
                    from = known_end;
                }
            }
            if from >= end {
                continue;
            }
            let mut index = self.sent.partition_point(|sent| sent.seq < from);
            while let Some(sent) = self.sent.get_mut(index).filter(|sent| sent.end() <= end) {
                let place = index;
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
                self.on_delivered(acked, place, &arrived, progress);
            }
            self.highest_sacked = self.highest_sacked.max(end);
        }
    }
}

#[cfg(test)]
mod tests;
