//! Errors of commands, and their exit codes.

use std::io;
use std::process::ExitCode;

use skybraid_node::{AskError, GatewayError};
use skybraid_scenario::ScenarioError;

/// Exit code: a check failed, or the gateway could not continue.
pub const FAILED: u8 = 1;
/// Exit code: the input is invalid, or no gateway responds.
const UNUSABLE: u8 = 2;

/// Error of a command.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// A configuration file or one of its keys is invalid.
    #[error("{0}")]
    Input(#[from] ScenarioError),
    /// A file cannot be written.
    #[error("{file}: {error}")]
    File {
        /// File name.
        file: String,
        /// Error of the system.
        error: io::Error,
    },
    /// No gateway responds.
    #[error("{0}")]
    Ask(#[from] AskError),
    /// The request cannot be fulfilled.
    #[error("{0}")]
    Request(String),
    /// The gateway cannot start or continue.
    #[error("{0}")]
    Gateway(#[from] GatewayError),
    /// A basic system call failed.
    #[error("{0}")]
    System(#[from] io::Error),
}

impl NodeError {
    /// Returns the exit code.
    pub fn code(&self) -> ExitCode {
        match self {
            Self::Gateway(_) | Self::System(_) => FAILED.into(),
            _ => UNUSABLE.into(),
        }
    }
}
