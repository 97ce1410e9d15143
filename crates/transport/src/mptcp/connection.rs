//! A connection: messages in, segments out, on one or several subflows.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use skybraid_units::{Bytes, Duration, Instant};

use super::reassembly::Reassembly;
use crate::congestion::{Sibling, Siblings};
use crate::endpoint::{Decision, Role, SubflowSample, Transmit};
use crate::scheduler::{Choice, Reason, Scheduler, Unit};
use crate::segment::{Segment, Tcp};
use crate::tcp::scoreboard::Chunk;
use crate::tcp::subflow::{Event, Stamp, Subflow};
use crate::{Class, Delivered, Message, PathId, PathInfo, PathSet, PathView, TransportConfig};

/// A message that has been written and not yet cut into chunks to its end.
#[derive(Clone, Copy, Debug)]
struct Written {
    /// Data sequence number just behind its last byte.
    end: u64,
    id: u32,
    class: Class,
    deadline: Option<Instant>,
}

/// One end of a TCP or MPTCP connection.
#[derive(Debug)]
pub struct Connection {
    role: Role,
    subflows: Vec<Subflow>,
    scheduler: Box<dyn Scheduler>,
    segment: u32,
    receive_buffer: u64,
    /// Messages whose end has not been cut into a chunk.
    written: VecDeque<Written>,
    write_end: u64,
    next_dsn: u64,
    data_una: u64,
    /// First data sequence number that the peer does not admit.
    send_limit: u64,
    reinject: VecDeque<Chunk>,
    reassembly: Reassembly,
    advertised: u64,
    delivered: VecDeque<Delivered>,
    persist_at: Instant,
    wait_until: Instant,
    views: Vec<PathView>,
    siblings: Vec<Sibling>,
    /// The peer's window keeps back data that a path has room for.
    peer_blocks: bool,
    /// How often that began.
    blocked: u64,
    decisions: Option<Vec<Decision>>,
}

impl Connection {
    /// One end of a connection over `paths` (at least one, at most 64; more are ignored). With one
    /// path it is plain TCP. The client opens it.
    pub fn new(config: &TransportConfig, paths: &[PathInfo], role: Role) -> Self {
        let paths = paths.get(..paths.len().min(PathSet::CAPACITY)).unwrap_or(paths);
        let multipath = config.protocol == crate::Protocol::Mptcp;
        // One segment size for all subflows: a chunk may be sent again on any of them.
        let room =
            paths.iter().map(|path| Subflow::segment_for(path.mtu, multipath)).min().unwrap_or(1);
        let wanted = config.segment.map_or(u64::from(room), Bytes::get).clamp(1, u64::from(room));
        let segment = wanted as u32;
        let mut subflows: Vec<Subflow> = paths
            .iter()
            .enumerate()
            .map(|(index, info)| {
                Subflow::new(config, PathId(index as u8), *info, multipath, segment)
            })
            .collect();
        if role == Role::Client
            && let Some(first) = subflows.first_mut()
        {
            first.open(false);
        }
        let receive_buffer = config.receive_buffer.get();
        Self {
            role,
            subflows,
            scheduler: config.scheduler.build(),
            segment,
            receive_buffer,
            written: VecDeque::new(),
            write_end: 0,
            next_dsn: 0,
            data_una: 0,
            send_limit: 0,
            reinject: VecDeque::new(),
            reassembly: Reassembly::default(),
            advertised: receive_buffer,
            delivered: VecDeque::new(),
            persist_at: Instant::FAR_FUTURE,
            wait_until: Instant::FAR_FUTURE,
            views: Vec::with_capacity(paths.len()),
            siblings: Vec::new(),
            peer_blocks: false,
            blocked: 0,
            decisions: None,
        }
    }

    /// Keeps scheduling decisions for [`take_decisions`](Self::take_decisions).
    pub fn record_decisions(&mut self) {
        self.decisions = Some(Vec::new());
    }

    /// The scheduling decisions since the last call.
    pub fn take_decisions(&mut self) -> impl Iterator<Item = Decision> + '_ {
        self.decisions.iter_mut().flat_map(|decisions| decisions.drain(..))
    }

    /// Writes a message into the stream. It may be sent at once.
    pub fn write(&mut self, message: Message) {
        self.write_end += u64::from(message.bytes.max(1));
        self.written.push_back(Written {
            end: self.write_end,
            id: message.id,
            class: message.class,
            deadline: message.deadline,
        });
    }

    /// Bytes written and not yet acknowledged.
    pub fn unacknowledged(&self) -> Bytes {
        Bytes::new(self.write_end - self.data_una)
    }

    /// The next message that has arrived whole and in order.
    pub fn poll_delivered(&mut self) -> Option<Delivered> {
        self.delivered.pop_front()
    }

    /// Takes a segment that arrived on `path`.
    pub fn receive(&mut self, now: Instant, path: PathId, segment: &Segment, tcp: &Tcp) {
        let own = path.index();
        self.refresh_siblings(own);
        let Some(subflow) = self.subflows.get_mut(own) else {
            return;
        };
        let reassembly = &mut self.reassembly;
        let delivered = &mut self.delivered;
        let siblings = Siblings { all: &self.siblings, own };
        let event = subflow.receive(now, segment, tcp, siblings, &mut |chunk| {
            reassembly.insert(chunk, path, &mut |message| delivered.push_back(message));
        });
        if tcp.data_ack > self.data_una && tcp.data_ack <= self.next_dsn {
            self.data_una = tcp.data_ack;
        }
        if tcp.window_end > self.send_limit {
            self.send_limit = tcp.window_end;
            self.persist_at = Instant::FAR_FUTURE;
        }
        self.handle(event, own);
    }

    fn refresh_siblings(&mut self, own: usize) {
        if self.subflows.get(own).is_some_and(Subflow::is_coupled) {
            self.siblings.clear();
            self.siblings.extend(self.subflows.iter().map(Subflow::sibling));
        }
    }

    fn handle(&mut self, event: Option<Event>, own: usize) {
        match event {
            Some(Event::Established) if self.role == Role::Client => {
                for subflow in &mut self.subflows {
                    subflow.open(true);
                }
            }
            Some(Event::Unanswered) if self.role == Role::Client => {
                // The first path may be down: try to open the connection over the next one.
                let none_yet = !self.subflows.iter().any(Subflow::is_established);
                let next = self.subflows.iter_mut().find(|subflow| subflow.is_closed());
                if let (true, Some(next)) = (none_yet, next) {
                    next.open(false);
                }
            }
            Some(Event::TimedOut) if self.subflows.len() > 1 => self.reinject_from(own),
            _ => {}
        }
    }

    /// Offers what a failed subflow carries to the others, unless one of them carries it already.
    fn reinject_from(&mut self, own: usize) {
        let usable: PathSet =
            self.subflows.iter().filter(|subflow| subflow.is_usable()).map(|it| it.id).collect();
        let Some(subflow) = self.subflows.get_mut(own) else { return };
        let id = subflow.id;
        let waiting: Vec<Chunk> = subflow.take_backlog().collect();
        let needed = |chunk: &Chunk| {
            let carried_elsewhere =
                chunk.carried_by.without(id).iter().any(|it| usable.contains(it));
            chunk.end() > self.data_una && !carried_elsewhere
        };
        let mut chunks: Vec<Chunk> = core::mem::take(&mut self.reinject).into();
        chunks.extend(
            subflow
                .outstanding()
                .chain(waiting)
                .filter(needed)
                .map(|chunk| Chunk { carried_by: chunk.carried_by.with(id), ..chunk }),
        );
        chunks.sort_by_key(|chunk| chunk.dsn);
        chunks.dedup_by_key(|chunk| chunk.dsn);
        self.reinject = chunks.into();
    }

    /// The next segment to leave, with its path.
    pub fn poll_send(&mut self, now: Instant) -> Option<Transmit> {
        loop {
            if self.subflows.iter().any(Subflow::may_send) {
                let stamp = self.stamp();
                for subflow in &mut self.subflows {
                    if let Some(segment) = subflow.poll_send(now, &stamp) {
                        return Some(Transmit { path: subflow.id, segment });
                    }
                }
            }
            if !self.schedule(now) {
                break;
            }
        }
        if self.subflows.iter().any(Subflow::owes_ack) {
            let stamp = self.stamp();
            for subflow in &mut self.subflows {
                if let Some(segment) = subflow.poll_ack(now, &stamp) {
                    return Some(Transmit { path: subflow.id, segment });
                }
            }
        }
        None
    }

    fn stamp(&mut self) -> Stamp {
        let held: u64 =
            self.reassembly.held() + self.subflows.iter().map(Subflow::held).sum::<u64>();
        let free = self.receive_buffer.saturating_sub(held);
        // The right edge of the window never moves left (RFC 8684 §3.3.4).
        self.advertised = self.advertised.max(self.reassembly.next() + free);
        Stamp {
            data_ack: self.reassembly.next(),
            window_end: self.advertised,
            data_una: self.data_una,
        }
    }

    /// Assigns the next chunk to subflows. False when nothing could be assigned.
    fn schedule(&mut self, now: Instant) -> bool {
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
            if let Some(subflow) = self.subflows.get_mut(path.index()) {
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
            // A full window held data back even where another path takes it.
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
            window_room: Bytes::new(self.send_limit.saturating_sub(chunk.dsn)),
            blocked: self.blocked,
        };
        let choice = self.scheduler.choose(now, &unit, &self.views);
        self.follow(now, chunk.first_message, choice)
    }

    /// Notes a decision and gives the paths to send on, if any.
    fn follow(&mut self, now: Instant, first_message: u32, choice: Choice) -> Option<PathSet> {
        if let Some(decisions) = &mut self.decisions {
            decisions.push(Decision { at: now, first_message, choice });
        }
        match choice {
            Choice::Send(paths, _) if !paths.is_empty() => Some(paths),
            Choice::Send(..) => None,
            Choice::Wait { until, .. } => {
                self.wait_until = until.unwrap_or(Instant::FAR_FUTURE);
                None
            }
        }
    }

    /// The next chunk of data that has never been sent, if the peer's window admits it.
    fn peek_chunk(&mut self, now: Instant) -> Option<Chunk> {
        let unsent = self.write_end - self.next_dsn;
        if unsent == 0 {
            return None;
        }
        let len = unsent.min(u64::from(self.segment));
        if self.next_dsn + len > self.send_limit {
            let stalled = self.subflows.iter().any(Subflow::is_established)
                && self.subflows.iter().all(Subflow::is_idle);
            if stalled && self.persist_at == Instant::FAR_FUTURE {
                self.persist_at = now + self.probe_interval();
            }
            self.note_blocked(now, len as u32);
            return None;
        }
        self.peer_blocks = false;
        let end = self.next_dsn + len;
        let first_message = self.written.front().map_or(0, |message| message.id);
        let messages = self.written.iter().take_while(|message| message.end <= end).count();
        Some(Chunk {
            dsn: self.next_dsn,
            len: len as u32,
            first_message,
            messages: messages.min(usize::from(u16::MAX)) as u16,
            carried_by: PathSet::EMPTY,
        })
    }

    /// The peer's window does not admit the next `len` bytes.
    fn note_blocked(&mut self, now: Instant, len: u32) {
        let has_room = |subflow: &Subflow| subflow.is_usable() && subflow.has_room(len);
        if self.peer_blocks || !self.subflows.iter().any(has_room) {
            return;
        }
        self.peer_blocks = true;
        self.blocked += 1;
        let first_message = self.written.front().map_or(0, |message| message.id);
        let choice = Choice::wait(Reason::PeerWindow);
        if let Some(decisions) = &mut self.decisions {
            decisions.push(Decision { at: now, first_message, choice });
        }
    }

    fn consume(&mut self, chunk: &Chunk) {
        self.next_dsn = chunk.end();
        while self.written.front().is_some_and(|message| message.end <= self.next_dsn) {
            self.written.pop_front();
        }
    }

    fn probe_interval(&self) -> Duration {
        self.subflows
            .iter()
            .filter(|subflow| subflow.is_established())
            .map(|subflow| subflow.rtt().timeout())
            .min()
            .unwrap_or(Duration::from_secs(1))
    }

    /// The earliest instant at which [`wake`](Self::wake) has something to do.
    pub fn next_wakeup(&self) -> Instant {
        self.subflows
            .iter()
            .map(Subflow::next_wakeup)
            .fold(self.persist_at.min(self.wait_until), Instant::min)
    }

    /// Lets timers expire.
    pub fn wake(&mut self, now: Instant) {
        for own in 0..self.subflows.len() {
            self.refresh_siblings(own);
            let siblings = Siblings { all: &self.siblings, own };
            let event = self.subflows.get_mut(own).and_then(|subflow| subflow.wake(now, siblings));
            self.handle(event, own);
        }
        if self.persist_at <= now {
            self.persist_at = now + self.probe_interval();
            if let Some(subflow) = self.subflows.iter_mut().find(|subflow| subflow.is_usable()) {
                subflow.probe();
            }
        }
    }

    /// How the subflows stand.
    pub fn samples(&self) -> impl Iterator<Item = SubflowSample> + '_ {
        self.subflows.iter().map(|subflow| SubflowSample {
            path: subflow.id,
            window: subflow.control().window(),
            threshold: subflow.control().slow_start_threshold(),
            pacing: subflow.control().pacing_rate(),
            srtt: subflow.rtt().srtt(),
            in_flight: Bytes::new(subflow.in_flight()),
            totals: subflow.totals(),
        })
    }
}
