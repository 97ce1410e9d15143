//! Queue of a link: drop-tail by packets, bytes or time, or CoDel.

use alloc::collections::VecDeque;
use alloc::string::{String, ToString};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use skybraid_units::{Bytes, Duration, Instant, keys};

use skybraid_units::form::text_or_table;

/// Limit of a queue. Packets and bytes include the packet in service.
///
/// In TOML: `{ packets = 350 }`, `{ packets = 350, holds_delay = true }`, `{ bytes = "64kB" }`, `{ time = "200ms" }`,
/// `"unlimited"` or `{ codel = { target = "5ms", interval = "100ms", packets = 1000 } }`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueConfig {
    /// Maximum number of packets.
    Packets(u64),
    /// Maximum number of packets of a queue that is also the delay line; as in the LTE emulator of MoonGen.
    DelayLine(u64),
    /// Maximum number of bytes.
    Bytes(Bytes),
    /// Maximum wait: a packet is dropped if the packets before it need longer to depart.
    Time(Duration),
    /// CoDel active queue management.
    Codel(Codel),
    /// No limit.
    Unlimited,
}

impl Default for QueueConfig {
    /// 1000 packets, the default queue length of a Linux interface.
    fn default() -> Self {
        Self::Packets(1000)
    }
}

/// Forms of a queue's limit, for errors.
const EXPECTED: &str =
    r#""unlimited", or a table such as { packets = 1000 } or { bytes = "64kB" }"#;

/// Keys of a `queue` table.
#[derive(Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
struct QueueTable {
    packets: Option<u64>,
    holds_delay: Option<bool>,
    bytes: Option<Bytes>,
    time: Option<Duration>,
    codel: Option<Codel>,
}

impl QueueTable {
    fn resolve(self) -> Result<QueueConfig, String> {
        let holds_delay = self.holds_delay;
        let packets = |count| match holds_delay {
            Some(true) => QueueConfig::DelayLine(count),
            _ => QueueConfig::Packets(count),
        };
        let all = [
            self.packets.map(packets),
            self.bytes.map(QueueConfig::Bytes),
            self.time.map(QueueConfig::Time),
            self.codel.map(QueueConfig::Codel),
        ];
        let mut given = all.into_iter().flatten();
        match (given.next(), given.next()) {
            (Some(_), Some(_)) => Err("found several keys, expected exactly one".to_string()),
            (None, _) => Err("expected `packets`, `bytes`, `time` or `codel`".to_string()),
            (Some(_), None) if holds_delay.is_some() && self.packets.is_none() => {
                Err("`holds_delay` belongs to `packets`".to_string())
            }
            (Some(queue), None) => Ok(queue),
        }
    }
}

impl<'de> Deserialize<'de> for QueueConfig {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = |text: &str| match text {
            "unlimited" => Ok(Self::Unlimited),
            _ => Err(alloc::format!("found `{text}`, expected {EXPECTED}")),
        };
        text_or_table(from, EXPECTED, text, QueueTable::resolve)
    }
}

impl Serialize for QueueConfig {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let none = QueueTable::default();
        let table = match self {
            Self::Packets(count) => QueueTable { packets: Some(*count), ..none },
            Self::DelayLine(count) => {
                QueueTable { packets: Some(*count), holds_delay: Some(true), ..none }
            }
            Self::Bytes(size) => QueueTable { bytes: Some(*size), ..none },
            Self::Time(span) => QueueTable { time: Some(*span), ..none },
            Self::Codel(codel) => QueueTable { codel: Some(*codel), ..none },
            Self::Unlimited => return to.serialize_str("unlimited"),
        };
        table.serialize(to)
    }
}

keys! {
    /// CoDel (RFC 8289).
    ///
    /// Packets are dropped at the head of the queue. The RFC does not drop a packet if at most one MTU remains
    /// queued after it. Later arrivals are unknown when a fate is decided, so here a packet is not dropped if at
    /// most one MTU was queued before it on its arrival.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
    pub struct Codel {
        /// Acceptable standing delay; RFC 8289 section 4.3: 5 ms.
        pub target: Duration = Duration::from_millis(5),
        /// Time that the delay may stay above the target; RFC 8289 section 4.3: 100 ms.
        pub interval: Duration = Duration::from_millis(100),
        /// Drop-tail limit; Linux's `codel` has 1000 packets.
        pub packets: u64 = 1000,
    }
}

impl QueueConfig {
    /// Returns an error for a limit, target or interval of zero.
    pub(crate) fn check(&self) -> Result<(), String> {
        let sound = match self {
            Self::Packets(count) | Self::DelayLine(count) => *count > 0,
            Self::Bytes(size) => *size > Bytes::ZERO,
            Self::Time(span) => span.is_positive(),
            Self::Codel(codel) => {
                codel.packets > 0 && codel.target.is_positive() && codel.interval.is_positive()
            }
            Self::Unlimited => true,
        };
        if sound { Ok(()) } else { Err("expected a limit above zero".to_string()) }
    }
}

/// Queue of one direction.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    limit: QueueConfig,
    /// Departure and size of each packet, in order.
    waiting: VecDeque<(Instant, u64)>,
    bytes: u64,
    codel: CodelState,
}

impl Queue {
    pub fn new(limit: QueueConfig) -> Self {
        Self { limit, waiting: VecDeque::new(), bytes: 0, codel: CodelState::default() }
    }

    /// Removes the packets that have departed by `now`.
    pub fn remove_departed(&mut self, now: Instant) {
        while let Some((departure, size)) = self.waiting.front() {
            if *departure > now {
                break;
            }
            self.bytes = self.bytes.saturating_sub(*size);
            self.waiting.pop_front();
        }
    }

    /// Removes the packets that have not departed by `now`.
    pub fn remove_queued(&mut self, now: Instant) {
        while let Some((departure, size)) = self.waiting.back() {
            if *departure <= now {
                break;
            }
            self.bytes = self.bytes.saturating_sub(*size);
            self.waiting.pop_back();
        }
    }

    /// Whether a packet of `size` fits, if the packets before it need `wait` to depart.
    pub fn has_room(&self, size: Bytes, wait: Duration) -> bool {
        match self.limit {
            QueueConfig::Packets(count) => (self.waiting.len() as u64) < count,
            QueueConfig::Bytes(limit) => self.bytes.saturating_add(size.get()) <= limit.get(),
            QueueConfig::Time(limit) => wait <= limit,
            QueueConfig::Codel(codel) => (self.waiting.len() as u64) < codel.packets,
            // The delay line counts for itself.
            QueueConfig::DelayLine(_) | QueueConfig::Unlimited => true,
        }
    }

    /// Adds a packet that departs, sent or dropped, at `departure`.
    pub fn push(&mut self, departure: Instant, size: Bytes) {
        self.waiting.push_back((departure, size.get()));
        self.bytes = self.bytes.saturating_add(size.get());
    }

    /// Bytes queued at `at`, which must not be before the last admission.
    pub fn backlog(&self, at: Instant) -> Bytes {
        let departed = self.waiting.iter().take_while(|(departure, _)| *departure <= at);
        Bytes::new(self.bytes.saturating_sub(departed.map(|(_, size)| size).sum()))
    }

    /// Whether packets may be dropped at the head of the queue.
    pub const fn drops_at_head(&self) -> bool {
        matches!(self.limit, QueueConfig::Codel(_))
    }

    /// Whether CoDel drops the packet that reaches the head of the queue at `head` after a wait of `sojourn`. Must be
    /// called for each packet in order, before [`push`](Self::push).
    pub fn on_head(&mut self, head: Instant, sojourn: Duration, mtu: Bytes) -> bool {
        let QueueConfig::Codel(codel) = self.limit else { return false };
        let spared = self.bytes <= mtu.get();
        self.codel.on_head(codel, head, sojourn, spared)
    }
}

/// State machine of RFC 8289, section 5, run once per packet.
#[derive(Clone, Copy, Debug, Default)]
struct CodelState {
    first_above: Option<Instant>,
    drop_next: Instant,
    count: u32,
    last_count: u32,
    dropping: bool,
    /// Set after a drop in dropping state: the next drop is timed from it.
    reschedule: bool,
}

impl CodelState {
    fn on_head(&mut self, codel: Codel, head: Instant, sojourn: Duration, spared: bool) -> bool {
        let may_drop = self.is_above_target(codel, head, sojourn, spared);
        if self.dropping {
            if !may_drop {
                self.dropping = false;
                self.reschedule = false;
                return false;
            }
            if self.reschedule {
                self.reschedule = false;
                self.drop_next = control_law(codel.interval, self.drop_next, self.count);
            }
            if head < self.drop_next {
                return false;
            }
            self.count = self.count.saturating_add(1);
            self.reschedule = true;
            return true;
        }
        if !may_drop {
            return false;
        }
        self.dropping = true;
        // After a recent dropping state, resume near its drop rate.
        let gained = self.count.saturating_sub(self.last_count);
        let recent = head - self.drop_next < codel.interval * 16;
        self.count = if gained > 1 && recent { gained } else { 1 };
        self.drop_next = control_law(codel.interval, head, self.count);
        self.last_count = self.count;
        true
    }

    /// Whether the sojourn time has been above the target for an interval.
    fn is_above_target(
        &mut self,
        codel: Codel,
        head: Instant,
        sojourn: Duration,
        spared: bool,
    ) -> bool {
        if sojourn < codel.target || spared {
            self.first_above = None;
            return false;
        }
        match self.first_above {
            None => {
                self.first_above = Some(head + codel.interval);
                false
            }
            Some(from) => head >= from,
        }
    }
}

fn control_law(interval: Duration, from: Instant, count: u32) -> Instant {
    from + interval.mul_f64(1.0 / libm::sqrt(f64::from(count.max(1))))
}
