//! What is kept of a run: tables by rows or columns, and statistics gathered as they come.

pub mod histogram;
pub mod messages;
pub mod packets;
pub mod samples;

pub use histogram::Histogram;
pub use messages::{FlowRecord, Held, MessageRow, Summary};
pub use packets::{DecisionRow, PacketKind, PacketRow};
pub use samples::{LinkRow, LinkTotal, SubflowRow};

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
