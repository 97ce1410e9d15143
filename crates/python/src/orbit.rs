//! Satellites: their service of a terminal over time, and their positions.

use std::path::Path;
use std::sync::Arc;

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use skybraid_orbit::{CONSTELLATIONS, Epoch};
use skybraid_scenario::Orbit;
use skybraid_units::{Duration, Instant};

use crate::error::bad_input;

/// Service of a terminal by satellites over a run.
#[pyclass(module = "skybraid._core", frozen)]
pub struct OrbitService {
    orbit: Arc<Orbit>,
}

impl OrbitService {
    pub const fn of(orbit: Arc<Orbit>) -> Self {
        Self { orbit }
    }
}

fn spans(spans: &[(Instant, Duration)]) -> Vec<(f64, f64)> {
    spans.iter().map(|(from, length)| (from.as_secs_f64(), length.as_secs_f64())).collect()
}

#[pymethods]
impl OrbitService {
    #[staticmethod]
    fn load(py: Python<'_>, toml: &str, file: &str) -> PyResult<Self> {
        let orbit = py.detach(|| skybraid_scenario::load_orbit(toml, Path::new(file)));
        orbit.map(|orbit| Self::of(Arc::new(orbit))).map_err(bad_input)
    }

    #[getter]
    fn start(&self) -> String {
        self.orbit.config.start.to_string()
    }

    #[getter]
    fn length_s(&self) -> f64 {
        self.orbit.service.length.as_secs_f64()
    }

    fn warning(&self) -> Option<String> {
        self.orbit.config.warning()
    }

    fn samples<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let samples = &self.orbit.service.samples;
        let numbers = |of: fn(&skybraid_orbit::Sample) -> f64| {
            samples.iter().map(of).collect::<Vec<f64>>().into_pyarray(py)
        };
        let counts = |of: fn(&skybraid_orbit::Sample) -> usize| {
            samples.iter().map(|sample| of(sample) as u32).collect::<Vec<u32>>().into_pyarray(py)
        };
        Ok(dict!(
            py,
            "time_s": numbers(|sample| sample.at.as_secs_f64()),
            "delay_ms": numbers(|sample| sample.delay.as_millis_f64()),
            "elevation_deg": numbers(|sample| sample.elevation),
            "gateway": counts(|sample| sample.gateway),
            "hops": counts(|sample| sample.hops),
        ))
    }

    fn serving(&self) -> Vec<(&str, f64, f64)> {
        let serving = self.orbit.service.serving.iter();
        let row =
            |span: &'_ skybraid_orbit::Serving| (span.from.as_secs_f64(), span.to.as_secs_f64());
        serving.map(|span| (span.satellite.as_str(), row(span).0, row(span).1)).collect()
    }

    fn handovers(&self) -> Vec<(f64, f64)> {
        let handovers = self.orbit.service.handovers.iter();
        handovers.map(|handover| (handover.at.as_secs_f64(), handover.gap.as_secs_f64())).collect()
    }

    fn gaps(&self) -> Vec<(f64, f64)> {
        spans(&self.orbit.service.gaps)
    }

    fn rain(&self) -> Vec<(f64, f64)> {
        spans(&self.orbit.rain)
    }

    fn loss<'py>(&self, py: Python<'py>) -> (Bound<'py, PyArray1<f64>>, Bound<'py, PyArray1<f64>>) {
        let (times, ratios): (Vec<f64>, Vec<f64>) =
            self.orbit.loss.iter().map(|(at, loss)| (at.as_secs_f64(), *loss)).unzip();
        (times.into_pyarray(py), ratios.into_pyarray(py))
    }

    fn delays_ms(&self) -> Option<(f64, f64, f64)> {
        let delays = self.orbit.service.delays()?;
        let (min, median, max) = (delays.min, delays.median, delays.max);
        Some((min.as_millis_f64(), median.as_millis_f64(), max.as_millis_f64()))
    }

    fn handovers_per_hour(&self) -> f64 {
        self.orbit.service.handovers_per_hour()
    }

    fn csv(&self) -> String {
        self.orbit.service.csv()
    }

    fn hypatia(&self) -> String {
        self.orbit.service.hypatia()
    }
}

/// Returns name and description of each known constellation.
#[pyfunction]
pub fn constellations() -> Vec<(&'static str, &'static str)> {
    CONSTELLATIONS.iter().map(|known| (known.name, known.about)).collect()
}

/// Returns the names of the satellites of element sets, and their positions in earth-fixed metres: satellite by
/// satellite, time by time, x, y and z; NaN for a decayed satellite.
#[pyfunction]
pub fn satellite_positions<'py>(
    py: Python<'py>,
    elements: &str,
    unix_s: PyReadonlyArray1<'py, f64>,
) -> PyResult<(Vec<String>, Bound<'py, PyArray1<f64>>)> {
    let satellites = skybraid_orbit::read(elements).map_err(bad_input)?;
    let epochs: Vec<Epoch> = unix_s
        .as_array()
        .iter()
        .map(|seconds| Epoch::from_unix_nanos(0) + Duration::from_secs_f64(*seconds))
        .collect();
    let mut positions = Vec::with_capacity(satellites.len() * epochs.len() * 3);
    for satellite in &satellites {
        for epoch in &epochs {
            positions.extend(satellite.position(*epoch).unwrap_or([f64::NAN; 3]));
        }
    }
    let names = satellites.iter().map(|satellite| satellite.name().to_string()).collect();
    Ok((names, positions.into_pyarray(py)))
}
