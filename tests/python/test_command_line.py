"""Machinery of the command: completion, manual pages, schemas, starting points, JSON."""

import json
import re
import shlex
import shutil
import subprocess
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from jsonschema import Draft202012Validator

from conftest import TWO_PATHS, Command
from skybraid import Results, Scenario, cli
from skybraid.cli.manual import SHELLS, completion, man_page, read_help
from skybraid.model.errors import MissingExtraError
from skybraid.model.schema import KINDS, file_schema

ROOT = Path(__file__).parents[2]
STARTS = Path(cli.__file__).with_name("starts")
SCENARIOS = sorted((*ROOT.glob("scenarios/*.toml"), *ROOT.glob("studies/skybraid_studies/*/scenarios/*.toml")))

CLAP = """Carries traffic over several networks.

Usage: node <COMMAND>

Commands:
  status  Show the state
  help    Print this message or the help of the given subcommand(s)

Options:
      --url <URL>  Address of its page [default: a]
  -h, --help       Print help
"""


@pytest.fixture(scope="module")
def validators() -> dict[str, Draft202012Validator]:
    schemas = {kind: file_schema(kind) for kind in KINDS}
    for schema in schemas.values():
        Draft202012Validator.check_schema(schema)
    return {kind: Draft202012Validator(schema) for kind, schema in schemas.items()}


def problems(validator: Draft202012Validator, table: dict[str, Any]) -> list[str]:
    # Dates of TOML are texts to a schema.
    plain = json.loads(json.dumps(table, default=str))
    return [error.message for error in validator.iter_errors(plain)]


def test_every_scenario_of_the_repository_fits_the_schema(validators: dict[str, Draft202012Validator]) -> None:
    assert len(SCENARIOS) > 20
    for file in SCENARIOS:
        assert problems(validators["scenario"], tomllib.loads(file.read_text(encoding="utf-8"))) == [], file


def test_commands_of_distributions_are_those_that_importlib_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "another-1.0.dist-info"
    folder.mkdir()
    points = "[console_scripts]\nrun = a:b\n\n[skybraid.commands]\nanother = {0}\nrun = {0}\n\n[x]\nlast = a:b\n"
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: another\nVersion: 1.0\n", encoding="utf-8")
    text = points.format("skybraid_studies.commands:REPRODUCE")
    (folder / "entry_points.txt").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    found = cli.added.__wrapped__()
    wanted = {point.name: point.load() for point in metadata.entry_points(group=cli.GROUP)}
    del wanted["run"]  # a command of Skybraid itself
    assert found == wanted
    assert list(found) == sorted(found)
    assert "another" in found


def test_the_help_of_every_command_ends_in_an_example_of_it() -> None:
    for command in cli.description().all():
        if command.commands and command.name != "skybraid":
            continue
        words = shlex.split(command.example)
        assert command.example.startswith(f"{command.name} ") or command.example == command.name, command.name
        known = {name for one in command.all() for option in one.options for name in option.names}
        assert {word for word in words if word.startswith("--") and word != "--"} <= known, command.name
        assert f".SH EXAMPLE\n.EX\n{words[0]} " in man_page(command, "skybraid 1").replace(
            ".EX\nskybraid\n", ".EX\nskybraid "
        )


def test_every_command_that_ends_with_an_answer_prints_json() -> None:
    # Shells and servers have no answer; a schema and a completion are what they print.
    others = {"shell", "ctl page", "probe serve", "schema", "completion"}
    for command in cli.description().all():
        if not command.commands and command.name.removeprefix("skybraid ") not in others:
            assert "--json" in {name for option in command.options for name in option.names}, command.name


@pytest.mark.parametrize("name", ["aircraft.toml", "ground.toml"])
def test_the_gateways_examples_fit_their_schema(name: str, validators: dict[str, Draft202012Validator]) -> None:
    table = tomllib.loads((ROOT / "packaging" / name).read_text(encoding="utf-8"))
    assert problems(validators["gateway"], table) == []
    assert problems(validators["gateway"], table | {"syde": "aircraft"}) != []
    assert problems(validators["gateway"], table | {"side": "airborne"}) != []


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ('duration = "30min"', 'durration = "30min"'),
        ('preset = "starlink"', 'presett = "starlink"'),
        ('preset = "starlink"', 'preset = "starlnk"'),
        ('protocol = "mptcp"', 'protokol = "mptcp"'),
        ('kind = "cbr"', 'kind = "cbrr"'),
        ('scheduler = "redundant"', 'scheduler = "redundantly"'),
        ('deadline = "300ms"', "deadline = 300"),
        ('rate = "10Mbit/s"', 'rte = "10Mbit/s"'),
        ('rate = "10Mbit/s"', 'rate = "10 MB/s"'),
        ('duration = "30min"', 'duration = "30"'),
        ('deadline = "300ms"', 'deadline = "-300ms"'),
    ],
)
def test_the_schema_sees_what_the_parser_sees(
    right: str, wrong: str, validators: dict[str, Draft202012Validator]
) -> None:
    text = (STARTS / "remote-piloting.toml").read_text(encoding="utf-8")
    assert right in text
    assert problems(validators["scenario"], tomllib.loads(text)) == []
    assert problems(validators["scenario"], tomllib.loads(text.replace(right, wrong, 1))) != []


@pytest.mark.parametrize(
    "value", ['"rr"', '"minrtt"', '{ name = "default" }', '"python:mine"', '{ name = "python:mine", patience = 3 }']
)
def test_a_scheduler_goes_by_all_its_names(value: str, validators: dict[str, Draft202012Validator]) -> None:
    text = TWO_PATHS.replace('"round_robin"', value)
    assert Scenario(text)
    assert problems(validators["scenario"], tomllib.loads(text)) == []


@pytest.mark.parametrize(("right", "value"), [('preset = "starlink"', "fitted.toml"), ('from = "ground"', "leader")])
def test_a_name_that_a_file_may_choose_fits_the_schema(
    right: str, value: str, validators: dict[str, Draft202012Validator]
) -> None:
    text = (STARTS / "remote-piloting.toml").read_text(encoding="utf-8")
    assert right in text
    chosen = text.replace(right, f'{right.partition(" ")[0]} = "{value}"')
    assert problems(validators["scenario"], tomllib.loads(chosen)) == []


def test_help_is_a_command_too(skybraid: Command) -> None:
    assert skybraid("help").stdout == skybraid("--help").stdout
    assert skybraid("help", "trace", "import").stdout == skybraid("trace", "import", "--help").stdout
    assert "No such command 'nothing'" in skybraid("help", "nothing").stderr


@pytest.mark.parametrize("name", cli.OF_THE_GATEWAY)
def test_a_command_of_the_gateway_is_said_to_be_one(name: str, skybraid: Command) -> None:
    done = skybraid(name, "aircraft.toml")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"expected `skybraid-node {name}`" in done.stderr


def test_tables_of_the_documents_fit_the_schema(validators: dict[str, Draft202012Validator]) -> None:
    keys = set(file_schema("scenario")["properties"])
    blocks = [
        block
        for file in (ROOT / "docs").glob("*.md")
        for block in re.findall(r"^```toml\n(.*?)^```", file.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    ]
    scenarios = [table for block in blocks if (table := parsed(block)) and keys >= table.keys()]
    assert len(scenarios) > 20
    for table in scenarios:
        assert problems(validators["scenario"], table) == [], table


def parsed(block: str) -> dict[str, Any]:
    """The table of a block of TOML; empty for one that leaves something out."""
    try:
        return tomllib.loads(block)
    except tomllib.TOMLDecodeError:
        return {}


def complete(line: str) -> set[str]:
    """What bash offers after a line."""
    words = [*line.split(), *([""] if line.endswith(" ") else [])]
    script = completion(cli.description(), "bash") + (
        f"COMP_WORDS=({' '.join(repr(word) for word in words)}) COMP_CWORD={len(words) - 1}\n_skybraid\n"
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_bash_completes_commands_and_options() -> None:
    assert complete("skybraid co") == {"compare", "completion"}
    assert complete("skybraid trace st") == {"stats"}
    assert {"--seed", "--json", "--plugin"} <= complete("skybraid run flight.toml --")
    assert complete("skybraid trace stats file.csv --col") == {"--column"}


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_gets_every_command_and_option(shell: str, skybraid: Command) -> None:
    text = skybraid("completion", shell).stdout
    for command in cli.description().all():
        assert command.name.rpartition(" ")[2] in text
        for option in command.options:
            long = option.names[0].removeprefix("--")
            assert long in text
    program = shutil.which(shell)
    if program is not None:
        done = subprocess.run([program, "-n"], input=text, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff reads the pages")
def test_manual_pages_are_read_by_groff_without_a_warning() -> None:
    commands = cli.description().all()
    assert {"skybraid", "skybraid run", "skybraid trace import"} <= {command.name for command in commands}
    pages = "".join(man_page(command, "skybraid 1") for command in commands)
    done = subprocess.run(["groff", "-ww", "-man", "-Tascii"], input=pages, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert "SKYBRAID-RUN(1)" in done.stdout


def test_the_help_of_the_gateways_program_is_read() -> None:
    command = read_help("node", CLAP, (read_help("node status", "Show the state\n\nUsage: node status\n"),))
    assert [option.names for option in command.options] == [("--url",), ("-h", "--help")]
    assert (command.options[0].value, command.options[0].help) == ("URL", "Address of its page [default: a]")
    assert [each.summary for each in command.all()] == ["Carries traffic over several networks", "Show the state"]


def test_starting_points_have_the_flows_of_the_scenarios_they_name() -> None:
    for name in ("remote-piloting", "video"):
        start, shipped = (
            tomllib.loads(file.read_text(encoding="utf-8"))
            for file in (STARTS / f"{name}.toml", ROOT / "scenarios" / f"{name}.toml")
        )
        assert (start["flow"], start["duration"]) == (shipped["flow"], shipped["duration"])


def test_a_new_scenario_needs_a_name(skybraid: Command, tmp_path: Path) -> None:
    for name in ("", ".toml", ".py"):
        done = skybraid("new", name)
        assert (done.returncode, "expected a name such as first" in done.stderr) == (2, True)
    assert not [*tmp_path.iterdir()]


def test_a_plugin_of_another_kind_is_said_to_be_one(skybraid: Command, two_paths: Path) -> None:
    done = skybraid("check-plugin", two_paths)
    assert (done.returncode, "found a file of another kind, expected a Python file" in done.stderr) == (2, True)


def test_a_new_scenario_replays_a_trace(skybraid: Command, tmp_path: Path) -> None:
    (tmp_path / "drive").mkdir()
    (tmp_path / "drive" / "a.csv").write_text(
        "time [s],delay [ms],loss [%]\n0,40,0\n1,80,1\n2,50,0\n", encoding="utf-8"
    )
    words = ("--like", "remote-piloting", "--trace", "lte=drive/a.csv", "--trace", "leo=drive/a.csv")
    made = json.loads(skybraid("new", "sub/mine", *words, "--json").stdout)
    assert made == {"schema": 1, "scenario": "sub/mine.toml", "like": "remote-piloting"}
    table = tomllib.loads((tmp_path / "sub" / "mine.toml").read_text(encoding="utf-8"))
    assert table["path"]["lte"]["uplink"]["delay"]["trace"] == "../drive/a.csv"
    assert {path["preset"] for path in table["path"].values()} == {"lte-aerial", "starlink"}
    done = skybraid("run", "sub/mine.toml", "--set", "duration=5s", "--summary")
    assert done.returncode in (0, 1), done.stderr


def test_a_new_scenario_flies_a_plan_at_the_plans_speed(skybraid: Command, tmp_path: Path) -> None:
    goal = {"command": 16, "frame": 3, "params": [0, 0, 0, None, 0.0, 0.01, 50], "type": "SimpleItem"}
    mission = {"items": [goal], "plannedHomePosition": [0, 0, 0], "vehicleType": 2, "cruiseSpeed": 15, "hoverSpeed": 10}
    (tmp_path / "mission.plan").write_text(json.dumps({"fileType": "Plan", "mission": mission}), encoding="utf-8")
    assert skybraid("new", "mine", "--track", "mission.plan", "--quiet").returncode == 0
    scenario = Scenario.load(tmp_path / "mine.toml")
    # A hundredth of a degree is 1112 m.
    assert tomllib.loads((tmp_path / "mine.toml").read_text())["duration"] == "112s"
    ((_, _, _, longitudes, _),) = scenario.native.tracks([0.0, 55.6])
    assert longitudes == pytest.approx([0.0, 0.005], rel=1e-3)


@pytest.mark.parametrize(
    ("speed", "times", "duration"), [("20m/s", ("", ""), "56s"), ("", ("00:00:00", "00:01:40"), "100s")]
)
def test_a_new_scenario_flies_along_a_track(
    speed: str, times: tuple[str, str], duration: str, skybraid: Command, tmp_path: Path
) -> None:
    points = [
        f'<trkpt lat="{lat}" lon="7"><ele>90</ele>{time and f"<time>2026-05-03T{time}Z</time>"}</trkpt>'
        for lat, time in zip((47, 47.01), times, strict=True)
    ]
    (tmp_path / "way.gpx").write_text(
        f'<gpx version="1.1" xmlns="http://www.topografix.com/GPX/1/1"><trk><trkseg>{"".join(points)}</trkseg></trk></gpx>',
        encoding="utf-8",
    )
    assert json.loads(skybraid("new", "plans/mine", "--track", "way.gpx", "--json").stdout)["like"] == "route"
    table = tomllib.loads((tmp_path / "plans" / "mine.toml").read_text(encoding="utf-8"))
    # A hundredth of a degree has 1112 m, 55.6 s at 20 m/s.
    assert table["node"]["vehicle"]["track"] == {"file": "../way.gpx"} | ({"speed": speed} if speed else {})
    assert table["duration"] == duration
    done = skybraid("run", "plans/mine.toml", "--set", "duration=5s", "--summary")
    assert done.returncode in (0, 1), done.stderr


def test_measurements_of_tools_are_imported_next_to_a_scenario(skybraid: Command, tmp_path: Path) -> None:
    lines = [f"64 bytes from 10.0.0.1: icmp_seq={seq} ttl=55 time={40 + seq % 9} ms" for seq in range(1, 60)]
    text = "\n".join(["PING 10.0.0.1 (10.0.0.1) 56(84) bytes of data.", *lines])
    (tmp_path / "lte.ping").write_text(text, encoding="utf-8")
    (tmp_path / "rate.csv").write_text("time [s],rate [Mbit/s]\n0,5\n60,6\n", encoding="utf-8")
    done = skybraid("new", "plans/mine", "--trace", "lte=lte.ping+missing.csv")
    assert (done.returncode, done.stderr) == (2, "error: --trace: missing.csv: no such file; expected a measurement\n")
    assert list((tmp_path / "plans").iterdir()) == []
    done = skybraid("new", "plans/mine", "--trace", "lte=lte.ping+rate.csv")
    assert done.stdout == "plans/lte.ping.csv\nplans/mine.toml\n", done.stderr
    lte = tomllib.loads((tmp_path / "plans" / "mine.toml").read_text(encoding="utf-8"))["path"]["lte"]["uplink"]
    assert [lte[key]["trace"] for key in ("delay", "loss", "rate")] == ["lte.ping.csv"] * 2 + ["../rate.csv"]
    done = skybraid("run", "plans/mine.toml", "--set", "duration=5s", "--summary")
    assert done.returncode in (0, 1), done.stderr


@pytest.mark.parametrize("words", [("run", "missing.toml", "--json"), ("run", "--json"), ("report", "none", "--json")])
def test_errors_are_json_where_json_is_asked_for(words: tuple[str, ...], skybraid: Command) -> None:
    done = skybraid(*words)
    assert done.returncode == 2
    answer = json.loads(done.stdout)
    assert (answer["schema"], answer["exit"]) == (1, 2)
    assert answer["error"]
    assert answer["error"].splitlines()[0] in done.stderr


def test_verbose_shows_where_an_error_was_found(skybraid: Command) -> None:
    assert "Traceback" in skybraid("--verbose", "report", "none").stderr
    assert "Traceback" not in skybraid("report", "none").stderr


def test_a_missing_package_is_named_with_its_extra() -> None:
    error = MissingExtraError.of(ModuleNotFoundError("No module named 'bokeh'", name="bokeh.models"))
    assert str(error) == "report: found no package bokeh, expected it with pip install 'skybraid[report]'"
    with pytest.raises(ModuleNotFoundError):
        MissingExtraError.of(ModuleNotFoundError("No module named 'x'", name="x"))


def test_a_result_offers_its_verdicts_as_arrow(flown: Results) -> None:
    assert pl.DataFrame(flown).equals(flown.summary_frame())
