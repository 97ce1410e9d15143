//! What applications write and get back.

use skybraid_units::{Duration, Instant};

use crate::PathId;

/// What a message is for; schedulers and policies may treat classes differently.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Commands, set-points, telemetry that steers.
    Control,
    /// Live pictures.
    Video,
    /// Everything else.
    #[default]
    Data,
}

impl Class {
    /// All classes, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Control, Self::Video, Self::Data];

    /// The name used in scenarios and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Control => "control",
            Self::Video => "video",
            Self::Data => "data",
        }
    }
}

/// A message to be carried to the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Which of the streams that share the connection it belongs to; 0 where there is one.
    pub stream: u8,
    /// Number within the stream; each message's is one more than the last one's. Of several
    /// parallel connections each carries some of the numbers, ascending.
    pub id: u32,
    /// What it is for.
    pub class: Class,
    /// Payload size in bytes, at least 1.
    pub bytes: u32,
    /// When it stops being useful.
    pub deadline: Option<Instant>,
}

/// A message that has arrived whole and, where order is kept, in its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// Its stream.
    pub stream: u8,
    /// The message's number.
    pub id: u32,
    /// How long it lay whole in the receiver's buffer because something before it was missing
    /// (head-of-line blocking).
    pub held: Duration,
    /// The path that brought its last missing part.
    pub path: PathId,
}
