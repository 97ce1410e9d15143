"""Modules that do a command's work, imported when it begins: no help needs them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skybraid.model.heavy import Late

if TYPE_CHECKING:
    from skybraid import assess, fit
    from skybraid.assess import candidates
    from skybraid.assess import link as performance
    from skybraid.execute import axes, emulation, opening, overview, pairs, ranking, runs
    from skybraid.execute import compare as comparing
    from skybraid.execute import plan as planning
    from skybraid.execute import sweep as sweeping
    from skybraid.model import algorithms
    from skybraid.show import assess as assess_page
    from skybraid.show import explain as explaining
    from skybraid.show import fit as fit_page
    from skybraid.show import live, plots
    from skybraid.show import ranking as drawing
    from skybraid.show import report as reports
    from skybraid.show.plots import style
    from skybraid.show.report import logs
    from skybraid.traces import flights, formats, series
else:
    algorithms = Late("skybraid.model.algorithms")
    assess = Late("skybraid.assess")
    assess_page = Late("skybraid.show.assess")
    axes = Late("skybraid.execute.axes")
    candidates = Late("skybraid.assess.candidates")
    comparing = Late("skybraid.execute.compare")
    drawing = Late("skybraid.show.ranking")
    emulation = Late("skybraid.execute.emulation")
    explaining = Late("skybraid.show.explain")
    fit = Late("skybraid.fit")
    fit_page = Late("skybraid.show.fit")
    flights = Late("skybraid.traces.flights")
    formats = Late("skybraid.traces.formats")
    live = Late("skybraid.show.live")
    logs = Late("skybraid.show.report.logs")
    opening = Late("skybraid.execute.opening")
    overview = Late("skybraid.execute.overview")
    pairs = Late("skybraid.execute.pairs")
    performance = Late("skybraid.assess.link")
    planning = Late("skybraid.execute.plan")
    plots = Late("skybraid.show.plots")
    ranking = Late("skybraid.execute.ranking")
    reports = Late("skybraid.show.report")
    runs = Late("skybraid.execute.runs")
    series = Late("skybraid.traces.series")
    style = Late("skybraid.show.plots.style")
    sweeping = Late("skybraid.execute.sweep")

__all__ = [
    "algorithms",
    "assess",
    "assess_page",
    "axes",
    "candidates",
    "comparing",
    "drawing",
    "emulation",
    "explaining",
    "fit",
    "fit_page",
    "flights",
    "formats",
    "live",
    "logs",
    "opening",
    "overview",
    "pairs",
    "performance",
    "planning",
    "plots",
    "ranking",
    "reports",
    "runs",
    "series",
    "style",
    "sweeping",
]
