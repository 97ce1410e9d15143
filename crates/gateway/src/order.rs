//! Delivery order: no message after its successor, and signed frames in sequence.
//!
//! A receiver of signed frames refuses a frame whose timestamp is not above the last one of the same sender,
//! component and link (MAVLink, message signing). A signed control frame that arrives early is therefore held
//! until earlier frames arrive or are given up. A frame that is late even so is dropped here if its timestamp
//! is verified. Unverified timestamps order nothing: any program at a local endpoint could forge one and shut
//! out the genuine sender.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use skybraid_transport::mutran::mavlink::Header;
use skybraid_units::{Duration, Instant};

use crate::signing::Stamp;

/// Minimum senders and message kinds remembered; beyond, those silent for longest are forgotten.
const KEPT: usize = 4096;
/// Maximum out-of-order messages tracked past a gap; older gaps are dropped.
const REMEMBERED: usize = 1024;

/// Delivery decision for received frames.
#[derive(Debug, Default)]
pub struct Order {
    /// Newest message of each kind: by class, sender, component and message.
    newest: Recent<(u8, u8, u8, u32), u32>,
    /// The newest verified timestamp by sender, component and link.
    signed: Recent<(u8, u8, u8), u64>,
}

impl Order {
    /// Whether the frame with message number `id` may be delivered. `stamp`: verified position in the
    /// sender's order. `latest`: only the newest of the kind counts.
    pub fn admits(
        &mut self,
        class: u8,
        id: u32,
        header: &Header,
        stamp: Option<Stamp>,
        latest: bool,
    ) -> bool {
        let (system, component) = (header.system, header.component);
        if let Some(Stamp { link, timestamp }) = stamp {
            let key = (system, component, link);
            if self.signed.get(&key).is_some_and(|newest| timestamp <= newest) {
                return false;
            }
            self.signed.put(key, timestamp);
        }
        if !latest {
            return true;
        }
        let key = (class, system, component, header.message);
        if self.newest.get(&key).is_some_and(|newest| id.wrapping_sub(newest).cast_signed() < 0) {
            return false;
        }
        self.newest.put(key, id);
        true
    }
}

/// Map of the last [`KEPT`] inserted keys, and at most twice as many.
#[derive(Debug)]
struct Recent<K, V> {
    young: BTreeMap<K, V>,
    old: BTreeMap<K, V>,
}

impl<K, V> Default for Recent<K, V> {
    fn default() -> Self {
        Self { young: BTreeMap::new(), old: BTreeMap::new() }
    }
}

impl<K: Ord, V: Copy> Recent<K, V> {
    fn get(&self, key: &K) -> Option<V> {
        self.young.get(key).or_else(|| self.old.get(key)).copied()
    }

    fn put(&mut self, key: K, value: V) {
        if self.young.len() >= KEPT && !self.young.contains_key(&key) {
            self.old = core::mem::take(&mut self.young);
        }
        self.young.insert(key, value);
    }
}

/// Holds signed frames of a class until earlier messages arrive.
#[derive(Debug, Default)]
pub struct Waiting {
    /// Messages below this have arrived or been given up; the first of a connection is 0.
    done: u32,
    /// Messages that arrived from `done` on, ascending, with their held frames.
    ahead: Vec<(u32, Option<Held>)>,
}

#[derive(Debug)]
struct Held {
    until: Instant,
    bytes: Vec<u8>,
}

/// Whether a message is delivered now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// Delivered at once.
    Now,
    /// Held.
    Later,
}

impl Waiting {
    /// Handles message `id`; if it is signed and an earlier one is missing, it waits for `patience`.
    pub fn on_received(
        &mut self,
        now: Instant,
        id: u32,
        bytes: &[u8],
        signed: bool,
        patience: Duration,
    ) -> Delivery {
        let ahead = id.wrapping_sub(self.done).cast_signed();
        if ahead < 0 {
            return Delivery::Now;
        }
        if ahead == 0 && self.ahead.is_empty() {
            self.done = id.wrapping_add(1);
            return Delivery::Now;
        }
        let waits = signed && ahead > 0;
        let held = waits.then(|| Held { until: now + patience, bytes: bytes.to_vec() });
        let key = |other: u32| other.wrapping_sub(self.done);
        let place = self.ahead.partition_point(|(other, _)| key(*other) < key(id));
        if self.ahead.get(place).is_none_or(|(other, _)| *other != id) {
            self.ahead.insert(place, (id, held));
        }
        if waits { Delivery::Later } else { Delivery::Now }
    }

    /// Writes the next message whose turn has come to `out`, and returns its number.
    pub fn poll(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<u32> {
        loop {
            let (id, _) = self.ahead.first()?;
            // A frame whose wait is over takes those before it along, and one that was not held needs no wait.
            let waits = self.next_held().is_some_and(|until| now < until);
            if *id != self.done && waits && self.ahead.len() < REMEMBERED {
                return None;
            }
            let (id, held) = self.ahead.remove(0);
            self.done = id.wrapping_add(1);
            if let Some(held) = held {
                out.clear();
                out.extend_from_slice(&held.bytes);
                return Some(id);
            }
        }
    }

    /// Time at which the first message that waits is delivered regardless.
    pub fn next_wakeup(&self) -> Instant {
        self.next_held().unwrap_or(Instant::FAR_FUTURE)
    }

    /// Time at which the first wait of a held frame is over.
    fn next_held(&self) -> Option<Instant> {
        let held = self.ahead.iter().filter_map(|(_, held)| held.as_ref());
        held.map(|held| held.until).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    const PATIENCE: Duration = Duration::from_millis(40);

    fn header(system: u8, message: u32, signed: bool) -> Header {
        Header { version: 2, payload: 1, signed, sequence: 0, system, component: 1, message }
    }

    fn stamp(link: u8, timestamp: u64) -> Option<Stamp> {
        Some(Stamp { link, timestamp })
    }

    #[test]
    fn a_frame_with_less_patience_takes_those_before_it_along() {
        let (mut waiting, mut out) = (Waiting::default(), Vec::new());
        let at = Instant::from_millis;
        // The slowest path is given up after the first frame: nobody waits for it any more.
        for (id, patience) in [(1, 500), (2, 20)] {
            let patience = Duration::from_millis(patience);
            let delivery = waiting.on_received(at(0), id, &[id as u8], true, patience);
            assert_eq!(delivery, Delivery::Later);
        }
        assert_eq!((waiting.next_wakeup(), waiting.poll(at(19), &mut out)), (at(20), None));
        let ids: Vec<u32> = core::iter::from_fn(|| waiting.poll(at(20), &mut out)).collect();
        assert_eq!((ids, waiting.next_wakeup()), (vec![1, 2], Instant::FAR_FUTURE));
    }

    #[test]
    fn an_older_set_point_is_dropped_and_an_older_command_kept() {
        let mut order = Order::default();
        let (sticks, command) = (header(255, 69, false), header(255, 76, false));
        assert!(order.admits(0, 10, &sticks, None, true));
        assert!(!order.admits(0, 9, &sticks, None, true));
        assert!(order.admits(0, 8, &command, None, false));
        // Stick messages of another ground station are independent.
        assert!(order.admits(0, 9, &header(254, 69, false), None, true));
        assert!(order.admits(0, 11, &sticks, None, true));
    }

    #[test]
    fn signed_frames_never_go_back_in_time_on_a_link_of_a_component() {
        let mut order = Order::default();
        let signed = header(1, 30, true);
        assert!(order.admits(1, 0, &signed, stamp(3, 100), false));
        assert!(!order.admits(1, 1, &signed, stamp(3, 100), false));
        assert!(!order.admits(0, 0, &signed, stamp(3, 99), false));
        assert!(order.admits(1, 2, &signed, stamp(4, 50), false));
        assert!(order.admits(1, 3, &signed, stamp(3, 101), false));
        assert!(order.admits(1, 4, &signed, None, false), "without a key nothing is known");
    }

    #[test]
    fn a_flood_of_senders_takes_a_bounded_memory_and_no_busy_place() {
        let mut order = Order::default();
        let mut id = 0;
        assert!(order.admits(0, 9, &header(7, 69, true), stamp(0, 9), true));
        for message in 0..50_000 {
            id += 10;
            let sender = header((message % 251) as u8, message, true);
            order.admits(0, id, &sender, stamp((message % 7) as u8, u64::from(id)), true);
            if message % 1000 == 0 {
                let genuine = header(7, 69, true);
                assert!(order.admits(0, id, &genuine, stamp(0, u64::from(id) + 5), true));
                assert!(!order.admits(0, id - 1, &genuine, None, true));
                assert!(!order.admits(0, id + 1, &genuine, stamp(0, 9), true));
            }
        }
        let held = |young: usize, old: usize| young + old;
        let Order { newest, signed } = &order;
        assert!(held(newest.young.len(), newest.old.len()) <= 2 * KEPT);
        assert!(held(signed.young.len(), signed.old.len()) <= 2 * KEPT);
    }

    fn drain(waiting: &mut Waiting, ms: i64) -> Vec<u32> {
        let mut out = Vec::new();
        core::iter::from_fn(|| waiting.poll(Instant::from_millis(ms), &mut out)).collect()
    }

    #[test]
    fn a_signed_frame_waits_for_those_before_it_and_others_do_not() {
        let mut waiting = Waiting::default();
        let mut come = |ms, id, signed| {
            let turn =
                waiting.on_received(Instant::from_millis(ms), id, &[id as u8], signed, PATIENCE);
            (turn, drain(&mut waiting, ms))
        };
        assert_eq!(come(0, 0, true), (Delivery::Now, vec![]));
        assert_eq!(come(10, 2, true), (Delivery::Later, vec![]));
        assert_eq!(come(11, 3, false), (Delivery::Now, vec![]));
        assert_eq!(come(12, 4, true), (Delivery::Later, vec![]));
        assert_eq!(come(30, 1, true), (Delivery::Now, vec![2, 4]));
        assert_eq!(come(31, 5, true), (Delivery::Now, vec![]));
    }

    #[test]
    fn the_first_signed_frame_is_waited_for_too() {
        let mut waiting = Waiting::default();
        let now = Instant::ZERO;
        assert_eq!(waiting.on_received(now, 1, &[1], true, PATIENCE), Delivery::Later);
        assert_eq!(waiting.on_received(now, 0, &[0], true, PATIENCE), Delivery::Now);
        assert_eq!(drain(&mut waiting, 0), [1]);
    }

    #[test]
    fn a_lost_frame_delays_the_next_by_the_timeout_at_most() {
        let mut waiting = Waiting::default();
        let at = Instant::from_millis;
        waiting.on_received(at(0), 0, &[], true, PATIENCE);
        assert_eq!(waiting.on_received(at(10), 2, &[2], true, PATIENCE), Delivery::Later);
        assert_eq!(waiting.on_received(at(15), 3, &[3], true, PATIENCE), Delivery::Later);
        assert_eq!(waiting.next_wakeup(), at(50));
        assert_eq!(drain(&mut waiting, 49), vec![]);
        // The third follows at once: nothing is missing between them.
        assert_eq!(drain(&mut waiting, 50), vec![2, 3]);
        assert_eq!(waiting.next_wakeup(), Instant::FAR_FUTURE);
    }

    #[test]
    fn numbers_go_round() {
        let mut waiting = Waiting::default();
        let at = Instant::from_millis;
        assert_eq!(waiting.on_received(at(0), u32::MAX, &[], true, PATIENCE), Delivery::Now);
        assert_eq!(waiting.on_received(at(0), 1, &[1], true, PATIENCE), Delivery::Later);
        assert_eq!(waiting.on_received(at(1), 0, &[0], true, PATIENCE), Delivery::Now);
        assert_eq!(drain(&mut waiting, 1), vec![1]);
    }
}
