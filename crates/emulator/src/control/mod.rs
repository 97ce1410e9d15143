//! Live control over a Unix socket: requests and answers are JSON objects, one a line.
//!
//! | request | what it does |
//! |---|---|
//! | `{"do":"status"}` | says how each path stands |
//! | `{"do":"watch"}` | tells it every 500 ms until the client leaves |
//! | `{"do":"cut","path":"lte"}` | takes a path down |
//! | `{"do":"restore","path":"lte"}` | ends the cut |
//! | `{"do":"set","path":"lte","direction":"uplink","rate":"5Mbit/s","delay":"30ms","loss":"1%"}` | sets what is named; both directions without `direction` |
//! | `{"do":"reset","path":"lte"}` | back to the scenario |
//! | `{"do":"stop"}` | ends the run |
//!
//! An answer is `{"ok":true,…}`, or `{"ok":false,"error":"…"}` that says what was found and what was
//! expected. A wrong request does not end the connection. Whoever does not read is dropped.

pub(crate) mod request;
mod server;

pub use request::{Request, status};
pub use server::Server;
