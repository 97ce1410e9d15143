"""Results of runs, and the tables behind them."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import skybraid
from skybraid.model import tables as table_files
from skybraid.model.errors import MissingTableError, ResultError, meant_by
from skybraid.model.folder import MANIFEST, new_folder
from skybraid.model.heavy import pl
from skybraid.model.provenance import footer
from skybraid.model.requirements import Requirement
from skybraid.model.statistics import Verdict
from skybraid.model.summary import TOTALS, Flight, FlowSummary, frames_in_time_of, video_columns

if TYPE_CHECKING:
    from skybraid._core import Run

SUMMARY = "summary.json"
SCENARIO = "scenario.toml"
PROVENANCE = "provenance.json"

_SHOWN_REQUIREMENTS = 6

_ESSENCE = ("version", "driver", "scenario", "seeds", "inputs")


class Tables(Mapping[str, "pl.DataFrame"]):
    """Tables by name, read on first use.

    `tables["messages"]` is a polars frame; `tables.scan("messages")` is lazy and reads only what a query needs. Over
    several runs the tables carry a column `seed`.
    """

    def __init__(self) -> None:
        self._files: dict[str, Path] = {}
        self._runs: dict[str, list[tuple[int | None, Run]]] = {}
        self._frames: dict[str, pl.DataFrame] = {}

    def add_run(self, table: str, run: Run, seed: int | None) -> None:
        """Adds rows that a run holds in memory."""
        self._runs.setdefault(table, []).append((seed, run))

    def add_file(self, table: str, path: Path) -> None:
        """Registers the Parquet file of a table, or the folder with one file per seed."""
        self._files[table] = path

    @property
    def files(self) -> dict[str, Path]:
        """Files of the tables on disk."""
        return dict(self._files)

    def scan(self, table: str) -> pl.LazyFrame:
        """Returns a table as a lazy frame.

        Raises:
            MissingTableError: the result does not have it.
            ResultError: its file is damaged.
        """
        if table in self._files:
            path = self._files[table]
            for file in sorted(path.glob("*.parquet")) if path.is_dir() else [path]:
                _refuse_damaged(file)
            return pl.scan_parquet(path / "*.parquet" if path.is_dir() else path, glob=True)
        if table in self._runs:
            parts = [part for seed, run in self._runs[table] for part in table_files.frames(run, table, seed)]
            self._frames[table] = pl.concat(parts)
            del self._runs[table]
        if table in self._frames:
            return self._frames[table].lazy()
        kept = ", ".join(self) or "none"
        raise MissingTableError(f"table {table}: this result does not contain it; found {kept}")

    def parts(self, table: str) -> Iterator[tuple[int | None, Iterator[pl.DataFrame]]]:
        """Iterates over a table's rows in batches, run by run (seed None: all in one)."""
        if table in self._runs:
            for seed, run in self._runs[table]:
                yield seed, table_files.frames(run, table, seed)
        else:
            frame = self.scan(table).collect()
            yield None, iter([frame])

    def read(self) -> None:
        """Reads every table into memory, after which its file may go."""
        for table in list(self._files):
            self._frames[table] = self.scan(table).collect()
            del self._files[table]

    def moved(self, table: str, path: Path) -> None:
        """Records that a table's rows were moved into a file."""
        self._runs.pop(table, None)
        self._frames.pop(table, None)
        self._files[table] = path

    def __getitem__(self, table: str) -> pl.DataFrame:
        return self.scan(table).collect()

    def __contains__(self, table: object) -> bool:
        # A mapping's own would read the whole table.
        return table in self._files or table in self._runs or table in self._frames

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._files, *self._runs, *self._frames]))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __repr__(self) -> str:
        return f"Tables({', '.join(self)})"


@dataclass(frozen=True, slots=True)
class Results:
    """Result of one scenario over one or several runs.

    Attributes:
        name: the scenario's name.
        scenario: the effective scenario as TOML.
        requirements: each requirement judged on all runs together.
        flows: summaries of the flows, by name.
        flights: each run by itself.
        provenance: origin of the result; only `provenance["circumstances"]` varies between equal runs.
        tables: the tables that were kept.
        folder: the result's folder on disk, or None.
    """

    name: str
    scenario: str
    requirements: tuple[Requirement, ...]
    flows: dict[str, FlowSummary]
    flights: tuple[Flight, ...]
    provenance: dict[str, Any]
    tables: Tables = field(default_factory=Tables)
    folder: Path | None = None

    def __repr__(self) -> str:
        runs = "1 run" if len(self.flights) == 1 else f"{len(self.flights)} runs"
        lines = [f"Results({self.name!r}: {runs}, {self.verdict}; flows: {', '.join(self.flows) or 'none'})"]
        shown = self.requirements[:_SHOWN_REQUIREMENTS]
        lines += [f"  {requirement}" for requirement in shown]
        if len(self.requirements) > len(shown):
            lines.append(f"  and {len(self.requirements) - len(shown)} more requirements")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Renders the summary for a notebook, as a table."""
        runs = "1 run" if len(self.flights) == 1 else f"{len(self.flights)} runs"
        title = escape(f"{self.name}: {runs}, {self.verdict}")
        rows = "".join(
            f"<tr><td>{escape(requirement.flow)}</td><td>{requirement.verdict}</td>"
            f"<td>{escape(requirement.words)}</td></tr>"
            for requirement in self.requirements[:_SHOWN_REQUIREMENTS]
        )
        return f"<table><caption>{title}</caption>{rows}</table>"

    @property
    def seeds(self) -> list[int]:
        """Seeds of the runs."""
        return [flight.seed for flight in self.flights]

    @property
    def simulated_s(self) -> float:
        """Time in s over all runs, simulated or emulated."""
        return sum(flight.simulated_s for flight in self.flights)

    @property
    def packet_hops(self) -> int:
        """Packets that a link was offered, over all runs."""
        return sum(flight.packet_hops for flight in self.flights)

    @property
    def driver(self) -> str:
        """Driver of the runs: "simulation", or "emulation" (in real time through the kernel)."""
        return str(self.provenance.get("driver", "simulation"))

    @property
    def notices(self) -> list[str]:
        """Notices about how the runs were made."""
        return [str(words) for words in self.provenance.get("notices", ())]

    @property
    def wall_s(self) -> float:
        """Wall time in s."""
        return float(self.provenance["circumstances"]["wall_s"])

    @property
    def verdict(self) -> Verdict:
        """Worst verdict of all requirements; met if there are none."""
        found = {requirement.verdict for requirement in self.requirements}
        worst = (Verdict.NOT_MET, Verdict.INCONCLUSIVE)
        return next((verdict for verdict in worst if verdict in found), Verdict.MET)

    @property
    def paths(self) -> list[str]:
        """Names of the paths, in the order of the scenario."""
        return list(dict.fromkeys(str(link["path"]) for link in self.links()))

    def links(self) -> list[dict[str, Any]]:
        """Totals of each link direction over all runs: path, direction and counters."""
        totals: dict[tuple[str, str], dict[str, Any]] = {}
        for link in (link for flight in self.flights for link in flight.links):
            key = (str(link["path"]), str(link["direction"]))
            total = totals.setdefault(key, {"path": key[0], "direction": key[1]})
            for name, value in link.items():
                if isinstance(value, int | float):
                    total[name] = total.get(name, 0) + value
        return list(totals.values())

    def json(self) -> dict[str, Any]:
        """Returns the result as plain values, as `skybraid run --json` prints it."""
        flows = {name: flow.to_dict() for name, flow in self.flows.items()}
        for flow in flows.values():
            del flow["delay_tail"]
        return {
            "name": self.name,
            "version": self.provenance["version"],
            "driver": self.driver,
            "seed": self.seeds[0],
            "seeds": self.seeds,
            "verdict": str(self.verdict),
            "notices": self.notices,
            "requirements": [requirement.to_dict() for requirement in self.requirements],
            "flows": flows,
            "simulated_s": self.simulated_s,
            "wall_s": self.wall_s,
            "packet_hops": self.packet_hops,
            "links": self.links(),
            "emulation": self.flights[0].emulation,
            "folder": None if self.folder is None else str(self.folder),
            "tables": {name: str(path) for name, path in self.tables.files.items()},
        }

    def summary_frame(self) -> pl.DataFrame:
        """Returns requirements as a frame: over all runs (seed null) and, for several runs, over each one."""
        rows = [{"seed": None} | requirement.to_dict() for requirement in self.requirements]
        if len(self.flights) > 1:
            rows += [
                {"seed": flight.seed} | requirement.to_dict()
                for flight in self.flights
                for requirement in flight.requirements
            ]
        schema: dict[str, pl.DataType | type[pl.DataType]] = {
            "seed": pl.UInt64,
            "flow": pl.String,
            "metric": pl.String,
            "deadline_ms": pl.Float64,
            "target": pl.Float64,
            "estimate": pl.Float64,
            "low": pl.Float64,
            "high": pl.Float64,
            "trials": pl.UInt64,
            "verdict": pl.Enum([str(verdict) for verdict in Verdict]),
            "needed_s": pl.Float64,
            "missed": pl.UInt64,
            "episodes": pl.UInt64,
            "span_s": pl.Float64,
            "runs": pl.UInt64,
            "ssim": pl.Float64,
        }
        return pl.DataFrame(rows, schema=schema)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Offers `summary_frame` to whatever reads Arrow, as the frames of `tables` do.

        That is `pyarrow.table(results)`, with pyarrow also `pandas.DataFrame.from_arrow(results)`, and a query of
        `duckdb` with the name of the variable as table.
        """
        return self.summary_frame().__arrow_c_stream__(requested_schema)

    def flows_frame(self) -> pl.DataFrame:
        """Returns flows as a frame: one row per flow and run, single flows of groups included.

        What only a video has is there where a flow is one.
        """
        of_video = any(flow.video is not None for flow in self.flows.values())
        rows = [
            {"seed": flight.seed, "flow": name}
            | {total: getattr(flow, total) for total in TOTALS}
            | {"goodput_bps": flow.goodput_bps}
            | {f"delay_{percentile}_ms": delay for percentile, delay in flow.delay_ms.items()}
            | {f"lost_{cause}": float(number) for cause, number in flow.lost_by_cause.items()}
            | (video_columns(flow.video) | frames_in_time_of(flight, name) if of_video else {})
            | {f"share_{path}": share for path, share in flow.share.items()}
            | {f"won_{path}": share for path, share in flow.won.items()}
            for flight in self.flights
            for name, flow in (flight.flows | flight.members).items()
        ]
        return pl.DataFrame(rows, infer_schema_length=None, schema_overrides={"seed": pl.UInt64})

    def save(self, folder: str | os.PathLike[str]) -> Results:
        """Writes the result into a new folder and returns the result opened from there.

        Raises:
            ResultError: the folder holds something already, or cannot be written; nothing is left behind.
        """
        target = Path(folder)
        with new_folder(target) as aside:
            moved = {}
            for table in self.tables:
                for seed, batches in self.tables.parts(table):
                    moved[table] = write_table(aside, table, seed, batches, self.provenance)
            self.write_summary(aside, parquet=True)
        for table, path in moved.items():
            self.tables.moved(table, target / path.name)
        return Results.open(target)

    def write_summary(self, folder: Path, *, parquet: bool) -> None:
        """Writes everything except the tables: verdicts, scenario and provenance.

        Args:
            folder: exists already.
            parquet: also as `summary.parquet` and `flows.parquet`, next to the JSON.

        Raises:
            OSError: the folder cannot be written.
        """
        summary = {
            "name": self.name,
            "requirements": [requirement.to_dict() for requirement in self.requirements],
            "flows": {name: flow.to_dict() for name, flow in self.flows.items()},
            "flights": [flight.to_dict() for flight in self.flights],
        }
        (folder / SUMMARY).write_text(_json(summary), encoding="utf-8")
        (folder / SCENARIO).write_text(self.scenario, encoding="utf-8")
        (folder / PROVENANCE).write_text(_json(self.provenance), encoding="utf-8")
        if parquet:
            write_table(folder, "summary", None, iter([self.summary_frame()]), self.provenance)
            write_table(folder, "flows", None, iter([self.flows_frame()]), self.provenance)

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Writes one self-contained HTML file and returns its path.

        Raises:
            ResultError: the file cannot be written.
        """
        return skybraid.report.write_report(self, Path(path))

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Self:
        """Opens a result folder.

        Raises:
            ResultError: there is no result in it, or it is damaged.
        """
        path = Path(folder)
        try:
            summary = json.loads((path / SUMMARY).read_text(encoding="utf-8"))
            provenance = json.loads((path / PROVENANCE).read_text(encoding="utf-8"))
            scenario = (path / SCENARIO).read_text(encoding="utf-8")
        except PermissionError as error:
            raise ResultError(f"{error.filename}: cannot be read: {error.strerror}") from error
        except OSError as error:
            meant = "" if path.exists() else meant_by(path)
            found = _found_at(path, error)
            raise ResultError(f"{path}: found {found}, expected the folder of a result{meant}") from error
        except ValueError as error:
            raise ResultError(f"{path}: the result is damaged: {error}") from error
        try:
            results = cls(
                name=summary["name"],
                scenario=scenario,
                requirements=tuple(Requirement.from_dict(values) for values in summary["requirements"]),
                flows={name: FlowSummary.from_dict(values) for name, values in summary["flows"].items()},
                flights=tuple(Flight.from_dict(values) for values in summary["flights"]),
                provenance=provenance,
                folder=path,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ResultError(f"{path / SUMMARY}: the result is damaged: {error!r}") from error
        if hashlib.sha256(scenario.encode()).hexdigest() != provenance["scenario"]["sha256"]:
            raise ResultError(f"{path / SCENARIO}: found a changed text, expected the scenario that was run")
        for table in (*table_files.ALL, "summary", "flows"):
            for candidate in (path / f"{table}.parquet", path / table):
                if candidate.exists():
                    results.tables.add_file(table, candidate)
        return results


def write_table(
    folder: Path,
    table: str,
    seed: int | None,
    batches: Iterator[pl.DataFrame],
    provenance: Mapping[str, Any],
) -> Path:
    """Writes rows of a table into a result folder: `messages.parquet`, or `messages/seed-7.parquet` of several runs.

    Gives the file, or the folder of files.

    Raises:
        OSError: the file cannot be written.
    """
    essence = {key: provenance[key] for key in _ESSENCE if key in provenance}
    path = folder / f"{table}.parquet" if seed is None else folder / table / f"seed-{seed}.parquet"
    path.parent.mkdir(exist_ok=True)
    table_files.write(batches, path, footer(essence))
    return path if seed is None else path.parent


def _found_at(path: Path, error: OSError) -> str:
    """Describes a path at which no result can be opened."""
    if not path.exists():
        return "no such folder"
    if path.is_file():
        return "a file"
    if (path / MANIFEST).exists():
        return "a campaign"
    return f"no {error.filename}"


def _refuse_damaged(file: Path) -> None:
    """Raises if a Parquet file is truncated or overwritten."""
    try:
        pl.read_parquet_schema(file)
    except OSError as error:
        reason = str(error).partition(" (os error")[0]
        raise ResultError(f"{file}: cannot read the table: {error.strerror or reason}") from error
    except pl.exceptions.PolarsError as error:
        words = str(error).splitlines()[0] if str(error) else type(error).__name__
        advice = "`replay` in provenance.json is the command that makes the result again"
        raise ResultError(f"{file}: the table is damaged: {words}; {advice}") from error


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
