//! Messages, as applications write and receive them.

use skybraid_units::{Duration, Instant, named};

use crate::PathId;

named! {
    /// Purpose of a message. Schedulers and policies may treat classes differently.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Class {
        /// Commands, set-points and the telemetry that steering depends on.
        Control = "control",
        /// Live video.
        Video = "video",
        /// Everything else.
        #[default]
        Data = "data",
    }
}

/// A message to be carried to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Stream of the connection; 0 if the connection has only one.
    pub stream: u8,
    /// Number within the stream, one more than that of the message before. With parallel
    /// connections, each connection carries an ascending subset of the numbers.
    pub id: u32,
    /// Purpose.
    pub class: Class,
    /// Payload size in bytes, at least 1.
    pub bytes: u32,
    /// Instant after which the message is useless.
    pub deadline: Option<Instant>,
}

/// A message that has arrived whole and, if the protocol keeps order, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// Stream of the message.
    pub stream: u8,
    /// Number of the message.
    pub id: u32,
    /// Head-of-line blocking: time the complete message spent in the receive buffer because earlier
    /// data was missing.
    pub held: Duration,
    /// Path of the message's last missing part.
    pub path: PathId,
}
