//! Arrivals that are recorded ahead of their time, as soon as the last link of the route has admitted the packet.
//!
//! The record alone notices such an arrival, so that the simulator needs no event for it. Of several copies the
//! earliest delivers the message; of those that arrive at one instant, the one over the link of the lowest number, as
//! if each arrival were an event.

use skybraid_transport::PathId;
use skybraid_units::{Instant, Promised};

use super::{FlowRecord, MessageRow, NOT_DELIVERED, SEPARATE_AFTER};
use crate::hosts::Carried;
use crate::ids::DirectedLink;

impl FlowRecord {
    /// Records the transmission of a copy of a message that is one datagram on `path`, by `carry`, which gets the
    /// latest arrival that may be settled.
    #[inline]
    pub fn send_copy(
        &mut self,
        now: Instant,
        id: u32,
        path: PathId,
        carry: impl FnOnce(Option<Instant>) -> Carried,
    ) -> Carried {
        let may_settle = self.video.is_none();
        let (end, min_deadline) = (self.end, self.min_deadline);
        if id < self.first {
            self.on_copy_sent(now, id, path);
        }
        let mut found = self.block_and_place(id).and_then(|(block, place)| {
            let row = block.rows.get_mut(place).promised("the row of a written message")?;
            Some((row, &mut block.settled, &mut block.decided))
        });
        let settle_by = found.as_mut().and_then(|(row, ..)| {
            row.on_copy_sent(now, path);
            let settle_by = row.sent() + min_deadline.min(SEPARATE_AFTER);
            may_settle.then_some(settle_by.min(end))
        });
        let carried = carry(settle_by);
        if let Carried::Settled { at, link } = carried
            && let Some((row, settled, decided)) = found
        {
            *settled = (*settled).max(at);
            *decided += usize::from(row.settle(path, at, link));
        }
        carried
    }

    /// Latest arrival of a copy of message `id`, one datagram, that may be settled.
    pub fn settle_by(&self, id: u32) -> Option<Instant> {
        let (block, place) = self.place(id.checked_sub(self.first)? as usize);
        let row = self.blocks.get(block)?.rows.get(place).filter(|_| self.video.is_none())?;
        Some((row.sent() + self.min_deadline.min(SEPARATE_AFTER)).min(self.end))
    }

    /// Records that a copy of message `id` arrives on `path` at `at`, at the latest at [`settle_by`](Self::settle_by),
    /// over `link`.
    pub fn on_copy_settled(&mut self, id: u32, path: PathId, (at, link): (Instant, DirectedLink)) {
        let Some((block, place)) = self.block_and_place(id) else { return };
        let row = block.rows.get_mut(place).promised("the row of a written message");
        let Some(row) = row else { return };
        block.settled = block.settled.max(at);
        block.decided += usize::from(row.settle(path, at, link));
    }
}

impl MessageRow {
    /// Records that a copy arrives at `at`. Returns whether it is the first copy known to arrive.
    #[inline]
    fn settle(&mut self, path: PathId, at: Instant, link: DirectedLink) -> bool {
        self.copies_arrived = self.copies_arrived.saturating_add(1);
        let (known, at, link) = (self.delivered_ns, at.as_nanos(), link.index() as u16);
        let is_first = known == NOT_DELIVERED;
        if is_first || (at, link) < (known, self.last_link) {
            (self.delivered_ns, self.last_link, self.path) = (at, link, path.0);
        }
        is_first
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skybraid_link::Direction;
    use skybraid_units::Duration;

    fn at(ms: i64) -> Instant {
        Instant::from_millis(ms)
    }

    /// Returns the delivery of a message whose copies arrive at these times, in ms, over links and paths of these
    /// numbers.
    fn delivery(copies: &[(i64, usize)]) -> Option<(PathId, Instant)> {
        let mut flow = FlowRecord::new(true, false, at(1000), 3, &[Duration::from_millis(300)]);
        flow.on_written(at(0), 100);
        for (arrival, number) in copies {
            let settled = Carried::Settled {
                at: at(*arrival),
                link: DirectedLink::new(*number, Direction::Uplink),
            };
            let carried = flow.send_copy(at(0), 0, PathId(*number as u8), |by| {
                assert_eq!(by, Some(at(300)));
                settled
            });
            assert_eq!(carried, settled);
        }
        flow.finish(&[]);
        assert_eq!((flow.summary.delivered, flow.summary.deadlines[0].met), (1, 1));
        let row = flow.blocks().next()?.first()?;
        Some((PathId(row.path), row.delivered()?))
    }

    #[test]
    fn the_earliest_copy_delivers_and_of_equals_the_lowest_link() {
        assert_eq!(delivery(&[(50, 0), (40, 1), (60, 2)]), Some((PathId(1), at(40))));
        assert_eq!(delivery(&[(40, 2), (40, 1), (50, 0)]), Some((PathId(1), at(40))));
        assert_eq!(delivery(&[(40, 0), (40, 1)]), Some((PathId(0), at(40))));
    }

    #[test]
    fn a_block_is_kept_until_its_settled_arrivals_have_happened() {
        let mut flow = FlowRecord::new(false, false, at(10_000), 1, &[]);
        let link = DirectedLink::new(0, Direction::Uplink);
        for id in 0..200 {
            let now = at(i64::from(id));
            flow.on_written(now, 100);
            let arrives = now + Duration::from_millis(100);
            flow.send_copy(now, id, PathId(0), |_| Carried::Settled { at: arrives, link });
        }
        // Those written until 63 ms arrive until 163 ms; a block is dropped when another begins, at 192 ms.
        assert_eq!(flow.first_id(), 64);
        flow.finish(&[]);
        assert_eq!(flow.summary.delivered, 200);
    }
}
