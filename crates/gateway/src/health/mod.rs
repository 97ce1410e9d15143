//! Health of the paths.

pub mod clock;
pub mod mtu;
pub mod path;
pub mod probe;
pub mod queue;
pub mod reports;
pub mod seen;
pub mod timing;
pub mod traffic;
pub mod validation;
pub mod watch;

pub use clock::{PeerClock, Transit};
pub use mtu::{MtuChange, MtuSearch, MtuState};
pub use path::Path;
pub use probe::{Probe, Report};
pub use queue::PathQueue;
pub use reports::PathReports;
pub use seen::ProbesSeen;
pub use timing::Timing;
pub use traffic::Traffic;
pub use validation::Validation;
