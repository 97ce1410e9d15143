//! Traffic sources: the messages that applications write.
//!
//! A [`Source`] is a state machine without a clock: the driver asks for the time of the next message
//! ([`Source::next_write`]) and takes the message when that time has come ([`Source::write`]). A bulk
//! source always has a message; the driver polls it whenever the transport has room.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::boxed::Box;

use skybraid_units::{Bytes, Duration, Rate, defaults};

pub mod about;
mod source;
pub mod video;

pub use source::{Source, Write};
pub use video::VideoConfig;

/// Configuration of a traffic source in a scenario.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum TrafficConfig {
    /// Messages of one size at a constant bit rate.
    Cbr {
        /// Payload rate.
        rate: Rate,
        /// Payload bytes of a message.
        packet: Bytes,
    },
    /// As much as the transport takes.
    Bulk {
        /// Payload bytes of a message; 16 KiB by default.
        #[serde(default = "bulk_packet")]
        packet: Bytes,
    },
    /// Constant bit rate and silence in alternation.
    OnOff {
        /// Payload rate while on.
        rate: Rate,
        /// Payload bytes of a message.
        packet: Bytes,
        /// Length of an on period.
        on: Duration,
        /// Length of an off period.
        off: Duration,
    },
    /// A single message of a given size.
    File {
        /// Bytes of the message.
        size: Bytes,
    },
    /// Small messages at a steady interval, each answered by one of the same size. Only the way out is
    /// measured.
    Ping {
        /// Interval between messages.
        every: Duration,
        /// Payload bytes; 56 B by default, as `ping` sends.
        #[serde(default = "ping_packet")]
        packet: Bytes,
    },
    /// The frames of a camera as RTP packets, one message per packet.
    Video(Box<VideoConfig>),
}

defaults! {
    bulk_packet: Bytes = Bytes::new(16_384);
    ping_packet: Bytes = Bytes::new(56);
}

/// Error in a traffic configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrafficError {
    /// A rate, size or time that must be above zero is zero.
    #[error("`{key}` must be above zero")]
    Zero {
        /// The key.
        key: &'static str,
    },
    /// The size of a message does not fit 32 bits.
    #[error("`{key}` must be below 4GB")]
    TooLarge {
        /// The key.
        key: &'static str,
    },
    /// The rate control has an invalid parameter.
    #[error(transparent)]
    RateControl(#[from] video::rate::RateError),
    /// A number is outside its range.
    #[error("`{key}` is {found}, expected {min} to {max}")]
    Outside {
        /// The key.
        key: &'static str,
        /// Configured value.
        found: u64,
        /// Lower bound.
        min: u64,
        /// Upper bound.
        max: u64,
    },
}

impl TrafficConfig {
    /// Returns the key that sets how often messages are written, and about how many that are within `span`; `None`
    /// for bulk, a file and a video.
    pub fn messages_within(&self, span: Duration) -> Option<(&'static str, f64)> {
        let seconds = span.as_secs_f64().max(0.0);
        let per_second =
            |rate: Rate, packet: Bytes| rate.as_bps() as f64 / (8.0 * packet.get() as f64);
        match self {
            Self::Cbr { rate, packet } => Some(("rate", seconds * per_second(*rate, *packet))),
            Self::OnOff { rate, packet, on, off } => {
                let (on, off) = (on.as_secs_f64(), off.as_secs_f64());
                Some(("rate", seconds * on / (on + off) * per_second(*rate, *packet)))
            }
            Self::Ping { every, .. } => Some(("every", seconds / every.as_secs_f64())),
            Self::Bulk { .. } | Self::File { .. } | Self::Video(_) => None,
        }
    }

    /// Checks the ranges of all keys.
    ///
    /// # Errors
    /// The error names the first key that is out of range.
    pub fn check(&self) -> Result<(), TrafficError> {
        let size = |key, size: Bytes| match size.get() {
            0 => Err(TrafficError::Zero { key }),
            1..=0xffff_ffff => Ok(()),
            _ => Err(TrafficError::TooLarge { key }),
        };
        let above_zero = |key, positive: bool| {
            if positive { Ok(()) } else { Err(TrafficError::Zero { key }) }
        };
        match self {
            Self::Cbr { rate, packet } => {
                above_zero("rate", *rate > Rate::ZERO)?;
                size("packet", *packet)
            }
            Self::Bulk { packet } => size("packet", *packet),
            Self::OnOff { rate, packet, on, off } => {
                above_zero("rate", *rate > Rate::ZERO)?;
                above_zero("on", on.is_positive())?;
                above_zero("off", off.is_positive())?;
                size("packet", *packet)
            }
            Self::File { size: bytes } => size("size", *bytes),
            Self::Ping { every, packet } => {
                above_zero("every", every.is_positive())?;
                size("packet", *packet)
            }
            Self::Video(video) => video.check(),
        }
    }

    /// Returns the video configuration of a camera, `None` for other kinds of traffic.
    pub fn video(&self) -> Option<&VideoConfig> {
        match self {
            Self::Video(video) => Some(video),
            _ => None,
        }
    }

    /// Returns the payload rate while the source is on; `None` where it sets no rate.
    pub fn rate(&self) -> Option<Rate> {
        match self {
            Self::Cbr { rate, .. } | Self::OnOff { rate, .. } => Some(*rate),
            Self::Video(video) => Some(video.rate),
            Self::Bulk { .. } | Self::File { .. } | Self::Ping { .. } => None,
        }
    }

    /// Returns whether the messages depend on the seed. No kind of traffic draws random numbers.
    pub const fn is_random(&self) -> bool {
        match self {
            Self::Cbr { .. }
            | Self::Bulk { .. }
            | Self::OnOff { .. }
            | Self::File { .. }
            | Self::Ping { .. }
            | Self::Video(_) => false,
        }
    }

    /// Returns whether the other end sends messages back: replies to pings, or reports on a video.
    pub fn is_answered(&self) -> bool {
        match self {
            Self::Ping { .. } => true,
            Self::Video(video) => video.is_reported(),
            _ => false,
        }
    }
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
