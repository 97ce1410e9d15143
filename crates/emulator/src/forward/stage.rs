//! A link with the frames that are on it.

use std::collections::VecDeque;

use skybraid_host::record::PacketKind;
use skybraid_link::Link;
use skybraid_units::Instant;

/// A frame on a link.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    /// When its last bit is at the other end.
    pub due: Instant,
    /// When its last bit leaves the queue.
    pub departs: Instant,
    /// When it came to the emulator.
    pub entered: Instant,
    /// Where it lies.
    pub slot: u32,
    /// Length of the frame.
    pub length: u32,
    /// Whose packet it is, if that is known.
    pub flow: Option<(u16, PacketKind)>,
}

/// One of the links of a direction.
pub(super) struct Stage {
    /// What decides the packets' fates.
    pub link: Link,
    /// In order of `due`.
    pub waiting: VecDeque<Waiting>,
    /// The direction that it belongs to.
    pub way: usize,
    /// The link behind it.
    pub next: Option<usize>,
    /// The same link of the other direction, if the two share a radio.
    pub sibling: Option<usize>,
}

impl Stage {
    /// Puts a frame in its place. Only a link that reorders has any that are due later.
    pub fn push(&mut self, frame: Waiting) {
        if self.waiting.back().is_none_or(|last| last.due <= frame.due) {
            self.waiting.push_back(frame);
        } else {
            let place = self.waiting.partition_point(|other| other.due <= frame.due);
            self.waiting.insert(place, frame);
        }
    }

    /// The next frame, if it is due by `horizon`.
    #[inline]
    pub fn pop(&mut self, horizon: Instant) -> Option<Waiting> {
        if self.waiting.front()?.due > horizon {
            return None;
        }
        self.waiting.pop_front()
    }

    /// When the next frame is due.
    #[inline]
    pub fn due(&self) -> Instant {
        self.waiting.front().map_or(Instant::FAR_FUTURE, |frame| frame.due)
    }
}
