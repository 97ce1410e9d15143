//! Periodic samples of links and subflows.

use skybraid_link::Cause;
use skybraid_units::{Duration, Instant};

/// Interval between samples.
pub const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);

/// Sample of a directed link: its state, and its counts since the last sample.
#[derive(Clone, Copy, Debug)]
pub struct LinkRow {
    /// Time of the sample.
    pub at: Instant,
    /// Number of the [`DirectedLink`](crate::DirectedLink).
    pub link: u16,
    /// Rate at that instant in bit/s.
    pub rate_bps: u64,
    /// Propagation delay at that instant.
    pub delay: Duration,
    /// Loss probability at that instant.
    pub loss: f64,
    /// False during an outage.
    pub up: bool,
    /// Bytes in the queue.
    pub queue_bytes: u64,
    /// Packets delivered since the last sample.
    pub delivered: u32,
    /// Bytes delivered since the last sample.
    pub delivered_bytes: u64,
    /// Packets lost since the last sample, in the order of [`Cause::ALL`].
    pub lost: [u32; Cause::ALL.len()],
}

/// Counts of a directed link over a run, or from one sample to the next.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinkTotal {
    /// Packets delivered.
    pub delivered: u64,
    /// Bytes delivered.
    pub delivered_bytes: u64,
    /// Packets lost, in the order of [`Cause::ALL`].
    pub lost: [u64; Cause::ALL.len()],
}

impl LinkTotal {
    /// Returns the counts since `earlier` totals of the same link.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            delivered: self.delivered - earlier.delivered,
            delivered_bytes: self.delivered_bytes - earlier.delivered_bytes,
            lost: core::array::from_fn(|cause| self.lost[cause] - earlier.lost[cause]),
        }
    }
}

/// Sample of a subflow: its state, and its counts since the last sample.
#[derive(Clone, Copy, Debug)]
pub struct SubflowRow {
    /// Time of the sample.
    pub at: Instant,
    /// Number of the flow.
    pub flow: u16,
    /// Sending end: 0 for the vehicle, 1 for the ground; for proxy number `n`, 2 + 2 `n` for its side towards the
    /// vehicle, 3 + 2 `n` for its side towards the ground.
    pub end: u8,
    /// Path, as a position in [`Setup::paths`](crate::Setup::paths).
    pub path: u16,
    /// Number of the subflow within the connection.
    pub subflow: u8,
    /// Congestion window in bytes.
    pub window: u64,
    /// Slow-start threshold in bytes; `u64::MAX` for none.
    pub threshold: u64,
    /// Smoothed round-trip time; `None` before the first sample.
    pub srtt: Option<Duration>,
    /// Bytes in flight.
    pub in_flight: u64,
    /// Bytes acknowledged since the last sample.
    pub acked_bytes: u64,
    /// Segments retransmitted since the last sample.
    pub retransmitted: u64,
    /// Segments marked as lost since the last sample.
    pub lost: u64,
    /// Reductions of the window after a loss since the last sample, timeouts included.
    pub reductions: u64,
    /// Pacing rate in bit/s, if the sender paces.
    pub pacing_bps: Option<u64>,
}

impl SubflowRow {
    /// Whether the vehicle sends.
    pub const fn vehicle(&self) -> bool {
        self.end == 0
    }
}
