//! Counters of each message source: messages written and their fate.

use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::net::SocketAddr;

use skybraid_units::Instant;
use skybraid_units::invariant::Promised;

use crate::ChannelId;
use crate::snapshot::SourceSnapshot;

/// Maximum number of counted sources; a new source replaces the one that lost least.
const MAX_SOURCES: usize = 64;
/// Maximum number of sources in a snapshot.
const MAX_SHOWN: usize = 16;

/// Source of a message, and the time at which it reached this machine.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    /// Program that wrote it.
    pub client: Client,
    /// Time at which it reached this machine, from which its age counts.
    pub arrived: Instant,
}

/// Program or device at a local endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Client {
    /// Number of the local endpoint.
    pub end: u8,
    /// Address of the program, or of the sender in an IP packet; none for a device.
    pub address: Option<SocketAddr>,
}

/// The system and component of a MAVLink frame; zeros for anything else.
pub type Component = (u8, u8);

/// Fate of a message at the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Written.
    Written,
    /// No room, or no session.
    Refused,
    /// Past the class's deadline.
    Late,
    /// Replaced by a newer message of its kind before sending.
    Superseded,
}

#[derive(Clone, Copy, Debug)]
struct Source {
    channel: ChannelId,
    client: Client,
    component: Component,
    /// Written, refused, late, superseded.
    counts: [u64; 4],
    /// Number of the last call for this source.
    seen: u64,
}

/// Counters of the newest sources, and of those that lost most.
#[derive(Debug, Default)]
pub struct Sources {
    sources: Vec<Source>,
    /// Index counted last, most often also the next.
    last: usize,
    calls: u64,
}

impl Sources {
    /// Counts a message.
    pub fn count(&mut self, channel: ChannelId, client: Client, component: Component, fate: Fate) {
        self.calls += 1;
        let is_it = |source: &Source| {
            source.client == client && source.component == component && source.channel == channel
        };
        if !self.sources.get(self.last).is_some_and(is_it) {
            let known = self.sources.iter().position(is_it);
            self.last = known.unwrap_or_else(|| {
                self.add(Source { channel, client, component, counts: [0; 4], seen: self.calls })
            });
        }
        let (last, calls) = (self.last, self.calls);
        if let Some(source) = self.sources.get_mut(last).promised("the newest source")
            && let Some(count) = source.counts.get_mut(fate as usize)
        {
            *count += 1;
            source.seen = calls;
        }
    }

    fn add(&mut self, source: Source) -> usize {
        if self.sources.len() < MAX_SOURCES {
            self.sources.push(source);
            return self.sources.len() - 1;
        }
        let numbered = self.sources.iter().enumerate();
        let replaced =
            numbered.min_by_key(|(_, source)| (source.counts[1] + source.counts[2], source.seen));
        let at = replaced.map_or(0, |(at, _)| at);
        if let Some(place) = self.sources.get_mut(at).promised("a counted source") {
            *place = source;
        }
        at
    }

    /// Returns the sources with most refused or late messages first, then by most written.
    pub fn snapshot<'a>(&self, name: impl Fn(ChannelId) -> Option<&'a str>) -> Vec<SourceSnapshot> {
        let mut sources: Vec<&Source> = self.sources.iter().collect();
        sources.sort_by_key(|source| {
            core::cmp::Reverse((source.counts[1] + source.counts[2], source.counts[0]))
        });
        let shown = |source: &&Source| {
            let [written, refused, late, superseded] = source.counts;
            let Client { end, address } = source.client;
            SourceSnapshot {
                channel: name(source.channel).unwrap_or_default().to_string(),
                end,
                address: address.map(|address| format!("{address}")),
                system: source.component.0,
                component: source.component.1,
                written,
                refused,
                late,
                superseded,
            }
        };
        sources.iter().take(MAX_SHOWN).map(shown).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_counted_apart_and_those_that_lost_most_are_kept() {
        let mut sources = Sources::default();
        let client = |port: u16| Client { end: 1, address: Some(([127, 0, 0, 1], port).into()) };
        for _ in 0..10 {
            sources.count(ChannelId(0), client(1), (1, 1), Fate::Written);
            sources.count(ChannelId(0), client(1), (1, 190), Fate::Refused);
        }
        for port in 2..1_000 {
            sources.count(ChannelId(0), client(port), (255, 1), Fate::Written);
        }
        assert_eq!(sources.sources.len(), MAX_SOURCES);
        let shown = sources.snapshot(|_| Some("mavlink"));
        assert_eq!(shown.len(), MAX_SHOWN);
        let first = &shown[0];
        assert_eq!((first.system, first.component, first.refused), (1, 190, 10));
        assert_eq!(first.address.as_deref(), Some("127.0.0.1:1"));
        assert_eq!(first.channel, "mavlink");
    }
}
