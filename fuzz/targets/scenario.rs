//! Any text as a scenario, with an override after a NUL: `text NUL key NUL value`. What is accepted
//! must read its own effective text again, as the same scenario. The same text is read as a gateway's file.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use skybraid_scenario::GatewayFile;
use skybraid_scenario::Scenario;

fuzz_target!(|input: &str| {
    let file = Path::new("absent/x.toml");
    let mut parts = input.splitn(3, '\0');
    let text = parts.next().unwrap_or_default();
    let overrides: Vec<(String, String)> = match (parts.next(), parts.next()) {
        (Some(key), Some(value)) => vec![(key.to_string(), value.to_string())],
        _ => Vec::new(),
    };
    if let Err(error) = GatewayFile::parse(text, file) {
        assert!(!error.to_string().is_empty());
    }
    match Scenario::parse(text, file, &overrides) {
        Ok(scenario) => match Scenario::parse(scenario.toml(), file, &[]) {
            Ok(again) => assert!(again == scenario, "reads differently: {}", scenario.toml()),
            Err(error) => panic!("does not read its own text: {error}\n{}", scenario.toml()),
        },
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
