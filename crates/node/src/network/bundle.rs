//! Additional MPTCP endpoints of the aircraft, so that one connection uses all interfaces.

use std::io;
use std::net::IpAddr;

use crate::tools::Tools;
use skybraid_io::netlink::{Endpoint, EndpointFlags, Limits, PathManager};

/// Maximum additional subflows that the kernel permits.
const MAX_SUBFLOWS: u32 = 8;
/// Name of its alarms.
const KEY: &str = "mptcp";

/// Endpoints that this gateway has added to the machine.
#[derive(Default)]
pub struct Endpoints {
    added: Vec<(IpAddr, u32)>,
    ready: bool,
}

impl Endpoints {
    /// Enables further subflows of connections: from these addresses and interface indices or, on the
    /// listening side, to these addresses. Without the required capability, the connection uses the machine's
    /// settings; that is reported once.
    pub fn prepare(&mut self, addresses: &[(IpAddr, u32)], called: bool, tools: &mut Tools) {
        if let Err(error) = self.set(addresses, called) {
            let text = format!(
                "data use one path only, unless the machine's MPTCP endpoints are set up \
                 (`ip mptcp endpoint`): {error}; that takes root or the right CAP_NET_ADMIN"
            );
            tools.alarms.raise(KEY, text);
        }
    }

    fn set(&mut self, addresses: &[(IpAddr, u32)], called: bool) -> io::Result<()> {
        if self.ready && addresses.iter().all(|address| self.added.contains(address)) {
            return Ok(());
        }
        let mut manager = PathManager::open_here()?;
        let limits = manager.limits()?;
        let wanted = Limits {
            subflows: limits.subflows.max(MAX_SUBFLOWS),
            add_addr_accepted: limits.add_addr_accepted.max(MAX_SUBFLOWS),
        };
        if wanted != limits {
            manager.set_limits(wanted)?;
        }
        // An interface that came back has another index: its endpoint is made again.
        let is_stale = |(known, index): &(IpAddr, u32)| {
            addresses.iter().any(|(address, now)| address == known && now != index)
        };
        for (address, _) in self.added.extract_if(.., |known| is_stale(known)) {
            manager.remove(address).ok();
        }
        let there = manager.endpoints()?;
        for (address, interface) in addresses.iter().copied() {
            if there.iter().any(|endpoint| endpoint.address == address) {
                continue;
            }
            let flags =
                EndpointFlags { signal: called, subflow: !called, ..EndpointFlags::default() };
            manager.add(&Endpoint { address, interface, flags, id: 0 })?;
            self.added.push((address, interface));
        }
        self.ready = true;
        Ok(())
    }

    /// Removes the added endpoints.
    pub fn remove(&mut self) {
        if self.added.is_empty() {
            return;
        }
        if let Ok(mut manager) = PathManager::open_here() {
            for (address, _) in self.added.drain(..) {
                manager.remove(address).ok();
            }
        }
    }
}
