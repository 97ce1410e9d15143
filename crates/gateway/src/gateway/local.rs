//! The side of the local applications.

use alloc::vec::Vec;

use skybraid_transport::PathId;
use skybraid_units::{Duration, Instant};

use super::{FETCHED, Gateway, Kind, frame_header};
use crate::carrier::Arrived;
use crate::config::Network;
use crate::health::clock::nearest;
use crate::health::path::LEAST_MTU;
use crate::mend;
use crate::order::Turn;
use crate::session::OVERHEAD;
use crate::stats::Dropped;
use crate::{ChannelId, Class};

/// Octets of a transport's headers in a datagram, at most: those of MP-DCCP with acknowledgements.
const INSIDE: u32 = 100;
/// Longest wait of a signed frame for those before it.
const MOST_PATIENCE: Duration = Duration::from_millis(500);
/// Shortest one, for jitter.
const LEAST_PATIENCE: Duration = Duration::from_millis(5);

impl Gateway {
    /// A local application wrote a MAVLink frame, a datagram or an IP packet.
    pub fn write(&mut self, now: Instant, channel: ChannelId, bytes: &[u8]) {
        let most = self.most_octets();
        let Some(known) = self.channels.get_mut(usize::from(channel.0)) else { return };
        known.written += 1;
        let class = match known.kind {
            Kind::Datagrams(class) => class,
            Kind::Packets => self.policy.of_packet(bytes),
            Kind::Mavlink => match frame_header(bytes) {
                Some(header) => self.policy.of_frame(now, &header).class,
                None => return,
            },
        };
        let (Some(stats), Some(carrier), Some(cutter)) = (
            self.stats.get_mut(class.index()),
            self.carriers.get_mut(class.index()),
            self.cutters.get_mut(class.index()),
        ) else {
            return;
        };
        stats.written(bytes.len());
        // Without a session nobody knows what becomes of a message that waits.
        let wire = known.wire.filter(|_| self.session_up);
        let Some(wire) = wire else { return stats.refused(1) };
        let vital = known.keys.as_mut().is_some_and(|keys| keys.has(bytes));
        let cut = match self.protectors.get_mut(class.index()) {
            Some(Some(protector)) => {
                let most = most.saturating_sub(mend::HEAD + mend::LENGTH);
                cutter.cut(wire, bytes, most, &mut |parts| {
                    protector.protect(now, parts, &mut |packet| {
                        carrier.write_packet(now, packet, vital);
                    });
                })
            }
            _ => cutter.cut(wire, bytes, most, &mut |parts| carrier.write(now, parts, vital)),
        };
        if !cut {
            stats.refused(1);
        }
    }

    /// Octets of a part of a message that every path takes.
    fn most_octets(&self) -> usize {
        let room = |mtu: u32, around: u32| mtu.saturating_sub(around + OVERHEAD as u32 + INSIDE);
        let alive = self.paths.iter().filter(|path| path.present && path.remote.is_some());
        let least = alive.map(|path| room(path.mtu, path.around())).min();
        least.unwrap_or_else(|| room(LEAST_MTU, 48)).max(256) as usize
    }

    /// What goes to local applications next: its bytes to `out`, its channel as the answer.
    pub fn poll_local(&mut self, out: &mut Vec<u8>) -> Option<ChannelId> {
        let (channel, bytes) = self.local.pop_front()?;
        let used = core::mem::replace(out, bytes);
        if self.spare.len() < 256 {
            self.spare.push(used);
        }
        Some(channel)
    }

    /// Hands over what has arrived of a class.
    pub(super) fn drain(&mut self, now: Instant, class: Class) {
        let bundled = self.config.network == Network::Tcp && class != Class::Control;
        while let Some(mut arrived) =
            self.carriers.get_mut(class.index()).and_then(|carrier| carrier.poll_delivered())
        {
            if bundled {
                // The MPTCP connection comes behind the paths.
                arrived.path = PathId(self.paths.len() as u8);
            }
            let mut whole = core::mem::take(&mut self.whole);
            let carrier = self.carriers.get_mut(class.index());
            let joiner = self.joiners.get_mut(class.index());
            if let (Some(carrier), Some(joiner)) = (carrier, joiner) {
                let bytes = carrier.bytes(arrived.id);
                if bytes.first() == Some(&mend::MARK) {
                    let mut pieces = Vec::new();
                    if let Some(mender) = self.menders.get_mut(class.index()) {
                        mender.arrived(bytes, &mut |piece| pieces.push(piece.to_vec()));
                    }
                    carrier.free(arrived.id);
                    for piece in pieces {
                        let joiner = self.joiners.get_mut(class.index());
                        let channel = joiner.and_then(|joiner| joiner.join(&piece, &mut whole));
                        if let Some(channel) = channel {
                            self.judge(now, class, &arrived, channel, &whole);
                        }
                    }
                } else {
                    let channel = joiner.join(bytes, &mut whole);
                    carrier.free(arrived.id);
                    if let Some(channel) = channel {
                        self.judge(now, class, &arrived, channel, &whole);
                    }
                }
            }
            self.whole = whole;
        }
        if class == Class::Control {
            self.drain_waiting(now);
        }
        if let Some(carrier) = self.carriers.get_mut(class.index())
            && let Some(stats) = self.stats.get_mut(class.index())
        {
            stats.refused(carrier.take_refused());
        }
    }

    /// Signed frames whose turn has come.
    fn drain_waiting(&mut self, now: Instant) {
        let mut whole = core::mem::take(&mut self.whole);
        while let Some(id) = self.waiting.poll(now, &mut whole) {
            // What was put in front of the bytes when it had to wait.
            if let Some(([channel, path], bytes)) = whole.split_first_chunk::<2>() {
                self.admit(
                    now,
                    Class::Control,
                    id,
                    (ChannelId(*channel), PathId(*path)),
                    None,
                    bytes,
                );
            }
        }
        self.whole = whole;
    }

    /// A message has arrived whole: it is handed over unless it is too late.
    fn judge(&mut self, now: Instant, class: Class, arrived: &Arrived, channel: u8, bytes: &[u8]) {
        let Some(channel) = self.channels_by_wire.get(usize::from(channel)).copied().flatten()
        else {
            return;
        };
        let delay = self.clock.incoming_delay(nearest(now - arrived.sent_at));
        let life = self.config.class.deadline(class);
        if let (Some(delay), Some(life)) = (delay, life)
            && delay > life
        {
            return self.drop_message(class, Dropped::Late);
        }
        let is_mavlink =
            self.channels.get(usize::from(channel.0)).is_some_and(|it| it.kind == Kind::Mavlink);
        if class == Class::Control && is_mavlink {
            let signed = frame_header(bytes).is_some_and(|header| header.signed);
            let place = [channel.0, arrived.path.0];
            let patience = if signed { self.patience() } else { Duration::ZERO };
            let held = if signed { [&place[..], bytes].concat() } else { Vec::new() };
            if self.waiting.come(now, arrived.id, &held, signed, patience) == Turn::Later {
                return;
            }
        }
        self.admit(now, class, arrived.id, (channel, arrived.path), delay, bytes);
    }

    /// What the slowest living path takes longer than the fastest.
    fn patience(&self) -> Duration {
        let transits = || {
            let alive = self.paths.iter().filter(|path| path.is_heard());
            alive.filter_map(|path| Some(path.transit.smoothed()? + path.transit.jitter() * 4))
        };
        let least = self.paths.iter().filter_map(|path| path.transit.least()).min();
        let spread = transits().max().zip(least).map(|(most, least)| nearest(most - least));
        (spread.unwrap_or_default() + LEAST_PATIENCE).clamp(LEAST_PATIENCE, MOST_PATIENCE)
    }

    /// Hands a message over unless its successor has been.
    fn admit(
        &mut self,
        now: Instant,
        class: Class,
        id: u32,
        (channel, path): (ChannelId, PathId),
        delay: Option<Duration>,
        bytes: &[u8],
    ) {
        let Some(known) = self.channels.get_mut(usize::from(channel.0)) else { return };
        if known.kind == Kind::Mavlink {
            let Some(header) = frame_header(bytes) else { return };
            let latest = self.policy.is_latest(header.message);
            if !self.order.admits(class.index() as u8, id, &header, bytes, latest) {
                return self.drop_message(class, Dropped::Superseded);
            }
        }
        known.delivered += 1;
        if let Some(stats) = self.stats.get_mut(class.index()) {
            stats.delivered(now, bytes.len(), path, delay);
        }
        if class == Class::Control
            && let Some(path) = self.paths.get_mut(path.index())
        {
            path.totals.control_won += 1;
        }
        if self.local.len() < FETCHED {
            let mut copy = self.spare.pop().unwrap_or_default();
            copy.clear();
            copy.extend_from_slice(bytes);
            self.local.push_back((channel, copy));
        }
    }

    fn drop_message(&mut self, class: Class, why: Dropped) {
        if let Some(stats) = self.stats.get_mut(class.index()) {
            stats.dropped(why);
        }
    }
}
