//! Addresses from which a UDP server has received, to which it sends.

use std::cmp::Reverse;
use std::net::{IpAddr, SocketAddr};

use skybraid_units::{Duration, Instant};

use crate::accept::source_of;

/// Maximum senders. Another one replaces one of the source that has the most: the one that has sent for the
/// shortest time.
const MAX_SENDERS: usize = 64;
/// Time after its last datagram at which a sender is forgotten.
const SENDER_TIMEOUT: Duration = Duration::from_secs(60);

/// Senders of a UDP server.
#[derive(Default)]
pub struct Senders(Vec<Sender>);

struct Sender {
    address: SocketAddr,
    /// Times of its first and its last datagram.
    first: Instant,
    last: Instant,
}

impl Senders {
    /// Returns the number of senders.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the address of each sender.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.0.iter().map(|sender| sender.address)
    }

    /// Remembers the sender of a datagram.
    pub fn on_received(&mut self, now: Instant, address: SocketAddr) {
        if let Some(sender) = self.0.iter_mut().find(|sender| sender.address == address) {
            sender.last = now;
            return;
        }
        if self.0.len() >= MAX_SENDERS
            && let Some(at) = self.to_evict()
        {
            self.0.swap_remove(at);
        }
        self.0.push(Sender { address, first: now, last: now });
    }

    /// Forgets silent senders.
    pub fn drop_silent(&mut self, now: Instant) {
        self.0.retain(|sender| now.since(sender.last) < SENDER_TIMEOUT);
    }

    /// Returns the place of the sender to be replaced by another one.
    fn to_evict(&self) -> Option<usize> {
        let sources: Vec<IpAddr> =
            self.addresses().map(|address| source_of(address.ip())).collect();
        let rank = |(at, sender): &(usize, &Sender)| {
            let source = sources.get(*at);
            let of_source = sources.iter().filter(|other| Some(*other) == source).count();
            (Reverse(of_source), sender.last.since(sender.first), sender.last)
        };
        (0..).zip(&self.0).min_by_key(rank).map(|(at, _)| at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(host: u32, port: u16) -> SocketAddr {
        SocketAddr::new(std::net::Ipv4Addr::from(host).into(), port)
    }

    #[test]
    fn a_flood_of_addresses_pushes_no_ground_station_out() {
        let (first, second) = (address(1, 14_550), address(2, 14_550));
        let mut senders = Senders::default();
        let at = Instant::from_millis;
        for second in 0..2 {
            senders.on_received(at(1_000 * second), first);
        }
        // One host with many ports, which has not kept a later ground station out either.
        for port in 0..1_000 {
            senders.on_received(at(2_000), address(3, port));
            if port == 500 {
                senders.on_received(at(2_000), second);
            }
        }
        let is_known = |senders: &Senders, wanted| senders.addresses().any(|one| one == wanted);
        assert!(is_known(&senders, first) && is_known(&senders, second));
        senders.on_received(at(3_000), second);
        // Forged hosts, each with one address.
        for host in 0..1_000 {
            senders.on_received(at(4_000), address(10 + host, 1));
        }
        assert!(is_known(&senders, first) && is_known(&senders, second));
        assert_eq!(senders.len(), MAX_SENDERS);
        senders.drop_silent(at(62_000));
        assert!(!is_known(&senders, first) && is_known(&senders, second));
    }
}
