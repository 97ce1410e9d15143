"""Studies and their experiments, as files describe them.

A study is a folder named after its paper: `study.toml` has what its experiments share, `experiments/ID.toml` one
experiment each, `scenarios/` the base scenarios that they name, and `published/` CSV files of the authors' numbers. A
small study may have all but the last in the folder itself. `observations.py` registers calculations and observations of
its own. Every table is strict: an unknown key is an error that suggests the right one.

`study.toml`:

    title = "Evaluation of MPTCP in satellite networks"
    author = "Pedrazzi, 2020"
    default_reading = "repo"               # the reading that is used unless another is asked for

    [runs]                                 # of every experiment, unless its file says otherwise
    seeds = 4                              # 1 to 4
    duration = "480s"                      # replaces the scenarios' own; leave out to keep it
    checkpoints = ["30s", "480s"]          # a goodput is the mean over these lengths of the run; by default its own

    [quick]                                # the same keys for --quick
    seeds = 2
    duration = "60s"
    checkpoints = ["60s"]

    [emulate]                              # the same for --emulate, in real time; without a duration 30 s at most
    seeds = 3

    [comparisons]                          # medians of ours over published, over several experiments
    "TCP alone" = ["PED-E09", "PED-E10"]

    [cause.buffer]                         # why claims do not hold, see skybraid_studies.engine.causes
    explained = "A socket's buffer of 128 KiB is the ceiling of a connection."

    [reading.repo]                         # one way to read what the paper leaves open or contradicts
    about = "What the author's scripts did."
    set = { "routing.ecmp" = "flow" }      # keys of every scenario that are replaced
    scenario."tcp.toml" = { "routing.ecmp" = "packet" }            # of one scenario
    series.mixed = { "flow.tcp.connections" = 1 }                  # of one template of a series
    hosts.mptcp = { buffers = "auto" }     # of transports of this protocol that a series gives as a table
    runs = { duration = "240s" }           # keys of [runs] that differ

    [sweep.bit_errors]                     # sweeps that experiments share
    label = "BER"
    values = [1e-4, 1e-5]
    quick = [1e-5]                         # fewer values for --quick; by default all
    log = true                             # the axis is logarithmic
    set = { "link.rise.loss" = { bit_errors = "{x}" } }

    [series.tcp_bulk]                      # templates of series that experiments share
    scenario = "tcp.toml"
    set = { "flow.tcp.connections" = "{k}", "flow.tcp.traffic" = { kind = "bulk" } }
    measure = { kind = "goodput", flow = "tcp" }

A reading that needs files which are not shipped names them and the reading that replaces it, see
`skybraid_studies.engine.readings`.

In the values of `set`, `{x}` is the sweep's value and `{k}` the series' parameter; `{20/k}` and `{100*x}` divide and
multiply, and `{min(k, 13)}` is 13 at most. `{x:lia|olia|balia}` is the first of these for 1, the second for 2 and so
on, `{k:…}` likewise. A text that is nothing but such a place becomes a number. Keys of the reading come first, then
those of the sweep, the template, the experiment and the series; a later one wins.

`ID.toml`:

    figure = "Fig. 9"
    finding = "Throughput of TCP grows linearly with the number of connections."
    unit = "kbit/s"                        # of its values, for tables
    sweep = "bit_errors"                   # a shared one, or a table of its own; without it there is one point, x = 0
    runs = { duration = "100s" }           # keys of [runs] that differ; [quick] and [emulate] likewise
    role = "check"                         # of its claims: "finding", "check" or "fit"
    draw = "lines"                         # or "bars", "cdf", "boxes", "table": by default from the sweep's shape
    set = { … }                            # keys of all its scenarios

    [series.TCP]                           # becomes "TCP 1", "TCP 5" … where `k` is given, else "TCP"
    use = "tcp_bulk"                       # a template; `scenario`, `set` and `measure` may be given here too
    k = [1, 5, 10, 15]
    largest_of = 10                        # or smallest_of: of so many runs each, as a paper that pools them has it
    published = "fig09.csv"                # the authors' numbers: columns x, mean, sd and, with `k`, k; or, where
                                           # there is one point, a number

    [series."{cc} over {path}"]            # one for each choice of the words in `each`, for `{word}` in any text
    each = { cc = ["reno", "cubic"], path = ["lte", "leo"] }
    use = "tcp_bulk"
    set = { "flow.tcp.transport.congestion" = "{cc}", "flow.tcp.transport.paths" = ["{path}"] }

    [[claim]]
    words = "The throughput of 5 connections is 5 times that of one."
    kind = "ratio"                         # see skybraid_studies.engine.claims
    of = "TCP 5"
    to = "TCP 1"
    at_least = 4
    at_most = 6
    theirs = 5
    known = "Why it does not hold, once that is known."

`measure` says what a series shows at each x:

- `{ kind = "goodput", flow = "…" }`, in kbit/s: the bytes that arrived at all of a flow's receivers, by the run's
  length. `estimator = "last_byte"` divides instead by the mean over the receivers of the time of their last byte, as
  Pedrazzi did; the default is `"run"`.
- `{ kind = "delay", flow = "…" }`, in ms: the median of the one-way delay.
- `{ kind = "transfer_time", flow = "…" }`, in s: when the flow's last message arrived, from when the first was
  written; infinite if one is missing.
- `{ kind = "window", flow = "…" }`, in B, or in segments with `unit = "1500B"`: the sum of the congestion windows of a
  flow's subflows, with `paths = ["…"]` of those on these paths (links) alone, with `sides = ["truck.downstream"]` of
  those of these sides alone. Its x is time in s:
  `times = { until = "100s", every = "0.5s" }` at the file's top.

- an observation of `skybraid_studies.engine.observe` or of the paper's `observations.py`, by its name and with its
  keys. `{x}` in a key is the sweep's value, so that a sweep may go along a distribution:
  `{ kind = "rtt_quantile", flow = "…", q = "{x}" }`.

A flow may be a group's, or one of its instances such as `bulk.left-3`.

An experiment that needs what is not here says so, `needs = "video"` or `needs = "hardware"`, and has neither series nor
claims. One of decoded pictures has both and `needs = "video"`: it is run where PyAV is installed.

An experiment that no simulation answers has `compute = "NAME"` in each series in place of a scenario: a calculation
registered in `skybraid_studies.engine.theory`, which is given the sweep's values and the seed.
"""

from __future__ import annotations

import csv
import json
import re
import tomllib
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skybraid.model.errors import ScenarioError, likely
from skybraid.model.keys import Keys, seconds
from skybraid.model.scenario import Scenario, toml_value
from skybraid_studies.engine import papers
from skybraid_studies.engine.causes import Cause
from skybraid_studies.engine.claims import Claim, take_role
from skybraid_studies.engine.observe import REQUIRED, observations
from skybraid_studies.engine.places import fill, worded_tables
from skybraid_studies.engine.readings import Reading, present

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

STUDY = "study.toml"
"""The file of what a study's experiments share."""

EXPERIMENTS, SCENARIOS, PUBLISHED = "experiments", "scenarios", "published"
"""Folders of the experiments, the base scenarios and the authors' numbers inside a study."""

MEASURES = {
    "goodput": {"flow", "estimator"},
    "delay": {"flow"},
    "transfer_time": {"flow"},
    "window": {"flow", "unit", "paths", "sides"},
}
"""Keys of `measure`, by its kind; observations have their own."""

EMULATED_SEEDS = 3
"""Real time costs real time: so many seeds, unless a study says otherwise."""

NEEDS = ("video", "hardware")
"""Needs of an experiment besides a run."""

ESTIMATORS = ("run", "last_byte")

FORMS = ("lines", "bars", "cdf", "boxes", "table")
"""Forms of a figure."""


@dataclass(frozen=True, slots=True)
class Runs:
    """Seeds and duration of an experiment's runs.

    Attributes:
        seeds: roots of the random streams.
        duration: replaces the scenario's, a text such as "480s"; None keeps it.
        checkpoints_s: lengths of the run whose goodputs are averaged, in s; none for the run's own.
    """

    seeds: tuple[int, ...] = (1,)
    duration: str | None = None
    checkpoints_s: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Sweep:
    """Values of the parameter that is varied.

    Attributes:
        label: of the axis.
        values: in the order of the file.
        quick: fewer of them.
        log: whether the axis is logarithmic.
        set: keys that are replaced, with places for the value.
    """

    label: str = ""
    values: tuple[float, ...] = (0.0,)
    quick: tuple[float, ...] = (0.0,)
    log: bool = False
    set: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Measure:
    """Number that a series shows of a run, as `measure` in an experiment's file.

    Attributes:
        kind: a key of `MEASURES`, or an observation's name.
        flow: a flow's name, or a group's.
        estimator: one of `ESTIMATORS`.
        segment_bytes: what a window is counted in; 1 for bytes.
        paths: paths whose subflows count; none for all.
        sides: sides of the connection, as the table `subflows` names them; none for all.
        keys: of an observation, with places for the sweep's value.
    """

    kind: str
    flow: str
    estimator: str = "run"
    segment_bytes: float = 1.0
    paths: tuple[str, ...] = ()
    sides: tuple[str, ...] = ()
    keys: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_observation(self) -> bool:
        """Whether it is an observation rather than one of `MEASURES`."""
        return self.kind not in MEASURES

    def spec(self, x: float) -> str:
        """An observation at a value of the sweep: its name and keys, as JSON."""
        return json.dumps([self.kind, fill(self.keys, x=x)], sort_keys=True)


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a figure.

    Attributes:
        name: with its parameter, such as "TCP 5".
        scenario: the base scenario's file, or None for a calculation.
        measure: what is read from a run, or None for a calculation.
        compute: the calculation's name, or None.
        set: keys that are replaced, the places of `k` filled in.
        published: the authors' numbers by x: (mean, standard deviation or None).
        k: its parameter.
        largest_of: so many runs make one value, the largest of theirs; 0 for each its own.
        smallest_of: the same with the smallest.
    """

    name: str
    scenario: Path | None
    measure: Measure | None
    compute: str | None
    set: Mapping[str, Any]
    published: Mapping[float, tuple[float, float | None]]
    k: float | None = None
    largest_of: int = 0
    smallest_of: int = 0


@dataclass(frozen=True, slots=True)
class Experiment:
    """One experiment of a study.

    Attributes:
        id: such as "PED-E09".
        paper: the study's name.
        figure: where it is in the paper.
        finding: what the paper found, in a sentence.
        unit: of the values.
        sweep: what is varied.
        times_s: of a window over time, the times in s; these are then the x.
        series: its lines.
        claims: what is checked.
        runs: how often and how long.
        quick: the same for a quick look.
        needs: what it needs besides a run, one of `NEEDS`, or nothing.
        emulate: the same as `runs` in real time.
        draw: the form of its figure, one of `FORMS`, or nothing where its shape says it.
    """

    id: str
    paper: str
    figure: str
    finding: str
    unit: str
    sweep: Sweep
    times_s: tuple[float, ...]
    series: tuple[Series, ...]
    claims: tuple[Claim, ...]
    runs: Runs
    quick: Runs
    needs: str = ""
    emulate: Runs = Runs()
    draw: str = ""

    @property
    def lacks(self) -> str:
        """Its need that this machine does not meet, or nothing; pictures are decoded where PyAV is installed."""
        runs = self.needs == "video" and self.series and find_spec("av") is not None
        return "" if runs else self.needs

    def xs(self, *, quick: bool) -> tuple[float, ...]:
        """The x values of its series."""
        return self.times_s or (self.sweep.quick if quick else self.sweep.values)


class Study:
    """A study's folder.

    Attributes:
        paper: its name, the folder's.
        title: the paper's.
        author: and the year.
        readings: by name.
        reading: the name of the one that is used unless another is asked for.
        comparisons: experiments by what the median of ours over their published numbers is about.
        causes: why claims do not hold, by name.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Reads `study.toml` and imports `observations.py`; experiments are read when they are asked for.

        Raises:
            ScenarioError: a file is missing or not correct.
        """
        self.folder = Path(folder)
        self.paper = self.folder.name
        papers.load_from(self.folder)
        keys = Keys(_read(self.folder / STUDY), str(self.folder / STUDY))
        self.title = keys.take("title", str)
        self.author = keys.take("author", str)
        self._runs = _runs(keys.table("runs"), Runs())
        self._quick = _runs(keys.table("quick"), self._runs)
        self._emulate = _runs(keys.table("emulate"), Runs(self._quick.seeds[:EMULATED_SEEDS]))
        self.readings: dict[str, Reading] = {}
        for name, each in keys.tables("reading").items():
            self.readings[name] = Reading.parse(each, self.readings)
        if not self.readings:
            self.readings = {"text": Reading("The paper's text.")}
        self.reading = keys.take("default_reading", str, next(iter(self.readings)))
        if self.reading not in self.readings:
            keys.refuse("default_reading", self.reading, f"one of {', '.join(self.readings)}")
        self.comparisons: dict[str, list[str]] = keys.take("comparisons", dict, {})
        self.causes = {name: Cause.parse(name, each) for name, each in keys.tables("cause").items()}
        self._sweeps = {name: _sweep(each) for name, each in keys.tables("sweep").items()}
        self._templates = {name: each.rest() for name, each in keys.tables("series").items()}
        keys.done()
        for reading in self.readings.values():
            for name in reading.series:
                if name not in self._templates:
                    keys.refuse("reading.series", name, f"one of {', '.join(self._templates)}")
            if reading.otherwise and reading.otherwise not in self.readings:
                keys.refuse("reading.otherwise", reading.otherwise, f"one of {', '.join(self.readings)}")

    def check_reading(self, name: str) -> None:
        """Refuses a reading that the study does not have.

        Raises:
            ScenarioError: there is no such reading.
        """
        if name not in self.readings:
            raise ScenarioError(f"--reading: found {name}, expected one of {', '.join(self.readings)}")

    def experiments(self, reading: str | None = None) -> dict[str, Experiment]:
        """Returns the experiments by id, in the order of their ids, in a reading; the study's own by default.

        Raises:
            ScenarioError: a file is not correct, or there is no such reading.
        """
        name = self.reading if reading is None else reading
        self.check_reading(name)
        folder = self._below(EXPERIMENTS)
        files = sorted(file for file in folder.glob("*.toml") if re.fullmatch(r"[A-Z]+-[A-Z]+\d+", file.stem))
        return {file.stem: self._experiment(file, self.readings[name]) for file in files}

    def scenario(
        self, experiment: Experiment, series: Series, x: float, reading: str, *, quick: bool = False
    ) -> Scenario:
        """Returns the scenario of one point of a series.

        Raises:
            ScenarioError: the series is a calculation, or a replaced key does not fit the scenario.
        """
        if series.scenario is None:
            raise ScenarioError(f"{experiment.id}: {series.name}: found a calculation, expected a scenario")
        runs = experiment.quick if quick else experiment.runs
        chosen = self.readings[present(self.readings, reading)[0]]
        values = {
            **({} if runs.duration is None else {"duration": runs.duration}),
            **chosen.all,
            **chosen.scenarios.get(series.scenario.name, {}),
            **experiment.sweep.set,
            **series.set,
        }
        filled = tuple(
            (key, toml_value(fill(chosen.on_hosts(key, value), x=x, k=series.k))) for key, value in values.items()
        )
        return Scenario.load(series.scenario, filled)

    def _below(self, name: str) -> Path:
        """Returns a folder of the study, or the study's own: a small study may have all its files there."""
        folder = self.folder / name
        return folder if folder.is_dir() else self.folder

    def _experiment(self, file: Path, reading: Reading) -> Experiment:
        keys = Keys(_read(file), str(file))
        shared = keys.take("set", dict, {})
        sweep: str | dict[str, Any] = keys.take("sweep", (str, dict), {})
        if isinstance(sweep, str):
            if sweep not in self._sweeps:
                keys.refuse("sweep", sweep, f"one of {', '.join(self._sweeps)}")
            swept = self._sweeps[sweep]
        else:
            swept = _sweep(Keys(sweep, f"{file}: sweep")) if sweep else Sweep()
        runs = _runs(keys.table("runs"), _runs(Keys(dict(reading.runs), str(self.folder / STUDY)), self._runs))
        quick_keys = keys.table("quick")
        quick = _runs(quick_keys, self._quick)
        emulate = _runs(keys.table("emulate"), self._emulate)
        times = keys.take("times", dict, {})
        role = take_role(keys)
        experiment = Experiment(
            id=file.stem,
            paper=self.paper,
            figure=keys.take("figure", str),
            finding=keys.take("finding", str),
            unit=keys.take("unit", str, ""),
            sweep=swept,
            times_s=_times(Keys(times, f"{file}: times")) if times else (),
            series=tuple(
                one
                for name, each in keys.tables("series").items()
                for worded, table in worded_tables(name, each)
                for one in self._series(worded, table, shared, reading)
            ),
            claims=(),
            runs=runs,
            quick=quick,
            needs=keys.take("needs", str, ""),
            emulate=emulate,
            draw=keys.take("draw", str, ""),
        )
        if experiment.draw and experiment.draw not in FORMS:
            keys.refuse("draw", experiment.draw, f"one of {', '.join(FORMS)}")
        if experiment.needs and experiment.needs not in NEEDS:
            keys.refuse("needs", experiment.needs, f"one of {', '.join(NEEDS)}")
        if not (experiment.series or experiment.needs) or (experiment.series and experiment.needs == "hardware"):
            keys.refuse("series", f"{len(experiment.series)}", "either some or `needs`")
        names = [series.name for series in experiment.series]
        claims = tuple(
            Claim.parse(each, f"{file}: claim {number}", role).among(names)
            for number, each in enumerate(keys.list("claim"), 1)
        )
        keys.done()
        for number, claim in enumerate(claims, 1):
            claim.check_causes(self.causes, f"{file}: claim {number}")
            for name in claim.series:
                if name not in names:
                    keys.refuse(f"claim {number}", name, f"one of {', '.join(names)}")
        return replace(experiment, claims=claims)

    def _series(self, name: str, keys: Keys, shared: Mapping[str, Any], reading: Reading) -> list[Series]:
        template = keys.take("use", str, "")
        if template and template not in self._templates:
            keys.refuse("use", template, f"one of {', '.join(self._templates)}")
        base = Keys(dict(self._templates[template]) if template else {}, f"{self.folder / STUDY}: series.{template}")
        scenario = keys.take("scenario", str, base.take("scenario", str, ""))
        compute = keys.take("compute", str, base.take("compute", str, ""))
        if bool(scenario) == bool(compute):
            keys.refuse("scenario", scenario or "none", "either `scenario` or `compute`")
        scenarios = self._below(SCENARIOS)
        file = scenarios / scenario if scenario else None
        if file is not None and not file.is_file():
            keys.refuse("scenario", scenario, f"a file in {scenarios}")
        measure = keys.take("measure", dict, base.take("measure", dict, {}))
        values = {
            **base.take("set", dict, {}),
            **reading.series.get(template, {}),
            **shared,
            **keys.take("set", dict, {}),
        }
        published: str | float = keys.take("published", (str, float), "")
        ks = keys.take("k", list, [None])
        largest_of = int(keys.take("largest_of", float, 0.0))
        smallest_of = int(keys.take("smallest_of", float, 0.0))
        base.done()
        keys.done()
        table: dict[tuple[float | None, float], tuple[float, float | None]] = {}
        if isinstance(published, float):
            table = {(None, 0.0): (published, None)}
        elif published:
            table = _published(self.folder / PUBLISHED / published)
        return [
            Series(
                name=name if k is None else f"{name} {k:g}",
                scenario=file,
                measure=None if file is None else _measure(Keys(measure, f"{keys.where}.measure")),
                compute=compute or None,
                set={key: fill(value, k=k) for key, value in values.items()},
                published={x: number for (of, x), number in table.items() if of is None or of == k},
                k=k,
                largest_of=largest_of,
                smallest_of=smallest_of,
            )
            for k in ks
        ]


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ScenarioError(f"{file}: cannot read the file: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ScenarioError(f"{file}: {error}") from error


def _runs(keys: Keys, default: Runs) -> Runs:
    seeds = keys.take("seeds", int, len(default.seeds))
    if seeds < 1:
        keys.refuse("seeds", str(seeds), "at least 1")
    duration: str = keys.take("duration", str, default.duration or "")
    checkpoints = keys.take("checkpoints", list, [f"{at_s:.12g}s" for at_s in default.checkpoints_s])
    runs = Runs(
        tuple(range(1, seeds + 1)),
        duration or None,
        tuple(seconds(text, keys, "checkpoints") for text in checkpoints),
    )
    keys.done()
    if runs.duration is not None and any(at > seconds(runs.duration, keys, "duration") for at in runs.checkpoints_s):
        keys.refuse("checkpoints", repr(list(runs.checkpoints_s)), f"times up to the duration, {runs.duration}")
    return runs


def _sweep(keys: Keys) -> Sweep:
    values = tuple(float(value) for value in keys.take("values", list))
    sweep = Sweep(
        keys.take("label", str),
        values,
        tuple(float(value) for value in keys.take("quick", list, list(values))),
        keys.take("log", bool, False),
        keys.take("set", dict, {}),
    )
    keys.done()
    if not values:
        keys.refuse("values", "none", "at least one number")
    return sweep


def _times(keys: Keys) -> tuple[float, ...]:
    until = seconds(keys.take("until", str), keys, "until")
    every = seconds(keys.take("every", str), keys, "every")
    keys.done()
    return tuple(round(number * every, 9) for number in range(1, round(until / every) + 1))


def _measure(keys: Keys) -> Measure:
    kind = keys.take("kind", str)
    if kind in observations():
        return _observation(keys, kind)
    if kind not in MEASURES:
        keys.refuse("kind", kind, f"one of {', '.join(MEASURES)}{likely(kind, [*MEASURES, *observations()])}")
    flow = keys.take("flow", str)
    estimator = keys.take("estimator", str, "run") if kind == "goodput" else "run"
    if estimator not in ESTIMATORS:
        keys.refuse("estimator", estimator, f"one of {', '.join(ESTIMATORS)}")
    unit = keys.take("unit", str, "B") if kind == "window" else "B"
    size = re.fullmatch(r"\s*(\d*)\s*B\s*", unit)
    if size is None:
        keys.refuse("unit", unit, "B, or a segment's size such as 1500B")
    paths = keys.take("paths", list, []) if kind == "window" else []
    sides = keys.take("sides", list, []) if kind == "window" else []
    keys.done()
    return Measure(kind, flow, estimator, float(size[1] or 1), tuple(paths), tuple(sides))


def _observation(keys: Keys, kind: str) -> Measure:
    found = {}
    for key, default in observations()[kind].keys.items():
        known = () if default is REQUIRED else (default,)
        found[key] = keys.take(key, (str, float, list), *known)
    keys.done()
    return Measure(kind, str(found.get("flow", "")), keys=found)


def _published(file: Path) -> dict[tuple[float | None, float], tuple[float, float | None]]:
    """The authors' numbers by (k or None, x)."""
    found: dict[tuple[float | None, float], tuple[float, float | None]] = {}
    try:
        with file.open(encoding="utf-8", newline="") as lines:
            for row in csv.DictReader(line for line in lines if not line.startswith("#")):
                k = float(row["k"]) if row.get("k") else None
                found[k, float(row["x"])] = (float(row["mean"]), float(row["sd"]) if row.get("sd") else None)
    except OSError as error:
        raise ScenarioError(f"{file}: cannot read the published numbers: {error.strerror}") from error
    except (KeyError, ValueError) as error:
        raise ScenarioError(f"{file}: found no column or number {error}, expected x, mean, sd and perhaps k") from error
    return found


def folder_of(studies: Path, paper: str) -> Path:
    """Returns the folder of a paper's study, among those of a folder.

    Raises:
        ScenarioError: there is none.
    """
    known = {file.parent.name: file.parent for file in sorted(studies.glob(f"*/{STUDY}"))}
    if paper not in known:
        raise ScenarioError(f"reproduce: found {paper}, expected one of {', '.join(known) or 'no study at all'}")
    return known[paper]
