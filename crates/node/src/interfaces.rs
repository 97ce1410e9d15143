//! Network interfaces and addresses of the machine, as reported by the kernel, and their changes.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkBuffer, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

/// Multicast groups of linux/rtnetlink.h.
const LINKS_AND_ADDRESSES: u32 =
    (libc::RTMGRP_LINK | libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR) as u32;
/// Buffer size for a batch of messages; the kernel sends at most this much at once.
const READ_BUFFER: usize = 1 << 16;
/// Socket buffer for notifications, in bytes.
const BUFFER: libc::c_int = 1 << 20;

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// Name.
    pub name: String,
    /// The interface is up and has a carrier.
    pub up: bool,
    /// Addresses of the interface.
    pub addresses: BTreeSet<IpAddr>,
}

/// Network interfaces and their addresses.
pub struct Interfaces {
    socket: Socket,
    table: Table,
    room: Vec<u8>,
}

impl Interfaces {
    /// Requests all interfaces and their future changes, in the namespace of the calling thread.
    pub fn open() -> io::Result<Self> {
        let mut interfaces =
            Self { socket: listen()?, table: Table::default(), room: vec![0; READ_BUFFER] };
        interfaces.ask_again()?;
        Ok(interfaces)
    }

    /// Returns the interface of that name, with its index.
    pub fn by_name(&self, name: &str) -> Option<(u32, &Interface)> {
        let found = self.table.0.iter().find(|(_, interface)| interface.name == name);
        found.map(|(index, interface)| (*index, interface))
    }

    /// Returns the interface that has an address, with its index.
    pub fn by_address(&self, address: IpAddr) -> Option<(u32, &Interface)> {
        let found =
            self.table.0.iter().find(|(_, interface)| interface.addresses.contains(&address));
        found.map(|(index, interface)| (*index, interface))
    }

    /// Reads notifications; returns true if there were any.
    pub fn read(&mut self) -> bool {
        let mut news = false;
        loop {
            match self.take() {
                Ok(true) => news = true,
                Ok(false) => return news,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Notifications have been lost.
                Err(_) => return self.ask_again().is_ok() || news,
            }
        }
    }

    /// Reloads the table from scratch.
    fn ask_again(&mut self) -> io::Result<()> {
        let mut answers = Socket::new(NETLINK_ROUTE)?;
        answers.bind_auto()?;
        answers.connect(&SocketAddr::new(0, 0))?;
        self.table.0.clear();
        for question in [
            RouteNetlinkMessage::GetLink(LinkMessage::default()),
            RouteNetlinkMessage::GetAddress(AddressMessage::default()),
        ] {
            let mut request = NetlinkMessage::from(question);
            request.header.flags = NLM_F_REQUEST | NLM_F_DUMP;
            request.finalize();
            let mut bytes = vec![0; request.buffer_len()];
            request.serialize(&mut bytes);
            answers.send(&bytes, 0)?;
            loop {
                let (datagram, _) = answers.recv_from_full()?;
                if self.table.learn(&datagram) {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Reads one batch of notifications; returns false if there was none.
    fn take(&mut self) -> io::Result<bool> {
        let mut room = std::mem::take(&mut self.room);
        let taken = self.socket.recv(&mut room.as_mut_slice(), libc::MSG_DONTWAIT);
        let result = match taken {
            Ok(length) => {
                self.table.learn(room.get(..length).unwrap_or_default());
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        };
        self.room = room;
        result
    }
}

/// Interfaces by index, as reported in netlink messages.
#[derive(Debug, Default)]
pub(crate) struct Table(BTreeMap<u32, Interface>);

impl Table {
    /// Parses a batch of messages; returns true if it ends a dump.
    pub(crate) fn learn(&mut self, datagram: &[u8]) -> bool {
        let mut rest = datagram;
        while let Ok(header) = NetlinkBuffer::new_checked(rest) {
            let length = header.length() as usize;
            match NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest)
                .map(|message| message.payload)
            {
                Ok(NetlinkPayload::InnerMessage(message)) => self.apply(&message),
                Ok(NetlinkPayload::Done(_) | NetlinkPayload::Error(_)) => return true,
                _ => {}
            }
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
        false
    }

    fn apply(&mut self, message: &RouteNetlinkMessage) {
        match message {
            // Other families report their own use of a link: one that leaves a bridge is deleted there alone.
            RouteNetlinkMessage::NewLink(link) | RouteNetlinkMessage::DelLink(link)
                if link.header.interface_family != AddressFamily::Unspec => {}
            RouteNetlinkMessage::NewLink(link) => {
                let interface = self.0.entry(link.header.index).or_default();
                let flags = link.header.flags;
                interface.up = flags.contains(LinkFlags::Up | LinkFlags::Running);
                for attribute in &link.attributes {
                    if let LinkAttribute::IfName(name) = attribute {
                        interface.name.clone_from(name);
                    }
                }
            }
            RouteNetlinkMessage::DelLink(link) => {
                self.0.remove(&link.header.index);
            }
            RouteNetlinkMessage::NewAddress(address) => {
                let interface = self.0.entry(address.header.index).or_default();
                interface.addresses.extend(local_address(address));
            }
            RouteNetlinkMessage::DelAddress(address) => {
                let interface = self.0.get_mut(&address.header.index);
                if let (Some(interface), Some(gone)) = (interface, local_address(address)) {
                    interface.addresses.remove(&gone);
                }
            }
            _ => {}
        }
    }
}

impl AsFd for Interfaces {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn listen() -> io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.set_non_blocking(true)?;
    socket.set_rx_buf_sz(BUFFER).ok();
    socket.bind(&SocketAddr::new(0, LINKS_AND_ADDRESSES))?;
    Ok(socket)
}

/// Returns the local address of a point-to-point link.
fn local_address(message: &AddressMessage) -> Option<IpAddr> {
    let mut found = None;
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(address) => return Some(*address),
            AddressAttribute::Address(address) => found = Some(*address),
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use skybraid_io::netlink::{Namespace, Network, VethEnd};

    #[test]
    fn an_interface_that_leaves_a_bridge_is_still_there() {
        let link = |family| {
            let mut link = LinkMessage::default();
            link.header.interface_family = family;
            link.header.index = 3;
            link
        };
        let mut table = Table::default();
        table.apply(&RouteNetlinkMessage::NewLink(link(AddressFamily::Unspec)));
        table.apply(&RouteNetlinkMessage::DelLink(link(AddressFamily::Bridge)));
        assert!(table.0.contains_key(&3));
        table.apply(&RouteNetlinkMessage::DelLink(link(AddressFamily::Unspec)));
        assert!(table.0.is_empty());
    }

    #[test]
    fn changes_of_interfaces_and_addresses_are_heard() {
        let (Ok(here), Ok(there)) = (Namespace::create("here"), Namespace::create("there")) else {
            println!("skipped: this takes root or a user namespace");
            return;
        };
        let mut interfaces = here.run(Interfaces::open).unwrap().unwrap();
        assert!(interfaces.by_name("lo").unwrap().1.up);
        assert_eq!(interfaces.by_name("lte"), None);
        let mut netlink = here.netlink().unwrap();
        let add = |netlink: &mut skybraid_io::netlink::Netlink| {
            let end = |namespace, name| VethEnd { namespace, name };
            netlink.add_veth([end(&here, "lte"), end(&there, "far")], 1500).unwrap();
            let index = netlink.link("lte").unwrap().index;
            netlink.set_up(index).unwrap();
            let mut far = there.netlink().unwrap();
            let far_index = far.link("far").unwrap().index;
            far.set_up(far_index).unwrap();
            index
        };
        let index = add(&mut netlink);
        let address: IpAddr = [10, 3, 0, 1].into();
        netlink.add_address(index, Network { address, prefix: 24 }).unwrap();
        let seen = |interfaces: &mut Interfaces, holds: &dyn Fn(&Interfaces) -> bool| {
            let mut looks = 0;
            while !holds(interfaces) {
                std::thread::sleep(std::time::Duration::from_millis(5));
                interfaces.read();
                looks += 1;
                assert!(looks < 400, "{:?}", interfaces.table);
            }
        };
        seen(&mut interfaces, &|interfaces| {
            interfaces.by_address(address).is_some_and(|(_, lte)| lte.up)
        });
        netlink.delete_address(index, Network { address, prefix: 24 }).unwrap();
        seen(&mut interfaces, &|interfaces| interfaces.by_address(address).is_none());
        netlink.delete_link(index).unwrap();
        seen(&mut interfaces, &|interfaces| interfaces.by_name("lte").is_none());
        let again = add(&mut netlink);
        seen(&mut interfaces, &|interfaces| {
            interfaces.by_name("lte").is_some_and(|(now, lte)| now == again && lte.up)
        });
        // Lost state is requested again.
        interfaces.table.0.clear();
        here.run(|| interfaces.ask_again()).unwrap().unwrap();
        assert_eq!(interfaces.by_name("lte").map(|(now, _)| now), Some(again));
    }
}
