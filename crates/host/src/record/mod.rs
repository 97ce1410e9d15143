//! What is kept of a run: tables by rows or columns, and statistics gathered as they come.

pub mod film;
pub mod histogram;
pub mod messages;
pub mod misses;
pub mod packets;
pub mod samples;
pub mod timeline;

pub use film::{Film, VideoSummary};
pub use histogram::Histogram;
pub use messages::{Deadline, FlowRecord, Held, MessageRow, Summary};
pub use misses::{Arrival, LinkWaits, MissCause, MissCounts, Misses};
pub use packets::{DecisionRow, PacketKind, PacketRow};
pub use samples::{LinkRow, LinkTotal, SubflowRow};
pub use timeline::{Tally, Timeline};

use alloc::vec::Vec;

/// What a run leaves behind.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The flows of the scenario, in its order; behind them, for each answered flow, its answers.
    pub flows: Vec<FlowRecord>,
    /// For each record in `flows` behind the scenario's own: the flow that it answers.
    pub answers: Vec<usize>,
    /// Samples of the links.
    pub links: Vec<LinkRow>,
    /// What each link carried and lost over the whole run, in the order of [`LinkRow::link`].
    pub link_totals: Vec<LinkTotal>,
    /// Samples of the subflows.
    pub subflows: Vec<SubflowRow>,
    /// Scheduling decisions.
    pub decisions: Vec<DecisionRow>,
    /// Packets.
    pub packets: Vec<PacketRow>,
    /// Packets times the links that they entered.
    pub packet_hops: u64,
}

/// Which tables are kept. The statistics of [`Summary`] always are.
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
