//! The peer that holds the session, and the instances of peers before it.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;

use skybraid_units::{Duration, Instant};

use super::TAKEOVER;
use super::keyed::{Instance, Instances};

/// Time for which a duplicate of the peer is reported after its last session.
const DUPLICATE_REPORTED: Duration = Duration::from_secs(10);
/// Maximum instances of peers that are remembered.
const FORMER: usize = 16;

/// What an end knows of the peer that holds its session. Peers are indices among the trusted peers.
pub(super) struct Holder {
    /// Identifies this start and what it knows of the last peer, to distinguish key changes from restarts. With
    /// any other peer a new one is used: it may keep its transports from before, while this end resets them.
    own: Instance,
    /// The last peer and the instances of its session.
    last: Option<(usize, Instances)>,
    /// Peers before, oldest first.
    former: VecDeque<(usize, Instance)>,
    /// Time at which the holder was last heard.
    heard_at: Option<Instant>,
    /// Time at which a former instance last came back after another of the same key.
    returned_at: Option<Instant>,
}

/// The session before, which another peer or a restart has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Replaced {
    /// This end's instance in the sessions with the peer before; none before the first.
    pub own: Option<Instance>,
}

impl Holder {
    /// Creates what an end knows at its start, whose instance is `own`.
    pub const fn new(own: Instance) -> Self {
        Self { own, last: None, former: VecDeque::new(), heard_at: None, returned_at: None }
    }

    /// Returns this end's instance for a peer, or `None` if it needs a new one: what this one knows is of another peer.
    /// `theirs` is the peer's instance, where it is known already.
    pub fn instance_for(&self, peer: usize, theirs: Option<Instance>) -> Option<Instance> {
        let knows = |(last, of): (usize, Instances)| {
            last == peer && theirs.is_none_or(|theirs| of.peer == theirs)
        };
        self.last.is_none_or(knows).then_some(self.own)
    }

    /// Replaces this end's instance.
    pub const fn renew(&mut self, own: Instance) {
        self.own = own;
    }

    /// Records an authentic datagram of the holder.
    pub const fn on_heard(&mut self, now: Instant) {
        self.heard_at = Some(now);
    }

    /// Time at which the holder was last heard.
    pub const fn heard_at(&self) -> Option<Instant> {
        self.heard_at
    }

    /// Whether something authentic has come from the holder lately.
    pub fn is_heard(&self, now: Instant) -> bool {
        self.heard_at.is_some_and(|heard| now.since(heard) < TAKEOVER)
    }

    /// Returns true if two gateways with the peer's key are heard: an instance that was replaced has returned, or
    /// another one has asked since. A gateway that is restarted has a new instance.
    pub fn is_duplicated(&self, now: Instant) -> bool {
        self.returned_at.is_some_and(|at| now.since(at) < DUPLICATE_REPORTED)
    }

    /// Whether the holder is heard, and so is another gateway with its key.
    pub fn is_contested(&self, now: Instant) -> bool {
        self.is_heard(now) && self.is_duplicated(now)
    }

    /// Whether an instance is another gateway with the key of the holder, which is heard. Recognised once an
    /// instance has come back: the first of them then keeps the session.
    pub fn is_second(&mut self, now: Instant, peer: usize, theirs: Instance) -> bool {
        let holder = self.last.filter(|_| self.is_contested(now));
        let is_second = holder.is_some_and(|(held, of)| held == peer && of.peer != theirs);
        if is_second {
            self.on_returned(now);
        }
        is_second
    }

    /// Whether an instance that another has replaced answers this end's present one: it would keep its transports
    /// while this end resets them.
    pub fn is_replaced_one(&self, peer: usize, instances: Instances) -> bool {
        self.last.is_some_and(|(_, last)| last.own == instances.own && last.peer != instances.peer)
            && self.is_former(peer, instances.peer)
    }

    /// Records that an instance which was replaced has come back.
    pub const fn on_returned(&mut self, now: Instant) {
        self.returned_at = Some(now);
    }

    /// Makes a peer the holder. Returns what it has replaced, unless it was the holder with the same instances: then
    /// only keys have changed.
    pub fn establish(
        &mut self,
        now: Instant,
        peer: usize,
        instances: Instances,
    ) -> Option<Replaced> {
        self.on_heard(now);
        self.own = instances.own;
        if self.last == Some((peer, instances)) {
            return None;
        }
        let Some((last, of)) = self.last.replace((peer, instances)) else {
            return Some(Replaced { own: None });
        };
        if last == peer && of.peer != instances.peer && self.is_former(peer, instances.peer) {
            self.on_returned(now);
        }
        if self.former.len() >= FORMER {
            self.former.pop_front();
        }
        self.former.push_back((last, of.peer));
        Some(Replaced { own: Some(of.own) })
    }

    fn is_former(&self, peer: usize, theirs: Instance) -> bool {
        self.former.contains(&(peer, theirs))
    }

    /// Describes the holder without times.
    pub fn described(&self) -> String {
        format!("{:?}", (self.own, self.last, self.former.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Instance = [1; 8];
    const FIRST: Instances = Instances { own: OWN, peer: [2; 8] };
    const SECOND: Instances = Instances { own: OWN, peer: [3; 8] };

    fn after(millis: i64) -> Instant {
        Instant::from_millis(millis)
    }

    #[test]
    fn a_key_change_replaces_nobody_and_a_restart_does() {
        let mut holder = Holder::new(OWN);
        assert_eq!(holder.establish(after(0), 0, FIRST), Some(Replaced { own: None }));
        assert_eq!(holder.establish(after(1), 0, FIRST), None);
        assert_eq!(holder.establish(after(2), 0, SECOND), Some(Replaced { own: Some(OWN) }));
        assert!(!holder.is_duplicated(after(2)));
    }

    #[test]
    fn another_peer_gets_another_instance() {
        let mut holder = Holder::new(OWN);
        assert_eq!(holder.instance_for(1, None), Some(OWN));
        holder.establish(after(0), 0, FIRST);
        assert_eq!(holder.instance_for(0, None), Some(OWN));
        assert_eq!(holder.instance_for(0, Some(FIRST.peer)), Some(OWN));
        assert_eq!(holder.instance_for(0, Some(SECOND.peer)), None);
        assert_eq!(holder.instance_for(1, None), None);
    }

    #[test]
    fn one_that_comes_back_shows_two_with_one_key() {
        let mut holder = Holder::new(OWN);
        for (millis, instances) in [(0, FIRST), (100, SECOND), (200, FIRST)] {
            assert!(!holder.is_second(after(millis), 0, instances.peer));
            holder.establish(after(millis), 0, instances);
        }
        assert!(holder.is_contested(after(200)));
        assert!(holder.is_second(after(300), 0, SECOND.peer));
        assert!(holder.is_replaced_one(0, SECOND) && !holder.is_replaced_one(0, FIRST));
        let silent = after(200) + TAKEOVER;
        assert!(!holder.is_contested(silent) && !holder.is_second(silent, 0, SECOND.peer));
    }
}
