//! Datagrams that arrive: second copies are dropped, order is restored where asked for, and parts
//! are put together.

use alloc::collections::VecDeque;

use skybraid_units::{Duration, Instant};

use super::duplicates::Duplicates;
use crate::reordering::{Arrival, Reorderer, RttKind};
use crate::segment::Datagram;
use crate::{Delivered, PathId, TransportConfig};

/// Messages that may be incomplete at the same time; the oldest is given up beyond that.
const PARTIAL_MESSAGES: usize = 256;

/// The receiving end of an unreliable flow.
#[derive(Debug)]
pub struct Inbox {
    duplicates: Duplicates,
    reorderer: Option<Reorderer>,
    whole: Whole,
}

/// Messages that are being put together, and those that are.
#[derive(Debug, Default)]
struct Whole {
    partial: VecDeque<Partial>,
    delivered: VecDeque<Delivered>,
}

/// A message of which some parts have arrived.
#[derive(Clone, Copy, Debug)]
struct Partial {
    /// Sequence number of its first part. Of a message that was written twice, the parts of one copy
    /// do not complete the other.
    first: u64,
    missing: u16,
}

impl Inbox {
    /// An empty one.
    pub fn new(config: &TransportConfig) -> Self {
        Self {
            duplicates: Duplicates::default(),
            reorderer: config.reordering.build(),
            whole: Whole::default(),
        }
    }

    /// The next message that has arrived whole.
    pub fn poll_delivered(&mut self) -> Option<Delivered> {
        self.whole.delivered.pop_front()
    }

    /// Takes a datagram that arrived on `path`.
    pub fn receive(&mut self, now: Instant, path: PathId, datagram: &Datagram) {
        if datagram.fragments == 0 {
            return;
        }
        if let Some(reorderer) = &mut self.reorderer {
            // A second copy tells as much about its path as a first one.
            reorderer.passed(path, datagram.sequence);
        }
        let whole = &mut self.whole;
        let new = self.duplicates.is_new(datagram.sequence);
        match &mut self.reorderer {
            None if new => whole.add(path, datagram, Duration::ZERO),
            None => {}
            Some(reorderer) => {
                let arrival = new.then_some(Arrival { path, datagram: *datagram, at: now });
                reorderer.insert(now, arrival, &mut |it| {
                    whole.add(it.path, &it.datagram, now.since(it.at));
                });
            }
        }
    }

    /// A packet with the number `sequence` among those of its path arrived, data or not.
    pub fn heard(&mut self, path: PathId, sequence: u64) {
        if let Some(reorderer) = &mut self.reorderer {
            reorderer.heard(path, sequence);
        }
    }

    /// A path's one-way latency was learnt.
    pub fn learn(&mut self, path: PathId, latency: Duration) {
        if let Some(reorderer) = &mut self.reorderer {
            reorderer.learn(path, latency);
        }
    }

    /// Which round-trip time the peer should tell, if one is needed.
    pub fn wants_rtt(&self) -> Option<RttKind> {
        self.reorderer.as_ref().and_then(Reorderer::wants_rtt)
    }

    /// When a wait for a missing datagram ends.
    pub fn next_wakeup(&self) -> Instant {
        self.reorderer.as_ref().map_or(Instant::FAR_FUTURE, Reorderer::next_wakeup)
    }

    /// Lets waits end.
    pub fn wake(&mut self, now: Instant) {
        let whole = &mut self.whole;
        if let Some(reorderer) = &mut self.reorderer {
            reorderer.poll(now, &mut |it| whole.add(it.path, &it.datagram, now.since(it.at)));
        }
    }
}

impl Whole {
    fn add(&mut self, path: PathId, datagram: &Datagram, held: Duration) {
        if datagram.fragments == 1 || self.completes(datagram) {
            let id = datagram.message;
            self.delivered.push_back(Delivered { stream: 0, id, held, path });
        }
    }

    fn completes(&mut self, datagram: &Datagram) -> bool {
        let first = datagram.sequence.saturating_sub(u64::from(datagram.fragment));
        let known = self.partial.iter().position(|part| part.first == first);
        let Some(index) = known else {
            if self.partial.len() >= PARTIAL_MESSAGES {
                self.partial.pop_front();
            }
            self.partial.push_back(Partial { first, missing: datagram.fragments - 1 });
            return false;
        };
        let Some(part) = self.partial.get_mut(index) else {
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
    fn parts_of_two_copies_of_a_message_do_not_complete_each_other() {
        let mut inbox = Inbox::new(&TransportConfig::default());
        let mut take = |sequence, fragment| {
            let datagram = Datagram { sequence, message: 7, len: 1000, fragment, fragments: 2 };
            inbox.receive(Instant::ZERO, PathId(0), &datagram);
            inbox.poll_delivered().map(|message| message.id)
        };
        // The first copy's second part and the second copy's first part have been lost.
        assert_eq!((take(10, 0), take(13, 1)), (None, None));
        assert_eq!(take(12, 0), Some(7));
    }
}
