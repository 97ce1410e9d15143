//! What becomes of a subflow's packets, for schedulers that send copies before a deadline.
//!
//! Source: RFC 4340 §13 (Timestamp and Elapsed Time: when a packet arrived by the peer's clock).

use skybraid_units::{Duration, Instant};

use super::Subflow;
use crate::datagram::PeerClock;
use crate::mpdccp::sent_packets::Fate;
use crate::segment::Dccp;

/// State of a subflow whose packets are tracked.
#[derive(Debug, Default)]
pub struct Tracking {
    clock: PeerClock,
    /// One-way delay of the packet acknowledged last; those acknowledged with it took about as long.
    delay: Duration,
    /// Time of the last packet whose fate will be known.
    last_sent: Instant,
}

impl Tracking {
    pub const fn on_sent(&mut self, now: Instant) {
        self.last_sent = now;
    }

    /// Records that the packet that `dccp` acknowledges, sent by the peer at `sent_at`, was acknowledged after `age`.
    pub fn on_acked(&mut self, now: Instant, sent_at: Instant, dccp: &Dccp, age: Duration) {
        let arrived = sent_at - dccp.elapsed;
        self.delay = self.clock.delay(now, age - dccp.elapsed, arrived.since(now - age));
    }
}

impl Subflow {
    /// Starts tracking packets for [`take_fates`](Self::take_fates).
    pub fn track(&mut self) {
        self.sent.record_fates();
        self.tracking = Some(Tracking::default());
    }

    /// Takes what is known of packets since the last call: the time of sending, the datagram's sequence number (none
    /// for a probe), and the one-way delay (none if lost).
    pub fn take_fates(
        &mut self,
    ) -> impl Iterator<Item = (Instant, Option<u64>, Option<Duration>)> + '_ {
        let delay = self.tracking.as_ref().map(|tracking| tracking.delay);
        self.sent.take_fates().map(move |Fate { sent_at, sequence, arrived }| {
            (sent_at, sequence, delay.filter(|_| arrived))
        })
    }

    /// Requests a Sync if nothing has been sent for `every` and nothing is in flight, so that the path's delay is
    /// known.
    pub fn probe_if_idle(&mut self, now: Instant, every: Duration) {
        if let Some(tracking) = &self.tracking
            && self.is_established()
            && now.since(tracking.last_sent) >= every
            && self.sent.all_settled()
        {
            self.probe.set_sync_due(true);
        }
    }
}
