//! Speed of the simulator, as multiples of a bare event loop over the same links; whether its
//! steady state allocates; and what the algorithms cost by themselves.
//!
//! All times come from one run on one core, best of several rounds, the variants in turn, so that
//! the machine's moods hit all of them alike.

use std::process::ExitCode;

use skybraid_bench::simulated::{SCENARIO, VARIANTS};
use skybraid_bench::{algorithms, allocations, coding, messages, now};
use skybraid_scenario::Scenario;
use skybraid_units::Duration;

/// Rounds; the best of each variant counts.
const ROUNDS: usize = 5;

/// Virtual time of a run.
const DURATION: Duration = Duration::from_secs(600);

/// Runs what has the first argument in its name; all without one.
fn main() -> ExitCode {
    let scenario = match Scenario::load(SCENARIO, &[]) {
        Ok(scenario) => scenario,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    let wanted = std::env::args().nth(1).unwrap_or_default();
    let slow = speed(&scenario, &wanted);
    let allocates = allocations::report(&scenario, &wanted);
    algorithms::report(&wanted);
    let deliberates = messages::report(&wanted);
    let slow = coding::report(&wanted) || slow;
    if slow {
        eprintln!("a variant is below its target");
    }
    if allocates {
        eprintln!("a variant allocates more often than it may");
    }
    if deliberates {
        eprintln!("a scheduler takes longer for a message than it may");
    }
    if slow || allocates || deliberates { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Prints a line for each variant whose name holds `wanted`. True if one is below its target.
fn speed(scenario: &Scenario, wanted: &str) -> bool {
    let mut best = [0.0_f64; VARIANTS.len()];
    for _ in 0..ROUNDS {
        for (variant, best) in VARIANTS.iter().zip(&mut best) {
            if !variant.name.contains(wanted) {
                continue;
            }
            let start = now();
            let hops = (variant.run)(scenario, DURATION);
            *best = best.max(hops as f64 / start.elapsed().as_secs_f64());
        }
    }
    println!("{:<32} {:>14} {:>10} {:>8}", "variant", "packet-hops/s", "of floor", "target");
    let mut failed = false;
    for (variant, rate) in VARIANTS.iter().zip(best) {
        if rate == 0.0 {
            continue;
        }
        let share = rate / best[0];
        let target = variant.target.map_or_else(String::new, |target| format!("{target:.2}"));
        println!("{:<32} {rate:>14.0} {share:>10.2} {target:>8}", variant.name);
        failed |= variant.target.is_some_and(|target| share < target);
    }
    failed
}
