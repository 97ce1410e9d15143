"""Scenarios from a file, from text and built in code."""

import tomllib
from pathlib import Path

import pytest

from conftest import TWO_PATHS
from skybraid import Scenario, ScenarioError, run
from skybraid.model.scenario import toml_value


def test_a_requirement_profile_stands_for_its_table() -> None:
    text = (
        'duration = "1s"\n[path.one]\nuplink.rate = "1Mbit/s"\ndownlink.rate = "1Mbit/s"\n[flow.control]\n'
        'from = "ground"\ntraffic = { kind = "cbr", rate = "5kbit/s", packet = "25B" }\nrequire = '
    )
    for given in ('"3gpp-c2-sticks"', '["3gpp-c2-sticks"]', '{ deadline = "40ms", share = "99.9%" }'):
        (requirement,) = Scenario(text + given).requirements
        assert (requirement["metric"], requirement["deadline_ms"], requirement["target"]) == ("share", 40.0, 0.999)
    both = Scenario(text + '["3gpp-c2-sticks", { goodput = "4kbit/s" }]').requirements
    assert [one["metric"] for one in both] == ["share", "goodput"]
    with pytest.raises(
        ScenarioError, match=r"flow.control.require: .*requirement profile `3gpp-c2-stick`.*3gpp-c2-sticks"
    ):
        Scenario(text + '"3gpp-c2-stick"')


def test_a_file_says_what_is_in_it(two_paths: Path) -> None:
    scenario = Scenario.load(two_paths)
    assert scenario.name == "Two plain paths"
    assert scenario.seed == 3
    assert scenario.duration_s == 10
    assert scenario.flows == ["video", "control"]
    assert scenario.paths == ["near", "far"]
    assert [(one["flow"], one["metric"]) for one in scenario.requirements] == [
        ("video", "share"),
        ("video", "percentile"),
        ("control", "share"),
    ]
    assert scenario.requirements[2]["deadline_ms"] == 100
    assert scenario.requirements[2]["target"] == pytest.approx(0.99999)
    assert scenario.inputs() == []


def test_built_in_code_it_is_the_same_scenario() -> None:
    built = Scenario.build(tomllib.loads(TWO_PATHS))
    assert built.requirements == Scenario(TWO_PATHS).requirements
    assert run(built, tables=[]).flows == run(Scenario(TWO_PATHS), tables=[]).flows


def test_the_effective_scenario_is_a_scenario_again() -> None:
    scenario = Scenario(TWO_PATHS)
    assert Scenario(scenario.toml()).toml() == scenario.toml()


def test_one_key_replaced_gives_another_scenario() -> None:
    scenario = Scenario(TWO_PATHS)
    longer = scenario.with_("duration", "20s")
    assert (scenario.duration_s, longer.duration_s) == (10, 20)
    assert longer.with_("seed", 8).seed == 8
    assert longer.overrides == (("duration", '"20s"'),)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (TWO_PATHS.replace("duration", "durration"), ["durration", "duration"]),
        (TWO_PATHS.replace('"20ms"', '"20"'), ["delay", "20", "unit"]),
        (TWO_PATHS.replace('"20Mbit/s"', '"-5Mbit/s"'), ["rate", "-5Mbit/s"]),
        ("name = ", []),
    ],
    ids=["unknown key", "no unit", "negative rate", "not TOML"],
)
def test_an_error_names_the_file_and_what_was_found(text: str, words: list[str]) -> None:
    with pytest.raises(ScenarioError) as caught:
        Scenario(text, "flight.toml")
    for word in ["flight.toml", *words]:
        assert word in str(caught.value)


def test_a_missing_file_and_a_binary_file_are_errors(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"nowhere\.toml: cannot read the scenario: No such file"):
        Scenario.load(tmp_path / "nowhere.toml")
    odd = tmp_path / "odd.toml"
    odd.write_bytes(b"name = '\xff'")
    with pytest.raises(ScenarioError, match="byte 8 is not UTF-8"):
        Scenario.load(odd)


def test_values_are_written_as_toml_on_one_line() -> None:
    assert toml_value("10Mbit/s") == '"10Mbit/s"'
    assert toml_value({"uniform": "0.1%"}) == '{ uniform = "0.1%" }'
    assert toml_value([["0s", "10Mbit/s"], ["5s", "2Mbit/s"]]) == '[["0s", "10Mbit/s"], ["5s", "2Mbit/s"]]'
    assert toml_value({"a b": True}) == '{ "a b" = true }'
    with pytest.raises(ScenarioError):
        toml_value(object())
