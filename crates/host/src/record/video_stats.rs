//! Statistics of a video flow's frames.

use alloc::vec::Vec;

use skybraid_traffic::video::{Frame, Part, Screen, VideoConfig};
use skybraid_units::{Duration, Instant};

use super::misses::{MissCause, MissCounts};
use super::{Deadline, Histogram};

/// Part of the freeze threshold: a gap between two shown frames is a freeze if it exceeds both three frame intervals
/// and one interval plus this. Source: W3C, Identifiers for WebRTC's Statistics API, `freezeCount`.
const FREEZE_MARGIN: Duration = Duration::from_millis(150);
const SECOND_NS: i64 = 1_000_000_000;

/// Summary of the frames of a flow.
#[derive(Clone, Debug, Default)]
pub struct VideoSummary {
    /// Frames captured.
    pub frames: u64,
    /// Frames that arrived complete before they were decided.
    pub complete: u64,
    /// Frames shown undamaged.
    pub intact: u64,
    /// Frames shown, damaged or not.
    pub shown: u64,
    /// Latencies from capture to display, of the frames shown.
    pub latencies: Histogram,
    /// For each deadline: frames due within the run, and those shown undamaged in time.
    pub deadlines: Vec<Deadline>,
    /// For each deadline, causes by which frames missed it.
    pub misses: Vec<MissCounts>,
    /// Causes by which frames were not shown undamaged at any time.
    pub damaged: MissCounts,
    /// Number of freezes.
    pub freezes: u64,
    /// Total duration of the freezes.
    pub frozen: Duration,
    /// Longest time without a new picture.
    pub longest_gap: Duration,
    /// Whole seconds from the first shown frame to the end.
    pub seconds: u64,
    /// Frames shown in those seconds.
    pub shown_in_seconds: u64,
    /// Minimum of frames shown in one of those seconds.
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
pub struct VideoStats {
    screen: Screen,
    interval: Duration,
    limits: Vec<Duration>,
    /// Decided frames.
    pub frames: Vec<Frame>,
    /// Causes of the first frames in `frames`: why a frame misses a deadline, if it does.
    causes: Vec<MissCause>,
}

impl VideoStats {
    /// Creates the statistics of a video whose frames are judged by `limits`.
    pub fn new(config: &VideoConfig, limits: &[Duration]) -> Self {
        Self {
            screen: Screen::new(config),
            interval: config.interval(),
            limits: limits.to_vec(),
            frames: Vec::new(),
            causes: Vec::new(),
        }
    }

    /// Whether there are decided frames without a cause.
    pub const fn has_unexplained(&self) -> bool {
        self.causes.len() < self.frames.len()
    }

    /// Returns the message of the first missing packet of the next frame without a cause; call
    /// [`explain`](Self::explain) next. Frames whose cause needs no message are explained at once.
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
                // Complete, but the run ended before it was shown.
                None if frame.shown.is_none() => MissCause::Late,
                None => MissCause::Reference,
            };
            self.causes.push(cause);
        }
    }

    /// Sets the cause of the frame of [`next_missing`](Self::next_missing).
    pub fn explain(&mut self, cause: MissCause) {
        self.causes.push(cause);
    }

    /// Records that a part of a frame was written as message `id`.
    pub fn on_written(&mut self, now: Instant, id: u32, part: Part, bytes: u32) {
        self.screen.on_sent(now, id, part, bytes);
    }

    /// Records the delivery of message `id`.
    pub fn on_delivered(&mut self, now: Instant, id: u32) {
        let Self { screen, frames, .. } = self;
        screen.on_received(now, id, &mut |frame| frames.push(frame));
    }

    /// Decides the remaining frames at the end of the run, `end`.
    pub fn decide_rest(&mut self, end: Instant) {
        let Self { screen, frames, .. } = self;
        screen.finish(end, &mut |frame| frames.push(frame));
    }

    /// Returns the summary of the frames of a run that ended at `end`.
    pub fn summary(&self, end: Instant) -> VideoSummary {
        let count = |is_counted: fn(&Frame) -> bool| {
            self.frames.iter().filter(|frame| is_counted(frame)).count()
        };
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
        self.measure_display(end, &mut summary);
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

    /// Fills in what the pilot sees: number of pictures, latencies, freezes and frame rates.
    fn measure_display(&self, end: Instant, summary: &mut VideoSummary) {
        let max_gap = (self.interval * 3).max(self.interval + FREEZE_MARGIN);
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
        // The time from the last shown picture to the end is a gap if a later frame was not shown.
        if self.frames.last().is_some_and(|frame| frame.shown.is_none()) {
            gaps.push(end - last);
        }
        let freezes = gaps.iter().copied().filter(|gap| *gap > max_gap);
        summary.freezes = freezes.clone().count() as u64;
        summary.frozen = freezes.fold(Duration::ZERO, |sum, gap| sum + gap);
        summary.longest_gap = gaps.into_iter().max().unwrap_or_default();
        summary.shown_in_seconds = seconds.iter().map(|count| u64::from(*count)).sum();
        summary.worst_second = seconds.into_iter().min();
    }
}
