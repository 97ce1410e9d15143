//! Live video: camera and packetiser, rate control, forward error correction, RTP and RTCP, and the receiver's
//! jitter buffer and screen.

mod byte_reader;
pub mod camera;
pub mod clip;
pub mod config;
pub mod depacketiser;
pub mod fragment;
pub mod framing;
pub mod key_frames;
pub mod protection;
pub mod rate;
pub mod repair;
pub mod rtcp;
pub mod rtp;
pub mod screen;

pub use camera::{Camera, Part};
pub use clip::{ClipError, EncodedClip, EncodedFrame};
pub use config::VideoConfig;
pub use fragment::Codec;
pub use screen::{Frame, Screen};
