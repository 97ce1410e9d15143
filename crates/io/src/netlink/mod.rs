//! Network namespaces, and what the kernel says of their interfaces, addresses, routes, rules and MPTCP
//! endpoints over netlink.

mod mptcp;
mod namespace;
mod rtnetlink;

pub use mptcp::{Endpoint, EndpointFlags, Limits, PathManager};
pub use namespace::Namespace;
pub use rtnetlink::{LinkState, Netlink, Network, Route, Rule, VethEnd, veth_request};
