//! Addresses that come and go while the connection stands.
//!
//! Source: RFC 8684 §3.4 (ADD_ADDR, REMOVE_ADDR); `add_addr_timeout` and the number of repetitions as in
//! Linux.

use alloc::collections::VecDeque;

use skybraid_units::{Duration, Instant};

use super::connection::Connection;
use super::path_manager::PathManager;
use crate::PathId;
use crate::endpoint::{Role, Transmit};
use crate::segment::{Flags, Tcp};

/// An announcement that nobody has echoed is repeated after this time.
const REPEAT_AFTER: Duration = Duration::from_secs(120);
/// … at most this many times.
const MOST_REPEATS: u8 = 3;

/// What is to be said of addresses.
#[derive(Debug, Default)]
pub struct Addresses {
    /// Announced and not echoed: path, when to say it again, how often that was done.
    announced: VecDeque<(PathId, Instant, u8)>,
    /// To be said at once.
    due: VecDeque<(Flags, PathId)>,
    /// A subflow has been established: the connection stands, even while it has none (break before
    /// make, RFC 8684 §3.3.3).
    stands: bool,
}

impl Addresses {
    pub(super) fn next_wakeup(&self) -> Instant {
        self.announced.iter().map(|(_, at, _)| *at).min().unwrap_or(Instant::FAR_FUTURE)
    }

    pub(super) fn wake(&mut self, now: Instant) {
        for (path, at, repeats) in &mut self.announced {
            if *at <= now {
                *repeats += 1;
                *at =
                    if *repeats < MOST_REPEATS { now + REPEAT_AFTER } else { Instant::FAR_FUTURE };
                self.due.push_back((Flags::ADD_ADDRESS, *path));
            }
        }
    }

    fn announce(&mut self, now: Instant, path: PathId) {
        self.announced.push_back((path, now + REPEAT_AFTER, 0));
        self.due.push_back((Flags::ADD_ADDRESS, path));
    }
}

impl Connection {
    /// A subflow was established: with the first one the connection stands, and others may follow.
    pub(super) fn established(&mut self, now: Instant) {
        let first = !core::mem::replace(&mut self.addresses.stands, true);
        match (self.role, self.config.path_manager) {
            (Role::Client, PathManager::FullMesh | PathManager::Ports(_)) => {
                self.subflows.iter_mut().for_each(|subflow| subflow.open(true));
            }
            (Role::Server, PathManager::Announced) if first && self.config.is_multipath() => {
                for path in 1..self.paths.len() {
                    self.addresses.announce(now, PathId(path as u8));
                }
            }
            (Role::Server, _) | (Role::Client, PathManager::Announced) => {}
        }
    }

    /// An address has become available: a subflow is to join over `path`. The client opens it; the
    /// server announces it (RFC 8684 §3.4.1).
    pub fn add_path(&mut self, now: Instant, path: PathId) {
        if !self.config.is_multipath() || path.index() >= self.paths.len() {
            return;
        }
        match self.role {
            Role::Client => self.join_over(path),
            Role::Server => self.addresses.announce(now, path),
        }
    }

    fn join_over(&mut self, path: PathId) {
        let alive =
            self.subflows.iter().any(|subflow| subflow.path == path && !subflow.is_removed());
        let room = self.subflows.len() < crate::PathSet::CAPACITY;
        if !alive && room {
            self.add_subflow(path);
        }
        let stands = self.addresses.stands;
        for subflow in self.subflows.iter_mut().filter(|subflow| subflow.path == path) {
            subflow.open(stands);
        }
    }

    /// An address has gone: the subflows over `path` end, others take over what they carried, and the
    /// peer is told (RFC 8684 §3.4.2).
    pub fn remove_path(&mut self, path: PathId) {
        self.drop_subflows(path, None);
        self.addresses.due.push_back((Flags::REMOVE_ADDRESS, path));
    }

    fn drop_subflows(&mut self, path: PathId, except: Option<usize>) {
        for own in 0..self.subflows.len() {
            if let Some(subflow) = self.subflows.get_mut(own)
                && subflow.path == path
                && Some(own) != except
                && !subflow.is_removed()
            {
                subflow.remove();
                self.reinject_from(own);
            }
        }
        self.addresses.announced.retain(|(announced, ..)| *announced != path);
    }

    pub(super) fn receive_address(&mut self, tcp: &Tcp) {
        let path = PathId(tcp.address);
        if tcp.flags.has(Flags::ADD_ADDRESS) {
            if tcp.flags.has(Flags::ECHO_ADDRESS) {
                self.addresses.announced.retain(|(announced, ..)| *announced != path);
            } else {
                self.addresses.due.push_back((Flags::ADD_ADDRESS.and(Flags::ECHO_ADDRESS), path));
                if self.role == Role::Client && path.index() < self.paths.len() {
                    self.join_over(path);
                }
            }
        }
        if tcp.flags.has(Flags::REMOVE_ADDRESS) {
            // The subflow that brings the news is one of an address that has come back.
            self.drop_subflows(path, Some(usize::from(tcp.subflow)));
        }
    }

    pub(super) fn poll_addresses(&mut self, now: Instant) -> Option<Transmit> {
        let (flags, path) = *self.addresses.due.front()?;
        let transmit = self.signal(now, flags, |tcp| tcp.address = path.0)?;
        self.addresses.due.pop_front();
        Some(transmit)
    }
}
