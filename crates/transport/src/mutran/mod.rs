//! MuTran: control messages are duplicated over all paths, everything else is sent once.
//!
//! For that, control must be told from data where a datagram or a stream may carry either. The
//! [`Classifier`] and the [`StreamClassifier`] do so by the headers of MAVLink frames: they read a
//! frame's first bytes, never its payload, copy nothing and allocate nothing per packet.
//!
//! Source: Lee et al., "MuTran", Sensors 2021, section 3 (classifier); MAVLink developer guide, packet
//! serialization.

pub mod classifier;
pub mod mavlink;
pub mod stream;

pub use classifier::{Classifier, Config};
pub use mavlink::Header;
pub use stream::{Span, StreamClassifier};
