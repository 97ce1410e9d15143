"""The documents say what the code does: tables of algorithms and of keys, and examples that fly."""

import inspect
import os
import re
import shlex
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import skybraid
from skybraid import Scenario, ScenarioError, registry, run, traces
from skybraid._core import table_columns
from skybraid.cli import ctl
from skybraid.cli import emulate as emulate_cli
from skybraid.cli import sweep as sweep_cli
from skybraid.cli.options import assignment
from skybraid.execute import axes
from skybraid.execute.ranking import rank
from skybraid.model.formatting import milliseconds, percent
from skybraid.model.measures import MEASURES
from skybraid.model.requirements import headline
from skybraid.model.summary import FRAMES_IN_TIME, VIDEO_COUNTS, VIDEO_MEASURES, video_words
from test_campaigns import TINY

DOCS = Path(__file__).parents[2] / "docs"
TRANSPORT = DOCS / "transport.md"
SCENARIO = DOCS / "scenario.md"
EMULATE = DOCS / "emulate.md"
CAMPAIGNS = DOCS / "campaigns.md"
VIDEO = DOCS / "video.md"
TRACES = DOCS / "traces.md"
EXAMPLE = DOCS.parent / "scenarios" / "video.toml"

# Generated tables.


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")


def first_sentence(text: str) -> str:
    return re.split(r"(?<=\.) (?=[A-Z])", " ".join(text.split()))[0]


def table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [heads, ("---",) * len(heads), *rows]
    return (
        "".join(f"| {' | '.join(map(cell, line))} |\n" for line in lines)
        .replace("| --- ", "|---")
        .replace("|--- |", "|---|")
    )


def listed(kind: str) -> str:
    rows = [(f"`{entry['name']}`", first_sentence(entry["summary"]), entry["source"]) for entry in registry(kind)]
    return table(("name", "what it does", "source"), rows)


def differences() -> str:
    kinds = {"schedulers": "scheduler", "congestion": "congestion control", "reordering": "reordering engine"}
    rows = [
        (f"`{entry['name']}`", what, entry["linux"][:1].lower() + entry["linux"][1:].rstrip("."))
        for kind, what in kinds.items()
        for entry in registry(kind)
        if entry["linux"]
    ]
    return table(("name", "kind", 'with `compat = "linux"`'), rows)


def columns(described: list[tuple[str, str, str, bool, str]]) -> str:
    types = {"i64": "Int64", "f64": "Float64", "bool": "Boolean", "text": "String"} | {
        f"u{bits}": f"UInt{bits}" for bits in (8, 16, 32, 64)
    }
    rows = [
        (f"`{name}`", types.get(kind, kind) + (", null" if null else ""), unit, meaning)
        for name, kind, unit, null, meaning in described
    ]
    return table(("column", "type", "unit", "meaning"), rows)


def formats() -> str:
    rows = [(f"`{name}`", entry.title, entry.gives) for name, entry in traces.formats.FORMATS.items()]
    return table(("`--format`", "file", "gives"), rows)


def requirements() -> str:
    rows = [
        (
            f"`{entry['name']}`",
            entry["summary"],
            ", ".join(f"{parameter['name']} {parameter['default']}" for parameter in entry["parameters"]),
            f"{entry['source']} ({entry['parameters'][0]['summary']})",
        )
        for entry in registry("requirements")
    ]
    return table(("profile", "what", "numbers", "source (how sure)"), rows)


GENERATED = {
    **{kind: (TRANSPORT, "registry", listed(kind)) for kind in ("protocols", "reordering", "schedulers", "congestion")},
    "linux": (TRANSPORT, "registry", differences()),
    **{name: (DOCS / "tables.md", "columns", columns(described)) for name, described in table_columns()},
    "formats": (TRACES, "readers", formats()),
    "requirements": (SCENARIO, "registry", requirements()),
}
"""Generated tables: where each is, what it comes from, and its text."""


@pytest.mark.parametrize("name", GENERATED)
def test_the_guides_tables_are_generated(name: str) -> None:
    page, origin, expected = GENERATED[name]
    text = page.read_text(encoding="utf-8")
    begin = f"<!-- {name}: from the {origin}; SKYBRAID_UPDATE_DOCS=1 rewrites it -->\n"
    before, rest = text.split(begin)
    found, after = rest.split(f"<!-- end of {name} -->", 1)
    if os.environ.get("SKYBRAID_UPDATE_DOCS"):
        found = expected
        page.write_text(f"{before}{begin}{found}<!-- end of {name} -->{after}", encoding="utf-8")
    assert found == expected, "SKYBRAID_UPDATE_DOCS=1 rewrites the table"


# Tables of keys.

FLIGHT: dict[str, Any] = {
    "duration": "1s",
    "path": {"one": {"uplink": {"rate": "1Mbit/s"}, "downlink": {"rate": "1Mbit/s"}}},
    "flow": {"data": {"from": "vehicle", "traffic": {"kind": "file", "size": "1kB"}}},
}
"""What every scenario needs."""


def merged(base: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    both = base | more
    for key in base.keys() & more.keys():
        if isinstance(base[key], dict) and isinstance(more[key], dict):
            both[key] = merged(base[key], more[key])
    return both


def at(place: str, value: object) -> dict[str, Any]:
    """A flight with a key set, its place written with dots; a number is a position in a list."""
    for step in reversed(place.split(".")):
        value = [value] if step.isdigit() else {step: value}
    assert isinstance(value, dict)
    return merged(FLIGHT, value)


def taken(place: str) -> set[str]:
    """The keys that the parser takes at a place, as it says when it meets one that it does not know."""
    with pytest.raises(ScenarioError) as caught:
        Scenario.build(at(f"{place}.no_such_key" if place else "no_such_key", 1))
    found = re.search(r"expected one of ([^)]*)\)", str(caught.value))
    assert found, caught.value
    return set(re.findall(r"`([^`]+)`", found[1]))


def rows(heading: str, first_head: str) -> dict[str, list[str]]:
    """A table of the document's section: the other cells by the names in the first one."""
    section = SCENARIO.read_text(encoding="utf-8").split(f"\n{heading}\n", 1)[1]
    lines = section.split(f"\n| {first_head} |", 1)[1].splitlines()[2:]
    found: dict[str, list[str]] = {}
    for line in lines:
        if not line.startswith("|"):
            break
        first, *others = (part.strip() for part in re.split(r"(?<!\\)\|", line)[1:-1])
        for name in re.findall(r"`([^`]+)`", first):
            found[name] = others
    return found


def effect_keys(effect: str) -> set[str]:
    """Keys of DRX, handovers and their like, which share a table; `.KEY` repeats the last one's place."""
    found: set[str] = set()
    section = SCENARIO.read_text(encoding="utf-8").split("\n### `drx`,", 1)[1].split("\n## ", 1)[0]
    for line in section.splitlines():
        if line.startswith(f"| `{effect}."):
            names = re.findall(r"`([^`]+)`", line.split("|")[1])
            found |= {name.rpartition(".")[2] for name in names}
    return found


BOTH_DIRECTIONS = {"rate", "delay", "reorder", "queue", "loss", "harq", "overhead"}
"""Keys of a direction that may stand without one."""
OF_NETWORKS = {"node", "link", "routing", "route"}
"""Tables that `docs/networks.md` describes."""

PLACES = [
    ("path.one", "## `[path.NAME]`", "key", {"uplink", "downlink", "from", "to", "weight"} | BOTH_DIRECTIONS),
    ("path.one.uplink", "`uplink.KEY` and `downlink.KEY`:", "key", set[str]()),
    ("flow.data", "## `[flow.NAME]`", "key", set[str]()),
    ("flow.data.transport", "### `transport`", "key", set[str]()),
    ("", "## The run", "key", {"path", "flow", "event", "testbed", "outages", "correlation", "sweep"} | OF_NETWORKS),
]


@pytest.mark.parametrize(
    ("place", "heading", "head", "elsewhere"), PLACES, ids=[place or "run" for place, *_ in PLACES]
)
def test_the_document_names_the_keys_that_the_parser_takes(
    place: str, heading: str, head: str, elsewhere: set[str]
) -> None:
    assert rows(heading, head).keys() | elsewhere == taken(place)


@pytest.mark.parametrize(
    ("effect", "place"),
    [
        ("drx", "path.one.drx"),
        ("handover", "path.one.handover"),
        ("stall", "path.one.stall"),
        ("outage", "path.one.outage"),
        ("reconfiguration", "path.one.reconfiguration"),
        ("harq", "path.one.uplink.harq"),
    ],
)
def test_so_it_does_for_the_effects_of_a_link(effect: str, place: str) -> None:
    assert effect_keys(effect) == taken(place)


@pytest.mark.parametrize("place", ["event.0.path.one", "event.0.flow.data", "event.0"])
def test_so_it_does_for_events(place: str) -> None:
    parser = taken(place)
    heads = {
        "event.0": "## `[[event]]`",
        "event.0.path.one": "`path.NAME.KEY`:",
        "event.0.flow.data": "`flow.NAME.KEY`:",
    }
    assert rows(heads[place], "key").keys() == parser


def test_so_it_does_for_requirements() -> None:
    section = SCENARIO.read_text(encoding="utf-8").split("\n### `require`\n", 1)[1].split("\n### ", 1)[0]
    assert set(re.findall(r"(\w+) = ", section)) == taken("flow.data.require")


OTHER_VALUES = {"none", "all", "from the smallest MTU"}
"""Defaults that stand for a key left out."""


def values(key: str, default: str) -> Any:
    try:
        return tomllib.loads(f"value = {default}")["value"]
    except tomllib.TOMLDecodeError:
        return default


@pytest.mark.parametrize(("key", "cells"), rows("### `transport`", "key").items(), ids=rows("### `transport`", "key"))
def test_a_key_of_a_transport_has_the_guides_default(key: str, cells: list[str]) -> None:
    default = cells[0].strip("`")
    assert default
    if default not in OTHER_VALUES:
        Scenario.build(at(f"flow.data.transport.{key}", values(key, default)))
        # The guide's table, which is held against the code, names the same default.
        if key not in {"profile", "paths"}:
            guide = re.search(rf"^\| `{key}` \| `([^`]+)` \|", TRANSPORT.read_text(encoding="utf-8"), re.MULTILINE)
            assert guide
            assert guide[1] == default.strip('"')


# The emulator's guide.


def test_the_emulators_guide_names_the_commands_of_control() -> None:
    found = set(re.findall(r"`(\w+)(?: PATH[^`]*)?`", ctl_rows()))
    assert found == {
        command.name or command.callback.__name__ for command in ctl.app.registered_commands if command.callback
    }


def ctl_rows() -> str:
    """The first cells of the table of `ctl`."""
    lines = EMULATE.read_text(encoding="utf-8").split("\n| command | does |\n", 1)[1].split("\n\n", 1)[0].splitlines()
    return "\n".join(line.split("|")[1] for line in lines[1:])


def test_the_emulators_guide_names_the_options_of_the_command() -> None:
    parameters = inspect.signature(emulate_cli.emulate).parameters.keys() - {"scenario", "file"}
    others = {"set_": "set", "limit": "for", "live_": "live", "as_json": "json", "keep_privileges": "keep-privileges"}
    found = EMULATE.read_text(encoding="utf-8").split("\n| option | meaning |\n", 1)[1].split("\n\n", 1)[0]
    assert set(re.findall(r"`--([\w-]+)", found)) == {others.get(name, name) for name in parameters}


# The guide to video.


def of_guide(section: str, head: str) -> list[list[str]]:
    """The rows of a table of the guide to video."""
    text = VIDEO.read_text(encoding="utf-8").split(f"\n## {section}\n", 1)[1]
    lines = text.split(f"\n| {head} |" if head else "\n| |", 1)[1]
    body = lines.split("\n\n", 1)[0].splitlines()[2:]
    return [[part.strip() for part in line.split("|")[1:-1]] for line in body]


def test_the_guide_to_video_names_its_keys_and_defaults() -> None:
    (video,) = (one for one in registry("traffic") if one["name"] == "video")
    found = {cells[0].strip("`"): cells[1].strip('`"') for cells in of_guide("The camera", "key")}
    assert found == {one["name"]: one["default"].strip("()") for one in video["parameters"]}


def test_the_guide_to_video_names_the_columns_of_its_table(filmed: skybraid.Results) -> None:
    found = [name for cells in of_guide("The table `frames`", "column") for name in re.findall(r"`(\w+)`", cells[0])]
    assert found == filmed.tables["frames"].columns


def test_the_guide_to_video_names_the_requirements_of_one() -> None:
    found = {name for cells in of_guide("Requirements", "`require`") for name in re.findall(r"(\w+) = ", cells[0])}
    assert found | {"deadline", "share", "delay", "percentile", "goodput", "rlp"} == taken("flow.data.require")


def test_the_example_of_the_guide_to_video_is_what_the_command_prints() -> None:
    results = run(EXAMPLE, tables=())
    text = VIDEO.read_text(encoding="utf-8")
    for requirement in results.requirements:
        assert f"\n  {requirement.flow}: {requirement.verdict}. {requirement.words}.\n" in text
    video = results.flows["video"].video
    assert video is not None
    assert f"\n  video: {video_words(video)}.\n{headline(results.requirements)}\n" in text


@pytest.mark.parametrize("cells", of_guide("An example", ""), ids=lambda cells: cells[0])
def test_so_are_the_choices_beside_it(cells: list[str]) -> None:
    settings = [assignment(word) for quoted in re.findall(r"`--set ([^`]+)`", cells[0]) for word in shlex.split(quoted)]
    flow = (results := run(Scenario.load(EXAMPLE, settings), tables=())).flows["video"]
    assert flow.video is not None
    estimate, latency_ms = results.requirements[0].estimate, flow.video["latency_ms"]
    assert estimate is not None
    assert cells[1:] == [
        percent(estimate),
        f"{flow.video['frame_rate']:.4g}",
        f"{flow.video['freezes_per_minute']:.3g}",
        milliseconds(latency_ms["p50"]),
        milliseconds(latency_ms["p99"]),
    ]


def printed(command: str) -> list[str]:
    """What the guide to video says that a command prints, up to `…`."""
    block = VIDEO.read_text(encoding="utf-8").split(f"\n$ skybraid {command}", 1)[1].split("\n```", 1)[0]
    return block.split("\n  …", 1)[0].splitlines()[1:]


def test_so_is_the_comparison_of_schedulers() -> None:
    found = rank(
        Scenario.load(EXAMPLE),
        flows=["video"],
        protocols=["mp_dccp", "mptcp"],
        schedulers=["low_rtt", "low_rtt_wait", "redundant"],
        congestion=["bbr"],
    )
    assert printed("compare scenarios/video.toml --flow")[1:] == found.text().splitlines()


def test_so_is_that_of_two_scenarios() -> None:
    other = Scenario(EXAMPLE.read_text(encoding="utf-8").replace("mp_dccp", "mptcp"))
    found = skybraid.paired(EXAMPLE, other, seeds=range(1, 6))
    text = [f"  {one.words}" for one in found.differences if one.flow == "video"]
    assert printed("compare scenarios/video.toml mptcp.toml")[3:] == text


def test_the_guides_name_every_metric_of_a_question_and_its_column() -> None:
    named = {
        name for cells in of_guide("Comparing", "metric of `--until`") for name in re.findall(r"`(\w+)`", cells[0])
    }
    assert named == {one.name for one in MEASURES if one.video}
    section = CAMPAIGNS.read_text(encoding="utf-8").split("\n## Until it is decided\n", 1)[1]
    assert all(f"`{one.name}`" in section for one in MEASURES)
    compared = (DOCS / "compare.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in compared for name in (*VIDEO_COUNTS, *VIDEO_MEASURES, *FRAMES_IN_TIME))


# The guide to campaigns.


def test_the_guide_to_campaigns_names_the_options_of_the_command() -> None:
    parameters = inspect.signature(sweep_cli.sweep).parameters.keys() - {"scenario"}
    found = CAMPAIGNS.read_text(encoding="utf-8").split("\n| option | meaning |\n", 1)[1].split("\n\n", 1)[0]
    first_cells = " ".join(line.split("|")[1] for line in found.splitlines())
    others = {"set_": "set", "as_json": "json", "dry_run": "dry-run"}
    assert set(re.findall(r"`--([\w-]+)", first_cells)) == {others.get(name, name) for name in parameters}


@pytest.mark.parametrize("file", [SCENARIO, CAMPAIGNS], ids=lambda file: file.name)
def test_documents_name_the_keys_of_a_sweep(file: Path) -> None:
    section = file.read_text(encoding="utf-8").split("\n## `[sweep]`\n", 1)[1].split("\n## ", 1)[0]
    with pytest.raises(ScenarioError) as caught:
        axes.read("[sweep]\nno_such_key = 1", "x.toml")
    taken = set(re.findall(r"`(\w+)`", str(caught.value))) - {"no_such_key"}
    found = set(re.findall(r"^\| `(?:\[\[sweep\.)?(\w+)", section, re.MULTILINE))
    assert found == taken
    (sweep,) = re.findall(r"```toml\n(\[sweep\].*?)```", section, re.DOTALL) or ['[sweep]\nseeds = "1..20"']
    assert axes.read(sweep, "x.toml").seeds == tuple(range(1, 21))


def test_the_examples_of_the_guide_to_campaigns_read_a_dataset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("duckdb")
    pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    flight = TINY.replace("path.near", "path.lte").replace(
        'rate = "10Mbit/s"', 'uplink.rate = "9Mbit/s"\ndownlink.rate = "9Mbit/s"'
    )
    Path("flight.toml").write_text(flight, encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", CAMPAIGNS.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {"Path": Path, "skybraid": skybraid}
    for block in [blocks[-1], *blocks[:-1]]:
        exec(compile(block, "campaigns.md", "exec"), names)
    assert names["frame"].height == 2
    assert names["flows"].shape[0] == 2 * 10
    assert names["results"].tables["messages"].height > 0
    assert "p99_ms" in capsys.readouterr().out


# Examples.


def examples(file: Path) -> list[str]:
    """The scenarios of a document: the TOML blocks that say how long they are."""
    blocks = re.findall(r"```toml\n(.*?)```", file.read_text(encoding="utf-8"), re.DOTALL)
    return [block for block in blocks if re.search(r"^duration = ", block, re.MULTILINE)]


@pytest.mark.parametrize("file", sorted(DOCS.glob("*.md")), ids=lambda file: file.name)
def test_every_scenario_of_a_document_is_one(file: Path) -> None:
    for text in examples(file):
        Scenario(text, "example.toml")


def test_the_guides_flows_share_a_connection_with_doubled_control() -> None:
    (text,) = (text for text in examples(TRANSPORT) if "with = " in text)
    results = run(Scenario(text, "example.toml"), tables=["messages", "subflows"])
    assert results.tables["subflows"]["flow"].unique().to_list() == ["video"]
    messages = results.tables["messages"]
    copies = {flow: messages.filter(pl.col("flow") == flow)["copies_sent"] for flow in ("control", "video")}
    assert (copies["control"] == 2).sum() > 0.9 * copies["control"].len()
    assert (copies["video"] == 1).sum() > 0.9 * copies["video"].len()


def test_the_guides_path_returns_as_a_new_subflow() -> None:
    (text,) = (text for text in examples(TRANSPORT) if "remove_path" in text)
    results = run(Scenario(text, "example.toml"), tables=["messages", "packets", "subflows"])
    packets = results.tables["packets"].filter(pl.col("path") == "lte")
    away = packets.filter(pl.col("in_ns").is_between(4_000_000_000, 7_999_999_999), pl.col("direction") == "uplink")
    assert away.height == 0
    assert packets.filter(pl.col("in_ns") < 4_000_000_000).height > 100
    assert packets.filter(pl.col("in_ns") > 8_000_000_000).height > 100
    of_lte = results.tables["subflows"].filter(pl.col("path") == "lte")
    assert sorted(of_lte["subflow"].unique()) == [0, 2]
    messages = results.tables["messages"]
    assert messages.filter(pl.col("sent_ns") < 11_000_000_000)["delivered_ns"].null_count() == 0
