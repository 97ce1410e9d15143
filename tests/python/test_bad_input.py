"""Input that is wrong is refused in a line, with exit code 2, before anything is flown or written."""

import itertools
import json
import os
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from conftest import TWO_PATHS
from skybraid import Results, Scenario, ScenarioError, run, sweep
from skybraid.execute.plan import plan
from skybraid.model.provenance import MAX_RUNS

Command = Callable[..., CompletedProcess[str]]

PLUGIN = """
import sys
import skybraid

@skybraid.scheduler("leaving")
class Leaving:
    def choose(self, now_s, unit, paths):
        sys.exit(0)

@skybraid.scheduler("failing")
class Failing:
    def choose(self, now_s, unit, paths):
        return share_of(paths)

def share_of(paths):
    return 1 / 0
"""


def refused(done: CompletedProcess[str], *words: str) -> None:
    """Refused in plain words: exit code 2, no traceback, each of these words."""
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--set", "path.wifi.rate=1Mbit/s"], ["path.wifi.rate", "unknown path `wifi`", "`near`, `far`"]),
        (["--set", "path.fra.uplink.rate=1Mbit/s"], ["did you mean `far`?"]),
        (["--set", "flow.vidoe.transport.scheduler=single"], ["unknown flow `vidoe`", "did you mean `video`?"]),
        (["--set", "link.near.rate=1Mbit/s"], ["unknown link `near`"]),
        (["--set", "event.3.at=1s"], ["found `3`", "below 1"]),
        (["--set", "route.0.via=near"], ["found no `[[route]]`"]),
        (["--set", "paths.near.cost=1"], ["did you mean `[path.NAME]`"]),
        (["--set", "duration="], ["duration", "expected"]),
        (["--set", "duration=-5s"], ["duration", "-5s"]),
        (["--seeds", "1..1000000000000", "--summary"], ["1000000000000 runs", f"at most {MAX_RUNS}", "skybraid sweep"]),
        (["--seeds", "1..x"], ["found 1..x", "1..100"]),
        (["--seeds", "-3"], ["found -3", "1..100"]),
        (["--seeds", ""], ["found nothing", "1..100"]),
        (["--seeds", "5..1"], ["found 5..1"]),
        (["--seeds", "4,4"], ["found one twice, 4"]),
        (["--seeds", str(2**64)], [str(2**64), "2^64"]),
        (["--tables", ""], ["--tables", "found nothing"]),
        (["--tables", "mesages"], ["found mesages", "did you mean messages?"]),
    ],
)
def test_wrong_words_of_run_are_refused_in_a_line(
    skybraid: Command, two_paths: Path, arguments: list[str], words: list[str]
) -> None:
    done = skybraid("run", two_paths, *arguments)
    refused(done, *words)
    assert done.stderr.count("\n") == 1
    assert sorted(path.name for path in two_paths.parent.iterdir()) == ["two-paths.toml"]


def test_a_swept_key_of_no_path_is_refused(skybraid: Command, two_paths: Path) -> None:
    done = skybraid("sweep", two_paths, "--vary", "path.wifi.rate=1Mbit/s,2Mbit/s", "--out", "rates")
    refused(done, "unknown path `wifi`", "point 1 of 2")
    with pytest.raises(ScenarioError, match="unknown flow `vidoe`; did you mean `video`"):
        plan(Scenario(TWO_PATHS), vary={"flow.vidoe.class": ["control"]})


def test_an_error_shows_line_and_caret_in_command_and_python(skybraid: Command, two_paths: Path) -> None:
    two_paths.write_text(TWO_PATHS.replace('duration = "10s"', "duration = 10s"), encoding="utf-8")
    excerpt = "two-paths.toml:3:12: not TOML: "
    done = skybraid("run", two_paths)
    refused(done, excerpt, "\n3 | duration = 10s\n  |            ^^^")
    assert excerpt in skybraid("sweep", two_paths).stderr
    with pytest.raises(ScenarioError, match=r"\n3 \| duration = 10s\n  \|            \^\^\^"):
        Scenario.load(two_paths)


def test_a_track_without_cells_is_noticed(skybraid: Command, two_paths: Path) -> None:
    track = "[node.vehicle]\ntrack = { waypoints = [[47.0, 7.4], [47.0, 8.2]], speed = '60m/s', altitude = '30m' }\n"
    two_paths.write_text(TWO_PATHS + track, encoding="utf-8")
    done = skybraid("run", two_paths, "--summary")
    assert (
        f"two-paths.toml:{TWO_PATHS.count(chr(10)) + 2}:1: node.vehicle.track: the track has no effect" in done.stderr
    )


def test_what_is_no_file_or_too_long_is_no_scenario(skybraid: Command, tmp_path: Path) -> None:
    refused(skybraid("run", "/dev/zero"), "/dev/zero: found a device or pipe")
    refused(skybraid("run", tmp_path), "found a folder")
    os.mkfifo(tmp_path / "pipe.toml")
    refused(skybraid("run", "pipe.toml"), "found a device or pipe")
    long = tmp_path / "long.toml"
    with long.open("wb") as opened:
        opened.truncate((16 << 20) + 1)
    for command in ("run", "sweep"):
        refused(skybraid(command, long), "expected a scenario of at most 16 MiB")
    with pytest.raises(ScenarioError, match="16 MiB"):
        Scenario.load(long)
    refused(skybraid("run", "none.toml"), "none.toml: cannot read the scenario: No such file")


def test_a_missing_file_names_the_one_that_was_meant(skybraid: Command, tmp_path: Path) -> None:
    (tmp_path / "first.toml").touch()
    (tmp_path / "runs" / "first-1").mkdir(parents=True)
    refused(skybraid("run", "first"), "first: cannot read the scenario", "did you mean first.toml?")
    refused(skybraid("run", "frist.toml"), "did you mean first.toml?")
    refused(skybraid("report", "runs/first"), "found no such folder", "did you mean runs/first-1?")
    (tmp_path / "aircraft-20261128T063527Z.jsonl").touch()
    refused(skybraid("report", "aircraft.jsonl"), "did you mean aircraft-20261128T063527Z.jsonl?")
    for other in ("elsewhere/x.toml", "plans.toml"):
        assert "did you mean" not in skybraid("run", other).stderr


def test_a_file_of_another_kind_names_the_command_that_takes_it(skybraid: Command, tmp_path: Path) -> None:
    for name in ("route.kml", "lte.csv", "first.toml"):
        (tmp_path / name).touch()
    refused(skybraid("run", "route.kml"), "found no scenario; `skybraid new NAME --track route.kml` writes one")
    refused(skybraid("compare", "route.kml"), "--track route.kml")
    refused(skybraid("run", "lte.csv"), "`skybraid new NAME --trace lte=lte.csv` writes one")
    refused(skybraid("plot", "first.toml"), "found a file", "`skybraid run first.toml` makes a result")


@pytest.mark.parametrize(
    ("arguments", "missing"),
    [
        (["judge", "runs/first-1"], "option '--rlp'. Required link performance: "),
        (["assess", "lte=lte.csv"], "option '--require'. Requirement: 'control: 99.9%"),
        (["run"], "argument 'SCENARIO'. The scenario, a TOML file."),
        (["trace", "import"], "argument 'FILE...'. Files of measuring tools."),
    ],
)
def test_what_is_missing_is_named_with_an_example(skybraid: Command, arguments: list[str], missing: str) -> None:
    command = " ".join(word for word in arguments if word.isalpha())
    refused(skybraid(*arguments), f"Missing {missing}", f"\nExample: skybraid {command} ")
    error = json.loads(skybraid(*arguments, "--json").stdout)["error"]
    assert error.startswith(f"Missing {missing}")


def test_a_report_of_a_remote_campaign_needs_a_file(skybraid: Command, two_paths: Path) -> None:
    refused(
        skybraid("sweep", two_paths, "--out", "s3://bucket/a", "--report"), "--report: s3://bucket/a is not a folder"
    )
    refused(skybraid("compare", two_paths, "--page", "ranking.pdf"), "--page: found ranking.pdf")


@pytest.mark.parametrize(
    ("seeds", "words"),
    [
        ("1..x", "seeds: found 1..x, expected a range such as 1..100"),
        (range(10**12), "expected at most 100000"),
        (itertools.count(), "more than 100000"),
        ([1.5], "found 1.5, expected whole numbers"),
        ([True], "found True, expected whole numbers"),
        (7, "found 7, expected whole numbers, or a text"),
        (["1"], "found '1', expected whole numbers"),
    ],
)
def test_seeds_that_are_none_are_refused_plainly(seeds: Any, words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        run(Scenario(TWO_PATHS), seeds=seeds)


def test_a_text_of_seeds_is_taken_as_on_the_command_line() -> None:
    scenario = Scenario(TWO_PATHS).with_("duration", "5s")
    assert run(scenario, seeds="2..4", tables=[]).seeds == [2, 3, 4]
    assert run(scenario, seeds="5, 3", tables=[]).seeds == [5, 3]


def test_the_repr_of_results_is_short() -> None:
    results = run(Scenario(TWO_PATHS).with_("duration", "5s"), seeds="1..30", tables=[])
    text = repr(results)
    assert len(text) < 1000
    assert text.count("\n") <= 7
    assert text.startswith(f"Results('Two plain paths': 30 runs, {results.verdict}; flows: video, control)")
    assert len(results._repr_html_()) < 1500
    assert "<script" not in run(Scenario(TWO_PATHS).with_("name", "<script>"), tables=[])._repr_html_()


def test_a_plugin_that_leaves_is_an_error(skybraid_process: Command, two_paths: Path) -> None:
    folder = two_paths.parent
    (folder / "gone.py").write_text("import sys\nsys.exit(0)\n", encoding="utf-8")
    refused(skybraid_process("run", two_paths, "--plugin", "gone.py"), "gone.py:2: found sys.exit(0)")
    refused(skybraid_process("check-plugin", "gone.py"), "gone.py:2: found sys.exit(0)")
    (folder / "mine.py").write_text(PLUGIN, encoding="utf-8")
    words = ["--plugin", "mine.py", "--set", "flow.video.transport.scheduler=python:leaving"]
    for seeds in ("1", "1..3"):
        refused(
            skybraid_process("run", two_paths, "--seeds", seeds, *words), "mine.py:8: found sys.exit(0) during the run"
        )
    swept = skybraid_process("sweep", two_paths, "--out", "swept", *words)
    assert swept.returncode == 1
    assert "mine.py:8: found sys.exit(0) during the run" in swept.stdout


def test_a_plugin_that_raises_shows_its_own_frames_first(skybraid_process: Command, two_paths: Path) -> None:
    (two_paths.parent / "mine.py").write_text(PLUGIN, encoding="utf-8")
    done = skybraid_process(
        "run", two_paths, "--plugin", "mine.py", "--set", "flow.video.transport.scheduler=python:failing", "--quiet"
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: mine.py:16: ZeroDivisionError: division by zero\n")
    frames = [line for line in done.stderr.splitlines() if line.startswith('  File "')]
    assert len(frames) == 2
    assert all("mine.py" in frame for frame in frames)


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small campaign."""
    folder = tmp_path_factory.mktemp("swept") / "campaign"
    sweep(Scenario(TWO_PATHS).with_("duration", "5s"), seeds=[1, 2], out=folder)
    return folder


@pytest.mark.parametrize("command", ["run", "compare", "sweep", "report", "plot"])
def test_an_out_that_cannot_be_written_is_refused_first(
    skybraid: Command, two_paths: Path, swept: Path, command: str
) -> None:
    folder = two_paths.parent
    # A flight of this length would not end within the test.
    longest = ["--set", "duration=500h"] if command in ("run", "compare", "sweep") else []
    source = two_paths if longest else swept
    name = {"run": "out", "sweep": "out", "compare": "out.csv", "report": "out.html", "plot": "out.svg"}[command]
    (folder / name).symlink_to("nowhere")
    kind = ["--kind", "ecdf"] if command == "plot" else []
    done = skybraid(command, source, *longest, *kind, "--out", name)
    refused(done, f"{name}: found a symbolic link to")
    assert (folder / name).is_symlink()
    assert not (folder / "nowhere").exists()
    (folder / "file").write_text("")
    below = folder / "file" / name
    refused(skybraid(command, source, *longest, *kind, "--out", below), str(below))


def test_an_out_that_is_a_device_or_folder_is_refused(skybraid: Command, swept: Path, tmp_path: Path) -> None:
    device = Path("/dev/null").stat()
    refused(skybraid("report", swept, "--out", "/dev/null"), "found a device or pipe")
    assert Path("/dev/null").stat().st_rdev == device.st_rdev
    refused(skybraid("report", swept, "--out", tmp_path), "found a folder")
    refused(skybraid("report", swept, "--out", "."), "found a folder")


def test_a_link_to_an_empty_folder_takes_the_result(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "out").symlink_to("disk")
    run(Scenario(TWO_PATHS).with_("duration", "5s"), out=tmp_path / "out")
    assert (tmp_path / "out").is_symlink()
    assert Results.open(tmp_path / "disk").seeds == [3]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["compare", "two-paths.toml", "--flow", "vidoe"], ["found vidoe", "did you mean video?"]),
        (["compare", "two-paths.toml", "--schedulers", "low_rt"], ["found low_rt", "did you mean low_rtt?"]),
        (["compare", "two-paths.toml", "--schedulers", ","], ["--schedulers", "found nothing"]),
        (["list", "shedulers"], ["did you mean schedulers?"]),
        (["list", "links", "starlnk"], ["did you mean starlink?"]),
        (["plot", "CAMPAIGN", "--kind", "ecfd"], ["did you mean ecdf?"]),
        (["plot", "CAMPAIGN", "--kind", "ecdf", "--flow", "vidoe"], ["did you mean video?"]),
        (["sweep", "two-paths.toml", "--seeds", "1..2000000"], ["2000000 runs", "at most 1000000"]),
    ],
)
def test_a_misspelt_name_is_answered_with_the_likely_one(
    skybraid: Command, two_paths: Path, swept: Path, arguments: list[str], words: list[str]
) -> None:
    assert two_paths.exists()
    refused(skybraid(*(str(swept) if word == "CAMPAIGN" else word for word in arguments)), *words)
