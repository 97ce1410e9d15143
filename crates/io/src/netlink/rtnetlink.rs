//! Interfaces, addresses, routes and rules of one namespace, queried and set over rtnetlink, one request at a
//! time.

use std::fmt::{self, Debug, Display};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsRawFd;

use netlink_packet_core::{
    ErrorMessage, NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, NetlinkBuffer,
    NetlinkDeserializable, NetlinkMessage, NetlinkPayload, NetlinkSerializable, NlasIterator,
};
use netlink_packet_route::address::{
    AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage,
};
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use netlink_packet_route::route::{
    RouteAttribute, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use netlink_packet_route::{AddressFamily, IpProtocol, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

use super::Namespace;
use crate::context;

/// Creates a new object and refuses to change an existing one.
const CREATE: u16 = NLM_F_CREATE | NLM_F_EXCL;

/// Explanation by the kernel among the attributes of an error message.
const NLMSGERR_ATTR_MSG: u16 = 1;

/// Length of a netlink message header.
const HEADER: usize = 16;

/// A connection to rtnetlink in one namespace.
pub struct Netlink {
    connection: Connection,
    namespace: String,
}

/// An address and the prefix length of its network in bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// IP address.
    pub address: IpAddr,
    /// Prefix length, 0 … 32 or 128.
    pub prefix: u8,
}

/// One end of a veth pair to be created.
#[derive(Clone, Copy, Debug)]
pub struct VethEnd<'a> {
    /// Namespace of the end.
    pub namespace: &'a Namespace,
    /// Interface name, at most 15 bytes.
    pub name: &'a str,
}

/// State of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkState {
    /// Index in its namespace.
    pub index: u32,
    /// MTU in bytes.
    pub mtu: u32,
    /// Whether the interface is up.
    pub up: bool,
    /// Hardware address.
    pub address: [u8; 6],
    /// Bytes sent, including Ethernet headers.
    pub sent_bytes: u64,
    /// Bytes received, including Ethernet headers.
    pub received_bytes: u64,
}

/// A route of one table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Destination; an unspecified address with prefix 0 is the default route.
    pub to: Network,
    /// Next hop; `None` if the destination itself is on the interface's network.
    pub via: Option<IpAddr>,
    /// Interface index.
    pub interface: u32,
    /// Source address of sockets that have not chosen one.
    pub source: Option<IpAddr>,
    /// Routing table; 254 is the main one.
    pub table: u32,
    /// Deliver matching packets to this host's own sockets, whatever their destination (for proxies).
    pub local: bool,
}

/// A rule that selects the routing table of packets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// Whether the rule is for IPv6.
    pub ipv6: bool,
    /// Source of the packets; all if `None`.
    pub from: Option<Network>,
    /// Incoming interface; all if `None`.
    pub incoming: Option<String>,
    /// IP protocol number (6 is TCP); all if `None`.
    pub ip_protocol: Option<u8>,
    /// Firewall or socket mark; all if `None`.
    pub mark: Option<u32>,
    /// Priority: smaller numbers come first; the main table's rule has 32766.
    pub priority: u32,
    /// Routing table.
    pub table: u32,
}

impl Network {
    /// Returns the network of a single address.
    pub const fn host(address: IpAddr) -> Self {
        let prefix = if address.is_ipv4() { 32 } else { 128 };
        Self { address, prefix }
    }

    /// All of IPv4.
    pub const ALL_V4: Self = Self { address: IpAddr::V4(Ipv4Addr::UNSPECIFIED), prefix: 0 };

    /// All of IPv6.
    pub const ALL_V6: Self = Self { address: IpAddr::V6(Ipv6Addr::UNSPECIFIED), prefix: 0 };
}

impl Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

impl Route {
    /// Main routing table.
    pub const MAIN: u32 = 254;
}

impl Netlink {
    /// Opens a connection in the namespace of the calling thread; `namespace` names it in errors.
    pub(super) fn open(namespace: &str) -> io::Result<Self> {
        let connection = Connection::open(NETLINK_ROUTE)
            .map_err(|error| context("cannot open an rtnetlink socket", error))?;
        Ok(Self { connection, namespace: namespace.to_owned() })
    }

    /// Opens a connection in the namespace of the calling thread, which needs no permissions for it.
    pub fn open_here() -> io::Result<Self> {
        Self::open("this machine")
    }

    /// Creates a pair of interfaces, each end in its namespace, both down.
    ///
    /// # Errors
    /// A name is in use or not permitted, the MTU is out of range, permissions are missing, or the kernel has
    /// no veth.
    pub fn add_veth(&mut self, ends: [VethEnd<'_>; 2], mtu: u32) -> io::Result<()> {
        let link = veth_message(ends.map(|end| {
            vec![
                LinkAttribute::IfName(end.name.to_owned()),
                LinkAttribute::Mtu(mtu),
                LinkAttribute::NetNsFd(end.namespace.fd().as_raw_fd()),
            ]
        }));
        let [a, b] = ends.map(|end| format!("{}:{}", end.namespace.name(), end.name));
        self.set(RouteNetlinkMessage::NewLink(link), CREATE, || {
            format!("cannot make the veth pair {a} — {b} with MTU {mtu}")
        })
    }

    /// Returns the state of interface `name`.
    ///
    /// # Errors
    /// The interface does not exist.
    pub fn link(&mut self, name: &str) -> io::Result<LinkState> {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::IfName(name.to_owned()));
        let what = format!("cannot find interface {}:{name}", self.namespace);
        let answers = self
            .connection
            .request(RouteNetlinkMessage::GetLink(message), 0)
            .map_err(|error| context(&what, error))?;
        let found = answers.into_iter().find_map(|answer| match answer {
            RouteNetlinkMessage::NewLink(link) => Some(state(&link)),
            _ => None,
        });
        found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, what))
    }

    /// Sets the interface up.
    ///
    /// # Errors
    /// The interface does not exist, or permissions are missing.
    pub fn set_up(&mut self, interface: u32) -> io::Result<()> {
        self.set_flags(interface, LinkFlags::Up)
    }

    /// Sets the interface down.
    ///
    /// # Errors
    /// The interface does not exist, or permissions are missing.
    pub fn set_down(&mut self, interface: u32) -> io::Result<()> {
        self.set_flags(interface, LinkFlags::empty())
    }

    /// Sets the interface's MTU in bytes.
    ///
    /// # Errors
    /// The interface does not exist or does not support the MTU, or permissions are missing.
    pub fn set_mtu(&mut self, interface: u32, mtu: u32) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = interface;
        message.attributes.push(LinkAttribute::Mtu(mtu));
        let place = self.namespace.clone();
        self.set(RouteNetlinkMessage::SetLink(message), 0, || {
            format!("cannot give interface {place}:#{interface} the MTU {mtu}")
        })
    }

    fn set_flags(&mut self, interface: u32, flags: LinkFlags) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = interface;
        message.header.flags = flags;
        message.header.change_mask = LinkFlags::Up;
        let state = if flags.is_empty() { "off" } else { "on" };
        let place = self.namespace.clone();
        self.set(RouteNetlinkMessage::SetLink(message), 0, || {
            format!("cannot switch interface {place}:#{interface} {state}")
        })
    }

    /// Deletes the interface, and with a veth also its other end.
    ///
    /// # Errors
    /// The interface does not exist, or permissions are missing.
    pub fn delete_link(&mut self, interface: u32) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = interface;
        let place = self.namespace.clone();
        self.set(RouteNetlinkMessage::DelLink(message), 0, || {
            format!("cannot delete interface {place}:#{interface}")
        })
    }

    /// Adds an address to the interface, usable at once (without duplicate detection).
    ///
    /// # Errors
    /// The interface already has the address or does not exist, or permissions are missing.
    pub fn add_address(&mut self, interface: u32, network: Network) -> io::Result<()> {
        let place = self.namespace.clone();
        let message = address_message(interface, network);
        self.set(RouteNetlinkMessage::NewAddress(message), CREATE, || {
            format!("cannot give interface {place}:#{interface} the address {network}")
        })
    }

    /// Removes an address from the interface.
    ///
    /// # Errors
    /// The interface does not have the address, or permissions are missing.
    pub fn delete_address(&mut self, interface: u32, network: Network) -> io::Result<()> {
        let place = self.namespace.clone();
        let message = address_message(interface, network);
        self.set(RouteNetlinkMessage::DelAddress(message), 0, || {
            format!("cannot take the address {network} from interface {place}:#{interface}")
        })
    }

    /// Adds a route.
    ///
    /// # Errors
    /// The route exists, its interface is down, its next hop is unreachable, or permissions are missing.
    pub fn add_route(&mut self, route: &Route) -> io::Result<()> {
        let place = self.namespace.clone();
        self.set(RouteNetlinkMessage::NewRoute(route_message(route)), CREATE, || {
            format!("cannot add the route {} in {place}", Described(route))
        })
    }

    /// Deletes a route.
    ///
    /// # Errors
    /// The route does not exist, or permissions are missing.
    pub fn delete_route(&mut self, route: &Route) -> io::Result<()> {
        let place = self.namespace.clone();
        self.set(RouteNetlinkMessage::DelRoute(route_message(route)), 0, || {
            format!("cannot delete the route {} in {place}", Described(route))
        })
    }

    /// Adds a rule.
    ///
    /// # Errors
    /// The rule exists, the kernel has no policy routing, or permissions are missing.
    pub fn add_rule(&mut self, rule: &Rule) -> io::Result<()> {
        let place = self.namespace.clone();
        self.set(RouteNetlinkMessage::NewRule(rule_message(rule)), CREATE, || {
            format!("cannot add to {place} {rule:?}")
        })
    }

    /// Deletes a rule.
    ///
    /// # Errors
    /// The rule does not exist, or permissions are missing.
    pub fn delete_rule(&mut self, rule: &Rule) -> io::Result<()> {
        let place = self.namespace.clone();
        self.set(RouteNetlinkMessage::DelRule(rule_message(rule)), 0, || {
            format!("cannot delete from {place} {rule:?}")
        })
    }

    fn set(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
        what: impl FnOnce() -> String,
    ) -> io::Result<()> {
        self.connection.request(message, flags).map_err(|error| context(what(), error))?;
        Ok(())
    }
}

struct Described<'a>(&'a Route);

impl Display for Described<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(route) = self;
        write!(f, "{}", route.to)?;
        if let Some(via) = route.via {
            write!(f, " via {via}")?;
        }
        write!(f, " dev #{} table {}", route.interface, route.table)
    }
}

fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

fn state(link: &LinkMessage) -> LinkState {
    let mut state = LinkState {
        index: link.header.index,
        up: link.header.flags.contains(LinkFlags::Up),
        ..LinkState::default()
    };
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::Mtu(mtu) => state.mtu = *mtu,
            LinkAttribute::Address(bytes) => {
                state.address = bytes.as_slice().try_into().unwrap_or_default();
            }
            LinkAttribute::Stats64(stats) => {
                state.sent_bytes = stats.tx_bytes;
                state.received_bytes = stats.rx_bytes;
            }
            _ => {}
        }
    }
    state
}

fn veth_message([near, far]: [Vec<LinkAttribute>; 2]) -> LinkMessage {
    let mut peer = LinkMessage::default();
    peer.attributes = far;
    let mut link = LinkMessage::default();
    link.attributes = near;
    link.attributes.push(LinkAttribute::LinkInfo(vec![
        LinkInfo::Kind(InfoKind::Veth),
        LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
    ]));
    link
}

/// Serializes a request for a veth pair in the sender's namespace.
pub fn veth_request() -> Vec<u8> {
    let link = veth_message([Vec::new(), Vec::new()]);
    request_bytes(RouteNetlinkMessage::NewLink(link), CREATE, 1)
}

fn address_message(interface: u32, network: Network) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.family = family(network.address);
    message.header.prefix_len = network.prefix;
    message.header.index = interface;
    message.header.flags = AddressHeaderFlags::Nodad;
    message.attributes = vec![
        AddressAttribute::Local(network.address),
        AddressAttribute::Address(network.address),
        AddressAttribute::Flags(AddressFlags::Nodad),
    ];
    message
}

fn route_message(route: &Route) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = family(route.to.address);
    message.header.destination_prefix_length = route.to.prefix;
    message.header.protocol = RouteProtocol::Static;
    (message.header.kind, message.header.scope) = match (route.local, route.via) {
        (true, _) => (RouteType::Local, RouteScope::Host),
        (false, None) => (RouteType::Unicast, RouteScope::Link),
        (false, Some(_)) => (RouteType::Unicast, RouteScope::Universe),
    };
    let destination = (route.to.prefix > 0).then_some(route.to.address);
    message.attributes = [
        destination.map(|address| RouteAttribute::Destination(address.into())),
        route.via.map(|via| RouteAttribute::Gateway(via.into())),
        route.source.map(|source| RouteAttribute::PrefSource(source.into())),
        Some(RouteAttribute::Oif(route.interface)),
        Some(RouteAttribute::Table(route.table)),
    ]
    .into_iter()
    .flatten()
    .collect();
    message
}

fn rule_message(rule: &Rule) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = if rule.ipv6 { AddressFamily::Inet6 } else { AddressFamily::Inet };
    message.header.src_len = rule.from.map_or(0, |from| from.prefix);
    message.header.action = RuleAction::ToTable;
    let protocol = |number: u8| RuleAttribute::IpProtocol(IpProtocol::from(i32::from(number)));
    message.attributes = [
        rule.from.map(|from| RuleAttribute::Source(from.address)),
        rule.incoming.clone().map(RuleAttribute::Iifname),
        rule.ip_protocol.map(protocol),
        rule.mark.map(RuleAttribute::FwMark),
        Some(RuleAttribute::Priority(rule.priority)),
        Some(RuleAttribute::Table(rule.table)),
    ]
    .into_iter()
    .flatten()
    .collect();
    message
}

/// A netlink socket that waits for each response.
pub(super) struct Connection {
    socket: Socket,
    sequence: u32,
}

impl Connection {
    /// Opens a socket in the namespace of the calling thread.
    pub(super) fn open(protocol: isize) -> io::Result<Self> {
        let socket = Socket::new(protocol)?;
        // Requests error messages in words, and no copy of the request.
        socket.set_ext_ack(true)?;
        socket.set_cap_ack(true)?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Sends one request and returns the kernel's response.
    pub(super) fn request<M>(&mut self, message: M, flags: u16) -> io::Result<Vec<M>>
    where
        M: NetlinkSerializable + NetlinkDeserializable + Debug,
        NetlinkPayload<M>: From<M>,
    {
        self.sequence += 1;
        let bytes = request_bytes(message, flags, self.sequence);
        self.socket.send_to(&bytes, &SocketAddr::new(0, 0), 0)?;
        let mut answers = Vec::new();
        loop {
            let (datagram, _) = self.socket.recv_from_full()?;
            let mut rest = datagram.as_slice();
            while let Ok(header) = NetlinkBuffer::new_checked(rest) {
                let length = header.length() as usize;
                let answer = NetlinkMessage::<M>::deserialize(rest).map_err(io::Error::other)?;
                if answer.header.sequence_number == self.sequence {
                    match answer.payload {
                        NetlinkPayload::InnerMessage(inner) => answers.push(inner),
                        NetlinkPayload::Done(_) => return Ok(answers),
                        NetlinkPayload::Error(error) if error.code.is_none() => return Ok(answers),
                        NetlinkPayload::Error(error) => return Err(refusal(&error)),
                        _ => {}
                    }
                }
                rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
            }
        }
    }
}

fn request_bytes<M>(message: M, flags: u16, sequence: u32) -> Vec<u8>
where
    M: NetlinkSerializable,
    NetlinkPayload<M>: From<M>,
{
    let mut request = NetlinkMessage::from(message);
    request.header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
    request.header.sequence_number = sequence;
    request.finalize();
    let mut bytes = vec![0; request.buffer_len()];
    request.serialize(&mut bytes);
    bytes
}

/// Converts the kernel's error, including its message if any.
fn refusal(message: &ErrorMessage) -> io::Error {
    let error = message.to_io();
    let attributes = message.header.get(HEADER..).unwrap_or_default();
    let words = NlasIterator::new(attributes).flatten().find_map(|attribute| {
        let text = (attribute.kind() == NLMSGERR_ATTR_MSG).then(|| attribute.value())?;
        Some(String::from_utf8_lossy(text).trim_end_matches('\0').to_owned())
    });
    match words {
        Some(words) => io::Error::new(error.kind(), format!("{words} ({error})")),
        None => error,
    }
}
