//! Live video: a camera's frames as RTP packets, how fast they come, what repairs them, and what the other end
//! can show of them.

pub mod camera;
pub mod clip;
pub mod config;
pub mod depacketise;
pub mod framing;
pub mod keys;
mod octets;
pub mod packetise;
pub mod protect;
pub mod rate;
pub mod repair;
pub mod rtcp;
pub mod rtp;
pub mod screen;

pub use camera::{Camera, Part};
pub use clip::{ClipError, EncodedClip, EncodedFrame};
pub use config::VideoConfig;
pub use packetise::Codec;
pub use screen::{Frame, Screen};
