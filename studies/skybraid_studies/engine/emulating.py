"""Real-time experiments in the machine's kernel: their duration and a plan that fits into a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from skybraid.model.formatting import span
from skybraid_studies.engine.points import SIMULATION, Job, Point
from skybraid_studies.engine.runner import Failure, Form, Plan, Selection, plan, replay

_AROUND_S = 1.5
"""Overhead of a run in s: creating and removing the networks of a sandbox."""


def estimate_s(planned: Plan) -> float:
    """Returns the wall-clock time in s of the missing runs, one after another."""
    return sum(map(_cost_s, planned.missing))


def _cost_s(job: Job) -> float:
    return job.length_s + _AROUND_S if isinstance(job, Point) and job.driver != SIMULATION else 0.0


def affordable(selections: Sequence[Selection], max_s: float, folder: Path | None, form: Form = Form.EMULATED) -> Plan:
    """Returns a plan of at most `max_s`: with fewer seeds, then without the last experiments."""
    max_seeds = max((len(one.emulate.seeds) for selection in selections for one in selection.experiments), default=1)
    for seeds in range(max_seeds, 0, -1):
        planned = plan([_with_seeds(selection, seeds) for selection in selections], form=form, folder=folder)
        if estimate_s(planned) <= max_s:
            return planned
    _leave_out(planned, max_s)
    return planned


def _with_seeds(selection: Selection, number: int) -> Selection:
    fewer = [
        replace(one, emulate=replace(one.emulate, seeds=one.emulate.seeds[:number])) for one in selection.experiments
    ]
    return replace(selection, experiments=fewer)


def _leave_out(planned: Plan, max_s: float) -> None:
    """Removes experiments that exceed the time left by those before them."""
    spent_s, chosen = 0.0, set(planned.done)
    for selection in planned.selections:
        for experiment in selection.experiments:
            keys = planned.keys(selection.study, experiment)
            cost_s = sum(_cost_s(planned.jobs[key]) for key in keys - chosen)
            if spent_s + cost_s <= max_s:
                spent_s += cost_s
                chosen |= keys
                continue
            words = f"Left out: it takes another {span(cost_s)}, and --max-time is {span(max_s)}"
            for series in experiment.series:
                at = (selection.study.paper, experiment.id, series.name)
                planned.refused.setdefault(at, Failure(words, replay(selection, experiment, planned.form)))
    planned.jobs = {key: job for key, job in planned.jobs.items() if key in chosen}
    planned.of = {at: key for at, key in planned.of.items() if key in chosen}
