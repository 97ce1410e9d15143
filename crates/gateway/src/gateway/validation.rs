//! Addresses of the aircraft, which the ground learns and validates before use.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::vec::Vec;
use core::net::SocketAddr;

use skybraid_transport::PathId;
use skybraid_units::{Duration, Instant};

use super::{BUNDLE, Gateway, Outgoing};
use crate::config::Network;
use crate::event::What;
use crate::health::validation::Message;
use crate::session::Bucket;
use crate::{Class, Side};

/// Copies examined per second: forwarded copies may be the only trace of the aircraft's address.
const COPIES: i64 = 100;
/// Maximum number of pending responses.
const MAX_RESPONSES: usize = 64;
/// Maximum number and age of datagrams held during address validation.
const MAX_HELD: usize = 256;
const MAX_HELD_FOR: Duration = Duration::from_secs(1);

/// Messages about addresses that wait to leave.
#[derive(Debug)]
pub(super) struct Addresses {
    /// Responses to challenges, and proofs, each with its path.
    responses: VecDeque<(PathId, Message)>,
    held: Held,
    /// Limit of the copies from other addresses that are examined.
    copies: Bucket,
}

impl Default for Addresses {
    fn default() -> Self {
        let copies = Bucket::per_second(COPIES);
        Self { responses: VecDeque::new(), held: Held::default(), copies }
    }
}

impl Addresses {
    /// Queues a validation message for a path.
    pub fn respond(&mut self, id: PathId, message: Message) {
        if self.responses.len() < MAX_RESPONSES {
            self.responses.push_back((id, message));
        }
    }

    /// Keeps a datagram of a path whose address is being validated.
    pub fn hold(&mut self, at: Instant, path: PathId, class: Class, plain: &[u8]) {
        self.held.keep(at, path, class, plain);
    }

    /// Drops the held datagrams.
    pub fn forget_held(&mut self) {
        self.held = Held::default();
    }
}

impl Gateway {
    /// Learns the source address of a peer's datagram. Over UDP a new address must be validated; over TCP the
    /// connection proves the address.
    pub(super) fn learn_address(
        &mut self,
        now: Instant,
        id: PathId,
        from: SocketAddr,
        bytes: usize,
        newest: bool,
    ) {
        if self.config.side != Side::Ground {
            return;
        }
        let Some(path) = self.paths.get_mut(id) else { return };
        if path.remote == Some(from) {
            return;
        }
        match self.config.network {
            Network::Udp => {
                let rtt = path.timing.min_rtt();
                path.validation.on_received(now, from, bytes, rtt);
            }
            Network::Tcp if newest => self.use_address(now, id, from),
            Network::Tcp => {}
        }
    }

    /// Handles a copy of an opened datagram from another address: either address may be a forwarder's.
    pub(super) fn learn_from_copy(
        &mut self,
        now: Instant,
        from: SocketAddr,
        bytes: &[u8],
        scratch: &mut Vec<u8>,
    ) {
        let is_copied = |gateway: &Self| {
            let path = gateway.paths.get(gateway.path_of(bytes).filter(|path| *path != BUNDLE)?)?;
            (gateway.config.side == Side::Ground && path.remote != Some(from)).then_some(())
        };
        if is_copied(self).is_none() || !self.addresses.copies.take(now) {
            return;
        }
        let wire = self.sessions.path_of_copy(bytes, scratch);
        let path = wire.and_then(|wire| self.paths.by_wire(wire.0));
        if let Some(path) = path {
            self.learn_address(now, path, from, bytes.len(), false);
        }
    }

    /// Handles a challenge, a response or a proof.
    pub(super) fn receive_validation(
        &mut self,
        now: Instant,
        id: PathId,
        from: SocketAddr,
        plain: &[u8],
    ) {
        match Message::read(plain) {
            Some(Message::Challenge(token)) => {
                self.addresses.respond(id, Message::Response(token));
            }
            Some(Message::Proof(proof)) => {
                if self.config.side == Side::Ground && self.sessions.is_proof(now, from, &proof) {
                    if let Some(path) = self.paths.get_mut(id) {
                        path.validation.on_proof(now, from);
                    }
                    self.settle_addresses(now);
                }
            }
            Some(Message::Response(token)) => {
                if let Some(path) = self.paths.get_mut(id) {
                    path.validation.on_response(now, token);
                }
                self.settle_addresses(now);
            }
            None => self.record.on_unreadable(),
        }
    }

    /// Switches to validated addresses.
    pub(super) fn settle_addresses(&mut self, now: Instant) {
        for id in self.paths.ids() {
            let Some(path) = self.paths.get_mut(id) else { continue };
            if let Some(address) = path.validation.settle(now, path.remote) {
                self.use_address(now, id, address);
                self.addresses.held.release(id);
            } else if !path.validation.is_open() {
                self.addresses.held.forget(id);
            }
        }
    }

    fn use_address(&mut self, now: Instant, id: PathId, address: SocketAddr) {
        let Some(path) = self.paths.get_mut(id) else { return };
        if path.remote.replace(address).is_some() {
            path.mtu.reset();
        }
        path.probe_at = path.probe_at.min(now);
        let what = What::Address { path: path.name.clone(), address: format!("{address}") };
        self.record.event(now, what);
        self.refresh_usable();
    }

    /// Returns the next response or challenge, or the next control message first sent to a wrong address.
    pub(super) fn poll_validation(
        &mut self,
        now: Instant,
        plain: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Option<Outgoing> {
        while let Some((id, message)) = self.addresses.responses.pop_front() {
            let Some(to) = self.paths.reach(id) else { continue };
            message.write(plain);
            if let Some(outgoing) = self.seal(now, (id, to), None, plain, out) {
                return Some(outgoing);
            }
        }
        for id in self.paths.ids() {
            let Some(path) = self.paths.get_mut(id).filter(|path| path.present) else { continue };
            let sessions = &mut self.sessions;
            let mut draw = || sessions.draw_token();
            let challenge = path.validation.poll_challenge(now, path.remote, &mut draw);
            let Some((to, token)) = challenge else { continue };
            Message::Challenge(token).write(plain);
            if let Some(outgoing) = self.seal(now, (id, to), None, plain, out) {
                return Some(outgoing);
            }
        }
        while let Some(Datagram { path: id, at, class, plain }) =
            self.addresses.held.released.pop_front()
        {
            let life = self.config.class.deadline(class).unwrap_or(MAX_HELD_FOR);
            let to = self.paths.reach(id).filter(|_| now.since(at) < life.min(MAX_HELD_FOR));
            let Some(to) = to else { continue };
            if let Some(outgoing) = self.seal(now, (id, to), Some(class), &plain, out) {
                return Some(outgoing);
            }
        }
        None
    }
}

/// Control sent during the validation of the aircraft's address, and datagrams held because no address was
/// known. Both are sent to a new address once validated; the aircraft uses the first copy of each.
#[derive(Debug, Default)]
struct Held {
    /// Oldest first.
    waiting: VecDeque<Datagram>,
    released: VecDeque<Datagram>,
}

/// Datagram before sealing.
#[derive(Debug)]
struct Datagram {
    path: PathId,
    at: Instant,
    class: Class,
    plain: Vec<u8>,
}

impl Held {
    fn keep(&mut self, at: Instant, path: PathId, class: Class, plain: &[u8]) {
        if self.waiting.len() >= MAX_HELD {
            self.waiting.pop_front();
        }
        self.waiting.push_back(Datagram { path, at, class, plain: plain.to_vec() });
    }

    /// Releases held datagrams: the path has a new address.
    fn release(&mut self, path: PathId) {
        let waiting = core::mem::take(&mut self.waiting);
        let (of_path, others) = waiting.into_iter().partition(|held| held.path == path);
        self.waiting = others;
        let of_path: VecDeque<Datagram> = of_path;
        self.released.extend(of_path);
        self.released.truncate(MAX_HELD);
    }

    /// Drops held datagrams: the address was right.
    fn forget(&mut self, path: PathId) {
        self.waiting.retain(|held| held.path != path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_datagrams_leave_only_by_the_path_that_has_a_new_address() {
        let mut held = Held::default();
        for path in [0, 1, 0, 2] {
            held.keep(Instant::ZERO, PathId(path), Class::Control, &[path]);
        }
        held.forget(PathId(2));
        held.release(PathId(0));
        let released: Vec<Vec<u8>> = held.released.drain(..).map(|held| held.plain).collect();
        assert_eq!(released, [[0], [0]]);
        assert_eq!(held.waiting.len(), 1);
    }
}
