//! Assignment of chunks to subflows: scheduling, and the reaction to a blocked receive window.
//!
//! Source: RFC 8684 §3.3; Raiciu et al., "How Hard Can It Be?", NSDI 2012 (opportunistic
//! retransmission and penalisation), as in Linux out-of-tree MPTCP, `mptcp_rcv_buf_optimization`.

use skybraid_units::{Bytes, Duration, Instant, Promised};

use super::connection::Connection;
use crate::endpoint::Decision;
use crate::scheduler::{Choice, Reason, Unit};
use crate::tcp::scoreboard::Chunk;
use crate::tcp::subflow::Subflow;
use crate::{Class, PathId, PathSet};

/// Window in segments up to which a slow subflow's chunk is always retransmitted.
const SMALL_WINDOW_SEGMENTS: u64 = 4;
/// Ratio of round-trip times above which the chunk of a slow subflow with a larger window is
/// retransmitted.
const MUCH_SLOWER: i64 = 4;
/// Number of a subflow's oldest segments searched for the chunk that blocks the connection.
const SEARCH_DEPTH: usize = 8;

impl Connection {
    /// Assigns the next chunk to subflows. Returns false if nothing could be assigned.
    pub(super) fn schedule(&mut self, now: Instant) -> bool {
        self.wait_until = Instant::FAR_FUTURE;
        while self.reinject.front().is_some_and(|chunk| chunk.end() <= self.data_una) {
            self.reinject.pop_front();
        }
        let again = self.reinject.front().copied();
        let Some(chunk) = again.or_else(|| self.peek_chunk(now)) else {
            return false;
        };
        let Some(paths) = self.choose(now, &chunk) else {
            return false;
        };
        if again.is_some() {
            self.reinject.pop_front();
        } else {
            self.consume(&chunk);
        }
        let carried_by = paths.iter().fold(chunk.carried_by, PathSet::with);
        for path in paths.iter() {
            let subflow = self.subflows.get_mut(path.index());
            if let Some(subflow) = subflow.promised("the subflow of a view") {
                subflow.assign(Chunk { carried_by, ..chunk });
            }
        }
        true
    }

    fn choose(&mut self, now: Instant, chunk: &Chunk) -> Option<PathSet> {
        if let [only] = self.subflows.as_mut_slice() {
            let choice = if !only.is_established() {
                Choice::wait(Reason::NoPath)
            } else if only.has_room(chunk.len) {
                Choice::Send(PathSet::only(only.id), Reason::OnlyPath)
            } else {
                Choice::wait(Reason::WindowFull)
            };
            if matches!(choice, Choice::Wait { .. }) {
                only.note_limited();
            }
            return self.follow(now, chunk.first_message, choice);
        }
        self.views.clear();
        self.views.extend(self.subflows.iter().map(|subflow| subflow.view(chunk.len)));
        for (subflow, view) in self.subflows.iter_mut().zip(&self.views) {
            // A full window held data back even if another path takes the chunk.
            if !view.has_room {
                subflow.note_limited();
            }
        }
        let head = self.written.front();
        let unit = Unit {
            bytes: Bytes::new(u64::from(chunk.len)),
            class: head.map_or(Class::Data, |message| message.class),
            deadline: head.and_then(|message| message.deadline),
            carried_by: chunk.carried_by,
            backlog: Bytes::new(self.write_end.saturating_sub(chunk.end())),
            window: Bytes::new(self.send_limit.saturating_sub(self.data_una)),
            window_room: Bytes::new(self.send_limit.saturating_sub(chunk.dsn)),
            blocked: self.blocked,
        };
        let choice = self.scheduler.choose(now, &unit, &self.views);
        self.follow(now, chunk.first_message, choice)
    }

    /// Records a decision. Returns the subflows to send on, if any.
    fn follow(&mut self, now: Instant, first_message: u32, choice: Choice) -> Option<PathSet> {
        self.record_decision(now, first_message, choice);
        match choice {
            Choice::Send(paths, _) if !paths.is_empty() => Some(paths),
            Choice::Send(..) => None,
            Choice::Wait { until, .. } => {
                self.wait_until = until.unwrap_or(Instant::FAR_FUTURE);
                None
            }
        }
    }

    fn record_decision(&mut self, at: Instant, first_message: u32, choice: Choice) {
        let Some(decisions) = &mut self.decisions else { return };
        // Schedulers choose subflows; the decisions table shows paths.
        let path_of = |id: PathId| self.subflows.get(id.index()).map_or(id, |subflow| subflow.path);
        let choice = match choice {
            Choice::Send(subflows, reason) => {
                Choice::Send(subflows.iter().map(path_of).collect(), reason)
            }
            Choice::Wait { reason, path, until } => {
                Choice::Wait { reason, path: path.map(path_of), until }
            }
        };
        decisions.push(Decision { at, first_message, choice });
    }

    /// Returns the next chunk of new data, if the peer's window admits it. A chunk holds messages
    /// of one stream with consecutive numbers, so that the receiver can identify them.
    fn peek_chunk(&mut self, now: Instant) -> Option<Chunk> {
        let unsent = self.write_end - self.next_dsn;
        if unsent == 0 {
            return None;
        }
        let first = *self.written.front()?;
        let limit = self.next_dsn + unsent.min(u64::from(self.segment));
        let (mut end, mut messages) = (limit, 0);
        let mut tail = false;
        for (offset, message) in (0..).zip(&self.written) {
            if message.stream != first.stream || message.id != first.id.wrapping_add(offset) {
                break;
            }
            tail = message.end > limit;
            if tail {
                end = limit;
                break;
            }
            end = message.end;
            messages += 1;
            if messages == u32::from(u16::MAX) {
                break;
            }
        }
        let len = end - self.next_dsn;
        // Only a proxy knows a message in part. Its bytes may wait for the following ones while
        // data is outstanding (Nagle's algorithm, RFC 9293 §3.7.4).
        if tail && len < u64::from(self.segment) && self.data_una < self.next_dsn {
            return None;
        }
        if end > self.send_limit {
            self.on_blocked(now, first.id);
            return None;
        }
        Some(Chunk {
            dsn: self.next_dsn,
            len: len as u32,
            first_message: first.id,
            messages: messages as u16,
            stream: first.stream,
            tail,
            carried_by: PathSet::EMPTY,
        })
    }

    fn consume(&mut self, chunk: &Chunk) {
        self.next_dsn = chunk.end();
        while self.written.front().is_some_and(|message| message.end <= self.next_dsn) {
            self.written.pop_front();
        }
    }

    /// Handles a full receive window: starts persist probes, and frees the connection if a subflow
    /// has room.
    fn on_blocked(&mut self, now: Instant, first_message: u32) {
        let established = self.subflows.iter().any(Subflow::is_established);
        if !established {
            return;
        }
        let stalled = self.subflows.iter().all(Subflow::is_idle);
        if stalled && self.persist_at == Instant::FAR_FUTURE {
            self.persist_at = now + self.probe_interval();
        }
        let free = self
            .subflows
            .iter()
            .filter(|subflow| subflow.is_usable() && subflow.has_room(self.segment))
            .min_by_key(|subflow| subflow.srtt_or_max())
            .map(|subflow| subflow.id.index());
        let Some(free) = free else { return };
        if self.blocked_since.is_none() {
            self.blocked_since = Some(now);
            self.blocked += 1;
            self.record_decision(now, first_message, Choice::wait(Reason::PeerWindow));
        }
        if self.subflows.len() > 1 {
            self.relieve(now, free);
        }
    }

    /// Ends the blocking period: the peer's window has opened.
    pub(super) fn unblock(&mut self, now: Instant) {
        if let Some(since) = self.blocked_since.take() {
            self.blocked_time += now.since(since);
        }
    }

    /// Relieves a blocked receive window while subflow `free` has room: penalises the subflow that
    /// carries the oldest unacknowledged chunk, and retransmits the chunk on `free` if that is much
    /// faster.
    fn relieve(&mut self, now: Instant, free: usize) {
        let una = self.data_una;
        let Some(fast) = self.subflows.get(free).promised("the free subflow") else { return };
        let (fast_id, fast_srtt) = (fast.id, fast.srtt_or_max());
        let find = |subflow: &Subflow| {
            subflow
                .outstanding()
                .take(SEARCH_DEPTH)
                .find(|chunk| chunk.dsn <= una && una < chunk.end())
        };
        if find(fast).is_some() {
            return;
        }
        let Some((holder, head)) = self
            .subflows
            .iter()
            .enumerate()
            .filter(|(index, _)| *index != free)
            .find_map(|(index, subflow)| find(subflow).map(|chunk| (index, chunk)))
        else {
            return;
        };
        let slow = self.subflows.get_mut(holder).promised("the blocking subflow");
        let Some(slow) = slow else { return };
        let slow_srtt = slow.srtt_or_max();
        let due = self.penalised_at.is_none_or(|last| now.since(last) >= fast_srtt);
        if self.config.penalisation && fast_srtt < slow_srtt && due {
            slow.penalise();
            self.penalised_at = Some(now);
        }
        let small = slow.window() <= SMALL_WINDOW_SEGMENTS * u64::from(self.segment);
        let much_slower =
            fast_srtt < Duration::MAX && (small || fast_srtt * MUCH_SLOWER < slow_srtt);
        if self.config.opportunistic_retransmission
            && much_slower
            && self.last_opportunistic != Some(head.dsn)
            && !head.carried_by.contains(fast_id)
        {
            self.last_opportunistic = Some(head.dsn);
            self.opportunistic += 1;
            let carried_by = head.carried_by.with(fast_id);
            if let Some(fast) = self.subflows.get_mut(free).promised("the free subflow") {
                fast.assign(Chunk { carried_by, ..head });
            }
        }
    }
}
