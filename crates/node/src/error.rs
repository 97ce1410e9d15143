//! Why a command ends without success, by its exit code.

use std::io;
use std::process::ExitCode;

use skybraid_runtime::gateway::{AskError, GatewayError};
use skybraid_scenario::ScenarioError;

/// A check failed, or the gateway could not go on.
pub const FAILED: u8 = 1;
/// The input is wrong, or nobody is there to ask.
const UNUSABLE: u8 = 2;

/// Why a command ends without success.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// A gateway's file or its key must be corrected.
    #[error("{0}")]
    Input(#[from] ScenarioError),
    /// A file cannot be written.
    #[error("{file}: {error}")]
    File {
        /// Which one.
        file: String,
        /// What the system said.
        error: io::Error,
    },
    /// No gateway answers.
    #[error("{0}")]
    Ask(#[from] AskError),
    /// What was asked for makes no sense.
    #[error("{0}")]
    Asked(String),
    /// The gateway cannot start or go on.
    #[error("{0}")]
    Gateway(#[from] GatewayError),
    /// The system refuses what every program gets.
    #[error("{0}")]
    System(#[from] io::Error),
}

impl NodeError {
    /// The exit code.
    pub fn code(&self) -> ExitCode {
        match self {
            Self::Gateway(_) | Self::System(_) => FAILED.into(),
            _ => UNUSABLE.into(),
        }
    }
}
