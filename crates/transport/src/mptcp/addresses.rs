//! Addresses added and removed during a connection.
//!
//! Source: RFC 8684 §3.4 (ADD_ADDR, REMOVE_ADDR); `add_addr_timeout` and the number of repetitions
//! as in Linux.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use skybraid_units::{Duration, Instant};

use super::path_manager::{JoinAfter, PathManager};
use super::subflows::Subflows;
use crate::segment::{Flags, Tcp};
use crate::{PathId, Role};

/// Interval at which an unechoed announcement is repeated.
const REPEAT_AFTER: Duration = Duration::from_secs(120);
/// Maximum repetitions of an announcement.
const MAX_REPEATS: u8 = 3;

/// Addresses of both ends, pending announcements and withdrawals, and the subflows that join over them.
#[derive(Debug)]
pub struct Addresses {
    role: Role,
    /// There since the first announcement or withdrawal.
    options: Option<Box<Options>>,
    /// True once a subflow has been established. The connection persists even while it has no
    /// subflow (break before make, RFC 8684 §3.3.3).
    established: bool,
    /// Subflows must be joined after the next segment of the peer.
    joins_due: bool,
}

/// Options that are sent, and those that wait for an echo.
#[derive(Debug, Default)]
struct Options {
    /// Announcements without an echo: path, time of the next repetition, repetitions so far.
    announced: VecDeque<(PathId, Instant, u8)>,
    /// Options to be sent at once.
    due: VecDeque<(Flags, PathId)>,
}

impl Addresses {
    /// Creates the state of an end that knows the addresses of its configuration.
    pub const fn new(role: Role) -> Self {
        Self { role, options: None, established: false, joins_due: false }
    }

    /// Handles an established subflow: opens or announces the others after the first one.
    pub fn on_established(&mut self, now: Instant, subflows: &mut Subflows) {
        let first = !core::mem::replace(&mut self.established, true);
        let Some(config) = subflows.config() else { return };
        match (self.role, config.path_manager) {
            (Role::Client, PathManager::FullMesh | PathManager::Ports(_)) => {
                match config.join_after {
                    JoinAfter::Handshake => subflows.open_all(),
                    JoinAfter::Dss => self.joins_due = true,
                }
            }
            (Role::Server, PathManager::Announced) if first => {
                for path in 1..subflows.path_count() {
                    self.announce(now, PathId(path as u8));
                }
            }
            (Role::Server, _) | (Role::Client, PathManager::Announced) => {}
        }
    }

    /// Handles a subflow whose SYN went unanswered: the client tries the next one.
    pub fn on_unanswered(&self, subflows: &mut Subflows) {
        if self.role == Role::Client {
            subflows.open_next();
        }
    }

    /// Joins further subflows after the first DSS option of the server, which every segment but a SYN carries, if they
    /// must wait for it (RFC 8684 §3.1).
    #[inline]
    pub fn on_segment(&mut self, tcp: &Tcp, subflows: &mut Subflows) {
        if !tcp.flags.has(Flags::SYN) && core::mem::take(&mut self.joins_due) {
            subflows.open_all();
        }
    }

    /// Processes an announcement of the peer, or its echo.
    #[cold]
    pub fn on_announcement(&mut self, tcp: &Tcp, subflows: &mut Subflows) {
        let path = PathId(tcp.address);
        if !tcp.flags.has(Flags::ADD_ADDRESS) {
        } else if tcp.flags.has(Flags::ECHO_ADDRESS) {
            self.forget(path);
        } else {
            self.send(Flags::ADD_ADDRESS.and(Flags::ECHO_ADDRESS), path);
            if self.role == Role::Client && path.index() < subflows.path_count() {
                self.join(path, subflows);
            }
        }
    }

    /// Adds a local address: the client opens a subflow over it, the server announces it (RFC 8684 §3.4.1).
    pub fn add(&mut self, now: Instant, path: PathId, subflows: &mut Subflows) {
        match self.role {
            _ if subflows.config().is_none() || path.index() >= subflows.path_count() => {}
            Role::Client => self.join(path, subflows),
            Role::Server => self.announce(now, path),
        }
    }

    /// Time of the next repetition of an announcement.
    #[inline]
    pub fn next_wakeup(&self) -> Instant {
        let Some(options) = &self.options else { return Instant::FAR_FUTURE };
        options.announced.iter().map(|(_, at, _)| *at).min().unwrap_or(Instant::FAR_FUTURE)
    }

    /// Repeats the announcements that are due.
    #[inline]
    pub fn wake(&mut self, now: Instant) {
        let Some(options) = &mut self.options else { return };
        for (path, at, repeats) in &mut options.announced {
            if *at <= now {
                *repeats += 1;
                *at = if *repeats < MAX_REPEATS { now + REPEAT_AFTER } else { Instant::FAR_FUTURE };
                options.due.push_back((Flags::ADD_ADDRESS, *path));
            }
        }
    }

    /// Announces an address until the peer echoes it.
    fn announce(&mut self, now: Instant, path: PathId) {
        self.options.get_or_insert_default().announced.push_back((path, now + REPEAT_AFTER, 0));
        self.send(Flags::ADD_ADDRESS, path);
    }

    /// Sends an option at once.
    fn send(&mut self, flags: Flags, path: PathId) {
        self.options.get_or_insert_default().due.push_back((flags, path));
    }

    /// Withdraws an address.
    pub fn withdraw(&mut self, path: PathId) {
        self.send(Flags::REMOVE_ADDRESS, path);
    }

    /// Stops announcing an address: the peer has echoed it, or it is gone.
    pub fn forget(&mut self, path: PathId) {
        if let Some(options) = &mut self.options {
            options.announced.retain(|(announced, ..)| *announced != path);
        }
    }

    /// True if an option is to be sent.
    #[inline]
    pub fn is_due(&self) -> bool {
        self.options.as_ref().is_some_and(|options| !options.due.is_empty())
    }

    /// Option to be sent next.
    #[inline]
    pub fn front(&self) -> Option<(Flags, PathId)> {
        self.options.as_ref()?.due.front().copied()
    }

    /// Removes the option of [`front`](Self::front), which has been sent.
    pub fn pop(&mut self) {
        if let Some(options) = &mut self.options {
            options.due.pop_front();
        }
    }

    /// Opens the subflows over `path`, of which there is one at least; they join once another is established.
    fn join(&self, path: PathId, subflows: &mut Subflows) {
        let mut all = subflows.all().iter();
        let alive = all.any(|subflow| subflow.path() == path && !subflow.is_removed());
        if !alive && !subflows.is_full() {
            subflows.add(path);
        }
        for subflow in subflows.all_mut().iter_mut().filter(|subflow| subflow.path() == path) {
            subflow.open(self.established);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Source: Linux `mptcp_pm_add_timer`: three repetitions at `add_addr_timeout`, 120 s.
    #[test]
    fn an_announcement_is_repeated_until_it_is_echoed() {
        let (mut addresses, path) = (Addresses::new(Role::Server), PathId(1));
        let mut now = Instant::ZERO;
        addresses.announce(now, path);
        let mut sent = 0;
        while now < Instant::FAR_FUTURE {
            while addresses.front().is_some_and(|due| due == (Flags::ADD_ADDRESS, path)) {
                addresses.pop();
                sent += 1;
            }
            now = addresses.next_wakeup();
            addresses.wake(now);
        }
        assert_eq!(sent, 1 + MAX_REPEATS);
        addresses.announce(Instant::ZERO, path);
        addresses.forget(path);
        assert_eq!(addresses.next_wakeup(), Instant::FAR_FUTURE);
    }
}
