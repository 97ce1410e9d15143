"""Studies and experiments, read from files.

A study is a folder named after its paper: `study.toml` has the settings shared by its experiments,
`experiments/ID.toml` one experiment each, `scenarios/` their base scenarios, and `published/` CSV files of the authors'
numbers. A small study may have all but the last in the folder itself. `observations.py` registers its own calculations
and observations. An unknown key in any table is an error that suggests the right one.

`study.toml`:

    title = "Evaluation of MPTCP in satellite networks"
    author = "Pedrazzi, 2020"
    default_reading = "repo"               # the reading used by default

    [runs]                                 # defaults of all experiments
    seeds = 4                              # 1 to 4
    duration = "480s"                      # replaces that of the scenarios; optional
    checkpoints = ["30s", "480s"]          # goodput is the mean over these lengths of the run; default: its length

    [quick]                                # the same keys for --quick
    seeds = 2
    duration = "60s"
    checkpoints = ["60s"]

    [emulate]                              # the same keys for --emulate; default duration: at most 30 s
    seeds = 3

    [comparisons]                          # median ratios of ours to published numbers of several experiments
    "TCP alone" = ["PED-E09", "PED-E10"]

    [cause.buffer]                         # cause of claims that do not hold, see skybraid_studies.engine.causes
    explained = "A socket's buffer of 128 KiB is the ceiling of a connection."

    [reading.repo]                         # interpretation of what the paper leaves open or contradicts
    about = "What the author's scripts did."
    set = { "routing.ecmp" = "flow" }      # replaced keys of every scenario
    scenario."tcp.toml" = { "routing.ecmp" = "packet" }            # replaced keys of one scenario
    series.mixed = { "flow.tcp.connections" = 1 }                  # replaced keys of one template of a series
    hosts.mptcp = { buffers = "auto" }     # keys of transports of this protocol that a series gives as a table
    runs = { duration = "240s" }           # replaced keys of [runs]

    [sweep.bit_errors]                     # sweep shared by experiments
    label = "BER"
    values = [1e-4, 1e-5]
    quick = [1e-5]                         # values for --quick; default: all
    log = true                             # logarithmic axis
    set = { "link.rise.loss" = { bit_errors = "{x}" } }

    [series.tcp_bulk]                      # template of series, shared by experiments
    scenario = "tcp.toml"
    set = { "flow.tcp.connections" = "{k}", "flow.tcp.traffic" = { kind = "bulk" } }
    measure = { kind = "goodput", flow = "tcp" }

A reading that needs files which are not shipped lists them and the reading that replaces it, see
`skybraid_studies.engine.readings`.

In the values of `set`, `{x}` is the sweep's value and `{k}` the series' parameter; `{20/k}` and `{100*x}` divide and
multiply, and `{min(k, 13)}` is at most 13. `{x:lia|olia|balia}` is the first word for 1, the second for 2 and so on,
`{k:…}` likewise. A text that consists of one placeholder becomes a number. Keys are set in the order reading, sweep,
template, experiment, series; later ones take precedence.

`ID.toml`:

    figure = "Fig. 9"
    finding = "Throughput of TCP grows linearly with the number of connections."
    unit = "kbit/s"                        # unit of its values, for tables
    sweep = "bit_errors"                   # name of a shared sweep, or a table; default: one point, x = 0
    runs = { duration = "100s" }           # replaced keys of [runs]; [quick] and [emulate] likewise
    role = "check"                         # role of its claims: "finding", "check" or "fit"
    draw = "lines"                         # or "bars", "cdf", "boxes", "table"; default: by the sweep
    set = { … }                            # replaced keys of all its scenarios

    [series.TCP]                           # with `k`: "TCP 1", "TCP 5" …
    use = "tcp_bulk"                       # template; `scenario`, `set` and `measure` may be given here too
    k = [1, 5, 10, 15]
    largest_of = 10                        # or smallest_of: each value is that of so many pooled runs
    published = "fig09.csv"                # the authors' numbers: columns x, mean, sd and, with `k`, k; or, for a
                                           # single point, a number

    [series."{cc} over {path}"]            # one series per combination of the words in `each`
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

`measure` is the number of a series at each x:

- `{ kind = "goodput", flow = "…" }`, in kbit/s: bytes delivered to all receivers of a flow, divided by the length
  of the run. `estimator = "last_byte"` divides instead by the mean time of the receivers' last byte, like Pedrazzi; the
  default is `"run"`.
- `{ kind = "delay", flow = "…" }`, in ms: median one-way delay.
- `{ kind = "transfer_time", flow = "…" }`, in s: time from the writing of the first message to the delivery of
  the last; infinite if one is missing.
- `{ kind = "window", flow = "…" }`, in B, or in segments with `unit = "1500B"`: sum of the congestion windows of a
  flow's subflows, or of those on `paths = ["…"]` (links) or at `sides = ["truck.downstream"]`. Its x is time in s:
  `times = { until = "100s", every = "0.5s" }` at the top of the file.
- an observation of `skybraid_studies.engine.observe` or of the paper's `observations.py`, by name and with its keys.
  `{x}` in a key is the sweep's value, for example to sweep a distribution:
  `{ kind = "rtt_quantile", flow = "…", q = "{x}" }`.

A flow may be a group, or one of its instances such as `bulk.left-3`.

An experiment that cannot be run has `needs = "video"` or `needs = "hardware"`, and neither series nor claims. One with
decoded pictures has series, claims and `needs = "video"`: it is run if PyAV is installed.

An experiment without a simulation has `compute = "NAME"` in each series instead of a scenario: a calculation registered
in `skybraid_studies.engine.theory`, which receives the sweep's values and the seed.
"""

from __future__ import annotations

import csv
import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from skybraid.model.errors import ScenarioError, likely
from skybraid.model.keys import Keys, seconds
from skybraid.model.scenario import Scenario, toml_value
from skybraid_studies.engine import papers
from skybraid_studies.engine.causes import Cause
from skybraid_studies.engine.claims import Claim, take_role
from skybraid_studies.engine.observe import REQUIRED, observations
from skybraid_studies.engine.places import fill, worded_tables
from skybraid_studies.engine.readings import Reading, present

STUDY = "study.toml"
"""File with the settings shared by a study's experiments."""

EXPERIMENTS, SCENARIOS, PUBLISHED = "experiments", "scenarios", "published"
"""Folders of experiments, base scenarios and the authors' numbers inside a study."""

MEASURES = {
    "goodput": {"flow", "estimator"},
    "delay": {"flow"},
    "transfer_time": {"flow"},
    "window": {"flow", "unit", "paths", "sides"},
}
"""Keys of `measure` by kind; observations have their own."""

EMULATED_SEEDS = 3
"""Default number of seeds of real-time runs."""

NEEDS = ("video", "hardware")
"""Requirements of an experiment besides a run."""

ESTIMATORS = ("run", "last_byte")

FORMS = ("lines", "bars", "cdf", "boxes", "table")
"""Forms of a figure."""


@dataclass(frozen=True, slots=True)
class Runs:
    """Seeds and duration of an experiment's runs.

    Attributes:
        seeds: random seeds.
        duration: duration such as "480s"; None: that of the scenario.
        checkpoints_s: lengths of the run in s whose goodputs are averaged; empty: that of the run.
    """

    seeds: tuple[int, ...] = (1,)
    duration: str | None = None
    checkpoints_s: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Sweep:
    """Values of the varied parameter.

    Attributes:
        label: label of the axis.
        values: values in the order of the file.
        quick: subset for `--quick`.
        log: whether the axis is logarithmic.
        set: replaced keys, with placeholders for the value.
    """

    label: str = ""
    values: tuple[float, ...] = (0.0,)
    quick: tuple[float, ...] = (0.0,)
    log: bool = False
    set: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Measure:
    """Number that a series takes from a run: `measure` in an experiment's file.

    Attributes:
        kind: key of `MEASURES`, or name of an observation.
        flow: name of a flow or a group.
        estimator: one of `ESTIMATORS`.
        segment_bytes: unit of a window in bytes; 1 for bytes.
        paths: paths whose subflows count; empty: all.
        sides: sides of the connection, named as in the table `subflows`; empty: all.
        keys: keys of an observation, with placeholders for the sweep's value.
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
        """Whether the measure is an observation."""
        return self.kind not in MEASURES

    def spec(self, x: float) -> str:
        """Returns the observation at a value of the sweep as JSON: name and keys."""
        return json.dumps([self.kind, fill(self.keys, x=x)], sort_keys=True)


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a figure.

    Attributes:
        name: name with the parameter, such as "TCP 5".
        scenario: file of the base scenario, or None for a calculation.
        measure: number taken from a run, or None for a calculation.
        compute: name of the calculation, or None.
        set: replaced keys, with the placeholders of `k` filled in.
        published: the authors' numbers by x: (mean, standard deviation or None).
        k: parameter of the series.
        largest_of: number of runs of which the largest value is taken; 0: each run has a value.
        smallest_of: number of runs of which the smallest value is taken; 0: each run has a value.
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
        id: id such as "PED-E09".
        paper: name of the study.
        figure: figure or section of the paper.
        finding: finding of the paper in a sentence.
        unit: unit of the values.
        sweep: varied parameter.
        times_s: x values of a window over time, in s.
        series: lines of the figure.
        claims: claims to test.
        runs: seeds and duration.
        quick: seeds and duration for `--quick`.
        needs: requirement besides a run, one of `NEEDS`, or empty.
        emulate: seeds and duration in real time.
        draw: form of the figure, one of `FORMS`; empty: chosen by the shape of the data.
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
        """Returns the requirement that this machine lacks, or an empty string; decoding pictures needs PyAV."""
        runs = self.needs == "video" and self.series and find_spec("av") is not None
        return "" if runs else self.needs

    def xs(self, *, quick: bool) -> tuple[float, ...]:
        """Returns the x values of the series."""
        return self.times_s or (self.sweep.quick if quick else self.sweep.values)


class Study:
    """Study in a folder.

    Attributes:
        paper: name of the study and its folder.
        title: title of the paper.
        author: author and year.
        readings: readings by name.
        reading: name of the default reading.
        comparisons: experiments whose ratios to published numbers are summarised by a median, by its description.
        causes: causes of claims that do not hold, by name.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Reads `study.toml` and imports `observations.py`; experiments are read on demand.

        Raises:
            ScenarioError: a file is missing or invalid.
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
        """Checks that the study has a reading.

        Raises:
            ScenarioError: there is no such reading.
        """
        if name not in self.readings:
            raise ScenarioError(f"--reading: found {name}, expected one of {', '.join(self.readings)}")

    def experiments(self, reading: str | None = None) -> dict[str, Experiment]:
        """Returns the experiments by id, in order, in a reading; default: that of the study.

        Raises:
            ScenarioError: a file is invalid, or there is no such reading.
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
        """Returns a folder of the study; a small study may have all files in its own folder."""
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
    """Reads the authors' numbers by (k or None, x): mean, and standard deviation or None."""
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
    """Returns the folder of a paper's study, inside a folder of studies.

    Raises:
        ScenarioError: there is no such study.
    """
    known = {file.parent.name: file.parent for file in sorted(studies.glob(f"*/{STUDY}"))}
    if paper not in known:
        raise ScenarioError(f"reproduce: found {paper}, expected one of {', '.join(known) or 'no study at all'}")
    return known[paper]
