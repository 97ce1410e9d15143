//! `skybraid-node doctor`: system requirements of a gateway.

use std::fmt::Write;

use skybraid_node::{ask, capabilities};

use super::status::DEFAULT_ADDRESS;

/// Returns the state of all requirements with remedies, and whether a gateway can run.
pub fn doctor() -> (String, bool) {
    let found = capabilities();
    let mut text = String::new();
    for capability in &found {
        let sign = match (capability.present, capability.needed) {
            (true, _) => "ok     ",
            (false, true) => "MISSING",
            (false, false) => "missing",
        };
        // Writing to a string never fails.
        let _ = writeln!(text, "{sign}  {:<22} {}", capability.name, capability.found);
        if let Some(remedy) = &capability.remedy {
            let _ = writeln!(text, "         {:<22} fix: {remedy}", "");
        }
    }
    let lacking: Vec<&str> = found
        .iter()
        .filter(|entry| !entry.present && entry.needed)
        .map(|entry| entry.name)
        .collect();
    let _ = match lacking.as_slice() {
        [] => writeln!(text, "\nThis machine can run a gateway."),
        names => {
            writeln!(text, "\nThis machine cannot run a gateway; it lacks: {}.", names.join(", "))
        }
    };
    let _ = match ask(DEFAULT_ADDRESS, "/status.json") {
        Ok(_) => writeln!(text, "A gateway runs here; it answers at {DEFAULT_ADDRESS}."),
        Err(_) => writeln!(text, "No gateway answers at {DEFAULT_ADDRESS}."),
    };
    (text, lacking.is_empty())
}
