//! Addresses of nested testbeds: each has its own block, with a sub-block for testbeds in its vehicle, so
//! that a single route reaches everything inside a vehicle.
//!
//! The blocks are in 100.64.0.0/10 (shared address space, RFC 6598), which holds networks of four addresses,
//! one for each path. IPv6 uses `fd73:6b79:8000::/44`, with the same 20 bits as network number.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::SockaddrIn;

use super::Addresses;
use skybraid_io::netlink::Network;

/// Maximum nesting depth of testbeds.
const MAX_DEPTH: usize = 5;
/// Bits for the testbeds in the same node.
const SLOT_BITS: u8 = 2;
const SLOTS: u32 = 1 << SLOT_BITS;
/// Maximum paths at the maximum depth.
pub(super) const MAX_NESTED_PATHS: usize = 16;

/// Address block `first/prefix` of a testbed, or of all testbeds in a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    first: u32,
    prefix: u8,
}

impl Block {
    /// Prefix length of a path's network.
    pub const PATH_PREFIX: u8 = 30;
    /// Block of testbeds in the vehicle of an outermost testbed.
    pub const VEHICLE: Self = Self { first: 0x6440_0000, prefix: 11 };
    /// Block of testbeds in the other nodes of an outermost testbed.
    const OTHERS: Self = Self { first: 0x6460_0000, prefix: 11 };

    /// Returns a free block for a testbed in the caller's node.
    pub fn free_here() -> io::Result<Self> {
        let v4 = getifaddrs()?
            .filter_map(|interface| interface.address?.as_sockaddr_in().map(SockaddrIn::ip));
        let own: Vec<u32> = v4.map(u32::from).collect();
        Self::free(&own).map_err(|text| io::Error::new(io::ErrorKind::InvalidInput, text))
    }

    /// Returns the first free block in a node with these addresses.
    fn free(own: &[u32]) -> Result<Self, String> {
        let (node, depth) = Self::of_node(own);
        if depth >= MAX_DEPTH {
            return Err(format!("found a testbed {depth} deep, expected at most {MAX_DEPTH}"));
        }
        let taken = |slot: &Self| own.iter().any(|address| slot.contains(*address));
        let mut slots = (0..SLOTS).map(|number| node.slot(number));
        slots.find(|slot| !taken(slot)).ok_or_else(|| {
            format!("found {SLOTS} testbeds in this node already, expected at most {SLOTS}")
        })
    }

    /// Returns the block and depth of the node with these addresses, derived from the address of the
    /// vehicle's end of a path.
    fn of_node(own: &[u32]) -> (Self, usize) {
        for root in [Self::VEHICLE, Self::OTHERS] {
            let is_vehicle = |address: &&u32| root.contains(**address) && **address % 4 == 1;
            let Some(&end) = own.iter().find(is_vehicle) else { continue };
            let mut node = root;
            for depth in 1..=MAX_DEPTH {
                let slots = (0..SLOTS).map(|number| node.slot(number));
                let testbed = slots.into_iter().find(|slot| slot.contains(end)).unwrap_or(node);
                node = testbed.of_vehicle();
                if !node.contains(end) {
                    return (node, depth);
                }
            }
        }
        let vehicle = u32::from(Ipv4Addr::new(10, 0, 0, 1));
        (if own.contains(&vehicle) { Self::VEHICLE } else { Self::OTHERS }, 0)
    }

    /// Returns the block of testbed `number` in the node.
    const fn slot(self, number: u32) -> Self {
        let prefix = self.prefix + SLOT_BITS;
        Self { first: self.first + (number << (32 - prefix)), prefix }
    }

    /// Returns the half of a testbed's block that is for testbeds in its vehicle; the other half is for its
    /// paths.
    pub const fn of_vehicle(self) -> Self {
        let prefix = self.prefix + 1;
        Self { first: self.first + (1 << (32 - prefix)), prefix }
    }

    const fn contains(self, address: u32) -> bool {
        address >> (32 - self.prefix) == self.first >> (32 - self.prefix)
    }

    /// Returns one end of a testbed's path: 1 for the vehicle, 2 for the ground; 0 for the network.
    pub const fn host(self, path: usize, last: u8) -> Addresses {
        let network = self.first + 4 * path as u32;
        let number = (network & 0x003f_ffff) / 4;
        let (high, low) = (0x8000 | (number >> 16) as u16, number as u16);
        Addresses {
            v4: Ipv4Addr::from_bits(network + last as u32),
            v6: Ipv6Addr::new(0xfd73, 0x6b79, high, low, 0, 0, 0, last as u16),
        }
    }

    /// Returns the block as networks.
    pub fn networks(self) -> [Network; 2] {
        self.host(0, 0).networks(self.prefix, self.prefix + 64 - Self::PATH_PREFIX)
    }

    /// Returns the name of the ground's interface of a path, with a number unique among its testbeds.
    pub fn interface(self, path: &str, number: usize) -> String {
        let slot = (self.first >> (32 - self.prefix)) % SLOTS;
        let end = (0..=12).rev().find(|end| path.is_char_boundary(*end)).unwrap_or(0);
        let short = path.get(..end).unwrap_or(path);
        format!("{short}-{}", slot as usize * MAX_NESTED_PATHS + number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(block: Block, path: usize, last: u8) -> u32 {
        block.host(path, last).v4.into()
    }

    #[test]
    fn nested_and_parallel_testbeds_have_different_addresses() {
        let (vehicle, ground) = (0x0a00_0001, 0x0a00_0002);
        let first = Block::free(&[vehicle]).unwrap();
        let second = Block::free(&[vehicle, end(first, 0, 2)]).unwrap();
        let on_ground = Block::free(&[ground]).unwrap();
        let within = Block::free(&[end(first, 0, 1)]).unwrap();
        let next_to = Block::free(&[end(first, 0, 1), end(within, 0, 2)]).unwrap();
        let elsewhere = Block::free(&[end(second, 0, 1)]).unwrap();
        let errors = [first, second, on_ground, within, next_to, elsewhere]
            .map(|block| block.host(0, 0).v4.to_string());
        assert_eq!(
            errors,
            ["100.64.0.0", "100.72.0.0", "100.96.0.0", "100.68.0.0", "100.69.0.0", "100.76.0.0"]
        );
        for (outer, inner) in [(first, within), (first, next_to), (second, elsewhere)] {
            assert!(outer.of_vehicle().contains(end(inner, 15, 2)));
            assert!(!outer.of_vehicle().contains(end(outer, 15, 2)));
        }
        assert!(!first.of_vehicle().contains(end(elsewhere, 0, 1)));
        assert_eq!(first.of_vehicle().networks()[0].to_string(), "100.68.0.0/14");
        assert_eq!(first.of_vehicle().networks()[1].to_string(), "fd73:6b79:8001::/48");
        assert_eq!(second.host(1, 2).v6.to_string(), "fd73:6b79:8002:1::2");
    }

    #[test]
    fn five_deep_with_sixteen_paths_each_is_the_end() {
        let mut own = vec![0x0a00_0001];
        for _ in 0..MAX_DEPTH {
            let block = Block::free(&own).unwrap();
            let last = block.host(MAX_NESTED_PATHS - 1, 2).v4.into();
            assert!(block.contains(last) && !block.of_vehicle().contains(last));
            own = vec![end(block, 0, 1)];
        }
        assert!(Block::free(&own).unwrap_err().contains("found a testbed 5 deep"));
        let mut own = vec![0x0a00_0001];
        for _ in 0..SLOTS {
            own.push(end(Block::free(&own).unwrap(), 0, 2));
        }
        assert!(Block::free(&own).unwrap_err().contains("found 4 testbeds in this node"));
    }

    #[test]
    fn interfaces_of_parallel_testbeds_have_valid_distinct_names() {
        let node = Block::VEHICLE;
        assert_eq!(node.slot(0).interface("link", 0), "link-0");
        assert_eq!(node.slot(3).interface("satellite-geost", 15), "satellite-ge-63");
    }
}
