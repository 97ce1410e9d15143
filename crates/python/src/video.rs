//! Packet counts of video frames.

use pyo3::prelude::*;
use skybraid_traffic::video::fragment::fragments;
use skybraid_traffic::video::rtp;

use crate::rtp::codec_of;

/// Returns the number of RTP packets of at most `packet` bytes for each NAL unit of a frame.
#[pyfunction]
pub fn packets_of_units(codec: &str, units: Vec<u32>, packet: u32) -> PyResult<Vec<usize>> {
    let codec = codec_of(codec)?;
    let max_payload = packet.saturating_sub(rtp::HEADER_BYTES as u32);
    Ok(units.into_iter().map(|unit| fragments(codec, unit, max_payload).count()).collect())
}
