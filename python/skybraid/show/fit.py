"""Page of a fit: measured and fitted flights side by side, and what the data cannot determine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from markupsafe import Markup

from skybraid.fit.draw import draw_flight
from skybraid.fit.process import autocorrelation, normal_scores
from skybraid.model.heavy import np
from skybraid.show.plots.style import COLOURS, STYLE
from skybraid.show.report.charts import Charts
from skybraid.show.report.page import page
from skybraid.show.report.svg import inline_svg
from skybraid.traces.flights import DIRECTIONS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from skybraid.fit.goodness import Goodness
    from skybraid.fit.link import FittedLink
    from skybraid.traces.flights import Flight

_UNITS = {"rate": "Mbit/s", "delay": "ms"}
_MAX_LAG_S = 60
_SHOWN_S = 600.0
_DRAWN = 3


def fit_html(link: FittedLink, found: Goodness | None, name: str, read: Sequence[Flight]) -> str:
    """Returns the page of a fit as HTML.

    Args:
        link: fitted link.
        found: goodness of the fit; None: not compared.
        name: name of the written preset.
        read: fitted flights, shown if none were held back.
    """
    if found is None:
        random = np.random.default_rng(1)
        all_measured = [flight.without_gaps() for flight in read]
        length_s = float(np.median([flight.length_s for flight in all_measured]))
        all_fitted = [draw_flight(link, length_s, random) for _ in range(_DRAWN)]
    else:
        all_measured, all_fitted = list(found.measured), list(found.fitted)
    figures = []
    for quantity, unit in _UNITS.items():
        for direction in DIRECTIONS:
            measured = [one for one in all_measured if one.values(quantity, direction) is not None]
            fitted = [one for one in all_fitted if one.values(quantity, direction) is not None]
            # Half a round trip is the delay of both directions.
            again = direction == "downlink" and measured and measured[0].values(quantity, "uplink") is not None
            if again and measured[0].values(quantity, "uplink") is measured[0].values(quantity, direction):
                continue
            if measured and fitted:
                drawn = _figure(measured, fitted, quantity, direction, unit)
                figures.append((f"{direction} {quantity}", Markup(inline_svg(drawn, f"{direction}{quantity}"))))
    return page("fit.html.j2", Charts(), link=link, found=found, name=name, figures=figures)


def _figure(measured: Sequence[Flight], fitted: Sequence[Flight], quantity: str, direction: str, unit: str) -> Figure:
    """Draws a measured and a fitted flight: values over time, share of time above each value, autocorrelation."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(6.0, 6.4), layout="constrained")
        drawn = figure.subplot_mosaic([["measured"] * 2, ["fitted"] * 2, ["above", "memory"]])
        over_time = (drawn["measured"], drawn["fitted"])
        over_time[1].sharex(over_time[0])
        over_time[1].sharey(over_time[0])
        exceeded, memory = drawn["above"], drawn["memory"]
        for axes, flights, label, colour in (
            (over_time[0], measured, "measured", COLOURS[0]),
            (over_time[1], fitted, "fitted", COLOURS[3]),
        ):
            seconds = [one.grid(quantity, direction, 1.0) for one in flights]
            known = [np.where(np.isfinite(one), one, np.nan) for one in seconds if one is not None]
            first = known[0][: int(_SHOWN_S)]
            axes.step(np.arange(len(first)), first, where="post", color=colour, linewidth=0.8)
            axes.set_title(label, fontsize=9)
            axes.set_ylabel(f"{quantity} [{unit}]")
            for line, values in enumerate(known):
                finite = np.sort(values[np.isfinite(values)])
                if finite.size == 0:
                    continue
                share = 1 - np.arange(1, len(finite) + 1) / len(finite)
                name = label if line == 0 else None
                exceeded.step(finite[:-1], share[:-1], color=colour, linewidth=0.8, label=name)
                lags = list(range(1, max(min(_MAX_LAG_S, len(values) // 4), 2)))
                memory.plot(lags, autocorrelation([normal_scores(values)], lags), color=colour, linewidth=0.8)
        over_time[1].set(xlabel="time [s]")
        exceeded.set(xlabel=f"{quantity} [{unit}]", ylabel="share of time above", yscale="log")
        exceeded.legend(fontsize=8)
        memory.set(xlabel="lag [s]", ylabel="correlation of ranks", ylim=(-0.2, 1))
    return figure
