//! The receiver: a jitter buffer, and a model of which frames a decoder can show, and when.
//!
//! A frame is due at its capture plus the least transit that was seen lately plus the jitter buffer's length.
//! A whole frame is shown when it is due, or when it is whole if that is later, never before the one ahead of
//! it. A frame of which something is missing is waited for until it is due and something later has arrived:
//! then what is missing counts as lost, and what did arrive is shown damaged. Where nothing later has
//! arrived the network stands still, and the picture with it; what comes then is shown late rather than
//! dropped, as GStreamer's `rtpjitterbuffer` does with a stream in order. Damage lasts until the next whole key frame, or
//! for a round of intra refresh.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use skybraid_units::{Duration, Instant};

use super::camera::Part;
use super::config::VideoConfig;
use super::protect::Protection;
use super::repair::Group;

/// The least transit is sought over the last two of these windows.
const WINDOW: Duration = Duration::from_secs(5);

/// What became of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its number, from 0.
    pub number: u32,
    /// A decoder may begin with it.
    pub key: bool,
    /// When the camera took it.
    pub captured: Instant,
    /// Bytes of its RTP packets.
    pub bytes: u32,
    /// Number of the message that carries its first packet; the others follow.
    pub message: u32,
    /// Its packets.
    pub packets: u16,
    /// … of which so many were written; the camera dropped the last ones.
    pub written: u16,
    /// … of which so many arrived before it was decided.
    pub arrived: u16,
    /// … and so many more were made good by repair packets.
    pub repaired: u16,
    /// Those that neither arrived nor were made good before it was decided.
    pub missing: Vec<u16>,
    /// When the last of those that were sent was written, repair packets apart.
    pub sent: Option<Instant>,
    /// When the first of them arrived.
    pub first: Option<Instant>,
    /// When the last of them arrived.
    pub last: Option<Instant>,
    /// All of it is there.
    pub complete: bool,
    /// All of it is there, and of what it refers to.
    pub intact: bool,
    /// When it was on the screen, damaged or not.
    pub shown: Option<Instant>,
    /// Since the frame that was shown before it.
    pub since_last: Option<Duration>,
}

impl Frame {
    /// From the camera to the screen.
    pub fn latency(&self) -> Option<Duration> {
        self.shown.map(|shown| shown - self.captured)
    }
}

/// A frame that is not decided yet.
#[derive(Debug)]
struct Pending {
    frame: Frame,
    /// Number of its first message.
    message: u32,
    /// Its packets that have arrived, a bit each.
    got: Vec<u64>,
    protection: Option<Protection>,
    groups: Vec<Group>,
    /// When it is due, once it is whole.
    due: Instant,
}

impl Pending {
    /// A frame of which nothing was sent or has arrived, whose packets are messages from `message` on.
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
        let got = alloc::vec![0; usize::from(part.packets).div_ceil(64)];
        let group = |protection: &Protection, group| {
            let (first, end) = protection.bounds(group, part.packets);
            Group::new(protection.code(), (end - first).into()).ok()
        };
        let groups = part.protection.iter();
        let groups =
            groups.flat_map(|it| (0..it.groups).filter_map(move |number| group(it, number)));
        let (protection, groups) = (part.protection, groups.collect());
        Self { frame, message, got, protection, groups, due: Instant::FAR_FUTURE }
    }

    /// Packet `packet` has arrived, or a repair packet. False where it changes nothing.
    fn arrived(&mut self, packet: u16) -> bool {
        let source = packet < self.frame.packets;
        let new = !source || self.take(packet);
        self.frame.arrived += u16::from(source && new);
        let Some(protection) = self.protection.filter(|_| new) else { return source && new };
        let packets = self.frame.packets;
        let (group, position) = match packet.checked_sub(packets) {
            Some(repair) => {
                let group = repair / protection.repairs.max(1);
                let (first, end) = protection.bounds(group, packets);
                (group, end - first + repair % protection.repairs.max(1))
            }
            None => {
                let within = |group: &u16| protection.bounds(*group, packets).1 > packet;
                let group = (0..protection.groups).find(within).unwrap_or(0);
                (group, packet - protection.bounds(group, packets).0)
            }
        };
        let first = protection.bounds(group, packets).0;
        let Some(coded) = self.groups.get_mut(usize::from(group)) else { return source };
        let recovered = coded.arrive(position.into());
        let mut found = source;
        for position in recovered {
            if self.take(first + position as u16) {
                self.frame.repaired += 1;
                found = true;
            }
        }
        found
    }

    /// The frame, with what is missing of it.
    fn decided(self) -> Frame {
        let Self { got, frame, .. } = self;
        let has = |packet: &u16| {
            let word = got.get(usize::from(packet / 64)).copied().unwrap_or(0);
            word >> (packet % 64) & 1 == 1
        };
        let missing = (0..frame.packets).filter(|packet| !has(packet)).collect();
        Frame { missing, ..frame }
    }

    /// Notes a packet; false where it was known.
    fn take(&mut self, packet: u16) -> bool {
        let (word, bit) = (usize::from(packet / 64), 1 << (packet % 64));
        match self.got.get_mut(word) {
            Some(word) if *word & bit == 0 => {
                *word |= bit;
                true
            }
            _ => false,
        }
    }

    /// Its packets and repair packets.
    fn messages(&self) -> u16 {
        self.frame.packets + self.protection.map_or(0, Protection::count)
    }

    /// The message of the first packet that has not arrived; with repair packets, that of the last of those,
    /// since only then it is known that nothing repairs it.
    fn missing(&self) -> u32 {
        let words = self.got.iter().position(|word| *word != u64::MAX);
        let word = words.unwrap_or(self.got.len());
        let bit = self.got.get(word).map_or(0, |word| word.trailing_ones());
        let packet = 64 * word as u32 + bit;
        let last = u32::from(self.messages()).saturating_sub(1);
        let packet = if self.protection.is_some() { last } else { packet };
        self.message.wrapping_add(packet)
    }
}

/// See the module.
#[derive(Debug)]
pub struct Screen {
    jitter_buffer: Duration,
    refresh: Option<u32>,
    interval: Duration,
    frames: VecDeque<Pending>,
    /// The newest frame of which a part was written.
    newest: Option<u32>,
    /// The latest message that has arrived.
    latest: Option<u32>,
    /// The least transit of this window and of the last, and when this one began.
    least: [Option<Duration>; 2],
    window: Instant,
    last_shown: Option<Instant>,
    /// Whole frames that are still needed before the picture is whole; `None` while it needs a key frame.
    healing: Option<u32>,
}

impl Screen {
    /// A screen before its first frame.
    pub fn new(config: &VideoConfig) -> Self {
        Self {
            jitter_buffer: config.jitter_buffer,
            refresh: config.refresh_frames(),
            interval: config.interval(),
            frames: VecDeque::new(),
            newest: None,
            latest: None,
            least: [None; 2],
            window: Instant::ZERO,
            last_shown: None,
            healing: None,
        }
    }

    /// The camera's side has written message `message`, which is `part`. Messages come in their order,
    /// with ascending numbers.
    pub fn sent(&mut self, now: Instant, message: u32, part: Part, bytes: u32) {
        let newest = self.newest.replace(part.frame);
        if newest != Some(part.frame) {
            self.skip(message, part, newest);
            let first = message.wrapping_sub(u32::from(part.packet));
            self.frames.push_back(Pending::new(first, part));
        }
        // A frame may be given up before all of it was written.
        let pending = self.frames.back_mut().filter(|it| it.frame.number == part.frame);
        let Some(Pending { frame, .. }) = pending else { return };
        frame.bytes += bytes;
        if part.packet < part.packets {
            frame.sent = Some(now);
            frame.written = part.packet + 1;
        }
    }

    /// Frames of which the sender dropped all have a place in the film too.
    fn skip(&mut self, message: u32, part: Part, newest: Option<u32>) {
        let Some(newest) = newest else { return };
        for skipped in newest.wrapping_add(1)..part.frame {
            let behind = i64::from(part.frame - skipped);
            let captured = part.captured - self.interval * behind;
            let none =
                Part { frame: skipped, key: false, captured, packets: 0, protection: None, ..part };
            self.frames.push_back(Pending::new(message, none));
        }
    }

    /// Message `message` has arrived. Frames that are decided by that, and by the time that has passed, go to
    /// `decided`, in their order.
    pub fn arrived(&mut self, now: Instant, message: u32, decided: &mut impl FnMut(Frame)) {
        self.decide(Instant::ZERO, now, decided);
        let later = self.latest.is_none_or(|latest| message.wrapping_sub(latest) < 1 << 31);
        if later {
            self.latest = Some(message);
        }
        let ahead = self.frames.partition_point(|it| message.wrapping_sub(it.message) < 1 << 31);
        let place = ahead.checked_sub(1);
        if let Some(pending) = place.and_then(|place| self.frames.get_mut(place)) {
            let packet = message.wrapping_sub(pending.message);
            if packet < u32::from(pending.messages()) && pending.arrived(packet as u16) {
                let transit = now - pending.frame.captured;
                if now - self.window >= WINDOW {
                    self.least = [None, self.least[0]];
                    self.window = now;
                }
                self.least[0] = Some(self.least[0].map_or(transit, |least| least.min(transit)));
                let due = due(&self.least, self.jitter_buffer, pending.frame.captured);
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

    /// Decides, in order, all that can be decided by `now`, with what has been known since `known`.
    fn decide(&mut self, known: Instant, now: Instant, decided: &mut impl FnMut(Frame)) {
        while let Some(pending) = self.frames.front() {
            let frame = &pending.frame;
            let at = if frame.complete {
                pending.due.max(frame.last.unwrap_or(now))
            } else {
                let gap =
                    self.latest.is_some_and(|it| it.wrapping_sub(pending.missing()) < 1 << 31);
                if !gap {
                    return;
                }
                due(&self.least, self.jitter_buffer, frame.captured)
            };
            let at = self.last_shown.map_or(at, |last| at.max(last));
            if at > now {
                return;
            }
            let at = at.max(known);
            if let Some(pending) = self.frames.pop_front() {
                let frame = pending.decided();
                decided(self.show(at, frame));
            }
        }
    }

    fn show(&mut self, at: Instant, frame: Frame) -> Frame {
        let intact = self.heal(&frame);
        if frame.arrived == 0 {
            return frame;
        }
        let since_last = self.last_shown.map(|last| at - last);
        self.last_shown = Some(at);
        Frame { intact, shown: Some(at), since_last, ..frame }
    }

    /// Whether the picture is whole with this frame.
    fn heal(&mut self, frame: &Frame) -> bool {
        self.healing = match (frame.complete, self.healing) {
            // The first picture of a stream with intra refresh is a key frame too.
            (true, _) if frame.key => Some(0),
            (true, Some(needed)) => Some(needed.saturating_sub(1)),
            (false, Some(_)) => self.refresh,
            (_, None) => None,
        };
        frame.complete && self.healing == Some(0)
    }

    /// The run ends at `end`. Frames that were not decided were not shown.
    pub fn finish(&mut self, end: Instant, decided: &mut impl FnMut(Frame)) {
        self.decide(Instant::ZERO, end, decided);
        self.frames.drain(..).for_each(|pending| decided(pending.decided()));
    }
}

/// When a frame is due that was taken at `captured`.
fn due(least: &[Option<Duration>; 2], jitter_buffer: Duration, captured: Instant) -> Instant {
    let least = least.iter().flatten().min().copied().unwrap_or_default();
    captured + least + jitter_buffer
}

#[cfg(test)]
mod tests {
    use super::super::clip::EncodedFrame;
    use super::super::protect::RepairKind;
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

    /// Ten frames a second of two packets each, a key frame every four; what arrives of them, in order of
    /// time, as (ms, message). Gives shown (ms) and intact of each.
    fn play(screen: &mut Screen, frames: u32, arrivals: &[(i64, u32)]) -> Vec<(Option<i64>, bool)> {
        for number in 0..frames {
            for packet in 0..2 {
                let captured = at(100 * i64::from(number));
                let key = number % 4 == 0 && (number == 0 || screen.refresh.is_none());
                let part =
                    Part { frame: number, key, captured, packet, packets: 2, protection: None };
                screen.sent(captured, 2 * number + u32::from(packet), part, 500);
            }
        }
        let mut rows = Vec::new();
        for (ms, message) in arrivals {
            screen.arrived(at(*ms), *message, &mut |frame| rows.push(frame));
        }
        screen.finish(at(100_000), &mut |frame| rows.push(frame));
        assert!(rows.iter().zip(0..).all(|(row, number)| row.number == number));
        rows.iter()
            .map(|row| (row.shown.map(|shown| shown.as_nanos() / 1_000_000), row.intact))
            .collect()
    }

    // By hand: the least transit is 20 ms, so frame n is due at 100 n + 20 + 150 ms.
    #[test]
    fn frames_are_shown_when_they_are_due_and_late_ones_when_they_are_whole() {
        let arrivals =
            [(20, 0), (25, 1), (130, 2), (140, 3), (420, 4), (450, 5), (451, 6), (451, 7)];
        let shown = play(&mut screen(false), 4, &arrivals);
        // Frame 2, due at 370, is whole at 450. Frame 3 is due at 470.
        let expected = [(Some(170), true), (Some(270), true), (Some(450), true), (Some(470), true)];
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_frame_is_never_shown_before_the_one_ahead_of_it() {
        // Message 2 comes when its frame, due at 270, has been given up.
        let arrivals = [(20, 0), (20, 1), (120, 3), (220, 4), (220, 5), (400, 2)];
        let shown = play(&mut screen(false), 3, &arrivals);
        assert_eq!(shown, [(Some(170), true), (Some(270), false), (Some(370), false)]);
    }

    #[test]
    fn a_lost_packet_damages_the_picture_until_the_next_key_frame() {
        let all = |lost: &'static [u32]| {
            let of = move |message: u32| (100 * i64::from(message / 2) + 20, message);
            (0..16).filter(move |it| !lost.contains(it)).map(of).collect::<Vec<_>>()
        };
        let intact = |shown: &[(Option<i64>, bool)]| -> Vec<bool> {
            shown.iter().map(|(_, intact)| *intact).collect()
        };
        let shown = play(&mut screen(false), 8, &all(&[5]));
        let yes_no = |text: &str| text.bytes().map(|it| it == b'y').collect::<Vec<_>>();
        assert_eq!(intact(&shown), yes_no("yynnyyyy"));
        assert!(shown.iter().all(|(shown, _)| shown.is_some()), "damaged frames are shown");
        // A frame of which nothing came is not shown.
        let shown = play(&mut screen(false), 8, &all(&[2, 3]));
        assert_eq!(shown[1], (None, false));
        assert_eq!(intact(&shown), yes_no("ynnnyyyy"));
        // Intra refresh of four frames: the fourth whole frame after the damaged one is whole again.
        let shown = play(&mut screen(true), 8, &all(&[5]));
        assert_eq!(intact(&shown), yes_no("yynnnnyy"));
    }

    #[test]
    fn when_the_network_stands_still_frames_come_late_and_undamaged_and_the_delay_goes_away_again()
    {
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
    fn a_gap_that_shows_itself_after_its_frame_was_due_is_given_up_there_and_then() {
        // Frame 1 was due at 270; that message 3 is lost is known only when frame 2 comes at 700.
        let arrivals = [(20, 0), (20, 1), (120, 2), (700, 4), (700, 5)];
        let shown = play(&mut screen(false), 3, &arrivals);
        assert_eq!(shown, [(Some(170), true), (Some(700), false), (Some(700), false)]);
    }

    #[test]
    fn repair_packets_make_losses_good_and_too_many_losses_are_known_only_behind_them() {
        let protection = Protection { groups: 1, repairs: 1, kind: RepairKind::Xor };
        let play = |lost: &[u32]| {
            let mut screen = screen(false);
            for message in 0..9 {
                let (frame, packet) = (message / 3, (message % 3) as u16);
                let captured = at(100 * i64::from(frame));
                let protection = Some(protection);
                let key = frame == 0;
                let part = Part { frame, key, captured, packet, packets: 2, protection };
                screen.sent(captured, message, part, 500);
            }
            let mut rows = Vec::new();
            for message in (0..9).filter(|message| !lost.contains(message)) {
                let now = at(100 * i64::from(message / 3) + 20);
                screen.arrived(now, message, &mut |frame| rows.push(frame));
            }
            screen.finish(at(10_000), &mut |frame| rows.push(frame));
            rows.iter().map(|row| (row.arrived, row.repaired, row.intact)).collect::<Vec<_>>()
        };
        assert_eq!(play(&[4]), [(2, 0, true), (1, 1, true), (2, 0, true)]);
        assert_eq!(play(&[5]), [(2, 0, true), (2, 0, true), (2, 0, true)]);
        assert_eq!(play(&[4, 5]), [(2, 0, true), (1, 0, false), (2, 0, false)]);
    }

    #[test]
    fn a_frame_that_its_sender_dropped_was_not_shown() {
        let mut screen = screen(false);
        for (message, frame) in [(0, 0), (1, 3)] {
            let captured = at(100 * i64::from(frame));
            let key = frame == 0;
            let part = Part { frame, key, captured, packet: 0, packets: 1, protection: None };
            screen.sent(captured, message, part, 500);
        }
        let mut rows = Vec::new();
        screen.arrived(at(20), 0, &mut |frame| rows.push(frame));
        screen.arrived(at(320), 1, &mut |frame| rows.push(frame));
        screen.finish(at(1000), &mut |frame| rows.push(frame));
        let told: Vec<_> = rows.iter().map(|row| (row.number, row.shown.is_some())).collect();
        assert_eq!(told, [(0, true), (1, false), (2, false), (3, true)]);
        assert_eq!(rows[2].captured, at(200));
        let sent: Vec<_> = rows.iter().map(|row| row.sent).collect();
        assert_eq!(sent, [Some(at(0)), None, None, Some(at(300))]);
        assert!(!rows[3].intact, "it refers to what was dropped");
    }

    #[test]
    fn what_has_not_been_decided_at_the_end_is_not_shown() {
        let mut screen = screen(false);
        let part =
            Part { frame: 0, key: true, captured: at(0), packet: 0, packets: 1, protection: None };
        screen.sent(at(0), 0, part, 100);
        screen.arrived(at(20), 0, &mut |_| unreachable!());
        let mut rows = Vec::new();
        screen.finish(at(100), &mut |frame| rows.push(frame));
        assert_eq!((rows.len(), rows[0].shown, rows[0].complete), (1, None, true));
    }
}
