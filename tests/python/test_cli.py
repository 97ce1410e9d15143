"""The command: what it prints, the codes it leaves with, and that it never harms a result."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest

from conftest import TWO_PATHS, Command, emulator_lacks
from skybraid.cli.doctor import Check, conclusions

MET = TWO_PATHS.replace('share = "99.999%"', 'share = "75%"').replace('share = "95%"', 'share = "50%"')
MET = MET.replace('percentile = "95%"', 'percentile = "70%"')


def everything_below(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_a_flight_is_judged_in_plain_words(skybraid: Command, two_paths: Path) -> None:
    done = skybraid("run", two_paths)
    assert done.returncode == 1
    assert "messages arrived within 100 ms (95 % interval" in done.stdout
    assert "required 99.999 %" in done.stdout
    assert "runs/two-plain-paths-3" in done.stdout
    assert "Traceback" not in done.stderr
    folder = two_paths.parent / "runs" / "two-plain-paths-3"
    assert {file.name for file in folder.iterdir()} == {
        "messages.parquet", "subflows.parquet", "links.parquet", "summary.parquet", "flows.parquet",
        "summary.json", "scenario.toml", "provenance.json",
    }  # fmt: skip


def test_the_exit_code_is_nought_when_all_is_met(skybraid: Command, two_paths: Path) -> None:
    two_paths.write_text(MET, encoding="utf-8")
    done = skybraid("run", two_paths, "--quiet")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_json_is_one_object_and_nothing_else(skybraid: Command, two_paths: Path) -> None:
    done = skybraid("run", two_paths, "--json")
    result = json.loads(done.stdout)
    assert {"requirements", "simulated_s", "wall_s", "packet_hops", "seed", "version", "tables", "flows"} <= set(result)
    for requirement in result["requirements"]:
        assert {"flow", "metric", "estimate", "low", "high", "trials", "verdict"} <= set(requirement)
        assert requirement["verdict"] in ("met", "not met", "inconclusive")
    assert result["simulated_s"] == 10
    assert result["seed"] == 3
    assert result["packet_hops"] > 0
    for path in result["tables"].values():
        assert (two_paths.parent / path).exists()
    video = result["flows"]["video"]
    assert {"goodput_bps", "delay_ms", "lost_by_cause", "share"} <= set(video)
    assert set(video["delay_ms"]) == {"p50", "p95", "p99", "p99.9", "p99.999"}
    assert sum(video["share"].values()) == pytest.approx(1)


def test_json_of_several_seeds_gives_medians_with_intervals(skybraid: Command, two_paths: Path) -> None:
    done = skybraid("run", two_paths, "--json", "--seeds", "1..7", "--set", "duration=5s")
    result = json.loads(done.stdout)
    assert result["seeds"] == [1, 2, 3, 4, 5, 6, 7]
    assert result["simulated_s"] == 35
    low, high = result["flows"]["video"]["interval"]["goodput_bps"]
    assert low <= result["flows"]["video"]["goodput_bps"] <= high


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the peak of memory from /proc")
@pytest.mark.parametrize("duration", ["1min", "30min"])
def test_the_summary_alone_keeps_no_tables_and_takes_little_memory(two_paths: Path, duration: str) -> None:
    measured = "main()\nfinally:\n print(open('/proc/self/status').read())"
    program = f"from skybraid.cli import main\ntry:\n {measured}"
    words = ["run", str(two_paths), "--summary", "--quiet", "--set", f"duration={duration}"]
    done = subprocess.run(
        [sys.executable, "-c", program, *words], cwd=two_paths.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    peak_kb = next(line.split()[1] for line in done.stdout.splitlines() if line.startswith("VmHWM"))
    assert int(peak_kb) < 100_000
    folder = two_paths.parent / "runs" / "two-plain-paths-3"
    assert {file.name for file in folder.iterdir()} == {"summary.json", "scenario.toml", "provenance.json"}


def test_a_second_flight_gets_a_folder_of_its_own(skybraid: Command, two_paths: Path) -> None:
    first = skybraid("run", two_paths, "--summary")
    second = skybraid("run", two_paths, "--summary")
    assert "result: runs/two-plain-paths-3\n" in first.stdout
    assert "result: runs/two-plain-paths-3_2\n" in second.stdout


def test_two_flights_at_once_get_folders_of_their_own(two_paths: Path) -> None:
    words = [sys.executable, "-m", "skybraid", "run", str(two_paths), "--summary"]
    both = [subprocess.Popen(words, cwd=two_paths.parent, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    results = sorted(line for one in both for line in one.communicate()[0].splitlines() if line.startswith("result: "))
    assert results == ["result: runs/two-plain-paths-3", "result: runs/two-plain-paths-3_2"]


def test_a_file_called_runs_is_refused(skybraid: Command, two_paths: Path) -> None:
    (two_paths.parent / "runs").write_text("")
    done = skybraid("run", two_paths)
    assert (done.returncode, "cannot write the result: Not a directory" in done.stderr) == (2, True)


def test_a_result_that_is_there_already_stays_as_it_is(skybraid: Command, two_paths: Path) -> None:
    skybraid("run", two_paths, "--out", "kept", "--quiet")
    before = everything_below(two_paths.parent)
    done = skybraid("run", two_paths, "--out", "kept")
    assert done.returncode == 2
    assert done.stderr.startswith("error: kept: found files in it")
    assert everything_below(two_paths.parent) == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "nowhere.toml"], ["nowhere.toml", "No such file"]),
        (["run", "two-paths.toml", "--set", "path.near.uplink.rat=5Mbit/s"], ["rat", "rate"]),
        (["run", "two-paths.toml", "--set", "path.near.uplink.rate=5"], ["rate", "5", "unit"]),
        (["run", "two-paths.toml", "--set", "duration"], ["--set", "KEY=VALUE"]),
        (["run", "two-paths.toml", "--seeds", "9..1"], ["--seeds", "1..100"]),
        (["run", "two-paths.toml", "--seed", "1", "--seeds", "1..2"], ["seed, seeds: found both"]),
        (["run", "two-paths.toml", "--tables", "pixels"], ["pixels", "messages"]),
        (["run", "two-paths.toml", "--out", "two-paths.toml/result"], ["Not a directory"]),
        (["run", "two-paths.toml", "--bogus"], ["--bogus"]),
        (["report", "."], ["found neither campaign.json nor summary.json", "expected a campaign or a result"]),
        (["plot", "."], ["found neither campaign.json nor summary.json", "expected a campaign or a result"]),
        (["list", "planets"], ["found planets, expected one of schedulers"]),
        (["new", "two-paths"], ["two-paths.toml", "nothing was changed"]),
    ],
)
def test_bad_input_leaves_with_two_and_plain_words(
    skybraid: Command, two_paths: Path, arguments: list[str], words: list[str]
) -> None:
    before = everything_below(two_paths.parent)
    done = skybraid(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr
    assert everything_below(two_paths.parent) == before


def test_ctrl_c_leaves_earlier_results_whole_and_nothing_half_done(skybraid: Command, two_paths: Path) -> None:
    skybraid("run", two_paths, "--out", "earlier", "--quiet")
    before = everything_below(two_paths.parent)
    words = [sys.executable, "-m", "skybraid", "run", str(two_paths), "--out", "later", "--set", "duration=200h"]
    child = subprocess.Popen(words, cwd=two_paths.parent, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not list(two_paths.parent.glob(".later.*.partial")) and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.5)
    child.send_signal(signal.SIGINT)
    _, message = child.communicate(timeout=120)
    assert child.returncode == 130
    assert "interrupted" in message
    assert "Traceback" not in message
    assert everything_below(two_paths.parent) == before
    assert not list(two_paths.parent.glob(".later*"))


def test_progress_goes_to_standard_error_in_plain_lines_when_piped(skybraid: Command, two_paths: Path) -> None:
    done = skybraid("run", two_paths, "--summary")
    assert "simulating: 100 %\n" in done.stderr
    assert "\x1b" not in done.stderr + done.stdout


def test_report_and_plots_are_written_beside_the_tables(skybraid: Command, two_paths: Path) -> None:
    skybraid("run", two_paths, "--out", "result", "--report", "--quiet")
    folder = two_paths.parent / "result"
    assert (folder / "report.html").stat().st_size > 10_000
    assert skybraid("report", "result", "--out", "elsewhere.html").stdout == "elsewhere.html\n"
    drawn = skybraid("plot", "result")
    assert drawn.returncode == 0
    kinds = ["ecdf", "ccdf", "box", "timeline", "shares", "goodput", "queue", "window"]
    assert [Path(line).name for line in drawn.stdout.splitlines()] == [f"{kind}.svg" for kind in kinds]
    assert skybraid("plot", "result", "--kind", "ccdf", "--out", "delay.pdf").returncode == 0
    assert (two_paths.parent / "delay.pdf").stat().st_size > 1_000
    assert skybraid("plot", "result", "--kind", "ccdf", "--out", "delay.bmp").returncode == 2
    assert skybraid("plot", "result", "--kind", "moon").returncode == 2


@pytest.mark.parametrize(
    "kind",
    ["schedulers", "congestion", "protocols", "reordering", "links", "traffic", "rate_control", "requirements"],
)
def test_the_lists_say_what_a_scenario_may_name(skybraid: Command, kind: str) -> None:
    entries = json.loads(skybraid("list", kind, "--json").stdout)[kind]
    assert entries
    plain = skybraid("list", kind).stdout
    for entry in entries:
        assert {"name", "summary", "source", "parameters"} <= set(entry)
        assert entry["name"] in plain


def test_a_link_is_shown_whole_with_its_numbers_and_their_sources(skybraid: Command) -> None:
    shown = skybraid("list", "links", "starlink")
    assert shown.returncode == 0
    assert shown.stdout.startswith("starlink: ")
    assert 'uplink.rate = "18Mbit/s"' in shown.stdout
    assert "baltaci2023, Table 1" in shown.stdout
    assert json.loads(skybraid("list", "links", "starlink", "--json").stdout)["text"] in shown.stdout + "\n"
    wrong = skybraid("list", "links", "starlnk")
    assert wrong.returncode == 2
    assert "found starlnk, expected one of lte-drone-urban" in wrong.stderr


def test_a_list_of_nothing_in_particular_names_everything(skybraid: Command) -> None:
    kinds = [line.partition(":")[0] for line in skybraid("list").stdout.splitlines()]
    expected = [
        "schedulers",
        "congestion",
        "protocols",
        "reordering",
        "links",
        "traffic",
        "rate_control",
        "requirements",
    ]
    assert kinds == expected
    assert set(json.loads(skybraid("list", "--json").stdout)) == {"schema", *kinds}


def test_a_new_scenario_flies(skybraid: Command, tmp_path: Path) -> None:
    assert skybraid("new", "my-first-flight").stdout == "my-first-flight.toml\n"
    assert 'name = "My first flight"' in (tmp_path / "my-first-flight.toml").read_text(encoding="utf-8")
    done = skybraid("run", "my-first-flight.toml", "--set", "duration=5s", "--summary")
    assert done.returncode in (0, 1), done.stderr


@pytest.mark.parametrize(("like", "key"), [("scheduler", "schedulers"), ("congestion", "congestion")])
def test_a_new_algorithm_keeps_to_its_interface_and_is_compared(
    skybraid: Command, tmp_path: Path, like: str, key: str
) -> None:
    skybraid("new", "my-own.py", "--like", like)
    skybraid("new", "first", "--like", "remote-piloting")
    checked = skybraid("check-plugin", "my-own.py")
    assert checked.stdout == "python:my_own: keeps to its interface\n", checked.stderr
    command = re.search(r"skybraid (compare .*)", (tmp_path / "my-own.py").read_text(encoding="utf-8"))
    assert command is not None
    short = ["--set", "duration=5s", "--protocols", "mptcp"]
    done = skybraid(*command[1].split(), *short, *(["--schedulers", "low_rtt"] if key == "congestion" else []))
    assert "python:my_own" in done.stdout, done.stderr


@pytest.mark.parametrize("like", ["scheduler", "congestion"])
def test_an_own_algorithm_may_have_a_path_of_windows(skybraid: Command, tmp_path: Path, like: str) -> None:
    name = "C:\\Users\\new\\own.py"
    skybraid("new", name, "--like", like)
    with warnings.catch_warnings(action="error"):
        compile((tmp_path / name).read_text(encoding="utf-8"), name, "exec")


def test_the_doctor_lists_capabilities_and_fixes(skybraid: Command) -> None:
    done = skybraid("doctor", "--json")
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert checks["package polars"]["present"]
    assert all(check["fix"] for check in checks.values() if not check["present"])
    result = skybraid("doctor")
    assert result.returncode == done.returncode == 0
    assert result.stdout.splitlines()[-2].startswith("`skybraid run` (simulation): works")


@pytest.mark.parametrize(
    ("lacks", "expected"),
    [
        ([], ["works", "works"]),
        (["run"], ["lacks X", "lacks X"]),
        (["emulate"], ["works", "lacks X"]),
        (["some of emulate"], ["works", "works, but without X"]),
    ],
)
def test_the_doctor_concludes_which_commands_work(lacks: list[str], expected: list[str]) -> None:
    checks = [Check("Y", "run", present=True, found="it")]
    checks += [Check("X", needed_for, present=False, found="nothing") for needed_for in lacks]
    assert [line.split(": ", 1)[1] for line in conclusions(checks)] == expected


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no full device")
@pytest.mark.parametrize("words", [["run", "plain.toml"], ["run", "plain.toml", "--json"], ["run", "x.toml", "--json"]])
def test_a_full_standard_output_is_an_error_in_a_line(two_paths: Path, words: list[str]) -> None:
    two_paths.rename(two_paths.with_name("plain.toml"))
    command = [sys.executable, "-m", "skybraid", *words]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command, cwd=two_paths.parent, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    at = "x.toml: cannot read the scenario" if "x.toml" in words else "standard output: No space left on device"
    assert f"error: {at}" in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="needs a shell of POSIX")
def test_closed_standard_streams_are_as_good_as_null(two_paths: Path) -> None:
    command = f"{sys.executable} -m skybraid run {two_paths} --out kept 2>&- <&-"
    done = subprocess.run(command, shell=True, cwd=two_paths.parent, stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout.splitlines()[-2:] == ["result: kept", "report: skybraid report kept"]


def test_a_character_that_a_terminal_lacks_is_replaced() -> None:
    words = [sys.executable, "-m", "skybraid", "list", "schedulers"]
    done = subprocess.run(words, env=os.environ | {"PYTHONIOENCODING": "cp1252"}, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert "RFC 9897 §3.2.9" in done.stdout.decode("cp1252")
    assert "minimum ?" in done.stdout.decode("cp1252")


def test_what_the_emulator_lacks_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    lacking = {"name": "veth", "needed": True, "present": False, "found": "no permission", "fix": "run as root"}
    monkeypatch.setattr("skybraid._core.capabilities", lambda: [lacking])
    assert emulator_lacks() == "veth (found no permission; run as root)"


def test_the_version_is_printed(skybraid: Command) -> None:
    assert skybraid("--version").stdout.startswith("skybraid 0.")


def test_the_replay_command_flies_the_same_again(skybraid: Command, two_paths: Path) -> None:
    import shlex

    first = skybraid("run", two_paths, "--seed", "9", "--set", "duration=5s", "--out", "first")
    assert first.returncode == 1
    provenance = json.loads((two_paths.parent / "first" / "provenance.json").read_text(encoding="utf-8"))
    words = shlex.split(provenance["replay"])
    assert words[0] == "skybraid"
    skybraid(*words[1:], "--out", "second")
    for table in ("messages", "links", "subflows"):
        file = f"{table}.parquet"
        assert (two_paths.parent / "first" / file).read_bytes() == (two_paths.parent / "second" / file).read_bytes()


def test_packet_captures_are_written_for_each_link(skybraid: Command, two_paths: Path) -> None:
    assert skybraid("run", two_paths, "--out", "result", "--pcap", "--set", "duration=5s").returncode == 1
    captures = sorted((two_paths.parent / "result" / "pcap").iterdir())
    assert captures
    for capture in captures:
        assert capture.read_bytes()[:4] == b"\x0a\x0d\x0d\x0a"


def test_a_deadline_that_no_path_can_keep_is_noted_before_the_flight(skybraid: Command, two_paths: Path) -> None:
    two_paths.write_text(TWO_PATHS.replace('deadline = "100ms", share = "99.999%"', 'deadline = "10ms", share = "90%"'))
    done = skybraid("run", two_paths, "--summary")
    assert done.returncode == 1
    assert "note: flow.control.require: no message can arrive within 10ms" in done.stderr


def test_a_command_that_draws_nothing_does_not_load_what_draws() -> None:
    drawing = ("matplotlib", "bokeh", "scipy", "dask", "jinja2")
    script = f"import sys, skybraid.cli; print([name for name in {drawing!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
