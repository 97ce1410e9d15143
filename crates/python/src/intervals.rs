//! Intervals of shares and means: `skybraid_statistics` for Python.

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;
use skybraid_scenario::Scenario;
use skybraid_statistics::clustering::{BINS, WINDOWS};
use skybraid_statistics::{self as statistics, Interval, RunShare};

/// `RunShare` of `skybraid.episodes`: a tuple with its fields in their order.
#[derive(FromPyObject, IntoPyObject)]
pub struct Run(u64, u64, f64, f64, f64, u64, f64, f64, f64);

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
        )
    }
}

impl From<Run> for RunShare {
    fn from(run: Run) -> Self {
        let Run(trials, missed, variance, freedom, largest, episodes, block_s, span_s, clustering) =
            run;
        Self { trials, missed, variance, freedom, largest, episodes, block_s, span_s, clustering }
    }
}

/// Factor by which clustering multiplies an episode's weight, for a share of misses.
#[pyclass(module = "skybraid._core", frozen)]
pub struct Clustering(statistics::Clustering);

impl Clustering {
    /// Clustering of the measurements that runs of a scenario replay in part.
    pub fn of(scenario: &Scenario) -> Self {
        Self(statistics::Clustering::of(&scenario.measurements(WINDOWS, BINS)))
    }
}

#[pymethods]
impl Clustering {
    fn __call__(&self, missing: f64) -> f64 {
        self.0.factor(missing)
    }
}

/// `ShareInterval` of `skybraid.episodes`, its interval as two numbers.
type Judged = (f64, (f64, f64), u64, u64, u64, usize, &'static str, f64, f64, f64, usize);

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
