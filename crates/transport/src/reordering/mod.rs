//! Reordering: whether the receiver of an unreliable flow restores the order of datagrams, and how
//! long it waits for a missing one.
//!
//! An engine limits the time for which an early datagram is held back. The [`Reorderer`] holds it,
//! and gives up a missing datagram at that limit or as soon as its loss can be inferred.

use alloc::string::String;
use core::fmt::Debug;

use skybraid_units::Duration;

use crate::PathId;
use crate::registry::{About, InvalidParameter, algorithms};

pub mod adaptive;
mod buffer;
pub mod equalised;
pub mod fixed;
mod latency;
pub mod none;

pub use buffer::{Arrival, Reorderer, Rules};
pub use latency::{Estimate, Filter, Latencies, LatencyRules};

/// Limit of the time for which an early datagram is held back.
pub trait Engine: Debug + Send {
    /// Maximum wait of a datagram that has just arrived on `path`.
    fn max_wait(&self, path: PathId) -> Duration;

    /// Adds a sample of a path's one-way latency.
    fn on_latency(&mut self, path: PathId, latency: Duration) {
        let _ = (path, latency);
    }

    /// Kind of round-trip time that the peer must report for each path (MP_RTT of RFC 9897 §3.2.7),
    /// for an engine that needs latencies.
    fn wants_rtt(&self) -> Option<RttKind> {
        None
    }
}

/// Kind of round-trip time in MP_RTT (RFC 9897 §3.2.7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RttKind {
    /// Last sample.
    #[default]
    Raw,
    /// Lowest sample.
    Min,
    /// Highest sample.
    Max,
    /// Smoothed round-trip time.
    Smoothed,
}

algorithms! {
    /// A reordering engine and its parameters.
    EngineConfig, "reordering engine",
    fn build(self) (&self) -> Option<Reorderer> => (), {
        None => none,
        Fixed => fixed,
        Adaptive => adaptive,
        Equalised => equalised,
    }
}

/// Reordering of an unreliable flow: the name of an engine, a table with `name` and parameters, or
/// `{ fixed = "15ms" }` for the fixed engine with that timeout.
#[derive(Clone, Debug, PartialEq)]
pub struct ReorderingConfig(pub EngineConfig);

impl ReorderingConfig {
    /// Descriptions of all engines.
    pub const ALL: &'static [About] = EngineConfig::ALL;

    /// Returns the configuration without reordering: each datagram is delivered on arrival.
    pub const fn none() -> Self {
        Self(EngineConfig::None(none::Config {}))
    }

    /// Returns the configuration for delivery in order with a fixed maximum wait.
    pub fn fixed(timeout: Duration) -> Self {
        Self(EngineConfig::Fixed(fixed::Config { timeout, ..fixed::Config::default() }))
    }

    /// Checks the ranges of the parameters.
    ///
    /// # Errors
    /// Returns the first parameter that is outside its range.
    pub fn check(&self) -> Result<(), InvalidParameter> {
        self.0.check()
    }

    /// Builds a new instance; `None` without reordering.
    pub fn build(&self) -> Option<Reorderer> {
        self.0.build()
    }
}

impl Default for ReorderingConfig {
    fn default() -> Self {
        Self::none()
    }
}

impl<'de> serde::Deserialize<'de> for ReorderingConfig {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        use serde::Deserialize;
        use serde::de::value::MapAccessDeserializer;
        use serde::de::{Error, MapAccess, Visitor};

        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = ReorderingConfig;

            fn expecting(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(
                    "the name of a reordering engine, a table whose first key is `name`, or \
                     `{ fixed = \"15ms\" }`",
                )
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<ReorderingConfig, E> {
                // MP-DCCP's module `default` delivers on arrival.
                let name = if name == "default" { "none" } else { name };
                EngineConfig::by_name(name)
                    .map(ReorderingConfig)
                    .ok_or_else(|| E::unknown_variant(name, EngineConfig::NAMES))
            }

            fn visit_map<A: MapAccess<'de>>(
                self,
                mut map: A,
            ) -> Result<ReorderingConfig, A::Error> {
                let key: Option<String> = map.next_key()?;
                if key.as_deref() == Some("fixed") {
                    return map.next_value().map(ReorderingConfig::fixed);
                }
                if key.as_deref() != Some("name") {
                    return Err(A::Error::missing_field("name"));
                }
                let name: String = map.next_value()?;
                let rest = MapAccessDeserializer::new(map);
                match name.as_str() {
                    "none" | "default" => Deserialize::deserialize(rest).map(EngineConfig::None),
                    "fixed" => Deserialize::deserialize(rest).map(EngineConfig::Fixed),
                    "adaptive" => Deserialize::deserialize(rest).map(EngineConfig::Adaptive),
                    "equalised" => Deserialize::deserialize(rest).map(EngineConfig::Equalised),
                    _ => Err(A::Error::unknown_variant(&name, EngineConfig::NAMES)),
                }
                .map(ReorderingConfig)
            }
        }
        from.deserialize_any(Either)
    }
}
