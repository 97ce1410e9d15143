//! RTP and RTCP packets dissected by tshark.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::path::{Path, PathBuf};
use std::process::Command;

use skybraid_traffic::video::fragment::{Codec, fragments, write_payload};
use skybraid_traffic::video::rtcp::{
    Description, Name, Packet, ReceiverReport, ReportBlock, SenderReport,
};
use skybraid_traffic::video::rtp::Header;

const MEDIA_PORT: u16 = 40_000;
const CONTROL_PORT: u16 = 40_001;
const SSRC: u32 = 0x1122_3344;

/// Field that the dissector sets where it runs out of bytes.
const MALFORMED: &str = "_ws.malformed";

/// UDP datagrams in a file of raw IPv4 packets, removed when dropped.
struct Pcap {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl Pcap {
    fn new(name: &str) -> Self {
        let name = format!("skybraid-{}-{name}.pcap", std::process::id());
        let mut bytes = vec![0xa1, 0xb2, 0xc3, 0xd4, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0];
        bytes.extend([0, 1, 0, 0]);
        // LINKTYPE_IPV4.
        bytes.extend(228_u32.to_be_bytes());
        Self { path: std::env::temp_dir().join(name), bytes }
    }

    fn add(&mut self, port: u16, payload: &[u8]) {
        let length = (28 + payload.len()) as u16;
        self.bytes.extend([0; 8]);
        self.bytes.extend(u32::from(length).to_be_bytes());
        self.bytes.extend(u32::from(length).to_be_bytes());
        self.bytes.extend([0x45, 0]);
        self.bytes.extend(length.to_be_bytes());
        self.bytes.extend([0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        self.bytes.extend(port.to_be_bytes());
        self.bytes.extend(port.to_be_bytes());
        self.bytes.extend((length - 20).to_be_bytes());
        self.bytes.extend([0, 0]);
        self.bytes.extend(payload);
    }

    /// Returns the values of `fields` for each packet of the file; further occurrences of a field follow after a
    /// comma. `None` if there is no tshark.
    fn dissect(&self, options: &[&str], fields: &[&str]) -> Option<Vec<Vec<String>>> {
        std::fs::write(&self.path, &self.bytes).unwrap();
        let listed = ["-T", "fields", "-E", "separator=|"].into_iter();
        let text =
            tshark(&self.path, options, listed.chain(fields.iter().flat_map(|f| ["-e", f])))?;
        Some(text.lines().map(|line| line.split('|').map(str::to_owned).collect()).collect())
    }
}

impl Drop for Pcap {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn tshark<'a>(
    path: &Path,
    options: &[&str],
    output: impl Iterator<Item = &'a str>,
) -> Option<String> {
    let media = format!("udp.port=={MEDIA_PORT},rtp");
    let control = format!("udp.port=={CONTROL_PORT},rtcp");
    let mut command = Command::new("tshark");
    command.arg("-n").arg("-r").arg(path).args(["-d", &media, "-d", &control]);
    command.args(options).args(output);
    let Ok(output) = command.output() else {
        eprintln!("skipped: there is no tshark");
        return None;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}

/// Returns the packets of one frame, with payloads of at most `max_payload` bytes and the marker on the last.
fn frame(codec: Codec, units: &[Vec<u8>], first: u16, max_payload: u32) -> Vec<Vec<u8>> {
    let parts: Vec<_> = units
        .iter()
        .flat_map(|unit| {
            fragments(codec, unit.len() as u32, max_payload).map(move |part| (unit, part))
        })
        .collect();
    let packet = |(number, (unit, part)): (usize, &(&Vec<u8>, _))| {
        let mut packet = Vec::new();
        let header = Header {
            marker: number + 1 == parts.len(),
            payload_type: 96,
            sequence: first.wrapping_add(number as u16),
            timestamp: 90_000 * 7,
            ssrc: SSRC,
        };
        header.write(&mut packet);
        write_payload(codec, unit, *part, &mut packet).unwrap();
        packet
    };
    parts.iter().enumerate().map(packet).collect()
}

fn unit(header: &[u8], bytes: usize) -> Vec<u8> {
    let mut unit = header.to_vec();
    unit.extend((header.len()..bytes).map(|index| 0x80 | index as u8));
    unit
}

fn report_block() -> ReportBlock {
    ReportBlock {
        ssrc: SSRC,
        fraction_lost: 64,
        lost: -3,
        highest: 0x0001_0005,
        jitter: 90,
        last_report: 0xb705_2000,
        delay: 0x0005_4000,
    }
}

fn names() -> Description {
    Description { names: vec![Name { ssrc: 7, cname: "ground@skybraid".to_owned() }] }
}

fn control_packets() -> [Vec<u8>; 2] {
    let compound = |report: Packet| {
        let mut bytes = Vec::new();
        report.write(&mut bytes).unwrap();
        Packet::Description(names()).write(&mut bytes).unwrap();
        bytes
    };
    let sender = Packet::SenderReport(SenderReport {
        ssrc: 7,
        ntp: 0xb44d_b705_2000_0000,
        timestamp: 630_000,
        packets: 1000,
        bytes: 1_200_000,
        blocks: vec![report_block()],
    });
    let receiver = Packet::ReceiverReport(ReceiverReport { ssrc: 7, blocks: vec![report_block()] });
    [compound(sender), compound(receiver)]
}

#[test]
fn h264_packets_and_their_fragments_are_dissected() {
    let mut pcap = Pcap::new("h264");
    // A slice of 900 B, then one of a key frame in three fragments.
    let units = [unit(&[0x41], 900), unit(&[0x65], 2500)];
    for packet in frame(Codec::H264, &units, 65_534, 1000) {
        pcap.add(MEDIA_PORT, &packet);
    }
    let options = ["-d", "rtp.pt==96,h264"];
    let fields = ["rtp.seq", "rtp.timestamp", "rtp.marker", "rtp.ssrc", "rtp.p_type"];
    let Some(rows) = pcap.dissect(&options, &fields) else { return };
    let row = |sequence, marker| [sequence, "630000", marker, "0x11223344", "96"];
    assert_eq!(rows, [row("65534", "0"), row("65535", "0"), row("0", "0"), row("1", "1")]);
    let fields =
        ["h264.nal_unit_hdr", "h264.start.bit", "h264.end.bit", "h264.nal_unit_type", MALFORMED];
    let Some(rows) = pcap.dissect(&options, &fields) else { return };
    let fragment = |start, end| ["28", start, end, "5", ""];
    let whole = ["1", "", "", "", ""];
    assert_eq!(rows, [whole, fragment("1", "0"), fragment("0", "0"), fragment("0", "1")]);
}

#[test]
fn h265_packets_and_their_fragments_are_dissected() {
    let mut pcap = Pcap::new("h265");
    // TRAIL_R (1), then IDR_W_RADL (19), both of temporal id 1.
    let units = [unit(&[0x02, 0x01], 900), unit(&[0x26, 0x01], 2500)];
    for packet in frame(Codec::H265, &units, 5, 1000) {
        pcap.add(MEDIA_PORT, &packet);
    }
    let options = ["-d", "rtp.pt==96,h265"];
    let fields = [
        "rtp.seq",
        "rtp.marker",
        "h265.nal_unit_type",
        "h265.start.bit",
        "h265.end.bit",
        MALFORMED,
    ];
    let Some(rows) = pcap.dissect(&options, &fields) else { return };
    let fragment = |sequence, marker, start, end| [sequence, marker, "49,19", start, end, ""];
    let whole = ["5", "0", "1", "", "", ""];
    let fragments =
        [fragment("6", "0", "1", "0"), fragment("7", "0", "0", "0"), fragment("8", "1", "0", "1")];
    assert_eq!(rows, [[whole].as_slice(), &fragments].concat());
}

#[test]
fn reports_and_names_are_dissected() {
    let mut pcap = Pcap::new("reports");
    for packet in control_packets() {
        pcap.add(CONTROL_PORT, &packet);
    }
    let reports = [
        "rtcp.pt",
        "rtcp.ssrc.fraction",
        "rtcp.ssrc.cum_nr",
        "rtcp.ssrc.ext_high",
        "rtcp.ssrc.jitter",
        "rtcp.ssrc.lsr",
        "rtcp.ssrc.dlsr",
        "rtcp.sdes.text",
        "rtcp.length_check",
        MALFORMED,
    ];
    let Some(rows) = pcap.dissect(&[], &reports) else { return };
    let row = |types| {
        let block = ["64", "-3", "65541", "90", "3070566400", "344064"];
        [[types].as_slice(), &block, &["ground@skybraid", "1", ""]].concat()
    };
    assert_eq!(rows, [row("200,202"), row("201,202")]);
    let sender = [
        "rtcp.timestamp.ntp.msw",
        "rtcp.timestamp.ntp.lsw",
        "rtcp.timestamp.rtp",
        "rtcp.sender.packetcount",
        "rtcp.sender.octetcount",
    ];
    let Some(rows) = pcap.dissect(&[], &sender) else { return };
    assert_eq!(rows[0], ["3024992005", "536870912", "630000", "1000", "1200000"]);
}

#[test]
fn a_truncated_packet_is_malformed() {
    let mut pcap = Pcap::new("cut");
    let packet = &control_packets()[1];
    pcap.add(CONTROL_PORT, &packet[..packet.len() - 6]);
    let Some(rows) = pcap.dissect(&[], &["rtcp.length_check", MALFORMED]) else { return };
    assert_ne!(rows[0][1], "", "{rows:?}");
}
