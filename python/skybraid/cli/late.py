"""Modules that do the work of commands, imported on use, so that help is fast."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skybraid.model.heavy import late_imports

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
    globals().update(late_imports(__file__))
