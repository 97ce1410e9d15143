//! Live video: camera and packetiser, rate control, forward error correction, RTP and RTCP, the jitter buffer of
//! a receiver, and a model of it with its screen.

mod byte_reader;
pub mod camera;
pub mod clip;
pub mod config;
pub mod depacketiser;
pub mod fragment;
pub mod framing;
pub mod jitter_buffer;
pub mod key_frames;
pub mod protection;
pub mod rate;
pub mod repair;
pub mod rtcp;
pub mod rtp;
pub mod screen;
mod transit;
pub mod units;

pub use camera::{Camera, Part};
pub use clip::{ClipError, EncodedClip, EncodedFrame};
pub use config::VideoConfig;
pub use fragment::Codec;
pub use jitter_buffer::{JitterBuffer, ReceivedFrame};
pub use screen::{Frame, Screen};
