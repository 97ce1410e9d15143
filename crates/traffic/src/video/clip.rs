//! Encoded clips: the sizes of the NAL units of each frame.

use alloc::vec::Vec;

use skybraid_units::{Duration, Rate};

/// A frame of an encoded clip.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EncodedFrame {
    /// Whether this is a key frame, at which a decoder can start.
    pub key: bool,
    /// Bytes of each NAL unit without start code, above zero.
    pub units: Vec<u32>,
}

/// An encoded clip, which a camera plays in a loop. The first frame is a key frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedClip {
    frames: Vec<EncodedFrame>,
}

/// Error in the frames of a clip.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClipError {
    /// The clip has no frame.
    #[error("the clip has no frame")]
    Empty,
    /// The first frame is not a key frame.
    #[error("the clip does not begin with a key frame")]
    NoKey,
    /// A frame has no NAL unit, or an empty one.
    #[error("frame {frame} of the clip is empty")]
    EmptyFrame {
        /// Number of the frame.
        frame: usize,
    },
}

/// Size of a key frame in units of other frames, in the model.
const KEY_FACTOR: u64 = 4;

impl EncodedClip {
    /// Creates a clip from its frames.
    ///
    /// # Errors
    /// There is no frame, the first is not a key frame, or one is empty.
    pub fn new(frames: Vec<EncodedFrame>) -> Result<Self, ClipError> {
        match frames.first() {
            None => return Err(ClipError::Empty),
            Some(first) if !first.key => return Err(ClipError::NoKey),
            Some(_) => {}
        }
        let empty = |frame: &EncodedFrame| frame.units.is_empty() || frame.units.contains(&0);
        match frames.iter().position(empty) {
            Some(frame) => Err(ClipError::EmptyFrame { frame }),
            None => Ok(Self { frames }),
        }
    }

    /// Creates a model of an encoder with a constant rate: each key frame is four times as large as the frames
    /// between, and each frame consists of `slices` equal NAL units. With `refresh` only the first frame is a
    /// key frame, and all frames have the same size.
    pub fn model(
        rate: Rate,
        interval: Duration,
        key_every: Duration,
        slices: u32,
        refresh: bool,
    ) -> Self {
        let frames = (key_every.as_nanos() / interval.as_nanos().max(1)).max(1) as u64;
        let bytes = rate.as_bps() as u128 * key_every.as_nanos().max(1) as u128 / 8_000_000_000;
        let parts = if refresh { frames } else { frames - 1 + KEY_FACTOR };
        let plain = (bytes / u128::from(parts)).max(1) as u64;
        let frame = |number: u64| {
            let key = number == 0;
            let bytes = if key && !refresh { KEY_FACTOR * plain } else { plain };
            let slices = u64::from(slices.max(1)).min(bytes);
            let unit = |slice: u64| (bytes * (slice + 1) / slices - bytes * slice / slices) as u32;
            EncodedFrame { key, units: (0..slices).map(unit).collect() }
        };
        Self { frames: (0..frames).map(frame).collect() }
    }

    /// Returns the number of frames of one loop.
    pub const fn len(&self) -> usize {
        self.frames.len()
    }

    /// Returns `false`: a clip has at least one frame.
    pub const fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Returns frame `number` of an endless loop over the clip.
    pub fn frame(&self, number: u32) -> Option<&EncodedFrame> {
        self.frames.get(number as usize % self.frames.len().max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_modelled_clip_has_the_configured_rate() {
        for (mbps, refresh, slices) in [(10.0, false, 1), (10.0, true, 4), (0.3, false, 2)] {
            let interval = Duration::from_nanos(33_333_333);
            let rate = Rate::from_mbps(mbps);
            let clip = EncodedClip::model(rate, interval, Duration::from_secs(1), slices, refresh);
            assert_eq!(clip.len(), 30);
            let bytes: u32 = clip.frames.iter().flat_map(|frame| &frame.units).sum();
            assert!((f64::from(bytes) * 8.0 / (mbps * 1e6) - 1.0).abs() < 1e-3, "{bytes}");
            assert!(clip.frames.iter().all(|frame| frame.units.len() == slices as usize));
            assert_eq!(clip.frames.iter().filter(|frame| frame.key).count(), 1);
        }
    }

    #[test]
    fn a_clip_that_no_decoder_could_play_is_refused() {
        let frame = |key, units: &[u32]| EncodedFrame { key, units: units.to_vec() };
        assert_eq!(EncodedClip::new(Vec::new()), Err(ClipError::Empty));
        assert_eq!(EncodedClip::new([frame(false, &[9])].into()), Err(ClipError::NoKey));
        let empty = [frame(true, &[9]), frame(false, &[])];
        assert_eq!(EncodedClip::new(empty.into()), Err(ClipError::EmptyFrame { frame: 1 }));
    }
}
