//! State of one path: measurements so far, and those due next.

use alloc::string::{String, ToString};
use core::net::SocketAddr;

use skybraid_transport::PathInfo;
use skybraid_units::{Bytes, Duration, Instant};

use super::clock::{Transit, between, micros, nearest};
use super::mtu::MtuSearch;
use super::probe::Report;
use super::queue::PathQueue;
use super::seen::ProbesSeen;
use super::validation::Validation;
use super::watch::Watch;
use crate::config::PathConfig;
use crate::event::PathState;

/// Window over which loss and rates are measured.
const WINDOW: Duration = Duration::from_secs(1);
/// Window of the lowest round-trip time, kept for one to two windows.
const MIN_RTT_WINDOW: Duration = Duration::from_secs(30);

/// One path.
#[derive(Clone, Debug)]
pub struct Path {
    /// Name.
    pub name: String,
    /// Path number on the wire; `None` before a session, and where the peer has no path of this name.
    pub wire: Option<u8>,
    /// Configuration of the path.
    pub config: PathConfig,
    /// Address of the peer, if it is known.
    pub remote: Option<SocketAddr>,
    /// Other possible peer addresses. Ground only.
    pub validation: Validation,
    /// Whether an interface is present.
    pub present: bool,
    /// Whether the path's stream is writable (TCP mode).
    pub writable: bool,
    /// Whether the event of a used-up data cap was recorded.
    pub reported_spent: bool,
    /// State for what arrives.
    pub watch: Watch,
    /// State for what we send, as the peer reports it.
    pub outgoing: PathState,
    /// Last report of the peer.
    pub peer_report: Option<Report>,
    /// Incoming transit times.
    pub transit: Transit,
    /// Outgoing transit times of our probes up to the peer's kernel, from echoes.
    pub outgoing_transit: Transit,
    /// Queue towards the peer.
    pub queue: PathQueue,
    /// Control that leaves by this path is too old when it is there.
    pub is_late: bool,
    /// Smoothed round-trip time, and minima of the current and the previous window.
    pub rtt: Option<Duration>,
    min_rtt: [Option<Duration>; 2],
    min_since: Instant,
    /// Send and arrival time of the peer's newest probe.
    echo: Option<(u32, Instant)>,
    /// Time of the next probe.
    pub probe_at: Instant,
    /// Path MTU towards the peer.
    pub mtu: MtuSearch,
    /// IP packet size of the next padded probe, in bytes.
    pub padded: Option<u32>,
    /// Received probes of the peer.
    pub seen: ProbesSeen,
    /// Largest IP packet that the peer sends, in bytes, and whether the peer's base-size packets are lost.
    pub incoming_mtu: Option<(u32, bool)>,
    /// Totals.
    pub totals: Totals,
    numbers: Numbers,
    window: Window,
}

/// Totals of a path.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Bytes of sent IP packets.
    pub outgoing_bytes: u64,
    /// Incoming total.
    pub incoming_bytes: u64,
    /// Sent datagrams.
    pub outgoing: u64,
    /// Incoming total.
    pub incoming: u64,
    /// Control messages first delivered by this path.
    pub control_won: u64,
    /// Number of times it has been given up.
    pub given_up: u64,
}

/// Datagram numbers, to count losses.
#[derive(Clone, Copy, Debug, Default)]
struct Numbers {
    next: u64,
    seen: u64,
    next_before: u64,
    seen_before: u64,
}

/// Measurements of the last window.
#[derive(Clone, Copy, Debug, Default)]
pub struct Window {
    since: Instant,
    before: (u64, u64),
    /// Share of incoming datagrams lost.
    pub loss: f64,
    /// Sent bits per second.
    pub outgoing_bps: f64,
    /// Received bits per second.
    pub incoming_bps: f64,
}

impl Path {
    /// Creates a path without measurements.
    pub fn new(now: Instant, name: &str, config: &PathConfig) -> Self {
        Self {
            name: name.to_string(),
            wire: None,
            config: config.clone(),
            remote: None,
            validation: Validation::default(),
            present: true,
            writable: true,
            reported_spent: false,
            watch: Watch::default(),
            outgoing: PathState::Unheard,
            peer_report: None,
            transit: Transit::default(),
            outgoing_transit: Transit::default(),
            queue: PathQueue::default(),
            is_late: false,
            rtt: None,
            min_rtt: [None; 2],
            min_since: now,
            echo: None,
            probe_at: now,
            mtu: MtuSearch::new(u32::try_from(config.mtu.get()).unwrap_or(u32::MAX)),
            padded: None,
            seen: ProbesSeen::default(),
            incoming_mtu: None,
            totals: Totals::default(),
            numbers: Numbers::default(),
            window: Window { since: now, ..Window::default() },
        }
    }

    /// Discards the measurements with a peer that has restarted.
    pub fn forget_peer(&mut self) {
        self.watch = Watch::default();
        self.outgoing = PathState::Unheard;
        self.transit = Transit::default();
        self.outgoing_transit = Transit::default();
        self.queue.reset();
        self.is_late = false;
        self.peer_report = None;
        self.echo = None;
        self.numbers = Numbers::default();
        self.validation = Validation::default();
        self.seen = ProbesSeen::default();
        self.incoming_mtu = None;
        self.forget_size();
    }

    /// Restarts the path MTU search from the base after a possible route change.
    pub fn forget_size(&mut self) {
        self.mtu.reset();
        self.padded = None;
    }

    /// Returns the path's state for the transports.
    pub fn info(&self) -> PathInfo {
        let Self { config, .. } = self;
        let (mtu, backup) = (config.mtu, config.backup);
        PathInfo { mtu, cost: config.cost, backup, priority: config.priority }
    }

    /// Returns whether the path is heard.
    pub fn is_heard(&self) -> bool {
        self.watch.state().is_alive()
    }

    /// Returns the size of the IP and UDP headers, in bytes.
    pub fn header_bytes(&self) -> u32 {
        if self.remote.is_some_and(|remote| remote.is_ipv6()) { 48 } else { 28 }
    }

    /// Returns whether its data cap is used up.
    pub fn is_spent(&self) -> bool {
        self.data_left() == Some(0)
    }

    /// Returns the bytes left of its data cap.
    pub fn data_left(&self) -> Option<u64> {
        let used = self.totals.outgoing_bytes + self.totals.incoming_bytes;
        self.config.data_cap.map(|cap: Bytes| cap.get().saturating_sub(used))
    }

    /// Records a datagram of `len` bytes that leaves.
    pub fn on_sent(&mut self, len: usize) {
        let bytes = len as u32 + self.header_bytes();
        self.totals.outgoing += 1;
        self.totals.outgoing_bytes += u64::from(bytes);
    }

    /// Records an authentic datagram of `len` bytes, with its number if it is of the current session. Returns the state
    /// before it, if that changes.
    pub fn on_received(
        &mut self,
        now: Instant,
        len: usize,
        number: Option<u64>,
    ) -> Option<PathState> {
        let bytes = len as u32 + self.header_bytes();
        self.totals.incoming += 1;
        self.totals.incoming_bytes += u64::from(bytes);
        if let Some(number) = number {
            self.numbers.next = self.numbers.next.max(number + 1);
            self.numbers.seen += 1;
        }
        self.watch.on_received(now)
    }

    /// Restarts datagram numbers after a key change.
    pub fn restart_numbers(&mut self) {
        self.numbers = Numbers::default();
    }

    /// Records a probe that arrived at `now`, sent at `sent_us`, with an echo of ours. Returns both transit
    /// times.
    pub fn probed(
        &mut self,
        now: Instant,
        sent_us: u32,
        echo: Option<(u32, u32)>,
    ) -> (Duration, Option<Duration>) {
        self.echo = Some((sent_us, now));
        let incoming = between(sent_us, micros(now));
        self.transit.sample(now, incoming);
        let Some((left, held)) = echo else { return (incoming, None) };
        let outgoing = between(left, sent_us.wrapping_sub(held));
        self.outgoing_transit.sample(now, outgoing);
        self.measure_round_trip(now, left, held);
        let lowest = self.outgoing_transit.min().unwrap_or(outgoing);
        let rtt = self.min_rtt().unwrap_or_default();
        self.queue.on_delay(now, nearest(outgoing - lowest), rtt);
        (incoming, Some(outgoing))
    }

    fn measure_round_trip(&mut self, now: Instant, left: u32, held: u32) {
        let rtt = between(left, micros(now).wrapping_sub(held));
        if !rtt.is_positive() {
            return;
        }
        // The echoed probe was sent to the address in use.
        let since = self.validation.started().map(|started| now.since(started));
        let left_ago = rtt + Duration::from_micros(i64::from(held));
        if since.is_some_and(|since| left_ago < since) {
            self.validation.on_alive(now);
        }
        let smoothed = self.rtt.unwrap_or(rtt);
        self.rtt = Some(smoothed + Duration::from_nanos((rtt - smoothed).as_nanos() / 8));
        if now.since(self.min_since) > MIN_RTT_WINDOW {
            self.min_rtt = [None, self.min_rtt[0]];
            self.min_since = now;
        }
        self.min_rtt[0] = Some(self.min_rtt[0].map_or(rtt, |min| min.min(rtt)));
    }

    /// Returns the lowest round-trip time of the last minute.
    pub fn min_rtt(&self) -> Option<Duration> {
        self.min_rtt.iter().flatten().min().copied()
    }

    /// Returns the echo in our next probe. An old one says nothing of the clocks of today.
    pub fn echo(&self, now: Instant) -> Option<(u32, u32)> {
        let (left, arrived) = self.echo.filter(|_| self.is_heard())?;
        let held = (now.since(arrived).as_nanos() / 1_000).clamp(0, i64::from(u32::MAX));
        Some((left, held as u32))
    }

    /// Returns our report on the path, under its number on the wire.
    pub fn report(&self, number: u8) -> Report {
        let us = |transit: Option<Duration>| {
            (nearest(transit.unwrap_or_default()).as_nanos() / 1_000) as i32
        };
        Report {
            path: number,
            state: self.watch.state(),
            loss: (self.window.loss * 65_535.0) as u16,
            transit_us: us(self.transit.smoothed()),
            jitter: (self.transit.jitter().as_nanos() / 10_000).clamp(0, 65_535) as u16,
            seen: self.seen,
        }
    }

    /// Returns the share of sent datagrams that are lost, as reported by the peer.
    pub fn outgoing_loss(&self) -> f64 {
        self.peer_report.map_or(0.0, |report| f64::from(report.loss) / 65_535.0)
    }

    /// Returns the IP packet size of the padded probe due after an unpadded one, in bytes, while the peer
    /// hears the path.
    pub fn poll_padded(&mut self, now: Instant) -> Option<u32> {
        if !self.outgoing.is_alive() {
            return None;
        }
        let spent = self.is_spent();
        self.mtu.poll_probe(now, spent)
    }

    /// Returns loss and rates of the last window.
    pub const fn window(&self) -> &Window {
        &self.window
    }

    /// Rolls the window once it has elapsed.
    pub fn measure(&mut self, now: Instant) {
        let length = now.since(self.window.since);
        if length < WINDOW {
            return;
        }
        let Numbers { next, seen, next_before, seen_before } = self.numbers;
        let expected = next.saturating_sub(next_before);
        if expected > 0 {
            let arrived = seen.saturating_sub(seen_before) as f64;
            self.window.loss = (1.0 - arrived / expected as f64).clamp(0.0, 1.0);
        }
        (self.numbers.next_before, self.numbers.seen_before) = (next, seen);
        let (outgoing, incoming) = (self.totals.outgoing_bytes, self.totals.incoming_bytes);
        let rate = |bytes: u64| 8.0 * bytes as f64 / length.as_secs_f64();
        self.window.outgoing_bps = rate(outgoing - self.window.before.0);
        self.window.incoming_bps = rate(incoming - self.window.before.1);
        self.window.before = (outgoing, incoming);
        self.window.since = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(mtu: u64) -> Path {
        let config = PathConfig { mtu: Bytes::new(mtu), ..PathConfig::default() };
        Path { outgoing: PathState::Up, ..Path::new(Instant::ZERO, "lte", &config) }
    }

    #[test]
    fn ten_percent_loss_is_measured_in_any_order_of_arrival() {
        let mut path = path(1500);
        for number in (0..1_000).filter(|number| number % 10 != 3) {
            path.on_received(Instant::ZERO, 100, Some(number ^ 1));
        }
        path.measure(Instant::from_millis(1_000));
        assert!((path.window().loss - 0.1).abs() < 0.002, "{}", path.window().loss);
    }

    #[test]
    fn a_round_trip_excludes_the_time_at_the_peer() {
        let (mut ours, mut peers) = (path(1500), path(1500));
        let peers_clock = Duration::from_secs(4_000);
        let at = Instant::from_millis;
        peers.on_received(at(30) + peers_clock, 100, None);
        peers.probed(at(30) + peers_clock, micros(at(10)), None);
        let echo = peers.echo(at(65) + peers_clock);
        ours.probed(at(105), micros(at(65) + peers_clock), echo);
        assert_eq!(ours.rtt, Some(Duration::from_millis(60)));
    }
}
