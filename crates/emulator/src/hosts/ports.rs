//! Mapping between flows and ports.

use skybraid_host::record::PacketKind;

/// Base of the ground's ports for the connections of a flow over its paths.
const GROUND: u16 = 5_000;
/// Base of the vehicle's ports.
const VEHICLE: u16 = 40_000;
/// Ports per flow at each end: one for every path that it may use.
const PER_FLOW: u16 = 64;
/// Maximum number of flows.
pub const MAX_FLOWS: usize = 340;

/// Returns the ground's port of flow number `flow` on path number `path`.
pub const fn ground(flow: usize, path: usize) -> u16 {
    GROUND + PER_FLOW * flow as u16 + path as u16
}

/// Returns the vehicle's port of a flow on a path.
pub const fn vehicle(flow: usize, path: usize) -> u16 {
    VEHICLE + PER_FLOW * flow as u16 + path as u16
}

/// Returns the flow and kind of an IP packet; `None` if it belongs to no flow. The flow is derived from the
/// ground's port: the kernel chooses the vehicle's for the subflows that it adds.
pub fn flow_of(packet: &[u8]) -> Option<(u16, PacketKind)> {
    let (protocol, transport) = transport_of(packet)?;
    let port = |at: usize| Some(u16::from_be_bytes([*transport.get(at)?, *transport.get(at + 1)?]));
    let last = GROUND + PER_FLOW * MAX_FLOWS as u16;
    let ours = |port: &u16| (GROUND..last).contains(port);
    let port = [port(0)?, port(2)?].into_iter().find(ours)?;
    let payload = match protocol {
        TCP => {
            let header = usize::from(transport.get(12)? >> 4) * 4;
            let flags = transport.get(13)?;
            if flags & 0x02 != 0 {
                return Some(((port - GROUND) / PER_FLOW, PacketKind::Handshake));
            }
            transport.len().saturating_sub(header)
        }
        _ => transport.len().saturating_sub(8),
    };
    let kind = if payload > 0 { PacketKind::Data } else { PacketKind::Ack };
    Some(((port - GROUND) / PER_FLOW, kind))
}

const TCP: u8 = 6;
const UDP: u8 = 17;

/// Returns the protocol and the bytes after the IP header, for the first fragment of TCP and UDP.
fn transport_of(packet: &[u8]) -> Option<(u8, &[u8])> {
    match packet.first()? >> 4 {
        4 => {
            let header = usize::from(packet.first()? & 0x0f) * 4;
            let total = usize::from(u16::from_be_bytes([*packet.get(2)?, *packet.get(3)?]));
            let offset = u16::from_be_bytes([*packet.get(6)?, *packet.get(7)?]) & 0x1fff;
            let protocol = *packet.get(9)?;
            let whole = packet.get(header..total.min(packet.len()))?;
            (offset == 0 && matches!(protocol, TCP | UDP)).then_some((protocol, whole))
        }
        6 => {
            let length = usize::from(u16::from_be_bytes([*packet.get(4)?, *packet.get(5)?]));
            let protocol = *packet.get(6)?;
            let whole = packet.get(40..(40 + length).min(packet.len()))?;
            matches!(protocol, TCP | UDP).then_some((protocol, whole))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::PacketBuilder;

    fn udp(from: u16, to: u16, payload: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        let builder = PacketBuilder::ipv4([10, 1, 0, 1], [10, 1, 0, 2], 64).udp(from, to);
        builder.write(&mut bytes, &vec![0; payload]).unwrap();
        bytes
    }

    #[test]
    fn a_packet_belongs_to_the_flow_of_the_grounds_port() {
        let up = udp(vehicle(3, 1), ground(3, 1), 100);
        let down = udp(ground(3, 1), vehicle(3, 1), 100);
        for packet in [up, down] {
            assert_eq!(flow_of(&packet), Some((3, PacketKind::Data)));
        }
        assert_eq!(flow_of(&udp(1234, 53, 100)), None);
    }

    #[test]
    fn a_syn_opens_and_a_bare_ack_carries_nothing_over_ipv6_too() {
        let tcp = || PacketBuilder::ipv6([1; 16], [2; 16], 64).tcp(50_000, ground(0, 0), 1, 1000);
        let (mut syn, mut ack, mut data) = (Vec::new(), Vec::new(), Vec::new());
        tcp().syn().write(&mut syn, &[]).unwrap();
        tcp().ack(1).write(&mut ack, &[]).unwrap();
        tcp().ack(1).write(&mut data, &[7; 10]).unwrap();
        assert_eq!(flow_of(&syn), Some((0, PacketKind::Handshake)));
        assert_eq!(flow_of(&ack), Some((0, PacketKind::Ack)));
        assert_eq!(flow_of(&data), Some((0, PacketKind::Data)));
    }

    #[test]
    fn a_later_fragment_and_a_cut_packet_belong_to_nobody() {
        let mut later = udp(vehicle(0, 0), ground(0, 0), 100);
        later[7] = 1;
        assert_eq!(flow_of(&later), None);
        let whole = udp(vehicle(0, 0), ground(0, 0), 100);
        for length in 0..24 {
            assert_eq!(flow_of(&whole[..length]), None, "{length}");
        }
    }

    #[test]
    fn the_ports_of_the_last_flow_are_still_ports() {
        assert!(ground(MAX_FLOWS - 1, 63) < VEHICLE);
        assert!(u32::from(VEHICLE) + u32::from(PER_FLOW) * MAX_FLOWS as u32 <= 65_536);
    }
}
