"""Control both ways with numbered messages: arrivals, order and losses.

A `Loop` has an end in the aircraft and one on the ground, in one process with one clock, so that one-way delays are
those that were. It sends streams of control at a steady rate and commands that await their acknowledgement.
"""

from __future__ import annotations

import contextlib
import itertools
import select
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from pymavlink.dialects.v20 import ardupilotmega as mavlink

from skybraid.gateway.field import go_first

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterable
    from types import TracebackType

    from numpy.typing import NDArray

Kind = Literal["manual", "named"]

INTERVAL_S = 0.02
"""Between two control messages: 50 Hz."""

_SYSTEMS = {"aircraft": 1, "ground": 250}
_OTHER = {"aircraft": "ground", "ground": "aircraft"}
_PATIENCE_S = 1.5
_LATE_S = 0.001
_LOG_DATA = mavlink.MAVLINK_MSG_ID_LOG_DATA.to_bytes(3, "little")
"""Of a frame of MAVLink 2: thousands of these a second are counted, not read."""


@dataclass(frozen=True, slots=True)
class Quality:
    """Quality of a stream over a period.

    Attributes:
        sent: messages.
        arrived: of these, at least once.
        lost: numbers of those that did not come, nor did one that was sent later come in their stead.
        superseded: did not come, but a later one was there when they could have been.
        duplicates: arrivals beyond the first.
        stale: arrivals behind their successor.
        delays_ms: of the first arrivals, by number sent.
        gap_ms: the longest time between two arrivals.
        gap_at_ns: when it began.
    """

    sent: int
    arrived: int
    lost: list[int]
    superseded: int
    duplicates: int
    stale: int
    delays_ms: NDArray[np.float64]
    gap_ms: float
    gap_at_ns: int

    def delay_ms(self, share: float) -> float:
        """Returns a quantile of the delays in ms; NaN without arrivals."""
        return float(np.quantile(self.delays_ms, share)) if len(self.delays_ms) else float("nan")


@dataclass(slots=True)
class Stream:
    """Messages of one kind in one direction.

    Attributes:
        name: its name in the output.
        kind: `manual` (MANUAL_CONTROL, of which the newest counts) or `named` (NAMED_VALUE_INT, each counts).
        sender: `aircraft` or `ground`.
        sent_ns: when each was sent, by its number.
        arrivals: number and time of all that came, in the order of their coming.
    """

    name: str
    kind: Kind
    sender: str
    sent_ns: list[int] = field(default_factory=list)
    arrivals: list[tuple[int, int]] = field(default_factory=list)

    def message(self, number: int) -> Any:
        """Returns the message with a number."""
        if self.kind == "manual":
            high = number >> 16
            return mavlink.MAVLink_manual_control_message(1, high, number % 1000, 500, 0, number & 0xFFFF)
        return mavlink.MAVLink_named_value_int_message(number & 0xFFFF_FFFF, self.name.encode()[:10], number)

    def number_of(self, message: Any) -> int | None:
        """Returns the number of a message of this stream, else None."""
        kind = message.get_type()
        if self.kind == "manual" and kind == "MANUAL_CONTROL":
            return int(message.x) << 16 | int(message.buttons)
        if self.kind == "named" and kind == "NAMED_VALUE_INT" and message.name == self.name[:10]:
            return int(message.value)
        return None

    def delays(self, begin_ns: int, end_ns: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Returns send times in ns and delays in ms of arrived messages that were sent between two instants."""
        came: dict[int, int] = {}
        for number, at in list(self.arrivals):
            came.setdefault(number, at)
        sent = [(at, came[n] - at) for n, at in enumerate(self.sent_ns) if begin_ns <= at < end_ns and n in came]
        times = np.array(sent, dtype=np.int64).reshape(-1, 2)
        return times[:, 0], times[:, 1] / 1e6

    def quality(self, begin_ns: int = 0, end_ns: int | None = None, *, patience_ms: float = 1000.0) -> Quality:
        """Returns the quality between two instants.

        Args:
            begin_ns: messages sent from then on.
            end_ns: messages sent before; by default all that had `patience_ms` to come.
            patience_ms: what comes later does not count.
        """
        last_ns = time.monotonic_ns() - int(patience_ms * 1e6)
        end_ns = last_ns if end_ns is None else end_ns
        wanted = [number for number, at in enumerate(self.sent_ns) if begin_ns <= at < end_ns]
        if not wanted:
            return Quality(0, 0, [], 0, 0, 0, np.array([]), 0.0, begin_ns)
        first, last = wanted[0], wanted[-1]
        arrivals = list(self.arrivals)
        seen: dict[int, int] = {}
        stale = duplicates = 0
        newest = -1
        newest_by: list[tuple[int, int]] = []
        for number, at in arrivals:
            if first <= number <= last:
                duplicates += number in seen
                stale += number not in seen and number < newest
            seen.setdefault(number, at)
            if number > newest:
                newest = number
                newest_by.append((at, number))
        lost: list[int] = []
        superseded = 0
        for number in wanted:
            if number in seen and seen[number] - self.sent_ns[number] <= patience_ms * 1e6:
                continue
            # What was sent later and came before this one's time was over stands for it.
            until = self.sent_ns[number] + patience_ms * 1e6
            if any(at <= until and other > number for at, other in newest_by):
                superseded += 1
            else:
                lost.append(number)
        delays = [(seen[number] - self.sent_ns[number]) / 1e6 for number in wanted if number in seen]
        times = sorted(at for number, at in arrivals if first <= number <= last)
        gaps = [(later - earlier, earlier) for earlier, later in itertools.pairwise(times)]
        gap_ns, gap_at_ns = max(gaps, default=(0, begin_ns))
        arrived = len([number for number in wanted if number in seen])
        return Quality(
            len(wanted), arrived, lost, superseded, duplicates, stale, np.array(delays), gap_ns / 1e6, gap_at_ns
        )


@dataclass(slots=True)
class Commands:
    """Commands from the ground, each repeated until it is acknowledged, as ground stations do.

    Attributes:
        sent: number and confirmation of all that were sent, with the time.
        received: number and confirmation of all that reached the aircraft.
        acknowledged: numbers, with the time at which the first acknowledgement came.
        acknowledgements: how many came in all, by number.
    """

    sent: list[tuple[int, int, int]] = field(default_factory=list)
    received: list[tuple[int, int]] = field(default_factory=list)
    acknowledged: dict[int, int] = field(default_factory=dict)
    acknowledgements: dict[int, int] = field(default_factory=dict)

    def twice(self) -> list[tuple[int, int]]:
        """Commands that reached the aircraft more often than they were sent."""
        seen: set[tuple[int, int]] = set()
        again = []
        for one in self.received:
            if one in seen:
                again.append(one)
            seen.add(one)
        return again


class End:
    """UDP socket of a MAVLink program on one side."""

    def __init__(self, side: str, link: socket.socket, to: tuple[str, int]) -> None:
        self.side, self.link, self.to = side, link, to
        link.setblocking(False)
        self.mav = mavlink.MAVLink(None, srcSystem=_SYSTEMS[side], srcComponent=1)
        self.mav.robust_parsing = True
        self.broken = 0
        self.bulk_bytes = 0

    def say(self, message: Any) -> int:
        """Sends a message and returns the time."""
        frame = message.pack(self.mav)
        self.mav.seq = (self.mav.seq + 1) % 256
        at_ns = time.monotonic_ns()
        # A gateway that does not run refuses what comes to its port.
        with contextlib.suppress(OSError):
            self.link.sendto(frame, self.to)
        return at_ns

    def hear(self) -> list[tuple[int, Any]]:
        """Returns all received messages with their times."""
        found = []
        with contextlib.suppress(BlockingIOError):
            while True:
                try:
                    data = self.link.recv(65535)
                except ConnectionRefusedError:
                    continue
                at_ns = time.monotonic_ns()
                if data[7:10] == _LOG_DATA:
                    self.bulk_bytes += len(data)
                    continue
                for message in self.mav.parse_buffer(data) or []:
                    if message.get_type() == "BAD_DATA":
                        self.broken += 1
                    else:
                        found.append((at_ns, message))
        return found


class Loop:
    """Control between both ends, in a thread.

    Args:
        aircraft: the socket there, and where its gateway takes MAVLink.
        ground: the same on the ground.
        streams: what is sent; by default manual control and a numbered value from the ground, and a value from the
            aircraft.
        interval_s: between two messages of a stream.
        command_every_s: between two commands; None for none.
    """

    def __init__(
        self,
        aircraft: tuple[socket.socket, tuple[str, int]],
        ground: tuple[socket.socket, tuple[str, int]],
        *,
        streams: Iterable[Stream] | None = None,
        interval_s: float = INTERVAL_S,
        command_every_s: float | None = 1.0,
    ) -> None:
        self.ends = {"aircraft": End("aircraft", *aircraft), "ground": End("ground", *ground)}
        self.streams = {one.name: one for one in (usual() if streams is None else streams)}
        self.commands = Commands()
        self._interval_s, self._command_every_s = interval_s, command_every_s
        self._stopped = threading.Event()
        self._quiet = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._waiting: tuple[int, int, float] | None = None
        self._number = 0
        self.late: list[tuple[int, float]] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._thread.join()
        for end in self.ends.values():
            end.link.close()

    def quiet(self) -> None:
        """Stops sending; messages in flight are still received."""
        self._quiet.set()

    def until(self, holds: Callable[[], bool], longest_s: float) -> bool:
        """Waits until a condition holds; returns whether it did."""
        deadline = time.monotonic() + longest_s
        while time.monotonic() < deadline:
            if holds():
                return True
            time.sleep(0.005)
        return False

    def late_ms(self, begin_ns: int, end_ns: int) -> float:
        """Returns the maximum lateness of this program in ms in a period."""
        return max((late for at, late in self.late if begin_ns <= at <= end_ns), default=0.0)

    def flows(self, since_ns: int) -> bool:
        """Whether every stream has delivered a message that was sent after an instant."""
        return all(
            stream.arrivals and stream.sent_ns[stream.arrivals[-1][0]] > since_ns for stream in self.streams.values()
        )

    def _run(self) -> None:
        go_first()
        links = {end.link: side for side, end in self.ends.items()}
        due = command_due = time.monotonic()
        while not self._stopped.is_set():
            now = time.monotonic()
            if now >= due:
                # How late this thread itself is, which is part of every gap.
                if now - due > _LATE_S:
                    self.late.append((time.monotonic_ns(), (now - due) * 1000))
                if not self._quiet.is_set():
                    self._send()
                due = max(due + self._interval_s, now)
            if self._command_every_s is not None and not self._quiet.is_set() and now >= command_due:
                self._command(now)
                command_due = now + self._command_every_s
            ready, _, _ = select.select(list(links), [], [], max(due - time.monotonic(), 0))
            for link in ready:
                self._hear(links[link])

    def _send(self) -> None:
        for stream in self.streams.values():
            end = self.ends[stream.sender]
            number = len(stream.sent_ns)
            # The time stands there before an answer can be.
            stream.sent_ns.append(time.monotonic_ns())
            end.say(stream.message(number))

    def _command(self, now: float) -> None:
        if self._waiting is None:
            self._number += 1
            self._waiting = (self._number, 0, now)
        else:
            number, confirmation, since = self._waiting
            if now - since < _PATIENCE_S:
                return
            self._waiting = (number, confirmation + 1, now)
        number, confirmation, _ = self._waiting
        message = mavlink.MAVLink_command_long_message(
            1, 1, mavlink.MAV_CMD_USER_1, confirmation & 0xFF, number, 0, 0, 0, 0, 0, 0
        )
        self.commands.sent.append((number, confirmation, self.ends["ground"].say(message)))

    def _hear(self, side: str) -> None:
        for at_ns, message in self.ends[side].hear():
            kind = message.get_type()
            if side == "aircraft" and kind == "COMMAND_LONG":
                number = int(message.param1)
                self.commands.received.append((number, int(message.confirmation)))
                answer = mavlink.MAVLink_command_ack_message(message.command, 0, 0, number, _SYSTEMS["ground"], 1)
                self.ends["aircraft"].say(answer)
                continue
            if side == "ground" and kind == "COMMAND_ACK":
                number = int(message.result_param2)
                self.commands.acknowledged.setdefault(number, at_ns)
                self.commands.acknowledgements[number] = self.commands.acknowledgements.get(number, 0) + 1
                if self._waiting is not None and self._waiting[0] == number:
                    self._waiting = None
                continue
            for stream in self.streams.values():
                if _OTHER[stream.sender] == side:
                    number_ = stream.number_of(message)
                    if number_ is not None:
                        stream.arrivals.append((number_, at_ns))


NAMED_VALUE_INT = 252
"""Its number; gateways do not know its name."""


def usual() -> list[Stream]:
    """Returns the default streams: manual control and a value from the ground, a value from the aircraft."""
    return [Stream("manual", "manual", "ground"), Stream("up", "named", "ground"), Stream("down", "named", "aircraft")]


MESSAGES = {"control": [NAMED_VALUE_INT], "every": [NAMED_VALUE_INT]}
"""What both files say of messages, so that the numbered values are control and each counts."""
