//! Interface to the networks: datagrams in and out.

use alloc::vec::Vec;
use core::net::SocketAddr;

use skybraid_transport::wire::datagram::decode;
use skybraid_transport::{PathId, PathSet};
use skybraid_units::Instant;

use super::path_set::NOWHERE;
use super::{BUNDLE, Gateway, Outgoing};
use crate::Class;
use crate::config::Network;
use crate::event::Direction;
use crate::health::{Path, Probe, probe, validation};
use crate::session::{OVERHEAD, Opened, Refusal, SessionEvent};

/// Probes in place of one while a burst of control begins.
const STARTING: i64 = 4;

impl Gateway {
    /// Handles a datagram received `from` an address on a path's socket. Returns true if it belongs to the
    /// peer's session.
    pub fn receive(
        &mut self,
        now: Instant,
        from: SocketAddr,
        bytes: &[u8],
        socket: PathId,
    ) -> bool {
        self.receive_at(now, now, from, bytes, socket)
    }

    /// As [`receive`](Self::receive), for a datagram that reached this machine at `arrived` and then waited
    /// for the caller: clocks are compared at `arrived`.
    pub fn receive_at(
        &mut self,
        now: Instant,
        arrived: Instant,
        from: SocketAddr,
        bytes: &[u8],
        socket: PathId,
    ) -> bool {
        self.control.on_lag(now, now.since(arrived));
        let mut plain = core::mem::take(&mut self.deliveries.datagram);
        let mut authentic = false;
        match self.sessions.open(now, from, bytes, &mut plain) {
            Opened::Message { path, number, current, newest } => {
                authentic = true;
                self.settle_session(now);
                if path == BUNDLE {
                    self.receive_segment(now, PathId(0), &plain);
                } else if let Some(path) = self.paths.by_wire(path.0) {
                    self.on_received(now, path, bytes.len(), current.then_some(number));
                    self.learn_address(now, path, from, bytes.len(), newest);
                    match plain.first() {
                        Some(&probe::FIRST) => self.receive_probe(now, arrived, path, &plain),
                        Some(&validation::FIRST) => {
                            self.receive_validation(now, path, from, &plain)
                        }
                        _ => self.receive_segment(now, path, &plain),
                    }
                }
            }
            Opened::Handshake => {
                self.handshakes.on_asked(from, socket);
                self.settle_session(now);
                let proof = self.sessions.take_proof();
                // Nothing proves itself to the MPTCP connection.
                if let Some(proof) = proof.filter(|_| socket != BUNDLE) {
                    self.addresses.respond(socket, validation::Message::Proof(proof));
                }
            }
            Opened::Refused(refusal) => {
                self.record.on_refused(refusal);
                if refusal == Refusal::Replayed {
                    self.learn_from_copy(now, from, bytes, &mut plain);
                }
                // The reply may still be a cookie, or a notice that the session is unknown.
                self.handshakes.on_asked(from, socket);
            }
        }
        self.deliveries.datagram = plain;
        authentic
    }

    /// Handles changes of the session.
    pub(super) fn settle_session(&mut self, now: Instant) {
        while let Some(event) = self.sessions.poll_event() {
            match event {
                SessionEvent::Established { hello, restarted } => {
                    self.on_session(now, &hello, restarted);
                }
                SessionEvent::Expired => self.on_session_expired(now),
            }
        }
    }

    /// Records an authentic datagram on a path, with its number if it is of the current session.
    fn on_received(&mut self, now: Instant, id: PathId, len: usize, number: Option<u64>) {
        let Some(path) = self.paths.get_mut(id) else { return };
        let before = path.on_received(now, len, number);
        self.session.on_heard();
        if let Some(before) = before {
            self.note_state(now, id, before, Direction::Incoming);
        }
    }

    /// Handles a transport's segment.
    fn receive_segment(&mut self, now: Instant, path: PathId, plain: &[u8]) {
        let decoded = decode(plain, now).ok();
        let class = decoded
            .as_ref()
            .and_then(|decoded| Class::ALL.get(usize::from(decoded.header.connection)).copied());
        let (Some(decoded), Some(class)) = (decoded, class) else {
            self.record.on_unreadable();
            return;
        };
        self.classes[class].receive(now, path, &decoded, plain);
        self.drain(now, class);
    }

    /// Handles a probe.
    fn receive_probe(&mut self, now: Instant, arrived: Instant, id: PathId, plain: &[u8]) {
        let Some(probe) = Probe::read(plain) else {
            self.record.on_unreadable();
            return;
        };
        if let Some(path) = self.paths.get_mut(id) {
            let (incoming, outgoing) = path.on_probe(arrived, &probe);
            if self.peer.clock.sample(arrived, incoming, outgoing) {
                self.paths.iter_mut().for_each(|path| path.timing.on_clock_step(arrived));
            }
        }
        if probe.asks
            && let Some(path) = self.paths.get_mut(id)
        {
            path.probe_at = path.probe_at.min(now);
        }
        self.hold_data(now, id);
        self.note_lateness(now, id);
        self.judge_held(now);
        self.limit_control(now, probe.lag_ms);
        if !self.peer.is_news(now, probe.sent_us) {
            return;
        }
        for report in &probe.reports {
            if let Some(about) = self.paths.by_wire(report.path) {
                self.take_report(now, about, report);
            }
        }
    }

    /// Writes the next datagram to `out`, in place of its content, and returns its destination.
    pub fn poll_send(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Outgoing> {
        if let Some(outgoing) = self.poll_handshake(now, out) {
            return Some(outgoing);
        }
        if !self.session.is_up() {
            return None;
        }
        let mut plain = core::mem::take(&mut self.deliveries.datagram);
        let outgoing = self
            .poll_validation(now, &mut plain, out)
            .or_else(|| self.poll_probe(now, &mut plain, out))
            .or_else(|| {
                let mut classes = Class::ALL.into_iter();
                classes.find_map(|class| self.poll_class(now, class, &mut plain, out))
            });
        self.deliveries.datagram = plain;
        outgoing
    }

    /// Seals `plain` into `out`, to be sent by a path to an address.
    pub(super) fn seal(
        &mut self,
        now: Instant,
        (path, to): (PathId, SocketAddr),
        class: Option<Class>,
        plain: &[u8],
        out: &mut Vec<u8>,
    ) -> Option<Outgoing> {
        let known = self.paths.get_mut(path)?;
        self.sessions.seal(now, PathId(known.wire?), plain, out).ok()?;
        known.on_sent(out.len());
        Some(Outgoing { path, to, class })
    }

    fn poll_probe(
        &mut self,
        now: Instant,
        plain: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Option<Outgoing> {
        let udp = self.config.network == Network::Udp;
        // A burst of control waits for what probes have seen of the one before.
        let often = if self.control.is_starting() { STARTING } else { 1 };
        for id in self.paths.ids() {
            let Some(path) = self.paths.get_mut(id) else { continue };
            // A padded probe may be lost, so it follows the regular probe instead of replacing it.
            let (due, planned) = (now >= path.probe_at, path.mtu.take_planned());
            if !due && planned.is_none() {
                continue;
            }
            let padded = planned.filter(|_| !due);
            if due {
                path.probe_at = now + self.config.health.probe / often;
            }
            let around = path.header_bytes() + OVERHEAD as u32;
            let size = padded.map_or(0, |padded| padded.saturating_sub(around));
            let is_known = path.wire.is_some();
            let Some(to) = self.paths.reach(id).filter(|_| is_known) else { continue };
            self.probe(now, id).write(size as usize, plain);
            if let Some(path) = self.paths.get_mut(id) {
                path.mtu.on_sent(padded);
                if due && udp {
                    path.plan_padded(now);
                }
            }
            if let Some(outgoing) = self.seal(now, (id, to), None, plain, out) {
                return Some(outgoing);
            }
        }
        None
    }

    fn poll_class(
        &mut self,
        now: Instant,
        class: Class,
        plain: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Option<Outgoing> {
        let bundled = self.config.network.bundles(class);
        if bundled && !self.paths.is_bundle_writable() {
            return None;
        }
        loop {
            let fed = self.feed(now, class);
            let link = &mut self.classes[class];
            let Some(path) = link.poll_send(now, plain) else {
                // The transport dropped expired messages, which made room.
                if fed && link.is_drained() {
                    continue;
                }
                return None;
            };
            if bundled {
                self.sessions.seal(now, BUNDLE, plain, out).ok()?;
                return Some(Outgoing { path: BUNDLE, to: NOWHERE, class: Some(class) });
            }
            let to = self.paths.reach(path);
            let Some(known) = self.paths.get(path) else { continue };
            // A reply to the peer's first message may wait until the address is proved.
            let is_unproved = to.is_none() && known.remote.is_none();
            let is_sent_again = class == Class::Control && to.is_some() && known.wire.is_some();
            if known.validation.is_open() && (is_unproved || is_sent_again) {
                self.addresses.hold(now, path, class, plain);
            }
            // A datagram that cannot be sent is lost here, as in the network.
            let Some(to) = to else { continue };
            if let Some(outgoing) = self.seal(now, (path, to), Some(class), plain, out) {
                self.classes[class].on_sent_via(path);
                return Some(outgoing);
            }
        }
    }

    /// Sets the resolved address of the ground on a path; `None` if unresolved. Aircraft only.
    pub fn set_remote(&mut self, path: PathId, remote: Option<SocketAddr>) {
        if let Some(known) = self.paths.get_mut(path)
            && known.remote != remote
        {
            known.remote = remote;
            known.mtu.reset();
            self.refresh_usable();
        }
    }

    /// Returns whether the peer is heard on a path.
    pub fn is_heard(&self, path: PathId) -> bool {
        self.paths.get(path).is_some_and(Path::is_heard)
    }

    /// Sets whether the stream of a path, or [`BUNDLE`], is writable (TCP mode).
    pub fn set_writable(&mut self, path: PathId, writable: bool) {
        self.paths.set_writable(path, writable);
    }

    /// Returns the path of a datagram by its envelope; `None` before there is a session.
    pub fn path_of(&self, bytes: &[u8]) -> Option<PathId> {
        match crate::session::path_of(bytes)? {
            BUNDLE => Some(BUNDLE),
            wire => self.paths.by_wire(wire.0),
        }
    }

    /// Returns the set of all paths.
    pub fn paths(&self) -> PathSet {
        self.paths.ids().collect()
    }
}
