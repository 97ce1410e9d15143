//! The example of MPTCP in a program of one's own, over real sockets.

#[path = "../../examples/mptcp_over_udp.rs"]
mod mptcp_over_udp;

#[test]
fn a_file_crosses_two_udp_paths_whole() {
    let file: Vec<u8> = (0..300_000_u32).map(|n| (n / 7) as u8).collect();
    assert!(mptcp_over_udp::carry(&file).unwrap() == file);
    mptcp_over_udp::main().unwrap();
}
