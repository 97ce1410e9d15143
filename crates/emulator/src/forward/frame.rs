//! Frame parsing for the forwarder.

/// Length of an Ethernet header.
pub(super) const ETHERNET: usize = 14;

/// Returns the IP packet of the frame; `None` for frames that links do not shape: frames without IP, and the
/// link-local signalling of IPv6: neighbour discovery (ICMPv6 types 133 to 137, RFC 4861 §4) and multicast
/// listeners (130 to 132 and 143 after a hop-by-hop header, RFC 3810 §5).
pub(crate) fn shaped(frame: &[u8]) -> Option<&[u8]> {
    let packet = frame.get(ETHERNET..)?;
    match frame.get(12..ETHERNET)? {
        [0x08, 0x00] => Some(packet),
        [0x86, 0xdd] => {
            let (next, first) = (packet.get(6), packet.get(40));
            let discovery = next == Some(&58) && matches!(first, Some(133..=137));
            let listeners = (next, first) == (Some(&0), Some(&58))
                && matches!(packet.get(48), Some(130..=132 | 143));
            (!discovery && !listeners).then_some(packet)
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
    fn only_ip_that_is_meant_for_more_than_the_cable_is_shaped() {
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
        let mut report = [0; 64];
        (report[0], report[6], report[40], report[48]) = (0x60, 0, 58, 143);
        assert!(shaped(&frame([0x86, 0xdd], &report)).is_none());
        assert!(shaped(&[0; 5]).is_none());
    }
}
