//! Transport configuration: the keys of a scenario's `transport` table, with defaults and profiles.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use skybraid_units::{Bytes, Duration, Seed, named};

use crate::congestion::{CongestionConfig, IdleRestart, cubic, reno};
use crate::mptcp::buffers::Buffers;
use crate::mptcp::path_manager::{JoinAfter, PathManager};
use crate::pacing::QUANTUM;
use crate::reordering::ReorderingConfig;
use crate::rtt::RtoRule;
use crate::scheduler::{SchedulerConfig, linux_upstream, low_rtt, single};
use crate::tcp::acks::AckRule;
use crate::tcp::scoreboard::LossDetection;

named! {
    /// Protocol that carries the messages.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Protocol {
        /// Unreliable datagrams over one or several paths.
        #[default]
        Udp = "udp",
        /// One TCP connection over one path.
        Tcp = "tcp",
        /// One MPTCP connection over several paths.
        Mptcp = "mptcp",
        /// Several TCP connections, one per path.
        ParallelTcp = "parallel_tcp",
        /// One DCCP connection over one path.
        Dccp = "dccp",
        /// One MP-DCCP connection over several paths.
        #[serde(alias = "mp-dccp")]
        MpDccp = "mp_dccp",
    }
}

impl Protocol {
    /// True if every message is delivered eventually.
    pub const fn is_reliable(self) -> bool {
        matches!(self, Self::Tcp | Self::Mptcp | Self::ParallelTcp)
    }

    /// True if the protocol uses a single path.
    pub const fn is_single_path(self) -> bool {
        matches!(self, Self::Tcp | Self::Dccp)
    }

    /// Scheduler of a scenario that names none. Protocols made for several paths use several.
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

    /// One-line description and specification.
    pub const fn about(self) -> (&'static str, &'static str) {
        match self {
            Self::Udp => (
                "Unreliable datagrams over one or several paths; the receiver drops second copies.",
                "RFC 768",
            ),
            Self::Tcp => ("Reliable stream over one path.", "RFC 9293, RFC 6675, RFC 6298"),
            Self::Mptcp => {
                ("Reliable stream over several paths, with one TCP subflow on each.", "RFC 8684")
            }
            Self::ParallelTcp => (
                "Independent TCP connections, one per path, that carry the messages in turn. Each \
                 delivers in order, with no order between connections.",
                "Pedrazzi 2020, the TCP case",
            ),
            Self::Dccp => {
                ("Unreliable datagrams with congestion control over one path.", "RFC 4340")
            }
            Self::MpDccp => (
                "Unreliable datagrams over several paths, with congestion control on each; the \
                 receiver drops second copies.",
                "RFC 9897, RFC 4340",
            ),
        }
    }
}

/// TCP generation that the defaults are taken from. Explicit keys override the profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Profile {
    /// The network simulator ns-2 as the older papers used it: New Reno without SACK, one
    /// acknowledgement per segment, an initial window of one segment, a minimum timeout of 1 s, no
    /// restart after idle periods.
    Ns2,
    /// The current RFCs to the letter: RACK-TLP, proportional rate reduction, a minimum timeout of
    /// 1 s (RFC 6298), acknowledgements delayed by up to 200 ms.
    Rfc,
    /// Linux: the defaults, with every algorithm as Linux implements it (`compat = "linux"`).
    Linux,
}

named! {
    /// Implementation that carries a flow in the emulator. The simulator always uses Skybraid's.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Stack {
        /// The kernel's if it supports exactly what is configured, else Skybraid's.
        #[default]
        Auto = "auto",
        /// TCP or MPTCP of the kernel.
        Kernel = "kernel",
        /// Skybraid's own, over UDP sockets.
        Skybraid = "skybraid",
    }
}

/// Declares the keys of a transport, with their defaults or without one, and how a table overlays a profile.
macro_rules! transport_config {
    (
        with_default { $($(#[$doc:meta])* $key:ident: $type:ty = $default:expr,)+ }
        without_default { $($(#[$about:meta])* $unset:ident: $inner:ty,)+ }
    ) => {
        /// Transport of a flow. Every key has a default, so that a scenario sets only what matters to it.
        ///
        /// Without a profile, the algorithms are those of the RFCs and papers, with the timers of Linux (a
        /// minimum retransmission timeout of 200 ms, acknowledgements delayed by up to 40 ms).
        #[derive(Clone, Debug, PartialEq, serde::Deserialize)]
        #[serde(from = "RawTransportConfig")]
        pub struct TransportConfig {
            $($(#[$doc])* pub $key: $type,)+
            $($(#[$about])* pub $unset: Option<$inner>,)+
            /// Seed of the congestion controls' random draws, combined with the role of the endpoint and
            /// the number of the path. Set by the driver, never read from a scenario. Default zero.
            pub seed: Seed,
        }

        impl Default for TransportConfig {
            fn default() -> Self {
                Self { $($key: $default,)+ $($unset: None,)+ seed: Seed::default() }
            }
        }

        /// A transport table as written: missing keys take the profile's values.
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct RawTransportConfig {
            profile: Option<Profile>,
            $($unset: Option<$inner>,)+
            $($key: Option<$type>,)+
        }

        impl From<RawTransportConfig> for TransportConfig {
            fn from(given: RawTransportConfig) -> Self {
                let mut base = given.profile.map_or_else(Self::default, Self::of);
                let protocol = given.protocol.unwrap_or(base.protocol);
                base.scheduler = protocol.default_scheduler(given.profile);
                let mut config = Self {
                    $($key: given.$key.unwrap_or(base.$key),)+
                    $($unset: given.$unset,)+
                    seed: base.seed,
                };
                if given.profile == Some(Profile::Linux) {
                    config.congestion.use_linux_behaviour();
                    config.scheduler.use_linux_behaviour();
                }
                config
            }
        }
    };
}

transport_config! {
    with_default {
        /// Protocol. Default `udp`.
        protocol: Protocol = Protocol::Udp,
        /// Packet scheduler. Default `low_rtt` for MPTCP and MP-DCCP, `linux` for MPTCP under the
        /// profile `linux`, else `single`.
        scheduler: SchedulerConfig = SchedulerConfig::Single(single::Config::default()),
        /// Congestion control. Default `cubic`.
        congestion: CongestionConfig = CongestionConfig::Cubic(cubic::Config::default()),
        /// Reordering of unreliable flows at the receiver. Default `none`.
        reordering: ReorderingConfig = ReorderingConfig::none(),
        /// Receive buffer of TCP and MPTCP, shared by all subflows. Default 6 MB, the upper bound of
        /// Linux's `tcp_rmem`.
        receive_buffer: Bytes = Bytes::new(6_000_000),
        /// Maximum data that a bulk application writes ahead of the acknowledged data. Default 4 MB,
        /// the upper bound of Linux's `tcp_wmem`.
        send_buffer: Bytes = Bytes::new(4_000_000),
        /// Sizes of both buffers: fixed, or tuned within these bounds as by Linux. Default fixed.
        buffers: Buffers = Buffers::Fixed,
        /// TCP: applications other than bulk are refused what does not fit the send buffer, as by a
        /// non-blocking socket; otherwise all written data is queued. Default off.
        refuse_when_full: bool = false,
        /// Initial congestion window in segments (RFC 6928). Default 10.
        initial_window: u32 = 10,
        /// Loss detection. Default RACK-TLP.
        loss_detection: LossDetection = LossDetection::Rack,
        /// Reduces the window in proportion to the data delivered during a recovery (RFC 9937) instead
        /// of at once (RFC 6675). Default on.
        proportional_reduction: bool = true,
        /// Reverts the response to a spurious recovery (RFC 3522, RFC 4015). Default on.
        undo: bool = true,
        /// Paces congestion controls that set only a window, as Linux does under `fq`: two windows per
        /// round trip in slow start, 1.2 windows afterwards. Default off.
        pacing: bool = false,
        /// Restart of the window after an idle retransmission timeout. Default from the initial window
        /// (RFC 5681 §4.1).
        idle_restart: IdleRestart = IdleRestart::Initial,
        /// A window that the application does not fill does not grow (RFC 7661). Default on.
        window_validation: bool = true,
        /// Rule of delayed acknowledgements: the next two keys, or Linux's, which ignores them. Default
        /// the keys.
        ack_rule: AckRule = AckRule::Fixed,
        /// Maximum segments per acknowledgement. Default 2.
        ack_every: u32 = 2,
        /// Maximum delay of an acknowledgement. Default 40 ms, as in Linux.
        ack_delay: Duration = Duration::from_millis(40),
        /// Minimum retransmission timeout. Default 200 ms, as in Linux.
        rto_min: Duration = Duration::from_millis(200),
        /// Rule that derives the timeout from the samples. Default Linux's.
        rto_rule: RtoRule = RtoRule::Linux,
        /// Flight size that a loss halves. Default what is outstanding, at most the window.
        flight_size: FlightSize = FlightSize::Window,
        /// The retransmission of the first outstanding segment starts the timer again (RFC 6675 §5.1
        /// allows both). Default on.
        retransmission_restarts_timer: bool = true,
        /// Interval of a datagram receiver's reports, for schedulers that need round-trip times.
        /// Default 100 ms.
        report_every: Duration = Duration::from_millis(100),
        /// Subflows that an MPTCP connection opens. Default one per path.
        path_manager: PathManager = PathManager::FullMesh,
        /// Event after which an MPTCP client joins further subflows. Default the first one's handshake.
        join_after: JoinAfter = JoinAfter::Handshake,
        /// False if the peer does not support MPTCP: the connection falls back to TCP on its first path
        /// (RFC 8684 §3.7). Default true.
        peer_multipath: bool = true,
        /// MPTCP: if the receive window blocks, the fastest free subflow retransmits the chunk that a
        /// slower one still carries ("opportunistic retransmission", Raiciu et al. 2012). Default on.
        opportunistic_retransmission: bool = true,
        /// MPTCP: halves the window of the slower subflow in that case ("penalisation"). Default on.
        penalisation: bool = true,
        /// Caps the window at two bandwidth-delay products of the unloaded path once a subflow's
        /// round-trip time has more than doubled (Raiciu et al. 2012). Default off.
        bufferbloat_mitigation: bool = false,
        /// DCCP and MP-DCCP: maximum datagrams that wait for window space; beyond that the newest
        /// message is refused. Default 5, as in Linux; for video, two key frames.
        tx_queue: Option<u32> = None,
        /// DCCP and MP-DCCP: drops queued messages whose deadline has passed. Default off.
        drop_expired: bool = false,
        /// DCCP and MP-DCCP: packets that may be in flight on a subflow after an idle retransmission timeout until one
        /// is acknowledged, then as in slow start (RFC 4341 §5.1), where round trips take 300 ms at most. Default
        /// unlimited.
        restart_window: Option<u32> = None,
        /// DCCP and MP-DCCP: data that waits on a subflow for its pace, as a time at that pace, at least two packets;
        /// the scheduler finds no room beyond. Default 1 ms.
        pace_queue: Duration = QUANTUM,
        /// MP-DCCP: interval of keep-alives on an idle path. Default 20 s, as in MP-DCCP for Linux.
        keep_alive: Duration = Duration::from_secs(20),
        /// MP-DCCP: maximum interval between probes of a failed path. Default 1 s.
        probe_every: Duration = Duration::from_secs(1),
        /// Implementation that carries the flow in the emulator. Default the kernel's if it supports
        /// exactly what is configured, else Skybraid's.
        stack: Stack = Stack::Auto,
    }
    without_default {
        /// Names of the paths to use, in order; all paths of the scenario by default.
        paths: Vec<String>,
        /// Number of subflows of a connection, each with a route of its own. Default one per path.
        subflows: u32,
        /// Initial slow start threshold. Default unlimited.
        initial_threshold: Bytes,
        /// Maximum data in flight on a subflow, whatever its window: 65,535 B towards a peer that does
        /// not scale its window (RFC 9293 §3.1). Default unlimited.
        max_in_flight: Bytes,
        /// Maximum payload of a segment. Default the largest that fits the smallest path MTU.
        segment: Bytes,
    }
}

named! {
    /// Flight size that a loss halves (RFC 5681 §3.1).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum FlightSize {
        /// What is outstanding, at most the window: data that duplicates have reported as arrived is not in flight.
        #[default]
        Window = "window",
        /// All that is outstanding, by the letter of the RFC.
        Outstanding = "outstanding",
        /// What is outstanding and neither selectively acknowledged nor lost, as in ns-3 since release 3.28.
        InFlight = "in_flight",
        /// The congestion window, filled or not, as in ns-2.
        CongestionWindow = "congestion_window",
    }
}

impl From<&TransportConfig> for Arc<TransportConfig> {
    fn from(config: &TransportConfig) -> Self {
        Self::new(config.clone())
    }
}

impl TransportConfig {
    /// Maximum datagrams that wait for window space if neither the configuration nor the traffic
    /// sets it.
    pub const TX_QUEUE: u32 = 5;

    /// Maximum datagrams that wait for window space.
    pub fn tx_queue(&self) -> u32 {
        self.tx_queue.unwrap_or(Self::TX_QUEUE)
    }

    /// True if several subflows may be used: MPTCP with a peer that supports it.
    pub(crate) fn is_multipath(&self) -> bool {
        self.protocol == Protocol::Mptcp && self.peer_multipath
    }

    /// Returns the defaults of a profile.
    pub fn of(profile: Profile) -> Self {
        let usual = Self::default();
        match profile {
            Profile::Ns2 => Self {
                congestion: CongestionConfig::Reno(reno::Config::default()),
                loss_detection: LossDetection::NewReno,
                proportional_reduction: false,
                idle_restart: IdleRestart::Off,
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
            Profile::Linux => Self { ack_rule: AckRule::Linux, ..usual },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_explicit_key_overrides_the_profile() {
        let ns2 = TransportConfig::of(Profile::Ns2);
        assert_eq!(ns2.loss_detection, LossDetection::NewReno);
        assert_eq!((ns2.ack_every, ns2.initial_window), (1, 1));
        let rfc = TransportConfig::of(Profile::Rfc);
        assert_eq!(rfc.rto_min, Duration::from_secs(1));
        let linux = TransportConfig { ack_rule: AckRule::Linux, ..TransportConfig::default() };
        assert_eq!(TransportConfig::of(Profile::Linux), linux);
    }

    #[test]
    fn the_linux_profile_changes_every_algorithm_that_differs() {
        for about in CongestionConfig::ALL {
            let usual = CongestionConfig::by_name(about.name);
            let deployed = usual.clone().map(|mut config| {
                config.use_linux_behaviour();
                config
            });
            assert_eq!(usual != deployed, !about.linux.is_empty(), "{}", about.name);
        }
        for about in SchedulerConfig::ALL {
            let usual = SchedulerConfig::by_name(about.name);
            let deployed = usual.clone().map(|mut config| {
                config.use_linux_behaviour();
                config
            });
            assert_eq!(usual != deployed, !about.linux.is_empty(), "{}", about.name);
        }
    }
}
