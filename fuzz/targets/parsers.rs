//! Any bytes as what reaches the daemon and the emulator from outside: MAVLink in streams and datagrams, framed
//! datagrams, packets of the TUN interface, HTTP, control requests, netlink messages, frames of a link.
#![no_main]

use libfuzzer_sys::fuzz_target;
use skybraid_runtime::fuzzing::parse;

fuzz_target!(|input: (u8, u8, &[u8])| parse(input.0, input.1, input.2));
