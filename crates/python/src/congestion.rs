//! A built-in congestion control without a transport.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use skybraid_transport::congestion::{self, Siblings};
use skybraid_units::{Instant, Rate};

use crate::algorithms::views::{Acked, Lost, PathBasics};
use crate::error::bad_input;

/// Congestion control of one direction of a path, without siblings.
#[pyclass(module = "skybraid._core", frozen)]
pub struct Congestion {
    control: Mutex<Box<dyn congestion::Congestion>>,
}

impl Congestion {
    fn control(&self) -> MutexGuard<'_, Box<dyn congestion::Congestion>> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Congestion {
    #[new]
    fn new(toml: &str, path: &PathBasics) -> PyResult<Self> {
        let config = skybraid_scenario::load_congestion(toml).map_err(bad_input)?;
        Ok(Self { control: Mutex::new(config.build(&path.0)) })
    }

    fn on_delivery(&self, acked: &Acked) {
        self.control().on_delivery(&acked.0, Siblings::default());
    }

    fn on_ack(&self, acked: &Acked) {
        self.control().on_ack(&acked.0, Siblings::default());
    }

    fn on_recovered(&self, now_s: f64) {
        self.control().on_recovered(Instant::from_secs_f64(now_s));
    }

    fn on_loss(&self, lost: &Lost) {
        self.control().on_loss(&lost.0, Siblings::default());
    }

    #[pyo3(signature = (lost, repeated = false))]
    fn on_timeout(&self, lost: &Lost, repeated: bool) {
        self.control().on_timeout(&lost.0, repeated, Siblings::default());
    }

    #[getter]
    fn window_bytes(&self) -> u64 {
        self.control().window().get()
    }

    #[getter]
    fn threshold_bytes(&self) -> u64 {
        self.control().slow_start_threshold().get()
    }

    #[getter]
    fn pacing_bps(&self) -> Option<u64> {
        self.control().pacing_rate().map(Rate::as_bps)
    }
}
