//! A link with the frames in flight on it.

use std::collections::VecDeque;

use skybraid_host::record::PacketKind;
use skybraid_link::Link;
use skybraid_units::Instant;

/// A frame on a link.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    /// Time at which the last bit arrives at the other end.
    pub due: Instant,
    /// Time at which the last bit leaves the queue.
    pub departs: Instant,
    /// Arrival time at the emulator.
    pub entered: Instant,
    /// Slot of the frame.
    pub slot: u32,
    /// Frame length.
    pub length: u32,
    /// Flow and kind of the packet, if known.
    pub flow: Option<(u16, PacketKind)>,
}

/// One of the links of a direction.
pub(super) struct Stage {
    /// Link model, which decides delay and loss.
    pub link: Link,
    /// Frames in flight, ordered by `due`.
    pub waiting: VecDeque<Waiting>,
    /// Index of the direction.
    pub way: usize,
    /// Next link in series.
    pub next: Option<usize>,
    /// Same link of the other direction, if both share a radio.
    pub sibling: Option<usize>,
}

impl Stage {
    /// Inserts a frame in order of due time. Only a link that reorders has later ones.
    pub fn push(&mut self, frame: Waiting) {
        if self.waiting.back().is_none_or(|last| last.due <= frame.due) {
            self.waiting.push_back(frame);
        } else {
            let place = self.waiting.partition_point(|other| other.due <= frame.due);
            self.waiting.insert(place, frame);
        }
    }

    /// Removes and returns the next frame, if due by `horizon`.
    #[inline]
    pub fn pop(&mut self, horizon: Instant) -> Option<Waiting> {
        if self.waiting.front()?.due > horizon {
            return None;
        }
        self.waiting.pop_front()
    }

    /// Returns the due time of the next frame.
    #[inline]
    pub fn due(&self) -> Instant {
        self.waiting.front().map_or(Instant::FAR_FUTURE, |frame| frame.due)
    }
}
