"""Readings of a paper, and the measurements that some of them need.

A reading that needs files which may not be shipped lists them, relative to the folder of measurements, and names the
reading that replaces it if they are missing:

    [reading.traces]
    about = "The authors' own inputs."
    files = ["baltaci2023_inputs/bitrate_ul.csv"]
    otherwise = "preset"
    set = { "path.lte.uplink.rate" = { trace = "{measurements}/baltaci2023_inputs/bitrate_ul.csv", … } }

In the values of a reading `{measurements}` is that folder: `$SKYBRAID_TRACES`, else `../shared/traces` next to the
source tree.

A reading may be `like` an earlier one, from which it inherits values.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skybraid.model.errors import ScenarioError

if TYPE_CHECKING:
    from skybraid.model.keys import Keys

_FOLDER = "{measurements}"
_TRANSPORT = re.compile(r"flow\.[^.]+\.transport")


@dataclass(frozen=True, slots=True)
class Reading:
    """Interpretation of what a paper leaves open.

    Attributes:
        about: description in a sentence.
        all: replaced keys of every scenario.
        scenarios: replaced keys by scenario file.
        series: replaced keys by template of a series.
        hosts: keys of transports that a series gives as tables, by protocol; keys of the series take precedence.
        runs: replaced keys of the study's `[runs]`.
        files: required files, relative to the folder of measurements.
        otherwise: reading that replaces it if a file is missing; empty: an error.
    """

    about: str = ""
    all: Mapping[str, Any] = field(default_factory=dict)
    scenarios: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    series: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    hosts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    runs: Mapping[str, Any] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    otherwise: str = ""

    @classmethod
    def parse(cls, keys: Keys, earlier: Mapping[str, Reading]) -> Reading:
        """Parses a reading from a study's file; `earlier` are those already parsed.

        Raises:
            ScenarioError: a key is missing, unknown or of another type, or there is no such earlier reading.
        """
        like = keys.take("like", str, "")
        if like and like not in earlier:
            keys.refuse("like", like, f"one of {', '.join(earlier)}" if earlier else "nothing before this reading")
        base = earlier[like] if like else cls()
        files: list[str] = keys.take("files", list, list(base.files))
        found = cls(
            keys.take("about", str),
            {**base.all, **with_folder(keys.take("set", dict, {}))},
            _merged(base.scenarios, keys.tables("scenario")),
            _merged(base.series, keys.tables("series")),
            _merged(base.hosts, keys.tables("hosts")),
            {**base.runs, **keys.take("runs", dict, {})},
            tuple(files),
            keys.take("otherwise", str, base.otherwise),
        )
        keys.done()
        return found

    def on_hosts(self, key: str, value: Any) -> Any:  # noqa: ANN401 any value of TOML
        """Returns a value of `set`; a table of a flow's transport also receives the keys of `hosts`."""
        if not (_TRANSPORT.fullmatch(key) and isinstance(value, Mapping)):
            return value
        return {**self.hosts.get(value.get("protocol", ""), {}), **value}

    @property
    def missing(self) -> list[str]:
        """Returns the required files that are missing."""
        return [file for file in self.files if not (measurements() / file).is_file()]


def _merged(base: Mapping[str, Mapping[str, Any]], tables: Mapping[str, Keys]) -> dict[str, Mapping[str, Any]]:
    """Merges a reading's own tables into those of the reading that it is like."""
    return {**base, **{name: {**base.get(name, {}), **with_folder(each.rest())} for name, each in tables.items()}}


def measurements() -> Path:
    """Returns the folder of measurements that are not shipped; it need not exist."""
    named = os.environ.get("SKYBRAID_TRACES")
    return Path(named) if named else Path(__file__).parents[4] / "shared" / "traces"


def with_folder(value: Any) -> Any:  # noqa: ANN401 any value of TOML
    """Fills in the folder of measurements in a value."""
    if isinstance(value, Mapping):
        return {key: with_folder(each) for key, each in value.items()}
    if isinstance(value, list):
        return [with_folder(each) for each in value]
    return value.replace(_FOLDER, str(measurements())) if isinstance(value, str) else value


def present(readings: Mapping[str, Reading], name: str) -> tuple[str, str]:
    """Returns the reading to run for a requested one, and a note if it differs.

    Raises:
        ScenarioError: files are missing and no reading replaces it.
    """
    asked, note = name, ""
    while absent := readings[name].missing:
        where = f"not in {measurements()}, the folder of measurements that SKYBRAID_TRACES names"
        other = readings[name].otherwise
        if not other:
            raise ScenarioError(f"reading {name}: {', '.join(absent)}: {where}")
        name = other
        note = f"Run in the reading {name}: what {asked} needs ({', '.join(absent)}) is {where}."
    return name, note
