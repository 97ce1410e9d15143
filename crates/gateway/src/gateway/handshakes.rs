//! Handshake messages on their way: to every path, or back to who asked.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::SocketAddr;

use skybraid_transport::{PathId, PathSet};
use skybraid_units::Instant;

use super::{Gateway, Outgoing};
use crate::Side;
use crate::health::Path;
use crate::session::Handshake;

/// Maximum handshake senders remembered until they get a reply.
const MAX_ASKERS: usize = 64;

/// Handshake messages to be sent.
#[derive(Debug, Default)]
pub(super) struct Handshakes {
    message: Vec<u8>,
    /// Paths on which the message has not been sent.
    paths: PathSet,
    /// Senders of the last handshakes, each with its socket, newest first.
    askers: VecDeque<(SocketAddr, PathId)>,
}

impl Handshakes {
    /// Remembers the sender of a handshake and the socket on which it came.
    pub fn on_asked(&mut self, from: SocketAddr, socket: PathId) {
        if self.askers.front() != Some(&(from, socket)) {
            self.askers.truncate(MAX_ASKERS - 1);
            self.askers.push_front((from, socket));
        }
    }

    fn socket_of(&self, asker: SocketAddr) -> Option<PathId> {
        self.askers.iter().find(|(from, _)| *from == asker).map(|(_, socket)| *socket)
    }

    fn next_path(&mut self) -> Option<PathId> {
        let path = self.paths.first()?;
        self.paths = self.paths.without(path);
        Some(path)
    }
}

impl Gateway {
    /// Writes the next handshake message to `out` and returns its destination.
    pub(super) fn poll_handshake(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Outgoing> {
        let (path, to) = loop {
            if let Some(path) = self.handshakes.next_path() {
                match self.paths.reach(path) {
                    Some(to) => break (path, to),
                    None => continue,
                }
            }
            match self.sessions.poll_handshake(now, &mut self.handshakes.message)? {
                Handshake::OnEveryPath => self.ask_on_every_path(now),
                Handshake::Reply { to } => {
                    let socket = self.handshakes.socket_of(to);
                    if let Some(answer) = socket.and_then(|socket| self.answer_on(socket, to)) {
                        break answer;
                    }
                }
            }
        };
        out.clear();
        out.extend_from_slice(&self.handshakes.message);
        Some(Outgoing { path, to, class: None })
    }

    /// Returns the path and the destination of the answer to a handshake from `asker` on a path's socket. The aircraft
    /// answers the ground alone, wherever a cookie claims to be from: its init is larger than the cookie.
    fn answer_on(&self, socket: PathId, asker: SocketAddr) -> Option<(PathId, SocketAddr)> {
        match self.config.side {
            Side::Ground => Some((socket, asker)),
            Side::Aircraft => Some((socket, self.paths.reach(socket)?)),
        }
    }

    fn ask_on_every_path(&mut self, now: Instant) {
        // Of two gateways with the peer's key, the one that is heard is asked.
        let is_contested =
            self.sessions.is_peer_duplicated(now) && self.paths.iter().any(Path::is_heard);
        let is_asked = |id: &PathId| {
            let is_heard = self.paths.get(*id).is_some_and(Path::is_heard);
            self.paths.reach(*id).is_some() && (!is_contested || is_heard)
        };
        self.handshakes.paths = self.paths.ids().filter(is_asked).collect();
        if self.handshakes.paths.is_empty() {
            self.sessions.on_handshake_unsent(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_askers_are_remembered_with_their_sockets() {
        let mut handshakes = Handshakes::default();
        let asker = |port: u16| SocketAddr::from(([192, 0, 2, 1], port));
        for port in 0..100 {
            handshakes.on_asked(asker(port), PathId(port as u8 % 3));
        }
        assert_eq!(handshakes.socket_of(asker(99)), Some(PathId(0)));
        assert_eq!(handshakes.socket_of(asker(20)), None);
        (0..100).for_each(|_| handshakes.on_asked(asker(99), PathId(1)));
        assert!(handshakes.socket_of(asker(60)).is_some(), "one who repeats takes one place");
        assert_eq!(handshakes.socket_of(asker(99)), Some(PathId(1)));
    }
}
