"""What a study has to have worked out: runs of scenarios and calculations, each once, and kept in a folder.

What is kept is named by all that it depends on, the code included, so that nothing old is taken for new.
"""

from __future__ import annotations

import hashlib
import json
import sys
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, cast

from skybraid import _core
from skybraid.execute import emulation as emulating
from skybraid.execute.runs import simulation
from skybraid.gateway import flight
from skybraid.model.folder import write_whole
from skybraid.model.provenance import replay_command
from skybraid_studies.engine import measure, observe, theory
from skybraid_studies.engine.measure import Kept, Recording

if TYPE_CHECKING:
    from collections.abc import Callable

    from skybraid._core import Run
    from skybraid.execute.runs import Report
    from skybraid.model.scenario import Scenario

SIMULATION, EMULATION, GATEWAY = "simulation", "emulation", "gateway"
"""What makes a run."""

_CALCULATION_S = 20.0
"""What a calculation counts for in the time that is left, in s of simulated time."""

_ABANDONED_S = 3600.0

_ENGINE = "skybraid."
_STUDIES = "skybraid_studies."

_CALCULATING = threading.Lock()
"""One calculation at a time: they are Python, and a study's author need not think of threads."""


@dataclass(slots=True)
class Point:
    """A run that is needed: a scenario and a seed.

    Attributes:
        key: names it.
        scenario: what is flown.
        seed: root of its random streams.
        driver: `SIMULATION`, `EMULATION` or `GATEWAY`.
        recording: what is read from it.
        judged: the flow that is looked at, which a gateway has to carry as the scenario says.
        again: the command that has gateways fly it again.
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
        """How long it is in its own time, in s."""
        return self.scenario.duration_s

    @property
    def replay(self) -> str:
        """The command that flies it again."""
        if self.driver == GATEWAY:
            return self.again
        return replay_command(self.scenario, [self.seed], "emulate" if self.driver == EMULATION else "run")

    def make(self, report: Report) -> Kept:
        """Flies it."""
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
        # What gateways flew has what is read here of a finished run.
        kept = self._keep(cast("Run", flown))
        return kept | {"gateway": {"words": flown.facts["words"], "doubtful": doubtful, "cpu_s": flown.facts["cpu_s"]}}

    def _keep(self, run: Run) -> Kept:
        return self.recording.take(run, self.scenario) | {"recording": asdict(self.recording), "code": self._code()}

    def accepts(self, kept: Kept) -> bool:
        """Whether what was kept has all that is needed, read by the code that reads it now; takes its recording."""
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
    """A calculation that is needed, at all values of a sweep and for all seeds.

    Attributes:
        key: names it.
        name: of the registered calculation.
        xs: the sweep's values.
        seeds: the seeds.
        replay: the command that does it again.
    """

    key: str
    name: str
    xs: tuple[float, ...]
    seeds: tuple[int, ...]
    replay: str

    @property
    def length_s(self) -> float:
        """What it counts for, in s of simulated time."""
        return _CALCULATION_S

    def make(self, report: Report) -> Kept:
        """Does it."""
        with _CALCULATING:
            values = [[theory.compute(self.name, x, seed) for x in self.xs] for seed in self.seeds]
        report(_CALCULATION_S)
        return {"values": values, "wall_s": 0.0}

    def accepts(self, kept: Kept) -> bool:
        """Whether what was kept is one of these."""
        return len(kept["values"]) == len(self.seeds)


Job = Point | Calculation


def point_keys(scenario: Scenario, seeds: tuple[int, ...], driver: str, *more: str) -> dict[int, str]:
    """Names of a scenario's runs by seed: the same for what gives the same numbers.

    `more` is what else these depend on.
    """
    of = [engine(), scenario.toml(), scenario.inputs(), driver, *more]
    base = hashlib.sha256(json.dumps(of).encode()).hexdigest()
    return {seed: hashlib.sha256(f"{base} {seed}".encode()).hexdigest()[:24] for seed in seeds}


def calculation_key(name: str, xs: tuple[float, ...], seeds: tuple[int, ...]) -> str:
    """A name for a calculation: it depends on the module that it stands in."""
    of = [engine(), name, _digest_of(theory.find(name)), xs, seeds]
    return hashlib.sha256(json.dumps(of).encode()).hexdigest()[:24]


@cache
def engine() -> str:
    """What simulates: the version, and the native module itself, which may be built again without a new version."""
    return f"{_core.__version__} {_digest(_core.__file__)}"


@cache
def _digest(file: str) -> str:
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()[:24]


def _digest_of(function: Callable[..., float]) -> str:
    """What a function's answers depend on: its module, and the modules of ours that this one uses."""
    return _digest_of_modules(function.__module__)


@cache
def _digest_of_modules(name: str) -> str:
    files = sorted(_files(name, set()))
    return hashlib.sha256("".join(map(_digest, files)).encode()).hexdigest()[:24]


def _files(name: str, seen: set[str]) -> set[str]:
    """The file of a module, of those of the studies that it uses, and of others of ours that these use themselves."""
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


def kept_of(folder: Path | None, job: Job) -> Kept | None:
    """What the folder has kept of a job, with all that is needed of it, or None."""
    if folder is None:
        return None
    try:
        kept: Kept = json.loads(_file(folder, job).read_text(encoding="utf-8"))
        return kept if job.accepts(kept) else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def keep(folder: Path, job: Job, kept: Kept) -> None:
    """Keeps what a job gave, whole or not at all.

    Raises:
        ResultError: it cannot be written.
    """
    write_whole(_file(folder, job), json.dumps(kept).encode())


def clean(folder: Path) -> None:
    """Takes away what processes that died left half written: nobody writes one file for an hour."""
    for file in folder.glob(".*.partial"):
        with suppress(OSError):
            if time.time() - file.stat().st_mtime > _ABANDONED_S:
                file.unlink()


def _file(folder: Path, job: Job) -> Path:
    return folder / f"{job.key}.json"
