"""Page of a comparison: combinations of protocol, scheduler and congestion control, ranked for each flow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from skybraid.model.errors import ResultError
from skybraid.model.requirements import count, milliseconds, percent, rate
from skybraid.model.statistics import mean_interval
from skybraid.show.palette import looks
from skybraid.show.report.charts import MAX_CROSSES, SHAPES, Charts, chart, crosses, glyph, hover, legend, nested
from skybraid.show.report.flight import Drawing
from skybraid.show.report.models import Field, Source
from skybraid.show.report.page import page
from skybraid.show.report.ranking import Column, Entry, Ranking, Seen, ranked

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from typing import Any

KEYS = ("protocol", "scheduler", "congestion")
"""Columns that name a combination."""

_NEEDED = {*KEYS, "seed", "flow", "within_deadline", "deadline_ms", "goodput_bps", "delay_p99_ms"}


def is_compared(path: Path) -> bool:
    """Whether a file's name is that of a table of `skybraid compare --out`."""
    return path.suffix in (".csv", ".parquet")


def compared_html(path: Path) -> str:
    """Renders the table that `skybraid compare --out` wrote.

    Raises:
        ResultError: the file cannot be read, or it is another table.
    """
    try:
        frame = pl.read_csv(path) if path.suffix == ".csv" else pl.read_parquet(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise ResultError(f"{path}: expected a table of `skybraid compare --out`: {error}") from error
    missing = sorted(_NEEDED - set(frame.columns))
    if missing or not frame.height:
        what = f"no column {missing[0]}" if missing else "no row"
        raise ResultError(f"{path}: found {what}, expected a table of `skybraid compare --out`")
    charts = Charts()
    flows = [str(name) for name in frame["flow"].unique(maintain_order=True)]
    rankings = [
        (flow, ranking(frame.filter(pl.col("flow") == flow)), tradeoff(frame, flow, charts, number))
        for number, flow in enumerate(flows)
    ]
    return page(
        "compared.html.j2",
        charts,
        title=path.stem,
        combinations=frame.select(KEYS).unique().height,
        seeds=frame["seed"].n_unique(),
        rankings=rankings,
    )


def ranking(rows: pl.DataFrame) -> Ranking:
    """Ranks the combinations of one flow: by the share in time, then the tail of the delay, then goodput.

    An interval is that of the mean over the seeds (Student's t, from two seeds on).
    """
    video = "frames_in_time" in rows.columns and rows["frames_in_time"].count() > 0
    share = "frames_in_time" if video else "within_deadline"
    deadline = rows["frames_within_ms" if video else "deadline_ms"].drop_nulls()
    thing = "frames" if video else "messages"
    within = f"{thing} within {milliseconds(float(deadline[0]))}" if len(deadline) else f"{thing} that arrived"
    tail_of = "frame_latency_p99_ms" if video else "delay_p99_ms"
    columns = [Column(within, "nines"), Column("delay of 99 %", "log"), Column("goodput", "linear")]
    entries = []
    for key, own in rows.group_by(KEYS, maintain_order=True):
        values = {axis: str(value) for axis, value in zip(KEYS, key, strict=True) if value is not None}
        seen = [
            _seen(own[share], percent, most=1.0),
            _seen(own[tail_of], milliseconds, sign=-1),
            _seen(own["goodput_bps"], rate),
        ]
        entries.append(Entry(values, seen))
    return ranked("combination", columns, entries)


def _seen(values: pl.Series, shown: Callable[[float], str], *, sign: int = 1, most: float | None = None) -> Seen:
    known: Sequence[float] = values.drop_nulls().cast(pl.Float64).to_list()
    if not known:
        return Seen("–", None, None, None, float("-inf"))
    mean = sum(known) / len(known)
    # Equal values say nothing about how much others would differ.
    interval = mean_interval(known) if len(set(known)) > 1 else None
    text = shown(mean)
    low = high = None
    if interval is not None:
        low, high = max(interval.low, 0.0), interval.high if most is None else min(interval.high, most)
        text += f" ({shown(low)} to {shown(high)})"
    return Seen(text, mean, low, high, sign * mean)


def tradeoff(frame: pl.DataFrame, flow: str, charts: Charts, number: int) -> Drawing:
    """Goodput against the delay of 99 %, a mark for each combination."""
    rows = frame.filter(pl.col("flow") == flow)
    shown = ["delay_p99_ms", "goodput_bps"]
    each = pl.col(shown).drop_nulls().name.suffix("_each")
    means = rows.group_by(KEYS, maintain_order=True).agg(pl.col(shown).mean(), each).drop_nulls(shown)
    crossed = means.height <= MAX_CROSSES
    axis = max(("scheduler", "congestion", "protocol"), key=lambda name: means[name].n_unique())
    known = looks(axis, means[axis].drop_nulls().unique(maintain_order=True))
    means = means.drop_nulls(axis).sort(pl.col(axis).cast(pl.Enum(list(known))))
    sizes = nested(means["delay_p99_ms"].to_list(), means["goodput_bps"].to_list())
    means = means.with_columns(pl.Series("size", sizes))
    drawn = chart(x_label="one-way delay, p99, ms", y_label="goodput, Mbit/s", height=360, logarithmic="x")
    marks: list[Any] = []
    entries: list[tuple[str, list[Any]]] = []
    for value, look in known.items():
        part = means.filter(pl.col(axis) == value)
        names = [", ".join(str(name) for name in key if name is not None) for key in part.select(KEYS).iter_rows()]
        data = {"delay": part["delay_p99_ms"].to_list(), "goodput": (part["goodput_bps"] / 1e6).to_list()}
        mark = glyph(
            drawn,
            Source(data | {"what": names, "size": part["size"].to_list()}),
            "Scatter",
            x="delay",
            y="goodput",
            marker=SHAPES[look.marker],
            size=Field("size"),
            line_color=look.colour,
            fill_color=look.colour,
            fill_alpha=0.6,
        )
        marks.append(mark)
        runs = part["delay_p99_ms_each"].to_list(), (part["goodput_bps_each"] / 1e6).to_list()
        entries.append((value, [mark, *(crosses(drawn, *runs, look.colour) if crossed else [])]))
    tips = [("", "@what"), ("p99", "@delay{0.0} ms"), ("goodput", "@goodput{0.000} Mbit/s")]
    hover(drawn, marks, tips, mode="mouse")
    legend(drawn, entries, columns=6)
    intervals = ", with their 95 % intervals" if crossed else ""
    caption = f"Means over the seeds of {count(means.height)} combinations{intervals}; up and left is better."
    return Drawing(f"{flow}: goodput against delay", caption, charts.add(f"tradeoff-{number}", drawn))
