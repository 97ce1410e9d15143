"""Campaigns: what is swept, that no run is lost or made twice, and that what fails stays to be seen."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

import skybraid
from conftest import Command
from skybraid import Campaign, MissingTableError, ResultError, Results, Scenario, ScenarioError, registry
from skybraid.execute.axes import read, values_of
from skybraid.execute.ranges import of_table
from skybraid.execute.rows import FLOWS, REQUIREMENTS, RUNS
from skybraid.model.formatting import count

TINY = """
name = "Tiny"
duration = "200ms"
seed = 5

[path.near]
rate = "10Mbit/s"
delay = "5ms"

[path.far]
rate = "10Mbit/s"
delay = "20ms"
loss = { uniform = "1ppm" } # so that runs may differ

[flow.control]
from = "ground"
traffic = { kind = "cbr", rate = "400kbit/s", packet = "125B" }
transport = { protocol = "udp", scheduler = "low_rtt" }
require = [{ deadline = "10ms", share = "99%" }, { delay = "10ms", percentile = "95%" }, { goodput = "1kbit/s" }]
"""

SWEEP = """
[sweep]
seeds = "1..3"
vary."flow.control.transport.scheduler" = ["low_rtt", "redundant"]
vary."path.near.rate" = { from = "5Mbit/s", to = "0.01Gbit/s", steps = 2 }
zip = [{ "path.near.delay" = ["5ms", "7ms"], "path.far.delay" = ["20ms", "21ms"] }]

[[sweep.case]]
name = "as it is"

[[sweep.case]]
name = "lossy"
set = { "path.near.loss" = { uniform = "10%" } }
"""


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A flight of 200 ms, in a file."""
    file = tmp_path / "tiny.toml"
    file.write_text(TINY, encoding="utf-8")
    return file


def runs(campaign: Campaign) -> pl.DataFrame:
    return campaign.scan(RUNS).sort("point", "seed").collect()


# What is swept.


def test_lists_ranges_zips_and_cases_give_their_product(tmp_path: Path) -> None:
    file = tmp_path / "swept.toml"
    file.write_text(TINY + SWEEP, encoding="utf-8")
    campaign = skybraid.sweep(file, out=tmp_path / "out")
    assert [axis.name for axis in campaign.axes] == [
        "case",
        "flow.control.transport.scheduler",
        "path.near.rate",
        "path.near.delay + path.far.delay",
    ]
    points = campaign.points()
    assert points.height == 2 * 2 * 2 * 2
    assert points["path.near.rate"].unique(maintain_order=True).to_list() == ["5Mbit/s", "10Mbit/s"]
    steps = points.select("path.near.delay", "path.far.delay").unique(maintain_order=True).rows()
    assert steps == [("5ms", "20ms"), ("7ms", "21ms")]
    assert points["done"].to_list() == [3] * 16
    lossy = campaign.scan(FLOWS).filter(pl.col("case") == "lossy").collect()
    assert lossy.filter(pl.col("flow.control.transport.scheduler") == "low_rtt")["lost_random"].sum() > 0
    requirements = campaign.scan(REQUIREMENTS).filter(pl.col("point") == 0).collect()
    assert requirements.filter(seed=1)["metric"].to_list() == ["share", "percentile", "goodput"]


def test_a_run_of_a_campaign_is_the_run_of_the_command(tiny: Path, tmp_path: Path) -> None:
    campaign = skybraid.sweep(tiny, vary={"path.near.delay": ["5ms", "9ms"]}, seeds=[4], out=tmp_path / "out")
    row = campaign.scan(FLOWS).filter(pl.col("path.near.delay") == "9ms").collect().row(0, named=True)
    results = skybraid.run(Scenario.load(tiny, [("path.near.delay", "9ms")]), seed=4, tables=())
    assert row["delay_p99_ms"] == results.flows["control"].delay_ms["p99"]
    assert (row["within_deadline"], row["trials"]) == (results.requirements[0].estimate, results.requirements[0].trials)
    assert campaign.replay(row["key"][:10]).flows == results.flows
    assert campaign.scenario_of(1).toml() == results.scenario


@pytest.mark.parametrize(
    ("table", "values"),
    [
        ({"from": "5Mbit/s", "to": "20Mbit/s", "steps": 4}, ["5Mbit/s", "10Mbit/s", "15Mbit/s", "20Mbit/s"]),
        ({"from": "10ms", "to": "1s", "steps": 3, "log": True}, ["10ms", "100ms", "1000ms"]),
        ({"from": "1%", "to": "2.2%", "by": "0.5%"}, ["1%", "1.5%", "2%"]),
        ({"from": 3, "to": 1, "by": -1}, [3, 2, 1]),
        ({"from": 0.0, "to": 1.0, "steps": 3}, [0.0, 0.5, 1.0]),
        ({"from": "0.1", "to": "0.3", "by": "0.1"}, [0.1, 0.2, 0.3]),
    ],
)
def test_a_range_holds_both_ends_in_the_unit_of_its_text(table: dict[str, object], values: list[object]) -> None:
    assert of_table(table, "x.toml: sweep") == values


@pytest.mark.parametrize(
    ("sweep", "words"),
    [
        ("seed = 3", "x.toml: sweep: seed: found an unknown key, expected one of `seeds`, "),
        ('seeds = "a..b"', "x.toml: sweep: seeds: found a..b, expected a range such as 1..100"),
        ("seeds = [1, 1]", "found one twice"),
        ('vary."path.near.rate" = []', "path.near.rate: found no value"),
        ('vary."path.near.rate" = ["1Mbit/s", "1Mbit/s"]', 'found "1Mbit/s" twice'),
        ('vary."path.near.rate" = { from = "1Mbit/s", to = "2ms", steps = 2 }', "to: found 2ms, expected a quantity"),
        ('vary."path.near.rate" = { from = "1Mbit/s", to = "2Mbit/s" }', "steps: found neither, expected"),
        (
            'vary."path.near.rate" = { from = "1Mbit/s", to = "2Mbit/s", step = 1 }',
            "`steps`, `by`; did you mean `steps`",
        ),
        ('vary."path.near.rate" = { from = "0Mbit/s", to = "2Mbit/s", steps = 2, log = true }', "not above zero"),
        ('zip = [{ "a.b" = ["1"], "a.c" = ["1", "2"] }]', "expected equally many values of each key"),
        ('vary."a.b" = ["1"]\nzip = [{ "a.b" = ["1"] }]', "a.b: found on two axes"),
        ("vary.seed = [1, 2]", 'expected `seeds = "1..20"`'),
        ('[[sweep.case]]\nset = { "a.b" = 1 }', "case.0.: name: found nothing"),
        ('[[sweep.case]]\nnam = "x"', "case.0.: nam: found an unknown key, expected `name`"),
        ('[[sweep.case]]\nname = "x"\nset.path.near.rate = "1Mbit/s"', "keys in quotes"),
        ('vary."path.near.rate" = "all"', "found all, expected it at a key that ends in one of `scheduler`"),
    ],
)
def test_errors_of_a_sweep_name_the_key(sweep: str, words: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        read(f"{TINY}\n[sweep]\n{sweep}", "x.toml")
    assert words.replace("case.0.", "case[0]") in str(caught.value)


def test_every_point_is_checked_before_the_first_flight(tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"point 2 of 2 \(path.near.rate=fast\): .*`fast` is not a number"):
        skybraid.sweep(tiny, vary={"path.near.rate": ["1Mbit/s", "fast"]}, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_all_stands_for_the_names_that_the_scenario_takes(tiny: Path, tmp_path: Path) -> None:
    notes: list[str] = []
    campaign = skybraid.sweep(
        tiny, vary={"flow.control.transport.protocol": "all"}, out=tmp_path / "out", note=notes.append
    )
    taken = campaign.points()["flow.control.transport.protocol"].to_list()
    left_out = [name for name in ("tcp", "dccp") if any(f"{name} is left out" in words for words in notes)]
    assert sorted(taken + left_out) == sorted(entry["name"] for entry in registry("protocols"))


def test_values_on_the_command_line_are_texts_between_commas_or_toml() -> None:
    assert values_of("5Mbit/s, 6Mbit/s") == ["5Mbit/s", "6Mbit/s"]
    assert values_of("1,2") == [1, 2]
    assert values_of("{ from = 1, to = 3, by = 1 }") == {"from": 1, "to": 3, "by": 1}


# Files of the folder.


def test_only_what_is_missing_is_flown(tiny: Path, tmp_path: Path) -> None:
    first = skybraid.sweep(tiny, seeds=[1, 2], vary={"path.near.delay": ["5ms"]}, out=tmp_path / "out")
    before = runs(first)
    statuses: list[tuple[int, int]] = []
    grown = skybraid.sweep(
        tiny,
        seeds=[2, 3],
        vary={"path.near.delay": ["6ms", "5ms"]},
        out=tmp_path / "out",
        progress=lambda status: statuses.append((status.cached, status.done)),
    )
    assert statuses[-1] == (1, 3)
    after = runs(grown)
    assert after.filter(pl.col("key").is_in(before["key"].to_list())).rows() == before.rows()
    assert after.select("path.near.delay", "seed").rows() == [
        ("5ms", 1),
        ("5ms", 2),
        ("5ms", 3),
        ("6ms", 2),
        ("6ms", 3),
    ]
    assert grown.axes[0].values == ["5ms", "6ms"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text.replace("400kbit/s", "500kbit/s"), "differs in flow.control.traffic.rate"),
        (lambda text: text + '\n[sweep]\nvary."path.far.delay" = ["1ms"]', "that varies path.near.delay, expected one"),
    ],
)
def test_another_campaign_s_folder_is_refused(
    tiny: Path, tmp_path: Path, change: Callable[[str], str], words: str
) -> None:
    campaign = skybraid.sweep(tiny, vary={"path.near.delay": ["5ms"]}, out=tmp_path / "out")
    before = runs(campaign)
    tiny.write_text(change(TINY), encoding="utf-8")
    with pytest.raises(ResultError, match=words):
        skybraid.sweep(tiny, vary={"path.near.delay": ["5ms"]}, out=tmp_path / "out", seeds=[9])
    assert runs(campaign).rows() == before.rows()


def test_a_comment_in_the_scenario_makes_no_other_campaign(tiny: Path, tmp_path: Path) -> None:
    skybraid.sweep(tiny, out=tmp_path / "out", seeds=[1])
    tiny.write_text(f"# Written later.\n{TINY}", encoding="utf-8")
    assert runs(skybraid.sweep(tiny, out=tmp_path / "out", seeds=[1, 2])).height == 2


def test_a_changed_trace_is_another_campaign(tmp_path: Path) -> None:
    trace = tmp_path / "rate.csv"
    trace.write_text("time,rate\n0,5\n1,6\n", encoding="utf-8")
    file = tmp_path / "tiny.toml"
    traced = 'rate = { trace = "rate.csv", column = "rate", unit = "Mbit/s", repeat = true }'
    file.write_text(TINY.replace('rate = "10Mbit/s"', traced, 1), encoding="utf-8")
    skybraid.sweep(file, out=tmp_path / "out", seeds=[1])
    trace.write_text("time,rate\n0,7\n1,6\n", encoding="utf-8")
    with pytest.raises(ResultError, match="input files"):
        skybraid.sweep(file, out=tmp_path / "out", seeds=[1, 2])


def test_a_folder_of_something_else_is_refused(tiny: Path, tmp_path: Path, flown: Results) -> None:
    assert flown.folder is not None
    for place in (flown.folder, tiny):
        with pytest.raises(ResultError, match="expected a"):
            skybraid.sweep(tiny, out=place)
    with pytest.raises(ResultError, match=r"found neither campaign.json nor summary.json"):
        skybraid.open_results(tmp_path)
    opened = skybraid.open_results(flown.folder)
    assert isinstance(opened, Results)


def test_there_is_no_fourth_table(tiny: Path, tmp_path: Path) -> None:
    campaign = skybraid.sweep(tiny, out=tmp_path / "out")
    with pytest.raises(MissingTableError, match="expected one of flows, requirements, runs"):
        campaign.scan("messages")


# What goes wrong.

RAISING = """
import skybraid

@skybraid.scheduler("raising_on_far")
class Raising:
    def __init__(self, path=0):
        self.path = path

    def choose(self, now_s, unit, paths):
        if self.path:
            raise RuntimeError("no such weather")
        return [path.id for path in paths][:1]
"""


def test_a_run_that_fails_says_how_to_fly_it_and_stops_no_other(skybraid: Command, tiny: Path) -> None:
    plugin = tiny.with_name("raising.py")
    plugin.write_text(RAISING, encoding="utf-8")
    tables = ", ".join(f'{{ name = "python:raising_on_far", path = {path} }}' for path in (0, 1))
    scheduler = f"flow.control.transport.scheduler=[{tables}]"
    words = ["sweep", tiny, "--plugin", plugin, "--vary", scheduler, "--seeds", "1..2", "--out", tiny.with_name("out")]
    done = skybraid(*words, "--json")
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["runs"]) == (1, {"done": 2, "failed": 2, "cached": 0})
    assert {run["seed"] for run in answer["failed"]} == {1, 2}
    assert "no such weather" in answer["failed"][0]["error"]
    replayed = subprocess.run(
        f"{sys.executable} -m {answer['failed'][0]['replay']}",
        shell=True,
        cwd=tiny.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "no such weather" in replayed.stderr


def test_a_failed_run_is_flown_again_only_on_demand(tiny: Path, tmp_path: Path) -> None:
    plugin = tiny.with_name("raising_again.py")
    plugin.write_text(RAISING.replace("raising_on_far", "raising_again"), encoding="utf-8")
    schedulers = [{"name": "python:raising_again", "path": path} for path in (0, 1)]
    made: list[tuple[int, int, int]] = []
    for retry in (False, False, True):
        campaign = skybraid.sweep(
            tiny,
            vary={"flow.control.transport.scheduler": schedulers},
            seeds=[1, 2],
            plugins=[plugin],
            out=tmp_path / "out",
            retry=retry,
            progress=lambda status: made.append((status.done, status.failed, status.cached)),
        )
        assert campaign.points().select("done", "failed").rows() == [(2, 0), (0, 2)]
    assert (made[-1], campaign.failed().height) == ((0, 2, 2), 2)


def test_a_full_disk_leaves_whole_runs_and_the_next_attempt_goes_on(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skybraid.sweep(tiny, out=tmp_path / "out", seeds=range(1, 6))
    synced = os.fsync
    calls = 0

    def full(descriptor: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:  # flows and requirements fit, runs do not
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        synced(descriptor)

    monkeypatch.setattr("skybraid.execute.store.os.fsync", full)
    with pytest.raises(ResultError, match="cannot write the campaign: No space left on device"):
        skybraid.sweep(tiny, out=tmp_path / "out", seeds=range(1, 11))
    opened = skybraid.open_results(tmp_path / "out")
    assert isinstance(opened, Campaign)
    assert (runs(opened).height, opened.scan(FLOWS).collect().height) == (5, 5)
    monkeypatch.undo()
    campaign = skybraid.sweep(tiny, out=tmp_path / "out", seeds=range(1, 11))
    assert runs(campaign)["seed"].to_list() == list(range(1, 11))
    # The part that did not count is gone, so that readers of files need not know about it.
    assert pl.read_parquet(tmp_path / "out" / "flows" / "*.parquet").height == 10
    assert not list((tmp_path / "out").rglob("*.partial"))


def test_a_killed_campaign_resumes_without_a_run_lost_or_repeated(tiny: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = [sys.executable, "-m", "skybraid", "sweep", str(tiny), "--seeds", "1..60", "--out", str(out), "--quiet"]
    # Long enough, one at a time, for the first part to be written well before the last run.
    words += ["--set", "duration=600s"]
    began = subprocess.Popen([*words, "--workers", "1"])
    try:
        end = time.monotonic() + 120
        while not list(out.glob("runs/*.parquet")) and time.monotonic() < end:
            time.sleep(0.02)
        began.send_signal(signal.SIGSTOP)
        if began.poll() is None:
            second = subprocess.run(words, capture_output=True, text=True, check=False)
            assert second.returncode == 2
            assert "found another process at work on this campaign" in second.stderr
    finally:
        began.send_signal(signal.SIGKILL)
        began.wait()
    opened = skybraid.open_results(out)
    assert isinstance(opened, Campaign)
    there = runs(opened).height
    assert 0 < there < 60
    assert subprocess.run(words, check=False).returncode == 0
    after = runs(opened)
    assert after["seed"].to_list() == list(range(1, 61))
    assert after["key"].n_unique() == 60
    flows = pl.read_parquet(out / "flows" / "*.parquet")
    assert (flows.height, set(flows["key"]) == set(after["key"])) == (60, True)


def test_ctrl_c_keeps_the_runs_that_are_done(tiny: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = [sys.executable, "-m", "skybraid", "sweep", str(tiny), "--seeds", "1..3000", "--out", str(out)]
    began = subprocess.Popen([*words, "--set", "duration=60s"], stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 120
    while not list(out.glob("runs/*.parquet")) and time.monotonic() < end:
        time.sleep(0.02)
    began.send_signal(signal.SIGINT)
    _, message = began.communicate(timeout=120)
    opened = skybraid.open_results(out)
    assert isinstance(opened, Campaign)
    assert began.returncode == 130
    assert f"interrupted: the {count(runs(opened).height)} runs made so far are kept" in message
    assert "nothing was written" not in message


# The command.


def test_the_newcomer_s_line_compares_all_schedulers(skybraid_process: Command, tiny: Path) -> None:
    done = skybraid_process("sweep", tiny, "--vary", "flow.control.transport.scheduler=all")
    assert done.returncode == 0
    names = [entry["name"] for entry in registry("schedulers")]
    lines = [line.split()[0] for line in done.stdout.splitlines() if line]
    assert [name for name in lines if name in names] == names
    assert "campaign: runs/tiny-sweep" in done.stdout
    assert "skybraid report runs/tiny-sweep" in done.stdout
    # Another one goes into a folder of its own.
    assert "runs/tiny-sweep_2" in skybraid_process("sweep", tiny, "--set", "duration=100ms").stdout


def test_a_sweep_writes_its_report_where_it_is_asked_to(skybraid: Command, tiny: Path) -> None:
    words = ["sweep", tiny, "--seeds", "1..2", "--set", "duration=200ms", "--out", "out"]
    assert "report: out/report.html;" in skybraid(*words, "--report").stdout
    assert "</html>" in (tiny.parent / "out" / "report.html").read_text(encoding="utf-8")
    assert json.loads(skybraid(*words, "--report", "--json").stdout)["report"] == "out/report.html"


def test_a_dry_run_prints_the_points_and_writes_nothing(skybraid: Command, tiny: Path) -> None:
    words = ("sweep", tiny, "--vary", "path.near.delay=5ms,6ms", "--seeds", "1..4", "--dry-run")
    done = skybraid(*words)
    assert done.returncode == 0
    assert "2 points, seeds 1..4: 8 runs, all checked; nothing was run" in done.stdout
    listed = json.loads(skybraid(*words, "--json").stdout)
    assert (listed["schema"], listed["seeds"], len(listed["points"])) == (1, [1, 2, 3, 4], 2)
    assert not (tiny.parent / "runs").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--vary", "path.near.delay"], "--vary: found path.near.delay, expected KEY=V1,V2"),
        (["--vary", "duration=1s", "--vary", "duration=2s"], "--vary: found duration twice, expected each key once"),
        (["--budget", "10"], "--budget: found it without --until"),
        (["--until", "x.share >= 99% ± shown"], "--until: found the flow x, expected one of control"),
        (["--on", "dask://127.0.0.1:9", "--workers", "2"], "expected it for this machine alone"),
        (["--on", "ray://here"], "--on: found ray://here, expected dask://HOST:PORT"),
        (["--out", "s4://bucket/x"], "s4://bucket/x: cannot open the campaign"),
    ],
)
def test_bad_words_are_refused(skybraid: Command, tiny: Path, words: list[str], message: str) -> None:
    done = skybraid("sweep", tiny, *words)
    assert done.returncode == 2
    assert message in done.stderr
