//! Accuracy and speed of the emulator, measured with real packets between network namespaces.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a measurement may fail by panicking")]

#[path = "../../crates/emulator/tests/it/bed.rs"]
mod bed;
#[path = "../src/traffic.rs"]
mod traffic;

use std::process::ExitCode;

use bed::{Bed, bare};
use skybraid_emulator::forward::{Forwarded, Forwarder, Lane, Options};
use skybraid_io::clock::Clock;
use skybraid_link::{Link, LinkConfig, QueueConfig, RateSource};
use skybraid_units::{Bytes, Duration, Rate, Seed};

/// Prints results next to their targets and remembers whether one was missed.
struct Table {
    wanted: String,
    missed: bool,
}

impl Table {
    fn wants(&self, name: &str) -> bool {
        name.contains(&self.wanted)
    }

    /// A value in `unit` that must be at most `limit`.
    fn at_most(&mut self, what: &str, value: f64, limit: f64, unit: &str) {
        self.line(what, value, limit, unit, "≤", value <= limit);
    }

    /// A value in `unit` that must be at least `limit`.
    fn at_least(&mut self, what: &str, value: f64, limit: f64, unit: &str) {
        self.line(what, value, limit, unit, "≥", value >= limit);
    }

    fn line(&mut self, what: &str, value: f64, limit: f64, unit: &str, sign: &str, met: bool) {
        let verdict = if met { "met" } else { "NOT MET" };
        println!("{what:<44} {value:>11.3} {unit:<7} {sign} {limit:<9} {verdict}");
        self.missed |= !met;
    }

    fn note(&self, what: &str, value: f64, unit: &str) {
        println!("{what:<44} {value:>11.3} {unit}");
    }
}

fn config(rate: Rate, delay: Duration) -> LinkConfig {
    LinkConfig {
        queue: QueueConfig::Unlimited,
        mtu: Bytes::new(65_000),
        ..LinkConfig::plain(RateSource::Constant(rate), delay)
    }
}

const UNSHAPED: Rate = Rate::from_bps(1_000_000_000_000);

fn start(bed: &Bed, config: &LinkConfig, precise: bool) -> Forwarder {
    let lane = Lane {
        name: "a".into(),
        ends: bed.ends(0),
        up: vec![Link::new(config, "a", "uplink", Seed(1))],
        down: vec![Link::new(config, "a", "downlink", Seed(1))],
    };
    let options = Options { precise, ..Options::new(Clock::starting_now()) };
    bed.emulator.run(|| Forwarder::start(vec![lane], options)).unwrap()
}

/// Prints the forwarder's own figures, below those measured from outside.
fn print_lateness(forwarded: &Forwarded) {
    assert!(forwarded.accounts.iter().all(|account| account.adds_up()));
    let lateness = &forwarded.lateness;
    let micros = |span: Duration| span.as_secs_f64() * 1e6;
    println!(
        "    of {} packets 50 % left at most {:.0} µs late, 99 % {:.0}, 99.9 % {:.0}, all {:.0}; \
         {:.0} % early, {:.0} µs at most; the emulator lost {}",
        lateness.total(),
        micros(lateness.quantile(0.5)),
        micros(lateness.quantile(0.99)),
        micros(lateness.quantile(0.999)),
        micros(lateness.max()),
        lateness.early_share() * 100.0,
        micros(lateness.earliest()),
        forwarded.lost_by_emulator(),
    );
    if let Some(doubt) = forwarded.doubtful() {
        println!("    doubtful: {doubt}");
    }
}

fn delays(table: &mut Table) {
    if !table.wants("rtt") {
        return;
    }
    let (vehicle, ground) = bare().unwrap();
    let floor = traffic::round_trips(&vehicle, &ground, 500);
    let floor_p99 = traffic::quantile(&floor, 0.99) * 1e3;
    table.note("rtt floor, bare veth: p50", traffic::quantile(&floor, 0.5) * 1e3, "ms");
    table.note("rtt floor, bare veth: p99", floor_p99, "ms");
    let bed = Bed::new(&[1500]).unwrap();
    for precise in [false, true] {
        for ms in [5, 10, 30, 60] {
            let delay = Duration::from_millis(ms);
            let forwarder = start(&bed, &config(UNSHAPED, delay), precise);
            let trips = traffic::round_trips(&bed.vehicle, &bed.ground, 500);
            let forwarded = forwarder.stop().unwrap();
            let errors: Vec<f64> =
                trips.iter().map(|trip| (trip - 2.0 * delay.as_secs_f64()) * 1e3).collect();
            let name = format!("rtt error, 2 × {ms} ms{}", if precise { ", precise" } else { "" });
            let (half, most) = if precise { (0.03, 0.2) } else { (0.1, 0.3) };
            table.at_most(&format!("{name}: p50"), traffic::quantile(&errors, 0.5), half, "ms");
            let p99 = traffic::quantile(&errors, 0.99);
            if floor_p99 <= most {
                table.at_most(&format!("{name}: p99"), p99, most, "ms");
            } else {
                table.note(&format!("{name}: p99, floor above the limit"), p99, "ms");
            }
            table.note(&format!("{name}: max"), traffic::quantile(&errors, 1.0), "ms");
            table.at_least(&format!("{name}: min"), traffic::quantile(&errors, 0.0), -0.02, "ms");
            print_lateness(&forwarded);
        }
    }
}

fn rates(table: &mut Table) {
    if !table.wants("rate") {
        return;
    }
    let bed = Bed::new(&[1500]).unwrap();
    for mbps in [1, 10, 50, 100, 500] {
        let rate = Rate::from_mbps(f64::from(mbps));
        let shaped = LinkConfig {
            queue: QueueConfig::Packets(5000),
            ..config(rate, Duration::from_millis(2))
        };
        let forwarder = start(&bed, &shaped, false);
        let got =
            traffic::datagrams(&bed.vehicle, &bed.ground, 1472, rate.as_bps() as f64 * 1.3, 2.5);
        let forwarded = forwarder.stop().unwrap();
        let error = (got.ip_rate / rate.as_bps() as f64 - 1.0).abs() * 100.0;
        table.at_most(&format!("rate error, {mbps} Mbit/s"), error, 0.2, "%");
        print_lateness(&forwarded);
    }
}

fn throughput(table: &mut Table) {
    if !table.wants("tcp") {
        return;
    }
    let bed = Bed::new(&[1500]).unwrap();
    for (name, rate, least) in
        [("tcp, unshaped", UNSHAPED, 1.2), ("tcp, through 1 Gbit/s", Rate::from_mbps(1000.0), 0.9)]
    {
        let forwarder = start(&bed, &config(rate, Duration::ZERO), false);
        let rate = traffic::tcp(&bed.vehicle, &bed.ground, 3.0);
        let forwarded = forwarder.stop().unwrap();
        table.at_least(name, rate * 1e-9, least, "Gbit/s");
        print_lateness(&forwarded);
    }
}

fn small_packets(table: &mut Table) {
    if !table.wants("small") {
        return;
    }
    let bed = Bed::new(&[1500]).unwrap();
    let mut best = 0.0;
    for thousands in [60, 75, 90, 100, 110] {
        let forwarder = start(&bed, &config(UNSHAPED, Duration::ZERO), false);
        let rate = f64::from(thousands) * 1e3 * 92.0 * 8.0;
        let got = traffic::datagrams(&bed.vehicle, &bed.ground, 64, rate, 1.5);
        let forwarded = forwarder.stop().unwrap();
        let lost = got.sent.saturating_sub(got.received);
        table.note(&format!("small packets, {thousands} k/s: lost"), lost as f64, "packets");
        print_lateness(&forwarded);
        if lost == 0 {
            best = got.sent as f64 / got.took;
        }
    }
    table.at_least("small packets, 64 B, without loss", best * 1e-3, 90.0, "k/s");
}

/// More than 80 000 small packets a second for a minute; only when it is asked for.
fn a_minute(table: &mut Table) {
    if table.wanted != "minute" {
        return;
    }
    let bed = Bed::new(&[1500]).unwrap();
    let forwarder = start(&bed, &config(UNSHAPED, Duration::ZERO), false);
    let got = traffic::datagrams(&bed.vehicle, &bed.ground, 64, 81e3 * 92.0 * 8.0, 60.0);
    let forwarded = forwarder.stop().unwrap();
    let lost = got.sent.saturating_sub(got.received);
    table.at_least("a minute of 64 B: sent", got.sent as f64 / got.took * 1e-3, 80.0, "k/s");
    table.at_most("a minute of 64 B: lost", lost as f64, 0.0, "packets");
    print_lateness(&forwarded);
}

fn cpu(table: &mut Table) {
    if !table.wants("cpu") {
        return;
    }
    let bed = Bed::new(&[1500]).unwrap();
    for (mbps, precise) in [(50.0, false), (150.0, false), (400.0, false), (50.0, true)] {
        let rate = Rate::from_mbps(mbps);
        let forwarder = start(&bed, &config(rate, Duration::from_millis(20)), precise);
        let got = traffic::datagrams(&bed.vehicle, &bed.ground, 1472, 0.98e6 * mbps, 3.0);
        let forwarded = forwarder.stop().unwrap();
        let share = forwarded.cpu.as_secs_f64() / got.took * 100.0;
        let name =
            format!("cpu at 98 % of {mbps} Mbit/s{}", if precise { ", precise" } else { "" });
        if precise || mbps > 50.0 {
            table.note(&name, share, "%");
        } else {
            table.at_most(&name, share, 12.0, "%");
        }
        print_lateness(&forwarded);
    }
}

/// Measures what has the first argument in its name; all but `minute` without one.
fn main() -> ExitCode {
    let mut table = Table { wanted: std::env::args().nth(1).unwrap_or_default(), missed: false };
    // Without the rights there is nothing to measure, and it has been said.
    if Bed::new(&[]).is_none() {
        return ExitCode::SUCCESS;
    }
    println!("{:<44} {:>11}", "what", "measured");
    delays(&mut table);
    rates(&mut table);
    throughput(&mut table);
    small_packets(&mut table);
    a_minute(&mut table);
    cpu(&mut table);
    if table.missed {
        eprintln!("a target is not met");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
