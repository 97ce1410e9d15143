//! Intervals of shares and means: `skybraid_statistics` for Python.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;
use skybraid_statistics::clustering::{BINS, WINDOWS};
use skybraid_statistics::{
    self as statistics, Clustering, Exposure, Family, Interval, ProbeDelays, RunShare,
};
use skybraid_units::Seed;

use crate::scenario::Scenario;

/// `RunShare` of `skybraid.episodes`: a tuple with its fields in their order.
#[derive(FromPyObject, IntoPyObject)]
pub struct Run(u64, u64, f64, f64, f64, u64, f64, f64, f64, Exposures);

/// `Exposures` of `skybraid.episodes`.
type Exposures = (f64, f64, f64, f64, f64, f64);

fn exposures(seen: Exposure, [family, more]: [Exposure; 2]) -> Exposures {
    (seen.some, seen.all, family.some, family.all, more.some, more.all)
}

impl From<RunShare> for Run {
    fn from(run: RunShare) -> Self {
        Self(
            run.trials,
            run.missed,
            run.variance,
            run.freedom,
            run.largest,
            run.episodes,
            run.block_s,
            run.span_s,
            run.clustering,
            exposures(run.seen, [run.family, run.family_more]),
        )
    }
}

impl From<Run> for RunShare {
    fn from(run: Run) -> Self {
        let (some, all, family_some, family_all, some_more, all_more) = run.9;
        Self {
            trials: run.0,
            missed: run.1,
            variance: run.2,
            freedom: run.3,
            largest: run.4,
            episodes: run.5,
            block_s: run.6,
            span_s: run.7,
            clustering: run.8,
            seen: Exposure { some, all },
            family: Exposure { some: family_some, all: family_all },
            family_more: Exposure { some: some_more, all: all_more },
        }
    }
}

/// Probes of other flights, with the scenario and the flow that they are of; `None` where the flow's links cannot be
/// probed. Points of a campaign have their links in common.
static FAMILIES: Mutex<VecDeque<KnownFamily>> = Mutex::new(VecDeque::new());
const MAX_FAMILIES: usize = 8;

struct KnownFamily {
    scenario: Py<Scenario>,
    flow: String,
    probes: Option<Family>,
}

/// Returns the exposure of other flights, and how much more it may be.
fn family(scenario: &Py<Scenario>, flow: &str, deadline_s: f64) -> Option<[Exposure; 2]> {
    let own = &scenario.get().scenario;
    let mut families = FAMILIES.lock().unwrap_or_else(PoisonError::into_inner);
    let is_known = |family: &&KnownFamily| {
        family.flow == flow
            && (family.scenario.is(scenario)
                || family.scenario.get().scenario.probes_alike(own, flow))
    };
    if let Some(known) = families.iter().find(is_known) {
        return Some(known.probes.as_ref()?.exposure(deadline_s));
    }
    let probes = own.probe_family(flow);
    let exposure = probes.as_ref().map(|probes| probes.exposure(deadline_s));
    if families.len() == MAX_FAMILIES {
        families.pop_front();
    }
    let scenario = Python::attach(|py| scenario.clone_ref(py));
    families.push_back(KnownFamily { scenario, flow: flow.to_string(), probes });
    exposure
}

/// What a scenario says of its links beyond what its runs see of them.
#[pyclass(module = "skybraid._core", frozen)]
pub struct KnownLinks {
    scenario: Py<Scenario>,
    clustering: Clustering,
    /// Whether other runs say more than those seen.
    needs_other_runs: bool,
    /// Of each flow and seed, the probes of the run.
    runs: Mutex<BTreeMap<(String, u64), ProbeDelays>>,
}

impl KnownLinks {
    /// Returns what the scenario says.
    pub fn of(scenario: Py<Scenario>) -> Self {
        let clustering = Clustering::of(&scenario.get().scenario.measurements(WINDOWS, BINS));
        let needs_other_runs = scenario.get().scenario.needs_other_runs();
        Self { scenario, clustering, needs_other_runs, runs: Mutex::default() }
    }
}

#[pymethods]
impl KnownLinks {
    /// Returns whether the seed draws the flights of links.
    #[getter]
    fn drawn(&self) -> bool {
        self.scenario.get().scenario.draws_flights()
    }

    /// Returns the factor by which clustering multiplies an episode's weight, for a share of misses.
    fn clustering(&self, missing: f64) -> f64 {
        self.clustering.factor(missing)
    }

    /// Returns the parts of the time in which some paths of a flow and all of them miss a deadline: in the run of
    /// `seed`, and in other flights of the links' families.
    #[pyo3(signature = (flow, seed, within_ms))]
    fn exposures(
        &self,
        py: Python<'_>,
        flow: &str,
        seed: u64,
        within_ms: Option<f64>,
    ) -> Exposures {
        let scenario = &self.scenario.get().scenario;
        let deadline_s = within_ms.map_or(f64::INFINITY, |within_ms| within_ms / 1e3);
        let probed = || {
            let family = family(&self.scenario, flow, deadline_s)?;
            let key = (flow.to_string(), seed);
            let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
            let run = match runs.get(&key) {
                Some(probes) => probes.exposure(deadline_s),
                None => {
                    drop(runs);
                    let probes = scenario.probe(flow, Seed(seed))?;
                    let exposure = probes.exposure(deadline_s);
                    runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
                    runs.insert(key, probes);
                    exposure
                }
            };
            Some(exposures(run, family))
        };
        let found = if self.needs_other_runs { py.detach(probed) } else { None };
        found.unwrap_or_default()
    }
}

/// `ShareInterval` of `skybraid.episodes`, its interval as two numbers.
type Judged = (f64, (f64, f64), u64, u64, u64, usize, &'static str, f64, f64, f64, usize, f64);

fn ends(interval: Interval) -> (f64, f64) {
    (interval.low, interval.high)
}

fn shares(runs: Vec<Run>) -> Vec<RunShare> {
    runs.into_iter().map(RunShare::from).collect()
}

/// Returns the share of a run from counts over time.
#[pyfunction]
pub fn run_share(
    trials: PyReadonlyArray1<'_, f64>,
    met: PyReadonlyArray1<'_, f64>,
    bin_s: f64,
) -> PyResult<Run> {
    Ok(RunShare::of_bins(trials.as_slice()?, met.as_slice()?, bin_s).into())
}

/// Returns the share of a run whose messages are independent.
#[pyfunction]
pub fn independent_share(trials: u64, met: u64) -> Run {
    RunShare::of_counts(trials, met).into()
}

/// Returns the share over runs with its interval.
#[pyfunction]
pub fn share_interval(runs: Vec<Run>, confidence: f64) -> Judged {
    let seen = statistics::share_interval(&shares(runs), confidence);
    (
        seen.estimate,
        ends(seen.interval),
        seen.trials,
        seen.missed,
        seen.episodes,
        seen.runs,
        seen.unit.name(),
        seen.block_s,
        seen.span_s,
        seen.clustering,
        seen.copies,
        seen.expected,
    )
}

/// Returns the multiple of the flight time that would decide.
#[pyfunction]
pub fn factor_needed(runs: Vec<Run>, target: f64, confidence: f64) -> Option<f64> {
    statistics::factor_needed(&shares(runs), target, confidence)
}

/// Returns the interval of the mean of an autocorrelated series.
#[pyfunction]
pub fn mean_over_time(
    values: PyReadonlyArray1<'_, f64>,
    confidence: f64,
) -> PyResult<Option<(f64, f64)>> {
    Ok(statistics::mean_over_time(values.as_slice()?, confidence).map(ends))
}

/// Returns the quantile of Student's t distribution.
#[pyfunction]
pub fn student_quantile(freedom: f64, probability: f64) -> f64 {
    statistics::student_quantile(freedom, probability)
}

/// Returns the probabilities that a standard normal variable is at most each of `scores`.
#[pyfunction]
pub fn normal_cdf<'py>(scores: PyReadonlyArray1<'py, f64>) -> Bound<'py, PyArray1<f64>> {
    let found = scores.as_array().map(|score| statistics::normal_cdf(*score));
    found.into_pyarray(scores.py())
}

/// Returns the standard normal quantiles of `probabilities`.
#[pyfunction]
pub fn normal_quantile<'py>(
    probabilities: PyReadonlyArray1<'py, f64>,
) -> Bound<'py, PyArray1<f64>> {
    let found = probabilities.as_array().map(|share| statistics::normal_quantile(*share));
    found.into_pyarray(probabilities.py())
}
