//! A video over one link, for tests: an encoder that follows the target frame by frame, a queue in the
//! sender, a drop-tail link, a receiver with its own clock that reports as the wire can carry it.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use skybraid_units::{Bytes, Duration, Instant, Probability, Rate, Seed};

use super::{Arrival, Bounds, Control, Queue, RateConfig, RateControl, Report, Reporter, Sent};

const STEP: Duration = Duration::from_micros(250);
const FRAME: Duration = Duration::from_nanos(33_333_333);
const PACKET: u64 = 1200;

/// Between 200 kbit/s and 20 Mbit/s, from 1 Mbit/s.
pub const BOUNDS: Bounds = Bounds {
    least: Rate::from_bps(200_000),
    start: Rate::from_bps(1_000_000),
    most: Rate::from_bps(20_000_000),
};

/// The link.
#[derive(Clone)]
pub struct Link {
    /// From when on it has which rate.
    pub rates: Vec<(i64, f64)>,
    /// One way, in ms; the way back has the same.
    pub delay: i64,
    /// In ms at the first rate.
    pub buffer: i64,
    /// Random loss.
    pub loss: f64,
    /// By how much the receiver's clock is ahead.
    pub offset: Duration,
    /// What arrives in the link's queue while it stands still is kept, or lost.
    pub stalls_lose: bool,
    pub bounds: Bounds,
}

impl Link {
    /// So many Mbit/s, 25 ms each way, a buffer of 300 ms, no loss.
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

    /// Flies for so many seconds.
    pub fn fly(&self, config: &RateConfig, seconds: i64) -> Flight {
        let mut control = config.build(&self.bounds);
        let mut flight = Flight { rows: Vec::new(), packets: Vec::new(), dropped: Vec::new() };
        let mut stream = Seed(7).stream("link.loss");
        let loss = Probability::new(self.loss).unwrap();
        let buffer = (self.rates[0].1 * 1e3 * self.buffer as f64 / 8.0) as u64;
        let way = Duration::from_millis(self.delay);
        let mut reporter = Reporter::new(Reporter::INTERVAL, 0);
        let mut waiting: VecDeque<u64> = VecDeque::new();
        let mut queue: VecDeque<(u64, u64, Instant)> = VecDeque::new();
        let mut on_the_way: VecDeque<(Instant, u64)> = VecDeque::new();
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
                tell(&mut control, now, &waiting);
            }
            while let Some((_, reported, arrivals)) = pop_if(&mut reports, |(at, ..)| *at <= now) {
                control.feedback(now, &Report { reported, arrivals: &arrivals });
            }
            if now >= control.next_wakeup() {
                control.tick(now);
            }
            while let Some(bytes) = waiting.front().copied()
                && control.may_send(now).is_none_or(|leave| leave >= Bytes::new(bytes))
            {
                waiting.pop_front();
                control.sent(now, Sent { number, bytes: bytes as u32 });
                tell(&mut control, now, &waiting);
                let stalled = self.stalls_lose && self.rate(now) == 0.0;
                if queued + bytes <= buffer && !stalled {
                    queue.push_back((number, bytes, now));
                    queued += bytes;
                } else {
                    flight.dropped.push(now);
                }
                number += 1;
            }
            credit += self.rate(now) * STEP.as_secs_f64() / 8.0;
            while let Some((number, bytes, sent)) =
                pop_if(&mut queue, |(_, bytes, _)| *bytes as f64 <= credit)
            {
                credit -= bytes as f64;
                queued -= bytes;
                flight.packets.push((now, bytes, (now - sent).as_secs_f64()));
                if !stream.chance(loss) {
                    on_the_way.push_back((now + way, number));
                }
            }
            if queue.is_empty() {
                credit = 0.0;
            }
            while let Some((_, number)) = pop_if(&mut on_the_way, |(at, _)| *at <= now) {
                reporter.arrived(now + self.offset, number);
            }
            if let Some(report) = reporter.report(now + self.offset) {
                reports.push_back((now + way, report.reported, on_the_wire(&report)));
            }
            if flight.rows.last().is_none_or(|(last, _)| now - *last >= Duration::from_millis(10)) {
                flight.rows.push((now, control.target()));
            }
            now += STEP;
        }
        flight
    }
}

fn pop_if<T>(queue: &mut VecDeque<T>, fits: impl FnOnce(&T) -> bool) -> Option<T> {
    if queue.front().is_some_and(fits) { queue.pop_front() } else { None }
}

fn tell(control: &mut Control, now: Instant, waiting: &VecDeque<u64>) {
    let bytes = Bytes::new(waiting.iter().sum());
    let next = Bytes::new(waiting.front().copied().unwrap_or(0));
    control.queued(now, Queue { bytes, next });
}

/// RFC 8888 §3.1: arrivals are counted back from the report in units of 1/1024 s.
fn on_the_wire(report: &Report<'_>) -> Vec<Arrival> {
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

/// What was seen.
pub struct Flight {
    /// The target each 10 ms.
    pub rows: Vec<(Instant, Rate)>,
    /// When each packet left the link's queue, its bytes, how long it waited there in s.
    packets: Vec<(Instant, u64, f64)>,
    dropped: Vec<Instant>,
}

impl Flight {
    fn between(&self, from: i64, to: i64) -> impl Iterator<Item = &(Instant, u64, f64)> {
        let (from, to) = (Instant::from_millis(1000 * from), Instant::from_millis(1000 * to));
        self.packets.iter().filter(move |(at, ..)| (from..to).contains(at))
    }

    /// What the link carried between two seconds, in Mbit/s.
    pub fn carried(&self, from: i64, to: i64) -> f64 {
        let bytes: u64 = self.between(from, to).map(|(_, bytes, _)| bytes).sum();
        bytes as f64 * 8e-6 / (to - from) as f64
    }

    /// Mean and longest wait in the link's queue, in ms.
    pub fn waited(&self, from: i64, to: i64) -> (f64, f64) {
        let waits: Vec<f64> = self.between(from, to).map(|(.., wait)| wait * 1e3).collect();
        let mean = waits.iter().sum::<f64>() / waits.len() as f64;
        (mean, waits.into_iter().fold(0.0, f64::max))
    }

    /// Packets that the full queue dropped.
    pub fn dropped(&self, from: i64, to: i64) -> usize {
        let (from, to) = (Instant::from_millis(1000 * from), Instant::from_millis(1000 * to));
        self.dropped.iter().filter(|at| (from..to).contains(*at)).count()
    }

    /// Mean target between two seconds, in Mbit/s.
    pub fn target(&self, from: i64, to: i64) -> f64 {
        let (from, to) = (Instant::from_millis(1000 * from), Instant::from_millis(1000 * to));
        let rows = self.rows.iter().filter(|(at, _)| (from..to).contains(at));
        let (sum, count) = rows.fold((0, 0), |(sum, count), row| (sum + row.1.as_bps(), count + 1));
        sum as f64 * 1e-6 / f64::from(count)
    }
}
