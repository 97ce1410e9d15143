"""Video over simultaneously measured paths: missed frames, freezes and overhead."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

import skybraid
from skybraid.video.clips import open_clip
from skybraid.video.encode import Encoding, encode
from skybraid.video.shown import similarity_at
from skybraid_studies.frontier.frontier import BIN_S, HEADERS, NS_PER_S, Outcome, link, within
from skybraid_studies.frontier.measurements import PAUSE_S, write
from skybraid_studies.frontier.rules import udp

if TYPE_CHECKING:
    import numpy.typing as npt

    from skybraid.video.clips import Clip
    from skybraid.video.encode import Encoded
    from skybraid_studies.frontier.measurements import Together

Tables = dict[str, Any]

FPS = 30
DEADLINES_MS = (100, 150, 250)
"""Times in ms from capture to the last packet of a frame, without the decoder's jitter buffer."""


@dataclass(frozen=True, slots=True)
class Film:
    """Result of a rule for a video over one set of paths.

    Attributes:
        frames: counts of frames instead of messages: a frame is missed if a packet is neither received nor recovered in
            time, regardless of earlier frames.
        freezes: freezes of each episode, by deadline (jitter buffer) in ms.
        ages: histogram of the age in frames of the picture on the screen, from 0 on, over all episodes, by deadline in
            ms.
        seconds: total length of the episodes in s.
    """

    frames: Outcome
    freezes: Mapping[int, Sequence[int]]
    ages: Mapping[int, npt.NDArray[np.int64]]
    seconds: float


def scenario(
    measured: Together, files: Sequence[Path], transport: Mapping[str, Any], traffic: Mapping[str, Any]
) -> Any:  # noqa: ANN401
    """Returns a scenario that replays measured paths for one camera in the vehicle."""
    duration = measured.seconds + PAUSE_S * (len(measured.episodes) + 1)
    tables = {
        "name": "frontier",
        "duration": f"{duration:.1f}s",
        "seed": 1,
        "path": {
            name: {"uplink": link(file, measured.column), "downlink": link(file, measured.column)}
            for name, file in zip(measured.paths, files, strict=True)
        },
        "flow": {"video": {"from": "vehicle", "traffic": dict(traffic), "transport": dict(transport)}},
    }
    return skybraid.Scenario.build(tables)


def camera(rate: str, **keys: Any) -> Tables:  # noqa: ANN401 values of TOML
    """Returns a camera at a rate, with intra refresh, so that frames have equal size."""
    return {"kind": "video", "rate": rate, "fps": FPS, "jitter_buffer": "250ms", "intra_refresh": True, **keys}


def film(measured: Together, transport: Mapping[str, Any], traffic: Mapping[str, Any]) -> Film:
    """Runs a transport over measured paths; returns the result."""
    with tempfile.TemporaryDirectory() as folder:
        files, spans = write(measured, Path(folder))
        run = skybraid.run(scenario(measured, files, transport, traffic), tables=["frames", "packets"])
    frames, packets = run.tables["frames"], run.tables["packets"]
    captured = frames["captured_ns"].to_numpy()
    complete = frames["complete"].to_numpy()
    # The last packet of a frame with repair packets may be one that was not needed: an upper bound.
    delay_ms = (frames["last_ns"] - frames["captured_ns"]).cast(pl.Float64).fill_null(np.inf).to_numpy() / 1e6
    delay_ms = np.where(complete, delay_ms, np.inf)
    inside = [within(captured, span) for span in spans]
    written: list[npt.NDArray[np.int64]] = []
    missed: dict[int, list[npt.NDArray[np.int64]]] = {deadline: [] for deadline in DEADLINES_MS}
    freezes: dict[int, list[int]] = {deadline: [] for deadline in DEADLINES_MS}
    ages: dict[int, list[npt.NDArray[np.int64]]] = {deadline: [] for deadline in DEADLINES_MS}
    for own, (start, end) in zip(inside, spans, strict=True):
        bins = round((end - start) / BIN_S)
        places = np.minimum((captured[own] / NS_PER_S - start) / BIN_S, bins - 1).astype(np.int64)
        written.append(np.bincount(places, minlength=bins))
        for deadline in DEADLINES_MS:
            late = delay_ms[own] > deadline
            missed[deadline].append(np.bincount(places[late], minlength=bins))
            freezes[deadline].append(count_freezes(late))
            ages[deadline].append(screen_ages(late))
    times, sizes = packets["in_ns"].to_numpy(), packets["bytes"].to_numpy()
    sent = sum(int(sizes[within(times, span)].sum()) for span in spans)
    parts = frames["bytes"].to_numpy() + HEADERS * frames["packets"].to_numpy().astype(np.int64)
    single = sum(int(parts[own].sum()) for own in inside)
    counted = {deadline: np.bincount(np.concatenate(own)) for deadline, own in ages.items()}
    return Film(Outcome(missed, written, sent, single), freezes, counted, measured.seconds)


def count_freezes(late: npt.NDArray[np.bool_]) -> int:
    """Returns the number of gaps between timely frames above max(3 δ, δ + 150 ms), as in the W3C's freezeCount."""
    shown = np.flatnonzero(np.concatenate(([True], ~late, [True])))
    least = max(3.0, 1.0 + 0.15 * FPS)
    return int((np.diff(shown) > least).sum())


def screen_ages(late: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Returns the age in frames of the picture on the screen when each frame is due, which is the last timely one."""
    number = np.arange(late.size)
    ages: npt.NDArray[np.int64] = number - np.maximum.accumulate(np.where(late, -1, number))
    return ages


CLIP = "flight-540"


@cache
def _filmed(rate: str) -> tuple[Clip, Encoded]:
    clip = open_clip(CLIP)
    return clip, encode(clip, Encoding(rate_bps=RATES_BPS[rate], fps=FPS, intra_refresh=True))


def screen_ssim(films: Sequence[Film], rate: str, deadline_ms: int) -> float:
    """Returns the mean SSIM of the screen against the camera's current picture whenever a frame is due."""
    counts = [film.ages[deadline_ms] for film in films]
    known = similarity_at(np.arange(max(map(len, counts))), *_filmed(rate))
    return sum(float(own @ known[: len(own)]) for own in counts) / sum(int(own.sum()) for own in counts)


def _within(name: str, **keys: Any) -> Callable[[int], Tables]:  # noqa: ANN401 values of TOML
    return lambda deadline_ms: udp(name, within=f"{deadline_ms}ms", **keys)


REED_SOLOMON = {"kind": "reed_solomon", "fails": "1%"}

FILM_RULES: dict[str, tuple[Callable[[int], Tables], Tables]] = {
    "plain": (lambda _: udp("low_rtt"), {}),
    "reed_solomon": (lambda _: udp("low_rtt"), {"repair": REED_SOLOMON}),
    "hedge": (_within("hedge"), {}),
    "coded": (_within("coded"), {}),
    "rounds": (_within("rounds"), {}),
    "streaming": (lambda _: udp("streaming", burst=8, delay=3), {}),
    "early_warning": (_within("early_warning"), {}),
    "deadline": (_within("deadline", budget="9%"), {}),
    "duplicated": (lambda _: udp("redundant"), {}),
}
"""Transports by deadline, with the keys of the camera."""

RATES_BPS = {"2Mbit/s": 2e6, "10Mbit/s": 10e6}
RATES = tuple(RATES_BPS)
