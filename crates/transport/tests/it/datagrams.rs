//! Round trips of segments through UDP datagrams, and arbitrary bytes.

use proptest::prelude::*;
use skybraid_transport::mpdccp::AckVector;
use skybraid_transport::mpdccp::wire::header_bytes;
use skybraid_transport::segment::{
    AckedDatagrams, Datagram, Dccp, DccpKind, DccpOptions, Flags, IPV4_HEADER, Repair, Report,
    Sacks, Tcp,
};
use skybraid_transport::wire::datagram::{
    Decoded, Header, OUTER_HEADERS, Payload, WireError, decode, encode, excess,
};
use skybraid_transport::{Body, Protocol, Segment};
use skybraid_units::{Duration, Instant};

/// Time of the receiver in the tests.
const NOW: Instant = Instant::from_nanos(7_200_000_000_777);

fn numbers() -> impl Strategy<Value = u64> {
    prop_oneof![0u64..200, 0u64..1 << 20, 0u64..1 << 36, 0u64..1 << 62]
}

/// Within 35 minutes of now.
fn times() -> impl Strategy<Value = Instant> {
    (-2_100_000_000_000i64..2_100_000_000_000)
        .prop_map(|offset| Instant::from_nanos(NOW.as_nanos() + offset))
}

fn parts() -> impl Strategy<Value = Datagram> {
    let fragments = prop_oneof![Just((0, 1)), (0u16..300, 0u16..300), Just((65_534, 65_535))];
    (numbers(), any::<u32>(), any::<bool>(), 0u32..1500, fragments).prop_map(
        |(sequence, message, alike, len, (fragment, after))| {
            let message = if alike { sequence as u32 } else { message };
            let fragments = if fragment < after { after } else { fragment + 1 };
            Datagram { sequence, message, len, fragment, fragments }
        },
    )
}

fn no_data() -> Datagram {
    Datagram { sequence: 0, message: 0, len: 0, fragment: 0, fragments: 0 }
}

/// Blocks, and a D-SACK, as offsets.
type Offsets = (Vec<(u32, u32)>, Option<(i32, i32)>);

fn sacks() -> impl Strategy<Value = Offsets> {
    let blocks = proptest::collection::vec(any::<(u32, u32)>(), 0..4);
    (blocks, proptest::option::of(any::<(i32, i32)>()))
}

fn tcps() -> impl Strategy<Value = Tcp> {
    let usual = (0u16..512, any::<bool>(), 0u8..64, 0u8..64);
    let window = prop_oneof![Just(0u64), 0u64..1 << 33, 0u64..1 << 42];
    let sequences = (numbers(), numbers(), numbers(), numbers(), any::<bool>());
    let echo = proptest::option::of(times());
    (usual, sequences, 0u32..1500, window, echo, sacks()).prop_map(
        |(
            (flags, plain, subflow, address),
            (seq, ack, dsn, data_ack, one),
            len,
            window,
            echo,
            sacks,
        )| {
            let flags = if plain { Flags::ACK } else { Flags::from_bits(flags).unwrap() };
            let (address, subflow) = if plain { (0, 0) } else { (address, subflow) };
            let (dsn, data_ack) = if one {
                (if len > 0 || flags.has(Flags::FIN) { seq } else { 0 }, ack)
            } else {
                (dsn, data_ack)
            };
            let mut blocks = Sacks::NONE;
            if let Some((start, end)) = sacks.1 {
                let near = |offset: i32| ack.wrapping_add_signed(i64::from(offset));
                blocks.report_duplicate(ack, near(start), near(end));
            }
            for (start, end) in sacks.0 {
                blocks.push(ack, ack + u64::from(start), ack + u64::from(end));
            }
            Tcp {
                flags,
                subflow,
                address,
                seq,
                len,
                ack,
                dsn,
                data_ack,
                window_end: data_ack + window,
                echo: echo.unwrap_or(Instant::ZERO),
                sacks: blocks,
            }
        },
    )
}

fn vectors() -> impl Strategy<Value = AckVector> {
    proptest::collection::vec(1u64..6, 0..300).prop_map(|steps| {
        let (mut vector, mut at) = (AckVector::EMPTY, 0);
        for step in steps {
            at += step;
            vector.insert(at);
        }
        vector
    })
}

fn dccps() -> impl Strategy<Value = Dccp> {
    let data = prop_oneof![Just(no_data()), parts()];
    let rtt = prop_oneof![Just(0u32), any::<u32>()];
    let elapsed = prop_oneof![Just(0i64), 0i64..10_000_000_000];
    let small = (any::<u8>(), any::<u8>(), 0u8..32, 0usize..7);
    (numbers(), vectors(), elapsed, data, rtt, small).prop_map(
        |(sequence, acks, elapsed, data, rtt_us, (priority, ack_ratio, options, kind))| Dccp {
            sequence,
            acks,
            elapsed: Duration::from_nanos(elapsed),
            data,
            rtt_us,
            kind: DccpKind::ALL[kind],
            options: DccpOptions::from_bits(options).unwrap(),
            priority,
            ack_ratio,
        },
    )
}

fn acked() -> impl Strategy<Value = Option<AckedDatagrams>> {
    let acked = |(newest, before)| AckedDatagrams { newest, before };
    proptest::option::of((numbers(), any::<u64>()).prop_map(acked))
}

fn bodies() -> impl Strategy<Value = Body> {
    prop_oneof![
        prop_oneof![parts(), Just(no_data())].prop_map(Body::Datagram),
        (times(), times(), numbers(), acked(), acked()).prop_map(
            |(echo, arrived, received, acked, recovered)| {
                Body::Report(Report { echo, arrived, received, acked, recovered })
            }
        ),
        (numbers(), any::<u8>(), any::<u16>(), any::<[u8; 12]>(), 0u32..1400).prop_map(
            |(first, count, key, head, len)| {
                Body::Repair(Repair { first, count, key, head, len })
            }
        ),
        tcps().prop_map(Body::Tcp),
        dccps().prop_map(Body::Dccp),
    ]
}

/// Segments as endpoints make them: a message ends with its last fragment.
fn segments() -> impl Strategy<Value = Segment> {
    let ends = (prop_oneof![Just(0u16), Just(1), any::<u16>()], any::<u32>(), any::<bool>());
    (bodies(), times(), 0u32..120, ends, 0u8..4).prop_map(
        |(body, sent_at, headers, (messages, first_message, tail), stream)| {
            let size = OUTER_HEADERS + body.payload_bytes() + headers;
            match body {
                Body::Tcp(_) => {
                    Segment { size, sent_at, first_message, messages, stream, tail, body }
                }
                Body::Datagram(data) | Body::Dccp(Dccp { data, .. }) => {
                    let messages = u16::from(data.fragment + 1 == data.fragments);
                    let first_message = data.message;
                    Segment { size, sent_at, first_message, messages, stream: 0, tail: false, body }
                }
                Body::Report(_) | Body::Repair(_) => {
                    let (first_message, messages, stream, tail) = (0, 0, 0, false);
                    Segment { size, sent_at, first_message, messages, stream, tail, body }
                }
            }
        },
    )
}

fn headers() -> impl Strategy<Value = Header> {
    any::<u16>().prop_map(|connection| Header { connection })
}

fn rounded_up(at: Instant) -> Instant {
    Instant::from_nanos((at.as_nanos() + 999).div_euclid(1000) * 1000)
}

/// Returns the parts of a segment that the encoding keeps. Sizes and windows are tested elsewhere.
fn as_received(segment: &Segment, read: &Segment) -> Segment {
    let mut expected =
        Segment { size: read.size, sent_at: rounded_up(segment.sent_at), ..*segment };
    match (&mut expected.body, &read.body) {
        (Body::Datagram(_) | Body::Repair(_), _) => {}
        (Body::Report(report), _) => {
            report.echo = rounded_up(report.echo);
            report.arrived = rounded_up(report.arrived);
        }
        (Body::Tcp(tcp), Body::Tcp(read)) => {
            tcp.echo = rounded_up(tcp.echo);
            tcp.window_end = read.window_end;
        }
        (Body::Dccp(dccp), _) => {
            if !dccp.kind.has_ack_vector() {
                let newest = dccp.acks.newest();
                dccp.acks = AckVector::EMPTY;
                if newest > 0 && dccp.kind.has_ack_number() {
                    dccp.acks.insert(newest);
                }
            }
            let micros = dccp.elapsed.as_nanos() / 1000;
            dccp.elapsed =
                Duration::from_micros(if dccp.kind.has_ack_number() { micros } else { 0 });
            if !dccp.options.has(DccpOptions::PRIORITY) {
                dccp.priority = 0;
            }
            if !dccp.options.has(DccpOptions::RATIO) {
                dccp.ack_ratio = 0;
            }
        }
        (Body::Tcp(_), _) => unreachable!(),
    }
    expected
}

/// Encodes and decodes a segment, and checks what holds for every segment.
fn pass(segment: &Segment, header: &Header, filler: bool) -> (Vec<u8>, Decoded) {
    let bytes: Vec<u8> = (0..segment.body.payload_bytes()).map(|at| at as u8 | 1).collect();
    let payload = if filler { Payload::Filler } else { Payload::Bytes(&bytes) };
    let mut out = vec![0xaa; 40];
    let place = encode(segment, header, payload, &mut out).unwrap();
    let read = decode(&out, NOW).unwrap();
    assert_eq!(Header::read(&out), Ok(*header));
    assert_eq!((read.header, read.payload.clone()), (*header, place.clone()));
    assert_eq!(read.segment, as_received(segment, &read.segment));
    if let (Body::Tcp(tcp), Body::Tcp(read)) = (&segment.body, &read.segment.body) {
        let (window, received) = (tcp.window_end - tcp.data_ack, read.window_end - read.data_ack);
        assert!(received <= window && window - received <= window / 1024, "{window} {received}");
    }
    let wanted = (segment.size - OUTER_HEADERS) as usize;
    assert!(out.len() >= wanted);
    assert_eq!(read.segment.size as usize, out.len() + OUTER_HEADERS as usize);
    if filler {
        assert!(out.len() == wanted || place.is_empty(), "only a header may be too large");
    } else {
        assert_eq!(out[place.clone()], bytes);
        assert!(out.len() == wanted || place.end == out.len(), "no padding in a larger one");
    }
    (out, read)
}

proptest! {
    #[test]
    fn every_segment_reads_back(
        segment in segments(), header in headers(), filler in any::<bool>(),
    ) {
        pass(&segment, &header, filler);
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80), kind in 0u8..8) {
        let mut bytes = bytes;
        if let Some(first) = bytes.first_mut() {
            *first = 1 << 5 | kind << 2;
        }
        if let Ok(read) = decode(&bytes, NOW) {
            prop_assert!(read.payload.start <= read.payload.end && read.payload.end <= bytes.len());
            let len = read.segment.body.payload_bytes() as usize;
            prop_assert!(read.payload.len() <= len);
            // A decoded segment can be encoded, and decodes to the same again.
            let mut out = Vec::new();
            encode(&read.segment, &read.header, Payload::Filler, &mut out).unwrap();
            let again = decode(&out, NOW).unwrap();
            prop_assert_eq!(as_received(&read.segment, &again.segment), again.segment);
        }
    }

    #[test]
    fn a_datagram_cut_short_never_reads_beyond_its_end(
        segment in segments(), header in headers(), cut in any::<proptest::sample::Index>(),
    ) {
        let (out, whole) = pass(&segment, &header, false);
        let cut = cut.index(out.len());
        match decode(&out[..cut], NOW) {
            Err(error) => prop_assert!(
                matches!(error, WireError::Truncated | WireError::Field(_)), "{}", error
            ),
            Ok(read) => {
                prop_assert!(read.payload.end <= cut);
                prop_assert!(read.payload.len() <= whole.payload.len());
            }
        }
    }

    #[test]
    fn no_segment_panics(
        segment in segments(), size in any::<u32>(), connection in any::<u16>(),
        numbers in any::<[u64; 4]>(), len in any::<u32>(),
    ) {
        let mut segment = Segment { size, ..segment };
        let [a, b, c, d] = numbers;
        match &mut segment.body {
            Body::Datagram(it) => (it.sequence, it.len) = (a, len),
            Body::Report(it) => it.received = a,
            Body::Repair(it) => (it.first, it.len) = (a, len),
            Body::Tcp(it) => {
                (it.seq, it.ack, it.dsn, it.data_ack, it.len) = (a, b, c, d, len);
                it.window_end = len.into();
            }
            Body::Dccp(it) => (it.sequence, it.data.sequence, it.data.len) = (a, b, len),
        }
        let header = Header { connection };
        let mut out = Vec::new();
        let written = encode(&segment, &header, Payload::Filler, &mut out);
        prop_assert!(written.is_err() || decode(&out, NOW).is_ok());
    }
}

// Its last two bytes are the length: 65,508, one byte more than fits into an IPv4 packet.
#[test]
fn a_filler_longer_than_any_datagram_is_rejected() {
    let mut bytes = [0x2c, 0, 0, 0, 0, 0, 0, 219, 128, 0, 0, 128, 0, 0, 255, 228];
    assert!(matches!(decode(&bytes, NOW), Err(WireError::Field("length"))));
    bytes[15] -= 1;
    assert_eq!(decode(&bytes, NOW).unwrap().segment.body.payload_bytes(), 65_507);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    // With the endpoints' packet sizes, and numbers up to the documented limits.
    #[test]
    fn no_data_packet_is_larger_than_promised(
        multipath in any::<bool>(), bits in any::<u16>(), seq in 0u64..1 << 35, ack in 0u64..1 << 35,
        dsn in 0u64..1 << 35, data_ack in 0u64..1 << 35, window in 0u64..1 << 40,
        packet in 0u64..1 << 28, message in 0u32..1 << 28, vector in vectors(), len in 1u32..1400,
        elapsed_us in 0i64..10_000_000, fragment in 0u16..65_000,
    ) {
        let bit = |place: u16| bits >> place & 1 == 1;
        let excess_of = |size, sent: (u16, u8), body| {
            let (messages, stream) = sent;
            let (sent_at, first_message, tail) = (NOW, message, true);
            let segment = Segment { size, sent_at, first_message, messages, stream, tail, body };
            let bytes = vec![1; len as usize];
            let mut out = Vec::new();
            encode(&segment, &Header::default(), Payload::Bytes(&bytes), &mut out).unwrap();
            out.len() as u32 + OUTER_HEADERS - size
        };
        let data = Datagram {
            sequence: packet,
            message: if bit(0) { packet as u32 } else { message },
            len,
            fragment: if bit(1) { fragment } else { 0 },
            fragments: if bit(1) { fragment + 1 } else { 1 },
        };
        prop_assert!(excess_of(28 + len, (1, 0), Body::Datagram(data)) <= excess(Protocol::Udp));
        let repair = Repair { first: packet, count: 64, key: bits, head: [7; 12], len };
        prop_assert!(excess_of(48 + len, (0, 0), Body::Repair(repair)) <= excess(Protocol::Udp));

        let (mut sacks, subflow) = (Sacks::NONE, if multipath { 7 } else { 0 });
        if bit(2) && !multipath {
            sacks.push(ack, ack + 100, ack + 3_000_000_000);
        }
        let dsn = if multipath { dsn } else { seq };
        let data_ack = if multipath { data_ack } else { ack + u64::from(bit(3)) };
        let window_end = data_ack + window;
        let (flags, address, echo) = (Flags::ACK, 0, NOW);
        let tcp = Tcp { flags, subflow, address, seq, len, ack, dsn, data_ack, window_end, echo, sacks };
        let protocol = if multipath { Protocol::Mptcp } else { Protocol::Tcp };
        let size = if multipath { 76 } else { 52 } + sacks.wire_bytes() + len;
        let larger = excess_of(size, (bits >> 4, (bits & 3) as u8), Body::Tcp(tcp));
        prop_assert!(larger <= excess(protocol), "{larger}");

        let flag = |place, option: DccpOptions| option.only_if(bit(place));
        let dccp = Dccp {
            sequence: packet,
            acks: vector,
            elapsed: Duration::from_micros(if bit(4) { elapsed_us } else { 0 }),
            data,
            rtt_us: if bit(5) && multipath { elapsed_us as u32 } else { 0 },
            kind: if bit(6) { DccpKind::Data } else { DccpKind::DataAck },
            options: DccpOptions::MULTIPATH.only_if(multipath).and(flag(7, DccpOptions::RATIO)),
            priority: 3,
            ack_ratio: 2,
        };
        let protocol = if multipath { Protocol::MpDccp } else { Protocol::Dccp };
        let size = IPV4_HEADER + header_bytes(&dccp) + len;
        let larger = excess_of(size, (1, 0), Body::Dccp(dccp));
        prop_assert!(larger <= excess(protocol), "{larger} {dccp:?}");
    }
}

#[test]
fn other_packets_are_not_taken_for_datagrams() {
    let at = |bytes: &[u8]| decode(bytes, NOW).map(|_| ()).unwrap_err();
    assert_eq!(at(&[]), WireError::Truncated);
    assert_eq!(at(&[0x40; 40]), WireError::Version(2));
    assert_eq!(at(&[0x20 | 4 << 2; 40]), WireError::Kind(4));
    assert_eq!(at(&[0x20, 0, 0, 0, 0]), WireError::Truncated);
    assert_eq!(at(&[0x20, 0, 0, 0, 0, 0, 0, 0x80, 1]), WireError::Field("form"));
    // An elapsed time beyond the range of nanoseconds (found by fuzzing).
    let long = [0x2c, 2, 1, 0, 0, 0, 0x1e, 0x84, 0x7c, 0x73, 0xff, 0xff, 0xff, 0xff, 0xff, 0x73];
    let long = [&long[..], &[0xff; 8], &[0x1f, 0xff, 0xff, 0xbe, 0x6f, 0, 0]].concat();
    assert_eq!(at(&long), WireError::Field("elapsed time"));
    // The two low bits are reserved.
    for first in [0x21, 0x22, 0x23] {
        assert_eq!(at(&[first; 40]), WireError::Field("flags"));
    }
    // The length says 16 bytes more than there are.
    assert_eq!(at(&[0x20, 0, 0, 0, 0, 0, 0, 2, 1, 0, 17, 0]), WireError::Truncated);
    assert_eq!(
        WireError::Version(2).to_string(),
        "version 2 of the datagram format; this is version 1"
    );
}

#[test]
fn a_payload_of_another_length_is_refused() {
    let data = Datagram { len: 8, ..no_data() };
    let (sent_at, body) = (NOW, Body::Datagram(data));
    let (first_message, messages, stream, tail) = (0, 0, 0, false);
    let segment = Segment { size: 36, sent_at, first_message, messages, stream, tail, body };
    let wrong = Payload::Bytes(&[0; 7]);
    let refused = encode(&segment, &Header::default(), wrong, &mut Vec::new());
    assert_eq!(refused, Err(WireError::Field("payload")));
}
