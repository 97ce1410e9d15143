//! Sender of a video: captures frames, fragments them into RTP packets and paces these by rate control.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;

use skybraid_units::invariant::Promised as _;
use skybraid_units::{Bytes, Duration, Instant};

use super::clip::EncodedClip;
use super::config::VideoConfig;
use super::fragment::{Codec, fragments};
use super::protection::{Duplicate, Protection, ProtectionPolicy};
use super::rate::{Queue, RateControl, Report, Sent};
use super::rtp;
use crate::Write;

/// Bytes of the length field before each packet in a byte stream (RFC 4571 §2).
const FRAMING_BYTES: u32 = 2;
/// Maximum time between two queries to rate control about a waiting packet.
const ASK_EVERY: Duration = Duration::from_millis(5);
/// Minimum size to which rate control scales a NAL unit.
const MIN_UNIT_BYTES: u32 = 20;
/// Bytes of a repair packet on top of the longest payload it protects: a contributing source, the FlexFEC
/// header with a mask of 15 bits (RFC 8627 §4.2), and with Reed–Solomon the length field within the data.
const REPAIR_BYTES: u32 = 4 + 12 + 2;

/// Place of an RTP packet within a video.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Number of the frame, from 0.
    pub frame: u32,
    /// Whether this is a key frame, at which a decoder can start.
    pub key: bool,
    /// Capture time of the frame.
    pub captured: Instant,
    /// Number of the packet within the frame. Repair packets follow from `packets` on, group by group.
    pub packet: u16,
    /// Number of source packets of the frame, without repair packets.
    pub packets: u16,
    /// Forward error correction of the frame.
    pub protection: Option<Protection>,
}

/// A camera with its encoder, packetiser and rate control. Encoding takes no time. Where rate control sets a
/// target below the rate of the clip, all frames shrink in proportion.
#[derive(Debug)]
pub struct Camera {
    clip: Arc<EncodedClip>,
    /// Whether only the very first frame is a key frame.
    one_key: bool,
    codec: Codec,
    /// Maximum payload of an RTP packet.
    max_payload: u32,
    /// Bytes of headers added to each payload.
    header_bytes: u32,
    start: Instant,
    fps: u32,
    spread: Duration,
    /// Number of the next frame to capture.
    frame: u32,
    /// Packets in the send queue: due time, size and place in the video.
    queue: VecDeque<(Instant, u32, Part)>,
    protection_policy: Option<ProtectionPolicy>,
    duplicate: Duplicate,
    drop_after: Option<Duration>,
    /// Rate control; `None` for a constant rate.
    control: Option<Box<dyn RateControl>>,
    /// Rate at which the clip was encoded, in bit/s.
    rate_bps: u64,
    /// Number of packets sent.
    sent: u64,
    /// Time before which no packet may be sent.
    held_until: Instant,
}

impl Camera {
    /// Creates a camera that captures its first frame at `start`.
    pub fn new(config: &VideoConfig, start: Instant) -> Self {
        let packet = u32::try_from(config.packet.get()).unwrap_or(u32::MAX);
        let framing = if config.framed { FRAMING_BYTES } else { 0 };
        let mut camera = Self {
            clip: config.played(),
            one_key: config.encoded.is_none() && config.intra_refresh,
            codec: config.codec,
            max_payload: packet.saturating_sub(rtp::HEADER_BYTES as u32),
            header_bytes: rtp::HEADER_BYTES as u32 + framing,
            start,
            fps: config.fps.max(1),
            spread: config.spread.min(config.interval()),
            frame: 0,
            queue: VecDeque::new(),
            protection_policy: config.repair.map(ProtectionPolicy::new),
            duplicate: config.duplicate,
            drop_after: config.drop_after,
            control: config.is_controlled().then(|| config.rate_control.build(&config.bounds())),
            rate_bps: config.rate.as_bps().max(1),
            sent: 0,
            held_until: start,
        };
        camera.capture_frame();
        camera
    }

    /// Returns the capture time of frame `number`, exact over any length of time.
    fn capture_time(&self, number: u32) -> Instant {
        let nanos = u64::from(number) * 1_000_000_000 / u64::from(self.fps);
        self.start + Duration::from_nanos(nanos as i64)
    }

    fn capture_frame(&mut self) {
        let number = self.frame;
        self.frame = self.frame.wrapping_add(1);
        let Some(frame) = self.clip.frame(number).promised("a frame of the clip") else { return };
        // A recorded clip repeats its key frames; the model of intra refresh has a single one.
        let key = frame.key && !(self.one_key && number > 0);
        let captured = self.capture_time(number);
        let (codec, max_payload) = (self.codec, self.max_payload);
        let (target, rate) = match &self.control {
            Some(control) => (control.target().as_bps().min(self.rate_bps), self.rate_bps),
            None => (1, 1),
        };
        let scaled = move |unit: u32| {
            let scaled = u64::from(unit) * target / rate;
            (scaled as u32).max(unit.min(MIN_UNIT_BYTES))
        };
        let units = || frame.units.iter().map(move |unit| scaled(*unit));
        let payloads = || units().flat_map(move |unit| fragments(codec, unit, max_payload));
        let packets = payloads().count().min(usize::from(u16::MAX) / 2) as u16;
        let protection = self.protection_policy.as_ref().map(|policy| policy.protection(packets));
        let total = packets + protection.map_or(0, Protection::count).min(packets);
        let step = Duration::from_nanos(self.spread.as_nanos() / i64::from(total.max(1)));
        let part = |packet| Part { frame: number, key, captured, packet, packets, protection };
        let mut due = captured;
        for (packet, payload) in (0..packets).zip(payloads()) {
            self.queue.push_back((due, payload.payload_bytes + self.header_bytes, part(packet)));
            due += step;
        }
        let Some(protection) = protection else { return };
        for group in 0..protection.groups {
            let (first, end) = protection.bounds(group, packets);
            let sources = payloads().skip(first.into()).take((end - first).into());
            let longest = sources.map(|payload| payload.payload_bytes).max().unwrap_or(0);
            for repair in 0..protection.repairs {
                let packet = protection.repair_packet(packets, group, repair);
                let bytes = longest + self.header_bytes + REPAIR_BYTES;
                self.queue.push_back((due, bytes, part(packet)));
                due += step;
            }
        }
    }

    /// Drops queued packets that are older than `drop_after`.
    fn drop_old(&mut self, now: Instant) {
        let Some(drop_after) = self.drop_after else { return };
        while let Some((.., part)) = self.queue.front()
            && part.captured + drop_after < now
        {
            self.queue.pop_front();
        }
    }

    /// Returns the number of copies to write of a packet.
    fn copies(&self, part: &Part) -> u8 {
        let twice = match self.duplicate {
            Duplicate::None => false,
            Duplicate::Keys => part.key,
            Duplicate::All => true,
        };
        if twice { 2 } else { 1 }
    }

    /// Returns the time at which to ask for the next packet.
    pub fn next_write(&self) -> Instant {
        let due = self.queue.front().map_or(Instant::FAR_FUTURE, |(due, ..)| *due);
        due.max(self.held_until)
    }

    /// Returns the next packet if one is due and rate control lets it leave at `now`.
    pub fn write(&mut self, now: Instant) -> Option<Write> {
        if let Some(control) = &mut self.control {
            if now >= control.next_wakeup() {
                control.on_timeout(now);
            }
            // Frames are captured on time, whether or not earlier ones have been sent.
            while self.capture_time(self.frame) <= now {
                self.capture_frame();
            }
            self.drop_old(now);
            self.update_hold(now);
        }
        if self.next_write() > now {
            return None;
        }
        let (_, bytes, part) = self.queue.pop_front()?;
        if let Some(control) = &mut self.control {
            control.on_sent(now, Sent { number: self.sent, bytes });
        }
        self.sent += 1;
        if self.queue.is_empty() {
            self.capture_frame();
        }
        let deadline = self.drop_after.map(|age| part.captured + age);
        Some(Write { bytes, copies: self.copies(&part), deadline, part: Some(part) })
    }

    /// Asks rate control whether the next packet may leave, and if not, when to ask again.
    fn update_hold(&mut self, now: Instant) {
        let Some(control) = &mut self.control else { return };
        let due = self.queue.iter().take_while(|(due, ..)| *due <= now);
        let bytes: u64 = due.map(|(_, bytes, _)| u64::from(*bytes)).sum();
        let next = self.queue.front().map_or(0, |(_, bytes, _)| u64::from(*bytes));
        control.on_queue_changed(now, Queue { bytes: Bytes::new(bytes), next: Bytes::new(next) });
        let may_send = control.may_send(now).is_none_or(|room| room >= Bytes::new(next));
        self.held_until = if may_send {
            self.start
        } else {
            control.next_wakeup().clamp(now + Duration::from_nanos(1), now + ASK_EVERY)
        };
    }

    /// Handles a receiver's report. The next packet may leave before the last value of
    /// [`next_write`](Self::next_write).
    pub fn on_feedback(&mut self, now: Instant, report: &Report<'_>) {
        if let Some(policy) = &mut self.protection_policy {
            policy.on_feedback(report);
        }
        if let Some(control) = &mut self.control {
            control.on_feedback(now, report);
            self.held_until = now;
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

    /// Returns the next packet at its due time.
    fn next(camera: &mut Camera) -> (u32, Part) {
        let written = camera.write(camera.next_write()).unwrap();
        (written.bytes, written.part.unwrap())
    }

    #[test]
    fn frames_keep_their_rate_and_packets_have_headers() {
        let mut camera = Camera::new(&config(&[500, 1997]), Instant::ZERO);
        let first: Vec<_> = (0..3).map(|_| next(&mut camera)).collect();
        assert_eq!(first.iter().map(|packet| packet.0).collect::<Vec<_>>(), [512, 1012, 1012]);
        assert!(first.iter().all(|(_, part)| part.key && part.packets == 3 && part.frame == 0));
        // 30 frames a second without accumulated rounding errors.
        assert_eq!(camera.next_write(), Instant::from_nanos(33_333_333));
        for _ in 0..3 * 899 {
            next(&mut camera);
        }
        assert_eq!(camera.next_write(), Instant::from_millis(30_000));
        assert!(next(&mut camera).1.key, "frame 900 is the first of the clip again");
    }

    #[test]
    fn the_intra_refresh_model_has_one_key_frame() {
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
