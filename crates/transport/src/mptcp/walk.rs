//! Subflows that go through the send queue each at its own pace: redundancy as in out-of-tree MPTCP.
//!
//! Source: mptcp_redundant.c of the versions that [`Walk`](crate::scheduler::redundant::Walk) names; its issues #392
//! and #474 and pull requests #391 and #478.

use alloc::collections::VecDeque;

use crate::per_path::PerPath;
use crate::scheduler::redundant::Walk;
use crate::tcp::scoreboard::Chunk;
use crate::tcp::subflow::Subflow;
use crate::{PathSet, SubflowId};

/// Chunk that a subflow takes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A chunk that another subflow, or this one, has sent.
    Copy(SubflowId, Chunk),
    /// The next chunk of new data.
    New(SubflowId),
}

/// Places of the subflows in the send queue.
#[derive(Debug)]
pub struct Walks {
    rule: Walk,
    /// Chunks sent but not acknowledged, oldest first, with all subflows that have carried each.
    sent: VecDeque<Chunk>,
    /// Data sequence number of the chunk that each subflow took last, and of the first byte after it.
    places: PerPath<Option<(u64, u64)>>,
    /// Index of the subflow whose turn it is.
    turn: usize,
}

impl Walks {
    /// Creates the walks of a connection that has sent nothing.
    pub const fn new(rule: Walk) -> Self {
        Self { rule, sent: VecDeque::new(), places: PerPath::new(None), turn: 0 }
    }

    /// Returns the subflows that have carried `chunk`.
    pub fn carried_by(&self, chunk: &Chunk) -> PathSet {
        let place = self.sent.partition_point(|sent| sent.dsn < chunk.dsn);
        let sent = self.sent.get(place).filter(|sent| sent.dsn == chunk.dsn);
        sent.map_or(chunk.carried_by, |sent| sent.carried_by)
    }

    /// Returns what is sent next, by the first of `all` from the one whose turn it is that has room for `len` bytes.
    /// `una` is the oldest data sequence number that is not acknowledged; `has_unsent` is true if new data waits.
    pub fn next(&mut self, una: u64, has_unsent: bool, len: u32, all: &[Subflow]) -> Option<Step> {
        while self.sent.front().is_some_and(|chunk| chunk.end() <= una) {
            self.sent.pop_front();
        }
        if self.rule == Walk::Unsent && !has_unsent {
            return None;
        }
        let regular = all.iter().any(|subflow| subflow.is_usable() && !subflow.is_backup());
        let (before, after) = all.split_at(self.turn.min(all.len()));
        after.iter().chain(before).find_map(|subflow| {
            let ahead = self.ahead(subflow.id(), una);
            let allowed = match ahead {
                Some(_) => !subflow.is_backup(),
                None => has_unsent && (!regular || !subflow.is_backup()),
            };
            if !allowed || !subflow.is_usable() || !subflow.has_room(len) {
                return None;
            }
            Some(ahead.map_or(Step::New(subflow.id()), |chunk| Step::Copy(subflow.id(), chunk)))
        })
    }

    /// Returns the sent chunk that subflow `id` takes next; none if new data is next.
    fn ahead(&self, id: SubflowId, una: u64) -> Option<Chunk> {
        let place = self.places[id.as_path()].filter(|(start, end)| match self.rule {
            Walk::Unsent | Walk::Unacknowledged => *end > una,
            Walk::Repeating => *start > una,
        });
        match (place, self.rule) {
            (Some((start, _)), _) => {
                self.sent.get(self.sent.partition_point(|chunk| chunk.dsn <= start)).copied()
            }
            (None, Walk::Unsent) => None,
            (None, Walk::Unacknowledged | Walk::Repeating) => self.sent.front().copied(),
        }
    }

    /// Records that subflow `id` takes `chunk`. Returns the chunk with all subflows that have carried it.
    pub fn on_taken(&mut self, id: SubflowId, chunk: &Chunk) -> Chunk {
        self.places[id.as_path()] = Some((chunk.dsn, chunk.end()));
        self.turn = id.index() + 1;
        let place = self.sent.partition_point(|sent| sent.dsn < chunk.dsn);
        if let Some(sent) = self.sent.get_mut(place).filter(|sent| sent.dsn == chunk.dsn) {
            sent.carried_by = sent.carried_by.with(id.as_path());
            return Chunk { carried_by: sent.carried_by, ..*chunk };
        }
        let taken = Chunk { carried_by: chunk.carried_by.with(id.as_path()), ..*chunk };
        self.sent.insert(place, taken);
        taken
    }
}
