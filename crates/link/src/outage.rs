//! Outages, scripted and random, and scripted changes of rate, delay or loss.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use skybraid_units::{Duration, Instant};

use crate::delay::{DelayConfig, DelaySource};
use crate::loss::{LossSource, Losses};
use crate::rate::{RateConfig, RateSource};
use crate::timeline::Timeline;

/// Scripted change in a configuration; it holds until the next change of its kind. Its traces and steps are in the
/// time of the run, not relative to the change.
#[derive(Clone, Debug, PartialEq)]
pub enum ChangeConfig {
    /// New rate.
    Rate(RateConfig),
    /// New delay.
    Delay(DelayConfig),
    /// New losses, which replace all earlier ones.
    Loss(Losses),
}

/// Scripted change, checked.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// New rate.
    Rate(RateSource),
    /// New delay.
    Delay(DelaySource),
    /// New losses.
    Loss(Vec<LossSource>),
}

impl ChangeConfig {
    pub(crate) fn resolve(&self) -> Result<Change, (&'static str, String)> {
        match self {
            Self::Rate(rate) => {
                rate.resolve().map(Change::Rate).map_err(|problem| ("rate", problem))
            }
            Self::Delay(delay) => {
                delay.resolve().map(Change::Delay).map_err(|problem| ("delay", problem))
            }
            Self::Loss(Losses(losses)) => {
                let all: Result<Vec<_>, _> = losses.iter().map(|loss| loss.resolve()).collect();
                all.map(Change::Loss).map_err(|problem| ("loss", problem))
            }
        }
    }
}

/// A value that is replaced at given instants. Queries must be in order of time.
#[derive(Clone, Debug)]
pub(crate) struct Schedule<T> {
    current: T,
    until: Instant,
    /// Later values, in reverse order.
    later: Vec<(Instant, T)>,
}

impl<T> Schedule<T> {
    /// Creates a schedule with `first` from the start and each of `changes` from its instant on.
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

    /// Current value and all later ones.
    pub fn all(&self) -> impl Iterator<Item = &T> {
        core::iter::once(&self.current).chain(self.later.iter().map(|(_, later)| later))
    }

    /// Returns the value at `at`, with the instant of its end.
    pub fn at(&mut self, at: Instant) -> (&mut T, Instant) {
        while at >= self.until {
            let Some((_, next)) = self.later.pop() else { break };
            self.current = next;
            self.until = self.next_change();
        }
        (&mut self.current, self.until)
    }
}

/// Outages of a path. Queries must be in order of time.
#[derive(Clone, Debug)]
pub(crate) struct Outages {
    /// Start of the current or next outage, at the last query.
    next_start: Instant,
    /// Scripted: disjoint spans (start, end), in reverse order.
    spans: Vec<(Instant, Instant)>,
    /// Random, with the current or next one.
    random: Option<Box<(Timeline, (Instant, Instant))>>,
}

/// Returns the spans (start, end) in order: overlapping and adjacent spans are merged, empty ones dropped.
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
    pub fn new(down: &[(Instant, Duration)], random: Option<Timeline>) -> Self {
        let mut spans = merged(down);
        spans.reverse();
        let random = random.map(|mut timeline| {
            let first = timeline.next();
            Box::new((timeline, first))
        });
        let mut outages = Self { next_start: Instant::ZERO, spans, random };
        outages.find(Instant::ZERO);
        outages
    }

    /// Start of the outage at `at`, or of the next one.
    #[inline]
    pub fn next_start(&mut self, at: Instant) -> Instant {
        if at >= self.next_start {
            self.find(at);
        }
        self.next_start
    }

    /// Passes the outages that have ended at `at`.
    #[cold]
    fn find(&mut self, at: Instant) {
        while self.spans.pop_if(|(_, end)| *end <= at).is_some() {}
        self.next_start = self.spans.last().map_or(Instant::FAR_FUTURE, |(start, _)| *start);
        if let Some((timeline, span)) = self.random.as_deref_mut() {
            while span.1 <= at && at < Instant::FAR_FUTURE {
                *span = timeline.next();
            }
            self.next_start = self.next_start.min(span.0);
        }
    }
}
