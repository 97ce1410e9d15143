//! RADIO_STATUS: quality of the networks, in the message that telemetry radios send to ground stations. Sent
//! only to endpoints that request it.
//!
//! Source: MAVLink `common.xml`, message 109; sender 51/68 and the use of the fields as in SiK radios.

use skybraid_gateway::Snapshot;
use skybraid_gateway::snapshot::PathSnapshot;

const RADIO_STATUS: u32 = 109;
const CRC_EXTRA: u8 = 185;
/// System and component IDs used by SiK radios.
const RADIO: (u8, u8) = (51, 68);
/// Signal strength of a path with no loss and a short delay.
const FULL: f64 = 200.0;
/// Maximum round-trip time of full strength, and the one from which it is half.
const PROMPT_MS: f64 = 100.0;
const SLOW_MS: f64 = 1000.0;

/// Builds a MAVLink 2 frame without a signature.
pub fn frame(
    sequence: u8,
    (system, component): (u8, u8),
    message: u32,
    payload: &[u8],
    extra: u8,
) -> Vec<u8> {
    // Trailing zeros are truncated, except for the first byte.
    let length = payload.iter().rposition(|byte| *byte != 0).map_or(1, |last| last + 1);
    let [low, middle, high, _] = message.to_le_bytes();
    let head = [0xfd, length as u8, 0, 0, sequence, system, component, low, middle, high];
    let mut frame = head.to_vec();
    frame.extend(payload.iter().take(length));
    let crc = frame.iter().skip(1).chain([&extra]).fold(0xffff, |crc, byte| checksum(crc, *byte));
    frame.extend(crc.to_le_bytes());
    frame
}

/// Updates a CRC-16/MCRF4XX.
fn checksum(crc: u16, byte: u8) -> u16 {
    (0..8).fold(
        crc ^ u16::from(byte),
        |crc, _| {
            if crc & 1 == 0 { crc >> 1 } else { (crc >> 1) ^ 0x8408 }
        },
    )
}

/// Builds RADIO_STATUS from a snapshot.
///
/// `rssi` is the better of the live paths from the peer, and `remrssi` towards it: 200 without loss, reduced
/// in proportion to the loss, and down to half for round-trip times from 100 ms to 1 s; 0 if no path is live.
/// `noise` and `remnoise` are unknown to a gateway, and 0. `txbuf` is 100: queued data is dropped by class
/// here, and asking an autopilot for less would slow its telemetry down needlessly. `rxerrors` counts
/// datagrams refused as broken or not understood; nothing is ever corrected, so `fixed` is 0.
pub fn radio_status(sequence: u8, snapshot: &Snapshot) -> Vec<u8> {
    let strongest = |loss: fn(&PathSnapshot) -> Option<f64>| {
        let alive = snapshot.paths.iter().filter_map(|path| Some((loss(path)?, path.rtt_ms)));
        alive.map(|(loss, rtt_ms)| strength(loss, rtt_ms.unwrap_or(0.0))).max().unwrap_or(0)
    };
    let here = strongest(|path| path.incoming_loss);
    let there = strongest(|path| path.outgoing_loss);
    let errors = snapshot.refused.forged + snapshot.refused.unreadable;
    let errors = u16::try_from(errors).unwrap_or(u16::MAX).to_le_bytes();
    // Packed in MAVLink order: rxerrors, fixed, rssi, remrssi, txbuf, noise, remnoise.
    let payload = [errors[0], errors[1], 0, 0, here, there, 100, 0, 0];
    frame(sequence, RADIO, RADIO_STATUS, &payload, CRC_EXTRA)
}

fn strength(loss: f64, rtt_ms: f64) -> u8 {
    let slowness = ((rtt_ms - PROMPT_MS) / (SLOW_MS - PROMPT_MS)).clamp(0.0, 1.0);
    (FULL * (1.0 - loss.clamp(0.0, 1.0)) * (1.0 - slowness / 2.0)).round() as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use skybraid_gateway::Side;
    use skybraid_gateway::snapshot::RefusedSnapshot;
    use skybraid_transport::mutran::Header;

    fn snapshot(paths: Vec<PathSnapshot>) -> Snapshot {
        Snapshot {
            name: "test".to_owned(),
            side: Side::Ground,
            uptime_ms: 0.0,
            session: true,
            peer: None,
            session_left_ms: None,
            session_overdue: false,
            session_expired: false,
            sessions: 1,
            peer_restarts: 0,
            peer_duplicated: false,
            silent_ms: None,
            paths,
            classes: Vec::new(),
            channels: Vec::new(),
            control_limit: None,
            sources: Vec::new(),
            bugs: 0,
            tun: None,
            refused: RefusedSnapshot { forged: 300, unreadable: 2, ..RefusedSnapshot::default() },
        }
    }

    // Source: CRC-16/MCRF4XX of "123456789" is 0x6F91 (catalogue of CRC algorithms).
    #[test]
    fn the_checksum_is_the_one_of_the_catalogue() {
        assert_eq!(b"123456789".iter().fold(0xffff, |crc, byte| checksum(crc, *byte)), 0x6f91);
    }

    #[test]
    fn the_message_describes_the_best_path_that_is_up() {
        let path = |loss, rtt| PathSnapshot {
            incoming_loss: Some(loss),
            outgoing_loss: Some(loss / 2.0),
            rtt_ms: Some(rtt),
            ..PathSnapshot::default()
        };
        // One that is down has no measurements.
        let paths = vec![path(0.5, 50.0), path(0.2, 550.0), PathSnapshot::default()];
        let bytes = radio_status(7, &snapshot(paths));
        let header = Header::parse(&bytes).unwrap();
        assert_eq!((header.system, header.component, header.message), (51, 68, 109));
        assert_eq!((header.sequence, header.frame()), (7, bytes.len()));
        // 200 · 0.8 · 0.75 = 120 beats 200 · 0.5; towards the peer 200 · 0.75 = 150 beats 135.
        assert_eq!(&bytes[10..17], &[46, 1, 0, 0, 120, 150, 100]);
        let none = radio_status(0, &snapshot(Vec::new()));
        assert_eq!(&none[14..17], &[0, 0, 100]);
    }
}
