//! The record of a run: optional tables, and statistics that are updated as events happen.

pub mod histogram;
pub mod messages;
pub mod misses;
pub mod packets;
pub mod samples;
pub mod summary;
pub mod timeline;
pub mod video_stats;

pub use histogram::Histogram;
pub use messages::{FlowRecord, MessageRow};
pub use misses::{Arrival, LinkWaits, MissCause, MissCounts, Misses};
pub use packets::{DecisionRow, PacketKind, PacketRow};
pub use samples::{LinkRow, LinkTotal, SubflowRow};
pub use summary::{Deadline, Held, Summary};
pub use timeline::{Tally, Timeline};
pub use video_stats::{VideoStats, VideoSummary};

use alloc::vec::Vec;

/// The outcome of a run.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Records of the scenario's flows, in its order; then one record of answers for each answered flow.
    pub flows: Vec<FlowRecord>,
    /// The answered flow of each record of answers in `flows`.
    pub answers: Vec<usize>,
    /// Samples of the links.
    pub links: Vec<LinkRow>,
    /// Totals of each directed link, in the order of [`LinkRow::link`].
    pub link_totals: Vec<LinkTotal>,
    /// Samples of the subflows.
    pub subflows: Vec<SubflowRow>,
    /// Scheduling decisions.
    pub decisions: Vec<DecisionRow>,
    /// Packets.
    pub packets: Vec<PacketRow>,
    /// Number of times that a packet entered a link.
    pub packet_hops: u64,
}

/// Tables to keep. The statistics of [`Summary`] are always kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// A row per message.
    pub messages: bool,
    /// A row per subflow and 100 ms.
    pub subflows: bool,
    /// A row per link and 100 ms.
    pub links: bool,
    /// A row per scheduling decision.
    pub decisions: bool,
    /// A row per packet and link.
    pub packets: bool,
}
