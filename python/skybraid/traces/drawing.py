"""Figures of traces."""

from typing import TYPE_CHECKING

from skybraid.model.heavy import np
from skybraid.traces.series import Trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot(trace: Trace) -> "Figure":
    """Draws `trace` over time and, next to it, the share of time above each value (log scale)."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 3.2), layout="constrained")
    over_time, exceeded = figure.subplots(1, 2, width_ratios=[2, 1])
    label = f"{'one-way delay' if trace.quantity == 'delay' else trace.quantity} [{trace.unit}]"
    ends = np.append(trace.times_s, trace.length_s())
    over_time.step(ends, np.append(trace.values, trace.values[-1]), where="post", linewidth=0.8)
    over_time.set(xlabel="time [s]", ylabel=label, title=trace.name, xlim=(0, ends[-1]))

    order = np.argsort(trace.values, kind="stable")
    weights = trace.durations_s()[order]
    share = 1.0 - np.cumsum(weights) / weights.sum()
    shown = share > 1e-12
    exceeded.step(trace.values[order][shown], share[shown], where="post")
    exceeded.set(xlabel=label, ylabel="share of time above", yscale="log")
    for axes in (over_time, exceeded):
        axes.grid(alpha=0.3)
    return figure
