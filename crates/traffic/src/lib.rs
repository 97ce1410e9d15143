//! What applications send.
//!
//! A [`Source`] is a state machine without a clock: the driver asks when it next has something to
//! write ([`Source::next_write`]) and takes it ([`Source::write`]). A bulk source always has; it is
//! asked whenever the transport has room.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::boxed::Box;

use skybraid_units::{Bytes, Duration, Rate};

pub mod about;
mod source;
pub mod video;

pub use source::{Source, Write};
pub use video::VideoConfig;

/// What an application sends, as the scenario says it.
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
        /// Payload bytes of a message. Default 16 KiB.
        #[serde(default = "bulk_packet")]
        packet: Bytes,
    },
    /// Constant bit rate for a while, then silence, in turn.
    OnOff {
        /// Payload rate while on.
        rate: Rate,
        /// Payload bytes of a message.
        packet: Bytes,
        /// How long it sends.
        on: Duration,
        /// How long it is silent.
        off: Duration,
    },
    /// A number of bytes, once, as one message.
    File {
        /// How many bytes.
        size: Bytes,
    },
    /// Small messages at a steady interval, each answered by one of the same size; what is measured
    /// is the way out.
    Ping {
        /// From one to the next.
        every: Duration,
        /// Payload bytes. Default 56 B, as `ping` sends.
        #[serde(default = "ping_packet")]
        packet: Bytes,
    },
    /// A camera's frames as RTP packets, a message each.
    Video(Box<VideoConfig>),
}

const fn bulk_packet() -> Bytes {
    Bytes::new(16_384)
}

const fn ping_packet() -> Bytes {
    Bytes::new(56)
}

/// Why a traffic cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrafficError {
    /// A rate, size or time that must be above zero is zero.
    #[error("`{key}` must be above zero")]
    Zero {
        /// The key.
        key: &'static str,
    },
    /// A message does not fit 4 GB.
    #[error("`{key}` must be below 4GB")]
    TooLarge {
        /// The key.
        key: &'static str,
    },
    /// A rate control is wrong.
    #[error(transparent)]
    RateControl(#[from] video::rate::RateError),
    /// A number is outside of its range.
    #[error("`{key}` is {found}, expected {least} to {most}")]
    Outside {
        /// The key.
        key: &'static str,
        /// What it is.
        found: u64,
        /// The least that it may be.
        least: u64,
        /// The most.
        most: u64,
    },
}

impl TrafficConfig {
    /// Checks the ranges.
    ///
    /// # Errors
    /// Names the key that is out of range.
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

    /// What it says of a camera, if it is one.
    pub fn video(&self) -> Option<&VideoConfig> {
        match self {
            Self::Video(video) => Some(video),
            _ => None,
        }
    }

    /// Whether what is sent depends on the seed: no source draws at random.
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

    /// The other end sends something back: an answer to each message, or reports of what it gets.
    pub fn is_answered(&self) -> bool {
        match self {
            Self::Ping { .. } => true,
            Self::Video(video) => video.is_reported(),
            _ => false,
        }
    }
}
