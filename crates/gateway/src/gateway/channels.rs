//! The channels of a gateway, by their numbers here and on the wire.

use alloc::string::String;
use alloc::vec::Vec;

use skybraid_traffic::video::key_frames::KeyFrames;
use skybraid_traffic::video::protection::Duplicate;
use skybraid_units::invariant::Promised;

use crate::config::{GatewayConfig, MAVLINK, TUN};
use crate::sources::Sources;
use crate::{ChannelId, Class};

/// Connection of local applications to the gateway.
#[derive(Debug)]
pub(super) struct Channel {
    pub name: String,
    pub kind: Kind,
    /// Finds key frames, of a port of a class whose key frames leave on every path.
    pub keys: Option<KeyFrames>,
    /// Channel number on the wire; `None` before a session, and where the peer has no channel of this name.
    pub wire: Option<u8>,
    pub written: u64,
    pub delivered: u64,
}

/// Content of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Mavlink,
    Packets,
    Datagrams(Class),
}

/// The channels in the order of [`GatewayConfig::channels`].
#[derive(Debug)]
pub(super) struct Channels {
    channels: Vec<Channel>,
    /// Programs that write to them.
    pub sources: Sources,
    by_wire: [Option<ChannelId>; Self::MAX + 1],
}

impl Channels {
    /// Maximum number of channels: a message has 7 bits for it.
    pub const MAX: usize = 127;

    pub fn new(config: &GatewayConfig) -> Self {
        let kind = |name: &str| match name {
            MAVLINK => Kind::Mavlink,
            TUN => Kind::Packets,
            _ => Kind::Datagrams(config.udp.get(name).map_or(Class::Bulk, |port| port.class)),
        };
        let keys = |name: &str| {
            let port = config.udp.get(name)?;
            let duplicate = config.class.of(port.class).duplicate;
            (duplicate == Some(Duplicate::Keys)).then(|| KeyFrames::new(port.codec))
        };
        let channel = |name: String| {
            let (kind, keys) = (kind(&name), keys(&name));
            Channel { name, kind, keys, wire: None, written: 0, delivered: 0 }
        };
        let channels = config.channels().into_iter().take(Self::MAX).map(channel).collect();
        Self { channels, sources: Sources::default(), by_wire: [None; Self::MAX + 1] }
    }

    pub fn iter(&self) -> impl Iterator<Item = &Channel> {
        self.channels.iter()
    }

    /// A channel by its number, which nobody makes up: `None` is a bug.
    #[track_caller]
    pub fn get(&self, id: ChannelId) -> Option<&Channel> {
        self.channels.get(usize::from(id.0)).promised("a channel of this gateway")
    }

    /// As [`get`](Self::get), to be changed.
    #[track_caller]
    pub fn get_mut(&mut self, id: ChannelId) -> Option<&mut Channel> {
        self.channels.get_mut(usize::from(id.0)).promised("a channel of this gateway")
    }

    /// The channel of a number on the wire; `None` for one that the peer made up, or has alone.
    pub fn by_wire(&self, wire: u8) -> Option<ChannelId> {
        self.by_wire.get(usize::from(wire)).copied().flatten()
    }

    /// Sets the numbers on the wire: `wire` is that of each channel by number and name.
    pub fn set_wire(&mut self, wire: impl Fn(usize, &str) -> Option<u8>) {
        self.by_wire = [None; Self::MAX + 1];
        for (id, channel) in (0..).map(ChannelId).zip(&mut self.channels) {
            channel.wire = wire(usize::from(id.0), &channel.name);
            let place = channel.wire.and_then(|wire| self.by_wire.get_mut(usize::from(wire)));
            if let Some(place) = place {
                *place = Some(id);
            }
        }
    }
}
