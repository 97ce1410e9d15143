//! Counts the instructions and allocations of [`skybraid_bench::cases`] and compares them with `baseline.txt`.
//!
//! `make counts` checks; `make counts-update REASON="…"` rewrites the lines that changed. Instructions are counted by
//! valgrind's callgrind, each case in a process of its own. They depend on the compiler: with another one than the
//! baseline's, or without valgrind, only allocations are compared, and a notice says so.

mod baseline;

use std::process::{Command, ExitCode};

use baseline::{Baseline, Counted};
use skybraid_bench::callgrind;
use skybraid_bench::cases::{CASES, Case, Work};
use skybraid_bench::counting::allocations;

/// Set in a process that counts one case; its value is the name.
const CASE: &str = "SKYBRAID_COUNT";
/// Environment variable with the reason for rewriting the baseline.
const REASON: &str = "SKYBRAID_COUNTS_UPDATE";

fn main() -> ExitCode {
    let done = match std::env::var(CASE) {
        Ok(name) => count(&name),
        Err(_) => check(),
    };
    done.unwrap_or_else(|error| {
        eprintln!("counts: {error}");
        ExitCode::FAILURE
    })
}

/// Runs a case and prints its allocations.
fn count(name: &str) -> Result<ExitCode, String> {
    let case = CASES.iter().find(|case| case.name == name).ok_or("no case of this name")?;
    let work = (case.prepare)().map_err(|error| error.to_string())?;
    let before = allocations();
    measured_work(work);
    println!("{}", allocations() - before);
    Ok(ExitCode::SUCCESS)
}

/// Callgrind counts between entry and return of this function alone.
#[inline(never)]
fn measured_work(work: Work) {
    std::hint::black_box(work)();
}

/// Counts all cases and compares them with the baseline, or rewrites it.
fn check() -> Result<ExitCode, String> {
    let valgrind = callgrind::is_installed();
    let counted = count_all(valgrind)?;
    let mut baseline = Baseline::read()?;
    if let Ok(reason) = std::env::var(REASON) {
        if reason.trim().is_empty() {
            return Err("a new baseline needs REASON=\"…\"".into());
        }
        if !valgrind {
            return Err("a new baseline needs valgrind (apt-get install valgrind)".into());
        }
        baseline.update(&counted, reason.trim())?;
        baseline.write()?;
    } else if !valgrind {
        println!("notice: valgrind is not installed, so instructions are not compared");
    } else if !baseline.is_of_this_compiler() {
        println!(
            "notice: the baseline is of {}, here is {}: instructions are not compared",
            baseline.compiler,
            baseline::compiler()
        );
    }
    let failed = baseline.report(&counted);
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Counts the cases, as many at a time as there are processors.
fn count_all(valgrind: bool) -> Result<Vec<Counted>, String> {
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let next = std::sync::atomic::AtomicUsize::new(0);
    let counted = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    let Some(case) = CASES.get(index) else { return };
                    let one = count_in_process(case, valgrind);
                    if let Ok(mut counted) = counted.lock() {
                        counted.push((index, one));
                    }
                }
            });
        }
    });
    let mut counted = counted.into_inner().map_err(|error| error.to_string())?;
    counted.sort_by_key(|(index, _)| *index);
    counted.into_iter().map(|(_, one)| one).collect()
}

/// Counts a case in a process of its own.
fn count_in_process(case: &Case, valgrind: bool) -> Result<Counted, String> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", case.name);
    let (printed, instructions) = if valgrind {
        let (printed, totals) = callgrind::count("counts::measured_work", 1, CASE, case.name)?;
        (printed, totals.first().copied())
    } else {
        let own = std::env::current_exe().map_err(|error| failed(&error))?;
        let output = Command::new(own).env(CASE, case.name).output();
        let output = output.map_err(|error| failed(&error))?;
        if !output.status.success() {
            return Err(failed(&String::from_utf8_lossy(&output.stderr)));
        }
        (String::from_utf8_lossy(&output.stdout).into_owned(), None)
    };
    let allocations = printed.trim().parse().map_err(|error| failed(&error))?;
    Ok(Counted { name: case.name, instructions, allocations })
}
