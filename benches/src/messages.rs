//! Cost per message of the schedulers that trade copies for time: the decision, and what they learn from it later.

use std::collections::VecDeque;
use std::hint::black_box;

use skybraid_transport::scheduler::{Choice, Scheduler, SchedulerConfig, Unit};
use skybraid_transport::{Class, PathSet, PathView};
use skybraid_units::{Bytes, Duration, Instant, Seed};

use crate::algorithms::view;
use crate::now;

/// Schedulers that are measured, by name.
const NAMES: [&str; 7] =
    ["deadline", "hedge", "early_warning", "coded", "rounds", "streaming", "budget"];
/// Paths of a connection.
const PATHS: usize = 3;
/// Nanoseconds that a message may take.
const TARGET: f64 = 200.0;
/// Rounds; short, so that some are not interrupted.
const ROUNDS: usize = 100;
/// Messages of a round.
const MESSAGES: usize = 4 * 1024;
/// One-way delays that take turns.
const DELAYS: usize = 256;

const INTERVAL: Duration = Duration::from_millis(5);
const DEADLINE: Duration = Duration::from_millis(300);
const SRTT: Duration = Duration::from_millis(60);
const BYTES: Bytes = Bytes::new(1200);
/// Messages from the sending of one to its acknowledgement.
const IN_FLIGHT: usize = 14;
/// Packets per lost packet.
const LOSS_EVERY: usize = 500;

/// A connection that sends a message every 5 ms and learns the fate of each.
struct Messages {
    scheduler: Box<dyn Scheduler>,
    views: Vec<PathView>,
    delays: Vec<Duration>,
    /// Packets without a fate: their paths and times of sending.
    in_flight: VecDeque<(PathSet, Instant)>,
    sent: usize,
}

impl Messages {
    fn new(config: &SchedulerConfig) -> Self {
        let views = (0..PATHS).map(|path| PathView {
            srtt: Some(SRTT + Duration::from_millis(10) * path as i64),
            rtt_deviation: SRTT / 8,
            min_rtt: Some(SRTT / 2),
            cost: 1,
            ..view(path)
        });
        let mut stream = Seed(1).stream("bench.delays");
        let delays = (0..DELAYS).map(|_| SRTT.mul_f64(stream.between(0.3, 1.5)));
        Self {
            scheduler: config.build(),
            views: views.collect(),
            delays: delays.collect(),
            in_flight: VecDeque::new(),
            sent: 0,
        }
    }

    /// Decides about a message, and settles the packets of an earlier one.
    fn send(&mut self) {
        let now = Instant::ZERO + INTERVAL * self.sent as i64;
        let unit = Unit {
            bytes: BYTES,
            class: Class::Data,
            deadline: Some(now + DEADLINE),
            carried_by: PathSet::EMPTY,
            backlog: Bytes::ZERO,
            window_room: Bytes::new(u64::MAX),
            window: Bytes::new(u64::MAX),
            blocked: 0,
        };
        let choice = self.scheduler.choose(now, &unit, &self.views);
        let Choice::Send(paths, _) = black_box(choice) else {
            return;
        };
        paths.iter().for_each(|path| self.scheduler.on_sent(now, path));
        let sent = Unit { carried_by: paths, ..unit };
        black_box(self.scheduler.hedge_at(now, &sent, now, &self.views));
        self.in_flight.push_back((paths, now));
        self.sent += 1;
        if self.in_flight.len() > IN_FLIGHT
            && let Some((paths, at)) = self.in_flight.pop_front()
        {
            for path in paths.iter() {
                let arrives = !self.sent.is_multiple_of(LOSS_EVERY);
                let delay = arrives.then(|| self.delays[self.sent % DELAYS]);
                self.scheduler.on_settled(now, path, at, delay);
            }
        }
    }
}

/// Prints what a message costs the schedulers whose names hold `wanted`. True if one is above the target.
pub fn report(wanted: &str) -> bool {
    let named = NAMES.iter().filter(|name| name.contains(wanted));
    let mut rows: Vec<_> = named
        .filter_map(|name| Some((name, Messages::new(&SchedulerConfig::by_name(name)?))))
        .map(|(name, messages)| (name, messages, f64::INFINITY))
        .collect();
    if rows.is_empty() {
        return false;
    }
    for _ in 0..ROUNDS {
        for (_, messages, best) in &mut rows {
            let start = now();
            (0..MESSAGES).for_each(|_| messages.send());
            *best = best.min(start.elapsed().as_secs_f64() * 1e9 / MESSAGES as f64);
        }
    }
    println!("\n{:<32} {:>16} {:>8}", "ns per message, 3 paths", "", "target");
    for (name, _, best) in &rows {
        println!("{name:<32} {best:>16.1} {TARGET:>8.0}");
    }
    rows.iter().any(|(_, _, best)| *best > TARGET)
}
