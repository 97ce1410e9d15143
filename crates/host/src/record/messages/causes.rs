//! Why messages of a flow are late or lost, and why frames of its video are not whole.

use skybraid_link::Cause;
use skybraid_transport::PathId;
use skybraid_units::{Duration, Instant};

use super::super::Film;
use super::super::misses::{Arrival, History, MissCause};
use super::{EXPIRED, FlowRecord, MessageRow, NONE_LOST, NOT_DELIVERED, REFUSED, UNKNOWN_EFFECT};

impl FlowRecord {
    /// A copy of one of the message's parts was lost on `path`; `effect` is `None` where it is not known.
    pub fn copy_lost(&mut self, id: u32, path: PathId, effect: Option<Cause>) {
        if let Some(row) = self.row(id) {
            row.lost_path = path.0;
            row.lost_effect = effect.map_or(UNKNOWN_EFFECT, |cause| cause as u8);
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn arrived_late(&mut self, id: u32, arrival: &Arrival) {
        self.late.entry(id).or_insert(*arrival);
    }

    /// A copy of the message's last part arrived over a network that shows none of its packets.
    pub fn copy_arrived_unseen(&mut self, now: Instant, id: u32, path: PathId) {
        let Some(row) = self.row(id) else { return };
        let sent_at = row.sent() + Duration::from_micros(row.waited_us.into());
        self.copy_arrived(id, &Arrival { at: now, sent_at, path: path.0, waits: None });
    }

    /// A copy of the message's last part is on its way when the run has ended, and will arrive.
    pub fn copy_arrives_later(&mut self, id: u32, arrival: &Arrival) {
        if self.patience < Duration::MAX && self.row(id).is_some() {
            self.arrived_late(id, arrival);
        }
    }

    /// Counts a message that was delivered after its shortest deadline.
    #[cold]
    #[inline(never)]
    pub(super) fn count_late(&mut self, id: u32, delivered: (Instant, Duration)) {
        let Some(row) = self.row(id).copied() else { return };
        let arrival = self.late.remove(&id);
        let history = self.history(&row, arrival, Some(delivered));
        let delay = delivered.0 - history.written;
        let counts = self.summary.misses.by_deadline.iter_mut();
        for (deadline, counts) in self.summary.deadlines.iter().zip(counts) {
            if history.written + deadline.limit <= self.end && delay > deadline.limit {
                counts.add(history.late_by(deadline.limit));
            }
        }
    }

    /// Counts a message that is not there when the record ends or forgets it; `lost` for good, or perhaps not.
    pub(super) fn count_undelivered(&mut self, id: u32, row: &MessageRow, lost: bool) {
        if row.delivered_ns > EXPIRED {
            return;
        }
        let arrival = self.late.remove(&id);
        let sent = row.sent();
        for place in 0..self.summary.deadlines.len() {
            let Some(limit) = self.summary.deadlines.get(place).map(|deadline| deadline.limit)
            else {
                break;
            };
            let cause = self.cause_of(row, arrival, limit);
            if sent + limit <= self.end
                && let Some(counts) = self.summary.misses.by_deadline.get_mut(place)
            {
                counts.add(cause);
            }
        }
        if lost {
            let cause = self.cause_of(row, arrival, Duration::MAX);
            self.summary.misses.lost.add(cause);
        }
    }

    /// Why a message that was not delivered missed `limit`.
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

    /// Finds out why frames that are decided are not whole.
    #[inline(never)]
    pub(super) fn explain_frames(&mut self) {
        while let Some(id) = self.film.as_mut().and_then(Film::next_missing) {
            let cause = match self.row(id).copied() {
                None => MissCause::Unknown,
                Some(row) if self.is_coming(&row) => MissCause::Link { path: row.first_path },
                Some(row) => self.cause_of(&row, None, Duration::MAX),
            };
            if let Some(film) = &mut self.film {
                film.explain(cause);
            }
        }
    }

    /// A message of which nothing has arrived and nothing was lost was still on its way.
    const fn is_coming(&self, row: &MessageRow) -> bool {
        !self.blind
            && !self.proxied
            && row.delivered_ns == NOT_DELIVERED
            && row.copies_sent > 0
            && row.copies_arrived == 0
            && row.lost_effect == NONE_LOST
    }
}
