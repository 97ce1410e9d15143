//! Cost of the algorithms by themselves: congestion controls per acknowledged packet, schedulers per
//! decision, with 2, 8 and 64 paths.
//!
//! Both packages are measured by their registries, so that a new algorithm appears without a change here.

use std::hint::black_box;

use skybraid_transport::congestion::{
    Acked, Congestion, CongestionConfig, Lost, PathBasics, RateSample, Sibling, Siblings,
};
use skybraid_transport::registry::About;
use skybraid_transport::scheduler::{Scheduler, SchedulerConfig, Unit};
use skybraid_transport::{Class, PathId, PathSet, PathView};
use skybraid_units::{Bytes, Duration, Instant, Rate, Seed};

use crate::now;

/// Paths of a connection.
const PATHS: [usize; 3] = [2, 8, 64];
/// Rounds; short, so that some are not interrupted.
const ROUNDS: usize = 60;
/// Calls of a round.
const CALLS: usize = 16 * 1024;
/// Calls per path before the first round: each has had losses by then.
const WARM_UP: usize = 2 * LOSS_EVERY as usize;
/// Measurements and units that take turns.
const SITUATIONS: usize = 64;

const SEGMENT: u64 = 1400;
/// Packets on their way, one every millisecond: the bandwidth-delay product.
const ON_THE_WAY: u64 = 50;
const INTERVAL: Duration = Duration::from_millis(1);
const SRTT: Duration = Duration::from_millis(50);
/// Acknowledged packets of a path from one loss to the next, and those during which it is repaired.
const LOSS_EVERY: u64 = 1000;
const REPAIR: u64 = 50;

/// Makes the algorithm of a name for a connection of so many paths.
type Make = dyn Fn(&str, usize) -> Option<Box<dyn Subject>>;

/// An algorithm under measurement.
pub trait Subject {
    /// Calls it that often.
    fn round(&mut self, calls: usize);
}

/// Prints what the algorithms cost whose names hold `wanted`.
pub fn report(wanted: &str) {
    let controls = CongestionConfig::ALL;
    table("ns per acknowledged packet", "reno", controls, wanted, &|name, paths| {
        Some(Box::new(Acknowledgements::new(&CongestionConfig::by_name(name)?, paths)))
    });
    let schedulers = SchedulerConfig::ALL;
    table("ns per decision", "single", schedulers, wanted, &|name, paths| {
        Some(Box::new(Decisions::new(&SchedulerConfig::by_name(name)?, paths)))
    });
}

/// Measures in turn, best of several rounds, and prints what a call takes in nanoseconds and as a
/// multiple of what one to `base` takes, which depends less on the machine.
fn table(what: &str, base: &str, algorithms: &[About], wanted: &str, make: &Make) {
    let names = algorithms.iter().map(|about| about.name);
    if !names.clone().any(|name| name.contains(wanted)) {
        return;
    }
    let mut rows = Vec::new();
    for name in names.filter(|name| name.contains(wanted) || *name == base) {
        let subjects = PATHS.iter().filter_map(|paths| {
            let mut subject = make(name, *paths)?;
            subject.round(WARM_UP * paths);
            Some(subject)
        });
        let subjects: Vec<_> = subjects.collect();
        let best = vec![f64::INFINITY; subjects.len()];
        rows.push((name, subjects, best));
    }
    for _ in 0..ROUNDS {
        for (_, subjects, best) in &mut rows {
            for (subject, best) in subjects.iter_mut().zip(best) {
                let start = now();
                subject.round(CALLS);
                *best = best.min(start.elapsed().as_secs_f64() * 1e9 / CALLS as f64);
            }
        }
    }
    let Some(least) = rows.iter().find(|row| row.0 == base).map(|row| row.2.clone()) else {
        return;
    };
    println!("\n{what:<32} {:>16} {:>16} {:>16}", "2 paths", "8 paths", "64 paths");
    for (name, _, best) in &rows {
        print!("{name:<32}");
        for (ns, least) in best.iter().zip(&least) {
            print!(" {:>16}", format!("{ns:.1} ({:.1})", ns / least));
        }
        println!();
    }
    println!("in brackets: as a multiple of {base}");
}

/// The subflows of a connection, which acknowledge a packet each in turn.
struct Acknowledgements {
    controls: Vec<Box<dyn Congestion>>,
    siblings: Vec<Sibling>,
    /// Packets acknowledged on each path so far, and until when a loss is repaired.
    acked: Vec<(u64, Option<u64>)>,
    /// Round-trip times and delivery rates that take turns.
    measured: Vec<(Duration, Rate)>,
    coupled: bool,
    calls: usize,
}

impl Acknowledgements {
    fn new(config: &CongestionConfig, paths: usize) -> Self {
        let mut controls: Vec<_> = (0..paths)
            .map(|path| {
                config.build(&PathBasics {
                    segment: Bytes::new(SEGMENT),
                    initial_window: Bytes::new(10 * SEGMENT),
                    initial_threshold: Bytes::new(u64::MAX),
                    sack: true,
                    seed: Seed(path as u64),
                })
            })
            .collect();
        for control in &mut controls {
            control.on_established(Instant::ZERO, Some(SRTT));
        }
        let siblings = controls.iter().map(|control| Sibling {
            active: true,
            window: control.window(),
            acked_since_loss: Bytes::ZERO,
            acked_between_losses: Bytes::ZERO,
            srtt: SRTT,
            segment: Bytes::new(SEGMENT),
        });
        let mut stream = Seed(1).stream("bench.round trips");
        let measured = (0..SITUATIONS).map(|_| {
            let rtt = SRTT.mul_f64(stream.between(0.8, 1.2));
            let bits = 8.0 * (SEGMENT * ON_THE_WAY) as f64;
            (rtt, Rate::from_bps((bits / rtt.as_secs_f64()) as u64))
        });
        Self {
            siblings: siblings.collect(),
            acked: vec![(0, None); paths],
            measured: measured.collect(),
            coupled: controls.iter().any(|control| control.is_coupled()),
            calls: 0,
            controls,
        }
    }

    fn acknowledge(&mut self, number: usize) {
        let own = number % self.controls.len();
        let at = Instant::ZERO + INTERVAL * (number / self.controls.len()) as i64;
        let (rtt, rate) = self.measured[number % SITUATIONS];
        let (acked, repaired) = &mut self.acked[own];
        *acked += 1;
        let delivered = Bytes::new(*acked * SEGMENT);
        let in_flight = self.siblings[own].window;
        let news = Acked {
            now: at,
            bytes: Bytes::new(SEGMENT),
            delivered,
            srtt: SRTT,
            rtt: Some(rtt),
            latest_rtt: Some(rtt),
            in_flight,
            in_flight_after: in_flight - Bytes::new(SEGMENT),
            lost: Bytes::ZERO,
            window_limited: true,
            recovering: repaired.is_some(),
            rate: Some(RateSample {
                rate,
                interval: rtt,
                prior_delivered: delivered - Bytes::new(ON_THE_WAY * SEGMENT),
                app_limited: false,
                sent_in_flight: in_flight,
                lost: Bytes::ZERO,
            }),
        };
        // An algorithm that is not coupled is shown none.
        let all = if self.coupled { self.siblings.as_slice() } else { &[] };
        let siblings = Siblings { all, own };
        let control = &mut self.controls[own];
        control.on_delivery(&news, siblings);
        if repaired.is_some_and(|until| until <= *acked) {
            *repaired = None;
            control.on_recovered(at);
        }
        // Paths do not lose at the same time.
        let loses = (*acked + 131 * own as u64).is_multiple_of(LOSS_EVERY);
        if loses && repaired.is_none() {
            *repaired = Some(*acked + REPAIR);
            control.on_loss(&Lost { now: at, in_flight }, siblings);
        } else if repaired.is_none() {
            control.on_ack(&news, siblings);
        }
        black_box((control.slow_start_threshold(), control.pacing_rate()));
        let sibling = &mut self.siblings[own];
        sibling.window = control.window();
        sibling.acked_since_loss += Bytes::new(SEGMENT);
        if loses {
            sibling.acked_between_losses = sibling.acked_since_loss;
            sibling.acked_since_loss = Bytes::ZERO;
        }
    }
}

impl Subject for Acknowledgements {
    fn round(&mut self, calls: usize) {
        for _ in 0..calls {
            self.acknowledge(self.calls);
            self.calls += 1;
        }
    }
}

/// Returns the path of this number: measured, idle and without a window.
pub fn view(path: usize) -> PathView {
    let unlimited = Bytes::new(u64::MAX);
    PathView {
        id: PathId(path as u8),
        usable: true,
        has_room: true,
        srtt: Some(SRTT),
        rtt_deviation: SRTT / 8,
        min_rtt: Some(SRTT / 2),
        window: unlimited,
        threshold: unlimited,
        pacing: None,
        in_flight: Bytes::ZERO,
        queued: Bytes::ZERO,
        segment: Bytes::new(SEGMENT),
        cost: 1 + path as u32 % 3,
        backup: false,
        priority: 3,
    }
}

/// A connection that asks its scheduler again and again, one path having changed in between.
pub struct Decisions {
    scheduler: Box<dyn Scheduler>,
    views: Vec<PathView>,
    units: Vec<Unit>,
    /// Round-trip times and queues that take turns.
    measured: Vec<(Duration, Bytes)>,
    calls: usize,
}

impl Decisions {
    /// Creates a connection over `paths` paths.
    pub fn new(config: &SchedulerConfig, paths: usize) -> Self {
        let window = Bytes::new(ON_THE_WAY * SEGMENT);
        let views = (0..paths).map(|path| PathView {
            window,
            threshold: window,
            in_flight: window,
            ..view(path)
        });
        let mut stream = Seed(1).stream("bench.units");
        let units = (0..SITUATIONS).map(|number| Unit {
            bytes: Bytes::new(SEGMENT),
            class: Class::ALL[number % Class::ALL.len()],
            deadline: None,
            carried_by: PathSet::EMPTY,
            backlog: Bytes::new(stream.below(100 * SEGMENT)),
            window_room: Bytes::new(SEGMENT + stream.below(1000 * SEGMENT)),
            window: Bytes::new(1000 * SEGMENT),
            blocked: 0,
        });
        let units = units.collect();
        let mut stream = Seed(1).stream("bench.paths");
        let measured = (0..SITUATIONS).map(|_| {
            let rtt = SRTT.mul_f64(stream.between(0.4, 4.0));
            // Above the window in one case of three: the path is full.
            (rtt, Bytes::new(stream.below(window.get() * 3 / 2)))
        });
        Self {
            scheduler: config.build(),
            views: views.collect(),
            units,
            measured: measured.collect(),
            calls: 0,
        }
    }
}

impl Subject for Decisions {
    fn round(&mut self, calls: usize) {
        for _ in 0..calls {
            let number = self.calls;
            let (rtt, ahead) = self.measured[number % SITUATIONS];
            let changed = number % self.views.len();
            let view = &mut self.views[changed];
            view.srtt = Some(rtt);
            view.in_flight = ahead.min(view.window);
            view.queued = ahead - view.in_flight;
            view.has_room = ahead + Bytes::new(SEGMENT) <= view.window;
            let at = Instant::ZERO + INTERVAL * number as i64;
            let unit = &self.units[number % SITUATIONS];
            black_box(self.scheduler.choose(at, unit, &self.views));
            self.calls += 1;
        }
    }
}
