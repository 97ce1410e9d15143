//! Read-only views of a subflow for schedulers, sibling congestion controls and tables.

use skybraid_units::Bytes;

use super::{Subflow, Totals};
use crate::congestion::Sibling;
use crate::{PathView, SubflowSample};

impl Subflow {
    /// Returns the view of a scheduler. `has_room` is true if the subflow has room for what the scheduler places.
    #[inline]
    pub fn view(&self, has_room: bool) -> PathView {
        let rtt = self.timer.rtt();
        PathView {
            id: self.id.as_path(),
            usable: self.is_usable(),
            has_room,
            srtt: rtt.srtt(),
            rtt_deviation: rtt.deviation(),
            min_rtt: rtt.min_rtt(),
            window: Bytes::new(self.window.bytes()),
            threshold: Bytes::new(self.window.threshold()),
            pacing: self.window.pacer().rate(),
            in_flight: Bytes::new(self.board.in_flight()),
            queued: Bytes::new(self.backlog.bytes()),
            segment: Bytes::new(u64::from(self.segment)),
            cost: self.info.cost,
            backup: self.info.backup,
            priority: self.info.priority,
        }
    }

    /// Returns the view of a sibling's congestion control.
    pub fn sibling(&self) -> Sibling {
        let sibling = self.window.sibling(self.is_usable(), self.timer.srtt(), self.segment);
        if !self.recovery.is_fast() {
            return sibling;
        }
        Sibling { window: Bytes::new(self.window.threshold()), ..sibling }
    }

    /// Returns the state of the subflow for tables.
    pub fn sample(&self) -> SubflowSample {
        let control = self.window.control();
        SubflowSample {
            subflow: self.id.number(),
            path: self.path,
            window: Bytes::new(self.window.bytes()),
            threshold: control.slow_start_threshold(),
            pacing: control.pacing_rate(),
            srtt: self.timer.srtt(),
            in_flight: Bytes::new(self.board.in_flight()),
            totals: Totals { lost: self.board.losses(), ..self.totals },
        }
    }

    /// True if the subflow is used only while no regular one is usable.
    pub fn is_backup(&self) -> bool {
        self.info.backup
    }

    /// True if the congestion control reads its siblings.
    pub fn is_coupled(&self) -> bool {
        self.window.is_coupled()
    }
}
