//! A congestion control written in Python.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use skybraid_transport::congestion::{self, Acked, Congestion, Lost, PathBasics, Siblings};
use skybraid_units::{Bytes, Instant, Rate};

use super::{Fault, Maker, flag, views, wrong_type};

/// Makes congestion controls of a Python class.
#[derive(Debug)]
pub struct Factory(pub Maker);

impl congestion::Factory for Factory {
    fn build(&self, path: &PathBasics) -> Box<dyn Congestion> {
        let Factory(maker) = self;
        Python::attach(|py| {
            let mut own = Own {
                name: maker.name.clone(),
                object: maker.make(py, (views::PathBasics(*path),)).map(Bound::unbind),
                segment: path.segment.get().max(1),
                hears: [false; EVENTS.len()],
                coupled: false,
                governs_recovery: false,
                answers: Answers {
                    window: path.initial_window.max(path.segment),
                    threshold: path.initial_threshold,
                    pacing: None,
                },
                fault: maker.fault.clone(),
            };
            if let Err(error) = own.prepare(py) {
                maker.fault.note(py, &maker.name, error);
            }
            Box::new(own)
        })
    }
}

/// What a congestion control may hear of, by the names of its methods.
const EVENTS: [&str; 7] =
    ["on_ack", "on_delivery", "on_recovered", "on_loss", "on_timeout", "on_idle", "on_penalty"];

/// Positions in [`EVENTS`].
#[derive(Clone, Copy)]
enum Event {
    Ack,
    Delivery,
    Recovered,
    Loss,
    Timeout,
    Idle,
    Penalty,
}

#[derive(Clone, Copy, Debug)]
struct Answers {
    window: Bytes,
    threshold: Bytes,
    pacing: Option<Rate>,
}

#[derive(Debug)]
struct Own {
    name: String,
    /// `None` if it could not be made.
    object: Option<Py<PyAny>>,
    segment: u64,
    /// Which of [`EVENTS`] it has a method for.
    hears: [bool; EVENTS.len()],
    coupled: bool,
    governs_recovery: bool,
    /// As of the last event: they change at no other time.
    answers: Answers,
    fault: Fault,
}

impl Own {
    fn prepare(&mut self, py: Python<'_>) -> PyResult<()> {
        let Some(object) = &self.object else { return Ok(()) };
        let object = object.bind(py);
        for (hears, name) in self.hears.iter_mut().zip(EVENTS) {
            *hears = object.getattr_opt(name)?.is_some_and(|method| method.is_callable());
        }
        self.coupled = flag(object, "is_coupled", false)?;
        self.governs_recovery = flag(object, "governs_recovery", false)?;
        self.answers = answers(object, self.segment)?;
        Ok(())
    }

    /// Tells of an event, if the class wants to hear of it, and reads the answers after it.
    fn tell(&mut self, event: Event, call: impl FnOnce(&Bound<'_, PyAny>, &str) -> PyResult<()>) {
        let index = event as usize;
        let (Some(true), Some(name)) = (self.hears.get(index), EVENTS.get(index)) else { return };
        let Some(object) = self.object.as_ref().filter(|_| !self.fault.is_noted()) else { return };
        Python::attach(|py| {
            let object = object.bind(py);
            match call(object, name).and_then(|()| answers(object, self.segment)) {
                Ok(answers) => self.answers = answers,
                Err(error) => self.fault.note(py, &self.name, error),
            }
        });
    }
}

impl Congestion for Own {
    fn on_ack(&mut self, acked: &Acked, siblings: Siblings<'_>) {
        self.tell(Event::Ack, |object, name| {
            let arguments = (views::Acked(*acked), views::Siblings::from(siblings));
            object.call_method1(name, arguments).map(drop)
        });
    }

    fn on_delivery(&mut self, acked: &Acked, siblings: Siblings<'_>) {
        self.tell(Event::Delivery, |object, name| {
            let arguments = (views::Acked(*acked), views::Siblings::from(siblings));
            object.call_method1(name, arguments).map(drop)
        });
    }

    fn on_recovered(&mut self, now: Instant) {
        self.tell(Event::Recovered, |object, name| {
            object.call_method1(name, (now.as_secs_f64(),)).map(drop)
        });
    }

    fn on_loss(&mut self, lost: &Lost, siblings: Siblings<'_>) {
        self.tell(Event::Loss, |object, name| {
            let arguments = (views::Lost(*lost), views::Siblings::from(siblings));
            object.call_method1(name, arguments).map(drop)
        });
    }

    fn on_timeout(&mut self, lost: &Lost, repeated: bool, siblings: Siblings<'_>) {
        self.tell(Event::Timeout, |object, name| {
            let arguments = (views::Lost(*lost), repeated, views::Siblings::from(siblings));
            object.call_method1(name, arguments).map(drop)
        });
    }

    fn on_idle(&mut self, now: Instant) {
        self.tell(Event::Idle, |object, name| {
            object.call_method1(name, (now.as_secs_f64(),)).map(drop)
        });
    }

    fn on_penalty(&mut self) {
        self.tell(Event::Penalty, |object, name| object.call_method0(name).map(drop));
    }

    fn window(&self) -> Bytes {
        self.answers.window
    }

    fn slow_start_threshold(&self) -> Bytes {
        self.answers.threshold
    }

    fn pacing_rate(&self) -> Option<Rate> {
        self.answers.pacing
    }

    fn governs_recovery(&self) -> bool {
        self.governs_recovery
    }

    fn is_coupled(&self) -> bool {
        self.coupled
    }
}

/// Asks a congestion control as a run does, for the checks of an algorithm: window and slow start
/// threshold in bytes, pacing rate in bit/s.
#[pyfunction]
pub fn ask_congestion(
    object: &Bound<'_, PyAny>,
    segment_bytes: u64,
) -> PyResult<(u64, u64, Option<u64>)> {
    let answers = answers(object, segment_bytes)?;
    let pacing = answers.pacing.map(Rate::as_bps);
    Ok((answers.window.get(), answers.threshold.get(), pacing))
}

/// What a control answers now: attributes or properties, of which only `window` must be there.
fn answers(object: &Bound<'_, PyAny>, segment: u64) -> PyResult<Answers> {
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
    Ok(Answers { window: Bytes::new(window), threshold: Bytes::new(threshold), pacing })
}

/// A number, without its fraction; the largest for infinity.
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
