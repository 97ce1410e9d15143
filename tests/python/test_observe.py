"""Observations: what a study reads from a run's tables, held against what the path itself does."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from skybraid import Scenario, ScenarioError
from skybraid_studies import Study, reproduce
from skybraid_studies.engine.observe import RunData, observations, quantile
from test_studies import SMALL

SEEN = """
figure = "Fig. 3"
finding = "Half of the samples."
unit = "Mbit/s"
sweep = { label = "share", values = [0.1, 0.5, 0.9], set = {} }

[series.TCP]
scenario = "small.toml"
measure = { kind = "goodput_quantile", flow = "bulk", q = "{x}" }

[[claim]]
words = "Half of the time it does not exceed the path."
kind = "value"
of = "TCP"
at = 0.5
at_most = 2
"""

STEADY = """
name = "Steady"
duration = "10s"

[path.one]
uplink = { rate = "10Mbit/s", delay = "20ms" }
downlink = { rate = "10Mbit/s", delay = "20ms" }

[flow.data]
from = "vehicle"
traffic = { kind = "cbr", rate = "1Mbit/s", packet = "1250B" }
transport = { protocol = "udp" }
require = { deadline = "20ms", share = "90%" }
"""


@pytest.fixture
def seen() -> RunData:
    """A flow of one message of 1250 B each 10 ms over a path of 20 ms and 10 Mbit/s: 1 ms to send."""
    return RunData(Scenario(STEADY).native.run(1, ["messages"]))


def test_a_steady_flow_arrives_as_its_path_says(seen: RunData) -> None:
    of = {"flow": "data"}
    known = observations()
    overhead_ms = 0.1
    assert known["delay_quantile"](seen, of | {"q": 0.99}) == pytest.approx(21, abs=overhead_ms)
    assert known["delay_mean"](seen, of) == pytest.approx(21, abs=overhead_ms)
    assert known["gap_mean"](seen, of) == pytest.approx(0.01, rel=1e-6)
    assert known["gap_sd"](seen, of) == pytest.approx(0, abs=1e-9)
    assert known["goodput_quantile"](seen, of | {"q": 0.5}) == pytest.approx(1.0)
    assert known["goodput_share"](seen, of | {"above_mbps": 0.9}) == 100
    assert known["goodput_share"](seen, of | {"above_mbps": 1.1}) == 0
    assert known["path_share"](seen, of | {"path": "one"}) == 100
    assert known["late_share"](seen, of | {"limit_ms": 20.0}) == 100


def test_a_quantile_of_lost_messages_is_infinite() -> None:
    delays = np.array([1.0, 2.0, 3.0, math.inf])
    assert quantile(delays, 0.75) == 3
    assert quantile(delays, 0.76) == math.inf
    assert math.isnan(quantile(np.array([]), 0.5))


def test_a_sweep_along_a_distribution_needs_one_run(tmp_path: Path) -> None:
    folder = tmp_path / "nobody2026"
    folder.mkdir()
    (folder / "study.toml").write_text('title = "Seen"\nauthor = "Nobody"\nruns.seeds = 2\n')
    (folder / "small.toml").write_text(SMALL)
    (folder / "NOB-E03.toml").write_text(SEEN)
    (folder / "NOB-E04.toml").write_text('figure = "Fig. 4"\nfinding = "Pictures are sharp."\nneeds = "video"\n')
    out = tmp_path / "out"
    card = reproduce(Study(folder), out=out)
    assert card.runs == 2
    assert [row.verdict for row in card.rows] == ["holds", "needs video"]
    values = [one.ours for one in card.points if one.ours is not None]
    assert values == sorted(values)
    again = reproduce(Study(folder), out=out)
    assert (again.runs, again.kept) == (2, 2)
    assert json.loads((out / "scorecard.json").read_text())["rows"][0]["verdict"] == "holds"


OWN = """
from skybraid_studies.engine.observe import RunData, observation

@observation("own_share", "messages")
def own_share(seen: RunData, flow: str) -> float:
    arrived = seen.messages(flow).drop_nulls("delivered_ns")
    return 100 * (arrived["delivered_ns"] > arrived["sent_ns"]).mean()
"""

OWN_CLAIM = """
figure = "Fig. 5"
finding = "No message arrives before it was sent."
[series.Own]
scenario = "small.toml"
measure = { kind = "own_share", flow = "bulk" }
[[claim]]
words = "None of them."
kind = "value"
of = "Own"
at_least = 99
at_most = 100
"""


def test_a_study_in_any_folder_has_observations_of_its_own(tmp_path: Path) -> None:
    folder = tmp_path / "anybody2026"
    (folder / "experiments").mkdir(parents=True)
    (folder / "scenarios").mkdir()
    (folder / "study.toml").write_text('title = "Own"\nauthor = "Anybody"\nruns.seeds = 2\n')
    (folder / "scenarios" / "small.toml").write_text(SMALL)
    (folder / "experiments" / "ANY-E01.toml").write_text(OWN_CLAIM)
    with pytest.raises(ScenarioError, match="own_share"):
        Study(folder).experiments()
    (folder / "observations.py").write_text(OWN)
    (row,) = reproduce(Study(folder), out=tmp_path / "out").rows
    assert (row.verdict, row.ours) == ("holds", 100), row.why
    again = reproduce(Study(folder), out=tmp_path / "out")
    assert (again.runs, again.kept) == (2, 2)


def test_observations_that_cannot_be_imported_are_refused(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text('title = "Own"\nauthor = "Anybody"\n')
    (tmp_path / "observations.py").write_text("import no_such_package\n")
    with pytest.raises(ScenarioError, match=r"observations.py: cannot import it: ModuleNotFoundError"):
        Study(tmp_path)
