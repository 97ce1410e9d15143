//! Rows of packets and of scheduling decisions.

use skybraid_link::Cause;
use skybraid_transport::scheduler::Reason;
use skybraid_transport::segment::{DccpKind, Flags};
use skybraid_transport::{Body, PathId, Segment};
use skybraid_units::{Instant, named};

named! {
    /// Kind of a packet.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum PacketKind {
        /// Packet with payload.
        Data = "data",
        /// Pure acknowledgement.
        Ack = "ack",
        /// Packet of the handshake of a connection or subflow.
        Handshake = "handshake",
        /// Report or probe of the datagram protocol.
        Report = "report",
        /// Repair packet of the datagram protocol.
        Repair = "repair",
    }
}

impl PacketKind {
    /// Returns the kind of `segment`.
    pub const fn of(segment: &Segment) -> Self {
        match &segment.body {
            Body::Datagram(datagram) if datagram.fragments > 0 => Self::Data,
            Body::Datagram(_) | Body::Report(_) => Self::Report,
            Body::Repair(_) => Self::Repair,
            Body::Tcp(tcp) if tcp.flags.has(Flags::SYN) => Self::Handshake,
            Body::Tcp(tcp) if tcp.len > 0 => Self::Data,
            Body::Tcp(_) => Self::Ack,
            Body::Dccp(dccp) => match dccp.kind {
                DccpKind::Request | DccpKind::Response => Self::Handshake,
                DccpKind::Data | DccpKind::DataAck => Self::Data,
                DccpKind::Ack => Self::Ack,
                DccpKind::Sync | DccpKind::SyncAck => Self::Report,
            },
        }
    }
}

/// A packet on a directed link.
#[derive(Clone, Copy, Debug)]
pub struct PacketRow {
    /// Time of admission to the link.
    pub entered: Instant,
    /// Time of arrival or loss.
    pub left: Instant,
    /// Number of the [`DirectedLink`](crate::DirectedLink).
    pub link: u16,
    /// Number of the flow.
    pub flow: u16,
    /// Size of the IP packet.
    pub bytes: u32,
    /// Kind of the packet.
    pub kind: PacketKind,
    /// Cause of its loss, if it was lost.
    pub cause: Option<Cause>,
}

/// A scheduling decision.
#[derive(Clone, Copy, Debug)]
pub struct DecisionRow {
    /// Time of the decision.
    pub at: Instant,
    /// Number of the flow.
    pub flow: u16,
    /// Whether the vehicle decided.
    pub vehicle: bool,
    /// Number of the first message that ends in the scheduled unit.
    pub message: u32,
    /// Bit set of the chosen paths, in the connection's own numbering; 0 for "wait".
    pub paths: u64,
    /// Reason of the decision.
    pub reason: Reason,
    /// For "wait": the path worth waiting for, in the connection's own numbering, if there is a particular one.
    pub waits_for: Option<PathId>,
    /// For "wait": the time at which the scheduler must decide again at the latest, if it named one.
    pub until: Option<Instant>,
}
