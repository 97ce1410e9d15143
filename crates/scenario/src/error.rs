//! Errors in scenarios.

use crate::source_line::SourceLine;

/// Error in a scenario, by the place of its correction.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScenarioError {
    /// The text of the scenario is invalid.
    #[error("{}{}{problem}{}", place(file, line.as_deref()), prefix(key), excerpt(line.as_deref()))]
    Invalid {
        /// File of the scenario.
        file: String,
        /// Line of the error, where known.
        line: Option<Box<SourceLine>>,
        /// Key of the error, for example `path.lte.uplink.rate`; empty for the text as a whole.
        key: String,
        /// Values found and expected.
        problem: String,
    },
    /// An override (`--set key=value`) is invalid.
    #[error("override `{key}`: {problem}")]
    Override {
        /// Key as given.
        key: String,
        /// Values found and expected.
        problem: String,
    },
    /// A file cannot be opened or is not text.
    #[error("{file}: {problem}{}", suffix(key))]
    Unreadable {
        /// File name.
        file: String,
        /// Key that names the file; empty for the scenario itself.
        key: String,
        /// Reason.
        problem: String,
    },
    /// A trace file is invalid.
    #[error("{}{problem}{}{}", place(file, line.as_deref()), suffix(key), excerpt(line.as_deref()))]
    Trace {
        /// File name.
        file: String,
        /// Line of the error, if there is one.
        line: Option<Box<SourceLine>>,
        /// Key that names the file.
        key: String,
        /// Values found and expected.
        problem: String,
    },
}

fn place(file: &str, line: Option<&SourceLine>) -> String {
    match line {
        Some(line) => format!("{file}:{}: ", line.position()),
        None => format!("{file}: "),
    }
}

fn excerpt(line: Option<&SourceLine>) -> String {
    line.map(SourceLine::excerpt).unwrap_or_default()
}

fn prefix(key: &str) -> String {
    if key.is_empty() { String::new() } else { format!("{key}: ") }
}

fn suffix(key: &str) -> String {
    if key.is_empty() { String::new() } else { format!(" (named by {key})") }
}
