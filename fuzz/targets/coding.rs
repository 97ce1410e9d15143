//! Any datagrams and repair packets, in any order. A source packet is recovered at most once, and never after it
//! arrived.
#![no_main]

use std::collections::BTreeSet;

use libfuzzer_sys::fuzz_target;
use skybraid_transport::coding::Decoder;
use skybraid_transport::segment::{Datagram, REPAIR_HEAD, Repair};

fuzz_target!(|bytes: &[u8]| {
    let (mut decoder, mut known) = (Decoder::default(), BTreeSet::new());
    for event in bytes.chunks_exact(4 + REPAIR_HEAD) {
        let (fields, head) = event.split_at(4);
        let [kind, number, count, key] = fields.try_into().unwrap();
        let head: [u8; REPAIR_HEAD] = head.try_into().unwrap();
        let sequence = u64::from(number) + 300 * u64::from(kind >> 1);
        let mut found = Vec::new();
        if kind & 1 == 0 {
            let datagram = Datagram { sequence, message: 1, len: 12, fragment: 0, fragments: 1 };
            known.insert(sequence);
            decoder.on_datagram(&datagram, &head, &mut |it| found.push(it.datagram.sequence));
        } else {
            let repair = Repair { first: sequence, count, key: key.into(), head, len: 12 };
            decoder.on_repair(&repair, &[key; 12], &mut |it| found.push(it.datagram.sequence));
        }
        assert!(found.into_iter().all(|it| known.insert(it)), "recovered twice");
    }
});
