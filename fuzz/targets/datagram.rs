//! Any bytes as a datagram. What is read lies within the bytes, can be written again and then reads back
//! the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use skybraid_transport::wire::datagram::{Payload, decode, encode};
use skybraid_units::Instant;

/// A time at which no time of a datagram is the zero that stands for none.
const NOW: Instant = Instant::from_nanos(1 << 50);

fuzz_target!(|bytes: &[u8]| {
    let Ok(read) = decode(bytes, NOW) else { return };
    assert!(read.payload.start <= read.payload.end && read.payload.end <= bytes.len());
    let mut out = Vec::new();
    if encode(&read.segment, &read.header, Payload::Filler, &mut out).is_err() {
        return;
    }
    let again = decode(&out, NOW).map(|it| (it.header, it.segment.sent_at, it.segment.body));
    assert_eq!(again, Ok((read.header, read.segment.sent_at, read.segment.body)));
});
