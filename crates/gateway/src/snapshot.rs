//! The state of a gateway at a moment, as its page, metrics and log show it. Times are in milliseconds,
//! rates in bits a second, shares from 0 to 1; counts are since the start.

use alloc::string::String;
use alloc::vec::Vec;

use crate::Side;
use crate::event::PathState;

/// A gateway at a moment.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Snapshot {
    /// Its name.
    pub name: String,
    /// Which end it is.
    pub side: Side,
    /// Since the start.
    pub uptime_ms: f64,
    /// A session with the peer stands.
    pub session: bool,
    /// Sessions since the start, changes of keys included.
    pub sessions: u64,
    /// How often the peer has been started anew.
    pub peer_restarts: u64,
    /// Since when nothing has been heard from the peer; absent before the first time.
    pub silent_ms: Option<f64>,
    /// The paths in the order of their names.
    pub paths: Vec<PathSnapshot>,
    /// The classes, the most urgent first.
    pub classes: Vec<ClassSnapshot>,
    /// The channels in the order of their numbers.
    pub channels: Vec<ChannelSnapshot>,
    /// What came from outside and was refused.
    pub refused: RefusedSnapshot,
}

/// A path.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct PathSnapshot {
    /// Its name.
    pub name: String,
    /// How it stands towards the peer, as far as the peer tells.
    pub outgoing: PathState,
    /// How it stands from the peer.
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
    /// What is left of its data, where it has a cap.
    pub data_left: Option<u64>,
    /// How often it has been given up.
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
    /// Messages refused at the sender: no room in the queue, or too old before they could leave.
    pub refused: u64,
    /// Messages handed over to local applications.
    pub delivered: u64,
    /// Their bytes.
    pub delivered_bytes: u64,
    /// Messages that arrived too late and were dropped.
    pub late: u64,
    /// Messages that arrived behind their successor and were dropped.
    pub superseded: u64,
    /// Second copies.
    pub duplicates: u64,
    /// Datagrams that were lost and made good by repair packets.
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
    /// Messages handed over to them.
    pub delivered: u64,
    /// The peer has a channel of this name.
    pub shared: bool,
}

/// What came from outside and was refused.
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
}
