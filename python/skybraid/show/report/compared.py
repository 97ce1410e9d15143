"""Page of a comparison: combinations of protocol, scheduler and congestion control, ranked for each flow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from skybraid.execute.ranking import head_of, interval_text
from skybraid.model.errors import ResultError
from skybraid.model.formatting import count, milliseconds, percent, rate
from skybraid.model.statistics import Verdict
from skybraid.show.palette import looks
from skybraid.show.report.charts import EACH, MAX_CROSSES, Charts, chart, hover, legend, mean_marks, nested
from skybraid.show.report.flight import Drawing
from skybraid.show.report.models import Source
from skybraid.show.report.page import page
from skybraid.show.report.ranking import Column, Entry, Estimate, Ranking, placed

if TYPE_CHECKING:
    from typing import Any

KEYS = ("protocol", "scheduler", "congestion")
"""Columns that identify a combination."""

_NEEDED = {*KEYS, "seed", "flow", "within_deadline", "deadline_ms", "goodput_bps", "delay_p99_ms", "place", "tied"}

LINEAR = ("goodput", "frame_rate", "worst_frame_rate", "freezes")
"""Requirements that are neither a share nor a delay."""


def is_compared(path: Path) -> bool:
    """Whether the file name is that of a table of `skybraid compare --out`."""
    return path.suffix in (".csv", ".parquet")


def compared_html(title: str, frame: pl.DataFrame) -> str:
    """Renders the rows of a comparison of combinations (`skybraid.execute.ranking.Ranking.frame`)."""
    charts = Charts()
    flows = [str(name) for name in frame["flow"].unique(maintain_order=True)]
    rankings = [
        (flow, ranking(frame.filter(pl.col("flow") == flow)), tradeoff(frame, flow, charts, number))
        for number, flow in enumerate(flows)
    ]
    return page(
        "compared.html.j2",
        charts,
        title=title,
        combinations=frame.select(KEYS).unique().height,
        seeds=frame["seed"].n_unique(),
        rankings=rankings,
    )


def read_table(path: Path) -> pl.DataFrame:
    """Reads the rows written by `skybraid compare SCENARIO --out`.

    Raises:
        ResultError: the file cannot be read, or is another table.
    """
    expected = "expected rows of `skybraid compare SCENARIO --out`; of flights, `--out NAME.html` writes the page"
    try:
        frame = pl.read_csv(path, infer_schema_length=None) if path.suffix == ".csv" else pl.read_parquet(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise ResultError(f"{path}: {expected}: {error}") from error
    missing = sorted(_NEEDED - set(frame.columns))
    if missing or not frame.height:
        raise ResultError(f"{path}: found no {f'column {missing[0]}' if missing else 'row'}, {expected}")
    return frame


def ranking(rows: pl.DataFrame) -> Ranking:
    """Ranks the combinations, with estimates and intervals of a flow's requirements.

    A flow without a requirement has the delivered share. Delay and goodput are medians over the seeds.
    """
    numbers = [name.removeprefix("metric_") for name in rows.columns if name.startswith("metric_")]
    numbers = [number for number in numbers if rows[f"metric_{number}"].count()]
    video = "frames_in_time" in rows.columns and rows["frames_in_time"].count() > 0
    medians = {
        "frames_in_time" if video else "within_deadline": (
            "frames undamaged" if video else "arrived",
            "nines",
            percent,
        ),
        "frame_latency_p99_ms" if video else "delay_p99_ms": ("p99 delay", "log", milliseconds),
        "goodput_bps": ("goodput", "linear", rate),
    }
    if numbers:
        del medians[next(iter(medians))]
    first = rows.row(0, named=True)
    columns = [_column(first, number) for number in numbers]
    columns += [Column(title, scale) for title, scale, _ in medians.values()]
    groups: list[tuple[str, list[Entry]]] = []
    for _, own in rows.sort("place", maintain_order=True).group_by("place", maintain_order=True):
        row = own.row(0, named=True)
        seen = [_required(row, number) for number in numbers]
        seen += [_median(own[name], shown) for name, (_, _, shown) in medians.items()]
        named = [
            {axis: str(value) for axis, value in zip(KEYS, key, strict=True) if value is not None}
            for key in own.select(KEYS).unique(maintain_order=True).iter_rows()
        ]
        mark = " ≈" if row["tied"] and row["place"] > 1 else ""
        groups.append((f"{row['place']}{mark}", [Entry(values, seen) for values in named]))
    return placed("combination", columns, groups)


def _column(row: dict[str, Any], number: str) -> Column:
    metric, limit_ms = str(row[f"metric_{number}"]), row[f"deadline_ms_{number}"]
    is_delay = metric in ("percentile", "expiration")
    scale = "log" if is_delay else "linear" if metric in LINEAR else "nines"
    return Column(head_of(metric, limit_ms), scale, limit_ms if is_delay else row[f"target_{number}"])


def _required(row: dict[str, Any], number: str) -> Estimate:
    estimate, low, high = (row[f"{name}_{number}"] for name in ("estimate", "low", "high"))
    text = interval_text(str(row[f"metric_{number}"]), estimate, low, high)
    return Estimate(text, estimate, low, high, 0.0, Verdict(row[f"verdict_{number}"]))


def _median(values: pl.Series, shown: Callable[[float], str]) -> Estimate:
    found = values.cast(pl.Float64).median()
    known = found if isinstance(found, float) else None
    return Estimate("–" if known is None else shown(known), known, None, None, 0.0)


def tradeoff(frame: pl.DataFrame, flow: str, charts: Charts, number: int) -> Drawing:
    """Draws goodput against the 99th percentile of delay, one mark per combination."""
    rows = frame.filter(pl.col("flow") == flow)
    shown = ["delay_p99_ms", "goodput_bps"]
    each = pl.col(shown).drop_nulls().name.suffix(EACH)
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
        data = {"delay": part["delay_p99_ms"].to_list(), "up": (part["goodput_bps"] / 1e6).to_list()}
        runs = part["delay_p99_ms" + EACH].to_list(), (part["goodput_bps" + EACH] / 1e6).to_list()
        source = Source(data | {"what": names, "size": part["size"].to_list()})
        drawings = mean_marks(drawn, source, look, runs if crossed else None)
        marks.append(drawings[0])
        entries.append((value, drawings))
    tips = [("", "@what"), ("p99", "@delay{0.0} ms"), ("goodput", "@up{0.000} Mbit/s")]
    hover(drawn, marks, tips, mode="mouse")
    legend(drawn, entries, columns=6)
    intervals = ", with their 95 % intervals" if crossed else ""
    caption = f"Means over the seeds of {count(means.height)} combinations{intervals}; up and left is better."
    return Drawing(f"{flow}: goodput against delay", caption, charts.add(f"tradeoff-{number}", drawn))
