//! The worked example and the table of sizes in `docs/wire.md` match the code.

use std::fmt::Write;
use std::path::Path;

use skybraid_transport::mpdccp::AckVector;
use skybraid_transport::mpdccp::wire::header_bytes;
use skybraid_transport::segment::{
    AckedDatagrams, Datagram, Dccp, DccpKind, DccpOptions, Flags, IPV4_HEADER, REPAIR_HEAD, Repair,
    Report, Sacks, Tcp,
};
use skybraid_transport::wire::datagram::{Header, OUTER_HEADERS, Payload, encode};
use skybraid_transport::{Body, Segment};
use skybraid_units::{Duration, Instant};

const NOW: Instant = Instant::from_millis(7_200_000);

const NO_DATA: Datagram = Datagram { sequence: 0, message: 0, len: 0, fragment: 0, fragments: 0 };

/// The worked example of `docs/wire.md`: a part of a video over MPTCP.
fn video() -> Segment {
    let tcp = Tcp {
        flags: Flags::ACK,
        subflow: 1,
        address: 0,
        seq: 1_048_576,
        len: 4,
        ack: 300,
        dsn: 2_000_000,
        data_ack: 500,
        window_end: 500 + 4_194_304,
        echo: Instant::from_millis(1_960),
        sacks: Sacks::NONE,
    };
    Segment {
        size: 76 + 4,
        sent_at: Instant::from_nanos(2_000_000_500),
        first_message: 70,
        messages: 1,
        stream: 0,
        tail: true,
        body: Body::Tcp(tcp),
    }
}

const EXAMPLE: &[(&str, &str)] = &[
    ("28", "version 1 (001), kind 2 = TCP (010), 00"),
    ("00 07", "connection 7"),
    ("00 1e 84 81", "sent at 2 000 001 µs: 2.000 000 5 s rounded up"),
    ("f6", "form: more follows, exact window, echo, tail, one message ends, payload form 2"),
    ("38", "more: data ACK, data sequence number, subflow"),
    ("01", "subflow 1"),
    ("80 80 40", "sequence number 1 048 576"),
    ("ac 02", "acknowledgement 300"),
    ("00 1d e8 40", "echo of 1 960 000 µs"),
    ("80 89 7a", "data sequence number 2 000 000"),
    ("f4 03", "data acknowledgement 500"),
    ("00 40 00 00", "window 4 194 304 bytes"),
    ("46", "message 70 ends here"),
    ("00 04", "four bytes of payload"),
    ("73 6b 79 21", "`sky!`"),
];

const BEGIN: &str =
    "kept by a test of the transport crate; SKYBRAID_UPDATE_DOCS=1 rewrites it -->\n";

/// Compares the text between two marks of `docs/wire.md` with `expected`.
fn hold(name: &str, expected: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/wire.md");
    let text = std::fs::read_to_string(&file).unwrap();
    let (begin, end) = (format!("<!-- {name}: {BEGIN}"), format!("<!-- end of {name} -->"));
    let (before, rest) = text.split_once(begin.as_str()).unwrap();
    let (found, after) = rest.split_once(end.as_str()).unwrap();
    if std::env::var_os("SKYBRAID_UPDATE_DOCS").is_some() {
        std::fs::write(&file, format!("{before}{begin}{expected}{end}{after}")).unwrap();
        return;
    }
    assert_eq!(found, expected, "SKYBRAID_UPDATE_DOCS=1 rewrites it");
}

#[test]
fn the_worked_example_is_that_of_the_guide_and_so_are_the_sizes() {
    let header = Header { connection: 7 };
    let mut out = Vec::new();
    let place = encode(&video(), &header, Payload::Bytes(b"sky!"), &mut out).unwrap();
    let hex = |bytes: &[u8]| {
        bytes.iter().map(|octet| format!("{octet:02x}")).collect::<Vec<_>>().join(" ")
    };
    let mut text = "```text\n".to_string();
    for (octets, meaning) in EXAMPLE {
        writeln!(text, "{octets:<13} {meaning}").unwrap();
    }
    let padding = out.len() - place.end;
    writeln!(text, "00 × {padding:<8} padding: the IPv4 packet has 80 bytes").unwrap();
    text.push_str("```\n");
    let written: Vec<&str> = EXAMPLE.iter().map(|(octets, _)| *octets).collect();
    assert_eq!(hex(&out[..place.end]), written.join(" "));
    assert_eq!(out.len() + OUTER_HEADERS as usize, 80);
    assert!(out[place.end..].iter().all(|octet| *octet == 0));
    hold("example", &text);
    hold("sizes", &sizes());
}

/// Numbers early in a flow, and as large as the guide promises for: 32 GiB, 2²⁸ packets and messages.
fn scaled(large: bool) -> (u64, u64, u32) {
    if large { ((1 << 35) - 1, (1 << 28) - 1, (1 << 28) - 2) } else { (100_000, 100, 99) }
}

fn acks(large: bool, newest_missing: u64) -> AckVector {
    let newest = scaled(large).1;
    let mut acks = AckVector::EMPTY;
    for number in newest - 90..=newest {
        if number != newest - newest_missing {
            acks.insert(number);
        }
    }
    acks
}

/// A segment of each kind with the size of the simulated packet.
fn examples(large: bool) -> Vec<(&'static str, Segment)> {
    let (byte, packet, message) = scaled(large);
    let time = NOW;
    let segment = |size, body: Body| {
        let (first, messages) = match body {
            Body::Tcp(tcp) if tcp.len > 0 => (message, 1),
            Body::Datagram(data) | Body::Dccp(Dccp { data, .. }) if data.fragments > 0 => {
                (data.message, 1)
            }
            _ => (0, 0),
        };
        let (first_message, tail) = (first, messages > 0 && matches!(body, Body::Tcp(_)));
        Segment { size, sent_at: time, first_message, messages, stream: 0, tail, body }
    };
    let mut sacks = Sacks::NONE;
    for block in 1..4 {
        sacks.push(byte, byte + 3000 * block, byte + 3000 * block + 1448);
    }
    let plain = Tcp {
        flags: Flags::ACK,
        subflow: 0,
        address: 0,
        seq: byte,
        len: 0,
        ack: byte,
        dsn: 0,
        data_ack: byte,
        window_end: byte + 6_000_001,
        echo: time,
        sacks: Sacks::NONE,
    };
    let tcp = |size, tcp: Tcp| segment(size + tcp.len, Body::Tcp(tcp));
    let data = Tcp { len: 1000, dsn: byte, ..plain };
    let multi = Tcp { subflow: 1, data_ack: byte - 9, ..plain };
    let multi_data = Tcp { len: 1000, dsn: byte - 7, ..multi };
    let with = |flags: Flags| Flags::ACK.and(flags);
    let part = Datagram { sequence: packet, message, len: 1000, fragment: 0, fragments: 1 };
    let split = Datagram { fragment: 11, fragments: 12, ..part };
    let dccp = |kind, options, data| Dccp {
        sequence: packet,
        acks: acks(large, 5),
        elapsed: Duration::from_millis(15),
        data,
        rtt_us: 0,
        kind,
        options,
        priority: 3,
        ack_ratio: 2,
    };
    let one = |kind, data| dccp(kind, DccpOptions::NONE, data);
    let several = |kind, data| dccp(kind, DccpOptions::MULTIPATH, data);
    let packet_of =
        |dccp: Dccp| segment(IPV4_HEADER + header_bytes(&dccp) + dccp.data.len, Body::Dccp(dccp));
    let report =
        Report { echo: time, arrived: time, received: packet, acked: None, recovered: None };
    let acked = Some(AckedDatagrams { newest: packet, before: u64::MAX });
    let repair = Repair { first: packet, count: 64, key: 7, head: [1; REPAIR_HEAD], len: 1000 };
    vec![
        ("UDP: message in one packet", segment(28 + 1000, Body::Datagram(part))),
        ("UDP: part of a message", segment(28 + 1000, Body::Datagram(split))),
        ("UDP: probe", segment(56, Body::Datagram(NO_DATA))),
        ("UDP: report", segment(56, Body::Report(report))),
        (
            "UDP: report with acknowledgements",
            segment(64, Body::Report(Report { acked, ..report })),
        ),
        (
            "UDP: report with acknowledgements, after a recovery",
            segment(80, Body::Report(Report { acked, recovered: acked, ..report })),
        ),
        ("UDP: repair packet", segment(48 + 1000, Body::Repair(repair))),
        ("TCP: SYN, SYN/ACK", tcp(60, Tcp { flags: with(Flags::SYN), ..plain })),
        ("TCP: data", tcp(52, data)),
        ("TCP: ACK", tcp(52, plain)),
        ("TCP: ACK, 3 SACK blocks", tcp(52 + 28, Tcp { sacks, ..plain })),
        ("TCP: FIN", tcp(52, Tcp { flags: with(Flags::FIN), dsn: byte, ..plain })),
        ("MPTCP: SYN", tcp(64, Tcp { flags: Flags::SYN, ..multi })),
        ("MPTCP: data", tcp(76, multi_data)),
        ("MPTCP: ACK", tcp(60, multi)),
        ("MPTCP: ACK, 2 SACK blocks", tcp(60 + 20, Tcp { sacks: sacks.first(2), ..multi })),
        ("MPTCP: DATA_FIN", tcp(76, Tcp { flags: with(Flags::FIN), dsn: byte, ..multi })),
        ("MPTCP: MP_JOIN, third ACK", tcp(76, Tcp { flags: with(Flags::JOIN), ..multi })),
        ("MPTCP: ADD_ADDR", tcp(76, Tcp { flags: with(Flags::ADD_ADDRESS), address: 1, ..multi })),
        (
            "MPTCP: REMOVE_ADDR",
            tcp(64, Tcp { flags: with(Flags::REMOVE_ADDRESS), address: 1, ..multi }),
        ),
        ("DCCP: Request", packet_of(one(DccpKind::Request, NO_DATA))),
        ("DCCP: Response", packet_of(one(DccpKind::Response, NO_DATA))),
        ("DCCP: Data", packet_of(one(DccpKind::Data, part))),
        ("DCCP: DataAck", packet_of(one(DccpKind::DataAck, part))),
        ("DCCP: Ack", packet_of(one(DccpKind::Ack, NO_DATA))),
        ("MP-DCCP: Request", packet_of(several(DccpKind::Request, NO_DATA))),
        ("MP-DCCP: Data", packet_of(several(DccpKind::Data, part))),
        ("MP-DCCP: Data with MP_RTT", {
            packet_of(Dccp { rtt_us: 30_000, ..several(DccpKind::Data, part) })
        }),
        ("MP-DCCP: DataAck", packet_of(several(DccpKind::DataAck, part))),
        ("MP-DCCP: Ack", packet_of(several(DccpKind::Ack, NO_DATA))),
        ("MP-DCCP: Sync", packet_of(several(DccpKind::Sync, NO_DATA))),
    ]
}

/// Returns the header size of each kind, next to the space in the simulated packet.
fn sizes() -> String {
    let mut text = "| packet | simulated headers | room | header, early | header, large | \
                    larger with filler | larger with payload |\n|---|---|---|---|---|---|---|\n"
        .to_string();
    for ((name, early), (_, large)) in examples(false).into_iter().zip(examples(true)) {
        let length = |segment: &Segment, filler: bool| {
            let bytes = vec![1; segment.body.payload_bytes() as usize];
            let payload = if filler { Payload::Filler } else { Payload::Bytes(&bytes) };
            let mut out = Vec::new();
            let place = encode(segment, &Header::default(), payload, &mut out).unwrap();
            (place.start, out.len() + OUTER_HEADERS as usize - segment.size as usize)
        };
        // The header without padding or filler: with the whole payload and no spare space.
        let head = |segment: &Segment| length(&Segment { size: 0, ..*segment }, false).0;
        let simulated = early.size - early.body.payload_bytes();
        writeln!(
            text,
            "| {name} | {simulated} | {} | {} | {} | {} | {} |",
            simulated - OUTER_HEADERS,
            head(&early),
            head(&large),
            length(&large, true).1,
            length(&large, false).1,
        )
        .unwrap();
    }
    text
}
