//! Path MTU discovery of one path, in the direction towards the peer (RFC 8899, DPLPMTUD).
//!
//! Probes are numbered per path, and the peer reports the numbers that arrived. Each padded probe directly
//! follows a probe without padding. A padded probe counts as lost due to its size only if the unpadded one
//! arrived, so that outages and loss bursts never shrink a path.
//!
//! | state | size in use | becomes | when |
//! |---|---|---|---|
//! | disabled | base | base | the peer hears the path |
//! | base | base | searching | a packet of the base size has arrived |
//! | base | base | error | such packets are lost, as below |
//! | searching | the largest that has arrived | search complete | every larger size has arrived or been lost |
//! | search complete | the largest that has arrived | searching | the raise timer has expired |
//! | searching, search complete | the largest that has arrived | searching or error | packets of that size are lost: black hole |
//! | error | the largest below base that has arrived, else the minimum | searching | a packet of the base size has arrived |
//!
//! The size in use is confirmed every 600 ms, and probed faster from the first loss on. The size is given up
//! after so many consecutive losses that chance explains them less than once in 10⁶ times, at the loss rate
//! of unpadded packets.

use alloc::collections::VecDeque;

use skybraid_units::{Duration, Instant};

/// Size of IP packets assumed before a path is probed, in bytes: the minimum MTU of IPv6 (RFC 8200 §5;
/// `BASE_PLPMTU` of RFC 8899).
pub const BASE_MTU: u32 = 1280;
/// Size of IP packets that every path must carry, in bytes: what every host reassembles (RFC 791 §3.1;
/// `MIN_PLPMTU` of RFC 8899).
pub const MIN_MTU: u32 = 576;
/// Probed IP packet sizes, ascending: steps below the base, then the MTUs left by tunnels, mobile networks,
/// PPPoE and Ethernet.
const SIZES: [u32; 15] =
    [640, 704, 768, 896, 1024, 1152, BASE_MTU, 1360, 1400, 1428, 1452, 1472, 1492, 1500, 9000];
/// Lost probes after which a larger size counts as too large (RFC 8899 §5.1.2, `MAX_PROBES`).
const MAX_PROBES: u8 = 3;
/// Time between confirmations of the size in use.
const CONFIRM: Duration = Duration::from_millis(600);
/// Time between confirmations past the data cap.
const CONFIRM_SPENT: Duration = Duration::from_secs(10);
/// Time between probes of the size in use after a loss: for the first probes, and once smaller sizes are
/// probed in turn.
const RETRIES: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(100)];
/// Consecutive losses after which smaller sizes are probed too.
const FALL_BACK: u8 = 3;
/// First and maximum time until larger sizes are probed again (RFC 8899 §5.1.1, `PMTU_RAISE_TIMER`), doubled
/// by each search without result.
const RAISE: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(60)];
/// Time between probes of a search.
const SEARCH: Duration = Duration::from_millis(50);
/// Maximum sent probes tracked.
const REMEMBERED: usize = 128;
/// Packet threshold after which a probe counts as lost (RFC 9002 §6.1.1).
const REORDERED: u16 = 3;
/// Probability that random losses count as a black hole.
const CHANCE: f64 = 1e-6;
/// Minimum and maximum consecutive losses that count as a black hole.
const LOSSES: [u8; 2] = [6, 16];

/// State of path MTU discovery (RFC 8899 §5.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MtuState {
    /// Not probed: the peer does not hear the path, or the path is a TCP connection.
    #[default]
    Disabled,
    /// The base size is being confirmed.
    Base,
    /// Larger sizes are being probed.
    Searching,
    /// The largest size is known.
    SearchComplete,
    /// Packets of the base size do not get through.
    Error,
}

/// Change found by discovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MtuChange {
    /// Larger packets of this size in bytes get through.
    Raised(u32),
    /// Packets that got through are now lost.
    BlackHole {
        /// Largest packet before, in bytes.
        from: u32,
        /// Largest packet now, in bytes.
        to: u32,
    },
}

/// Path MTU discovery at the sender.
#[derive(Clone, Debug)]
pub struct MtuSearch {
    state: MtuState,
    /// Max size to probe, and size in use.
    max: u32,
    size: u32,
    sent: VecDeque<Sent>,
    next: u16,
    /// Consecutive losses at the size in use.
    losses: u8,
    /// Loss rate of probes without padding.
    loss: f64,
    candidates: [Candidate; SIZES.len() + 1],
    /// Tries per candidate in this search.
    tries: u8,
    confirm_at: Instant,
    search_at: Instant,
    raise: (Instant, Duration),
    /// Largest smaller size that arrived since the first loss of the size in use.
    fallback: Option<u32>,
    /// Size of the padded probe that leaves next.
    planned: Option<u32>,
    /// Black holes since the start.
    pub black_holes: u64,
}

/// A size that may be probed.
#[derive(Clone, Copy, Debug, Default)]
struct Candidate {
    size: u32,
    tried: u8,
    lost: u8,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    number: u16,
    /// IP packet size of a padded probe, in bytes.
    padded: Option<u32>,
    /// Number of the preceding probe without padding.
    sibling: u16,
    fate: Fate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Unknown,
    Arrived,
    Lost,
}

impl MtuSearch {
    /// Creates a search on a path for packets of up to `max` bytes, at least 576.
    pub fn new(max: u32) -> Self {
        let mut candidates = [Candidate::default(); SIZES.len() + 1];
        let sizes = SIZES.into_iter().filter(|size| *size < max).chain([max]);
        for (candidate, size) in candidates.iter_mut().zip(sizes) {
            candidate.size = size;
        }
        Self {
            state: MtuState::Disabled,
            max,
            size: BASE_MTU.min(max),
            sent: VecDeque::new(),
            next: 0,
            losses: 0,
            loss: 0.0,
            candidates,
            tries: MAX_PROBES,
            confirm_at: Instant::ZERO,
            search_at: Instant::ZERO,
            raise: (Instant::FAR_FUTURE, RAISE[0]),
            fallback: None,
            planned: None,
            black_holes: 0,
        }
    }

    /// Returns the state of discovery.
    pub const fn state(&self) -> MtuState {
        self.state
    }

    /// Returns the largest IP packet that gets through as far as known, in bytes.
    pub const fn size(&self) -> u32 {
        self.size
    }

    /// Whether the size in use is known to be the largest.
    pub const fn is_settled(&self) -> bool {
        matches!(self.state, MtuState::SearchComplete | MtuState::Error)
    }

    fn base(&self) -> u32 {
        BASE_MTU.min(self.max)
    }

    fn min(&self) -> u32 {
        MIN_MTU.min(self.max)
    }

    /// Restarts discovery from the base, since the route may have changed.
    pub fn reset(&mut self) {
        let (next, black_holes) = (self.next, self.black_holes);
        *self = Self { next, black_holes, ..Self::new(self.max) };
    }

    /// Returns the number of the next probe.
    pub const fn next_number(&self) -> u16 {
        self.next
    }

    /// Assigns the number of a sent probe: an IP packet of `padded` bytes, or without padding.
    pub fn on_sent(&mut self, padded: Option<u32>) -> u16 {
        let number = self.next;
        self.next = number.wrapping_add(1);
        if self.sent.len() >= REMEMBERED {
            self.sent.pop_front();
        }
        let small = self.sent.iter().rev().find(|sent| sent.padded.is_none());
        let sibling = small.map_or(number, |sent| sent.number);
        self.sent.push_back(Sent { number, padded, sibling, fate: Fate::Unknown });
        number
    }

    /// Plans the padded probe that is due, as [`poll_probe`](Self::poll_probe) returns it.
    pub fn plan_probe(&mut self, now: Instant, spent: bool) {
        self.planned = self.poll_probe(now, spent);
    }

    /// Takes the size of the planned probe.
    pub const fn take_planned(&mut self) -> Option<u32> {
        self.planned.take()
    }

    /// Returns the IP packet size of the padded probe that is due, in bytes. Must be called right after a
    /// probe without padding was sent, while the peer hears the path. If the data are `spent`, the size is
    /// confirmed less often.
    pub fn poll_probe(&mut self, now: Instant, spent: bool) -> Option<u32> {
        if self.state == MtuState::Disabled {
            self.state = MtuState::Base;
            (self.confirm_at, self.search_at) = (now, now);
        }
        if matches!(self.state, MtuState::SearchComplete | MtuState::Error) && now >= self.raise.0 {
            self.begin_search(now, 1);
        }
        if now >= self.confirm_at {
            let urgent = self.losses > 0 || self.state == MtuState::Base;
            self.confirm_at = now
                + match (urgent, spent) {
                    (true, _) => RETRIES[usize::from(self.losses >= FALL_BACK)],
                    (false, false) => CONFIRM,
                    (false, true) => CONFIRM_SPENT,
                };
            return Some(self.size);
        }
        if self.losses >= FALL_BACK && self.fallback.is_none() {
            return self.poll_fallback(now);
        }
        if now < self.search_at || self.state == MtuState::Base || self.losses > 0 {
            return None;
        }
        self.poll_candidate(now)
    }

    /// Probes smaller sizes in turn, base first, while the size in use seems lost.
    fn poll_fallback(&mut self, now: Instant) -> Option<u32> {
        if now < self.search_at {
            return None;
        }
        self.search_at = now + SEARCH;
        let (min, size) = (self.min(), self.size);
        let smaller = |candidate: &&mut Candidate| candidate.size > min && candidate.size < size;
        let key = |candidate: &&mut Candidate| {
            (candidate.tried, candidate.size != BASE_MTU, candidate.size)
        };
        let next = self.candidates.iter_mut().filter(smaller).min_by_key(key)?;
        next.tried = next.tried.saturating_add(1);
        Some(next.size)
    }

    /// Returns the next larger size: largest first, since most paths carry the MTU of their interface;
    /// smallest first if even the base does not get through.
    fn poll_candidate(&mut self, now: Instant) -> Option<u32> {
        let (size, tries, max) = (self.size, self.tries, self.max);
        let in_error = self.state == MtuState::Error;
        let end = if in_error { self.base() } else { max };
        let too_large = self
            .candidates
            .iter()
            .filter(|candidate| candidate.size > size && candidate.lost >= tries)
            .map(|candidate| candidate.size);
        let end = too_large.min().map_or(end, |too_large| end.min(too_large.saturating_sub(1)));
        let open = |candidate: &&mut Candidate| {
            candidate.size > size && candidate.size <= end && candidate.tried < tries
        };
        let key = |candidate: &&mut Candidate| {
            (candidate.tried, if in_error { candidate.size } else { u32::MAX - candidate.size })
        };
        if let Some(next) = self.candidates.iter_mut().filter(open).min_by_key(key) {
            next.tried += 1;
            self.search_at = now + SEARCH;
            return Some(next.size);
        }
        let waits = self.sent.iter().any(|sent| {
            sent.fate == Fate::Unknown && sent.padded.is_some_and(|padded| padded > size)
        });
        if !waits && self.raise.0 == Instant::FAR_FUTURE {
            if self.state == MtuState::Searching {
                self.state = MtuState::SearchComplete;
            }
            if self.size < self.max {
                self.raise.0 = now + self.raise.1;
                self.raise.1 = (self.raise.1 * 2).min(RAISE[1]);
            }
        }
        None
    }

    fn begin_search(&mut self, now: Instant, tries: u8) {
        if self.state != MtuState::Error {
            self.state = MtuState::Searching;
        }
        self.tries = tries;
        self.search_at = now;
        self.raise.0 = Instant::FAR_FUTURE;
        self.candidates.iter_mut().for_each(|candidate| (candidate.tried, candidate.lost) = (0, 0));
    }

    /// Handles the peer's report of received probes: the newest number, and a bit for it and each of the 31
    /// before it.
    pub fn on_report(&mut self, now: Instant, newest: u16, arrived: u32) -> Option<MtuChange> {
        if arrived & 1 == 0 {
            return None;
        }
        let mut change = None;
        for at in 0..self.sent.len() {
            let Some(sent) = self.sent.get(at).copied() else { continue };
            let behind = newest.wrapping_sub(sent.number);
            let has_arrived = behind < 32 && arrived >> behind & 1 == 1;
            let is_lost = (REORDERED..REMEMBERED as u16).contains(&behind);
            let fate = match sent.fate {
                Fate::Unknown | Fate::Lost if has_arrived => Fate::Arrived,
                Fate::Unknown if is_lost => Fate::Lost,
                _ => continue,
            };
            if let Some(sent) = self.sent.get_mut(at) {
                sent.fate = fate;
            }
            let news = match (fate, sent.padded) {
                (Fate::Arrived, Some(padded)) => self.on_arrived(now, padded),
                (Fate::Lost, Some(padded)) if self.has_arrived(sent.sibling) => {
                    self.on_lost(now, padded)
                }
                (Fate::Lost, Some(padded)) => {
                    self.retry(padded);
                    None
                }
                (fate, None) => {
                    let lost = f64::from(u8::from(fate == Fate::Lost));
                    self.loss += (lost - self.loss) / 64.0;
                    None
                }
                (Fate::Unknown, Some(_)) => None,
            };
            change = news.or(change);
        }
        change
    }

    fn has_arrived(&self, number: u16) -> bool {
        self.sent.iter().any(|sent| sent.number == number && sent.fate == Fate::Arrived)
    }

    /// Retries a probe lost along with its sibling, which says nothing about size.
    fn retry(&mut self, padded: u32) {
        if let Some(candidate) =
            self.candidates.iter_mut().find(|candidate| candidate.size == padded)
        {
            candidate.tried = candidate.tried.saturating_sub(1);
        }
    }

    fn on_arrived(&mut self, now: Instant, padded: u32) -> Option<MtuChange> {
        if padded < self.size {
            if self.losses > 0 {
                self.fallback = self.fallback.max(Some(padded));
            }
            return None;
        }
        self.losses = 0;
        self.fallback = None;
        self.confirm_at = self.confirm_at.max(now + CONFIRM);
        let raised = padded > self.size;
        self.size = padded;
        if self.state == MtuState::Base || (self.state == MtuState::Error && padded >= self.base())
        {
            self.state = MtuState::Searching;
            self.begin_search(now, MAX_PROBES);
        }
        if raised {
            self.raise.1 = RAISE[0];
        }
        raised.then_some(MtuChange::Raised(padded))
    }

    fn on_lost(&mut self, now: Instant, padded: u32) -> Option<MtuChange> {
        if padded > self.size {
            if let Some(candidate) =
                self.candidates.iter_mut().find(|candidate| candidate.size == padded)
            {
                candidate.lost = candidate.lost.saturating_add(1);
            }
            return None;
        }
        if padded < self.size || self.size <= self.min() {
            return None;
        }
        self.losses = self.losses.saturating_add(1);
        if self.losses == 1 {
            self.confirm_at = now;
            // Smaller sizes have not been tried yet.
            self.candidates.iter_mut().for_each(|candidate| candidate.tried = 0);
        }
        (self.losses >= self.losses_of_black_hole()).then(|| self.on_black_hole(now))
    }

    /// Returns the loss count that chance explains less than once in 10⁶ times.
    fn losses_of_black_hole(&self) -> u8 {
        let loss = (self.loss + 0.1).min(0.6);
        let (mut losses, mut chance) = (0, 1.0);
        while chance > CHANCE && losses < LOSSES[1] {
            chance *= loss;
            losses += 1;
        }
        losses.max(LOSSES[0])
    }

    /// Handles a black hole (RFC 8899 §4.3): a smaller size that has arrived since, or the minimum, replaces
    /// the size in use.
    fn on_black_hole(&mut self, now: Instant) -> MtuChange {
        let from = self.size;
        self.size = self.fallback.take().unwrap_or(self.min());
        self.black_holes += 1;
        self.losses = 0;
        self.raise.1 = RAISE[0];
        self.state = if self.size < self.base() { MtuState::Error } else { MtuState::Searching };
        self.begin_search(now, MAX_PROBES);
        // Sizes that were just lost need no immediate retry.
        let too_large = self.candidates.iter_mut().filter(|candidate| candidate.size >= from);
        too_large
            .for_each(|candidate| (candidate.tried, candidate.lost) = (MAX_PROBES, MAX_PROBES));
        self.confirm_at = now + CONFIRM;
        MtuChange::BlackHole { from, to: self.size }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::ProbesSeen;
    use alloc::vec::Vec;

    /// Path with a one-way delay of 45 ms; probes and reports are sent every 50 ms.
    struct Bench {
        search: MtuSearch,
        seen: ProbesSeen,
        limit: u32,
        loss: f64,
        state: u64,
        /// Probes and reports in flight, with their arrival times.
        forth: VecDeque<(i64, u16)>,
        back: VecDeque<(i64, ProbesSeen)>,
        changes: Vec<(i64, MtuChange)>,
        ms: i64,
        padded_bytes: u64,
    }

    impl Bench {
        fn new(max: u32, limit: u32) -> Self {
            Self {
                search: MtuSearch::new(max),
                seen: ProbesSeen::default(),
                limit,
                loss: 0.0,
                state: 1,
                forth: VecDeque::new(),
                back: VecDeque::new(),
                changes: Vec::new(),
                ms: 0,
                padded_bytes: 0,
            }
        }

        /// SplitMix64.
        fn unit(&mut self) -> f64 {
            self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.state;
            z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((z ^ z >> 31) >> 11) as f64 / (1_u64 << 53) as f64
        }

        fn send(&mut self, padded: Option<u32>) {
            let number = self.search.on_sent(padded);
            self.padded_bytes += u64::from(padded.unwrap_or(0));
            let passes = padded.unwrap_or(140) <= self.limit;
            if self.unit() >= self.loss && passes {
                self.forth.push_back((self.ms + 45, number));
            }
        }

        fn run(&mut self, until_ms: i64) {
            while self.ms < until_ms {
                let now = Instant::from_millis(self.ms);
                while self.forth.front().is_some_and(|sent| sent.0 <= self.ms) {
                    let (_, number) = self.forth.pop_front().unwrap();
                    self.seen.on_received(number);
                }
                while self.back.front().is_some_and(|sent| sent.0 <= self.ms) {
                    let (_, seen) = self.back.pop_front().unwrap();
                    let change = self.search.on_report(now, seen.newest, seen.arrived);
                    self.changes.extend(change.map(|change| (self.ms, change)));
                }
                if self.ms % 50 == 0 {
                    self.send(None);
                    if let Some(size) = self.search.poll_probe(now, false) {
                        self.send(Some(size));
                    }
                }
                if self.ms % 50 == 25 && self.unit() >= self.loss {
                    self.back.push_back((self.ms + 45, self.seen));
                }
                self.ms += 1;
            }
        }
    }

    #[test]
    fn the_largest_packet_is_found() {
        let cases = [
            (1500, 1500, 1500),
            (1500, 1430, 1428),
            (1420, 1500, 1420),
            (1500, 1300, 1280),
            (1500, 1279, 1152),
            (1500, 700, 640),
            (1500, 600, 576),
            (1200, 1500, 1200),
            (9000, 9000, 9000),
            (576, 1500, 576),
        ];
        for (max, limit, expected) in cases {
            let mut bench = Bench::new(max, limit);
            bench.run(5_000);
            assert_eq!(bench.search.size(), expected, "{max} {limit}");
            let state =
                if expected < max.min(1280) { MtuState::Error } else { MtuState::SearchComplete };
            assert_eq!(bench.search.state(), state, "{max} {limit}");
        }
    }

    #[test]
    fn a_black_hole_is_found_within_two_seconds_and_recovers() {
        for limit in [1_450, 1_280, 1_100, 700, 580] {
            let mut bench = Bench::new(1500, 1500);
            bench.run(20_030);
            bench.limit = limit;
            bench.run(22_030);
            assert!(bench.search.size() <= limit, "{limit}");
            assert_eq!(bench.search.black_holes, 1);
            bench.run(26_000);
            let best = SIZES.iter().copied().filter(|size| *size <= limit).max().unwrap_or(576);
            assert_eq!(bench.search.size(), best, "{limit}");
            bench.limit = 1_500;
            bench.run(26_000 + 61_000);
            assert_eq!(bench.search.size(), 1_500, "{limit}");
            assert_eq!(bench.search.state(), MtuState::SearchComplete);
        }
    }

    #[test]
    fn loss_by_chance_does_not_shrink_a_path() {
        for loss in [0.1, 0.2, 0.3] {
            let mut bench = Bench::new(1500, 1500);
            bench.run(3_000);
            bench.loss = loss;
            bench.run(3_600_000);
            assert_eq!(bench.search.black_holes, 0, "{loss}");
            assert_eq!(bench.search.size(), 1_500);
        }
    }

    #[test]
    fn an_outage_does_not_shrink_a_path() {
        let mut bench = Bench::new(1500, 1500);
        bench.run(3_000);
        for second in 0..100 {
            bench.limit = if second % 2 == 0 { 0 } else { 1_500 };
            bench.run(3_000 + 1_000 * (second + 1));
        }
        assert_eq!((bench.search.black_holes, bench.search.size()), (0, 1_500));
    }

    #[test]
    fn a_black_hole_is_found_under_loss() {
        for loss in [0.1, 0.3] {
            for seed in 0..50 {
                let mut bench = Bench::new(1500, 1500);
                bench.state = seed;
                bench.loss = loss;
                bench.run(20_000);
                bench.limit = 700;
                bench.run(26_000);
                assert!(bench.search.size() <= 700, "{loss} {seed}");
            }
        }
    }

    #[test]
    fn confirmations_take_at_most_20_kbit_a_second() {
        let mut bench = Bench::new(1500, 1500);
        bench.run(5_000);
        bench.padded_bytes = 0;
        bench.run(65_000);
        assert!(bench.padded_bytes * 8 / 60 <= 20_000, "{}", bench.padded_bytes);
    }
}
