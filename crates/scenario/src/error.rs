//! What can be wrong with a scenario.

use crate::source_line::SourceLine;

/// Why a scenario cannot be used, by what would mend it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScenarioError {
    /// The scenario's text must be corrected.
    #[error("{}{}{problem}{}", place(file, line.as_deref()), prefix(key), excerpt(line.as_deref()))]
    Invalid {
        /// The scenario's file.
        file: String,
        /// The line at fault, where it is known.
        line: Option<Box<SourceLine>>,
        /// The key at fault, for example `path.lte.uplink.rate`; empty for the text as a whole.
        key: String,
        /// What was found and what was expected.
        problem: String,
    },
    /// An override (`--set key=value`) must be corrected.
    #[error("override `{key}`: {problem}")]
    Override {
        /// The key as given.
        key: String,
        /// What was found and what was expected.
        problem: String,
    },
    /// A file cannot be opened or is not text: its name, place or permissions must be corrected.
    #[error("{file}: {problem}{}", suffix(key))]
    Unreadable {
        /// The file.
        file: String,
        /// The key that names it; empty for the scenario itself.
        key: String,
        /// What hinders.
        problem: String,
    },
    /// A trace file must be corrected.
    #[error("{}{problem}{}{}", place(file, line.as_deref()), suffix(key), excerpt(line.as_deref()))]
    Trace {
        /// The trace file.
        file: String,
        /// The line at fault, where there is one.
        line: Option<Box<SourceLine>>,
        /// The key that names the file.
        key: String,
        /// What was found and what was expected.
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
