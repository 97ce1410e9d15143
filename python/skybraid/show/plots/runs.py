"""Figures of many runs: the points of a campaign, or the seeds of one result."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Self

import matplotlib as mpl
import numpy as np
import polars as pl
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse

from skybraid.execute.campaign import Campaign
from skybraid.model.errors import ResultError, unknown
from skybraid.model.results import Results
from skybraid.model.summary import PERCENTILES
from skybraid.show.plots.style import ALGORITHMS, INK, STYLE, WIDTH_IN, Look, legend, looks, path_colour

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

CONFIDENCE = 0.95

MIN_SEEDS = 4
"""Minimum number of seeds of a point with an ellipse: with three it would be wider than any chart."""

_SCALES = {"bps": (1e-6, "Mbit/s"), "ms": (1.0, "ms"), "s": (1.0, "s")}
_NAMES = {
    "within_deadline": "messages within the deadline",
    "goodput_bps": "goodput",
    "intact_share": "frames shown undamaged",
    "frames_in_time": "frames shown undamaged in time",
}
_OF_VIDEO = {
    "frame_rate": "frame rate, 1/s",
    "worst_frame_rate": "frame rate in the worst second, 1/s",
    "freezes_per_minute": "freezes, 1/min",
}
_MAX_LABELLED = 144
_MAX_LABEL_CHARACTERS = 60


class NothingToDrawError(ResultError):
    """A campaign lacks the data that a kind of figure needs."""


class Choice(NamedTuple):
    """Selection of what is drawn; None means the figure's default."""

    flow: str | None = None
    x: str | None = None
    y: str | None = None
    by: str | None = None


class Metric(NamedTuple):
    """Column to draw: its name, description with unit, and factor to that unit."""

    column: str
    label: str
    scale: float


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs of variants of a scenario.

    Attributes:
        name: name of the campaign or the scenario.
        axes: varied keys, which are columns of `frame`.
        frame: one row per run and flow: the axes, `point`, `seed`, `flow`, `deadline_ms`, `within_deadline` (0 to 1),
            `goodput_bps`, `delay_p50_ms` and the other percentiles, `summary.video_columns` and
            `summary.frames_in_time` for video, `share_PATH` (0 to 1).
    """

    name: str
    axes: tuple[str, ...]
    frame: pl.DataFrame

    @classmethod
    def of(cls, source: object) -> Self:
        """Reads the runs of a campaign or a result.

        Raises:
            ResultError: the source is neither.
        """
        if isinstance(source, cls):
            return source
        if isinstance(source, Results):
            return cls(source.name, (), _seeds(source))
        if not isinstance(source, Campaign):
            raise ResultError(f"found a {type(source).__name__}, expected Results or a Campaign")
        # Keys varied together form one axis, named after the first.
        axes = tuple(axis.keys[0] for axis in source.axes)
        texts = [pl.col(column).cast(pl.String) for column in source.columns]
        return cls(source.name, axes, source.scan("flows").with_columns(texts).sort("point", "seed").collect())

    @property
    def flows(self) -> list[str]:
        """Returns the names of the flows, in their order."""
        return [str(name) for name in self.frame["flow"].unique(maintain_order=True)]

    @property
    def paths(self) -> list[str]:
        """Returns the names of the paths with traffic shares."""
        return [name.removeprefix("share_") for name in self.frame.columns if name.startswith("share_")]

    def values(self, axis: str) -> list[str]:
        """Returns the values of an axis in the order of the points."""
        return [str(value) for value in self.frame[axis].unique(maintain_order=True)]

    def of_flow(self, flow: str | None) -> pl.DataFrame:
        """Returns the rows of a flow, by default the first.

        Raises:
            ResultError: there is no such flow.
        """
        flows = self.flows
        if flow is not None and flow not in flows:
            raise ResultError(unknown("--flow", flow, flows))
        return self.frame.filter(pl.col("flow") == (flow or (flows[0] if flows else "")))

    @property
    def videos(self) -> list[str]:
        """Returns the names of the video flows, in their order."""
        if "frames" not in self.frame.columns:
            return []
        return [str(name) for name in self.frame.filter(pl.col("frames") > 0)["flow"].unique(maintain_order=True)]

    def of_video(self, flow: str | None) -> pl.DataFrame:
        """Returns the rows of a video, by default the first.

        Raises:
            NothingToDrawError: there is no video.
            ResultError: there is no such flow, or it is no video.
        """
        videos = self.videos
        if not videos:
            raise NothingToDrawError(f"found no flow that is video in {self.name}")
        if flow is not None and flow not in videos:
            raise ResultError(f"--flow: found {flow}, expected one that is video, {', '.join(videos)}")
        return self.of_flow(flow or videos[0])

    def axis(self, option: str, name: str) -> str:
        """Finds an axis by its name or a suffix of it.

        Raises:
            ResultError: no axis or several axes match.
        """
        found = [axis for axis in self.axes if axis == name or axis.endswith(f".{name}")]
        if len(found) != 1:
            raise ResultError(f"{option}: found {name}, expected one of {', '.join(self.axes) or 'no axis'}")
        return found[0]

    def main_axis(self) -> str | None:
        """Returns the axis shown as colour: that of an algorithm if any, else the first with two values."""
        several = [axis for axis in self.axes if len(self.values(axis)) > 1] or list(self.axes)
        algorithms = [axis for axis in several if axis.rpartition(".")[2] in ALGORITHMS]
        return next(iter(algorithms + several), None)

    def metric(self, name: str | None, default: str = "goodput_bps") -> Metric:
        """Returns the column to draw.

        Raises:
            ResultError: there is no such column of numbers.
        """
        column = name or default
        numbers = [
            one
            for one, kind in self.frame.schema.items()
            if kind.is_numeric() and one not in ("point", "seed", *self.axes)
        ]
        if column not in numbers:
            raise ResultError(unknown("--y", column, numbers))
        return metric(column)


def metric(column: str) -> Metric:
    """Returns the description of a column of the flows' table."""
    if column in _OF_VIDEO:
        return Metric(column, _OF_VIDEO[column], 1.0)
    if column in ("within_deadline", "intact_share", "frames_in_time") or column.startswith(("share_", "won_")):
        words = _NAMES.get(column, f"packets on {column.partition('_')[2]}")
        return Metric(column, f"{words}, %", 100.0)
    stem, _, unit = column.rpartition("_")
    if column.startswith("frame_latency_") and unit == "ms":
        return Metric(column, f"latency of frames, {stem.removeprefix('frame_latency_')}, ms", 1.0)
    if column.startswith("delay_") and unit == "ms":
        return Metric(column, f"one-way delay, {stem.removeprefix('delay_')}, ms", 1.0)
    scale, shown_unit = _SCALES.get(unit, (1.0, ""))
    name = _NAMES.get(column, stem if shown_unit else column).replace("_", " ")
    return Metric(column, f"{name}{shown_unit and f', {shown_unit}'}", scale)


def short(axes: Sequence[str]) -> dict[str, str]:
    """Returns the shortest unambiguous names of axes: `scheduler` for `flow.video.transport.scheduler`."""
    names = {}
    for axis in axes:
        parts = axis.split(".")
        tails = (".".join(parts[-length:]) for length in range(1, len(parts) + 1))
        names[axis] = next(
            tail for tail in tails if sum(other == tail or other.endswith(f".{tail}") for other in axes) == 1
        )
    return names


def ecdf(runs: Runs, choice: Choice) -> Figure:
    """Draws the distribution of a metric over the runs: one curve per value of `by`."""
    rows, chosen = runs.of_flow(choice.flow), runs.metric(choice.y)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH_IN, 3.6))
        axes = figure.add_subplot()
        for label, look, part in _groups(runs, rows, choice):
            values = np.sort(_numbers(part, chosen))
            if values.size:
                heights = np.arange(1, values.size + 1) / values.size * 100
                axes.step(values, heights, where="post", color=look.colour, linestyle=look.line, label=label)
                axes.plot(values[-1], 100, color=look.colour, marker=look.marker, markersize=5)
        axes.set(xlabel=chosen.label, ylabel="runs, %", ylim=(0, 104))
        _outside(figure, runs, choice)
        return figure


def ccdf(runs: Runs, choice: Choice) -> Figure:
    """Draws the tail of one-way delay by its percentiles: medians over the runs, band from minimum to maximum."""
    rows = runs.of_flow(choice.flow)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH_IN, 3.8))
        axes = figure.add_subplot()
        for label, look, part in _groups(runs, rows, choice):
            percentiles = [(part[f"delay_{name}_ms"].drop_nulls(), 1 - q) for name, q in PERCENTILES.items()]
            percentiles = [(delays, share) for delays, share in percentiles if len(delays)]
            if not percentiles:
                continue
            shares_ = [share for _, share in percentiles]
            low, middle, high = (
                [float(getattr(delays, what)()) for delays, _ in percentiles] for what in ("min", "median", "max")
            )
            axes.fill_betweenx(shares_, low, high, color=look.colour, alpha=0.2, linewidth=0)
            axes.plot(
                middle, shares_, color=look.colour, marker=look.marker, markersize=5, linestyle=look.line, label=label
            )
        axes.set(xscale="log", yscale="log", xlabel="one-way delay, ms", ylabel="share that took longer")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.set_yticks([1 - q for q in PERCENTILES.values()], labels=PERCENTILES)
        axes.minorticks_off()
        _outside(figure, runs, choice)
        return figure


def frame_latency(runs: Runs, choice: Choice) -> Figure:
    """Draws percentiles of a video's frame latency, one line per value of `by`.

    Marks are medians over the runs, of p50, p95 and p99 from left to right; bars extend from minimum to maximum.

    Raises:
        NothingToDrawError: no flow is video.
        ResultError: the flow does not exist or is no video.
    """
    rows = runs.of_video(choice.flow)
    with mpl.rc_context(STYLE):
        groups = list(_groups(runs, rows, choice))
        figure = Figure(figsize=(WIDTH_IN, 0.9 + 0.3 * len(groups)))
        axes = figure.add_subplot()
        for place, (label, look, part) in enumerate(groups):
            found = [part[f"frame_latency_{name}_ms"].drop_nulls().to_numpy() for name in ("p50", "p95", "p99")]
            found = [values for values in found if values.size]
            for values in found:
                axes.hlines(place, values.min(), values.max(), color=look.colour, alpha=0.25, linewidth=7)
            middle = [float(np.median(values)) for values in found]
            axes.plot(middle, [place] * len(middle), color=look.colour, marker=look.marker, markersize=5, label=label)
        axes.set_yticks(range(len(groups)), labels=[label for label, _, _ in groups])
        axes.invert_yaxis()
        axes.set(xlabel="latency of frames, ms: p50, p95 and p99 from left to right")
        axes.set_xlim(left=0)
        axes.grid(visible=False, axis="y")
        return figure


def frames(runs: Runs, choice: Choice) -> Figure:
    """Draws box plots of the share of frames shown undamaged in time per run, or of another metric.

    Raises:
        NothingToDrawError: no flow is video.
        ResultError: the flow does not exist or is no video.
    """
    return _boxes(runs, choice, runs.of_video(choice.flow), runs.metric(choice.y, "frames_in_time"))


def frame_rate(runs: Runs, choice: Choice) -> Figure:
    """Draws box plots of the mean frame rate per run, or of another metric.

    Raises:
        NothingToDrawError: no flow is video.
        ResultError: the flow does not exist or is no video.
    """
    figure = _boxes(runs, choice, runs.of_video(choice.flow), runs.metric(choice.y, "frame_rate"))
    figure.axes[0].set_ylim(bottom=0)
    return figure


def box(runs: Runs, choice: Choice) -> Figure:
    """Draws box plots of a metric: one box per value of `by`, grouped by `x`, with a dot per run."""
    return _boxes(runs, choice, runs.of_flow(choice.flow), runs.metric(choice.y))


def _boxes(runs: Runs, choice: Choice, rows: pl.DataFrame, chosen: Metric) -> Figure:
    along = None if choice.x is None else runs.axis("--x", choice.x)
    places: list[str | None] = [None] if along is None else [*runs.values(along)]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH_IN, 3.6))
        axes = figure.add_subplot()
        groups = list(_groups(runs, rows, choice))
        width = 0.8 / max(len(groups), 1)
        for place, value in enumerate(places):
            for number, (label, look, part) in enumerate(groups):
                here = part if along is None or value is None else part.filter(pl.col(along) == value)
                values = _numbers(here, chosen)
                if not values.size:
                    continue
                at = place + (number - (len(groups) - 1) / 2) * width
                drawn = axes.boxplot(
                    values, positions=[at], widths=0.7 * width, patch_artist=True, showfliers=False, manage_ticks=False
                )
                drawn["boxes"][0].set(facecolor=look.colour, alpha=0.5)
                drawn["medians"][0].set(color=INK, linewidth=1.4)
                axes.plot(
                    np.full(values.size, at),
                    values,
                    color=look.colour,
                    marker=look.marker,
                    markersize=3,
                    linestyle="none",
                    label=None if place else label,
                )
        if along is None:
            ticks = [(number - (len(groups) - 1) / 2) * width for number in range(len(groups))]
            axes.set_xticks(ticks, labels=[label for label, _, _ in groups])
            _turn(axes, [label for label, _, _ in groups])
        else:
            axes.set_xticks(range(len(places)), labels=[str(value) for value in places])
            axes.set_xlabel(short(runs.axes)[along])
            _outside(figure, runs, choice)
        axes.set_ylabel(chosen.label)
        axes.grid(visible=False, axis="x")
        return figure


def shares(runs: Runs, choice: Choice) -> Figure:
    """Draws the share of a flow's packets on each path: mean over the runs of each value of `by`."""
    rows = runs.of_flow(choice.flow)
    with mpl.rc_context(STYLE):
        groups = list(_groups(runs, rows, choice))
        figure = Figure(figsize=(WIDTH_IN, 0.9 + 0.3 * len(groups)))
        axes = figure.add_subplot()
        ends = np.zeros(len(groups))
        for index, path in enumerate(runs.paths):
            means = np.array([_mean(part[f"share_{path}"]) for _, _, part in groups]) * 100
            axes.barh(range(len(groups)), means, left=ends, height=0.7, color=path_colour(index), label=path)
            ends += means
        axes.set_yticks(range(len(groups)), labels=[label for label, _, _ in groups])
        axes.invert_yaxis()
        axes.set(xlabel="packets, %", xlim=(0, 100))
        axes.grid(visible=False, axis="y")
        legend(axes, "above left", 4)
        return figure


def heatmap(runs: Runs, choice: Choice) -> Figure:
    """Draws a heat map of a metric's median over two axes; other axes are pooled.

    Raises:
        NothingToDrawError: the campaign has fewer than two axes.
        ResultError: there is no such axis.
    """
    rows = runs.of_flow(choice.flow)
    across, up = heat_axes(runs, choice)
    chosen = runs.metric(choice.y, "within_deadline" if rows["within_deadline"].count() else "goodput_bps")
    columns, lines = runs.values(across), runs.values(up)
    medians = heat_values(rows, across, up, chosen)
    table = np.array([[medians.get((column, line), math.nan) for column in columns] for line in lines])
    names = short(runs.axes)
    with mpl.rc_context(STYLE | {"axes.grid": False}):
        figure = Figure(figsize=(WIDTH_IN, 1.6 + 0.32 * len(lines)))
        axes = figure.add_subplot()
        image = axes.imshow(table, aspect="auto", cmap="cividis", origin="lower")
        axes.set_xticks(range(len(columns)), labels=columns)
        _turn(axes, columns)
        axes.set_yticks(range(len(lines)), labels=lines)
        axes.set(xlabel=names[across], ylabel=names[up])
        if table.size <= _MAX_LABELLED:
            middle = float(np.nanmean([np.nanmin(table), np.nanmax(table)])) if np.isfinite(table).any() else 0.0
            for (line, column), value in np.ndenumerate(table):
                shown, colour = (
                    ("–", INK) if math.isnan(value) else (f"{value:.3g}", "white" if value < middle else INK)
                )
                axes.text(column, line, shown, ha="center", va="center", fontsize=7, color=colour)
        bar = figure.colorbar(image, ax=axes, label=chosen.label)
        bar.outline.set_visible(False)
        return figure


def heat_axes(runs: Runs, choice: Choice) -> tuple[str, str]:
    """Returns the axes of a heat map: those chosen, else the two with the most values.

    Raises:
        NothingToDrawError: the campaign has fewer than two axes.
        ResultError: there is no such axis.
    """
    if len(runs.axes) < 2:
        raise NothingToDrawError(f"a heat map takes two axes, found {', '.join(runs.axes) or 'none'} in {runs.name}")
    picked = [runs.axis("--x", name.strip()) for name in (choice.x or "").split(",") if name.strip()]
    if choice.by is not None:
        picked.append(runs.axis("--by", choice.by))
    most = sorted(runs.axes, key=lambda axis: -len(runs.values(axis)))
    across, up = [*picked, *(axis for axis in most if axis not in picked)][:2]
    return across, up


def heat_values(rows: pl.DataFrame, across: str, up: str, chosen: Metric) -> dict[tuple[str, str], float]:
    """Returns the median of a metric per pair of values, in the metric's unit."""
    medians = rows.group_by(across, up).agg(pl.col(chosen.column).median())
    return {(one, other): value * chosen.scale for one, other, value in medians.iter_rows() if value is not None}


def tradeoff(runs: Runs, choice: Choice) -> Figure:
    """Draws goodput against delay: mean over the seeds of each point, with its 95 % confidence ellipse.

    `x` is the column of the delay, by default `delay_p95_ms`; `y` that of the goodput. Points with fewer than four
    seeds have no ellipse.
    """
    rows = runs.of_flow(choice.flow)
    across, up = runs.metric(choice.x, "delay_p95_ms"), runs.metric(choice.y)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH_IN, 4.0))
        axes = figure.add_subplot()
        for label, look, part in _groups(runs, rows, choice):
            for number, (_, point) in enumerate(part.group_by("point", maintain_order=True)):
                pairs = point.select(across.column, up.column).drop_nulls().to_numpy() * (across.scale, up.scale)
                if not len(pairs):
                    continue
                centre = pairs.mean(axis=0)
                axes.plot(
                    *centre, color=look.colour, marker=look.marker, linestyle="none", label=None if number else label
                )
                found = ellipse(pairs)
                if found is not None:
                    width, height, angle = found
                    axes.add_patch(
                        Ellipse(
                            (float(centre[0]), float(centre[1])),
                            width,
                            height,
                            angle=angle,
                            facecolor=look.colour,
                            edgecolor=look.colour,
                            alpha=0.2,
                        )
                    )
        axes.autoscale_view()
        axes.set(xlabel=across.label, ylabel=up.label)
        _outside(figure, runs, choice)
        return figure


def ellipse(pairs: NDArray[np.float64]) -> tuple[float, float, float] | None:
    """Returns the 95 % confidence ellipse of the mean of pairs: width, height, and angle of the width in degrees.

    Hotelling's T² with two variables: the mean is within (x̄ − μ)ᵀ S⁻¹ (x̄ − μ) ≤ 2 (n − 1) / (n (n − 2)) F(2, n − 2).
    None with fewer than four pairs.
    """
    number = len(pairs)
    if number < MIN_SEEDS:
        return None
    # With two numerator degrees of freedom, the quantile of F has a closed form.
    quantile = (number - 2) / 2 * math.expm1(-2 / (number - 2) * math.log1p(-CONFIDENCE))
    limit = 2 * (number - 1) / (number * (number - 2)) * quantile
    spreads, directions = np.linalg.eigh(np.cov(pairs, rowvar=False))
    height, width = 2 * np.sqrt(np.maximum(spreads, 0.0) * limit)
    return float(width), float(height), math.degrees(math.atan2(directions[1, 1], directions[0, 1]))


def _groups(runs: Runs, rows: pl.DataFrame, choice: Choice) -> Iterator[tuple[str, Look, pl.DataFrame]]:
    """Yields the rows of each value of the axis shown as colour and marker; one group without an axis."""
    axis = runs.main_axis() if choice.by is None else runs.axis("--by", choice.by)
    if axis is None:
        flow = str(rows["flow"][0]) if rows.height else runs.name
        yield flow, looks("flow", [flow])[flow], rows
        return
    for value, look in looks(axis, runs.values(axis)).items():
        part = rows.filter(pl.col(axis) == value)
        if part.height:
            yield value, look, part


def _turn(axes: Axes, labels: Sequence[str]) -> None:
    """Rotates tick labels that would overlap."""
    if max((len(label) for label in labels), default=0) * len(labels) > _MAX_LABEL_CHARACTERS:
        for text in axes.get_xticklabels():
            text.set(rotation=30, ha="right")


def _outside(figure: Figure, runs: Runs, choice: Choice) -> None:
    """Places a legend outside the axes, titled by its axis."""
    axes = figure.axes[0]
    number = len(axes.get_legend_handles_labels()[0])
    if number == 0:
        return
    if number <= 3:
        legend(axes, "above right", 3)
        return
    axis = runs.main_axis() if choice.by is None else runs.axis("--by", choice.by)
    title = None if axis is None else short(runs.axes)[axis]
    legend(axes, "beside", 1, title)


def _seeds(results: Results) -> pl.DataFrame:
    """Returns the flows of a result with the columns of a campaign, one row per seed."""
    shortest: dict[tuple[int, str], tuple[float, float]] = {}
    for flight in results.flights:
        for requirement in flight.requirements:
            if (
                requirement.metric == "share"
                and requirement.deadline_ms is not None
                and requirement.estimate is not None
            ):
                key = (flight.seed, requirement.flow)
                found = (requirement.deadline_ms, requirement.estimate)
                shortest[key] = min(shortest.get(key, found), found)
    frame = results.flows_frame().filter(pl.col("flow").is_in(list(results.flows)))
    keys = [(int(seed), str(flow)) for seed, flow in frame.select("seed", "flow").iter_rows()]
    columns = {
        name: pl.Series(name, [shortest[key][place] if key in shortest else None for key in keys], dtype=pl.Float64)
        for place, name in enumerate(("deadline_ms", "within_deadline"))
    }
    return frame.with_columns(pl.lit(0, dtype=pl.UInt32).alias("point"), **columns)


def _numbers(rows: pl.DataFrame, chosen: Metric) -> NDArray[np.float64]:
    return rows[chosen.column].drop_nulls().cast(pl.Float64).to_numpy() * chosen.scale


def _mean(values: pl.Series) -> float:
    mean = values.mean()
    return float(mean) if isinstance(mean, int | float) else 0.0
