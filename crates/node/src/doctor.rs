//! `skybraid-node doctor`: what this machine lets a gateway do.

use std::fmt::Write;

use skybraid_runtime::gateway::capabilities;

/// What there is and what mends the rest; whether a gateway can run at all.
pub fn doctor() -> (String, bool) {
    let found = capabilities();
    let mut text = String::new();
    for one in &found {
        let sign = match (one.present, one.needed) {
            (true, _) => "ok     ",
            (false, true) => "MISSING",
            (false, false) => "missing",
        };
        // Writing to a string never fails.
        let _ = writeln!(text, "{sign}  {:<22} {}", one.name, one.found);
        if let Some(remedy) = &one.remedy {
            let _ = writeln!(text, "         {:<22} mend it: {remedy}", "");
        }
    }
    let lacking: Vec<&str> =
        found.iter().filter(|one| !one.present && one.needed).map(|one| one.name).collect();
    let _ = match lacking.as_slice() {
        [] => writeln!(text, "\nA gateway runs here."),
        names => writeln!(text, "\nA gateway lacks: {}.", names.join(", ")),
    };
    (text, lacking.is_empty())
}
