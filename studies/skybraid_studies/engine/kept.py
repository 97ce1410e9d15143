"""Kept results of a study: for each reading the numbers that its page quotes, in two small files that git can hold.

`results/READING.toml` has what belongs to the whole and a line for each experiment, `results/READING.csv` a line for
each claim. What a claim says is not repeated: `check` is a digest of its words, and `digest` one of the CSV file, so
that a later run can be compared.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import tomllib
from typing import TYPE_CHECKING, Any

import tomli_w

from skybraid.model.errors import ResultError
from skybraid_studies.engine.causes import Status
from skybraid_studies.engine.claims import Holds, Role
from skybraid_studies.engine.index import entries
from skybraid_studies.engine.scorecard import overall, role_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from skybraid_studies.engine.causes import Cause
    from skybraid_studies.engine.experiment import Experiment, Study

FOLDER = "results"
"""Folder of kept results inside a study, and inside a study's output."""

_NUMBERS = ("ours", "low", "high", "at_least", "at_most")
_COLUMNS = ("id", "claim", "check", "verdict", "compared", "comparisons", *_NUMBERS)
_DIGITS = 9


def files(card: Mapping[str, Any]) -> dict[str, bytes]:
    """Returns the files of a scorecard, as `Scorecard.to_dict` gives it, by name."""
    rows: Sequence[Mapping[str, Any]] = card["rows"]
    drivers = sorted({row["driver"] for row in rows if row.get("driver", "simulation") != "simulation"})
    name = "-".join([card["reading"], *drivers])
    claims = [claim for row in rows for claim in row["claims"]]
    head = {
        "reading": card["reading"],
        "quick": card["quick"],
        "runs": card["runs"],
        "claims": len(claims),
        "held": sum(claim["verdict"] == Holds.YES for claim in claims),
        "digest": digest(rows),
        "comparisons": {about: _short(found) for about, found in card["comparisons"].items()},
    }
    lines = [f'"{row["id"]}" = {_inline(_experiment(row))}\n' for row in rows]
    text = f"{tomli_w.dumps(head)}\n[experiments]\n{''.join(lines)}"
    return {f"{name}.toml": text.encode(), f"{name}.csv": _csv(rows).encode()}


def digest(rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns a digest of the verdicts and numbers of a scorecard's rows, with as many digits as are kept."""
    return f"sha256:{hashlib.sha256(_csv(rows).encode()).hexdigest()}"


def load(study: Study, name: str) -> dict[str, Any]:
    """Returns kept results as a scorecard, with as much of `Scorecard.to_dict` as a page quotes.

    Raises:
        ResultError: the files cannot be read.
        ScenarioError: a file of the study is not correct.
    """
    place = study.folder / FOLDER
    try:
        card = tomllib.loads((place / f"{name}.toml").read_text(encoding="utf-8"))
        with (place / f"{name}.csv").open(encoding="utf-8", newline="") as lines:
            found: dict[str, list[dict[str, Any]]] = {}
            for line in csv.DictReader(lines):
                found.setdefault(line["id"], []).append(line)
    except (OSError, ValueError, KeyError) as error:
        raise ResultError(f"{place / name}: cannot read the kept results: {error}") from error
    known, index = study.experiments(card["reading"]), entries(study.folder.parent)
    experiments: dict[str, dict[str, Any]] = card.pop("experiments")
    card["paper"] = study.paper
    card["rows"] = [
        _row(known[id_], each, found.get(id_, []), card["reading"], study.causes) | {"further": id_ not in index}
        for id_, each in experiments.items()
    ]
    return card


def names(study: Study) -> list[str]:
    """Returns the names of a study's kept results: that of its own reading, the other readings, other drivers."""
    found = [file.stem for file in (study.folder / FOLDER).glob("*.toml")]
    return sorted(found, key=lambda name: (name != study.reading, name not in study.readings, name))


def told(study: Study, name: str) -> list[dict[str, Any]]:
    """Returns kept rows in short: verdict, whether checks alone decide it, and how many claims hold of how many.

    Raises:
        ResultError: the files cannot be read.
        ScenarioError: a file of the study is not correct.
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


def _csv(rows: Sequence[Mapping[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for row in rows:
        for number, claim in enumerate(row["claims"], 1):
            values = (claim["ours"], claim["low"], claim["high"], *claim["wanted"])
            cells = ("" if value is None else f"{value:.{_DIGITS}g}" for value in values)
            told = (check(claim["words"]), claim["verdict"], claim["compared"], claim["comparisons"])
            writer.writerow([row["id"], number, *told, *cells])
    return text.getvalue()


def _row(
    experiment: Experiment,
    kept: Mapping[str, Any],
    lines: Sequence[Mapping[str, str]],
    reading: str,
    causes: Mapping[str, Cause],
) -> dict[str, Any]:
    """A row of a scorecard, its words from the study's files; the verdict is that of what are findings by now."""
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
