//! Configuration file of a gateway.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use serde::de::{Error, Unexpected, Visitor};
use skybraid_traffic::video::Codec;
use skybraid_traffic::video::protection::Duplicate;
use skybraid_transport::congestion::{CongestionConfig, ccid5};
use skybraid_transport::reordering::ReorderingConfig;
use skybraid_transport::scheduler::{SchedulerConfig, mutran};
use skybraid_transport::{Protocol, TransportConfig};
use skybraid_units::{Bytes, Duration, defaults, form, keys, named};

use crate::fec::RepairConfig;
use crate::{Class, PublicKey};

/// The name of the channel that carries MAVLink.
pub const MAVLINK: &str = "mavlink";
/// The name of the channel that carries IP packets.
pub const TUN: &str = "tun";

/// Packets with which data begins on a path that carried none: an initial window (RFC 3390).
const RESTART_WINDOW: u32 = 4;

/// Data that waits for the pace of its path: a burst of a frame is not spread over all paths, whose queues it would
/// fill together when all rates fall.
const PACE_QUEUE: Duration = Duration::from_millis(8);

named! {
    /// Side of the link.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Side {
        /// Opens the session; may be behind address translation.
        Aircraft = "aircraft",
        /// Responds at fixed addresses.
        Ground = "ground",
    }
}

/// Protocol that carries sealed datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// UDP: a socket for each path.
    #[default]
    Udp,
    /// For networks that block UDP: control over one TCP connection per path, everything else over one kernel
    /// MPTCP connection.
    Tcp,
}

impl Network {
    /// Whether a class shares the MPTCP connection.
    pub fn bundles(self, class: Class) -> bool {
        self == Self::Tcp && class != Class::Control
    }
}

/// Configuration of a gateway.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GatewayConfig {
    /// Name in the log, on the page and in metrics.
    #[serde(default = "default_name")]
    pub name: String,
    /// Side of this end.
    pub side: Side,
    /// Private key file, relative to the configuration file.
    pub key: String,
    /// Public key of the peer, or of each trusted peer.
    pub peer: Peers,
    /// Pre-shared key file, relative to the configuration file.
    #[serde(default)]
    pub psk: Option<String>,
    /// Protocol that carries the datagrams. Default UDP.
    #[serde(default)]
    pub network: Network,
    /// Paths by name; a name denotes the same network at both ends.
    pub path: BTreeMap<String, PathConfig>,
    /// MAVLink ends.
    #[serde(default)]
    pub mavlink: Vec<MavlinkConfig>,
    /// UDP ports by name, the same at both ends.
    #[serde(default)]
    pub udp: BTreeMap<String, PortConfig>,
    /// Network interface for all other traffic.
    #[serde(default)]
    pub tun: Option<TunConfig>,
    /// Transport of each class.
    #[serde(default)]
    pub class: ClassesConfig,
    /// Classes of MAVLink messages that differ from the default.
    #[serde(default)]
    pub messages: MessagesConfig,
    /// Classes of IP packets; the first matching rule applies.
    #[serde(default)]
    pub rule: Vec<RuleConfig>,
    /// Limits of silence.
    #[serde(default)]
    pub health: HealthConfig,
    /// Rekeying.
    #[serde(default)]
    pub session: SessionConfig,
    /// Check of signed MAVLink frames.
    #[serde(default)]
    pub signing: Option<SigningConfig>,
    /// The status page.
    #[serde(default)]
    pub status: StatusConfig,
    /// The log.
    #[serde(default)]
    pub log: Option<LogConfig>,
}

/// Public keys of the trusted peers: one string, or a list of strings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peers(pub Vec<PublicKey>);

impl<'de> serde::Deserialize<'de> for Peers {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let keys = form::one_or_many(from, "a public key, or a list of public keys")?;
        Ok(Self(keys.into()))
    }
}

defaults! { default_name: String = "gateway".to_string(); }

impl GatewayConfig {
    /// Returns the channel names in the order of their numbers: MAVLink, TUN, and the UDP ports.
    pub fn channels(&self) -> Vec<String> {
        let mavlink = (!self.mavlink.is_empty()).then(|| MAVLINK.to_string());
        let tun = self.tun.as_ref().map(|_| TUN.to_string());
        mavlink.into_iter().chain(tun).chain(self.udp.keys().cloned()).collect()
    }
}

keys! {
    /// One path, seen from one end.
    #[derive(Clone, Debug)]
    pub struct PathConfig {
        /// Outgoing network interface.
        pub interface: Option<String> = None,
        /// Local address, if several paths share one interface.
        pub address: Option<String> = None,
        /// Address of the ground station: `host:port`. Of the aircraft.
        pub remote: Option<String> = None,
        /// Address on which the ground station listens: `address:port`. Several paths may share one.
        pub listen: Option<String> = None,
        /// Cost per byte in a unit of choice, for schedulers that use costs. Default 1.
        pub cost: u32 = 1,
        /// Priority of RFC 9897: 0 never, 1 standby, 2 secondary, 3 to 15 primary. Default 3.
        pub priority: u8 = 3,
        /// Carries only control unless no other path is alive.
        pub backup: bool = false,
        /// Byte limit, both directions together; beyond it, used only if no other path is alive.
        pub data_cap: Option<Bytes> = None,
        /// Largest IP packet to probe; probes find the size that gets through. Default 1500 B.
        pub mtu: Bytes = Bytes::new(1500),
    }
}

/// Local MAVLink endpoint; exactly one kind must be set.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MavlinkConfig {
    /// A serial device.
    pub serial: Option<String>,
    /// Baud rate. Default 57600.
    pub baud: Option<u32>,
    /// Address to receive datagrams on; replies go to every sender so far.
    pub udp_listen: Option<String>,
    /// Address to send datagrams to.
    pub udp_connect: Option<String>,
    /// Address on which any number of TCP connections is accepted.
    pub tcp_listen: Option<String>,
    /// TCP address to connect to, retried until it accepts.
    pub tcp_connect: Option<String>,
    /// Emits RADIO_STATUS messages about the paths. Default off: no synthetic messages.
    pub radio_status: bool,
}

/// A UDP port.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortConfig {
    /// Address that receives local datagrams: `address:port`.
    pub listen: Option<String>,
    /// Destination of datagrams from the other end; by default the last sender.
    pub send_to: Option<String>,
    /// Class of the datagrams. Default video.
    #[serde(default = "video")]
    pub class: Class,
    /// Video codec of RTP datagrams, to recognize those of key frames. Default H.264.
    #[serde(default)]
    pub codec: Codec,
}

defaults! { video: Class = Class::Video; }

/// The TUN interface.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TunConfig {
    /// Interface name. Default `skybraid0`.
    #[serde(default = "default_tun")]
    pub name: String,
    /// Address with prefix length: `10.77.0.1/24`.
    pub address: String,
    /// MTU. Default 1280 B.
    #[serde(default = "default_tun_mtu")]
    pub mtu: Bytes,
    /// Networks behind the peer that packets may come from and go to, besides the peer's own address. Default
    /// none.
    #[serde(default)]
    pub allowed: Vec<String>,
}

defaults! {
    default_tun: String = "skybraid0".to_string();
    default_tun_mtu: Bytes = Bytes::new(1280);
}

/// Transport of each class.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClassesConfig {
    /// Control. Default: UDP, redundant, 1 s.
    pub control: ClassConfig,
    /// Telemetry. Default: MP-DCCP, lowest round-trip time, 1 s.
    pub telemetry: ClassConfig,
    /// Video. Default: MP-DCCP, lowest round-trip time, 500 ms.
    pub video: ClassConfig,
    /// Bulk. Default: MP-DCCP over all paths but the fastest, without a deadline.
    pub bulk: ClassConfig,
}

/// Transport of a class; missing keys have the defaults of the class.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClassConfig {
    /// `udp` or `mp_dccp`.
    pub protocol: Option<Protocol>,
    /// Path scheduler.
    pub scheduler: Option<SchedulerConfig>,
    /// Congestion control of each path (MP-DCCP).
    pub congestion: Option<CongestionConfig>,
    /// Reordering at the receiver.
    pub reordering: Option<ReorderingConfig>,
    /// Maximum age of a message; older messages are dropped and counted.
    pub deadline: Option<Duration>,
    /// Maximum queued messages per source at the sender, as packets of an Ethernet; up to ten times as many small
    /// ones take their place.
    pub queue: Option<u32>,
    /// Messages sent on every path if no `scheduler` is given: none, those of key frames on RTP ports, or
    /// all.
    pub duplicate: Option<Duplicate>,
    /// Repair packets; default none. In TCP mode only control can be lost.
    pub repair: Option<RepairConfig>,
}

impl ClassesConfig {
    /// Returns the configuration of a class.
    pub const fn of(&self, class: Class) -> &ClassConfig {
        match class {
            Class::Control => &self.control,
            Class::Telemetry => &self.telemetry,
            Class::Video => &self.video,
            Class::Bulk => &self.bulk,
        }
    }

    /// Returns the transport of a class, defaults applied.
    pub fn transport(&self, class: Class) -> TransportConfig {
        let given = self.of(class);
        // Radios lose packets at any rate, and a queue of this end is noticed by probes.
        let radio = ccid5::Config { radio: true, ..ccid5::Config::default() };
        let radio = Some(CongestionConfig::Ccid5(radio));
        let (protocol, scheduler, congestion) = match class {
            Class::Control => (Protocol::Udp, "redundant", radio),
            Class::Telemetry | Class::Video => (Protocol::MpDccp, "low_rtt", radio),
            // Keeps the path that control relies on free, and the queues of other paths short.
            Class::Bulk => (Protocol::MpDccp, "spare_fastest", CongestionConfig::by_name("bbr3")),
        };
        let mut config = TransportConfig {
            protocol: given.protocol.unwrap_or(protocol),
            drop_expired: true,
            restart_window: Some(RESTART_WINDOW),
            pace_queue: PACE_QUEUE,
            ..TransportConfig::default()
        };
        let scheduler = match given.duplicate.unwrap_or_default() {
            Duplicate::None => SchedulerConfig::by_name(scheduler),
            // This scheduler treats key frames as control.
            Duplicate::Keys => {
                let config = mutran::Config { wait: true, ..mutran::Config::default() };
                Some(SchedulerConfig::Mutran(config))
            }
            Duplicate::All => SchedulerConfig::by_name("redundant"),
        };
        if let Some(scheduler) = given.scheduler.clone().or(scheduler) {
            config.scheduler = scheduler;
        }
        if let Some(congestion) = given.congestion.clone().or(congestion) {
            config.congestion = congestion;
        }
        if let Some(reordering) = &given.reordering {
            config.reordering = reordering.clone();
        }
        config.tx_queue = given.queue.or(Some(match class {
            // Holds a burst of many thousands of commands until the networks have carried it.
            Class::Control => 2_000,
            Class::Telemetry => 100,
            Class::Video | Class::Bulk => 400,
        }));
        config
    }

    /// Returns the maximum age of a message of a class.
    pub fn deadline(&self, class: Class) -> Option<Duration> {
        self.of(class).deadline.or(match class {
            Class::Control | Class::Telemetry => Some(Duration::from_secs(1)),
            Class::Video => Some(Duration::from_millis(500)),
            Class::Bulk => None,
        })
    }
}

/// Class overrides for MAVLink messages, by name (of `common.xml`) or number.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MessagesConfig {
    /// MAVLink messages that are control.
    pub control: Vec<MessageName>,
    /// MAVLink messages that are telemetry.
    pub telemetry: Vec<MessageName>,
    /// MAVLink messages that are bulk.
    pub bulk: Vec<MessageName>,
    /// Messages of which only the newest counts: a message that arrives after its successor is dropped.
    pub latest: Vec<MessageName>,
    /// Messages that all count, even if a newer one has arrived.
    pub every: Vec<MessageName>,
}

/// MAVLink message as named in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MessageName {
    /// By number.
    Number(u32),
    /// By name.
    Name(String),
}

impl<'de> serde::Deserialize<'de> for MessageName {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Either;
        impl Visitor<'_> for Either {
            type Value = MessageName;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name or the number of a MAVLink message")
            }
            fn visit_i64<E: Error>(self, number: i64) -> Result<MessageName, E> {
                let unfit = |_| E::invalid_value(Unexpected::Signed(number), &self);
                number.try_into().map(MessageName::Number).map_err(unfit)
            }
            fn visit_u64<E: Error>(self, number: u64) -> Result<MessageName, E> {
                let unfit = |_| E::invalid_value(Unexpected::Unsigned(number), &self);
                number.try_into().map(MessageName::Number).map_err(unfit)
            }
            fn visit_str<E: Error>(self, name: &str) -> Result<MessageName, E> {
                Ok(MessageName::Name(name.to_string()))
            }
        }
        from.deserialize_any(Either)
    }
}

/// Class of IP packets.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleConfig {
    /// DSCP to match, 0 to 63.
    pub dscp: Option<u8>,
    /// UDP or TCP port to match, source or destination.
    pub port: Option<u16>,
    /// Their class.
    pub class: Class,
}

keys! {
    /// Times at which a path is suspected, given up and trusted again.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct HealthConfig {
        /// Interval of probes on each path, from each end. Default 50 ms. A path is suspected after three
        /// intervals of silence.
        pub probe: Duration = Duration::from_millis(50),
        /// Silence after which a path is given up. Default 200 ms.
        pub give_up: Duration = Duration::from_millis(200),
        /// Probation of a path that came back, before data use it. Default 1 s.
        pub probation: Duration = Duration::from_secs(1),
    }
}

keys! {
    /// Rekeying.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct SessionConfig {
        /// Rekeying interval. Default 2 min.
        pub rekey: Duration = Duration::from_secs(120),
        /// Maximum age of keys that could not be changed; nothing is sent or accepted beyond it. Default five
        /// times `rekey`.
        pub lifetime: Option<Duration> = None,
    }
}

impl SessionConfig {
    /// Returns the maximum age of keys.
    pub fn lifetime(&self) -> Duration {
        self.lifetime.unwrap_or(self.rekey * 5)
    }
}

/// Check of signed MAVLink frames.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SigningConfig {
    /// Signing key file, relative to the configuration file.
    pub key: String,
}

keys! {
    /// The status page.
    #[derive(Clone, Debug)]
    pub struct StatusConfig {
        /// Address of the page, the metrics and `skybraid-node status`; empty for none. Default
        /// `127.0.0.1:9418`.
        pub listen: String = "127.0.0.1:9418".to_string(),
        /// Host names that the page accepts, besides loopback names, the machine's name and the listen addresses.
        /// Default none.
        pub hosts: Vec<String> = Vec::new(),
    }
}

/// The log.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogConfig {
    /// Log file, relative to the configuration file. Each start begins a new file: `NAME-TIME.jsonl`.
    pub file: String,
    /// Interval at which the state is written. Default 1 s.
    #[serde(default = "each_second")]
    pub every: Duration,
    /// Size at which a new file is begun. Default 64 MB.
    #[serde(default = "default_log_size")]
    pub max_size: Bytes,
    /// Age at which a new file is begun. Default 24 h.
    #[serde(default = "default_log_age")]
    pub max_age: Duration,
    /// Maximum total size of the log files; the oldest are removed. Default 2 GB.
    #[serde(default = "default_log_keep")]
    pub keep: Bytes,
}

defaults! {
    default_log_size: Bytes = Bytes::new(64_000_000);
    default_log_age: Duration = Duration::from_secs(24 * 3600);
    default_log_keep: Bytes = Bytes::new(2_000_000_000);
    each_second: Duration = Duration::from_secs(1);
}
