//! Delivery to local applications.

use alloc::vec::Vec;

use skybraid_transport::PathId;
use skybraid_units::invariant::Promised;
use skybraid_units::{Duration, Instant};

use super::age::Verdict;
use super::rules::{Unfit, frame_header};
use super::{Gateway, Kind};
use crate::health::Path;
use crate::health::clock::{between, lowest, micros, nearest};
use crate::order::Delivery;
use crate::stats::Dropped;
use crate::{ChannelId, Class};

/// Maximum wait of a signed frame for earlier frames.
const MAX_PATIENCE: Duration = Duration::from_millis(500);
/// Minimum wait, for jitter.
const MIN_PATIENCE: Duration = Duration::from_millis(5);

/// A whole message that has arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct Incoming {
    pub class: Class,
    /// Number within the class.
    id: u32,
    /// Path of its first copy; after the last one for the MPTCP connection.
    path: PathId,
    channel: ChannelId,
    /// Time at which it reached the sender's machine, by the sender's clock in microseconds modulo 2³².
    stamp: u32,
}

impl Incoming {
    /// Bytes of [`head`](Self::head).
    const HEAD: usize = 6;

    /// Channel, path and stamp, in front of the bytes of a control message that waits.
    fn head(&self) -> [u8; Self::HEAD] {
        let [a, b, c, d] = self.stamp.to_be_bytes();
        [self.channel.0, self.path.0, a, b, c, d]
    }

    /// Message `id` of control with this head.
    fn with_head(id: u32, [channel, path, a, b, c, d]: [u8; Self::HEAD]) -> Self {
        Self {
            class: Class::Control,
            id,
            path: PathId(path),
            channel: ChannelId(channel),
            stamp: u32::from_be_bytes([a, b, c, d]),
        }
    }

    /// Time since `stamp` by the clocks of both sides, which have not been compared.
    pub fn transit(&self, now: Instant) -> Duration {
        between(self.stamp, micros(now))
    }
}

impl Gateway {
    /// Returns the channel of the next message for local applications; its bytes are in `out`.
    pub fn poll_local(&mut self, out: &mut Vec<u8>) -> Option<ChannelId> {
        Some(self.poll_local_until(out)?.0)
    }

    /// As [`poll_local`](Self::poll_local), with the time at which the message becomes too old for delivery.
    pub fn poll_local_until(&mut self, out: &mut Vec<u8>) -> Option<(ChannelId, Instant)> {
        self.deliveries.poll(out)
    }

    /// Counts messages that local endpoints dropped because they expired before delivery.
    pub fn count_late(&mut self, messages: u64, class: Class) {
        self.classes[class].stats_mut().late(messages);
    }

    /// Delivers the received messages of a class.
    pub(super) fn drain(&mut self, now: Instant, class: Class) {
        let bundled = self.config.network.bundles(class);
        // The MPTCP connection comes after the paths.
        let bundle = PathId(self.paths.len() as u8);
        let mut whole = core::mem::take(&mut self.deliveries.message);
        while let Some((arrived, channel, stamp)) =
            self.classes[class].poll_message(now, &mut whole)
        {
            // Of a channel that the peer has alone.
            let Some(channel) = self.channels.by_wire(channel) else { continue };
            let path = if bundled { bundle } else { arrived.path };
            let incoming = Incoming { class, id: arrived.id, path, channel, stamp };
            self.judge(now, &incoming, &whole);
        }
        self.deliveries.message = whole;
        if class == Class::Control {
            self.drain_waiting(now);
        }
        self.classes[class].count_refused(now);
    }

    /// Delivers signed frames whose turn has come.
    fn drain_waiting(&mut self, now: Instant) {
        let mut whole = core::mem::take(&mut self.deliveries.message);
        while let Some(id) = self.peer.waiting.poll(now, &mut whole) {
            let head = whole.split_first_chunk::<{ Incoming::HEAD }>();
            let Some((head, bytes)) = head.promised("the head of a message that waited") else {
                continue;
            };
            let incoming = Incoming::with_head(id, *head);
            if self.verdict(now, Class::Control, incoming.transit(now)) == Verdict::InTime {
                self.admit(now, &incoming, bytes);
            } else {
                self.drop_message(Class::Control, Dropped::Late);
            }
        }
        self.deliveries.message = whole;
    }

    /// Delivers a message unless it is too old.
    fn judge(&mut self, now: Instant, incoming: &Incoming, bytes: &[u8]) {
        match self.verdict(now, incoming.class, incoming.transit(now)) {
            Verdict::InTime => self.take_turn(now, incoming, bytes),
            Verdict::Late => self.drop_message(incoming.class, Dropped::Late),
            Verdict::Unknown => self.hold(incoming, bytes),
        }
    }

    /// Delivers a message, or lets it wait for signed frames before it.
    pub(super) fn take_turn(&mut self, now: Instant, incoming: &Incoming, bytes: &[u8]) {
        let channel = self.channels.get(incoming.channel);
        let is_mavlink = channel.is_some_and(|channel| channel.kind == Kind::Mavlink);
        if incoming.class == Class::Control && is_mavlink {
            let signed = frame_header(bytes).is_some_and(|header| header.signed);
            let patience = if signed { self.patience() } else { Duration::ZERO };
            let held = if signed { [&incoming.head(), bytes].concat() } else { Vec::new() };
            if self.peer.waiting.on_received(now, incoming.id, &held, signed, patience)
                == Delivery::Later
            {
                return;
            }
        }
        self.admit(now, incoming, bytes);
    }

    /// Returns how much longer the slowest path that is heard takes than the fastest.
    fn patience(&self) -> Duration {
        let transit = |path: &Path| {
            let transit = path.timing.incoming();
            Some(transit.smoothed()? + transit.jitter() * 4)
        };
        let min = lowest(self.paths.iter().filter_map(|path| path.timing.incoming().min()));
        let spread = min.and_then(|min| {
            self.paths.heard().filter_map(transit).map(|transit| nearest(transit - min)).max()
        });
        (spread.unwrap_or_default() + MIN_PATIENCE).clamp(MIN_PATIENCE, MAX_PATIENCE)
    }

    /// Delivers a message unless its successor has been delivered.
    fn admit(&mut self, now: Instant, incoming: &Incoming, bytes: &[u8]) {
        let Incoming { class, id, path, channel, .. } = *incoming;
        let transit = incoming.transit(now);
        let delay = self.peer.clock.incoming_delay(now, transit);
        let expires = self.expires(now, class, transit);
        let Some(known) = self.channels.get_mut(channel) else { return };
        if known.kind == Kind::Mavlink {
            let (header, signature) = match self.rules.frame(bytes) {
                Ok(frame) => frame,
                Err(Unfit::Content) => return,
                Err(Unfit::Signature) => return self.record.on_wrong_signature(now),
            };
            let latest = self.rules.is_latest(header.message);
            let order = &mut self.peer.order;
            if !order.admits(class.index() as u8, id, &header, signature.stamp(), latest) {
                return self.drop_message(class, Dropped::Superseded);
            }
        }
        if known.kind == Kind::Packets && !self.rules.admits_incoming(bytes) {
            return;
        }
        known.delivered += 1;
        self.classes[class].stats_mut().delivered(now, bytes.len(), path, delay);
        self.deliveries.push(channel, expires, bytes);
    }

    pub(super) fn drop_message(&mut self, class: Class, why: Dropped) {
        self.classes[class].stats_mut().dropped(why);
    }
}
