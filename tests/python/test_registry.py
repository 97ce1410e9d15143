"""Registry of what a scenario may name: the parser accepts every listed parameter."""

import json
import tomllib
from typing import Any

import pytest

from conftest import Command
from skybraid import Scenario, ScenarioError, registry

KINDS = ["schedulers", "congestion", "protocols", "reordering", "links", "traffic"]

KEYS = {"schedulers": "scheduler", "congestion": "congestion", "reordering": "reordering"}
"""Keys of a transport that name an algorithm."""

SAMPLES = {"bit/s": "1Mbit/s", "B": "1000B", "time": "1s"}
"""A value for a parameter that has no default, by its unit."""

ALGORITHMS = [(kind, entry) for kind in KEYS for entry in registry(kind)]
TRAFFIC = registry("traffic")


def named(entry: Any) -> str:
    kind, about = entry if isinstance(entry, tuple) else ("traffic", entry)
    return f"{kind} {about['name']}"


def toml(value: object) -> Any:
    """A default as the list writes it, as the value that a scenario would hold."""
    try:
        return tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return str(value)


def listed(entry: dict[str, Any]) -> dict[str, Any]:
    """Every parameter of an entry that is not left out by default, with that default."""
    found = {}
    for parameter in entry["parameters"]:
        default = parameter["default"]
        if default == "required":
            default = SAMPLES[parameter["unit"]]
        elif default == "none" or default.startswith("("):
            continue
        found[parameter["name"]] = toml(default)
    return found


def refusals(transport: dict[str, Any], traffic: dict[str, Any]) -> list[str]:
    """What each protocol has against a transport; nothing if one of them takes it."""
    found = []
    for protocol in registry("protocols"):
        tables = {
            "duration": "1s",
            "path": {name: {"uplink": {"rate": "1Mbit/s"}, "downlink": {"rate": "1Mbit/s"}} for name in ("a", "b")},
            "flow": {
                "one": {"from": "vehicle", "traffic": traffic, "transport": transport | {"protocol": protocol["name"]}}
            },
        }
        try:
            Scenario.build(tables)
        except ScenarioError as error:
            found.append(str(error))
        else:
            return []
    return found


def refused(kind: str, entry: dict[str, Any], parameters: dict[str, Any]) -> list[str]:
    # A parameter of the algorithm's own name stands alone: `{ fixed = "50ms" }`.
    alone = entry["name"] in parameters
    value = parameters if alone else {"name": entry["name"]} | parameters
    return refusals({KEYS[kind]: value if parameters else entry["name"]}, {"kind": "file", "size": "1kB"})


@pytest.mark.parametrize(("kind", "entry"), ALGORITHMS, ids=map(named, ALGORITHMS))
def test_every_parameter_is_taken_with_the_default_that_is_listed(kind: str, entry: dict[str, Any]) -> None:
    assert refused(kind, entry, listed(entry)) == []
    for name, value in listed(entry).items():
        assert refused(kind, entry, {name: value}) == []


@pytest.mark.parametrize(("kind", "entry"), ALGORITHMS, ids=map(named, ALGORITHMS))
def test_a_parameter_that_is_not_listed_is_refused(kind: str, entry: dict[str, Any]) -> None:
    for found in refused(kind, entry, listed(entry) | {"no_such_parameter": 1}):
        assert "no_such_parameter" in found or "several keys" in found
    assert refused(kind, entry, listed(entry) | {"no_such_parameter": 1}) != []


@pytest.mark.parametrize(("kind", "entry"), ALGORITHMS, ids=map(named, ALGORITHMS))
def test_the_choice_of_linux_is_shown_only_where_it_exists(kind: str, entry: dict[str, Any]) -> None:
    assert bool(entry["linux"]) == (refused(kind, entry, {"compat": "linux"}) == [])


@pytest.mark.parametrize("entry", TRAFFIC, ids=map(named, TRAFFIC))
def test_every_key_of_a_traffic_is_taken_and_no_other(entry: dict[str, Any]) -> None:
    traffic = {"kind": entry["name"]} | listed(entry)
    assert refusals({}, traffic) == []
    assert all("no_such_key" in found for found in refusals({}, traffic | {"no_such_key": 1}))
    assert refusals({}, traffic | {"no_such_key": 1}) != []
    required = {one["name"] for one in entry["parameters"] if one["default"] == "required"}
    for name in listed(entry):
        without = refusals({}, {key: value for key, value in traffic.items() if key != name})
        assert bool(without) == (name in required)


@pytest.mark.parametrize("kind", KINDS)
def test_entries_say_what_and_whence_and_each_name_is_there_once(kind: str) -> None:
    entries = registry(kind)
    assert len({entry["name"] for entry in entries}) == len(entries) > 0
    for entry in entries:
        assert set(entry) - {"text"} == {"name", "summary", "source", "linux", "parameters"}
        assert entry["summary"]
        assert entry["source"]
        for parameter in entry["parameters"]:
            assert set(parameter) == {"name", "unit", "default", "summary"}
            assert parameter["default"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_command_prints_all_of_it_in_words_and_as_json(skybraid: Command, kind: str) -> None:
    plain = skybraid("list", kind).stdout
    assert json.loads(skybraid("list", kind, "--json").stdout) == {"schema": 1, kind: registry(kind)}
    for entry in registry(kind):
        assert f"{entry['name']}: {entry['summary']}" in plain
        assert entry["linux"] in plain
        for parameter in entry["parameters"]:
            unit = f" [{parameter['unit']}]" if parameter["unit"] else ""
            assert f"    {parameter['name']}{unit} = {parameter['default']}" in plain


def test_an_unknown_kind_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ScenarioError, match="found `planets`, expected one of schedulers, congestion, protocols"):
        registry("planets")
