//! The example of a link in a program of one's own.

#[path = "../../../link/examples/event_loop.rs"]
mod event_loop;

#[test]
fn a_link_works_in_an_own_event_loop() {
    let uplink = "[uplink]\nrate = '20Mbit/s'\ndelay = '30ms'\n";
    let (received, lost, delay) = event_loop::send(uplink).unwrap();
    assert_eq!((received, lost), (10_000, 0));
    // 1200 B take 0.48 ms at 20 Mbit/s.
    assert_eq!(delay.as_nanos(), 30_480_000);
    event_loop::main().unwrap();
}
