//! Client of the kernel's MPTCP path manager of one namespace, over the generic netlink family `mptcp_pm`.

use std::fmt::Debug;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_packet_core::{
    DecodeError, DefaultNla, Emitable, NLA_F_NESTED, NLM_F_DUMP, NlasIterator, Parseable,
    ParseableParametrized,
};
use netlink_packet_generic::ctrl::nlas::GenlCtrlAttrs;
use netlink_packet_generic::ctrl::{GenlCtrl, GenlCtrlCmd};
use netlink_packet_generic::{GenlFamily, GenlHeader, GenlMessage};
use netlink_sys::protocols::NETLINK_GENERIC;

use super::Namespace;
use super::rtnetlink::Connection;
use crate::context;

/// Names of linux/mptcp_pm.h.
mod uapi {
    pub const FAMILY: &str = "mptcp_pm";
    pub const VERSION: u8 = 1;

    pub const CMD_ADD_ADDR: u8 = 1;
    pub const CMD_DEL_ADDR: u8 = 2;
    pub const CMD_GET_ADDR: u8 = 3;
    pub const CMD_FLUSH_ADDRS: u8 = 4;
    pub const CMD_SET_LIMITS: u8 = 5;
    pub const CMD_GET_LIMITS: u8 = 6;

    pub const ATTR_ADDR: u16 = 1;
    pub const ATTR_RCV_ADD_ADDRS: u16 = 2;
    pub const ATTR_SUBFLOWS: u16 = 3;

    pub const ADDR_ATTR_FAMILY: u16 = 1;
    pub const ADDR_ATTR_ID: u16 = 2;
    pub const ADDR_ATTR_ADDR4: u16 = 3;
    pub const ADDR_ATTR_ADDR6: u16 = 4;
    pub const ADDR_ATTR_FLAGS: u16 = 6;
    pub const ADDR_ATTR_IF_IDX: u16 = 7;
}

/// A connection to the path manager of one namespace.
pub struct PathManager {
    connection: Connection,
    family: u16,
    namespace: String,
}

/// Limits of the subflows of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Additional subflows of a connection, 0 … 8.
    pub subflows: u32,
    /// Addresses announced by the peer that are accepted, 0 … 8.
    pub add_addr_accepted: u32,
}

/// Use of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndpointFlags {
    /// Announce the address to the peer.
    pub signal: bool,
    /// Open a subflow from the address to the peer's address.
    pub subflow: bool,
    /// Use its subflows only if the others fail.
    pub backup: bool,
    /// Open a subflow from the address to each of the peer's addresses.
    pub fullmesh: bool,
}

/// An address that the path manager may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// IP address.
    pub address: IpAddr,
    /// Index of the interface; 0 leaves the choice to routing.
    pub interface: u32,
    /// Uses of the endpoint.
    pub flags: EndpointFlags,
    /// Address ID in MPTCP options, 1 … 255; 0 leaves the choice to the kernel.
    pub id: u8,
}

impl EndpointFlags {
    /// Returns the bits of `MPTCP_PM_ADDR_FLAG_*`.
    fn bits(self) -> u32 {
        [self.signal, self.subflow, self.backup, self.fullmesh]
            .into_iter()
            .enumerate()
            .fold(0, |bits, (place, set)| bits | (u32::from(set) << place))
    }

    fn of_bits(bits: u32) -> Self {
        let [signal, subflow, backup, fullmesh] = [0, 1, 2, 3].map(|place| bits >> place & 1 == 1);
        Self { signal, subflow, backup, fullmesh }
    }
}

impl PathManager {
    /// Connects to the path manager of `namespace`.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if the kernel has no MPTCP.
    pub fn open(namespace: &Namespace) -> io::Result<Self> {
        Self::of_family(namespace, uapi::FAMILY)
    }

    /// Connects to the path manager of the calling thread's namespace.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if the kernel has no MPTCP.
    pub fn open_here() -> io::Result<Self> {
        let connection = Connection::open(NETLINK_GENERIC)?;
        Self::over(connection, "this machine", uapi::FAMILY)
    }

    fn of_family(namespace: &Namespace, name: &str) -> io::Result<Self> {
        let connection = namespace.run(|| Connection::open(NETLINK_GENERIC))??;
        Self::over(connection, namespace.name(), name)
    }

    fn over(mut connection: Connection, namespace: &str, name: &str) -> io::Result<Self> {
        let question = GenlCtrl {
            cmd: GenlCtrlCmd::GetFamily,
            nlas: vec![GenlCtrlAttrs::FamilyName(name.to_owned())],
        };
        let missing = "the kernel has no MPTCP path manager (CONFIG_MPTCP, Linux 5.6 or later)";
        let answers = connection
            .request(GenlMessage::from_payload(question), 0)
            .map_err(|error| context(missing, error))?;
        let family = answers.iter().flat_map(|answer| &answer.payload.nlas).find_map(|attribute| {
            match attribute {
                GenlCtrlAttrs::FamilyId(family) => Some(*family),
                _ => None,
            }
        });
        let family = family.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, missing))?;
        Ok(Self { connection, family, namespace: namespace.to_owned() })
    }

    /// Sets the limits of new connections.
    ///
    /// # Errors
    /// A limit is above 8, or permissions are missing.
    pub fn set_limits(&mut self, limits: Limits) -> io::Result<()> {
        let attributes = vec![
            u32_attribute(uapi::ATTR_RCV_ADD_ADDRS, limits.add_addr_accepted),
            u32_attribute(uapi::ATTR_SUBFLOWS, limits.subflows),
        ];
        let what = format!("cannot set MPTCP's limits to {limits:?}");
        self.request(uapi::CMD_SET_LIMITS, attributes, 0, &what)?;
        Ok(())
    }

    /// Returns the limits of new connections.
    ///
    /// # Errors
    /// The kernel does not respond.
    pub fn limits(&mut self) -> io::Result<Limits> {
        let answers =
            self.request(uapi::CMD_GET_LIMITS, Vec::new(), 0, "cannot read MPTCP's limits")?;
        let mut limits = Limits::default();
        for (kind, value) in answers.iter().flat_map(|answer| values(&answer.payload.attributes)) {
            match kind {
                uapi::ATTR_RCV_ADD_ADDRS => limits.add_addr_accepted = number(&value),
                uapi::ATTR_SUBFLOWS => limits.subflows = number(&value),
                _ => {}
            }
        }
        Ok(limits)
    }

    /// Adds an address for use by connections.
    ///
    /// # Errors
    /// The address already exists, its flags exclude each other, or permissions are missing.
    pub fn add(&mut self, endpoint: &Endpoint) -> io::Result<()> {
        let Endpoint { address, interface, flags, id } = *endpoint;
        let (family, kind, octets) = match address {
            IpAddr::V4(v4) => (libc::AF_INET, uapi::ADDR_ATTR_ADDR4, v4.octets().to_vec()),
            IpAddr::V6(v6) => (libc::AF_INET6, uapi::ADDR_ATTR_ADDR6, v6.octets().to_vec()),
        };
        let mut attributes = vec![
            DefaultNla::new(uapi::ADDR_ATTR_FAMILY, (family as u16).to_ne_bytes().to_vec()),
            DefaultNla::new(kind, octets),
            u32_attribute(uapi::ADDR_ATTR_FLAGS, flags.bits()),
        ];
        if id > 0 {
            attributes.push(DefaultNla::new(uapi::ADDR_ATTR_ID, vec![id]));
        }
        if interface > 0 {
            attributes.push(u32_attribute(uapi::ADDR_ATTR_IF_IDX, interface));
        }
        let nested = nest(uapi::ATTR_ADDR, &attributes);
        let what = format!("cannot add the MPTCP endpoint {address} ({flags:?})");
        self.request(uapi::CMD_ADD_ADDR, vec![nested], 0, &what)?;
        Ok(())
    }

    /// Removes an address.
    ///
    /// # Errors
    /// Permissions are missing, or the address no longer exists.
    pub fn remove(&mut self, address: IpAddr) -> io::Result<()> {
        let known = self.endpoints()?.into_iter().find(|endpoint| endpoint.address == address);
        let Some(Endpoint { id, .. }) = known else { return Ok(()) };
        let nested = nest(uapi::ATTR_ADDR, &[DefaultNla::new(uapi::ADDR_ATTR_ID, vec![id])]);
        let what = format!("cannot remove the MPTCP endpoint {address}");
        self.request(uapi::CMD_DEL_ADDR, vec![nested], 0, &what)?;
        Ok(())
    }

    /// Removes all addresses.
    ///
    /// # Errors
    /// Permissions are missing.
    pub fn flush(&mut self) -> io::Result<()> {
        self.request(uapi::CMD_FLUSH_ADDRS, Vec::new(), 0, "cannot flush MPTCP's endpoints")?;
        Ok(())
    }

    /// Returns the addresses that connections may use.
    ///
    /// # Errors
    /// The kernel does not respond.
    pub fn endpoints(&mut self) -> io::Result<Vec<Endpoint>> {
        let what = "cannot list MPTCP's endpoints";
        let answers = self.request(uapi::CMD_GET_ADDR, Vec::new(), NLM_F_DUMP, what)?;
        let listed = answers.iter().flat_map(|answer| values(&answer.payload.attributes));
        Ok(listed
            .filter(|(kind, _)| *kind == uapi::ATTR_ADDR)
            .filter_map(|(_, nested)| endpoint(&nested))
            .collect())
    }

    fn request(
        &mut self,
        command: u8,
        attributes: Vec<DefaultNla>,
        flags: u16,
        what: &str,
    ) -> io::Result<Vec<GenlMessage<Request>>> {
        let mut message = GenlMessage::from_payload(Request { command, attributes });
        message.set_resolved_family_id(self.family);
        self.connection
            .request(message, flags)
            .map_err(|error| context(format_args!("{what} in {}", self.namespace), error))
    }
}

/// A message of the netlink family.
#[derive(Clone, Debug)]
struct Request {
    command: u8,
    attributes: Vec<DefaultNla>,
}

impl GenlFamily for Request {
    fn family_name() -> &'static str {
        uapi::FAMILY
    }

    fn command(&self) -> u8 {
        self.command
    }

    fn version(&self) -> u8 {
        uapi::VERSION
    }
}

impl Emitable for Request {
    fn buffer_len(&self) -> usize {
        self.attributes.as_slice().buffer_len()
    }

    fn emit(&self, buffer: &mut [u8]) {
        self.attributes.as_slice().emit(buffer);
    }
}

impl ParseableParametrized<[u8], GenlHeader> for Request {
    fn parse_with_param(bytes: &[u8], header: GenlHeader) -> Result<Self, DecodeError> {
        let attributes = NlasIterator::new(bytes)
            .map(|attribute| DefaultNla::parse(&attribute?))
            .collect::<Result<_, _>>()?;
        Ok(Self { command: header.cmd, attributes })
    }
}

fn u32_attribute(kind: u16, value: u32) -> DefaultNla {
    DefaultNla::new(kind, value.to_ne_bytes().to_vec())
}

fn nest(kind: u16, attributes: &[DefaultNla]) -> DefaultNla {
    let mut bytes = vec![0; attributes.buffer_len()];
    attributes.emit(&mut bytes);
    DefaultNla::new(kind | NLA_F_NESTED, bytes)
}

/// Returns the types and values of attributes.
fn values(attributes: &[DefaultNla]) -> Vec<(u16, Vec<u8>)> {
    let mut bytes = vec![0; attributes.buffer_len()];
    attributes.emit(&mut bytes);
    unpack(&bytes)
}

fn unpack(bytes: &[u8]) -> Vec<(u16, Vec<u8>)> {
    let attributes = NlasIterator::new(bytes).flatten();
    attributes.map(|attribute| (attribute.kind(), attribute.value().to_vec())).collect()
}

fn number(value: &[u8]) -> u32 {
    value.try_into().map_or(0, u32::from_ne_bytes)
}

fn endpoint(nested: &[u8]) -> Option<Endpoint> {
    let unknown = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let flags = EndpointFlags::default();
    let mut endpoint = Endpoint { address: unknown, interface: 0, flags, id: 0 };
    for (kind, value) in unpack(nested) {
        match kind {
            uapi::ADDR_ATTR_ID => endpoint.id = value.first().copied()?,
            uapi::ADDR_ATTR_ADDR4 => {
                let octets: [u8; 4] = value.try_into().ok()?;
                endpoint.address = Ipv4Addr::from(octets).into();
            }
            uapi::ADDR_ATTR_ADDR6 => {
                let octets: [u8; 16] = value.try_into().ok()?;
                endpoint.address = Ipv6Addr::from(octets).into();
            }
            uapi::ADDR_ATTR_FLAGS => endpoint.flags = EndpointFlags::of_bits(number(&value)),
            uapi::ADDR_ATTR_IF_IDX => endpoint.interface = number(&value),
            _ => {}
        }
    }
    Some(endpoint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_netlink_family_differs_from_a_refusal() {
        let here = Namespace::current("here").unwrap();
        let missing = PathManager::of_family(&here, "none_such").map(|_| ()).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound, "{missing}");
    }
}
