"""Two scenarios, results or campaigns held against one another, flight by flight."""

import json
from pathlib import Path

import polars as pl
import pytest

import skybraid
from conftest import Command
from skybraid import ResultError, Scenario
from test_campaigns import TINY

SAME = Scenario(TINY).with_("path.near.downlink.loss", {"uniform": "5%"})


def test_a_scenario_does_not_differ_from_itself() -> None:
    found = skybraid.paired(SAME, SAME, seeds=range(1, 9))
    assert len(found.differences) == 4
    for one in found.differences:
        assert (one.difference, one.low, one.high, one.pairs) == (0, 0, 0, 8)
        assert one.words.endswith("equal in all 8 pairs")


def test_a_known_difference_comes_out_as_it_is() -> None:
    # The near path takes 5 ms, and 8 ms in B; nothing is queued, so every message takes 3 ms longer.
    found = skybraid.paired(Scenario(TINY), Scenario(TINY).with_("path.near.delay", "8ms"), seeds=[1, 2, 3])
    (median,) = (one for one in found.differences if one.metric == "delay_p50_ms")
    assert median.difference == pytest.approx(3, abs=0.01)
    assert median.low == pytest.approx(3, abs=0.01)
    assert "3 ms higher in B" in median.words


def test_common_seeds_show_differences_that_averages_hide() -> None:
    # A copy on the far path makes good what the near one loses; the interval of the pairs excludes zero.
    other = SAME.with_("flow.control.transport.scheduler", "redundant").with_("path.far.delay", "4ms")
    found = skybraid.paired(SAME, other, seeds=range(1, 21))
    share = found.differences[0]
    assert (share.metric, share.pairs) == ("within_deadline", 20)
    assert share.low is not None
    assert 0 < share.low < share.difference == pytest.approx(share.mean_b - share.mean_a)
    assert "percentage points higher in B (95 % interval +" in share.words
    assert found.frame().filter(metric="within_deadline")["difference"].to_list() == [share.difference]


def test_results_and_campaigns_are_paired_on_what_they_share(tmp_path: Path) -> None:
    file = tmp_path / "tiny.toml"
    file.write_text(TINY, encoding="utf-8")
    delays = {"path.near.delay": ["5ms", "6ms"]}
    skybraid.sweep(file, vary=delays, seeds=[1, 2, 3], out=tmp_path / "a")
    skybraid.sweep(file, vary=delays, seeds=[2, 3, 4], out=tmp_path / "b", overrides=[("path.far.delay", "25ms")])
    found = skybraid.paired(tmp_path / "a", tmp_path / "b")
    assert found.seeds == (2, 3)
    assert {one.point for one in found.differences} == {"path.near.delay=5ms", "path.near.delay=6ms"}
    assert {one.pairs for one in found.differences} == {2}
    assert found.notes == ("4 rows of a flow and flight have no partner and are left out",)
    results = skybraid.run(Scenario.load(file), seeds=[3, 5], tables=(), out=tmp_path / "r")
    single = skybraid.paired(results, skybraid.sweep(file, seeds=[3, 5], out=tmp_path / "c"))
    assert [one.difference for one in single.differences] == [0.0] * 4
    # A scenario flies the other side's seeds.
    assert skybraid.paired(tmp_path / "c", Scenario.load(file)).seeds == (3, 5)
    with pytest.raises(ResultError, match=r"varies path.near.delay, .* varies nothing"):
        skybraid.paired(tmp_path / "a", tmp_path / "r")
    with pytest.raises(ResultError, match="found no flight of the same seed"):
        skybraid.paired(tmp_path / "c", tmp_path / "r", seeds=[9])


def test_one_pair_gives_no_interval_and_says_so() -> None:
    found = skybraid.paired(Scenario(TINY), Scenario(TINY).with_("path.near.delay", "8ms"), seeds=[1])
    assert "in one pair, which gives no interval" in found.differences[2].words
    assert found.differences[2].low is None


def test_the_command_prints_sentences_or_json_and_writes_a_file(skybraid: Command, tmp_path: Path) -> None:
    for name, text in (("a.toml", TINY), ("b.toml", TINY.replace('"5ms"', '"6ms"'))):
        (tmp_path / name).write_text(text, encoding="utf-8")
    words = ["compare", "a.toml", "b.toml", "--seeds", "1..3", "--out", "pairs.csv"]
    done = skybraid(*words)
    assert done.returncode == 0
    assert "  control, goodput: equal in all 3 pairs" in done.stdout
    assert "ms higher in B (95 % interval +" in done.stdout
    assert pl.read_csv(tmp_path / "pairs.csv")["pairs"].to_list() == [3] * 4
    answer = json.loads(skybraid(*words[:-2], "--json").stdout)
    assert (answer["a"], answer["b"], answer["seeds"]) == ("a.toml", "b.toml", [1, 2, 3])
    refused = skybraid(*words, "--schedulers", "blest")
    assert (refused.returncode, "expected it with one scenario alone" in refused.stderr) == (2, True)
