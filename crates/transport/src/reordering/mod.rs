//! Reordering: does the receiver of an unreliable flow put datagrams back in order, and how long
//! does it wait for a missing one?
//!
//! An engine says how long a datagram that came early may be held back; the [`Reorderer`] holds it,
//! and gives up a missing datagram by that time or as soon as its loss can be inferred.

use alloc::string::String;
use core::fmt::Debug;

use skybraid_units::Duration;

use crate::PathId;
use crate::registry::{About, Wrong, algorithms};

pub mod adaptive;
mod buffer;
pub mod equalised;
pub mod fixed;
mod latency;
pub mod none;

pub use buffer::{Arrival, Reorderer, Rules};
pub use latency::{Estimate, Filter, Latencies, LatencyRules};

/// How long a datagram that came early may be held back.
pub trait Engine: Debug + Send {
    /// The longest wait of a datagram that has just arrived on `path`.
    fn limit(&self, path: PathId) -> Duration;

    /// A path's one-way latency was measured.
    fn learn(&mut self, path: PathId, latency: Duration) {
        let _ = (path, latency);
    }

    /// Which round-trip time the peer should tell of each path (MP_RTT of RFC 9897 §3.2.7), for an
    /// engine that needs latencies.
    fn wants_rtt(&self) -> Option<RttKind> {
        None
    }
}

/// Which round-trip time MP_RTT tells (RFC 9897 §3.2.7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RttKind {
    /// The last sample.
    #[default]
    Raw,
    /// The lowest sample.
    Min,
    /// The highest sample.
    Max,
    /// The smoothed time.
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

/// How an unreliable flow is put back in order: the name of an engine, a table with `name` and
/// parameters, or `{ fixed = "15ms" }` for the fixed engine with that timeout.
#[derive(Clone, Debug, PartialEq)]
pub struct ReorderingConfig(pub EngineConfig);

impl ReorderingConfig {
    /// What there is to choose from.
    pub const ALL: &'static [About] = EngineConfig::ALL;

    /// Each datagram is handed over as it arrives.
    pub const fn none() -> Self {
        Self(EngineConfig::None(none::Config {}))
    }

    /// Datagrams are handed over in order; a missing one is waited for at most this long.
    pub fn fixed(timeout: Duration) -> Self {
        Self(EngineConfig::Fixed(fixed::Config { timeout, ..fixed::Config::default() }))
    }

    /// Checks the ranges of the parameters.
    ///
    /// # Errors
    /// The first parameter that is out of its range.
    pub fn check(&self) -> Result<(), Wrong> {
        self.0.check()
    }

    /// Makes a fresh instance; `None` where order is not restored.
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
                // The module that MP-DCCP calls `default` hands over at once.
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
