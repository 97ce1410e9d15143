"""Published studies flown again: experiments from files, and a scorecard of what holds.

    found = reproduce("pedrazzi2020", ["PED-E09"], quick=True)
    print(found.rows[0].verdict)

The files' format is described in `skybraid.studies.experiment`, the kinds of claims in `skybraid.studies.claims`.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skybraid.errors import ScenarioError
from skybraid.folder import write_whole
from skybraid.studies.experiment import Study, folder_of
from skybraid.studies.readings import present
from skybraid.studies.runner import fly
from skybraid.studies.scorecard import Beside, Row, beside, csv_text, median_ratio, row

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from skybraid.campaign import Progress

__all__ = ["Beside", "Row", "Scorecard", "Study", "reproduce", "studies"]

_PLACES = (Path(__file__).parents[3] / "scenarios" / "studies", Path("scenarios") / "studies")
"""Where studies lie: in the source tree, or below the folder where the command is given."""


@dataclass(frozen=True, slots=True)
class Scorecard:
    """What became of a study's experiments.

    Attributes:
        paper: the study's name.
        title: the paper's.
        reading: of the paper, as it was flown: another than was asked for where that one's measurements are missing.
        quick: whether it was a quick look: fewer seeds, shorter runs.
        rows: one an experiment.
        beside: ours and the published numbers, point by point.
        comparisons: medians of ours over published, by what they are about.
        runs: how many runs there were.
        kept: how many of them were taken from the folder.
        wall_s: how long it took, in s of wall time.
    """

    paper: str
    title: str
    reading: str
    quick: bool
    rows: tuple[Row, ...]
    beside: tuple[Beside, ...]
    comparisons: dict[str, dict[str, float]]
    runs: int
    kept: int
    wall_s: float

    def to_dict(self) -> dict[str, Any]:
        """As plain values for JSON."""
        return asdict(self)


def studies(folder: Path | None = None) -> list[Study]:
    """Every study that is found, below a folder or where they usually lie.

    Raises:
        ScenarioError: a study's file is not correct, or there is no study.
    """
    for place in _PLACES if folder is None else (folder,):
        found = sorted(place.glob("*/study.toml"))
        if found:
            return [Study(file.parent) for file in found]
    raise ScenarioError(f"studies: found none below {folder or _PLACES[-1]}, expected PAPER/study.toml")


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
    """Flies a study's experiments again and judges what the paper says about them.

    Args:
        study: a `Study`, or the name of one that lies where studies usually do.
        experiments: their ids; all by default.
        reading: of what the paper leaves open; the study's own by default.
        quick: fewer seeds and shorter runs. Its verdicts are about those.
        out: folder that keeps finished runs, which are not made again, and takes the scorecard as `scorecard.json` and
            the table of ours beside the published numbers as `beside.csv`.
        workers: how many runs at a time; by default one a core.
        progress: told how far it is, 0 to 1.

    Raises:
        ScenarioError: a file is not correct, or there is no such study, experiment or reading.
        ResultError: `out` cannot be written.
        KeyboardInterrupt: Ctrl-C; finished runs stay in `out`.
    """
    clock = time.perf_counter()
    chosen = study if isinstance(study, Study) else Study(folder_of(_PLACES, study))
    asked = chosen.reading if reading is None else reading
    known = chosen.experiments(asked)
    name, note = present(chosen.readings, asked)
    if name != asked:
        known = chosen.experiments(name)
    for one in experiments:
        if one not in known:
            raise ScenarioError(f"reproduce {chosen.paper}: found {one}, expected some of {', '.join(known)}")
    picked = [known[one] for one in experiments or known]
    folder = None if out is None else Path(out)
    flown = fly(chosen, picked, reading=name, quick=quick, folder=folder, workers=workers, progress=progress)
    found = Scorecard(
        paper=chosen.paper,
        title=chosen.title,
        reading=name,
        quick=quick,
        rows=tuple(row(chosen, each, flown, reading=name, quick=quick, note=note) for each in picked),
        beside=tuple(
            one for each in picked if each.unit and not each.times_s for one in beside(each, flown.lines[each.id])
        ),
        comparisons={
            words: ratio for words, ids in chosen.comparisons.items() if (ratio := median_ratio(flown, ids)) is not None
        },
        runs=flown.runs,
        kept=flown.kept,
        wall_s=round(time.perf_counter() - clock, 3),
    )
    if folder is not None:
        card = found.to_dict()
        write_whole(folder / "beside.csv", csv_text(found.beside).encode())
        del card["beside"]
        text = json.dumps(card, indent=1, ensure_ascii=False, allow_nan=False)
        write_whole(folder / "scorecard.json", f"{text}\n".encode())
    return found
