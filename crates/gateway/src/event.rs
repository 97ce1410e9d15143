//! Events that a gateway reports.

use alloc::string::String;

use skybraid_units::{Instant, named};

/// Event of a gateway.
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
    /// Session established: at the start, after a key change or after a restart.
    Session {
        /// The peer has restarted (or is heard for the first time).
        restarted: bool,
    },
    /// Peer presumed gone after a long silence on all paths.
    PeerLost,
    /// State change of a path.
    Path {
        /// Name.
        path: String,
        /// State before.
        from: PathState,
        /// State now.
        to: PathState,
        /// Direction that it is about.
        direction: Direction,
    },
    /// New address of the peer on a path.
    Address {
        /// Path name.
        path: String,
        /// The new address.
        address: String,
    },
    /// Change of a path's MTU.
    Mtu {
        /// Path name.
        path: String,
        /// Largest IP packet in bytes.
        bytes: u32,
    },
    /// Data cap of a path reached.
    DataCap {
        /// Path name.
        path: String,
    },
    /// Problem that needs fixing, for example mismatched files of both ends, a missing device or a full disk.
    Alarm {
        /// Text in plain words.
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
    /// Both: the interface is gone or came back.
    Both,
}

named! {
    /// State of a path.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum PathState {
        /// Nothing received yet.
        #[default]
        Unheard = "unheard",
        /// Back but on probation: carries control, and data only if no other path is alive.
        Probation = "probation",
        /// Carries all classes.
        Up = "up",
        /// Silent for three probe intervals.
        Suspected = "suspected",
        /// Given up: silent for too long.
        Down = "down",
    }
}

impl PathState {
    /// Returns true if packets get through.
    pub const fn is_alive(self) -> bool {
        !matches!(self, Self::Unheard | Self::Down)
    }
}
