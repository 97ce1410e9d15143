//! SYN parsing for a proxy: detects packets that open a TCP connection, and their destination.

use super::listeners::Door;

const TCP: u8 = 6;
/// Flags of a packet that opens a connection, among SYN, ACK and RST.
const SYN: u8 = 0x02;
const SYN_ACK_RST: u8 = 0x16;
/// Header lengths of IPv6, and of TCP without options.
const IPV6_HEADER: usize = 40;
const TCP_HEADER: usize = 20;
/// Kind of MPTCP options (RFC 8684 §3).
const MPTCP: u8 = 30;

/// The first packet of a TCP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Syn {
    /// Destination of the SYN.
    pub door: Door,
    /// Whether the SYN has an MPTCP option (`MP_CAPABLE` or `MP_JOIN`).
    pub multipath: bool,
}

impl Syn {
    /// Parses an IP packet. TCP after IPv6 extension headers is not TCP to the kernel's routing rules, and so
    /// not to the proxy.
    pub fn read(packet: &[u8]) -> Option<Self> {
        let first = *packet.first()?;
        let (ipv6, protocol, header) = match first >> 4 {
            4 => (false, *packet.get(9)?, usize::from(first & 15) * 4),
            6 => (true, *packet.get(6)?, IPV6_HEADER),
            _ => return None,
        };
        // Only the first fragment has a TCP header.
        let fragment = !ipv6 && (packet.get(6)? & 0x1f, *packet.get(7)?) != (0, 0);
        if protocol != TCP || fragment {
            return None;
        }
        let segment = packet.get(header..)?;
        if segment.get(13)? & SYN_ACK_RST != SYN {
            return None;
        }
        let port = u16::from_be_bytes([*segment.get(2)?, *segment.get(3)?]);
        let length = usize::from(segment.get(12)? >> 4) * 4;
        let multipath = segment.get(TCP_HEADER..length).is_some_and(has_mptcp);
        Some(Self { door: Door { ipv6, port }, multipath })
    }
}

/// Returns true if the TCP options contain one of MPTCP (format: RFC 9293 §3.1).
fn has_mptcp(mut options: &[u8]) -> bool {
    while let Some(&kind) = options.first() {
        let length = match kind {
            0 => return false,
            1 => 1,
            MPTCP => return true,
            _ => usize::from(options.get(1).copied().unwrap_or_default()).max(2),
        };
        options = options.get(length..).unwrap_or_default();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(flags: u8, options: &[u8]) -> Vec<u8> {
        let mut segment = [0; TCP_HEADER];
        segment[..4].copy_from_slice(&[0x9c, 0x40, 0x14, 0x51]);
        segment[12] = ((TCP_HEADER + options.len()) * 4) as u8;
        segment[13] = flags;
        [segment.as_slice(), options].concat()
    }

    fn v4(segment: &[u8]) -> Vec<u8> {
        let mut header = [0; 24];
        (header[0], header[9]) = (0x46, TCP);
        [header.as_slice(), segment].concat()
    }

    fn v6(next: u8, segment: &[u8]) -> Vec<u8> {
        let mut header = [0; IPV6_HEADER];
        (header[0], header[6]) = (0x60, next);
        [header.as_slice(), segment].concat()
    }

    #[test]
    fn a_syns_port_is_read_behind_either_header() {
        let door = |ipv6| Syn { door: Door { ipv6, port: 5201 }, multipath: false };
        assert_eq!(Syn::read(&v4(&tcp(0x02, &[]))), Some(door(false)));
        // With ECN (RFC 3168 §6.1.1), a SYN has ECE and CWR set, too.
        assert_eq!(Syn::read(&v6(TCP, &tcp(0xc2, &[2, 4, 5, 0xa0]))), Some(door(true)));
    }

    #[test]
    fn other_packets_are_none() {
        for flags in [0x12, 0x10, 0x18, 0x11, 0x04, 0x06] {
            assert_eq!(Syn::read(&v4(&tcp(flags, &[]))), None);
        }
        assert_eq!(Syn::read(&v6(17, &tcp(0x02, &[]))), None);
        let mut later = v4(&tcp(0x02, &[]));
        later[7] = 3;
        assert_eq!(Syn::read(&later), None);
        for length in 0..38 {
            assert_eq!(Syn::read(&v4(&tcp(0x02, &[]))[..length]), None, "{length}");
        }
    }

    // Source: RFC 8684 §3.1: MP_CAPABLE of version 1 is kind 30, 4 bytes long in the SYN.
    #[test]
    fn mptcp_is_found_among_the_options() {
        let usual = [2, 4, 5, 0xb4, 4, 2, 8, 10, 1, 2, 3, 4, 0, 0, 0, 0, 1, 3, 3, 7];
        let multipath = |options: &[u8]| Syn::read(&v4(&tcp(0x02, options))).unwrap().multipath;
        assert!(!multipath(&usual));
        assert!(multipath(&[usual.as_slice(), &[30, 4, 0x01, 0x81]].concat()));
        // Options that are truncated or have a length of zero.
        assert!(!multipath(&[8, 10, 30, 4]));
        assert!(!multipath(&[9, 0, 1, 1]));
        assert!(!multipath(&[0, 30, 4, 1]));
    }
}
