"""Kept results of a study: the numbers quoted by its page, in two small files per reading for git.

`results/READING.toml` has global data and one line per experiment, `results/READING.csv` one line per claim. The text
of a claim is not repeated: `check` is a digest of its words, and `digest` that of the CSV file, for comparison with a
later run.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import tomllib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import tomli_w

from skybraid.model.errors import ResultError, ScenarioError
from skybraid_studies.engine.causes import Status
from skybraid_studies.engine.claims import Holds, Role
from skybraid_studies.engine.index import entries
from skybraid_studies.engine.scorecard import overall, role_of

if TYPE_CHECKING:
    from skybraid_studies.engine.causes import Cause
    from skybraid_studies.engine.experiment import Experiment, Study

FOLDER = "results"
"""Folder of kept results inside a study, and inside a study's output."""

_NUMBERS = ("ours", "low", "high", "at_least", "at_most")
_COLUMNS = ("id", "claim", "check", "verdict", "compared", "comparisons", *_NUMBERS)
_DIGITS = 9


def files(card: Mapping[str, Any]) -> dict[str, bytes]:
    """Returns the files of a scorecard (a dict of `Scorecard.to_dict`) by name."""
    rows: Sequence[Mapping[str, Any]] = card["rows"]
    experiments = {row["id"]: _experiment(row) for row in rows}
    comparisons = {about: _short(found) for about, found in card["comparisons"].items()}
    return _files(_name(card), (card["reading"], card["quick"]), comparisons, experiments, _lines(rows))


def merged(study: Study, card: Mapping[str, Any]) -> dict[str, bytes]:
    """Returns the study's kept files, by name, with rows replaced by those of a scorecard.

    Raises:
        ResultError: the kept files cannot be read.
        ScenarioError: the rows do not fit the kept ones.
    """
    name = _name(card)
    if name not in names(study):
        return files(card)
    check_mergeable(study, name, [row["id"] for row in card["rows"]], quick=card["quick"])
    before, lines = _read(study, name)
    new = {row["id"]: _experiment(row) for row in card["rows"]}
    found = {**before["experiments"], **new}
    experiments = {id_: found[id_] for id_ in study.experiments(card["reading"]) if id_ in found}
    comparisons = {**before["comparisons"], **{about: _short(each) for about, each in card["comparisons"].items()}}
    own = _lines(card["rows"])
    of = {id_: own[id_] if id_ in new else lines.get(id_, []) for id_ in experiments}
    return _files(name, (card["reading"], card["quick"]), comparisons, experiments, of)


def check_mergeable(study: Study, name: str, ids: Sequence[str], *, quick: bool) -> None:
    """Checks that rows of the experiments `ids` may replace those kept under a name.

    Raises:
        ResultError: the kept files cannot be read.
        ScenarioError: only one of both is a quick look; or `ids` has some, but not all, experiments of a comparison,
            whose median is over all of them.
    """
    if name not in names(study):
        return
    if _read(study, name)[0]["quick"] != quick:
        found, expected = ("--quick", "--full") if quick else ("--full", "--quick")
        raise ScenarioError(f"reproduce --keep: found {found}, expected {expected} as in the kept results {name}")
    for about, of in study.comparisons.items():
        absent = [id_ for id_ in of if id_ not in ids]
        if absent and len(absent) < len(of):
            also = f"expected {', '.join(absent)} too"
            raise ScenarioError(f"reproduce --keep: found a part of the comparison {about}, {also}")


def digest(rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns a digest of verdicts and numbers of a scorecard's rows, with the precision of kept results."""
    return _digest(_csv(_lines(rows)))


def load(study: Study, name: str) -> dict[str, Any]:
    """Returns kept results as a scorecard's dict, with the parts that a page quotes.

    Raises:
        ResultError: the files cannot be read.
        ScenarioError: a file of the study is invalid.
    """
    card, found = _read(study, name)
    known, index = study.experiments(card["reading"]), entries(study.folder.parent)
    experiments: dict[str, dict[str, Any]] = card.pop("experiments")
    card["paper"] = study.paper
    card["rows"] = [
        _row(known[id_], each, found.get(id_, []), card["reading"], study.causes) | {"further": id_ not in index}
        for id_, each in experiments.items()
    ]
    return card


def names(study: Study) -> list[str]:
    """Returns the names of a study's kept results: its default reading, other readings, other drivers."""
    found = [file.stem for file in (study.folder / FOLDER).glob("*.toml")]
    return sorted(found, key=lambda name: (name != study.reading, name not in study.readings, name))


def stored_rows(study: Study, name: str) -> list[dict[str, Any]]:
    """Returns short kept rows: verdict, whether only checks decide it, and the numbers of claims that hold and of all.

    Raises:
        ResultError: the files cannot be read.
        ScenarioError: a file of the study is invalid.
    """
    card = load(study, name)
    found = []
    for row in card["rows"]:
        role = role_of(claim["role"] for claim in row["claims"])
        counted = [claim for claim in row["claims"] if claim["role"] == role]
        found.append(
            {
                "id": row["id"],
                "paper": study.paper,
                "kept": name,
                "quick": card["quick"],
                "verdict": row["verdict"],
                "check": role is Role.CHECK,
                "role": str(role),
                "further": row["further"],
                "claims_held": sum(claim["verdict"] == Holds.YES for claim in counted),
                "claims": len(counted),
                "open": sum(claim["status"] == Status.OPEN for claim in counted),
            }
        )
    return found


def check(words: str) -> str:
    """Returns a digest of a claim's words."""
    return hashlib.sha256(words.encode()).hexdigest()[:8]


def _name(card: Mapping[str, Any]) -> str:
    drivers = {row["driver"] for row in card["rows"] if row.get("driver", "simulation") != "simulation"}
    return "-".join([card["reading"], *sorted(drivers)])


def _read(study: Study, name: str) -> tuple[dict[str, Any], dict[str, list[dict[str, str]]]]:
    place = study.folder / FOLDER
    try:
        card = tomllib.loads((place / f"{name}.toml").read_text(encoding="utf-8"))
        with (place / f"{name}.csv").open(encoding="utf-8", newline="") as lines:
            found: dict[str, list[dict[str, str]]] = {}
            for line in csv.DictReader(lines):
                found.setdefault(line["id"], []).append(line)
    except (OSError, ValueError, KeyError) as error:
        raise ResultError(f"{place / name}: cannot read the kept results: {error}") from error
    return card, found


def _files(
    name: str,
    of: tuple[str, bool],
    comparisons: Mapping[str, Mapping[str, float]],
    experiments: Mapping[str, Mapping[str, Any]],
    lines: Mapping[str, Sequence[Mapping[str, str]]],
) -> dict[str, bytes]:
    reading, quick = of
    table = _csv(lines)
    head = {
        "reading": reading,
        "quick": quick,
        "claims": sum(each["claims"] for each in experiments.values()),
        "held": sum(each["held"] for each in experiments.values()),
        "digest": _digest(table),
        "comparisons": comparisons,
    }
    rows = [f'"{id_}" = {_inline(each)}\n' for id_, each in experiments.items()]
    text = f"{tomli_w.dumps(head)}\n[experiments]\n{''.join(rows)}"
    return {f"{name}.toml": text.encode(), f"{name}.csv": table.encode()}


def _digest(table: str) -> str:
    return f"sha256:{hashlib.sha256(table.encode()).hexdigest()}"


def _experiment(row: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "verdict": row["verdict"],
        "held": sum(claim["verdict"] == Holds.YES for claim in row["claims"]),
        "claims": len(row["claims"]),
    }
    if row["published"]:
        found["published"] = row["published"]["median"]
    if row.get("simulated"):
        found["simulated"] = list(row["simulated"])
    return found


def _inline(table: Mapping[str, Any]) -> str:
    cells = (f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in table.items())
    return f"{{ {', '.join(cells)} }}"


def _short(found: Mapping[str, float]) -> dict[str, float]:
    return {key: value if isinstance(value, int) else float(f"{value:.{_DIGITS}g}") for key, value in found.items()}


def _lines(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[dict[str, str]]]:
    return {row["id"]: [_line(row["id"], number, each) for number, each in enumerate(row["claims"], 1)] for row in rows}


def _line(id_: str, number: int, claim: Mapping[str, Any]) -> dict[str, str]:
    values = (claim["ours"], claim["low"], claim["high"], *claim["wanted"])
    cells = ("" if value is None else f"{value:.{_DIGITS}g}" for value in values)
    stated = (check(claim["words"]), claim["verdict"], claim["compared"], claim["comparisons"])
    return {name: str(cell) for name, cell in zip(_COLUMNS, (id_, number, *stated, *cells), strict=True)}


def _csv(lines: Mapping[str, Sequence[Mapping[str, str]]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(line for each in lines.values() for line in each)
    return text.getvalue()


def _row(
    experiment: Experiment,
    kept: Mapping[str, Any],
    lines: Sequence[Mapping[str, str]],
    reading: str,
    causes: Mapping[str, Cause],
) -> dict[str, Any]:
    """Returns a row of a scorecard with words from the study's files; the verdict counts present findings only."""
    claims: list[dict[str, Any]] = []
    for claim, line in zip(experiment.claims, lines, strict=False):
        cause = claim.explanation(reading, causes) if line["verdict"] == Holds.NO else None
        ours, low, high, at_least, at_most = (float(line[name]) if line[name] else None for name in _NUMBERS)
        claims.append(
            {
                "words": claim.words,
                "kind": claim.kind,
                "verdict": line["verdict"],
                "compared": line["compared"],
                "comparisons": int(line["comparisons"]),
                "theirs": claim.theirs if math.isfinite(claim.theirs) else None,
                "ours": ours,
                "low": low,
                "high": high,
                "wanted": (at_least, at_most),
                "known": cause.text if cause else "",
                "cause": cause.name if cause else "",
                "status": str(cause.status) if cause else "",
                "role": str(claim.role),
            }
        )
    judged = str(overall([(claim["role"], claim["verdict"]) for claim in claims]))
    return {
        "id": experiment.id,
        "figure": experiment.figure,
        "finding": experiment.finding,
        "verdict": judged if kept["verdict"] in set(Holds) and kept["verdict"] != Holds.FAILED else kept["verdict"],
        "published": {"median": kept["published"]} if "published" in kept else None,
        "simulated": kept.get("simulated", []),
        "claims": claims,
        "checks": [line["check"] for line in lines],
    }
