//! How the paths stand.

pub mod clock;
pub mod path;
pub mod probe;
pub mod watch;

pub use clock::{PeerClock, Transit};
pub use path::Path;
pub use probe::{Probe, Report};
