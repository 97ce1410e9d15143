//! The link of one class to the peer: its endpoint, fragments, FEC, counters, and what waits to enter it.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use skybraid_transport::wire::datagram::Decoded;
use skybraid_transport::{Endpoint, PathId, PathInfo, Role, TransportConfig};
use skybraid_units::{Duration, Instant};

use crate::endpoint::{Arrived, ClassEndpoint};
use crate::fair::{Displaced, FairQueue};
use crate::fec::{self, FecDecoder, FecEncoder, RepairConfig};
use crate::health::clock::micros;
use crate::message::{Fragmenter, Reassembler};
use crate::snapshot::{ClassSnapshot, ForecastSnapshot};
use crate::sources::{Client, Component};
use crate::stats::ClassStats;
use crate::{ChannelId, Class};

/// Maximum messages that wait in a transport. Those after them wait in the fair queue.
const MAX_IN_TRANSPORT: usize = 16;

/// Time after which a peer that has never reported an arrival is taken to have no such scheduler.
const MAX_UNANSWERED: Duration = Duration::from_secs(5);

/// Queued message.
#[derive(Debug)]
pub struct Written {
    /// Channel by which it came.
    pub channel: ChannelId,
    /// Time at which it reached this machine.
    pub arrived: Instant,
    /// Whether it is of a key frame.
    pub vital: bool,
    /// Payload.
    pub bytes: Vec<u8>,
}

/// Connection of a class, as its configuration says.
#[derive(Clone, Debug)]
pub struct Connection<'a> {
    /// Class of the messages.
    pub class: Class,
    /// The transport.
    pub transport: &'a TransportConfig,
    /// Maximum age of a message.
    pub life: Option<Duration>,
    /// Paths that carry it.
    pub paths: &'a [PathInfo],
    /// This end of the connection.
    pub role: Role,
    /// Repair packets, if the class has them.
    pub repair: Option<RepairConfig>,
}

/// The link of one class.
#[derive(Debug)]
pub struct ClassLink {
    queue: FairQueue<Client, Component, Written>,
    endpoint: ClassEndpoint,
    fragmenter: Fragmenter,
    reassembler: Reassembler,
    fec: Fec,
    stats: ClassStats,
    /// An alarm says that the deadline cannot be kept.
    reported_unreachable: bool,
    /// The alarm that the peer reports nothing has been raised.
    reported_unanswered: bool,
}

/// Forward error correction of a class.
#[derive(Debug)]
struct Fec {
    encoder: Option<FecEncoder>,
    decoder: FecDecoder,
    /// Packets that arrived or were recovered, until they are reassembled.
    decoded: VecDeque<(Arrived, Vec<u8>)>,
}

impl Fec {
    fn new(repair: Option<RepairConfig>) -> Self {
        let encoder = repair.map(FecEncoder::new);
        Self { encoder, decoder: FecDecoder::default(), decoded: VecDeque::new() }
    }
}

impl ClassLink {
    /// A link before anything was written. Its queue has room for `max_queue` messages; its counters
    /// have `carriers` places, one for each path, and in TCP mode one for the MPTCP connection.
    pub fn new(connection: &Connection<'_>, max_queue: usize, carriers: usize) -> Self {
        Self {
            queue: FairQueue::new(max_queue),
            endpoint: ClassEndpoint::new(connection),
            fragmenter: Fragmenter::default(),
            reassembler: Reassembler::default(),
            fec: Fec::new(connection.repair),
            stats: ClassStats::new(connection.class, carriers),
            reported_unreachable: false,
            reported_unanswered: false,
        }
    }

    /// Replaces the connection after a restart of the peer. What waits in the queue and the counters stay.
    pub fn reconnect(&mut self, connection: &Connection<'_>) {
        self.endpoint = ClassEndpoint::new(connection);
        self.fragmenter = Fragmenter::default();
        self.reassembler = Reassembler::default();
        self.fec = Fec::new(connection.repair);
    }

    /// Queues a message of a source; one of `kind` supersedes the one before it. Returns the message that
    /// lost its place. [`take_excess`](Self::take_excess) must follow.
    pub fn push(
        &mut self,
        (client, component): (Client, Component),
        kind: Option<u32>,
        written: Written,
    ) -> Option<Displaced<Client, Component, Written>> {
        self.queue.push(client, component, written.bytes.len(), kind, written)
    }

    /// Drops a message of the client with the most while all sources together have queued too much.
    pub fn take_excess(&mut self) -> Option<Displaced<Client, Component, Written>> {
        self.queue.take_excess()
    }

    /// Takes the message whose turn it is out of the queue.
    pub fn pop(&mut self) -> Option<(Client, Component, Written)> {
        self.queue.pop()
    }

    /// Whether messages wait in the queue.
    pub fn has_queued(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Number of messages for which the transport has room.
    pub fn room(&self) -> usize {
        MAX_IN_TRANSPORT.saturating_sub(self.endpoint.waiting())
    }

    /// Sets the time from the network here to the peer, which shortens [`max_age`](Self::max_age).
    pub fn set_min_delay(&mut self, min_delay: Duration) {
        self.endpoint.set_min_delay(min_delay);
    }

    /// Maximum age of a message that leaves: an older one could not be at the peer in time.
    pub fn max_age(&self) -> Option<Duration> {
        self.endpoint.max_age()
    }

    /// Whether no message waits in the transport.
    pub fn is_drained(&self) -> bool {
        self.endpoint.waiting() == 0
    }

    /// Writes a message to the transport, in fragments of at most `max` bytes. `wire` is the number of its
    /// channel. Returns false if the message is too large.
    pub fn send(&mut self, now: Instant, wire: u8, max: usize, written: &Written) -> bool {
        let Self { endpoint, fragmenter, fec, .. } = self;
        let Written { arrived, vital, bytes, .. } = written;
        let stamp = micros(*arrived);
        match &mut fec.encoder {
            Some(encoder) => {
                let max = max.saturating_sub(fec::HEAD + fec::LENGTH);
                fragmenter.cut(wire, stamp, bytes, max, &mut |parts| {
                    encoder.encode(now, parts, &mut |packet| {
                        endpoint.write_packet(now, *arrived, packet, *vital);
                    });
                })
            }
            None => fragmenter.cut(wire, stamp, bytes, max, &mut |parts| {
                endpoint.write(now, *arrived, parts, *vital);
            }),
        }
    }

    /// Writes the next datagram to `out` and returns its path.
    pub fn poll_send(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<PathId> {
        self.endpoint.poll_send(now, out)
    }

    /// Records that a datagram left by `path`.
    pub fn on_sent_via(&mut self, path: PathId) {
        if let Some(encoder) = &mut self.fec.encoder {
            encoder.on_sent_via(path);
        }
    }

    /// Handles a datagram of this class; `plain` is all of it.
    pub fn receive(&mut self, now: Instant, path: PathId, decoded: &Decoded, plain: &[u8]) {
        self.endpoint.receive(now, path, decoded, plain);
    }

    /// Writes the next whole message to `out`. Returns its last packet, the number of its channel on the
    /// wire, and the sender's time.
    pub fn poll_message(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<(Arrived, u8, u32)> {
        let Self { endpoint, reassembler, fec, .. } = self;
        loop {
            while let Some((arrived, packet)) = fec.decoded.pop_front() {
                if let Some((channel, stamp)) = reassembler.join(&packet, out) {
                    return Some((arrived, channel, stamp));
                }
            }
            let arrived = endpoint.poll_delivered()?;
            let bytes = endpoint.bytes(arrived.id);
            let mut whole = None;
            if bytes.first() == Some(&fec::MARK) {
                let Fec { decoder, decoded, .. } = fec;
                decoder.on_received(now, bytes, &mut |packet| {
                    decoded.push_back((arrived, packet.to_vec()));
                });
            } else {
                whole = reassembler.join(bytes, out);
            }
            endpoint.free(arrived.id);
            if let Some((channel, stamp)) = whole {
                return Some((arrived, channel, stamp));
            }
        }
    }

    /// Counts the messages that the transport gave up unsent.
    pub fn count_refused(&mut self, now: Instant) {
        let refused = self.endpoint.take_refused(now);
        self.stats.refused(refused.full);
        self.stats.late(refused.late);
    }

    /// The transport, for what the driver knows of its paths.
    pub const fn transport_mut(&mut self) -> &mut Endpoint {
        self.endpoint.transport_mut()
    }

    /// Time of the next call of [`wake`](Self::wake).
    pub fn next_wakeup(&self) -> Instant {
        let group = self.fec.encoder.as_ref().map_or(Instant::FAR_FUTURE, FecEncoder::due);
        self.endpoint.next_wakeup().min(group)
    }

    /// Fires expired timers.
    pub fn wake(&mut self, now: Instant) {
        let Self { endpoint, fec, .. } = self;
        endpoint.wake(now);
        if let Some(encoder) = &mut fec.encoder {
            encoder.wake(now, &mut |packet| endpoint.write_packet(now, now, packet, false));
        }
    }

    /// Rolls the windows of measurements; `loss_of` is the loss of a path as the peer reports it.
    pub fn measure(&mut self, now: Instant, loss_of: impl Fn(PathId) -> f64) {
        self.stats.measure(now);
        if let Some(encoder) = &mut self.fec.encoder {
            encoder.record_loss(loss_of);
        }
    }

    /// Returns the alarm that no plan brings the wanted share of the messages in time, once for as long as
    /// that holds, and the notice that one does again.
    pub fn take_forecast_alarm(&mut self) -> Option<String> {
        let forecast = self.endpoint.forecast()?;
        // Half of the interval lies between the two, so that they do not alternate.
        let unreachable = if self.reported_unreachable {
            !forecast.may_be_reached()
        } else {
            forecast.is_out_of_reach()
        };
        let changed =
            core::mem::replace(&mut self.reported_unreachable, unreachable) != unreachable;
        changed.then(|| format!("{}: {forecast}", self.stats.name()))
    }

    /// Returns the alarm, once, that the peer never reports what arrives: its file has another scheduler for the class.
    pub fn take_unanswered_alarm(&mut self, now: Instant) -> Option<String> {
        if self.reported_unanswered || !self.endpoint.never_answered(now, MAX_UNANSWERED) {
            return None;
        }
        self.reported_unanswered = true;
        let name = self.stats.name();
        Some(format!(
            "{name}: the other end does not report what arrives: give the class this scheduler there too"
        ))
    }

    /// Bytes that FEC adds to each packet, and a repair packet of the transport to the largest.
    pub fn fec_overhead(&self) -> usize {
        let own = self.fec.encoder.as_ref().map_or(0, |_| fec::HEAD + fec::LENGTH);
        own + self.endpoint.repair_overhead()
    }

    /// Counters of the class.
    pub const fn stats_mut(&mut self) -> &mut ClassStats {
        &mut self.stats
    }

    /// State for snapshots.
    pub fn snapshot(&self) -> ClassSnapshot {
        ClassSnapshot {
            repaired: self.fec.decoder.recovered(),
            forecast: self.endpoint.forecast().map(ForecastSnapshot::from),
            ..self.stats.snapshot(self.endpoint.duplicates())
        }
    }
}
