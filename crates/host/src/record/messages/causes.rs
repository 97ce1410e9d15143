//! Causes of late and lost messages of a flow, and of incomplete frames of its video.

use skybraid_link::Cause;
use skybraid_transport::PathId;
use skybraid_units::{Duration, Instant, Promised};

use super::super::VideoStats;
use super::super::misses::{Arrival, History, MissCause};
use super::{EXPIRED, FlowRecord, MessageRow, NONE_LOST, NOT_DELIVERED, REFUSED, UNKNOWN_EFFECT};

impl FlowRecord {
    /// Records the loss of a copy of any part of the message on `path`; `effect` is `None` if the cause is unknown.
    pub fn on_copy_lost(&mut self, id: u32, path: PathId, effect: Option<Cause>) {
        if let Some(row) = self.written_row(id) {
            row.lost_path = path.0;
            row.lost_effect = effect.map_or(UNKNOWN_EFFECT, |cause| cause as u8);
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn keep_late_arrival(&mut self, id: u32, arrival: &Arrival) {
        if let Err(place) = self.late.binary_search_by_key(&id, |(late, _)| *late) {
            self.late.insert(place, (id, *arrival));
        }
    }

    /// Takes the late arrival of a message that is decided.
    fn take_late_arrival(&mut self, id: u32) -> Option<Arrival> {
        let place = self.late.binary_search_by_key(&id, |(late, _)| *late).ok()?;
        self.late.remove(place).map(|(_, arrival)| arrival)
    }

    /// Records the arrival of a copy of the message's last part over a network whose packets are not observed.
    pub fn on_copy_arrived_unseen(&mut self, now: Instant, id: u32, path: PathId) {
        let Some(row) = self.row(id) else { return };
        let sent_at = row.sent() + Duration::from_micros(row.waited_us.into());
        let arrival = || Arrival { at: now, sent_at, path: path.0, waits: None };
        self.on_copy_arrived(now, id, arrival);
    }

    /// Records that a copy of the message's last part is in flight at the end of the run and will arrive.
    pub fn on_copy_due(&mut self, id: u32, arrival: &Arrival) {
        if self.min_deadline < Duration::MAX && self.row(id).is_some() {
            self.keep_late_arrival(id, arrival);
        }
    }

    /// Counts a message that was delivered after its shortest deadline.
    #[cold]
    #[inline(never)]
    pub(super) fn count_late(&mut self, id: u32, delivered: (Instant, Duration)) {
        let Some(row) = self.row(id).copied().promised("the row of a delivered message") else {
            return;
        };
        let arrival = self.take_late_arrival(id);
        let history = self.history(&row, arrival, Some(delivered));
        let delay = delivered.0 - history.written;
        let counts = self.summary.misses.by_deadline.iter_mut();
        for (deadline, counts) in self.summary.deadlines.iter().zip(counts) {
            if history.written + deadline.limit <= self.end && delay > deadline.limit {
                counts.add(history.late_by(deadline.limit));
            }
        }
    }

    /// Counts a message that was not delivered by the end of the run or before its row is dropped; `lost` if it is
    /// lost rather than in flight.
    pub(super) fn count_undelivered(&mut self, id: u32, row: &MessageRow, lost: bool) {
        if row.delivered_ns > EXPIRED {
            return;
        }
        let arrival = self.take_late_arrival(id);
        let sent = row.sent();
        let mut by_deadline = core::mem::take(&mut self.summary.misses.by_deadline);
        for (deadline, counts) in self.summary.deadlines.iter().zip(&mut by_deadline) {
            if sent + deadline.limit <= self.end {
                counts.add(self.cause_of(row, arrival, deadline.limit));
            }
        }
        self.summary.misses.by_deadline = by_deadline;
        if lost {
            let cause = self.cause_of(row, arrival, Duration::MAX);
            self.summary.misses.lost.add(cause);
        }
    }

    /// Returns the cause by which a message that was not delivered missed `limit`.
    fn cause_of(&self, row: &MessageRow, arrival: Option<Arrival>, limit: Duration) -> MissCause {
        match (row.delivered_ns, row.lost()) {
            (REFUSED, _) => MissCause::Refused,
            (EXPIRED, _) => MissCause::Expired,
            (_, Some((path, effect))) if !self.reliable => MissCause::Lost { path, effect },
            _ if arrival.is_some() => self.history(row, arrival, None).late_by(limit),
            _ if row.copies_arrived > 0 => MissCause::Order,
            (_, Some((path, effect))) => MissCause::Lost { path, effect },
            _ if row.copies_sent == 0 => MissCause::Unsent,
            _ if self.proxied => MissCause::Proxy,
            _ => MissCause::Lost { path: row.first_path, effect: None },
        }
    }

    fn history(
        &self,
        row: &MessageRow,
        arrival: Option<Arrival>,
        delivered: Option<(Instant, Duration)>,
    ) -> History {
        History {
            written: row.sent(),
            waited: Duration::from_micros(row.waited_us.into()),
            first_path: row.first_path,
            lost: row.lost(),
            arrival,
            delivered,
            proxied: self.proxied,
        }
    }

    /// Determines the causes of decided frames that are not intact.
    #[inline(never)]
    pub(super) fn explain_frames(&mut self) {
        while let Some(id) = self.video.as_deref_mut().and_then(VideoStats::next_missing) {
            let cause = match self.row(id).copied() {
                None => MissCause::Unknown,
                Some(row) if self.is_in_flight(&row) => MissCause::Link { path: row.first_path },
                Some(row) => self.cause_of(&row, None, Duration::MAX),
            };
            if let Some(video) = &mut self.video {
                video.explain(cause);
            }
        }
    }

    /// Whether a message was sent, but nothing of it has arrived or was lost.
    const fn is_in_flight(&self, row: &MessageRow) -> bool {
        !self.links_hidden
            && !self.proxied
            && row.delivered_ns == NOT_DELIVERED
            && row.copies_sent > 0
            && row.copies_arrived == 0
            && row.lost_effect == NONE_LOST
    }
}
