"""What several seeds mean: runs that are alike are one run, and measurements are entered at random places."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from skybraid import Scenario, paired, sweep
from skybraid import run as fly
from skybraid.cli import app
from skybraid.execute.plan import plan

if TYPE_CHECKING:
    from pathlib import Path

ALIKE = "no seed changes anything"

SCENARIO = """\
duration = "20s"
[path.lte]
uplink.rate = "10Mbit/s"
downlink.rate = "10Mbit/s"
{keys}
[flow.control]
from = "vehicle"
traffic = {{ kind = "cbr", rate = "80kbit/s", packet = "100B" }}
transport = {{ protocol = "udp" }}
require = {{ deadline = "50ms", share = "60%" }}
"""

TRACE = 'uplink.delay = {{ trace = "a.csv", column = "2", unit = "ms"{more} }}'


def written(folder: Path, keys: str = "", more: str | None = None) -> Path:
    """A scenario of constant paths with these keys, or over a trace of 40 s, of which the first ten are late."""
    rows = (f"{second},{70 if second < 10 else 30}\n" for second in range(40))
    (folder / "a.csv").write_text("".join(rows), encoding="utf-8")
    path = folder / "s.toml"
    path.write_text(SCENARIO.format(keys=keys if more is None else TRACE.format(more=more)), encoding="utf-8")
    return path


@pytest.mark.parametrize("more", [None, ', start = "0s"'])
def test_runs_that_are_alike_are_one_run(tmp_path: Path, more: str | None) -> None:
    results = fly(written(tmp_path, more=more), seeds=range(1, 101))
    assert results.seeds == [1]
    assert any(ALIKE in notice and "in place of 100" in notice for notice in results.notices)
    (requirement,) = results.requirements
    assert requirement.trials == fly(written(tmp_path, more=more)).requirements[0].trials, "no copies are pooled"


def test_runs_that_differ_are_all_flown(tmp_path: Path) -> None:
    results = fly(written(tmp_path, 'uplink.loss = { uniform = "1%" }'), seeds=range(1, 4))
    assert (results.seeds, results.notices) == ([1, 2, 3], [])


def test_the_command_says_once_that_seeds_change_nothing(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        app, ["run", str(written(tmp_path)), "--seeds", "1..9", "--json", "--out", str(tmp_path / "out")]
    )
    assert result.exit_code == 0
    assert result.stderr.count(ALIKE) == 1
    values = json.loads(result.stdout)
    assert (len(values["notices"]), values["seeds"]) == (1, [1])


def test_seeds_enter_a_measurement_at_random_places(tmp_path: Path) -> None:
    scenario = written(tmp_path, more="")
    alone = fly(scenario)
    assert 'traces = "random"' not in alone.scenario
    assert alone.notices == []
    shares = [flight.requirements[0].estimate for flight in fly(scenario, seeds=range(1, 9)).flights]
    assert len(set(shares)) > 3
    assert fly(scenario, seed=5).requirements[0].estimate == alone.requirements[0].estimate, "a single run is a replay"


def test_one_run_of_many_is_replayed_by_its_seed(tmp_path: Path) -> None:
    many = fly(written(tmp_path, more=""), seeds=range(1, 9))
    assert 'traces = "random"' in many.scenario
    words = shlex.split(many.provenance["replay"])
    assert words[words.index("--set") + 1] == 'traces="random"'
    alone = fly(Scenario(many.scenario, str(tmp_path / "again.toml")), seed=5)
    assert alone.requirements[0].estimate == many.flights[4].requirements[0].estimate


def test_files_without_a_common_clock_are_named(tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_text("0,5\n20,6\n", encoding="utf-8")
    two = 'uplink.delay = {{ trace = "a.csv", column = "2", unit = "ms"{0} }}\n'
    two += 'downlink.delay = {{ trace = "b.csv", column = "2", unit = "ms"{0} }}'
    (note,) = fly(written(tmp_path, two.format("")), seeds=[1, 2]).notices
    assert "a.csv, b.csv" in note
    assert "together" in note
    (note,) = fly(written(tmp_path, two.format(', together = "drive"')), seeds=[1, 2]).notices
    assert "drive" in note
    assert "together" not in note


def test_a_sweep_flies_a_point_once_where_seeds_change_nothing(tmp_path: Path) -> None:
    noted: list[str] = []
    loss = {"path.lte.uplink.loss": [[], {"uniform": "1%"}]}
    campaign = sweep(written(tmp_path), seeds=range(1, 6), vary=loss, out=tmp_path / "sweep", note=noted.append)
    runs = campaign.scan("runs").select("point", "seed").collect()
    assert sorted(runs.rows()) == [(0, 1), *((1, seed) for seed in range(1, 6))]
    assert any("at 1 of 2 points" in words and ALIKE in words for words in noted)
    assert list(campaign.notices) == noted


def test_until_does_not_wait_for_seeds_that_change_nothing(tmp_path: Path) -> None:
    asked = "control.share >= 90% ± shown"
    campaign = sweep(written(tmp_path), until=asked, budget=1000, out=tmp_path / "until")
    assert len(campaign.scan("runs").collect()) == 1


def test_a_sweep_with_seeds_enters_measurements_at_random(tmp_path: Path) -> None:
    scenario = written(tmp_path, more="")
    campaign = sweep(scenario, seeds=range(1, 9), out=tmp_path / "sweep")
    assert len(set(campaign.scan("flows").collect()["within_deadline"])) > 3
    (replay,) = campaign.scan("runs").head(1).collect()["replay"]
    assert 'traces="random"' in replay
    grown = sweep(scenario, seeds=[9], out=tmp_path / "sweep")
    assert len(grown.scan("runs").collect()) == 9
    assert plan(scenario).manifest.base.overrides == (), "a single flight is a replay"


def test_scenarios_whose_runs_are_alike_are_compared_once(tmp_path: Path) -> None:
    scenario = Scenario.load(written(tmp_path))
    found = paired(scenario, scenario.with_("path.lte.uplink.delay", "5ms"), seeds=range(1, 9))
    assert found.seeds == (1,)
    assert any(ALIKE in note for note in found.notes)
    lossy = scenario.with_("path.lte.uplink.loss", {"uniform": "1%"})
    assert paired(scenario, lossy, seeds=range(1, 9)).seeds == tuple(range(1, 9))


def test_a_sweep_may_vary_where_runs_begin(tmp_path: Path) -> None:
    planned = plan(written(tmp_path, more=""), seeds=range(1, 4), vary={"traces": ["replay", "random"]})
    assert planned.alike == {0}
    assert [len(planned.seeds_of(point)) for point in planned.wanted] == [1, 3]
