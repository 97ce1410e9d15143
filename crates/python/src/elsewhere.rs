//! Stand-ins for the emulator on systems other than Linux: each says that it needs Linux.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use crate::error::SkybraidError;

fn needs_linux() -> PyErr {
    SkybraidError::new_err(format!(
        "the emulator needs Linux: found {}, expected Linux, in a virtual machine or WSL 2 too; \
         `skybraid run` simulates the same scenario here",
        std::env::consts::OS
    ))
}

/// Links between network namespaces, which only Linux has.
#[pyclass(module = "skybraid._core")]
pub struct Emulation {}

#[pymethods]
impl Emulation {
    #[new]
    #[pyo3(signature = (*_arguments, **_keywords))]
    fn new(
        _arguments: &Bound<'_, PyTuple>,
        _keywords: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        Err(needs_linux())
    }
}

/// A program in a node; none can be started here.
#[pyclass(module = "skybraid._core")]
pub struct Program {}

/// Refuses to run a command inside a sandbox.
#[pyfunction]
pub fn reenter(_argv: Vec<OsString>, _env: BTreeMap<OsString, OsString>) -> PyResult<i32> {
    Err(needs_linux())
}

/// Refuses to run a program in namespaces of another process.
#[pyfunction]
pub fn enter(
    _namespaces: Vec<PathBuf>,
    _argv: Vec<String>,
    _env: BTreeMap<String, String>,
) -> PyResult<i32> {
    Err(needs_linux())
}

/// Returns the only system requirement of the emulator that counts here.
#[pyfunction]
pub fn capabilities(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let fix = "use Linux, in a virtual machine or WSL 2 too";
    let found = std::env::consts::OS;
    let entry =
        dict!(py, "name": "Linux", "present": false, "needed": true, "found": found, "fix": fix);
    PyList::new(py, [entry])
}

/// Returns whether this process is the first of a sandbox.
#[pyfunction]
pub fn inside_sandbox() -> bool {
    false
}
