"""The report of an assessment: transports ranked with intervals, what was assumed and what is missing."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from markupsafe import Markup

from skybraid.model.requirements import about, percent, percent_range, rate
from skybraid.show.plots.style import COLOURS, SECOND_INK, STYLE
from skybraid.show.report.charts import Charts
from skybraid.show.report.page import page
from skybraid.show.report.svg import inline_svg

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from skybraid.assess.answer import Answer, RankedFlow, Row

_MAX_ROWS = 20


def assess_html(answer: Answer) -> str:
    """Returns the report as HTML."""
    flows = [
        (
            flow,
            [(row, *_shown(flow, row)) for row in flow.rows],
            Markup(inline_svg(_figure(flow), flow.wanted.flow)),
        )
        for flow in answer.flows
    ]
    networks = [(one.name, len(one.flights), about(one.measured_s)) for one in answer.networks]
    return page("assess.html.j2", Charts(), answer=answer, flows=flows, networks=networks)


def _shown(flow: RankedFlow, row: Row) -> tuple[str, str]:
    judged = row.judged
    if flow.wanted.metric == "goodput":
        high = rate(judged.high) if math.isfinite(judged.high) else "no upper end"
        return rate(judged.estimate), f"{rate(judged.low)} to {high}"
    return percent(judged.estimate), percent_range(judged.low, judged.high)


def _figure(flow: RankedFlow) -> Figure:
    """Draws the interval of each transport, and what is required."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    rows = flow.rows[:_MAX_ROWS]
    scale, unit = (1e-6, "goodput [Mbit/s]") if flow.wanted.metric == "goodput" else (100.0, "share in time [%]")
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(6.0, 0.9 + 0.28 * len(rows)), layout="constrained")
        axes = figure.subplots()
        most = max((row.judged.high for row in rows if math.isfinite(row.judged.high)), default=1.0)
        for at, row in enumerate(rows):
            high = row.judged.high if math.isfinite(row.judged.high) else most
            colour = COLOURS[2] if row.is_final else COLOURS[4]
            axes.plot(
                [scale * row.judged.low, scale * high], [at, at], color=colour, linewidth=3, solid_capstyle="butt"
            )
            axes.plot([scale * row.judged.estimate], [at], "o", color=colour, markersize=4)
        axes.axvline(scale * flow.wanted.target, color=SECOND_INK, linestyle="--", linewidth=1)
        axes.set_yticks(range(len(rows)), [row.names[0] for row in rows], fontsize=7)
        axes.invert_yaxis()
        axes.set_xlabel(unit)
    return figure
