//! The aircraft's other addresses as MPTCP endpoints, so that one connection uses all interfaces.

use std::io;
use std::net::IpAddr;

use crate::tools::Tools;
use skybraid_io::netlink::{Endpoint, EndpointFlags, Limits, PathManager};

/// Most subflows that the kernel allows next to the first.
const MOST: u32 = 8;
/// Name of its alarms.
const KEY: &str = "mptcp";

/// Endpoints that this gateway has added to the machine's.
#[derive(Default)]
pub struct Endpoints {
    added: Vec<IpAddr>,
    ready: bool,
}

impl Endpoints {
    /// Lets connections have further subflows: from these addresses and numbers of interfaces or, of who
    /// is called, to these addresses. Without the right to say so the connection uses what the machine is
    /// set up for; that is said once.
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
        if self.ready && addresses.iter().all(|(address, _)| self.added.contains(address)) {
            return Ok(());
        }
        let mut manager = PathManager::here()?;
        let limits = manager.limits()?;
        let wanted = Limits {
            subflows: limits.subflows.max(MOST),
            add_addr_accepted: limits.add_addr_accepted.max(MOST),
        };
        if wanted != limits {
            manager.set_limits(wanted)?;
        }
        let there = manager.endpoints()?;
        for (address, interface) in addresses.iter().copied() {
            if there.iter().any(|endpoint| endpoint.address == address) {
                continue;
            }
            let flags =
                EndpointFlags { signal: called, subflow: !called, ..EndpointFlags::default() };
            manager.add(&Endpoint { address, interface, flags, id: 0 })?;
            self.added.push(address);
        }
        self.ready = true;
        Ok(())
    }

    /// Takes them back.
    pub fn remove(&mut self) {
        if self.added.is_empty() {
            return;
        }
        if let Ok(mut manager) = PathManager::here() {
            for address in self.added.drain(..) {
                manager.remove(address).ok();
            }
        }
    }
}
