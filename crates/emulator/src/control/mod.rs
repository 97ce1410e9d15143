//! Live control over a Unix socket: requests and responses are JSON objects, one per line.
//!
//! | request | what it does |
//! |---|---|
//! | `{"do":"status"}` | reports the state of each path |
//! | `{"do":"watch"}` | the same every 500 ms until the client leaves |
//! | `{"do":"cut","path":"lte"}` | takes a path down |
//! | `{"do":"restore","path":"lte"}` | ends the cut |
//! | `{"do":"set","path":"lte","direction":"uplink","rate":"5Mbit/s","delay":"30ms","loss":"1%"}` | sets what is named; both directions without `direction` |
//! | `{"do":"reset","path":"lte"}` | back to the scenario |
//! | `{"do":"stop"}` | ends the run |
//!
//! A response is `{"ok":true,…}`, or `{"ok":false,"error":"…"}` with the value found and the value expected.
//! An invalid request does not close the connection. A client that does not read is dropped.

pub(crate) mod request;
mod server;

pub use request::{Request, status};
pub use server::Server;
