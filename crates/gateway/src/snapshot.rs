//! Snapshot of a gateway's state, as shown by its page, metrics and log. Times are in milliseconds, rates in
//! bits per second, shares from 0 to 1; counts are since the start.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use skybraid_transport::scheduler::forecast::Forecast;

use crate::Side;
use crate::event::PathState;
use crate::health::MtuState;

/// Snapshot of a gateway.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Snapshot {
    /// Name.
    pub name: String,
    /// Side of this end.
    pub side: Side,
    /// Time since the start.
    pub uptime_ms: f64,
    /// Whether a session is established.
    pub session: bool,
    /// The public key of the peer that holds the session.
    pub peer: Option<String>,
    /// Time until the session ends unless rekeyed; absent without a session.
    pub session_left_ms: Option<f64>,
    /// Whether a key change is overdue.
    pub session_overdue: bool,
    /// Whether the last session expired for lack of a key change.
    pub session_expired: bool,
    /// Sessions since the start, including key changes.
    pub sessions: u64,
    /// Number of restarts of the peer.
    pub peer_restarts: u64,
    /// Whether two gateways with the peer's key are heard.
    pub peer_duplicated: bool,
    /// Time since the peer was last heard; absent before the first time.
    pub silent_ms: Option<f64>,
    /// The paths in the order of their names.
    pub paths: Vec<PathSnapshot>,
    /// The classes, most urgent first.
    pub classes: Vec<ClassSnapshot>,
    /// The channels in the order of their numbers.
    pub channels: Vec<ChannelSnapshot>,
    /// Control rate limit in messages per second, while a flood is held back for the networks or the peer.
    pub control_limit: Option<f64>,
    /// Message sources, those with most refused or late messages first; at most 16.
    pub sources: Vec<SourceSnapshot>,
    /// Refused input from outside.
    pub refused: RefusedSnapshot,
    /// TUN interface, if there is one.
    pub tun: Option<TunSnapshot>,
    /// Broken invariants of this program since its start; anything but 0 is a bug.
    pub bugs: u64,
}

/// Snapshot of a path. What is measured of a direction is absent while the direction is down, and what is
/// measured of a round trip while either one is.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct PathSnapshot {
    /// Name.
    pub name: String,
    /// State towards the peer, as the peer reports it.
    pub outgoing: PathState,
    /// State from the peer.
    pub incoming: PathState,
    /// Address of the peer, if known.
    pub remote: Option<String>,
    /// Smoothed round-trip time.
    pub rtt_ms: Option<f64>,
    /// Lowest round-trip time of the last minute.
    pub min_rtt_ms: Option<f64>,
    /// One-way delay from the peer once the clocks are compared, within half of the lowest round-trip time of
    /// all paths.
    pub incoming_delay_ms: Option<f64>,
    /// One-way delay to the peer, as the peer sees it.
    pub outgoing_delay_ms: Option<f64>,
    /// What comes by this path is too old for control: past its deadline, or possibly so.
    pub incoming_late: bool,
    /// What leaves by this path is too old for control when it is there.
    pub outgoing_late: bool,
    /// Incoming jitter (RFC 3550 §6.4.1).
    pub jitter_ms: Option<f64>,
    /// Share of incoming datagrams lost in about the last second.
    pub incoming_loss: Option<f64>,
    /// Share of outgoing datagrams lost, as the peer reports it.
    pub outgoing_loss: Option<f64>,
    /// Sending rate.
    pub outgoing_bps: f64,
    /// Receiving rate.
    pub incoming_bps: f64,
    /// Bytes of sent IP packets.
    pub outgoing_bytes: u64,
    /// Bytes of received IP packets.
    pub incoming_bytes: u64,
    /// Sent datagrams.
    pub outgoing_datagrams: u64,
    /// Received datagrams.
    pub incoming_datagrams: u64,
    /// Control messages first delivered by this path.
    pub control_won: u64,
    /// Largest IP packet that gets through to the peer.
    pub mtu: u32,
    /// State of path MTU discovery towards the peer.
    pub mtu_state: MtuState,
    /// Largest IP packet that the peer sends; absent until reported.
    pub incoming_mtu: Option<u32>,
    /// The peer reports that its packets of 1,280 bytes do not get through.
    pub peer_mtu_error: bool,
    /// Number of times that packets of a size that had got through no longer did.
    pub black_holes: u64,
    /// Bytes left of its data cap.
    pub data_left: Option<u64>,
    /// Number of times it has been given up.
    pub given_up: u64,
}

/// Snapshot of a class.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct ClassSnapshot {
    /// Name.
    pub name: &'static str,
    /// Messages written by local applications.
    pub written: u64,
    /// Total message bytes.
    pub written_bytes: u64,
    /// Messages refused at the sender: no room in the queue, or no session.
    pub refused: u64,
    /// Messages delivered to local applications.
    pub delivered: u64,
    /// Total message bytes.
    pub delivered_bytes: u64,
    /// Messages dropped past the deadline, before sending or after arrival.
    pub late: u64,
    /// Messages dropped for a newer one of their kind, before sending or on arrival after it.
    pub superseded: u64,
    /// Duplicates.
    pub duplicates: u64,
    /// Datagrams that were lost and recovered from repair packets.
    pub repaired: u64,
    /// Share of what arrived in about the last second that was past the deadline; absent if nothing did.
    pub late_share: Option<f64>,
    /// Median age at delivery of the messages of the last 10 s, once the clocks are compared.
    pub delay_p50_ms: Option<f64>,
    /// 99th percentile of the age at delivery.
    pub delay_p99_ms: Option<f64>,
    /// Longest delivery gap in about the last second.
    pub longest_gap_ms: Option<f64>,
    /// Time since the last delivery; absent before the first.
    pub silent_ms: Option<f64>,
    /// Share of the messages expected in time, if the class's scheduler estimates it.
    pub forecast: Option<ForecastSnapshot>,
    /// Messages delivered by each path, in the order of the paths, followed by the MPTCP connection in TCP
    /// mode.
    pub by_path: Vec<u64>,
}

/// Share of a class's messages that its scheduler expects in time.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct ForecastSnapshot {
    /// Time within which messages must arrive.
    pub within_ms: f64,
    /// Share that must arrive in time.
    pub wanted: f64,
    /// Share expected in time.
    pub expected: f64,
    /// 95 % interval of `expected`.
    pub expected_interval: [f64; 2],
    /// Bytes of further copies, of those of the first copies.
    pub overhead: f64,
    /// Share expected in time with copies on all paths: no plan reaches more.
    pub best: f64,
    /// 95 % interval of `best`.
    pub best_interval: [f64; 2],
    /// Bytes that these take, of those of the first copies.
    pub best_overhead: f64,
    /// The same in words.
    pub words: String,
}

impl From<Forecast> for ForecastSnapshot {
    fn from(forecast: Forecast) -> Self {
        let (expected, best) = (forecast.expected(), forecast.best());
        Self {
            within_ms: forecast.within().as_millis_f64(),
            wanted: forecast.wanted(),
            expected: expected.mean,
            expected_interval: [expected.low, expected.high],
            overhead: forecast.overhead(),
            best: best.mean,
            best_interval: [best.low, best.high],
            best_overhead: forecast.best_overhead(),
            words: forecast.to_string(),
        }
    }
}

/// Snapshot of a channel.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct ChannelSnapshot {
    /// Name.
    pub name: String,
    /// Messages from local applications.
    pub written: u64,
    /// Messages to local applications.
    pub delivered: u64,
    /// The peer has a channel of this name.
    pub shared: bool,
}

/// Source of messages: a component of a client at a local endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct SourceSnapshot {
    /// The channel's name.
    pub channel: String,
    /// Number of the local endpoint; MAVLink endpoints in file order.
    pub end: u8,
    /// Address of the program, or of the sender in an IP packet; absent for a device.
    pub address: Option<String>,
    /// MAVLink system, 0 for other channels.
    pub system: u8,
    /// MAVLink component, 0 for other channels.
    pub component: u8,
    /// Messages written.
    pub written: u64,
    /// Messages refused: no room in the source's queue, or no session.
    pub refused: u64,
    /// Messages past their deadline before they were sent.
    pub late: u64,
    /// Messages superseded by a newer one of their kind before sending.
    pub superseded: u64,
}

/// The TUN interface.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct TunSnapshot {
    /// Address of the peer, once reported.
    pub peer: Option<String>,
    /// Packets not sent: the destination is neither the peer's nor allowed.
    pub refused_outgoing: u64,
    /// Packets of the peer dropped: the source is neither the peer's nor allowed.
    pub refused_incoming: u64,
}

/// Refused input from outside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct RefusedSnapshot {
    /// Wrong format, or unknown session.
    pub foreign: u64,
    /// Not authentic: forged or corrupted in transit.
    pub forged: u64,
    /// Seen before.
    pub replayed: u64,
    /// Handshakes not from the peer.
    pub strangers: u64,
    /// Handshakes over the rate limit, answered only by a cookie.
    pub cookies: u64,
    /// Authentic but not parseable.
    pub unreadable: u64,
    /// MAVLink frames of local applications or of the peer whose signature is wrong.
    pub signatures: u64,
}
