//! Causes of misses: why a message or a video frame was not delivered by its deadline.
//!
//! Every miss has one cause. A message that is never delivered was refused, expired, unsent, or lost with its most
//! recently lost copy. A message is late by propagation if its own transmission and propagation alone exceed the
//! deadline. Otherwise it is late by the largest other part of its delay: the wait at the sender, a loss and its
//! retransmission, the queue of the link, a halt of the link, or the wait for in-order delivery. User documentation:
//! `docs/explain.md`.

use alloc::collections::BTreeMap;

use skybraid_link::Cause;
use skybraid_units::{Duration, Instant};

/// Cause by which a message or a frame missed its deadline. Paths are in the connection's own numbering.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MissCause {
    /// Lost on a path and not recovered.
    Lost {
        /// Path of the most recently lost copy.
        path: u8,
        /// Effect of the link; `None` if the links are unobserved.
        effect: Option<Cause>,
    },
    /// Lost on a path; its retransmission arrived too late.
    Retransmission {
        /// Path of the most recently lost copy.
        path: u8,
        /// Effect of the link; `None` if the links are unobserved.
        effect: Option<Cause>,
    },
    /// Late by the queue of a link.
    Queue {
        /// Path that carried it.
        path: u8,
    },
    /// Late by a halt of a link: a handover, a reconfiguration, or a scripted halt.
    Halt {
        /// Path that carried it.
        path: u8,
    },
    /// Late by its own transmission and propagation.
    Propagation {
        /// Path that carried it.
        path: u8,
    },
    /// In flight for too long; queue, halts and propagation cannot be separated.
    Link {
        /// Path that carried it.
        path: u8,
    },
    /// Held by the receiver until an earlier message arrived, or dropped to keep the order.
    Order,
    /// Late by its wait at the sender: for the window, for the scheduler, behind other data.
    Sender,
    /// Refused by the sender, whose queue was full.
    Refused,
    /// Dropped by the sender after its deadline.
    Expired,
    /// Not sent by the end of the run.
    Unsent,
    /// Late or lost after a proxy.
    Proxy,
    /// Frame that arrived complete, but refers to a damaged frame.
    Reference,
    /// Frame shown undamaged, but too late.
    Late,
    /// Frame with packets that the camera dropped before they were written.
    Skipped,
    /// Message whose row has been dropped.
    Unknown,
}

impl MissCause {
    /// Name in summaries.
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

    /// Path of the miss, if the cause has one.
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

    /// Name of the link's effect that lost the packet, if one did.
    pub fn effect(self) -> Option<&'static str> {
        match self {
            Self::Lost { effect, .. } | Self::Retransmission { effect, .. } => {
                Some(effect.map_or("unknown", Cause::name))
            }
            _ => None,
        }
    }
}

/// Number of misses by cause.
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

    /// Causes with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (MissCause, u64)> + '_ {
        self.0.iter().map(|(cause, count)| (*cause, *count))
    }

    /// Number of all misses.
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }
}

/// Misses of a flow's messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Misses {
    /// Messages that are never delivered, whatever their deadline.
    pub lost: MissCounts,
    /// For each deadline of [`Summary`](super::Summary), the messages that missed it.
    pub by_deadline: alloc::vec::Vec<MissCounts>,
}

impl Misses {
    /// Creates the counts of `deadlines` deadlines, without a miss.
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

/// Time that a packet waited before its own transmission, summed over all links of its route.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkWaits {
    /// Wait behind other packets.
    pub queued: Duration,
    /// Wait while a link was halted.
    pub halted: Duration,
}

/// Arrival of a packet that completes a message.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Time of arrival.
    pub at: Instant,
    /// Time of transmission.
    pub sent_at: Instant,
    /// Path that it took.
    pub path: u8,
    /// Waits at the links; `None` if the links are unobserved.
    pub waits: Option<LinkWaits>,
}

/// History of a late message.
#[derive(Clone, Copy, Debug)]
pub(super) struct History {
    pub written: Instant,
    /// Time from writing to the first transmission.
    pub waited: Duration,
    /// Path of the first transmission.
    pub first_path: u8,
    /// Path and effect of the most recently lost copy, if one was lost.
    pub lost: Option<(u8, Option<Cause>)>,
    /// First copy that arrived after the shortest deadline; `None` if one arrived before it.
    pub arrival: Option<Arrival>,
    /// Time of delivery, and the time that it was held complete before that.
    pub delivered: Option<(Instant, Duration)>,
    /// Whether a proxy splits the connection.
    pub proxied: bool,
}

impl History {
    /// Returns the cause by which the message, late rather than lost, missed `limit`.
    pub fn late_by(&self, limit: Duration) -> MissCause {
        let held = self.delivered.map_or(Duration::ZERO, |(_, held)| held);
        let Some(arrival) = self.arrival else { return self.late_behind_others(limit, held) };
        let in_flight = arrival.at - arrival.sent_at;
        let path = arrival.path;
        let waits = arrival.waits.unwrap_or_default();
        let alone = in_flight - waits.queued - waits.halted;
        if alone > limit {
            return match arrival.waits {
                Some(_) => MissCause::Propagation { path },
                None => MissCause::Link { path },
            };
        }
        let first_sent = self.written + self.waited;
        let resent_after = arrival.sent_at - first_sent;
        // The wait, after the last part had arrived, for other parts of the message.
        let others = self.delivered.map_or(Duration::ZERO, |(at, held)| at - held - arrival.at);
        let mut parts = [
            (resent_after, self.resend_cause()),
            (self.waited, MissCause::Sender),
            (waits.halted, MissCause::Halt { path }),
            (waits.queued, MissCause::Queue { path }),
            (held, MissCause::Order),
            (others, self.lost_or(MissCause::Order)),
            (Duration::ZERO, MissCause::Propagation { path }),
        ];
        if arrival.waits.is_none() {
            parts[6] = (in_flight, MissCause::Link { path });
        }
        let mut largest = parts[6];
        for part in parts {
            if part.0 > largest.0 {
                largest = part;
            }
        }
        largest.1
    }

    /// Returns the cause for a message whose last part arrived in time.
    fn late_behind_others(&self, limit: Duration, held: Duration) -> MissCause {
        match self.delivered {
            Some((at, _)) if at - self.written - held > limit => self.lost_or(MissCause::Order),
            _ => MissCause::Order,
        }
    }

    /// Returns the cause by which the copy that arrived was sent after the first copy.
    fn resend_cause(&self) -> MissCause {
        let otherwise = match self.proxied {
            true => MissCause::Proxy,
            // No copy was lost: the first was still in flight.
            false => MissCause::Link { path: self.first_path },
        };
        self.lost_or(otherwise)
    }

    fn lost_or(&self, otherwise: MissCause) -> MissCause {
        self.lost.map_or(otherwise, |(path, effect)| MissCause::Retransmission { path, effect })
    }
}
