//! Repair packets, from which lost packets of a class are recovered without retransmission.
//!
//! Packets of a class form groups. Each piece is sent at once, preceded by the group and the position in the
//! group. Repair packets follow when the group is full or the first piece has waited long enough. The peer
//! recognizes such pieces by a channel number that no channel has, so that one side alone may use repair
//! packets.
//!
//! | bytes | field |
//! |---|---|
//! | 1 | 0x7f |
//! | 2 | the group |
//! | 1 | its position in the group: pieces from 0 on, then repair packets |
//! | 1 | of a repair packet: how many pieces the group has; of a piece 0 |
//! | 1 | of a repair packet: how many of them there are |
//! | any | the piece, or the symbol of the code (RFC 5510, Reed–Solomon over GF(2^8)) |

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use skybraid_traffic::video::repair::{Decoder, Encoder, MeasuredLoss};
use skybraid_transport::PathId;
use skybraid_units::invariant::Promised;
use skybraid_units::{Duration, Instant, Probability, keys};

/// Marker instead of a channel number.
pub const MARK: u8 = 0x7f;
/// Header of a piece, in bytes.
pub const HEAD: usize = 6;
/// Bytes of a repair packet beyond the longest piece of the group: the piece length.
pub const LENGTH: usize = 2;
/// Groups kept by the receiver.
const KEPT: usize = 64;
/// Silence after which the numbers of groups may have gone round.
const MAX_SILENCE: Duration = Duration::from_secs(10);
/// Default number of repair packets per piece.
const DEFAULT_SHARE: Probability = Probability::saturating(0.2);

keys! {
    /// Repair packet settings of a class.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct RepairConfig {
        /// Repair packets per piece, at least one per group; 20 % unless this or `fails` is given.
        pub share: Option<Probability> = None,
        /// Share of groups that may remain unrecoverable, at the loss that the peer measures.
        pub fails: Option<Probability> = None,
        /// Maximum pieces per group, 1 to 100. Default 10.
        pub group: u8 = 10,
        /// Maximum time that the first packet of a group waits for others. Default 10 ms.
        pub within: Duration = Duration::from_millis(10),
    }
}

impl core::fmt::Display for RepairConfig {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let group = self.group;
        match self.fails {
            Some(fails) => write!(f, "repair so that {fails} of groups of {group} fail"),
            None => write!(f, "{} repair in groups of {group}", self.share()),
        }
    }
}

impl RepairConfig {
    fn share(&self) -> Probability {
        self.share.unwrap_or(DEFAULT_SHARE)
    }

    /// Checks the ranges.
    ///
    /// # Errors
    /// The key that is out of range, and the expected range.
    pub fn check(&self) -> Result<(), (&'static str, &'static str)> {
        if !(1..=100).contains(&self.group) {
            return Err(("group", "1 to 100"));
        }
        if self.share.is_some_and(|share| share.ratio() <= 0.0) {
            return Err(("share", "above 0 %"));
        }
        if self.fails.is_some_and(|fails| fails.ratio() <= 0.0 || fails.ratio() >= 1.0) {
            return Err(("fails", "between 0 % and 100 %"));
        }
        if self.fails.is_some() && self.share.is_some() {
            return Err(("fails", "without `share`"));
        }
        if !self.within.is_positive() {
            return Err(("within", "above zero"));
        }
        Ok(())
    }

    /// Returns the repair count for `sources` pieces.
    fn repairs(&self, sources: usize, loss: MeasuredLoss) -> usize {
        if let Some(fails) = self.fails {
            return loss.repairs(sources, fails);
        }
        let exact = sources as f64 * self.share().ratio();
        let whole = exact as usize;
        // Floating-point error must not round a whole number up.
        (whole + usize::from(exact - whole as f64 > 1e-9)).max(1)
    }
}

/// A packet of a group, in two parts.
#[derive(Clone, Copy, Debug)]
pub enum Packet<'a> {
    /// A source packet.
    Piece([&'a [u8]; 2]),
    /// A repair packet.
    Repair([&'a [u8]; 2]),
}

/// FEC encoder of a class.
#[derive(Debug)]
pub struct FecEncoder {
    config: RepairConfig,
    group: u16,
    pieces: Vec<Vec<u8>>,
    since: Instant,
    /// Encoder by numbers of pieces and repair packets, reused while groups are alike.
    encoder: Option<((usize, usize), Encoder)>,
    loss: MeasuredLoss,
    /// Packets that left since the losses of paths were last recorded, by path.
    left: Vec<u32>,
}

impl FecEncoder {
    /// Creates an idle encoder.
    pub const fn new(config: RepairConfig) -> Self {
        Self {
            config,
            group: 0,
            pieces: Vec::new(),
            since: Instant::ZERO,
            encoder: None,
            loss: MeasuredLoss::new(),
            left: Vec::new(),
        }
    }

    /// Records that a packet of the class left by `path`.
    pub fn on_sent_via(&mut self, path: PathId) {
        let place = path.index();
        if self.left.len() <= place {
            self.left.resize(place + 1, 0);
        }
        if let Some(count) = self.left.get_mut(place).promised("a path that was added") {
            *count = count.saturating_add(1);
        }
    }

    /// Records the loss of each path as the peer reports it, weighted by the packets sent since the last call.
    pub fn record_loss(&mut self, loss_of: impl Fn(PathId) -> f64) {
        let packets: u32 = self.left.iter().sum();
        if packets == 0 {
            return;
        }
        let by_path = self.left.iter().zip(0..);
        let lost: f64 = by_path.map(|(left, id)| f64::from(*left) * loss_of(PathId(id))).sum();
        self.loss.record(lost / f64::from(packets), packets);
        self.left.fill(0);
    }

    /// Passes a packet with its header to `take`, then the repair packets if that fills the group.
    pub fn encode(&mut self, now: Instant, piece: [&[u8]; 2], take: &mut impl FnMut(Packet<'_>)) {
        if self.pieces.is_empty() {
            self.since = now;
        }
        let piece = piece.concat();
        let position = self.pieces.len() as u8;
        let [high, low] = self.group.to_be_bytes();
        take(Packet::Piece([&[MARK, high, low, position, 0, 0], &piece]));
        self.pieces.push(piece);
        if self.pieces.len() >= usize::from(self.config.group) {
            self.close(take);
        }
    }

    /// Time of the next call of [`wake`](Self::wake).
    pub fn due(&self) -> Instant {
        if self.pieces.is_empty() { Instant::FAR_FUTURE } else { self.since + self.config.within }
    }

    /// Closes the group if it is due.
    pub fn wake(&mut self, now: Instant, take: &mut impl FnMut(Packet<'_>)) {
        if now >= self.due() {
            self.close(take);
        }
    }

    fn close(&mut self, take: &mut impl FnMut(Packet<'_>)) {
        let sources = self.pieces.len();
        let repairs = self.config.repairs(sources, self.loss);
        let size = (sources, repairs);
        if repairs > 0 && self.encoder.as_ref().is_none_or(|(known, _)| *known != size) {
            self.encoder = Encoder::new(sources, repairs).ok().map(|encoder| (size, encoder));
        }
        if let Some((_, encoder)) = self.encoder.as_ref().filter(|_| repairs > 0) {
            let pieces: Vec<&[u8]> = self.pieces.iter().map(Vec::as_slice).collect();
            let symbols = encoder.repair_packets(&pieces).unwrap_or_default();
            let [high, low] = self.group.to_be_bytes();
            for (number, symbol) in symbols.iter().enumerate() {
                let position = (sources + number) as u8;
                let head = [MARK, high, low, position, sources as u8, repairs as u8];
                take(Packet::Repair([&head, symbol]));
            }
        }
        self.pieces.clear();
        self.group = self.group.wrapping_add(1);
    }
}

/// FEC decoder of a class.
#[derive(Debug, Default)]
pub struct FecDecoder {
    groups: VecDeque<Group>,
    /// Arrival of the last packet of a group.
    arrived_at: Instant,
    recovered: u64,
}

/// Packets of a group that have arrived.
#[derive(Debug)]
struct Group {
    number: u16,
    /// Pieces by position.
    pieces: Vec<Option<Vec<u8>>>,
    /// Received repair packets, and total numbers of pieces and repair packets.
    repairs: Vec<(u8, Vec<u8>)>,
    counts: Option<(u8, u8)>,
    /// Nothing more can be recovered.
    settled: bool,
}

impl FecDecoder {
    /// Number of recovered packets.
    pub const fn recovered(&self) -> u64 {
        self.recovered
    }

    /// Handles a packet: `take` gets each source packet that arrived or was recovered by it, once. Bytes
    /// without the header of FEC are passed on as they are.
    pub fn on_received(&mut self, now: Instant, bytes: &[u8], take: &mut impl FnMut(&[u8])) {
        let Some((&[MARK, high, low, position, sources, repairs], rest)) =
            bytes.split_first_chunk()
        else {
            return take(bytes);
        };
        if now.since(core::mem::replace(&mut self.arrived_at, now)) > MAX_SILENCE {
            self.groups.clear();
        }
        let number = u16::from_be_bytes([high, low]);
        let Some(group) = self.group(number) else { return };
        if sources == 0 {
            if group.piece(position, rest) {
                take(rest);
            }
        } else if position >= sources && position - sources < repairs {
            group.counts = group.counts.or(Some((sources, repairs)));
            if group.counts == Some((sources, repairs)) {
                group.repairs.push((position, rest.to_vec()));
            }
        }
        let recovered = group.recover();
        self.recovered += recovered.len() as u64;
        recovered.iter().for_each(|piece| take(piece));
    }

    /// Returns a group by number; `None` if it has been forgotten.
    fn group(&mut self, number: u16) -> Option<&mut Group> {
        if let Some(place) = self.groups.iter().position(|group| group.number == number) {
            return self.groups.get_mut(place).promised("the group that was found");
        }
        let newest = self.groups.back().map(|group| group.number);
        let behind = newest.is_some_and(|newest| newest.wrapping_sub(number) < 1 << 15);
        let oldest = self.groups.front().map(|group| group.number);
        let forgotten = oldest.is_some_and(|oldest| oldest.wrapping_sub(number) < 1 << 15);
        if behind && forgotten && self.groups.len() >= KEPT {
            return None;
        }
        if self.groups.len() >= KEPT {
            self.groups.pop_front();
        }
        let after = |group: &Group| number.wrapping_sub(group.number) < 1 << 15;
        let place = self.groups.partition_point(after);
        self.groups.insert(
            place,
            Group { number, pieces: Vec::new(), repairs: Vec::new(), counts: None, settled: false },
        );
        self.groups.get_mut(place).promised("the group that was added")
    }
}

impl Group {
    /// Records a piece; false if already known.
    fn piece(&mut self, position: u8, bytes: &[u8]) -> bool {
        let place = usize::from(position);
        if self.pieces.len() <= place {
            self.pieces.resize(place + 1, None);
        }
        match self.pieces.get_mut(place) {
            Some(piece @ None) => {
                *piece = Some(bytes.to_vec());
                true
            }
            _ => false,
        }
    }

    /// Returns the pieces that can be recovered now.
    fn recover(&mut self) -> Vec<Vec<u8>> {
        let Some((sources, repairs)) = self.counts.filter(|_| !self.settled) else {
            return Vec::new();
        };
        let known = self.pieces.iter().flatten().count();
        if known < usize::from(sources) && known + self.repairs.len() < usize::from(sources) {
            return Vec::new();
        }
        self.settled = true;
        let Ok(mut decoder) = Decoder::new(sources.into(), repairs.into()) else {
            return Vec::new();
        };
        let pieces = self
            .pieces
            .iter()
            .enumerate()
            .filter_map(|(place, piece)| Some((place, piece.as_ref()?)));
        let repairs = self.repairs.iter().map(|(position, it)| (usize::from(*position), it));
        let mut found = Vec::new();
        for (position, packet) in pieces.chain(repairs) {
            match decoder.on_received(position, packet) {
                Ok(recovered) => found.extend(recovered),
                Err(_) => return Vec::new(),
            }
        }
        found.sort_by_key(|recovered| recovered.position);
        let new = found.into_iter().filter(|recovered| {
            let position = u8::try_from(recovered.position);
            position.is_ok_and(|position| self.piece(position, &recovered.packet))
        });
        new.map(|recovered| recovered.packet).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    fn config(group: u8, share: f64) -> RepairConfig {
        let share = Probability::new(share);
        RepairConfig { share, fails: None, group, within: Duration::from_millis(10) }
    }

    fn bytes(packet: Packet<'_>) -> Vec<u8> {
        match packet {
            Packet::Piece(parts) | Packet::Repair(parts) => parts.concat(),
        }
    }

    fn sent(fec_encoder: &mut FecEncoder, pieces: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        for piece in pieces {
            fec_encoder.encode(Instant::ZERO, [piece, &[]], &mut |packet| out.push(bytes(packet)));
        }
        fec_encoder.wake(Instant::from_millis(10), &mut |packet| out.push(bytes(packet)));
        out
    }

    fn received(
        fec_decoder: &mut FecDecoder,
        packets: impl Iterator<Item = Vec<u8>>,
    ) -> Vec<Vec<u8>> {
        received_at(Instant::ZERO, fec_decoder, packets)
    }

    fn received_at(
        now: Instant,
        fec_decoder: &mut FecDecoder,
        packets: impl Iterator<Item = Vec<u8>>,
    ) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        for packet in packets {
            fec_decoder.on_received(now, &packet, &mut |piece| out.push(piece.to_vec()));
        }
        out
    }

    #[test]
    fn each_group_outlives_as_many_losses_as_it_has_repair_packets() {
        let pieces: Vec<Vec<u8>> =
            (0..8_u8).map(|index| vec![index; 5 + usize::from(index)]).collect();
        for lost in 0..1_u32 << 10 {
            let mut packets = sent(&mut FecEncoder::new(config(8, 0.25)), &pieces);
            assert_eq!(packets.len(), 10);
            let mut number = 0;
            packets.retain(|_| {
                number += 1;
                lost >> (number - 1) & 1 == 0
            });
            let mut fec_decoder = FecDecoder::default();
            let mut found = received(&mut fec_decoder, packets.into_iter());
            found.sort();
            let losses = (lost & 0xff).count_ones() as usize;
            let whole = lost.count_ones() <= 2;
            assert_eq!(found.len(), if whole { 8 } else { 8 - losses }, "{lost:b}");
            assert!(found.iter().all(|piece| pieces.contains(piece)));
            assert_eq!(fec_decoder.recovered as usize, if whole { losses } else { 0 });
        }
    }

    #[test]
    fn a_group_that_is_not_full_is_repaired_after_a_while() {
        let mut fec_encoder = FecEncoder::new(config(10, 0.2));
        assert_eq!(fec_encoder.due(), Instant::FAR_FUTURE);
        let mut out = Vec::new();
        let mut take = |packet: Packet<'_>| out.push(bytes(packet));
        fec_encoder.encode(Instant::from_millis(3), [&[1, 2], &[3]], &mut take);
        assert_eq!(fec_encoder.due(), Instant::from_millis(13));
        fec_encoder.wake(Instant::from_millis(12), &mut take);
        fec_encoder.wake(Instant::from_millis(13), &mut take);
        assert_eq!(out.len(), 2);
        let found = received(&mut FecDecoder::default(), out.drain(1..));
        assert_eq!(found, [[1, 2, 3]], "the piece was lost, its repair packet was not");
    }

    // Source: the binomial formula. Of 10 pieces and r repair packets at 2 % loss more than r are lost with
    // probability 1.5e-3 (r = 2) and 9.9e-5 (r = 3); at 10 % with 2.2e-3 (r = 5) and 5.0e-4 (r = 6).
    #[test]
    fn repair_follows_the_loss_of_the_paths_that_carry_the_class() {
        let fails = Probability::new(0.001);
        let config = RepairConfig { share: None, fails, ..config(10, 0.2) };
        let mut fec_encoder = FecEncoder::new(config);
        let pieces: Vec<Vec<u8>> = (0..10_u8).map(|index| vec![index; 9]).collect();
        let repairs = |fec_encoder: &mut FecEncoder, carrying: PathId| {
            for _ in 0..30 {
                (0..500).for_each(|_| fec_encoder.on_sent_via(carrying));
                fec_encoder.record_loss(|path| [0.02, 0.0, 0.1][path.index()]);
            }
            sent(fec_encoder, &pieces).len() - pieces.len()
        };
        assert_eq!(repairs(&mut fec_encoder, PathId(0)), 3);
        assert_eq!(repairs(&mut fec_encoder, PathId(1)), 0, "nothing is lost, nothing is added");
        assert_eq!(repairs(&mut fec_encoder, PathId(2)), 6);
    }

    #[test]
    fn copies_and_latecomers_are_given_once() {
        let pieces: Vec<Vec<u8>> = (0..4_u8).map(|index| vec![index; 9]).collect();
        let packets = sent(&mut FecEncoder::new(config(4, 0.25)), &pieces);
        // Piece 1 arrives after its recovery; all arrive twice.
        let order = [0, 2, 3, 4, 1, 0, 1, 2, 3, 4];
        let found =
            received(&mut FecDecoder::default(), order.iter().map(|index| packets[*index].clone()));
        assert_eq!(found, [0, 2, 3, 1].map(|index: usize| pieces[index].clone()));
    }

    #[test]
    fn groups_are_taken_after_a_loss_of_any_length() {
        for minutes in 1..30 {
            let mut fec_decoder = FecDecoder::default();
            let mut fec_encoder = FecEncoder::new(config(1, 1.0));
            let mut found = Vec::new();
            for (second, group) in [(0, 0), (60 * minutes, 50 * 60 * minutes)] {
                fec_encoder.group = group as u16;
                let now = Instant::ZERO + Duration::from_secs(second);
                let pieces: Vec<Vec<u8>> = (0..100).map(|number| vec![number]).collect();
                let packets = sent(&mut fec_encoder, &pieces).into_iter();
                found.extend(received_at(now, &mut fec_decoder, packets));
            }
            assert_eq!(found.len(), 200, "{minutes} min");
        }
    }

    #[test]
    fn what_is_not_protected_passes() {
        let found = received(&mut FecDecoder::default(), [vec![3, 1, 4], vec![]].into_iter());
        assert_eq!(found, [vec![3, 1, 4], vec![]]);
    }

    proptest! {
        #[test]
        fn whatever_a_peer_says_nothing_panics_and_memory_is_bounded(
            packets in prop::collection::vec(
                (any::<u8>(), any::<u8>(), any::<u8>(), any::<u8>(), any::<u8>(),
                 prop::collection::vec(any::<u8>(), 0..20)),
                0..300,
            ),
        ) {
            let mut fec_decoder = FecDecoder::default();
            for (high, low, position, sources, repairs, rest) in packets {
                let packet = [&[MARK, high, low, position, sources, repairs][..], &rest].concat();
                fec_decoder.on_received(Instant::ZERO, &packet, &mut |_| {});
            }
            prop_assert!(fec_decoder.groups.len() <= KEPT);
        }

        #[test]
        fn lossy_reordered_streams_give_each_piece_at_most_once(
            lost in prop::collection::vec(any::<bool>(), 200),
            swaps in prop::collection::vec((0usize..180, 0usize..12), 0..40),
        ) {
            let pieces: Vec<Vec<u8>> = (0..150_u16).map(|index| index.to_be_bytes().to_vec()).collect();
            let mut packets = sent(&mut FecEncoder::new(config(10, 0.2)), &pieces);
            prop_assert_eq!(packets.len(), 180);
            for (place, by) in swaps {
                let other = (place + by).min(packets.len() - 1);
                packets.swap(place, other);
            }
            let kept = packets.into_iter().zip(&lost).filter(|(_, lost)| !**lost).map(|(it, _)| it);
            let mut found = received(&mut FecDecoder::default(), kept);
            let given = found.len();
            found.sort();
            found.dedup();
            prop_assert_eq!(found.len(), given);
            prop_assert!(found.iter().all(|piece| pieces.contains(piece)));
        }
    }
}
