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
    /// Frames in flight that the receiver holds, the last ones.
    pub held: usize,
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

    /// Appends a frame that the receiver holds.
    pub fn hold(&mut self, frame: Waiting) {
        self.held += 1;
        self.waiting.push_back(Waiting { due: Instant::FAR_FUTURE, ..frame });
    }

    /// Sets the due time of the frames that the receiver releases.
    #[inline]
    pub fn release_held(&mut self) {
        while let Some(release) = self.link.release() {
            let oldest = self.waiting.len() - self.held;
            for frame in self.waiting.range_mut(oldest..oldest + release.packets) {
                frame.due = release.at;
            }
            self.held -= release.packets;
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

    /// Cuts the link. Passes the frames that have not left the queue to `lost`.
    pub fn cut(&mut self, now: Instant, mut lost: impl FnMut(&Waiting)) {
        let first_held = self.waiting.len() - self.held;
        let held = self.waiting.range(first_held..).filter(|frame| frame.departs > now).count();
        self.held -= held;
        self.link.cut(now, held);
        self.waiting.retain(|frame| {
            let departed = frame.departs <= now;
            if !departed {
                lost(frame);
            }
            departed
        });
    }

    /// Returns the due time of the last frame that is due by `horizon`.
    pub fn last_due(&self, horizon: Instant) -> Option<Instant> {
        self.waiting.iter().map(|frame| frame.due).take_while(|due| *due <= horizon).last()
    }

    /// Returns the due time of the next frame.
    #[inline]
    pub fn due(&self) -> Instant {
        self.waiting.front().map_or(Instant::FAR_FUTURE, |frame| frame.due)
    }
}

#[cfg(test)]
mod tests {
    use skybraid_link::{Direction, Fate, Link};
    use skybraid_units::{Bytes, Seed};

    use super::*;

    /// A frame every 8 ms, in a burst of its own, of which one in ten is lost.
    const STACKED: &str = r#"
        uplink.access = { kind = "dvb", frame = "1ms", phase = "0ms", waveform = 12, cra = "10Mbit/s", frame_loss = "10%", terminal_delay = "9ms", reorder_stack = 5 }
        downlink.rate = "1Mbit/s"
    "#;

    /// Returns a stage over a link with a stack for reordering.
    fn stacked() -> Stage {
        let path = skybraid_scenario::load_path(STACKED, ".".as_ref()).unwrap();
        let link = Link::new(&path.link(Direction::Uplink).unwrap(), "p", "uplink", Seed(2));
        Stage { link, waiting: VecDeque::new(), held: 0, way: 0, next: None, sibling: None }
    }

    /// Admits a frame. Returns whether it was lost.
    fn admit(stage: &mut Stage, at: Instant, slot: u32) -> bool {
        let fate = stage.link.admit(at, Bytes::new(60));
        stage.release_held();
        let departs = stage.link.last_departure();
        let frame = Waiting { due: at, departs, entered: at, slot, length: 74, flow: None };
        match fate {
            Fate::Delivered { at: due } => stage.push(Waiting { due, ..frame }),
            Fate::Held => stage.hold(frame),
            Fate::Lost { .. } => return true,
        }
        false
    }

    #[test]
    fn frames_that_a_cut_removes_are_no_longer_held() {
        let mut stage = stacked();
        let (mut removed, mut no_longer_held) = (0, 0);
        for frame in 0..1_000 {
            let now = Instant::from_millis(8 * i64::from(frame));
            while stage.pop(now).is_some() {}
            // At the cut the frames of this instant wait for their burst.
            (0..3).for_each(|slot| _ = admit(&mut stage, now, slot));
            if frame % 50 == 49 {
                let (waiting, held, before) = (stage.waiting.len(), stage.held, removed);
                stage.cut(now, |_| removed += 1);
                stage.link.restore();
                assert_eq!(stage.waiting.len() + removed - before, waiting);
                no_longer_held += held - stage.held;
            }
            let held = stage.waiting.iter().filter(|frame| frame.due == Instant::FAR_FUTURE);
            assert_eq!(held.count(), stage.held);
        }
        assert!(removed > no_longer_held && no_longer_held > 0, "{removed}, {no_longer_held}");
    }

    #[test]
    fn held_frames_leave_in_order_once_they_are_released() {
        let mut stage = stacked();
        let (mut left, mut held, mut lost) = (Vec::new(), 0, 0);
        for slot in 0..2000 {
            let at = Instant::from_millis(8 * i64::from(slot));
            while let Some(frame) = stage.pop(at) {
                left.push((frame.due, frame.slot));
            }
            let before = stage.held;
            lost += usize::from(admit(&mut stage, at, slot));
            held += usize::from(stage.held > before);
        }
        assert!(held > 500 && lost > 150, "{held} held, {lost} lost");
        assert!(left.is_sorted() && left.iter().all(|(_, slot)| *slot < 2000));
        let slots: Vec<u32> = left.iter().map(|(_, slot)| *slot).collect();
        assert!(slots.is_sorted());
        assert_eq!(left.len() + stage.waiting.len() + lost, 2000);
        let behind = stage.waiting.iter().filter(|frame| frame.due == Instant::FAR_FUTURE);
        assert_eq!(behind.count(), stage.held);
    }
}
