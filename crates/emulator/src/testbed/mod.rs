//! Network namespaces with vehicle, ground and what lies between them, made from nothing and gone
//! with the process that holds them.
//!
//! A [`Plan`] says which paths there are; [`Layout`] is the plan worked out: nodes, wires, addresses,
//! routes; [`Testbed`] is the real thing. Its segments end in the namespace `emulator`, where a
//! forwarder carries frames from one end to the other.

mod blocks;
mod layout;
mod offload;
mod sysctl;
mod topology;

pub use layout::{End, Layout, Node, NodePlan, Port, RoutePlan, Segment, Testbed, Wire};
pub(crate) use offload::has_carrier;
pub use offload::switch_offloads_off;
pub(crate) use sysctl::has_ipv6;
pub use sysctl::{get_sysctl, set_sysctl};
pub use topology::{Addresses, Path, Plan};
