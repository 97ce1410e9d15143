//! The peer since its start, and what follows from changes of the session.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use skybraid_units::{Duration, Instant};

use super::Gateway;
use super::age::UnknownAge;
use crate::Side;
use crate::event::What;
use crate::health::PeerClock;
use crate::health::clock::between;
use crate::hello::{Hello, Name};
use crate::order::{Order, Waiting};

/// Maximum lag of a probe behind the newest one, and maximum age of the newest. With more, the times on the wire have
/// gone round, or the peer's clock was stepped.
const MAX_LAG: Duration = Duration::from_secs(60);

/// What is known of the peer since its start; a restart makes all of it void.
#[derive(Debug, Default)]
pub(super) struct Peer {
    pub clock: PeerClock,
    pub order: Order,
    /// Signed frames that wait for earlier ones.
    pub waiting: Waiting,
    pub unknown_age: UnknownAge,
    /// Send time of the newest probe, in microseconds modulo 2³², and its arrival.
    newest_probe: Option<(u32, Instant)>,
}

impl Peer {
    /// Whether the reports of a probe sent at `sent_us` count: one on a slower path may carry older state.
    pub fn is_news(&mut self, now: Instant, sent_us: u32) -> bool {
        let is_older = |(newest, arrived): (u32, Instant)| {
            let lag = between(sent_us, newest);
            lag.is_positive() && lag < MAX_LAG && now.since(arrived) < MAX_LAG
        };
        let is_news = !self.newest_probe.is_some_and(is_older);
        if is_news {
            self.newest_probe = Some((sent_us, now));
        }
        is_news
    }
}

impl Gateway {
    /// Handles a new session: at the start, after a change of keys, after a restart of the peer.
    pub(super) fn on_session(&mut self, now: Instant, hello: &[u8], restarted: bool) {
        self.session.on_established(restarted);
        self.record.event(now, What::Session { restarted });
        if restarted {
            self.match_names(now, hello);
            self.reconnect();
            self.watch_duplicates(now);
        }
        self.paths.iter_mut().for_each(|path| path.traffic.restart_numbers());
        self.probe_at_once(now);
    }

    /// Raises an alarm once when two gateways with the peer's key are heard.
    fn watch_duplicates(&mut self, now: Instant) {
        let is_duplicated = self.sessions.is_peer_duplicated(now);
        if self.session.take_duplicate(is_duplicated) {
            self.record.alarm(now, "two gateways with the peer's key are heard");
        }
    }

    /// Handles the end of the session, which no handshake has renewed.
    pub(super) fn on_session_expired(&mut self, now: Instant) {
        self.session.on_expired();
        let life = self.config.session.lifetime();
        let text = format!(
            "the session has ended: its keys could not be changed for {life}; nothing is sent or \
             accepted until a handshake gets through"
        );
        self.record.alarm(now, text);
    }

    /// Raises an alarm, once, when a change of keys is overdue.
    pub(super) fn watch_session_age(&mut self, now: Instant) {
        if !self.session.take_overdue(self.sessions.is_overdue(now)) {
            return;
        }
        let left = self.sessions.time_left(now).unwrap_or_default();
        let text = format!(
            "the session's keys could not be changed, since no handshake gets through: it ends in {} s",
            left.as_nanos() / 1_000_000_000
        );
        self.record.alarm(now, text);
    }

    /// Sets the numbers of paths and channels on the wire, which are the aircraft's, in the order of its file.
    fn match_names(&mut self, now: Instant, hello: &[u8]) {
        let Some(peer) = Hello::read(hello) else {
            let text = "the peer speaks another version of the protocol";
            return self.record.alarm(now, text);
        };
        let aircraft_is_here = self.config.side == Side::Aircraft;
        let number = |here: usize, name: &str, theirs: &[Name]| {
            let there = theirs.iter().position(|other| other.is(name));
            let wire = if aircraft_is_here { there.map(|_| here) } else { there };
            wire.and_then(|wire| u8::try_from(wire).ok())
        };
        self.paths.set_wire(|here, name| number(here, name, &peer.paths));
        self.channels.set_wire(|here, name| number(here, name, &peer.channels));
        let lacks = |names: Vec<&str>, what: &str, here: bool| {
            let (has, not) = if here { ("here", "at the peer") } else { ("at the peer", "here") };
            let names = names.join("`, `");
            format!("{what} `{names}` is {has} and not {not}: give it one name in both files")
        };
        let mut alarms: Vec<String> =
            self.rules.inner_mut().set_peer(peer.tun).err().into_iter().collect();
        let mine: Vec<&str> = self.paths.iter().map(|path| path.name.as_str()).collect();
        let own: Vec<&str> = self.channels.iter().map(|channel| channel.name.as_str()).collect();
        for (what, mine, theirs) in [("path", mine, &peer.paths), ("channel", own, &peer.channels)]
        {
            let here =
                mine.iter().copied().filter(|name| !theirs.iter().any(|other| other.is(name)));
            let not_here = theirs.iter().filter(|name| !mine.iter().any(|own| name.is(own)));
            let there = not_here.clone().filter_map(|name| match name {
                Name::Text(text) => Some(text.as_str()),
                Name::Digest(_) => None,
            });
            let unnamed = not_here.filter(|name| matches!(name, Name::Digest(_))).count();
            if unnamed > 0 {
                alarms.push(format!(
                    "the peer has {unnamed} names of a {what} that are not here; its own alarm lists them"
                ));
            }
            for (names, at_home) in [(here.collect::<Vec<_>>(), true), (there.collect(), false)] {
                if !names.is_empty() {
                    alarms.push(lacks(names, what, at_home));
                }
            }
        }
        for text in alarms {
            self.record.alarm(now, text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::clock::micros;

    #[test]
    fn a_probe_that_was_overtaken_brings_no_news() {
        let mut peer = Peer::default();
        let now = Instant::ZERO;
        let news = [u32::MAX - 1, 5, u32::MAX, 5, 6].map(|sent_us| peer.is_news(now, sent_us));
        assert_eq!(news, [true, true, false, true, true]);
    }

    #[test]
    fn reports_count_after_an_outage_or_a_step_of_any_length() {
        for minutes in 2..75 {
            let later = Instant::ZERO + Duration::from_secs(60 * minutes);
            for now in [Instant::ZERO, later] {
                let mut peer = Peer::default();
                assert!(peer.is_news(Instant::ZERO, 0));
                // A step of almost a whole round of the times on the wire takes a minute to be noticed.
                let is_news = peer.is_news(now, micros(later));
                assert!(is_news || (now < later && minutes == 71), "{minutes} min at {now:?}");
            }
        }
    }
}
