//! The sender: frames at their times, cut into RTP packets.

use alloc::collections::VecDeque;
use alloc::sync::Arc;

use skybraid_units::{Bytes, Duration, Instant};

use super::clip::EncodedClip;
use super::config::VideoConfig;
use super::packetise::{Codec, fragments};
use super::protect::{Duplicate, Protection, Protector};
use super::rate::{Control, Queue, RateControl, Report, Sent};
use super::rtp;
use crate::Write;

/// Bytes of the length before a packet in a byte stream (RFC 4571 §2).
const FRAMING_BYTES: u32 = 2;
/// How often rate control is asked whether a packet that waits may leave.
const ASK_EVERY: Duration = Duration::from_millis(5);
/// A NAL unit is not made smaller than this.
const LEAST_UNIT_BYTES: u32 = 20;
/// What a repair packet has beside the longest payload that it repairs: a contributing source, the header
/// of FlexFEC with a mask of 15 bits (RFC 8627 §4.2), and with Reed–Solomon the length among the data.
const REPAIR_BYTES: u32 = 4 + 12 + 2;

/// What a message is of a video.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The frame, from 0.
    pub frame: u32,
    /// A decoder may begin at this frame.
    pub key: bool,
    /// When the camera took it.
    pub captured: Instant,
    /// Which of its packets.
    pub packet: u16,
    /// How many packets it has, repair packets not counted.
    pub packets: u16,
    /// How they are repaired: repair packets have numbers from `packets` on, group by group.
    pub protection: Option<Protection>,
}

/// A camera with its encoder, packetiser and rate control. The encoder takes no time; where rate control
/// asks for less than the clip was encoded at, each frame is smaller in proportion.
#[derive(Clone, Debug)]
pub struct Camera {
    clip: Arc<EncodedClip>,
    /// Only the first frame of all is a key frame.
    one_key: bool,
    codec: Codec,
    /// The largest payload of an RTP packet.
    most: u32,
    /// Bytes that each packet has beside its payload.
    added: u32,
    start: Instant,
    fps: u32,
    spread: Duration,
    /// The next frame.
    frame: u32,
    /// Packets of the frame at hand, with the times at which they leave.
    waiting: VecDeque<(Instant, u32, Part)>,
    protector: Option<Protector>,
    duplicate: Duplicate,
    drop_after: Option<Duration>,
    /// `None` is a constant rate.
    control: Option<Control>,
    /// The rate at which the clip was encoded.
    rate_bps: u64,
    /// Packets that have left.
    sent: u64,
    /// The frame after the one at hand was due then, and no packet may leave before.
    held: Instant,
}

impl Camera {
    /// A camera that takes its first frame at `start`.
    pub fn new(config: &VideoConfig, start: Instant) -> Self {
        let packet = u32::try_from(config.packet.get()).unwrap_or(u32::MAX);
        let framing = if config.framed { FRAMING_BYTES } else { 0 };
        let mut camera = Self {
            clip: config.played(),
            one_key: config.encoded.is_none() && config.intra_refresh,
            codec: config.codec,
            most: packet.saturating_sub(rtp::HEADER_BYTES as u32),
            added: rtp::HEADER_BYTES as u32 + framing,
            start,
            fps: config.fps.max(1),
            spread: config.spread.min(config.interval()),
            frame: 0,
            waiting: VecDeque::new(),
            protector: config.repair.map(Protector::new),
            duplicate: config.duplicate,
            drop_after: config.drop_after,
            control: config.is_controlled().then(|| config.rate_control.build(&config.bounds())),
            rate_bps: config.rate.as_bps().max(1),
            sent: 0,
            held: start,
        };
        camera.take_frame();
        camera
    }

    /// When frame `number` is taken; exact over any length of time.
    fn captured(&self, number: u32) -> Instant {
        let nanos = u64::from(number) * 1_000_000_000 / u64::from(self.fps);
        self.start + Duration::from_nanos(nanos as i64)
    }

    fn take_frame(&mut self) {
        let number = self.frame;
        self.frame = self.frame.wrapping_add(1);
        let Some(frame) = self.clip.frame(number) else { return };
        // A clip of one's own begins anew with a key frame; the model of intra refresh has but one.
        let key = frame.key && !(self.one_key && number > 0);
        let captured = self.captured(number);
        let (codec, most) = (self.codec, self.most);
        let (target, rate) = match &self.control {
            Some(control) => (control.target().as_bps().min(self.rate_bps), self.rate_bps),
            None => (1, 1),
        };
        let scaled = move |unit: u32| {
            let scaled = u64::from(unit) * target / rate;
            (scaled as u32).max(unit.min(LEAST_UNIT_BYTES))
        };
        let units = || frame.units.iter().map(move |unit| scaled(*unit));
        let payloads = || units().flat_map(move |unit| fragments(codec, unit, most));
        let packets = payloads().count().min(usize::from(u16::MAX) / 2) as u16;
        let protection = self.protector.as_ref().map(|protector| protector.protection(packets));
        let all = packets + protection.map_or(0, Protection::count).min(packets);
        let step = Duration::from_nanos(self.spread.as_nanos() / i64::from(all.max(1)));
        let part = |packet| Part { frame: number, key, captured, packet, packets, protection };
        let mut leaves = captured;
        for (packet, payload) in (0..packets).zip(payloads()) {
            self.waiting.push_back((leaves, payload.payload_bytes + self.added, part(packet)));
            leaves += step;
        }
        let Some(protection) = protection else { return };
        for group in 0..protection.groups {
            let (first, end) = protection.bounds(group, packets);
            let of_group = payloads().skip(first.into()).take((end - first).into());
            let longest = of_group.map(|payload| payload.payload_bytes).max().unwrap_or(0);
            for repair in 0..protection.repairs {
                let packet = packets + group * protection.repairs + repair;
                let bytes = longest + self.added + REPAIR_BYTES;
                self.waiting.push_back((leaves, bytes, part(packet)));
                leaves += step;
            }
        }
    }

    /// What is too old to be of use, and still waits, is dropped.
    fn drop_old(&mut self, now: Instant) {
        let Some(drop_after) = self.drop_after else { return };
        while let Some((.., part)) = self.waiting.front()
            && part.captured + drop_after < now
        {
            self.waiting.pop_front();
        }
    }

    /// How many times a packet is written.
    fn copies(&self, part: &Part) -> u8 {
        let twice = match self.duplicate {
            Duplicate::None => false,
            Duplicate::Keys => part.key,
            Duplicate::All => true,
        };
        if twice { 2 } else { 1 }
    }

    /// When to ask for the next packet.
    pub fn next_write(&self) -> Instant {
        let leaves = self.waiting.front().map_or(Instant::FAR_FUTURE, |(leaves, ..)| *leaves);
        leaves.max(self.held)
    }

    /// Takes the next packet, if one is due and may leave at `now`.
    pub fn write(&mut self, now: Instant) -> Option<Write> {
        if let Some(control) = &mut self.control {
            if now >= control.next_wakeup() {
                control.tick(now);
            }
            // Frames are taken at their times, whether or not those ahead of them have left.
            while self.captured(self.frame) <= now {
                self.take_frame();
            }
            self.drop_old(now);
            self.hold(now);
        }
        if self.next_write() > now {
            return None;
        }
        let (_, bytes, part) = self.waiting.pop_front()?;
        if let Some(control) = &mut self.control {
            control.sent(now, Sent { number: self.sent, bytes });
        }
        self.sent += 1;
        if self.waiting.is_empty() {
            self.take_frame();
        }
        let deadline = self.drop_after.map(|age| part.captured + age);
        Some(Write { bytes, copies: self.copies(&part), deadline, part: Some(part) })
    }

    /// Asks rate control whether the next packet may leave, and when to ask again if not.
    fn hold(&mut self, now: Instant) {
        let Some(control) = &mut self.control else { return };
        let due = self.waiting.iter().take_while(|(leaves, ..)| *leaves <= now);
        let bytes: u64 = due.map(|(_, bytes, _)| u64::from(*bytes)).sum();
        let next = self.waiting.front().map_or(0, |(_, bytes, _)| u64::from(*bytes));
        control.queued(now, Queue { bytes: Bytes::new(bytes), next: Bytes::new(next) });
        let may = control.may_send(now).is_none_or(|room| room >= Bytes::new(next));
        self.held = if may {
            self.start
        } else {
            control.next_wakeup().clamp(now + Duration::from_nanos(1), now + ASK_EVERY)
        };
    }

    /// A report has come back. The next packet may leave earlier than [`next_write`](Self::next_write)
    /// said before.
    pub fn feedback(&mut self, now: Instant, report: &Report<'_>) {
        if let Some(protector) = &mut self.protector {
            protector.feedback(report);
        }
        if let Some(control) = &mut self.control {
            control.feedback(now, report);
            self.held = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::clip::EncodedFrame;
    use super::*;
    use alloc::vec::Vec;

    fn config(units: &[u32]) -> VideoConfig {
        let frames = [true, false].map(|key| EncodedFrame { key, units: units.to_vec() });
        VideoConfig { packet: Bytes::new(1012), ..VideoConfig::of(frames.into()) }
    }

    /// The next packet, at its time.
    fn next(camera: &mut Camera) -> (u32, Part) {
        let written = camera.write(camera.next_write()).unwrap();
        (written.bytes, written.part.unwrap())
    }

    #[test]
    fn frames_come_at_their_rate_for_ever_and_packets_have_headers() {
        let mut camera = Camera::new(&config(&[500, 1997]), Instant::ZERO);
        let first: Vec<_> = (0..3).map(|_| next(&mut camera)).collect();
        assert_eq!(first.iter().map(|it| it.0).collect::<Vec<_>>(), [512, 1012, 1012]);
        assert!(first.iter().all(|(_, part)| part.key && part.packets == 3 && part.frame == 0));
        // 30 a second, without adding up what rounding leaves.
        assert_eq!(camera.next_write(), Instant::from_nanos(33_333_333));
        for _ in 0..3 * 899 {
            next(&mut camera);
        }
        assert_eq!(camera.next_write(), Instant::from_millis(30_000));
        assert!(next(&mut camera).1.key, "frame 900 is the first of the clip again");
    }

    #[test]
    fn the_model_of_intra_refresh_has_one_key_frame_and_frames_of_one_size() {
        let config = VideoConfig { intra_refresh: true, encoded: None, ..config(&[1]) };
        let mut camera = Camera::new(&config, Instant::ZERO);
        let parts: Vec<_> = (0..500).map(|_| next(&mut camera)).collect();
        let keys = parts.iter().filter(|(_, part)| part.key);
        assert!(keys.clone().count() > 0 && keys.clone().all(|(_, part)| part.frame == 0));
        assert!(parts.iter().all(|(_, part)| part.packets == parts[0].1.packets));
    }

    #[test]
    fn in_a_byte_stream_each_packet_follows_its_length() {
        let mut camera =
            Camera::new(&VideoConfig { framed: true, ..config(&[500]) }, Instant::ZERO);
        assert_eq!(next(&mut camera).0, 2 + 12 + 500);
    }

    #[test]
    fn packets_of_a_frame_may_be_spread_over_time() {
        let spread = Duration::from_millis(30);
        let mut camera =
            Camera::new(&VideoConfig { spread, ..config(&[500, 500, 500]) }, Instant::ZERO);
        let times: Vec<_> = (0..3).map(|_| (camera.next_write(), next(&mut camera))).collect();
        let times: Vec<_> = times.iter().map(|(at, _)| at.as_nanos() / 1_000_000).collect();
        assert_eq!(times, [0, 10, 20]);
    }
}
