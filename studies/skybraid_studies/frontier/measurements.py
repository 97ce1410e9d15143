"""Simultaneously measured paths, as series that scenarios replay.

Sources: the multi-carrier pings of PAM 2025 (CC0), one car with three carriers, in bursts of 30 s at 5 Hz; the drives
of CoNEXT 2023, Starlink and three carriers in the same seconds, which have no licence and are only read.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from skybraid_studies.engine.readings import measurements

if TYPE_CHECKING:
    import numpy.typing as npt

CARRIERS = ("atnt", "tmobile", "verizon")
HALVES = ("chosen on", "judged on")
"""Halves of the measurements: parameters are chosen on one, rules judged on the other."""

DELAY, CAPACITY = "delay [ms]", "capacity [Mbit/s]"

STEP_S = 0.2
"""Spacing of the probes in s."""
PAUSE_S = 1.0
"""Calm time in s between two episodes, which is not judged."""
BLOCK_S = 1800.0
"""Length in s of the blocks of alternating halves: half an hour, so that no place on the road is in both."""
MIN_EPISODE_S = 3.0
SHUFFLES = 8
"""Number of random pairings of two carriers' bursts."""
SIGN_STEPS, REST_STEPS = 5, 20
"""Number of probes for which a late one indicates trouble, and for which its path is restless: 1 and 4 s."""

NETWORKS = ("starlink", "att", "tmobile", "verizon")
"""Networks with simultaneously measured capacities."""
CAPACITY_STEP_S = 1.0

_REPLY = re.compile(r"icmp_seq=(\d+) .*time=([\d.]+) ms")
_SENT = re.compile(r"(\d+) packets transmitted")
_START = re.compile(r"Start time: (\d+)")


@dataclass(frozen=True, slots=True)
class Burst:
    """Consecutive probes of one carrier.

    Attributes:
        start_s: time of the first probe in s since 1970.
        rtt_ms: round-trip time of each probe in ms; infinite if lost.
    """

    start_s: float
    rtt_ms: npt.NDArray[np.float64]

    @property
    def end_s(self) -> float:
        """End of the last probe's interval in s since 1970."""
        return self.start_s + STEP_S * float(self.rtt_ms.size)


@dataclass(frozen=True, slots=True)
class Together:
    """Simultaneously measured paths, in episodes.

    Attributes:
        paths: names of the paths.
        episodes: values of each episode, one row per path: one-way delays in ms, infinite for lost probes, or
            capacities in Mbit/s.
        column: name and unit of the values.
        step_s: spacing of the values in s.
    """

    paths: tuple[str, ...]
    episodes: tuple[npt.NDArray[np.float64], ...]
    column: str = DELAY
    step_s: float = STEP_S

    @property
    def seconds(self) -> float:
        """Total length of the episodes in s."""
        steps: int = sum(each.shape[1] for each in self.episodes)
        return self.step_s * steps

    def only(self, paths: tuple[str, ...]) -> Together:
        """Returns some of the paths, in the same episodes."""
        rows = [self.paths.index(path) for path in paths]
        return replace(self, paths=paths, episodes=tuple(each[rows] for each in self.episodes))


def pings() -> Path:
    """Returns the folder of the multi-carrier pings."""
    return measurements() / "pam2025_multicarrier_ping"


def read_burst(text: str) -> Burst | None:
    """Parses the output of one `ping`; None without a start time or a reply."""
    start, sent = _START.search(text), _SENT.search(text)
    replies = [(int(number), float(rtt)) for number, rtt in _REPLY.findall(text)]
    if start is None or not replies:
        return None
    count = int(sent.group(1)) if sent else max(number for number, _ in replies)
    rtt = np.full(count, np.inf)
    for number, value in reversed(replies):  # the first of duplicates counts
        if 0 < number <= count:
            rtt[number - 1] = value
    return Burst(int(start.group(1)) / 1e3, rtt)


@cache
def bursts(carrier: str) -> tuple[Burst, ...]:
    """Returns all bursts of a carrier in order of time; empty without the measurements."""
    files = sorted(pings().glob(f"*/app/{carrier}/*/*.out"))
    found = (read_burst(file.read_text(errors="replace")) for file in files)
    return tuple(sorted((each for each in found if each is not None), key=lambda each: each.start_s))


def half_of(start_s: float) -> str:
    """Returns the half of the measurements to which a time belongs."""
    return HALVES[int(start_s / BLOCK_S) % 2]


@cache
def together(carriers: tuple[str, ...], half: str) -> Together:
    """Returns the overlapping parts of the carriers' bursts, in one half of the measurements."""
    episodes = []
    for group in itertools.product(*(bursts(carrier) for carrier in carriers)):
        start = max(each.start_s for each in group)
        count = int((min(each.end_s for each in group) - start) / STEP_S)
        if count * STEP_S < MIN_EPISODE_S or half_of(start) != half:
            continue
        firsts = [round((start - each.start_s) / STEP_S) for each in group]
        rows = [each.rtt_ms[first : first + count] / 2 for each, first in zip(group, firsts, strict=True)]
        length = min(row.size for row in rows)
        episodes.append(np.array([row[:length] for row in rows]))
    return Together(carriers, tuple(episodes))


@cache
def shuffled(carriers: tuple[str, ...], half: str) -> Together:
    """Returns bursts of carriers at different times, without common failures, in one half of the measurements."""
    random = np.random.default_rng(1)
    rows = [[each.rtt_ms / 2 for each in bursts(carrier) if half_of(each.start_s) == half] for carrier in carriers]
    count = min(map(len, rows))
    episodes = []
    for _ in range(SHUFFLES):
        for group in zip(*(random.permutation(len(own))[:count] for own in rows), strict=True):
            parts = [own[index] for own, index in zip(rows, group, strict=True)]
            length = min(part.size for part in parts)
            if length * STEP_S >= MIN_EPISODE_S:
                episodes.append(np.array([part[:length] for part in parts]))
    return Together(carriers, tuple(episodes))


@cache
def driven(networks: tuple[str, ...], half: str) -> Together:
    """Returns capacities of networks in drives without gaps; the halves alternate by day. None if they are missing."""
    file = measurements() / "conext23_paired" / "downlink.csv"
    if not file.exists():
        return Together(networks, (), CAPACITY, CAPACITY_STEP_S)
    table = pl.read_csv(file)
    times_s, days = table["time [s]"].to_numpy(), table["day"].to_numpy()
    rates = table.select(f"{network} [Mbit/s]" for network in networks).to_numpy().T
    gaps = np.flatnonzero(np.diff(times_s) > CAPACITY_STEP_S) + 1
    drives = np.split(np.arange(times_s.size), gaps)
    own = (drive for drive in drives if HALVES[int(days[drive[0]]) % 2] == half)
    return Together(networks, tuple(rates[:, drive] for drive in own), CAPACITY, CAPACITY_STEP_S)


def late_shares(deadline_ms: float, half: str) -> tuple[float, float]:
    """Returns the share of late probes after a second without late ones, on rested and on restless paths."""
    counts = np.zeros((2, 2))
    for burst in itertools.chain.from_iterable(map(bursts, CARRIERS)):
        if half_of(burst.start_s) == half:
            late = burst.rtt_ms / 2 > deadline_ms
            for step in range(REST_STEPS, late.size):
                if not late[step - SIGN_STEPS : step].any():
                    is_restless = late[step - REST_STEPS : step].any()
                    counts[int(is_restless)] += 1, late[step]
    rested, restless = counts[:, 1] / counts[:, 0]
    return float(rested), float(restless)


def write(measured: Together, folder: Path) -> tuple[list[Path], list[tuple[float, float]]]:
    """Writes a CSV file per path, with calm periods before each episode and at the end.

    Returns:
        Files, and start and end of each episode in s.
    """
    step_s = measured.step_s
    calm = round(PAUSE_S / step_s)
    rows: list[list[npt.NDArray[np.float64]]] = [[] for _ in measured.paths]
    spans, steps = [], 0
    for episode in measured.episodes:
        for row, values in zip(rows, episode, strict=True):
            row += [np.full(calm, _usual(values)), values]
        start = steps + calm
        steps = start + episode.shape[1]
        spans.append((start * step_s, steps * step_s))
    files = []
    for name, row in zip(measured.paths, rows, strict=True):
        series = np.concatenate([*row, np.full(calm + 1, 50.0)])
        file = folder / f"{name}.csv"
        pl.DataFrame({"time [s]": np.arange(series.size) * step_s, measured.column: series}).write_csv(file)
        files.append(file)
    return files, spans


def _usual(values: npt.NDArray[np.float64]) -> float:
    working = values[np.isfinite(values) & (values > 0)]
    return float(np.median(working)) if working.size else 50.0
