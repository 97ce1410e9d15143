//! Any text as orbital elements: TLE, or OMM as JSON, CSV, XML or KVN.
#![no_main]

use libfuzzer_sys::fuzz_target;
use skybraid_orbit::read;

fuzz_target!(|input: &str| match read(input) {
    Ok(satellites) => assert!(!satellites.is_empty()),
    Err(error) => assert!(!error.to_string().is_empty()),
});
