//! Record of a flow: statistics always, and a row per message if the table is wanted.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use skybraid_link::Cause;
use skybraid_traffic::video::Frame;
use skybraid_traffic::{VideoConfig, Write};
use skybraid_transport::{Delivered, PathId};
use skybraid_units::{Duration, Instant, Promised};

use crate::ids::{Numbered, RecordId};

use super::misses::{Arrival, Misses};
use super::timeline::Timeline;
use super::{Deadline, Summary, VideoStats};

mod causes;
mod settled;
mod stragglers;

use stragglers::Stragglers;

/// `delivered_ns` of a message that has not been delivered.
const NOT_DELIVERED: i64 = i64::MIN;
/// `delivered_ns` of a message that its sender refused.
const REFUSED: i64 = i64::MIN + 1;
/// `delivered_ns` of a message that its sender dropped after its deadline.
const EXPIRED: i64 = i64::MIN + 2;
/// `lost_effect` of a message without a lost copy.
const NONE_LOST: u8 = u8::MAX;
/// `lost_effect` of a loss whose cause is not known.
const UNKNOWN_EFFECT: u8 = u8::MAX - 1;
/// Binary logarithm of the rows per block. Rows are kept in blocks, so rows never move as memory grows.
const BLOCK_BITS: u32 = 14;
/// Binary logarithm of the rows per block without the table, when blocks are soon dropped.
const SMALL_BLOCK_BITS: u32 = 6;
/// Age at which a message over an unreliable transport counts as lost and its row is dropped, if the table is
/// not kept.
const FORGET_AFTER: Duration = Duration::from_secs(120);
/// Age at which undelivered rows leave their block. Most messages arrive sooner.
const SEPARATE_AFTER: Duration = Duration::from_secs(1);

/// Row of a message.
#[derive(Clone, Copy, Debug)]
pub struct MessageRow {
    sent_ns: i64,
    delivered_ns: i64,
    /// Payload bytes.
    pub bytes: u32,
    /// Head-of-line blocking: time from complete reception to delivery in order, in µs, rounded down.
    pub held_us: u32,
    /// Path that delivered it, in the connection's own numbering; 255 until then.
    pub path: u8,
    /// Copies of its last part that were sent, retransmissions included.
    pub copies_sent: u8,
    /// Copies of its last part that arrived.
    pub copies_arrived: u8,
    /// Copies that the application wrote and the sender has not dropped.
    copies_left: u8,
    /// Path of the first transmission of its last part.
    first_path: u8,
    /// Path of the most recently lost copy, of any of its parts.
    lost_path: u8,
    /// Cause of that loss, as a position in [`Cause::ALL`], or [`NONE_LOST`] or [`UNKNOWN_EFFECT`].
    lost_effect: u8,
    /// Last link of the copy that delivered it, if the arrival was settled.
    last_link: u16,
    /// Time from writing to the first transmission of its last part, in µs, rounded down.
    waited_us: u32,
}

impl MessageRow {
    /// Time at which the application wrote it.
    pub const fn sent(&self) -> Instant {
        Instant::from_nanos(self.sent_ns)
    }

    /// Time of its delivery: complete and, on an ordered transport, in order.
    pub fn delivered(&self) -> Option<Instant> {
        (self.delivered_ns > EXPIRED).then(|| Instant::from_nanos(self.delivered_ns))
    }

    /// Records the transmission of a copy of its last part on `path`.
    #[inline]
    fn on_copy_sent(&mut self, now: Instant, path: PathId) {
        if self.copies_sent == 0 {
            self.first_path = path.0;
            let waited_ns = now.as_nanos() - self.sent_ns;
            if waited_ns > 0 {
                self.waited_us = u32::try_from(waited_ns / 1000).unwrap_or(u32::MAX);
            }
        }
        self.copies_sent = self.copies_sent.saturating_add(1);
    }

    /// Records the delivery. Returns false if it was decided before.
    #[inline]
    fn deliver(&mut self, now: Instant, message: Delivered) -> bool {
        let is_first = self.delivered_ns == NOT_DELIVERED;
        if is_first {
            self.delivered_ns = now.as_nanos();
            self.path = message.path.0;
            if message.held.is_positive() {
                self.held_us = u32::try_from(message.held.as_nanos() / 1000).unwrap_or(u32::MAX);
            }
        }
        is_first
    }

    /// Path and cause of the most recently lost copy, if one was lost.
    fn lost(&self) -> Option<(u8, Option<Cause>)> {
        let known = self.lost_effect != NONE_LOST;
        known.then(|| (self.lost_path, Cause::ALL.get(usize::from(self.lost_effect)).copied()))
    }
}

/// The record of a flow: its statistics, and rows of its messages. A block of rows enters the statistics when it is
/// dropped, or at the end of the run. The fields are laid out in this order, so that what every packet touches is in
/// few cache lines: a fleet has thousands of records.
#[derive(Debug)]
#[repr(C)]
pub struct FlowRecord {
    /// Number of the first message in the first block.
    first: u32,
    next: u32,
    /// Binary logarithm of the rows per block.
    block_bits: u32,
    /// Whether all rows are kept.
    keep: bool,
    reliable: bool,
    /// Number of times that the application writes each message.
    copies: u8,
    /// Shortest deadline; the arrivals of later messages are kept in `late`.
    min_deadline: Duration,
    blocks: VecDeque<Block>,
    end: Instant,
    /// Statistics; complete after [`finish`](Self::finish).
    pub summary: Summary,
    video: Option<Box<VideoStats>>,
    /// Undelivered messages of dropped blocks.
    stragglers: Stragglers,
    /// Memory of dropped blocks, for the next ones.
    spare: Vec<Vec<MessageRow>>,
    /// First arrival after the shortest deadline, of each message that is not delivered, by its number. Most come in
    /// this order, and few at a time: a queue keeps its memory.
    late: VecDeque<(u32, Arrival)>,
    /// Whether a proxy splits the connection.
    proxied: bool,
    /// Whether losses on the links are unobserved.
    links_hidden: bool,
}

#[derive(Debug)]
struct Block {
    rows: Vec<MessageRow>,
    /// Messages delivered or dropped by the sender.
    decided: usize,
    /// Messages dropped by the sender.
    refused: usize,
    /// Time of the last settled arrival.
    settled: Instant,
}

impl Numbered for FlowRecord {
    type Id = RecordId;
    const EXPECTED: &'static str = "a record";
}

impl FlowRecord {
    /// Creates the record of a flow over `paths` paths, at both of its ends, in a run that ends at `end`. `keep` keeps
    /// every row. Over a `reliable` transport a message is late but never lost.
    pub fn new(
        keep: bool,
        reliable: bool,
        end: Instant,
        paths: usize,
        limits: &[Duration],
    ) -> Self {
        let deadlines = limits.iter().map(|limit| Deadline::new(*limit)).collect();
        let min_deadline = limits.iter().min().copied().unwrap_or(Duration::MAX);
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
            stragglers: Stragglers::default(),
            spare: Vec::new(),
            first: 0,
            next: 0,
            keep,
            block_bits: if keep { BLOCK_BITS } else { SMALL_BLOCK_BITS },
            reliable,
            copies: 1,
            end,
            video: None,
            min_deadline,
            late: VecDeque::new(),
            proxied: false,
            links_hidden: false,
        }
    }

    /// Sets the number of paths of the receiver's connection, which proxies make another one than the sender's.
    pub fn with_receiver_paths(mut self, paths: usize) -> Self {
        self.summary.won_by_path.resize(paths, 0);
        self
    }

    /// Sets whether a proxy splits the connection.
    pub fn with_proxy(self, proxied: bool) -> Self {
        Self { proxied, ..self }
    }

    /// Marks the links as unobserved: a loss is known only by what does not arrive.
    pub const fn hide_links(&mut self) {
        self.links_hidden = true;
    }

    /// Sets the number of times that the application writes each message, at least 1. The copies count as one
    /// message.
    pub fn with_copies(self, copies: u8) -> Self {
        Self { copies: copies.max(1), ..self }
    }

    /// Counts the messages as packets of `video`, whose frames are judged by `limits`.
    pub fn with_video(self, video: Option<&VideoConfig>, limits: &[Duration]) -> Self {
        Self { video: video.map(|video| Box::new(VideoStats::new(video, limits))), ..self }
    }

    /// Sets whether delays are also counted over time, for requirements on percentiles.
    pub fn with_percentiles(mut self, wanted: bool) -> Self {
        self.summary.delays_over_time = wanted.then(Timeline::default);
        self
    }

    /// Number of the next message.
    pub const fn next_id(&self) -> u32 {
        self.next
    }

    /// Records a message that the application wrote.
    #[inline]
    pub fn on_written(&mut self, now: Instant, written: impl Into<Write>) {
        let Write { bytes, part, copies, .. } = written.into();
        if let (Some(video), Some(part)) = (&mut self.video, part) {
            video.on_written(now, self.next, part, bytes);
        }
        let (block_len, copies) = (self.block_len(), self.copies.max(copies));
        // Built where it is kept.
        let row = || MessageRow {
            sent_ns: now.as_nanos(),
            delivered_ns: NOT_DELIVERED,
            bytes,
            held_us: 0,
            path: u8::MAX,
            copies_sent: 0,
            copies_arrived: 0,
            copies_left: copies,
            first_path: u8::MAX,
            lost_path: u8::MAX,
            lost_effect: NONE_LOST,
            last_link: 0,
            waited_us: 0,
        };
        match self.blocks.back_mut() {
            Some(block) if block.rows.len() < block_len => block.rows.push(row()),
            _ => self.begin_block(now, row()),
        }
        self.next += 1;
    }

    /// Appends a block that begins with `row`, written at `now`.
    #[cold]
    fn begin_block(&mut self, now: Instant, row: MessageRow) {
        if !self.keep {
            self.drop_decided(now);
        }
        let mut rows = self.spare.pop().unwrap_or_else(|| self.new_rows());
        rows.push(row);
        self.blocks.push_back(Block { rows, decided: 0, refused: 0, settled: Instant::ZERO });
    }

    /// Drops blocks whose deadlines are all decided, whenever the run ends. Over an unreliable transport the rows of
    /// undelivered messages are kept apart until they count as lost.
    fn drop_decided(&mut self, now: Instant) {
        self.drop_stragglers(now - FORGET_AFTER);
        let longest = self.summary.deadlines.iter().map(|deadline| deadline.limit).max();
        while let Some(block) = self.blocks.front() {
            let newest = block.rows.last().map_or(now, MessageRow::sent);
            let missing = block.rows.len() - block.decided;
            let waits = missing > 0 && (self.reliable || now.since(newest) < SEPARATE_AFTER);
            let may_change = newest + longest.unwrap_or_default() > now || block.settled > now;
            if waits || may_change {
                break;
            }
            let first = self.first;
            self.first += block.rows.len() as u32;
            let block = self.blocks.pop_front().promised("the block just looked at");
            let Some(Block { mut rows, refused, .. }) = block else { break };
            self.summary.count(&rows, self.end);
            if missing > 0 || refused > 0 {
                let numbered = (first..).zip(&rows);
                for (id, row) in numbered.filter(|(_, row)| row.delivered_ns <= EXPIRED) {
                    self.stragglers.push(id, newest, *row);
                }
            }
            rows.clear();
            self.spare.push(rows);
        }
    }

    /// Counts and drops the stragglers whose block was written before `time`.
    fn drop_stragglers(&mut self, time: Instant) {
        while let Some((id, row)) = self.stragglers.take_before(time) {
            self.summary.lost += u64::from(row.delivered_ns == NOT_DELIVERED);
            self.count_undelivered(id, &row, true);
        }
    }

    /// Allocates the rows of a block. If they are not kept, the first block begins with a few, since many flows write
    /// little.
    fn new_rows(&self) -> Vec<MessageRow> {
        let few = !self.keep && self.next == 0;
        Vec::with_capacity(if few { 4 } else { self.block_len() })
    }

    /// Rows per block.
    const fn block_len(&self) -> usize {
        1 << self.block_bits
    }

    /// Returns the block and the position in it of the row at `offset` from the first row.
    #[inline]
    const fn place(&self, offset: usize) -> (usize, usize) {
        (offset >> self.block_bits, offset & (self.block_len() - 1))
    }

    #[inline]
    fn row(&mut self, id: u32) -> Option<&mut MessageRow> {
        let Some(offset) = id.checked_sub(self.first) else { return self.stragglers.get_mut(id) };
        let (block, place) = self.place(offset as usize);
        self.blocks.get_mut(block)?.rows.get_mut(place)
    }

    /// Returns the block of a message and the position in it, if it is kept.
    #[inline]
    fn block_and_place(&mut self, id: u32) -> Option<(&mut Block, usize)> {
        let (block, place) = self.place(id.checked_sub(self.first)? as usize);
        Some((self.blocks.get_mut(block)?, place))
    }

    /// Returns the row of a message that this run has written; `None` if the row has been dropped.
    #[inline]
    fn written_row(&mut self, id: u32) -> Option<&mut MessageRow> {
        if id < self.first {
            return self.stragglers.get_mut(id);
        }
        self.row(id).promised("the row of a written message")
    }

    /// Size of a message in bytes, at least 1; 1 if its row has been dropped.
    pub fn bytes_of(&self, id: u32) -> u32 {
        let row = id.checked_sub(self.first).and_then(|offset| {
            let (block, place) = self.place(offset as usize);
            self.blocks.get(block)?.rows.get(place)
        });
        row.map_or(1, |row| row.bytes.max(1))
    }

    /// Records the transmission of a copy of the message's last part on `path`.
    #[inline]
    pub fn on_copy_sent(&mut self, now: Instant, id: u32, path: PathId) {
        if let Some(row) = self.written_row(id) {
            row.on_copy_sent(now, path);
        }
    }

    /// Records the arrival of a copy of the message's last part at `now`; `arrival` describes it.
    #[inline]
    pub fn on_copy_arrived(&mut self, now: Instant, id: u32, arrival: impl FnOnce() -> Arrival) {
        let min_deadline = self.min_deadline;
        let Some(row) = self.row(id) else { return };
        row.copies_arrived = row.copies_arrived.saturating_add(1);
        if row.delivered_ns == NOT_DELIVERED && now - row.sent() > min_deadline {
            self.keep_late_arrival(id, &arrival());
        }
    }

    /// Records the arrival of a copy of the message's last part at `now`, with which it is delivered at once.
    #[inline]
    pub fn on_arrived_whole(
        &mut self,
        now: Instant,
        message: Delivered,
        arrival: impl FnOnce() -> Arrival,
    ) {
        if self.video.is_none()
            && let min_deadline = self.min_deadline
            && let Some((block, place)) = self.block_and_place(message.id)
            && let Some(row) = block.rows.get_mut(place)
            && row.delivered_ns == NOT_DELIVERED
            && now - row.sent() <= min_deadline
        {
            block.decided += 1;
            row.copies_arrived = row.copies_arrived.saturating_add(1);
            row.delivered_ns = now.as_nanos();
            row.path = message.path.0;
            return;
        }
        self.on_copy_arrived(now, message.id, arrival);
        self.on_delivered(now, message);
    }

    /// Records that the sender refused a copy of the message. The message is refused when no copy is left.
    pub fn on_refused(&mut self, id: u32) {
        self.on_copy_dropped(id, REFUSED);
    }

    /// Records that the sender dropped a copy of the message at `now`, before all of it was sent. A message that
    /// had waited was dropped after its deadline; one just written was refused by a full queue.
    pub fn on_dropped(&mut self, now: Instant, id: u32) {
        let waited = self.row(id).is_some_and(|row| now > row.sent());
        self.on_copy_dropped(id, if waited { EXPIRED } else { REFUSED });
    }

    fn on_copy_dropped(&mut self, id: u32, mark: i64) {
        let Some(row) = self.row(id) else { return };
        row.copies_left = row.copies_left.saturating_sub(1);
        if row.delivered_ns == NOT_DELIVERED && row.copies_left == 0 {
            row.delivered_ns = mark;
            if let Some((block, _)) = self.block_and_place(id) {
                block.decided += 1;
                block.refused += 1;
            }
            self.summary.lost += 1;
            self.summary.refused += 1;
        }
    }

    /// Records the delivery of a message. Returns the time of its writing, or `None` if its row has been dropped or
    /// it was delivered before.
    #[inline(always)]
    pub fn on_delivered(&mut self, now: Instant, message: Delivered) -> Option<Instant> {
        let Some((block, place)) = self.block_and_place(message.id) else {
            return self.on_straggler_delivered(now, message);
        };
        let row = block.rows.get_mut(place)?;
        if !row.deliver(now, message) {
            return None;
        }
        block.decided += 1;
        let sent = row.sent();
        self.judge_delivery(now, sent, message);
        Some(sent)
    }

    /// Records the delivery of a message whose block has been dropped, if it is still awaited.
    #[cold]
    fn on_straggler_delivered(&mut self, now: Instant, message: Delivered) -> Option<Instant> {
        let row = self.stragglers.get_mut(message.id)?;
        if !row.deliver(now, message) {
            return None;
        }
        let row = *row;
        self.summary.count_delivery(&row, self.end);
        self.judge_delivery(now, row.sent(), message);
        Some(row.sent())
    }

    /// Counts what the statistics of blocks do not: head-of-line blocking, lateness and frames.
    #[inline]
    fn judge_delivery(&mut self, now: Instant, sent: Instant, message: Delivered) {
        let Delivered { id, held, .. } = message;
        self.summary.held.add(held);
        if now - sent > self.min_deadline {
            self.count_late(id, (now, held));
        }
        if self.video.is_some() {
            self.on_part_delivered(now, id);
        }
    }

    /// Records the delivery of a part of a frame.
    #[inline(never)]
    fn on_part_delivered(&mut self, now: Instant, id: u32) {
        let Some(video) = &mut self.video else { return };
        video.on_delivered(now, id);
        if video.has_unexplained() {
            self.explain_frames();
        }
    }

    /// Moves the end of the run forward to `end`: messages due after it are no trials.
    pub fn end_early(&mut self, end: Instant) {
        self.end = self.end.min(end);
    }

    /// Completes the statistics at the end of the run. `in_flight` are the numbers of the messages of which a part
    /// is on a link or waits to be sent, ascending.
    pub fn finish(&mut self, in_flight: &[u32]) {
        let end = self.end;
        if let Some(video) = &mut self.video {
            video.decide_rest(end);
        }
        self.explain_frames();
        self.summary.video = self.video.as_ref().map(|video| Box::new(video.summary(end)));
        let (stragglers, blocks) =
            (core::mem::take(&mut self.stragglers), core::mem::take(&mut self.blocks));
        for block in &blocks {
            self.summary.count(&block.rows, end);
        }
        let kept = (self.first..).zip(blocks.iter().flat_map(|block| &block.rows));
        for (id, row) in stragglers.iter().chain(kept) {
            if row.delivered_ns > EXPIRED {
                continue;
            }
            let undecided = row.delivered_ns == NOT_DELIVERED;
            let coming = undecided
                && (self.reliable
                    || row.copies_arrived > 0
                    || row.copies_sent == 0
                    || in_flight.binary_search(&id).is_ok());
            if coming {
                self.summary.in_flight += 1;
                self.summary.arrivals.at(row.sent()).trials -= 1;
            } else if undecided {
                self.summary.lost += 1;
            }
            self.count_undelivered(id, row, !coming);
        }
        self.blocks = blocks;
    }

    /// Frames of a video that are decided; all frames after [`finish`](Self::finish).
    pub fn frames(&self) -> &[Frame] {
        self.video.as_ref().map_or(&[], |video| &video.frames)
    }

    /// Takes the frames of a video.
    pub fn take_frames(&mut self) -> Vec<Frame> {
        self.video.as_mut().map(|video| core::mem::take(&mut video.frames)).unwrap_or_default()
    }

    /// Rows that are kept, in blocks, in order of message numbers.
    pub fn blocks(&self) -> impl Iterator<Item = &[MessageRow]> {
        self.blocks.iter().map(|block| block.rows.as_slice())
    }

    /// Takes the first block, so that memory shrinks while a table is written.
    pub fn take_block(&mut self) -> Option<Vec<MessageRow>> {
        let block = self.blocks.pop_front()?;
        self.first += block.rows.len() as u32;
        Some(block.rows)
    }

    /// Number of the first message whose row is kept.
    pub const fn first_id(&self) -> u32 {
        self.first
    }
}

#[cfg(test)]
mod tests;
