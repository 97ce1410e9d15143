//! The scenario file: parse, check, compose.
//!
//! A scenario is a TOML text that names paths, flows and events. [`Scenario::load`] reads it with the
//! trace files that it names, fills in presets, and answers with links, traffic and transports that
//! are ready to run; or with a [`ScenarioError`] that says file, line, key, found and expected.
//!
//! The parser is strict: an unknown key is an error that suggests the right one, and a number without
//! its unit is refused.
#![forbid(unsafe_code)]

mod checks;
mod compose;
mod congestion;
mod connections;
mod error;
mod file;
mod flight;
mod flows;
mod gateway;
mod inputs;
mod key;
mod misplaced;
mod network;
mod orbit;
mod randomness;
mod routing;
mod scenario;
mod setup;
mod shared_outages;
mod source_line;
mod testbed;
mod text;
mod wording;

pub use compose::load_path;
pub use congestion::load_congestion;
pub use error::ScenarioError;
pub use flight::Cells;
pub use gateway::{GatewayFile, read_private_key};
pub use inputs::Input;
pub use network::{Ecmp, Link, Metric, Node, NodeKind, Routing, StaticRoute};
pub use orbit::{Orbit, load_orbit};
pub use scenario::{Flow, Requirement, Scenario, SplitAt};
pub use setup::SubflowRoute;
pub use shared_outages::OutageGroup;
pub use skybraid_host::{AddressChange, Host, Route};
pub use source_line::SourceLine;
pub use testbed::{KernelCongestion, Proxies, Proxy, Server, Surroundings, Testbed};
pub use wording::unknown as unknown_name;
