//! Packets and scheduling decisions, on request.

use skybraid_link::Cause;
use skybraid_transport::scheduler::Reason;
use skybraid_transport::segment::{DccpKind, Flags};
use skybraid_transport::{Body, PathId, Segment};
use skybraid_units::Instant;

/// What a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketKind {
    /// Carries payload.
    Data,
    /// Acknowledges only.
    Ack,
    /// Opens a connection or subflow.
    Handshake,
    /// A report or probe of the datagram protocol.
    Report,
}

impl PacketKind {
    /// Every kind, in the order of the tables.
    pub const ALL: [Self; 4] = [Self::Data, Self::Ack, Self::Handshake, Self::Report];

    /// What `segment` is.
    pub const fn of(segment: &Segment) -> Self {
        match &segment.body {
            Body::Datagram(datagram) if datagram.fragments > 0 => Self::Data,
            Body::Datagram(_) | Body::Report(_) => Self::Report,
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

    /// The name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Ack => "ack",
            Self::Handshake => "handshake",
            Self::Report => "report",
        }
    }
}

/// A packet on a link.
#[derive(Clone, Copy, Debug)]
pub struct PacketRow {
    /// When it entered.
    pub entered: Instant,
    /// When it arrived, or was lost.
    pub left: Instant,
    /// The directed link: see [`LinkSetup`](crate::LinkSetup).
    pub link: u16,
    /// The flow.
    pub flow: u16,
    /// Size of the IP packet.
    pub bytes: u32,
    /// What it is.
    pub kind: PacketKind,
    /// Why it was lost, if it was.
    pub cause: Option<Cause>,
}

/// A scheduling decision.
#[derive(Clone, Copy, Debug)]
pub struct DecisionRow {
    /// When.
    pub at: Instant,
    /// The flow.
    pub flow: u16,
    /// The deciding side is the vehicle.
    pub vehicle: bool,
    /// Number of the first message that ends in the unit.
    pub message: u32,
    /// Chosen paths by the connection's own numbering, bit n for path n; 0 for "wait".
    pub paths: u64,
    /// Why.
    pub reason: Reason,
    /// For "wait": the path that is worth waiting for by the connection's own numbering, if it is one
    /// in particular.
    pub waits_for: Option<PathId>,
    /// For "wait": when the scheduler asked to be asked again at the latest, if it did.
    pub until: Option<Instant>,
}
