//! Jitter buffer of a real RTP stream: takes packets in any order, returns frames in order with their due times.
//!
//! A frame is due at its capture time plus the minimum recent transit time plus the length of the buffer. A
//! complete frame goes to the decoder at once; an incomplete one when it is due and a later packet has arrived,
//! as in [`Screen`](super::Screen), which models both for frames whose packets are known.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use skybraid_units::{Duration, Instant};

use super::depacketiser::{Depacketiser, first_unit};
use super::fragment::Codec;
use super::rtp::{Header, Unwrapper, VIDEO_CLOCK_HZ};
use super::transit::MinTransit;
use super::units::unit_kind;

/// Maximum number of incomplete frames. The oldest is given up for one more, so that false timestamps cannot
/// fill the memory.
const MAX_FRAMES: usize = 1024;

/// Received parts of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedFrame {
    /// Timestamp, extended to 64 bits.
    pub ticks: u64,
    /// Time at which it must be shown.
    pub due: Instant,
    /// Complete NAL units.
    pub units: Vec<Vec<u8>>,
    /// Whether all of it arrived.
    pub complete: bool,
    /// Whether all of it and of all frames it refers to arrived.
    pub intact: bool,
}

/// Payloads of a frame by sequence number, never empty.
#[derive(Clone, Debug, Default)]
struct Pending {
    payloads: BTreeMap<u64, Vec<u8>>,
    /// The packet with the marker bit, the last of the frame.
    marked: Option<u64>,
}

impl Pending {
    fn first(&self) -> u64 {
        self.payloads.keys().next().copied().unwrap_or(0)
    }

    fn last(&self) -> u64 {
        self.payloads.keys().next_back().copied().unwrap_or(0)
    }

    fn has_hole(&self) -> bool {
        (self.payloads.len() as u64) <= self.last() - self.first()
    }

    /// Returns whether no packet is missing between the first and the marked one.
    fn is_solid(&self) -> bool {
        self.marked == Some(self.last()) && !self.has_hole()
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct JitterBuffer {
    codec: Codec,
    length: Duration,
    sequence: Unwrapper<16>,
    timestamps: Unwrapper<32>,
    frames: BTreeMap<u64, Pending>,
    /// Last packet of the last frame returned.
    released: Option<u64>,
    min_transit: MinTransit,
    /// Complete frames needed until the picture is intact; `None` before a key frame or recovery point.
    frames_to_intact: Option<u32>,
}

impl JitterBuffer {
    /// Creates an empty buffer, in which a packet with the minimum transit time waits for `length`.
    pub fn new(codec: Codec, length: Duration) -> Self {
        Self {
            codec,
            length,
            sequence: Unwrapper::default(),
            timestamps: Unwrapper::default(),
            frames: BTreeMap::new(),
            released: None,
            min_transit: MinTransit::default(),
            frames_to_intact: None,
        }
    }

    /// Returns the timestamp nearest to those received, extended to 64 bits.
    pub fn ticks(&self, timestamp: u32) -> u64 {
        self.timestamps.nearest(timestamp)
    }

    /// Handles a packet. Duplicates and packets of frames already returned are ignored.
    pub fn on_received(&mut self, now: Instant, header: &Header, payload: &[u8]) {
        let number = self.sequence.unwrap(header.sequence.into());
        let ticks = self.timestamps.unwrap(header.timestamp);
        if self.released.is_some_and(|released| number <= released) {
            return;
        }
        let frame = self.frames.entry(ticks).or_default();
        if frame.payloads.contains_key(&number) {
            return;
        }
        frame.payloads.insert(number, payload.to_vec());
        if header.marker {
            frame.marked = Some(number);
        }
        self.min_transit.on_received(now, captured(ticks));
    }

    /// Removes and returns the next frame that goes to the decoder by `now`.
    pub fn next_frame(&mut self, now: Instant) -> Option<ReceivedFrame> {
        let (ticks, frame) = self.frames.first_key_value()?;
        let starts = || self.follows(frame) || self.released.is_none() && self.begins(frame);
        let given_up =
            || self.frames.len() > MAX_FRAMES || now >= self.due(*ticks) && self.is_given_up(frame);
        (frame.is_solid() && starts() || given_up()).then(|| self.release()).flatten()
    }

    /// Removes and returns the oldest frame, whatever arrived of it: at the end of a stream.
    pub fn release(&mut self) -> Option<ReceivedFrame> {
        let (ticks, frame) = self.frames.pop_first()?;
        let (due, follows) = (self.due(ticks), self.follows(&frame));
        let complete = frame.is_solid() && (follows || self.begins(&frame));
        self.released = Some(self.released.map_or(frame.last(), |last| last.max(frame.last())));
        let units = self.units(frame);
        if !follows {
            self.frames_to_intact = None;
        }
        self.update_intact(&units, complete);
        let intact = complete && self.frames_to_intact == Some(0);
        Some(ReceivedFrame { ticks, due, units, complete, intact })
    }

    /// Returns the time at which a frame becomes due though no further packet arrives.
    pub fn next_due(&self) -> Option<Instant> {
        let (ticks, frame) = self.frames.first_key_value()?;
        self.is_given_up(frame).then(|| self.due(*ticks))
    }

    fn due(&self, ticks: u64) -> Instant {
        self.min_transit.due(captured(ticks), self.length)
    }

    /// Returns whether the frame follows the last one returned without a gap.
    fn follows(&self, frame: &Pending) -> bool {
        self.released.is_some_and(|released| frame.first() == released + 1)
    }

    /// Returns whether a frame begins with the first packet.
    fn begins(&self, frame: &Pending) -> bool {
        let unit =
            frame.payloads.values().next().and_then(|payload| first_unit(self.codec, payload));
        unit.is_some_and(|unit| unit_kind(self.codec, &unit).first)
    }

    /// Returns whether a packet is missing although a later one has arrived.
    fn is_given_up(&self, frame: &Pending) -> bool {
        let before = match self.released {
            None => !self.begins(frame),
            Some(_) => !self.follows(frame),
        };
        before || frame.has_hole() || self.sequence.highest() > Some(frame.last())
    }

    fn units(&self, frame: Pending) -> Vec<Vec<u8>> {
        let (mut depacketiser, mut units) = (Depacketiser::new(self.codec), Vec::new());
        for (number, payload) in frame.payloads {
            // An invalid payload counts as lost, and its unit is not whole.
            let _ = depacketiser.push(number, &payload, &mut units);
        }
        units.into_iter().filter(|unit| unit.whole).map(|unit| unit.bytes).collect()
    }

    fn update_intact(&mut self, units: &[Vec<u8>], complete: bool) {
        if !complete {
            self.frames_to_intact = None;
            return;
        }
        let kinds = || units.iter().map(|unit| unit_kind(self.codec, unit));
        self.frames_to_intact = if kinds().any(|kind| kind.key) {
            Some(0)
        } else if let Some(needed) = self.frames_to_intact {
            Some(needed.saturating_sub(1))
        } else {
            kinds().find_map(|kind| kind.recovery_frames)
        };
    }
}

/// Returns the time of a timestamp, from an unknown origin.
fn captured(ticks: u64) -> Instant {
    let nanos = u128::from(ticks) * 1_000_000_000 / u128::from(VIDEO_CLOCK_HZ);
    Instant::from_nanos(nanos as i64)
}

#[cfg(test)]
mod tests {
    use super::super::fragment::{fragments, write_payload};
    use super::*;
    use alloc::vec;
    use skybraid_units::Seed;

    const KEY: &[u8] = &[0x65, 0x88, 0x80];
    const OTHER: &[u8] = &[0x41, 0x9a, 0x00];

    fn at(ms: i64) -> Instant {
        Instant::from_millis(ms)
    }

    /// Returns eight frames of two packets, ten a second, of which every fourth is a key frame. Their numbers and
    /// timestamps wrap.
    fn packets() -> Vec<(Header, Vec<u8>)> {
        let mut packets = Vec::new();
        for number in 0..8u16 {
            let mut unit = if number % 4 == 0 { KEY.to_vec() } else { OTHER.to_vec() };
            unit.extend([number as u8 + 1; 60]);
            for (place, part) in fragments(Codec::H264, 63, 40).enumerate() {
                let sequence = (2 * number + place as u16).wrapping_add(0xfffd);
                let timestamp = (9000 * u32::from(number)).wrapping_sub(100);
                let marker = place == 1;
                let mut payload = vec![];
                write_payload(Codec::H264, &unit, part, &mut payload).unwrap();
                let header = Header { marker, payload_type: 96, sequence, timestamp, ssrc: 7 };
                packets.push((header, payload));
            }
        }
        packets
    }

    /// Plays packets that arrive at times in ms. Returns when each frame is shown, in ms, and whether it is intact.
    fn play(arrivals: &[(i64, usize)]) -> Vec<(i64, bool)> {
        let (packets, mut shown) = (packets(), Vec::<(i64, bool)>::new());
        let mut buffer = JitterBuffer::new(Codec::H264, Duration::from_millis(150));
        for now in 0..2000 {
            for (_, number) in arrivals.iter().filter(|(arrived, _)| *arrived == now) {
                buffer.on_received(at(now), &packets[*number].0, &packets[*number].1);
            }
            while let Some(frame) = buffer.next_frame(at(now)) {
                // Rounded, as an interval of 9,000 ticks is exact but the origin is not.
                let due = (frame.due.as_nanos() + 500_000) / 1_000_000;
                let last = shown.last().map_or(0, |(at, _)| *at);
                shown.push((due.max(now).max(last), frame.intact));
            }
        }
        shown
    }

    fn in_time() -> Vec<(i64, usize)> {
        (0..16).map(|number| (20 + 100 * (number as i64 / 2), number)).collect()
    }

    // By hand, as for the screen of the simulator: the minimum transit is 20 ms, so that frame n is due at
    // 100 n + 20 + 150 ms.
    #[test]
    fn frames_are_shown_when_due_and_late_ones_on_completion() {
        let arrivals =
            [(20, 0), (25, 1), (130, 2), (140, 3), (420, 4), (450, 5), (451, 6), (451, 7)];
        assert_eq!(play(&arrivals), [(170, true), (270, true), (450, true), (470, true)]);
    }

    #[test]
    fn damage_lasts_until_the_next_key_frame() {
        let arrivals: Vec<_> = in_time().into_iter().filter(|(_, number)| *number != 3).collect();
        let expected: Vec<_> = (0..8).map(|n| (100 * n + 170, !(1..=3).contains(&n))).collect();
        assert_eq!(play(&arrivals), expected);
    }

    #[test]
    fn a_frame_lost_as_a_whole_is_not_shown() {
        let lost = |number: &usize| (6..8).contains(number);
        let arrivals: Vec<_> = in_time().into_iter().filter(|(_, number)| !lost(number)).collect();
        let expected: Vec<_> = (0..8).filter(|n| *n != 3).map(|n| (100 * n + 170, true)).collect();
        assert_eq!(play(&arrivals), expected);
    }

    #[test]
    fn a_frame_is_awaited_while_nothing_later_arrives() {
        for stuck in [0, 3] {
            let late = |at: i64, number| if number > 2 * stuck { at.max(900) } else { at };
            let arrivals: Vec<_> =
                in_time().into_iter().map(|(at, number)| (late(at, number), number)).collect();
            let shown = play(&arrivals);
            assert_eq!(shown[stuck], (900, true));
            assert!(shown.len() == 8 && shown.iter().all(|(_, intact)| *intact));
        }
    }

    #[test]
    fn reordered_and_duplicate_packets_make_the_same_frames() {
        let reordered: Vec<_> = in_time()
            .into_iter()
            .map(|(at, number)| (at + 60 * (1 - number as i64 % 2), number))
            .collect();
        let copies = reordered.iter().map(|(at, number)| (at + 15, *number));
        let twice: Vec<_> = reordered.iter().copied().chain(copies).collect();
        assert_eq!(play(&twice), play(&reordered));
        assert!(play(&reordered).iter().all(|(_, intact)| *intact));
        assert_eq!(play(&reordered).len(), 8);
    }

    #[test]
    fn false_timestamps_do_not_fill_the_memory() {
        let mut random = Seed(3550).stream("jitter");
        for codec in [Codec::H264, Codec::H265] {
            let mut buffer = JitterBuffer::new(codec, Duration::from_millis(50));
            for number in 0..20_000u16 {
                let timestamp = random.next_u64() as u32;
                let header = Header {
                    marker: false,
                    payload_type: 96,
                    sequence: number,
                    timestamp,
                    ssrc: 1,
                };
                let payload: Vec<u8> =
                    (0..random.below(40)).map(|_| random.next_u64() as u8).collect();
                buffer.on_received(at(number.into()), &header, &payload);
                while buffer.next_frame(at(number.into())).is_some() {}
                assert!(buffer.frames.len() <= MAX_FRAMES);
            }
        }
    }
}
