//! Link model: rate, delay, queue, loss, HARQ, DRX, handover, stalls, reconfiguration and outages.
//!
//! [`Link::admit`] decides a packet's fate at admission: queue drop, DRX wake-up, serialisation at a varying
//! rate, handover and reconfiguration halts, loss, HARQ delay and propagation. Each effect draws from a random
//! stream of its own. Processes in time (handovers, outages, ON/OFF phases, traces) depend on time and seed
//! alone, never on the traffic, so that all schedulers of a comparison see the same link.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod access;
mod along;
mod config;
mod conflicts;
mod delay;
mod delay_line;
mod distribution;
mod drx;
mod handover;
mod harq;
mod link;
mod loss;
mod lutz;
mod outage;
mod population;
pub mod presets;
mod process;
mod quantiles;
mod queue;
mod randomness;
mod rarity;
mod rate;
mod reconfiguration;
mod sampler;
mod service;
mod shared_outage;
mod spans;
mod timeline;
pub mod trace;

pub use access::{Access, AccessConfig};
pub use along::{Along, AlongConfig, Factor, FactorTables, Moment};
pub use config::{ConfigError, Direction, DirectionConfig, LinkConfig, PathConfig, Switch};
pub use delay::{DelayConfig, DelaySource};
pub use distribution::{Component, Distribution, Mixture, Phase, Shape};
pub use drx::{Drx, DrxConfig, Radio};
pub use handover::{Handover, HandoverConfig};
pub use harq::{Harq, HarqConfig};
pub use link::{Cause, Conditions, Fate, Link, Release};
pub use loss::{GilbertElliott, LossConfig, LossSource, Losses, OnOff};
pub use lutz::{Environment, Extent, Lutz, LutzConfig};
pub use outage::{Change, ChangeConfig};
pub use population::{Draw, FlightConfig, Population, SpreadConfig};
pub use process::{Process, ProcessKeys, SharedSlow, loading_of_rank_correlation};
pub use quantiles::Quantiles;
pub use queue::{Codel, QueueConfig};
pub use rate::{RateConfig, RateSource};
pub use reconfiguration::{Reconfiguration, ReconfigurationConfig};
pub use shared_outage::{Always, SharedOutages, SharedOutagesConfig, Together};
pub use spans::{RandomSpans, RandomSpansConfig};
pub use trace::{
    Course, Opportunities, Replay, Sampling, Series, Start, TraceError, TraceFile, TraceFormat,
    TraceSource,
};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
