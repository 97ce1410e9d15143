//! TCP's answer to loss, against the response functions of its RFCs.
//!
//! Two endpoints joined by a wire of constant delay that drops every n-th data segment: the
//! deterministic loss model under which the functions were derived.
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::collections::VecDeque;

use skybraid_transport::congestion::{CongestionConfig, cubic, reno};
use skybraid_transport::{
    Body, Class, Endpoint, Message, PathId, PathInfo, Protocol, Role, Segment, TransportConfig,
};
use skybraid_units::{Bytes, Duration, Instant};

/// The average congestion window in segments with one loss every `period` segments: of 80 losses the first 30
/// are left out, in which the window comes down from slow start.
fn average_window(congestion: CongestionConfig, ack_every: u32, rtt: Duration, period: u64) -> f64 {
    let config = TransportConfig {
        protocol: Protocol::Tcp,
        congestion,
        ack_every,
        receive_buffer: Bytes::new(1 << 40),
        ..TransportConfig::default()
    };
    let paths = [PathInfo::default()];
    let ends = [Role::Client, Role::Server].map(|role| Endpoint::new(&config, &paths, role));
    let mut pair = Pair { ends, wires: Default::default(), rtt, period, sent: 0 };
    for id in 0..4 {
        let message =
            Message { stream: 0, id, class: Class::Data, bytes: u32::MAX, deadline: None };
        pair.ends[0].write(Instant::ZERO, message);
    }
    let (mut now, mut time, mut area) = (Instant::ZERO, 0.0, 0.0);
    pair.drain(now, 0);
    while pair.sent < 80 * period {
        let window = pair.window();
        let next = pair.step();
        if pair.sent > 30 * period {
            time += next.since(now).as_secs_f64();
            area += window * next.since(now).as_secs_f64();
        }
        now = next;
    }
    area / time
}

/// Two ends and the wires between them.
struct Pair {
    ends: [Endpoint; 2],
    wires: [VecDeque<(Instant, Segment)>; 2],
    rtt: Duration,
    period: u64,
    /// Data segments sent so far.
    sent: u64,
}

impl Pair {
    fn drain(&mut self, now: Instant, side: usize) {
        while let Some(transmit) = self.ends[side].poll_send(now) {
            let data = matches!(&transmit.segment.body, Body::Tcp(tcp) if tcp.len > 0);
            self.sent += u64::from(data);
            if !(data && self.sent.is_multiple_of(self.period)) {
                self.wires[side].push_back((now + self.rtt / 2, transmit.segment));
            }
        }
        while self.ends[side].poll_delivered().is_some() {}
    }

    /// The sender's congestion window in segments.
    fn window(&self) -> f64 {
        let mut window = 0.0;
        self.ends[0].samples(&mut |sample| window = sample.window.get() as f64 / 1448.0);
        window
    }

    /// Does what is due next. Returns when that was.
    fn step(&mut self) -> Instant {
        let arrival = |side: usize| self.wires[side].front().map(|(at, _)| *at);
        let timers = self.ends.iter().map(|end| Some(end.next_wakeup()));
        let due = [arrival(0), arrival(1)].into_iter().chain(timers).flatten();
        let now = due.min().unwrap();
        for side in [0, 1] {
            while self.wires[side].front().is_some_and(|(at, _)| *at <= now) {
                let (_, segment) = self.wires[side].pop_front().unwrap();
                self.ends[1 - side].receive(now, PathId(0), &segment);
                self.drain(now, 1 - side);
            }
            self.ends[side].wake(now);
            self.drain(now, side);
        }
        now
    }
}

fn assert_near(measured: f64, expected: f64, tolerance: f64, what: &str) {
    let ratio = measured / expected;
    assert!(
        (ratio - 1.0).abs() < tolerance,
        "{what}: {measured:.1} is {ratio:.3} of {expected:.1}"
    );
}

// Source: RFC 9438 §5.1 tables 1 and 2, column CUBIC with C = 0.4.
#[test]
fn cubic_keeps_the_average_windows_of_rfc_9438() {
    for (rtt_ms, period, window) in [
        (100, 100, 12.0),
        (100, 1_000, 38.0),
        (100, 10_000, 187.0),
        (100, 100_000, 1054.0),
        (10, 100, 12.0),
        (10, 1_000, 38.0),
        (10, 10_000, 120.0),
        (10, 100_000, 379.0),
    ] {
        let cubic = CongestionConfig::Cubic(cubic::Config::default());
        let measured = average_window(cubic, 1, Duration::from_millis(rtt_ms), period);
        assert_near(measured, window, 0.10, &format!("RTT {rtt_ms} ms, 1/p {period}"));
    }
}

// Source: Mathis, Semke, Mahdavi, Ott 1997: W = sqrt(3 / (2 b p)).
#[test]
fn reno_keeps_the_average_window_of_its_sawtooth() {
    for ack_every in [1, 2] {
        for period in [1_000, 10_000] {
            let reno = CongestionConfig::Reno(reno::Config::default());
            let measured = average_window(reno, ack_every, Duration::from_millis(100), period);
            let expected = (1.5 * period as f64 / f64::from(ack_every)).sqrt();
            assert_near(measured, expected, 0.10, &format!("b {ack_every}, 1/p {period}"));
        }
    }
}
