//! Receiver of a video: a jitter buffer, and a model of the decoder and the screen.
//!
//! A frame is due at its capture time plus the minimum recent transit time plus the length of the jitter buffer.
//! A complete frame is shown when it is due, or on completion if that is later, and never before the previous
//! frame. The screen waits for an incomplete frame until it is due and a later packet has arrived: then the
//! missing packets count as lost, and the frame is shown damaged. As long as no later packet has arrived the
//! network has stalled, and the picture freezes; frames that arrive after a stall are shown late rather than
//! dropped, as GStreamer's `rtpjitterbuffer` does with a stream in order. Damage lasts until the next complete
//! key frame, or for a round of intra refresh.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use skybraid_units::invariant::Promised as _;
use skybraid_units::{Duration, Instant};

use super::camera::Part;
use super::config::VideoConfig;
use super::protection::Protection;
use super::repair::Group;
use super::transit::MinTransit;

/// Record of a decided frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Number of the frame, from 0.
    pub number: u32,
    /// Whether this is a key frame, at which a decoder can start.
    pub key: bool,
    /// Capture time.
    pub captured: Instant,
    /// Bytes of the frame's RTP packets.
    pub bytes: u32,
    /// Number of the message that carries the first packet; the other packets follow.
    pub message: u32,
    /// Number of source packets.
    pub packets: u16,
    /// Number of source packets written. The camera drops the last ones.
    pub written: u16,
    /// Number of source packets that arrived before the frame was decided.
    pub arrived: u16,
    /// Number of source packets recovered from repair packets.
    pub repaired: u16,
    /// Source packets that were neither received nor recovered before the frame was decided.
    pub missing: Vec<u16>,
    /// Time at which the last source packet was written.
    pub sent: Option<Instant>,
    /// Arrival time of the first packet.
    pub first: Option<Instant>,
    /// Arrival time of the last packet.
    pub last: Option<Instant>,
    /// Whether all source packets are known.
    pub complete: bool,
    /// Whether the frame and all frames it refers to are complete.
    pub intact: bool,
    /// Time at which the frame was shown, damaged or not.
    pub shown: Option<Instant>,
    /// Time since the previously shown frame.
    pub since_last: Option<Duration>,
}

impl Frame {
    /// Returns the latency from capture to display.
    pub fn latency(&self) -> Option<Duration> {
        self.shown.map(|shown| shown - self.captured)
    }
}

/// A frame before its decision.
#[derive(Debug)]
struct Pending {
    frame: Frame,
    /// Number of the message that carries the first packet.
    message: u32,
    /// Known source packets, one bit each.
    known: Vec<u64>,
    protection: Option<Protection>,
    groups: Vec<Group>,
    /// Due time, set on completion.
    due: Instant,
}

impl Pending {
    /// Creates a frame before any of its packets is sent, whose first packet is message `message`.
    fn new(message: u32, part: Part) -> Self {
        let frame = Frame {
            number: part.frame,
            key: part.key,
            captured: part.captured,
            bytes: 0,
            message,
            packets: part.packets,
            written: 0,
            arrived: 0,
            repaired: 0,
            missing: Vec::new(),
            sent: None,
            first: None,
            last: None,
            complete: false,
            intact: false,
            shown: None,
            since_last: None,
        };
        let known = alloc::vec![0; usize::from(part.packets).div_ceil(64)];
        let protection = part.protection;
        let groups =
            protection.iter().flat_map(|protection| protection.new_groups(part.packets)).collect();
        Self { frame, message, known, protection, groups, due: Instant::FAR_FUTURE }
    }

    /// Handles a source or repair packet. Returns `false` if it changes nothing.
    fn on_received(&mut self, packet: u16) -> bool {
        let source = packet < self.frame.packets;
        let new = !source || self.mark_known(packet);
        self.frame.arrived += u16::from(source && new);
        let Some(protection) = self.protection.filter(|_| new) else { return source && new };
        let packets = self.frame.packets;
        let (group, position) = protection.locate(packet, packets);
        let first = protection.bounds(group, packets).0;
        let coded = self.groups.get_mut(usize::from(group)).promised("a group of the frame");
        let Some(coded) = coded else { return source };
        let recovered = coded.on_received(position.into());
        let mut changed = source;
        for position in recovered {
            if self.mark_known(first + position as u16) {
                self.frame.repaired += 1;
                changed = true;
            }
        }
        changed
    }

    /// Returns the record of the frame with its missing packets.
    fn into_record(self) -> Frame {
        let Self { known, frame, .. } = self;
        let is_known = |packet: &u16| {
            let word = known.get(usize::from(packet / 64)).promised("a word of known packets");
            word.is_some_and(|word| word >> (packet % 64) & 1 == 1)
        };
        let missing = (0..frame.packets).filter(|packet| !is_known(packet)).collect();
        Frame { missing, ..frame }
    }

    /// Marks a source packet as known. Returns `false` if it was known before.
    fn mark_known(&mut self, packet: u16) -> bool {
        let (word, bit) = (usize::from(packet / 64), 1 << (packet % 64));
        match self.known.get_mut(word).promised("a word of known packets") {
            Some(word) if *word & bit == 0 => {
                *word |= bit;
                true
            }
            _ => false,
        }
    }

    /// Returns the number of source and repair packets.
    fn message_count(&self) -> u32 {
        u32::from(self.frame.packets) + u32::from(self.protection.map_or(0, Protection::count))
    }

    /// Returns the message number from which on an arrival proves a loss: that of the first packet that is not
    /// known, or with repair packets that of the last of these, after which nothing else recovers the frame.
    fn first_missing(&self) -> u32 {
        let words = self.known.iter().position(|word| *word != u64::MAX);
        let word = words.unwrap_or(self.known.len());
        let bit = self.known.get(word).map_or(0, |word| word.trailing_ones());
        let packet = 64 * word as u32 + bit;
        let last = self.message_count().saturating_sub(1);
        let packet = if self.protection.is_some() { last } else { packet };
        self.message.wrapping_add(packet)
    }
}

/// Jitter buffer, decoder model and screen of a video.
#[derive(Debug)]
pub struct Screen {
    jitter_buffer: Duration,
    refresh: Option<u32>,
    interval: Duration,
    frames: VecDeque<Pending>,
    /// Newest frame of which a packet was written.
    newest: Option<u32>,
    /// Highest message number received.
    latest: Option<u32>,
    min_transit: MinTransit,
    last_shown: Option<Instant>,
    /// Number of complete frames still needed before the picture is intact; `None` while a key frame is needed.
    frames_to_intact: Option<u32>,
}

impl Screen {
    /// Creates a screen before its first frame.
    pub fn new(config: &VideoConfig) -> Self {
        Self {
            jitter_buffer: config.jitter_buffer,
            refresh: config.refresh_frames(),
            interval: config.interval(),
            frames: VecDeque::new(),
            newest: None,
            latest: None,
            min_transit: MinTransit::default(),
            last_shown: None,
            frames_to_intact: None,
        }
    }

    /// Records that the camera has written message `message`, which carries `part`. Message numbers ascend.
    pub fn on_sent(&mut self, now: Instant, message: u32, part: Part, bytes: u32) {
        let newest = self.newest.replace(part.frame);
        if newest != Some(part.frame) {
            self.insert_skipped(message, part, newest);
            let first = message.wrapping_sub(u32::from(part.packet));
            self.frames.push_back(Pending::new(first, part));
        }
        // A frame may be decided before all of its packets are written.
        let pending = self.frames.back_mut().filter(|last| last.frame.number == part.frame);
        let Some(Pending { frame, .. }) = pending else { return };
        frame.bytes += bytes;
        if part.packet < part.packets {
            frame.sent = Some(now);
            frame.written = part.packet + 1;
        }
    }

    /// Inserts records of the frames that the sender dropped altogether.
    fn insert_skipped(&mut self, message: u32, part: Part, newest: Option<u32>) {
        let Some(newest) = newest else { return };
        for skipped in newest.wrapping_add(1)..part.frame {
            let frames_ago = i64::from(part.frame - skipped);
            let captured = part.captured - self.interval * frames_ago;
            let skipped_part =
                Part { frame: skipped, key: false, captured, packets: 0, protection: None, ..part };
            self.frames.push_back(Pending::new(message, skipped_part));
        }
    }

    /// Handles the arrival of message `message`. Frames decided by it, or by the time elapsed, are passed to
    /// `decided` in order.
    pub fn on_received(&mut self, now: Instant, message: u32, decided: &mut impl FnMut(Frame)) {
        self.decide(Instant::ZERO, now, decided);
        let is_latest = self.latest.is_none_or(|latest| message.wrapping_sub(latest) < 1 << 31);
        if is_latest {
            self.latest = Some(message);
        }
        let first_after =
            self.frames.partition_point(|frame| message.wrapping_sub(frame.message) < 1 << 31);
        if let Some(place) = first_after.checked_sub(1)
            && let Some(pending) = self.frames.get_mut(place).promised("the frame of a message")
        {
            let packet = message.wrapping_sub(pending.message);
            if packet < pending.message_count()
                && let Ok(packet) = u16::try_from(packet)
                && pending.on_received(packet)
            {
                self.min_transit.on_received(now, pending.frame.captured);
                let due = self.min_transit.due(pending.frame.captured, self.jitter_buffer);
                let frame = &mut pending.frame;
                frame.first.get_or_insert(now);
                frame.last = Some(now);
                if frame.arrived + frame.repaired == frame.packets {
                    frame.complete = true;
                    pending.due = due;
                }
            }
        }
        self.decide(now, now, decided);
    }

    /// Decides in order all frames that can be decided by `now`, on information known since `known`.
    fn decide(&mut self, known: Instant, now: Instant, decided: &mut impl FnMut(Frame)) {
        while let Some(pending) = self.frames.front() {
            let frame = &pending.frame;
            let at = if frame.complete {
                pending.due.max(frame.last.unwrap_or(now))
            } else {
                let gap = self
                    .latest
                    .is_some_and(|latest| latest.wrapping_sub(pending.first_missing()) < 1 << 31);
                if !gap {
                    return;
                }
                self.min_transit.due(frame.captured, self.jitter_buffer)
            };
            let at = self.last_shown.map_or(at, |last| at.max(last));
            if at > now {
                return;
            }
            let at = at.max(known);
            if let Some(pending) = self.frames.pop_front().promised("the frame just decided") {
                let frame = pending.into_record();
                decided(self.show(at, frame));
            }
        }
    }

    fn show(&mut self, at: Instant, frame: Frame) -> Frame {
        let intact = self.update_intact(&frame);
        if frame.arrived == 0 && frame.repaired == 0 {
            return frame;
        }
        let since_last = self.last_shown.map(|last| at - last);
        self.last_shown = Some(at);
        Frame { intact, shown: Some(at), since_last, ..frame }
    }

    /// Updates the damage of the picture with this frame. Returns whether the picture is intact.
    fn update_intact(&mut self, frame: &Frame) -> bool {
        self.frames_to_intact = match (frame.complete, self.frames_to_intact) {
            // The first picture of a stream with intra refresh is a key frame too.
            (true, _) if frame.key => Some(0),
            (true, Some(needed)) => Some(needed.saturating_sub(1)),
            (false, Some(_)) => self.refresh,
            (_, None) => None,
        };
        frame.complete && self.frames_to_intact == Some(0)
    }

    /// Ends the run at `end`. Undecided frames were not shown.
    pub fn finish(&mut self, end: Instant, decided: &mut impl FnMut(Frame)) {
        self.decide(Instant::ZERO, end, decided);
        self.frames.drain(..).for_each(|pending| decided(pending.into_record()));
    }
}

#[cfg(test)]
mod tests {
    use super::super::clip::EncodedFrame;
    use super::*;

    fn at(ms: i64) -> Instant {
        Instant::from_millis(ms)
    }

    fn screen(refresh: bool) -> Screen {
        let frame = EncodedFrame { key: true, units: [100].into() };
        Screen::new(&VideoConfig {
            fps: 10,
            key_every: Duration::from_millis(400),
            intra_refresh: refresh,
            ..VideoConfig::of([frame].into())
        })
    }

    /// Plays ten frames a second of two packets each, with a key frame every four. `arrivals` are (ms,
    /// message) by time. Returns the display time in ms and whether it is intact, for each frame.
    fn play(screen: &mut Screen, frames: u32, arrivals: &[(i64, u32)]) -> Vec<(Option<i64>, bool)> {
        for number in 0..frames {
            for packet in 0..2 {
                let captured = at(100 * i64::from(number));
                let key = number % 4 == 0 && (number == 0 || screen.refresh.is_none());
                let part =
                    Part { frame: number, key, captured, packet, packets: 2, protection: None };
                screen.on_sent(captured, 2 * number + u32::from(packet), part, 500);
            }
        }
        let mut rows = Vec::new();
        for (ms, message) in arrivals {
            screen.on_received(at(*ms), *message, &mut |frame| rows.push(frame));
        }
        screen.finish(at(100_000), &mut |frame| rows.push(frame));
        assert!(rows.iter().zip(0..).all(|(row, number)| row.number == number));
        rows.iter()
            .map(|row| (row.shown.map(|shown| shown.as_nanos() / 1_000_000), row.intact))
            .collect()
    }

    // By hand: the minimum transit time is 20 ms, so that frame n is due at 100 n + 20 + 150 ms.
    #[test]
    fn frames_are_shown_when_due_or_on_late_completion() {
        let arrivals =
            [(20, 0), (25, 1), (130, 2), (140, 3), (420, 4), (450, 5), (451, 6), (451, 7)];
        let shown = play(&mut screen(false), 4, &arrivals);
        // Frame 2, due at 370, is complete at 450. Frame 3 is due at 470.
        let expected = [(Some(170), true), (Some(270), true), (Some(450), true), (Some(470), true)];
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_frame_is_never_shown_before_its_predecessor() {
        // Message 2 arrives after its frame, due at 270, has been decided.
        let arrivals = [(20, 0), (20, 1), (120, 3), (220, 4), (220, 5), (400, 2)];
        let shown = play(&mut screen(false), 3, &arrivals);
        assert_eq!(shown, [(Some(170), true), (Some(270), false), (Some(370), false)]);
    }

    #[test]
    fn a_lost_packet_damages_the_picture_until_the_next_key_frame() {
        let all = |lost: &'static [u32]| {
            let of = move |message: u32| (100 * i64::from(message / 2) + 20, message);
            (0..16).filter(move |message| !lost.contains(message)).map(of).collect::<Vec<_>>()
        };
        let intact = |shown: &[(Option<i64>, bool)]| -> Vec<bool> {
            shown.iter().map(|(_, intact)| *intact).collect()
        };
        let shown = play(&mut screen(false), 8, &all(&[5]));
        let yes_no = |text: &str| text.bytes().map(|letter| letter == b'y').collect::<Vec<_>>();
        assert_eq!(intact(&shown), yes_no("yynnyyyy"));
        assert!(shown.iter().all(|(shown, _)| shown.is_some()), "damaged frames are shown");
        // A frame without any received packet is not shown.
        let shown = play(&mut screen(false), 8, &all(&[2, 3]));
        assert_eq!(shown[1], (None, false));
        assert_eq!(intact(&shown), yes_no("ynnnyyyy"));
        // Intra refresh of four frames: the fourth complete frame after the damaged one is intact again.
        let shown = play(&mut screen(true), 8, &all(&[5]));
        assert_eq!(intact(&shown), yes_no("yynnnnyy"));
    }

    #[test]
    fn a_stall_delays_frames_without_damage_and_the_delay_decays() {
        // Nothing from frame 2 on until 900 ms, then all at once; frames 9 on in time.
        let arrivals: Vec<_> = (0..24)
            .map(|message| {
                let due = 100 * i64::from(message / 2) + 20;
                (if (200..900).contains(&due) { 900 } else { due }, message)
            })
            .collect();
        let shown = play(&mut screen(false), 12, &arrivals);
        assert!(shown.iter().all(|(_, intact)| *intact));
        let times: Vec<_> = shown.iter().filter_map(|(shown, _)| *shown).collect();
        assert_eq!(times, [170, 270, 900, 900, 900, 900, 900, 900, 970, 1070, 1170, 1270]);
    }

    #[test]
    fn a_gap_found_after_its_frame_was_due_is_given_up_at_once() {
        // Frame 1 was due at 270; that message 3 is lost is known only when frame 2 comes at 700.
        let arrivals = [(20, 0), (20, 1), (120, 2), (700, 4), (700, 5)];
        let shown = play(&mut screen(false), 3, &arrivals);
        assert_eq!(shown, [(Some(170), true), (Some(700), false), (Some(700), false)]);
    }

    #[test]
    fn repair_packets_recover_losses_and_delay_the_decision() {
        let protection = Protection { groups: 1, repairs: 1 };
        let play = |lost: &[u32]| {
            let mut screen = screen(false);
            for message in 0..9 {
                let (frame, packet) = (message / 3, (message % 3) as u16);
                let captured = at(100 * i64::from(frame));
                let protection = Some(protection);
                let key = frame == 0;
                let part = Part { frame, key, captured, packet, packets: 2, protection };
                screen.on_sent(captured, message, part, 500);
            }
            let mut rows = Vec::new();
            for message in (0..9).filter(|message| !lost.contains(message)) {
                let now = at(100 * i64::from(message / 3) + 20);
                screen.on_received(now, message, &mut |frame| rows.push(frame));
            }
            screen.finish(at(10_000), &mut |frame| rows.push(frame));
            rows.iter().map(|row| (row.arrived, row.repaired, row.intact)).collect::<Vec<_>>()
        };
        assert_eq!(play(&[4]), [(2, 0, true), (1, 1, true), (2, 0, true)]);
        assert_eq!(play(&[5]), [(2, 0, true), (2, 0, true), (2, 0, true)]);
        assert_eq!(play(&[4, 5]), [(2, 0, true), (1, 0, false), (2, 0, false)]);
    }

    #[test]
    fn a_frame_recovered_from_repair_packets_alone_is_shown() {
        let mut screen = screen(false);
        let protection = Some(Protection { groups: 1, repairs: 1 });
        for (message, packet) in [(0, 0), (1, 1)] {
            let part =
                Part { frame: 0, key: true, captured: at(0), packet, packets: 1, protection };
            screen.on_sent(at(0), message, part, 500);
        }
        let mut rows = Vec::new();
        screen.on_received(at(20), 1, &mut |frame| rows.push(frame));
        screen.finish(at(1000), &mut |frame| rows.push(frame));
        assert_eq!((rows[0].arrived, rows[0].repaired), (0, 1));
        assert!(rows[0].shown.is_some() && rows[0].intact);
    }

    #[test]
    fn a_frame_dropped_by_its_sender_is_not_shown() {
        let mut screen = screen(false);
        for (message, frame) in [(0, 0), (1, 3)] {
            let captured = at(100 * i64::from(frame));
            let key = frame == 0;
            let part = Part { frame, key, captured, packet: 0, packets: 1, protection: None };
            screen.on_sent(captured, message, part, 500);
        }
        let mut rows = Vec::new();
        screen.on_received(at(20), 0, &mut |frame| rows.push(frame));
        screen.on_received(at(320), 1, &mut |frame| rows.push(frame));
        screen.finish(at(1000), &mut |frame| rows.push(frame));
        let shown: Vec<_> = rows.iter().map(|row| (row.number, row.shown.is_some())).collect();
        assert_eq!(shown, [(0, true), (1, false), (2, false), (3, true)]);
        assert_eq!(rows[2].captured, at(200));
        let sent: Vec<_> = rows.iter().map(|row| row.sent).collect();
        assert_eq!(sent, [Some(at(0)), None, None, Some(at(300))]);
        assert!(!rows[3].intact, "it refers to dropped frames");
    }

    #[test]
    fn an_undecided_frame_at_the_end_is_not_shown() {
        let mut screen = screen(false);
        let part =
            Part { frame: 0, key: true, captured: at(0), packet: 0, packets: 1, protection: None };
        screen.on_sent(at(0), 0, part, 100);
        screen.on_received(at(20), 0, &mut |_| unreachable!());
        let mut rows = Vec::new();
        screen.finish(at(100), &mut |frame| rows.push(frame));
        assert_eq!((rows.len(), rows[0].shown, rows[0].complete), (1, None, true));
    }
}
