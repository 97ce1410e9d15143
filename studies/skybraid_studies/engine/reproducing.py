"""Reproduction of published studies: their experiments planned, run and judged."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skybraid.model.errors import ScenarioError
from skybraid.model.folder import write_whole
from skybraid_studies.engine import figure, kept, papers
from skybraid_studies.engine.experiment import Study, folder_of
from skybraid_studies.engine.index import entries
from skybraid_studies.engine.readings import present
from skybraid_studies.engine.runner import Form, Plan, Selection, collect, plan, run_plan
from skybraid_studies.engine.scorecard import Beside, Row, csv_text, median_ratio, published_points, row

if TYPE_CHECKING:
    from skybraid.execute.pool import Progress
    from skybraid_studies.engine.claims import Line
    from skybraid_studies.engine.experiment import Experiment
    from skybraid_studies.engine.index import Entry

FIGURES = "figures"
"""Folder of figures inside a study's output."""


@dataclass(frozen=True, slots=True)
class Scorecard:
    """Verdicts on a study's experiments.

    Attributes:
        paper: name of the study.
        title: title of the paper.
        reading: reading that was run; differs from the requested one if measurements are missing.
        quick: whether seeds and durations were reduced.
        rows: one row per experiment.
        points: our and the published numbers at each point.
        comparisons: median ratios of ours to published numbers, by description.
        runs: number of runs.
        kept: number of runs taken from the folder.
        wall_s: wall-clock time in s.
        experiments: experiments by id.
        lines: values by experiment and series.
    """

    paper: str
    title: str
    reading: str
    quick: bool
    rows: tuple[Row, ...]
    points: tuple[Beside, ...]
    comparisons: dict[str, dict[str, float]]
    runs: int
    kept: int
    wall_s: float
    experiments: Mapping[str, Experiment] = field(default_factory=dict, repr=False)
    lines: Mapping[str, Mapping[str, Line]] = field(default_factory=dict, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Converts to plain values for JSON, without the lines."""
        found = asdict(replace(self, experiments={}, lines={}))
        return {name: value for name, value in found.items() if name not in ("experiments", "lines")}

    def keep(self, folder: Path) -> Scorecard:
        """Writes `scorecard.json`, `beside.csv`, figures, and the numbers that a page quotes into a folder.

        Returns the scorecard with the files of the figures.

        Raises:
            ResultError: a file cannot be written.
        """
        rows = []
        for one in self.rows:
            lines = self.lines.get(one.id, {})
            drawn = figure.keep(self.experiments[one.id], lines, one, folder / FIGURES) if lines else None
            rows.append(one if drawn is None else replace(one, figure_file=str(drawn)))
        write_whole(folder / "beside.csv", csv_text(self.points).encode())
        card = self.to_dict()
        del card["points"]
        for one, drawn_row in zip(card["rows"], rows, strict=True):
            if drawn_row.figure_file:
                one["figure_file"] = f"{FIGURES}/{Path(drawn_row.figure_file).name}"
        write_whole(folder / "scorecard.json", json_text(card))
        for name, data in kept.files(card).items():
            write_whole(folder / kept.FOLDER / name, data)
        return replace(self, rows=tuple(rows))


def json_text(value: object) -> bytes:
    """Encodes a value as the text of a JSON file."""
    return f"{json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)}\n".encode()


def place_of(folder: Path | None = None) -> Path:
    """Returns the folder of the studies: `folder`, or that of the installed ones.

    Raises:
        ScenarioError: the folder has no study.
    """
    place = papers.FOLDER if folder is None else folder
    if next(place.glob("*/study.toml"), None) is None:
        raise ScenarioError(f"studies: found none below {place}, expected PAPER/study.toml")
    return place


def studies(folder: Path | None = None) -> list[Study]:
    """Returns all studies in a folder; default: the installed ones.

    Raises:
        ScenarioError: a study's file is invalid, or there is no study.
    """
    return [Study(file.parent) for file in sorted(place_of(folder).glob("*/study.toml"))]


def selection(study: Study, experiments: Sequence[str] = (), reading: str | None = None) -> Selection:
    """Returns experiments of a study by their ids; default: all.

    Raises:
        ScenarioError: a file is invalid, or there is no such experiment or reading.
    """
    asked = study.reading if reading is None else reading
    study.check_reading(asked)
    name, note = present(study.readings, asked)
    known = study.experiments(name)
    for one in experiments:
        if one not in known:
            raise ScenarioError(f"reproduce {study.paper}: found {one}, expected some of {', '.join(known)}")
    return Selection(study, [known[one] for one in experiments or known], name, note)


def judged(planned: Plan, of: Selection, wall_s: float, index: Mapping[str, Entry] | None = None) -> Scorecard:
    """Returns the scorecard of a study whose runs are finished."""
    collected = collect(planned, of)
    return Scorecard(
        paper=of.study.paper,
        title=of.study.title,
        reading=of.reading,
        quick=planned.form.quick,
        rows=tuple(row(of, each, collected, planned.form, (index or {}).get(each.id)) for each in of.experiments),
        points=tuple(
            one
            for each in of.experiments
            if each.unit and not each.times_s
            for one in published_points(each, collected.lines[each.id])
        ),
        comparisons={
            words: ratio
            for words, ids in of.study.comparisons.items()
            if (ratio := median_ratio(collected, ids)) is not None
        },
        runs=collected.runs,
        kept=collected.kept,
        wall_s=round(wall_s, 3),
        experiments={each.id: each for each in of.experiments},
        lines=collected.lines,
    )


def reproduce(
    study: Study | str,
    experiments: Sequence[str] = (),
    *,
    reading: str | None = None,
    quick: bool = False,
    out: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Scorecard:
    """Runs a study's experiments and judges the paper's claims.

    Args:
        study: `Study`, or name of an installed one.
        experiments: ids of experiments; default: all.
        reading: name of the reading; default: that of the study.
        quick: whether to use fewer seeds and shorter runs, which the verdicts then refer to.
        out: folder of finished runs, which are reused, and of the scorecard (`scorecard.json`), the table of our and
            the published numbers (`beside.csv`), and `figures`.
        workers: number of parallel runs; default: one per core.
        progress: callback with the completed share, 0 to 1.

    Raises:
        ScenarioError: a file is invalid, or there is no such study, experiment or reading. (A failed run leaves its
            experiment without a verdict; its row has the reason.)
        ResultError: `out` cannot be written.
        KeyboardInterrupt: Ctrl-C; finished runs remain in `out`.
    """
    clock = time.perf_counter()
    chosen = study if isinstance(study, Study) else Study(folder_of(papers.FOLDER, study))
    folder = None if out is None else Path(out)
    of = selection(chosen, experiments, reading)
    planned = plan([of], form=Form.QUICK if quick else Form.FULL, folder=folder)

    report = None if progress is None else lambda done: progress(done.share)
    run_plan(planned, folder=folder, workers=workers, report_progress=report)
    found = judged(planned, of, time.perf_counter() - clock, entries(chosen.folder.parent))
    return found if folder is None else found.keep(folder)
