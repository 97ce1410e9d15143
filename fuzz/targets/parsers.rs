//! Any bytes as what reaches the daemon and the emulator from outside: MAVLink in streams and datagrams, framed
//! datagrams, packets of the TUN interface, HTTP, netlink messages; control requests, frames of a link.
#![no_main]

use libfuzzer_sys::fuzz_target;
use skybraid_emulator::fuzzing as emulator;
use skybraid_node::fuzzing as node;

fuzz_target!(|input: (u8, u8, &[u8])| {
    let (parser, cut, bytes) = input;
    let parser = parser % (node::PARSERS + emulator::PARSERS);
    match parser.checked_sub(node::PARSERS) {
        None => node::parse(parser, cut, bytes),
        Some(parser) => emulator::parse(parser, bytes),
    }
});
