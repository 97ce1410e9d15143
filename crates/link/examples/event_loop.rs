//! A link in an event loop of one's own: a video camera's packets over a measured kind of uplink, and what
//! becomes of them. Run it with `cargo run --package skybraid-link --example event_loop`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use skybraid_link::{Direction, Fate, Link, PathConfig};
use skybraid_units::{Bytes, Duration, Instant, Seed};

const PACKET: Bytes = Bytes::new(1200);
const PACKETS: i64 = 10_000;

/// Sends packets at 10 Mbit/s through a link. Returns how many arrived, how many were lost, and the mean delay.
pub fn send(path: &str) -> Result<(usize, usize, Duration), Box<dyn std::error::Error>> {
    let config: PathConfig = toml::from_str(path)?;
    let config = config.link(Direction::Uplink)?;
    let mut link = Link::new(&config, "lte", Direction::Uplink.name(), Seed(1));

    // The loop's agenda: arrivals in order of time. A link decides a packet's fate when the packet enters it.
    let mut arrivals = BinaryHeap::new();
    let mut lost = 0;
    for packet in 0..PACKETS {
        let sent = Instant::ZERO + Duration::from_micros(960 * packet);
        match link.admit(sent, PACKET) {
            Fate::Delivered { at } => arrivals.push(Reverse((at, sent))),
            Fate::Held | Fate::Lost { .. } => lost += 1,
        }
    }
    let (mut received, mut waited) = (0, Duration::ZERO);
    while let Some(Reverse((at, sent))) = arrivals.pop() {
        received += 1;
        waited += at.since(sent);
    }
    let mean = Duration::from_nanos(waited.as_nanos() / received.max(1));
    Ok((received as usize, lost, mean))
}

/// Prints the outcome for a link of 20 Mbit/s with bursts of loss.
pub fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (received, lost, delay) = send(
        "[uplink]\nrate = '20Mbit/s'\ndelay = '30ms'\n\
         loss = { gilbert_elliott = { good_to_bad = '0.1%', bad_to_good = '30%' } }\n",
    )?;
    println!("{received} packets arrived, {lost} were lost, mean delay {delay}");
    Ok(())
}
