//! Instructions per packet-hop of the simulator, and their ratio to those of a bare loop over the same links.
//!
//! Unlike those of `make counts`, they are of the code as it is released, with link-time optimisation. Each variant
//! runs below valgrind's callgrind in a process of its own.

use std::hint::black_box;
use std::process::ExitCode;

use skybraid_bench::callgrind;
use skybraid_bench::simulated::{SCENARIO, VARIANTS, Variant};
use skybraid_scenario::Scenario;
use skybraid_units::Duration;

/// Virtual time of a run.
const DURATION: Duration = Duration::from_secs(60);
/// Set in a process that runs one variant; its value is the name.
const VARIABLE: &str = "SKYBRAID_HOPS";

fn main() -> ExitCode {
    let done = match std::env::var(VARIABLE) {
        Ok(name) => run(&name),
        Err(_) => report(),
    };
    done.map_or_else(
        |error| {
            eprintln!("hops: {error}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    )
}

/// Runs a variant and prints its packet-hops.
fn run(name: &str) -> Result<(), String> {
    let variant = VARIANTS.iter().find(|variant| variant.name == name).ok_or("no such variant")?;
    let scenario = Scenario::load(SCENARIO, &[]).map_err(|error| error.to_string())?;
    println!("{}", measured_run(variant, &scenario));
    Ok(())
}

/// Callgrind counts between entry and return of this function alone.
#[inline(never)]
fn measured_run(variant: &Variant, scenario: &Scenario) -> u64 {
    (black_box(variant).run)(scenario, DURATION)
}

/// Prints a line for the bare loop, and for each variant whose name has the first argument in it.
fn report() -> Result<(), String> {
    let wanted = std::env::args().nth(1).unwrap_or_default();
    let mut floor = None;
    println!("{:<32} {:>18} {:>10}", "variant", "instructions/hop", "of floor");
    for variant in &VARIANTS {
        if floor.is_some() && !variant.name.contains(&wanted) {
            continue;
        }
        let (hops, totals) = callgrind::count("hops::measured_run", 1, VARIABLE, variant.name)?;
        let hops: f64 = hops.trim().parse().map_err(|error| format!("packet-hops: {error}"))?;
        let cost = totals.iter().sum::<u64>() as f64 / hops;
        let share = *floor.get_or_insert(cost) / cost;
        println!("{:<32} {cost:>18.0} {share:>10.3}", variant.name);
    }
    Ok(())
}
