//! A proxy between two connections of a flow.

use skybraid_transport::split::{Proxy, Side};
use skybraid_transport::{PathId, Segment, SubflowSample};
use skybraid_units::Instant;

use crate::hosts::Carrier;
use crate::ids::{Numbered, RelayId};
use crate::record::FlowRecord;
use crate::sender::Sender;

/// A proxy with its connection to either side.
pub struct Relay {
    proxy: Proxy,
    upstream: Sender,
    downstream: Sender,
}

impl Numbered for Relay {
    type Id = RelayId;
    const EXPECTED: &'static str = "the proxy of a side";
}

impl Relay {
    /// Creates a proxy that sends through `upstream` and `downstream`.
    pub const fn new(proxy: Proxy, upstream: Sender, downstream: Sender) -> Self {
        Self { proxy, upstream, downstream }
    }

    /// Sender of side `at`.
    pub const fn sender(&self, at: Side) -> &Sender {
        match at {
            Side::Upstream => &self.upstream,
            Side::Downstream => &self.downstream,
        }
    }

    /// Time at which [`wake`](Self::wake) must be called.
    pub fn next_wakeup(&self) -> Instant {
        self.proxy.next_wakeup()
    }

    /// Fires expired timers; call [`flush`](Self::flush) next.
    pub fn wake(&mut self, now: Instant) {
        self.proxy.wake(now);
    }

    /// Receives a segment on `path` of side `at`; call [`flush`](Self::flush) next.
    pub fn receive(&mut self, now: Instant, at: Side, path: PathId, segment: &Segment) {
        self.proxy.receive(now, at, path, segment);
    }

    /// Sends all segments that the proxy can send, on either side. Its timer is that of its upstream side.
    pub fn flush(&mut self, now: Instant, records: &mut [FlowRecord], carrier: &mut impl Carrier) {
        while let Some((at, transmit)) = &self.proxy.poll_send(now) {
            self.sender(*at).send(now, transmit, records, carrier);
        }
        carrier.wake_at(self.upstream.side(), self.proxy.next_wakeup());
    }

    /// Returns the state of each subflow of side `at`.
    pub fn samples(&self, at: Side) -> impl Iterator<Item = SubflowSample> + '_ {
        self.proxy.samples(at)
    }
}
