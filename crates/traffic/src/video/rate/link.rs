//! Test harness: a video over one link, with an encoder that follows the target frame by frame, a send queue,
//! a drop-tail link, and a receiver with its own clock that reports with the resolution of the wire.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use skybraid_units::{Bytes, Duration, Instant, Probability, Rate, Seed};

use super::{Arrival, Bounds, Queue, RateConfig, RateControl, Report, Reporter, Sent};

const STEP: Duration = Duration::from_micros(250);
const FRAME: Duration = Duration::from_nanos(33_333_333);
const PACKET: u64 = 1200;

/// Bounds from 200 kbit/s to 20 Mbit/s, starting at 1 Mbit/s.
pub const BOUNDS: Bounds = Bounds {
    min: Rate::from_bps(200_000),
    start: Rate::from_bps(1_000_000),
    max: Rate::from_bps(20_000_000),
};

/// A link.
#[derive(Clone)]
pub struct Link {
    /// Rates in Mbit/s, each with the second from which it holds.
    pub rates: Vec<(i64, f64)>,
    /// One-way delay in ms, the same in both directions.
    pub delay: i64,
    /// Buffer in ms at the first rate.
    pub buffer: i64,
    /// Probability of random loss.
    pub loss: f64,
    /// Offset of the receiver's clock.
    pub offset: Duration,
    /// Whether packets that enter the queue during a stall are lost.
    pub stalls_lose: bool,
    pub bounds: Bounds,
}

impl Link {
    /// Returns a link of a rate in Mbit/s with 25 ms each way, a buffer of 300 ms and no loss.
    pub fn of(megabits: f64) -> Self {
        Self {
            rates: [(0, megabits)].into(),
            delay: 25,
            buffer: 300,
            loss: 0.0,
            offset: Duration::ZERO,
            stalls_lose: false,
            bounds: BOUNDS,
        }
    }

    fn rate(&self, now: Instant) -> f64 {
        let second = now.as_nanos() / 1_000_000_000;
        let mut rate = 0.0;
        for (from, megabits) in &self.rates {
            if second >= *from {
                rate = *megabits;
            }
        }
        rate * 1e6
    }

    /// Runs a video over the link for a number of seconds.
    pub fn run(&self, config: &RateConfig, seconds: i64) -> Run {
        let mut control = config.build(&self.bounds);
        let mut run = Run { rows: Vec::new(), packets: Vec::new(), dropped: Vec::new() };
        let mut stream = Seed(7).stream("link.loss");
        let loss = Probability::new(self.loss).unwrap();
        let buffer = (self.rates[0].1 * 1e3 * self.buffer as f64 / 8.0) as u64;
        let way = Duration::from_millis(self.delay);
        let mut reporter = Reporter::new(Reporter::INTERVAL, 0);
        let mut waiting: VecDeque<u64> = VecDeque::new();
        let mut queue: VecDeque<(u64, u64, Instant)> = VecDeque::new();
        let mut in_transit: VecDeque<(Instant, u64)> = VecDeque::new();
        let mut reports: VecDeque<(Instant, Instant, Vec<Arrival>)> = VecDeque::new();
        let (mut queued, mut credit, mut number) = (0, 0.0, 0);
        let mut frame = Instant::ZERO;
        let mut now = Instant::ZERO;
        while now < Instant::from_millis(1000 * seconds) {
            if now >= frame {
                frame += FRAME;
                let mut left = control.target().bits_in(FRAME) / 8;
                while left > 0 {
                    waiting.push_back(left.min(PACKET));
                    left -= left.min(PACKET);
                }
                report_queue(&mut *control, now, &waiting);
            }
            while let Some((_, reported, arrivals)) = pop_if(&mut reports, |(at, ..)| *at <= now) {
                control.on_feedback(now, &Report { reported, arrivals: &arrivals });
            }
            if now >= control.next_wakeup() {
                control.on_timeout(now);
            }
            while let Some(bytes) = waiting.front().copied()
                && control.may_send(now).is_none_or(|room| room >= Bytes::new(bytes))
            {
                waiting.pop_front();
                control.on_sent(now, Sent { number, bytes: bytes as u32 });
                report_queue(&mut *control, now, &waiting);
                let stalled = self.stalls_lose && self.rate(now) == 0.0;
                if queued + bytes <= buffer && !stalled {
                    queue.push_back((number, bytes, now));
                    queued += bytes;
                } else {
                    run.dropped.push(now);
                }
                number += 1;
            }
            credit += self.rate(now) * STEP.as_secs_f64() / 8.0;
            while let Some((number, bytes, sent)) =
                pop_if(&mut queue, |(_, bytes, _)| *bytes as f64 <= credit)
            {
                credit -= bytes as f64;
                queued -= bytes;
                run.packets.push((now, bytes, (now - sent).as_secs_f64()));
                if !stream.chance(loss) {
                    in_transit.push_back((now + way, number));
                }
            }
            if queue.is_empty() {
                credit = 0.0;
            }
            while let Some((_, number)) = pop_if(&mut in_transit, |(at, _)| *at <= now) {
                reporter.on_received(now + self.offset, number);
            }
            if let Some(report) = reporter.report(now + self.offset) {
                reports.push_back((now + way, report.reported, rounded_arrivals(&report)));
            }
            if run.rows.last().is_none_or(|(last, _)| now - *last >= Duration::from_millis(10)) {
                run.rows.push((now, control.target()));
            }
            now += STEP;
        }
        run
    }
}

fn pop_if<T>(queue: &mut VecDeque<T>, fits: impl FnOnce(&T) -> bool) -> Option<T> {
    if queue.front().is_some_and(fits) { queue.pop_front() } else { None }
}

fn report_queue(control: &mut dyn RateControl, now: Instant, waiting: &VecDeque<u64>) {
    let bytes = Bytes::new(waiting.iter().sum());
    let next = Bytes::new(waiting.front().copied().unwrap_or(0));
    control.on_queue_changed(now, Queue { bytes, next });
}

/// Returns arrivals rounded to units of 1/1024 s before the report (RFC 8888 §3.1).
fn rounded_arrivals(report: &Report<'_>) -> Vec<Arrival> {
    let rounded = |at: Instant| {
        let units = libm::floor((report.reported - at).as_secs_f64() * 1024.0);
        report.reported - Duration::from_secs_f64(units / 1024.0)
    };
    report
        .arrivals
        .iter()
        .map(|arrival| Arrival { at: arrival.at.map(rounded), ..*arrival })
        .collect()
}

/// Record of a run.
pub struct Run {
    /// Target every 10 ms.
    pub rows: Vec<(Instant, Rate)>,
    /// Departure time from the link's queue, size and waiting time in s of each packet.
    packets: Vec<(Instant, u64, f64)>,
    dropped: Vec<Instant>,
}

impl Run {
    fn between(&self, from: i64, to: i64) -> impl Iterator<Item = &(Instant, u64, f64)> {
        let (from, to) = (Instant::from_millis(1000 * from), Instant::from_millis(1000 * to));
        self.packets.iter().filter(move |(at, ..)| (from..to).contains(at))
    }

    /// Returns the throughput between two seconds, in Mbit/s.
    pub fn throughput(&self, from: i64, to: i64) -> f64 {
        let bytes: u64 = self.between(from, to).map(|(_, bytes, _)| bytes).sum();
        bytes as f64 * 8e-6 / (to - from) as f64
    }

    /// Returns the mean and the maximum waiting time in the link's queue, in ms.
    pub fn waited(&self, from: i64, to: i64) -> (f64, f64) {
        let waits: Vec<f64> = self.between(from, to).map(|(.., wait)| wait * 1e3).collect();
        let mean = waits.iter().sum::<f64>() / waits.len() as f64;
        (mean, waits.into_iter().fold(0.0, f64::max))
    }

    /// Returns the number of packets dropped by the full queue.
    pub fn dropped(&self, from: i64, to: i64) -> usize {
        let (from, to) = (Instant::from_millis(1000 * from), Instant::from_millis(1000 * to));
        self.dropped.iter().filter(|at| (from..to).contains(*at)).count()
    }

    /// Returns the mean target between two seconds, in Mbit/s.
    pub fn target(&self, from: i64, to: i64) -> f64 {
        let (from, to) = (Instant::from_millis(1000 * from), Instant::from_millis(1000 * to));
        let rows = self.rows.iter().filter(|(at, _)| (from..to).contains(at));
        let (sum, count) = rows.fold((0, 0), |(sum, count), row| (sum + row.1.as_bps(), count + 1));
        sum as f64 * 1e-6 / f64::from(count)
    }
}
