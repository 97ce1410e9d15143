//! What a message is for, and with it how it is carried.

/// The class of a message.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Deserialize, serde::Serialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Commands, set-points, heartbeats, hand-shakes: on every path, and never behind anything else.
    Control,
    /// State that the aircraft reports.
    Telemetry,
    /// Live pictures.
    Video,
    /// Logs, files, everything else.
    Bulk,
}

impl Class {
    /// All classes, the most urgent first.
    pub const ALL: [Self; 4] = [Self::Control, Self::Telemetry, Self::Video, Self::Bulk];

    /// The name used in files and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Control => "control",
            Self::Telemetry => "telemetry",
            Self::Video => "video",
            Self::Bulk => "bulk",
        }
    }

    /// What schedulers take it for.
    pub const fn in_transports(self) -> skybraid_transport::Class {
        match self {
            Self::Control => skybraid_transport::Class::Control,
            Self::Video => skybraid_transport::Class::Video,
            Self::Telemetry | Self::Bulk => skybraid_transport::Class::Data,
        }
    }

    /// Its place in [`ALL`](Self::ALL).
    pub const fn index(self) -> usize {
        self as usize
    }
}
