//! Assignment of chunks to subflows by a scheduler.

use alloc::boxed::Box;
use alloc::vec::Vec;

use skybraid_units::Instant;

use super::subflows::Subflows;
use crate::endpoint::Decision;
use crate::scheduler::{Choice, Reason, Scheduler, Unit};
use crate::tcp::scoreboard::Chunk;
use crate::tcp::subflow::Subflow;
use crate::{PathId, PathSet, PathView};

/// Scheduler of a connection, with its recorded decisions.
#[derive(Debug)]
pub struct Assignment {
    scheduler: Box<dyn Scheduler>,
    /// Time until which the scheduler wants to wait.
    wait_until: Instant,
    views: Vec<PathView>,
    decisions: Option<Vec<Decision>>,
}

impl Assignment {
    /// Creates the assignment of a connection with `subflows` subflows at first.
    pub fn new(scheduler: Box<dyn Scheduler>, subflows: usize) -> Self {
        Self {
            scheduler,
            wait_until: Instant::FAR_FUTURE,
            views: Vec::with_capacity(subflows),
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

    /// Time until which the scheduler wants to wait; [`Instant::FAR_FUTURE`] if for an event.
    #[inline]
    pub const fn next_wakeup(&self) -> Instant {
        self.wait_until
    }

    /// Forgets the scheduler's wait.
    #[inline]
    pub const fn stop_waiting(&mut self) {
        self.wait_until = Instant::FAR_FUTURE;
    }

    /// Chooses the subflows for `chunk`; `None` to wait. `unit` describes it to a scheduler, which a single subflow
    /// does not need.
    #[inline]
    pub fn choose(
        &mut self,
        now: Instant,
        chunk: &Chunk,
        subflows: &mut Subflows,
        unit: impl FnOnce() -> Unit,
    ) -> Option<PathSet> {
        let len = chunk.len;
        let choice = if let [only] = subflows.all_mut() {
            let choice = if !only.is_established() {
                Choice::wait(Reason::NoPath)
            } else if only.has_room(len) {
                Choice::Send(PathSet::only(only.id), Reason::OnlyPath)
            } else {
                Choice::wait(Reason::WindowFull)
            };
            if matches!(choice, Choice::Wait { .. }) {
                only.note_limited();
            }
            choice
        } else {
            self.views.clear();
            self.views.extend(subflows.all().iter().map(|subflow| subflow.view(len)));
            for (subflow, view) in subflows.all_mut().iter_mut().zip(&self.views) {
                // A full window held data back even if another path takes the chunk.
                if !view.has_room {
                    subflow.note_limited();
                }
            }
            self.scheduler.choose(now, &unit(), &self.views)
        };
        self.record(now, chunk.first_message, choice, subflows.all());
        match choice {
            Choice::Send(paths, _) if !paths.is_empty() => Some(paths),
            Choice::Send(..) => None,
            Choice::Wait { until, .. } => {
                self.wait_until = until.unwrap_or(Instant::FAR_FUTURE);
                None
            }
        }
    }

    /// Records a decision, if that is wanted.
    #[inline]
    pub fn record(
        &mut self,
        at: Instant,
        first_message: u32,
        choice: Choice,
        subflows: &[Subflow],
    ) {
        let Some(decisions) = &mut self.decisions else { return };
        // Schedulers choose subflows; the decisions table shows paths.
        let path_of = |id: PathId| subflows.get(id.index()).map_or(id, |subflow| subflow.path);
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
}
