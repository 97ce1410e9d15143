//! Configuration file of a gateway.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use serde::de::{Error, SeqAccess, Unexpected, Visitor};
use skybraid_traffic::video::Codec;
use skybraid_traffic::video::protection::Duplicate;
use skybraid_transport::congestion::CongestionConfig;
use skybraid_transport::reordering::ReorderingConfig;
use skybraid_transport::scheduler::{SchedulerConfig, mutran};
use skybraid_transport::{Protocol, TransportConfig};
use skybraid_units::{Bytes, Duration};

use crate::fec::RepairConfig;
use crate::{Class, PublicKey};

/// The name of the channel that carries MAVLink.
pub const MAVLINK: &str = "mavlink";
/// The name of the channel that carries IP packets.
pub const TUN: &str = "tun";

/// Side of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// It opens the session, and may sit behind address translation.
    Aircraft,
    /// It answers at fixed addresses.
    Ground,
}

impl Side {
    /// The name used in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Aircraft => "aircraft",
            Self::Ground => "ground",
        }
    }
}

/// Protocol that carries sealed datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// UDP: a socket for each path.
    #[default]
    Udp,
    /// For networks that block UDP: control over a TCP connection for each path, everything else over
    /// one MPTCP connection of the kernel.
    Tcp,
}

/// A gateway.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GatewayConfig {
    /// Name in the log, on the page and in metrics.
    #[serde(default = "usual_name")]
    pub name: String,
    /// Side of this end.
    pub side: Side,
    /// File of its private key, relative to the configuration's.
    pub key: String,
    /// The public key of the other end, or those of the ends that are trusted as such.
    pub peer: Peers,
    /// File of a key that both ends share besides, relative to the configuration's.
    #[serde(default)]
    pub psk: Option<String>,
    /// Protocol that carries the datagrams. Default UDP.
    #[serde(default)]
    pub network: Network,
    /// The paths by name: one name is the same network at both ends.
    pub path: BTreeMap<String, PathConfig>,
    /// MAVLink ends.
    #[serde(default)]
    pub mavlink: Vec<MavlinkConfig>,
    /// UDP ports by name, the same at both ends.
    #[serde(default)]
    pub udp: BTreeMap<String, PortConfig>,
    /// A network interface for everything else.
    #[serde(default)]
    pub tun: Option<TunConfig>,
    /// Transport of each class.
    #[serde(default)]
    pub class: ClassesConfig,
    /// The classes of MAVLink messages, where they differ from the usual ones.
    #[serde(default)]
    pub messages: MessagesConfig,
    /// The classes of IP packets; the first rule that fits decides.
    #[serde(default)]
    pub rule: Vec<RuleConfig>,
    /// Limits of silence.
    #[serde(default)]
    pub health: HealthConfig,
    /// Changes of keys.
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

/// Public keys of the ends that are trusted as the other one: one text, or a list of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peers(pub Vec<PublicKey>);

impl<'de> serde::Deserialize<'de> for Peers {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Peers;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a public key, or a list of public keys")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Peers, E> {
                text.parse().map(|key| Peers([key].into())).map_err(E::custom)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut keys: A) -> Result<Peers, A::Error> {
                let mut peers = Vec::new();
                while let Some(key) = keys.next_element()? {
                    peers.push(key);
                }
                Ok(Peers(peers))
            }
        }
        from.deserialize_any(Either)
    }
}

fn usual_name() -> String {
    "gateway".to_string()
}

impl GatewayConfig {
    /// The names of the channels in the order of their numbers: MAVLink, TUN, and the UDP ports.
    pub fn channels(&self) -> Vec<String> {
        let mavlink = (!self.mavlink.is_empty()).then(|| MAVLINK.to_string());
        let tun = self.tun.as_ref().map(|_| TUN.to_string());
        mavlink.into_iter().chain(tun).chain(self.udp.keys().cloned()).collect()
    }
}

/// One path, seen from one end.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PathConfig {
    /// The network interface that its packets leave by.
    pub interface: Option<String>,
    /// The local address, for several paths on one interface.
    pub address: Option<String>,
    /// Address of the ground station: `host:port`. Of the aircraft.
    pub remote: Option<String>,
    /// Address on which the ground station listens: `address:port`. Several paths may share one.
    pub listen: Option<String>,
    /// Cost per byte in the user's own measure, for schedulers that heed it. Default 1.
    pub cost: u32,
    /// Priority of RFC 9897: 0 never, 1 standby, 2 secondary, 3 to 15 primary. Default 3.
    pub priority: u8,
    /// Used for anything but control only when no other path lives.
    pub backup: bool,
    /// Bytes, both ways together, after which it is used only when no other path lives.
    pub data_cap: Option<Bytes>,
    /// The largest IP packet that is tried; what goes through is found by probes. Default 1500 B.
    pub mtu: Bytes,
}

impl Default for PathConfig {
    fn default() -> Self {
        Self {
            interface: None,
            address: None,
            remote: None,
            listen: None,
            cost: 1,
            priority: 3,
            backup: false,
            data_cap: None,
            mtu: Bytes::new(1500),
        }
    }
}

/// A place that MAVLink comes from and goes to; exactly one of its kinds is set.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MavlinkConfig {
    /// A serial device.
    pub serial: Option<String>,
    /// Its speed in bauds. Default 57600.
    pub baud: Option<u32>,
    /// An address on which datagrams are awaited; answers go to all that have sent some.
    pub udp_listen: Option<String>,
    /// An address to which datagrams are sent.
    pub udp_connect: Option<String>,
    /// An address on which TCP connections are accepted, any number of them.
    pub tcp_listen: Option<String>,
    /// An address to connect to over TCP, again and again until it answers.
    pub tcp_connect: Option<String>,
    /// It gets RADIO_STATUS messages about the paths. Default off: nothing is made up.
    pub radio_status: bool,
}

/// A UDP port.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortConfig {
    /// Address on which datagrams to carry are received: `address:port`.
    pub listen: Option<String>,
    /// Destination of datagrams from the other end; by default the last sender.
    pub send_to: Option<String>,
    /// Class of the datagrams. Default video.
    #[serde(default = "video")]
    pub class: Class,
    /// How its pictures are coded, where it carries RTP: which datagrams are of key frames. Default H.264.
    #[serde(default)]
    pub codec: Codec,
}

const fn video() -> Class {
    Class::Video
}

/// The TUN interface.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TunConfig {
    /// The interface's name. Default `skybraid0`.
    #[serde(default = "usual_tun")]
    pub name: String,
    /// Its address with the prefix: `10.77.0.1/24`.
    pub address: String,
    /// Its MTU. Default 1280 B.
    #[serde(default = "usual_tun_mtu")]
    pub mtu: Bytes,
    /// Networks behind the other end, besides its own address: packets may come from them and go to them.
    /// Default none.
    #[serde(default)]
    pub allowed: Vec<String>,
}

fn usual_tun() -> String {
    "skybraid0".to_string()
}

const fn usual_tun_mtu() -> Bytes {
    Bytes::new(1280)
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
    /// On which paths a message leaves.
    pub scheduler: Option<SchedulerConfig>,
    /// Congestion control of each path (MP-DCCP).
    pub congestion: Option<CongestionConfig>,
    /// Whether order is restored.
    pub reordering: Option<ReorderingConfig>,
    /// Age at which a message is of no use any more; it is dropped and counted.
    pub deadline: Option<Duration>,
    /// Messages of each source that may wait at the sender.
    pub queue: Option<u32>,
    /// Which messages leave on every path, where no `scheduler` is given: none, those of key frames of
    /// RTP ports, all.
    pub duplicate: Option<Duplicate>,
    /// Repair packets; none unless said. In TCP mode nothing but control is ever lost.
    pub repair: Option<RepairConfig>,
}

impl ClassesConfig {
    /// The configuration of a class.
    pub const fn of(&self, class: Class) -> &ClassConfig {
        match class {
            Class::Control => &self.control,
            Class::Telemetry => &self.telemetry,
            Class::Video => &self.video,
            Class::Bulk => &self.bulk,
        }
    }

    /// The transport of a class, what is usual included.
    pub fn transport(&self, class: Class) -> TransportConfig {
        let given = self.of(class);
        let (protocol, scheduler, congestion) = match class {
            Class::Control => (Protocol::Udp, "redundant", "ccid5"),
            Class::Telemetry | Class::Video => (Protocol::MpDccp, "low_rtt", "ccid5"),
            // The path that control lives by stays free, and the queues of the others short.
            Class::Bulk => (Protocol::MpDccp, "spare_fastest", "bbr3"),
        };
        let mut config = TransportConfig {
            protocol: given.protocol.unwrap_or(protocol),
            drop_expired: true,
            ..TransportConfig::default()
        };
        let congestion = CongestionConfig::by_name(congestion);
        let scheduler = match given.duplicate.unwrap_or_default() {
            Duplicate::None => SchedulerConfig::by_name(scheduler),
            // Key frames are control to it.
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
            // What a burst of many thousands a second writes while the machine is busy elsewhere.
            Class::Control => 8_000,
            Class::Telemetry => 100,
            Class::Video | Class::Bulk => 400,
        }));
        config
    }

    /// The age at which a message of a class is of no use any more.
    pub fn deadline(&self, class: Class) -> Option<Duration> {
        self.of(class).deadline.or(match class {
            Class::Control | Class::Telemetry => Some(Duration::from_secs(1)),
            Class::Video => Some(Duration::from_millis(500)),
            Class::Bulk => None,
        })
    }
}

/// MAVLink messages, by name (of `common.xml`) or number, of other classes than usual.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MessagesConfig {
    /// MAVLink messages that are control.
    pub control: Vec<MessageName>,
    /// MAVLink messages that are telemetry.
    pub telemetry: Vec<MessageName>,
    /// MAVLink messages that are bulk.
    pub bulk: Vec<MessageName>,
    /// Messages of which only the newest counts: one that arrives after its successor is dropped.
    pub latest: Vec<MessageName>,
    /// Messages each of which counts, even after a newer one has arrived.
    pub every: Vec<MessageName>,
}

/// A MAVLink message as a file names it.
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
    /// The DSCP that they bear, 0 to 63.
    pub dscp: Option<u8>,
    /// The UDP or TCP port that they come from or go to.
    pub port: Option<u16>,
    /// Their class.
    pub class: Class,
}

/// Times at which a path is suspected, given up and trusted again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HealthConfig {
    /// How often each end shows a sign of life on each path. Default 50 ms. A path that is silent for
    /// three times as long is suspected.
    pub probe: Duration,
    /// A path that is silent for so long is given up. Default 200 ms.
    pub give_up: Duration,
    /// Probation of a path that came back, before data use it. Default 1 s.
    pub probation: Duration,
}

impl Default for HealthConfig {
    fn default() -> Self {
        Self {
            probe: Duration::from_millis(50),
            give_up: Duration::from_millis(200),
            probation: Duration::from_secs(1),
        }
    }
}

/// Changes of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SessionConfig {
    /// Keys are changed so often. Default 2 min.
    pub rekey: Duration,
    /// Age at which nothing is sent or accepted under keys any more, where they could not be changed.
    /// Default five times `rekey`.
    pub lifetime: Option<Duration>,
}

impl SessionConfig {
    /// The age at which keys are of no use any more.
    pub fn lifetime(&self) -> Duration {
        self.lifetime.unwrap_or(self.rekey * 5)
    }
}

impl Default for SessionConfig {
    fn default() -> Self {
        Self { rekey: Duration::from_secs(120), lifetime: None }
    }
}

/// Check of signed MAVLink frames.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SigningConfig {
    /// File of the signing key, relative to the configuration's.
    pub key: String,
}

/// The status page.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StatusConfig {
    /// Address of the page, the metrics and `skybraid-node status`; empty for none. Default
    /// `127.0.0.1:9418`.
    pub listen: String,
    /// Names under which the page answers, besides loopback names, the machine's name and the addresses that it
    /// listens on. Default none.
    pub hosts: Vec<String>,
}

impl Default for StatusConfig {
    fn default() -> Self {
        Self { listen: "127.0.0.1:9418".to_string(), hosts: Vec::new() }
    }
}

/// The log.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogConfig {
    /// The file, relative to the configuration's. A new one is begun at each start: `NAME-TIME.jsonl`.
    pub file: String,
    /// Interval at which the state is written. Default 1 s.
    #[serde(default = "each_second")]
    pub every: Duration,
    /// Size at which a new file is begun. Default 64 MB.
    #[serde(default = "usual_log_size")]
    pub max_size: Bytes,
    /// Age at which a new file is begun. Default 24 h.
    #[serde(default = "usual_log_age")]
    pub max_age: Duration,
    /// Size of all files of the log together; the oldest are removed. Default 2 GB.
    #[serde(default = "usual_log_keep")]
    pub keep: Bytes,
}

const fn usual_log_size() -> Bytes {
    Bytes::new(64_000_000)
}

const fn usual_log_age() -> Duration {
    Duration::from_secs(24 * 3600)
}

const fn usual_log_keep() -> Bytes {
    Bytes::new(2_000_000_000)
}

const fn each_second() -> Duration {
    Duration::from_secs(1)
}
