//! Decisions between 64 paths cost at most 4 × as many instructions as between 8.
//!
//! Instructions are counted by valgrind's callgrind, all schedulers in one process for each number of paths. Without
//! valgrind nothing is compared, and a notice says so.

use std::process::ExitCode;

use skybraid_bench::algorithms::{Decisions, Subject};
use skybraid_bench::callgrind;
use skybraid_transport::scheduler::SchedulerConfig;

/// Schedulers that keep an order of the paths or look at most paths but briefly, so that a decision grows little with
/// their number.
const NAMES: [&str; 4] = ["cheapest_path", "adaptive_cheapest_path", "otias", "handover"];
/// Paths of a connection.
const PATHS: [usize; 2] = [8, 64];
/// Maximum ratio of the instructions.
const MAX_RATIO: f64 = 4.0;
/// Decisions that are counted, after as many that are not.
const DECISIONS: usize = 2_048;
/// Set in a process that makes the decisions; its value is the number of paths.
const VARIABLE: &str = "SKYBRAID_SCALING";

fn main() -> ExitCode {
    let done = match std::env::var(VARIABLE) {
        Ok(paths) => decide(&paths),
        Err(_) => check(),
    };
    done.unwrap_or_else(|error| {
        eprintln!("scaling: {error}");
        ExitCode::FAILURE
    })
}

/// Makes the decisions of each scheduler.
fn decide(paths: &str) -> Result<ExitCode, String> {
    let paths = paths.parse().map_err(|error| format!("{VARIABLE}: {error}"))?;
    for name in NAMES {
        let config = SchedulerConfig::by_name(name).ok_or("no scheduler of this name")?;
        let mut decisions = Decisions::new(&config, paths);
        decisions.round(DECISIONS);
        measured_decisions(&mut decisions);
    }
    Ok(ExitCode::SUCCESS)
}

/// Callgrind counts between entry and return of this function alone, and writes a file at each return.
#[inline(never)]
fn measured_decisions(decisions: &mut Decisions) {
    std::hint::black_box(decisions).round(DECISIONS);
}

/// Compares the instructions for both numbers of paths.
fn check() -> Result<ExitCode, String> {
    if !callgrind::is_installed() {
        println!("notice: valgrind is not installed, so decisions are not counted");
        return Ok(ExitCode::SUCCESS);
    }
    let [few, many] = PATHS.map(count);
    let mut failed = false;
    for ((name, few), many) in NAMES.iter().zip(few?).zip(many?) {
        let ratio = many / few;
        let verdict = if ratio > MAX_RATIO { "above" } else { "within" };
        failed |= ratio > MAX_RATIO;
        println!(
            "{name:<24} {few:>8.0} {many:>8.0} instructions with {PATHS:?} paths: {ratio:.1}, {verdict} {MAX_RATIO}"
        );
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Counts the instructions per decision of each scheduler.
fn count(paths: usize) -> Result<Vec<f64>, String> {
    let (_, totals) =
        callgrind::count("scaling::measured_decisions", NAMES.len(), VARIABLE, &paths.to_string())?;
    Ok(totals.into_iter().map(|total| total as f64 / DECISIONS as f64).collect())
}
