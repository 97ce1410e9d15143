//! `[testbed]`: the network between the hosts and their paths in the emulator.
//!
//! Source: Chavali 2022, figures 4.9 and 4.10 (a single-homed server behind a gateway, ground delays,
//! proxies on both sides of the satellite).

use serde::Deserialize;
use skybraid_units::{Duration, named};

named! {
    /// Congestion control of the kernel, for a proxy.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum KernelCongestion {
        /// New Reno.
        Reno = "reno",
        /// CUBIC.
        #[default]
        Cubic = "cubic",
        /// BBR.
        Bbr = "bbr",
    }
}

/// A proxy on a path that splits TCP connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Proxy {
    /// Congestion control of both connections at the proxy.
    pub congestion: KernelCongestion,
}

/// Proxies of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Proxies {
    /// Proxy between the vehicle and the path.
    pub vehicle: Option<Proxy>,
    /// Proxy between the path and the ground.
    pub ground: Option<Proxy>,
}

/// Network on both sides of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Surroundings {
    /// One-way delay between the vehicle and the path, the same in both directions.
    pub vehicle_delay: Duration,
    /// One-way delay between the path and the ground, the same in both directions.
    pub ground_delay: Duration,
    /// Proxies that split connections.
    pub proxy: Proxies,
}

/// A host with a single address, reached through the gateway at which the paths end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Server {
    /// One-way delay between gateway and server, the same in both directions.
    pub delay: Duration,
}

/// Network between the hosts and their paths; emulator only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Testbed {
    /// Separate server for the programs of the ground station.
    pub server: Option<Server>,
    /// Surroundings of each path of the scenario.
    pub paths: Vec<Surroundings>,
}

impl Testbed {
    /// Returns whether the hosts are directly at the ends of their paths.
    pub fn is_plain(&self) -> bool {
        self.server.is_none() && self.paths.iter().all(|path| *path == Surroundings::default())
    }
}
