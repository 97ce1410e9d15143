"""Algorithms written in Python: they run like built-in ones, and their errors are reported with their location."""

import json
import re
import textwrap
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import skybraid as sky
from conftest import TWO_PATHS, Command
from skybraid import Scenario, ScenarioError, Wait, run
from skybraid.model import algorithms
from skybraid.model.algorithms import AlgorithmError, PathBasics, PathView, Unit

DOCUMENT = Path(__file__).parents[2] / "docs" / "extending.md"
RUST_EXAMPLE = Path(__file__).parents[2] / "crates" / "transport" / "tests" / "it" / "extending.rs"

BULK = """
duration = "5s"

[path.near]
uplink = { rate = "8Mbit/s", delay = "15ms", queue = { packets = 40 }, loss = { uniform = "0.5%" } }
downlink = { rate = "8Mbit/s", delay = "15ms" }

[path.far]
uplink = { rate = "6Mbit/s", delay = "60ms", queue = { packets = 40 } }
downlink = { rate = "6Mbit/s", delay = "60ms" }

[flow.data]
from = "vehicle"
traffic = { kind = "bulk" }
transport = { protocol = "mptcp", scheduler = "SCHEDULER", congestion = "CONTROL" }

[[event]]
at = "3s"
path.near.down = "600ms"
"""

TABLES = ["messages", "subflows", "links", "packets"]


def bulk(scheduler: str = "low_rtt", congestion: str = "reno") -> Scenario:
    return Scenario(BULK.replace("SCHEDULER", scheduler).replace("CONTROL", congestion), "flight.toml")


def plugins() -> dict[str, str]:
    """The Python files of the document, by their names."""
    blocks = re.findall(r"```python\n# plugin: (\S+)\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    return dict(blocks)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("plugins")
    written = {}
    for name, text in plugins().items():
        written[name] = folder / name
        written[name].write_text(text, encoding="utf-8")
        algorithms.load(written[name])
    return written


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forgets what a test registers."""
    kept = {kind: dict(classes) for kind, classes in algorithms._registered.items()}
    monkeypatch.setattr(algorithms, "_registered", kept)


def same_tables(one: sky.Results, two: sky.Results) -> None:
    for table in TABLES:
        assert one.tables[table].height > 0
        assert one.tables[table].equals(two.tables[table]), table


def test_the_documents_low_rtt_gives_the_built_in_tables(files: dict[str, Path]) -> None:
    same_tables(run(bulk("low_rtt"), tables=TABLES), run(bulk("python:lowest_rtt"), tables=TABLES))


def test_it_does_so_for_datagrams_too(files: dict[str, Path]) -> None:
    built_in = Scenario(TWO_PATHS.replace('"round_robin"', '"low_rtt"'))
    own = Scenario(TWO_PATHS.replace('"round_robin"', '"python:lowest_rtt"'))
    one, two = run(built_in, tables=["messages", "packets"]), run(own, tables=["messages", "packets"])
    for table in ("messages", "packets"):
        assert one.tables[table].equals(two.tables[table])


def test_the_documents_reno_gives_the_tables_of_the_built_in_one(files: dict[str, Path]) -> None:
    same_tables(run(bulk(congestion="reno"), tables=TABLES), run(bulk(congestion="python:reno"), tables=TABLES))


def test_several_seeds_in_threads_repeat(files: dict[str, Path]) -> None:
    scenario = bulk("python:patient", "python:reno").with_("duration", "4s")
    one, two = (run(scenario, seeds=[1, 2, 3], tables=TABLES) for _ in range(2))
    same_tables(one, two)
    assert one.tables["messages"]["seed"].n_unique() == 3


def test_a_wait_says_for_which_path_and_until_when_and_ends_then(files: dict[str, Path]) -> None:
    scenario = bulk().with_("flow.data.transport.scheduler", {"name": "python:patient", "patience_ms": 30})
    decisions = run(scenario, tables=["decisions"]).tables["decisions"]
    waits = decisions.filter(pl.col("waits_for") == "near", pl.col("until_s").is_not_null())
    assert waits.height > 10
    ahead = waits["until_s"] - waits["time_ns"] / 1e9
    assert all(0 < span <= 0.030 + 1e-9 for span in ahead.to_list())
    asked_at = set(decisions["time_ns"].to_list())
    ends = [round(until * 1e9) for until in waits["until_s"].to_list()]
    next_asked = decisions.filter(pl.col("time_ns") > waits["time_ns"][0])["time_ns"][0]
    assert next_asked <= ends[0]
    assert asked_at & set(ends)
    sent = decisions.filter(pl.col("paths") > 0)
    assert sent["waits_for"].null_count() == sent["until_s"].null_count() == sent.height


@pytest.mark.usefixtures("fresh")
def test_a_datagram_leaves_when_its_scheduler_asked_to_be_asked_again() -> None:
    @sky.scheduler("late")
    class Late:
        def choose(self, now_s: float, unit: Unit, paths: list[PathView]) -> list[int] | Wait:
            return Wait(until_s=0.25) if now_s < 0.25 else [1]

    transport = {"protocol": "udp", "scheduler": "python:late"}
    one = {"kind": "file", "size": "1kB"}
    scenario = bulk().with_all({"flow.data.traffic": one, "flow.data.transport": transport})
    (delivered_ns,) = run(scenario, tables=["messages"]).tables["messages"]["delivered_ns"].to_list()
    # 1000 B of payload and 28 B of headers (RFC 768, RFC 791) at 6 Mbit/s, then 60 ms on the way.
    assert delivered_ns == pytest.approx(1e9 * (0.25 + 1028 * 8 / 6e6 + 0.060), abs=2)


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize(("buffer", "blocks"), [("20kB", True), ("6MB", False)])
def test_a_scheduler_learns_how_often_the_peers_window_blocked(buffer: str, blocks: bool) -> None:
    seen = [0]

    @sky.scheduler("watching")
    class Watching:
        def choose(self, now_s: float, unit: Unit, paths: list[PathView]) -> list[int]:
            assert unit.bytes <= unit.window_room_bytes
            seen.append(max(unit.blocked, seen[-1]))
            return [path.id for path in paths if path.usable and path.has_room][:1]

    run(bulk("python:watching").with_("flow.data.transport.receive_buffer", buffer), tables=[])
    assert (seen[-1] > 10) == blocks


def test_the_documents_examples_keep_to_their_interface(files: dict[str, Path]) -> None:
    found = [class_ for file in files.values() for class_ in algorithms.load(file)]
    assert [class_.__name__ for class_ in found] == ["LowestRtt", "Patient", "Reno"]
    for class_ in found:
        algorithms.check(class_)


def test_the_documents_rust_example_is_the_one_that_is_compiled() -> None:
    (block,) = re.findall(r"```rust\n// \S+\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    assert block in RUST_EXAMPLE.read_text(encoding="utf-8")


@pytest.mark.usefixtures("fresh")
def test_an_exception_ends_the_run_and_comes_out_as_it_is(tmp_path: Path) -> None:
    class OverheatedError(Exception):
        pass

    @sky.scheduler("hot")
    class Hot:
        def __init__(self, after: int = 100) -> None:
            self.left = after

        def choose(self, now_s: float, unit: Unit, paths: list[PathView]) -> list[int]:
            self.left -= 1
            if self.left < 0:
                raise OverheatedError(f"at {now_s:.1f} s")
            return [path.id for path in paths if path.usable and path.has_room][:1]

    with pytest.raises(OverheatedError) as caught:
        run(bulk("python:hot"), out=tmp_path / "result")
    assert "in choose" in "".join(traceback.format_tb(caught.tb))
    assert caught.value.__notes__ == ["raised by python:hot during a run"]
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(OverheatedError):
        run(bulk("python:hot"), seeds=[1, 2, 3])


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (3, TypeError, r"choose: found 3 \(int\), expected a set or list of path numbers, or Wait"),
        (None, TypeError, "expected a set or list of path numbers"),
        (["near"], TypeError, "expected a set or list of path numbers"),
        ([7], ValueError, "found path 7, expected a number from 0 to"),
        ({-1}, ValueError, "found path -1"),
        (Wait(until_s=-1.0), ValueError, "expected later than now_s"),
        (Wait(path=9), ValueError, "found path 9"),
    ],
)
def test_an_answer_that_means_nothing_is_refused(answer: object, error: type[Exception], words: str) -> None:
    class Odd:
        def choose(self, now_s: float, unit: Unit, paths: list[PathView]) -> Any:
            return answer

    sky.scheduler("odd")(Odd)
    with pytest.raises(error, match=words):
        run(bulk("python:odd"), tables=[])
    with pytest.raises(AlgorithmError, match=words):
        algorithms.check(Odd)


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize(
    ("window", "threshold", "pacing", "error", "words"),
    [
        (0, None, None, ValueError, "window: found 0, expected a number of bytes, at least a segment of"),
        ("wide", None, None, TypeError, r"window: found 'wide' \(str\), expected a number of bytes"),
        (float("nan"), None, None, ValueError, "window: found nan"),
        (float("inf"), None, None, ValueError, "window: found inf"),
        (20_000, "low", None, TypeError, "slow_start_threshold: found 'low'"),
        (20_000, None, 0, ValueError, "pacing_rate: found 0, expected a number of bit/s above zero"),
    ],
)
def test_a_window_that_cannot_be_is_refused(
    window: object, threshold: object, pacing: object, error: type[Exception], words: str
) -> None:
    class Odd:
        def __init__(self, path: PathBasics) -> None:
            self.window: Any = window
            self.slow_start_threshold = threshold
            self.pacing_rate = pacing

    sky.congestion_control("odd")(Odd)
    with pytest.raises(error, match=words):
        run(bulk(congestion="python:odd"), tables=[])
    with pytest.raises(AlgorithmError, match=words):
        algorithms.check(Odd)


@pytest.mark.usefixtures("fresh")
def test_the_check_finds_what_does_not_repeat_and_what_is_not_usable() -> None:
    import random

    class Dice:
        def choose(self, now_s: float, unit: Unit, paths: list[PathView]) -> set[int]:
            return {path.id for path in paths if path.usable and random.random() < 0.5}

    class Blind:
        def choose(self, now_s: float, unit: Unit, paths: list[PathView]) -> set[int]:
            return {path.id for path in paths}

    with pytest.raises(AlgorithmError, match="Dice: two instances that saw the same answered"):
        algorithms.check(Dice)
    with pytest.raises(AlgorithmError, match="which is not usable"):
        algorithms.check(Blind)


def test_a_paced_control_spreads_its_packets() -> None:
    class Steady:
        """Leaves at 2 Mbit/s whatever comes."""

        def __init__(self, path: PathBasics) -> None:
            self.window = 100 * path.segment_bytes
            self.pacing_rate = 2e6

    algorithms.check(Steady)
    sky.congestion_control("steady")(Steady)
    scenario = bulk(congestion="python:steady").with_("flow.data.transport.paths", ["far"])
    results = run(scenario, tables=["subflows"])
    assert results.tables["subflows"]["pacing_bps"].unique().to_list() == [2_000_000]
    assert results.flows["data"].goodput_bps == pytest.approx(1.9e6, rel=0.05)


@pytest.mark.parametrize(
    ("scenario", "words"),
    [
        (bulk("python:lowest_rt"), "unknown algorithm `python:lowest_rt`; did you mean `python:lowest_rtt`?"),
        (bulk(congestion="python:lowest_rtt"), "flow.data.transport.congestion: unknown algorithm"),
        (
            bulk().with_("flow.data.transport.scheduler", {"name": "python:patient", "patience": 3}),
            "flow.data.transport.scheduler: python:patient: got an unexpected keyword argument 'patience'",
        ),
    ],
)
def test_a_name_or_parameter_that_is_not_there_is_told_before_the_run(
    files: dict[str, Path], scenario: Scenario, words: str
) -> None:
    with pytest.raises(ScenarioError, match=r"^flight\.toml: flow\.data") as caught:
        run(scenario, tables=[])
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ('{ name = "python:x", gain = [1] }', "expected a number, a text, true or false"),
        ('"python:"', "unknown scheduler `python:`"),
    ],
)
def test_parameters_are_numbers_texts_and_truths(value: str, words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        Scenario(BULK.replace('"SCHEDULER"', value).replace("CONTROL", "reno"))


@pytest.mark.usefixtures("fresh")
def test_parameters_arrive_with_their_types() -> None:
    seen: list[dict[str, object]] = []

    @sky.scheduler("greedy")
    class Greedy:
        def __init__(self, **parameters: object) -> None:
            seen.append(parameters)

        def choose(self, now_s: float, unit: Unit, paths: list[PathView]) -> Wait:
            return Wait()

    given = {"count": 3, "share": 0.5, "name_of": "near", "eager": True}
    run(bulk().with_("flow.data.transport.scheduler", {"name": "python:greedy"} | given), tables=[])
    assert seen == [given, given]
    assert [type(value) for value in seen[0].values()] == [int, float, str, bool]


@pytest.mark.usefixtures("fresh")
def test_a_name_belongs_to_one_class() -> None:
    def choose(self: object, now_s: float, unit: Unit, paths: list[PathView]) -> list[int]:
        return []

    def made(name: str) -> Callable[..., Any]:
        return type(name, (), {"choose": choose, "__qualname__": name})

    sky.scheduler("mine")(made("One"))
    sky.scheduler("mine")(made("One"))
    with pytest.raises(ScenarioError, match="python:mine: found twice"):
        sky.scheduler("mine")(made("Two"))
    with pytest.raises(ScenarioError, match="expected letters, digits"):
        sky.scheduler("not a name")(made("One"))


def test_the_command_flies_lists_and_checks_a_plugin(
    skybraid_process: Command, tmp_path: Path, files: dict[str, Path]
) -> None:
    plugin = files["my_schedulers.py"]
    (tmp_path / "mine.py").write_text(plugin.read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "flight.toml").write_text(bulk("python:patient").toml(), encoding="utf-8")
    unknown = skybraid_process("run", "flight.toml")
    assert unknown.returncode == 2
    assert "unknown algorithm `python:patient`" in unknown.stderr
    assert "--plugin FILE.py" in unknown.stderr
    first = skybraid_process("run", "flight.toml", "--plugin", "mine.py", "--out", "first")
    assert first.returncode == 0, first.stderr
    provenance = json.loads((tmp_path / "first" / "provenance.json").read_text(encoding="utf-8"))
    assert provenance["replay"].endswith("--plugin mine.py")
    assert [entry["file"] for entry in provenance["inputs"]] == ["mine.py"]
    assert skybraid_process("run", "flight.toml", "--plugin", "mine.py", "--seeds", "1..3", "--summary").returncode == 0
    assert "python:patient" in skybraid_process("list", "schedulers", "--plugin", "mine.py").stdout
    (entry,) = [
        entry
        for entry in json.loads(skybraid_process("list", "schedulers", "--plugin", "mine.py", "--json").stdout)[
            "schedulers"
        ]
        if entry["name"] == "python:patient"
    ]
    assert entry["parameters"] == [{"name": "patience_ms", "unit": "", "default": "20.0", "summary": ""}]
    assert skybraid_process("check-plugin", "mine.py").stdout.splitlines() == [
        "python:lowest_rtt: keeps to its interface",
        "python:patient: keeps to its interface",
    ]


def test_the_command_tells_of_a_broken_plugin_with_its_traceback(skybraid_process: Command, tmp_path: Path) -> None:
    (tmp_path / "flight.toml").write_text(bulk("python:broken").toml(), encoding="utf-8")
    plugin = """
        import skybraid

        @skybraid.scheduler("broken")
        class Broken:
            def choose(self, now_s, unit, paths):
                return self.nowhere
    """
    (tmp_path / "broken.py").write_text(textwrap.dedent(plugin), encoding="utf-8")
    flown = skybraid_process("run", "flight.toml", "--plugin", "broken.py", "--out", "result")
    assert flown.returncode == 2
    assert "return self.nowhere" in flown.stderr
    assert "AttributeError" in flown.stderr
    assert "raised by python:broken during a run" in flown.stderr
    assert not (tmp_path / "result").exists()
    checked = skybraid_process("check-plugin", "broken.py")
    assert checked.returncode == 1
    assert "broken.py:7: python:broken: AttributeError" in checked.stderr
    (tmp_path / "empty.py").write_text("", encoding="utf-8")
    for file, words in [("empty.py", "registers no algorithm"), ("nowhere.py", "found no such file")]:
        done = skybraid_process("check-plugin", file)
        assert done.returncode == 2
        assert words in done.stderr


def test_a_scheduler_without_its_method_is_refused(skybraid_process: Command, tmp_path: Path) -> None:
    plugin = """
        import skybraid

        @skybraid.scheduler("idle")
        class Idle:
            def chose(self, now_s, unit, paths):
                return [0]
    """
    (tmp_path / "idle.py").write_text(textwrap.dedent(plugin), encoding="utf-8")
    done = skybraid_process("check-plugin", "idle.py")
    assert done.returncode == 2
    assert "idle.py: python:idle: found the class Idle without a method `choose`" in done.stderr


def test_a_plugins_name_without_its_prefix_is_guessed(skybraid: Command, tmp_path: Path) -> None:
    assert skybraid("new", "own.py").returncode == 0
    done = skybraid("list", "schedulers", "own", "--plugin", "own.py")
    assert done.returncode == 2
    assert done.stderr.rstrip().endswith("did you mean python:own?")
    (tmp_path / "two-paths.toml").write_text(TWO_PATHS.replace("round_robin", "own"), encoding="utf-8")
    done = skybraid("run", "two-paths.toml", "--plugin", "own.py")
    assert done.returncode == 2
    assert "transport.scheduler: unknown scheduler `own`; did you mean `python:own`? (expected one of" in done.stderr
    with pytest.raises(ScenarioError, match="unknown congestion control `own` "):
        Scenario(TWO_PATHS.replace('"udp", scheduler = "round_robin"', '"mptcp", congestion = "own"'))
