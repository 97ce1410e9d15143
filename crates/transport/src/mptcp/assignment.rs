//! Assignment of chunks to subflows by a scheduler.

use alloc::boxed::Box;
use alloc::vec::Vec;

use skybraid_units::Instant;

use super::peer_window::PeerWindow;
use super::send::{Next, SendSide};
use super::subflows::Subflows;
use super::walk::{Step, Walks};
use crate::endpoint::Decision;
use crate::scheduler::{Choice, Reason, Scheduler};
use crate::tcp::scoreboard::Chunk;
use crate::tcp::subflow::Subflow;
use crate::{PathId, PathSet, PathView, SubflowId};

/// Result of an assignment.
#[derive(Debug)]
pub enum Assigned {
    /// Nothing could be assigned.
    Nothing,
    /// No subflow has room, and the scheduler waits until one has.
    Full,
    /// Chunks were queued on subflows.
    Queued,
    /// The chunk is to be sent on the subflow at once.
    AtOnce(SubflowId, Chunk),
}

/// Scheduler of a connection, with its recorded decisions and the subflows that go their own way.
#[derive(Debug)]
pub struct Assignment {
    scheduler: Box<dyn Scheduler>,
    /// See [`Scheduler::waits_for_room`].
    waits_for_room: bool,
    /// Time until which the scheduler wants to wait.
    wait_until: Instant,
    walks: Option<Box<Walks>>,
    /// There since the peer's window first blocked.
    peer_window: Option<Box<PeerWindow>>,
    views: Vec<PathView>,
    decisions: Option<Vec<Decision>>,
}

impl Assignment {
    /// Creates the assignment of a connection. With `walks`, its subflows go through the send queue by themselves.
    pub fn new(scheduler: Box<dyn Scheduler>, walks: Option<Walks>) -> Self {
        Self {
            waits_for_room: scheduler.waits_for_room(),
            scheduler,
            wait_until: Instant::FAR_FUTURE,
            walks: walks.map(Box::new),
            peer_window: None,
            views: Vec::new(),
            decisions: None,
        }
    }

    /// Starts recording decisions.
    pub fn record_decisions(&mut self) {
        self.decisions = Some(Vec::new());
    }

    /// Takes the decisions since the last call.
    pub fn take_decisions(&mut self) -> impl Iterator<Item = Decision> + '_ {
        self.decisions.iter_mut().flat_map(|decisions| decisions.drain(..))
    }

    /// Peer's window, for its counts, if it has blocked.
    pub fn peer_window(&self) -> Option<&PeerWindow> {
        self.peer_window.as_deref()
    }

    /// True if the subflows go through the send queue by themselves.
    #[inline]
    pub const fn walks(&self) -> bool {
        self.walks.is_some()
    }

    /// Records that there is nothing to assign.
    #[inline]
    pub const fn on_idle(&mut self) {
        self.wait_until = Instant::FAR_FUTURE;
    }

    /// Records that the peer's window has opened.
    #[inline]
    pub fn on_opened(&mut self, now: Instant) {
        if let Some(peer_window) = &mut self.peer_window {
            peer_window.on_opened(now);
        }
    }

    /// Time until which the scheduler wants to wait, or of the next probe of the peer's window;
    /// [`Instant::FAR_FUTURE`] if for an event.
    #[inline]
    pub fn next_wakeup(&self) -> Instant {
        match &self.peer_window {
            Some(peer_window) => self.wait_until.min(peer_window.next_wakeup()),
            None => self.wait_until,
        }
    }

    /// Fires expired timers.
    #[inline]
    pub fn wake(&mut self, now: Instant, subflows: &mut Subflows) {
        if let Some(peer_window) = &mut self.peer_window {
            peer_window.wake(now, subflows);
        }
    }

    /// Returns the subflows that have carried `chunk`.
    pub fn carried_by(&self, chunk: &Chunk) -> PathSet {
        self.walks.as_ref().map_or(chunk.carried_by, |walks| walks.carried_by(chunk))
    }

    /// Assigns the next chunk to subflows.
    #[inline]
    pub fn assign_next(
        &mut self,
        now: Instant,
        send: &mut SendSide,
        subflows: &mut Subflows,
    ) -> Assigned {
        self.wait_until = Instant::FAR_FUTURE;
        let next = send.next();
        if self.walks.is_some() && !matches!(next, Next::Chunk { again: true, .. }) {
            return self.walk(now, &next, send, subflows);
        }
        let (chunk, again) = match next {
            Next::Chunk { chunk, again } => (chunk, again),
            Next::Nothing => return Assigned::Nothing,
            Next::Blocked(message) => {
                self.on_blocked(now, message, send, subflows);
                return Assigned::Nothing;
            }
        };
        if self.decisions.is_none()
            && let [only] = subflows.all_mut()
            && only.is_established()
        {
            return assign_only(only, &chunk, again, send);
        }
        let chosen = match self.choose(now, &chunk, send, subflows) {
            Ok(chosen) => chosen,
            Err(waits) => return waits,
        };
        send.advance(&chunk, again);
        let chunk = Chunk { carried_by: chunk.carried_by.and(chosen), ..chunk };
        if chosen.len() == 1
            && let Some(path) = chosen.first()
        {
            return assign(&mut subflows[SubflowId::from_path(path)], chunk);
        }
        for path in chosen.iter() {
            subflows[SubflowId::from_path(path)].assign(chunk);
        }
        Assigned::Queued
    }

    #[cold]
    fn on_blocked(&mut self, now: Instant, message: u32, send: &SendSide, subflows: &mut Subflows) {
        // Only the default scheduler of out-of-tree MPTCP relieves a blocked window.
        let relieves = self.walks.is_none();
        let peer_window = self.peer_window.get_or_insert_default();
        if peer_window.on_blocked(now, relieves, send, subflows) {
            self.record(now, message, Choice::wait(Reason::PeerWindow), subflows);
        }
    }

    /// Assigns the next chunk to the subflow whose turn it is.
    fn walk(
        &mut self,
        now: Instant,
        next: &Next,
        send: &mut SendSide,
        subflows: &mut Subflows,
    ) -> Assigned {
        let Some(walks) = &mut self.walks else { return Assigned::Nothing };
        let has_unsent = send.has_unsent();
        let step = walks.next(send.data_una(), has_unsent, send.segment(), subflows.all());
        let (id, chunk) = match (step, next) {
            (Some(Step::Copy(id, chunk)), _) => (id, chunk),
            (Some(Step::New(id)), Next::Chunk { chunk, .. }) => {
                send.advance(chunk, false);
                (id, *chunk)
            }
            (_, Next::Blocked(message)) => {
                self.on_blocked(now, *message, send, subflows);
                return Assigned::Nothing;
            }
            _ => {
                if has_unsent {
                    subflows.all_mut().iter_mut().for_each(Subflow::note_limited);
                }
                return Assigned::Nothing;
            }
        };
        let chunk = walks.on_taken(id, &chunk);
        let choice = Choice::Send(PathSet::only(id.as_path()), Reason::EveryPath);
        self.record(now, chunk.first_message, choice, subflows);
        assign(&mut subflows[id], chunk)
    }

    /// Chooses the subflows for `chunk`.
    ///
    /// # Errors
    /// The chunk waits: [`Assigned::Nothing`] or [`Assigned::Full`].
    #[inline]
    fn choose(
        &mut self,
        now: Instant,
        chunk: &Chunk,
        send: &SendSide,
        subflows: &mut Subflows,
    ) -> Result<PathSet, Assigned> {
        let choice = match subflows.all_mut() {
            [only] => choose_only(only, chunk.len),
            all => {
                let any_has_room = self.look_at(all, chunk.len);
                if !any_has_room && self.waits_for_room && self.decisions.is_none() {
                    return Err(Assigned::Full);
                }
                let peer_window = self.peer_window.as_ref();
                let unit = send.unit(chunk, peer_window.map_or(0, |window| window.times()));
                self.scheduler.choose(now, &unit, &self.views)
            }
        };
        if self.decisions.is_some() {
            self.record(now, chunk.first_message, choice, subflows);
        }
        match choice {
            Choice::Send(paths, _) if !paths.is_empty() => Ok(paths),
            Choice::Send(..) => Err(Assigned::Nothing),
            Choice::Wait { until, .. } => {
                self.wait_until = until.unwrap_or(Instant::FAR_FUTURE);
                Err(Assigned::Nothing)
            }
        }
    }

    /// Collects what the scheduler sees of `all` subflows. Returns whether one has room for `len` bytes.
    #[inline]
    fn look_at(&mut self, all: &mut [Subflow], len: u32) -> bool {
        let mut any_has_room = false;
        self.views.clear();
        self.views.extend(all.iter_mut().map(|subflow| {
            let has_room = subflow.has_room(len);
            // A full window holds data back even if another path takes it.
            if !has_room {
                subflow.note_limited();
            }
            any_has_room |= has_room;
            subflow.view(has_room)
        }));
        any_has_room
    }

    /// Records a decision, if that is wanted.
    #[cold]
    fn record(&mut self, at: Instant, first_message: u32, choice: Choice, subflows: &Subflows) {
        let Some(decisions) = &mut self.decisions else { return };
        // Schedulers choose subflows; the decisions table shows paths.
        let path_of = |id: PathId| subflows[SubflowId::from_path(id)].path();
        let choice = match choice {
            Choice::Send(chosen, reason) => {
                Choice::Send(chosen.iter().map(path_of).collect(), reason)
            }
            Choice::Wait { reason, path, until } => {
                Choice::Wait { reason, path: path.map(path_of), until }
            }
        };
        decisions.push(Decision { at, first_message, choice });
    }
}

/// Chooses the only subflow of a connection for `len` bytes, or waits for it.
fn choose_only(only: &mut Subflow, len: u32) -> Choice {
    if only.is_established() && only.has_room(len) {
        return Choice::Send(PathSet::only(only.id().as_path()), Reason::OnlyPath);
    }
    only.note_limited();
    Choice::wait(if only.is_established() { Reason::WindowFull } else { Reason::NoPath })
}

/// Assigns the next chunk to the only subflow of a connection, if it has room.
#[inline]
fn assign_only(only: &mut Subflow, chunk: &Chunk, again: bool, send: &mut SendSide) -> Assigned {
    if !only.has_room(chunk.len) {
        only.note_limited();
        return Assigned::Full;
    }
    send.advance(chunk, again);
    assign(only, Chunk { carried_by: chunk.carried_by.with(only.id().as_path()), ..*chunk })
}

/// Assigns a chunk to one subflow, past its queue if that is empty.
#[inline]
fn assign(subflow: &mut Subflow, chunk: Chunk) -> Assigned {
    if subflow.sends_at_once(chunk.len) {
        return Assigned::AtOnce(subflow.id(), chunk);
    }
    subflow.assign(chunk);
    Assigned::Queued
}
