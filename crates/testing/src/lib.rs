//! Configurations from TOML for the tests of the engine.
//!
//! What serde derives for a configuration is compiled in each crate that parses one, which took most of the time that
//! the tests' build spent on these crates. Here it is compiled once and without optimisation.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use skybraid_gateway::config::{ClassConfig, GatewayConfig};
use skybraid_link::{AlongConfig, LutzConfig, PathConfig};
use skybraid_traffic::TrafficConfig;
use skybraid_transport::TransportConfig;

/// A configuration that tests write as TOML.
pub trait Config: DeserializeOwned {
    /// Parses the keys of a table.
    ///
    /// # Errors
    ///
    /// Returns the parser's message, with the line and what was expected.
    fn parse(keys: &str) -> Result<Self, String>;
}

macro_rules! config {
    ($($config:ty),*) => {
        $(impl Config for $config {
            fn parse(keys: &str) -> Result<Self, String> {
                toml::from_str(keys).map_err(|error| error.to_string())
            }
        })*
    };
}

config!(
    AlongConfig,
    ClassConfig,
    GatewayConfig,
    LutzConfig,
    PathConfig,
    TrafficConfig,
    TransportConfig
);

/// Parses the paths of a scenario, by name; other keys are ignored.
///
/// # Errors
///
/// Returns the parser's message, with the line and what was expected.
pub fn paths_of(scenario: &str) -> Result<BTreeMap<String, PathConfig>, String> {
    #[derive(serde::Deserialize)]
    struct Paths {
        path: BTreeMap<String, PathConfig>,
    }
    toml::from_str::<Paths>(scenario).map(|paths| paths.path).map_err(|error| error.to_string())
}

/// Formats a path as the keys of a table.
///
/// # Errors
///
/// Returns the message of the serialiser.
pub fn print_path(path: &PathConfig) -> Result<String, String> {
    toml::to_string(path).map_err(|error| error.to_string())
}
