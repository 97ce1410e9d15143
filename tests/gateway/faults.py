"""Path faults during control both ways: nothing is lost or stale, and gaps are within their bounds.

    python tests/gateway/faults.py --cuts 1000 --seed 1     # half an hour
    python tests/gateway/faults.py --only bulk              # bulk, restarts, disk

A cut takes one or several of three paths, each with a fault of its own, for up to two seconds; one path that has been
well for a second stays so. Gateways, links and this program go before the machine's other work. A fourth path, which
the gateways do not know, carries a stream of bare datagrams at the same moments: what the machine itself delays shows
there too, or in the times in which a processor stood still, and is counted apart.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np

from pilot import INTERVAL_S, MESSAGES, Loop, Quality, Stream
from skybraid.gateway import Daemon, Field, Shell, binary, configure_pair
from skybraid.gateway.daemons import in_emulator
from skybraid.gateway.field import go_first
from stalls import StallError, Stalls, spared

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import TracebackType

DELAYS_MS = {"dish": 45, "lte": 30, "modem": 60}
"""One-way delays of the paths."""

WATCH = "watch"
"""The path that only this program uses."""

SCENARIO = "\n".join(
    [
        'name = "Faults"',
        'duration = "10min"',
        *(
            f'[path.{name}]\nrate = "{rate}Mbit/s"\ndelay = "{delay}ms"\nqueue = {{ time = "200ms" }}'
            for name, delay, rate in (("dish", 45, 4), ("lte", 30, 3), ("modem", 60, 2), (WATCH, 30, 4))
        ),
    ]
)

SLOWER_MS, LOSSY = 500, "30%"

KINDS = ("dead here", "dead there", "silent", "one-way up", "one-way down", "slow", "lossy", "flapping", "address")
"""Faults of a path; of a dead one the interface in the vehicle or on the ground is switched off."""

OWN_MS = 5.0
"""What two gateways, the emulator and this program may add to a gap."""

ENOUGH = 100
"""So many messages must be left for a percentile."""

WELL_S = 1.0
"""So long a path must have been well to be one that a cut may leave alone."""

_AIR, _GROUND = ("127.0.0.1", 14540), ("127.0.0.1", 14550)


@dataclass(slots=True)
class Cut:
    """Cut of several paths.

    Attributes:
        number: in the order of the cuts.
        faults: by path.
        well: the paths that were well all the time.
        begin_ns: when it began.
        end_ns: when the next one began, or nothing more was done.
    """

    number: int
    faults: dict[str, str]
    well: list[str]
    begin_ns: int
    end_ns: int = 0

    @property
    def allowed_ms(self) -> float:
        """Maximum gap: the delay of the slowest healthy path, plus an interval."""
        return max(DELAYS_MS[path] for path in self.well) + INTERVAL_S * 1000

    def words(self) -> str:
        """Returns a description of the cut."""
        faults = ", ".join(f"{path} {fault}" for path, fault in self.faults.items()) or "nothing"
        return f"cut {self.number} ({faults}; {', '.join(self.well)} well)"


@dataclass(slots=True)
class Failing:
    """Failures, in sentences, and the worst values within their bounds."""

    words: list[str] = field(default_factory=list)
    worst: list[str] = field(default_factory=list)


class Flight:
    """Two gateways over three paths and the watch path, with control between them.

    Args:
        folder: for all that is written.
        seed: of the links.
        program: `skybraid-node`.
        aircraft: more tables for the aircraft's file.
        clock_ahead_s: how far the ground's monotonic clock is ahead, as two machines' are apart.
    """

    def __init__(
        self,
        folder: Path,
        seed: int = 1,
        *,
        program: Path | None = None,
        aircraft: Mapping[str, object] | None = None,
        clock_ahead_s: int = 86_400,
    ) -> None:
        chosen = program or binary()
        assert chosen is not None, "found no skybraid-node: make node, or name it by SKYBRAID_NODE"
        scenario = folder / "faults.toml"
        scenario.write_text(SCENARIO, encoding="utf-8")
        self.field = Field(scenario, folder, seed=seed)
        addresses = self.field.addresses("ground")
        self.hosts = {path: [1, 1] for path in DELAYS_MS}
        self.subnets = {path: address.rsplit(".", 1)[0] for path, address in addresses.items()}
        known = {path: addresses[path] for path in DELAYS_MS}
        self.aircraft, self.ground = configure_pair(
            chosen,
            folder,
            (self.field.vehicle, self.field.ground),
            in_emulator(known),
            aircraft={"messages": MESSAGES, "mavlink": [{"udp_listen": "127.0.0.1:14540"}], **(aircraft or {})},
            ground={"messages": MESSAGES, "mavlink": [{"udp_listen": "127.0.0.1:14550"}]},
        )
        self.ground.clock_ahead_s = clock_ahead_s
        self.shells = {"here": Shell(self.field.vehicle), "there": Shell(self.field.ground)}
        self.loop = Loop((self.field.vehicle.socket(), _AIR), (self.field.ground.socket(), _GROUND))
        self.watch = Watch(self.field, addresses[WATCH])
        self.stalls = Stalls()

    def begin(self) -> None:
        """Starts the gateways and waits until control arrives."""
        for daemon in (self.ground, self.aircraft):
            daemon.start()
        for daemon in (self.ground, self.aircraft):
            daemon.until_linked(len(DELAYS_MS))
        self.stalls.__enter__()
        self.loop.__enter__()
        self.watch.__enter__()
        began = time.monotonic_ns()
        assert self.loop.until(lambda: self.loop.flows(began), 5), "control does not flow"
        # The first messages teach the gateway whom to answer.
        time.sleep(0.5)

    def __enter__(self) -> Self:
        try:
            self.begin()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.loop.__exit__(kind, error, trace)
        self.watch.__exit__(kind, error, trace)
        self.end()

    def end(self) -> None:
        """Stops the gateways and the links."""
        for daemon in (self.aircraft, self.ground):
            daemon.stop()
        for shell in self.shells.values():
            shell.close()
        self.field.close()
        self.stalls.close()

    def machine_ms(self, begin_ns: int, end_ns: int) -> float:
        """Returns the longest stall of the machine in ms around a time."""
        late_ms = self.loop.late_ms(begin_ns - 100_000_000, end_ns + 100_000_000)
        # What came at the end of the gap may have been under way when it began.
        stood_ms = self.stalls.between_ms(begin_ns - max(DELAYS_MS.values()) * 1_000_000, end_ns)
        return max(self.watch.excess_ms(begin_ns, end_ns), late_ms, stood_ms)

    def p99_ms(self, stream: Stream, begin_ns: int, end_ns: int) -> float:
        """Returns the p99 delay of a stream between two instants, without messages that a stall may have delayed.

        Raises:
            StallError: too little is left.
        """
        sent_ns, delays_ms = stream.delays(begin_ns, end_ns)
        counts = spared(self.stalls.seen(), sent_ns, max(DELAYS_MS.values()) * 1_000_000)
        if counts.sum() < ENOUGH:
            raise StallError(f"of {stream.name}, the machine held up all but {counts.sum()} of {len(counts)} messages")
        return float(np.quantile(delays_ms[counts], 0.99))

    def inflict(self, path: str, fault: str, over: threading.Event) -> Callable[[], None]:
        """Inflicts a fault on a path; returns a function that ends it."""
        field_ = self.field
        match fault:
            case "dead here" | "dead there":
                shell = self.shells[fault.rpartition(" ")[2]]
                shell.run(f"ip link set {path} down")
                return lambda: _nothing(shell.run(f"ip link set {path} up"))
            case "silent":
                field_.cut(path)
                return lambda: field_.restore(path)
            case "one-way up" | "one-way down":
                field_.set(path, {"up": "uplink", "down": "downlink"}[fault.rpartition(" ")[2]], loss="100%")
            case "slow":
                field_.set(path, delay=f"{DELAYS_MS[path] + SLOWER_MS}ms")
            case "lossy":
                field_.set(path, loss=LOSSY)
            case "flapping":
                thread = threading.Thread(target=self._flap, args=(path, over))
                thread.start()
                return thread.join
            case "address":
                self._move(path)
                return lambda: None
        return lambda: field_.reset(path)

    def _flap(self, path: str, over: threading.Event) -> None:
        drawn = random.Random(path)
        while not over.is_set():
            self.field.cut(path)
            over.wait(drawn.uniform(0.03, 0.3))
            self.field.restore(path)
            over.wait(drawn.uniform(0.03, 0.3))

    def _move(self, path: str) -> None:
        """Changes the vehicle's address on a path."""
        old, count = self.hosts[path]
        new = 100 + count % 100
        self.hosts[path] = [new, count + 1]
        subnet = self.subnets[path]
        change = f"ip address delete {subnet}.{old}/24 dev {path} && ip address add {subnet}.{new}/24 dev {path}"
        self.shells["here"].run(change)


def _nothing(_: str) -> None:
    pass


class Watch:
    """Bare datagrams from the ground to the vehicle over a separate path, at the rate of control."""

    def __init__(self, field_: Field, address: str) -> None:
        self._out, self._in = field_.vehicle.socket(), field_.ground.socket()
        self._in.bind((address, 5000))
        self._in.settimeout(0.1)
        self._to = (address, 5000)
        self._over = threading.Event()
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._send, self._hear)]
        self.arrivals: list[int] = []

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
        self._out.close()
        self._in.close()

    def _send(self) -> None:
        go_first()
        due = time.monotonic()
        while not self._over.is_set():
            self._out.sendto(bytes(40), self._to)
            due = max(due + INTERVAL_S, time.monotonic())
            time.sleep(max(due - time.monotonic(), 0))

    def _hear(self) -> None:
        go_first()
        while not self._over.is_set():
            try:
                self._in.recv(100)
            except TimeoutError:
                continue
            self.arrivals.append(time.monotonic_ns())

    def excess_ms(self, begin_ns: int, end_ns: int) -> float:
        """Returns by how many ms the longest gap around a time exceeded the interval."""
        near = [at for at in self.arrivals if begin_ns - 100_000_000 <= at <= end_ns + 100_000_000]
        gaps = [(later - earlier) / 1e6 for earlier, later in itertools.pairwise(near)]
        return max(max(gaps, default=0.0) - INTERVAL_S * 1000, 0.0)


def cuts(flight: Flight, number: int, seed: int, *, report: Callable[[str], None] = print) -> list[Cut]:
    """Makes random cuts, one after another."""
    drawn, kinds = random.Random(seed), _dealt(seed)
    well_since = dict.fromkeys(DELAYS_MS, time.monotonic() - WELL_S)
    made: list[Cut] = []
    for each in range(number):
        now = time.monotonic()
        steady = [path for path, since in well_since.items() if now - since >= WELL_S]
        if not steady:
            time.sleep(max(WELL_S - max(now - since for since in well_since.values()), 0.01))
            steady = [max(well_since, key=lambda path: time.monotonic() - well_since[path])]
        anchor = drawn.choice(sorted(steady))
        others = sorted(set(DELAYS_MS) - {anchor})
        chosen = drawn.sample(others, drawn.randint(1, len(others)))
        faults = {path: next(kinds) for path in chosen}
        length_s, pause_s = drawn.uniform(0.2, 1.6), drawn.uniform(0.05, 0.8)
        begin_ns = time.monotonic_ns()
        if made:
            made[-1].end_ns = begin_ns
        cut = Cut(each, faults, [path for path in steady if path not in faults], begin_ns)
        made.append(cut)
        over = threading.Event()
        ends = [flight.inflict(path, fault, over) for path, fault in faults.items()]
        time.sleep(length_s)
        over.set()
        for end in ends:
            end()
        for path in faults:
            well_since[path] = time.monotonic()
        time.sleep(pause_s)
        if (each + 1) % 50 == 0:
            report(f"  {each + 1} of {number} cuts")
    # What is under way has time to come.
    time.sleep(1.5)
    if made:
        made[-1].end_ns = time.monotonic_ns() - 1_200_000_000
    return made


def _dealt(seed: int) -> Iterator[str]:
    """Yields kinds of faults, all equally often."""
    drawn = random.Random(f"kinds {seed}")
    while True:
        yield from drawn.sample(KINDS, len(KINDS))


def judge(flight: Flight, made: list[Cut]) -> Failing:
    """Compares deliveries with the guarantees."""
    found = Failing()
    gaps: list[tuple[float, str]] = []
    for stream in flight.loop.streams.values():
        whole = stream.quality(made[0].begin_ns, made[-1].end_ns)
        found.worst.append(summary(stream.name, whole))
        if whole.lost:
            at = [
                next((cut.words() for cut in made if cut.begin_ns <= stream.sent_ns[n] < cut.end_ns), "")
                for n in whole.lost
            ]
            found.words.append(f"{stream.name}: {len(whole.lost)} lost, the first in {at[0]}, the last in {at[-1]}")
        if whole.duplicates:
            found.words.append(f"{stream.name}: {whole.duplicates} came twice")
        if stream.kind == "manual" and whole.stale:
            found.words.append(f"{stream.name}: {whole.stale} came behind their successor")
        times = [at for _, at in stream.arrivals]
        for earlier, later in itertools.pairwise(times):
            gap_ms = (later - earlier) / 1e6
            if gap_ms <= min(DELAYS_MS.values()) + INTERVAL_S * 1000:
                continue
            # Of two cuts the one that was when the gap began, and the one when it ended.
            near = [cut for cut in made if cut.begin_ns <= later and earlier <= cut.end_ns]
            if not near:
                continue
            allowed_ms = max(cut.allowed_ms for cut in near)
            excess_ms = flight.machine_ms(earlier, later)
            line = (
                f"{stream.name}: {gap_ms:.1f} ms in {near[-1].words()}, at {(earlier - near[-1].begin_ns) / 1e6:.0f} ms"
                f"; allowed {allowed_ms:.0f} ms, and the machine {excess_ms:.1f} ms"
            )
            gaps.append((gap_ms - allowed_ms - excess_ms, line))
            if gap_ms > allowed_ms + excess_ms + OWN_MS:
                found.words.append(f"gap of {line}")
    gaps.sort(reverse=True)
    found.worst += [f"longest gaps: {line}" for _, line in gaps[:5]]
    commands = flight.loop.commands
    if commands.twice():
        found.words.append(f"commands came twice: {commands.twice()[:5]}")
    missing = [
        number for number, _, at in commands.sent if at < made[-1].end_ns and number not in commands.acknowledged
    ]
    if missing:
        found.words.append(f"commands were not acknowledged: {missing[:5]}")
    repeated = sum(confirmation > 0 for _, confirmation, _ in commands.sent)
    found.worst.append(f"commands: {len(commands.acknowledged)} acknowledged, {repeated} had to be repeated")
    return found


def summary(name: str, quality: Quality) -> str:
    """Describes a stream in one line."""
    return (
        f"{name}: {quality.sent} sent, {len(quality.lost)} lost, {quality.superseded} superseded, {quality.stale} "
        f"stale, {quality.duplicates} twice; delay p50 {quality.delay_ms(0.5):.1f}, p99 {quality.delay_ms(0.99):.1f}, "
        f"most {quality.delay_ms(1):.1f} ms; longest gap {quality.gap_ms:.1f} ms"
    )


@dataclass(frozen=True, slots=True)
class Download:
    """A log download next to control.

    Attributes:
        without_ns: a time without it, its begin and end.
        loaded_ns: one with it.
        rate_bps: what the download got.
    """

    without_ns: tuple[int, int]
    loaded_ns: tuple[int, int]
    rate_bps: float

    def p99_ms(self, flight: Flight) -> dict[str, tuple[float, float]]:
        """Returns the p99 delay of control by stream, without and with the download.

        Raises:
            StallError: the machine held up too many of the messages.
        """
        streams = flight.loop.streams.items()
        return {
            name: (flight.p99_ms(stream, *self.without_ns), flight.p99_ms(stream, *self.loaded_ns))
            for name, stream in streams
        }


def bulk(flight: Flight, seconds: float, *, rate_bps: float = 20e6) -> Download:
    """Measures control without and with a log download at full rate."""
    ground = flight.loop.ends["ground"]
    begin_ns = time.monotonic_ns()
    time.sleep(seconds)
    middle_ns = time.monotonic_ns()
    command = [sys.executable, str(Path(__file__).with_name("bulk.py")), "127.0.0.1:14540"]
    command += ["--rate", str(rate_bps), "--seconds", str(seconds + 60)]
    process = flight.field.vehicle.start(command, stderr=None)
    try:
        before = ground.bulk_bytes
        assert flight.loop.until(lambda: ground.bulk_bytes > before, 30), "the download does not begin"
        # Congestion control finds its rate first.
        time.sleep(2)
        loaded_ns, before = time.monotonic_ns(), ground.bulk_bytes
        time.sleep(seconds)
        end_ns, after = time.monotonic_ns(), ground.bulk_bytes
    finally:
        process.kill()
        process.wait()
    time.sleep(1.2)
    rate_bps = (after - before) * 8 / ((end_ns - loaded_ns) / 1e9)
    return Download((begin_ns, middle_ns), (loaded_ns, end_ns), rate_bps)


def restarts(flight: Flight, times: int) -> dict[str, list[float]]:
    """Kills and restarts each side and both; returns the times in s until control arrives both ways."""
    found: dict[str, list[float]] = {}
    for name, daemons in (
        ("aircraft", [flight.aircraft]),
        ("ground", [flight.ground]),
        ("both", [flight.aircraft, flight.ground]),
    ):
        for _ in range(times):
            found.setdefault(name, []).append(restart(flight, daemons))
    return found


def restart(flight: Flight, daemons: list[Daemon]) -> float:
    """Kills and restarts gateways; returns the time in s until control arrives, or infinity."""
    for daemon in daemons:
        daemon.kill()
    time.sleep(0.7)
    for daemon in daemons:
        daemon.start(wait=False)
    began_ns = time.monotonic_ns()
    if not flight.loop.until(lambda: flight.loop.flows(began_ns), 10):
        return float("inf")
    took_s = (time.monotonic_ns() - began_ns) / 1e9
    time.sleep(1.0)
    return took_s


def disk_full(folder: Path, seed: int) -> list[str]:
    """Flies with a disk of 64 kB for the log; returns failures."""
    place = folder / "log"
    place.mkdir()
    log = {"log": {"file": str(place / "flight.jsonl"), "every": "100ms"}}
    flight = Flight(folder, seed, aircraft=log)
    # The small disk is the process's own.
    flight.aircraft.wrapper = (
        "unshare",
        "--mount",
        "sh",
        "-c",
        f'mount -t tmpfs -o size=64k none "{place}" && exec "$@"',
        "sh",
    )
    with flight:
        begin_ns = time.monotonic_ns()
        time.sleep(12)
        found = []
        for stream in flight.loop.streams.values():
            quality = stream.quality(begin_ns)
            excess_ms = flight.machine_ms(quality.gap_at_ns, quality.gap_at_ns + int(quality.gap_ms * 1e6))
            if quality.lost or quality.gap_ms > max(DELAYS_MS.values()) + INTERVAL_S * 1000 + excess_ms:
                found.append(f"with the disk full, {summary(stream.name, quality)}")
        state = flight.aircraft.status()
        if not state["session"] or not any("log" in alarm for alarm in state["alarms"]):
            found.append(f"with the disk full, session {state['session']}, alarms {state['alarms']}")
    return found


def _download(flight: Flight) -> list[str]:
    """Prints the result of a download; returns failures."""
    found = []
    made = bulk(flight, 30)
    print(f"bulk: {made.rate_bps / 1e6:.2f} Mbit/s of logs arrived")
    try:
        for stream, (without_ms, loaded_ms) in made.p99_ms(flight).items():
            print(f"  {stream}: p99 {without_ms:.1f} ms without, {loaded_ms:.1f} ms with the download")
            if loaded_ms - without_ms >= 10:
                found.append(f"{stream}: the download adds {loaded_ms - without_ms:.1f} ms at p99")
    except StallError as still:
        found.append(str(still))
    return found


def main() -> int:
    """Runs all tests and prints results; returns 1 on failures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cuts", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--only", choices=["cuts", "bulk", "restarts", "disk"])
    given = parser.parse_args()
    print(f"seed {given.seed}; again with: python tests/gateway/faults.py --cuts {given.cuts} --seed {given.seed}")
    wrong: list[str] = []
    with tempfile.TemporaryDirectory(prefix="faults-") as name:
        folder = Path(name)
        if given.only in (None, "cuts", "bulk", "restarts"):
            (folder / "flight").mkdir()
            with Flight(folder / "flight", given.seed) as flight:
                if given.only in (None, "bulk"):
                    wrong += _download(flight)
                if given.only in (None, "cuts"):
                    found = judge(flight, cuts(flight, given.cuts, given.seed))
                    wrong += found.words
                    print("\n".join(f"  {line}" for line in found.worst))
                if given.only in (None, "restarts"):
                    for side, took in restarts(flight, 5).items():
                        shown = ", ".join(f"{one:.3f}" for one in took)
                        print(f"  kill -9 and restart of {side}: control after {shown} s")
                        wrong += [f"restart of {side}: control after {one:.2f} s" for one in took if one > 1]
        if given.only in (None, "disk"):
            (folder / "disk").mkdir()
            wrong += disk_full(folder / "disk", given.seed)
    for line in wrong:
        print(f"WRONG: {line}")
    print(
        "The wall clock is not stepped: it is the whole machine's. The two gateways' monotonic clocks are a day apart."
    )
    print("nothing went wrong" if not wrong else f"{len(wrong)} things went wrong; seed {given.seed}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
