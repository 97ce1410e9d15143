"""Jitter buffer: takes RTP packets; returns frames in order, each with its playout time.

A frame is due at the time of its stamp plus the least transit that was seen lately plus the buffer's length. A whole
frame goes to the decoder at once, one of which something is missing when it is due and something later is there; the
simulator's receiver does the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from skybraid.video import rtp
from skybraid.video.units import kind

_WINDOW_NS = 5_000_000_000
"""The least transit is sought over the last two of these."""


@dataclass(frozen=True, slots=True)
class Frame:
    """Received part of a frame.

    Attributes:
        ticks: its time stamp, which goes on beyond 32 bits.
        due_ns: when it must be shown, on the receiver's clock.
        units: its NAL units that are whole.
        complete: all of it is there.
        intact: all of it is there, and of what it refers to.
    """

    ticks: int
    due_ns: int
    units: list[bytes]
    complete: bool
    intact: bool


@dataclass(slots=True)
class _Pending:
    """Incomplete frame: payloads by sequence number, and whether the marked last one arrived."""

    payloads: dict[int, bytes] = field(default_factory=dict)
    first: int = 0
    last: int = 0
    marked: int | None = None

    def add(self, number: int, payload: bytes, *, marker: bool) -> None:
        self.first = min(self.first, number) if self.payloads else number
        self.last = max(self.last, number) if self.payloads else number
        self.payloads[number] = payload
        if marker:
            self.marked = number

    @property
    def solid(self) -> bool:
        """Whether no packet is missing between the first and the marked one."""
        return self.marked == self.last and len(self.payloads) == self.last - self.first + 1


class JitterBuffer:
    """See the module.

    Args:
        codec: "h264" or "h265".
        length_ns: for how long what came soonest is kept.
    """

    def __init__(self, codec: str, length_ns: int) -> None:
        self._codec, self._length_ns = codec, length_ns
        self._numbers, self._ticks = rtp.Unwrapped(16), rtp.Unwrapped(32)
        self._frames: dict[int, _Pending] = {}
        self._released: int | None = None
        self._least: list[int | None] = [None, None]
        self._window_ns = 0
        self._healing: int | None = None

    def ticks(self, timestamp: int) -> int:
        """Unwraps a 32-bit time stamp."""
        return self._ticks.near(timestamp)

    def put(self, now_ns: int, packet: rtp.Packet) -> None:
        """Adds a packet; drops duplicates and packets of frames already released."""
        number, ticks = self._numbers.take(packet.sequence), self._ticks.take(packet.timestamp)
        if self._released is not None and number <= self._released:
            return
        frame = self._frames.setdefault(ticks, _Pending())
        if number in frame.payloads:
            return
        frame.add(number, packet.payload, marker=packet.marker)
        if now_ns - self._window_ns >= _WINDOW_NS:
            self._least = [None, self._least[0]]
            self._window_ns = now_ns
        transit = now_ns - _ns(ticks)
        least = self._least[0]
        self._least[0] = transit if least is None else min(least, transit)

    def take(self, now_ns: int) -> list[Frame]:
        """Returns the frames due by now, in order."""
        found = []
        while self._frames:
            ticks = min(self._frames)
            frame = self._frames[ticks]
            due_ns = self._due_ns(ticks)
            follows = self._released is not None and frame.first == self._released + 1
            if not (frame.solid and (follows or self._begins_stream(frame))) and (
                now_ns < due_ns or not self._given_up(frame)
            ):
                break
            del self._frames[ticks]
            found.append(self._frame(ticks, due_ns, frame, follows=follows))
            self._released = frame.last
        return found

    def flush(self) -> list[Frame]:
        """Returns all remaining frames."""
        found = []
        for ticks, frame in sorted(self._frames.items()):
            follows = self._released is not None and frame.first == self._released + 1
            found.append(self._frame(ticks, self._due_ns(ticks), frame, follows=follows))
            self._released = frame.last
        self._frames.clear()
        return found

    def next_ns(self) -> int | None:
        """Next time at which a frame is due without further packets."""
        if not self._frames:
            return None
        ticks = min(self._frames)
        return self._due_ns(ticks) if self._given_up(self._frames[ticks]) else None

    def _begins_stream(self, frame: _Pending) -> bool:
        return self._released is None and self._begins(frame)

    def _begins(self, frame: _Pending) -> bool:
        """Whether the first packet's payload starts a frame."""
        unit = rtp.beginning(self._codec, frame.payloads[frame.first])
        return bool(unit) and kind(unit, self._codec).first

    def _given_up(self, frame: _Pending) -> bool:
        """Whether a packet is missing although a later one has arrived."""
        newest = self._numbers.newest
        before = not self._begins(frame) if self._released is None else frame.first > self._released + 1
        hole = len(frame.payloads) <= frame.last - frame.first
        return before or hole or (newest is not None and newest > frame.last)

    def _due_ns(self, ticks: int) -> int:
        least = min((delay for delay in self._least if delay is not None), default=0)
        return _ns(ticks) + least + self._length_ns

    def _frame(self, ticks: int, due_ns: int, frame: _Pending, *, follows: bool) -> Frame:
        complete = frame.solid and (follows or self._begins(frame))
        units = [unit for unit in rtp.units(self._codec, sorted(frame.payloads.items())) if unit]
        if not follows:
            self._healing = None
        self._heal(units, complete=complete)
        return Frame(ticks, due_ns, units, complete, complete and self._healing == 0)

    def _heal(self, units: list[bytes], *, complete: bool) -> None:
        """Complete frames needed until the picture is intact; None before a key frame or recovery point."""
        if not complete:
            self._healing = None
            return
        kinds = [kind(unit, self._codec) for unit in units]
        points = [kind.recovery_frames for kind in kinds if kind.recovery_frames is not None]
        if any(kind.key for kind in kinds):
            self._healing = 0
        elif self._healing is not None:
            self._healing = max(0, self._healing - 1)
        elif points:
            self._healing = points[0]


def _ns(ticks: int) -> int:
    return ticks * 1_000_000_000 // rtp.CLOCK_HZ
