//! Repair packets from source packets, and back.

use alloc::vec;
use alloc::vec::Vec;

use super::reed_solomon::{Interpolation, add_product};
use super::xor::covered;
use super::{Code, Group, RepairError};

/// Octets of a source packet's length, in front of its octets.
const LENGTH_BYTES: usize = 2;

/// Makes the repair packets of groups of the same size.
#[derive(Clone, Debug)]
pub struct Encoder {
    code: Code,
    sources: usize,
    /// Of each Reed–Solomon repair packet: by what to multiply the sources.
    coefficients: Vec<Vec<u8>>,
}

/// A source packet that was lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// Its position in the group.
    pub position: usize,
    /// Its octets.
    pub packet: Vec<u8>,
}

/// Recovers source packets of one group.
#[derive(Clone, Debug)]
pub struct Decoder {
    group: Group,
    /// Of each position what is known.
    packets: Vec<Option<Vec<u8>>>,
}

impl Encoder {
    /// For groups of `sources` source packets.
    ///
    /// # Errors
    /// The code has no such group.
    pub fn new(code: Code, sources: usize) -> Result<Self, RepairError> {
        code.check(sources)?;
        let coefficients = if let Code::ReedSolomon { repairs } = code {
            let interpolation = Interpolation::new(0..sources);
            let positions = sources..sources + repairs;
            positions.map(|position| interpolation.coefficients(position).collect()).collect()
        } else {
            Vec::new()
        };
        Ok(Self { code, sources, coefficients })
    }

    /// The repair packets of a group. Each is two octets longer than the longest packet it covers.
    ///
    /// # Errors
    /// There are not as many packets as the group has sources, or one is longer than 65 535 B.
    pub fn repair_packets(&self, packets: &[&[u8]]) -> Result<Vec<Vec<u8>>, RepairError> {
        if packets.len() != self.sources {
            return Err(RepairError::Sources { given: packets.len(), sources: self.sources });
        }
        if let Some(long) = packets.iter().find(|packet| packet.len() > usize::from(u16::MAX)) {
            return Err(RepairError::TooLong(long.len()));
        }
        if matches!(self.code, Code::ReedSolomon { .. }) {
            let terms = |row: &Vec<u8>| sum(packets.iter().copied().zip(row.iter().copied()));
            return Ok(self.coefficients.iter().map(terms).collect());
        }
        let parity = |repair| {
            let covered = covered(self.code, self.sources, repair);
            sum(covered.filter_map(|source| packets.get(source)).map(|packet| (*packet, 1)))
        };
        Ok((0..self.code.repairs(self.sources)).map(parity).collect())
    }
}

/// The sum of packets, each multiplied by its coefficient.
fn sum<'a>(terms: impl Iterator<Item = (&'a [u8], u8)> + Clone) -> Vec<u8> {
    let longest = terms.clone().map(|(packet, _)| packet.len()).max().unwrap_or(0);
    let mut symbol = vec![0; LENGTH_BYTES + longest];
    for (packet, coefficient) in terms {
        add_source(&mut symbol, packet, coefficient);
    }
    symbol
}

/// Adds the length and the octets of a source packet to `symbol`.
fn add_source(symbol: &mut [u8], packet: &[u8], coefficient: u8) {
    let length = u16::try_from(packet.len()).unwrap_or(u16::MAX);
    if let Some((head, tail)) = symbol.split_at_mut_checked(LENGTH_BYTES) {
        add_product(head, &length.to_be_bytes(), coefficient);
        add_product(tail, packet, coefficient);
    }
}

/// The source packet that a symbol holds.
fn source_of(mut symbol: Vec<u8>) -> Result<Vec<u8>, RepairError> {
    let length = symbol.first_chunk().copied().map(u16::from_be_bytes);
    let end = LENGTH_BYTES + usize::from(length.ok_or(RepairError::Corrupt)?);
    let filling = symbol.get(end..).ok_or(RepairError::Corrupt)?;
    if filling.iter().any(|octet| *octet != 0) {
        return Err(RepairError::Corrupt);
    }
    symbol.truncate(end);
    symbol.drain(..LENGTH_BYTES);
    Ok(symbol)
}

impl Decoder {
    /// For a group of `sources` source packets of which none has arrived.
    ///
    /// # Errors
    /// The code has no such group.
    pub fn new(code: Code, sources: usize) -> Result<Self, RepairError> {
        let group = Group::new(code, sources)?;
        let packets = vec![None; group.packets()];
        Ok(Self { group, packets })
    }

    /// What is known of the group.
    pub const fn group(&self) -> &Group {
        &self.group
    }

    /// Takes a source or repair packet, in any order, and gives the source packets that it makes
    /// known, without itself. A packet that is known already changes nothing.
    ///
    /// # Errors
    /// The position is none of the group, the packet cannot be one of it, or the packets of the group
    /// contradict each other; what this packet recovered before that is not given.
    pub fn arrive(
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
        let mut recovered = Vec::new();
        if !self.group.note(position) {
            return Ok(recovered);
        }
        *stored = Some(packet.to_vec());
        while let Some((source, repair)) = self.group.next_recoverable() {
            match repair {
                Some(repair) => recovered.push(self.recover_parity(source, repair)?),
                None => recovered.extend(self.recover_all()?),
            }
        }
        Ok(recovered)
    }

    fn keep(&mut self, position: usize, packet: Vec<u8>) -> Recovered {
        self.group.note(position);
        if let Some(stored) = self.packets.get_mut(position) {
            *stored = Some(packet.clone());
        }
        Recovered { position, packet }
    }

    fn known(&self, position: usize) -> Option<&[u8]> {
        self.packets.get(position).and_then(Option::as_deref)
    }

    /// The one source packet that is missing of those that a repair packet covers.
    fn recover_parity(&mut self, source: usize, repair: usize) -> Result<Recovered, RepairError> {
        let sources = self.group.sources();
        let mut symbol = self.known(repair).ok_or(RepairError::Corrupt)?.to_vec();
        let others = covered(self.group.code(), sources, repair - sources);
        for packet in others.filter_map(|position| self.known(position)) {
            if packet.len() + LENGTH_BYTES > symbol.len() {
                return Err(RepairError::Corrupt);
            }
            add_source(&mut symbol, packet, 1);
        }
        Ok(self.keep(source, source_of(symbol)?))
    }

    /// All source packets that are missing, by a Reed–Solomon code.
    fn recover_all(&mut self) -> Result<Vec<Recovered>, RepairError> {
        let sources = self.group.sources();
        let known = || (0..self.packets.len()).filter_map(|at| Some((at, self.known(at)?)));
        let repairs = || known().filter(|(at, _)| *at >= sources).map(|(_, packet)| packet.len());
        let size = repairs().next().ok_or(RepairError::Corrupt)?;
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
        Ok(found.into_iter().map(|(position, packet)| self.keep(position, packet)).collect())
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

    fn encode(code: Code, sources: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let slices: Vec<&[u8]> = sources.iter().map(Vec::as_slice).collect();
        let repairs = Encoder::new(code, sources.len()).unwrap().repair_packets(&slices).unwrap();
        [sources, &repairs].concat()
    }

    /// Every loss pattern, in order and backwards: what comes back is right octet for octet, and is
    /// exactly what the group without octets says.
    fn check_all_patterns(code: Code, count: usize, random: &mut Stream) {
        let sources = packets(count, random);
        let all = encode(code, &sources);
        for lost in 0..1_u32 << all.len() {
            let mut here: Vec<usize> =
                (0..all.len()).filter(|position| lost >> position & 1 == 0).collect();
            if random.below(2) == 1 {
                here.reverse();
            }
            let mut decoder = Decoder::new(code, count).unwrap();
            let mut group = Group::new(code, count).unwrap();
            for position in here {
                let recovered = decoder.arrive(position, &all[position]).unwrap();
                let positions: Vec<usize> = recovered.iter().map(|lost| lost.position).collect();
                assert_eq!(positions, group.arrive(position));
                for Recovered { position, packet } in recovered {
                    assert_eq!(packet, sources[position]);
                }
            }
            let missing = group.missing().count();
            assert_eq!(decoder.group().missing().count(), missing);
            if matches!(code, Code::ReedSolomon { .. }) {
                let lost_sources = (lost & ((1 << count) - 1)).count_ones() as usize;
                let enough = all.len() - lost.count_ones() as usize >= count;
                assert_eq!(missing, if enough { 0 } else { lost_sources });
            }
        }
    }

    #[test]
    fn whatever_can_be_recovered_comes_back_octet_for_octet() {
        let mut random = Seed(6865).stream("patterns");
        for count in 1..=6 {
            check_all_patterns(Code::Xor, count, &mut random);
            for columns in 1..=3 {
                check_all_patterns(Code::Interleaved { columns }, count, &mut random);
                check_all_patterns(Code::Grid { columns }, count, &mut random);
            }
            for repairs in 0..=5 {
                check_all_patterns(Code::ReedSolomon { repairs }, count, &mut random);
            }
        }
    }

    #[test]
    fn a_full_reed_solomon_group_recovers_from_its_repair_packets_alone() {
        let mut random = Seed(255).stream("full");
        let sources = packets(127, &mut random);
        let all = encode(Code::ReedSolomon { repairs: 128 }, &sources);
        let mut decoder = Decoder::new(Code::ReedSolomon { repairs: 128 }, 127).unwrap();
        let mut recovered = Vec::new();
        for (position, packet) in all.iter().enumerate().skip(128) {
            recovered.extend(decoder.arrive(position, packet).unwrap());
        }
        let recovered: Vec<Vec<u8>> = recovered.into_iter().map(|lost| lost.packet).collect();
        assert_eq!(recovered, sources);
    }

    // Source: RFC 8627 §6.2: the exclusive or of lengths and octets.
    #[test]
    fn the_parity_packet_is_the_exclusive_or() {
        let all = encode(Code::Xor, &[vec![1, 2, 3], vec![0x10], vec![0x40, 0x80]]);
        assert_eq!(all[3], [0, 3 ^ 1 ^ 2, 0x51, 0x82, 3]);
    }

    #[test]
    fn packets_that_contradict_each_other_are_refused() {
        for code in [Code::Xor, Code::ReedSolomon { repairs: 2 }] {
            let mut decoder = Decoder::new(code, 2).unwrap();
            assert_eq!(decoder.arrive(9, &[1]), Err(RepairError::Position(9)));
            assert_eq!(decoder.arrive(2, &[1]), Err(RepairError::Corrupt));
            assert_eq!(decoder.arrive(0, &[0; 65_536]), Err(RepairError::TooLong(65_536)));
            assert_eq!(decoder.arrive(0, &[1, 2, 3]), Ok(vec![]));
            assert_eq!(decoder.arrive(2, &[0, 1, 1, 1]), Err(RepairError::Corrupt));
        }
        let mut decoder = Decoder::new(Code::ReedSolomon { repairs: 2 }, 2).unwrap();
        assert_eq!(decoder.arrive(2, &[0, 0, 0]), Ok(vec![]));
        assert_eq!(decoder.arrive(3, &[0, 0]), Err(RepairError::Corrupt));
        let encoder = Encoder::new(Code::Xor, 2).unwrap();
        let wrong = RepairError::Sources { given: 1, sources: 2 };
        assert_eq!(encoder.repair_packets(&[&[1]]), Err(wrong));
        let long = encoder.repair_packets(&[&[1], &[0; 65_536]]);
        assert_eq!(long, Err(RepairError::TooLong(65_536)));
    }

    #[test]
    fn no_bytes_make_the_decoder_panic() {
        let mut random = Seed(2).stream("any");
        let (mut recovered, mut refused) = (0, 0);
        for round in 0..20_000 {
            let code = match round % 4 {
                0 => Code::Xor,
                1 => Code::Interleaved { columns: 2 },
                2 => Code::Grid { columns: 2 },
                _ => Code::ReedSolomon { repairs: 3 },
            };
            let mut all = encode(code, &packets(4, &mut random));
            let faulty = random.below(all.len() as u64) as usize;
            all[faulty] = packets(1, &mut random).remove(0);
            let mut decoder = Decoder::new(code, 4).unwrap();
            for _ in 0..10 {
                let position = random.below(all.len() as u64) as usize;
                match decoder.arrive(position, &all[position]) {
                    Ok(found) => recovered += found.len(),
                    Err(_) => refused += 1,
                }
            }
        }
        assert!(recovered > 1000 && refused > 1000);
    }
}
