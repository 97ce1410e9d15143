//! Repair packets of datagrams: which frames and runs they are for, and what is recovered from them.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use skybraid_units::Instant;

use super::{Datagrams, Hedges, Pending};
use crate::coding::{Decoder, Encoder, MAX_COVERED, Recovered};
use crate::scheduler::{Choice, Grouping, Reason, Repairs, Run, Scheduler, Unit};
use crate::segment::{AckedDatagrams, Datagram, Repair};
use crate::{PathId, PathSet};

/// Maximum recovered datagrams that wait to be taken with their payload.
const MAX_WAITING: usize = 1024;

/// Both directions of a code.
#[derive(Debug)]
pub struct Coding {
    pub grouping: Grouping,
    pub encoder: Encoder,
    decoder: Decoder,
    /// Frame whose first copies are leaving.
    frame: Option<Run>,
    /// Repair packets to be sent.
    repairs: VecDeque<(Repair, PathId)>,
    /// Datagrams just recovered, and those whose payload waits to be taken.
    fresh: VecDeque<Recovered>,
    waiting: VecDeque<Recovered>,
    /// Receiver: the newest datagrams recovered.
    pub recovered: Option<AckedDatagrams>,
}

impl Coding {
    pub fn new(grouping: Grouping) -> Self {
        Self {
            grouping,
            encoder: Encoder::default(),
            decoder: Decoder::default(),
            frame: None,
            repairs: VecDeque::new(),
            fresh: VecDeque::new(),
            waiting: VecDeque::new(),
            recovered: None,
        }
    }

    /// Adds a first copy to its frame. Returns the frame if it was the last of it: the next datagram has
    /// another deadline, or there is none.
    pub fn frame_that_ends(&mut self, own: Run, next: Option<Option<Instant>>) -> Option<Run> {
        let frame = match &mut self.frame {
            Some(frame) if frame.deadline == own.deadline => {
                frame.push(&own);
                frame
            }
            other => other.insert(own),
        };
        let ends = next != Some(frame.deadline) || u64::from(frame.missing) == MAX_COVERED;
        if ends { self.frame.take() } else { None }
    }

    /// Returns the run at the head of `due`, in ascending order, and the number of its datagrams. All others
    /// within its span are acknowledged: what the peer lacks besides would spoil the repair packets.
    pub fn next_run(
        &self,
        due: &[Pending],
        is_acked: impl Fn(u64) -> bool,
    ) -> Option<(Run, usize)> {
        let own = |one: &Pending| Run::of(one.datagram.sequence, &one.unit, one.first_sent, false);
        let mut run = own(due.first()?);
        let (first, deadline) = (run.span.0, run.deadline);
        let mut next = first;
        let belongs = |pending: &&Pending| {
            let sequence = pending.datagram.sequence;
            let apart = self.grouping == Grouping::Frames && pending.unit.deadline != deadline;
            let whole = (next..sequence).all(&is_acked);
            next = sequence + 1;
            !apart && whole && sequence - first < MAX_COVERED
        };
        let count = due.iter().take_while(belongs).count();
        due.iter().take(count).skip(1).for_each(|pending| run.push(&own(pending)));
        Some((run, count))
    }

    /// Queues the repair packets of a run.
    pub fn queue(&mut self, run: &Run, repairs: &Repairs) {
        let first = repairs.first.unwrap_or(run.span.0);
        for path in &repairs.paths {
            if let Some(repair) = self.encoder.repair(first, run.span.1) {
                self.repairs.push_back((repair, *path));
            }
        }
    }

    pub fn next_repair(&mut self) -> Option<(Repair, PathId)> {
        self.repairs.pop_front()
    }

    /// Decodes, and keeps what is recovered.
    pub fn decode(&mut self, decode: impl FnOnce(&mut Decoder, &mut dyn FnMut(Recovered))) {
        decode(&mut self.decoder, &mut |recovered| self.fresh.push_back(recovered));
    }

    /// Passes on the datagrams just recovered.
    pub fn on_recovered(&mut self, mut deliver: impl FnMut(&Datagram)) {
        while let Some(recovered) = self.fresh.pop_front() {
            let sequence = recovered.datagram.sequence;
            match &mut self.recovered {
                Some(acked) => acked.insert(sequence),
                none => *none = Some(AckedDatagrams::of(sequence)),
            }
            deliver(&recovered.datagram);
            if !recovered.payload.is_empty() {
                if self.waiting.len() == MAX_WAITING {
                    self.waiting.pop_front();
                }
                self.waiting.push_back(recovered);
            }
        }
    }

    pub fn take_recovered(&mut self) -> Option<Recovered> {
        self.waiting.pop_front()
    }
}

impl Datagrams {
    /// Records a first copy for the code, and asks for repair packets once its frame has left.
    pub(super) fn protect(&mut self, now: Instant, datagram: &Datagram, unit: &Unit) {
        let Some(coding) = &mut self.coding else { return };
        coding.encoder.on_sent(*datagram);
        let next = self.outbox.peek().map(|(message, _)| message.deadline);
        let own = Run::of(datagram.sequence, unit, now, true);
        if let Some(frame) = coding.frame_that_ends(own, next) {
            let repairs = self.scheduler.repair(now, &frame, &self.views);
            coding.queue(&frame, &repairs);
        }
    }

    /// Offers runs of datagrams whose time has come to be repaired.
    pub(super) fn offer_runs(&mut self, now: Instant) {
        let Some(mut feedback) = self.feedback.take() else { return };
        if let Some(hedges) = feedback.hedges_mut() {
            self.repair_runs(now, hedges);
        }
        self.feedback = Some(feedback);
    }

    fn repair_runs(&mut self, now: Instant, hedges: &mut Hedges) {
        let mut due: Vec<Pending> = core::iter::from_fn(|| hedges.pop(now)).collect();
        let Some(coding) = &mut self.coding else { return };
        if coding.grouping == Grouping::Runs {
            let held: PathSet =
                due.iter().flat_map(|pending| pending.unit.carried_by.iter()).collect();
            for (at, pending) in hedges.take() {
                let Pending { unit, first_sent, .. } = &pending;
                let held = unit.carried_by.iter().all(|path| held.contains(path));
                let early = |joins: &mut Box<dyn Scheduler>| {
                    joins.hedge_early(now, unit, *first_sent, &self.views)
                };
                if held && !early(&mut self.scheduler).is_empty() {
                    due.push(pending);
                } else {
                    hedges.insert(at, pending);
                }
            }
        }
        due.sort_unstable_by_key(|pending| pending.datagram.sequence);
        let mut rest = due.as_mut_slice();
        while let Some((run, count)) = self.next_run(rest, hedges) {
            let repairs = self.scheduler.repair(now, &run, &self.views);
            let paths: PathSet = repairs.paths.iter().copied().collect();
            if let Some(coding) = self.coding.as_mut().filter(|_| !paths.is_empty()) {
                coding.queue(&run, &repairs);
                let message = rest.first().map_or(0, |pending| pending.message);
                self.follow(now, message, Choice::Send(paths, Reason::Hedge));
            }
            let (own, later) = rest.split_at_mut(count);
            for pending in own {
                let carried_by = pending.unit.carried_by.iter().chain(paths.iter()).collect();
                let unit = Unit { carried_by, ..pending.unit };
                let pending = Pending { unit, ..*pending };
                hedges.offer_later(now, pending, &mut *self.scheduler, &self.views);
            }
            rest = later;
        }
    }

    fn next_run(&self, due: &[Pending], hedges: &Hedges) -> Option<(Run, usize)> {
        self.coding.as_ref()?.next_run(due, |sequence| hedges.is_acked(sequence))
    }

    pub(super) fn deliver_recovered(&mut self, now: Instant, path: PathId) {
        let Some(coding) = &mut self.coding else { return };
        let (inbox, feedback) = (&mut self.inbox, &mut self.feedback);
        coding.on_recovered(|datagram| {
            inbox.receive(now, path, datagram);
            if let Some(feedback) = feedback {
                feedback.on_recovered();
            }
        });
    }
}
