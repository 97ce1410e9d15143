//! Congestion control: how much may be in flight on a path.
//!
//! Past-tense events in, one answer out. Sibling paths can be seen read-only, so that coupled
//! algorithms are ordinary ones.

use alloc::boxed::Box;
use core::fmt::Debug;

use skybraid_units::{Bytes, Duration, Instant, Rate};

use crate::registry::algorithms;

pub mod cubic;
pub mod reno;

/// New data has been acknowledged outside loss recovery.
#[derive(Clone, Copy, Debug)]
pub struct Acked {
    /// When.
    pub now: Instant,
    /// Bytes newly acknowledged by this acknowledgement.
    pub bytes: Bytes,
    /// Smoothed round-trip time.
    pub srtt: Duration,
    /// Bytes in flight before the acknowledgement.
    pub in_flight: Bytes,
    /// The window was used to the full, so that growing it makes sense (RFC 9293 leaves this open;
    /// RFC 7661 and Linux's `tcp_is_cwnd_limited` explain it).
    pub window_limited: bool,
}

/// A loss was found, once per window of data.
#[derive(Clone, Copy, Debug)]
pub struct Lost {
    /// When.
    pub now: Instant,
    /// Bytes in flight before the loss was found.
    pub in_flight: Bytes,
}

/// What a path shows of itself to the congestion control of another.
#[derive(Clone, Copy, Debug)]
pub struct Sibling {
    /// Established, with a round-trip time sample and not suspected of having failed.
    pub counts: bool,
    /// Congestion window.
    pub window: Bytes,
    /// Smoothed round-trip time.
    pub srtt: Duration,
    /// Largest payload of a segment.
    pub segment: Bytes,
}

/// All paths of the connection, and which of them is one's own.
#[derive(Clone, Copy, Debug, Default)]
pub struct Siblings<'a> {
    /// Every path, in order of their numbers; empty for an algorithm that is not coupled.
    pub all: &'a [Sibling],
    /// The position of one's own path.
    pub own: usize,
}

/// A congestion control. One instance serves one direction of one path.
pub trait Congestion: Debug + Send {
    /// New data was acknowledged, outside recovery.
    fn on_ack(&mut self, acked: &Acked, siblings: Siblings<'_>);

    /// A loss was found by acknowledgements; at most once per window.
    fn on_loss(&mut self, lost: &Lost, siblings: Siblings<'_>);

    /// The retransmission timer expired. `repeated` for every expiry after the first without
    /// progress between.
    fn on_timeout(&mut self, lost: &Lost, repeated: bool, siblings: Siblings<'_>);

    /// The connection was idle for a retransmission timeout (RFC 5681 §4.1).
    fn on_idle(&mut self) {}

    /// How many bytes may be in flight; never less than one segment.
    fn window(&self) -> Bytes;

    /// Slow start ends at this window; the largest size before the first loss.
    fn slow_start_threshold(&self) -> Bytes;

    /// The rate at which segments should leave; `None` for as fast as the window allows.
    fn pacing_rate(&self) -> Option<Rate> {
        None
    }

    /// `siblings` are read, so they must be filled in.
    fn is_coupled(&self) -> bool {
        false
    }
}

/// What a congestion control is told about its path when it is made.
#[derive(Clone, Copy, Debug)]
pub struct PathBasics {
    /// Largest payload of a segment.
    pub segment: Bytes,
    /// Initial window.
    pub initial_window: Bytes,
    /// Initial slow start threshold; the largest size for none.
    pub initial_threshold: Bytes,
}

algorithms! {
    /// A congestion control and its parameters.
    CongestionConfig, "congestion control",
    fn build(self) (&self, path: &PathBasics) -> Box<dyn Congestion> => (path), {
        Reno => reno,
        Cubic => cubic,
    }
}
