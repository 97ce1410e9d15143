//! Samples of links and subflows, every 100 ms.

use skybraid_link::Cause;
use skybraid_units::{Duration, Instant};

/// From one sample to the next.
pub const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);

/// A link at an instant, and what happened on it since the last sample.
#[derive(Clone, Copy, Debug)]
pub struct LinkRow {
    /// When.
    pub at: Instant,
    /// The directed link: see [`LinkSetup`](crate::LinkSetup).
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
    /// Packets that arrived since the last sample.
    pub delivered: u32,
    /// Bytes that arrived since the last sample.
    pub delivered_bytes: u64,
    /// Packets lost since the last sample, in the order of [`Cause::ALL`].
    pub lost: [u32; Cause::ALL.len()],
}

/// What a link carried and lost over a whole run.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinkTotal {
    /// Packets that arrived.
    pub delivered: u64,
    /// Bytes that arrived.
    pub delivered_bytes: u64,
    /// Packets lost, in the order of [`Cause::ALL`].
    pub lost: [u64; Cause::ALL.len()],
}

/// A subflow at an instant, and what happened on it since the last sample.
#[derive(Clone, Copy, Debug)]
pub struct SubflowRow {
    /// When.
    pub at: Instant,
    /// The flow.
    pub flow: u16,
    /// Which end of a connection sends: 0 the vehicle, 1 the ground; of proxy number `n`, 2 + 2 `n` its
    /// side towards the vehicle, 3 + 2 `n` that towards the ground.
    pub end: u8,
    /// The path, as a position in [`Setup::paths`](crate::Setup::paths).
    pub path: u16,
    /// Its number within the connection.
    pub subflow: u8,
    /// Congestion window in bytes.
    pub window: u64,
    /// Slow start threshold in bytes; the largest number for none.
    pub threshold: u64,
    /// Smoothed round-trip time; `None` before the first sample.
    pub srtt: Option<Duration>,
    /// Bytes in flight.
    pub in_flight: u64,
    /// Bytes acknowledged since the last sample.
    pub acked_bytes: u64,
    /// Segments sent again since the last sample.
    pub retransmitted: u64,
    /// Segments taken for lost since the last sample.
    pub lost: u64,
    /// Reductions of the window after a loss since the last sample, timeouts included.
    pub reductions: u64,
    /// Pacing rate in bit/s, where there is one.
    pub pacing_bps: Option<u64>,
}

impl SubflowRow {
    /// The vehicle sends.
    pub const fn vehicle(&self) -> bool {
        self.end == 0
    }
}
