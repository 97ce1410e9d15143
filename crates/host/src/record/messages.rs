//! Messages: a row each where the table is wanted, and statistics in any case.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use skybraid_link::Cause;
use skybraid_traffic::video::Frame;
use skybraid_traffic::{VideoConfig, Write};
use skybraid_transport::{ConnectionTotals, Delivered, PathId};
use skybraid_units::{Duration, Instant};

use super::misses::{Arrival, Misses};
use super::timeline::{Tally, Timeline};
use super::{Film, Histogram, VideoSummary};

mod causes;

/// Marks a message that has not arrived.
const NOT_DELIVERED: i64 = i64::MIN;
/// Marks a message that its sender has given up.
const REFUSED: i64 = i64::MIN + 1;
/// Marks a message that its sender has given up because its deadline had passed.
const EXPIRED: i64 = i64::MIN + 2;
/// Marks a message of which no copy was lost.
const NONE_LOST: u8 = u8::MAX;
/// Marks a loss whose effect is not known.
const UNKNOWN_EFFECT: u8 = u8::MAX - 1;
/// Rows are kept in blocks, so that memory grows by blocks and never moves.
const BLOCK_BITS: u32 = 14;
/// … and in smaller ones where they are soon forgotten.
const SMALL_BLOCK_BITS: u32 = 6;
/// Without the table, a message over an unreliable transport that has not arrived by then is
/// forgotten and counts as lost.
const FORGET_AFTER: Duration = Duration::from_secs(120);

/// A message.
#[derive(Clone, Copy, Debug)]
pub struct MessageRow {
    sent_ns: i64,
    delivered_ns: i64,
    /// Payload bytes.
    pub bytes: u32,
    /// How long it lay whole in the receiver's buffer behind something missing, in µs, rounded down.
    pub held_us: u32,
    /// The path that brought it, by the connection's own numbering; 255 while it has not arrived.
    pub path: u8,
    /// Copies of its last part that were sent, retransmissions included.
    pub copies_sent: u8,
    /// Copies of its last part that arrived.
    pub copies_arrived: u8,
    /// How many of those that the application wrote the sender has not given up.
    copies_left: u8,
    /// The path of the first transmission of its last part.
    first_path: u8,
    /// The path of the copy that was lost last, of any of its parts.
    lost_path: u8,
    /// The effect that lost it, as a position in [`Cause::ALL`], or a mark.
    lost_effect: u8,
    /// From writing to the first transmission of its last part, in µs, rounded down.
    waited_us: u32,
}

impl MessageRow {
    /// When the application wrote it.
    pub const fn sent(&self) -> Instant {
        Instant::from_nanos(self.sent_ns)
    }

    /// When it had arrived whole and, where order is kept, in its turn.
    pub fn delivered(&self) -> Option<Instant> {
        (self.delivered_ns > EXPIRED).then(|| Instant::from_nanos(self.delivered_ns))
    }

    /// The path and effect of the copy that was lost last, if one was.
    fn lost(&self) -> Option<(u8, Option<Cause>)> {
        let known = self.lost_effect != NONE_LOST;
        known.then(|| (self.lost_path, Cause::ALL.get(usize::from(self.lost_effect)).copied()))
    }
}

/// What is known of a flow without its messages.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Messages written.
    pub sent: u64,
    /// Messages that have arrived.
    pub delivered: u64,
    /// Messages on their way when the run ended.
    pub in_flight: u64,
    /// Messages that will never arrive.
    pub lost: u64,
    /// Of these, the ones that were not sent for want of room or time.
    pub refused: u64,
    /// Payload bytes of the messages that have arrived.
    pub delivered_bytes: u64,
    /// Messages by the time at which they were written, and those among them that have arrived; those
    /// on their way at the end are left out.
    pub arrivals: Timeline<Tally>,
    /// Payload bytes by the time at which they arrived.
    pub goodput: Timeline<u64>,
    /// One-way delays of the messages that have arrived.
    pub delays: Histogram,
    /// The same by the time at which the messages were written, where a requirement asks for a
    /// percentile.
    pub delays_over_time: Option<Timeline<Histogram, 64>>,
    /// For each deadline: messages whose deadline fell within the run, and how many met it.
    pub deadlines: Vec<Deadline>,
    /// Packets with payload that the links lost, in the order of [`Cause::ALL`].
    pub lost_packets: [u64; Cause::ALL.len()],
    /// Why messages missed their deadlines, or were lost.
    pub misses: Misses,
    /// Packets with payload sent, by path.
    pub packets_by_path: Vec<u64>,
    /// Messages that have arrived, by the path that brought them.
    pub won_by_path: Vec<u64>,
    /// Head-of-line blocking of the messages that have arrived.
    pub held: Held,
    /// What the connection came to, as this flow's sender and receiver saw it.
    pub connection: ConnectionTotals,
    /// What the frames of a video came to.
    pub video: Option<VideoSummary>,
}

/// Head-of-line blocking: messages that lay whole in the receiver's buffer behind something missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// How many did.
    pub messages: u64,
    /// For how long, all together.
    pub total: Duration,
    /// For how long at most.
    pub longest: Duration,
}

impl Held {
    fn add(&mut self, held: Duration) {
        if held.is_positive() {
            self.messages += 1;
            self.total += held;
            self.longest = self.longest.max(held);
        }
    }
}

impl Summary {
    /// Adds the counts of another flow. What is counted over time is added as if both ran at the same
    /// time.
    pub fn merge(&mut self, other: &Self) {
        self.sent += other.sent;
        self.delivered += other.delivered;
        self.in_flight += other.in_flight;
        self.lost += other.lost;
        self.refused += other.refused;
        self.delivered_bytes += other.delivered_bytes;
        self.arrivals.merge(&other.arrivals);
        self.goodput.merge(&other.goodput);
        self.delays.merge(&other.delays);
        if let (Some(delays), Some(more)) = (&mut self.delays_over_time, &other.delays_over_time) {
            delays.merge(more);
        }
        for (deadline, more) in self.deadlines.iter_mut().zip(&other.deadlines) {
            deadline.merge(more);
        }
        let add = |counts: &mut [u64], more: &[u64]| {
            for (count, more) in counts.iter_mut().zip(more) {
                *count += more;
            }
        };
        add(&mut self.lost_packets, &other.lost_packets);
        self.misses.merge(&other.misses);
        add(&mut self.packets_by_path, &other.packets_by_path);
        add(&mut self.won_by_path, &other.won_by_path);
        self.held.messages += other.held.messages;
        self.held.total += other.held.total;
        self.held.longest = self.held.longest.max(other.held.longest);
        self.connection += other.connection;
        if let (Some(video), Some(more)) = (&mut self.video, &other.video) {
            video.merge(more);
        }
    }
}

/// Arrivals judged by one deadline.
#[derive(Clone, Debug)]
pub struct Deadline {
    /// The deadline.
    pub limit: Duration,
    /// Messages whose deadline fell within the run.
    pub trials: u64,
    /// Messages among these that arrived in time.
    pub met: u64,
    /// Both by the time at which the messages were written.
    pub timeline: Timeline<Tally>,
}

impl Deadline {
    /// No message yet.
    pub fn new(limit: Duration) -> Self {
        Self { limit, trials: 0, met: 0, timeline: Timeline::default() }
    }

    /// Counts a message written at `sent` whose deadline falls within the run.
    #[inline]
    pub fn on_due(&mut self, sent: Instant) {
        self.trials += 1;
        self.timeline.at(sent).trials += 1;
    }

    /// Counts such a message as arrived in time.
    #[inline]
    pub fn on_met(&mut self, sent: Instant) {
        self.met += 1;
        self.timeline.at(sent).met += 1;
    }

    /// Takes back a message written at `sent` whose deadline the run no longer reaches.
    fn withdraw(&mut self, sent: Instant, met: bool) {
        let tally = self.timeline.at(sent);
        tally.trials -= 1;
        tally.met -= u32::from(met);
        self.trials -= 1;
        self.met -= u64::from(met);
    }

    /// Adds the counts of another flow in the same run.
    pub fn merge(&mut self, other: &Self) {
        self.trials += other.trials;
        self.met += other.met;
        self.timeline.merge(&other.timeline);
    }
}

/// The messages of a flow.
#[derive(Debug)]
pub struct FlowRecord {
    /// Statistics.
    pub summary: Summary,
    blocks: VecDeque<Block>,
    /// An emptied block, kept for the next one.
    spare: Option<Vec<MessageRow>>,
    /// Number of the first message in the first block.
    first: u32,
    next: u32,
    keep: bool,
    /// The binary logarithm of the rows in a block.
    block_bits: u32,
    reliable: bool,
    /// How many times the application writes each message.
    copies: u8,
    end: Instant,
    film: Option<Film>,
    /// The shortest deadline; messages that arrive later have a history.
    patience: Duration,
    /// First arrivals after the shortest deadline, of messages that are not delivered.
    late: BTreeMap<u32, Arrival>,
    /// A proxy splits the connection.
    proxied: bool,
    /// What happens to packets on the links is not known here.
    blind: bool,
}

#[derive(Debug)]
struct Block {
    rows: Vec<MessageRow>,
    /// Messages delivered or given up.
    decided: usize,
    /// Of these, messages given up.
    refused: usize,
}

impl FlowRecord {
    /// A record of a flow over `paths` paths in a run that ends at `end`. `keep` keeps every row;
    /// `reliable` says that a message never gets lost, only late.
    pub fn new(
        keep: bool,
        reliable: bool,
        end: Instant,
        paths: usize,
        limits: &[Duration],
    ) -> Self {
        let deadlines = limits.iter().map(|limit| Deadline::new(*limit)).collect();
        let patience = limits.iter().min().copied().unwrap_or(Duration::MAX);
        let packets_by_path = alloc::vec![0; paths];
        Self {
            summary: Summary {
                deadlines,
                misses: Misses::of(limits.len()),
                won_by_path: packets_by_path.clone(),
                packets_by_path,
                ..Summary::default()
            },
            blocks: VecDeque::new(),
            spare: None,
            first: 0,
            next: 0,
            keep,
            block_bits: if keep { BLOCK_BITS } else { SMALL_BLOCK_BITS },
            reliable,
            copies: 1,
            end,
            film: None,
            patience,
            late: BTreeMap::new(),
            proxied: false,
            blind: false,
        }
    }

    /// A proxy splits the connection.
    pub fn with_proxy(self, proxied: bool) -> Self {
        Self { proxied, ..self }
    }

    /// What happens to packets on the links is not known here: a loss shows by what does not arrive.
    pub const fn hide_links(&mut self) {
        self.blind = true;
    }

    /// The application writes each message so many times, at least once. It counts as one.
    pub fn with_copies(self, copies: u8) -> Self {
        Self { copies: copies.max(1), ..self }
    }

    /// The messages are packets of this video, whose frames are judged by `limits`.
    pub fn with_video(self, video: Option<&VideoConfig>, limits: &[Duration]) -> Self {
        Self { film: video.map(|video| Film::new(video, limits)), ..self }
    }

    /// Delays are judged by a percentile.
    pub fn with_percentiles(mut self, wanted: bool) -> Self {
        self.summary.delays_over_time = wanted.then(Timeline::default);
        self
    }

    /// Number of the next message.
    pub const fn next_id(&self) -> u32 {
        self.next
    }

    /// A message was written.
    #[inline]
    pub fn written(&mut self, now: Instant, written: impl Into<Write>) {
        let Write { bytes, part, copies, .. } = written.into();
        if let (Some(film), Some(part)) = (&mut self.film, part) {
            film.written(now, self.next, part, bytes);
        }
        if self.blocks.back().is_none_or(|block| block.rows.len() == self.block()) {
            if !self.keep {
                self.forget(now);
            }
            let rows = self.spare.take().unwrap_or_else(|| self.new_rows());
            let block = Block { rows, decided: 0, refused: 0 };
            self.blocks.push_back(block);
        }
        if let Some(block) = self.blocks.back_mut() {
            block.rows.push(MessageRow {
                sent_ns: now.as_nanos(),
                delivered_ns: NOT_DELIVERED,
                bytes,
                held_us: 0,
                path: u8::MAX,
                copies_sent: 0,
                copies_arrived: 0,
                copies_left: self.copies.max(copies),
                first_path: u8::MAX,
                lost_path: u8::MAX,
                lost_effect: NONE_LOST,
                waited_us: 0,
            });
        }
        self.next += 1;
        self.summary.sent += 1;
        self.summary.arrivals.at(now).trials += 1;
        for deadline in &mut self.summary.deadlines {
            if now + deadline.limit <= self.end {
                deadline.on_due(now);
            }
        }
    }

    /// Drops blocks whose messages are all decided, deadlines included, whenever the run may end.
    fn forget(&mut self, now: Instant) {
        let longest = self.summary.deadlines.iter().map(|deadline| deadline.limit).max();
        while let Some(block) = self.blocks.front() {
            let missing = block.rows.len() - block.decided;
            let newest = block.rows.last().map_or(now, MessageRow::sent);
            let given_up = !self.reliable && now.since(newest) > FORGET_AFTER;
            let judged = newest + longest.unwrap_or_default() <= now;
            if !judged || (missing > 0 && !given_up) {
                break;
            }
            self.summary.lost += missing as u64;
            let first = self.first;
            self.first += block.rows.len() as u32;
            let Some(Block { mut rows, refused, .. }) = self.blocks.pop_front() else { break };
            if missing > 0 || refused > 0 {
                for (id, row) in (first..).zip(&rows) {
                    self.count_undelivered(id, row, true);
                }
            }
            rows.clear();
            self.spare = Some(rows);
        }
    }

    /// Room for a block, or for its beginning where it is small: many flows write little.
    fn new_rows(&self) -> Vec<MessageRow> {
        Vec::with_capacity(if self.keep { self.block() } else { 4 })
    }

    /// Rows in a block.
    const fn block(&self) -> usize {
        1 << self.block_bits
    }

    /// The block of a row, and the place in it, by its distance from the first row.
    #[inline]
    const fn place(&self, offset: usize) -> (usize, usize) {
        (offset >> self.block_bits, offset & (self.block() - 1))
    }

    #[inline]
    fn row(&mut self, id: u32) -> Option<&mut MessageRow> {
        let offset = id.checked_sub(self.first)? as usize;
        let (block, place) = self.place(offset);
        self.blocks.get_mut(block)?.rows.get_mut(place)
    }

    /// How long a message is that has not been forgotten, in bytes; at least 1.
    pub fn bytes_of(&self, id: u32) -> u32 {
        let row = id.checked_sub(self.first).and_then(|offset| {
            let (block, place) = self.place(offset as usize);
            self.blocks.get(block)?.rows.get(place)
        });
        row.map_or(1, |row| row.bytes.max(1))
    }

    /// A copy of the message's last part was sent on `path`.
    #[inline]
    pub fn copy_sent(&mut self, now: Instant, id: u32, path: PathId) {
        if let Some(row) = self.row(id) {
            if row.copies_sent == 0 {
                row.first_path = path.0;
                let waited_ns = now.as_nanos() - row.sent_ns;
                if waited_ns > 0 {
                    row.waited_us = u32::try_from(waited_ns / 1000).unwrap_or(u32::MAX);
                }
            }
            row.copies_sent = row.copies_sent.saturating_add(1);
        }
    }

    /// A copy of the message's last part arrived.
    #[inline]
    pub fn copy_arrived(&mut self, id: u32, arrival: &Arrival) {
        let patience = self.patience;
        let Some(row) = self.row(id) else { return };
        row.copies_arrived = row.copies_arrived.saturating_add(1);
        if row.delivered_ns == NOT_DELIVERED && arrival.at - row.sent() > patience {
            self.arrived_late(id, arrival);
        }
    }

    /// The sender has given up one of the message's copies before all of it was sent; the message is
    /// refused when none is left.
    pub fn refused(&mut self, id: u32) {
        self.given_up(id, REFUSED);
    }

    /// As [`refused`](Self::refused), at `now`: a message that has waited was dropped when its deadline had
    /// passed, one that was just written found the queue full.
    pub fn dropped(&mut self, now: Instant, id: u32) {
        let waited = self.row(id).is_some_and(|row| now > row.sent());
        self.given_up(id, if waited { EXPIRED } else { REFUSED });
    }

    fn given_up(&mut self, id: u32, mark: i64) {
        let Some(offset) = id.checked_sub(self.first) else { return };
        let (block, place) = self.place(offset as usize);
        let Some(block) = self.blocks.get_mut(block) else { return };
        let Some(row) = block.rows.get_mut(place) else { return };
        row.copies_left = row.copies_left.saturating_sub(1);
        if row.delivered_ns == NOT_DELIVERED && row.copies_left == 0 {
            row.delivered_ns = mark;
            block.decided += 1;
            block.refused += 1;
            self.summary.lost += 1;
            self.summary.refused += 1;
        }
    }

    /// The message has arrived. Returns when it was sent, unless it is unknown or has arrived before.
    #[inline]
    pub fn delivered(&mut self, now: Instant, message: Delivered) -> Option<Instant> {
        let Delivered { id, path, held, .. } = message;
        let offset = id.checked_sub(self.first)? as usize;
        let (block, place) = self.place(offset);
        let block = self.blocks.get_mut(block)?;
        let row = block.rows.get_mut(place)?;
        if row.delivered_ns != NOT_DELIVERED {
            return None;
        }
        block.decided += 1;
        row.delivered_ns = now.as_nanos();
        row.path = path.0;
        row.held_us = u32::try_from(held.as_nanos() / 1000).unwrap_or(u32::MAX);
        let (sent, bytes) = (row.sent(), row.bytes);
        let delay = now - sent;
        self.summary.delivered += 1;
        self.summary.delivered_bytes += u64::from(bytes);
        self.summary.arrivals.at(sent).met += 1;
        *self.summary.goodput.at(now) += u64::from(bytes);
        self.summary.delays.add(delay);
        if let Some(delays) = &mut self.summary.delays_over_time {
            delays.at(sent).add(delay);
        }
        self.summary.held.add(held);
        if let Some(won) = self.summary.won_by_path.get_mut(path.index()) {
            *won += 1;
        }
        for deadline in &mut self.summary.deadlines {
            if sent + deadline.limit <= self.end && delay <= deadline.limit {
                deadline.on_met(sent);
            }
        }
        if delay > self.patience {
            self.count_late(id, (now, held));
        }
        if let Some(film) = &mut self.film {
            film.arrived(now, id);
            if film.has_unexplained() {
                self.explain_frames();
            }
        }
        Some(sent)
    }

    /// The run ends before its time, at `end`: messages whose deadline lies beyond it are no trials.
    pub fn end_early(&mut self, end: Instant) {
        let rows = self.blocks.iter().flat_map(|block| &block.rows);
        for row in rows {
            for deadline in &mut self.summary.deadlines {
                let due = row.sent() + deadline.limit;
                if end < due && due <= self.end {
                    deadline.withdraw(row.sent(), row.delivered().is_some_and(|at| at <= due));
                }
            }
        }
        self.end = self.end.min(end);
    }

    /// The run has ended. `on_the_way` holds the numbers of messages of which a part is on a link or
    /// waits to be sent, ascending.
    pub fn finish(&mut self, on_the_way: &[u32]) {
        let end = self.end;
        if let Some(film) = &mut self.film {
            film.decide_rest(end);
        }
        self.explain_frames();
        self.summary.video = self.film.as_ref().map(|film| film.summary(end));
        let mut number = self.first;
        let blocks = core::mem::take(&mut self.blocks);
        for block in &blocks {
            for row in &block.rows {
                if row.delivered_ns <= EXPIRED {
                    let undecided = row.delivered_ns == NOT_DELIVERED;
                    let coming = undecided
                        && (self.reliable
                            || row.copies_arrived > 0
                            || row.copies_sent == 0
                            || on_the_way.binary_search(&number).is_ok());
                    if coming {
                        self.summary.in_flight += 1;
                        self.summary.arrivals.at(row.sent()).trials -= 1;
                    } else if undecided {
                        self.summary.lost += 1;
                    }
                    self.count_undelivered(number, row, !coming);
                }
                number += 1;
            }
        }
        self.blocks = blocks;
    }

    /// The frames of a video, once the run has ended.
    pub fn frames(&self) -> &[Frame] {
        self.film.as_ref().map_or(&[], |film| &film.frames)
    }

    /// Takes the frames of a video out.
    pub fn take_frames(&mut self) -> Vec<Frame> {
        self.film.as_mut().map(|film| core::mem::take(&mut film.frames)).unwrap_or_default()
    }

    /// The rows that are kept, by blocks, in order of their numbers.
    pub fn blocks(&self) -> impl Iterator<Item = &[MessageRow]> {
        self.blocks.iter().map(|block| block.rows.as_slice())
    }

    /// Takes the first block out, so that memory shrinks while a table is written.
    pub fn take_block(&mut self) -> Option<Vec<MessageRow>> {
        let block = self.blocks.pop_front()?;
        self.first += block.rows.len() as u32;
        Some(block.rows)
    }

    /// Number of the first message that is kept.
    pub const fn first_id(&self) -> u32 {
        self.first
    }
}

#[cfg(test)]
mod tests;
