//! MuTran: control messages are duplicated over all paths, everything else is sent once.
//!
//! To that end, control must be distinguished from data if a datagram or a stream may carry either.
//! The [`Classifier`] and the [`StreamClassifier`] read the headers of MAVLink frames: only the
//! first bytes of a frame, never its payload. They copy nothing and allocate nothing per packet.
//!
//! ```
//! use skybraid_transport::Class;
//! use skybraid_transport::mutran::{Classifier, StreamClassifier};
//!
//! // A heartbeat of MAVLink 1 after the last line of a boot loader.
//! let heartbeat = [254, 9, 78, 1, 1, 0, 0, 0, 0, 0, 2, 3, 81, 4, 3, 28, 127];
//! assert_eq!(Classifier::default().classify(&heartbeat), Class::Control);
//!
//! let mut stream = StreamClassifier::new(Classifier::default());
//! let mut spans = Vec::new();
//! stream.feed(b"boot: ok\n", &mut |span| spans.push((span.start, span.end, span.class)));
//! stream.feed(&heartbeat, &mut |span| spans.push((span.start, span.end, span.class)));
//! assert_eq!(spans, [(9, 26, Class::Control)]);
//! ```
//!
//! Source: Lee et al., "MuTran", Sensors 2021, section 3 (classifier); MAVLink developer guide,
//! packet serialization.

pub mod classifier;
pub mod mavlink;
pub mod stream;

pub use classifier::{Classifier, Config};
pub use mavlink::Header;
pub use stream::{Span, StreamClassifier};
