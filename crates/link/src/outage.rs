//! What a script does to a link: outages, and changes of rate, delay or loss at given instants.

use alloc::string::String;
use alloc::vec::Vec;

use skybraid_units::{Duration, Instant};

use crate::delay::{DelayConfig, DelaySource};
use crate::loss::{LossSource, Losses};
use crate::rate::{RateConfig, RateSource};

/// A change that a configuration scripts; it holds until the next of its kind. Traces and steps in it
/// run on the time of the run, not from the change on.
#[derive(Clone, Debug, PartialEq)]
pub enum ChangeConfig {
    /// Another rate.
    Rate(RateConfig),
    /// Another delay.
    Delay(DelayConfig),
    /// Other losses in place of all earlier ones.
    Loss(Losses),
}

/// A scripted change, complete and checked.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Another rate.
    Rate(RateSource),
    /// Another delay.
    Delay(DelaySource),
    /// Other losses.
    Loss(Vec<LossSource>),
}

impl ChangeConfig {
    pub(crate) fn resolve(&self) -> Result<Change, (&'static str, String)> {
        match self {
            Self::Rate(rate) => rate.resolve().map(Change::Rate).map_err(|it| ("rate", it)),
            Self::Delay(delay) => delay.resolve().map(Change::Delay).map_err(|it| ("delay", it)),
            Self::Loss(Losses(losses)) => {
                let all: Result<Vec<_>, _> = losses.iter().map(|loss| loss.resolve()).collect();
                all.map(Change::Loss).map_err(|it| ("loss", it))
            }
        }
    }
}

/// Something that is replaced at given instants. Instants asked for must not decrease.
#[derive(Clone, Debug)]
pub(crate) struct Schedule<T> {
    current: T,
    until: Instant,
    /// The latest first.
    later: Vec<(Instant, T)>,
}

impl<T> Schedule<T> {
    /// `first` holds from the start; each of `changes` from its instant on.
    pub fn new(first: T, mut changes: Vec<(Instant, T)>) -> Self {
        changes.sort_by_key(|(from, _)| *from);
        changes.reverse();
        let mut schedule = Self { current: first, until: Instant::FAR_FUTURE, later: changes };
        schedule.until = schedule.next_change();
        schedule
    }

    fn next_change(&self) -> Instant {
        self.later.last().map_or(Instant::FAR_FUTURE, |(from, _)| *from)
    }

    /// What holds now and all that comes later.
    pub fn all(&self) -> impl Iterator<Item = &T> {
        core::iter::once(&self.current).chain(self.later.iter().map(|(_, later)| later))
    }

    /// What holds at `at`, and until when.
    pub fn at(&mut self, at: Instant) -> (&mut T, Instant) {
        while at >= self.until {
            let Some((_, next)) = self.later.pop() else { break };
            self.current = next;
            self.until = self.next_change();
        }
        (&mut self.current, self.until)
    }
}

/// Scripted outages. Instants asked for must not decrease.
#[derive(Clone, Debug)]
pub(crate) struct Outages {
    /// Start and end, in order, apart from one another; the latest first.
    spans: Vec<(Instant, Instant)>,
}

/// Start and end of `spans` in order, with those that touch or overlap made one and empty ones left
/// out.
pub(crate) fn merged(spans: &[(Instant, Duration)]) -> Vec<(Instant, Instant)> {
    let mut sorted: Vec<(Instant, Instant)> = spans
        .iter()
        .filter(|(_, length)| length.is_positive())
        .map(|(start, length)| (*start, *start + *length))
        .collect();
    sorted.sort();
    let mut merged: Vec<(Instant, Instant)> = Vec::new();
    for (start, end) in sorted {
        match merged.last_mut() {
            Some((_, last)) if start <= *last => *last = end.max(*last),
            _ => merged.push((start, end)),
        }
    }
    merged
}

impl Outages {
    pub fn new(down: &[(Instant, Duration)]) -> Self {
        let mut spans = merged(down);
        spans.reverse();
        Self { spans }
    }

    /// When the outage that lasts at `at`, or else the next one, began or begins.
    pub fn next_start(&mut self, at: Instant) -> Instant {
        while let Some((start, end)) = self.spans.last() {
            if at < *end {
                return *start;
            }
            self.spans.pop();
        }
        Instant::FAR_FUTURE
    }
}
