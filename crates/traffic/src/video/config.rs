//! A video flow, as the scenario says it.

use alloc::string::String;
use alloc::sync::Arc;

use skybraid_units::{Bytes, Duration, Rate};

use super::clip::EncodedClip;
use super::packetise::{Codec, fragments};
use super::protect::{Duplicate, Protector, RepairConfig};
use super::rate::{Bounds, RateConfig};
use super::rtp;
use crate::TrafficError;

/// The name of the clip that is only a model of frame sizes.
pub const MODEL: &str = "model";
/// The least RTP packet that leaves room for a fragment.
const LEAST_PACKET: u64 = 100;

/// What a camera sends.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VideoConfig {
    /// The clip: `model`, the name of a built-in one, or a file.
    #[serde(default = "model")]
    pub clip: String,
    /// How it is encoded.
    #[serde(default)]
    pub codec: Codec,
    /// What the encoder aims at.
    pub rate: Rate,
    /// Frames a second, 1 to 240.
    #[serde(default = "fps")]
    pub fps: u32,
    /// How long the receiver keeps what came soonest, to even out what comes later.
    #[serde(default = "jitter_buffer")]
    pub jitter_buffer: Duration,
    /// From one key frame to the next, or of one round of intra refresh.
    #[serde(default = "key_every")]
    pub key_every: Duration,
    /// Pictures are renewed piece by piece, not by key frames.
    #[serde(default)]
    pub intra_refresh: bool,
    /// Slices a frame, each a NAL unit of its own; 1 to 64.
    #[serde(default = "one")]
    pub slices: u32,
    /// The largest RTP packet, header included.
    #[serde(default = "packet")]
    pub packet: Bytes,
    /// Over what time the packets of a frame leave; at once unless said.
    #[serde(default)]
    pub spread: Duration,
    /// What makes the encoder change its rate; its reports come back as messages.
    #[serde(default = "constant")]
    pub rate_control: RateConfig,
    /// Where rate control begins; `rate` unless said, which is also the most.
    #[serde(default)]
    pub start_rate: Option<Rate>,
    /// Below which rate control does not go; a tenth of `rate` unless said.
    #[serde(default)]
    pub least_rate: Option<Rate>,
    /// Which packets are written twice.
    #[serde(default)]
    pub duplicate: Duplicate,
    /// Repair packets.
    #[serde(default)]
    pub repair: Option<RepairConfig>,
    /// The age at which packets that still wait in the sender are dropped.
    #[serde(default)]
    pub drop_after: Option<Duration>,
    /// What the encoder made of the clip.
    #[serde(skip)]
    pub encoded: Option<Arc<EncodedClip>>,
    /// Packets travel in a byte stream, each behind its length (RFC 4571).
    #[serde(skip)]
    pub framed: bool,
}

fn model() -> String {
    MODEL.into()
}

const fn fps() -> u32 {
    30
}

const fn jitter_buffer() -> Duration {
    Duration::from_millis(150)
}

const fn key_every() -> Duration {
    Duration::from_secs(1)
}

const fn one() -> u32 {
    1
}

const fn constant() -> RateConfig {
    RateConfig::Constant {}
}

const fn packet() -> Bytes {
    Bytes::new(1200)
}

impl VideoConfig {
    /// Checks the ranges.
    pub(crate) fn check(&self) -> Result<(), TrafficError> {
        let above_zero = |key, sound| if sound { Ok(()) } else { Err(TrafficError::Zero { key }) };
        let within = |key, found: u64, least: u64, most: u64| {
            if (least..=most).contains(&found) {
                Ok(())
            } else {
                Err(TrafficError::Outside { key, found, least, most })
            }
        };
        above_zero("rate", self.rate > Rate::ZERO)?;
        within("fps", self.fps.into(), 1, 240)?;
        within("slices", self.slices.into(), 1, 64)?;
        within("packet", self.packet.get(), LEAST_PACKET, 65_000)?;
        above_zero("key_every", self.key_every.is_positive())?;
        self.rate_control.check()?;
        self.bounds().check()?;
        self.repair.iter().try_for_each(RepairConfig::check)?;
        above_zero("drop_after", self.drop_after.is_none_or(Duration::is_positive))?;
        above_zero("jitter_buffer", self.jitter_buffer >= Duration::ZERO)
    }

    /// The frames are those of a model, not of a clip.
    pub fn is_model(&self) -> bool {
        self.clip == MODEL
    }

    /// Where rate control may go.
    pub fn bounds(&self) -> Bounds {
        let tenth = Rate::from_bps((self.rate.as_bps() / 10).max(1));
        let start = self.start_rate.unwrap_or(self.rate);
        Bounds { least: self.least_rate.unwrap_or(tenth.min(start)), start, most: self.rate }
    }

    /// The encoder's rate changes.
    pub const fn is_controlled(&self) -> bool {
        !matches!(self.rate_control, RateConfig::Constant {})
    }

    /// The other end reports what it gets.
    pub fn is_reported(&self) -> bool {
        self.is_controlled() || self.repair.is_some_and(|repair| repair.fails.is_some())
    }

    /// Something is sent that only networks that lose packets need.
    pub fn is_protected(&self) -> bool {
        self.duplicate != Duplicate::None || self.repair.is_some()
    }

    /// From one frame to the next.
    pub fn interval(&self) -> Duration {
        Duration::from_nanos(1_000_000_000 / i64::from(self.fps.max(1)))
    }

    /// Frames of a round of intra refresh, after which a damaged picture is whole again; `None` where key
    /// frames do that.
    pub fn refresh_frames(&self) -> Option<u32> {
        let frames = self.key_every.as_nanos() / self.interval().as_nanos().max(1);
        self.intra_refresh.then_some(frames.max(1) as u32)
    }

    /// Packets of the largest key frame at the full rate, copies and repair packets included.
    pub fn key_frame_packets(&self) -> u32 {
        let largest = self.packet.get().saturating_sub(rtp::HEADER_BYTES as u64);
        let largest = u32::try_from(largest).unwrap_or(u32::MAX);
        let protector = self.repair.map(Protector::new);
        let copies = if self.duplicate == Duplicate::None { 1 } else { 2 };
        let clip = self.played();
        let frames = (0..clip.len() as u32).filter_map(|number| clip.frame(number));
        let packets = frames.filter(|frame| frame.key).map(|frame| {
            let units = frame.units.iter();
            let packets = units.flat_map(|unit| fragments(self.codec, *unit, largest)).count();
            let packets = packets.min(usize::from(u16::MAX) / 2) as u16;
            let repairs = protector.as_ref().map(|protector| protector.protection(packets).count());
            u32::from(packets) + u32::from(repairs.unwrap_or(0))
        });
        copies * packets.max().unwrap_or(1)
    }

    /// What is played: the encoded clip, or the model where there is none.
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
    /// 30 frames a second of these, a key frame a second, in packets of 1200 bytes, without protection.
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
            least_rate: None,
            duplicate: Duplicate::None,
            repair: None,
            drop_after: None,
            encoded: Some(Arc::new(EncodedClip::new(frames).unwrap())),
            framed: false,
        }
    }
}
