//! Each datagram is handed over as it arrives.

use super::Reorderer;
use crate::registry::{About, Check};

/// See [`Config`].
pub const ABOUT: About = About {
    name: "none",
    summary: "Each datagram is handed over as it arrives. Also called `default`, as MP-DCCP does.",
    source: "RFC 9897, which leaves reordering to the receiver",
    linux: "",
    parameters: &[],
};

/// No parameters.
#[derive(Clone, Debug, Default, PartialEq, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {}

impl Check for Config {}

impl Config {
    /// Nothing.
    pub fn build(&self) -> Option<Reorderer> {
        None
    }
}
