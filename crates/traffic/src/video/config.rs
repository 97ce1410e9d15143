//! Configuration of a video flow in a scenario.

use alloc::string::String;
use alloc::sync::Arc;

use skybraid_units::{Bytes, Duration, Rate, defaults};

use super::clip::EncodedClip;
use super::fragment::{Codec, fragments};
use super::protection::{Duplicate, ProtectionPolicy, RepairConfig};
use super::rate::{Bounds, RateConfig};
use super::rtp;
use crate::TrafficError;

/// Name of the clip that is only a model of frame sizes.
pub const MODEL: &str = "model";
/// Minimum size of an RTP packet that leaves room for a fragment, in bytes.
const MIN_PACKET: u64 = 100;

/// Configuration of a camera and its receiver.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VideoConfig {
    /// Name of the clip: `model`, a built-in clip, or a file.
    #[serde(default = "model")]
    pub clip: String,
    /// Video codec.
    #[serde(default)]
    pub codec: Codec,
    /// Target rate of the encoder.
    pub rate: Rate,
    /// Frames per second, 1 to 240.
    #[serde(default = "fps")]
    pub fps: u32,
    /// Length of the receiver's jitter buffer.
    #[serde(default = "jitter_buffer")]
    pub jitter_buffer: Duration,
    /// Interval between key frames, or length of one round of intra refresh.
    #[serde(default = "key_every")]
    pub key_every: Duration,
    /// Whether the picture is refreshed slice by slice instead of by key frames.
    #[serde(default)]
    pub intra_refresh: bool,
    /// Slices per frame, each a NAL unit of its own; 1 to 64.
    #[serde(default = "one")]
    pub slices: u32,
    /// Maximum size of an RTP packet, header included.
    #[serde(default = "packet")]
    pub packet: Bytes,
    /// Time over which the packets of a frame are spread; zero by default.
    #[serde(default)]
    pub spread: Duration,
    /// Rate control of the encoder. The receiver's reports come back as messages.
    #[serde(default = "constant")]
    pub rate_control: RateConfig,
    /// Start rate of rate control; `rate` by default, which is also the maximum.
    #[serde(default)]
    pub start_rate: Option<Rate>,
    /// Minimum rate of rate control; a tenth of `rate` by default.
    #[serde(default, alias = "least_rate")]
    pub min_rate: Option<Rate>,
    /// Packets that are written twice.
    #[serde(default)]
    pub duplicate: Duplicate,
    /// Forward error correction.
    #[serde(default)]
    pub repair: Option<RepairConfig>,
    /// Age at which packets in the send queue are dropped.
    #[serde(default)]
    pub drop_after: Option<Duration>,
    /// The encoded clip; `None` for the model.
    #[serde(skip)]
    pub encoded: Option<Arc<EncodedClip>>,
    /// Whether packets are carried in a byte stream, each after its length (RFC 4571).
    #[serde(skip)]
    pub framed: bool,
}

defaults! {
    model: String = MODEL.into();
    fps: u32 = 30;
    jitter_buffer: Duration = Duration::from_millis(150);
    key_every: Duration = Duration::from_secs(1);
    one: u32 = 1;
    constant: RateConfig = RateConfig::Constant {};
    packet: Bytes = Bytes::new(1200);
}

impl VideoConfig {
    /// Checks the ranges of all keys.
    pub(crate) fn check(&self) -> Result<(), TrafficError> {
        let above_zero = |key, sound| if sound { Ok(()) } else { Err(TrafficError::Zero { key }) };
        let within = |key, found: u64, min: u64, max: u64| {
            if (min..=max).contains(&found) {
                Ok(())
            } else {
                Err(TrafficError::Outside { key, found, min, max })
            }
        };
        above_zero("rate", self.rate > Rate::ZERO)?;
        within("fps", self.fps.into(), 1, 240)?;
        within("slices", self.slices.into(), 1, 64)?;
        within("packet", self.packet.get(), MIN_PACKET, 65_000)?;
        above_zero("key_every", self.key_every.is_positive())?;
        self.rate_control.check()?;
        self.bounds().check()?;
        self.repair.iter().try_for_each(RepairConfig::check)?;
        above_zero("drop_after", self.drop_after.is_none_or(Duration::is_positive))?;
        above_zero("jitter_buffer", self.jitter_buffer >= Duration::ZERO)
    }

    /// Returns whether frame sizes come from the model instead of a clip.
    pub fn is_model(&self) -> bool {
        self.clip == MODEL
    }

    /// Returns the bounds of rate control.
    pub fn bounds(&self) -> Bounds {
        let tenth = Rate::from_bps((self.rate.as_bps() / 10).max(1));
        let start = self.start_rate.unwrap_or(self.rate);
        Bounds { min: self.min_rate.unwrap_or(tenth.min(start)), start, max: self.rate }
    }

    /// Returns whether rate control changes the encoder's rate.
    pub const fn is_controlled(&self) -> bool {
        !matches!(self.rate_control, RateConfig::Constant {})
    }

    /// Returns whether the receiver sends reports.
    pub fn is_reported(&self) -> bool {
        self.is_controlled() || self.repair.is_some_and(|repair| repair.fails.is_some())
    }

    /// Returns whether redundancy is sent against losses: copies or repair packets.
    pub fn is_protected(&self) -> bool {
        self.duplicate != Duplicate::None || self.repair.is_some()
    }

    /// Returns the interval between frames.
    pub fn interval(&self) -> Duration {
        Duration::from_nanos(1_000_000_000 / i64::from(self.fps.max(1)))
    }

    /// Returns the number of frames of a round of intra refresh, after which a damaged picture is intact again;
    /// `None` with key frames.
    pub fn refresh_frames(&self) -> Option<u32> {
        let frames = self.key_every.as_nanos() / self.interval().as_nanos().max(1);
        self.intra_refresh.then_some(frames.max(1) as u32)
    }

    /// Returns the number of packets of the largest key frame at the full rate, copies and repair packets
    /// included.
    pub fn key_frame_packets(&self) -> u32 {
        let max_payload = self.packet.get().saturating_sub(rtp::HEADER_BYTES as u64);
        let max_payload = u32::try_from(max_payload).unwrap_or(u32::MAX);
        let policy = self.repair.map(ProtectionPolicy::new);
        let copies = if self.duplicate == Duplicate::None { 1 } else { 2 };
        let clip = self.played();
        let frames = (0..clip.len() as u32).filter_map(|number| clip.frame(number));
        let packets = frames.filter(|frame| frame.key).map(|frame| {
            let units = frame.units.iter();
            let packets = units.flat_map(|unit| fragments(self.codec, *unit, max_payload)).count();
            let packets = packets.min(usize::from(u16::MAX) / 2) as u16;
            let repairs = policy.as_ref().map(|policy| policy.protection(packets).count());
            u32::from(packets) + u32::from(repairs.unwrap_or(0))
        });
        copies * packets.max().unwrap_or(1)
    }

    /// Returns the encoded clip, or the model if there is none.
    pub fn played(&self) -> Arc<EncodedClip> {
        self.encoded.clone().unwrap_or_else(|| {
            let (interval, refresh) = (self.interval(), self.intra_refresh);
            let model =
                EncodedClip::model(self.rate, interval, self.key_every, self.slices, refresh);
            Arc::new(model)
        })
    }
}

#[cfg(test)]
impl VideoConfig {
    /// Creates a video of these frames: 30 per second, a key frame each second, packets of 1200 bytes, no
    /// protection.
    pub(super) fn of(frames: alloc::vec::Vec<super::clip::EncodedFrame>) -> Self {
        Self {
            clip: "own".into(),
            codec: Codec::H264,
            rate: Rate::from_mbps(1.0),
            fps: 30,
            jitter_buffer: Duration::from_millis(150),
            key_every: Duration::from_secs(1),
            intra_refresh: false,
            slices: 1,
            packet: Bytes::new(1200),
            spread: Duration::ZERO,
            rate_control: RateConfig::Constant {},
            start_rate: None,
            min_rate: None,
            duplicate: Duplicate::None,
            repair: None,
            drop_after: None,
            encoded: Some(Arc::new(EncodedClip::new(frames).unwrap())),
            framed: false,
        }
    }
}
