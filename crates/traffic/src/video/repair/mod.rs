//! Forward error correction: repair packets from which a group recovers lost source packets without
//! retransmission.
//!
//! The code is systematic: source packets stay unchanged. Each packet of a group has a position: the source packets
//! from 0 on, then the repair packets. As many packets as there are sources recover all of them. Source packets may
//! differ in length; the code protects their length (16 bits) and their bytes, padded with zeros.
//!
//! [`Encoder`] and [`Decoder`] work on bytes. [`Group`] tracks which packets can be recovered without
//! their bytes, for simulations.

mod amount;
mod coder;
mod group;
mod reed_solomon;

pub use amount::{MeasuredLoss, failure_probability, repair_for};
pub use coder::{Decoder, Encoder, Recovered};
pub use group::Group;

/// Maximum number of packets of a coded group, sources and repairs: the order of the field's generator.
pub const MAX_PACKETS: usize = 255;

/// Error in a group or in one of its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RepairError {
    /// The group has no source packet.
    #[error("a group has at least one source packet")]
    Empty,
    /// The group has more packets than the code supports.
    #[error("a group has at most {MAX_PACKETS} packets, not {0}")]
    TooMany(usize),
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
