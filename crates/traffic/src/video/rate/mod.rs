//! Rate control of real-time video: what the encoder should aim at, and when packets may leave.
//!
//! Each control is a state machine without a clock, beside the queue of packets that wait in the
//! sender. The driver tells it of each change of that queue ([`RateControl::queued`]), of each packet
//! it hands to the transport ([`RateControl::sent`]) and of each report of the receiver
//! ([`RateControl::feedback`], made by a [`Reporter`]), calls [`RateControl::tick`] when
//! [`RateControl::next_wakeup`] is due, and asks at any time for [`RateControl::target`] and
//! [`RateControl::may_send`].
//!
//! Sender and receiver need not share a clock: only differences of the receiver's times count.

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

/// Every rate control, for `list` and the documentation.
pub const ALL: &[Kind] = &[constant::ABOUT, scream::ABOUT, gcc::ABOUT, receiver_report::ABOUT];

/// A packet that was handed to the transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Its number among all packets of the video, rising by one from packet to packet; an RTP
    /// sequence number that never wraps.
    pub number: u64,
    /// Its bytes, RTP header included.
    pub bytes: u32,
}

/// What waits in the sender for leave to go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    /// Bytes of all packets that wait.
    pub bytes: Bytes,
    /// Bytes of the first of them; zero if none waits.
    pub next: Bytes,
}

/// What became of a packet, as far as the receiver knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The packet's number.
    pub number: u64,
    /// When it arrived, by the receiver's clock; `None` if it has not.
    pub at: Option<Instant>,
}

/// What the receiver reports. A packet may be reported again, above all one that was missing and
/// came late.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    /// When the report was made, by the receiver's clock.
    pub reported: Instant,
    /// The packets, by rising number and without a gap.
    pub arrivals: &'a [Arrival],
}

impl Report<'_> {
    /// What the report takes as an RTCP packet of RFC 8888 §3.1, without UDP and IP: 8 bytes of
    /// header, 8 for the stream, 2 for each packet, padded to 4, and 4 for the time.
    pub const fn wire_size(&self) -> Bytes {
        Bytes::new(20 + 4 * (self.arrivals.len() as u64).div_ceil(2))
    }
}

/// What a rate control is told and asked.
pub trait RateControl {
    /// What waits in the sender has changed. A standing queue lowers SCReAM's target (RFC 8298
    /// §4.1.3, `rtp_queue_size`), and the size of the next packet says when it will have leave.
    fn queued(&mut self, _now: Instant, _queue: Queue) {}

    /// A packet was handed to the transport.
    fn sent(&mut self, now: Instant, packet: Sent);

    /// A report came back.
    fn feedback(&mut self, now: Instant, report: &Report<'_>);

    /// Time passed; at [`next_wakeup`](Self::next_wakeup) or at any other time.
    fn tick(&mut self, _now: Instant) {}

    /// What encoder, packetisation and protection together should aim at now; always within the
    /// bounds.
    fn target(&self) -> Rate;

    /// How much may leave now: the next packet may if it is no larger. `None` is no limit.
    fn may_send(&self, _now: Instant) -> Option<Bytes> {
        None
    }

    /// When to call [`tick`](Self::tick) and to ask again; [`Instant::FAR_FUTURE`] if only a report
    /// or the sender itself changes anything. In the past only while a packet has leave to go and
    /// does not.
    fn next_wakeup(&self) -> Instant {
        Instant::FAR_FUTURE
    }
}

/// Where the target may lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Never below; above zero.
    pub least: Rate,
    /// At first.
    pub start: Rate,
    /// Never above.
    pub most: Rate,
}

impl Bounds {
    /// Checks the order.
    ///
    /// # Errors
    /// `least` is zero, or `start` is not between `least` and `most`.
    pub fn check(&self) -> Result<(), RateError> {
        if self.least > Rate::ZERO && self.least <= self.start && self.start <= self.most {
            return Ok(());
        }
        Err(RateError::Bounds { least: self.least, start: self.start, most: self.most })
    }

    /// `bits` per second within the bounds.
    fn hold(&self, bits: f64) -> f64 {
        bits.min(bps(self.most)).max(bps(self.least))
    }

    /// The start within the bounds, in bit/s.
    fn first(&self) -> f64 {
        self.hold(bps(self.start))
    }
}

/// A rate in bit/s, for arithmetic.
fn bps(rate: Rate) -> f64 {
    rate.as_bps() as f64
}

/// A rate of so many bit/s.
fn rate(bits: f64) -> Rate {
    Rate::from_bps(libm::round(bits) as u64)
}

/// Why a rate control cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RateError {
    /// The rates are out of order.
    #[error("rates must be above zero and in order: least {least}, start {start}, most {most}")]
    Bounds {
        /// The least.
        least: Rate,
        /// The first.
        start: Rate,
        /// The most.
        most: Rate,
    },
    /// A parameter is out of its range.
    #[error("`{key}` must be {expected}")]
    Range {
        /// Its key.
        key: &'static str,
        /// Its range.
        expected: &'static str,
    },
}

/// `Ok` if a parameter is in its range.
fn range(key: &'static str, fits: bool, expected: &'static str) -> Result<(), RateError> {
    if fits { Ok(()) } else { Err(RateError::Range { key, expected }) }
}

/// A rate control, as the scenario says it.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum RateConfig {
    /// The target never changes.
    Constant {},
    /// SCReAM, RFC 8298.
    Scream(scream::Config),
    /// Google congestion control, draft-ietf-rmcat-gcc-02.
    Gcc(gcc::Config),
    /// Loss alone, by RTCP receiver reports.
    ReceiverReport(receiver_report::Config),
}

impl RateConfig {
    /// Checks the ranges.
    ///
    /// # Errors
    /// Names the first parameter that is out of its range.
    pub fn check(&self) -> Result<(), RateError> {
        match self {
            Self::Constant {} => Ok(()),
            Self::Scream(config) => config.check(),
            Self::Gcc(config) => config.check(),
            Self::ReceiverReport(config) => config.check(),
        }
    }

    /// A fresh control within `bounds`.
    pub fn build(&self, bounds: &Bounds) -> Control {
        match self {
            Self::Constant {} => Control::Constant(constant::Constant::new(bounds)),
            Self::Scream(config) => Control::Scream(scream::Scream::new(config, bounds)),
            Self::Gcc(config) => Control::Gcc(gcc::Gcc::new(config, bounds)),
            Self::ReceiverReport(config) => {
                Control::ReceiverReport(receiver_report::ReceiverReport::new(config, bounds))
            }
        }
    }
}

/// Any of the rate controls.
#[derive(Clone, Debug)]
pub enum Control {
    /// The target never changes.
    Constant(constant::Constant),
    /// SCReAM.
    Scream(scream::Scream),
    /// Google congestion control.
    Gcc(gcc::Gcc),
    /// Loss alone.
    ReceiverReport(receiver_report::ReceiverReport),
}

impl Control {
    fn get(&self) -> &dyn RateControl {
        match self {
            Self::Constant(control) => control,
            Self::Scream(control) => control,
            Self::Gcc(control) => control,
            Self::ReceiverReport(control) => control,
        }
    }

    fn get_mut(&mut self) -> &mut dyn RateControl {
        match self {
            Self::Constant(control) => control,
            Self::Scream(control) => control,
            Self::Gcc(control) => control,
            Self::ReceiverReport(control) => control,
        }
    }
}

impl RateControl for Control {
    fn queued(&mut self, now: Instant, queue: Queue) {
        self.get_mut().queued(now, queue);
    }

    fn sent(&mut self, now: Instant, packet: Sent) {
        self.get_mut().sent(now, packet);
    }

    fn feedback(&mut self, now: Instant, report: &Report<'_>) {
        self.get_mut().feedback(now, report);
    }

    fn tick(&mut self, now: Instant) {
        self.get_mut().tick(now);
    }

    fn target(&self) -> Rate {
        self.get().target()
    }

    fn may_send(&self, now: Instant) -> Option<Bytes> {
        self.get().may_send(now)
    }

    fn next_wakeup(&self) -> Instant {
        self.get().next_wakeup()
    }
}
