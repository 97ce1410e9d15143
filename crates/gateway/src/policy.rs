//! Classification by MAVLink message, port or DSCP.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use skybraid_transport::mutran::mavlink::{COMMON, Header, known};
use skybraid_units::Instant;

use crate::Class;
use crate::config::{MessageName, MessagesConfig, RuleConfig};

/// Parameters: a value is a reply or part of a list of a thousand.
const PARAMETERS: [u32; 6] = [20, 21, 22, 320, 321, 322];
/// Parameters per second that count as handshakes; further ones are a transfer.
const HAND_SHAKES: u32 = 20;
/// Logs, files, fragmented images: LOG_*, FILE_TRANSFER_PROTOCOL, SERIAL_CONTROL,
/// DATA_TRANSMISSION_HANDSHAKE, ENCAPSULATED_DATA, LOGGING_*.
const TRANSFERS: [u32; 13] = [110, 117, 118, 119, 120, 121, 122, 126, 130, 131, 266, 267, 268];
/// Control of which only the newest counts: heartbeats, sticks, setpoints.
const LATEST_CONTROL: [u32; 7] = [0, 69, 70, 82, 84, 86, 139];
/// SET_ACTUATOR_CONTROL_TARGET, of which there is one for each group.
const ACTUATOR_GROUPS: u32 = 139;
/// Telemetry that is sent once, so that every message counts.
const EVERY_TELEMETRY: [u32; 8] = [4, 46, 111, 148, 242, 244, 253, 254];

/// Class of each message, and whether only the newest of its kind counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Classification {
    /// Message class.
    pub class: Class,
    /// Useless after its successor (of the same sender and message).
    pub latest: bool,
}

/// Classification of messages.
#[derive(Clone, Debug)]
pub struct Policy {
    classes: BTreeMap<u32, Class>,
    latest: BTreeMap<u32, bool>,
    rules: Vec<RuleConfig>,
    /// Current second, and parameters counted in it.
    second: Instant,
    parameters: u32,
}

impl Policy {
    /// Applies the file to the default classes. Unknown names are skipped; the reader of the file refuses
    /// them.
    pub fn new(messages: &MessagesConfig, rules: &[RuleConfig]) -> Self {
        let mut classes = BTreeMap::new();
        let lists = [
            (&messages.control, Class::Control),
            (&messages.telemetry, Class::Telemetry),
            (&messages.bulk, Class::Bulk),
        ];
        for (list, class) in lists {
            classes.extend(list.iter().filter_map(number).map(|number| (number, class)));
        }
        let mut latest = BTreeMap::new();
        for (list, newest) in [(&messages.latest, true), (&messages.every, false)] {
            latest.extend(list.iter().filter_map(number).map(|number| (number, newest)));
        }
        Self { classes, latest, rules: rules.to_vec(), second: Instant::ZERO, parameters: 0 }
    }

    /// Classifies a MAVLink frame. Must be called once per frame, since it counts parameters.
    pub fn of_frame(&mut self, now: Instant, header: &Header) -> Classification {
        let message = header.message;
        let class = match self.classes.get(&message) {
            Some(class) => *class,
            None if PARAMETERS.contains(&message) => self.of_parameter(now),
            None if TRANSFERS.contains(&message) => Class::Bulk,
            None if known(message).is_some_and(|known| known.control) => Class::Control,
            None => Class::Telemetry,
        };
        Classification { class, latest: self.is_latest(message) }
    }

    /// Whether only the newest message of that number counts.
    pub fn is_latest(&self, message: u32) -> bool {
        self.latest.get(&message).copied().unwrap_or_else(|| {
            let usual = known(message);
            let telemetry = usual.is_some_and(|known| !known.control)
                && !PARAMETERS.contains(&message)
                && !TRANSFERS.contains(&message)
                && !EVERY_TELEMETRY.contains(&message);
            telemetry || LATEST_CONTROL.contains(&message)
        })
    }

    /// Whether a queued message is superseded by the next one of its sender: sticks, setpoints, heartbeats,
    /// and messages named in the file, but not those that exist once per actuator group.
    pub fn is_superseded_in_queue(&self, message: u32) -> bool {
        let usual = LATEST_CONTROL.contains(&message) && message != ACTUATOR_GROUPS;
        self.latest.get(&message).copied().unwrap_or(usual)
    }

    fn of_parameter(&mut self, now: Instant) -> Class {
        if now.since(self.second).as_nanos() >= 1_000_000_000 {
            (self.second, self.parameters) = (now, 0);
        }
        self.parameters += 1;
        if self.parameters > HAND_SHAKES { Class::Bulk } else { Class::Control }
    }

    /// Returns the class of an IP packet; bulk unless a rule says otherwise.
    pub fn of_packet(&self, packet: &[u8]) -> Class {
        let (dscp, ports) = read_ip(packet);
        let fits = |rule: &&RuleConfig| {
            rule.dscp.is_none_or(|wanted| dscp == Some(wanted))
                && rule.port.is_none_or(|wanted| ports.is_some_and(|ports| ports.contains(&wanted)))
        };
        self.rules.iter().find(fits).map_or(Class::Bulk, |rule| rule.class)
    }
}

/// Returns the number of a message named in a file; `None` if the name is unknown.
pub fn number(name: &MessageName) -> Option<u32> {
    match name {
        MessageName::Number(number) => Some(*number),
        MessageName::Name(name) => {
            COMMON.iter().find(|known| known.name == name).map(|known| known.message)
        }
    }
}

/// Returns the DSCP of an IP packet and the ports of TCP and UDP. Only the first fragment has ports; IPv6
/// extension headers are not followed.
fn read_ip(packet: &[u8]) -> (Option<u8>, Option<[u16; 2]>) {
    let (dscp, protocol, transport) = match packet {
        [first, tos, _, _, _, _, flags, low, _, protocol, ..] if first >> 4 == 4 => {
            let first_part = (u16::from_be_bytes([*flags, *low]) & 0x1fff) == 0;
            let behind = packet.get(4 * usize::from(first & 15)..).filter(|_| first_part);
            (tos >> 2, *protocol, behind)
        }
        [first, second, _, _, _, _, next, ..] if first >> 4 == 6 => {
            ((first & 15) << 2 | second >> 6, *next, packet.get(40..))
        }
        _ => return (None, None),
    };
    let ports = match transport {
        Some(&[a, b, c, d, ..]) if matches!(protocol, 6 | 17) => {
            Some([u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])])
        }
        _ => None,
    };
    (Some(dscp), ports)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn header(message: u32) -> Header {
        let (version, payload, signed) = (2, 10, false);
        Header { version, payload, signed, sequence: 0, system: 1, component: 1, message }
    }

    fn class(policy: &mut Policy, message: u32) -> Class {
        policy.of_frame(Instant::ZERO, &header(message)).class
    }

    #[test]
    fn commands_and_sticks_are_control_logs_and_files_are_bulk() {
        let mut policy = Policy::new(&MessagesConfig::default(), &[]);
        for control in [0, 11, 20, 22, 23, 44, 47, 69, 70, 73, 75, 76, 77, 84, 86] {
            assert_eq!(class(&mut policy, control), Class::Control, "{control}");
        }
        for bulk in [110, 117, 120, 131, 266] {
            assert_eq!(class(&mut policy, bulk), Class::Bulk, "{bulk}");
        }
        for telemetry in [1, 30, 33, 253, 12_345] {
            assert_eq!(class(&mut policy, telemetry), Class::Telemetry, "{telemetry}");
        }
        assert!(policy.is_latest(69) && policy.is_latest(30) && policy.is_latest(0));
        assert!(!policy.is_latest(76) && !policy.is_latest(253) && !policy.is_latest(12_345));
    }

    #[test]
    fn a_parameter_is_a_hand_shake_and_a_list_of_them_a_transfer() {
        let mut policy = Policy::new(&MessagesConfig::default(), &[]);
        let list: Vec<Class> = (0..1_000).map(|_| class(&mut policy, 22)).collect();
        assert_eq!(list.iter().filter(|class| **class == Class::Control).count(), 20);
        let later = policy.of_frame(Instant::from_millis(1_000), &header(22));
        assert_eq!(later.class, Class::Control);
    }

    #[test]
    fn a_file_changes_what_messages_are_for() {
        let messages = MessagesConfig {
            bulk: vec![MessageName::Name("ATTITUDE".into())],
            control: vec![MessageName::Number(42_000)],
            every: vec![MessageName::Name("MANUAL_CONTROL".into())],
            ..MessagesConfig::default()
        };
        let mut policy = Policy::new(&messages, &[]);
        assert_eq!(class(&mut policy, 30), Class::Bulk);
        assert_eq!(class(&mut policy, 42_000), Class::Control);
        assert!(!policy.is_latest(69));
    }

    // Source: RFC 791 §3.1, RFC 8200 §3, RFC 2474 §3 (the DSCP is the upper six bits).
    #[test]
    fn packets_are_classified_by_dscp_and_port_in_ipv4_and_ipv6() {
        let rules = [
            RuleConfig { dscp: Some(46), port: None, class: Class::Control },
            RuleConfig { dscp: None, port: Some(5600), class: Class::Video },
        ];
        let policy = Policy::new(&MessagesConfig::default(), &rules);
        let v4 = |tos: u8, port: u16| {
            let mut packet = vec![0; 28];
            (packet[0], packet[1], packet[9]) = (0x45, tos, 17);
            packet[22..24].copy_from_slice(&port.to_be_bytes());
            packet
        };
        let v6 = |class: u8, port: u16| {
            let mut packet = vec![0; 48];
            (packet[0], packet[1], packet[6]) = (0x60 | class >> 4, class << 4, 6);
            packet[40..42].copy_from_slice(&port.to_be_bytes());
            packet
        };
        for packet in [v4(46 << 2, 1), v6(46 << 2, 1)] {
            assert_eq!(policy.of_packet(&packet), Class::Control);
        }
        for packet in [v4(0, 5600), v6(0, 5600)] {
            assert_eq!(policy.of_packet(&packet), Class::Video);
        }
        let mut later_part = v4(0, 5600);
        later_part[7] = 1;
        for packet in [v4(0, 80), v6(0, 80), later_part, vec![], vec![0x45; 9]] {
            assert_eq!(policy.of_packet(&packet), Class::Bulk);
        }
    }
}
