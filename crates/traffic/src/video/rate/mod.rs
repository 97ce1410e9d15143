//! Rate control of real-time video: the target of the encoder, and the times at which packets may leave.
//!
//! Each control is a state machine without a clock, next to the sender's queue of waiting packets. The
//! driver reports each change of that queue ([`RateControl::on_queue_changed`]), each packet passed to the
//! transport ([`RateControl::on_sent`]) and each report of the receiver ([`RateControl::on_feedback`],
//! made by a [`Reporter`]), and calls [`RateControl::on_timeout`] at [`RateControl::next_wakeup`]. It may
//! query [`RateControl::target`] and [`RateControl::may_send`] at any time.
//!
//! Sender and receiver need not share a clock: only differences of the receiver's times matter.

use alloc::boxed::Box;
use core::fmt::Debug;

use skybraid_units::{Bytes, Instant, Rate};

use crate::about::Kind;

mod aimd;
pub mod constant;
pub mod gcc;
mod history;
#[cfg(test)]
mod link;
mod media_rate;
mod queue_delay;
pub mod receiver_report;
mod reports;
pub mod scream;
#[cfg(test)]
mod tests;
mod trendline;

pub use reports::Reporter;

/// All rate controls, for `list` and the documentation.
pub const ALL: &[Kind] = &[constant::ABOUT, scream::ABOUT, gcc::ABOUT, receiver_report::ABOUT];

/// A packet passed to the transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Number of the packet within the video, ascending by one; an RTP sequence number that never
    /// wraps.
    pub number: u64,
    /// Bytes of the packet, RTP header included.
    pub bytes: u32,
}

/// State of the sender's queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    /// Bytes of all waiting packets.
    pub bytes: Bytes,
    /// Bytes of the first waiting packet; zero if the queue is empty.
    pub next: Bytes,
}

/// Receiver's status of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Number of the packet.
    pub number: u64,
    /// Arrival time by the receiver's clock; `None` if the packet is missing.
    pub at: Option<Instant>,
}

/// Report of the receiver. A packet may be reported repeatedly, for example one that was reported missing and
/// arrived late.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    /// Time of the report by the receiver's clock.
    pub reported: Instant,
    /// Packets with consecutive, ascending numbers.
    pub arrivals: &'a [Arrival],
}

impl Report<'_> {
    /// Returns the size of the report as an RTCP packet of RFC 8888 §3.1, without UDP and IP: 8 bytes of
    /// header, 8 for the stream, 2 for each packet, padded to 4, and 4 for the timestamp.
    pub const fn wire_size(&self) -> Bytes {
        Bytes::new(20 + 4 * (self.arrivals.len() as u64).div_ceil(2))
    }
}

/// A rate control algorithm.
pub trait RateControl: Debug + Send {
    /// Handles a change of the sender's queue. A standing queue lowers SCReAM's target (RFC 8298 §4.1.3,
    /// `rtp_queue_size`), and the size of the next packet determines when it may leave.
    fn on_queue_changed(&mut self, _now: Instant, _queue: Queue) {}

    /// Records a packet passed to the transport.
    fn on_sent(&mut self, now: Instant, packet: Sent);

    /// Handles a receiver's report.
    fn on_feedback(&mut self, now: Instant, report: &Report<'_>);

    /// Advances time to `now`, at [`next_wakeup`](Self::next_wakeup) or at any other time.
    fn on_timeout(&mut self, _now: Instant) {}

    /// Returns the target rate of encoder, packetisation and protection together, always within the
    /// bounds.
    fn target(&self) -> Rate;

    /// Returns the number of bytes that may leave now; `None` for no limit. The next packet may leave if it
    /// is no larger.
    fn may_send(&self, _now: Instant) -> Option<Bytes> {
        None
    }

    /// Returns the time of the next [`on_timeout`](Self::on_timeout) and query; [`Instant::FAR_FUTURE`] if only
    /// a report or the sender itself changes anything. It is in the past only while a packet that may leave
    /// has not been sent.
    fn next_wakeup(&self) -> Instant {
        Instant::FAR_FUTURE
    }
}

/// Bounds of the target rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Minimum, above zero.
    pub min: Rate,
    /// Start rate.
    pub start: Rate,
    /// Maximum.
    pub max: Rate,
}

impl Bounds {
    /// Checks the order of the rates.
    ///
    /// # Errors
    /// `min` is zero, or `start` is not between `min` and `max`.
    pub fn check(&self) -> Result<(), RateError> {
        if self.min > Rate::ZERO && self.min <= self.start && self.start <= self.max {
            return Ok(());
        }
        Err(RateError::Bounds { min: self.min, start: self.start, max: self.max })
    }

    /// Returns a rate in bit/s, limited to the bounds.
    fn clamp(&self, bits: f64) -> f64 {
        bits.min(bps(self.max)).max(bps(self.min))
    }

    /// Returns the start rate within the bounds, in bit/s.
    fn first(&self) -> f64 {
        self.clamp(bps(self.start))
    }
}

/// Returns a rate in bit/s as a float.
fn bps(rate: Rate) -> f64 {
    rate.as_bps() as f64
}

/// Returns the rate of `bits` per second.
fn rate(bits: f64) -> Rate {
    Rate::from_bps(libm::round(bits) as u64)
}

/// Error in the configuration of a rate control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RateError {
    /// The rates are out of order.
    #[error("rates must be above zero and in order: min {min}, start {start}, max {max}")]
    Bounds {
        /// Minimum rate.
        min: Rate,
        /// Start rate.
        start: Rate,
        /// Maximum rate.
        max: Rate,
    },
    /// A parameter is out of its range.
    #[error("`{key}` must be {expected}")]
    Range {
        /// Key of the parameter.
        key: &'static str,
        /// Allowed range.
        expected: &'static str,
    },
}

/// Returns an error unless the parameter is in its range.
fn range(key: &'static str, fits: bool, expected: &'static str) -> Result<(), RateError> {
    if fits { Ok(()) } else { Err(RateError::Range { key, expected }) }
}

/// Configuration of a rate control in a scenario.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum RateConfig {
    /// The target never changes.
    Constant {},
    /// SCReAM, RFC 8298.
    Scream(scream::Config),
    /// Google congestion control, draft-ietf-rmcat-gcc-02.
    Gcc(gcc::Config),
    /// Loss-based control by RTCP receiver reports.
    ReceiverReport(receiver_report::Config),
}

impl RateConfig {
    /// Checks the ranges of all parameters.
    ///
    /// # Errors
    /// The error names the first parameter that is out of range.
    pub fn check(&self) -> Result<(), RateError> {
        match self {
            Self::Constant {} => Ok(()),
            Self::Scream(config) => config.check(),
            Self::Gcc(config) => config.check(),
            Self::ReceiverReport(config) => config.check(),
        }
    }

    /// Creates a rate control within `bounds`.
    pub fn build(&self, bounds: &Bounds) -> Box<dyn RateControl> {
        match self {
            Self::Constant {} => Box::new(constant::Constant::new(bounds)),
            Self::Scream(config) => Box::new(scream::Scream::new(config, bounds)),
            Self::Gcc(config) => Box::new(gcc::Gcc::new(config, bounds)),
            Self::ReceiverReport(config) => {
                Box::new(receiver_report::ReceiverReport::new(config, bounds))
            }
        }
    }
}
