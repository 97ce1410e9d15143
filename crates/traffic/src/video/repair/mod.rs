//! Forward error correction: repair packets from which a group recovers lost source packets without
//! retransmission.
//!
//! The codes are systematic: source packets stay unchanged. Each packet of a group has a position: the
//! source packets from 0 on, then the repair packets. Source packets may differ in length; a code protects
//! their length (16 bits) and their bytes, padded with zeros.
//!
//! [`Encoder`] and [`Decoder`] work on bytes. [`Group`] tracks which packets can be recovered without
//! their bytes, for simulations.

mod amount;
mod coder;
pub mod flexfec;
mod group;
mod reed_solomon;
mod xor;

pub use amount::{MeasuredLoss, failure_probability, repair_for};
pub use coder::{Decoder, Encoder, Recovered};
pub use group::Group;

/// Maximum number of packets of a Reed–Solomon group, sources and repairs: the order of the field's generator.
pub const MAX_REED_SOLOMON: usize = 255;

/// Maximum number of source packets of a group of the other codes.
pub const MAX_SOURCES: usize = 1024;

/// Erasure code of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// One repair packet: the exclusive or of all source packets. It recovers one loss.
    Xor,
    /// Interleaved parity (RFC 8627 §1.1.2): a repair packet for each column, which covers every
    /// `columns`-th source packet. The code recovers a burst of up to `columns` losses.
    Interleaved {
        /// Number of columns, and of repair packets if there are as many source packets.
        columns: usize,
    },
    /// Two-dimensional parity (RFC 8627 §1.1.3): a repair packet for each row of `columns` consecutive
    /// source packets, then one for each column. The last row may be shorter.
    Grid {
        /// Number of source packets of a row.
        columns: usize,
    },
    /// Reed–Solomon code: any subset of source and repair packets as large as the number of sources recovers
    /// all source packets.
    ReedSolomon {
        /// Number of repair packets.
        repairs: usize,
    },
}

/// Error in a group or in one of its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RepairError {
    /// The group has no source packet, or the code no column.
    #[error("a group has at least one source packet and one column")]
    Empty,
    /// The group has more packets than the code supports.
    #[error("a group has at most {max} packets, not {packets}")]
    TooMany {
        /// Number of packets requested.
        packets: usize,
        /// Maximum number of packets.
        max: usize,
    },
    /// The number of packets given is not that of the group.
    #[error("{given} source packets instead of {sources}")]
    Sources {
        /// Number of source packets given.
        given: usize,
        /// Number of source packets of the group.
        sources: usize,
    },
    /// The group has no packet at this position.
    #[error("the group has no packet {0}")]
    Position(usize),
    /// The length of the source packet does not fit 16 bits.
    #[error("a packet of {0} B cannot be protected")]
    TooLong(usize),
    /// The packets of the group contradict each other.
    #[error("the packets of the group contradict each other")]
    Corrupt,
}

impl Code {
    /// Returns the number of repair packets of a group of `sources` source packets.
    pub const fn repairs(self, sources: usize) -> usize {
        match self {
            Self::Xor => 1,
            Self::Interleaved { columns } => {
                if columns < sources {
                    columns
                } else {
                    sources
                }
            }
            Self::Grid { columns: 0 } => 0,
            Self::Grid { columns } if columns < sources => {
                columns.saturating_add(sources.div_ceil(columns))
            }
            Self::Grid { .. } => sources.saturating_add(1),
            Self::ReedSolomon { repairs } => repairs,
        }
    }

    const fn check(self, sources: usize) -> Result<(), RepairError> {
        let (packets, max) = match self {
            Self::Interleaved { columns: 0 } | Self::Grid { columns: 0 } => {
                return Err(RepairError::Empty);
            }
            Self::ReedSolomon { repairs } => (sources.saturating_add(repairs), MAX_REED_SOLOMON),
            _ => (sources, MAX_SOURCES),
        };
        if sources == 0 {
            Err(RepairError::Empty)
        } else if packets > max {
            Err(RepairError::TooMany { packets, max })
        } else {
            Ok(())
        }
    }
}
