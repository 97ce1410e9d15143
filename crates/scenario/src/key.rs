//! Key paths to values in a scenario, such as `path.lte.uplink.rate` or `event[0].at`.

use std::fmt;

use crate::wording::DATE;

/// Step of a [`KeyPath`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Key of a table.
    Key(String),
    /// Index into a list, from zero.
    Index(usize),
}

/// Path to a value in a scenario.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeyPath(Vec<Step>);

impl KeyPath {
    /// Creates a path through tables from keys joined by dots; a key must not contain a dot.
    pub fn dotted(keys: &str) -> Self {
        Self::default().below(keys)
    }

    /// Returns this path extended by `keys`, which are joined by dots and may be empty.
    pub fn below(&self, keys: &str) -> Self {
        let mut longer = self.clone();
        let keys = keys.split('.').filter(|key| !key.is_empty());
        longer.0.extend(keys.map(|key| Step::Key(key.to_string())));
        longer
    }

    /// Returns this path extended by the key `name`, which may contain any character.
    pub fn key(&self, name: &str) -> Self {
        let mut longer = self.clone();
        longer.push(Step::Key(name.to_string()));
        longer
    }

    /// Returns this path extended by an index into a list.
    pub fn index(&self, index: usize) -> Self {
        let mut longer = self.clone();
        longer.push(Step::Index(index));
        longer
    }

    /// Appends a step.
    pub fn push(&mut self, step: Step) {
        self.0.push(step);
    }

    /// Returns the steps from the root.
    pub fn steps(&self) -> &[Step] {
        &self.0
    }

    /// Returns the last step if it is a key.
    pub fn last_key(&self) -> Option<&str> {
        match self.0.last() {
            Some(Step::Key(name)) => Some(name),
            _ => None,
        }
    }

    /// Returns the last step if it is a key, else the empty string.
    pub fn last_key_or_empty(&self) -> &str {
        self.last_key().unwrap_or_default()
    }

    /// Returns this path without steps into one direction of a link.
    pub fn without_direction(&self) -> Self {
        let directions = ["uplink", "downlink"].map(|name| Step::Key(name.to_string()));
        Self(self.0.iter().filter(|step| !directions.contains(step)).cloned().collect())
    }

    /// Returns the number of leading steps shared with `other`.
    pub fn shared_steps(&self, other: &Self) -> usize {
        self.0.iter().zip(&other.0).take_while(|(own, other)| own == other).count()
    }
}

impl From<&serde_path_to_error::Path> for KeyPath {
    fn from(path: &serde_path_to_error::Path) -> Self {
        use serde_path_to_error::Segment;
        let step = |segment: &Segment| match segment {
            Segment::Seq { index } => Some(Step::Index(*index)),
            Segment::Map { key } => Some(Step::Key(key.clone())),
            Segment::Enum { variant } => Some(Step::Key(variant.clone())),
            Segment::Unknown => None,
        };
        let steps = path.iter().filter_map(step);
        Self(steps.filter(|step| *step != Step::Key(DATE.to_string())).collect())
    }
}

impl fmt::Display for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, step) in self.0.iter().enumerate() {
            match step {
                Step::Index(index) => write!(f, "[{index}]")?,
                Step::Key(name) => {
                    if place > 0 {
                        f.write_str(".")?;
                    }
                    if is_name(name) {
                        f.write_str(name)?;
                    } else {
                        write!(f, "{name:?}")?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Returns whether `name` consists of letters, digits, `-` and `_`, and is not empty.
pub(crate) fn is_name(name: &str) -> bool {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
    !name.is_empty() && name.chars().all(fits)
}
