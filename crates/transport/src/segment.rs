//! What crosses a path: headers in full, payload as a length.
//!
//! Segments are small copyable records. Payload bytes are never copied in virtual time.

use skybraid_units::{Duration, Instant};

use crate::mpdccp::AckVector;

/// Bytes of an IPv4 header without options.
pub const IPV4_HEADER: u32 = 20;
/// Bytes of a UDP header.
pub const UDP_HEADER: u32 = 8;
/// Bytes of a TCP header without options.
pub const TCP_HEADER: u32 = 20;
/// Bytes of the TCP timestamp option with its padding (RFC 7323 appendix A).
pub const TIMESTAMP_OPTION: u32 = 12;
/// Bytes of a DSS option with a 4-byte data ACK and an 8-byte data sequence number, without
/// checksum, padded (RFC 8684 §3.3).
pub const DSS_MAPPING_OPTION: u32 = 24;
/// Bytes of a DSS option that carries a 4-byte data ACK alone.
pub const DSS_ACK_OPTION: u32 = 8;

/// One packet's transport header and payload length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Size of the IP packet in bytes, headers included.
    pub size: u32,
    /// When it was sent (the timestamp option's value, exact).
    pub sent_at: Instant,
    /// Number of the first message that ends in this segment.
    pub first_message: u32,
    /// How many messages end in this segment.
    pub messages: u16,
    /// The stream of these messages, where several share a connection.
    pub stream: u8,
    /// Bytes of a further message follow behind the last one that ends here.
    pub tail: bool,
    /// Protocol part.
    pub body: Body,
}

/// The protocol part of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// Part of a message over UDP.
    Datagram(Datagram),
    /// The receiver's account of what arrives on a path.
    Report(Report),
    /// A TCP segment, with its MPTCP options where there are any.
    Tcp(Tcp),
    /// A DCCP packet, with its MP-DCCP options where there are any.
    Dccp(Dccp),
}

impl Body {
    /// Bytes of the application that it carries.
    pub const fn payload_bytes(&self) -> u32 {
        match self {
            Self::Datagram(datagram) => datagram.len,
            Self::Report(_) => 0,
            Self::Tcp(tcp) => tcp.len,
            Self::Dccp(dccp) => dccp.data.len,
        }
    }
}

/// Part of a message over UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Number of the datagram within the connection; all copies of one share it.
    pub sequence: u64,
    /// The message that it belongs to.
    pub message: u32,
    /// Payload bytes.
    pub len: u32,
    /// Which part of the message, from 0.
    pub fragment: u16,
    /// Into how many parts the message was split.
    pub fragments: u16,
}

/// The receiver's account of what arrives on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// `sent_at` of the newest datagram seen on this path.
    pub echo: Instant,
    /// When that datagram arrived, by the receiver.
    pub arrived: Instant,
    /// Datagrams that have arrived on this path so far.
    pub received: u64,
}

/// A TCP segment. Sequence numbers are 64 bits wide and start at 0; on the wire they wrap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tcp {
    /// Which of SYN, FIN … are set.
    pub flags: Flags,
    /// The subflow within the connection, told apart by its ports.
    pub subflow: u8,
    /// The path that an address option is about.
    pub address: u8,
    /// Subflow sequence number of the first payload byte.
    pub seq: u64,
    /// Payload bytes.
    pub len: u32,
    /// Next subflow sequence number expected from the peer.
    pub ack: u64,
    /// Data sequence number of the first payload byte (RFC 8684 §3.3).
    pub dsn: u64,
    /// Next data sequence number expected from the peer.
    pub data_ack: u64,
    /// First data sequence number that the peer may not send yet.
    pub window_end: u64,
    /// The newest timestamp that this end answers (TSecr).
    pub echo: Instant,
    /// Selective acknowledgements.
    pub sacks: Sacks,
}

/// A DCCP packet (RFC 4340 §5). Sequence numbers start at 1; on the wire they have 48 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dccp {
    /// Number of the packet on its path: every packet takes one.
    pub sequence: u64,
    /// Which of the peer's packets have arrived, the newest and up to 255 before it.
    pub acks: AckVector,
    /// How long the newest one had been here when this packet left (Elapsed Time option).
    pub elapsed: Duration,
    /// What it carries; `fragments` is 0 for nothing. Its `sequence` is the connection's (MP_SEQ).
    pub data: Datagram,
    /// The round-trip time that MP_RTT tells, in microseconds; 0 where the option is absent.
    pub rtt_us: u32,
    /// What kind of packet.
    pub kind: DccpKind,
    /// Which options it carries beyond those of its kind.
    pub options: DccpOptions,
    /// The sender's priority for the path (MP_PRIO).
    pub priority: u8,
    /// Packets an acknowledgement is asked to stand for: in data as a request, in an
    /// acknowledgement as its confirmation.
    pub ack_ratio: u8,
}

/// The kind of a DCCP packet (RFC 4340 §5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DccpKind {
    /// Opens a subflow.
    Request,
    /// Answers a Request.
    Response,
    /// Data alone.
    Data,
    /// An acknowledgement alone.
    Ack,
    /// Data with an acknowledgement.
    DataAck,
    /// Asks for a SyncAck.
    Sync,
    /// Answers a Sync.
    SyncAck,
}

impl DccpKind {
    /// Every kind, in the order of their numbers in datagrams.
    pub const ALL: [Self; 7] = [
        Self::Request,
        Self::Response,
        Self::Data,
        Self::Ack,
        Self::DataAck,
        Self::Sync,
        Self::SyncAck,
    ];
}

impl DccpKind {
    /// It has an acknowledgement number.
    pub const fn answers(self) -> bool {
        !matches!(self, Self::Request | Self::Data)
    }

    /// It carries an ack vector.
    pub const fn acknowledges(self) -> bool {
        matches!(self, Self::Ack | Self::DataAck)
    }
}

/// Options of a DCCP packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DccpOptions(u8);

impl DccpOptions {
    /// None.
    pub const NONE: Self = Self(0);
    /// Those of RFC 9897 that belong to the packet's kind.
    pub const MULTIPATH: Self = Self(1);
    /// In a handshake: the subflow joins a connection (MP_JOIN, MP_HMAC).
    pub const JOIN: Self = Self(2);
    /// MP_PRIO.
    pub const PRIORITY: Self = Self(4);
    /// The Ack Ratio feature is changed, or the change confirmed.
    pub const RATIO: Self = Self(8);
    /// The packet belongs to the handshake.
    pub const HANDSHAKE: Self = Self(16);

    /// Both sets of options together.
    #[must_use]
    pub const fn and(self, more: Self) -> Self {
        Self(self.0 | more.0)
    }

    /// The options as bits, as datagrams carry them (`docs/wire.md`).
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// The options of [`bits`](Self::bits); `None` where one is unknown.
    pub const fn from_bits(bits: u8) -> Option<Self> {
        if bits < 32 { Some(Self(bits)) } else { None }
    }

    /// `options` if `condition` holds, or none.
    #[must_use]
    pub const fn only_if(self, condition: bool) -> Self {
        if condition { self } else { Self::NONE }
    }

    /// True when all of `options` are set.
    pub const fn has(self, options: Self) -> bool {
        self.0 & options.0 == options.0
    }
}

/// The flags of a TCP segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(u16);

impl Flags {
    /// An ordinary segment: data, acknowledgement or both.
    pub const NONE: Self = Self(0);
    /// Opens a subflow.
    pub const SYN: Self = Self(1);
    /// The acknowledgement number counts.
    pub const ACK: Self = Self(2);
    /// The subflow joins a connection (MP_JOIN).
    pub const JOIN: Self = Self(4);

    /// A further address is announced (ADD_ADDR).
    pub const ADD_ADDRESS: Self = Self(8);
    /// An announcement has been heard (ADD_ADDR with the E flag).
    pub const ECHO_ADDRESS: Self = Self(16);
    /// An address is no longer there (REMOVE_ADDR).
    pub const REMOVE_ADDRESS: Self = Self(32);
    /// The sender has sent all its data, which ends at `dsn` (FIN, DATA_FIN).
    pub const FIN: Self = Self(64);
    /// On a SYN: the end that sends it is a proxy, and what it acknowledges it may still lose.
    pub const PROXY: Self = Self(128);
    /// Sent because the window has moved; it repeats no acknowledgement that counts as a duplicate
    /// (RFC 5681 §2).
    pub const WINDOW: Self = Self(256);

    /// The flags as bits, as datagrams carry them (`docs/wire.md`).
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// The flags of [`bits`](Self::bits); `None` where one is unknown.
    pub const fn from_bits(bits: u16) -> Option<Self> {
        if bits < 512 { Some(Self(bits)) } else { None }
    }

    /// Both sets of flags together.
    #[must_use]
    pub const fn and(self, more: Self) -> Self {
        Self(self.0 | more.0)
    }

    /// True when all of `flags` are set.
    pub const fn has(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }
}

/// Up to three SACK blocks, the most recent first (RFC 2018 §4; three because timestamps take the
/// room of a fourth). Stored as offsets from the cumulative acknowledgement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sacks {
    count: u8,
    /// The first block reports data that had arrived before (RFC 2883).
    duplicate: bool,
    blocks: [(u32, u32); 3],
}

impl Sacks {
    /// No block.
    pub const NONE: Self = Self { count: 0, duplicate: false, blocks: [(0, 0); 3] };

    /// Adds the block `start..end` of a receiver whose cumulative acknowledgement is `ack`. A fourth
    /// block, or one further than 4 GiB from `ack`, is left out.
    pub fn push(&mut self, ack: u64, start: u64, end: u64) {
        let offsets =
            (u32::try_from(start.wrapping_sub(ack)), u32::try_from(end.wrapping_sub(ack)));
        if let ((Ok(start), Ok(end)), Some(slot)) =
            (offsets, self.blocks.get_mut(usize::from(self.count)))
        {
            *slot = (start, end);
            self.count += 1;
        }
    }

    /// Reports, in front of all other blocks, that `start..end` had arrived before (a D-SACK,
    /// RFC 2883). Left out when it lies 2 GiB or more from `ack`.
    pub fn report_duplicate(&mut self, ack: u64, start: u64, end: u64) {
        let offset = |seq: u64| i32::try_from(seq.wrapping_sub(ack) as i64).ok();
        if let (0, Some(start), Some(end)) = (self.count, offset(start), offset(end)) {
            self.blocks[0] = (start as u32, end as u32);
            self.count = 1;
            self.duplicate = true;
        }
    }

    /// The range that the peer had before, if it reports one.
    pub fn duplicate(&self, ack: u64) -> Option<(u64, u64)> {
        let [(start, end), ..] = self.blocks;
        let at = |offset: u32| ack.wrapping_add_signed(i64::from(offset as i32));
        (self.duplicate && self.count > 0).then(|| (at(start), at(end)))
    }

    /// The first `most` blocks.
    #[must_use]
    pub fn first(self, most: u8) -> Self {
        let count = self.count.min(most);
        Self { count, duplicate: self.duplicate && count > 0, ..self }
    }

    /// How many blocks there are.
    pub const fn len(&self) -> u32 {
        self.count as u32
    }

    /// True when there is no block.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The blocks as `start..end` in the sequence space of `ack`, without a report of a duplicate.
    pub fn iter(&self, ack: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.blocks
            .iter()
            .take(usize::from(self.count))
            .skip(usize::from(self.duplicate))
            .map(move |(start, end)| (ack + u64::from(*start), ack + u64::from(*end)))
    }

    /// Bytes that the option takes in a header, with padding.
    pub const fn wire_bytes(&self) -> u32 {
        if self.count == 0 { 0 } else { 4 + 8 * self.count as u32 }
    }
}
