//! Congestion controls written in Python.

use pyo3::call::PyCallArgs;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use skybraid_transport::congestion::{self, Acked, Congestion, Idle, Lost, PathBasics, Siblings};
use skybraid_units::{Bytes, Instant, Rate, named};

use super::{ClassFactory, Fault, flag, views, wrong_type};

/// Factory of congestion controls of a Python class.
#[derive(Debug)]
pub struct Factory(pub ClassFactory);

impl congestion::Factory for Factory {
    fn build(&self, path: &PathBasics) -> Box<dyn Congestion> {
        let Factory(maker) = self;
        Python::attach(|py| {
            let mut own = PythonCongestion {
                name: maker.name.clone(),
                object: maker.make(py, (views::PathBasics(*path),)).map(Bound::unbind),
                segment: path.segment.get().max(1),
                handles: [false; Event::ALL.len()],
                coupled: false,
                governs_recovery: false,
                state: State {
                    window: path.initial_window.max(path.segment),
                    threshold: path.initial_threshold,
                    pacing: None,
                },
                fault: maker.fault.clone(),
            };
            if let Err(error) = own.prepare(py) {
                maker.fault.record(py, &maker.name, error);
            }
            Box::new(own)
        })
    }
}

named! {
    /// Events of a congestion control, by the names of its methods.
    #[derive(Clone, Copy)]
    pub enum Event {
        /// Acknowledgement that may let the window grow.
        Ack = "on_ack",
        /// Acknowledgement.
        Delivery = "on_delivery",
        /// End of a recovery.
        Recovered = "on_recovered",
        /// Loss.
        Loss = "on_loss",
        /// Retransmission timeout.
        Timeout = "on_timeout",
        /// Idle time.
        Idle = "on_idle",
        /// Penalty for blocking the receive window.
        Penalty = "on_penalty",
    }
}

#[derive(Clone, Copy, Debug)]
struct State {
    window: Bytes,
    threshold: Bytes,
    pacing: Option<Rate>,
}

#[derive(Debug)]
struct PythonCongestion {
    name: String,
    /// `None` if the instance could not be created.
    object: Option<Py<PyAny>>,
    segment: u64,
    /// Whether the instance has a method for each [`Event`].
    handles: [bool; Event::ALL.len()],
    coupled: bool,
    governs_recovery: bool,
    /// State after the last event, which changes at no other time.
    state: State,
    fault: Fault,
}

impl PythonCongestion {
    fn prepare(&mut self, py: Python<'_>) -> PyResult<()> {
        let Some(object) = &self.object else { return Ok(()) };
        let object = object.bind(py);
        for (handles, event) in self.handles.iter_mut().zip(Event::ALL) {
            *handles = object.getattr_opt(event.name())?.is_some_and(|method| method.is_callable());
        }
        self.coupled = flag(object, "is_coupled", false)?;
        self.governs_recovery = flag(object, "governs_recovery", false)?;
        self.state = state(object, self.segment)?;
        Ok(())
    }

    /// Passes an event to the instance if it has a method for it, and reads the state after it.
    fn notify<A: for<'py> PyCallArgs<'py>>(&mut self, event: Event, arguments: impl FnOnce() -> A) {
        if !self.handles[event as usize] {
            return;
        }
        let Some(object) = self.object.as_ref().filter(|_| !self.fault.is_set()) else { return };
        Python::attach(|py| {
            let object = object.bind(py);
            let called = object.call_method1(event.name(), arguments());
            match called.and_then(|_| state(object, self.segment)) {
                Ok(state) => self.state = state,
                Err(error) => self.fault.record(py, &self.name, error),
            }
        });
    }
}

impl Congestion for PythonCongestion {
    fn on_ack(&mut self, acked: &Acked, siblings: Siblings<'_>) {
        self.notify(Event::Ack, || (views::Acked(*acked), views::Siblings::from(siblings)));
    }

    fn on_delivery(&mut self, acked: &Acked, siblings: Siblings<'_>) {
        self.notify(Event::Delivery, || (views::Acked(*acked), views::Siblings::from(siblings)));
    }

    fn on_recovered(&mut self, now: Instant) {
        self.notify(Event::Recovered, || (now.as_secs_f64(),));
    }

    fn on_loss(&mut self, lost: &Lost, siblings: Siblings<'_>) {
        self.notify(Event::Loss, || (views::Lost(*lost), views::Siblings::from(siblings)));
    }

    fn on_timeout(&mut self, lost: &Lost, repeated: bool, siblings: Siblings<'_>) {
        let lost = views::Lost(*lost);
        self.notify(Event::Timeout, || (lost, repeated, views::Siblings::from(siblings)));
    }

    fn on_idle(&mut self, idle: &Idle) {
        self.notify(Event::Idle, || (idle.now.as_secs_f64(),));
    }

    fn on_penalty(&mut self) {
        self.notify(Event::Penalty, || ());
    }

    fn window(&self) -> Bytes {
        self.state.window
    }

    fn slow_start_threshold(&self) -> Bytes {
        self.state.threshold
    }

    fn pacing_rate(&self) -> Option<Rate> {
        self.state.pacing
    }

    fn governs_recovery(&self) -> bool {
        self.governs_recovery
    }

    fn is_coupled(&self) -> bool {
        self.coupled
    }
}

/// Queries a congestion control as a run does, for checks of an algorithm. Returns window and slow start
/// threshold in bytes, and pacing rate in bit/s.
#[pyfunction]
pub fn ask_congestion(
    object: &Bound<'_, PyAny>,
    segment_bytes: u64,
) -> PyResult<(u64, u64, Option<u64>)> {
    let state = state(object, segment_bytes)?;
    let pacing = state.pacing.map(Rate::as_bps);
    Ok((state.window.get(), state.threshold.get(), pacing))
}

/// Reads the state of a control from attributes or properties, of which only `window` is required.
fn state(object: &Bound<'_, PyAny>, segment: u64) -> PyResult<State> {
    let found = object.getattr("window")?;
    let window = whole("window", &found, "a number of bytes")?;
    if !(segment..u64::MAX).contains(&window) {
        return Err(PyValueError::new_err(format!(
            "window: found {found}, expected a number of bytes, at least a segment of {segment}"
        )));
    }
    let threshold = match object.getattr_opt("slow_start_threshold")? {
        Some(found) if !found.is_none() => {
            whole("slow_start_threshold", &found, "a number of bytes, or None for none")?
        }
        _ => u64::MAX,
    };
    let pacing = match object.getattr_opt("pacing_rate")? {
        Some(found) if !found.is_none() => {
            let rate = whole("pacing_rate", &found, "a number of bit/s, or None for no pacing")?;
            if !(1..u64::MAX).contains(&rate) {
                return Err(PyValueError::new_err(format!(
                    "pacing_rate: found {found}, expected a number of bit/s above zero, or None"
                )));
            }
            Some(Rate::from_bps(rate))
        }
        _ => None,
    };
    Ok(State { window: Bytes::new(window), threshold: Bytes::new(threshold), pacing })
}

/// Returns a number without its fraction, and the maximum for infinity.
fn whole(what: &str, found: &Bound<'_, PyAny>, expected: &str) -> PyResult<u64> {
    if let Ok(number) = found.extract::<u64>() {
        return Ok(number);
    }
    let number: f64 = found.extract().map_err(|_| wrong_type(what, found, expected))?;
    if number.is_nan() || number < 0.0 {
        let problem = format!("{what}: found {found}, expected {expected}");
        return Err(PyValueError::new_err(problem));
    }
    Ok(number as u64)
}
