//! Capacity on request, held against a simulation of the terminal, superframe by superframe.

use std::collections::VecDeque;

use skybraid_link::{Direction, Fate, Link};
use skybraid_units::{Bytes, Seed};

use crate::common::{mean, ms, near, path};

/// Payload of waveform 12 in bytes (EN 301 545-2, annex A).
const BURST: u64 = 194;

/// Bits that a terminal asks for a packet: protocol type, sequence number, and for each burst label and header, of
/// which the first has 2 B more.
fn needed(size: u64) -> f64 {
    ((size + 3) + (size + 3).div_ceil(BURST - 5) * 5 + 2) as f64 * 8.0
}

/// Return link of a terminal: rates in bit/s, times in ms.
#[derive(Clone, Copy)]
struct Terminal {
    frame: f64,
    cra: f64,
    rbdc: f64,
    vbdc: f64,
    period: f64,
    latency: f64,
}

impl Terminal {
    fn link(self) -> Link {
        let rate = |key: &str, bps: f64| match bps {
            0.0 => String::new(),
            _ => format!(", {key} = \"{bps}bit/s\""),
        };
        let text = format!(
            "uplink.access = {{ kind = \"dvb\", phase = \"0ms\", frame = \"{}ms\", waveform = 12, request_period = \"{}ms\", scheduling_latency = \"{}ms\"{}{}{} }}\nuplink.queue = \"unlimited\"",
            self.frame,
            self.period,
            self.latency,
            rate("cra", self.cra),
            rate("rbdc", self.rbdc),
            rate("vbdc", self.vbdc)
        );
        Link::new(&path(&text).link(Direction::Uplink).unwrap(), "p", "uplink", Seed(1))
    }

    /// Delays in ms of `packets` (time in ms, bytes) as the link decides them at admission.
    fn at_admission(self, packets: &[(f64, u64)]) -> Vec<f64> {
        let mut link = self.link();
        let delay = |(at, size): &(f64, u64)| match link.admit(ms(*at), Bytes::new(*size)) {
            Fate::Delivered { at: arrival } => arrival.as_nanos() as f64 * 1e-6 - at,
            Fate::Held => panic!("held"),
            Fate::Lost { cause, .. } => panic!("lost to {}", cause.name()),
        };
        packets.iter().map(delay).collect()
    }

    /// Delays of `packets` in a simulation in which every request counts what has arrived by then.
    fn by_frame(self, packets: &[(f64, u64)]) -> Vec<f64> {
        let mut queue: VecDeque<(usize, u64, bool)> = VecDeque::new();
        let mut delays = vec![f64::NAN; packets.len()];
        let mut arrived = 0;
        // Requests: time of effect, rate, volume. Volume in effect and not yet granted.
        let mut asked: VecDeque<(f64, f64, f64)> = VecDeque::new();
        let (mut rate, mut until, mut volume) = (0.0, 0.0, 0.0);
        let (mut tick, mut request) = (0u32, 0u32);
        while delays.iter().any(|delay| delay.is_nan()) {
            let now = f64::from(tick) * self.frame;
            while f64::from(request) * self.period <= now {
                let at = f64::from(request) * self.period;
                while arrived < packets.len() && packets[arrived].0 < at {
                    queue.push_back((arrived, packets[arrived].1 + 3, false));
                    arrived += 1;
                }
                let waiting: f64 = queue.iter().map(|(n, ..)| needed(packets[*n].1)).sum();
                let seconds = self.period / 1000.0;
                let by_rate = (waiting / seconds - self.cra).clamp(0.0, self.rbdc);
                let pending = volume + asked.iter().map(|(.., volume)| volume).sum::<f64>();
                let more = waiting - (self.cra + by_rate) * seconds - pending;
                let more = if self.vbdc > 0.0 { more.max(0.0) } else { 0.0 };
                asked.push_back((at + self.latency, by_rate, more));
                request += 1;
            }
            while arrived < packets.len() && packets[arrived].0 < now {
                queue.push_back((arrived, packets[arrived].1 + 3, false));
                arrived += 1;
            }
            while asked.front().is_some_and(|(from, ..)| *from <= now) {
                let (from, by_rate, more) = asked.pop_front().unwrap();
                (rate, until) = (by_rate, from + self.period);
                volume += more;
            }
            if now >= until {
                rate = 0.0;
            }
            let bits = |bps: f64| (bps * self.frame / 1000.0 + 1e-6).floor();
            let granted = volume.min(bits(self.vbdc));
            volume -= granted;
            let bursts = |bits: f64| (bits / (BURST as f64 * 8.0)).ceil() as u64;
            for _ in 0..bursts(bits(self.cra + rate)) + bursts(granted) {
                let mut free = BURST - 3;
                while let Some((n, rest, started)) = queue.front_mut() {
                    let whole = !*started && *rest - 1 + 2 <= free;
                    let header = if whole || *started { 2 } else { 4 };
                    if free <= header {
                        break;
                    }
                    let part = if whole { *rest - 1 } else { (*rest).min(free - header) };
                    free -= part + header;
                    *rest -= part + u64::from(whole);
                    *started = true;
                    if *rest == 0 {
                        delays[*n] = now - packets[*n].0;
                        queue.pop_front();
                    }
                }
            }
            tick += 1;
        }
        delays
    }
}

/// Packets of 1200 B at random times, `per_second` on average.
fn poisson(seconds: f64, per_second: f64) -> Vec<(f64, u64)> {
    let mut stream = Seed(9).stream("traffic");
    let mut at = 0.1;
    let mut packets = Vec::new();
    while at < seconds * 1000.0 {
        packets.push(((at * 1e6_f64).round() / 1e6, 1200));
        at += stream.exponential(1000.0 / per_second);
    }
    packets
}

/// Bursts of 100 packets, one every 5 s.
fn blocks(count: u32) -> Vec<(f64, u64)> {
    (0..count * 100)
        .map(|n| (f64::from(n / 100) * 5000.0 + 7.5 + f64::from(n % 100) * 0.1, 1200))
        .collect()
}

const GEO: Terminal =
    Terminal { frame: 26.0, cra: 0.0, rbdc: 0.0, vbdc: 0.0, period: 520.0, latency: 560.0 };

#[test]
fn constant_capacity_is_served_as_by_a_simulation() {
    for (frame, cra) in [(1.0, 2e6), (26.0, 2e6), (26.0, 1e5), (5.0, 1.3e6)] {
        let terminal = Terminal { frame, cra, ..GEO };
        let packets = poisson(60.0, if cra < 1e6 { 8.0 } else { 100.0 });
        let (decided, simulated) = (terminal.at_admission(&packets), terminal.by_frame(&packets));
        for (n, (decided, simulated)) in decided.iter().zip(&simulated).enumerate() {
            assert!((decided - simulated).abs() < 1e-3, "{n}: {decided} and {simulated}");
        }
    }
}

/// Means of the delays decided at admission and simulated, in ms.
fn means(terminal: Terminal, packets: &[(f64, u64)]) -> (f64, f64) {
    (mean(&terminal.at_admission(packets)), mean(&terminal.by_frame(packets)))
}

/// Volume is granted in order, so later arrivals change little: at full load 0.2 ms of 993 ms.
#[test]
fn requested_volume_is_served_as_by_a_simulation() {
    let terminal = Terminal { vbdc: 2e6, ..GEO };
    for packets in [poisson(300.0, 50.0), poisson(300.0, 150.0), poisson(600.0, 2.0), blocks(40)] {
        let (decided, simulated) = means(terminal, &packets);
        near(decided, simulated, 0.5);
    }
}

/// A rate depends on all that arrives before the request. Steady traffic is foreseen; in blocks the rate is that of the
/// first packets, and the delay at most a request period and a third longer.
#[test]
fn requested_rates_are_close_to_those_of_a_simulation() {
    let terminals = [
        Terminal { rbdc: 2e6, ..GEO },
        Terminal { cra: 2e5, rbdc: 2e6, ..GEO },
        Terminal { cra: 2e5, vbdc: 2e6, ..GEO },
        Terminal { cra: 1e5, rbdc: 5e5, vbdc: 1e6, ..GEO },
    ];
    for terminal in terminals {
        for packets in [poisson(300.0, 50.0), poisson(300.0, 150.0), poisson(600.0, 2.0)] {
            let (decided, simulated) = means(terminal, &packets);
            assert!(
                (simulated - 0.1..1.07 * simulated).contains(&decided),
                "{decided} {simulated}"
            );
        }
        let (decided, simulated) = means(terminal, &blocks(40));
        let most = simulated + terminal.period * 4.0 / 3.0;
        assert!((simulated - 0.1..most).contains(&decided), "{decided} {simulated}");
    }
}

#[test]
fn a_terminal_without_a_request_gets_free_capacity() {
    let text = "uplink.access = { kind = \"dvb\", phase = \"0ms\", frame = \"26ms\", waveform = 12, fca = \"500kbit/s\" }";
    let mut link = Link::new(&path(text).link(Direction::Uplink).unwrap(), "p", "uplink", Seed(1));
    // Eight whole bursts of 1552 bits in 13,000 bits: a packet of 1200 B is in the first superframe after it.
    for n in 0..10 {
        let at = f64::from(n) * 100.0 + 1.0;
        let Fate::Delivered { at: arrival } = link.admit(ms(at), Bytes::new(1200)) else {
            panic!("lost")
        };
        let next = (at / 26.0).ceil() * 26.0;
        near(arrival.as_nanos() as f64 * 1e-6, next, 1e-6);
    }
}
