//! The side of the networks: datagrams in and out.

use alloc::format;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddr};

use skybraid_transport::wire::datagram::decode;
use skybraid_transport::{PathId, PathSet};
use skybraid_units::Instant;

use super::{BUNDLE, Gateway, Outgoing};
use crate::config::Network;
use crate::event::{Direction, What};
use crate::health::probe::FIRST;
use crate::health::{Probe, path::LEAST_MTU};
use crate::session::{Handshake, OVERHEAD, Opened, Refusal, SessionEvent};
use crate::{Class, Side};

/// Senders of handshakes that are remembered until they are answered.
const ASKERS: usize = 64;
/// Over TCP there is no address to send to.
const NOWHERE: SocketAddr = SocketAddr::new(core::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

impl Gateway {
    /// A datagram arrived `from` somebody by the socket of a path. True if it is the peer's and of the
    /// session that stands.
    pub fn receive(
        &mut self,
        now: Instant,
        from: SocketAddr,
        bytes: &[u8],
        socket: PathId,
    ) -> bool {
        let mut plain = core::mem::take(&mut self.plain);
        let mut authentic = false;
        match self.sessions.open(now, from, bytes, &mut plain) {
            Opened::Message { path, number, newest } => {
                authentic = true;
                self.settle_session(now);
                if path == BUNDLE {
                    self.receive_segment(now, PathId(0), &plain);
                } else if let Some(path) = self.paths_by_wire.get(path.index()).copied().flatten() {
                    self.arrived(now, path, bytes.len(), number);
                    if newest {
                        self.learn_address(now, path, from);
                    }
                    if plain.first() == Some(&FIRST) {
                        self.receive_probe(now, path, &plain);
                    } else {
                        self.receive_segment(now, path, &plain);
                    }
                }
            }
            Opened::Handshake => {
                self.remember_asker(from, socket);
                self.settle_session(now);
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
                // It may still be answered: by a cookie, or by saying that its session is not known.
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

    /// Takes note of what has become of the session.
    pub(super) fn settle_session(&mut self, now: Instant) {
        while let Some(event) = self.sessions.poll_event() {
            let SessionEvent::Established { hello, restarted } = event;
            self.session_stands(now, &hello, restarted);
        }
    }

    /// Something authentic arrived on a path.
    fn arrived(&mut self, now: Instant, id: PathId, octets: usize, number: u64) {
        let Some(path) = self.paths.get_mut(id.index()) else { return };
        let before = path.arrives(now, octets, number);
        self.silence.told = false;
        if let Some(before) = before {
            self.note_state(now, id, before, Direction::Incoming);
        }
    }

    /// The ground answers where the aircraft was heard last.
    fn learn_address(&mut self, now: Instant, id: PathId, from: SocketAddr) {
        if self.config.side != Side::Ground {
            return;
        }
        let Some(path) = self.paths.get_mut(id.index()) else { return };
        let before = path.remote.replace(from);
        if before == Some(from) {
            return;
        }
        if before.is_some() {
            path.forget_size();
        }
        let what = What::Address { path: path.name.clone(), address: format!("{from}") };
        self.tell(now, what);
        self.refresh_usable();
    }

    /// A transport's segment arrived.
    fn receive_segment(&mut self, now: Instant, path: PathId, plain: &[u8]) {
        let decoded = decode(plain, now).ok();
        let class = decoded
            .as_ref()
            .and_then(|decoded| Class::ALL.get(usize::from(decoded.header.connection)).copied());
        let (Some(decoded), Some(class)) = (decoded, class) else {
            self.refused.unreadable += 1;
            return;
        };
        if let Some(carrier) = self.carriers.get_mut(class.index()) {
            carrier.receive(now, path, &decoded, plain);
        }
        self.drain(now, class);
    }

    /// A sign of life arrived.
    fn receive_probe(&mut self, now: Instant, id: PathId, plain: &[u8]) {
        let Some(probe) = Probe::read(plain) else {
            self.refused.unreadable += 1;
            return;
        };
        if let Some(path) = self.paths.get_mut(id.index()) {
            path.probed(now, probe.sent_us, probe.echo);
            if probe.asks {
                path.probe_at = path.probe_at.min(now);
            }
        }
        // A probe by a slower path may tell what was before.
        let ahead =
            self.newest_report.map(|newest| probe.sent_us.wrapping_sub(newest).cast_signed());
        if ahead.is_some_and(|ahead| ahead < 0) {
            return;
        }
        self.newest_report = Some(probe.sent_us);
        for report in &probe.reports {
            let wire = self.paths_by_wire.get(usize::from(report.path)).copied().flatten();
            if let Some(about) = wire {
                self.take_report(now, about, report);
            }
        }
        let least = self.paths.iter().filter_map(|path| path.least_transits());
        self.clock.compare(least);
    }

    /// The next datagram to leave now; it is written to `out`, in place of what was there.
    pub fn poll_send(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Outgoing> {
        if let Some(outgoing) = self.poll_handshake(now, out) {
            return Some(outgoing);
        }
        if !self.session_up {
            return None;
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
                if let Some(to) = self.paths.get(path.index()).and_then(|path| self.reach(path)) {
                    out.clear();
                    out.extend_from_slice(&self.handshake.0);
                    return Some(Outgoing { path, to, class: None });
                }
            }
            match self.sessions.poll_handshake(now, &mut self.handshake.0)? {
                Handshake::OnEveryPath => {
                    self.handshake.1 = (0..self.paths.len()).map(|at| PathId(at as u8)).collect();
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

    /// Where a datagram on a path goes, if it can leave.
    fn reach(&self, path: &crate::health::Path) -> Option<SocketAddr> {
        if !path.present {
            return None;
        }
        match self.config.network {
            Network::Udp => path.remote,
            Network::Tcp => path.writable.then_some(path.remote.unwrap_or(NOWHERE)),
        }
    }

    fn poll_probe(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Outgoing> {
        for at in 0..self.paths.len() {
            let udp = self.config.network == Network::Udp;
            let Some(path) = self.paths.get_mut(at) else { continue };
            // What tries a size may be lost, so it goes beside the sign of life and not in its place.
            let (due, size) = (now >= path.probe_at, path.trying.take());
            if !due && size.is_none() {
                continue;
            }
            if due {
                path.probe_at = now + self.config.health.probe;
                path.trying = path.try_size(now).filter(|_| udp);
            }
            let around = path.around() + OVERHEAD as u32;
            let size = size.filter(|_| !due).map_or(0, |size| size.saturating_sub(around));
            let to = self.paths.get(at).and_then(|path| self.reach(path));
            let (Some(to), Some(wire)) = (to, self.wire.get(at).copied().flatten()) else {
                continue;
            };
            self.probe(now, at).write(size as usize, &mut self.plain);
            if self.sessions.seal(PathId(wire), &self.plain, out).is_ok() {
                if let Some(path) = self.paths.get_mut(at) {
                    path.leaves(out.len());
                }
                return Some(Outgoing { path: PathId(at as u8), to, class: None });
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
            let path = self.carriers.get_mut(class.index())?.poll_send(now, &mut self.plain)?;
            if bundled {
                self.sessions.seal(BUNDLE, &self.plain, out).ok()?;
                return Some(Outgoing { path: BUNDLE, to: NOWHERE, class: Some(class) });
            }
            let Some(known) = self.paths.get(path.index()) else { continue };
            let (to, wire) = (self.reach(known), self.wire.get(path.index()).copied().flatten());
            // What cannot leave is lost here, as it would be in the network.
            let (Some(to), Some(wire)) = (to, wire) else { continue };
            if self.sessions.seal(PathId(wire), &self.plain, out).is_err() {
                continue;
            }
            if let Some(known) = self.paths.get_mut(path.index()) {
                known.leaves(out.len());
            }
            if let Some(Some(protector)) = self.protectors.get_mut(class.index()) {
                protector.left_by(path);
            }
            return Some(Outgoing { path, to, class: Some(class) });
        }
    }

    /// The ground's address on a path has been looked up; `None` while it cannot be. Of the aircraft.
    pub fn set_remote(&mut self, path: PathId, remote: Option<SocketAddr>) {
        if let Some(known) = self.paths.get_mut(path.index())
            && known.remote != remote
        {
            known.remote = remote;
            known.forget_size();
            self.refresh_usable();
        }
    }

    /// The stream of a path, or [`BUNDLE`], is full or has room again (TCP mode).
    pub fn set_writable(&mut self, path: PathId, writable: bool) {
        if path == BUNDLE {
            self.bundle_writable = writable;
        } else if let Some(known) = self.paths.get_mut(path.index()) {
            known.writable = writable;
        }
    }

    /// Which path here a datagram belongs to, by its envelope; `None` before a session stands.
    pub fn path_of(&self, bytes: &[u8]) -> Option<PathId> {
        match crate::session::path_of(bytes)? {
            BUNDLE => Some(BUNDLE),
            wire => self.paths_by_wire.get(wire.index()).copied().flatten(),
        }
    }

    /// Which paths there are.
    pub fn paths(&self) -> PathSet {
        (0..self.paths.len()).map(|at| PathId(at as u8)).collect()
    }
}

/// Keeps the constant in use where no path is known yet.
const _: () = assert!(LEAST_MTU >= 576);
