"""Figures of experiments, drawn as in the papers: one line per series with its band over the seeds.

Published numbers are hollow markers in the colour of their series. The form is that of the experiment's file (`draw`),
or follows from the data: a single value of the sweep gives bars, a sweep over quantiles a cumulative distribution.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import skybraid
from skybraid._core import registry
from skybraid.model.folder import write_whole
from skybraid.model.heavy import np
from skybraid.model.statistics import mean_interval
from skybraid_studies.engine.scorecard import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from skybraid_studies.engine.claims import Line
    from skybraid_studies.engine.experiment import Experiment
    from skybraid_studies.engine.scorecard import Row

_HEIGHT_IN = 3.4
_ROW_IN = 0.3
_BAND_ALPHA = 0.2
_CELL_ALPHA = (0.05, 0.55)
_QUARTILES = (0.25, 0.5, 0.75)
_LEGEND_COLUMNS = 3
_NAME_WIDTH = 30
_MANY = 40
"""Number of points from which on a line has no markers."""


def form(experiment: Experiment) -> str:
    """Returns the form of an experiment's figure, one of `skybraid_studies.engine.experiment.FORMS`."""
    if experiment.draw:
        return experiment.draw
    if experiment.times_s:
        return "lines"
    if len(experiment.sweep.values) == 1:
        return "bars"
    return "cdf" if _along_a_distribution(experiment) else "lines"


def _along_a_distribution(experiment: Experiment) -> bool:
    measures = [series.measure for series in experiment.series]
    return all(
        measure is not None and measure.kind.endswith("quantile") and "{x}" in measure.keys.values()
        for measure in measures
    )


def draw(experiment: Experiment, lines: Mapping[str, Line], *, remark: str = "") -> Figure:
    """Draws the values of an experiment; `remark` follows its title."""
    import matplotlib as mpl
    from matplotlib.figure import Figure as Drawn

    with mpl.rc_context(skybraid.plots.STYLE):
        chosen = form(experiment)
        drawn = list(lines.values())
        rows = len(drawn) * max(len(drawn[0].x), 1) if chosen == "bars" else len(drawn)
        tall = chosen in ("bars", "boxes", "table")
        figure = Drawn(figsize=(skybraid.plots.WIDTH_IN, max(_HEIGHT_IN, 1.2 + _ROW_IN * rows) if tall else _HEIGHT_IN))
        axes = figure.add_subplot()
        _DRAW[chosen](axes, experiment, drawn)
        axes.set_title(f"{experiment.id}, {experiment.figure}{f' ({remark})' if remark else ''}")
        handles, labels = axes.get_legend_handles_labels()
        if handles:
            below = -(-len(handles) // _LEGEND_COLUMNS)
            figure.set_figheight(figure.get_figheight() + 0.17 * below)
            figure.legend(handles, labels, loc="outside lower center", ncols=_LEGEND_COLUMNS)
    return figure


def keep(experiment: Experiment, lines: Mapping[str, Line], row: Row, folder: Path) -> Path:
    """Draws an experiment to `ID.svg` and `ID.png` in `folder`, unless they are up to date; returns the first.

    Raises:
        ResultError: a file cannot be written.
    """
    remark = ", ".join(
        word
        for word, condition in (
            ("emulated", row.driver == "emulation"),
            ("by gateways", row.driver == "gateway"),
            ("quick look", row.quick),
        )
        if condition
    )
    svg, png = folder / f"{experiment.id}.svg", folder / f"{experiment.id}.png"
    mark = f"<!-- {_digest(experiment, lines, remark)} -->\n"
    try:
        if svg.read_text(encoding="utf-8").endswith(mark) and png.is_file():
            return svg
    except (OSError, UnicodeDecodeError):
        pass
    import matplotlib as mpl

    figure = draw(experiment, lines, remark=remark)
    text, pixels = io.StringIO(), io.BytesIO()
    with mpl.rc_context(skybraid.plots.STYLE | {"svg.hashsalt": experiment.id}):
        figure.savefig(text, format="svg", facecolor="white", metadata={"Date": None})
        figure.savefig(pixels, format="png", dpi=160, facecolor="white")
    write_whole(png, pixels.getvalue())
    write_whole(svg, f"{text.getvalue()}{mark}".encode())
    return svg


def _digest(experiment: Experiment, lines: Mapping[str, Line], remark: str) -> str:
    shown = [
        [line.name, line.x, line.values.tolist(), sorted((x, *of) for x, of in line.published.items())]
        for line in lines.values()
    ]
    sweep = experiment.sweep
    words = [experiment.id, experiment.figure, experiment.unit, sweep.label, sweep.log, form(experiment), remark]
    code = [
        Path(__file__).read_text(encoding="utf-8"),
        skybraid.plots.COLOURS,
        skybraid.plots.MARKERS,
        str(skybraid.plots.STYLE),
    ]
    return hashlib.sha256(json.dumps([shown, words, code]).encode()).hexdigest()[:24]


_CALLED = {
    "newreno": "reno",
    "tcpnr": "reno",
    "tcpw": "westwood",
    "lrf": "low_rtt",
    "lowrtt": "low_rtt",
    "rr": "round_robin",
    "cpf": "cheapest_path",
}
"""Names of algorithms in papers, in lower case, and their names here."""


def _looks(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """Returns colour, marker and line style of each series.

    If all are named after schedulers, or all after congestion controls, they have the usual looks of these, with
    different line styles for several of the same. Otherwise looks follow from their order.
    """
    heads = [re.split(r"[ ,]", line.name.lower(), maxsplit=1)[0] for line in lines]
    names = [_CALLED.get(head, head) for head in heads]
    for axis, kind in skybraid.plots.style.ALGORITHMS.items():
        if set(names) <= {str(entry["name"]) for entry in registry(kind)}:
            known = skybraid.plots.style.looks(axis, names)
            turns = [names[:place].count(name) for place, name in enumerate(names)]
            chosen = [(known[name].colour, known[name].marker, turn) for name, turn in zip(names, turns, strict=True)]
            break
    else:
        placed = [skybraid.plots.style.look(place) for place in range(len(lines))]
        turns = [place // len(skybraid.plots.COLOURS) for place in range(len(lines))]
        chosen = [(one.colour, one.marker, turn) for one, turn in zip(placed, turns, strict=True)]
    return [
        {
            "color": colour,
            "marker": marker,
            "linestyle": skybraid.plots.LINE_STYLES[turn % len(skybraid.plots.LINE_STYLES)],
        }
        for colour, marker, turn in chosen
    ]


def _hollow(look_: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "color": look_["color"],
        "marker": look_["marker"],
        "linestyle": "none",
        "markerfacecolor": "none",
        "markersize": 7,
    }


def _wrapped(name: str) -> str:
    return textwrap.fill(name, _NAME_WIDTH)


def _bands(line: Line) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Returns mean over the seeds and the 95 % interval at each x; NaN if a value is missing or infinite."""
    mean, low, high = (np.full(len(line.x), math.nan) for _ in range(3))
    for column in range(len(line.x)):
        seeds = line.values[:, column]
        if np.isfinite(seeds).all():
            mean[column] = low[column] = high[column] = seeds.mean()
            interval = mean_interval([float(value) for value in seeds])
            if interval is not None:
                low[column], high[column] = interval
    return mean, low, high


def _published_key(axes: Axes, lines: Sequence[Line]) -> None:
    if any(line.published for line in lines):
        axes.plot(
            [], [], color=skybraid.plots.INK, marker="o", markerfacecolor="none", linestyle="none", label="published"
        )


def _lines(axes: Axes, experiment: Experiment, lines: Sequence[Line]) -> None:
    for line, own in zip(lines, _looks(lines), strict=True):
        mean, low, high = _bands(line)
        drawn = own | ({"marker": None} if len(line.x) > _MANY else {"markersize": 4})
        axes.plot(line.x, mean, label=line.name, **drawn)
        axes.fill_between(line.x, low, high, color=own["color"], alpha=_BAND_ALPHA, linewidth=0)
        xs = sorted(line.published)
        axes.plot(xs, [line.published[x][0] for x in xs], **_hollow(own))
    _published_key(axes, lines)
    if experiment.sweep.log and not experiment.times_s:
        axes.set_xscale("log")
    axes.set_xlabel("time [s]" if experiment.times_s else experiment.sweep.label)
    axes.set_ylabel(experiment.unit)


def _bars(axes: Axes, experiment: Experiment, lines: Sequence[Line]) -> None:
    names, several = [], any(len(line.x) > 1 for line in lines)
    place = 0
    for line, own in zip(lines, _looks(lines), strict=True):
        mean, low, high = _bands(line)
        for column, x in enumerate(line.x):
            colours = {"color": own["color"], "ecolor": skybraid.plots.INK}
            # The mean of equal values may be rounded across a bound.
            reach = np.array([[mean[column] - low[column]], [high[column] - mean[column]]]).clip(min=0.0)
            axes.barh(place, mean[column], xerr=reach, height=0.65, capsize=2, error_kw={"linewidth": 0.9}, **colours)
            if x in line.published:
                axes.plot(line.published[x][0], place, **(_hollow(own) | {"color": skybraid.plots.INK}))
            names.append(_wrapped(f"{line.name}, {x:g}" if several else line.name))
            place += 1
    _published_key(axes, lines)
    axes.set_yticks(range(place), names)
    axes.set_ylim(place - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(experiment.unit)


def _cdf(axes: Axes, experiment: Experiment, lines: Sequence[Line]) -> None:
    for line, own in zip(lines, _looks(lines), strict=True):
        mean, low, high = _bands(line)
        drawn = own | ({"marker": None} if len(line.x) > _MANY else {"markersize": 4})
        axes.plot(mean, line.x, label=line.name, **drawn)
        axes.fill_betweenx(line.x, low, high, color=own["color"], alpha=_BAND_ALPHA, linewidth=0)
        xs = sorted(line.published)
        axes.plot([line.published[x][0] for x in xs], xs, **_hollow(own))
    _published_key(axes, lines)
    axes.set_xlabel(experiment.unit)
    axes.set_ylabel(experiment.sweep.label or "share")


def _boxes(axes: Axes, experiment: Experiment, lines: Sequence[Line]) -> None:
    """Draws boxes between quartiles with whiskers to the extremes, of the distribution or of all values."""
    quantiles = _along_a_distribution(experiment)
    for index, (line, own) in enumerate(zip(lines, _looks(lines), strict=True)):
        if quantiles:
            mean, *_ = _bands(line)
            known = np.isfinite(mean)
            xs, values = np.array(line.x)[known], mean[known]
            if not xs.size:
                continue
            first, median, third = np.interp(_QUARTILES, xs, values)
            low, high = values[0], values[-1]
        else:
            values = line.values[np.isfinite(line.values)]
            if not values.size:
                continue
            low, first, median, third, high = np.quantile(values, (0, *_QUARTILES, 1))
        colour = own["color"]
        axes.plot([low, high], [index, index], color=colour)
        axes.barh(index, third - first, left=first, height=0.6, facecolor="none", edgecolor=colour, linewidth=1.2)
        axes.plot([median, median], [index - 0.3, index + 0.3], color=colour, linewidth=2)
        for x in line.published if quantiles else ():
            axes.plot(line.published[x][0], index, **_hollow(own))
    _published_key(axes, lines if quantiles else ())
    axes.set_yticks(range(len(lines)), [_wrapped(line.name) for line in lines])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(experiment.unit)


def _table(axes: Axes, experiment: Experiment, lines: Sequence[Line]) -> None:
    """Draws a table of values, larger ones darker; published ones in brackets."""
    xs = lines[0].x
    means = np.array([_bands(line)[0] for line in lines])
    finite = means[np.isfinite(means)]
    least, most = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    for y, line in enumerate(lines):
        for column, x in enumerate(xs):
            value = float(means[y, column])
            share = (value - least) / (most - least) if math.isfinite(value) and most > least else 0.0
            alpha = _CELL_ALPHA[0] + (_CELL_ALPHA[1] - _CELL_ALPHA[0]) * share
            axes.bar(column, 1, width=1, bottom=y - 0.5, color=skybraid.plots.COLOURS[0], alpha=alpha, linewidth=0)
            theirs = f" ({number(line.published[x][0])})" if x in line.published else ""
            label = f"{number(value) if math.isfinite(value) else '–'}{theirs}"
            axes.text(column, y, label, ha="center", va="center", fontsize=7.5)
    axes.set_yticks(range(len(lines)), [_wrapped(line.name) for line in lines])
    axes.set_xticks(range(len(xs)), [f"{x:g}" for x in xs] if len(xs) > 1 else [experiment.unit])
    axes.set_xlim(-0.5, len(xs) - 0.5)
    axes.set_ylim(len(lines) - 0.5, -0.5)
    axes.grid(visible=False)
    brackets = "published in brackets" if any(line.published for line in lines) else ""
    axes.set_xlabel(", ".join(word for word in (experiment.sweep.label, experiment.unit, brackets) if word))


_DRAW = {"lines": _lines, "bars": _bars, "cdf": _cdf, "boxes": _boxes, "table": _table}
