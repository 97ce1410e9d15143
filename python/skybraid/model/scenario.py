"""Scenarios: from a TOML file, from text, or built in code; read and checked by the native parser."""

import hashlib
import os
import stat
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Self, TextIO

import tomli_w

from skybraid import _core
from skybraid.model import algorithms
from skybraid.model.errors import ScenarioError, meant_by

MAX_BYTES = 16 << 20
"""Maximum size of a scenario's file."""

_WRITTEN_FROM = {".kml": "--track ", ".gpx": "--track ", ".plan": "--track ", ".csv": "--trace lte="}
"""Option of `skybraid new` that writes a scenario from such a file."""

Overrides = Sequence[tuple[str, str]]


class Scenario:
    """Validated scenario: paths, flows, requirements and events.

    From a file with `load`, from text with `Scenario(text)`, in code with `build`. A scenario does not change;
    `with_` gives another one.
    """

    __slots__ = ("_native", "_overrides", "_text", "file")

    file: str
    """The file that errors name and that trace paths are relative to."""

    def __init__(
        self, text: str, file: str = "scenario.toml", overrides: Overrides = (), *, like: "Scenario | None" = None
    ) -> None:
        """Parses TOML `text` as the contents of `file`, with keys replaced by `overrides` (key, TOML value).

        Args:
            text: the scenario.
            file: its name, which errors say and trace files are relative to.
            overrides: keys that are replaced.
            like: another version of the same file; traces that it has loaded are not read again.

        Raises:
            ScenarioError: something is wrong; it says file, key, what was found and what was expected.
        """
        if text.endswith(".toml") and "\n" not in text:
            raise ScenarioError(f"text: found the path {text}, expected TOML; Scenario.load reads a file")
        self._text = text
        self._overrides = tuple(overrides)
        self.file = file
        try:
            if like is None or like.file != file:
                self._native = _core.Scenario.parse(text, file, list(self._overrides))
            else:
                self._native = like.native.variant(text, list(self._overrides))
        except ScenarioError as error:
            raise ScenarioError(algorithms.with_prefix_suggested(str(error))) from None

    @classmethod
    def load(cls, path: str | os.PathLike[str], overrides: Overrides = ()) -> Self:
        """Reads a scenario file.

        Raises:
            ScenarioError: the file cannot be read, is not UTF-8, or is not a correct scenario.
        """
        return cls(read_text(path), os.fspath(path), overrides)

    @classmethod
    def build(cls, tables: Mapping[str, Any], file: str = "scenario.toml") -> Self:
        """Builds a scenario from nested mappings with the keys of the file; quantities are texts with a unit.

        Raises:
            ScenarioError: a value has no place in TOML, or the result is not a correct scenario.
        """
        try:
            text = tomli_w.dumps(tables)
        except TypeError as error:
            raise ScenarioError(f"{file}: {error}") from error
        return cls(text, file)

    def with_(self, key: str, value: object) -> Self:
        """Returns the scenario with one key replaced, for example `with_("path.lte.uplink.rate", "5Mbit/s")`.

        Raises:
            ScenarioError: no such key, or not a value for it.
        """
        return self.with_all({key: value})

    def with_all(self, values: Mapping[str, object]) -> Self:
        """Returns the scenario with several keys replaced, in this order.

        Raises:
            ScenarioError: no such key, or not a value for it.
        """
        try:
            replaced = [(key, toml_value(value)) for key, value in values.items()]
        except ScenarioError as error:
            raise ScenarioError(f"{', '.join(values)}: {error}") from error
        return type(self)(self._text, self.file, (*self._overrides, *replaced), like=self)

    @property
    def native(self) -> _core.Scenario:
        """The parsed scenario in the native module."""
        return self._native

    @property
    def text(self) -> str:
        """Original TOML text, without the overrides."""
        return self._text

    @property
    def name(self) -> str:
        """The flight's name."""
        return self._native.name

    @property
    def seed(self) -> int:
        """Root of every random stream, unless a run is given another."""
        return self._native.seed

    @property
    def duration_s(self) -> float:
        """Length of the flight in seconds."""
        return self._native.duration_s

    @property
    def flows(self) -> list[str]:
        """Names of the flows, in the order of the file."""
        return self._native.flows()

    @property
    def videos(self) -> list[str]:
        """Names of the flows that are video, in the order of the file."""
        videos = self._native.videos()
        return [flow for flow in self.flows if flow in videos]

    @property
    def paths(self) -> list[str]:
        """Names of the paths, in the order of the file."""
        return self._native.paths()

    @property
    def requirements(self) -> list[dict[str, Any]]:
        """Requirements, each with `flow`, `metric`, `deadline_ms` and `target`."""
        # 99.9 % as a share is 0.9990000000000001 in binary; nobody requires shares to a part in 10^12.
        return [
            requirement | ({} if requirement["metric"] == "goodput" else {"target": round(requirement["target"], 12)})
            for requirement in self._native.requirements()
        ]

    @property
    def deadlines_ms(self) -> dict[str, float]:
        """Shortest deadline of each flow's requirements of a share, or expiration time of a transaction, in ms."""
        return self._shortest_ms("share", "continuity")

    @property
    def frames_within_ms(self) -> dict[str, float]:
        """Shortest deadline of each video's requirements of frames, in ms."""
        return self._shortest_ms("frames")

    def _shortest_ms(self, *metrics: str) -> dict[str, float]:
        found: dict[str, float] = {}
        for requirement in self.requirements:
            flow, deadline_ms = requirement["flow"], requirement["deadline_ms"]
            if requirement["metric"] in metrics and deadline_ms is not None:
                found[flow] = min(deadline_ms, found.get(flow, deadline_ms))
        return found

    @property
    def overrides(self) -> tuple[tuple[str, str], ...]:
        """Keys replaced after the text was read, with their values as TOML."""
        return self._overrides

    def inputs(self) -> list[tuple[str, str]]:
        """Files that the scenario reads, with their SHA-256."""
        return self._native.inputs()

    def warnings(self, *, emulated: bool = False) -> list[str]:
        """Warnings about what is allowed but may be a mistake, such as a trace shorter than the flight."""
        return self._native.warnings(emulated)

    def toml(self) -> str:
        """Effective scenario: the text with the overrides applied."""
        return self._native.toml()

    def digest(self) -> str:
        """SHA-256 of the effective scenario's text, in hexadecimal."""
        return hashlib.sha256(self.toml().encode()).hexdigest()

    def __reduce__(self) -> tuple[type[Self], tuple[str, str, Overrides]]:
        """Pickles the text and the overrides; the process that loads them reads the trace files again."""
        return type(self), (self._text, self.file, self._overrides)

    def __repr__(self) -> str:
        return f"Scenario({self.name!r}, file={self.file!r}, seed={self.seed})"


def read_text(path: str | os.PathLike[str]) -> str:
    """Reads the text of a scenario file.

    Raises:
        ScenarioError: it is no path or no regular file, is longer than `MAX_BYTES`, cannot be read or is not UTF-8.
    """
    given: object = path
    if not isinstance(given, str | os.PathLike):
        found = type(path).__name__
        raise ScenarioError(
            f"scenario: found {found}, expected a Scenario or a file's path; Scenario.build takes mappings"
        )
    if "\n" in str(path):
        raise ScenarioError(
            "scenario: found a text of several lines, expected a file's path; Scenario(text) takes TOML"
        )
    try:
        about = Path(path).stat()
        if not stat.S_ISREG(about.st_mode):
            found = "a folder" if stat.S_ISDIR(about.st_mode) else "a device or pipe"
            raise ScenarioError(f"{path}: found {found}, expected a scenario's file")
        if about.st_size > MAX_BYTES:
            raise ScenarioError(_too_long(str(path), str(about.st_size)))
        if option := _WRITTEN_FROM.get(Path(path).suffix):
            raise ScenarioError(f"{path}: found no scenario; `skybraid new NAME {option}{path}` writes one from it")
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ScenarioError(f"{path}: cannot read the scenario: {error.strerror}{meant_by(Path(path))}") from error
    except UnicodeDecodeError as error:
        raise ScenarioError(f"{path}: byte {error.start} is not UTF-8; expected a TOML text") from error


def read_stream(stream: TextIO) -> str:
    """Reads the text of a scenario from a stream.

    Raises:
        ScenarioError: it is longer than `MAX_BYTES`.
    """
    text = stream.read(MAX_BYTES + 1)
    if len(text) > MAX_BYTES:
        raise ScenarioError(_too_long("standard input", f"more than {MAX_BYTES}"))
    return text


def _too_long(name: str, found: str) -> str:
    return f"{name}: found {found} bytes, expected a scenario of at most {MAX_BYTES >> 20} MiB"


def toml_value(value: object) -> str:
    """Formats a value for TOML, on one line.

    Raises:
        ScenarioError: TOML has no such value.
    """
    match value:
        case Mapping():
            inside = ", ".join(f"{toml_key(str(key))} = {toml_value(item)}" for key, item in value.items())
            return f"{{ {inside} }}"
        case list() | tuple():
            return f"[{', '.join(toml_value(item) for item in value)}]"
        case str() | int():
            return _cached_toml(value)
        case _:
            return _toml(value)


def _toml(value: object) -> str:
    try:
        return tomli_w.dumps({"value": value}).removeprefix("value = ").rstrip("\n")
    except TypeError as error:
        raise ScenarioError(f"found {value!r}, expected a text, a number, a truth, a list or a table") from error


_cached_toml = lru_cache(maxsize=4096, typed=True)(_toml)


@lru_cache(maxsize=4096)
def toml_key(name: str) -> str:
    """Formats a name for use in a dotted TOML key, quoted if needed."""
    return tomli_w.dumps({name: 0}).removesuffix(" = 0\n")
