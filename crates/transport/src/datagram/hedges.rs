//! Datagrams that are offered to the scheduler again while no acknowledgement has come.

use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;

use skybraid_units::Instant;

use super::DatagramNumbers;
use crate::scheduler::{Scheduler, Unit};
use crate::segment::{AckedDatagrams, Datagram};
use crate::{PathSet, PathView};

/// A datagram that may be sent once more.
#[derive(Clone, Copy, Debug)]
pub struct Pending {
    /// Datagram.
    pub datagram: Datagram,
    /// Unit as the scheduler knows it, with the paths that have carried it.
    pub unit: Unit,
    /// Time of the first copy.
    pub first_sent: Instant,
    /// Number of the message's row in the table of decisions.
    pub message: u32,
}

/// Further copies of a datagram.
#[derive(Clone, Copy, Debug)]
pub struct Copies {
    /// Datagram.
    pub datagram: Datagram,
    /// A path for each copy.
    pub paths: PathSet,
    /// Number of the message's row in the table of decisions.
    pub message: u32,
}

/// Adds a copy on each of `paths` to what waits there.
fn take_room(views: &mut [PathView], paths: PathSet) {
    let chosen = views.iter_mut().filter(|view| view.is_limited() && paths.contains(view.id));
    chosen.for_each(|view| view.queued += view.segment);
}

/// Datagrams that are offered to the scheduler again unless they are acknowledged, by time.
#[derive(Debug, Default)]
pub struct Hedges {
    queue: BinaryHeap<Reverse<Due>>,
    acked: DatagramNumbers,
    copies: VecDeque<Copies>,
}

#[derive(Clone, Copy, Debug)]
struct Due {
    at: Instant,
    pending: Pending,
}

impl Due {
    fn key(&self) -> (Instant, u64) {
        (self.at, self.pending.datagram.sequence)
    }
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

impl Hedges {
    /// Asks the scheduler when a datagram is to be offered again.
    pub fn offer_later(
        &mut self,
        now: Instant,
        pending: Pending,
        scheduler: &mut dyn Scheduler,
        views: &[PathView],
    ) {
        if let Some(at) = scheduler.hedge_at(now, &pending.unit, pending.first_sent, views) {
            self.insert(at, pending);
        }
    }

    /// Offers the datagrams whose time has come to the scheduler, and all that are in flight: they may be held up by
    /// the same trouble, also if it is too late for the first. [`next_copies`](Self::next_copies) has what it chose.
    /// Copies of what is not overdue itself do not wait for room in a window.
    pub fn offer(&mut self, now: Instant, scheduler: &mut dyn Scheduler, views: &mut [PathView]) {
        let mut is_overdue = false;
        while let Some(pending) = self.pop(now) {
            is_overdue = true;
            let copies = scheduler.hedge(now, &pending.unit, pending.first_sent, views);
            take_room(views, copies);
            self.copy(now, pending, copies, scheduler, views);
        }
        if !is_overdue {
            return;
        }
        for (at, pending) in self.take() {
            views.iter_mut().for_each(|view| view.usable &= view.fits_segment());
            let copies = scheduler.hedge_early(now, &pending.unit, pending.first_sent, views);
            if copies.is_empty() {
                self.insert(at, pending);
            } else {
                take_room(views, copies);
                self.copy(now, pending, copies, scheduler, views);
            }
        }
    }

    /// Queues copies of a datagram, which may be none, and asks when it is to be offered again.
    fn copy(
        &mut self,
        now: Instant,
        mut pending: Pending,
        paths: PathSet,
        scheduler: &mut dyn Scheduler,
        views: &[PathView],
    ) {
        let Pending { datagram, message, .. } = pending;
        if !paths.is_empty() {
            self.copies.push_back(Copies { datagram, paths, message });
        }
        pending.unit.carried_by = pending.unit.carried_by.iter().chain(paths.iter()).collect();
        self.offer_later(now, pending, scheduler, views);
    }

    /// Takes the next copies to be sent.
    pub fn next_copies(&mut self) -> Option<Copies> {
        self.copies.pop_front()
    }

    /// Offers `pending` again at `at`.
    pub fn insert(&mut self, at: Instant, pending: Pending) {
        self.queue.push(Reverse(Due { at, pending }));
    }

    /// Records that a datagram has arrived.
    pub fn on_acked(&mut self, sequence: u64) {
        self.acked.insert(sequence);
        while let Some(Reverse(due)) = self.queue.peek()
            && self.acked.contains(due.pending.datagram.sequence)
        {
            self.queue.pop();
        }
    }

    /// Records that all datagrams of `acked` have arrived.
    pub fn on_all_acked(&mut self, acked: &AckedDatagrams) {
        let oldest = acked.newest.saturating_sub(64);
        (oldest..=acked.newest)
            .filter(|sequence| acked.contains(*sequence))
            .for_each(|sequence| self.on_acked(sequence));
    }

    /// True if a datagram is known to have arrived.
    pub fn is_acked(&self, sequence: u64) -> bool {
        self.acked.contains(sequence)
    }

    /// Takes all datagrams that are not acknowledged, with the times of their offers, oldest first.
    pub fn take(&mut self) -> Vec<(Instant, Pending)> {
        let all = core::mem::take(&mut self.queue).into_vec();
        let mut all: Vec<Due> = all.into_iter().map(|Reverse(due)| due).collect();
        all.retain(|due| !self.acked.contains(due.pending.datagram.sequence));
        all.sort_unstable_by_key(|due| due.pending.datagram.sequence);
        all.into_iter().map(|due| (due.at, due.pending)).collect()
    }

    /// Instant of the next offer.
    pub fn next(&self) -> Instant {
        self.queue.peek().map_or(Instant::FAR_FUTURE, |Reverse(due)| due.at)
    }

    /// Returns the next datagram to be offered by `now` that is not acknowledged.
    pub fn pop(&mut self, now: Instant) -> Option<Pending> {
        while self.next() <= now {
            let Reverse(due) = self.queue.pop()?;
            if !self.acked.contains(due.pending.datagram.sequence) {
                return Some(due.pending);
            }
        }
        None
    }
}
