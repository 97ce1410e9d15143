//! Offload of large TCP packets on the TUN interface, in the format that the kernel exchanges with an
//! interface that segments by itself (`struct virtio_net_hdr` of linux/virtio_net.h in front of each packet).
//!
//! [`segment`] splits large packets of the kernel into packets for the network; [`Coalescer`] joins packets
//! of a connection again, so that the kernel receives a run in one call. Only packets that [`segment`] would
//! reproduce bit by bit are joined.

/// Length of `struct virtio_net_hdr` in bytes.
pub const HEAD: usize = 10;

/// The checksum must be completed (`VIRTIO_NET_HDR_F_NEEDS_CSUM`).
const NEEDS_CHECKSUM: u8 = 1;
/// Segmentation types (`VIRTIO_NET_HDR_GSO_…`), and the flag for packets with ECN.
const WHOLE: u8 = 0;
const TCP_V4: u8 = 1;
const TCP_V6: u8 = 4;
const ECN: u8 = 0x80;

/// Protocol number of TCP.
const TCP: u8 = 6;
/// Offset of the checksum in a TCP header (RFC 9293 §3.1).
const TCP_CHECKSUM: u16 = 16;
/// TCP header flags.
const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;
const CWR: u8 = 0x80;

/// Largest IP packet in bytes.
const MAX_PACKET: usize = u16::MAX as usize;
/// Maximum connections with packets being joined.
const MAX_OPEN: usize = 16;

/// Splits a kernel packet with its `virtio_net_hdr` into packets with complete checksums. `room` is
/// overwritten. Returns the number of packets; zero for invalid input.
pub fn segment(bytes: &mut [u8], room: &mut Vec<u8>, each: &mut dyn FnMut(&[u8])) -> usize {
    segments(bytes, room, each).unwrap_or(0)
}

fn segments(bytes: &mut [u8], room: &mut Vec<u8>, each: &mut dyn FnMut(&[u8])) -> Option<usize> {
    let (&mut [flags, kind, _, _, s, t, c, d, o, p], packet) =
        bytes.split_first_chunk_mut::<HEAD>()?;
    let kind = kind & !ECN;
    if kind == WHOLE {
        if flags & NEEDS_CHECKSUM != 0 {
            let (start, offset) = (u16::from_ne_bytes([c, d]), u16::from_ne_bytes([o, p]));
            complete(packet, start.into(), offset.into())?;
        }
        each(packet);
        return Some(1);
    }
    let head = Headers::of(packet)?;
    if kind != if head.is_v6 { TCP_V6 } else { TCP_V4 } {
        return None;
    }
    let size = usize::from(u16::from_ne_bytes([s, t]));
    let (headers, payload) = packet.split_at_checked(head.len)?;
    let (id, sequence) = (u16_at(headers, 4)?, u32_at(headers, head.ip + 4)?);
    let flags = *headers.get(head.ip + 13)?;
    let count = payload.len().div_ceil(size.max(1));
    // A packet to be segmented has payload.
    if size == 0 || count == 0 {
        return None;
    }
    for (number, part) in payload.chunks(size).enumerate() {
        room.clear();
        room.extend_from_slice(headers);
        room.extend_from_slice(part);
        if !head.is_v6 {
            put(room, 4, id.wrapping_add(number as u16).to_be_bytes());
        }
        let offset = (number * size) as u32;
        put(room, head.ip + 4, sequence.wrapping_add(offset).to_be_bytes());
        // FIN and PSH belong to the last segment, CWR to the first (RFC 3168 §6.1.2).
        let not_here = if number + 1 < count { FIN | PSH } else { 0 };
        let not_again = if number > 0 { CWR } else { 0 };
        put(room, head.ip + 13, [flags & !not_here & !not_again]);
        head.put_length(room);
        put(room, head.ip + usize::from(TCP_CHECKSUM), [0; 2]);
        let sum = head.pseudo(room).add(room.get(head.ip..)?);
        put(room, head.ip + usize::from(TCP_CHECKSUM), sum.checksum());
        each(room);
    }
    Some(count)
}

/// Completes the checksum of the data from `start`, at `offset` bytes after it; the field already contains
/// the pseudo-header sum.
fn complete(packet: &mut [u8], start: usize, offset: usize) -> Option<()> {
    let sum = Sum::default().add(packet.get(start..)?);
    packet.get(start + offset..start + offset + 2)?;
    // A checksum of zero would mean that there is none (RFC 768).
    let checksum = Some(sum.checksum()).filter(|sum| *sum != [0; 2]).unwrap_or([0xff; 2]);
    put(packet, start + offset, checksum);
    Some(())
}

/// Places of the headers of a TCP packet that is no fragment and has no extension headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Headers {
    is_v6: bool,
    /// IP header length in bytes.
    ip: usize,
    /// Length of both headers in bytes.
    len: usize,
}

impl Headers {
    fn of(packet: &[u8]) -> Option<Self> {
        let first = *packet.first()?;
        let (is_v6, ip, protocol, length) = match first >> 4 {
            4 => {
                let whole = u16_at(packet, 6)? & 0x3fff == 0;
                let protocol = Some(*packet.get(9)?).filter(|_| whole)?;
                (false, 4 * usize::from(first & 15), protocol, usize::from(u16_at(packet, 2)?))
            }
            6 => (true, 40, *packet.get(6)?, 40 + usize::from(u16_at(packet, 4)?)),
            _ => return None,
        };
        let tcp = 4 * usize::from(packet.get(ip + 12)? >> 4);
        let len = ip + tcp;
        let fits = ip >= 20 && tcp >= 20 && len <= packet.len() && length == packet.len();
        (protocol == TCP && fits).then_some(Self { is_v6, ip, len })
    }

    /// Writes the packet length and the checksum of an IPv4 header.
    fn put_length(&self, packet: &mut [u8]) {
        let length = packet.len() as u16;
        if self.is_v6 {
            return put(packet, 4, (length - 40).to_be_bytes());
        }
        put(packet, 2, length.to_be_bytes());
        put(packet, 10, [0; 2]);
        let sum = Sum::default().add(packet.get(..self.ip).unwrap_or_default());
        put(packet, 10, sum.checksum());
    }

    /// Returns the sum of the pseudo-header (RFC 9293 §3.1, RFC 8200 §8.1).
    fn pseudo(&self, packet: &[u8]) -> Sum {
        let addresses = if self.is_v6 { 8..40 } else { 12..20 };
        let addresses = packet.get(addresses).unwrap_or_default();
        let length = packet.len().saturating_sub(self.ip) as u16;
        Sum::default().add(addresses).add(&[0, TCP]).add(&length.to_be_bytes())
    }

    /// Returns true if both checksums are correct.
    fn is_intact(&self, packet: &[u8]) -> bool {
        let (ip, tcp) = packet.split_at_checked(self.ip).unwrap_or_default();
        let header = self.is_v6 || Sum::default().add(ip).checksum() == [0; 2];
        header && self.pseudo(packet).add(tcp).checksum() == [0; 2]
    }
}

/// Sum of 16-bit words in native byte order, whose one's complement is an internet checksum (RFC 1071).
#[derive(Clone, Copy, Debug, Default)]
struct Sum(u64);

impl Sum {
    /// Adds bytes that start at an even offset.
    fn add(self, bytes: &[u8]) -> Self {
        let (words, rest) = bytes.as_chunks::<4>();
        let sum: u64 = words.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum();
        let mut last = [0; 4];
        last.iter_mut().zip(rest).for_each(|(last, byte)| *last = *byte);
        Self(self.0 + sum + u64::from(u32::from_ne_bytes(last)))
    }

    fn folded(self) -> u16 {
        let mut sum = self.0;
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    /// Returns the checksum in wire format.
    fn checksum(self) -> [u8; 2] {
        (!self.folded()).to_ne_bytes()
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}

fn put<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) {
    if let Some(place) = bytes.get_mut(at..).and_then(|bytes| bytes.first_chunk_mut()) {
        *place = value;
    }
}

/// Joins packets of TCP connections.
#[derive(Default)]
pub struct Coalescer {
    /// Oldest first.
    open: Vec<Run>,
    spare: Vec<Vec<u8>>,
}

/// Consecutive packets of a connection.
struct Run {
    /// Joined packet, after space for its `virtio_net_hdr`.
    bytes: Vec<u8>,
    head: Headers,
    /// Payload length of each packet but the last.
    size: usize,
    /// Next sequence number.
    next: u32,
    count: u16,
    /// No packet can be appended.
    ended: bool,
}

impl Coalescer {
    /// Adds a packet. Packets that can no longer grow are passed to `write`, with a `virtio_net_hdr` in front
    /// and the number of joined packets.
    pub fn push(&mut self, packet: &[u8], write: &mut dyn FnMut(&[u8], u16)) {
        let Some(head) = Headers::of(packet) else { return self.pass(packet, write) };
        let known = self.open.iter().position(|run| run.is_of(&head, packet));
        if let Some(known) = known {
            if self.open.get_mut(known).is_some_and(|run| run.take(&head, packet)) {
                return;
            }
            // The order of packets of a connection is preserved.
            let run = self.open.remove(known);
            self.finish(run, write);
        }
        let bytes = self.spare.pop().unwrap_or_default();
        match Run::begin(bytes, head, packet) {
            Ok(run) => self.open.push(run),
            Err(bytes) => {
                self.spare.push(bytes);
                self.pass(packet, write);
            }
        }
        if self.open.len() > MAX_OPEN {
            let run = self.open.remove(0);
            self.finish(run, write);
        }
    }

    /// Writes all held packets.
    pub fn flush(&mut self, write: &mut dyn FnMut(&[u8], u16)) {
        let mut open = core::mem::take(&mut self.open);
        open.drain(..).for_each(|run| self.finish(run, write));
        self.open = open;
    }

    fn finish(&mut self, mut run: Run, write: &mut dyn FnMut(&[u8], u16)) {
        let count = run.count;
        write(run.finished(), count);
        self.spare.push(run.bytes);
    }

    /// Writes a packet unchanged.
    fn pass(&mut self, packet: &[u8], write: &mut dyn FnMut(&[u8], u16)) {
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.clear();
        bytes.extend_from_slice(&[0; HEAD]);
        bytes.extend_from_slice(packet);
        write(&bytes, 1);
        self.spare.push(bytes);
    }
}

impl Run {
    /// Starts a run if others can follow the packet; returns the buffer otherwise.
    fn begin(mut bytes: Vec<u8>, head: Headers, packet: &[u8]) -> Result<Self, Vec<u8>> {
        let size = packet.len() - head.len;
        let flags = packet.get(head.ip + 13);
        let (Some(sequence), Some(&ACK)) = (u32_at(packet, head.ip + 4), flags) else {
            return Err(bytes);
        };
        if size == 0 {
            return Err(bytes);
        }
        bytes.clear();
        bytes.extend_from_slice(&[0; HEAD]);
        bytes.extend_from_slice(packet);
        let next = sequence.wrapping_add(size as u32);
        Ok(Self { bytes, head, size, next, count: 1, ended: false })
    }

    fn packet(&self) -> &[u8] {
        self.bytes.get(HEAD..).unwrap_or_default()
    }

    /// Returns true if a packet has the same addresses and ports.
    fn is_of(&self, head: &Headers, packet: &[u8]) -> bool {
        let addresses = if head.is_v6 { 8..40 } else { 12..20 };
        let ports = head.ip..head.ip + 4;
        self.head.is_v6 == head.is_v6
            && self.packet().get(addresses.clone()) == packet.get(addresses)
            && self.packet().get(self.head.ip..self.head.ip + 4) == packet.get(ports)
    }

    /// Appends a packet; returns false if it does not follow or a checksum is wrong.
    fn take(&mut self, head: &Headers, packet: &[u8]) -> bool {
        let payload = packet.get(head.len..).unwrap_or_default();
        let flags = packet.get(head.ip + 13).copied().unwrap_or_default();
        let follows = !self.ended
            && *head == self.head
            && u32_at(packet, head.ip + 4) == Some(self.next)
            && (1..=self.size).contains(&payload.len())
            && self.packet().len() + payload.len() <= MAX_PACKET
            && matches!(flags & !PSH, ACK)
            && self.has_like_headers(packet);
        let intact =
            || (self.count > 1 || self.head.is_intact(self.packet())) && head.is_intact(packet);
        if !follows || !intact() {
            return false;
        }
        self.bytes.extend_from_slice(payload);
        put(&mut self.bytes, HEAD + head.ip + 13, [flags]);
        self.next = self.next.wrapping_add(payload.len() as u32);
        self.count += 1;
        self.ended = flags & PSH != 0 || payload.len() < self.size;
        true
    }

    /// Returns true if the headers match those of the run, except for per-segment fields.
    fn has_like_headers(&self, packet: &[u8]) -> bool {
        let (first, ip) = (self.packet(), self.head.ip);
        let is_like =
            |range: core::ops::Range<usize>| first.get(range.clone()) == packet.get(range);
        let like_ip = if self.head.is_v6 {
            is_like(0..4) && is_like(6..8)
        } else {
            let id = u16_at(first, 4).map(|id| id.wrapping_add(self.count));
            is_like(0..2) && is_like(6..10) && is_like(20..ip) && u16_at(packet, 4) == id
        };
        // Acknowledgement number and header length; window; urgent pointer and options.
        like_ip
            && is_like(ip + 8..ip + 13)
            && is_like(ip + 14..ip + 16)
            && is_like(ip + 18..self.head.len)
    }

    /// Returns the packet with its `virtio_net_hdr`.
    fn finished(&mut self) -> &[u8] {
        let Headers { is_v6, ip, len } = self.head;
        if self.count > 1
            && let Some((head, packet)) = self.bytes.split_first_chunk_mut::<HEAD>()
        {
            self.head.put_length(packet);
            let pseudo = self.head.pseudo(packet).folded();
            put(packet, ip + usize::from(TCP_CHECKSUM), pseudo.to_ne_bytes());
            let kind = if is_v6 { TCP_V6 } else { TCP_V4 };
            let [a, b] = (len as u16).to_ne_bytes();
            let [s, t] = (self.size as u16).to_ne_bytes();
            let [c, d] = (ip as u16).to_ne_bytes();
            let [o, p] = TCP_CHECKSUM.to_ne_bytes();
            *head = [NEEDS_CHECKSUM, kind, a, b, s, t, c, d, o, p];
        }
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{
        IpNumber, Ipv4Header, Ipv6FlowLabel, Ipv6Header, NetHeaders, PacketHeaders, TcpHeader,
        TransportHeader,
    };
    use proptest::prelude::*;

    /// Specification of a packet of a connection: port and offset.
    #[derive(Clone, Debug)]
    struct Spec {
        is_v6: bool,
        port: u16,
        sequence: u32,
        id: u16,
        push: bool,
        window: u16,
        payload: Vec<u8>,
    }

    fn packet(spec: &Spec) -> Vec<u8> {
        let mut tcp = TcpHeader::new(spec.port, 5001, spec.sequence, spec.window);
        (tcp.ack, tcp.psh, tcp.acknowledgment_number) = (true, spec.push, 99);
        tcp.set_options_raw(&[1, 1, 8, 10, 0, 0, 0, 7, 0, 0, 0, 8]).unwrap();
        let length = (tcp.header_len() + spec.payload.len()) as u16;
        let mut bytes = Vec::new();
        if spec.is_v6 {
            let ip = Ipv6Header {
                traffic_class: 0,
                flow_label: Ipv6FlowLabel::ZERO,
                payload_length: length,
                next_header: IpNumber::TCP,
                hop_limit: 64,
                source: [0xfd; 16],
                destination: [0xfc; 16],
            };
            tcp.checksum = tcp.calc_checksum_ipv6(&ip, &spec.payload).unwrap();
            ip.write(&mut bytes).unwrap();
        } else {
            let [near, far] = [[10, 77, 0, 1], [10, 77, 0, 2]];
            let mut ip = Ipv4Header::new(length, 64, IpNumber::TCP, near, far).unwrap();
            ip.identification = spec.id;
            ip.header_checksum = ip.calc_header_checksum();
            tcp.checksum = tcp.calc_checksum_ipv4(&ip, &spec.payload).unwrap();
            ip.write(&mut bytes).unwrap();
        }
        tcp.write(&mut bytes).unwrap();
        bytes.extend_from_slice(&spec.payload);
        bytes
    }

    /// Compares the checksums with those of another implementation.
    fn has_right_checksums(packet: &[u8]) -> bool {
        let headers = PacketHeaders::from_ip_slice(packet).unwrap();
        let Some(TransportHeader::Tcp(tcp)) = headers.transport else { return false };
        let payload = headers.payload.slice();
        match headers.net {
            Some(NetHeaders::Ipv4(ip, _)) => {
                ip.calc_header_checksum() == ip.header_checksum
                    && tcp.calc_checksum_ipv4(&ip, payload) == Ok(tcp.checksum)
            }
            Some(NetHeaders::Ipv6(ip, _)) => {
                tcp.calc_checksum_ipv6(&ip, payload) == Ok(tcp.checksum)
            }
            _ => false,
        }
    }

    fn cut(bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut packets = Vec::new();
        let (mut bytes, mut room) = (bytes.to_vec(), Vec::new());
        let count = segment(&mut bytes, &mut room, &mut |packet| packets.push(packet.to_vec()));
        assert_eq!(count, packets.len());
        packets
    }

    /// Packets that the coalescer writes, each with the number of its parts.
    fn join(packets: &[Vec<u8>]) -> Vec<(Vec<u8>, u16)> {
        let (mut coalescer, mut written) = (Coalescer::default(), Vec::new());
        let mut write = |bytes: &[u8], count| written.push((bytes.to_vec(), count));
        packets.iter().for_each(|packet| coalescer.push(packet, &mut write));
        coalescer.flush(&mut write);
        written
    }

    /// Returns the packets of a connection, with `size` bytes of payload in each but the last.
    fn stream(is_v6: bool, port: u16, payload: &[u8], size: usize) -> Vec<Vec<u8>> {
        let count = payload.len().div_ceil(size);
        let spec = |(number, part): (usize, &[u8])| Spec {
            is_v6,
            port,
            sequence: 0xffff_f000_u32.wrapping_add((number * size) as u32),
            id: 0xfffe_u16.wrapping_add(number as u16),
            push: number + 1 == count,
            window: 512,
            payload: part.to_vec(),
        };
        payload.chunks(size).enumerate().map(|part| packet(&spec(part))).collect()
    }

    fn specs() -> impl Strategy<Value = Vec<Spec>> {
        let one = (any::<bool>(), 0_u16..3, 0_u32..3, 0_u16..3, 0_u8..8, 0_u8..12, 0_usize..3);
        proptest::collection::vec(one, 0..200).prop_map(|choices| {
            // Most packets follow the previous ones.
            let mut next = [(0_u32, 0_u16); 6];
            let spec = |choice: (bool, u16, u32, u16, u8, u8, usize)| {
                let (is_v6, port, ahead, skip, push, window, length) = choice;
                let place = &mut next[usize::from(port) + 3 * usize::from(is_v6)];
                let payload = vec![port as u8; [100, 100, 37][length]];
                let spec = Spec {
                    is_v6,
                    port,
                    sequence: place.0 + u32::from(ahead == 2 && skip == 2),
                    id: place.1.wrapping_add(u16::from(skip == 1 && ahead == 1)),
                    push: push == 0,
                    window: 512 + u16::from(window == 0),
                    payload,
                };
                *place = (spec.sequence + spec.payload.len() as u32, spec.id.wrapping_add(1));
                spec
            };
            choices.into_iter().map(spec).collect()
        })
    }

    #[test]
    fn a_connections_packets_are_joined_and_cut_into_the_same() {
        for is_v6 in [false, true] {
            for (length, size) in [(64_000, 1_240), (2_000, 1_000), (1_001, 1_000)] {
                let payload: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
                let packets = stream(is_v6, 1, &payload, size);
                assert!(packets.iter().all(|packet| has_right_checksums(packet)));
                let joined = join(&packets);
                assert_eq!(joined.len(), 1, "{length} in {size}");
                assert_eq!(usize::from(joined[0].1), packets.len());
                assert_eq!(cut(&joined[0].0), packets);
            }
        }
    }

    #[test]
    fn a_packet_with_a_wrong_checksum_is_passed_on_as_it_is() {
        let mut packets = stream(false, 1, &[5; 3_000], 1_000);
        packets[1][300] ^= 1;
        let joined = join(&packets);
        let whole: Vec<Vec<u8>> = joined.iter().map(|(bytes, _)| bytes[HEAD..].to_vec()).collect();
        assert_eq!(whole, packets);
    }

    #[test]
    fn fragments_and_other_packets_are_passed_on_at_once() {
        let mut fragment = stream(false, 1, &[5; 1_000], 1_000).remove(0);
        fragment[6] |= 0x20;
        let other = [0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0];
        for packet in [fragment.as_slice(), &other, &[]] {
            let (mut coalescer, mut written) = (Coalescer::default(), Vec::new());
            coalescer.push(packet, &mut |bytes, count| written.push((bytes.to_vec(), count)));
            assert_eq!(written, [([&[0; HEAD], packet].concat(), 1)]);
        }
    }

    #[test]
    fn a_checksum_that_the_kernel_left_open_is_completed() {
        let packet = stream(false, 1, &[5; 333], 333).remove(0);
        let head = Headers::of(&packet).unwrap();
        let mut open = [&[NEEDS_CHECKSUM, 0, 0, 0, 0, 0, 20, 0, 16, 0], packet.as_slice()].concat();
        let pseudo = head.pseudo(&packet).folded();
        put(&mut open, HEAD + 36, pseudo.to_ne_bytes());
        assert_eq!(cut(&open), [packet]);
    }

    #[test]
    fn flags_are_on_the_packets_that_they_belong_to() {
        let packets = stream(false, 1, &[5; 3_000], 1_000);
        let mut whole = join(&packets).remove(0).0;
        whole[1] |= ECN;
        whole[HEAD + 33] |= CWR | FIN;
        let flags: Vec<u8> = cut(&whole).iter().map(|packet| packet[33]).collect();
        assert_eq!(flags, [CWR | ACK, ACK, ACK | PSH | FIN]);
    }

    proptest! {
        #[test]
        fn what_is_joined_is_cut_into_the_same_in_the_same_order(specs in specs()) {
            let packets: Vec<Vec<u8>> = specs.iter().map(packet).collect();
            let joined = join(&packets);
            let again: Vec<Vec<u8>> = joined.iter().flat_map(|(bytes, _)| cut(bytes)).collect();
            prop_assert!(again.iter().all(|packet| has_right_checksums(packet)));
            prop_assert_eq!(joined.iter().map(|(_, count)| usize::from(*count)).sum::<usize>(), again.len());
            let of = |packets: &[Vec<u8>], wanted: usize| -> Vec<Vec<u8>> {
                let key = |packet: &[u8]| usize::from(packet[if packet[0] >> 4 == 4 { 21 } else { 41 }])
                    + 3 * usize::from(packet[0] >> 4 == 6);
                packets.iter().filter(|packet| key(packet) == wanted).cloned().collect()
            };
            for connection in 0..6 {
                prop_assert_eq!(of(&again, connection), of(&packets, connection));
            }
        }

        #[test]
        fn bytes_of_any_kind_never_panic(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..120),
            first in prop_oneof![Just(0x45_u8), Just(0x60), any::<u8>()],
            kind in prop_oneof![Just(1_u8), Just(4), any::<u8>()],
        ) {
            bytes.get_mut(HEAD).into_iter().for_each(|place| *place = first);
            bytes.get_mut(HEAD + 9).into_iter().for_each(|place| *place = 6);
            bytes.get_mut(1).into_iter().for_each(|place| *place = kind);
            join(&[bytes.clone(), bytes.clone()]);
            cut(&bytes);
        }

        #[test]
        fn changed_packets_never_panic(
            at in 0_usize..80, value in any::<u8>(), length in 0_usize..80, is_v6 in any::<bool>(),
        ) {
            let mut whole = join(&stream(is_v6, 1, &[5; 60], 20)).remove(0).0;
            whole.get_mut(at).into_iter().for_each(|place| *place = value);
            whole.truncate(HEAD + length);
            let packets = cut(&whole);
            join(&packets);
        }
    }
}
