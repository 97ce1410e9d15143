//! Video: a row per frame, and what they come to.

use alloc::vec::Vec;

use skybraid_traffic::video::{Frame, Part, Screen, VideoConfig};
use skybraid_units::{Duration, Instant};

use super::Histogram;
use super::messages::Deadline;
use super::misses::{MissCause, MissCounts};

/// A gap between two frames on the screen is a freeze if it is longer than three intervals, and than an
/// interval and this. Source: W3C, Identifiers for WebRTC's Statistics API, `freezeCount`.
const FREEZE_BEYOND: Duration = Duration::from_millis(150);
const SECOND_NS: i64 = 1_000_000_000;

/// What the frames of a flow came to.
#[derive(Clone, Debug, Default)]
pub struct VideoSummary {
    /// Frames that the camera took.
    pub frames: u64,
    /// … that arrived whole before they were decided.
    pub complete: u64,
    /// … that were shown undamaged.
    pub intact: u64,
    /// … that were shown, damaged or not.
    pub shown: u64,
    /// From the camera to the screen, of those that were shown.
    pub latencies: Histogram,
    /// For each deadline: frames whose deadline fell within the run, and how many were shown undamaged in
    /// time.
    pub deadlines: Vec<Deadline>,
    /// For each deadline, why frames missed it.
    pub misses: Vec<MissCounts>,
    /// Why frames were not shown undamaged, whatever the time.
    pub damaged: MissCounts,
    /// How often the picture froze.
    pub freezes: u64,
    /// For how long, all together.
    pub frozen: Duration,
    /// The longest time without a new picture.
    pub longest_gap: Duration,
    /// Whole seconds from the first frame that was shown to the end.
    pub seconds: u64,
    /// Frames shown in those seconds.
    pub shown_in_seconds: u64,
    /// The fewest frames shown in one of them.
    pub worst_second: Option<u32>,
}

impl VideoSummary {
    /// Adds another run of the same flow.
    pub fn merge(&mut self, other: &Self) {
        self.frames += other.frames;
        self.complete += other.complete;
        self.intact += other.intact;
        self.shown += other.shown;
        self.latencies.merge(&other.latencies);
        for (deadline, more) in self.deadlines.iter_mut().zip(&other.deadlines) {
            deadline.merge(more);
        }
        for (counts, more) in self.misses.iter_mut().zip(&other.misses) {
            counts.merge(more);
        }
        self.damaged.merge(&other.damaged);
        self.freezes += other.freezes;
        self.frozen += other.frozen;
        self.longest_gap = self.longest_gap.max(other.longest_gap);
        self.seconds += other.seconds;
        self.shown_in_seconds += other.shown_in_seconds;
        let worst = [self.worst_second, other.worst_second];
        self.worst_second = worst.into_iter().flatten().min();
    }
}

/// The frames of a flow.
#[derive(Debug)]
pub struct Film {
    screen: Screen,
    interval: Duration,
    limits: Vec<Duration>,
    /// Frames that are decided.
    pub frames: Vec<Frame>,
    /// For each of them, why it missed a deadline, if it did.
    causes: Vec<MissCause>,
}

impl Film {
    /// A film whose frames are judged by `limits`.
    pub fn new(config: &VideoConfig, limits: &[Duration]) -> Self {
        Self {
            screen: Screen::new(config),
            interval: config.interval(),
            limits: limits.to_vec(),
            frames: Vec::new(),
            causes: Vec::new(),
        }
    }

    /// Frames have been decided whose causes are not known.
    pub const fn has_unexplained(&self) -> bool {
        self.causes.len() < self.frames.len()
    }

    /// The message of the first missing packet of the next frame whose cause is not known;
    /// [`explain`](Self::explain) comes next. Frames that need no message are explained at once.
    pub fn next_missing(&mut self) -> Option<u32> {
        loop {
            let frame = self.frames.get(self.causes.len())?;
            let cause = match frame.missing.first() {
                Some(packet) if *packet < frame.written => {
                    return Some(frame.message.wrapping_add((*packet).into()));
                }
                Some(_) => MissCause::Skipped,
                None if frame.packets == 0 => MissCause::Skipped,
                None if frame.intact => MissCause::Late,
                // All of it is there; without a time on the screen it was not decided by the end.
                None if frame.shown.is_none() => MissCause::Late,
                None => MissCause::Reference,
            };
            self.causes.push(cause);
        }
    }

    /// The frame of [`next_missing`](Self::next_missing) missed its deadlines for this cause.
    pub fn explain(&mut self, cause: MissCause) {
        self.causes.push(cause);
    }

    /// A part of a frame was written as message `id`.
    pub fn written(&mut self, now: Instant, id: u32, part: Part, bytes: u32) {
        self.screen.sent(now, id, part, bytes);
    }

    /// Message `id` has arrived.
    pub fn arrived(&mut self, now: Instant, id: u32) {
        let Self { screen, frames, .. } = self;
        screen.arrived(now, id, &mut |frame| frames.push(frame));
    }

    /// The run has ended at `end`: decides the frames that are left.
    pub fn decide_rest(&mut self, end: Instant) {
        let Self { screen, frames, .. } = self;
        screen.finish(end, &mut |frame| frames.push(frame));
    }

    /// Returns the statistics of the frames of a run that has ended at `end`.
    pub fn summary(&self, end: Instant) -> VideoSummary {
        let count = |which: fn(&Frame) -> bool| self.frames.iter().filter(|it| which(it)).count();
        let mut summary = VideoSummary {
            frames: self.frames.len() as u64,
            complete: count(|frame| frame.complete) as u64,
            intact: count(|frame| frame.intact) as u64,
            ..VideoSummary::default()
        };
        for (frame, cause) in self.frames.iter().zip(&self.causes) {
            if !frame.intact {
                summary.damaged.add(*cause);
            }
        }
        self.judge(end, &mut summary);
        self.watch(end, &mut summary);
        summary
    }

    fn judge(&self, end: Instant, summary: &mut VideoSummary) {
        for limit in &self.limits {
            let mut deadline = Deadline::new(*limit);
            let mut misses = MissCounts::default();
            let due = |(frame, _): &(&Frame, _)| frame.captured + *limit <= end;
            for (frame, cause) in self.frames.iter().zip(&self.causes).filter(due) {
                deadline.on_due(frame.captured);
                if frame.intact && frame.latency().is_some_and(|latency| latency <= *limit) {
                    deadline.on_met(frame.captured);
                } else {
                    misses.add(*cause);
                }
            }
            summary.deadlines.push(deadline);
            summary.misses.push(misses);
        }
    }

    /// What a pilot sees: how many pictures there are, how old, and how evenly they come.
    fn watch(&self, end: Instant, summary: &mut VideoSummary) {
        let beyond = (self.interval * 3).max(self.interval + FREEZE_BEYOND);
        let mut shown = self.frames.iter().filter_map(|frame| Some((frame, frame.shown?)));
        let Some((_, first)) = shown.clone().next() else { return };
        summary.seconds = (end.since(first).as_nanos() / SECOND_NS) as u64;
        let mut seconds = alloc::vec![0u32; summary.seconds as usize];
        let (mut last, mut gaps) = (first, Vec::new());
        for (frame, at) in shown.by_ref() {
            summary.shown += 1;
            summary.latencies.add(at - frame.captured);
            if let Some(count) = seconds.get_mut(((at - first).as_nanos() / SECOND_NS) as usize) {
                *count += 1;
            }
            gaps.push(at - last);
            last = at;
        }
        // A picture that stands still until the end has frozen, unless no other was due.
        if self.frames.last().is_some_and(|frame| frame.shown.is_none()) {
            gaps.push(end - last);
        }
        let freezes = gaps.iter().copied().filter(|gap| *gap > beyond);
        summary.freezes = freezes.clone().count() as u64;
        summary.frozen = freezes.fold(Duration::ZERO, |sum, gap| sum + gap);
        summary.longest_gap = gaps.into_iter().max().unwrap_or_default();
        summary.shown_in_seconds = seconds.iter().map(|count| u64::from(*count)).sum();
        summary.worst_second = seconds.into_iter().min();
    }
}
