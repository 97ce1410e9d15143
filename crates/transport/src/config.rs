//! What can be set on a transport.

use alloc::string::String;
use alloc::vec::Vec;

use skybraid_units::{Bytes, Duration};

use crate::congestion::{CongestionConfig, cubic};
use crate::reordering::ReorderingConfig;
use crate::rtt::RtoRule;
use crate::scheduler::{SchedulerConfig, single};

/// Which protocol carries the messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// Unreliable datagrams over one or several paths.
    #[default]
    Udp,
    /// One TCP connection over one path.
    Tcp,
    /// One MPTCP connection over several paths.
    Mptcp,
    /// One DCCP connection over one path.
    Dccp,
    /// One MP-DCCP connection over several paths.
    #[serde(alias = "mp-dccp")]
    MpDccp,
}

impl Protocol {
    /// Every protocol.
    pub const ALL: [Self; 5] = [Self::Udp, Self::Tcp, Self::Mptcp, Self::Dccp, Self::MpDccp];

    /// The name used in scenarios.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Tcp => "tcp",
            Self::Mptcp => "mptcp",
            Self::Dccp => "dccp",
            Self::MpDccp => "mp_dccp",
        }
    }

    /// Every message arrives, sooner or later.
    pub const fn is_reliable(self) -> bool {
        matches!(self, Self::Tcp | Self::Mptcp)
    }

    /// It uses one path and no more.
    pub const fn is_single_path(self) -> bool {
        matches!(self, Self::Tcp | Self::Dccp)
    }

    /// What it is, in one line, and where it is specified.
    pub const fn about(self) -> (&'static str, &'static str) {
        match self {
            Self::Udp => (
                "Unreliable datagrams over one or several paths; the receiver drops second copies.",
                "RFC 768",
            ),
            Self::Tcp => ("A reliable stream over one path.", "RFC 9293, RFC 6675, RFC 6298"),
            Self::Mptcp => {
                ("A reliable stream over several paths, with one TCP subflow on each.", "RFC 8684")
            }
            Self::Dccp => {
                ("Unreliable datagrams under congestion control over one path.", "RFC 4340")
            }
            Self::MpDccp => (
                "Unreliable datagrams over several paths, with congestion control on each; the \
                 receiver drops second copies.",
                "RFC 9897, RFC 4340",
            ),
        }
    }
}

/// A flow's transport. Every key has a default, so that a scenario names only what matters to it.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TransportConfig {
    /// Which protocol.
    pub protocol: Protocol,
    /// Names of the paths to use, the first one first; all of the scenario's where none is named.
    pub paths: Option<Vec<String>>,
    /// On which paths a unit leaves.
    pub scheduler: SchedulerConfig,
    /// How much may be in flight on a path (TCP and MPTCP).
    pub congestion: CongestionConfig,
    /// Whether an unreliable flow is put back in order.
    pub reordering: ReorderingConfig,
    /// What the receiver can hold (TCP and MPTCP; shared by all subflows). Default 6 MB, the upper
    /// bound of Linux's `tcp_rmem`.
    pub receive_buffer: Bytes,
    /// How much a bulk application keeps written ahead of what has been acknowledged. Default 4 MB,
    /// the upper bound of Linux's `tcp_wmem`.
    pub send_buffer: Bytes,
    /// Initial congestion window in segments (RFC 6928). Default 10.
    pub initial_window: u32,
    /// Initial slow start threshold. Default none.
    pub initial_threshold: Option<Bytes>,
    /// Largest payload of a segment; what the smallest path MTU leaves where none is set.
    pub segment: Option<Bytes>,
    /// Selective acknowledgements (RFC 2018). Default on.
    pub sack: bool,
    /// An acknowledgement is sent at least every this many segments. Default 2.
    pub ack_every: u32,
    /// … and at the latest after this time. Default 40 ms, as in Linux.
    pub ack_delay: Duration,
    /// Least retransmission timeout. Default 200 ms, as in Linux.
    pub rto_min: Duration,
    /// What the least timeout bounds. Default Linux's rule.
    pub rto_rule: RtoRule,
    /// How often the receiver of datagrams reports what arrives, for schedulers that need to know
    /// round-trip times. Default 100 ms.
    pub report_every: Duration,
    /// Datagrams that may wait for room in a window (DCCP and MP-DCCP); the newest message is refused
    /// beyond that. Default 5, as in Linux.
    pub tx_queue: u32,
    /// Messages whose deadline has passed leave that queue unsent. Default off.
    pub drop_expired: bool,
    /// A sign of life on an idle path (MP-DCCP). Default 20 s, as in MP-DCCP for Linux.
    pub keep_alive: Duration,
    /// Longest time between probes of a failed path (MP-DCCP). Default 1 s.
    pub probe_every: Duration,
}

impl Default for TransportConfig {
    fn default() -> Self {
        Self {
            protocol: Protocol::Udp,
            paths: None,
            scheduler: SchedulerConfig::Single(single::Config::default()),
            congestion: CongestionConfig::Cubic(cubic::Config::default()),
            reordering: ReorderingConfig::none(),
            receive_buffer: Bytes::new(6_000_000),
            send_buffer: Bytes::new(4_000_000),
            initial_window: 10,
            initial_threshold: None,
            segment: None,
            sack: true,
            ack_every: 2,
            ack_delay: Duration::from_millis(40),
            rto_min: Duration::from_millis(200),
            rto_rule: RtoRule::Linux,
            report_every: Duration::from_millis(100),
            tx_queue: 5,
            drop_expired: false,
            keep_alive: Duration::from_secs(20),
            probe_every: Duration::from_secs(1),
        }
    }
}
