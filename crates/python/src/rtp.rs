//! RTP and RTCP on the wire, and the jitter buffer, for cameras and screens of real streams.

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use skybraid_traffic::video::fragment::{fragments, write_payload};
use skybraid_traffic::video::rtcp::{self, Description, Name, Packet, ReportBlock};
use skybraid_traffic::video::rtp::{Header, VIDEO_CLOCK_HZ};
use skybraid_traffic::video::units::unit_kind;
use skybraid_traffic::video::{Codec, JitterBuffer, ReceivedFrame};
use skybraid_units::{Duration, Instant};

use crate::error::bad_input;

/// Payload type of the streams, the first dynamic one (RFC 3551 §3).
pub const PAYLOAD_TYPE: u8 = 96;

/// Rate of the timestamps in Hz.
pub const CLOCK_HZ: u32 = VIDEO_CLOCK_HZ;

/// Returns the codec of a name.
pub fn codec_of(name: &str) -> PyResult<Codec> {
    let known = [Codec::H264, Codec::H265].into_iter().find(|known| known.name() == name);
    known.ok_or_else(|| bad_input(format!("codec: found {name}, expected one of h264, h265")))
}

/// Appends RTCP packets. They all fit, since each has one block or one short name.
fn bytes_of<'py>(py: Python<'py>, packets: &[Packet]) -> PyResult<Bound<'py, PyBytes>> {
    let mut out = Vec::new();
    packets.iter().try_for_each(|packet| packet.write(&mut out)).map_err(bad_input)?;
    Ok(PyBytes::new(py, &out))
}

fn description(ssrc: u32, cname: String) -> Packet {
    Packet::Description(Description { names: vec![Name { ssrc, cname }] })
}

/// Numbers and packets of a stream that is sent.
#[pyclass]
pub struct RtpSender {
    codec: Codec,
    max_payload: u32,
    name: String,
    header: Header,
    packets: u32,
    bytes: u32,
}

#[pymethods]
impl RtpSender {
    /// A stream of `ssrc` that begins at a sequence number; `packet_bytes` limits packets with their header.
    #[new]
    fn new(
        codec: &str,
        packet_bytes: u32,
        ssrc: u32,
        sequence: u16,
        name: String,
    ) -> PyResult<Self> {
        let max_payload =
            packet_bytes.saturating_sub(skybraid_traffic::video::rtp::HEADER_BYTES as u32);
        let header =
            Header { marker: false, payload_type: PAYLOAD_TYPE, sequence, timestamp: 0, ssrc };
        Ok(Self { codec: codec_of(codec)?, max_payload, name, header, packets: 0, bytes: 0 })
    }

    /// RTP packets of a frame.
    fn frame<'py>(
        &mut self,
        py: Python<'py>,
        units: Vec<Vec<u8>>,
        timestamp: u32,
    ) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let parts = units.iter().flat_map(|unit| {
            fragments(self.codec, unit.len() as u32, self.max_payload).map(move |part| (unit, part))
        });
        let mut parts = parts.peekable();
        let mut packets = Vec::new();
        while let Some((unit, part)) = parts.next() {
            let mut packet = Vec::new();
            let marker = parts.peek().is_none();
            Header { marker, timestamp, ..self.header }.write(&mut packet);
            write_payload(self.codec, unit, part, &mut packet).map_err(bad_input)?;
            self.header.sequence = self.header.sequence.wrapping_add(1);
            self.packets = self.packets.wrapping_add(1);
            self.bytes = self.bytes.wrapping_add(part.payload_bytes);
            packets.push(PyBytes::new(py, &packet));
        }
        Ok(packets)
    }

    /// Sender report and description, with a goodbye if asked for; `ntp` and `timestamp` are the time now.
    fn report<'py>(
        &self,
        py: Python<'py>,
        ntp: u64,
        timestamp: u32,
        bye: bool,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let (ssrc, packets, bytes) = (self.header.ssrc, self.packets, self.bytes);
        let report = rtcp::SenderReport { ssrc, ntp, timestamp, packets, bytes, blocks: vec![] };
        let mut compound = vec![Packet::SenderReport(report), description(ssrc, self.name.clone())];
        compound.extend(bye.then_some(Packet::Bye { ssrc }));
        bytes_of(py, &compound)
    }

    /// RTP packets sent.
    #[getter]
    fn packets(&self) -> u32 {
        self.packets
    }

    /// Payload bytes sent.
    #[getter]
    fn payload_bytes(&self) -> u32 {
        self.bytes
    }
}

/// One part of an RTCP packet that cameras and screens act upon.
#[pyclass(frozen, get_all)]
#[derive(Clone)]
pub struct RtcpPart {
    /// `sender`, `receiver` or `bye`.
    kind: &'static str,
    /// Sender of this part.
    ssrc: u32,
    /// Of a sender report: its time.
    ntp: u64,
    timestamp: u32,
    /// Of a receiver report: the source reported on, its lost packets and the round trip in s.
    source: u32,
    lost: i32,
    round_trip_s: Option<f64>,
}

/// Parses an RTCP packet; `ntp` is the time now, for the round trip of receiver reports. What is invalid or of
/// another type is left out.
#[pyfunction]
pub fn rtcp_parts(data: &[u8], ntp: u64) -> Vec<RtcpPart> {
    let other = RtcpPart {
        kind: "",
        ssrc: 0,
        ntp: 0,
        timestamp: 0,
        source: 0,
        lost: 0,
        round_trip_s: None,
    };
    let part = |packet: Packet| match packet {
        Packet::SenderReport(report) => Some(RtcpPart {
            kind: "sender",
            ssrc: report.ssrc,
            ntp: report.ntp,
            timestamp: report.timestamp,
            ..other.clone()
        }),
        Packet::ReceiverReport(report) => report.blocks.first().map(|block| RtcpPart {
            kind: "receiver",
            ssrc: report.ssrc,
            source: block.ssrc,
            lost: block.lost,
            round_trip_s: block.round_trip(rtcp::ntp_middle(ntp)).map(Duration::as_secs_f64),
            ..other.clone()
        }),
        Packet::Bye { ssrc } => Some(RtcpPart { kind: "bye", ssrc, ..other.clone() }),
        _ => None,
    };
    rtcp::parse(data).unwrap_or_default().into_iter().filter_map(part).collect()
}

/// Whether a packet is RTCP, where it shares a port with RTP.
#[pyfunction]
pub fn is_rtcp(data: &[u8]) -> bool {
    rtcp::is_rtcp(data)
}

/// Whether a NAL unit is a slice of a key frame, and the frames until a recovery point's picture is intact.
#[pyfunction]
pub fn nal_unit_kind(codec: &str, unit: &[u8]) -> PyResult<(bool, Option<u32>)> {
    let kind = unit_kind(codec_of(codec)?, unit);
    Ok((kind.key, kind.recovery_frames))
}

/// Received parts of a frame; see `skybraid_traffic`.
#[pyclass(frozen, get_all)]
pub struct RtpFrame {
    ticks: u64,
    due_ns: i64,
    units: Vec<Py<PyBytes>>,
    complete: bool,
    intact: bool,
}

impl RtpFrame {
    fn of(py: Python<'_>, frame: ReceivedFrame) -> Self {
        let ReceivedFrame { ticks, due, units, complete, intact } = frame;
        let units = units.iter().map(|unit| PyBytes::new(py, unit).unbind()).collect();
        Self { ticks, due_ns: due.as_nanos(), units, complete, intact }
    }
}

/// Receiver of one source's stream: jitter buffer and reception statistics.
#[pyclass]
pub struct RtpReceiver {
    buffer: JitterBuffer,
    reception: rtcp::Reception,
    ssrc: u32,
    source: u32,
    name: String,
}

#[pymethods]
impl RtpReceiver {
    /// A receiver `ssrc` of the stream `source`, in whose buffer what came soonest is kept for `length_ns`.
    #[new]
    fn new(codec: &str, length_ns: i64, ssrc: u32, source: u32, name: String) -> PyResult<Self> {
        let buffer = JitterBuffer::new(codec_of(codec)?, Duration::from_nanos(length_ns));
        Ok(Self { buffer, reception: rtcp::Reception::default(), ssrc, source, name })
    }

    /// SSRC of an RTP packet; None if it is invalid.
    #[staticmethod]
    fn source_of(data: &[u8]) -> Option<u32> {
        Header::parse(data).ok().map(|(header, _)| header.ssrc)
    }

    /// Takes an RTP packet; one that is invalid or empty is ignored.
    fn take(&mut self, now_ns: i64, data: &[u8]) {
        let Ok((header, payload)) = Header::parse(data) else { return };
        if !payload.is_empty() {
            let now = Instant::from_nanos(now_ns);
            self.reception.on_received(now, &header);
            self.buffer.on_received(now, &header, payload);
        }
    }

    /// Takes a sender report of the source, by its NTP time.
    fn take_report(&mut self, now_ns: i64, ntp: u64) {
        self.reception.on_report(Instant::from_nanos(now_ns), rtcp::ntp_middle(ntp));
    }

    /// Frames that go to the decoder by now, in order.
    fn frames(&mut self, py: Python<'_>, now_ns: i64) -> Vec<RtpFrame> {
        let now = Instant::from_nanos(now_ns);
        std::iter::from_fn(|| self.buffer.next_frame(now))
            .map(|frame| RtpFrame::of(py, frame))
            .collect()
    }

    /// All remaining frames.
    fn flush(&mut self, py: Python<'_>) -> Vec<RtpFrame> {
        std::iter::from_fn(|| self.buffer.release()).map(|frame| RtpFrame::of(py, frame)).collect()
    }

    /// Time at which a frame is due without further packets.
    fn next_ns(&self) -> Option<i64> {
        self.buffer.next_due().map(Instant::as_nanos)
    }

    /// A timestamp that goes on beyond 32 bits, as those of frames do.
    fn ticks(&self, timestamp: u32) -> u64 {
        self.buffer.ticks(timestamp)
    }

    /// Packets lost so far; below zero with copies.
    #[getter]
    fn lost(&self) -> i64 {
        self.reception.lost()
    }

    /// Receiver report and description, with a goodbye if asked for.
    fn report<'py>(
        &mut self,
        py: Python<'py>,
        now_ns: i64,
        bye: bool,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let block: ReportBlock = self.reception.report(Instant::from_nanos(now_ns), self.source);
        let report = rtcp::ReceiverReport { ssrc: self.ssrc, blocks: vec![block] };
        let mut compound =
            vec![Packet::ReceiverReport(report), description(self.ssrc, self.name.clone())];
        compound.extend(bye.then_some(Packet::Bye { ssrc: self.ssrc }));
        bytes_of(py, &compound)
    }
}
