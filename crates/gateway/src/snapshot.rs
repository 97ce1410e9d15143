//! The state of a gateway at a moment, as its page, metrics and log show it. Times are in milliseconds,
//! rates in bits a second, shares from 0 to 1; counts are since the start.

use alloc::string::String;
use alloc::vec::Vec;

use crate::Side;
use crate::event::PathState;
use crate::health::MtuState;

/// A gateway at a moment.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Snapshot {
    /// Its name.
    pub name: String,
    /// Side of this end.
    pub side: Side,
    /// Since the start.
    pub uptime_ms: f64,
    /// A session with the peer stands.
    pub session: bool,
    /// The public key of the peer that holds the session.
    pub peer: Option<String>,
    /// Time until the session ends unless its keys are changed; absent where none stands.
    pub session_left_ms: Option<f64>,
    /// The session's keys should have been changed for a while.
    pub session_overdue: bool,
    /// The last session has ended since its keys could not be changed.
    pub session_expired: bool,
    /// Sessions since the start, changes of keys included.
    pub sessions: u64,
    /// Number of restarts of the peer.
    pub peer_restarts: u64,
    /// Since when nothing has been heard from the peer; absent before the first time.
    pub silent_ms: Option<f64>,
    /// The paths in the order of their names.
    pub paths: Vec<PathSnapshot>,
    /// The classes, the most urgent first.
    pub classes: Vec<ClassSnapshot>,
    /// The channels in the order of their numbers.
    pub channels: Vec<ChannelSnapshot>,
    /// Control messages a second that may leave, while a flood is held back for the networks or the peer.
    pub control_limit: Option<f64>,
    /// Sources of messages, those of which most was refused or late first; 16 at most.
    pub sources: Vec<SourceSnapshot>,
    /// Refused input from outside.
    pub refused: RefusedSnapshot,
    /// The TUN interface, where there is one.
    pub tun: Option<TunSnapshot>,
    /// Broken invariants of this program since its start; anything but 0 is a bug.
    pub bugs: u64,
}

/// A path.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct PathSnapshot {
    /// Its name.
    pub name: String,
    /// State towards the peer, as the peer reports it.
    pub outgoing: PathState,
    /// State from the peer.
    pub incoming: PathState,
    /// The peer's address, where it is known.
    pub remote: Option<String>,
    /// Smoothed round-trip time.
    pub rtt_ms: Option<f64>,
    /// Lowest round-trip time of the last minute.
    pub min_rtt_ms: Option<f64>,
    /// One-way delay from the peer, as far as the clocks can be compared: within half of the lowest
    /// round-trip time of all paths.
    pub incoming_delay_ms: Option<f64>,
    /// One-way delay to the peer, as the peer sees it.
    pub outgoing_delay_ms: Option<f64>,
    /// Jitter of what arrives (RFC 3550 §6.4.1).
    pub jitter_ms: f64,
    /// Share of the peer's datagrams lost on the way here in the last second or so.
    pub incoming_loss: f64,
    /// Share of our datagrams lost on the way to the peer, as the peer reports it.
    pub outgoing_loss: f64,
    /// Rate of what leaves.
    pub outgoing_bps: f64,
    /// Rate of what arrives.
    pub incoming_bps: f64,
    /// Bytes of IP packets that left.
    pub outgoing_bytes: u64,
    /// Bytes of IP packets that arrived.
    pub incoming_bytes: u64,
    /// Datagrams that left.
    pub outgoing_datagrams: u64,
    /// Datagrams that arrived.
    pub incoming_datagrams: u64,
    /// Control messages that arrived here first.
    pub control_won: u64,
    /// Largest IP packet that goes through towards the peer.
    pub mtu: u32,
    /// State of path MTU discovery towards the peer.
    pub mtu_state: MtuState,
    /// Largest IP packet that the peer sends; absent before it has said so.
    pub incoming_mtu: Option<u32>,
    /// Packets of 1,280 bytes do not get through from the peer, as it says.
    pub peer_mtu_error: bool,
    /// Number of times that packets of a size that had got through no longer did.
    pub black_holes: u64,
    /// Bytes left of its data cap.
    pub data_left: Option<u64>,
    /// Number of times it has been given up.
    pub given_up: u64,
}

/// A class.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct ClassSnapshot {
    /// Its name.
    pub name: &'static str,
    /// Messages that local applications wrote.
    pub written: u64,
    /// Their bytes.
    pub written_bytes: u64,
    /// Messages refused at the sender: no room in the queue, or no session.
    pub refused: u64,
    /// Messages delivered to local applications.
    pub delivered: u64,
    /// Their bytes.
    pub delivered_bytes: u64,
    /// Messages older than the deadline, dropped wherever they had waited: before they left or after they
    /// arrived.
    pub late: u64,
    /// Messages dropped for a newer one of their kind: before they left, or since they arrived behind it.
    pub superseded: u64,
    /// Second copies.
    pub duplicates: u64,
    /// Datagrams that were lost and recovered from repair packets.
    pub repaired: u64,
    /// Age at delivery, as far as clocks can be compared: median of the last messages.
    pub delay_p50_ms: Option<f64>,
    /// … and the 99th percentile.
    pub delay_p99_ms: Option<f64>,
    /// Longest time between two deliveries in the last second or so.
    pub longest_gap_ms: Option<f64>,
    /// Messages delivered by each path, in the order of the paths; in TCP mode by the MPTCP connection
    /// behind them.
    pub by_path: Vec<u64>,
}

/// A channel.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct ChannelSnapshot {
    /// Its name.
    pub name: String,
    /// Messages from local applications.
    pub written: u64,
    /// Messages delivered to them.
    pub delivered: u64,
    /// The peer has a channel of this name.
    pub shared: bool,
}

/// A source of messages: a component of a client of a local end.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct SourceSnapshot {
    /// The channel's name.
    pub channel: String,
    /// Number of the local end: MAVLink ends in the order of the file.
    pub end: u8,
    /// Address of the program, or of the sender inside of an IP packet; absent of a device.
    pub address: Option<String>,
    /// MAVLink system, 0 for other channels.
    pub system: u8,
    /// MAVLink component, 0 for other channels.
    pub component: u8,
    /// Messages written.
    pub written: u64,
    /// Messages refused: no room in the source's queue, or no session.
    pub refused: u64,
    /// Messages older than their deadline before they could leave.
    pub late: u64,
    /// Messages whose place a newer one of their kind took before they could leave.
    pub superseded: u64,
}

/// The TUN interface.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct TunSnapshot {
    /// Address of the peer's, once it has said so.
    pub peer: Option<String>,
    /// Packets that were not sent: their destination is not the peer's and not allowed.
    pub refused_outgoing: u64,
    /// Packets of the peer that were dropped: their source is not the peer's and not allowed.
    pub refused_incoming: u64,
}

/// Refused input from outside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct RefusedSnapshot {
    /// Not of the format, or of no session.
    pub foreign: u64,
    /// Not authentic: forged, or broken on the way.
    pub forged: u64,
    /// Seen before.
    pub replayed: u64,
    /// Handshakes that were not of the peer.
    pub strangers: u64,
    /// Handshakes answered by a cookie alone, since there were too many.
    pub cookies: u64,
    /// Authentic, and still not understood.
    pub unreadable: u64,
    /// MAVLink frames of local applications or of the peer whose signature is wrong.
    pub signatures: u64,
}
