//! Intervals for shares and means of what fails in episodes.
//!
//! Losses and lateness come in episodes: an outage of a second takes a thousand messages with it, and these say as much
//! as one event. So what counts as independent is a block of the run, as long as the data's own dependence asks for, or
//! a whole run where there are several. More in `docs/statistics.md`.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod batch_means;
pub mod clustering;
mod distribution;
mod exposure;
mod run_share;
mod share_interval;

pub use batch_means::mean_over_time;
pub use clustering::Clustering;
pub use distribution::{gamma_quantile, normal_cdf, normal_quantile, student_quantile};
pub use exposure::{Exposure, FLIGHTS, Family, ProbeDelays};
pub use run_share::RunShare;
pub use share_interval::{FEW, RUNS, ShareInterval, UNSEEN_S, Unit, factor_needed, share_interval};

/// Confidence of every interval that Skybraid prints.
pub const CONFIDENCE: f64 = 0.95;

/// Closed interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// Verdict of an interval on a requirement.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// The whole interval reaches the target.
    Met,
    /// All of it stays below the target.
    NotMet,
    /// The target lies inside.
    Inconclusive,
}

impl Verdict {
    /// Returns what an interval says of a target of which more is better.
    pub fn of(interval: Interval, target: f64) -> Self {
        if interval.low >= target {
            Self::Met
        } else if interval.high < target {
            Self::NotMet
        } else {
            Self::Inconclusive
        }
    }

    /// Returns the word that a page shows.
    pub fn name(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::NotMet => "not met",
            Self::Inconclusive => "inconclusive",
        }
    }
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
