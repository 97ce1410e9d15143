//! Addresses added and removed during a connection.
//!
//! Source: RFC 8684 §3.4 (ADD_ADDR, REMOVE_ADDR); `add_addr_timeout` and the number of repetitions
//! as in Linux.

use alloc::collections::VecDeque;

use skybraid_units::{Duration, Instant, Promised};

use super::connection::Connection;
use super::path_manager::PathManager;
use crate::PathId;
use crate::endpoint::{Role, Transmit};
use crate::segment::{Flags, Tcp};

/// Interval at which an unechoed announcement is repeated.
const REPEAT_AFTER: Duration = Duration::from_secs(120);
/// Maximum repetitions of an announcement.
const MAX_REPEATS: u8 = 3;

/// Pending address announcements and withdrawals.
#[derive(Debug, Default)]
pub struct Addresses {
    /// Announcements without an echo: path, time of the next repetition, repetitions so far.
    announced: VecDeque<(PathId, Instant, u8)>,
    /// Options to be sent at once.
    due: VecDeque<(Flags, PathId)>,
    /// True once a subflow has been established. The connection persists even while it has no
    /// subflow (break before make, RFC 8684 §3.3.3).
    established: bool,
}

impl Addresses {
    pub(super) fn next_wakeup(&self) -> Instant {
        self.announced.iter().map(|(_, at, _)| *at).min().unwrap_or(Instant::FAR_FUTURE)
    }

    pub(super) fn wake(&mut self, now: Instant) {
        for (path, at, repeats) in &mut self.announced {
            if *at <= now {
                *repeats += 1;
                *at = if *repeats < MAX_REPEATS { now + REPEAT_AFTER } else { Instant::FAR_FUTURE };
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
    /// Handles an established subflow: opens or announces the others after the first one.
    pub(super) fn on_established(&mut self, now: Instant) {
        let first = !core::mem::replace(&mut self.addresses.established, true);
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

    /// Adds a local address, over which a subflow joins on `path`. The client opens the subflow;
    /// the server announces the address (RFC 8684 §3.4.1).
    pub fn add_path(&mut self, now: Instant, path: PathId) {
        if !self.config.is_multipath() || path.index() >= self.paths.len() {
            return;
        }
        match self.role {
            Role::Client => self.join(path),
            Role::Server => self.addresses.announce(now, path),
        }
    }

    fn join(&mut self, path: PathId) {
        let alive =
            self.subflows.iter().any(|subflow| subflow.path == path && !subflow.is_removed());
        let room = self.subflows.len() < crate::PathSet::CAPACITY;
        if !alive && room {
            self.add_subflow(path);
        }
        let joins = self.addresses.established;
        for subflow in self.subflows.iter_mut().filter(|subflow| subflow.path == path) {
            subflow.open(joins);
        }
    }

    /// Removes a local address: ends the subflows over `path`, reinjects their data, and notifies
    /// the peer (RFC 8684 §3.4.2).
    pub fn remove_path(&mut self, path: PathId) {
        self.remove_subflows(path, None);
        self.addresses.due.push_back((Flags::REMOVE_ADDRESS, path));
    }

    fn remove_subflows(&mut self, path: PathId, except: Option<usize>) {
        for own in 0..self.subflows.len() {
            if let Some(subflow) = self.subflows.get_mut(own).promised("a subflow in range")
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
                    self.join(path);
                }
            }
        }
        if tcp.flags.has(Flags::REMOVE_ADDRESS) {
            // The subflow that carries the withdrawal uses an address that has come back.
            self.remove_subflows(path, Some(usize::from(tcp.subflow)));
        }
    }

    pub(super) fn poll_addresses(&mut self, now: Instant) -> Option<Transmit> {
        let (flags, path) = *self.addresses.due.front()?;
        let transmit = self.signal(now, flags, |tcp| tcp.address = path.0)?;
        self.addresses.due.pop_front();
        Some(transmit)
    }
}
