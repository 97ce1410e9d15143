//! What can be set on a transport.

use alloc::string::String;
use alloc::vec::Vec;

use skybraid_units::{Bytes, Duration, Seed};

use crate::congestion::{CongestionConfig, cubic, reno};
use crate::mptcp::path_manager::PathManager;
use crate::reordering::ReorderingConfig;
use crate::rtt::RtoRule;
use crate::scheduler::{SchedulerConfig, linux_upstream, low_rtt, single};
use crate::tcp::scoreboard::LossDetection;

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
    /// Several TCP connections, one on each path.
    ParallelTcp,
    /// One DCCP connection over one path.
    Dccp,
    /// One MP-DCCP connection over several paths.
    #[serde(alias = "mp-dccp")]
    MpDccp,
}

impl Protocol {
    /// Every protocol.
    pub const ALL: [Self; 6] =
        [Self::Udp, Self::Tcp, Self::Mptcp, Self::ParallelTcp, Self::Dccp, Self::MpDccp];

    /// The name used in scenarios.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Tcp => "tcp",
            Self::Mptcp => "mptcp",
            Self::ParallelTcp => "parallel_tcp",
            Self::Dccp => "dccp",
            Self::MpDccp => "mp_dccp",
        }
    }

    /// Every message arrives, sooner or later.
    pub const fn is_reliable(self) -> bool {
        matches!(self, Self::Tcp | Self::Mptcp | Self::ParallelTcp)
    }

    /// It uses one path and no more.
    pub const fn is_single_path(self) -> bool {
        matches!(self, Self::Tcp | Self::Dccp)
    }

    /// The scheduler of a scenario that names none. A protocol made for several paths uses several.
    pub fn default_scheduler(self, profile: Option<Profile>) -> SchedulerConfig {
        match (self, profile) {
            (Self::Mptcp, Some(Profile::Linux)) => {
                SchedulerConfig::LinuxUpstream(linux_upstream::Config::default())
            }
            (Self::Mptcp | Self::MpDccp, _) => SchedulerConfig::LowRtt(low_rtt::Config::default()),
            (Self::Udp | Self::Tcp | Self::ParallelTcp | Self::Dccp, _) => {
                SchedulerConfig::Single(single::Config::default())
            }
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
            Self::ParallelTcp => (
                "Independent TCP connections, one on each path, that carry the messages in turn; each \
                 keeps its own order and there is none between them.",
                "Pedrazzi 2020, the TCP case",
            ),
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

/// Which generation of TCP the defaults are taken from. A key that is given wins over the profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Profile {
    /// The network simulator ns-2 as the older papers used it: New Reno without SACK, an acknowledgement
    /// per segment, an initial window of one segment, a least timeout of 1 s, no restart after idling.
    Ns2,
    /// The current RFCs to the letter: RACK-TLP, proportional rate reduction, a least timeout of 1 s
    /// (RFC 6298), acknowledgements delayed up to 200 ms.
    Rfc,
    /// Linux: as without a profile, and every algorithm as Linux runs it (`compat = "linux"`).
    Linux,
}

/// Whose code carries a flow in the emulator. The simulator always runs Skybraid's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stack {
    /// The kernel's where it has just what is asked for, else Skybraid's.
    #[default]
    Auto,
    /// The kernel's TCP or MPTCP.
    Kernel,
    /// Skybraid's, over UDP sockets.
    Skybraid,
}

impl Stack {
    /// The name used in scenarios.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Kernel => "kernel",
            Self::Skybraid => "skybraid",
        }
    }
}

/// A flow's transport. Every key has a default, so that a scenario names only what matters to it.
///
/// Without a profile the algorithms are those of the RFCs and papers, with the timers of Linux (a least
/// retransmission timeout of 200 ms, acknowledgements delayed up to 40 ms).
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
#[serde(from = "Given")]
pub struct TransportConfig {
    /// Which protocol.
    pub protocol: Protocol,
    /// Names of the paths to use, the first one first; all of the scenario's where none is named.
    pub paths: Option<Vec<String>>,
    /// How many subflows a connection has, each with a route of its own; by default one for each path.
    pub subflows: Option<u32>,
    /// On which paths a unit leaves. Default `low_rtt` for MPTCP and MP-DCCP, `linux` for MPTCP under the
    /// profile `linux`, else `single`.
    pub scheduler: SchedulerConfig,
    /// How much may be in flight on a path.
    pub congestion: CongestionConfig,
    /// Whether an unreliable flow is put back in order.
    pub reordering: ReorderingConfig,
    /// What the receiver can hold (TCP and MPTCP; shared by all subflows). Default 6 MB, the upper
    /// bound of Linux's `tcp_rmem`.
    pub receive_buffer: Bytes,
    /// How much a bulk application keeps written ahead of what has been acknowledged. Default 4 MB,
    /// the upper bound of Linux's `tcp_wmem`.
    pub send_buffer: Bytes,
    /// Applications other than bulk are refused what does not fit the send buffer, as a socket that
    /// does not block refuses it; otherwise it waits, however much there is (TCP). Default off.
    pub refuse_when_full: bool,
    /// Initial congestion window in segments (RFC 6928). Default 10.
    pub initial_window: u32,
    /// Initial slow start threshold. Default none.
    pub initial_threshold: Option<Bytes>,
    /// Largest payload of a segment; what the smallest path MTU leaves where none is set.
    pub segment: Option<Bytes>,
    /// How losses are found. Default RACK-TLP.
    pub loss_detection: LossDetection,
    /// The window shrinks in proportion to what is delivered in a recovery (RFC 9937); otherwise at
    /// once (RFC 6675). Default on.
    pub proportional_reduction: bool,
    /// A recovery that turns out to be needless is taken back (RFC 3522, RFC 4015). Default on.
    pub undo: bool,
    /// Controls that set a window but no pace are paced as Linux does under `fq`: at twice the window per
    /// round trip in slow start, 1.2 times afterwards. Default off.
    pub pacing: bool,
    /// After an idle retransmission timeout the window restarts from the initial one (RFC 5681 §4.1).
    /// Default on.
    pub idle_restart: bool,
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
    /// Which subflows an MPTCP connection opens. Default one on every path.
    pub path_manager: PathManager,
    /// The peer understands MPTCP; if it does not, the connection falls back to TCP on its first path
    /// (RFC 8684 §3.7). Default true.
    pub peer_multipath: bool,
    /// MPTCP: when the peer's window blocks, the fastest free subflow sends again what a slower one
    /// still carries (Raiciu et al. 2012, "opportunistic retransmission"). Default on.
    pub opportunistic_retransmission: bool,
    /// … and the slower one loses half of its window ("penalisation"). Default on.
    pub penalisation: bool,
    /// The window of a subflow whose round-trip time has more than doubled is capped to two
    /// bandwidth-delay products of the unloaded path (Raiciu et al. 2012). Default off.
    pub bufferbloat_mitigation: bool,
    /// What the random draws of congestion controls derive from, together with the end's role and the
    /// path's number. Set by the driver, never read from a scenario. Default zero.
    pub seed: Seed,
    /// Datagrams that may wait for room in a window (DCCP and MP-DCCP); the newest message is refused
    /// beyond that. Default 5, as in Linux; of a video two key frames.
    pub tx_queue: Option<u32>,
    /// Messages whose deadline has passed leave that queue unsent. Default off.
    pub drop_expired: bool,
    /// A sign of life on an idle path (MP-DCCP). Default 20 s, as in MP-DCCP for Linux.
    pub keep_alive: Duration,
    /// Longest time between probes of a failed path (MP-DCCP). Default 1 s.
    pub probe_every: Duration,
    /// Whose code carries the flow in the emulator. Default the kernel's where it has just what is asked
    /// for, else Skybraid's.
    pub stack: Stack,
}

impl Default for TransportConfig {
    fn default() -> Self {
        Self {
            protocol: Protocol::Udp,
            paths: None,
            subflows: None,
            scheduler: SchedulerConfig::Single(single::Config::default()),
            congestion: CongestionConfig::Cubic(cubic::Config::default()),
            reordering: ReorderingConfig::none(),
            receive_buffer: Bytes::new(6_000_000),
            send_buffer: Bytes::new(4_000_000),
            refuse_when_full: false,
            initial_window: 10,
            initial_threshold: None,
            segment: None,
            loss_detection: LossDetection::Rack,
            proportional_reduction: true,
            undo: true,
            pacing: false,
            idle_restart: true,
            ack_every: 2,
            ack_delay: Duration::from_millis(40),
            rto_min: Duration::from_millis(200),
            rto_rule: RtoRule::Linux,
            report_every: Duration::from_millis(100),
            path_manager: PathManager::FullMesh,
            peer_multipath: true,
            opportunistic_retransmission: true,
            penalisation: true,
            bufferbloat_mitigation: false,
            seed: Seed::default(),
            tx_queue: None,
            drop_expired: false,
            keep_alive: Duration::from_secs(20),
            probe_every: Duration::from_secs(1),
            stack: Stack::Auto,
        }
    }
}

impl TransportConfig {
    /// Datagrams that may wait for room in a window where neither the configuration nor the traffic says.
    pub const TX_QUEUE: u32 = 5;

    /// Datagrams that may wait for room in a window.
    pub fn tx_queue(&self) -> u32 {
        self.tx_queue.unwrap_or(Self::TX_QUEUE)
    }

    /// Several subflows may be used: MPTCP with a peer that understands it.
    pub(crate) fn is_multipath(&self) -> bool {
        self.protocol == Protocol::Mptcp && self.peer_multipath
    }

    /// The defaults of a profile.
    pub fn of(profile: Profile) -> Self {
        let usual = Self::default();
        match profile {
            Profile::Ns2 => Self {
                congestion: CongestionConfig::Reno(reno::Config::default()),
                loss_detection: LossDetection::NewReno,
                proportional_reduction: false,
                idle_restart: false,
                initial_window: 1,
                ack_every: 1,
                rto_min: Duration::from_secs(1),
                rto_rule: RtoRule::Rfc6298,
                ..usual
            },
            Profile::Rfc => Self {
                ack_delay: Duration::from_millis(200),
                rto_min: Duration::from_secs(1),
                rto_rule: RtoRule::Rfc6298,
                ..usual
            },
            Profile::Linux => usual,
        }
    }
}

/// Declares the keys as they may be given, all of them optional, and how they overlay a profile.
macro_rules! given {
    ($($key:ident: $type:ty,)+) => {
        /// A transport as written: what is not given comes from the profile.
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Given {
            profile: Option<Profile>,
            paths: Option<Vec<String>>,
            subflows: Option<u32>,
            initial_threshold: Option<Bytes>,
            segment: Option<Bytes>,
            $($key: Option<$type>,)+
        }

        impl From<Given> for TransportConfig {
            fn from(given: Given) -> Self {
                let mut base = given.profile.map_or_else(Self::default, Self::of);
                let protocol = given.protocol.unwrap_or(base.protocol);
                base.scheduler = protocol.default_scheduler(given.profile);
                let mut config = Self {
                    paths: given.paths,
                    subflows: given.subflows,
                    initial_threshold: given.initial_threshold,
                    segment: given.segment,
                    seed: base.seed,
                    $($key: given.$key.unwrap_or(base.$key),)+
                };
                if given.profile == Some(Profile::Linux) {
                    config.congestion.deploy();
                    config.scheduler.deploy();
                }
                config
            }
        }
    };
}

given! {
    protocol: Protocol,
    scheduler: SchedulerConfig,
    congestion: CongestionConfig,
    reordering: ReorderingConfig,
    receive_buffer: Bytes,
    send_buffer: Bytes,
    refuse_when_full: bool,
    initial_window: u32,
    loss_detection: LossDetection,
    proportional_reduction: bool,
    undo: bool,
    pacing: bool,
    idle_restart: bool,
    ack_every: u32,
    ack_delay: Duration,
    rto_min: Duration,
    rto_rule: RtoRule,
    report_every: Duration,
    path_manager: PathManager,
    peer_multipath: bool,
    opportunistic_retransmission: bool,
    penalisation: bool,
    bufferbloat_mitigation: bool,
    tx_queue: Option<u32>,
    drop_expired: bool,
    keep_alive: Duration,
    probe_every: Duration,
    stack: Stack,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_is_given_wins_over_the_profile() {
        let ns2 = TransportConfig::of(Profile::Ns2);
        assert_eq!(ns2.loss_detection, LossDetection::NewReno);
        assert_eq!((ns2.ack_every, ns2.initial_window), (1, 1));
        let rfc = TransportConfig::of(Profile::Rfc);
        assert_eq!(rfc.rto_min, Duration::from_secs(1));
        assert_eq!(TransportConfig::of(Profile::Linux), TransportConfig::default());
    }

    #[test]
    fn the_profile_of_linux_deploys_every_algorithm_that_differs_there() {
        for about in CongestionConfig::ALL {
            let usual = CongestionConfig::by_name(about.name);
            let deployed = usual.clone().map(|mut config| {
                config.deploy();
                config
            });
            assert_eq!(usual != deployed, !about.linux.is_empty(), "{}", about.name);
        }
        for about in SchedulerConfig::ALL {
            let usual = SchedulerConfig::by_name(about.name);
            let deployed = usual.clone().map(|mut config| {
                config.deploy();
                config
            });
            assert_eq!(usual != deployed, !about.linux.is_empty(), "{}", about.name);
        }
    }
}
