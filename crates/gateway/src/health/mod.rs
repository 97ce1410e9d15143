//! Health of the paths.

pub mod clock;
pub mod mtu;
pub mod path;
pub mod probe;
pub mod queue;
pub mod seen;
pub mod validation;
pub mod watch;

pub use clock::{PeerClock, Transit};
pub use mtu::{MtuChange, MtuSearch, MtuState};
pub use path::Path;
pub use probe::{Probe, Report};
pub use queue::PathQueue;
pub use seen::ProbesSeen;
pub use validation::Validation;
