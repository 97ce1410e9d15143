//! One path: its address, liveness, and measurements.

use alloc::string::{String, ToString};
use core::net::SocketAddr;

use skybraid_transport::PathInfo;
use skybraid_units::{Duration, Instant};

use super::clock::nearest;
use super::mtu::MtuSearch;
use super::probe::{Probe, Report};
use super::reports::PathReports;
use super::timing::Timing;
use super::traffic::Traffic;
use super::validation::Validation;
use super::watch::Watch;
use crate::config::PathConfig;
use crate::event::PathState;

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
    /// Control that leaves by this path is too old when it is there.
    pub is_late: bool,
    /// State for what arrives.
    pub watch: Watch,
    /// Reports of both ends.
    pub reports: PathReports,
    /// Times measured by probes.
    pub timing: Timing,
    /// Counters of datagrams.
    pub traffic: Traffic,
    /// Time of the next probe.
    pub probe_at: Instant,
    /// Path MTU towards the peer.
    pub mtu: MtuSearch,
    /// Number of times it has been given up.
    pub given_up: u64,
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
            is_late: false,
            watch: Watch::default(),
            reports: PathReports::default(),
            timing: Timing::new(now),
            traffic: Traffic::new(now, config.data_cap),
            probe_at: now,
            mtu: MtuSearch::new(u32::try_from(config.mtu.get()).unwrap_or(u32::MAX)),
            given_up: 0,
        }
    }

    /// Discards the measurements with a peer that has restarted.
    pub fn forget_peer(&mut self) {
        self.validation = Validation::default();
        self.is_late = false;
        self.watch = Watch::default();
        self.reports = PathReports::default();
        self.timing.forget_peer();
        self.traffic.restart_numbers();
        self.mtu.reset();
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

    /// Records a datagram of `len` bytes that leaves.
    pub fn on_sent(&mut self, len: usize) {
        self.traffic.on_sent(len as u64 + u64::from(self.header_bytes()));
    }

    /// Records an authentic datagram of `len` bytes, with its number if it is of the current session. Returns the state
    /// before it, if that changes.
    pub fn on_received(
        &mut self,
        now: Instant,
        len: usize,
        number: Option<u64>,
    ) -> Option<PathState> {
        self.traffic.on_received(len as u64 + u64::from(self.header_bytes()), number);
        self.watch.on_received(now)
    }

    /// Records a probe that arrived at `now`. Returns its transit time, and that of the probe of ours that it echoes.
    pub fn on_probe(&mut self, now: Instant, probe: &Probe) -> (Duration, Option<Duration>) {
        self.reports.on_probe(now, probe);
        let times = self.timing.on_probe(now, probe.sent_us, probe.echo);
        // The echoed probe was sent to the address in use.
        if let (Some(echoed), Some(started)) = (times.echoed, self.validation.started())
            && echoed > started
        {
            self.validation.on_alive(now);
        }
        (times.incoming, times.outgoing)
    }

    /// Returns the echo in our next probe. An old one says nothing of the clocks of today.
    pub fn echo(&self, now: Instant) -> Option<(u32, u32)> {
        self.timing.echo(now).filter(|_| self.is_heard())
    }

    /// Returns our report on the path, under its number on the wire.
    pub fn report(&self, number: u8) -> Report {
        let transit = self.timing.incoming();
        let smoothed = nearest(transit.smoothed().unwrap_or_default());
        Report {
            path: number,
            state: self.watch.state(),
            loss: (self.traffic.window().loss * 65_535.0) as u16,
            transit_us: (smoothed.as_nanos() / 1_000) as i32,
            jitter: (transit.jitter().as_nanos() / 10_000).clamp(0, 65_535) as u16,
            seen: self.reports.seen(),
        }
    }

    /// Plans the padded probe that follows an unpadded one, while the peer hears the path.
    pub fn plan_padded(&mut self, now: Instant) {
        if self.reports.outgoing().is_alive() {
            self.mtu.plan_probe(now, self.traffic.is_spent());
        }
    }
}
