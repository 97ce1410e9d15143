//! Instructions of a function of this program, counted by valgrind's callgrind in a process of its own.

use std::fmt::Display;
use std::path::Path;
use std::process::Command;

/// True if valgrind is installed.
pub fn is_installed() -> bool {
    Command::new("valgrind").arg("--version").output().is_ok()
}

/// Runs this program under callgrind with an environment variable, which tells it what to do.
///
/// Returns what it has printed, and the instructions between entry and return of `function`, a whole path, for each of
/// its `calls`.
///
/// # Errors
/// The program fails, or callgrind has counted nothing; the text begins with the value of the variable.
pub fn count(
    function: &str,
    calls: usize,
    variable: &str,
    value: &str,
) -> Result<(String, Vec<u64>), String> {
    let failed = |error: &dyn Display| format!("{value}: {error}");
    let own = std::env::current_exe().map_err(|error| failed(&error))?;
    let file = format!("callgrind.{}.{function}.{value}", std::process::id());
    let file = std::env::temp_dir().join(file);
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--collect-atstart=no"])
        .arg(format!("--toggle-collect={function}"))
        .arg(format!("--dump-after={function}"))
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(&own)
        .env(variable, value)
        .output()
        .map_err(|error| failed(&error))?;
    std::fs::remove_file(&file).ok();
    if !output.status.success() {
        return Err(failed(&String::from_utf8_lossy(&output.stderr)));
    }
    let part = |call: usize| format!("{}.{call}", file.display());
    let totals = (1..=calls).map(|call| total(part(call).as_ref()).map_err(|error| failed(&error)));
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok((printed, totals.collect::<Result<_, _>>()?))
}

/// Reads the instructions that a file of callgrind reports, and removes it.
fn total(file: &Path) -> Result<u64, String> {
    let text = std::fs::read_to_string(file).map_err(|error| error.to_string())?;
    std::fs::remove_file(file).ok();
    let total = text.lines().find_map(|line| line.strip_prefix("totals: "));
    let total = total.and_then(|total| total.trim().parse().ok()).filter(|total| *total > 0);
    total.ok_or_else(|| "callgrind has counted nothing".into())
}
