//! Interface to the networks: datagrams in and out.

use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddr};

use skybraid_transport::wire::datagram::decode;
use skybraid_transport::{PathId, PathSet};
use skybraid_units::Instant;

use super::{BUNDLE, Gateway, Outgoing};
use crate::Class;
use crate::config::Network;
use crate::event::Direction;
use crate::health::{Path, Probe, probe, validation};
use crate::session::{Handshake, OVERHEAD, Opened, Refusal, SessionEvent};

/// Maximum handshake senders remembered until they get a reply.
const ASKERS: usize = 64;
/// Placeholder address over TCP.
const NOWHERE: SocketAddr = SocketAddr::new(core::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

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
        self.note_lag(now, now.since(arrived));
        let mut plain = core::mem::take(&mut self.plain);
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
                self.remember_asker(from, socket);
                self.settle_session(now);
                let proof = self.sessions.take_proof();
                // Nothing proves itself to the MPTCP connection.
                if let Some(proof) = proof.filter(|_| socket != BUNDLE) {
                    self.respond(socket, validation::Message::Proof(proof));
                }
            }
            Opened::Refused(refusal) => {
                let refused = &mut self.refused;
                *match refusal {
                    Refusal::Foreign => &mut refused.foreign,
                    Refusal::Forged => &mut refused.forged,
                    Refusal::Replayed => &mut refused.replayed,
                    Refusal::Stranger => &mut refused.strangers,
                    Refusal::Cookie => &mut refused.cookies,
                } += 1;
                if refusal == Refusal::Replayed {
                    self.learn_from_copy(now, from, bytes, &mut plain);
                }
                // The reply may still be a cookie, or a notice that the session is unknown.
                self.remember_asker(from, socket);
            }
        }
        self.plain = plain;
        authentic
    }

    fn remember_asker(&mut self, from: SocketAddr, socket: PathId) {
        if self.askers.back() != Some(&(from, socket)) {
            self.askers.truncate(ASKERS - 1);
            self.askers.push_front((from, socket));
        }
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
        self.silence.reported = false;
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
            self.refused.unreadable += 1;
            return;
        };
        self.classes[class].receive(now, path, &decoded, plain);
        self.drain(now, class);
    }

    /// Handles a probe.
    fn receive_probe(&mut self, now: Instant, arrived: Instant, id: PathId, plain: &[u8]) {
        let Some(probe) = Probe::read(plain) else {
            self.refused.unreadable += 1;
            return;
        };
        if let Some(path) = self.paths.get_mut(id) {
            let (incoming, outgoing) = path.probed(arrived, probe.sent_us, probe.echo);
            self.clock.sample(arrived, incoming, outgoing);
            path.seen.on_received(probe.number);
            path.incoming_mtu = Some((probe.mtu.into(), probe.mtu_error));
            if probe.asks {
                path.probe_at = path.probe_at.min(now);
            }
        }
        self.hold_data(id);
        self.note_lateness(now, id);
        self.judge_held(now);
        self.limit_control(now, probe.lag_ms);
        // A probe on a slower path may report older state.
        let ahead =
            self.newest_report.map(|newest| probe.sent_us.wrapping_sub(newest).cast_signed());
        if ahead.is_some_and(|ahead| ahead < 0) {
            return;
        }
        self.newest_report = Some(probe.sent_us);
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
        if !self.session_up {
            return None;
        }
        if let Some(outgoing) = self.poll_validation(now, out) {
            return Some(outgoing);
        }
        if let Some(outgoing) = self.poll_probe(now, out) {
            return Some(outgoing);
        }
        for class in Class::ALL {
            if let Some(outgoing) = self.poll_class(now, class, out) {
                return Some(outgoing);
            }
        }
        None
    }

    fn poll_handshake(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Outgoing> {
        loop {
            while let Some(path) = self.handshake.1.first() {
                self.handshake.1 = self.handshake.1.without(path);
                if let Some(to) = self.paths.get(path).and_then(|path| self.reach(path)) {
                    out.clear();
                    out.extend_from_slice(&self.handshake.0);
                    return Some(Outgoing { path, to, class: None });
                }
            }
            match self.sessions.poll_handshake(now, &mut self.handshake.0)? {
                Handshake::OnEveryPath => {
                    // Of two gateways with the peer's key, the one that is heard is asked.
                    let is_duplicated = self.sessions.is_peer_duplicated(now);
                    let is_contested = is_duplicated && self.paths.iter().any(Path::is_heard);
                    let reached = |path: &Path| {
                        self.reach(path).is_some() && (!is_contested || path.is_heard())
                    };
                    let reached = |id: &PathId| self.paths.get(*id).is_some_and(reached);
                    self.handshake.1 = self.paths.ids().filter(reached).collect();
                    if self.handshake.1.is_empty() {
                        self.sessions.on_handshake_unsent(now);
                    }
                }
                Handshake::Reply { to } => {
                    let asker = self.askers.iter().find(|(from, _)| *from == to);
                    if let Some((_, path)) = asker {
                        out.clear();
                        out.extend_from_slice(&self.handshake.0);
                        return Some(Outgoing { path: *path, to, class: None });
                    }
                }
            }
        }
    }

    /// Returns the destination of a datagram on a path, if it can leave.
    pub(super) fn reach(&self, path: &Path) -> Option<SocketAddr> {
        if !path.present {
            return None;
        }
        match self.config.network {
            Network::Udp => path.remote,
            Network::Tcp => path.writable.then_some(path.remote.unwrap_or(NOWHERE)),
        }
    }

    fn poll_probe(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Outgoing> {
        let udp = self.config.network == Network::Udp;
        for id in self.paths.ids() {
            let Some(path) = self.paths.get_mut(id) else { continue };
            // A padded probe may be lost, so it follows the regular probe instead of replacing it.
            let (due, padded) = (now >= path.probe_at, path.padded.take());
            if !due && padded.is_none() {
                continue;
            }
            let padded = padded.filter(|_| !due);
            if due {
                path.probe_at = now + self.config.health.probe;
            }
            let around = path.header_bytes() + OVERHEAD as u32;
            let size = padded.map_or(0, |padded| padded.saturating_sub(around));
            let path = self.paths.get(id);
            let to = path.and_then(|path| self.reach(path).zip(path.wire));
            let Some((to, wire)) = to else { continue };
            self.probe(now, id).write(size as usize, &mut self.plain);
            if let Some(path) = self.paths.get_mut(id) {
                path.mtu.on_sent(padded);
                path.padded = if due && udp { path.poll_padded(now) } else { None };
            }
            if self.sessions.seal(now, PathId(wire), &self.plain, out).is_ok() {
                if let Some(path) = self.paths.get_mut(id) {
                    path.on_sent(out.len());
                }
                return Some(Outgoing { path: id, to, class: None });
            }
        }
        None
    }

    fn poll_class(&mut self, now: Instant, class: Class, out: &mut Vec<u8>) -> Option<Outgoing> {
        let bundled = self.config.network == Network::Tcp && class != Class::Control;
        if bundled && !self.bundle_writable {
            return None;
        }
        loop {
            let fed = self.feed(now, class);
            let link = &mut self.classes[class];
            let Some(path) = link.poll_send(now, &mut self.plain) else {
                // The transport dropped expired messages, which made room.
                if fed && link.is_drained() {
                    continue;
                }
                return None;
            };
            if bundled {
                self.sessions.seal(now, BUNDLE, &self.plain, out).ok()?;
                return Some(Outgoing { path: BUNDLE, to: NOWHERE, class: Some(class) });
            }
            let Some(known) = self.paths.get(path) else { continue };
            let (to, wire) = (self.reach(known), known.wire);
            if to.is_none() && known.remote.is_none() {
                // A reply to the peer's first message may wait until the address is proved.
                self.held.keep(now, path, known.validation.is_open(), class, &self.plain);
            }
            // A datagram that cannot be sent is lost here, as in the network.
            let (Some(to), Some(wire)) = (to, wire) else { continue };
            if class == Class::Control {
                self.held.keep(now, path, known.validation.is_open(), class, &self.plain);
            }
            if self.sessions.seal(now, PathId(wire), &self.plain, out).is_err() {
                continue;
            }
            if let Some(known) = self.paths.get_mut(path) {
                known.on_sent(out.len());
            }
            self.classes[class].on_sent_via(path);
            return Some(Outgoing { path, to, class: Some(class) });
        }
    }

    /// Sets the resolved address of the ground on a path; `None` if unresolved. Aircraft only.
    pub fn set_remote(&mut self, path: PathId, remote: Option<SocketAddr>) {
        if let Some(known) = self.paths.get_mut(path)
            && known.remote != remote
        {
            known.remote = remote;
            known.forget_size();
            self.refresh_usable();
        }
    }

    /// Returns whether the peer is heard on a path.
    pub fn is_heard(&self, path: PathId) -> bool {
        self.paths.get(path).is_some_and(Path::is_heard)
    }

    /// Sets whether the stream of a path, or [`BUNDLE`], is writable (TCP mode).
    pub fn set_writable(&mut self, path: PathId, writable: bool) {
        if path == BUNDLE {
            self.bundle_writable = writable;
        } else if let Some(known) = self.paths.get_mut(path) {
            known.writable = writable;
        }
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
