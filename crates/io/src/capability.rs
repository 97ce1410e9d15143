//! Something that a program needs of its machine.

/// A requirement of a program, and whether the machine meets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capability {
    /// Its name.
    pub name: &'static str,
    /// Whether the machine has it.
    pub present: bool,
    /// Whether the program cannot run without it.
    pub needed: bool,
    /// What was found, in a few words.
    pub found: String,
    /// What fixes its absence, in a line.
    pub remedy: Option<String>,
}
