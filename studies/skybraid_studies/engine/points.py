"""Runs and calculations of studies, each made once and stored in a folder.

Its key covers all inputs, the code included, so that outdated results are never reused.
"""

from __future__ import annotations

import hashlib
import json
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, cast

from skybraid import _core
from skybraid.execute import emulation as emulating
from skybraid.execute.runs import simulation
from skybraid.execute.store import Cadence, Store
from skybraid.gateway import flight
from skybraid.model.heavy import pl
from skybraid.model.provenance import replay_command
from skybraid_studies.engine import measure, observe, theory
from skybraid_studies.engine.measure import Kept, Recording

if TYPE_CHECKING:
    from skybraid._core import Run
    from skybraid.execute.pool import Report
    from skybraid.model.scenario import Scenario

SIMULATION, EMULATION, GATEWAY = "simulation", "emulation", "gateway"
"""Drivers of runs."""

_CALCULATION_S = 20.0
"""Weight of a calculation in estimates of the remaining time, in s of simulated time."""

_ABANDONED_S = 3600.0
_FIRST_PART_S = 0.25

TABLE = "points"
"""Folder of the table of finished runs and calculations, inside an output."""


_ENGINE = "skybraid."
_STUDIES = "skybraid_studies."

_CALCULATING = threading.Lock()
"""Serialises calculations: they are Python, and a study's author need not care about threads."""


def _schema() -> dict[str, pl.DataType]:
    return {"key": pl.String(), "wall_s": pl.Float64(), "replay": pl.String(), "kept": pl.String()}


@dataclass(slots=True)
class Point:
    """Required run: a scenario and a seed.

    Attributes:
        key: key of the result.
        scenario: scenario of the run.
        seed: random seed.
        driver: `SIMULATION`, `EMULATION` or `GATEWAY`.
        recording: contents of the record.
        judged: evaluated flow, which a gateway must transport as in the scenario.
        again: command that repeats the run with gateways.
    """

    key: str
    scenario: Scenario
    seed: int
    driver: str = SIMULATION
    recording: Recording = field(default_factory=Recording)
    judged: str = ""
    again: str = ""

    @property
    def length_s(self) -> float:
        """Duration of the run in simulated time, in s."""
        return self.scenario.duration_s

    @property
    def replay(self) -> str:
        """Command that repeats the run."""
        if self.driver == GATEWAY:
            return self.again
        return replay_command(self.scenario, [self.seed], "emulate" if self.driver == EMULATION else "run")

    def make(self, report: Report) -> Kept:
        """Executes the run; returns its record."""
        if self.driver == GATEWAY:
            return self._by_gateways(report)
        if self.driver == EMULATION:
            driver = emulating.emulator(self.scenario, emulating.Options())
        else:
            driver = simulation(self.scenario)
        run, emulation = driver.make(self.seed, self.recording.tables, report, None, None)
        kept = self._keep(run)
        if emulation is not None:
            kept["emulation"] = {name: emulation.get(name) for name in ("stacks", "doubtful")}
        return kept

    def _by_gateways(self, report: Report) -> Kept:
        flown = flight.fly(self.scenario, self.seed, self.judged, report)
        doubtful = flown.facts["emulation"]["doubtful"]
        # `GatewayRun` has the interface of a finished run that is used here.
        kept = self._keep(cast("Run", flown))
        return kept | {"gateway": {"words": flown.facts["words"], "doubtful": doubtful, "cpu_s": flown.facts["cpu_s"]}}

    def _keep(self, run: Run) -> Kept:
        return self.recording.take(run, self.scenario) | {"recording": asdict(self.recording), "code": self._code()}

    def accepts(self, kept: Kept) -> bool:
        """Whether a record is complete and was read by the present code; if so, adopts its recording."""
        was = kept["recording"]
        recording = Recording(
            tuple(was["checkpoints_s"]), was["receivers"], was["last"], tuple(was["times_s"]), tuple(was["observed"])
        )
        if not recording.covers(self.recording) or not self._code().items() <= kept["code"].items():
            return False
        self.recording = recording
        return True

    def _code(self) -> dict[str, str]:
        names = {json.loads(spec)[0] for spec in self.recording.observed}
        reads = {name: _digest_of(observe.observations()[name].read) for name in names}
        return reads | {"": _digest(measure.__file__) + _digest(observe.__file__)}


@dataclass(slots=True)
class Calculation:
    """Required calculation, at all values of a sweep and for all seeds.

    Attributes:
        key: key of the result.
        name: name of the registered calculation.
        xs: values of the sweep.
        seeds: random seeds.
        replay: command that repeats it.
    """

    key: str
    name: str
    xs: tuple[float, ...]
    seeds: tuple[int, ...]
    replay: str

    @property
    def length_s(self) -> float:
        """Weight of the calculation in s of simulated time."""
        return _CALCULATION_S

    def make(self, report: Report) -> Kept:
        """Executes the calculation; returns its values."""
        with _CALCULATING:
            values = [[theory.compute(self.name, x, seed) for x in self.xs] for seed in self.seeds]
        report(_CALCULATION_S)
        return {"values": values, "wall_s": 0.0}

    def accepts(self, kept: Kept) -> bool:
        """Whether a record has a value for each seed."""
        return len(kept["values"]) == len(self.seeds)


Job = Point | Calculation


def point_keys(scenario: Scenario, seeds: tuple[int, ...], driver: str, *more: str) -> dict[int, str]:
    """Returns the keys of a scenario's runs by seed; runs with the same key have the same results.

    `more` has further inputs.
    """
    of = [engine(), scenario.toml(), scenario.inputs(), driver, *more]
    base = hashlib.sha256(json.dumps(of).encode()).hexdigest()
    return {seed: hashlib.sha256(f"{base} {seed}".encode()).hexdigest()[:24] for seed in seeds}


def calculation_key(name: str, xs: tuple[float, ...], seeds: tuple[int, ...]) -> str:
    """Returns the key of a calculation, which includes the module that defines it."""
    of = [engine(), name, _digest_of(theory.find(name)), xs, seeds]
    return hashlib.sha256(json.dumps(of).encode()).hexdigest()[:24]


@cache
def engine() -> str:
    """Returns the engine's version with a digest of the native module, which may change within a version."""
    return f"{_core.__version__} {_digest(_core.__file__)}"


@cache
def _digest(file: str) -> str:
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()[:24]


def _digest_of(function: Callable[..., float]) -> str:
    """Returns a digest of a function's module and of the modules of Skybraid that it uses."""
    return _digest_of_modules(function.__module__)


@cache
def _digest_of_modules(name: str) -> str:
    files = sorted(_files(name, set()))
    return hashlib.sha256("".join(map(_digest, files)).encode()).hexdigest()[:24]


def _files(name: str, seen: set[str]) -> set[str]:
    """Returns the files of a module, and recursively of the studies' modules that it imports."""
    module = sys.modules.get(name)
    file = getattr(module, "__file__", None)
    if module is None or file is None or name in seen:
        return set()
    seen.add(name)
    found = {str(file)}
    if not name.startswith(_ENGINE):
        for value in vars(module).values():
            used = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
            if isinstance(used, str) and used.startswith((_ENGINE, _STUDIES)):
                found |= _files(used, seen)
    return found


class Points:
    """Finished runs and calculations in a folder, as parts of one table; as a context manager it is flushed at the end.

    Args:
        folder: folder of the table; other processes may add to it concurrently.
    """

    def __init__(self, folder: Path) -> None:
        self._store = Store.at(folder, tables=(TABLE,), noun="the result")
        self._folder = folder / TABLE
        self._cadence = Cadence(_FIRST_PART_S)
        self._rows: list[tuple[str, float, str, str]] = []

    def __enter__(self) -> Points:
        return self

    def __exit__(self, *_: object) -> None:
        self.flush()

    def found(self, jobs: Mapping[str, Job]) -> dict[str, Kept]:
        """Returns the stored, complete results of jobs, by key.

        Raises:
            ResultError: the folder cannot be read.
        """
        self._clean()
        self._store.set_damaged_aside()
        rows = (
            self._store.scan(TABLE, _schema()).filter(pl.col("key").is_in(list(jobs))).select("key", "kept").collect()
        )
        found: dict[str, Kept] = {}
        # A later part may have a more complete record of the same run.
        for key, text in reversed(rows.rows()):
            if key not in found and (kept := _accepted(jobs[key], text)) is not None:
                found[key] = kept
        return found

    def add(self, job: Job, kept: Kept) -> None:
        """Adds a finished job; it is written with the next part.

        Raises:
            ResultError: a file cannot be written.
        """
        self._rows.append((job.key, float(kept["wall_s"]), job.replay, json.dumps(kept)))
        if self._cadence.is_due:
            self.flush()

    def flush(self) -> None:
        """Writes added jobs atomically.

        Raises:
            ResultError: a file cannot be written.
        """
        rows, self._rows = self._rows, []
        if rows:
            self._store.write_part({TABLE: pl.DataFrame(rows, schema=_schema(), orient="row")})
        self._cadence.on_written()

    def _clean(self) -> None:
        """Removes temporary files of dead processes: no file takes an hour to write."""
        for file in self._folder.glob(".*.partial"):
            with suppress(OSError):
                if time.time() - file.stat().st_mtime > _ABANDONED_S:
                    file.unlink()


def _accepted(job: Job, text: str) -> Kept | None:
    """Returns the record of a job; None if it is incomplete."""
    try:
        kept: Kept = json.loads(text)
        return kept if job.accepts(kept) else None
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
