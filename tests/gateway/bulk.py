"""A log download at full rate: LOG_DATA messages, made beforehand, sent as fast as asked for.

python tests/gateway/bulk.py HOST:PORT --rate 20e6 --seconds 30
"""

from __future__ import annotations

import argparse
import contextlib
import socket
import time

from pymavlink.dialects.v20 import ardupilotmega as mavlink

from vehicle import LOG_BYTES, address

FRAMES = 256
"""As many as a sender has numbers, so that what is sent again and again still counts on."""

STEP_S = 0.002


def frames() -> list[bytes]:
    """Returns frames of a log, sent by the autopilot's second component."""
    mav = mavlink.MAVLink(None, srcSystem=1, srcComponent=2)
    made = []
    for number in range(FRAMES):
        data = [(number + place) % 255 + 1 for place in range(LOG_BYTES)]
        made.append(mavlink.MAVLink_log_data_message(1, number * LOG_BYTES, LOG_BYTES, data).pack(mav))
        mav.seq = (mav.seq + 1) % 256
    return made


def send(link: socket.socket, to: tuple[str, int], rate_bps: float, seconds: float) -> int:
    """Sends frames at a rate for `seconds`; returns their number."""
    made = frames()
    every_s = len(made[0]) * 8 / rate_bps
    begun = time.monotonic()
    sent = 0
    while (now := time.monotonic() - begun) < seconds:
        while sent * every_s < now:
            with contextlib.suppress(OSError):
                link.sendto(made[sent % FRAMES], to)
            sent += 1
        time.sleep(STEP_S)
    return sent


def main() -> None:
    """Sends frames and prints their number."""
    parser = argparse.ArgumentParser()
    parser.add_argument("to", type=address)
    parser.add_argument("--rate", type=float, default=20e6, help="bit/s of MAVLink")
    parser.add_argument("--seconds", type=float, default=30.0)
    given = parser.parse_args()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
        print(send(link, given.to, given.rate, given.seconds))


if __name__ == "__main__":
    main()
