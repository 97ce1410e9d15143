"""Two gateways in the emulator against the simulator: the same links, seeds and policy.

    python tests/gateway/predicted.py [--seeds 3] [--only constant]

Control goes from the ground to the vehicle over both paths at once, video of 5 Mbit/s from the vehicle over MP-DCCP:
packet by packet, or 30 times a second a frame at once, which is there with its last packet. Held are the median, the
95th and the 99th percentile of the one-way delays of messages or frames, within what a hundred simulated flights have;
and the share that arrives within the deadline, by the 95 % intervals of both sides for the same seeds, which must have
something in common. A message during whose way the machine itself stood still does not count; where too few are left,
it is flown again.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import select
import socket
import struct
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import polars as pl
from scipy import stats

import skybraid
from skybraid.gateway import Field, binary, configure_pair
from skybraid.gateway.daemons import in_emulator
from skybraid.gateway.field import go_first
from stalls import StallError, Stalls, spared

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from skybraid.gateway.daemons import Daemon
    from skybraid.gateway.field import Node

WITHIN = 0.10
"""How far a percentile of the delays may lie outside of what the simulated flights have."""

SIMULATED = range(1, 101)
"""Seeds that are simulated: once in a while congestion control fills a queue, which a short flight may have or not.

The 99th percentile of the worst of a hundred flights is a third above that of the worst of twelve.
"""

START_S, BEGIN_S = 3.0, 4.0
"""When the flows begin, gateways having found one another, and the first message that counts: windows have grown."""

DEADLINES_MS = {"control": 300.0, "video": 300.0}

FLOWS = """
[flow.control]
from = "ground"
traffic = { kind = "cbr", rate = "200kbit/s", packet = "125B" }
start = "3s"
transport = { protocol = "udp", scheduler = "redundant" }
require = { deadline = "300ms", share = "99%" }

[flow.video]
from = "vehicle"
traffic = @VIDEO@
start = "3s"
require = { deadline = "300ms", share = "90%" }
transport.protocol = "mp_dccp"
transport.scheduler = "low_rtt"
transport.congestion = { name = "ccid5", radio = true }
transport.tx_queue = 400
transport.restart_window = 4
transport.pace_queue = "8ms"
"""

PACKETS = '{ kind = "cbr", rate = "5Mbit/s", packet = "1000B" }'
FRAMES = '{ kind = "video", rate = "5Mbit/s", fps = 30, jitter_buffer = "1s" }'

CONSTANT = """
name = "Constant"
duration = "@LENGTH@s"

[path.lte]
uplink.rate = "20Mbit/s"
uplink.delay = "45ms"
uplink.queue = { packets = 350 }
uplink.loss = { uniform = "1%" }
downlink.rate = "30Mbit/s"
downlink.delay = "30ms"
downlink.loss = { uniform = "5%" }

[path.starlink]
uplink.rate = "15Mbit/s"
uplink.delay = "25ms"
uplink.queue = { packets = 100 }
uplink.loss = { uniform = "1%" }
downlink.rate = "60Mbit/s"
downlink.delay = "25ms"
downlink.loss = { uniform = "5%" }
"""

_ROOT = Path(__file__).parents[2]
_SIZES = {"control": 125, "video": 1000}
_EVERY_S = {"control": 0.005, "video": 0.0016}
_FPS = 30
_PORTS = {"control": 5601, "video": 5600}
_STAMPS = 35  # SO_TIMESTAMPNS
_HELD_UP_S = 0.05
_TRIES = 4

LEFT = 0.5
"""The share of a flight's messages that must count."""


@dataclass(slots=True)
class Side:
    """The messages of one flow, or its frames.

    Attributes:
        delays_ms: of those that arrived.
        sent: how many there were.
    """

    delays_ms: NDArray[np.float64]
    sent: int

    def within(self, deadline_ms: float) -> int:
        """How many arrived in time."""
        return int((self.delays_ms <= deadline_ms).sum())


@dataclass(frozen=True, slots=True)
class Held:
    """A flow under both, and whether they agree.

    Attributes:
        case: its scenario.
        flow: its name.
        simulations: all simulated flights.
        paired: those of the seeds that were flown. Outages and handovers of a seed are those of both, and a hundred
            flights have others on average.
        flown: all flights between gateways together.
    """

    case: str
    flow: str
    simulations: Sequence[Side]
    paired: Sequence[Side]
    flown: Side

    @property
    def simulated(self) -> Side:
        """All simulated flights together."""
        return _together(self.simulations)

    def range_ms(self, share: float) -> tuple[float, float]:
        """Range of that delay percentile over the simulated flights."""
        each = [float(np.quantile(side.delays_ms, share)) for side in self.simulations]
        return min(each), max(each)

    def percentile(self, share: float) -> tuple[float, float]:
        """Of the delays in ms: simulated, flown."""
        return float(np.quantile(self.simulated.delays_ms, share)), float(np.quantile(self.flown.delays_ms, share))

    @property
    def shares(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """The intervals of the shares in time: simulated, flown."""
        deadline_ms = DEADLINES_MS[self.flow]
        intervals = [
            stats.binomtest(side.within(deadline_ms), side.sent).proportion_ci()
            for side in (_together(self.paired), self.flown)
        ]
        return intervals[0], intervals[1]

    @property
    def wrong(self) -> list[str]:
        """What does not agree, in sentences."""
        found = []
        for share in SHARES:
            (min_ms, max_ms), (_, flown_ms) = self.range_ms(share), self.percentile(share)
            if not min_ms * (1 - WITHIN) <= flown_ms <= max_ms * (1 + WITHIN):
                difference = f"p{100 * share:g} {flown_ms:.1f} ms, simulated {min_ms:.1f} to {max_ms:.1f} ms"
                found.append(f"{self.case} {self.flow}: {difference}")
        (low, high), (own_low, own_high) = self.shares
        if own_high < low or own_low > high:
            found.append(
                f"{self.case} {self.flow}: {own_low:.4%} to {own_high:.4%} in time, simulated {low:.4%} to {high:.4%}"
            )
        return found

    def line(self) -> str:
        """A line of the table."""
        deadline_ms = DEADLINES_MS[self.flow]
        shares = [side.within(deadline_ms) / side.sent for side in (_together(self.paired), self.flown)]
        each = [self.percentile(share) for share in SHARES]
        delays = "  ".join(f"{one[0]:7.1f} {one[1]:7.1f} {one[1] / one[0]:6.3f}" for one in each)
        verdict = "DO NOT AGREE" if self.wrong else "agree"
        return f"{self.case:10} {self.flow:8} {delays}  {shares[0]:9.4%} {shares[1]:9.4%}  {verdict}"


SHARES = (0.5, 0.95, 0.99)
HEADING = (
    f"{'case':10} {'flow':8} "
    + "".join(f"{f'p{100 * share:g} sim':>7} {'flown':>7} {'ratio':>6}  " for share in SHARES)
    + f"{'in time':>9} {'flown':>9}"
)


def cases(length_s: float) -> dict[str, str]:
    """The scenarios by name."""
    packets, frames = (FLOWS.replace("@VIDEO@", each) for each in (PACKETS, FRAMES))
    constant = CONSTANT.replace("@LENGTH@", f"{length_s:g}")
    text = (_ROOT / "scenarios" / "remote-piloting.toml").read_text(encoding="utf-8")
    measured = text.partition("[flow.video]")[0].replace('duration = "30min"', f'duration = "{length_s:g}s"')
    measured = measured.replace("../traces/", f"{_ROOT}/traces/")
    return {"constant": constant + packets, "frames": constant + frames, "measured": measured + packets}


def simulate(file: Path, seed: int) -> dict[str, Side]:
    """What the simulator says, without the beginning and what may be under way at the end."""
    results = skybraid.run(file, seed=seed, tables=["messages", "frames"])
    end_ns = (results.simulated_s - 1) * 1e9
    found = {}
    for name in _SIZES:
        framed = _frames(results, name)
        if framed.height:
            came = pl.when(pl.col("complete")).then(pl.col("last_ns"))
            own = framed.select(sent_ns="captured_ns", came_ns=came)
        else:
            messages = results.tables["messages"].filter(pl.col("flow").cast(pl.String) == name)
            own = messages.select("sent_ns", came_ns="delivered_ns")
        own = own.filter(pl.col("sent_ns").is_between(BEGIN_S * 1e9, end_ns))
        delays = own.select((pl.col("came_ns") - pl.col("sent_ns")) / 1e6).to_series()
        found[name] = Side(delays.drop_nulls().to_numpy(), own.height)
    return found


def _frames(results: skybraid.Results, flow: str) -> pl.DataFrame:
    """The frames of a flow; none of one that is no video."""
    return results.tables["frames"].filter(pl.col("flow").cast(pl.String) == flow)


def frame_sizes(file: Path, seed: int) -> list[list[int]]:
    """The packets of each frame of the flow `video` in bytes; nothing if it does not come in frames."""
    frames = _frames(skybraid.run(file, seed=seed, tables=["frames"]), "video")
    sizes = []
    for whole, packets in frames.select("bytes", "packets").iter_rows():
        each = math.ceil(whole / packets)
        sizes.append([min(each, whole - start) for start in range(0, whole, each)])
    return sizes


@dataclass(slots=True)
class Meter:
    """A flow's sockets, and what went in and came out.

    Attributes:
        every_s: between two messages, or two frames.
        frames: the sizes of each one's packets, over and over; a message is a frame of one packet.
        packets: the numbers of each one's packets.
    """

    out: socket.socket
    into: socket.socket
    to: tuple[str, int]
    every_s: float
    frames: list[list[int]]
    sent_ns: list[int] = field(default_factory=list)
    packets: list[range] = field(default_factory=list)
    came_ns: dict[int, int] = field(default_factory=dict)
    due: float = 0.0

    @classmethod
    def between(cls, out: Node, into: Node, port: int, every_s: float, frames: list[list[int]]) -> Self:
        """A flow from one node's gateway to the other's, which both have this local port."""
        reader = into.socket()
        reader.setsockopt(socket.SOL_SOCKET, _STAMPS, 1)
        reader.bind(("127.0.0.1", port))
        reader.setblocking(False)
        return cls(out.socket(), reader, ("127.0.0.1", port), every_s, frames)

    def write(self) -> None:
        """Sends what is due, and not what was due long ago: this program may have been held up."""
        now = time.monotonic()
        if now - self.due > _HELD_UP_S:
            self.due = now
        while self.due <= now:
            sizes = self.frames[len(self.sent_ns) % len(self.frames)]
            first = self.packets[-1].stop if self.packets else 0
            self.packets.append(range(first, first + len(sizes)))
            self.sent_ns.append(time.time_ns())
            for number, size in zip(self.packets[-1], sizes, strict=True):
                with contextlib.suppress(OSError):
                    self.out.sendto(struct.pack("!Q", number).ljust(size, b"s"), self.to)
            self.due += self.every_s

    def side(self, first_ns: float, last_ns: float, stalls: NDArray[np.int64], way_ns: int) -> Side:
        """What was sent in that time, without what a stall may have held up within `way_ns` from its beginning."""
        sent = zip(self.sent_ns, self.packets, spared(stalls, np.array(self.sent_ns), way_ns), strict=True)
        wanted = [(at, packets) for at, packets, counts in sent if counts and first_ns <= at <= last_ns]
        whole = [
            (max(self.came_ns[number] for number in packets) - at) / 1e6
            for at, packets in wanted
            if all(number in self.came_ns for number in packets)
        ]
        return Side(np.array(whole), len(wanted))

    def read(self) -> None:
        """Takes what came; the kernel says when."""
        with contextlib.suppress(BlockingIOError):
            while True:
                data, about, _, _ = self.into.recvmsg(2048, 64)
                at_ns = time.time_ns()
                for level, kind, value in about:
                    if (level, kind) == (socket.SOL_SOCKET, _STAMPS):
                        seconds, rest = struct.unpack("@ll", value[:16])
                        at_ns = seconds * 1_000_000_000 + rest
                self.came_ns.setdefault(struct.unpack_from("!Q", data)[0], at_ns)


def fly(
    file: Path,
    folder: Path,
    seed: int,
    length_s: float,
    ways_ns: Mapping[str, int],
    video: dict[str, Any] | None = None,
) -> dict[str, Side]:
    """What two gateways make of it, without what the machine held up while it may have been under way.

    `ways_ns` says how long that is by flow, `video` is what the aircraft's file says of that class.
    """
    program = binary()
    assert program is not None, "found no skybraid-node: make node, or name it by SKYBRAID_NODE"
    local = {name: f"127.0.0.1:{port}" for name, port in _PORTS.items()}
    with Field(file, folder, seed=seed) as links:
        began_ns = time.time_ns() - round(links.ask(do="status")["at_s"] * 1e9)
        aircraft, ground = configure_pair(
            program,
            folder,
            (links.vehicle, links.ground),
            in_emulator(links.addresses("ground")),
            aircraft={
                "class": {"video": video or {}},
                "udp": {
                    "control": {"send_to": local["control"], "class": "control"},
                    "video": {"listen": local["video"]},
                },
            },
            ground={
                "udp": {
                    "control": {"listen": local["control"], "class": "control"},
                    "video": {"send_to": local["video"]},
                }
            },
        )
        frames = {name: [[size]] for name, size in _SIZES.items()}
        every_s = dict(_EVERY_S)
        if sizes := frame_sizes(file, seed):
            frames["video"], every_s["video"] = sizes, 1 / _FPS
        ways = {"control": (links.ground, links.vehicle), "video": (links.vehicle, links.ground)}
        meters = {name: Meter.between(*ends, _PORTS[name], every_s[name], frames[name]) for name, ends in ways.items()}
        stalls = pumped((ground, aircraft), len(links.paths), list(meters.values()), began_ns, length_s)
    first_ns, last_ns = began_ns + BEGIN_S * 1e9, began_ns + (length_s - 1) * 1e9
    return {name: one.side(first_ns, last_ns, stalls, ways_ns[name]) for name, one in meters.items()}


def pumped(
    daemons: tuple[Daemon, Daemon], paths: int, meters: Sequence[Meter], began_ns: int, length_s: float
) -> NDArray[np.int64]:
    """Runs two gateways with their flows until the end of the flight; returns when the machine stood still.

    Args:
        daemons: of the ground and of the aircraft, not started.
        paths: that must be up before the flows begin.
        meters: of the flows; closed at the end.
        began_ns: when the flight began, by the wall clock.
        length_s: of the flight.
    """
    ground, aircraft = daemons
    try:
        ground.start()
        aircraft.start()
        aircraft.until_linked(paths)
        time.sleep(max(began_ns / 1e9 + START_S - time.time(), 0))
        with Stalls() as watch:
            _pump(meters, began_ns + round(length_s * 1e9))
            return watch.seen() + (time.time_ns() - time.monotonic_ns())
    finally:
        for daemon in (aircraft, ground):
            daemon.stop()
        for one in meters:
            one.out.close()
            one.into.close()


def _pump(meters: Sequence[Meter], end_ns: int) -> None:
    go_first()
    readers = [one.into for one in meters]
    while time.time_ns() < end_ns:
        for one in meters:
            one.write()
        rest_s = min(one.due for one in meters) - time.monotonic()
        select.select(readers, [], [], max(rest_s, 0))
        for one in meters:
            one.read()
    until = time.monotonic() + 1
    while (left_s := until - time.monotonic()) > 0:
        select.select(readers, [], [], left_s)
        for one in meters:
            one.read()


def flown(
    file: Path,
    folder: Path,
    seed: int,
    length_s: float,
    simulations: Sequence[Mapping[str, Side]],
    video: dict[str, Any] | None = None,
) -> dict[str, Side]:
    """What two gateways make of it, in as many flights as it takes until enough counts.

    Raises:
        StallError: the machine stood still too often.
    """
    # Most are there after twice the median.
    ways_ns = {name: round(2e6 * float(np.median(_of(simulations, name).delays_ms))) for name in _SIZES}
    enough = {name: LEFT * simulations[0][name].sent for name in _SIZES}
    flights: list[dict[str, Side]] = []
    while not flights or any(_of(flights, name).sent < least for name, least in enough.items()):
        if len(flights) == _TRIES:
            raise StallError(f"{file.stem}, seed {seed}: the machine stood still too often for {_TRIES} flights")
        place = folder / f"{file.stem}-{seed}-{len(flights)}"
        place.mkdir()
        flights.append(fly(file, place, seed, length_s, ways_ns, video))
    return {name: _of(flights, name) for name in _SIZES}


def simulated(file: Path) -> list[dict[str, Side]]:
    """What the simulator says with each seed."""
    return [simulate(file, seed) for seed in SIMULATED]


def hold(case: str, text: str, folder: Path, seeds: Sequence[int], length_s: float) -> list[Held]:
    """Simulates and flies a scenario with several seeds, and holds each flow of all of them together.

    Raises:
        StallError: the machine stood still too often.
    """
    file = folder / f"{case}.toml"
    file.write_text(text, encoding="utf-8")
    simulations = simulated(file)
    flights = [flown(file, folder, seed, length_s, simulations) for seed in seeds]
    paired = [simulations[SIMULATED.index(seed)] for seed in seeds]
    return [
        Held(case, name, [one[name] for one in simulations], [one[name] for one in paired], _of(flights, name))
        for name in _SIZES
    ]


def _of(flights: Sequence[Mapping[str, Side]], name: str) -> Side:
    return _together([one[name] for one in flights])


def _together(sides: Sequence[Side]) -> Side:
    return Side(np.concatenate([one.delays_ms for one in sides]), sum(one.sent for one in sides))


def main() -> int:
    """Prints a line a flow. Exit code: 0 all agree, 1 not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--length", type=float, default=60.0, help="of each flight in s")
    parser.add_argument("--only", default="", help="cases whose names contain this")
    given = parser.parse_args()
    print(HEADING)
    wrong: list[str] = []
    with tempfile.TemporaryDirectory(prefix="agreement-") as name:
        for case, text in cases(given.length).items():
            if given.only in case:
                try:
                    held = hold(case, text, Path(name), range(1, given.seeds + 1), given.length)
                except StallError as still:
                    wrong.append(str(still))
                    continue
                for one in held:
                    print(one.line(), flush=True)
                    wrong += one.wrong
    for line in wrong:
        print(f"WRONG: {line}")
    return math.ceil(len(wrong) / max(len(wrong), 1))


if __name__ == "__main__":
    sys.exit(main())
