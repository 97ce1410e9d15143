"""Series of a result's videos, from the table `frames`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skybraid.model.heavy import np, pl
from skybraid.show.series import binned, envelope, first_seed, flows_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skybraid.model.requirements import Requirement
    from skybraid.model.results import Results

FREEZE_BEYOND_NS = 150_000_000
"""A freeze is longer than three frame intervals, and longer than one interval plus this (W3C, WebRTC statistics,
`freezeCount`).
"""

MAX_FREEZES = 500
"""Maximum number of shaded freezes; of more, the longest."""

_SECOND_NS = 1_000_000_000
_MIN_STEPS = 400


def videos_of(results: Results, flow: str | None = None) -> list[str]:
    """Returns the video flows in the order of the scenario.

    Raises:
        ResultError: there is no flow of that name.
    """
    return [name for name in flows_of(results, flow) if results.flows[name].video is not None]


def drawn_videos(results: Results, flow: str | None = None) -> list[str]:
    """Returns the names of single videos in the table `frames`: flows, or members of groups.

    Raises:
        ResultError: there is no flow of that name.
        MissingTableError: the result has no `frames` table.
    """
    table = first_seed(results.tables.scan("frames"))
    found = set(table.select(pl.col("flow").cast(pl.String).unique()).collect(engine="streaming")["flow"])
    members = [name for flown in results.flights[:1] for name in flown.members] if flow is None else []
    return [name for name in (*videos_of(results, flow), *members) if name in found]


def frames_of(results: Results, name: str) -> pl.DataFrame:
    """Returns the frames of a video in the first run, in order.

    Raises:
        MissingTableError: the result has no `frames` table.
    """
    frames = first_seed(results.tables.scan("frames"))
    return frames.filter(pl.col("flow").cast(pl.String) == name).sort("frame").collect(engine="streaming")


def required(results: Results, name: str) -> list[Requirement]:
    """Returns the requirements on a video's frames in time."""
    return [one for one in results.requirements if one.flow == name and one.metric == "frames"]


def camera_rate(frames: pl.DataFrame) -> float:
    """Returns the frame rate of the camera in 1/s; 0 with fewer than two frames."""
    interval_ns = frames["captured_ns"].diff().median()
    return round(1e9 / interval_ns, 2) if isinstance(interval_ns, int | float) and interval_ns > 0 else 0.0


def rates(frames: pl.DataFrame, end_s: float, columns: int) -> pl.DataFrame:
    """Returns the frames shown in each second after the first frame shown, counted as in `worst_frame_rate`.

    Args:
        frames: frames of one video.
        end_s: end of the flight in s.
        columns: maximum number of rows; neighbouring seconds are merged.

    Returns:
        Columns `time_s`, and `rate_low`, `rate_mean`, `rate_high` in 1/s, in order of time.
    """
    shown = frames["shown_ns"].drop_nulls()
    begin = int(shown[0]) if len(shown) else 0
    seconds = max(int((round(end_s * 1e9) - begin) // _SECOND_NS), 0) if len(shown) else 0
    found, counts = np.unique((shown.to_numpy() - begin) // _SECOND_NS, return_counts=True)
    every = np.zeros(seconds)
    whole = found < seconds
    every[found[whole]] = counts[whole]
    table = pl.LazyFrame({"time_ns": begin + np.arange(seconds, dtype=np.int64) * _SECOND_NS, "shown": every})
    return envelope(table, {"rate": pl.col("shown")}, columns=columns)


def latencies(frames: pl.DataFrame, width_ns: int) -> pl.DataFrame:
    """Returns the latency from camera to screen, by capture time.

    Returns:
        Columns `time_s`, `latency_low`, `latency_mean`, `latency_high` (minimum, median and maximum in ms), and the
        numbers of `damaged` and `missing` frames, in order of time.
    """
    latency_ms = pl.col("latency_ns") / 1e6
    return (
        binned(frames.lazy(), "captured_ns", width_ns)
        .group_by("bin")
        .agg(
            latency_ms.min().alias("latency_low"),
            latency_ms.median().alias("latency_mean"),
            latency_ms.max().alias("latency_high"),
            (pl.col("shown_ns").is_not_null() & (pl.col("intact") == 0)).sum().alias("damaged"),
            pl.col("shown_ns").null_count().alias("missing"),
        )
        .sort("bin")
        .select((pl.col("bin") * width_ns * 1e-9).alias("time_s"), pl.exclude("bin"))
        .collect(engine="streaming")
    )


def freezes(frames: pl.DataFrame, end_s: float) -> list[tuple[float, float]]:
    """Returns the freezes as spans in s; the longest ones if there are many.

    Args:
        frames: frames of one video.
        end_s: end of the flight in s.
    """
    interval = frames["captured_ns"].diff().min()
    if not isinstance(interval, int):
        return []
    beyond = max(3 * interval, interval + FREEZE_BEYOND_NS)
    shown = frames.filter(pl.col("shown_ns").is_not_null())
    late = shown.filter(pl.col("gap_ns") > beyond)
    ends = late["shown_ns"].to_list()
    spans = [(end - gap, end) for end, gap in zip(ends, late["gap_ns"].to_list(), strict=True)]
    end_ns = round(end_s * 1e9)
    # A picture still shown at the end is frozen if another was due.
    if shown.height and frames["shown_ns"][-1] is None and end_ns - shown["shown_ns"][-1] > beyond:
        spans.append((shown["shown_ns"][-1], end_ns))
    longest = sorted(spans, key=lambda freeze: freeze[0] - freeze[1])[:MAX_FREEZES]
    return [(begin * 1e-9, end * 1e-9) for begin, end in sorted(longest)]


def not_shown(
    frames: pl.DataFrame, end_s: float, within_ms: float = 0.0, *, intact: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns latencies in ms, and the share of frames not shown (or not shown undamaged) after each.

    Args:
        frames: frames of one video.
        end_s: end of the flight in s.
        within_ms: minimum time in ms before the end for a frame to count, so that the curve at this latency equals the
            requirement's value.
        intact: whether only undamaged frames count as shown.
    """
    due = frames.filter(pl.col("captured_ns") + round(within_ms * 1e6) <= round(end_s * 1e9))
    good = due.filter(pl.col("intact") != 0) if intact else due
    found = np.sort(good["latency_ns"].drop_nulls().to_numpy()) / 1e6
    if not len(found):
        return np.empty(0), np.empty(0)
    # Denser towards the tail.
    places = len(found) - np.unique(np.geomspace(1, len(found), _MIN_STEPS).astype(np.int64))[::-1]
    latency_ms, missing = found[places], 1 - (places + 1) / due.height
    if missing[-1] == 0:
        # The curve ends above zero, which has no logarithm.
        missing[-1] = 1 / due.height
        return latency_ms, missing
    greatest = due["latency_ns"].max()
    longest = max(greatest / 1e6 if isinstance(greatest, int) else 0.0, within_ms)
    return np.append(latency_ms, max(longest, latency_ms[-1])), np.append(missing, missing[-1])
