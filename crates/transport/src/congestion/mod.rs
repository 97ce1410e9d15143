//! Congestion control: the amount of data that may be in flight on a path.
//!
//! A control receives events and returns a window. It can read the state of sibling paths, so that
//! coupled algorithms need no special case.

use alloc::boxed::Box;
use alloc::format;
use core::fmt::Debug;

use skybraid_units::{Bytes, Duration, Instant, Rate, Seed};

pub use idle::{Idle, IdleRestart, Restart};
pub use window::CongestionWindow;

use crate::registry::algorithms;
use crate::{Role, SubflowId, TransportConfig};

/// Implements the methods of a control whose window is that of a field, and that reads no rates.
macro_rules! window_of {
    ($field:ident) => {
        fn on_penalty(&mut self) {
            self.$field.on_penalty();
        }

        fn window(&self) -> Bytes {
            self.$field.window()
        }

        fn slow_start_threshold(&self) -> Bytes {
            self.$field.slow_start_threshold()
        }

        fn reads_rates(&self) -> bool {
            false
        }
    };
}

mod aggregate;
pub mod balia;
pub mod bbr;
pub mod bbr3;
pub mod ccid2;
pub mod ccid5;
pub mod ceiling;
pub mod coupled;
pub mod cubic;
mod cubic_linux;
mod eligible_rate;
pub mod ewtcp;
pub mod hystart;
pub mod idle;
pub mod lia;
mod model;
pub mod olia;
pub mod reno;
mod rounds;
pub mod vegas;
pub mod westwood;
pub mod westwood_plus;
pub mod window;
pub mod wvegas;

/// Result of an acknowledgement.
#[derive(Clone, Copy, Debug, Default)]
pub struct Acked {
    /// Arrival time of the acknowledgement.
    pub now: Instant,
    /// Bytes acknowledged for the first time, cumulatively or selectively.
    pub bytes: Bytes,
    /// Bytes acknowledged for the first time since the start, including `bytes`.
    pub delivered: Bytes,
    /// Smoothed round-trip time.
    pub srtt: Duration,
    /// Round-trip time of the first segment newly acknowledged, if measured.
    pub rtt: Option<Duration>,
    /// Round-trip time of the last segment newly acknowledged, which excludes the delay of the
    /// acknowledgement, if measured.
    pub latest_rtt: Option<Duration>,
    /// Bytes in flight before the acknowledgement.
    pub in_flight: Bytes,
    /// Bytes in flight after the acknowledgement.
    pub in_flight_after: Bytes,
    /// Bytes newly marked lost by this acknowledgement.
    pub lost: Bytes,
    /// True if the window was fully used, so that growth makes sense (RFC 7661; Linux's
    /// `tcp_is_cwnd_limited`; RFC 9293 leaves this open).
    pub window_limited: bool,
    /// True during a recovery: between [`Congestion::on_loss`] or [`Congestion::on_timeout`] and
    /// [`Congestion::on_recovered`].
    pub recovering: bool,
    /// Delivery rate sample of this acknowledgement, if any, for a control that [reads
    /// rates](Congestion::reads_rates).
    pub rate: Option<RateSample>,
}

/// Delivery rate sample: the rate of delivery between the sending of a segment and its
/// acknowledgement (draft-ietf-ccwg-bbr §4.1, `C.delivered` and related state).
#[derive(Clone, Copy, Debug)]
pub struct RateSample {
    /// Bytes delivered divided by `interval`.
    pub rate: Rate,
    /// Longer one of the intervals in which those bytes were sent and acknowledged.
    pub interval: Duration,
    /// [`Acked::delivered`] when the newest acknowledged segment was sent. A round trip ends once
    /// this reaches the value of `delivered` at its start.
    pub prior_delivered: Bytes,
    /// True if the application, not the network, limited the rate when that segment was sent.
    pub app_limited: bool,
    /// Bytes in flight just after that segment was sent.
    pub sent_in_flight: Bytes,
    /// Bytes marked lost since that segment was sent.
    pub lost: Bytes,
}

/// Detection of a loss, at most once per window of data.
#[derive(Clone, Copy, Debug)]
pub struct Lost {
    /// Time of detection.
    pub now: Instant,
    /// Bytes in flight before the detection.
    pub in_flight: Bytes,
}

/// State of a congestion control before its reaction to a loss.
#[derive(Clone, Copy, Debug)]
pub struct ControlState {
    /// Congestion window.
    pub window: Bytes,
    /// Slow start threshold.
    pub threshold: Bytes,
}

/// State of a path that the connection's congestion controls can read.
#[derive(Clone, Copy, Debug)]
pub struct Sibling {
    /// True if the path is established, has a round-trip time sample and is not suspected of having
    /// failed.
    pub active: bool,
    /// Congestion window; in fast recovery, the slow start threshold (RFC 6356 §3).
    pub window: Bytes,
    /// Bytes acknowledged since the last loss.
    pub acked_since_loss: Bytes,
    /// Bytes acknowledged between the last loss and the one before.
    pub acked_between_losses: Bytes,
    /// Smoothed round-trip time.
    pub srtt: Duration,
    /// Maximum payload of a segment.
    pub segment: Bytes,
}

/// All paths of the connection, and the position of the control's own path.
#[derive(Clone, Copy, Debug, Default)]
pub struct Siblings<'a> {
    /// All paths in numeric order; empty for an uncoupled algorithm.
    pub all: &'a [Sibling],
    /// Position of the control's own path.
    pub own: usize,
}

/// A congestion control. One instance serves one direction of one path.
///
/// The events of one acknowledgement come in this order: `on_delivery`; then `on_recovered` if it
/// ends a recovery; then `on_loss` if it reveals a loss outside recovery, or else `on_ack` outside
/// fast recovery.
pub trait Congestion: Debug + Send {
    /// New data was acknowledged outside fast recovery: the window may grow. Also called during
    /// recovery from a timeout (slow start from one segment).
    fn on_ack(&mut self, acked: &Acked, siblings: Siblings<'_>);

    /// An acknowledgement reported deliveries or losses, in recovery or not. For algorithms that
    /// measure.
    fn on_delivery(&mut self, acked: &Acked, siblings: Siblings<'_>) {
        let _ = (acked, siblings);
    }

    /// All data outstanding at the detection of a loss has been acknowledged.
    fn on_recovered(&mut self, now: Instant) {
        let _ = now;
    }

    /// A loss was detected by acknowledgements; at most once per window.
    fn on_loss(&mut self, lost: &Lost, siblings: Siblings<'_>);

    /// The retransmission timer expired. `repeated` is true for every expiry after the first
    /// without progress in between.
    fn on_timeout(&mut self, lost: &Lost, repeated: bool, siblings: Siblings<'_>);

    /// The handshake is complete; `rtt` is its round-trip time, unless its segments were
    /// retransmitted.
    fn on_established(&mut self, now: Instant, rtt: Option<Duration>) {
        let _ = (now, rtt);
    }

    /// New data is about to be sent with nothing in flight.
    fn on_restart(&mut self, restart: &Restart) {
        let _ = restart;
    }

    /// The last loss or timeout was spurious: data was only late. The control restores `before`
    /// (RFC 4015); a control that models the path may ignore it.
    fn on_spurious(&mut self, before: &ControlState) {
        let _ = before;
    }

    /// The connection sends again after an idle period of at least one retransmission timeout (RFC
    /// 5681 §4.1), or has not filled its window for as long ([`IdleRestart::Used`]).
    fn on_idle(&mut self, idle: &Idle) {
        let _ = idle;
    }

    /// The path delays the others and must halve its window (penalisation of MPTCP, Raiciu et al.
    /// 2012). A control that models the path may ignore it.
    fn on_penalty(&mut self) {}

    /// Congestion window: maximum bytes in flight, at least one segment.
    fn window(&self) -> Bytes;

    /// Window at which slow start ends; the maximum size before the first loss.
    fn slow_start_threshold(&self) -> Bytes;

    /// Pacing rate; `None` for as fast as the window allows.
    fn pacing_rate(&self) -> Option<Rate> {
        None
    }

    /// True if the control sets the window in recovery itself; otherwise proportional rate
    /// reduction (RFC 9937) leads it to [`window`](Self::window).
    fn governs_recovery(&self) -> bool {
        false
    }

    /// Sets the approximate number of packets per acknowledgement, if the transport negotiates it
    /// (Ack Ratio of RFC 4340 §11.3).
    fn set_ack_ratio(&mut self, ratio: u32) {
        let _ = ratio;
    }

    /// True if the control reads its siblings.
    fn is_coupled(&self) -> bool {
        false
    }

    /// True if the control reads [`Acked::rate`]; otherwise no rates are sampled.
    fn reads_rates(&self) -> bool {
        true
    }
}

/// Properties of a path at the creation of its congestion control.
#[derive(Clone, Copy, Debug)]
pub struct PathBasics {
    /// Maximum payload of a segment.
    pub segment: Bytes,
    /// Initial window.
    pub initial_window: Bytes,
    /// Initial slow start threshold; the maximum size for none.
    pub initial_threshold: Bytes,
    /// True if the peer sends selective acknowledgements, so that several losses per round trip can
    /// be distinguished.
    pub sack: bool,
    /// Seed of random draws, distinct for each path and direction.
    pub seed: Seed,
}

/// Factory of a custom congestion control.
pub trait Factory: Debug + Send + Sync {
    /// Builds a new instance for a path.
    fn build(&self, path: &PathBasics) -> Box<dyn Congestion>;
}

impl PathBasics {
    /// Returns the properties of a path that acknowledges selectively.
    #[cfg(test)]
    pub(crate) fn in_test(segment: Bytes, initial_window: Bytes, initial_threshold: Bytes) -> Self {
        Self { segment, initial_window, initial_threshold, sack: true, seed: Seed::default() }
    }

    /// Returns the properties of subflow `id` at one end of a connection, with a random stream of
    /// its own.
    pub(crate) fn of(
        config: &TransportConfig,
        role: Role,
        id: SubflowId,
        segment: u32,
        sack: bool,
    ) -> Self {
        let segment = u64::from(segment);
        let name = format!("{role:?} {}", id.number());
        Self {
            segment: Bytes::new(segment),
            initial_window: Bytes::new(segment * u64::from(config.initial_window.max(1))),
            initial_threshold: config.initial_threshold.unwrap_or(Bytes::new(u64::MAX)),
            sack,
            seed: Seed(config.seed.stream(&name).next_u64()),
        }
    }
}

algorithms! {
    /// A congestion control and its parameters.
    CongestionConfig, "congestion control",
    fn build(self) (&self, path: &PathBasics) -> Box<dyn Congestion> => (path),
    custom dyn Factory, absent reno::Config::default(),
    {
        Reno => reno,
        Cubic => cubic,
        Lia => lia,
        Olia => olia,
        Balia => balia,
        Wvegas => wvegas,
        Ewtcp => ewtcp,
        Coupled => coupled,
        Vegas => vegas,
        Westwood => westwood,
        WestwoodPlus => westwood_plus,
        Bbr => bbr,
        Bbr3 => bbr3,
        Ccid2 => ccid2,
        Ccid5 => ccid5,
    }
}
