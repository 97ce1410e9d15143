"""Scripted vehicle: an autopilot's MAVLink messages and answers, and a record of all received messages.

It flies nothing. It tells where it is, has parameters, a mission and logs, carries out every command that it gets (a
second copy of one, too) and writes each down as a line of JSON, so that a test can count them:

    python tests/gateway/vehicle.py --to 127.0.0.1:14550 --record FILE

It ends on SIGTERM.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import select
import signal
import socket
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from pymavlink.dialects.v20 import ardupilotmega as mavlink

AUTOPILOT = mavlink.MAV_AUTOPILOT_ARDUPILOTMEGA
KIND = mavlink.MAV_TYPE_QUADROTOR

LATITUDE, LONGITUDE, ALTITUDE_M = 480_000_000, 110_000_000, 500.0
"""Where it stands, in 1e-7 degrees and metres above the sea."""

RATES_HZ = {"heartbeat": 1.0, "attitude": 10.0, "position": 4.0, "status": 2.0}

LOG_BYTES = 90
"""What a LOG_DATA message carries."""

PARAMETERS = {
    "SYSID_THISMAV": 1.0,
    "SYSID_MYGCS": 255.0,
    "FS_GCS_ENABLE": 1.0,
    "WPNAV_SPEED": 500.0,
    "RTL_ALT": 1500.0,
    "ARMING_CHECK": 1.0,
    "BATT_CAPACITY": 5200.0,
    "COM_RC_IN_MODE": 1.0,
}

HEALTHY = (
    mavlink.MAV_SYS_STATUS_SENSOR_3D_GYRO
    | mavlink.MAV_SYS_STATUS_SENSOR_3D_ACCEL
    | mavlink.MAV_SYS_STATUS_SENSOR_3D_MAG
    | mavlink.MAV_SYS_STATUS_SENSOR_ABSOLUTE_PRESSURE
    | mavlink.MAV_SYS_STATUS_SENSOR_GPS
    | mavlink.MAV_SYS_STATUS_SENSOR_RC_RECEIVER
    | mavlink.MAV_SYS_STATUS_AHRS
    | mavlink.MAV_SYS_STATUS_PREARM_CHECK
)


@dataclass(slots=True)
class Vehicle:
    """Vehicle at a UDP socket.

    Attributes:
        link: what it speaks through.
        to: where it sends; without one, to whoever has spoken last.
        record: where all that reaches it is written, a JSON object a line.
        logs: bytes of its flight logs.
        log_rate_bps: how fast it sends a log that is asked for.
        key: 32 bytes with which it signs all that it says; it takes only what is signed so, then.
    """

    link: socket.socket
    to: tuple[str, int] | None
    record: IO[str]
    logs: list[int] = field(default_factory=lambda: [200_000])
    log_rate_bps: float = 2e6
    key: bytes | None = None
    armed: bool = False
    mode: int = 0
    parameters: dict[str, float] = field(default_factory=lambda: dict(PARAMETERS))
    mission: list[Any] = field(default_factory=list)
    uploading: list[Any] = field(default_factory=list)
    expected: int = 0
    mav: Any = None
    _due: dict[str, float] = field(default_factory=dict)
    _later: list[Any] = field(default_factory=list)
    _sending: tuple[int, int, int] | None = None
    _asked_last: float = 0.0
    _uploader: tuple[int, int] = (0, 0)
    _begun: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.link.setblocking(False)
        self.mav = mavlink.MAVLink(None, srcSystem=1, srcComponent=1)
        self.mav.robust_parsing = True
        if self.key is not None:
            self.mav.signing.secret_key = self.key
            self.mav.signing.sign_outgoing = True
            self.mav.signing.link_id = 1
            # 10 µs since 2015.
            self.mav.signing.timestamp = int((time.time() - 1_420_070_400) * 1e5)
        self._due = dict.fromkeys(RATES_HZ, time.monotonic())

    def run(self, stopped: list[bool]) -> None:
        """Runs until `stopped` is not empty."""
        while not stopped:
            self.step()

    def step(self) -> None:
        """Waits for the next message or timer, and handles it."""
        now = time.monotonic()
        soon = min(self._due.values())
        patience = 0.001 if self._later or self._sending else max(min(soon - now, 0.05), 0.0)
        ready, _, _ = select.select([self.link], [], [], patience)
        if ready:
            with contextlib.suppress(BlockingIOError, ConnectionError):
                for _ in range(100):
                    data, sender = self.link.recvfrom(65535)
                    self._take(data, sender)
        self._periodic(time.monotonic())
        for message in self._later[:20]:
            self.say(message)
        del self._later[:20]
        self._send_log()

    def say(self, message: Any) -> None:
        """Sends a message."""
        frame = message.pack(self.mav)
        self.mav.seq = (self.mav.seq + 1) % 256
        if self.to is not None:
            with contextlib.suppress(OSError):
                self.link.sendto(frame, self.to)

    def _boot_ms(self) -> int:
        return int((time.monotonic() - self._begun) * 1000)

    def _take(self, data: bytes, sender: tuple[str, int]) -> None:
        if self.to is None:
            self.to = sender
        at_ns = time.monotonic_ns()
        for message in self.mav.parse_buffer(data) or []:
            if message.get_type() == "BAD_DATA":
                self._note(at_ns, "BAD_DATA", {"reason": str(message.reason)}, message)
                continue
            self._note(at_ns, message.get_type(), message.to_dict(), message)
            handler = getattr(self, f"_on_{message.get_type().lower()}", None)
            if handler is not None:
                handler(message)

    def _note(self, at_ns: int, kind: str, fields: dict[str, Any], message: Any) -> None:
        from_ = (message.get_srcSystem(), message.get_srcComponent()) if kind != "BAD_DATA" else (0, 0)
        fields.pop("mavpackettype", None)
        line = {"at_ns": at_ns, "type": kind, "from": from_, "fields": fields}
        if kind != "BAD_DATA":
            line |= {"seq": message.get_seq(), "signed": bool(message.get_signed())}
        self.record.write(json.dumps(line, default=str) + "\n")
        self.record.flush()

    def _periodic(self, now: float) -> None:
        for name, due in self._due.items():
            if now >= due:
                getattr(self, f"_tell_{name}")()
                self._due[name] = max(due + 1 / RATES_HZ[name], now)

    def _tell_heartbeat(self) -> None:
        base = mavlink.MAV_MODE_FLAG_CUSTOM_MODE_ENABLED | (mavlink.MAV_MODE_FLAG_SAFETY_ARMED if self.armed else 0)
        state = mavlink.MAV_STATE_ACTIVE if self.armed else mavlink.MAV_STATE_STANDBY
        self.say(mavlink.MAVLink_heartbeat_message(KIND, AUTOPILOT, base, self.mode, state, 3))

    def _tell_attitude(self) -> None:
        self.say(mavlink.MAVLink_attitude_message(self._boot_ms(), 0.01, 0.02, 0.5, 0, 0, 0))

    def _tell_position(self) -> None:
        boot_ms, above_mm = self._boot_ms(), int(ALTITUDE_M * 1000)
        high_mm = 10_000 if self.armed else 0
        self.say(
            mavlink.MAVLink_global_position_int_message(
                boot_ms, LATITUDE, LONGITUDE, above_mm + high_mm, high_mm, 0, 0, 0, 9000
            )
        )
        self.say(
            mavlink.MAVLink_gps_raw_int_message(
                boot_ms * 1000, 3, LATITUDE, LONGITUDE, above_mm, 80, 80, 0, 0, 14, 0, 500, 500, 100, 0
            )
        )

    def _tell_status(self) -> None:
        self.say(mavlink.MAVLink_sys_status_message(HEALTHY, HEALTHY, HEALTHY, 100, 12_600, 500, 88, 0, 0, 0, 0, 0, 0))
        landed = mavlink.MAV_LANDED_STATE_IN_AIR if self.armed else mavlink.MAV_LANDED_STATE_ON_GROUND
        self.say(mavlink.MAVLink_extended_sys_state_message(0, landed))
        flags = 0x1FF  # all that an estimator can know
        self.say(mavlink.MAVLink_ekf_status_report_message(flags, 0.1, 0.1, 0.1, 0.1, 0.1))

    def _home(self) -> Any:
        return mavlink.MAVLink_home_position_message(
            LATITUDE, LONGITUDE, int(ALTITUDE_M * 1000), 0, 0, 0, [1, 0, 0, 0], 0, 0, 0
        )

    def _version(self) -> Any:
        capabilities = (
            mavlink.MAV_PROTOCOL_CAPABILITY_MISSION_INT
            | mavlink.MAV_PROTOCOL_CAPABILITY_COMMAND_INT
            | mavlink.MAV_PROTOCOL_CAPABILITY_MAVLINK2
            | mavlink.MAV_PROTOCOL_CAPABILITY_PARAM_FLOAT
        )
        custom = [0] * 8
        return mavlink.MAVLink_autopilot_version_message(
            capabilities, 0x04050000, 0, 0, 0, custom, custom, custom, 0, 0, 42
        )

    # Commands.

    def _on_command_long(self, message: Any) -> None:
        parameters = [getattr(message, f"param{number}") for number in range(1, 8)]
        self._carry_out(message, parameters)

    def _on_command_int(self, message: Any) -> None:
        parameters = [message.param1, message.param2, message.param3, message.param4, message.x, message.y, message.z]
        self._carry_out(message, parameters)

    def _carry_out(self, message: Any, parameters: list[float]) -> None:
        answers: list[Any] = []
        result = mavlink.MAV_RESULT_ACCEPTED
        match message.command:
            case mavlink.MAV_CMD_COMPONENT_ARM_DISARM:
                self.armed = parameters[0] == 1
            case mavlink.MAV_CMD_DO_SET_MODE:
                self.mode = int(parameters[1])
            case mavlink.MAV_CMD_REQUEST_MESSAGE:
                match int(parameters[0]):
                    case mavlink.MAVLINK_MSG_ID_AUTOPILOT_VERSION:
                        answers.append(self._version())
                    case mavlink.MAVLINK_MSG_ID_HOME_POSITION:
                        answers.append(self._home())
                    case _:
                        result = mavlink.MAV_RESULT_UNSUPPORTED
            case mavlink.MAV_CMD_REQUEST_AUTOPILOT_CAPABILITIES:
                answers.append(self._version())
            case mavlink.MAV_CMD_GET_HOME_POSITION:
                answers.append(self._home())
            case (
                mavlink.MAV_CMD_NAV_TAKEOFF
                | mavlink.MAV_CMD_NAV_LAND
                | mavlink.MAV_CMD_NAV_RETURN_TO_LAUNCH
                | mavlink.MAV_CMD_SET_MESSAGE_INTERVAL
                | mavlink.MAV_CMD_DO_CHANGE_SPEED
                | mavlink.MAV_CMD_DO_REPOSITION
                | mavlink.MAV_CMD_MISSION_START
                | mavlink.MAV_CMD_USER_1
            ):
                pass
            case _:
                result = mavlink.MAV_RESULT_UNSUPPORTED
        system, component = message.get_srcSystem(), message.get_srcComponent()
        self.say(mavlink.MAVLink_command_ack_message(message.command, result, 0, 0, system, component))
        for answer in answers:
            self.say(answer)

    def _on_set_mode(self, message: Any) -> None:
        self.mode = int(message.custom_mode)

    def _on_autopilot_version_request(self, _message: Any) -> None:
        self.say(self._version())

    def _on_ping(self, message: Any) -> None:
        if message.target_system == 0:
            self.say(
                mavlink.MAVLink_ping_message(
                    message.time_usec, message.seq, message.get_srcSystem(), message.get_srcComponent()
                )
            )

    def _on_timesync(self, message: Any) -> None:
        if message.tc1 == 0:
            self.say(mavlink.MAVLink_timesync_message(time.monotonic_ns(), message.ts1))

    # Parameters.

    def _parameter(self, name: str) -> Any:
        index = list(self.parameters).index(name)
        kind = mavlink.MAV_PARAM_TYPE_REAL32
        return mavlink.MAVLink_param_value_message(
            name.encode(), self.parameters[name], kind, len(self.parameters), index
        )

    def _on_param_request_list(self, _message: Any) -> None:
        self._later += [self._parameter(name) for name in self.parameters]

    def _on_param_request_read(self, message: Any) -> None:
        name = message.param_id
        if message.param_index >= 0:
            names = list(self.parameters)
            name = names[message.param_index] if message.param_index < len(names) else ""
        if name in self.parameters:
            self.say(self._parameter(name))

    def _on_param_set(self, message: Any) -> None:
        if message.param_id in self.parameters:
            self.parameters[message.param_id] = message.param_value
            self.say(self._parameter(message.param_id))

    # Missions.

    def _on_mission_count(self, message: Any) -> None:
        self.expected, self.uploading = message.count, []
        self._uploader = (message.get_srcSystem(), message.get_srcComponent())
        if message.count == 0:
            self._mission_done()
        else:
            self.say(mavlink.MAVLink_mission_request_int_message(*self._uploader, 0, message.mission_type))

    def _on_mission_item_int(self, message: Any) -> None:
        if message.seq == len(self.uploading) < self.expected:
            self.uploading.append(message)
        if self.expected and len(self.uploading) == self.expected:
            self._mission_done()
        elif self.expected:
            self.say(
                mavlink.MAVLink_mission_request_int_message(*self._uploader, len(self.uploading), message.mission_type)
            )

    _on_mission_item = _on_mission_item_int

    def _mission_done(self) -> None:
        self.mission, self.expected = self.uploading, 0
        self.say(mavlink.MAVLink_mission_ack_message(*self._uploader, mavlink.MAV_MISSION_ACCEPTED, 0))

    def _on_mission_request_list(self, message: Any) -> None:
        system, component = message.get_srcSystem(), message.get_srcComponent()
        count = len(self.mission) if message.mission_type == 0 else 0
        self.say(mavlink.MAVLink_mission_count_message(system, component, count, message.mission_type))

    def _on_mission_request_int(self, message: Any) -> None:
        if message.seq >= len(self.mission):
            return
        item = self.mission[message.seq]
        whole = item.get_type() == "MISSION_ITEM_INT"
        place = (item.x, item.y) if whole else (int(item.x * 1e7), int(item.y * 1e7))
        self.say(
            mavlink.MAVLink_mission_item_int_message(
                message.get_srcSystem(),
                message.get_srcComponent(),
                item.seq,
                item.frame,
                item.command,
                item.current,
                item.autocontinue,
                item.param1,
                item.param2,
                item.param3,
                item.param4,
                *place,
                item.z,
                0,
            )
        )

    _on_mission_request = _on_mission_request_int

    def _on_mission_clear_all(self, message: Any) -> None:
        self.mission = []
        answer = mavlink.MAVLink_mission_ack_message(
            message.get_srcSystem(), message.get_srcComponent(), mavlink.MAV_MISSION_ACCEPTED, message.mission_type
        )
        self.say(answer)

    # Logs.

    def _on_log_request_list(self, _message: Any) -> None:
        last = len(self.logs)
        self._later += [
            mavlink.MAVLink_log_entry_message(number, last, last, 1_700_000_000, length)
            for number, length in enumerate(self.logs, start=1)
        ]

    def _on_log_request_data(self, message: Any) -> None:
        if 1 <= message.id <= len(self.logs):
            end = min(message.ofs + message.count, self.logs[message.id - 1])
            self._sending, self._asked_last = (message.id, message.ofs, end), time.monotonic()

    def _on_log_request_end(self, _message: Any) -> None:
        self._sending = None

    def _send_log(self) -> None:
        if self._sending is None:
            return
        number, at, end = self._sending
        now = time.monotonic()
        room = (now - self._asked_last) * self.log_rate_bps / 8
        while at < end and room >= LOG_BYTES:
            data = log_bytes(number, at, min(LOG_BYTES, end - at))
            padded = list(data) + [0] * (LOG_BYTES - len(data))
            self.say(mavlink.MAVLink_log_data_message(number, at, len(data), padded))
            at += len(data)
            room -= LOG_BYTES
            self._asked_last += LOG_BYTES * 8 / self.log_rate_bps
        self._sending = (number, at, end) if at < end else None


def log_bytes(number: int, at: int, length: int) -> bytes:
    """Returns the bytes of a log at an offset."""
    return bytes((number * 31 + place * 7 + place // 251) % 256 for place in range(at, at + length))


def address(text: str) -> tuple[str, int]:
    """Parses `HOST:PORT` to a socket address."""
    host, _, port = text.rpartition(":")
    return host, int(port)


def main() -> None:
    """Runs until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--to", type=address, help="HOST:PORT to speak to; without it, to whoever speaks first")
    parser.add_argument("--listen", type=address, default=("127.0.0.1", 0))
    parser.add_argument("--record", type=Path, required=True)
    parser.add_argument("--log", type=int, default=200_000, help="bytes of its flight log")
    parser.add_argument("--log-rate", type=float, default=2e6, help="bit/s")
    parser.add_argument("--key", type=bytes.fromhex, help="sign with these 32 bytes")
    given = parser.parse_args()
    stopped: list[bool] = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
    link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    link.bind(given.listen)
    with given.record.open("w", encoding="utf-8") as record:
        vehicle = Vehicle(link, given.to, record, logs=[given.log], log_rate_bps=given.log_rate, key=given.key)
        vehicle.run(stopped)


if __name__ == "__main__":
    main()
