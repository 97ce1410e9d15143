//! Encoder and decoder of repair packets.

use alloc::vec;
use alloc::vec::Vec;

use skybraid_units::field::add_product;
use skybraid_units::invariant::Promised as _;

use super::reed_solomon::Interpolation;
use super::{Group, MAX_PACKETS, RepairError};

/// Bytes of the length field before each protected source packet.
const LENGTH_BYTES: usize = 2;

/// Encoder of groups of one size.
#[derive(Clone, Debug)]
pub struct Encoder {
    sources: usize,
    /// Coefficients of the source packets, for each repair packet.
    coefficients: Vec<Vec<u8>>,
}

/// A recovered source packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// Position in the group.
    pub position: usize,
    /// Bytes of the packet.
    pub packet: Vec<u8>,
}

/// Decoder of one group.
#[derive(Clone, Debug)]
pub struct Decoder {
    group: Group,
    /// Known packets by position.
    packets: Vec<Option<Vec<u8>>>,
}

impl Encoder {
    /// Creates an encoder for groups of `sources` source packets and `repairs` repair packets.
    ///
    /// # Errors
    /// The code does not support a group of this size.
    pub fn new(sources: usize, repairs: usize) -> Result<Self, RepairError> {
        check(sources, repairs)?;
        let interpolation = Interpolation::new(0..sources);
        let positions = sources..sources + repairs;
        let coefficients =
            positions.map(|position| interpolation.coefficients(position).collect()).collect();
        Ok(Self { sources, coefficients })
    }

    /// Returns the repair packets of a group. Each is two bytes longer than the longest packet it covers.
    ///
    /// # Errors
    /// The number of packets is not that of the group, or one is longer than 65 535 B.
    pub fn repair_packets(&self, packets: &[&[u8]]) -> Result<Vec<Vec<u8>>, RepairError> {
        if packets.len() != self.sources {
            return Err(RepairError::Sources { given: packets.len(), sources: self.sources });
        }
        if let Some(long) = packets.iter().find(|packet| packet.len() > usize::from(u16::MAX)) {
            return Err(RepairError::TooLong(long.len()));
        }
        let symbol = |row: &Vec<u8>| sum(packets.iter().copied().zip(row.iter().copied()));
        Ok(self.coefficients.iter().map(symbol).collect())
    }
}

/// Checks that the code supports a group of this size.
fn check(sources: usize, repairs: usize) -> Result<(), RepairError> {
    match sources.saturating_add(repairs) {
        _ if sources == 0 => Err(RepairError::Empty),
        packets if packets > MAX_PACKETS => Err(RepairError::TooMany(packets)),
        _ => Ok(()),
    }
}

/// Returns the sum of packets, each multiplied by its coefficient.
fn sum<'a>(terms: impl Iterator<Item = (&'a [u8], u8)> + Clone) -> Vec<u8> {
    let longest = terms.clone().map(|(packet, _)| packet.len()).max().unwrap_or(0);
    let mut symbol = vec![0; LENGTH_BYTES + longest];
    for (packet, coefficient) in terms {
        add_source(&mut symbol, packet, coefficient);
    }
    symbol
}

/// Adds the length and the bytes of a source packet, times `coefficient`, to `symbol`.
fn add_source(symbol: &mut [u8], packet: &[u8], coefficient: u8) {
    let length = u16::try_from(packet.len()).unwrap_or(u16::MAX);
    let split = symbol.split_at_mut_checked(LENGTH_BYTES);
    if let Some((head, tail)) = split.promised("the length field of a symbol") {
        add_product(head, &length.to_be_bytes(), coefficient);
        add_product(tail, packet, coefficient);
    }
}

/// Returns the source packet of a decoded symbol.
fn source_of(mut symbol: Vec<u8>) -> Result<Vec<u8>, RepairError> {
    let length = symbol.first_chunk().copied().map(u16::from_be_bytes);
    let end = LENGTH_BYTES + usize::from(length.ok_or(RepairError::Corrupt)?);
    let padding = symbol.get(end..).ok_or(RepairError::Corrupt)?;
    if padding.iter().any(|byte| *byte != 0) {
        return Err(RepairError::Corrupt);
    }
    symbol.truncate(end);
    symbol.drain(..LENGTH_BYTES);
    Ok(symbol)
}

impl Decoder {
    /// Creates a decoder of a group of `sources` source packets and `repairs` repair packets before any has arrived.
    ///
    /// # Errors
    /// The code does not support a group of this size.
    pub fn new(sources: usize, repairs: usize) -> Result<Self, RepairError> {
        check(sources, repairs)?;
        let group = Group::new(sources, repairs);
        let packets = vec![None; group.packets()];
        Ok(Self { group, packets })
    }

    /// Returns the state of the group.
    pub const fn group(&self) -> &Group {
        &self.group
    }

    /// Handles a source or repair packet, in any order, and returns the source packets recovered by it. A
    /// packet that is known already changes nothing.
    ///
    /// # Errors
    /// The position or the packet is invalid, or the packets of the group contradict each other; source
    /// packets recovered before the error are not returned.
    pub fn on_received(
        &mut self,
        position: usize,
        packet: &[u8],
    ) -> Result<Vec<Recovered>, RepairError> {
        let is_source = position < self.group.sources();
        let stored = self.packets.get_mut(position).ok_or(RepairError::Position(position))?;
        if is_source && packet.len() > usize::from(u16::MAX) {
            return Err(RepairError::TooLong(packet.len()));
        }
        if !is_source && packet.len() < LENGTH_BYTES {
            return Err(RepairError::Corrupt);
        }
        if !self.group.mark_known(position) {
            return Ok(Vec::new());
        }
        *stored = Some(packet.to_vec());
        if self.group.is_recoverable() { self.recover() } else { Ok(Vec::new()) }
    }

    fn store(&mut self, position: usize, packet: Vec<u8>) -> Recovered {
        self.group.mark_known(position);
        if let Some(stored) = self.packets.get_mut(position).promised("a position of the group") {
            *stored = Some(packet.clone());
        }
        Recovered { position, packet }
    }

    fn known(&self, position: usize) -> Option<&[u8]> {
        self.packets.get(position).and_then(Option::as_deref)
    }

    /// Recovers all missing source packets.
    fn recover(&mut self) -> Result<Vec<Recovered>, RepairError> {
        let sources = self.group.sources();
        let known = || (0..self.packets.len()).filter_map(|at| Some((at, self.known(at)?)));
        let repairs = || known().filter(|(at, _)| *at >= sources).map(|(_, packet)| packet.len());
        let first = repairs().next().promised("a known repair packet");
        let size = first.ok_or(RepairError::Corrupt)?;
        let fits =
            |(at, packet): (usize, &[u8])| at >= sources || packet.len() + LENGTH_BYTES <= size;
        if repairs().any(|length| length != size) || !known().all(fits) {
            return Err(RepairError::Corrupt);
        }
        let interpolation = Interpolation::new(known().take(sources).map(|(at, _)| at));
        let recover = |position| {
            let mut symbol = vec![0; size];
            for ((at, packet), coefficient) in known().zip(interpolation.coefficients(position)) {
                if at < sources {
                    add_source(&mut symbol, packet, coefficient);
                } else {
                    add_product(&mut symbol, packet, coefficient);
                }
            }
            Ok((position, source_of(symbol)?))
        };
        let found: Vec<_> = self.group.missing().map(recover).collect::<Result<_, _>>()?;
        Ok(found.into_iter().map(|(position, packet)| self.store(position, packet)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skybraid_units::{Seed, Stream};

    fn packets(count: usize, random: &mut Stream) -> Vec<Vec<u8>> {
        let mut packet = || {
            let length = random.below(40);
            (0..length).map(|_| random.next_u64() as u8).collect()
        };
        (0..count).map(|_| packet()).collect()
    }

    fn encode(repairs: usize, sources: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let slices: Vec<&[u8]> = sources.iter().map(Vec::as_slice).collect();
        let encoder = Encoder::new(sources.len(), repairs).unwrap();
        [sources, &encoder.repair_packets(&slices).unwrap()].concat()
    }

    /// Checks every loss pattern, in order and reversed: the recovered packets are the source packets, and
    /// exactly those that the group without bytes recovers.
    fn check_all_patterns(repairs: usize, count: usize, random: &mut Stream) {
        let sources = packets(count, random);
        let all = encode(repairs, &sources);
        for lost in 0..1_u32 << all.len() {
            let mut here: Vec<usize> =
                (0..all.len()).filter(|position| lost >> position & 1 == 0).collect();
            if random.below(2) == 1 {
                here.reverse();
            }
            let mut decoder = Decoder::new(count, repairs).unwrap();
            let mut group = Group::new(count, repairs);
            for position in here {
                let recovered = decoder.on_received(position, &all[position]).unwrap();
                let positions: Vec<usize> = recovered.iter().map(|lost| lost.position).collect();
                assert_eq!(positions, group.on_received(position));
                for Recovered { position, packet } in recovered {
                    assert_eq!(packet, sources[position]);
                }
            }
            let lost_sources = (lost & ((1 << count) - 1)).count_ones() as usize;
            let enough = all.len() - lost.count_ones() as usize >= count;
            assert_eq!(group.missing().count(), if enough { 0 } else { lost_sources });
            assert_eq!(decoder.group().missing().count(), group.missing().count());
        }
    }

    #[test]
    fn recovered_packets_equal_the_source_packets() {
        let mut random = Seed(6865).stream("patterns");
        for count in 1..=6 {
            for repairs in 0..=5 {
                check_all_patterns(repairs, count, &mut random);
            }
        }
    }

    #[test]
    fn a_full_group_recovers_from_its_repair_packets_alone() {
        let mut random = Seed(255).stream("full");
        let sources = packets(127, &mut random);
        let all = encode(128, &sources);
        let mut decoder = Decoder::new(127, 128).unwrap();
        let mut recovered = Vec::new();
        for (position, packet) in all.iter().enumerate().skip(128) {
            recovered.extend(decoder.on_received(position, packet).unwrap());
        }
        let recovered: Vec<Vec<u8>> = recovered.into_iter().map(|lost| lost.packet).collect();
        assert_eq!(recovered, sources);
    }

    #[test]
    fn contradicting_packets_are_rejected() {
        for repairs in [1, 2] {
            let mut decoder = Decoder::new(2, repairs).unwrap();
            assert_eq!(decoder.on_received(9, &[1]), Err(RepairError::Position(9)));
            assert_eq!(decoder.on_received(2, &[1]), Err(RepairError::Corrupt));
            assert_eq!(decoder.on_received(0, &[0; 65_536]), Err(RepairError::TooLong(65_536)));
            assert_eq!(decoder.on_received(0, &[1, 2, 3]), Ok(vec![]));
            assert_eq!(decoder.on_received(2, &[0, 1, 1, 1]), Err(RepairError::Corrupt));
        }
        let mut decoder = Decoder::new(2, 2).unwrap();
        assert_eq!(decoder.on_received(2, &[0, 0, 0]), Ok(vec![]));
        assert_eq!(decoder.on_received(3, &[0, 0]), Err(RepairError::Corrupt));
        let encoder = Encoder::new(2, 1).unwrap();
        let wrong = RepairError::Sources { given: 1, sources: 2 };
        assert_eq!(encoder.repair_packets(&[&[1]]), Err(wrong));
        let long = encoder.repair_packets(&[&[1], &[0; 65_536]]);
        assert_eq!(long, Err(RepairError::TooLong(65_536)));
    }

    #[test]
    fn groups_that_the_code_does_not_support_are_rejected() {
        let rejected = |sources, repairs| Encoder::new(sources, repairs).map(|_| ());
        assert_eq!(rejected(0, 1), Err(RepairError::Empty));
        assert_eq!(rejected(200, 55), Ok(()));
        assert_eq!(rejected(200, 56), Err(RepairError::TooMany(256)));
        assert_eq!(rejected(1, usize::MAX), Err(RepairError::TooMany(usize::MAX)));
    }

    #[test]
    fn random_packets_never_panic() {
        let mut random = Seed(2).stream("any");
        let (mut recovered, mut rejected) = (0, 0);
        for round in 0..20_000 {
            let repairs = 1 + round % 3;
            let mut all = encode(repairs, &packets(4, &mut random));
            let faulty = random.below(all.len() as u64) as usize;
            all[faulty] = packets(1, &mut random).remove(0);
            let mut decoder = Decoder::new(4, repairs).unwrap();
            for _ in 0..10 {
                let position = random.below(all.len() as u64) as usize;
                match decoder.on_received(position, &all[position]) {
                    Ok(found) => recovered += found.len(),
                    Err(_) => rejected += 1,
                }
            }
        }
        assert!(recovered > 1000 && rejected > 1000);
    }
}
