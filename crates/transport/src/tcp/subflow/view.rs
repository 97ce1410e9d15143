//! Read-only views of a subflow for schedulers and sibling congestion controls.

use skybraid_units::{Bytes, Duration};

use super::{Recovery, Subflow};
use crate::PathView;
use crate::congestion::Sibling;

impl Subflow {
    /// Returns the view of a scheduler that places `bytes`.
    pub fn view(&self, bytes: u32) -> PathView {
        PathView {
            id: self.id,
            usable: self.is_usable(),
            has_room: self.has_room(bytes),
            srtt: self.rtt.srtt(),
            rtt_deviation: self.rtt.deviation(),
            min_rtt: self.rtt.min_rtt(),
            window: Bytes::new(self.window),
            threshold: Bytes::new(self.threshold),
            pacing: self.pacer.rate(),
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
        Sibling {
            active: self.is_usable() && self.rtt.srtt().is_some(),
            window: Bytes::new(match self.recovery {
                Recovery::Fast(_) => self.threshold,
                Recovery::Open | Recovery::Timeout(_) => self.window,
            }),
            acked_since_loss: Bytes::new(self.loss_intervals.since()),
            acked_between_losses: Bytes::new(self.loss_intervals.between()),
            srtt: self.rtt.srtt().unwrap_or(Duration::MAX),
            segment: Bytes::new(u64::from(self.segment)),
        }
    }

    /// True if the subflow is used only while no regular one is usable.
    pub fn is_backup(&self) -> bool {
        self.info.backup
    }

    /// True if the congestion control reads its siblings.
    pub fn is_coupled(&self) -> bool {
        self.coupled
    }
}
