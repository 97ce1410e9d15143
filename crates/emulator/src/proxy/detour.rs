//! Routes that divert packets crossing a node to the node's own sockets.

use std::io;

use super::{Namespace, Network, Route, Rule};
use crate::testbed::has_ipv6;

/// Routing table in which every address is local to the node.
const TABLE: u32 = 200;
/// Priority after the table of the node's real addresses (0), and before all others.
const PRIORITY: u32 = 200;
const TCP: u8 = 6;

/// Rules and routes that divert TCP to a proxy.
pub(super) struct Detour {
    routes: Vec<Route>,
    rules: Vec<Rule>,
}

impl Detour {
    /// Creates a detour for all TCP received on the given interfaces.
    pub fn of(loopback: u32, interfaces: &[String]) -> Self {
        let kinds = [false, true].into_iter().filter(|ipv6| !ipv6 || has_ipv6());
        let mut detour = Self { routes: Vec::new(), rules: Vec::new() };
        for ipv6 in kinds {
            let to = if ipv6 { Network::ALL_V6 } else { Network::ALL_V4 };
            detour.routes.push(Route {
                to,
                via: None,
                interface: loopback,
                source: None,
                table: TABLE,
                local: true,
            });
            detour.rules.extend(interfaces.iter().map(|interface| Rule {
                ipv6,
                from: None,
                incoming: Some(interface.clone()),
                ip_protocol: Some(TCP),
                mark: None,
                priority: PRIORITY,
                table: TABLE,
            }));
        }
        detour
    }

    /// Installs the rules and routes; on failure, removes those already installed.
    pub fn set_up(&self, node: &Namespace) -> io::Result<()> {
        let mut netlink = node.netlink()?;
        let done = self.routes.iter().try_for_each(|route| netlink.add_route(route));
        let done =
            done.and_then(|()| self.rules.iter().try_for_each(|rule| netlink.add_rule(rule)));
        done.inspect_err(|_| {
            self.take_down(node).ok();
        })
    }

    /// Removes the rules and routes, so that the node is a plain router again.
    pub fn take_down(&self, node: &Namespace) -> io::Result<()> {
        let mut netlink = node.netlink()?;
        let rules = self.rules.iter().map(|rule| netlink.delete_rule(rule)).collect::<Vec<_>>();
        let routes = self.routes.iter().map(|route| netlink.delete_route(route));
        rules.into_iter().chain(routes.collect::<Vec<_>>()).collect()
    }
}
