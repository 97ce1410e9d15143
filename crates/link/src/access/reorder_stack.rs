//! Reorder stack of a receiver of numbered datagrams, without a timer.
//!
//! Datagrams above a missing number wait until more than a maximum of them do; then the gap is given up. When a packet
//! arrives so depends on frames that are sent after its admission.
//!
//! Source: `UdpChannel` of OpenSAND 5.2.

use alloc::collections::VecDeque;

use skybraid_units::Instant;

use crate::link::Release;

/// Stack of one receiver. Frames arrive in order of their numbers, which begin at zero; lost ones never do.
#[derive(Clone, Debug)]
pub(crate) struct ReorderStack {
    /// Maximum number of frames that wait for a gap.
    max: usize,
    /// Number of the next frame in order.
    next: u64,
    /// Numbers of the waiting frames, in order.
    waiting: VecDeque<u64>,
    /// Number of the last frame of each packet that is held, in order.
    held: VecDeque<u64>,
    releases: VecDeque<Release>,
}

impl ReorderStack {
    /// Creates the stack of a receiver at which up to `max` frames wait for a gap.
    pub fn new(max: u32) -> Self {
        Self {
            max: max as usize,
            next: 0,
            waiting: VecDeque::new(),
            held: VecDeque::new(),
            releases: VecDeque::new(),
        }
    }

    /// Processes the arrival of `frame` at `at`.
    pub fn on_frame(&mut self, frame: u64, at: Instant) {
        self.waiting.push_back(frame);
        let mut next = self.next;
        while let Some(first) = self.waiting.front()
            && (*first == next || self.waiting.len() > self.max)
        {
            next = first + 1;
            self.waiting.pop_front();
        }
        self.next = next;
        let packets = self.held.iter().take_while(|last| **last < next).count();
        if packets > 0 {
            self.held.drain(..packets);
            self.releases.push_back(Release { packets, at });
        }
    }

    /// Holds a packet that ends in `last`, unless that frame has left the stack. Returns whether it is held.
    pub fn holds(&mut self, last: u64) -> bool {
        let holds = last >= self.next;
        if holds {
            self.held.push_back(last);
        }
        holds
    }

    /// Removes the newest packets that are held.
    pub fn remove_newest(&mut self, packets: usize) {
        self.held.truncate(self.held.len().saturating_sub(packets));
    }

    /// Returns the next release.
    pub fn release(&mut self) -> Option<Release> {
        self.releases.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    /// Instants, as numbers of the frame that releases, at which packets of a frame each leave a stack of five.
    fn releases(lost: &[u64], frames: u64) -> Vec<(u64, u64)> {
        let mut stack = ReorderStack::new(5);
        let mut held = VecDeque::new();
        let mut out = Vec::new();
        for frame in (0..frames).filter(|frame| !lost.contains(frame)) {
            stack.on_frame(frame, Instant::from_millis(frame as i64));
            while let Some(Release { packets, at }) = stack.release() {
                out.extend(
                    held.drain(..packets).map(|packet| (packet, at.as_nanos() as u64 / 1_000_000)),
                );
            }
            if stack.holds(frame) {
                held.push_back(frame);
            } else {
                out.push((frame, frame));
            }
        }
        out
    }

    // Source: OpenSAND 5.2: five datagrams wait, and the sixth gives up the gap.
    #[test]
    fn five_frames_behind_a_lost_one_leave_with_the_sixth() {
        let expected = [(0, 0), (2, 7), (3, 7), (4, 7), (5, 7), (6, 7), (7, 7), (8, 8)];
        assert_eq!(releases(&[1], 9), expected);
        assert_eq!(releases(&[1], 7), [(0, 0)], "no timer");
    }

    // The second gap is met with 5 to 8 waiting, and given up with the sixth after it.
    #[test]
    fn a_second_gap_waits_for_six_frames_of_its_own() {
        let expected =
            [(0, 0), (2, 8), (3, 8), (5, 10), (6, 10), (7, 10), (8, 10), (9, 10), (10, 10)];
        assert_eq!(releases(&[1, 4], 11), expected);
    }
}
