//! Progress of a run, reported to Python, which may stop it.

use std::time;

use pyo3::prelude::*;
use skybraid_units::Instant;

use crate::algorithms::Fault;

/// Interval of reports to Python.
const REPORT_EVERY: time::Duration = time::Duration::from_millis(100);

/// Reports the progress of a run to a function, which decides whether to continue.
pub struct Progress {
    function: Option<Py<PyAny>>,
    /// First error of an algorithm in Python.
    fault: Fault,
    begun: time::Instant,
    /// Time of the last report since the beginning.
    reported: Option<time::Duration>,
    failed: Option<PyErr>,
}

impl Progress {
    /// Begins a run.
    #[expect(clippy::disallowed_methods, reason = "measures how long a run takes")]
    pub fn new(function: Option<Py<PyAny>>, fault: Fault) -> Self {
        let begun = time::Instant::now();
        Self { function, fault, begun, reported: None, failed: None }
    }

    /// Reports the time of the run unless that was done recently. Returns whether the run continues.
    pub fn report(&mut self, now: Instant) -> bool {
        if self.failed.is_some() || self.fault.is_set() {
            return false;
        }
        let elapsed = self.begun.elapsed();
        if self.reported.is_some_and(|reported| elapsed - reported < REPORT_EVERY) {
            return true;
        }
        self.reported = Some(elapsed);
        let answer = Python::attach(|py| {
            py.check_signals()?;
            let Some(function) = &self.function else { return Ok(true) };
            function.call1(py, (now.as_secs_f64().max(0.0),))?.extract::<bool>(py)
        });
        answer.unwrap_or_else(|error| {
            self.fail(error);
            false
        })
    }

    /// Stops the run at the next report, with this error unless there is one already.
    pub fn fail(&mut self, error: PyErr) {
        self.failed.get_or_insert(error);
    }

    /// Returns the time in s since the beginning.
    pub fn wall_s(&self) -> f64 {
        self.begun.elapsed().as_secs_f64()
    }

    /// Ends a run.
    ///
    /// # Errors
    /// The first error of an algorithm, of the function or of [`fail`](Self::fail).
    pub fn finish(self) -> PyResult<()> {
        self.fault.take().or(self.failed).map_or(Ok(()), Err)
    }
}
