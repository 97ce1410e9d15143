//! The way to a value in a scenario, such as `path.lte.uplink.rate` or `event[0].at`.

use std::fmt;

use crate::wording::DATE;

/// One step of a [`KeyPath`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Into a table.
    Key(String),
    /// Into a list, from zero.
    Index(usize),
}

/// The way to a value in a scenario.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeyPath(Vec<Step>);

impl KeyPath {
    /// A way through tables, with dots between the keys; keys must not hold dots themselves.
    pub fn dotted(keys: &str) -> Self {
        Self::default().below(keys)
    }

    /// This way and then `keys`, with dots between them; this way itself for none.
    pub fn below(&self, keys: &str) -> Self {
        let mut longer = self.clone();
        let keys = keys.split('.').filter(|key| !key.is_empty());
        longer.0.extend(keys.map(|key| Step::Key(key.to_string())));
        longer
    }

    /// This way and then the key `name`, which may hold any character.
    pub fn key(&self, name: &str) -> Self {
        let mut longer = self.clone();
        longer.push(Step::Key(name.to_string()));
        longer
    }

    /// This way and then the entry `index` of a list.
    pub fn index(&self, index: usize) -> Self {
        let mut longer = self.clone();
        longer.push(Step::Index(index));
        longer
    }

    /// Adds a step.
    pub fn push(&mut self, step: Step) {
        self.0.push(step);
    }

    /// The steps from the top.
    pub fn steps(&self) -> &[Step] {
        &self.0
    }

    /// The last key, if the way ends with one.
    pub fn last_key(&self) -> Option<&str> {
        match self.0.last() {
            Some(Step::Key(name)) => Some(name),
            _ => None,
        }
    }

    /// The last key, or nothing where the way does not end with one.
    pub fn last_step(&self) -> &str {
        self.last_key().unwrap_or_default()
    }

    /// How many steps this way and `other` have in common.
    pub fn shared(&self, other: &Self) -> usize {
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

/// Whether `name` consists of letters, digits, `-` and `_`, and is not empty.
pub(crate) fn is_name(name: &str) -> bool {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
    !name.is_empty() && name.chars().all(fits)
}
