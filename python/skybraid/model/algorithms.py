"""User-defined algorithms: a Python class as a scheduler or a congestion control.

    @skybraid.scheduler("first_with_room")
    class FirstWithRoom:
        def choose(self, now_s, unit, paths):
            return [path.id for path in paths if path.usable and path.has_room][:1]

A scenario names it `scheduler = "python:first_with_room"`; the keys of a table next to its `name` are the keywords of
the class. Results repeat with the seed as long as the class does: one that draws random numbers seeds its own
generator. `docs/extending.md` has worked examples.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import inspect
import os
import random
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from skybraid import _core
from skybraid._core import Acked, Lost, PathBasics, PathView, RateSample, Sibling, Siblings, Unit, Wait
from skybraid.model.errors import ScenarioError, SkybraidError

if TYPE_CHECKING:
    from skybraid.model.scenario import Scenario

__all__ = [
    "NO_LIMIT",
    "Acked",
    "AlgorithmError",
    "CongestionControl",
    "Lost",
    "PathBasics",
    "PathView",
    "RateSample",
    "Scheduler",
    "Sibling",
    "Siblings",
    "Unit",
    "Wait",
    "check",
    "congestion_control",
    "load",
    "scheduler",
]

PREFIX = "python:"
"""Stands before the name of an algorithm of one's own in a scenario."""

NO_LIMIT = 2**64 - 1
"""A size in bytes that stands for "no limit": a window without congestion control, a threshold before a loss."""

_PACKAGE = str(Path(__file__).parents[1])

SCHEDULERS, CONGESTION = "schedulers", "congestion"


class AlgorithmError(SkybraidError):
    """A user-defined algorithm violates its interface."""


class Scheduler(Protocol):
    """Interface of a scheduler class; keyword arguments are the scenario's parameters.

    One instance serves one direction of one connection. `needs_rtt = False` as an attribute says that it reads no
    round-trip times, so that datagrams need not measure them.
    """

    def choose(self, now_s: float, unit: Unit, paths: list[PathView], /) -> Iterable[int] | Wait:
        """Chooses the paths for `unit`: indices of usable paths, one copy on each, or `Wait`; no path means wait.

        Args:
            now_s: simulated time in s.
            unit: a segment's worth of a stream, or a datagram.
            paths: every path of the connection, in order of their numbers.
        """
        ...


class CongestionControl(Protocol):
    """Interface of a congestion-control class, constructed from a `PathBasics` and the scenario's parameters.

    One instance serves one direction of one path. Of `window` (bytes in flight, at least a segment) and, if it has
    them, `slow_start_threshold` (bytes, None for none) and `pacing_rate` (bit/s, None for none), each an attribute
    or a property, the values after an event hold until the next one. It hears of those events that it has a method
    for: `on_ack(acked, siblings)`, `on_delivery(acked, siblings)`, `on_recovered(now_s)`, `on_loss(lost, siblings)`,
    `on_timeout(lost, repeated, siblings)`, `on_idle(now_s)`, `on_penalty()`. With `is_coupled = True` the siblings
    are filled in; with `governs_recovery = True` it sets the window in recovery itself.
    """

    @property
    def window(self) -> float:
        """Congestion window in bytes."""
        ...


_SchedulerClass = TypeVar("_SchedulerClass", bound=Callable[..., Scheduler])
_ControlClass = TypeVar("_ControlClass", bound=Callable[..., CongestionControl])

_registered: dict[str, dict[str, Callable[..., object]]] = {SCHEDULERS: {}, CONGESTION: {}}
_files: dict[Path, str] = {}
"""Plugins that have been loaded, and how the user wrote their names."""


def scheduler(name: str) -> Callable[[_SchedulerClass], _SchedulerClass]:
    """Registers the class below as the scheduler `python:NAME`.

    Raises:
        ScenarioError: not a name, or that of another class.
    """

    def register(class_: _SchedulerClass) -> _SchedulerClass:
        _register(SCHEDULERS, name, class_)
        return class_

    return register


def congestion_control(name: str) -> Callable[[_ControlClass], _ControlClass]:
    """Registers the class below as the congestion control `python:NAME`.

    Raises:
        ScenarioError: not a name, or that of another class.
    """

    def register(class_: _ControlClass) -> _ControlClass:
        _register(CONGESTION, name, class_)
        return class_

    return register


def _register(kind: str, name: str, class_: Callable[..., object]) -> None:
    if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
        raise ScenarioError(f"found the name {name!r}, expected letters, digits, `-` and `_`")
    if kind == SCHEDULERS and not callable(getattr(class_, "choose", None)):
        source = _source(class_)
        where = "" if source is None else f"{source.name}: "
        found = f"{where}{PREFIX}{name}: found the class {class_.__qualname__} without a method `choose`"
        raise ScenarioError(f"{found}, expected one: a scheduler chooses paths")
    earlier = _registered[kind].get(name)
    if earlier is not None and _place(earlier) != _place(class_):
        raise ScenarioError(f"{PREFIX}{name}: found twice, as {_place(earlier)} and as {_place(class_)}")
    _registered[kind][name] = class_


def _place(class_: Callable[..., object]) -> str:
    return f"{class_.__module__}.{class_.__qualname__}"


def registered(kind: str) -> Mapping[str, Callable[..., Any]]:
    """Registered classes of a kind (`schedulers` or `congestion`), by name."""
    return dict(_registered[kind])


def with_prefix_suggested(problem: str) -> str:
    """Returns the error text of a scenario, with `python:NAME` suggested for the unknown name of a registered class."""

    def suggested(found: re.Match[str]) -> str:
        kind = SCHEDULERS if found["kind"] == "scheduler" else CONGESTION
        if found["name"] not in _registered[kind]:
            return found[0]
        return f"unknown {found['kind']} `{found['name']}`; did you mean `{PREFIX}{found['name']}`?"

    pattern = r"unknown (?P<kind>scheduler|congestion control) `(?P<name>[^`]+)`(?:; did you mean `[^`]+`\?)?"
    return re.sub(pattern, suggested, problem, count=1)


def load(file: str | os.PathLike[str]) -> list[Callable[..., object]]:
    """Runs a Python file that registers algorithms, once, and returns the classes that it registered.

    Raises:
        ScenarioError: the file cannot be read or registers nothing.
    """
    path = Path(file).resolve()
    if path not in _files:
        name = f"skybraid_plugin_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None or not path.is_file():
            what = "a file of another kind" if path.is_file() else "no such file"
            raise ScenarioError(f"{os.fspath(file)}: found {what}, expected a Python file that ends in .py")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            with refusing_exit(f"while {os.fspath(file)} was loaded"):
                spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
        _files[path] = os.fspath(file)
    found = [class_ for _, _, class_ in _all() if _source(class_) == path]
    if not found:
        words = "registers no algorithm, expected `@skybraid.scheduler` or `@skybraid.congestion_control`"
        raise ScenarioError(f"{os.fspath(file)}: {words}")
    return found


@contextlib.contextmanager
def refusing_exit(when: str) -> Iterator[None]:
    """Turns `sys.exit` in a user-defined algorithm into an error, so that it does not end the run.

    Raises:
        AlgorithmError: it was called; says in which file and line.
    """
    try:
        yield
    except SystemExit as error:
        raise AlgorithmError(
            f"{_raised_at(error)}found sys.exit({'' if error.code is None else repr(error.code)}) {when}, expected an "
            "algorithm to return or to raise an error"
        ) from error


def _raised_at(error: BaseException) -> str:
    """Returns the last place of an error in a plugin, else outside this package, as `file:line: `."""
    frames = traceback.extract_tb(error.__traceback__)
    outside = [frame for frame in frames if not frame.filename.startswith((_PACKAGE, "<frozen"))]
    own = [frame for frame in outside if Path(frame.filename) in _files] or outside
    return f"{_files.get(Path(own[-1].filename), own[-1].filename)}:{own[-1].lineno}: " if own else ""


def _all() -> Iterator[tuple[str, str, Callable[..., object]]]:
    for kind, classes in _registered.items():
        for name, class_ in classes.items():
            yield kind, name, class_


def _source(class_: Callable[..., object]) -> Path | None:
    """Source file of a class; None for one defined interactively."""
    try:
        file = inspect.getsourcefile(class_)
    except (OSError, TypeError):
        return None
    return None if file is None else Path(file).resolve()


def inputs(scenario: Scenario) -> list[tuple[str, str]]:
    """Files of the algorithms that a scenario names, each once, with their SHA-256."""
    found: dict[str, str] = {}
    for kind, name in scenario.native.custom():
        class_ = _registered[SCHEDULERS if kind == "scheduler" else CONGESTION].get(name.removeprefix(PREFIX))
        path = None if class_ is None else _source(class_)
        if path is not None and path.is_file():
            found[_files.get(path, str(path))] = hashlib.sha256(path.read_bytes()).hexdigest()
    return list(found.items())


def entries(kind: str) -> list[dict[str, Any]]:
    """Entries of `skybraid list` for the registered algorithms of a kind."""
    return [_entry(name, class_) for name, class_ in _registered.get(kind, {}).items()]


def name_of(class_: Callable[..., object]) -> str:
    """Returns the name by which scenarios know a registered class, with the prefix; of another its own."""
    names = {id(one): f"{PREFIX}{name}" for classes in _registered.values() for name, one in classes.items()}
    return names.get(id(class_), getattr(class_, "__name__", str(class_)))


def _entry(name: str, class_: Callable[..., object]) -> dict[str, Any]:
    parameters = list(inspect.signature(class_).parameters.values())
    keywords = [
        parameter
        for parameter in parameters
        if parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    if class_ in _registered[CONGESTION].values():
        keywords = keywords[1:]
    source = _source(class_)
    return {
        "name": f"{PREFIX}{name}",
        "summary": (inspect.getdoc(class_) or "An algorithm of your own.").split("\n\n")[0].replace("\n", " "),
        "source": "typed in" if source is None else _files.get(source, str(source)),
        "linux": "",
        "parameters": [
            {
                "name": parameter.name,
                "unit": "",
                "default": "required" if parameter.default is parameter.empty else _core_value(parameter.default),
                "summary": "",
            }
            for parameter in keywords
        ],
    }


def _core_value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def check(class_: Callable[..., Any], **parameters: object) -> None:
    """Runs an algorithm through random situations and returns violations of its interface.

    A scheduler is asked about random paths, a congestion control receives random acknowledgements, losses and
    timeouts. Every answer must be one that a run takes: known and usable paths, waits that end later than now, a window
    of at least a segment. Two instances that see the same must answer the same.

    Args:
        class_: the class, registered or not.
        parameters: its keywords.

    Raises:
        AlgorithmError: an answer is wrong; what the class itself raises is the cause.
    """
    examine = _check_scheduler if hasattr(class_, "choose") else _check_congestion
    name = name_of(class_)
    for seed in range(_SITUATIONS):
        try:
            with refusing_exit("in its check"):
                first, second = examine(class_, parameters, seed), examine(class_, parameters, seed)
        except AlgorithmError:
            raise
        except Exception as error:
            raise AlgorithmError(f"{_raised_at(error)}{name}: {type(error).__name__}: {error}") from error
        for step, (one, two) in enumerate(zip(first, second, strict=True)):
            if one != two:
                raise AlgorithmError(
                    f"{name}: two instances that saw the same answered {one} and {two} at step {step}, "
                    "expected the same; seed random numbers by a parameter"
                )


_SITUATIONS, _STEPS = 30, 100


def _check_scheduler(class_: Callable[..., Any], parameters: Mapping[str, object], seed: int) -> list[object]:
    chance = random.Random(seed)
    instance = class_(**parameters)
    count = 1 + seed % 8
    now_s, answers = 0.0, []
    for _ in range(_STEPS):
        now_s += chance.expovariate(1000)
        paths = [_random_path(chance, number) for number in range(count)]
        carried_by = {number for number in range(count) if chance.random() < 0.1}
        unit = Unit(
            bytes=chance.randint(1, 1400),
            message_class=chance.choice(["control", "video", "data"]),
            deadline_s=chance.choice([None, now_s + 0.1]),
            carried_by=carried_by,
            backlog_bytes=chance.choice([0, 1_000_000]),
            window_room_bytes=chance.choice([1400, 100_000, NO_LIMIT]),
        )
        answers.append(_core.ask_scheduler(instance, now_s, unit, paths))
    return list(answers)


def _random_path(chance: random.Random, number: int) -> PathView:
    segment = 1400
    measured = chance.random() < 0.9
    srtt_s = chance.uniform(0.001, 1.0)
    window = segment * chance.randint(1, 100)
    in_flight = chance.choice([0, window // 2, window])
    return PathView(
        id=number,
        usable=chance.random() < 0.8,
        has_room=in_flight < window,
        srtt_s=srtt_s if measured else None,
        rtt_deviation_s=srtt_s / 4 if measured else 0.0,
        min_rtt_s=srtt_s / 2 if measured else None,
        window_bytes=window,
        threshold_bytes=chance.choice([window // 2, NO_LIMIT]),
        pacing_bps=chance.choice([None, 1_000_000]),
        in_flight_bytes=in_flight,
        queued_bytes=chance.choice([0, segment]),
        segment_bytes=segment,
        cost=chance.randint(0, 3),
        backup=chance.random() < 0.2,
        priority=chance.randint(0, 15),
    )


def _check_congestion(class_: Callable[..., Any], parameters: Mapping[str, object], seed: int) -> list[object]:
    chance = random.Random(seed)
    segment = chance.choice([1, 536, 1400, 9000])
    initial = segment * chance.randint(1, 20)
    threshold = chance.choice([2 * segment, 50 * segment, NO_LIMIT])
    basics = PathBasics(segment_bytes=segment, initial_window_bytes=initial, initial_threshold_bytes=threshold)
    instance = class_(basics, **parameters)
    answers = [_core.ask_congestion(instance, segment)]
    now_s, delivered = 0.0, 0
    coupled = getattr(instance, "is_coupled", False)
    for step in range(_STEPS):
        now_s += chance.uniform(0.001, 0.1)
        in_flight = chance.randint(0, min(answers[-1][0], 10_000_000))
        siblings = _random_siblings(chance, answers[-1][0], segment) if coupled else Siblings()
        for event, arguments in _random_events(chance, now_s, step, segment, in_flight, delivered, siblings):
            if callable(method := getattr(instance, event, None)):
                method(*arguments)
                answers.append(_core.ask_congestion(instance, segment))
        delivered += segment
    return list(answers)


def _random_siblings(chance: random.Random, window: int, segment: int) -> Siblings:
    def sibling(window_bytes: int) -> Sibling:
        return Sibling(
            counts=chance.random() < 0.8,
            window_bytes=window_bytes,
            acked_since_loss_bytes=chance.randint(0, 1_000_000),
            acked_between_losses_bytes=chance.randint(0, 1_000_000),
            srtt_s=chance.uniform(0.001, 1.0),
            segment_bytes=segment,
        )

    return Siblings([sibling(window), sibling(segment * chance.randint(1, 100))], 0)


def _random_events(
    chance: random.Random, now_s: float, step: int, segment: int, in_flight: int, delivered: int, siblings: Siblings
) -> Sequence[tuple[str, tuple[object, ...]]]:
    """One random event: an acknowledgement, timeout, idle period or penalty."""
    lost = Lost(now_s=now_s, in_flight_bytes=in_flight)
    drawn = chance.random()
    if drawn < 0.05:
        return [("on_timeout", (lost, step % 2 == 1, siblings))]
    if drawn < 0.08:
        return [("on_idle", (now_s,))]
    if drawn < 0.1:
        return [("on_penalty", ())]
    srtt_s = chance.uniform(0.001, 1.0)
    rate = RateSample(
        rate_bps=chance.randint(1000, 10**9), interval_s=srtt_s, prior_delivered_bytes=max(delivered - segment, 0)
    )
    acked = Acked(
        now_s=now_s,
        bytes=segment,
        delivered_bytes=delivered + segment,
        srtt_s=srtt_s,
        rtt_s=chance.choice([None, srtt_s]),
        in_flight_bytes=max(in_flight, segment),
        in_flight_after_bytes=max(in_flight - segment, 0),
        window_limited=chance.random() < 0.8,
        rate=chance.choice([None, rate]),
    )
    if drawn < 0.2:
        return [("on_delivery", (acked, siblings)), ("on_loss", (lost, siblings)), ("on_recovered", (now_s,))]
    return [("on_delivery", (acked, siblings)), ("on_ack", (acked, siblings))]
