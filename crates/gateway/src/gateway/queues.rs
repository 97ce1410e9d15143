//! Messages from local applications: classes, fair queueing, transfer to the transports.

use skybraid_transport::PathId;
use skybraid_units::{Duration, Instant};

use super::Gateway;
use super::rules::{Outbound, Unfit};
use crate::config::Network;
use crate::event::PathState;
use crate::fair::Displaced;
use crate::health::Path;
use crate::health::clock::{lowest, nearest};
use crate::health::mtu::BASE_MTU;
use crate::link::{ClassLink, Written};
use crate::message;
use crate::session::OVERHEAD;
use crate::sources::{Client, Component, Fate, Origin};
use crate::{ChannelId, Class};

/// Maximum transport header size in bytes: MP-DCCP with acknowledgements.
const INSIDE: u32 = 100;

/// Intervals of probes that may pass without an echo where all are lost, besides two.
const LOSSY_PROBES: f64 = 10.0;

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
        let outbound = match self.rules.outbound(now, known.kind, bytes) {
            Ok(outbound) => outbound,
            Err(Unfit::Content) => return,
            Err(Unfit::Signature) => return self.record.on_wrong_signature(now),
        };
        let Outbound { class, component, kind } = outbound;
        let vital = known.keys.as_mut().is_some_and(|keys| keys.is_key_frame(bytes));
        let is_shared = known.wire.is_some();
        self.classes[class].stats_mut().written(bytes.len());
        self.channels.sources.count(channel, origin.client, component, Fate::Written);
        let life = self.config.class.deadline(class);
        if life.is_some_and(|life| now.since(origin.arrived) > life) {
            return self.lose(class, channel, origin.client, component, Fate::Late);
        }
        // Without a session, the fate of a queued message is unknown.
        if !is_shared || !self.session.is_up() {
            return self.lose(class, channel, origin.client, component, Fate::Refused);
        }
        if class == Class::Control {
            self.control.on_written(now, origin.client, component);
        }
        let bytes = self.deliveries.copy(bytes);
        let written = Written { channel, arrived: origin.arrived, vital, bytes };
        let link = &mut self.classes[class];
        let mut displaced =
            link.push((origin.client, component), kind, written).or_else(|| link.take_excess());
        while let Some(message) = displaced {
            let written = match message {
                Displaced::Refused(client, component, written) => {
                    self.lose(class, written.channel, client, component, Fate::Refused);
                    written
                }
                Displaced::Superseded(written) => {
                    self.lose(class, channel, origin.client, component, Fate::Superseded);
                    written
                }
            };
            self.deliveries.recycle(written.bytes);
            displaced = self.classes[class].take_excess();
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
        self.channels.sources.count(channel, client, component, fate);
        let stats = self.classes[class].stats_mut();
        match fate {
            Fate::Written => {}
            Fate::Refused => stats.refused(1),
            Fate::Late => stats.late(1),
            Fate::Superseded => stats.dropped(crate::stats::Dropped::Superseded),
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
            && (class != Class::Control || self.control.take(now))
            && let Some((client, component, written)) = self.classes[class].pop()
        {
            if max_age.is_some_and(|max_age| now.since(written.arrived) > max_age) {
                self.lose(class, written.channel, client, component, Fate::Late);
                if class == Class::Control {
                    self.control.refund();
                }
            } else if self.enter(now, class, max, &written) {
                room -= 1;
                moved = true;
            } else {
                self.lose(class, written.channel, client, component, Fate::Refused);
            }
            self.deliveries.recycle(written.bytes);
        }
        moved
    }

    /// Time at which control that is held back may leave.
    pub(super) fn control_wakeup(&self) -> Instant {
        let control = &self.classes[Class::Control];
        let (waits, room) = (control.has_queued(), control.room() > 0);
        if waits && room && self.session.is_up() {
            self.control.next()
        } else {
            Instant::FAR_FUTURE
        }
    }

    /// Updates the control rate limit by a probe: queueing delay on the way and lag at the peer.
    pub(super) fn limit_control(&mut self, now: Instant, lag_ms: u8) {
        let transits = self.paths.heard().filter_map(|path| path.timing.outgoing().min());
        let Some(lowest) = lowest(transits) else { return };
        let probe = self.config.health.probe;
        let queued = |path: &Path| {
            let queued = nearest(path.timing.outgoing().last()? - lowest);
            // A probe without an echo may be in the queue.
            let spare = 2.0 + LOSSY_PROBES * path.reports.outgoing_loss();
            Some(queued.max(path.timing.overdue(now, probe, spare)))
        };
        let Some(queued) = self.paths.heard().filter_map(queued).min() else { return };
        let rtt = self.paths.heard().filter_map(|path| path.timing.rtt()).min().unwrap_or_default();
        let lag = Duration::from_millis(i64::from(lag_ms));
        let probed =
            self.paths.heard().filter_map(|path| path.timing.echoed()).max().unwrap_or(now);
        self.control.on_delay(now, queued, lag, rtt, probed);
    }

    /// Holds data back from a path with a queue in which control would wait, or lets it on again.
    pub(super) fn hold_data(&mut self, now: Instant, id: PathId) {
        let Some(path) = self.paths.get(id).filter(|_| self.config.network == Network::Udp) else {
            return;
        };
        let share = path.timing.queue().share().filter(|_| path.is_heard());
        for class in Class::ALL.into_iter().filter(|class| *class != Class::Control) {
            self.classes[class].transport_mut().on_queue(now, id, share);
        }
    }

    /// Writes a message to the transport of its class. Returns false if it is too large or its channel has gone.
    fn enter(&mut self, now: Instant, class: Class, max: usize, written: &Written) -> bool {
        let wire = self.channels.get(written.channel).and_then(|channel| channel.wire);
        wire.is_some_and(|wire| self.classes[class].send(now, wire, max, written))
    }

    /// Returns the largest IP packet of the TUN interface, in bytes, that fits in one datagram in any class;
    /// `None` until the path MTU of every path that the peer hears is known.
    pub fn unfragmented(&self) -> Option<u32> {
        let heard = |path: &&Path| path.present && path.reports.outgoing() == PathState::Up;
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
        let heard = |path: &&Path| known(path) && path.reports.outgoing() != PathState::Down;
        let size = |path: &Path| room(path.mtu.size(), path.header_bytes());
        let min = self.paths.iter().filter(heard).map(size).min();
        let min = min.or_else(|| self.paths.iter().filter(known).map(size).min());
        min.unwrap_or_else(|| room(BASE_MTU, 48)).max(256) as usize
    }
}
