//! Headers of MAVLink 1 and 2 frames, and the classification of messages as control or data.
//!
//! | | magic | header | payload | checksum | signature |
//! |---|---|---|---|---|---|
//! | MAVLink 1 | 0xFE | 6 B: length, sequence, system, component, message | 1 to 255 B | 2 B | none |
//! | MAVLink 2 | 0xFD | 10 B: the same with two bytes of flags and a message number of 3 B | 1 to 255 B | 2 B | 13 B if flagged |
//!
//! Source: MAVLink developer guide, packet serialization; message numbers and lengths of `common.xml`.

/// First byte of a MAVLink 1 frame.
pub const MAGIC_1: u8 = 0xfe;
/// First byte of a MAVLink 2 frame.
pub const MAGIC_2: u8 = 0xfd;
/// Maximum size of a header in bytes.
pub const MAX_HEADER: usize = 10;

const CHECKSUM: usize = 2;
const SIGNATURE: usize = 13;
/// The only incompatibility flag defined: the frame ends with a signature.
const SIGNED: u8 = 1;

/// Header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// MAVLink version, 1 or 2.
    pub version: u8,
    /// Payload in bytes, 1 to 255: a message has at least one field, of which MAVLink 2 keeps at
    /// least one byte.
    pub payload: u8,
    /// True if the frame ends with a signature (MAVLink 2).
    pub signed: bool,
    /// Sequence number of the sender; wraps.
    pub sequence: u8,
    /// System ID of the sender, 1 to 255.
    pub system: u8,
    /// Component ID of the sender, 1 to 255.
    pub component: u8,
    /// Message ID, 24 bits.
    pub message: u32,
}

/// Reason why bytes are not a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoHeader {
    /// The bytes may be the beginning of a header.
    Incomplete,
    /// The bytes are not a header.
    Foreign,
}

impl Header {
    /// Parses the header at the beginning of `bytes`.
    ///
    /// # Errors
    /// There is no header, or it is incomplete.
    pub fn parse(bytes: &[u8]) -> Result<Self, NoHeader> {
        let header = match *bytes {
            [MAGIC_1, payload, sequence, system, component, message, ..] => Self {
                version: 1,
                payload,
                signed: false,
                sequence,
                system,
                component,
                message: u32::from(message),
            },
            // A frame with an unknown flag must be discarded.
            [MAGIC_2, payload, flags, _, sequence, system, component, low, middle, high, ..]
                if flags & !SIGNED == 0 =>
            {
                Self {
                    version: 2,
                    payload,
                    signed: flags & SIGNED != 0,
                    sequence,
                    system,
                    component,
                    message: u32::from_le_bytes([low, middle, high, 0]),
                }
            }
            [MAGIC_1, ..] if bytes.len() < 6 => return Err(NoHeader::Incomplete),
            [MAGIC_2, ..] if bytes.len() < MAX_HEADER => return Err(NoHeader::Incomplete),
            [] => return Err(NoHeader::Incomplete),
            _ => return Err(NoHeader::Foreign),
        };
        let has_sender = header.system > 0 && header.component > 0;
        if has_sender && header.payload > 0 && header.has_the_length_of_its_message() {
            Ok(header)
        } else {
            Err(NoHeader::Foreign)
        }
    }

    /// Size of the whole frame in bytes, 9 to 280.
    pub fn frame(&self) -> usize {
        let header = if self.version == 1 { 6 } else { MAX_HEADER };
        let signature = if self.signed { SIGNATURE } else { 0 };
        header + usize::from(self.payload) + CHECKSUM + signature
    }

    /// True if the message is one of [`COMMON`]. In random bytes that is rare: one header in a
    /// thousand of MAVLink 1, where length and message must match, and one in 270 000 of MAVLink 2.
    pub fn is_known(&self) -> bool {
        known(self.message).is_some()
    }

    /// MAVLink 1 sends a payload whole and without extensions; MAVLink 2 truncates trailing zeros
    /// and may append extensions.
    fn has_the_length_of_its_message(&self) -> bool {
        self.version == 2 || known(self.message).is_none_or(|known| known.payload == self.payload)
    }
}

/// Entry of the message table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Message ID.
    pub message: u32,
    /// Name in `common.xml`.
    pub name: &'static str,
    /// Payload in bytes, without extensions.
    pub payload: u8,
    /// True for control.
    pub control: bool,
}

const fn control(message: u32, name: &'static str, payload: u8) -> Known {
    Known { message, name, payload, control: true }
}

const fn data(message: u32, name: &'static str, payload: u8) -> Known {
    Known { message, name, payload, control: false }
}

/// Returns the table entry of a message.
pub fn known(message: u32) -> Option<&'static Known> {
    COMMON.binary_search_by_key(&message, |known| known.message).ok().and_then(|at| COMMON.get(at))
}

/// Messages that identify frames, in ascending order: control messages, and the telemetry that
/// aircraft send most.
///
/// Control is what steers or commands the aircraft and what acknowledges that: set-points, manual
/// control, commands, modes, the items of a mission, the setting of a parameter. The heartbeat is
/// control too: without that of the ground station an autopilot considers the link lost. Telemetry
/// is data, and so are messages that serve both (`PARAM_VALUE` answers `PARAM_SET`, but most of
/// them are items of a list).
pub const COMMON: &[Known] = &[
    control(0, "HEARTBEAT", 9),
    data(1, "SYS_STATUS", 31),
    data(2, "SYSTEM_TIME", 12),
    data(4, "PING", 14),
    control(5, "CHANGE_OPERATOR_CONTROL", 28),
    control(6, "CHANGE_OPERATOR_CONTROL_ACK", 3),
    control(11, "SET_MODE", 6),
    data(20, "PARAM_REQUEST_READ", 20),
    data(21, "PARAM_REQUEST_LIST", 2),
    data(22, "PARAM_VALUE", 25),
    control(23, "PARAM_SET", 23),
    data(24, "GPS_RAW_INT", 30),
    data(26, "SCALED_IMU", 22),
    data(27, "RAW_IMU", 26),
    data(29, "SCALED_PRESSURE", 14),
    data(30, "ATTITUDE", 28),
    data(31, "ATTITUDE_QUATERNION", 32),
    data(32, "LOCAL_POSITION_NED", 28),
    data(33, "GLOBAL_POSITION_INT", 28),
    data(35, "RC_CHANNELS_RAW", 22),
    data(36, "SERVO_OUTPUT_RAW", 21),
    control(37, "MISSION_REQUEST_PARTIAL_LIST", 6),
    control(38, "MISSION_WRITE_PARTIAL_LIST", 6),
    control(39, "MISSION_ITEM", 37),
    control(40, "MISSION_REQUEST", 4),
    control(41, "MISSION_SET_CURRENT", 4),
    data(42, "MISSION_CURRENT", 2),
    control(43, "MISSION_REQUEST_LIST", 2),
    control(44, "MISSION_COUNT", 4),
    control(45, "MISSION_CLEAR_ALL", 2),
    data(46, "MISSION_ITEM_REACHED", 2),
    control(47, "MISSION_ACK", 3),
    control(51, "MISSION_REQUEST_INT", 4),
    control(54, "SAFETY_SET_ALLOWED_AREA", 27),
    data(62, "NAV_CONTROLLER_OUTPUT", 26),
    data(65, "RC_CHANNELS", 42),
    data(66, "REQUEST_DATA_STREAM", 6),
    control(69, "MANUAL_CONTROL", 11),
    control(70, "RC_CHANNELS_OVERRIDE", 18),
    control(73, "MISSION_ITEM_INT", 37),
    data(74, "VFR_HUD", 20),
    control(75, "COMMAND_INT", 35),
    control(76, "COMMAND_LONG", 33),
    control(77, "COMMAND_ACK", 3),
    control(80, "COMMAND_CANCEL", 4),
    control(82, "SET_ATTITUDE_TARGET", 39),
    data(83, "ATTITUDE_TARGET", 37),
    control(84, "SET_POSITION_TARGET_LOCAL_NED", 53),
    data(85, "POSITION_TARGET_LOCAL_NED", 51),
    control(86, "SET_POSITION_TARGET_GLOBAL_INT", 53),
    data(87, "POSITION_TARGET_GLOBAL_INT", 51),
    data(105, "HIGHRES_IMU", 62),
    data(109, "RADIO_STATUS", 9),
    data(110, "FILE_TRANSFER_PROTOCOL", 254),
    data(111, "TIMESYNC", 16),
    data(116, "SCALED_IMU2", 22),
    data(117, "LOG_REQUEST_LIST", 6),
    data(118, "LOG_ENTRY", 14),
    data(119, "LOG_REQUEST_DATA", 12),
    data(120, "LOG_DATA", 97),
    data(121, "LOG_ERASE", 2),
    data(122, "LOG_REQUEST_END", 2),
    data(125, "POWER_STATUS", 6),
    data(126, "SERIAL_CONTROL", 79),
    data(130, "DATA_TRANSMISSION_HANDSHAKE", 13),
    data(131, "ENCAPSULATED_DATA", 255),
    data(132, "DISTANCE_SENSOR", 14),
    data(136, "TERRAIN_REPORT", 22),
    data(137, "SCALED_PRESSURE2", 14),
    control(139, "SET_ACTUATOR_CONTROL_TARGET", 43),
    data(141, "ALTITUDE", 32),
    data(147, "BATTERY_STATUS", 36),
    data(148, "AUTOPILOT_VERSION", 60),
    data(193, "EKF_STATUS_REPORT", 22),
    data(230, "ESTIMATOR_STATUS", 42),
    data(241, "VIBRATION", 32),
    data(242, "HOME_POSITION", 52),
    control(243, "SET_HOME_POSITION", 53),
    data(244, "MESSAGE_INTERVAL", 6),
    data(245, "EXTENDED_SYS_STATE", 2),
    data(251, "NAMED_VALUE_FLOAT", 18),
    data(252, "NAMED_VALUE_INT", 18),
    data(253, "STATUSTEXT", 51),
    data(254, "DEBUG", 9),
    data(266, "LOGGING_DATA", 255),
    data(267, "LOGGING_DATA_ACKED", 255),
    data(268, "LOGGING_ACK", 4),
    control(282, "GIMBAL_MANAGER_SET_ATTITUDE", 35),
    control(284, "GIMBAL_DEVICE_SET_ATTITUDE", 32),
    control(287, "GIMBAL_MANAGER_SET_PITCHYAW", 23),
    control(288, "GIMBAL_MANAGER_SET_MANUAL_CONTROL", 23),
    data(320, "PARAM_EXT_REQUEST_READ", 20),
    data(321, "PARAM_EXT_REQUEST_LIST", 2),
    data(322, "PARAM_EXT_VALUE", 149),
    control(323, "PARAM_EXT_SET", 147),
    control(324, "PARAM_EXT_ACK", 146),
];

/// Well-formed frames for tests.
#[cfg(test)]
pub mod frames {
    use alloc::vec::Vec;

    /// CRC-16/MCRF4XX: the X.25 checksum without the final inversion.
    pub fn checksum(bytes: impl IntoIterator<Item = u8>) -> u16 {
        bytes.into_iter().fold(0xffff, |crc, byte| {
            (0..8).fold(crc ^ u16::from(byte), |crc, _| {
                if crc & 1 == 0 { crc >> 1 } else { (crc >> 1) ^ 0x8408 }
            })
        })
    }

    fn finish(mut frame: Vec<u8>, payload: &[u8], extra: u8) -> Vec<u8> {
        frame.extend(payload);
        let crc = checksum(frame.iter().skip(1).copied().chain([extra]));
        frame.extend(crc.to_le_bytes());
        frame
    }

    /// Builds a MAVLink 1 frame from system 1, component 1; `extra` is the message's CRC_EXTRA.
    pub fn version_1(sequence: u8, message: u8, payload: &[u8], extra: u8) -> Vec<u8> {
        let header = alloc::vec![0xfe, payload.len() as u8, sequence, 1, 1, message];
        finish(header, payload, extra)
    }

    /// Builds a MAVLink 2 frame from system 255, component 190, without trailing zeros of the
    /// payload.
    pub fn version_2(
        sequence: u8,
        message: u32,
        payload: &[u8],
        extra: u8,
        signed: bool,
    ) -> Vec<u8> {
        let len = payload.iter().rposition(|byte| *byte != 0).map_or(1, |last| last + 1);
        let mut header = alloc::vec![0xfd, len as u8, u8::from(signed), 0, sequence, 255, 190];
        header.extend(message.to_le_bytes().get(..3).unwrap());
        let mut frame = finish(header, payload.get(..len).unwrap(), extra);
        if signed {
            frame.extend((0..13).map(|byte| 0xa0 + byte));
        }
        frame
    }

    /// Builds COMMAND_LONG, which is control, from a ground station: 45 bytes.
    pub fn command(sequence: u8) -> Vec<u8> {
        version_2(sequence, 76, &[7; 33], 152, false)
    }

    /// Builds ATTITUDE, which is data, with a signature: 53 bytes.
    pub fn attitude(sequence: u8) -> Vec<u8> {
        version_2(sequence, 30, &[9; 28], 39, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Source: CRC-16/MCRF4XX of "123456789" is 0x6F91 (catalogue of CRC algorithms).
    #[test]
    fn the_checksum_of_the_test_frames_matches_the_catalogue() {
        assert_eq!(frames::checksum(*b"123456789"), 0x6f91);
    }

    #[test]
    fn a_heartbeat_of_either_version_is_parsed() {
        let payload = [0, 0, 0, 0, 2, 3, 81, 4, 3];
        let first = frames::version_1(78, 0, &payload, 50);
        // Source: the heartbeat of an ArduCopter that MAVLink tutorials print byte by byte.
        let printed = [
            0xfe, 0x09, 0x4e, 0x01, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x03, 0x51, 0x04,
            0x03, 0x1c, 0x7f,
        ];
        assert_eq!(first, printed);
        let header = Header::parse(&first).unwrap();
        assert_eq!((header.version, header.message, header.sequence), (1, 0, 78));
        assert_eq!((header.system, header.component, header.frame()), (1, 1, first.len()));
        let second = frames::version_2(7, 0, &payload, 50, false);
        let header = Header::parse(&second).unwrap();
        assert_eq!((header.version, header.message, header.frame()), (2, 0, 21));
    }

    #[test]
    fn a_signature_lengthens_a_frame_by_13_bytes() {
        // COMMAND_LONG, arm: its payload ends with zeros except for the target.
        let mut payload = [0; 33];
        payload[2..4].copy_from_slice(&1.0_f32.to_le_bytes()[2..]);
        payload[28..32].copy_from_slice(&[0x90, 0x01, 1, 1]);
        for signed in [false, true] {
            let frame = frames::version_2(0, 76, &payload, 152, signed);
            let header = Header::parse(&frame).unwrap();
            assert_eq!((header.frame(), header.payload), (frame.len(), 32));
            assert_eq!(frame.len(), if signed { 57 } else { 44 });
        }
    }

    #[test]
    fn headers_that_no_sender_may_write_are_foreign() {
        let frame = frames::version_2(0, 300, &[1, 2], 217, false);
        // An unknown incompatibility flag; no payload; the broadcast address as sender.
        for (at, value) in [(2, 2), (2, 0x80), (1, 0), (5, 0), (6, 0), (0, 0x55)] {
            let mut wrong = frame.clone();
            wrong[at] = value;
            assert_eq!(Header::parse(&wrong), Err(NoHeader::Foreign), "byte {at}");
        }
        let long = frames::version_1(0, 76, &[1; 34], 152);
        assert_eq!(Header::parse(&long), Err(NoHeader::Foreign), "COMMAND_LONG has 33 bytes");
        for length in 0..MAX_HEADER {
            assert_eq!(Header::parse(&frame[..length]), Err(NoHeader::Incomplete));
        }
    }

    #[test]
    fn the_table_is_sorted_and_commands_are_control() {
        assert!(COMMON.is_sorted_by(|one, next| one.message < next.message));
        for message in [0, 11, 23, 69, 70, 75, 76, 77, 82, 84, 86] {
            assert!(known(message).unwrap().control, "{message}");
        }
        for telemetry in [1, 24, 30, 33, 74, 147, 253] {
            assert!(!known(telemetry).unwrap().control, "{telemetry}");
        }
        assert_eq!(known(3), None);
    }
}
