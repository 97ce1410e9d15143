//! The baseline: a line per case, with who changed it last and why.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::Command;

/// Rise above the baseline that fails.
const TOLERANCE: f64 = 0.02;
/// Change below which an update leaves a line as it is.
const NEGLIGIBLE: f64 = 0.001;

const HEADER: &str = "\
# Instructions and allocations of fixed cases: `make counts` fails where one is more than 2 % above its line.
# `make counts-update REASON=\"…\"` rewrites the lines that changed. Cases: benches/src/cases.rs.
";

/// Counts of a case.
pub struct Counted {
    /// Name of the case.
    pub name: &'static str,
    /// Instructions, if valgrind has counted them.
    pub instructions: Option<u64>,
    /// Allocations and changes of size.
    pub allocations: u64,
}

/// A line of the file.
struct Line {
    name: String,
    instructions: u64,
    allocations: u64,
    /// Commit and reason of the last change.
    why: String,
}

/// The file.
pub struct Baseline {
    /// Compiler whose code was counted.
    pub compiler: String,
    lines: Vec<Line>,
}

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/counts/baseline.txt")
}

/// Returns the version of the compiler and the processor's architecture.
pub fn compiler() -> String {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let printed = Command::new(rustc).arg("--version").output();
    let version = printed.map_or_else(
        |_| String::new(),
        |out| String::from_utf8_lossy(&out.stdout).trim().to_string(),
    );
    format!("{version}, {}", std::env::consts::ARCH)
}

/// Returns the ratio of a count to its baseline, minus one.
fn rise(now: u64, before: u64) -> f64 {
    if now == before { 0.0 } else { now as f64 / before as f64 - 1.0 }
}

impl Baseline {
    /// Reads the file; an absent one is empty.
    pub fn read() -> Result<Self, String> {
        let text = match std::fs::read_to_string(path()) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            read => read.map_err(|error| format!("{}: {error}", path().display()))?,
        };
        let mut baseline = Self { compiler: String::new(), lines: Vec::new() };
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let fields: Vec<_> = line.splitn(4, '|').map(str::trim).collect();
            match fields[..] {
                ["compiler", compiler] => baseline.compiler = compiler.into(),
                ["case", ..] => {}
                [name, instructions, allocations, why] => {
                    let number = |text: &str| {
                        text.replace(',', "").parse().map_err(|_| format!("baseline: {line}"))
                    };
                    baseline.lines.push(Line {
                        name: name.into(),
                        instructions: number(instructions)?,
                        allocations: number(allocations)?,
                        why: why.into(),
                    });
                }
                _ => return Err(format!("baseline: {line}")),
            }
        }
        Ok(baseline)
    }

    /// True if the baseline was counted with this compiler.
    pub fn is_of_this_compiler(&self) -> bool {
        self.compiler == compiler()
    }

    fn line(&self, name: &str) -> Option<&Line> {
        self.lines.iter().find(|line| line.name == name)
    }

    /// Takes the counts of the cases that have changed.
    pub fn update(&mut self, counted: &[Counted], reason: &str) -> Result<(), String> {
        let user = Command::new("git").args(["config", "user.name"]).output();
        let user = user.map_or_else(
            |_| String::new(),
            |out| String::from_utf8_lossy(&out.stdout).trim().to_string(),
        );
        let why = if user.is_empty() { reason.into() } else { format!("{user}: {reason}") };
        let all = compiler() != self.compiler;
        let mut lines = Vec::new();
        for Counted { name, instructions, allocations } in counted {
            let instructions = instructions.ok_or("instructions were not counted")?;
            let unchanged = self.line(name).filter(|line| {
                !all && rise(instructions, line.instructions).abs() < NEGLIGIBLE
                    && *allocations == line.allocations
            });
            lines.push(match unchanged {
                Some(Line { instructions, allocations, why, .. }) => Line {
                    name: (*name).into(),
                    instructions: *instructions,
                    allocations: *allocations,
                    why: why.clone(),
                },
                None => Line {
                    name: (*name).into(),
                    instructions,
                    allocations: *allocations,
                    why: why.clone(),
                },
            });
        }
        (self.lines, self.compiler) = (lines, compiler());
        Ok(())
    }

    /// Writes the file.
    pub fn write(&self) -> Result<(), String> {
        let mut text = format!("{HEADER}compiler | {}\n", self.compiler);
        let head = ["case", "instructions", "allocations", "who changed it, why"];
        let rows = self.lines.iter().map(|line| {
            let Line { name, instructions, allocations, why } = line;
            [name.clone(), grouped(*instructions), grouped(*allocations), why.clone()]
        });
        for [name, instructions, allocations, why] in
            std::iter::once(head.map(String::from)).chain(rows)
        {
            writeln!(text, "{name:<20} | {instructions:>16} | {allocations:>11} | {why}")
                .map_err(|error| error.to_string())?;
        }
        std::fs::write(path(), text).map_err(|error| error.to_string())
    }

    /// Prints the counts next to the baseline's. True if one has risen by more than the tolerance.
    pub fn report(&self, counted: &[Counted]) -> bool {
        let comparable = self.is_of_this_compiler();
        let mut failed = false;
        println!("{:<20} {:>16} {:>9} {:>12} {:>9}", "case", "instructions", "", "allocations", "");
        for Counted { name, instructions, allocations } in counted {
            let Some(line) = self.line(name) else {
                println!("{name:<20} has no line in {}", path().display());
                failed = true;
                continue;
            };
            let more = rise(*allocations, line.allocations);
            let slower = instructions.map_or(0.0, |count| rise(count, line.instructions));
            println!(
                "{name:<20} {:>16} {:>+8.2}% {:>12} {:>+8.2}%",
                instructions.map_or("-".into(), grouped),
                100.0 * slower,
                grouped(*allocations),
                100.0 * more,
            );
            let report = |what: &str, now: u64, before: u64| {
                eprintln!(
                    "{name}: {} {what}, baseline {} ({}): above the 2 % that may be",
                    grouped(now),
                    grouped(before),
                    line.why
                );
            };
            if more > TOLERANCE {
                report("allocations", *allocations, line.allocations);
                failed = true;
            }
            if let Some(count) = instructions.filter(|_| comparable && slower > TOLERANCE) {
                report("instructions", count, line.instructions);
                failed = true;
            }
            if comparable && (more < -TOLERANCE || slower < -TOLERANCE) {
                println!("  notice: below the baseline; `make counts-update` holds the gain");
            }
        }
        failed
    }
}

/// Returns a number with commas between thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
