//! Addresses added and removed during a connection.
//!
//! Source: RFC 8684 §3.4 (ADD_ADDR, REMOVE_ADDR); `add_addr_timeout` and the number of repetitions
//! as in Linux.

use alloc::collections::VecDeque;

use skybraid_units::{Duration, Instant};

use super::subflows::Subflows;
use crate::PathId;
use crate::segment::Flags;

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
    /// Records that a subflow is established. Returns whether it is the first one.
    pub const fn on_established(&mut self) -> bool {
        !core::mem::replace(&mut self.established, true)
    }

    /// Time of the next repetition of an announcement.
    #[inline]
    pub fn next_wakeup(&self) -> Instant {
        self.announced.iter().map(|(_, at, _)| *at).min().unwrap_or(Instant::FAR_FUTURE)
    }

    /// Repeats the announcements that are due.
    #[inline]
    pub fn wake(&mut self, now: Instant) {
        for (path, at, repeats) in &mut self.announced {
            if *at <= now {
                *repeats += 1;
                *at = if *repeats < MAX_REPEATS { now + REPEAT_AFTER } else { Instant::FAR_FUTURE };
                self.due.push_back((Flags::ADD_ADDRESS, *path));
            }
        }
    }

    /// Announces an address until the peer echoes it.
    pub fn announce(&mut self, now: Instant, path: PathId) {
        self.announced.push_back((path, now + REPEAT_AFTER, 0));
        self.due.push_back((Flags::ADD_ADDRESS, path));
    }

    /// Withdraws an address.
    pub fn withdraw(&mut self, path: PathId) {
        self.due.push_back((Flags::REMOVE_ADDRESS, path));
    }

    /// Echoes the peer's announcement.
    pub fn echo(&mut self, path: PathId) {
        self.due.push_back((Flags::ADD_ADDRESS.and(Flags::ECHO_ADDRESS), path));
    }

    /// Stops announcing an address: the peer has echoed it, or it is gone.
    pub fn forget(&mut self, path: PathId) {
        self.announced.retain(|(announced, ..)| *announced != path);
    }

    /// Option to be sent next.
    #[inline]
    pub fn front(&self) -> Option<(Flags, PathId)> {
        self.due.front().copied()
    }

    /// Removes the option of [`front`](Self::front), which has been sent.
    pub fn pop(&mut self) {
        self.due.pop_front();
    }

    /// Opens the subflows over `path`, of which there is one at least; they join once another is established.
    pub fn join(&self, path: PathId, subflows: &mut Subflows) {
        let mut all = subflows.all().iter();
        let alive = all.any(|subflow| subflow.path == path && !subflow.is_removed());
        if !alive && !subflows.is_full() {
            subflows.add(path);
        }
        for subflow in subflows.all_mut().iter_mut().filter(|subflow| subflow.path == path) {
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
        let (mut addresses, path) = (Addresses::default(), PathId(1));
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
