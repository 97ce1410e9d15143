"""A table of combinations of protocol, scheduler and congestion control over one scenario."""

import json
from collections.abc import Iterable
from itertools import product
from pathlib import Path

import polars as pl
import pytest

from conftest import TWO_PATHS, Command
from skybraid import ResultError, Scenario, ScenarioError, registry, run, scheduler
from skybraid.execute.compare import compare, text, write
from skybraid.model import algorithms
from skybraid.model.algorithms import PathView, Unit

SHORT = Scenario(TWO_PATHS).with_all({"event": [], "duration": "3s"})

KEYS = ("protocol", "scheduler", "congestion", "seed", "flow")


@pytest.fixture(scope="module")
def frame() -> pl.DataFrame:
    return compare(SHORT, flows=["video"], schedulers=["single", "redundant"], congestion=["reno", "cubic"])


def test_each_combination_has_a_row_for_each_flow(frame: pl.DataFrame) -> None:
    wanted = product(("mptcp", "mp_dccp"), ("single", "redundant"), ("reno", "cubic"), (3,), ("video", "control"))
    assert frame.select(KEYS).rows() == list(wanted)


def test_a_row_tells_what_a_run_with_those_names_tells(frame: pl.DataFrame) -> None:
    values = {"protocol": "mptcp", "scheduler": "redundant", "congestion": "reno"}
    results = run(SHORT.with_all({f"flow.video.transport.{key}": value for key, value in values.items()}), tables=())
    for name, flow in results.flows.items():
        conditions = values | {"flow": name}
        (row,) = frame.filter(**conditions).rows(named=True)
        assert row["goodput_bps"] == flow.goodput_bps
        assert row["delay_p99_ms"] == flow.delay_ms["p99"]
        assert row["held_total_s"] == flow.held_total_s
        assert (row["share_near"], row["share_far"]) == (flow.share["near"], flow.share["far"])
    share = next(it for it in results.requirements if it.flow == "video" and it.metric == "share")
    (row,) = frame.filter(**(values | {"flow": "video"})).rows(named=True)
    assert (row["deadline_ms"], row["within_deadline"]) == (100.0, share.estimate)


def test_a_flow_that_is_not_named_keeps_its_transport(frame: pl.DataFrame) -> None:
    control = frame.filter(flow="control", scheduler="single")
    # The scenario sends control redundantly, so half of its packets leave on each path.
    assert control["share_near"].to_list() == [0.5] * 4
    video = frame.filter(flow="video", scheduler="single")
    assert video["share_near"].to_list() == [1.0] * 4


def test_without_names_every_scheduler_meets_every_congestion_control(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(algorithms, "_registered", {algorithms.SCHEDULERS: {}, algorithms.CONGESTION: {}})
    scenario = SHORT.with_("duration", "100ms")
    flown = compare(scenario).filter(flow="video").select("protocol", "scheduler", "congestion").rows()
    names = [[entry["name"] for entry in registry(kind)] for kind in ("schedulers", "congestion")]
    assert flown == list(product(("mptcp", "mp_dccp"), *names))


def test_datagrams_have_no_congestion_control_and_a_row_for_each_scheduler() -> None:
    frame = compare(SHORT, protocols=["udp"], schedulers=["single", "redundant"])
    assert frame.filter(flow="video").select("scheduler", "congestion").rows() == [
        ("single", None),
        ("redundant", None),
    ]
    assert "udp       redundant  –" in text(frame)


def test_a_scheduler_of_one_s_own_takes_part() -> None:
    @scheduler("compared_last_path")
    class LastPath:
        def choose(self, now_s: float, unit: Unit, paths: list[PathView]) -> Iterable[int]:
            return [path.id for path in paths if path.usable and path.has_room][-1:]

    frame = compare(SHORT, flows=["video"], protocols=["udp"], schedulers=["single", "python:compared_last_path"])
    assert frame.filter(flow="video")["share_near"].to_list() == [1.0, 0.0]


def test_several_seeds_are_rows_of_the_frame_and_medians_of_the_text() -> None:
    frame = compare(SHORT, flows=["video"], schedulers=["redundant"], congestion=["cubic"], seeds=[1, 2, 3])
    assert frame.filter(flow="video", protocol="mptcp")["seed"].to_list() == [1, 2, 3]
    middle_ms = sorted(frame.filter(flow="video", protocol="mptcp")["delay_p99_ms"].to_list())[1]
    line = next(line for line in text(frame).splitlines() if line.startswith("mptcp"))
    assert f"{middle_ms:.1f}" in line


def test_the_text_has_a_line_for_each_combination_and_its_flows_beside_one_another(frame: pl.DataFrame) -> None:
    above, titles, *lines = text(frame).splitlines()
    assert [word for word in above.split() if word.isalpha()] == ["video", "control"]
    assert titles.split()[:3] == ["protocol", "scheduler", "congestion"]
    assert titles.count("in 100 ms") == titles.count("p99 ms") == titles.count("on near") == 2
    filled = [line for line in lines if line]
    assert [tuple(line.split()[:3]) for line in filled] == frame.filter(flow="video").select(KEYS[:3]).rows()
    assert {len(line) for line in filled} == {len(titles)}


def test_the_text_says_nothing_where_nothing_arrived() -> None:
    scenario = SHORT.with_all({"path.near.down": [["0s", "3s"]], "path.far.down": [["0s", "3s"]]})
    frame = compare(scenario, flows=["video"], protocols=["mptcp"], schedulers=["single"], congestion=["reno"])
    assert frame["delay_p50_ms"].to_list() == [None, None]
    assert "0.000 %       –       –" in text(frame)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ({"schedulers": ["quickest"]}, "schedulers: found quickest, expected some of single, round_robin"),
        ({"congestion": ["reno", "tahoe"]}, "congestion: found tahoe, expected some of reno"),
        ({"protocols": ["sctp"]}, "protocols: found sctp, expected some of udp"),
        ({"flows": ["sound"]}, "flow: found sound, expected one of video, control"),
        ({"seeds": [1, 1]}, "seeds: found one twice"),
        ({"protocols": ["tcp"]}, "tcp uses one path, found 2"),
    ],
)
def test_names_that_are_not_there_are_refused_with_those_that_are(names: dict[str, list[str]], words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        compare(SHORT, **names)  # type: ignore[arg-type]


def test_tables_are_written_as_their_name_ends(frame: pl.DataFrame, tmp_path: Path) -> None:
    for file, read in (("table.csv", pl.read_csv), ("table.parquet", pl.read_parquet)):
        write(frame, tmp_path / file)
        assert read(tmp_path / file).rows() == frame.rows()
    with pytest.raises(ResultError, match=r"expected a name that ends in \.csv or \.parquet"):
        write(frame, tmp_path / "table.xlsx")


def test_the_command_prints_the_table_or_json_and_writes_a_file(skybraid: Command, two_paths: Path) -> None:
    words = ["compare", two_paths, "--set", "duration=5s", "--schedulers", "single,low_rtt", "--congestion", "cubic"]
    done = skybraid(*words, "--flow", "video", "--out", "tables/all.csv")
    assert (done.returncode, "Traceback" in done.stderr) == (0, False)
    assert [line.split()[1] for line in done.stdout.splitlines() if line.startswith("mp")] == ["single", "low_rtt"] * 2
    written = pl.read_csv(two_paths.parent / "tables" / "all.csv")
    rows = json.loads(skybraid(*words, "--flow", "video", "--json", "--protocols", "mptcp").stdout)
    assert [row["delay_p99_ms"] for row in rows] == written.filter(protocol="mptcp")["delay_p99_ms"].to_list()
    quiet = skybraid(*words, "--quiet", "--seeds", "1..2")
    assert (quiet.stdout, quiet.stderr) == ("", "")
    refused = skybraid(*words, "--out", "all.txt")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "expected a name that ends in .csv or .parquet" in refused.stderr
