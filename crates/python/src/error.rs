//! Python exceptions, and the mapping of errors to them.

use pyo3::exceptions::{PyException, PyOSError};
use pyo3::{PyErr, create_exception};

create_exception!(skybraid, SkybraidError, PyException, "What Skybraid cannot do, and why.");
create_exception!(
    skybraid,
    ScenarioError,
    SkybraidError,
    "Input that must be corrected: says file, line, key, what was found and what was expected."
);
create_exception!(skybraid, Interrupted, SkybraidError, "The run was stopped before its end.");

/// Returns the exception for invalid input.
pub fn bad_input(error: impl core::fmt::Display) -> PyErr {
    ScenarioError::new_err(error.to_string())
}

/// Returns the exception for an error of the system.
pub fn from_system(error: std::io::Error) -> PyErr {
    match error.raw_os_error() {
        Some(code) => PyOSError::new_err((code, error.to_string())),
        None => PyOSError::new_err(error.to_string()),
    }
}
