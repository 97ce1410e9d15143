"""Studies: their files, the judgement of claims, and the command."""

import csv
import hashlib
import json
import math
import os
import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from conftest import Command
from skybraid import Scenario, ScenarioError
from skybraid_studies import Study, reproduce
from skybraid_studies.beyond import observations as beyond
from skybraid_studies.engine import documents, kept
from skybraid_studies.engine.claims import KINDS, Claim, Holds, Line
from skybraid_studies.engine.papers import FOLDER as STUDIES
from skybraid_studies.engine.places import fill
from skybraid_studies.engine.readings import present

SMALL = """
name = "One path"
duration = "20s"

[path.one]
uplink = { rate = "2Mbit/s", delay = "50ms" }
downlink = { rate = "2Mbit/s", delay = "50ms" }

[flow.bulk]
from = "vehicle"
traffic = { kind = "bulk", packet = "1000B" }
transport = { protocol = "tcp", congestion = "reno", segment = "1000B" }
"""

STUDY = """
title = "Loss over one path"
author = "Nobody, 2026"
default_reading = "plain"

[comparisons]
"all of it" = ["NOB-E01"]

[runs]
seeds = 4
duration = "20s"
checkpoints = ["10s", "20s"]

[quick]
seeds = 2
duration = "5s"
checkpoints = ["5s"]

[reading.plain]
about = "Nothing is replaced."

[reading.slow]
about = "Half of the rate."
scenario."small.toml" = { "path.one.uplink.rate" = "1Mbit/s" }

[sweep.loss]
label = "loss"
values = [0.0001, 0.01, 0.1]
quick = [0.01]
log = true
set = { "path.one.uplink.loss" = { uniform = "{100*x}%" } }

[series.bulk]
scenario = "small.toml"
measure = { kind = "goodput", flow = "bulk" }
"""

EXPERIMENT = """
figure = "Fig. 1"
finding = "Throughput falls with loss."
unit = "kbit/s"
sweep = "loss"

[series.TCP]
use = "bulk"
published = "one.csv"

[series.Counted]
use = "bulk"
measure = { kind = "goodput", flow = "bulk", estimator = "last_byte" }

[[claim]]
words = "It falls."
kind = "falls"
of = "TCP"
by = 2

[[claim]]
words = "Without losses the path is full."
kind = "value"
of = "TCP"
at = 0.0001
at_least = 1500
at_most = 2000
theirs = 1800
"""

WINDOW = """
figure = "Fig. 2"
finding = "The window grows."
unit = "B"
times = { until = "10s", every = "1s" }

[series.TCP]
use = "bulk"
measure = { kind = "window", flow = "bulk", paths = ["one"] }

[[claim]]
words = "It passes ten segments."
kind = "time_of_level"
of = "TCP"
level = 10000
at_most = 5
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """A study of one path, in a folder of its own."""
    folder = tmp_path / "studies" / "nobody2026"
    (folder / "published").mkdir(parents=True)
    for name, text in {
        "study.toml": STUDY,
        "small.toml": SMALL,
        "NOB-E01.toml": EXPERIMENT,
        "NOB-E02.toml": WINDOW,
        "published/one.csv": "# ours, rounded\nx,mean,sd\n0.0001,1800,10\n0.01,700,\n",
    }.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def lines(**series: list[list[float]]) -> dict[str, Line]:
    """Series with one row a seed over x = 1, 2, 3 …"""
    return {
        name: Line(name, tuple(float(x) for x in range(1, len(rows[0]) + 1)), np.array(rows, dtype=float), {})
        for name, rows in series.items()
    }


def judged(kind: str, found: dict[str, Line], **keys: Any) -> Holds:
    return Claim.parse({"words": "…", "kind": kind} | keys, "test").judge(found).verdict


def seeds(*values: float, spread: float = 0.01) -> list[list[float]]:
    """Four seeds around values, a few per cent apart."""
    return [[value * (1 + spread * shift) for value in values] for shift in (-1.5, -0.5, 0.5, 1.5)]


def independent(*values: float, spread: float) -> list[list[float]]:
    """Four seeds around values whose deviations differ from column to column."""
    shifts = np.array([[-1.5, 1.5], [1.5, -0.5], [-0.5, 0.5], [0.5, -1.5]])
    return [[value * (1 + spread * row[column % 2]) for column, value in enumerate(values)] for row in shifts]


# Series.


def test_a_reading_may_be_like_an_earlier_one(study: Path) -> None:
    text = (study / "study.toml").read_text(encoding="utf-8")
    lossy = """[reading.lossy]
like = "slow"
about = "Half of the rate, twice the delay."
runs = { duration = "10s", checkpoints = ["10s"] }
scenario."small.toml" = { "path.one.uplink.delay" = "100ms" }
"""
    (study / "study.toml").write_text(text.replace("[sweep.loss]", f"{lossy}\n[sweep.loss]"), encoding="utf-8")
    found = Study(study)
    one = found.experiments("lossy")["NOB-E01"]
    flown = found.scenario(one, one.series[0], 0.01, "lossy").toml()
    assert 'rate = "1Mbit/s"' in flown
    assert 'delay = "100ms"' in flown
    assert 'duration = "10s"' in flown
    assert found.experiments("slow")["NOB-E01"].runs.duration == "20s"
    (study / "study.toml").write_text(
        text.replace("[reading.slow]", '[reading.slow]\nlike = "lossy"'), encoding="utf-8"
    )
    with pytest.raises(ScenarioError, match=r"like: found lossy, expected one of plain"):
        Study(study)


def test_a_readings_hosts_give_way_to_what_a_series_says(study: Path) -> None:
    text = (study / "study.toml").read_text(encoding="utf-8")
    hosts = '[reading.hosts]\nabout = "Linux."\nhosts.tcp = { buffers = "auto", ack_rule = "linux" }\n'
    (study / "study.toml").write_text(text.replace("[sweep.loss]", f"{hosts}\n[sweep.loss]"), encoding="utf-8")
    table = '{ protocol = "tcp", ack_rule = "fixed" }'
    file = study / "NOB-E01.toml"
    said = f'use = "bulk"\nset = {{ "flow.bulk.transport" = {table} }}\n'
    file.write_text(file.read_text(encoding="utf-8").replace('use = "bulk"\n', said, 1), encoding="utf-8")
    found = Study(study)
    one = found.experiments("hosts")["NOB-E01"]
    flown = {each.name: found.scenario(one, each, 0.01, "hosts").toml() for each in one.series}
    assert 'buffers = "auto"' in flown["TCP"]
    assert 'ack_rule = "linux"' not in flown["TCP"]
    # The scenario's own transport is as it was.
    assert 'buffers = "auto"' not in flown["Counted"]


def test_runs_are_pooled_as_a_paper_pools_them(study: Path) -> None:
    each = reproduce(Study(study), ["NOB-E01"]).lines["NOB-E01"]["TCP"].values
    file = study / "NOB-E01.toml"
    text = file.read_text(encoding="utf-8").replace('use = "bulk"\n', 'use = "bulk"\nlargest_of = 2\n', 1)
    file.write_text(text, encoding="utf-8")
    pooled = reproduce(Study(study), ["NOB-E01"]).lines["NOB-E01"]["TCP"].values
    assert np.array_equal(pooled, np.maximum(each[0::2], each[1::2]))


# Claims.


@pytest.mark.parametrize(
    ("kind", "keys", "verdict"),
    [
        ("ratio", {"of": "five", "to": "one", "at_least": 4, "at_most": 6}, Holds.YES),
        ("ratio", {"of": "five", "to": "one", "at_least": 6, "at_most": 8}, Holds.NO),
        ("above", {"of": "five", "to": "one"}, Holds.YES),
        ("above", {"of": "one", "to": "five"}, Holds.NO),
        ("equal", {"of": "five", "to": "five"}, Holds.YES),
        ("equal", {"of": "five", "to": "one"}, Holds.NO),
        ("difference", {"of": "five", "to": "one", "at_least": 300, "at_most": 1500}, Holds.YES),
        ("value", {"of": "one", "at": 1, "at_least": 90, "at_most": 110}, Holds.YES),
        ("value", {"of": "one", "at": [1, 3], "at_least": 90, "at_most": 110}, Holds.NO),
        ("rises", {"of": ["one", "five"]}, Holds.YES),
        ("rises", {"of": "one", "by": 10}, Holds.NO),
        ("falls", {"of": "one"}, Holds.NO),
        ("flat", {"of": "one"}, Holds.NO),
        ("flat", {"of": "one", "from": 2, "to_x": 2}, Holds.OPEN),
        ("fair", {"of": ["one", "five"]}, Holds.NO),
        ("fair", {"of": ["one", "one"]}, Holds.YES),
        ("mean", {"of": "one", "at_least": 190, "at_most": 210}, Holds.YES),
        ("peak", {"of": "one", "at_least": 290, "at_most": 310}, Holds.YES),
        ("time_of_peak", {"of": "one", "at_least": 3, "at_most": 3}, Holds.YES),
        ("time_of_level", {"of": "one", "level": 150, "at_least": 2, "at_most": 2}, Holds.YES),
        ("time_of_level", {"of": "one", "level": 1e6, "at_most": 3}, Holds.NO),
        ("share_above", {"of": "five", "to": "one", "at_least": 0.9}, Holds.YES),
    ],
)
def test_a_claim_is_judged_by_what_came_out(kind: str, keys: dict[str, Any], verdict: Holds) -> None:
    found = lines(one=seeds(100, 200, 300), five=seeds(500, 1000, 1500))
    assert judged(kind, found, **keys) is verdict


# Source: the rule of three: without a failure in n trials, one-sided 95 % of 1 − 3 / n; two-sided 3.69 / n.
def test_a_share_over_flights_counts_messages_or_flights() -> None:
    def share(*met: float) -> Holds:
        found = lines(met=[[one] for one in met], of=[[10_000.0]] * len(met))
        return judged("pooled", found, of="met", to="of", at_least=99.99)

    assert share(*[10_000.0] * 4) is Holds.YES
    assert share(*[10_000.0] * 3) is Holds.OPEN
    # Of the same loss, spread out it is known well, and in one flight of ten hardly.
    assert share(*[9_990.0] * 10) is Holds.NO
    assert share(*[10_000.0] * 9, 9_900.0) is Holds.OPEN


def test_a_pattern_stands_for_the_series_that_it_matches() -> None:
    claim = Claim.parse({"words": "…", "kind": "above", "of": ["TCP *"], "to": "TCP 1"}, "here")
    named = claim.among(["TCP 1", "UDP 1", "TCP 5", "TCP 15"])
    assert (named.of, named.to) == (("TCP 5", "TCP 15"), ("TCP 1",))


def test_an_interval_that_straddles_its_bound_judges_nothing() -> None:
    noisy = lines(one=independent(100, 100, spread=0.2), other=seeds(105, 105))
    assert judged("above", noisy, of="other", to="one") is Holds.OPEN
    assert judged("above", noisy, of="other", to="one", by=0.4) is Holds.YES


def test_one_seed_and_missing_numbers_judge_nothing() -> None:
    assert judged("value", lines(one=[[100.0]]), of="one", at_least=1) is Holds.OPEN
    nothing = lines(one=seeds(math.nan), other=seeds(1.0))
    assert judged("above", nothing, of="other", to="one") is Holds.OPEN


def test_a_run_that_never_used_a_path_is_left_out_and_said_so() -> None:
    found = lines(A=[[80.0], [math.nan], [82.0], [81.0]], B=[[40.0], [40.0], [41.0], [40.5]])
    claim = Claim.parse({"words": "…", "kind": "ratio", "of": "A", "to": "B", "at_least": 1.5}, "test")
    assert claim.judge(found).verdict is Holds.OPEN
    found["A"] = replace(found["A"], absent="path never used")
    judgement = claim.judge(found)
    assert judgement.verdict is Holds.YES
    assert judgement.decisive is not None
    assert judgement.decisive.what == "A / B at 1; path never used in 1 of 4 runs"
    never = {"A": replace(found["A"], values=np.full((4, 1), math.nan)), "B": found["B"]}
    judgement = claim.judge(never)
    assert judgement.verdict is Holds.OPEN
    assert judgement.decisive is not None
    assert judgement.decisive.what.endswith("path never used in 4 of 4 runs")


def test_linear_means_in_proportion_to_the_parameter() -> None:
    one, five = lines(one=seeds(100, 200), five=seeds(520, 980)).values()
    found = {
        "one": Line("one", one.x, one.values, {}, 1.0),
        "five": Line("five", five.x, five.values, {}, 5.0),
    }
    assert judged("linear", found, of=["one", "five"]) is Holds.YES
    found["five"] = Line("five", five.x, five.values / 2, {}, 5.0)
    assert judged("linear", found, of=["one", "five"]) is Holds.NO


def test_published_numbers_are_compared_by_the_median_of_their_ratios() -> None:
    (one,) = lines(one=seeds(100, 200, 900)).values()
    published = {1.0: (100.0, None), 2.0: (200.0, 5.0), 3.0: (300.0, 5.0)}
    found = {"one": Line("one", one.x, one.values, published)}
    assert judged("published", found, of="one") is Holds.YES
    assert judged("published", found, of="one", at_least=2, at_most=4) is Holds.NO
    # Of an experiment with more runs those count whose seeds the other has too.
    more = Line("more", one.x, np.vstack([one.values, 9 * one.values]), published)
    assert judged("published", found | {"more": more}, of=["one", "more"]) is Holds.YES


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"kind": "rise", "of": "one"}, "kind: found rise, expected one of"),
        ({"kind": "rises", "of": "one", "tolerence": 1}, "did you mean `tolerance`?"),
        ({"kind": "ratio", "to": "one"}, "of: found nothing"),
        ({"kind": "value", "of": 3}, "of: found 3, expected a text or a list"),
        ({"kind": "value", "of": "one", "at_least": "3"}, "at_least: found '3', expected a number"),
        ({"kind": "above", "of": ["a", "b", "c"], "to": ["a", "b"]}, "to: found 2 series, expected one, or 3"),
    ],
)
def test_a_claim_that_makes_no_sense_is_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ScenarioError, match=r"^here: ") as caught:
        Claim.parse({"words": "…"} | keys, "here")
    assert message in str(caught.value)


# Files.


def test_places_in_values_are_filled_in() -> None:
    assert fill("{x}", x=1e-7) == 1e-7
    assert fill("{k}", k=5.0) == 5
    assert fill({"rate": "{20/k}Mbit/s", "list": ["{100*x}%"]}, x=0.01, k=15) == {
        "rate": "1.33333333333Mbit/s",
        "list": ["1%"],
    }
    assert fill("{x} of {k}", k=2) == "{x} of 2"
    assert [fill("{min(k, 13)}", k=k) for k in (5, 15)] == [5, 13]
    assert fill("{min(k, 13)} of {26/min(k, 13)}", k=15) == "13 of 2"
    assert fill("{min(k, 13}", k=15) == "{min(k, 13}"
    assert fill(True) is True


@pytest.mark.parametrize(
    "folder", sorted(file.parent for file in STUDIES.glob("*/study.toml")), ids=lambda folder: folder.name
)
def test_every_point_of_every_study_is_a_scenario(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Many experiments and readings share points: each is read once.
    monkeypatch.setattr(Scenario, "load", cache(Scenario.load))
    study = Study(folder)
    for reading in dict.fromkeys(present(study.readings, name)[0] for name in study.readings):
        experiments = study.experiments(reading)
        assert experiments
        for one in experiments.values():
            assert one.claims or one.needs, one.id
            for series in one.series:
                if series.scenario is not None:
                    for quick in (False, True):
                        # The values of a sweep are numbers: what is valid at both ends is valid between them.
                        xs = one.sweep.quick if quick else one.sweep.values[:1]
                        for x in {min(xs), max(xs)}:
                            scenario = study.scenario(one, series, x, reading, quick=quick)
                            assert scenario.duration_s >= max(one.times_s, default=0)


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("study.toml", "[runs]", "[run]", "did you mean `runs`?"),
        ("study.toml", 'duration = "20s"', 'duration = "5s"', "checkpoints: found"),
        ("study.toml", "seeds = 4", "seeds = 0", "seeds: found 0, expected at least 1"),
        ("study.toml", 'default_reading = "plain"', 'default_reading = "none"', "expected one of plain, slow"),
        ("NOB-E01.toml", 'sweep = "loss"', 'sweep = "lost"', "sweep: found lost, expected one of loss"),
        ("NOB-E01.toml", 'use = "bulk"', 'use = "bluk"', "use: found bluk, expected one of bulk"),
        ("NOB-E01.toml", 'of = "TCP"', 'of = "UDP"', "claim 1: found UDP, expected one of TCP, Counted"),
        ("NOB-E01.toml", "one.csv", "two.csv", "cannot read the published numbers"),
        ("NOB-E01.toml", "figure", "figures", "figures: found an unknown key, expected `figure`"),
        ("NOB-E01.toml", 'figure = "Fig. 1"', "", "figure: found nothing"),
        (
            "NOB-E02.toml",
            '"window"',
            '"windows"',
            "kind: found windows, expected one of goodput, delay, transfer_time, window",
        ),
        ("published/one.csv", "x,mean", "y,mean", "expected x, mean, sd"),
    ],
)
def test_a_study_with_a_fault_is_refused(study: Path, file: str, old: str, new: str, message: str) -> None:
    path = study / file
    path.write_text(path.read_text(encoding="utf-8").replace(old, new, 1), encoding="utf-8")
    with pytest.raises(ScenarioError) as caught:
        Study(study).experiments()
    assert message in str(caught.value)
    assert str(study) in str(caught.value)


def test_a_series_may_be_one_for_each_choice_of_words(study: Path) -> None:
    text = (study / "NOB-E02.toml").read_text(encoding="utf-8")
    text = text.replace("[series.TCP]", '[series."{cc} by {by}"]\neach = { cc = ["reno", "cubic"], by = ["1", "2"] }')
    text = text.replace('paths = ["one"] }', 'paths = ["one"] }\nset = { "flow.bulk.transport.congestion" = "{cc}" }')
    (study / "NOB-E02.toml").write_text(text.replace('of = "TCP"', 'of = "reno *"'), encoding="utf-8")
    one = Study(study).experiments()["NOB-E02"]
    assert [series.name for series in one.series] == ["reno by 1", "reno by 2", "cubic by 1", "cubic by 2"]
    assert [series.set["flow.bulk.transport.congestion"] for series in one.series] == ["reno", "reno", "cubic", "cubic"]
    assert one.claims[0].of == ("reno by 1", "reno by 2")


# Flying.


def test_an_experiment_is_flown_and_judged(study: Path, tmp_path: Path) -> None:
    card = reproduce(Study(study), out=tmp_path / "out")
    falls, windows = card.rows
    assert [falls.verdict, windows.verdict] == ["holds", "holds"]
    # The two series of the first share their runs: three losses, four seeds; the second has four of its own.
    assert (card.runs, card.kept) == (16, 0)
    kept_runs = [len(pl.read_parquet(file)) for file in (tmp_path / "out" / "points").glob("part-*.parquet")]
    assert sum(kept_runs) == 16
    by_point = {(one.series, one.x): one for one in card.points}
    one = by_point["TCP", 0.0001]
    assert one.low is not None
    assert one.ours is not None
    assert one.high is not None
    assert one.low <= one.ours <= one.high
    assert one.counted is not None
    assert one.ratio == pytest.approx(one.counted / 1800)
    # What arrived by the time of the last byte is a little more than what arrived by the end of the run.
    counted = by_point["Counted", 0.0001].ours
    assert counted is not None
    assert one.ours <= counted <= 1.02 * one.ours
    assert card.comparisons["all of it"]["points"] == 2
    assert json.loads((tmp_path / "out" / "scorecard.json").read_text(encoding="utf-8"))["paper"] == "nobody2026"


def test_what_was_flown_before_is_not_flown_again(study: Path, tmp_path: Path) -> None:
    first = reproduce(Study(study), ["NOB-E01"], out=tmp_path / "out")
    again = reproduce(Study(study), out=tmp_path / "out")
    assert (again.runs, again.kept) == (16, 12)
    assert again.rows[0] == first.rows[0]
    shutil.rmtree(tmp_path / "out" / "points")
    fresh = reproduce(Study(study), ["NOB-E01"])
    assert [one.ours for one in fresh.points] == [one.ours for one in first.points]


def test_a_reading_replaces_keys_of_scenarios(study: Path) -> None:
    card = reproduce(Study(study), ["NOB-E01"], reading="slow")
    assert card.rows[0].verdict == "does not hold"
    assert card.rows[0].unexplained
    ours = next(one.ours for one in card.points if one.x == 0.0001)
    assert ours is not None
    assert ours < 1000


def test_the_command_lists_flies_and_refuses(skybraid: Command, study: Path) -> None:
    place = ("--studies", study.parent)
    listed = skybraid("reproduce", "--list", *place)
    assert "NOB-E01" in listed.stdout
    assert "reading slow: Half of the rate." in listed.stdout
    done = skybraid("reproduce", "nobody2026", "NOB-E02", *place)
    assert done.returncode == 0
    assert "holds" in done.stdout
    quick = json.loads(skybraid("reproduce", "nobody2026", "--quick", "--json", *place).stdout)
    assert [row["quick"] for row in quick] == [True, True]
    for words, message in [
        (("reproduce", "somebody"), "found somebody, expected one of nobody2026"),
        (("reproduce", "nobody2026", "NOB-E09"), "expected some of NOB-E01, NOB-E02"),
        (("reproduce", "nobody2026", "--reading", "wild"), "--reading: found wild, expected one of plain, slow"),
    ]:
        refused = skybraid(*words, *place)
        assert refused.returncode == 2
        assert message in refused.stderr


def test_cheap_experiments_of_pedrazzi_hold_end_to_end() -> None:
    card = reproduce(Study(STUDIES / "pedrazzi2020"), ["PED-T2", "PED-V1", "PED-V2", "PED-V3"], quick=True)
    assert [row.verdict for row in card.rows] == ["holds"] * 4
    assert {row.id: row.theirs for row in card.rows}["PED-V1"] == 864


def test_pedrazzis_windows_leave_slow_start_where_they_did_for_him() -> None:
    (row,) = reproduce(Study(STUDIES / "pedrazzi2020"), ["PED-E08"], quick=True).rows
    slow_start = row.claims[0]
    assert slow_start.theirs == 9.45
    assert slow_start.verdict == "holds"
    assert slow_start.ours == pytest.approx(9.45, abs=1)


# Documents.


def blocks(study: Study) -> dict[str, str]:
    """What a study's page quotes of its kept results, those of its own reading first."""
    names = kept.names(study)
    cards = {name: kept.load(study, name) for name in names}
    own = cards[names[0]]["rows"]
    if study.paper == "beyond":
        with (study.folder / kept.FOLDER / "survey.csv").open(encoding="utf-8", newline="") as points:
            survey = beyond.survey(list(csv.DictReader(points)))
        return {
            "headline": documents.headline([cards[names[0]]]),
            "conclusions": documents.conclusions(own),
            "survey": survey,
            "explanations": documents.explanations(own),
        }
    found = {
        "headline": documents.headline([cards[name] for name in names if name in study.readings]),
        "scorecard": documents.markdown(own),
        "readings": documents.readings([cards[name] for name in names if name in study.readings]),
        "explanations": documents.explanations(own),
    }
    if "text-gateway" in cards:
        found["gateways"] = documents.by_gateways(cards["text-gateway"]["rows"], own)
    return found


@pytest.mark.parametrize("page", sorted(STUDIES.glob("*/page.md")), ids=lambda page: page.parent.name)
def test_a_studys_page_tells_its_scorecard(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for name, listed in blocks(Study(page.parent)).items():
        begin = f"<!-- {name}: from the scorecard; SKYBRAID_UPDATE_DOCS=1 rewrites it -->\n"
        before, rest = text.split(begin)
        found, after = rest.split(f"<!-- end of {name} -->", 1)
        if os.environ.get("SKYBRAID_UPDATE_DOCS"):
            found = listed
            text = f"{before}{begin}{found}<!-- end of {name} -->{after}"
            page.write_text(text, encoding="utf-8")
        assert found == listed, "SKYBRAID_UPDATE_DOCS=1 rewrites it"


def test_the_guide_tells_how_much_holds_of_all_papers() -> None:
    page = Path(__file__).parents[2] / "docs" / "studies.md"
    text = page.read_text(encoding="utf-8")
    studies = [Study(file.parent) for file in sorted(STUDIES.glob("*/study.toml")) if file.parent.name != "beyond"]
    listed = documents.total({study.paper: kept.load(study, study.reading) for study in studies})
    begin = "<!-- total: from the scorecards; SKYBRAID_UPDATE_DOCS=1 rewrites it -->\n"
    before, rest = text.split(begin)
    found, after = rest.split("<!-- end of total -->", 1)
    if os.environ.get("SKYBRAID_UPDATE_DOCS"):
        found = listed
        page.write_text(f"{before}{begin}{listed}<!-- end of total -->{after}", encoding="utf-8")
    assert found == listed, "SKYBRAID_UPDATE_DOCS=1 rewrites it"


KEPT = [(Study(file.parents[1]), file.stem) for file in sorted(STUDIES.glob("*/results/*.toml"))]


@pytest.mark.parametrize(("study", "name"), KEPT, ids=[f"{study.paper}-{name}" for study, name in KEPT])
def test_kept_results_are_those_of_the_present_files(study: Study, name: str) -> None:
    card = kept.load(study, name)
    experiments = study.experiments(card["reading"])
    if name == study.reading:
        assert card["quick"] is False
        assert [row["id"] for row in card["rows"]] == list(experiments)
    assert sum(len(row["claims"]) for row in card["rows"]) == card["claims"]
    assert sum(claim["verdict"] == Holds.YES for row in card["rows"] for claim in row["claims"]) == card["held"]
    for row in card["rows"]:
        assert row["checks"] == [kept.check(claim.words) for claim in experiments[row["id"]].claims], row["id"]


def test_kept_results_have_every_number_that_a_page_quotes(study: Path, tmp_path: Path) -> None:
    card = reproduce(Study(study), quick=True, out=tmp_path / "out")
    shutil.copytree(tmp_path / "out" / kept.FOLDER, study / kept.FOLDER)
    (name,) = kept.names(Study(study))
    again, whole = kept.load(Study(study), name), card.to_dict()
    for show in (documents.markdown, documents.explanations, documents.conclusions):
        assert show(again["rows"]) == show(whole["rows"])
    assert documents.readings([again]) == documents.readings([whole])
    assert again["digest"] == kept.digest(whole["rows"])


def test_rows_that_are_flown_alone_replace_the_kept_ones(skybraid: Command, study: Path) -> None:
    place = ("--studies", study.parent, "--quiet")
    shutil.copy(study / "NOB-E01.toml", study / "NOB-E03.toml")
    skybraid("reproduce", "--keep", *place)
    table = study / kept.FOLDER / "plain.csv"
    before = kept.load(Study(study), "plain")
    rows = table.read_text(encoding="utf-8").splitlines()
    assert (before["held"], before["claims"], len(rows)) == (5, 5, 6)
    # A claim that no window meets, and a slower path for those that are not flown again.
    text = WINDOW.replace("at_most = 5", "at_most = 0.5")
    (study / "NOB-E02.toml").write_text(text, encoding="utf-8")
    (study / "small.toml").write_text(SMALL.replace("2Mbit/s", "4Mbit/s"), encoding="utf-8")
    skybraid("reproduce", "NOB-E02", "--keep", *place)
    after = kept.load(Study(study), "plain")
    again = table.read_text(encoding="utf-8").splitlines()
    assert [row for row in again if "NOB-E02" not in row] == [row for row in rows if "NOB-E02" not in row]
    assert [row["verdict"] for row in after["rows"]] == ["holds", "does not hold", "holds"]
    assert (after["held"], after["claims"]) == (4, 5)
    assert after["comparisons"] == before["comparisons"]
    assert after["digest"] == f"sha256:{hashlib.sha256(table.read_bytes()).hexdigest()}" != before["digest"]


def test_a_part_of_a_comparison_or_a_quick_look_is_not_kept(skybraid: Command, study: Path) -> None:
    place = ("--studies", study.parent, "--quiet")
    skybraid("reproduce", "--keep", *place)
    quick = skybraid("reproduce", "NOB-E02", "--quick", "--keep", *place)
    assert (quick.returncode, "found --quick, expected --full" in quick.stderr) == (2, True)
    shutil.copy(study / "NOB-E01.toml", study / "NOB-E03.toml")
    text = STUDY.replace('["NOB-E01"]', '["NOB-E01", "NOB-E03"]')
    (study / "study.toml").write_text(text, encoding="utf-8")
    part = skybraid("reproduce", "NOB-E01", "--keep", *place)
    assert part.returncode == 2
    assert "found a part of the comparison all of it, expected NOB-E03 too" in part.stderr


def test_the_guide_of_claims_names_every_kind() -> None:
    from skybraid_studies.engine import claims

    for kind, about in KINDS.items():
        assert f"`{kind}`" in str(claims.__doc__)
        for key in about.keys:
            assert f"`{key}`" in str(claims.__doc__)


# Roles and causes.


def test_checks_and_fits_do_not_decide_an_experiment(study: Path) -> None:
    text = (study / "NOB-E01.toml").read_text(encoding="utf-8")
    wrong = text.replace("at_least = 1500\nat_most = 2000", 'at_least = 1\nat_most = 2\nrole = "check"')
    (study / "NOB-E01.toml").write_text(wrong, encoding="utf-8")
    (row,) = reproduce(Study(study), ["NOB-E01"], quick=True).rows
    assert [claim.role for claim in row.claims] == ["finding", "check"]
    assert row.counted == [row.claims[0]]
    assert row.verdict == row.claims[0].verdict
    text = (study / "NOB-E02.toml").read_text(encoding="utf-8")
    (study / "NOB-E02.toml").write_text(f'role = "check"\n{text}', encoding="utf-8")
    (row,) = reproduce(Study(study), ["NOB-E02"], quick=True).rows
    assert (row.role, row.held) == ("check", 1)


def test_a_cause_is_told_once_and_linked(study: Path, tmp_path: Path) -> None:
    cause = '\n[cause.rate]\nopen = "Two rates were tried."\n'
    (study / "study.toml").write_text(STUDY + cause, encoding="utf-8")
    twice = EXPERIMENT + EXPERIMENT[EXPERIMENT.rindex("[[claim]]") :]
    named = twice.replace("theirs = 1800", 'cause = "rate"').replace("at_least = 1500\nat_most = 2000", "at_most = 1")
    (study / "NOB-E01.toml").write_text(named, encoding="utf-8")
    card = reproduce(Study(study), ["NOB-E01"], out=tmp_path / "out").to_dict()
    shutil.copytree(tmp_path / "out" / kept.FOLDER, study / kept.FOLDER)
    found = documents.explanations(card["rows"])
    assert found.count("Two rates were tried.") == 1
    assert found.count("(#cause-rate)") == 2
    assert "**rate** (open; NOB-E01)" in found
    (row,) = kept.stored_rows(Study(study), "plain")
    assert (row["id"], row["check"], row["open"]) == ("NOB-E01", False, 2)
    (study / "NOB-E01.toml").write_text(named.replace('"rate"', '"rat"'), encoding="utf-8")
    with pytest.raises(ScenarioError, match="cause: found rat, expected one of rate"):
        Study(study).experiments()


def test_kept_rows_are_printed_without_a_run(skybraid: Command) -> None:
    rows = json.loads(skybraid("reproduce", "palazzi2007", "--kept", "--json").stdout)
    (one,) = [row for row in rows if row["id"] == "PAL-E06"]
    assert (one["verdict"], one["check"], one["claims_held"], one["claims"]) == ("holds", False, 5, 5)
    refused = skybraid("reproduce", "palazzi2007", "--kept", "--reading", "wild")
    assert refused.returncode == 2
