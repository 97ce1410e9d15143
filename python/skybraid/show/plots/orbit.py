"""Figure of the satellites serving a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from skybraid.show.plots.style import COLOURS, DOWN, HALTED, SECOND_INK, STYLE, WIDTH_IN

if TYPE_CHECKING:
    from skybraid.orbit import Service

_LABELLED = 14
"""Maximum number of labelled serving satellites."""


def passes(service: Service) -> Figure:
    """Draws delay, elevation and serving satellite over time, with times without service and rain shaded."""
    times_s, breaks = service.samples["time_s"], [span.from_s for span in service.serving[1:]]
    # Lines are interrupted between satellites.
    cuts = np.searchsorted(times_s, breaks)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH_IN, 6.4))
        delay, elevation, who = figure.subplots(3, 1, sharex=True, height_ratios=[3, 3, 2])
        for axes, column in ((delay, "delay_ms"), (elevation, "elevation_deg")):
            axes.plot(
                np.insert(times_s, cuts, breaks), np.insert(service.samples[column], cuts, np.nan), color=COLOURS[0]
            )
        for index, span in enumerate(service.serving):
            colour = COLOURS[index % 2]
            who.barh(0, span.to_s - span.from_s, left=span.from_s, height=0.5, color=colour, alpha=0.7, linewidth=0)
            if len(service.serving) <= _LABELLED:
                who.text(span.from_s, 0.32, span.satellite, rotation=30, fontsize=6, color=SECOND_INK)
        shaded = ((service.gaps, DOWN, "no satellite"), (service.rain, HALTED, "rain"))
        for gaps, colour, label in shaded:
            for number, gap in enumerate(gaps):
                for axes in (delay, elevation, who):
                    named = label if axes is delay and number == 0 else None
                    axes.axvspan(gap.from_s, gap.from_s + gap.length_s, color=colour, alpha=0.25, lw=0.8, label=named)
        if delay.get_legend_handles_labels()[0]:
            delay.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, borderaxespad=0.2)
        delay.set_ylabel("one-way delay, ms")
        elevation.set(ylabel="elevation, °", ylim=(0, 90))
        who.set(ylabel="satellite", ylim=(-0.4, 1.6), yticks=[], xlabel="time, s", xlim=(0, service.length_s))
        who.xaxis.set_major_locator(MaxNLocator(nbins=7, steps=[1, 2, 3, 6, 10]))
        figure.align_ylabels()
        return figure
