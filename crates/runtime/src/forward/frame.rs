//! What the forwarder reads in a frame.

/// Length of an Ethernet header.
pub(super) const ETHERNET: usize = 14;

/// The frame's IP packet; `None` for what a link does not shape: frames that carry no IP, and neighbour
/// discovery (ICMPv6 types 133 to 137, RFC 4861 §4), without which no IPv6 packet finds its way.
pub(super) fn shaped(frame: &[u8]) -> Option<&[u8]> {
    let packet = frame.get(ETHERNET..)?;
    match frame.get(12..ETHERNET)? {
        [0x08, 0x00] => Some(packet),
        [0x86, 0xdd] => {
            let icmp = packet.get(6) == Some(&58);
            let discovery = icmp && matches!(packet.get(40), Some(133..=137));
            (!discovery).then_some(packet)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(ethertype: [u8; 2], packet: &[u8]) -> Vec<u8> {
        [[2; 12].as_slice(), &ethertype, packet].concat()
    }

    #[test]
    fn only_ip_without_neighbour_discovery_is_shaped() {
        assert!(shaped(&frame([0x08, 0x00], &[0x45; 28])).is_some());
        assert!(shaped(&frame([0x08, 0x06], &[0; 28])).is_none());
        let icmp = |kind| {
            let mut packet = [0; 64];
            (packet[0], packet[6], packet[40]) = (0x60, 58, kind);
            frame([0x86, 0xdd], &packet)
        };
        for kind in [128, 132, 138, 143] {
            assert!(shaped(&icmp(kind)).is_some());
        }
        for kind in 133..=137 {
            assert!(shaped(&icmp(kind)).is_none());
        }
        assert!(shaped(&[0; 5]).is_none());
    }
}
