//! Congestion control: how much may be in flight on a path.
//!
//! Past-tense events in, one answer out. Sibling paths can be seen read-only, so that coupled
//! algorithms are ordinary ones.

use alloc::boxed::Box;
use alloc::format;
use core::fmt::Debug;

use skybraid_units::{Bytes, Duration, Instant, Rate, Seed};

use crate::registry::algorithms;
use crate::{PathId, Role, TransportConfig};

mod aggregate;
pub mod balia;
pub mod bbr;
pub mod bbr3;
pub mod ccid2;
pub mod ccid5;
pub mod coupled;
pub mod cubic;
mod cubic_linux;
mod eligible_rate;
pub mod ewtcp;
pub mod hystart;
pub mod lia;
mod model;
pub mod olia;
pub mod reno;
mod rounds;
pub mod vegas;
pub mod westwood;
pub mod westwood_plus;
pub mod wvegas;

/// What an acknowledgement brought.
#[derive(Clone, Copy, Debug, Default)]
pub struct Acked {
    /// When.
    pub now: Instant,
    /// Bytes acknowledged for the first time, cumulatively or selectively.
    pub bytes: Bytes,
    /// Bytes acknowledged for the first time since the start, these included.
    pub delivered: Bytes,
    /// Smoothed round-trip time.
    pub srtt: Duration,
    /// The round-trip time that this acknowledgement measured, if it measured one.
    pub rtt: Option<Duration>,
    /// The same of the segment that was sent last of those acknowledged, where [`rtt`](Self::rtt) is
    /// that of the first: without the time that the acknowledgement was delayed.
    pub latest_rtt: Option<Duration>,
    /// Bytes in flight before the acknowledgement.
    pub in_flight: Bytes,
    /// Bytes in flight after it.
    pub in_flight_after: Bytes,
    /// Bytes that this acknowledgement showed to be lost.
    pub lost: Bytes,
    /// The window was used to the full, so that growing it makes sense (RFC 9293 leaves this open;
    /// RFC 7661 and Linux's `tcp_is_cwnd_limited` explain it).
    pub window_limited: bool,
    /// The connection is repairing a loss: between [`Congestion::on_loss`] or
    /// [`Congestion::on_timeout`] and [`Congestion::on_recovered`].
    pub recovering: bool,
    /// The delivery rate that this acknowledgement measured, if it measured one.
    pub rate: Option<RateSample>,
}

/// A delivery rate sample (draft-ietf-ccwg-bbr §4.1, `C.delivered` and its like): how fast the network
/// delivered between the sending of a segment and its acknowledgement.
#[derive(Clone, Copy, Debug)]
pub struct RateSample {
    /// Bytes delivered over the longer of the intervals in which they were sent and acknowledged.
    pub rate: Rate,
    /// That interval.
    pub interval: Duration,
    /// [`Acked::delivered`] when the newest segment acknowledged here was sent. A round trip is over
    /// once this reaches the value that `delivered` had when the round began.
    pub prior_delivered: Bytes,
    /// The application, not the network, held back data when that segment was sent.
    pub app_limited: bool,
    /// Bytes in flight just after that segment was sent.
    pub sent_in_flight: Bytes,
    /// Bytes taken for lost between that segment's sending and now.
    pub lost: Bytes,
}

/// A loss was found, once per window of data.
#[derive(Clone, Copy, Debug)]
pub struct Lost {
    /// When.
    pub now: Instant,
    /// Bytes in flight before the loss was found.
    pub in_flight: Bytes,
}

/// How a congestion control stood before it reacted to a loss.
#[derive(Clone, Copy, Debug)]
pub struct Before {
    /// Its window.
    pub window: Bytes,
    /// Its slow start threshold.
    pub threshold: Bytes,
}

/// What a path shows of itself to the congestion controls of the connection.
#[derive(Clone, Copy, Debug)]
pub struct Sibling {
    /// Established, with a round-trip time sample and not suspected of having failed.
    pub counts: bool,
    /// Congestion window; in fast recovery the slow start threshold (RFC 6356 §3).
    pub window: Bytes,
    /// Bytes acknowledged since the last loss.
    pub acked_since_loss: Bytes,
    /// Bytes acknowledged between the last loss and the one before.
    pub acked_between_losses: Bytes,
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
///
/// One acknowledgement brings these events, in this order: `on_delivery`; then `on_recovered` if it ends
/// a recovery; then `on_loss` if it shows a loss outside recovery, or else `on_ack` outside fast
/// recovery.
pub trait Congestion: Debug + Send {
    /// New data was acknowledged outside fast recovery: the window may grow. Also called while a
    /// timeout is repaired (slow start from one segment).
    fn on_ack(&mut self, acked: &Acked, siblings: Siblings<'_>);

    /// An acknowledgement brought news, of deliveries or of losses, in recovery or not: for algorithms
    /// that measure.
    fn on_delivery(&mut self, acked: &Acked, siblings: Siblings<'_>) {
        let _ = (acked, siblings);
    }

    /// All that was outstanding when a loss was found has been acknowledged.
    fn on_recovered(&mut self, now: Instant) {
        let _ = now;
    }

    /// A loss was found by acknowledgements; at most once per window.
    fn on_loss(&mut self, lost: &Lost, siblings: Siblings<'_>);

    /// The retransmission timer expired. `repeated` for every expiry after the first without
    /// progress between.
    fn on_timeout(&mut self, lost: &Lost, repeated: bool, siblings: Siblings<'_>);

    /// The handshake is over; it measured `rtt`, unless its segments were sent again.
    fn on_established(&mut self, now: Instant, rtt: Option<Duration>) {
        let _ = (now, rtt);
    }

    /// Data is about to leave while nothing is in flight, because the application had nothing to send.
    fn on_restart(&mut self, now: Instant) {
        let _ = now;
    }

    /// The last loss or timeout turned out to be none: data was only late, and the control returns to
    /// how it stood (RFC 4015). A control that models the path may ignore it.
    fn on_spurious(&mut self, before: &Before) {
        let _ = before;
    }

    /// The connection sends again after having been idle for a retransmission timeout (RFC 5681
    /// §4.1).
    fn on_idle(&mut self, now: Instant) {
        let _ = now;
    }

    /// The path holds up the others, and half of its window is taken away (penalisation of MPTCP,
    /// Raiciu et al. 2012). A control that models the path may ignore it.
    fn on_penalty(&mut self) {}

    /// How many bytes may be in flight; never less than one segment.
    fn window(&self) -> Bytes;

    /// Slow start ends at this window; the largest size before the first loss.
    fn slow_start_threshold(&self) -> Bytes;

    /// The rate at which segments should leave; `None` for as fast as the window allows.
    fn pacing_rate(&self) -> Option<Rate> {
        None
    }

    /// The control sets the window in recovery itself; otherwise proportional rate reduction
    /// (RFC 9937) leads it to [`window`](Self::window).
    fn governs_recovery(&self) -> bool {
        false
    }

    /// An acknowledgement stands for about this many packets, where the transport negotiates it (the
    /// Ack Ratio of RFC 4340 §11.3).
    fn set_ack_ratio(&mut self, ratio: u32) {
        let _ = ratio;
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
    /// The peer acknowledges selectively, so that several losses in a round trip can be told apart.
    pub sack: bool,
    /// What random draws derive from; of its own for each path and direction.
    pub seed: Seed,
}

/// Makes congestion controls of a kind that the driver brings along.
pub trait Factory: Debug + Send + Sync {
    /// A fresh instance for a path.
    fn build(&self, path: &PathBasics) -> Box<dyn Congestion>;
}

impl PathBasics {
    /// Those of subflow `id` at one end of a connection, with its own stream of draws.
    pub(crate) fn of(
        config: &TransportConfig,
        role: Role,
        id: PathId,
        segment: u32,
        sack: bool,
    ) -> Self {
        let segment = u64::from(segment);
        let name = format!("{role:?} {}", id.0);
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
