"""A flight's results: tables, judgement, folders that are whole or not there."""

import hashlib
import json
import subprocess
import threading
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from conftest import TWO_PATHS
from skybraid import MissingTableError, ResultError, Results, Scenario, ScenarioError, Verdict, run
from skybraid.execute.pool import Gauge, on_all_cores
from skybraid.model.episodes import RunShare, share_interval


def table_digests(folder: Path) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(folder.glob("*.parquet"))}


def test_the_tables_are_there_with_their_columns(flown: Results) -> None:
    assert set(flown.tables) == {"messages", "subflows", "links", "summary", "flows"}
    messages = flown.tables["messages"]
    assert messages.columns == [
        "flow", "id", "class", "bytes", "sent_ns", "delivered_ns",
        "copies_sent", "copies_arrived", "path", "held_us", "within_deadline",
    ]  # fmt: skip
    assert set(flown.tables["links"]["direction"].unique()) == {"uplink", "downlink"}
    assert flown.tables.scan("subflows").collect_schema()["flow"] == pl.Enum(["video", "control"])


def test_the_judgement_agrees_with_the_messages(flown: Results) -> None:
    requirement = next(one for one in flown.requirements if one.flow == "video" and one.metric == "share")
    before_the_end = pl.col("sent_ns") + 100_000_000 <= 10_000_000_000
    decided = flown.tables["messages"].filter((pl.col("flow") == "video") & before_the_end)
    in_time = int(decided["within_deadline"].sum())
    assert decided["within_deadline"].null_count() == 0
    assert requirement.trials == decided.height
    assert requirement.estimate == pytest.approx(in_time / decided.height)
    # The engine's bins hold the messages of the table.
    width_ns = 2**24
    of_bin = pl.col("sent_ns") // width_ns
    bins = decided.group_by(of_bin).agg(pl.len(), pl.col("within_deadline").sum()).sort("sent_ns")
    trials, met = np.zeros((2, 1 + 10_000_000_000 // width_ns), dtype=np.int64)
    trials[bins["sent_ns"]], met[bins["sent_ns"]] = bins["len"], bins["within_deadline"]
    seen = share_interval([RunShare.of_bins(trials, met, width_ns / 1e9)])
    assert (requirement.low, requirement.high) == pytest.approx(seen.interval)
    assert (requirement.missed, requirement.episodes) == (seen.missed, seen.episodes)


def test_percentiles_goodput_and_shares_agree_with_the_messages(flown: Results) -> None:
    arrived = flown.tables["messages"].filter((pl.col("flow") == "video") & pl.col("delivered_ns").is_not_null())
    delays_ms = (arrived["delivered_ns"] - arrived["sent_ns"]) / 1e6
    video = flown.flows["video"]
    for name, quantile in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        assert video.delay_ms[name] == pytest.approx(delays_ms.quantile(quantile, "nearest"), rel=0.01)
    assert video.delivered == arrived.height
    assert video.goodput_bps == pytest.approx(int(arrived["bytes"].sum()) * 8 / 10, rel=0.02)
    for path, share in video.won.items():
        assert share == pytest.approx((arrived["path"] == path).mean(), abs=1e-6)


def test_every_message_is_delivered_lost_or_in_flight(flown: Results) -> None:
    for flow in flown.flows.values():
        assert flow.sent == flow.delivered + flow.lost + flow.in_flight


def test_a_short_flight_without_a_miss_does_not_show_five_nines(flown: Results) -> None:
    control = next(one for one in flown.requirements if one.flow == "control")
    assert control.verdict in (Verdict.INCONCLUSIVE, Verdict.NOT_MET)
    if control.estimate == 1:
        assert control.needed_s is not None
        assert control.needed_s > 10


def test_the_delay_tail_falls_from_all_messages_to_the_last_one(flown: Results) -> None:
    tail = flown.flows["video"].delay_tail
    delays, shares = zip(*tail, strict=True)
    assert list(delays) == sorted(delays)
    assert list(shares) == sorted(shares, reverse=True)
    assert shares[-1] == pytest.approx(1 / flown.flows["video"].delivered)


def test_the_same_seed_gives_the_same_files_and_another_seed_others(flown: Results, tmp_path: Path) -> None:
    assert flown.folder is not None
    again = run(Scenario(TWO_PATHS), out=tmp_path / "again")
    other = run(Scenario(TWO_PATHS), seed=4, out=tmp_path / "other")
    assert again.folder is not None
    assert other.folder is not None
    assert table_digests(again.folder) == table_digests(flown.folder)
    assert (again.folder / "summary.json").read_bytes() == (flown.folder / "summary.json").read_bytes()
    assert not other.tables["messages"].equals(flown.tables["messages"])


def test_a_folder_says_where_it_comes_from(flown: Results) -> None:
    assert flown.folder is not None
    provenance = json.loads((flown.folder / "provenance.json").read_text(encoding="utf-8"))
    assert provenance["seeds"] == [3]
    assert provenance["scenario"]["sha256"] == Scenario(TWO_PATHS).digest()
    assert provenance["circumstances"]["wall_s"] >= 0
    footer = json.loads(pl.read_parquet_metadata(flown.folder / "messages.parquet")["skybraid"])
    assert footer == {key: provenance[key] for key in ("version", "driver", "scenario", "seeds", "inputs")}
    assert Scenario.load(flown.folder / "scenario.toml").digest() == footer["scenario"]["sha256"]


def test_opened_again_it_is_the_same_result(flown: Results) -> None:
    assert flown.folder is not None
    opened = Results.open(flown.folder)
    assert opened.json() == flown.json()
    assert opened.flows == flown.flows
    assert opened.tables["links"].equals(flown.tables["links"])


def test_in_memory_and_saved_later_it_is_the_same_result(flown: Results, tmp_path: Path) -> None:
    assert flown.folder is not None
    held = run(Scenario(TWO_PATHS))
    assert held.folder is None
    assert held.tables["messages"].equals(flown.tables["messages"])
    saved = held.save(tmp_path / "saved")
    assert saved.tables["messages"].equals(flown.tables["messages"])
    assert held.tables["links"].equals(flown.tables["links"])
    assert table_digests(tmp_path / "saved").keys() == table_digests(flown.folder).keys()


def test_nothing_is_written_over_an_existing_result(flown: Results, tmp_path: Path) -> None:
    assert flown.folder is not None
    before = table_digests(flown.folder)
    with pytest.raises(ResultError, match="found files in it, expected a new or empty folder"):
        run(Scenario(TWO_PATHS), out=flown.folder)
    with pytest.raises(ResultError):
        flown.save(flown.folder)
    assert table_digests(flown.folder) == before
    assert [file.name for file in flown.folder.parent.iterdir()] == [flown.folder.name]
    empty = tmp_path / "empty"
    empty.mkdir()
    assert run(Scenario(TWO_PATHS), out=empty, tables=[]).folder == empty


def test_a_folder_below_a_file_cannot_be_written(two_paths: Path) -> None:
    with pytest.raises(ResultError, match="cannot write the result: Not a directory"):
        run(two_paths, out=two_paths / "result")
    with pytest.raises(ResultError, match="found a file, expected a new or empty folder"):
        run(two_paths, out=two_paths)
    assert [file.name for file in two_paths.parent.iterdir()] == [two_paths.name]


def test_a_full_disk_leaves_earlier_results_whole(two_paths: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=96k", "tmpfs", str(disk)]
    try:
        if subprocess.run(mount, capture_output=True, check=False).returncode:
            pytest.skip("mounting a small disk needs root")
    except FileNotFoundError:
        pytest.skip("this system has no mount")
    try:
        earlier = run(two_paths, tables=[], out=disk / "earlier")
        with pytest.raises(ResultError, match="later: cannot write the result: No space left on device"):
            run(two_paths, tables=["messages", "packets"], out=disk / "later")
        assert [file.name for file in disk.iterdir()] == ["earlier"]
        assert Results.open(disk / "earlier").json() == earlier.json()
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_several_seeds_are_judged_together(tmp_path: Path) -> None:
    scenario = Scenario(TWO_PATHS).with_("duration", "5s")
    seeds = list(range(1, 8))
    together = run(scenario, seeds=seeds, out=tmp_path / "seven")
    assert together.seeds == seeds
    assert set(together.tables) == {"summary", "flows"}
    pooled = together.requirements[0]
    assert pooled.trials == sum(flight.requirements[0].trials for flight in together.flights)
    interval = together.flows["video"].interval
    assert interval is not None
    low, high = interval["goodput_bps"]
    assert low <= together.flows["video"].goodput_bps <= high
    alone = run(scenario, seed=5, tables=[])
    assert together.flights[4].flows["video"].delivered == alone.flows["video"].delivered
    assert together.tables["flows"]["seed"].unique().sort().to_list() == seeds
    assert together.tables["summary"].filter(pl.col("seed").is_null()).height == len(together.requirements)


def test_tables_of_several_seeds_carry_the_seed(tmp_path: Path) -> None:
    scenario = Scenario(TWO_PATHS).with_("duration", "5s")
    results = run(scenario, seeds=[5, 2], tables=["links"], out=tmp_path / "both")
    links = results.tables["links"]
    assert set(links["seed"].unique()) == {2, 5}
    held = run(scenario, seeds=[5, 2], tables=["links"]).tables["links"]
    assert held.sort("seed", maintain_order=True).equals(links.sort("seed", maintain_order=True))


def test_a_table_that_was_not_kept_is_told(flown: Results) -> None:
    with pytest.raises(MissingTableError, match="table packets: this result does not contain it"):
        flown.tables.scan("packets")
    with pytest.raises(KeyError):
        flown.tables["packets"]
    assert "packets" not in flown.tables


def test_the_progress_ends_at_the_end() -> None:
    shares: list[float] = []
    run(Scenario(TWO_PATHS), tables=[], progress=shares.append)
    assert shares[-1] == 1.0
    assert shares == sorted(shares)


def test_the_progress_is_whole_only_after_what_is_flown_is_kept() -> None:
    gauge, reported, ended, shares = Gauge(1, 1.0), threading.Event(), [], []

    def fly(job: str) -> None:
        gauge.reporter(job)(1.0)
        reported.clear()
        assert reported.wait(120)
        ended.append(job)

    def report(share: float) -> None:
        shares.append((share, list(ended)))
        reported.set()

    on_all_cores(fly, ["a"], gauge, report)
    assert len(shares) > 1
    assert all((share == 1.0) == (done == ["a"]) for share, done in shares)


def test_a_progress_that_raises_stops_the_flight(tmp_path: Path) -> None:
    def weary(share: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(Scenario(TWO_PATHS).with_("duration", "1h"), progress=weary, out=tmp_path / "stopped")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("wishes", "words"),
    [
        ({"seed": 1, "seeds": [1]}, "found both"),
        ({"seeds": []}, "found none"),
        ({"seeds": [1, 1]}, "found one twice"),
        ({"seed": -1}, "found -1"),
        ({"tables": ["pixels"]}, "found pixels, expected some of messages"),
    ],
)
def test_wishes_that_make_no_sense_are_refused(wishes: dict[str, Any], words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        run(Scenario(TWO_PATHS), **wishes)


def test_a_share_of_all_messages_is_never_proved() -> None:
    perfect = Scenario(TWO_PATHS).with_("flow.control.require", {"deadline": "1s", "share": "100%"})
    judged = run(perfect.with_("path.near.uplink.loss", []).with_("path.far.uplink.loss", []), tables=[]).requirements
    words = next(one.words for one in judged if one.flow == "control")
    assert words.endswith("flights may refute 100 %, and never prove it"), words


def test_damaged_result_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ResultError, match="expected the folder of a result"):
        Results.open(tmp_path)
    run(Scenario(TWO_PATHS), tables=[], out=tmp_path / "result")
    (tmp_path / "result" / "scenario.toml").write_text(TWO_PATHS.replace("20ms", "21ms"), encoding="utf-8")
    with pytest.raises(ResultError, match=r"scenario\.toml: found a changed text"):
        Results.open(tmp_path / "result")
    (tmp_path / "result" / "summary.json").write_text('{"name": "half', encoding="utf-8")
    with pytest.raises(ResultError, match="damaged"):
        Results.open(tmp_path / "result")
    (tmp_path / "result" / "summary.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ResultError, match="damaged"):
        Results.open(tmp_path / "result")
