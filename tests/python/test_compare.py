"""A table of combinations of protocol, scheduler and congestion control over one scenario."""

import json
from collections.abc import Iterable
from dataclasses import replace
from itertools import product
from pathlib import Path

import polars as pl
import pytest

from conftest import TWO_PATHS, Command
from skybraid import ResultError, Scenario, ScenarioError, registry, run, scheduler
from skybraid.execute.compare import compare, text, write
from skybraid.execute.ranking import rank
from skybraid.model import algorithms
from skybraid.model.algorithms import PathView, Unit
from skybraid.model.statistics import Verdict
from skybraid.show.plots import style
from skybraid.show.ranking import Bar, intervals
from skybraid.show.report.ranking import Column, Estimate

SHORT = Scenario(TWO_PATHS).with_all({"event": [], "duration": "3s"})

KEYS = ("protocol", "scheduler", "congestion", "seed", "flow")


@pytest.fixture(scope="module")
def frame() -> pl.DataFrame:
    protocols, schedulers = ["mptcp", "mp_dccp"], ["single", "redundant"]
    return compare(SHORT, flows=["video"], protocols=protocols, schedulers=schedulers, congestion=["reno", "cubic"])


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
    share = next(
        requirement
        for requirement in results.requirements
        if requirement.flow == "video" and requirement.metric == "share"
    )
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


def test_datagrams_have_one_row_for_each_scheduler() -> None:
    frame = compare(SHORT, protocols=["udp"], schedulers=["single", "redundant"])
    assert frame.filter(flow="video").select("scheduler", "congestion").rows() == [
        ("single", None),
        ("redundant", None),
    ]
    assert "udp       redundant  –" in text(frame)


def test_a_named_flow_is_compared_over_its_own_protocol_too() -> None:
    frame = compare(SHORT, flows=["control"], schedulers=["redundant"], congestion=["reno"])
    assert frame.filter(flow="control")["protocol"].to_list() == ["mptcp", "mp_dccp", "udp"]
    assert set(compare(SHORT, schedulers=["redundant"], congestion=["reno"])["protocol"]) == {"mptcp", "mp_dccp"}


def test_a_ranking_begins_with_the_flow_that_is_named() -> None:
    found = rank(SHORT, flows=["control"], protocols=["udp"], schedulers=["single", "redundant"])
    assert found.measure.startswith("verdicts, then the share of control")
    assert [row["flow"] for row in found.places[0].flows] == ["control", "video"]
    assert found.places[0].requirements[0].flow == "control"


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


def test_the_text_has_a_line_for_each_combination(frame: pl.DataFrame) -> None:
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
    done = skybraid(*words, "--flow", "video", "--out", "tables/all.csv", "--page", "tables/all.html")
    assert (done.returncode, "Traceback" in done.stderr) == (0, False)
    assert done.stdout.startswith("best first: verdicts, then the share of video in time within 100 ms")
    written = pl.read_csv(two_paths.parent / "tables" / "all.csv")
    assert "</html>" in (two_paths.parent / "tables" / "all.html").read_text(encoding="utf-8")
    found = json.loads(skybraid(*words, "--flow", "video", "--json", "--protocols", "mptcp").stdout)
    assert {one["scheduler"] for place in found["places"] for one in place["combinations"]} == {"single", "low_rtt"}
    assert [row["delay_p99_ms"] for row in found["rows"]] == written.filter(protocol="mptcp")["delay_p99_ms"].to_list()
    quiet = skybraid(*words, "--quiet", "--seeds", "1..2")
    assert (quiet.stdout, quiet.stderr) == ("", "")
    refused = skybraid(*words, "--out", "all.txt")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "expected a name that ends in .csv, .parquet, .html, .tex, .pdf, .svg or .png" in refused.stderr


class TestRanking:
    def test_places_follow_what_is_required(self) -> None:
        # Half of a second is lost on the near path, which a copy on the far one makes good.
        scenario = SHORT.with_("path.near.down", [["1s", "500ms"]])
        found = rank(scenario, flows=["video"], protocols=["udp"], schedulers=["single", "redundant"])
        assert [place.names for place in found.places] == [["udp redundant"], ["udp single"]]
        share = next(one for one in found.places[1].requirements if (one.flow, one.metric) == ("video", "share"))
        (row,) = found.frame.filter(flow="video", scheduler="single").rows(named=True)
        assert share.estimate == row["within_deadline"]
        assert found.places[0].is_tied
        assert not found.places[1].is_tied

    def test_a_place_counts_the_requirements_without_proof(self) -> None:
        found = rank(SHORT, flows=["video"], protocols=["mptcp"], schedulers=["low_rtt"], congestion=["cubic"])
        (place,) = found.places
        of_two = [replace(place.requirements[0], verdict=verdict) for verdict in (Verdict.MET, Verdict.INCONCLUSIVE)]
        assert replace(place, requirements=tuple(of_two)).outcome == "1 of 2 inconclusive"
        assert replace(place, requirements=tuple(of_two[:1])).outcome == "met"
        assert replace(place, requirements=tuple(of_two[1:])).outcome == "inconclusive"

    def test_combinations_that_did_the_same_share_a_place(self) -> None:
        # With one path there is nothing to schedule.
        scenario = SHORT.with_all({"flow.video.transport.paths": ["near"], "flow.control.transport.paths": ["near"]})
        found = rank(scenario, flows=["video"], protocols=["udp"], schedulers=["single", "low_rtt", "redundant"])
        assert [len(place.combinations) for place in found.places] == [3]
        assert "1: the same to the last digit: udp single, low_rtt, redundant\n" in f"{found.text()}\n"

    def test_equal_combinations_are_named_in_groups(self) -> None:
        # Little data on one path: neither the scheduler nor the congestion control has anything to decide.
        scenario = SHORT.with_all({"flow.video.transport.paths": ["near"], "flow.control.transport.paths": ["near"]})
        controls = ["reno", "cubic", "olia"]
        found = rank(
            scenario, flows=["control"], protocols=["mptcp"], schedulers=["single", "blest"], congestion=controls
        )
        assert [len(place.combinations) for place in found.places] == [6]
        assert "digit: mptcp single, blest with every congestion control" in found.text()
        (place,) = found.places
        cubic = tuple(one for one in place.combinations if one.congestion == "cubic")
        others = tuple(one for one in place.combinations if one.congestion != "cubic")
        apart = replace(found, places=tuple(replace(place, combinations=one) for one in (others, cubic)))
        assert (
            "1: the same to the last digit: mptcp single, blest with every congestion control but cubic" in apart.text()
        )
        assert "2: the same to the last digit: mptcp single, blest with cubic" in apart.text()

    def test_places_beyond_the_first_are_counted(self) -> None:
        found = rank(SHORT, flows=["video"], protocols=["udp"], schedulers=["single", "round_robin", "redundant"])
        assert len(found.places) == 3
        assert "and 2 more places (2 combinations)" in found.text(shown=1)
        assert "more places" not in found.text(shown=None)

    def test_seeds_that_differ_in_no_direction_are_a_tie(self) -> None:
        found = rank(SHORT, protocols=["udp"], schedulers=["redundant"], flows=["video"], seeds=[1, 2])
        assert [place.is_tied for place in found.places] == [True]
        assert json.loads(json.dumps(found.to_dict()))["places"][0]["place"] == 1

    def test_a_table_for_latex_escapes_its_names(self) -> None:
        found = rank(SHORT, flows=["video"], protocols=["udp"], schedulers=["round_robin"])
        lines = found.latex().splitlines()
        assert lines[0].startswith(r"\begin{tabular}{r")
        assert r"round\_robin" in found.latex()
        assert {line.count("&") for line in lines if line.endswith(r"\\")} == {
            len(lines[0]) - len(r"\begin{tabular}{}") - 1
        }

    def test_what_cannot_run_is_left_out_unless_it_is_named(self) -> None:
        scenario = SHORT.with_all({"flow.video.transport.paths": ["near"], "flow.control.transport.paths": ["near"]})
        found = rank(scenario, flows=["video"], protocols=["udp"])
        assert any(words.startswith("udp by_class: left out") for words in found.left_out)
        with pytest.raises(ScenarioError):
            rank(scenario, flows=["video"], protocols=["udp"], schedulers=["by_class"], congestion=["cubic"])


def test_values_that_are_shown_alike_are_drawn_alike() -> None:
    alike = Column("goodput", "linear").bars([Estimate("4 Mbit/s", rate, None, None, rate) for rate in (3.999e6, 4e6)])
    assert [bar.estimate for bar in alike] == pytest.approx([50, 50], abs=1)
    apart = Column("goodput", "linear").bars([Estimate("", rate, None, None, rate) for rate in (3e6, 4e6)])
    assert [bar.estimate for bar in apart] == [4, 96]


@pytest.mark.filterwarnings("error")
def test_a_narrow_figure_wraps_long_names(tmp_path: Path) -> None:
    name = "mptcp redundant westwood_plus over lte+leo = mptcp mutran westwood_plus over lte+leo"
    figure = intervals([Bar(name, 0.99, 0.9, 1.0), Bar("udp low_rtt", 0.98, 0.9, 1.0)], "share", "control", 0.95, 88)
    style.save(figure, tmp_path / "figure.pdf")
    assert figure.get_size_inches()[0] == pytest.approx(88 / 25.4)
    (axes,) = figure.axes
    assert all(len(line) <= 24 for line in axes.get_yticklabels()[0].get_text().split("\n"))


def test_flights_are_compared_as_scenarios_are(skybraid: Command, tmp_path: Path) -> None:
    for name, step in (("a", 30), ("b", 60)):
        rows = "".join(f"{at},{step + at % 7},9\n" for at in range(120))
        (tmp_path / f"{name}.csv").write_text(f"time [s],downlink delay [ms],downlink rate [Mbit/s]\n{rows}")
    words = ["compare", "lte=a.csv", "leo=b.csv", "--require", "control: 99% within 300ms", "--budget", "1s"]
    words += ["--protocols", "udp", "--schedulers", "low_rtt,round_robin"]
    outs = ("table.csv", "table.tex", "figure.svg", "page.html")
    done = skybraid(*words, *(word for name in outs for word in ("--out", name)))
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    assert "udp low_rtt over lte+leo" in done.stdout
    assert done.stdout.endswith("".join(f"written: {name}\n" for name in outs))
    assert pl.read_csv(tmp_path / "table.csv")["place"].to_list() == [1, 2]
    assert (tmp_path / "table.tex").read_text().startswith(r"\begin{tabular}")
    assert (tmp_path / "figure.svg").read_text().startswith("<?xml")
    assert "udp low_rtt over lte+leo" in (tmp_path / "page.html").read_text()
    for wrong, expected in (
        (["lte=a.csv"], "--require: found none"),
        (
            ["lte=a.csv", "--require", "control: 99% within 300ms", "--seeds", "1..3"],
            "--seeds: found it next to measured",
        ),
        (["a", "b", "c"], "found 3 things to compare"),
        (["a.csv"], "a.csv: found a measurement (csv) without its network; expected a scenario, or NAME=FLIGHT"),
        (["lte=a.csv", "--width", "88mm"], "--width: is for a figure"),
    ):
        refused = skybraid("compare", *wrong)
        assert (refused.returncode, expected in refused.stderr) == (2, True), refused.stderr
