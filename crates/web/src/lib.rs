//! The simulator in a web page: a WebAssembly module with a plain C interface, described in README.md.
#![deny(unsafe_code)]

mod answer;
mod flight;

use std::sync::{Mutex, MutexGuard, PoisonError};

use flight::{Flight, Request};
use skybraid_units::Instant;

/// Memory that the caller writes to and reads from, and the last run.
struct State {
    input: Vec<u8>,
    output: Vec<u8>,
    flight: Option<Flight>,
}

static STATE: Mutex<State> =
    Mutex::new(State { input: Vec::new(), output: Vec::new(), flight: None });

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    /// Keeps a text for the caller, and returns its place.
    fn answer(&mut self, text: String) -> *const u8 {
        self.output = text.into_bytes();
        self.output.as_ptr()
    }
}

/// Makes room for a request of `length` bytes, and returns its place.
#[expect(unsafe_code, reason = "the page calls functions by their names")]
#[unsafe(no_mangle)]
pub extern "C" fn input(length: usize) -> *mut u8 {
    let mut state = state();
    state.input = vec![0; length];
    state.input.as_mut_ptr()
}

/// Runs the request, and returns the place of the answer.
#[expect(unsafe_code, reason = "the page calls functions by their names")]
#[unsafe(no_mangle)]
pub extern "C" fn fly() -> *const u8 {
    let mut state = state();
    state.flight = None;
    let request = std::mem::take(&mut state.input);
    let done = serde_json::from_slice::<Request>(&request)
        .map_err(|error| format!("request: {error}"))
        .and_then(|request| Flight::new(&request, &mut report));
    let text = match done {
        Ok(flight) => {
            let text = flight.answer();
            state.flight = Some(flight);
            text
        }
        Err(problem) => serde_json::json!({ "error": problem }).to_string(),
    };
    state.answer(text)
}

/// Returns the place of the next rows of `messages` as CSV; there are none left where their length is 0.
#[expect(unsafe_code, reason = "the page calls functions by their names")]
#[unsafe(no_mangle)]
pub extern "C" fn messages() -> *const u8 {
    let mut state = state();
    let rows = state.flight.as_mut().and_then(Flight::next_rows).unwrap_or_default();
    state.answer(rows)
}

/// Length in bytes of the last answer.
#[expect(unsafe_code, reason = "the page calls functions by their names")]
#[unsafe(no_mangle)]
pub extern "C" fn length() -> usize {
    state().output.len()
}

/// Reports to the page how far the run is.
#[cfg(target_family = "wasm")]
#[expect(unsafe_code, reason = "the page has the function")]
fn report(now: Instant) {
    #[link(wasm_import_module = "page")]
    unsafe extern "C" {
        safe fn progress(seconds: f64);
    }
    progress(now.as_secs_f64());
}

#[cfg(not(target_family = "wasm"))]
const fn report(_: Instant) {}
