//! The side of the local applications.

use alloc::vec::Vec;

use skybraid_transport::PathId;
use skybraid_units::{Duration, Instant};

use super::age::Verdict;
use super::{FETCHED, Gateway, Kind, frame_header};
use crate::carrier::Arrived;
use crate::config::Network;
use crate::event::What;
use crate::fec;
use crate::health::clock::{between, micros, nearest};
use crate::order::Turn;
use crate::signing::Signature;
use crate::stats::Dropped;
use crate::{ChannelId, Class};

/// Longest wait of a signed frame for those before it.
const MAX_PATIENCE: Duration = Duration::from_millis(500);
/// Shortest one, for jitter.
const MIN_PATIENCE: Duration = Duration::from_millis(5);

impl Gateway {
    /// Returns the channel of the next message for local applications; its bytes are in `out`.
    pub fn poll_local(&mut self, out: &mut Vec<u8>) -> Option<ChannelId> {
        Some(self.poll_local_until(out)?.0)
    }

    /// As [`poll_local`](Self::poll_local), with the time from which on the message is too old to be
    /// delivered.
    pub fn poll_local_until(&mut self, out: &mut Vec<u8>) -> Option<(ChannelId, Instant)> {
        let (channel, expires, bytes) = self.local.pop_front()?;
        let used = core::mem::replace(out, bytes);
        self.recycle(used);
        Some((channel, expires))
    }

    /// Counts messages that local ends dropped since they became too old before they could be delivered.
    pub fn count_late(&mut self, messages: u64, class: Class) {
        if let Some(stats) = self.stats.get_mut(class.index()) {
            stats.late(messages);
        }
    }

    /// Delivers the received messages of a class.
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
            let reassembler = self.reassemblers.get_mut(class.index());
            if let (Some(carrier), Some(reassembler)) = (carrier, reassembler) {
                let bytes = carrier.bytes(arrived.id);
                if bytes.first() == Some(&fec::MARK) {
                    let mut pieces = Vec::new();
                    if let Some(fec_decoder) = self.fec_decoders.get_mut(class.index()) {
                        fec_decoder.arrived(bytes, &mut |piece| pieces.push(piece.to_vec()));
                    }
                    carrier.free(arrived.id);
                    for piece in pieces {
                        let reassembler = self.reassemblers.get_mut(class.index());
                        let joined = reassembler
                            .and_then(|reassembler| reassembler.join(&piece, &mut whole));
                        if let Some(joined) = joined {
                            self.judge(now, class, &arrived, joined, &whole);
                        }
                    }
                } else {
                    let joined = reassembler.join(bytes, &mut whole);
                    carrier.free(arrived.id);
                    if let Some(joined) = joined {
                        self.judge(now, class, &arrived, joined, &whole);
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
            let refused = carrier.take_refused(now);
            stats.refused(refused.full);
            stats.late(refused.late);
        }
    }

    /// Signed frames whose turn has come.
    fn drain_waiting(&mut self, now: Instant) {
        let mut whole = core::mem::take(&mut self.whole);
        while let Some(id) = self.waiting.poll(now, &mut whole) {
            // What was put in front of the bytes when it had to wait.
            let Some((&[channel, path, a, b, c, d], bytes)) = whole.split_first_chunk::<6>() else {
                continue;
            };
            let stamp = u32::from_be_bytes([a, b, c, d]);
            let transit = between(stamp, micros(now));
            if self.verdict(now, Class::Control, transit) == Verdict::InTime {
                let place = (ChannelId(channel), PathId(path));
                self.admit(now, Class::Control, id, place, stamp, bytes);
            } else {
                self.drop_message(Class::Control, Dropped::Late);
            }
        }
        self.whole = whole;
    }

    /// A message has arrived whole: it is delivered unless it is too late.
    fn judge(
        &mut self,
        now: Instant,
        class: Class,
        arrived: &Arrived,
        (channel, stamp): (u8, u32),
        bytes: &[u8],
    ) {
        let Some(channel) = self.channels_by_wire.get(usize::from(channel)).copied().flatten()
        else {
            return;
        };
        match self.verdict(now, class, between(stamp, micros(now))) {
            Verdict::InTime => self.take_turn(now, class, arrived, (channel, stamp), bytes),
            Verdict::Late => self.drop_message(class, Dropped::Late),
            Verdict::Unknown => self.hold(arrived, (channel, stamp), bytes),
        }
    }

    /// A message in time is delivered, or waits for signed frames before it.
    pub(super) fn take_turn(
        &mut self,
        now: Instant,
        class: Class,
        arrived: &Arrived,
        (channel, stamp): (ChannelId, u32),
        bytes: &[u8],
    ) {
        let is_mavlink =
            self.channels.get(usize::from(channel.0)).is_some_and(|it| it.kind == Kind::Mavlink);
        if class == Class::Control && is_mavlink {
            let signed = frame_header(bytes).is_some_and(|header| header.signed);
            let [a, b, c, d] = stamp.to_be_bytes();
            let place = [channel.0, arrived.path.0, a, b, c, d];
            let patience = if signed { self.patience() } else { Duration::ZERO };
            let held = if signed { [&place[..], bytes].concat() } else { Vec::new() };
            if self.waiting.come(now, arrived.id, &held, signed, patience) == Turn::Later {
                return;
            }
        }
        self.admit(now, class, arrived.id, (channel, arrived.path), stamp, bytes);
    }

    /// What the slowest living path takes longer than the fastest.
    fn patience(&self) -> Duration {
        let transits = || {
            let alive = self.paths.iter().filter(|path| path.is_heard());
            alive.filter_map(|path| Some(path.transit.smoothed()? + path.transit.jitter() * 4))
        };
        let least = self.paths.iter().filter_map(|path| path.transit.least()).min();
        let spread = transits().max().zip(least).map(|(most, least)| nearest(most - least));
        (spread.unwrap_or_default() + MIN_PATIENCE).clamp(MIN_PATIENCE, MAX_PATIENCE)
    }

    /// Hands a message over unless its successor has been.
    fn admit(
        &mut self,
        now: Instant,
        class: Class,
        id: u32,
        (channel, path): (ChannelId, PathId),
        stamp: u32,
        bytes: &[u8],
    ) {
        let transit = between(stamp, micros(now));
        let delay = self.clock.incoming_delay(now, transit);
        let expires = self.expires(now, class, transit);
        let Some(known) = self.channels.get_mut(usize::from(channel.0)) else { return };
        if known.kind == Kind::Mavlink {
            let Some(header) = frame_header(bytes) else { return };
            let latest = self.policy.is_latest(header.message);
            let stamp = match Signature::of(self.signing.as_ref(), &header, bytes) {
                Signature::Verified(stamp) => Some(stamp),
                Signature::Absent | Signature::Unverified => None,
                Signature::Wrong => return self.refuse_signature(now),
            };
            if !self.order.admits(class.index() as u8, id, &header, stamp, latest) {
                return self.drop_message(class, Dropped::Superseded);
            }
        }
        if known.kind == Kind::Packets && !self.inner.admits_incoming(bytes) {
            return;
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
            self.local.push_back((channel, expires, copy));
        }
    }

    /// Drops a frame whose signature is wrong. The first one is worth an alarm: the keys may differ.
    pub(super) fn refuse_signature(&mut self, now: Instant) {
        self.refused.signatures += 1;
        if self.refused.signatures == 1 {
            let text = "a MAVLink frame with a wrong signature was dropped: forged, or `signing.key` is \
                        not the key of the autopilot and its ground stations";
            self.tell(now, What::Alarm { text: text.into() });
        }
    }

    pub(super) fn drop_message(&mut self, class: Class, why: Dropped) {
        if let Some(stats) = self.stats.get_mut(class.index()) {
            stats.dropped(why);
        }
    }
}
