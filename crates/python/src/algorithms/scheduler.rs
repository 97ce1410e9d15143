//! Schedulers written in Python.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use skybraid_transport::scheduler::{self, Choice, Reason, Scheduler, Unit, wait_for_room};
use skybraid_transport::{PathSet, PathView};
use skybraid_units::{Duration, Instant};

use super::{ClassFactory, Fault, flag, views, wrong_type};

/// Factory of schedulers of a Python class.
#[derive(Debug)]
pub struct Factory(pub ClassFactory);

impl scheduler::Factory for Factory {
    fn build(&self) -> Box<dyn Scheduler> {
        let Factory(maker) = self;
        Python::attach(|py| {
            let object = maker.make(py, ());
            let needs_rtt =
                object.as_ref().map_or(Ok(false), |object| flag(object, "needs_rtt", true));
            Box::new(PythonScheduler {
                name: maker.name.clone(),
                object: object.map(Bound::unbind),
                needs_rtt: needs_rtt.unwrap_or_else(|error| {
                    maker.fault.record(py, &maker.name, error);
                    false
                }),
                fault: maker.fault.clone(),
            })
        })
    }
}

#[derive(Debug)]
struct PythonScheduler {
    name: String,
    /// `None` if the instance could not be created.
    object: Option<Py<PyAny>>,
    needs_rtt: bool,
    fault: Fault,
}

impl Scheduler for PythonScheduler {
    fn choose(&mut self, now: Instant, unit: &Unit, paths: &[PathView]) -> Choice {
        let Some(object) = self.object.as_ref().filter(|_| !self.fault.is_set()) else {
            return Choice::wait(Reason::Own);
        };
        Python::attach(|py| {
            ask(object.bind(py), now, unit, paths).unwrap_or_else(|error| {
                self.fault.record(py, &self.name, error);
                Choice::wait(Reason::Own)
            })
        })
    }

    fn needs_rtt(&self) -> bool {
        self.needs_rtt
    }
}

/// Queries a scheduler as a run does, for checks of an algorithm. Returns the chosen paths, or for a wait its
/// path and its end in s.
#[pyfunction]
pub fn ask_scheduler(
    object: &Bound<'_, PyAny>,
    now_s: f64,
    unit: PyRef<'_, views::Unit>,
    paths: Vec<PyRef<'_, views::PathView>>,
) -> PyResult<(Vec<u8>, Option<u8>, Option<f64>)> {
    let paths: Vec<PathView> = paths.iter().map(|view| view.0).collect();
    Ok(match ask(object, Instant::from_secs_f64(now_s), &unit.0, &paths)? {
        Choice::Send(paths, _) => (paths.iter().map(|path| path.0).collect(), None, None),
        Choice::Wait { path, until, .. } => {
            (Vec::new(), path.map(|path| path.0), until.map(Instant::as_secs_f64))
        }
    })
}

fn ask(
    object: &Bound<'_, PyAny>,
    now: Instant,
    unit: &Unit,
    paths: &[PathView],
) -> PyResult<Choice> {
    let seen: Vec<views::PathView> = paths.iter().map(|view| views::PathView(*view)).collect();
    let arguments = (now.as_secs_f64(), views::Unit(*unit), seen);
    let answer = object.call_method1("choose", arguments)?;
    if let Ok(wait) = answer.cast::<views::Wait>() {
        return waiting(now, wait.get(), paths);
    }
    let expected = "a set or list of path numbers, or Wait()";
    let wrong = |found: &Bound<'_, PyAny>| wrong_type("choose", found, expected);
    let mut chosen = PathSet::EMPTY;
    for number in answer.try_iter().map_err(|_| wrong(&answer))? {
        let number = number?;
        let id = number.extract::<i64>().map_err(|_| wrong(&answer))?;
        let path = known(id, paths)?;
        if !path.usable {
            return Err(PyValueError::new_err(format!(
                "choose: found path {id}, which is not usable, expected some of those that are"
            )));
        }
        chosen = chosen.with(path.id);
    }
    Ok(if chosen.is_empty() { without_room(paths) } else { Choice::Send(chosen, Reason::Own) })
}

fn known(id: i64, paths: &[PathView]) -> PyResult<&PathView> {
    paths.iter().find(|path| i64::from(path.id.0) == id).ok_or_else(|| {
        let last = paths.len().saturating_sub(1);
        PyValueError::new_err(format!(
            "choose: found path {id}, expected a number from 0 to {last}"
        ))
    })
}

/// Returns a wait for the visible reason, or else for a reason of the algorithm.
fn without_room(paths: &[PathView]) -> Choice {
    if paths.iter().any(|path| path.usable && path.has_room) {
        Choice::wait(Reason::Own)
    } else {
        wait_for_room(paths)
    }
}

fn waiting(now: Instant, wait: &views::Wait, paths: &[PathView]) -> PyResult<Choice> {
    let path = wait.path.map(|id| known(id, paths).map(|path| path.id)).transpose()?;
    let until = match wait.until_s {
        None => None,
        Some(until_s) if until_s > now.as_secs_f64() => {
            // The end of a wait must be later than its start, also if it is less than a nanosecond ahead.
            Some(Instant::from_secs_f64(until_s).max(now + Duration::from_nanos(1)))
        }
        Some(until_s) => {
            return Err(PyValueError::new_err(format!(
                "choose: found Wait(until_s={until_s}), expected later than now_s, {}",
                now.as_secs_f64()
            )));
        }
    };
    match without_room(paths) {
        Choice::Wait { reason, .. } => Ok(Choice::Wait { reason, path, until }),
        choice @ Choice::Send(..) => Ok(choice),
    }
}
