//! Algorithms written in Python: a class creates schedulers or congestion controls for a run.
//!
//! The interpreter is attached only while one of their methods is called. The first error ends the run and is
//! raised unchanged; until the run has stopped, the algorithm returns harmless values.

pub mod congestion;
pub mod scheduler;
pub mod views;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::call::PyCallArgs;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use skybraid_host::Setup;
use skybraid_scenario::{ScenarioError, unknown_name};
use skybraid_transport::registry::{CUSTOM, Custom, Value};

use crate::error::bad_input;

/// Registered classes by name.
pub type Classes = BTreeMap<String, Py<PyAny>>;

/// First error raised by an algorithm of a run.
#[derive(Clone, Debug, Default)]
pub struct Fault(Arc<Mutex<Option<PyErr>>>);

impl Fault {
    /// Records the error of `algorithm` unless there is one already.
    pub fn record(&self, py: Python<'_>, algorithm: &str, error: PyErr) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.is_none() {
            // The note is optional: the error is raised without it just the same.
            let words = format!("raised by {algorithm} during a run");
            let _ = error.value(py).call_method1("add_note", (words,));
            *kept = Some(error);
        }
    }

    /// Returns whether an algorithm has raised an error.
    pub fn is_set(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Takes the error.
    pub fn take(&self) -> Option<PyErr> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Factory of instances: a class with the parameters of one scenario.
#[derive(Debug)]
pub struct ClassFactory {
    /// Name in the scenario.
    name: String,
    class: Py<PyAny>,
    parameters: Vec<(String, Value)>,
    fault: Fault,
}

impl ClassFactory {
    /// Creates an instance; `None` after an error, which is recorded.
    fn make<'py>(
        &self,
        py: Python<'py>,
        arguments: impl PyCallArgs<'py>,
    ) -> Option<Bound<'py, PyAny>> {
        let made = keywords(py, &self.parameters)
            .and_then(|keywords| self.class.bind(py).call(arguments, Some(&keywords)));
        made.map_err(|error| self.fault.record(py, &self.name, error)).ok()
    }
}

fn keywords<'py>(py: Python<'py>, parameters: &[(String, Value)]) -> PyResult<Bound<'py, PyDict>> {
    let keywords = PyDict::new(py);
    for (name, value) in parameters {
        match value {
            Value::Bool(value) => keywords.set_item(name, value)?,
            Value::Integer(value) => keywords.set_item(name, value)?,
            Value::Number(value) => keywords.set_item(name, value)?,
            Value::Text(value) => keywords.set_item(name, value)?,
        }
    }
    Ok(keywords)
}

/// Supplies the algorithms that a scenario names.
///
/// # Errors
/// An algorithm is not registered, or does not accept its parameters.
pub fn supply(
    py: Python<'_>,
    setup: &mut Setup,
    file: &str,
    schedulers: &Classes,
    controls: &Classes,
    fault: &Fault,
) -> PyResult<()> {
    for flow in &mut setup.flows {
        let key = |below: &str| format!("flow.{}.transport.{below}", flow.name);
        if let Some(custom) = Arc::make_mut(&mut flow.transport).scheduler.custom_mut() {
            let maker = maker(py, custom, schedulers, 0, fault)
                .map_err(|problem| refusal(file, key("scheduler"), problem))?;
            custom.set_factory(Arc::new(scheduler::Factory(maker)));
        }
        if let Some(custom) = Arc::make_mut(&mut flow.transport).congestion.custom_mut() {
            let maker = maker(py, custom, controls, 1, fault)
                .map_err(|problem| refusal(file, key("congestion"), problem))?;
            custom.set_factory(Arc::new(congestion::Factory(maker)));
        }
    }
    Ok(())
}

fn refusal(file: &str, key: String, problem: String) -> PyErr {
    bad_input(ScenarioError::Invalid { file: file.into(), line: None, key, problem })
}

/// Returns the factory for `custom`, whose class takes `positional` positional arguments, or the problem.
fn maker<F: ?Sized>(
    py: Python<'_>,
    custom: &Custom<F>,
    classes: &Classes,
    positional: usize,
    fault: &Fault,
) -> Result<ClassFactory, String> {
    let name = custom.name();
    let class = name.strip_prefix(CUSTOM).and_then(|bare| classes.get(bare));
    let Some(class) = class else {
        let known: Vec<String> = classes.keys().map(|bare| format!("{CUSTOM}{bare}")).collect();
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        let mut problem = unknown_name("algorithm", name, &known);
        if known.is_empty() {
            problem.push_str("; register a class, on the command line with --plugin FILE.py");
        }
        return Err(problem);
    };
    let takes = || -> PyResult<()> {
        let arguments = PyTuple::new(py, (0..positional).map(|_| py.None()))?;
        let signature = py.import("inspect")?.call_method1("signature", (class,))?;
        let keywords = keywords(py, custom.parameters())?;
        signature.call_method("bind", arguments, Some(&keywords)).map(drop)
    };
    takes().map_err(|error| format!("{name}: {}", error.value(py)))?;
    Ok(ClassFactory {
        name: name.into(),
        class: class.clone_ref(py),
        parameters: custom.parameters().to_vec(),
        fault: fault.clone(),
    })
}

/// Returns the representation of a value and its type, for errors.
fn shown(value: &Bound<'_, PyAny>) -> String {
    let text = value.repr().map_or_else(|_| "something".to_string(), |repr| repr.to_string());
    let kind = value.get_type().name().map_or_else(|_| String::new(), |name| name.to_string());
    format!("{text} ({kind})")
}

fn wrong_type(what: &str, found: &Bound<'_, PyAny>, expected: &str) -> PyErr {
    PyTypeError::new_err(format!("{what}: found {}, expected {expected}", shown(found)))
}

/// Returns an optional attribute of an instance.
fn flag(object: &Bound<'_, PyAny>, name: &str, otherwise: bool) -> PyResult<bool> {
    match object.getattr_opt(name)? {
        None => Ok(otherwise),
        Some(value) => value.extract().map_err(|_| wrong_type(name, &value, "True or False")),
    }
}
