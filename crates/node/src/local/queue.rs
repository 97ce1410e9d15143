//! Bounded queue for a slow reader: whole frames, in order within each component.

use std::collections::VecDeque;
use std::io::{self, IoSlice};

use skybraid_transport::mutran::Header;
use skybraid_units::Instant;
use skybraid_units::invariant::Promised;

/// Maximum frames written by one system call.
const MAX_SLICES: usize = 64;
/// Maximum spare buffers kept for reuse.
const MAX_SPARE: usize = 256;
/// Maximum components with separate queues; further ones share the last.
const MAX_COMPONENTS: usize = 64;

/// Frames by component. Components take turns, and each keeps its order. If the queue is full, the component
/// that holds most loses its oldest non-control frame or, if it has none, its oldest. A partly written frame
/// is never dropped.
pub struct Queue {
    /// Components with queued messages, next to be served first.
    components: VecDeque<Component>,
    /// Partly written frame, and the number of bytes written.
    begun: Option<(Vec<u8>, usize)>,
    /// Total bytes queued.
    bytes: usize,
    /// Maximum of `bytes`.
    room: usize,
    /// Time at which the first frame is too old.
    expires: Instant,
    spare: Vec<Vec<u8>>,
}

struct Component {
    name: (u8, u8),
    bytes: usize,
    frames: VecDeque<Held>,
}

struct Held {
    control: bool,
    expires: Instant,
    bytes: Vec<u8>,
}

impl Queue {
    /// Creates an empty queue of `room` bytes.
    pub fn new(room: usize) -> Self {
        let expires = Instant::FAR_FUTURE;
        let (components, begun, spare) = (VecDeque::new(), None, Vec::new());
        Self { components, begun, bytes: 0, room, expires, spare }
    }

    /// Returns whether nothing is queued.
    pub fn is_empty(&self) -> bool {
        self.components.is_empty() && self.begun.is_none()
    }

    /// Queues a frame, to be dropped after `expires`; returns the number of frames dropped for it.
    pub fn push(&mut self, frame: &[u8], control: bool, expires: Instant) -> u64 {
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.clear();
        bytes.extend_from_slice(frame);
        let name = Header::parse(frame).map_or((0, 0), |header| (header.system, header.component));
        let known = self.components.iter().position(|component| component.name == name);
        let place = known.unwrap_or_else(|| {
            if self.components.len() < MAX_COMPONENTS {
                let frames = VecDeque::new();
                self.components.push_back(Component { name, bytes: 0, frames });
            }
            self.components.len() - 1
        });
        if let Some(component) = self.components.get_mut(place) {
            component.bytes += frame.len();
            component.frames.push_back(Held { control, expires, bytes });
            self.bytes += frame.len();
            self.expires = self.expires.min(expires);
        }
        let mut dropped = 0;
        while self.bytes > self.room && self.drop_oldest() {
            dropped += 1;
        }
        dropped
    }

    /// Drops all queued frames and returns their number.
    pub fn clear(&mut self) -> u64 {
        let waiting: usize = self.components.iter().map(|component| component.frames.len()).sum();
        let frames = waiting + usize::from(self.begun.is_some());
        self.components.clear();
        self.begun = None;
        self.bytes = 0;
        self.expires = Instant::FAR_FUTURE;
        frames as u64
    }

    /// Drops expired frames and returns their number.
    pub fn drop_expired(&mut self, now: Instant) -> u64 {
        if now <= self.expires {
            return 0;
        }
        let (mut late, mut next) = (0, Instant::FAR_FUTURE);
        for component in &mut self.components {
            component.frames.retain(|held| {
                let keeps = now <= held.expires;
                if keeps {
                    next = next.min(held.expires);
                } else {
                    late += 1;
                    component.bytes -= held.bytes.len();
                    self.bytes -= held.bytes.len();
                }
                keeps
            });
        }
        self.components.retain(|component| !component.frames.is_empty());
        self.expires = next;
        late
    }

    fn drop_oldest(&mut self) -> bool {
        let longest =
            self.components.iter().enumerate().max_by_key(|(_, component)| component.bytes);
        let Some(at) = longest.map(|(at, _)| at) else { return false };
        let Some(component) = self.components.get_mut(at).promised("the longest queue") else {
            return false;
        };
        let oldest = component.frames.iter().position(|held| !held.control).unwrap_or(0);
        let Some(held) = component.frames.remove(oldest).promised("a frame of a queue") else {
            return false;
        };
        component.bytes -= held.bytes.len();
        self.bytes -= held.bytes.len();
        if component.frames.is_empty() {
            self.components.remove(at);
        }
        self.keep(held.bytes);
        true
    }

    fn keep(&mut self, bytes: Vec<u8>) {
        if self.spare.len() < MAX_SPARE {
            self.spare.push(bytes);
        }
    }

    /// Removes the next frame: the oldest of the component whose turn it is.
    fn next(&mut self) -> Option<Held> {
        let mut component = self.components.pop_front()?;
        let held = component.frames.pop_front()?;
        component.bytes -= held.bytes.len();
        if !component.frames.is_empty() {
            self.components.push_back(component);
        }
        Some(held)
    }

    /// Writes as much as `write` accepts; returns `Ok(true)` if nothing is left.
    pub fn flush(
        &mut self,
        mut write: impl FnMut(&[IoSlice<'_>]) -> io::Result<usize>,
    ) -> io::Result<bool> {
        let mut row = VecDeque::new();
        let result = loop {
            while row.len() < MAX_SLICES
                && let Some(held) = self.next()
            {
                row.push_back(held);
            }
            let begun = self.begun.as_ref();
            let gone =
                begun.map_or(&[][..], |(bytes, gone)| bytes.get(*gone..).unwrap_or_default());
            let mut slices = [IoSlice::new(&[]); MAX_SLICES + 1];
            let parts =
                begun.iter().map(|_| gone).chain(row.iter().map(|frame| frame.bytes.as_slice()));
            let (mut count, mut offered) = (0, 0);
            for (slice, part) in slices.iter_mut().zip(parts) {
                *slice = IoSlice::new(part);
                count += 1;
                offered += part.len();
            }
            if count == 0 {
                break Ok(true);
            }
            match write(slices.get(..count).unwrap_or_default()) {
                Ok(0) => break Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    self.advance(&mut row, written);
                    if written < offered {
                        break Ok(false);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break Ok(false),
                Err(error) => break Err(error),
            }
        };
        self.put_back(row);
        result
    }

    /// Accounts for `written` bytes of the partly written frame and of the frames in `row`.
    fn advance(&mut self, row: &mut VecDeque<Held>, mut written: usize) {
        if let Some((bytes, gone)) = self.begun.take() {
            let left = bytes.len() - gone;
            if written < left {
                self.begun = Some((bytes, gone + written));
                self.bytes -= written;
                return;
            }
            written -= left;
            self.bytes -= left;
            self.keep(bytes);
        }
        while written > 0
            && let Some(held) = row.pop_front()
        {
            let length = held.bytes.len();
            if written < length {
                self.begun = Some((held.bytes, written));
                self.bytes -= written;
                return;
            }
            written -= length;
            self.bytes -= length;
            self.keep(held.bytes);
        }
    }

    /// Returns unsent frames to the heads of their queues.
    fn put_back(&mut self, row: VecDeque<Held>) {
        for held in row.into_iter().rev() {
            let name = Header::parse(&held.bytes)
                .map_or((0, 0), |header| (header.system, header.component));
            let known = self.components.iter().position(|component| component.name == name);
            let known = known.or_else(|| {
                let full = self.components.len() >= MAX_COMPONENTS;
                full.then(|| self.components.len() - 1)
            });
            let mut component = known
                .and_then(|at| self.components.remove(at))
                .unwrap_or_else(|| Component { name, bytes: 0, frames: VecDeque::new() });
            component.bytes += held.bytes.len();
            component.frames.push_front(held);
            self.components.push_front(component);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEVER: Instant = Instant::FAR_FUTURE;

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
            assert_eq!(queue.push(frame, at % 3 == 0, NEVER), 0);
        }
        while !queue.flush(taking(&mut out, 50)).unwrap() {}
        assert_eq!(out, frames.concat());
        assert!(queue.is_empty());
    }

    #[test]
    fn the_oldest_go_first_and_control_last() {
        let (mut queue, mut out) = (Queue::new(40), Vec::new());
        queue.push(&[1; 10], true, NEVER);
        queue.push(&[2; 10], false, NEVER);
        queue.push(&[3; 10], false, NEVER);
        queue.push(&[4; 10], true, NEVER);
        assert_eq!(queue.push(&[5; 10], true, NEVER), 1);
        assert_eq!(queue.push(&[6; 10], true, NEVER), 1);
        assert_eq!(queue.push(&[7; 10], true, NEVER), 1);
        assert!(queue.flush(taking(&mut out, 100)).unwrap());
        assert_eq!(out, [[4; 10], [5; 10], [6; 10], [7; 10]].concat());
    }

    #[test]
    fn a_frame_that_is_half_gone_is_finished() {
        let (mut queue, mut out) = (Queue::new(20), Vec::new());
        queue.push(&[1; 10], false, NEVER);
        queue.push(&[2; 10], false, NEVER);
        assert!(!queue.flush(taking(&mut out, 4)).unwrap());
        assert_eq!(queue.push(&[3; 10], false, NEVER), 1);
        assert!(queue.flush(taking(&mut out, 100)).unwrap());
        assert_eq!(out, [[1; 10], [3; 10]].concat());
    }

    /// Returns a MAVLink 2 frame of a component with a number in its payload.
    fn frame(component: u8, number: u8) -> Vec<u8> {
        vec![0xfd, 1, 0, 0, 0, 1, component, 76, 0, 0, number, 0, 0]
    }

    #[test]
    fn components_take_turns_and_a_flood_drops_its_own() {
        let (mut queue, mut out) = (Queue::new(1_300), Vec::new());
        let mut dropped = 0;
        for number in 0..250 {
            dropped += queue.push(&frame(190, number), true, NEVER);
            if number % 50 == 0 {
                dropped += queue.push(&frame(1, number), false, NEVER);
            }
        }
        assert_eq!(dropped, 255 - 100);
        assert!(!queue.flush(taking(&mut out, 13 * 10 - 4)).unwrap());
        assert!(queue.flush(taking(&mut out, 10_000)).unwrap());
        let places: Vec<(usize, u8)> = out
            .chunks(13)
            .enumerate()
            .filter(|(_, frame)| frame[6] == 1)
            .map(|(place, frame)| (place, frame[10]))
            .collect();
        let numbers: Vec<u8> = places.iter().map(|(_, number)| *number).collect();
        assert_eq!(numbers, [0, 50, 100, 150, 200]);
        assert!(places.iter().all(|(place, _)| *place <= 11), "{places:?}");
        let flood: Vec<u8> =
            out.chunks(13).filter(|frame| frame[6] == 190).map(|frame| frame[10]).collect();
        assert!(flood.is_sorted() && flood.len() == 95, "{flood:?}");
    }

    #[test]
    fn what_is_too_old_leaves_the_queue_unless_it_has_begun() {
        let (mut queue, mut out) = (Queue::new(1_300), Vec::new());
        let at = Instant::from_millis;
        queue.push(&frame(1, 1), true, at(100));
        queue.push(&frame(1, 2), true, at(100));
        queue.push(&frame(1, 3), true, at(300));
        assert!(!queue.flush(taking(&mut out, 4)).unwrap());
        assert_eq!(queue.drop_expired(at(100)), 0);
        assert_eq!(queue.drop_expired(at(200)), 1);
        assert!(queue.flush(taking(&mut out, 100)).unwrap());
        assert_eq!(out, [frame(1, 1), frame(1, 3)].concat());
        assert_eq!((queue.drop_expired(at(1_000)), queue.bytes), (0, 0));
    }
}
