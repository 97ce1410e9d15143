//! Causes of misses: why a message or a video frame was not there by its deadline.
//!
//! Every miss has one cause. A message that never arrives is refused, expired, unsent, or lost by the copy that was
//! lost last. A message that arrives late is late by propagation if its own transmission and propagation alone exceed
//! the deadline; otherwise by the largest other part of its delay: the wait at the sender, a loss and its
//! retransmission, the queue of the link, a halt of the link, or the wait for order. `docs/explain.md` is the user's
//! side.

use alloc::collections::BTreeMap;

use skybraid_link::Cause;
use skybraid_units::{Duration, Instant};

/// Why a message or a frame missed its deadline. Paths are those of the connection's own numbering.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MissCause {
    /// Lost on a path, and not made good.
    Lost {
        /// The path of the copy that was lost last.
        path: u8,
        /// The effect of the link; `None` where the links are out of sight.
        effect: Option<Cause>,
    },
    /// Lost on a path, and its retransmission arrived too late.
    Retransmission {
        /// The path of the copy that was lost last.
        path: u8,
        /// The effect of the link; `None` where the links are out of sight.
        effect: Option<Cause>,
    },
    /// Late by the backlog of a link.
    Queue {
        /// The path that carried it.
        path: u8,
    },
    /// Late by a halt of a link: a handover, a reconfiguration, or a scripted one.
    Halt {
        /// The path that carried it.
        path: u8,
    },
    /// Late by its own transmission and propagation.
    Propagation {
        /// The path that carried it.
        path: u8,
    },
    /// On its way for too long; queue, halts and propagation are not known apart.
    Link {
        /// The path that carried it.
        path: u8,
    },
    /// Held by the receiver until something before it arrived, or dropped for order's sake.
    Order,
    /// Late by its wait at the sender: for a window, for the scheduler, behind other data.
    Sender,
    /// Refused at the sender, whose queue was full.
    Refused,
    /// Dropped at the sender, where its deadline passed.
    Expired,
    /// Not sent by the end of the run.
    Unsent,
    /// Late or lost behind a proxy.
    Proxy,
    /// A frame: all of it arrived, but a frame that it refers to is damaged.
    Reference,
    /// A frame: shown undamaged, but too late.
    Late,
    /// A frame: packets that the camera dropped before they were written.
    Skipped,
    /// Nothing is known of it any more.
    Unknown,
}

impl MissCause {
    /// The name in summaries.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lost { .. } => "lost",
            Self::Retransmission { .. } => "retransmission",
            Self::Queue { .. } => "queue",
            Self::Halt { .. } => "halt",
            Self::Propagation { .. } => "propagation",
            Self::Link { .. } => "link",
            Self::Order => "order",
            Self::Sender => "sender",
            Self::Refused => "refused",
            Self::Expired => "expired",
            Self::Unsent => "unsent",
            Self::Proxy => "proxy",
            Self::Reference => "reference",
            Self::Late => "late",
            Self::Skipped => "skipped",
            Self::Unknown => "unknown",
        }
    }

    /// The path that it names, if it names one.
    pub const fn path(self) -> Option<u8> {
        match self {
            Self::Lost { path, .. }
            | Self::Retransmission { path, .. }
            | Self::Queue { path }
            | Self::Halt { path }
            | Self::Propagation { path }
            | Self::Link { path } => Some(path),
            _ => None,
        }
    }

    /// The effect of the link that lost the packet, where one did.
    pub fn effect(self) -> Option<&'static str> {
        match self {
            Self::Lost { effect, .. } | Self::Retransmission { effect, .. } => {
                Some(effect.map_or("unknown", Cause::name))
            }
            _ => None,
        }
    }
}

/// Misses by cause.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MissCounts(BTreeMap<MissCause, u64>);

impl MissCounts {
    /// Counts a miss.
    pub fn add(&mut self, cause: MissCause) {
        *self.0.entry(cause).or_default() += 1;
    }

    /// Adds the counts of another run.
    pub fn merge(&mut self, other: &Self) {
        for (cause, count) in &other.0 {
            *self.0.entry(*cause).or_default() += count;
        }
    }

    /// The causes that were counted, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (MissCause, u64)> + '_ {
        self.0.iter().map(|(cause, count)| (*cause, *count))
    }

    /// All misses.
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }
}

/// The misses of a flow's messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Misses {
    /// Messages that never arrive, whatever their deadline.
    pub lost: MissCounts,
    /// For each deadline of [`Summary`](super::Summary), the messages that missed it.
    pub by_deadline: alloc::vec::Vec<MissCounts>,
}

impl Misses {
    /// No miss yet, of so many deadlines.
    pub fn of(deadlines: usize) -> Self {
        Self {
            lost: MissCounts::default(),
            by_deadline: alloc::vec![MissCounts::default(); deadlines],
        }
    }

    /// Adds the misses of another run.
    pub fn merge(&mut self, other: &Self) {
        self.lost.merge(&other.lost);
        for (counts, more) in self.by_deadline.iter_mut().zip(&other.by_deadline) {
            counts.merge(more);
        }
    }
}

/// Time that a packet spent at links before its own transmission, over all links of its way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkWaits {
    /// Behind other packets.
    pub queued: Duration,
    /// While a link was halted.
    pub halted: Duration,
}

/// The arrival of the packet that completes a message, as far as its delay goes.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// When it arrived.
    pub at: Instant,
    /// When it was sent.
    pub sent_at: Instant,
    /// On which path.
    pub path: u8,
    /// Its waits at the links; `None` where the links are out of sight.
    pub waits: Option<LinkWaits>,
}

/// The history of a message that was late, from its writing on.
#[derive(Clone, Copy, Debug)]
pub(super) struct History {
    pub written: Instant,
    /// From writing to the first transmission.
    pub waited: Duration,
    /// The path of the first transmission.
    pub first_path: u8,
    /// The path and effect of the copy that was lost last, if one was.
    pub lost: Option<(u8, Option<Cause>)>,
    /// The first copy that arrived after the shortest deadline; `None` where one arrived before it.
    pub arrival: Option<Arrival>,
    /// When it was delivered, and how long it was held whole before that.
    pub delivered: Option<(Instant, Duration)>,
    /// A proxy splits the connection.
    pub proxied: bool,
}

impl History {
    /// Why the message missed `limit`, if it was late rather than lost.
    pub fn late_by(&self, limit: Duration) -> MissCause {
        let held = self.delivered.map_or(Duration::ZERO, |(_, held)| held);
        let Some(arrival) = self.arrival else { return self.late_behind_others(limit, held) };
        let on_the_way = arrival.at - arrival.sent_at;
        let path = arrival.path;
        let waits = arrival.waits.unwrap_or_default();
        let alone = on_the_way - waits.queued - waits.halted;
        if alone > limit {
            return match arrival.waits {
                Some(_) => MissCause::Propagation { path },
                None => MissCause::Link { path },
            };
        }
        let first_sent = self.written + self.waited;
        let again = arrival.sent_at - first_sent;
        // The last part was there; other parts of the message were not.
        let others = self.delivered.map_or(Duration::ZERO, |(at, held)| at - held - arrival.at);
        let mut parts = [
            (again, self.sent_again()),
            (self.waited, MissCause::Sender),
            (waits.halted, MissCause::Halt { path }),
            (waits.queued, MissCause::Queue { path }),
            (held, MissCause::Order),
            (others, self.lost_or(MissCause::Order)),
            (Duration::ZERO, MissCause::Propagation { path }),
        ];
        if arrival.waits.is_none() {
            parts[6] = (on_the_way, MissCause::Link { path });
        }
        let mut largest = parts[6];
        for part in parts {
            if part.0 > largest.0 {
                largest = part;
            }
        }
        largest.1
    }

    /// The last part arrived in time, but the message was not delivered.
    fn late_behind_others(&self, limit: Duration, held: Duration) -> MissCause {
        match self.delivered {
            Some((at, _)) if at - self.written - held > limit => self.lost_or(MissCause::Order),
            _ => MissCause::Order,
        }
    }

    /// Why the copy that arrived was sent later than the first one.
    fn sent_again(&self) -> MissCause {
        let otherwise = match self.proxied {
            true => MissCause::Proxy,
            // Nothing was lost: the first copy was still on its way.
            false => MissCause::Link { path: self.first_path },
        };
        self.lost_or(otherwise)
    }

    fn lost_or(&self, otherwise: MissCause) -> MissCause {
        self.lost.map_or(otherwise, |(path, effect)| MissCause::Retransmission { path, effect })
    }
}
