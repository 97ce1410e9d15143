//! Messages from local applications: classes, fair queueing, transfer to the transports.

use alloc::vec::Vec;

use skybraid_transport::PathId;
use skybraid_units::{Duration, Instant};

use super::{Gateway, Kind, MAX_SPARE, frame_header};
use crate::config::Network;
use crate::event::PathState;
use crate::fair::Displaced;
use crate::health::Path;
use crate::health::clock::nearest;
use crate::health::mtu::BASE_MTU;
use crate::link::{ClassLink, Written};
use crate::message;
use crate::session::OVERHEAD;
use crate::signing::Signature;
use crate::sources::{Client, Component, Fate, Origin};
use crate::{ChannelId, Class};

/// Maximum transport header size in bytes: MP-DCCP with acknowledgements.
const INSIDE: u32 = 100;

/// Window of the driver lag, whose maximum covers one to two windows.
const LAG_WINDOW: Duration = Duration::from_millis(50);

/// Driver lag that does not count as a queue: time slices of the machine's scheduler.
const DEFAULT_LAG: Duration = Duration::from_millis(5);

/// Time within which two control sources count as concurrent.
const WRITES: Duration = Duration::from_secs(5);
/// Additional delay that a sole control source may cause.
const ALONE: Duration = Duration::from_millis(100);

/// Control source and the time of its last write.
pub(super) type Writer = (Client, Component, Instant);

impl Gateway {
    /// Queues a MAVLink frame, datagram or IP packet written now by a local application.
    pub fn write(&mut self, now: Instant, channel: ChannelId, bytes: &[u8]) {
        let client = Client::default();
        self.write_from(now, channel, &Origin { client, arrived: now }, bytes);
    }

    /// Queues a MAVLink frame, datagram or IP packet of a local application, to be sent by the next calls of
    /// [`poll_send`](Self::poll_send). The age counts from the arrival at this machine.
    pub fn write_from(&mut self, now: Instant, channel: ChannelId, origin: &Origin, bytes: &[u8]) {
        let Some(known) = self.channels.get_mut(channel) else { return };
        known.written += 1;
        if known.kind == Kind::Packets && !self.inner.admits_outgoing(bytes) {
            return;
        }
        let (mut component, mut kind) = ((0, 0), None);
        let class = match known.kind {
            Kind::Datagrams(class) => class,
            Kind::Packets => self.policy.of_packet(bytes),
            Kind::Mavlink => {
                let Some(header) = frame_header(bytes) else { return };
                if Signature::of(self.signing.as_ref(), &header, bytes) == Signature::Wrong {
                    return self.refuse_signature(now);
                }
                component = (header.system, header.component);
                // A signed frame must not overtake earlier frames.
                let latest = self.policy.is_superseded_in_queue(header.message);
                kind = (latest && !header.signed).then_some(header.message);
                self.policy.of_frame(now, &header).class
            }
        };
        let link = &mut self.classes[class];
        link.stats_mut().written(bytes.len());
        self.sources.count(channel, origin.client, component, Fate::Written);
        let vital = known.keys.as_mut().is_some_and(|keys| keys.is_key_frame(bytes));
        let life = self.config.class.deadline(class);
        if life.is_some_and(|life| now.since(origin.arrived) > life) {
            return self.lose(class, channel, origin.client, component, Fate::Late);
        }
        // Without a session, the fate of a queued message is unknown.
        if known.wire.is_none() || !self.session_up {
            return self.lose(class, channel, origin.client, component, Fate::Refused);
        }
        if class == Class::Control {
            self.note_writer(now, origin.client, component);
        }
        let mut copy = self.spare.pop().unwrap_or_default();
        copy.clear();
        copy.extend_from_slice(bytes);
        let written = Written { channel, arrived: origin.arrived, vital, bytes: copy };
        match self.classes[class].push((origin.client, component), kind, written) {
            None => {}
            Some(Displaced::Refused(client, component, written)) => {
                self.lose(class, written.channel, client, component, Fate::Refused);
                self.recycle(written.bytes);
            }
            Some(Displaced::Superseded(written)) => {
                self.lose(class, channel, origin.client, component, Fate::Superseded);
                self.recycle(written.bytes);
            }
        }
    }

    /// Remembers the two sources that have written control last.
    fn note_writer(&mut self, now: Instant, client: Client, component: Component) {
        let is_it = |known: &Option<Writer>| {
            known.is_some_and(|writer| (writer.0, writer.1) == (client, component))
        };
        let place = self.writers.iter().position(is_it).unwrap_or_else(|| {
            let [first, second] = self.writers.map(|known| known.map(|writer| writer.2));
            usize::from(first > second)
        });
        if let Some(writer) = self.writers.get_mut(place) {
            *writer = Some((client, component, now));
        }
    }

    /// Counts a message that is not sent.
    fn lose(
        &mut self,
        class: Class,
        channel: ChannelId,
        client: Client,
        component: Component,
        fate: Fate,
    ) {
        self.sources.count(channel, client, component, fate);
        let stats = self.classes[class].stats_mut();
        match fate {
            Fate::Written => {}
            Fate::Refused => stats.refused(1),
            Fate::Late => stats.late(1),
            Fate::Superseded => stats.dropped(crate::stats::Dropped::Superseded),
        }
    }

    /// Keeps a buffer for reuse.
    pub(super) fn recycle(&mut self, bytes: Vec<u8>) {
        if self.spare.len() < MAX_SPARE {
            self.spare.push(bytes);
        }
    }

    /// Moves messages of a class into its transport while that has room. Returns whether any was moved.
    pub(super) fn feed(&mut self, now: Instant, class: Class) -> bool {
        let mut moved = false;
        if !self.classes[class].has_queued() {
            return moved;
        }
        let max = self.max_message();
        let min_delay = self.min_outgoing_delay(now, class);
        self.classes[class].set_min_delay(min_delay);
        let max_age = self.classes[class].max_age();
        let mut room = self.classes[class].room();
        while room > 0
            && self.classes[class].has_queued()
            && (class != Class::Control || self.limiter.take(now))
            && let Some((client, component, written)) = self.classes[class].pop()
        {
            if max_age.is_some_and(|max_age| now.since(written.arrived) > max_age) {
                self.lose(class, written.channel, client, component, Fate::Late);
                if class == Class::Control {
                    self.limiter.refund();
                }
            } else if self.enter(now, class, max, &written) {
                room -= 1;
                moved = true;
            } else {
                self.lose(class, written.channel, client, component, Fate::Refused);
            }
            self.recycle(written.bytes);
        }
        moved
    }

    /// Time at which control that is held back may leave.
    pub(super) fn limiter_wakeup(&self) -> Instant {
        let control = &self.classes[Class::Control];
        let (waits, room) = (control.has_queued(), control.room() > 0);
        if waits && room && self.session_up { self.limiter.next() } else { Instant::FAR_FUTURE }
    }

    /// Updates the control rate limit by a probe: queueing delay on the way and lag at the peer.
    pub(super) fn limit_control(&mut self, now: Instant, lag_ms: u8) {
        let alive = || self.paths.iter().filter(|path| path.is_heard());
        let newest = alive().filter_map(|path| path.outgoing_transit.last());
        let lowest = alive().filter_map(|path| path.outgoing_transit.min());
        let (Some(newest), Some(lowest)) = (newest.min(), lowest.min()) else { return };
        let rtt = alive().filter_map(|path| path.rtt).min().unwrap_or_default();
        // Programs wake up late even in normal operation.
        let lag = Duration::from_millis(i64::from(lag_ms)) - DEFAULT_LAG;
        let wait = nearest(newest - lowest).max(lag);
        // A sole source delays only itself.
        let shared =
            self.writers.iter().flatten().filter(|writer| now.since(writer.2) < WRITES).count() > 1;
        let wait = if shared { wait } else { wait - ALONE };
        self.limiter.on_queueing_delay(now, wait, rtt);
    }

    /// Holds data back from a path with a queue in which control would wait, or lets it on again.
    pub(super) fn hold_data(&mut self, id: PathId) {
        let Some(path) = self.paths.get(id).filter(|_| self.config.network == Network::Udp) else {
            return;
        };
        let share = path.queue.share().filter(|_| path.is_heard());
        for class in Class::ALL.into_iter().filter(|class| *class != Class::Control) {
            self.classes[class].on_queue(id, share);
        }
    }

    /// Records a datagram's wait for the driver.
    pub(super) fn note_lag(&mut self, now: Instant, waited: Duration) {
        let (lags, since) = &mut self.lag;
        if now.since(*since) >= LAG_WINDOW {
            (*lags, *since) = ([Duration::ZERO, lags[0]], now);
        }
        lags[0] = lags[0].max(waited);
    }

    /// Maximum recent wait of a datagram for the driver in milliseconds, as probes carry it.
    pub(super) fn lag_ms(&self) -> u8 {
        let longest = self.lag.0[0].max(self.lag.0[1]);
        (longest.as_nanos() / 1_000_000).clamp(0, 255) as u8
    }

    /// Writes a message to the transport of its class. Returns false if it is too large or its channel has gone.
    fn enter(&mut self, now: Instant, class: Class, max: usize, written: &Written) -> bool {
        let wire = self.channels.get(written.channel).and_then(|channel| channel.wire);
        wire.is_some_and(|wire| self.classes[class].send(now, wire, max, written))
    }

    /// Returns the largest IP packet of the TUN interface, in bytes, that fits in one datagram in any class;
    /// `None` until the path MTU of every path that the peer hears is known.
    pub fn unfragmented(&self) -> Option<u32> {
        let heard = |path: &&Path| path.present && path.outgoing == PathState::Up;
        let mut paths = self.paths.iter().filter(heard).peekable();
        let settled = paths.peek().is_some() && paths.all(|path| path.mtu.is_settled());
        let fec = self.classes.iter().map(ClassLink::fec_overhead).max().unwrap_or(0);
        let max = self.max_message().saturating_sub(fec + message::HEAD);
        settled.then(|| u32::try_from(max).unwrap_or(u32::MAX))
    }

    /// Returns the max fragment in bytes for every path.
    fn max_message(&self) -> usize {
        let room = |mtu: u32, around: u32| mtu.saturating_sub(around + OVERHEAD as u32 + INSIDE);
        let known = |path: &&Path| path.present && path.remote.is_some();
        let heard = |path: &&Path| known(path) && path.outgoing != PathState::Down;
        let size = |path: &Path| room(path.mtu.size(), path.header_bytes());
        let min = self.paths.iter().filter(heard).map(size).min();
        let min = min.or_else(|| self.paths.iter().filter(known).map(size).min());
        min.unwrap_or_else(|| room(BASE_MTU, 48)).max(256) as usize
    }
}
