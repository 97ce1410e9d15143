//! What happens to a gateway that people want to know of.

use alloc::string::String;

use skybraid_units::Instant;

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Event {
    /// Time by the gateway's clock.
    #[serde(skip)]
    pub at: Instant,
    /// Content.
    #[serde(flatten)]
    pub what: What,
}

/// Content of an event.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum What {
    /// A session with the peer stands: at the start, after a change of keys, after a restart.
    Session {
        /// The peer has restarted (or is heard for the first time).
        restarted: bool,
    },
    /// Nothing has been heard from the peer on any path for so long that it is taken for gone.
    PeerLost,
    /// A path's state has changed.
    Path {
        /// Its name.
        path: String,
        /// State before.
        from: PathState,
        /// State now.
        to: PathState,
        /// Direction that it is about.
        direction: Direction,
    },
    /// The peer is heard on a path from another address.
    Address {
        /// The path's name.
        path: String,
        /// The new address.
        address: String,
    },
    /// A path's largest packet has changed.
    Mtu {
        /// The path's name.
        path: String,
        /// Bytes of the largest IP packet.
        bytes: u32,
    },
    /// A path has used up its data.
    DataCap {
        /// The path's name.
        path: String,
    },
    /// Something is wrong that needs fixing: the files of both ends do not match, a device is
    /// missing, the disk is full.
    Alarm {
        /// In plain words.
        text: String,
    },
}

/// Direction of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Towards the peer, as the peer reports it.
    Outgoing,
    /// From the peer.
    Incoming,
    /// Both, since the interface is gone or came back.
    Both,
}

/// State of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PathState {
    /// Nothing has been heard on it yet.
    #[default]
    Unheard,
    /// It came back and has to prove itself: control uses it, data only where nothing else lives.
    Probation,
    /// It carries everything.
    Up,
    /// Silent for three probe intervals.
    Suspected,
    /// Given up: silent for too long.
    Down,
}
