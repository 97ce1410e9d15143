//! `[testbed]`: what stands between the hosts and their paths, in the emulator.
//!
//! Source: Chavali 2022, figures 4.9 and 4.10 (a single-homed server behind a gateway, ground delays,
//! proxies on both sides of the satellite).

use serde::Deserialize;
use skybraid_units::Duration;

/// A congestion control of the kernel, for a proxy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KernelCongestion {
    /// New Reno.
    Reno,
    /// CUBIC.
    #[default]
    Cubic,
    /// BBR.
    Bbr,
}

impl KernelCongestion {
    /// The kernel's name for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reno => "reno",
            Self::Cubic => "cubic",
            Self::Bbr => "bbr",
        }
    }
}

/// A node on a path that splits the TCP connections that cross it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Proxy {
    /// Of both connections at the proxy.
    pub congestion: KernelCongestion,
}

/// The proxies of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Proxies {
    /// Between the vehicle and the path.
    pub vehicle: Option<Proxy>,
    /// Between the path and the ground.
    pub ground: Option<Proxy>,
}

/// What stands on both sides of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Surroundings {
    /// One-way delay between the vehicle and the path, the same in both directions.
    pub vehicle_delay: Duration,
    /// One-way delay between the path and the ground, the same in both directions.
    pub ground_delay: Duration,
    /// Where connections are split.
    pub proxy: Proxies,
}

/// A host with one address behind the gateway at which the paths end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Server {
    /// One-way delay between gateway and server, the same in both directions.
    pub delay: Duration,
}

/// What stands between the hosts and their paths. Only the emulator reads it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Testbed {
    /// The ground's programs run on a server of its own.
    pub server: Option<Server>,
    /// For each path of the scenario what surrounds it.
    pub paths: Vec<Surroundings>,
}

impl Testbed {
    /// There is nothing: the hosts stand at the ends of their paths.
    pub fn is_plain(&self) -> bool {
        self.server.is_none() && self.paths.iter().all(|it| *it == Surroundings::default())
    }
}
