//! Repair packets: sent beside a group of source packets, so that lost ones need not be sent again.
//!
//! The codes are systematic: the source packets stay as they are. Packets of a group have positions:
//! the sources from 0 on, then the repair packets. Source packets may differ in length; a code works
//! on their length (16 bits) and their octets, filled up with zeros.
//!
//! [`Encoder`] and [`Decoder`] work on octets. [`Group`] does the same bookkeeping without them, for
//! simulations.

mod amount;
mod coder;
pub mod flexfec;
mod group;
mod reed_solomon;
mod xor;

pub use amount::{MeasuredLoss, failure_probability, repair_for};
pub use coder::{Decoder, Encoder, Recovered};
pub use group::Group;

/// Most packets of a Reed–Solomon group, sources and repairs: the order of the field's generator.
pub const MOST_REED_SOLOMON: usize = 255;

/// Most source packets of a group of the other codes.
pub const MOST_SOURCES: usize = 1024;

/// How repair packets are made of a group's source packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// One repair packet: the exclusive or of all source packets. It repairs one loss.
    Xor,
    /// Interleaved parity (RFC 8627 §1.1.2): a repair packet for each column, of every
    /// `columns`-th source packet. They repair a burst of up to `columns` losses.
    Interleaved {
        /// Columns, and repair packets, if there are as many source packets.
        columns: usize,
    },
    /// Two-dimensional parity (RFC 8627 §1.1.3): a repair packet for each row of `columns` source
    /// packets after each other, then one for each column. The last row may be shorter.
    Grid {
        /// Source packets of a row.
        columns: usize,
    },
    /// A Reed–Solomon code: as many packets as there are sources, of sources and repairs together,
    /// give all of them.
    ReedSolomon {
        /// Repair packets.
        repairs: usize,
    },
}

/// Why there is no such group, or no such packet in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RepairError {
    /// A group without source packets, or a code without columns.
    #[error("a group has at least one source packet and one column")]
    Empty,
    /// More packets than the code can have.
    #[error("a group has at most {most} packets, not {packets}")]
    TooMany {
        /// As many were asked for.
        packets: usize,
        /// The limit.
        most: usize,
    },
    /// The packets given are not as many as the group has.
    #[error("{given} source packets instead of {sources}")]
    Sources {
        /// Source packets given.
        given: usize,
        /// Source packets of the group.
        sources: usize,
    },
    /// The group has no packet at this position.
    #[error("the group has no packet {0}")]
    Position(usize),
    /// The source packet's length does not fit 16 bits.
    #[error("a packet of {0} B cannot be protected")]
    TooLong(usize),
    /// The packets of the group contradict each other.
    #[error("the packets of the group contradict each other")]
    Corrupt,
}

impl Code {
    /// Repair packets for a group of `sources` source packets.
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
        let (packets, most) = match self {
            Self::Interleaved { columns: 0 } | Self::Grid { columns: 0 } => {
                return Err(RepairError::Empty);
            }
            Self::ReedSolomon { repairs } => (sources.saturating_add(repairs), MOST_REED_SOLOMON),
            _ => (sources, MOST_SOURCES),
        };
        if sources == 0 {
            Err(RepairError::Empty)
        } else if packets > most {
            Err(RepairError::TooMany { packets, most })
        } else {
            Ok(())
        }
    }
}
