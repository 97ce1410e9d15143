//! What a network path does to a packet.
//!
//! [`Link::admit`] decides a packet's whole fate at the moment it enters: queue drop, DRX wake-up,
//! serialisation at a varying rate, handover and reconfiguration halts, loss, HARQ delay and
//! propagation. Every effect draws from a random stream of its own name, and every process that runs
//! in time (handovers, outages, ON/OFF phases, traces) depends on time and seed alone, never on the
//! traffic, so that all schedulers of a comparison meet the very same link.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod config;
mod delay;
mod distribution;
mod drx;
mod form;
mod handover;
mod harq;
mod link;
mod loss;
mod lutz;
mod outage;
pub mod presets;
mod queue;
mod randomness;
mod rate;
mod reconfiguration;
mod service;
mod shared_outage;
pub mod trace;

pub use config::{ConfigError, Direction, DirectionConfig, LinkConfig, PathConfig, Switch};
pub use delay::{DelayConfig, DelaySource};
pub use distribution::{Component, Distribution, Mixture, Shape};
pub use drx::{Drx, DrxConfig, Radio};
pub use handover::{Handover, HandoverConfig};
pub use harq::{Harq, HarqConfig};
pub use link::{Cause, Conditions, Fate, Link};
pub use loss::{GilbertElliott, LossConfig, LossSource, Losses, OnOff};
pub use lutz::{Environment, Extent, Lutz, LutzConfig};
pub use outage::{Change, ChangeConfig};
pub use queue::{Codel, QueueConfig};
pub use rate::{RateConfig, RateSource};
pub use reconfiguration::{Reconfiguration, ReconfigurationConfig};
pub use shared_outage::{SharedOutages, SharedOutagesConfig};
pub use trace::{
    Course, Opportunities, Replay, Sampling, Series, Start, TraceError, TraceFile, TraceFormat,
    TraceSource,
};
