//! Scenario files: parsing, validation and composition.
//!
//! A scenario is a TOML text that names paths, flows and events. [`Scenario::load`] reads the scenario and the
//! trace files it names, fills in presets, and returns links, traffic and transports that are ready to run, or a
//! [`ScenarioError`] with file, line, key, and the values found and expected.
//!
//! The parser is strict: an unknown key is an error that suggests the right one, and a number without a unit is
//! rejected.
#![forbid(unsafe_code)]

mod along;
mod cells;
mod checks;
mod composer;
mod congestion;
mod connections;
mod correlation;
mod coverage;
mod error;
mod file;
mod flows;
mod gateway;
mod inputs;
mod key;
mod key_hints;
mod members;
mod network;
mod orbit;
mod preset;
mod probes;
mod profiles;
mod randomness;
mod requirements;
mod router;
mod scenario;
pub mod schema;
mod setup;
mod shared_outages;
mod source_line;
mod testbed;
mod text;
mod wording;

pub use cells::Cells;
pub use composer::load_path;
pub use congestion::load_congestion;
pub use correlation::Correlation;
pub use error::ScenarioError;
pub use gateway::{GatewayFile, read_private_key};
pub use inputs::Input;
pub use network::{Ecmp, Link, Metric, Node, NodeKind, Routing, StaticRoute};
pub use orbit::{Orbit, load_orbit};
pub use profiles::{ProfileNumber, RequirementProfile, requirement_profiles};
pub use scenario::{Flow, LinkPerformance, Requirement, Scenario, SplitAt};
pub use setup::SubflowRoute;
pub use shared_outages::OutageGroup;
pub use skybraid_host::{AddressChange, Host, Route};
pub use source_line::SourceLine;
pub use testbed::{KernelCongestion, Proxies, Proxy, Server, Surroundings, Testbed};
pub use wording::unknown as unknown_name;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
