"""Garbage at a steady rate: a hundred thousand datagrams a second, by `sendmmsg` of Linux."""

from __future__ import annotations

import argparse
import ctypes
import json
import random
import socket
import subprocess
import sys
import time
from pathlib import Path

BATCH = 100
"""Datagrams in one call of the system."""

_POOL = 40
_SEALED = 0x30


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class _Header(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_void_p),
        ("name_length", ctypes.c_uint32),
        ("vectors", ctypes.POINTER(_Vector)),
        ("vectors_length", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_length", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    )


class _Message(ctypes.Structure):
    _fields_ = (("header", _Header), ("length", ctypes.c_uint32))


def _messages(datagrams: list[bytes]) -> tuple[ctypes.Array[_Message], list[object]]:
    found, kept = (_Message * len(datagrams))(), list[object]()
    for message, data in zip(found, datagrams, strict=True):
        buffer = ctypes.create_string_buffer(data, len(data))
        vector = _Vector(ctypes.addressof(buffer), len(data))
        message.header.vectors = ctypes.pointer(vector)
        message.header.vectors_length = 1
        kept += [buffer, vector]
    return found, kept


def garbage(draw: random.Random, session: bytes | None, length: int) -> bytes:
    """Returns a datagram of noise; with a session's number, every second one looks like the session's."""
    if session is not None and draw.random() < 0.5:
        return bytes([_SEALED]) + session + draw.randbytes(length - 3)
    return draw.randbytes(length)


def flood(
    to: tuple[str, int], rate_per_s: float, seconds: float, session: bytes | None, length: int
) -> dict[str, float]:
    """Sends garbage; returns the number of datagrams and the duration in s."""
    libc, draw = ctypes.CDLL(None, use_errno=True), random.Random(1)
    link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    link.connect(to)
    pool = [_messages([garbage(draw, session, length) for _ in range(BATCH)]) for _ in range(_POOL)]
    began, sent, calls = time.monotonic(), 0, 0
    while (past_s := time.monotonic() - began) < seconds:
        if sent > past_s * rate_per_s:
            time.sleep(0.0005)
            continue
        found = libc.sendmmsg(link.fileno(), pool[calls % _POOL][0], BATCH, 0)
        # A port where nobody listens says so at the next call; nothing is sent by that one.
        sent += max(found, 0)
        calls += 1
    return {"sent": sent, "seconds": time.monotonic() - began, "calls": calls}


def start(to: tuple[str, int], rate_per_s: float, seconds: float, session: bytes | None, length: int = 200) -> Flood:
    """Starts a flood in a child process."""
    words = [f"{to[0]}:{to[1]}", str(rate_per_s), str(seconds), session.hex() if session else "", str(length)]
    return Flood(subprocess.Popen([sys.executable, str(Path(__file__)), *words], stdout=subprocess.PIPE, text=True))


class Flood:
    """A running flood."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def wait(self) -> dict[str, float]:
        """Waits for the end; returns `sent` and `seconds`."""
        said, _ = self._process.communicate(timeout=120)
        found: dict[str, float] = json.loads(said)
        return found


def _main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("to")
    parser.add_argument("rate", type=float)
    parser.add_argument("seconds", type=float)
    parser.add_argument("session", type=bytes.fromhex)
    parser.add_argument("length", type=int)
    given = parser.parse_args()
    host, _, port = given.to.rpartition(":")
    print(json.dumps(flood((host, int(port)), given.rate, given.seconds, given.session or None, given.length)))


if __name__ == "__main__":
    _main()
