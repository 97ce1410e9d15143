//! Packets on a path: complete headers, and the payload as a length only.
//!
//! Segments are small `Copy` records. No payload bytes are copied in virtual time.

use skybraid_units::{Duration, Instant};

use crate::mpdccp::AckVector;

/// Size of an IPv4 header without options, in bytes.
pub const IPV4_HEADER: u32 = 20;
/// Size of a UDP header in bytes.
pub const UDP_HEADER: u32 = 8;
/// Size of a TCP header without options, in bytes.
pub const TCP_HEADER: u32 = 20;
/// Size of the TCP timestamp option with its padding, in bytes (RFC 7323 appendix A).
pub const TIMESTAMP_OPTION: u32 = 12;
/// Size of a padded DSS option with a 4-byte data ACK and an 8-byte data sequence number, without
/// checksum, in bytes (RFC 8684 §3.3).
pub const DSS_MAPPING_OPTION: u32 = 24;
/// Size of a DSS option with a 4-byte data ACK alone, in bytes.
pub const DSS_ACK_OPTION: u32 = 8;

/// Size of the coded head of a datagram in a repair packet, in bytes.
pub const REPAIR_HEAD: usize = 12;
/// Size of the header of a repair packet in bytes: that of RFC 8681 §4.1.3, and the coded head.
pub const REPAIR_HEADER: u32 = 8 + REPAIR_HEAD as u32;

/// Transport header and payload length of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Size of the IP packet in bytes, headers included.
    pub size: u32,
    /// Time of sending (exact value of the timestamp option).
    pub sent_at: Instant,
    /// Number of the first message that ends in this segment.
    pub first_message: u32,
    /// Number of messages that end in this segment.
    pub messages: u16,
    /// Stream of these messages, if several share the connection.
    pub stream: u8,
    /// True if bytes of another message follow the last message that ends here.
    pub tail: bool,
    /// Protocol-specific header.
    pub body: Body,
}

/// Protocol-specific header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// A UDP datagram: a message or a fragment of one.
    Datagram(Datagram),
    /// Receiver report about a path.
    Report(Report),
    /// A repair packet of datagrams.
    Repair(Repair),
    /// A TCP segment with its MPTCP options, if any.
    Tcp(Tcp),
    /// A DCCP packet with its MP-DCCP options, if any.
    Dccp(Dccp),
}

impl Segment {
    /// Returns the packet of a datagram with a part of a message.
    #[inline]
    pub(crate) fn of_datagram(now: Instant, datagram: Datagram) -> Self {
        Self {
            size: IPV4_HEADER + UDP_HEADER + datagram.len,
            sent_at: now,
            first_message: datagram.message,
            messages: u16::from(datagram.fragment + 1 == datagram.fragments),
            stream: 0,
            tail: false,
            body: Body::Datagram(datagram),
        }
    }

    /// Returns the numbers of the messages whose last part it carries.
    #[inline]
    pub fn last_parts(&self) -> impl Iterator<Item = u32> + use<> {
        let first = self.first_message;
        (0..u32::from(self.messages)).map(move |offset| first.wrapping_add(offset))
    }
}

impl Body {
    /// Application payload in bytes.
    pub const fn payload_bytes(&self) -> u32 {
        match self {
            Self::Datagram(datagram) => datagram.len,
            Self::Report(_) => 0,
            Self::Repair(repair) => repair.len,
            Self::Tcp(tcp) => tcp.len,
            Self::Dccp(dccp) => dccp.data.len,
        }
    }
}

/// A UDP datagram: a message or a fragment of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Sequence number within the connection, shared by all copies of the datagram.
    pub sequence: u64,
    /// Number of the message.
    pub message: u32,
    /// Payload length in bytes.
    pub len: u32,
    /// Index of the fragment, from 0.
    pub fragment: u16,
    /// Number of fragments of the message.
    pub fragments: u16,
}

/// Receiver report about a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// `sent_at` of the newest datagram received on this path.
    pub echo: Instant,
    /// Arrival time of that datagram by the receiver's clock.
    pub arrived: Instant,
    /// Number of datagrams received on this path so far.
    pub received: u64,
    /// Datagrams received on this path, if the sender's scheduler needs acknowledgements.
    pub acked: Option<AckedDatagrams>,
    /// Datagrams recovered from repair packets, if there are new ones.
    pub recovered: Option<AckedDatagrams>,
}

/// A repair packet: the sum of consecutive datagrams, each times a coefficient (RFC 8681).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repair {
    /// Sequence number of the first datagram covered.
    pub first: u64,
    /// Number of datagrams covered, from 1.
    pub count: u8,
    /// Seed of the coefficients.
    pub key: u16,
    /// Sum of the datagrams' heads.
    pub head: [u8; REPAIR_HEAD],
    /// Length of the longest payload covered, in bytes.
    pub len: u32,
}

/// The newest datagrams that one path delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckedDatagrams {
    /// Highest sequence number received.
    pub newest: u64,
    /// Bit `i` is set if the datagram `newest − 1 − i` was received.
    pub before: u64,
}

impl AckedDatagrams {
    /// Returns the acknowledgement of one datagram.
    pub const fn of(sequence: u64) -> Self {
        Self { newest: sequence, before: 0 }
    }

    /// Adds a datagram. One more than 64 below the newest is not recorded.
    pub const fn insert(&mut self, sequence: u64) {
        if sequence > self.newest {
            let ahead = sequence - self.newest;
            self.before = if ahead < 64 { self.before << ahead } else { 0 };
            if ahead <= 64 {
                self.before |= 1 << (ahead - 1);
            }
            self.newest = sequence;
        } else if sequence < self.newest && self.newest - sequence <= 64 {
            self.before |= 1 << (self.newest - sequence - 1);
        }
    }

    /// True if the datagram was received and is recorded.
    pub const fn contains(&self, sequence: u64) -> bool {
        if sequence >= self.newest {
            return sequence == self.newest;
        }
        let below = self.newest - sequence;
        below <= 64 && self.before >> (below - 1) & 1 == 1
    }
}

/// A TCP segment. Sequence numbers have 64 bits and start at 0; on the wire they wrap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tcp {
    /// Flags: SYN, FIN and others.
    pub flags: Flags,
    /// Number of the subflow within the connection, identified by its ports.
    pub subflow: u8,
    /// Path that an address option refers to.
    pub address: u8,
    /// Subflow sequence number of the first payload byte.
    pub seq: u64,
    /// Payload length in bytes.
    pub len: u32,
    /// Next subflow sequence number expected from the peer.
    pub ack: u64,
    /// Data sequence number of the first payload byte (RFC 8684 §3.3).
    pub dsn: u64,
    /// Next data sequence number expected from the peer.
    pub data_ack: u64,
    /// First data sequence number beyond the receive window of this end.
    pub window_end: u64,
    /// Echoed timestamp (TSecr).
    pub echo: Instant,
    /// Selective acknowledgements.
    pub sacks: Sacks,
}

/// A DCCP packet (RFC 4340 §5). Sequence numbers start at 1; on the wire they have 48 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dccp {
    /// Sequence number on the packet's path; every packet takes one.
    pub sequence: u64,
    /// Ack vector: the newest packet received from the peer and up to 255 before it.
    pub acks: AckVector,
    /// Time from the arrival of the newest packet to the sending of this one (Elapsed Time option).
    pub elapsed: Duration,
    /// Payload; `fragments` is 0 without one. Its `sequence` is that of the connection (MP_SEQ).
    pub data: Datagram,
    /// Round-trip time in MP_RTT, in microseconds; 0 without the option.
    pub rtt_us: u32,
    /// Packet type.
    pub kind: DccpKind,
    /// Options beyond those that the type implies.
    pub options: DccpOptions,
    /// Sender's priority of the path (MP_PRIO).
    pub priority: u8,
    /// Ack Ratio: requested in a data packet, confirmed in an acknowledgement.
    pub ack_ratio: u8,
}

/// Type of a DCCP packet (RFC 4340 §5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DccpKind {
    /// Opens a subflow.
    Request,
    /// Accepts a Request.
    Response,
    /// Data without an acknowledgement.
    Data,
    /// An acknowledgement without data.
    Ack,
    /// Data with an acknowledgement.
    DataAck,
    /// Requests a SyncAck.
    Sync,
    /// Reply to a Sync.
    SyncAck,
}

impl DccpKind {
    /// All types, in the order of their numbers in datagrams.
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
    /// True if the packet has an acknowledgement number.
    pub const fn has_ack_number(self) -> bool {
        !matches!(self, Self::Request | Self::Data)
    }

    /// True if the packet carries an ack vector.
    pub const fn has_ack_vector(self) -> bool {
        matches!(self, Self::Ack | Self::DataAck)
    }
}

/// Options of a DCCP packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DccpOptions(u8);

impl DccpOptions {
    /// No options.
    pub const NONE: Self = Self(0);
    /// Options of RFC 9897 that belong to the packet's type.
    pub const MULTIPATH: Self = Self(1);
    /// In a handshake: the subflow joins a connection (MP_JOIN, MP_HMAC).
    pub const JOIN: Self = Self(2);
    /// Path priority (MP_PRIO).
    pub const PRIORITY: Self = Self(4);
    /// Change of the Ack Ratio feature, or its confirmation.
    pub const RATIO: Self = Self(8);
    /// Part of the handshake.
    pub const HANDSHAKE: Self = Self(16);
    /// Time of sending by the sender's clock (Timestamp).
    pub const TIMESTAMP: Self = Self(128);
    /// All options.
    const ALL: u8 = 31 | Self::TIMESTAMP.0;

    /// Returns the union of both sets.
    #[must_use]
    pub const fn and(self, more: Self) -> Self {
        Self(self.0 | more.0)
    }

    /// Bits of the options, as in datagrams (`docs/wire.md`).
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Parses [`bits`](Self::bits); `None` if an option is unknown.
    pub const fn from_bits(bits: u8) -> Option<Self> {
        if bits & !Self::ALL == 0 { Some(Self(bits)) } else { None }
    }

    /// Returns these options if `condition` holds, else none.
    #[must_use]
    pub const fn only_if(self, condition: bool) -> Self {
        if condition { self } else { Self::NONE }
    }

    /// True if all of `options` are set.
    pub const fn has(self, options: Self) -> bool {
        self.0 & options.0 == options.0
    }
}

/// Flags of a TCP segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(u16);

impl Flags {
    /// An ordinary segment: data, acknowledgement or both.
    pub const NONE: Self = Self(0);
    /// Opens a subflow.
    pub const SYN: Self = Self(1);
    /// The acknowledgement number is valid.
    pub const ACK: Self = Self(2);
    /// The subflow joins a connection (MP_JOIN).
    pub const JOIN: Self = Self(4);

    /// Announces another address (ADD_ADDR).
    pub const ADD_ADDRESS: Self = Self(8);
    /// Echoes an address announcement (ADD_ADDR with the E flag).
    pub const ECHO_ADDRESS: Self = Self(16);
    /// Withdraws an address (REMOVE_ADDR).
    pub const REMOVE_ADDRESS: Self = Self(32);
    /// The sender has sent all its data, which ends at `dsn` (FIN, DATA_FIN).
    pub const FIN: Self = Self(64);
    /// On a SYN: the sender is a proxy and may lose data that it has acknowledged.
    pub const PROXY: Self = Self(128);
    /// Window update: never counts as a duplicate acknowledgement (RFC 5681 §2).
    pub const WINDOW: Self = Self(256);

    /// Bits of the flags, as in datagrams (`docs/wire.md`).
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Parses [`bits`](Self::bits); `None` if a flag is unknown.
    pub const fn from_bits(bits: u16) -> Option<Self> {
        if bits < 512 { Some(Self(bits)) } else { None }
    }

    /// Returns the union of both sets.
    #[must_use]
    pub const fn and(self, more: Self) -> Self {
        Self(self.0 | more.0)
    }

    /// True if all of `flags` are set.
    pub const fn has(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }
}

/// Up to three SACK blocks, most recent first (RFC 2018 §4; timestamps take the space of a fourth).
/// Blocks are stored as offsets from the cumulative acknowledgement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sacks {
    count: u8,
    /// True if the first block reports duplicate data (D-SACK, RFC 2883).
    duplicate: bool,
    blocks: [(u32, u32); 3],
}

impl Sacks {
    /// No block.
    pub const NONE: Self = Self { count: 0, duplicate: false, blocks: [(0, 0); 3] };

    /// Adds the block `start..end` for the cumulative acknowledgement `ack`. A fourth block, or one
    /// more than 4 GiB from `ack`, is omitted.
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

    /// Reports `start..end` as a duplicate, before all other blocks (D-SACK, RFC 2883). Omitted at
    /// 2 GiB or more from `ack`.
    pub fn report_duplicate(&mut self, ack: u64, start: u64, end: u64) {
        let offset = |seq: u64| i32::try_from(seq.wrapping_sub(ack) as i64).ok();
        if let (0, Some(start), Some(end)) = (self.count, offset(start), offset(end)) {
            self.blocks[0] = (start as u32, end as u32);
            self.count = 1;
            self.duplicate = true;
        }
    }

    /// Returns the duplicate range that the peer reports.
    pub fn duplicate(&self, ack: u64) -> Option<(u64, u64)> {
        let [(start, end), ..] = self.blocks;
        let at = |offset: u32| ack.wrapping_add_signed(i64::from(offset as i32));
        (self.duplicate && self.count > 0).then(|| (at(start), at(end)))
    }

    /// Returns the first `max` blocks.
    #[must_use]
    pub fn first(self, max: u8) -> Self {
        let count = self.count.min(max);
        Self { count, duplicate: self.duplicate && count > 0, ..self }
    }

    /// Number of blocks.
    pub const fn len(&self) -> u32 {
        self.count as u32
    }

    /// True if there is no block.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the blocks as `start..end` in the sequence space of `ack`, except a reported
    /// duplicate.
    pub fn iter(&self, ack: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.blocks
            .iter()
            .take(usize::from(self.count))
            .skip(usize::from(self.duplicate))
            .map(move |(start, end)| (ack + u64::from(*start), ack + u64::from(*end)))
    }

    /// Size of the option in a header, padding included, in bytes.
    pub const fn wire_bytes(&self) -> u32 {
        if self.count == 0 { 0 } else { 4 + 8 * self.count as u32 }
    }
}
