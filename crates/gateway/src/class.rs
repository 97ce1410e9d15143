//! The class of a message, which decides how it is carried.

use core::ops::{Index, IndexMut};
use skybraid_units::named;

named! {
    /// The class of a message.
    #[derive(
        Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Deserialize, serde::Serialize,
    )]
    #[serde(rename_all = "snake_case")]
    pub enum Class {
        /// Commands, setpoints, heartbeats, handshakes: sent on every path, ahead of all other classes.
        Control = "control",
        /// State that the aircraft reports.
        Telemetry = "telemetry",
        /// Live video.
        Video = "video",
        /// Logs, files, everything else.
        Bulk = "bulk",
    }
}

impl Class {
    /// The class that schedulers see.
    pub const fn in_transports(self) -> skybraid_transport::Class {
        match self {
            Self::Control => skybraid_transport::Class::Control,
            Self::Video => skybraid_transport::Class::Video,
            Self::Telemetry | Self::Bulk => skybraid_transport::Class::Data,
        }
    }

    /// Returns the index in [`ALL`](Self::ALL).
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// A value for each class.
#[derive(Clone, Debug)]
pub struct ByClass<T>([T; 4]);

impl<T> ByClass<T> {
    /// The value that `of` gives each class.
    pub fn new(of: impl FnMut(Class) -> T) -> Self {
        Self(Class::ALL.map(of))
    }

    /// The values, those of the most urgent class first.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter()
    }

    /// As [`iter`](Self::iter), to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut()
    }
}

impl<T> Index<Class> for ByClass<T> {
    type Output = T;

    fn index(&self, class: Class) -> &T {
        let [control, telemetry, video, bulk] = &self.0;
        match class {
            Class::Control => control,
            Class::Telemetry => telemetry,
            Class::Video => video,
            Class::Bulk => bulk,
        }
    }
}

impl<T> IndexMut<Class> for ByClass<T> {
    fn index_mut(&mut self, class: Class) -> &mut T {
        let [control, telemetry, video, bulk] = &mut self.0;
        match class {
            Class::Control => control,
            Class::Telemetry => telemetry,
            Class::Video => video,
            Class::Bulk => bulk,
        }
    }
}
