//! Something that a program needs of its machine.

/// A requirement of a program, and whether the machine meets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capability {
    /// Name.
    pub name: &'static str,
    /// Whether the machine has it.
    pub present: bool,
    /// Whether the program cannot run without it.
    pub needed: bool,
    /// Short description of the finding.
    pub found: String,
    /// One-line fix if absent.
    pub remedy: Option<String>,
}
