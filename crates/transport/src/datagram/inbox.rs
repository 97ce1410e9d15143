//! Receiver of an unreliable flow: drops duplicates, restores order if configured, and reassembles
//! messages.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use skybraid_units::{Duration, Instant, Promised};

use super::DatagramNumbers;
use crate::reordering::{Arrival, Reorderer, RttKind};
use crate::segment::Datagram;
use crate::{Delivered, PathId, TransportConfig};

/// Maximum incomplete messages; beyond that the oldest is dropped.
const MAX_PARTIAL: usize = 256;

/// Receiver of an unreliable flow.
#[derive(Debug)]
pub struct Inbox {
    seen: DatagramNumbers,
    reorderer: Option<Box<Reorderer>>,
    messages: Messages,
}

/// Reassembly of messages from their fragments.
#[derive(Debug, Default)]
struct Messages {
    partial: VecDeque<Partial>,
    delivered: VecDeque<Delivered>,
}

/// A message with missing fragments.
#[derive(Clone, Copy, Debug)]
struct Partial {
    /// Sequence number of the first fragment. Fragments of two copies of one message do not
    /// complete each other.
    first: u64,
    missing: u16,
}

impl Inbox {
    /// Creates an empty receiver.
    pub fn new(config: &TransportConfig) -> Self {
        Self {
            seen: DatagramNumbers::default(),
            reorderer: config.reordering.build().map(Box::new),
            messages: Messages::default(),
        }
    }

    /// Returns the next complete message.
    #[inline]
    pub fn poll_delivered(&mut self) -> Option<Delivered> {
        self.messages.delivered.pop_front()
    }

    /// Whether datagrams are put in order.
    pub const fn restores_order(&self) -> bool {
        self.reorderer.is_some()
    }

    /// Processes a datagram that arrived on `path` where no order is restored. Returns the message that it completes.
    #[inline]
    pub fn receive_unordered(&mut self, path: PathId, datagram: &Datagram) -> Option<Delivered> {
        let new = datagram.fragments > 0 && self.seen.insert(datagram.sequence);
        if new { self.messages.complete(path, datagram, Duration::ZERO) } else { None }
    }

    /// Processes a datagram that arrived on `path`.
    pub fn receive(&mut self, now: Instant, path: PathId, datagram: &Datagram) {
        if datagram.fragments == 0 {
            return;
        }
        if let Some(reorderer) = &mut self.reorderer {
            // Duplicates count as well: they show how far the path has come.
            reorderer.on_datagram(path, datagram.sequence);
        }
        let messages = &mut self.messages;
        let new = self.seen.insert(datagram.sequence);
        match &mut self.reorderer {
            None if new => messages.add(path, datagram, Duration::ZERO),
            None => {}
            Some(reorderer) => {
                let arrival = new.then_some(Arrival { path, datagram: *datagram, at: now });
                reorderer.insert(now, arrival, &mut |arrival| {
                    messages.add(arrival.path, &arrival.datagram, now.since(arrival.at));
                });
            }
        }
    }

    /// Records the arrival of any packet; `sequence` counts all packets of its path.
    pub fn on_packet(&mut self, path: PathId, sequence: u64) {
        if let Some(reorderer) = &mut self.reorderer {
            reorderer.on_packet(path, sequence);
        }
    }

    /// Adds a sample of a path's one-way latency.
    pub fn on_latency(&mut self, path: PathId, latency: Duration) {
        if let Some(reorderer) = &mut self.reorderer {
            reorderer.on_latency(path, latency);
        }
    }

    /// Round-trip time that the peer must report, if the reordering engine needs one.
    pub fn wants_rtt(&self) -> Option<RttKind> {
        self.reorderer.as_ref().and_then(|reorderer| reorderer.wants_rtt())
    }

    /// Instant at which the next wait for a missing datagram ends.
    #[inline]
    pub fn next_wakeup(&self) -> Instant {
        let reorderer = self.reorderer.as_ref();
        reorderer.map_or(Instant::FAR_FUTURE, |reorderer| reorderer.next_wakeup())
    }

    /// Gives up missing datagrams whose time has come.
    pub fn wake(&mut self, now: Instant) {
        let messages = &mut self.messages;
        if let Some(reorderer) = &mut self.reorderer {
            reorderer.poll(now, &mut |arrival| {
                messages.add(arrival.path, &arrival.datagram, now.since(arrival.at));
            });
        }
    }
}

impl Messages {
    #[inline]
    fn add(&mut self, path: PathId, datagram: &Datagram, held: Duration) {
        let message = self.complete(path, datagram, held);
        self.delivered.extend(message);
    }

    /// Returns the message that a new datagram completes.
    #[inline]
    fn complete(&mut self, path: PathId, datagram: &Datagram, held: Duration) -> Option<Delivered> {
        let complete = datagram.fragments == 1 || self.is_completed_by(datagram);
        complete.then_some(Delivered { stream: 0, id: datagram.message, held, path })
    }

    fn is_completed_by(&mut self, datagram: &Datagram) -> bool {
        let first = datagram.sequence.saturating_sub(u64::from(datagram.fragment));
        let known = self.partial.iter().position(|part| part.first == first);
        let Some(index) = known else {
            if self.partial.len() >= MAX_PARTIAL {
                self.partial.pop_front();
            }
            self.partial.push_back(Partial { first, missing: datagram.fragments - 1 });
            return false;
        };
        let Some(part) = self.partial.get_mut(index).promised("the message just found") else {
            return false;
        };
        part.missing -= 1;
        let complete = part.missing == 0;
        if complete {
            self.partial.remove(index);
        }
        complete
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_of_two_copies_do_not_complete_each_other() {
        let mut inbox = Inbox::new(&TransportConfig::default());
        let mut take = |sequence, fragment| {
            let datagram = Datagram { sequence, message: 7, len: 1000, fragment, fragments: 2 };
            inbox.receive(Instant::ZERO, PathId(0), &datagram);
            inbox.poll_delivered().map(|message| message.id)
        };
        // The second fragment of the first copy and the first fragment of the second copy are lost.
        assert_eq!((take(10, 0), take(13, 1)), (None, None));
        assert_eq!(take(12, 0), Some(7));
    }
}
