//! One path: what has been measured on it, and what is next to be measured.

use alloc::string::{String, ToString};
use core::net::SocketAddr;

use skybraid_transport::PathInfo;
use skybraid_units::{Bytes, Duration, Instant};

use super::clock::{Transit, micros, nearest};
use super::probe::Report;
use super::watch::Watch;
use crate::config::PathConfig;
use crate::event::PathState;

/// Bytes of the IP packet that every path is taken to carry (the least MTU of IPv6, RFC 8200 §5).
pub const LEAST_MTU: u32 = 1280;
/// Sizes of IP packets that are tried, ascending: what tunnels, mobile networks, PPPoE and Ethernet leave.
const SIZES: [u32; 8] = [1360, 1400, 1428, 1452, 1472, 1492, 1500, 9000];
/// How often each size is tried before it is taken for too large (RFC 8899 §5.1.2, MAX_PROBES).
const TRIES: u32 = 3;
/// Datagrams larger than anything that the peer has received since the path came back, after which the
/// path is taken to have become narrower (RFC 8899 §4.3, black hole detection).
const SWALLOWED: u32 = 20;
/// After so long sizes that failed are tried anew (RFC 8899 §5.1.1, PMTU_RAISE_TIMER).
const TRY_AGAIN: Duration = Duration::from_secs(600);
/// Loss and rates are measured over windows of this length.
const WINDOW: Duration = Duration::from_secs(1);
/// A lowest round-trip time is forgotten after one to two times this.
const LEAST_RTT_WINDOW: Duration = Duration::from_secs(30);

/// One path.
#[derive(Clone, Debug)]
pub struct Path {
    /// Its name.
    pub name: String,
    /// What the user has said of it.
    pub config: PathConfig,
    /// Where the peer is, as far as is known.
    pub remote: Option<SocketAddr>,
    /// There is an interface to send on.
    pub present: bool,
    /// The stream that carries it has room (TCP mode).
    pub writable: bool,
    /// That its data are used up has been told.
    pub told_spent: bool,
    /// What arrives.
    pub watch: Watch,
    /// How the peer says that it stands, for what we send.
    pub outgoing: PathState,
    /// What the peer told last.
    pub told: Option<Report>,
    /// Transit times of what arrives.
    pub transit: Transit,
    /// Smoothed round-trip time, and the least of the current window and of the one before.
    pub rtt: Option<Duration>,
    least_rtt: [Option<Duration>; 2],
    least_since: Instant,
    /// The peer's newest probe: when it had left, and when it arrived.
    echo: Option<(u32, Instant)>,
    /// When to show a sign of life next.
    pub probe_at: Instant,
    /// Largest IP packet that has arrived.
    pub largest: u32,
    /// Largest IP packet that the peer has received.
    pub mtu: u32,
    /// Size of the IP packet that leaves next, to try whether it goes through.
    pub trying: Option<u32>,
    search: Search,
    swallowed: u32,
    /// Totals.
    pub totals: Totals,
    numbers: Numbers,
    window: Window,
}

/// What has passed on a path.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Bytes of IP packets that left.
    pub outgoing_bytes: u64,
    /// … that arrived.
    pub incoming_bytes: u64,
    /// Datagrams that left.
    pub outgoing: u64,
    /// … that arrived.
    pub incoming: u64,
    /// Control messages that arrived here first.
    pub control_won: u64,
    /// How often it has been given up.
    pub given_up: u64,
}

/// The search for the largest packet (RFC 8899, much simplified: what arrived is told with each report).
#[derive(Clone, Copy, Debug, Default)]
struct Search {
    /// Rounds over all sizes so far, and the size tried last in this one.
    rounds: u32,
    last: Option<u32>,
    /// Nothing is tried before.
    not_before: Instant,
}

/// Numbers of datagrams, by which losses are counted.
#[derive(Clone, Copy, Debug, Default)]
struct Numbers {
    next: u64,
    seen: u64,
    next_before: u64,
    seen_before: u64,
}

/// What was measured over the last window.
#[derive(Clone, Copy, Debug, Default)]
pub struct Window {
    since: Instant,
    before: (u64, u64),
    /// Share of datagrams lost on the way here.
    pub loss: f64,
    /// Bits a second that left.
    pub outgoing_bps: f64,
    /// Bits a second that arrived.
    pub incoming_bps: f64,
}

impl Path {
    /// A path of which nothing is known.
    pub fn new(now: Instant, name: &str, config: &PathConfig) -> Self {
        Self {
            name: name.to_string(),
            config: config.clone(),
            remote: None,
            present: true,
            writable: true,
            told_spent: false,
            watch: Watch::default(),
            outgoing: PathState::Unheard,
            told: None,
            transit: Transit::default(),
            rtt: None,
            least_rtt: [None; 2],
            least_since: now,
            echo: None,
            probe_at: now,
            largest: 0,
            mtu: LEAST_MTU.min(config.mtu.get() as u32),
            trying: None,
            search: Search::default(),
            swallowed: 0,
            totals: Totals::default(),
            numbers: Numbers::default(),
            window: Window { since: now, ..Window::default() },
        }
    }

    /// The peer has been started anew: what was measured with it counts no more.
    pub fn forget_peer(&mut self) {
        self.watch = Watch::default();
        self.outgoing = PathState::Unheard;
        self.transit = Transit::default();
        self.told = None;
        self.echo = None;
        self.numbers = Numbers::default();
        self.forget_size();
    }

    /// The route may have changed: what went through counts no more.
    pub fn forget_size(&mut self) {
        self.largest = 0;
        self.mtu = LEAST_MTU.min(self.config.mtu.get() as u32);
        self.search = Search::default();
        self.swallowed = 0;
    }

    /// It has been given up: what arrives has to prove anew how large a packet may be.
    pub fn give_up(&mut self) {
        self.totals.given_up += 1;
        self.largest = 0;
    }

    /// What transports are told of it.
    pub fn info(&self) -> PathInfo {
        let Self { config, .. } = self;
        let (mtu, backup) = (config.mtu, config.backup);
        PathInfo { mtu, cost: config.cost, backup, priority: config.priority }
    }

    /// Something arrives on it.
    pub fn is_heard(&self) -> bool {
        !matches!(self.watch.state(), PathState::Down | PathState::Unheard)
    }

    /// Bytes of the headers of IP and UDP around a datagram.
    pub fn around(&self) -> u32 {
        if self.remote.is_some_and(|remote| remote.is_ipv6()) { 48 } else { 28 }
    }

    /// Its data are used up.
    pub fn is_spent(&self) -> bool {
        self.data_left() == Some(0)
    }

    /// What is left of its data, where it has a cap.
    pub fn data_left(&self) -> Option<u64> {
        let used = self.totals.outgoing_bytes + self.totals.incoming_bytes;
        self.config.data_cap.map(|cap: Bytes| cap.get().saturating_sub(used))
    }

    /// A datagram of so many octets leaves.
    pub fn leaves(&mut self, octets: usize) {
        let bytes = octets as u32 + self.around();
        self.totals.outgoing += 1;
        self.totals.outgoing_bytes += u64::from(bytes);
        let told = self.told.filter(|_| self.outgoing == PathState::Up);
        if bytes > LEAST_MTU && told.is_some_and(|told| bytes > u32::from(told.largest)) {
            self.swallowed += 1;
            if self.swallowed > SWALLOWED && bytes <= self.mtu {
                self.forget_size();
            }
        }
    }

    /// An authentic datagram with its number arrived. Returns what the state was if it changes.
    pub fn arrives(&mut self, now: Instant, octets: usize, number: u64) -> Option<PathState> {
        let bytes = octets as u32 + self.around();
        self.totals.incoming += 1;
        self.totals.incoming_bytes += u64::from(bytes);
        self.largest = self.largest.max(bytes);
        self.numbers.next = self.numbers.next.max(number + 1);
        self.numbers.seen += 1;
        self.watch.hear(now)
    }

    /// Keys have changed, and numbers with them begin anew.
    pub fn restart_numbers(&mut self) {
        self.numbers = Numbers::default();
    }

    /// A probe of the peer arrived that had left at `sent_us` and echoes ours.
    pub fn probed(&mut self, now: Instant, sent_us: u32, echo: Option<(u32, u32)>) {
        self.echo = Some((sent_us, now));
        let arrived = i64::from(micros(now).wrapping_sub(sent_us).cast_signed());
        self.transit.sample(now, Duration::from_micros(arrived));
        let Some((left, held)) = echo else { return };
        let rtt = micros(now).wrapping_sub(left).wrapping_sub(held).cast_signed();
        let rtt = Duration::from_micros(i64::from(rtt));
        if !rtt.is_positive() {
            return;
        }
        let smoothed = self.rtt.unwrap_or(rtt);
        self.rtt = Some(smoothed + Duration::from_nanos((rtt - smoothed).as_nanos() / 8));
        if now.since(self.least_since) > LEAST_RTT_WINDOW {
            self.least_rtt = [None, self.least_rtt[0]];
            self.least_since = now;
        }
        self.least_rtt[0] = Some(self.least_rtt[0].map_or(rtt, |least| least.min(rtt)));
    }

    /// The lowest round-trip time of the last minute.
    pub fn least_rtt(&self) -> Option<Duration> {
        self.least_rtt.iter().flatten().min().copied()
    }

    /// What our next probe echoes.
    pub fn echo(&self, now: Instant) -> Option<(u32, u32)> {
        let (left, arrived) = self.echo?;
        let held = (now.since(arrived).as_nanos() / 1_000).clamp(0, i64::from(u32::MAX));
        Some((left, held as u32))
    }

    /// What we tell the peer of the path, under its number on the wire.
    pub fn report(&self, number: u8) -> Report {
        let us = |transit: Option<Duration>| {
            (nearest(transit.unwrap_or_default()).as_nanos() / 1_000) as i32
        };
        Report {
            path: number,
            state: self.watch.state(),
            loss: (self.window.loss * 65_535.0) as u16,
            transit_us: us(self.transit.smoothed()),
            least_us: us(self.transit.least()),
            jitter: (self.transit.jitter().as_nanos() / 10_000).clamp(0, 65_535) as u16,
            largest: self.largest.min(65_535) as u16,
        }
    }

    /// The share of datagrams that does not get through, as the peer has told it.
    pub fn outgoing_loss(&self) -> f64 {
        self.told.map_or(0.0, |told| f64::from(told.loss) / 65_535.0)
    }

    /// The least transit times in and out, where both are known.
    pub fn least_transits(&self) -> Option<(Duration, Duration)> {
        let told = self.told.filter(|told| told.state != PathState::Unheard)?;
        Some((self.transit.least()?, Duration::from_micros(i64::from(told.least_us))))
    }

    /// The size of the IP packet that the next probe should have to try whether it goes through; `None`
    /// when nothing is to be tried.
    pub fn try_size(&mut self, now: Instant) -> Option<u32> {
        if self.outgoing != PathState::Up || now < self.search.not_before {
            return None;
        }
        // The largest first: most paths carry all that their interface does.
        let most = self.config.mtu.get() as u32;
        let open = |size: &u32| {
            *size > self.mtu && *size <= most && self.search.last.is_none_or(|last| *size < last)
        };
        let size = SIZES.iter().copied().chain([most]).filter(open).max();
        let first = self.search.last.is_none();
        self.search.last = size;
        if size.is_some() {
            return size;
        }
        self.search.rounds += 1;
        // The next round waits for the peer's report on this one.
        let patience = self.rtt.unwrap_or_default() + Duration::from_millis(200);
        let over = first || self.search.rounds == TRIES;
        self.search.not_before = now + if over { TRY_AGAIN } else { patience };
        if over {
            self.search.rounds = 0;
        }
        None
    }

    /// The peer tells the largest packet that it has received. True when that is news.
    pub fn learn_size(&mut self, largest: u16) -> bool {
        if u32::from(largest) >= self.mtu {
            self.swallowed = 0;
        }
        let grows = u32::from(largest) > self.mtu;
        if grows {
            self.mtu = u32::from(largest);
        }
        grows
    }

    /// Loss and rates of the last window.
    pub const fn window(&self) -> &Window {
        &self.window
    }

    /// Ends the window if it is over.
    pub fn measure(&mut self, now: Instant) {
        let length = now.since(self.window.since);
        if length < WINDOW {
            return;
        }
        let Numbers { next, seen, next_before, seen_before } = self.numbers;
        let expected = next.saturating_sub(next_before);
        if expected > 0 {
            let arrived = seen.saturating_sub(seen_before) as f64;
            self.window.loss = (1.0 - arrived / expected as f64).clamp(0.0, 1.0);
        }
        (self.numbers.next_before, self.numbers.seen_before) = (next, seen);
        let (outgoing, incoming) = (self.totals.outgoing_bytes, self.totals.incoming_bytes);
        let rate = |bytes: u64| 8.0 * bytes as f64 / length.as_secs_f64();
        self.window.outgoing_bps = rate(outgoing - self.window.before.0);
        self.window.incoming_bps = rate(incoming - self.window.before.1);
        self.window.before = (outgoing, incoming);
        self.window.since = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(mtu: u64) -> Path {
        let config = PathConfig { mtu: Bytes::new(mtu), ..PathConfig::default() };
        Path { outgoing: PathState::Up, ..Path::new(Instant::ZERO, "lte", &config) }
    }

    /// The largest packet that is found on a path that carries packets up to `limit`.
    fn found(configured: u64, limit: u32) -> u32 {
        let mut path = path(configured);
        for ms in 0..20_000 {
            let now = Instant::from_millis(ms);
            if let Some(size) = path.try_size(now).filter(|size| *size <= limit) {
                path.learn_size(size as u16);
            }
        }
        path.mtu
    }

    #[test]
    fn the_largest_packet_is_found_between_the_least_and_what_is_configured() {
        assert_eq!(found(1500, 1500), 1500);
        assert_eq!(found(1500, 1430), 1428);
        assert_eq!(found(1420, 1500), 1420);
        assert_eq!(found(1500, 1300), 1280);
        assert_eq!(found(1200, 1500), 1200);
    }

    #[test]
    fn a_path_that_came_back_narrower_is_found_out_by_what_it_swallows() {
        let mut path = path(1500);
        path.learn_size(1500);
        let report = |largest| Some(Report { largest, ..Report::default() });
        path.told = report(1500);
        (0..100).for_each(|_| path.leaves(1_400));
        assert_eq!(path.mtu, 1500);
        // It was given up meanwhile; small datagrams alone arrive since.
        path.told = report(200);
        (0..SWALLOWED).for_each(|_| path.leaves(1_400));
        assert_eq!(path.mtu, 1500);
        path.leaves(1_400);
        assert_eq!(path.mtu, LEAST_MTU);
    }

    #[test]
    fn a_lost_tenth_of_the_datagrams_shows_as_such_whatever_their_order() {
        let mut path = path(1500);
        for number in (0..1_000).filter(|number| number % 10 != 3) {
            path.arrives(Instant::ZERO, 100, number ^ 1);
        }
        path.measure(Instant::from_millis(1_000));
        assert!((path.window().loss - 0.1).abs() < 0.002, "{}", path.window().loss);
    }

    #[test]
    fn a_round_trip_is_measured_by_an_echo_without_the_time_that_the_peer_held_it() {
        let (mut ours, mut peers) = (path(1500), path(1500));
        let peers_clock = Duration::from_secs(4_000);
        let at = Instant::from_millis;
        peers.probed(at(30) + peers_clock, micros(at(10)), None);
        let echo = peers.echo(at(65) + peers_clock);
        ours.probed(at(105), micros(at(65) + peers_clock), echo);
        assert_eq!(ours.rtt, Some(Duration::from_millis(60)));
    }
}
