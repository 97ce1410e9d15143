//! What can be set on a transport.

use alloc::string::String;
use alloc::vec::Vec;

use skybraid_units::{Bytes, Duration, Seed};

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
}

impl Protocol {
    /// Every protocol.
    pub const ALL: [Self; 3] = [Self::Udp, Self::Tcp, Self::Mptcp];

    /// The name used in scenarios.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Tcp => "tcp",
            Self::Mptcp => "mptcp",
        }
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
    /// What the random draws of congestion controls derive from, together with the end's role and the
    /// path's number. Set by the driver, never read from a scenario. Default zero.
    #[serde(skip)]
    pub seed: Seed,
}

impl Default for TransportConfig {
    fn default() -> Self {
        Self {
            protocol: Protocol::Udp,
            paths: None,
            scheduler: SchedulerConfig::Single(single::Config::default()),
            congestion: CongestionConfig::Cubic(cubic::Config::default()),
            reordering: ReorderingConfig::None,
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
            seed: Seed::default(),
        }
    }
}
