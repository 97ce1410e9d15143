//! Network namespaces with vehicle, ground and everything in between, created from scratch and removed with
//! the process that holds them.
//!
//! A [`Plan`] contains the paths; [`Layout`] is the complete plan: nodes, wires, addresses, routes;
//! [`Testbed`] is its instance in the kernel. The segments end in the namespace `emulator`, where a forwarder
//! moves frames from one end to the other.

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
