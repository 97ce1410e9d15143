//! What waits for a slow reader: whole frames, in order, up to a bound.

use std::collections::VecDeque;
use std::io::{self, IoSlice};

/// Frames that are written in one system call.
const MOST_SLICES: usize = 64;
/// Buffers that are kept to be written over.
const MOST_SPARE: usize = 256;

/// Frames in the order in which they came. When there is no room, the oldest that are not control are
/// dropped, then the oldest of control. A frame of which some bytes have left is never dropped.
pub struct Queue {
    control: VecDeque<Held>,
    other: VecDeque<Held>,
    /// Bytes of all that waits.
    bytes: usize,
    /// Most bytes that may wait.
    room: usize,
    /// Number of the next frame.
    next: u64,
    /// Bytes of the first frame that have left.
    gone: usize,
    spare: Vec<Vec<u8>>,
}

struct Held {
    number: u64,
    bytes: Vec<u8>,
}

impl Queue {
    /// An empty queue for so many bytes.
    pub fn new(room: usize) -> Self {
        let (control, other) = (VecDeque::new(), VecDeque::new());
        Self { control, other, bytes: 0, room, next: 0, gone: 0, spare: Vec::new() }
    }

    /// Nothing waits.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Puts a frame in; returns how many have been dropped for it.
    pub fn push(&mut self, frame: &[u8], control: bool) -> u64 {
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.clear();
        bytes.extend_from_slice(frame);
        let held = Held { number: self.next, bytes };
        self.next += 1;
        self.bytes += frame.len();
        if control { &mut self.control } else { &mut self.other }.push_back(held);
        let mut dropped = 0;
        while self.bytes > self.room && self.drop_oldest() {
            dropped += 1;
        }
        dropped
    }

    /// Forgets all that waits; returns how many frames that were.
    pub fn clear(&mut self) -> u64 {
        let frames = self.control.len() + self.other.len();
        self.control.clear();
        self.other.clear();
        (self.bytes, self.gone) = (0, 0);
        frames as u64
    }

    fn drop_oldest(&mut self) -> bool {
        let first = self.first();
        for lane in [&mut self.other, &mut self.control] {
            // The first frame of all may be half gone.
            let begun = self.gone > 0 && lane.front().map(|held| held.number) == first;
            if let Some(held) = lane.remove(usize::from(begun)) {
                self.bytes -= held.bytes.len();
                return true;
            }
        }
        false
    }

    /// The number of the first frame.
    fn first(&self) -> Option<u64> {
        let front = |lane: &VecDeque<Held>| lane.front().map(|held| held.number);
        match (front(&self.control), front(&self.other)) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    /// Writes as much as `write` takes; `Ok(true)` if nothing is left.
    pub fn flush(
        &mut self,
        mut write: impl FnMut(&[IoSlice<'_>]) -> io::Result<usize>,
    ) -> io::Result<bool> {
        while !self.is_empty() {
            let mut slices = [IoSlice::new(&[]); MOST_SLICES];
            let (mut control, mut other) = (self.control.iter(), self.other.iter());
            let (mut one, mut two) = (control.next(), other.next());
            let (mut count, mut offered, mut gone) = (0, 0, self.gone);
            for slice in &mut slices {
                let next = match (one, two) {
                    (Some(first), Some(second)) if first.number < second.number => &mut one,
                    (Some(_), None) => &mut one,
                    (_, Some(_)) => &mut two,
                    (None, None) => break,
                };
                let Some(held) = next.take() else { break };
                *slice = IoSlice::new(held.bytes.get(gone..).unwrap_or_default());
                gone = 0;
                count += 1;
                offered += slice.len();
                one = one.or_else(|| control.next());
                two = two.or_else(|| other.next());
            }
            let written = match write(slices.get(..count).unwrap_or_default()) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => written,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            };
            self.advance(written);
            if written < offered {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// So many bytes have left.
    fn advance(&mut self, written: usize) {
        self.gone += written;
        while let Some(first) = self.first() {
            let lane = match self.control.front() {
                Some(held) if held.number == first => &mut self.control,
                _ => &mut self.other,
            };
            let length = lane.front().map_or(0, |held| held.bytes.len());
            if length > self.gone {
                break;
            }
            if let Some(held) = lane.pop_front() {
                self.gone -= length;
                self.bytes -= length;
                if self.spare.len() < MOST_SPARE {
                    self.spare.push(held.bytes);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes at most `room` bytes, then would block.
    fn taking<'a>(
        out: &'a mut Vec<u8>,
        mut room: usize,
    ) -> impl FnMut(&[IoSlice<'_>]) -> io::Result<usize> + 'a {
        move |slices| {
            let all: Vec<u8> = slices.iter().flat_map(|slice| slice.to_vec()).collect();
            let taken = all.len().min(room);
            room -= taken;
            out.extend(all.iter().take(taken));
            if taken == 0 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(taken) }
        }
    }

    #[test]
    fn frames_leave_in_order_whatever_their_kind() {
        let (mut queue, mut out) = (Queue::new(10_000), Vec::new());
        let frames: Vec<Vec<u8>> = (0..200_u8).map(|at| vec![at; 1 + at as usize % 7]).collect();
        for (at, frame) in frames.iter().enumerate() {
            assert_eq!(queue.push(frame, at % 3 == 0), 0);
        }
        while !queue.flush(taking(&mut out, 50)).unwrap() {}
        assert_eq!(out, frames.concat());
        assert!(queue.is_empty());
    }

    #[test]
    fn the_oldest_go_first_and_control_last() {
        let (mut queue, mut out) = (Queue::new(40), Vec::new());
        queue.push(&[1; 10], true);
        queue.push(&[2; 10], false);
        queue.push(&[3; 10], false);
        queue.push(&[4; 10], true);
        assert_eq!(queue.push(&[5; 10], true), 1);
        assert_eq!(queue.push(&[6; 10], true), 1);
        assert_eq!(queue.push(&[7; 10], true), 1);
        assert!(queue.flush(taking(&mut out, 100)).unwrap());
        assert_eq!(out, [[4; 10], [5; 10], [6; 10], [7; 10]].concat());
    }

    #[test]
    fn a_frame_that_is_half_gone_is_finished() {
        let (mut queue, mut out) = (Queue::new(20), Vec::new());
        queue.push(&[1; 10], false);
        queue.push(&[2; 10], false);
        assert!(!queue.flush(taking(&mut out, 4)).unwrap());
        assert_eq!(queue.push(&[3; 10], false), 1);
        assert!(queue.flush(taking(&mut out, 100)).unwrap());
        assert_eq!(out, [[1; 10], [3; 10]].concat());
    }
}
