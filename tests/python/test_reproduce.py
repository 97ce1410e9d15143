"""The scorecard over all studies: its command, its rows and page, and what interrupts or spoils it."""

import json
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from matplotlib.figure import Figure
from typer.testing import CliRunner

from conftest import Command, emulator_lacks
from skybraid import cli
from skybraid_studies import Study, reproduce
from skybraid_studies.engine import figure, index
from skybraid_studies.engine.claims import KINDS
from skybraid_studies.engine.observe import RunData, observation
from skybraid_studies.engine.papers import FOLDER as STUDIES
from skybraid_studies.engine.reproducing import selection as errand_of
from skybraid_studies.engine.runner import Form, plan

ROOT = Path(__file__).parents[2]
PAPERS = ROOT.parent / "shared" / "papers" / "INDEX.md"

FLOWS = """
name = "Four flows"
duration = "2s"

[path.one]
rate = "20Mbit/s"
delay = "10ms"
loss = { uniform = "2%" }

"""

STUDY = """
title = "Flows of known rates"
author = "Nobody, 2026"
runs.seeds = 3
quick.seeds = 2
emulate.seeds = 2

[sweep.rates]
label = "x"
values = [1, 2, 3]
log = true

[sweep.rates.set]
"flow.a.traffic.rate" = "{100*x}kbit/s"
"flow.b.traffic.rate" = "{500*x}kbit/s"
"flow.c.traffic.rate" = "{500*x}kbit/s"
"flow.d.traffic.rate" = "{600/x}kbit/s"
"flow.f.traffic.rate" = "300kbit/s"

"""

TEMPLATES = "abcdef"


def claim_file(kind: str, keys: str) -> str:
    series = "\n".join(f'[series.{name.upper()}]\nuse = "{name}"\n' for name in "abcdf")
    return f"""
figure = "Fig. 1"
finding = "What {kind} says."
unit = "kbit/s"
sweep = "rates"

{series}
[series.E]
use = "e"
k = [1, 5]

[series.P]
use = "a"
published = "a.csv"

[[claim]]
words = "So it is."
kind = "{kind}"
{keys}
"""


CASES = {
    "ratio": ('of = "B"\nto = "A"\nat_least = 4\nat_most = 6', "b", "{100*x}"),
    "above": ('of = "B"\nto = "A"\nby = 3', "b", "{100*x}"),
    "equal": ('of = "B"\nto = "C"', "c", "{100*x}"),
    "difference": ('of = "B"\nto = "A"\nat = 1\nat_least = 350\nat_most = 420', "b", "{100*x}"),
    "value": ('of = "A"\nat = 2\nat_least = 180\nat_most = 205', "a", "{500*x}"),
    "rises": ('of = "A"\nby = 2', "a", "100"),
    "falls": ('of = "D"\nby = 2', "d", "600"),
    "flat": ('of = "F"', "f", "{300*x}"),
    "linear": ('of = ["E 1", "E 5"]', "e", "100"),
    "fair": ('of = ["B", "C"]', "c", "{100*x}"),
    "published": ('of = "P"\ntheirs = 1', "a", "{500*x}"),
    "mean": ('of = "A"\nat_least = 180\nat_most = 205', "a", "{500*x}"),
    "peak": ('of = "A"\nat_least = 280\nat_most = 305', "a", "{500*x}"),
    "time_of_peak": ('of = "A"\nat_least = 3\nat_most = 3', "a", "{600/x}"),
    "time_of_level": ('of = "A"\nlevel = 150\nat_least = 2\nat_most = 2', "a", "100"),
    "pooled": ('of = "A"\nto = "B"\nat = 1\nat_least = 15\nat_most = 25', "b", "{1000*x}"),
    "share_above": ('of = "B"\nto = "A"\nat_least = 0.9', "b", "{50*x}"),
}
"""For each kind of claim its keys where it is true, and a flow with another rate, where it is false."""


INDEX = """
[nobody2026]
NOB-E01 = { type = "emulation", line = "One" }
NOB-E02 = { type = "simulation", line = "Two" }
NOB-E03 = { type = "theory", line = "Three" }
"""


def study_text() -> str:
    templates = [
        f'[series.{name}]\nscenario = "flows.toml"\nmeasure = {{ kind = "goodput", flow = "{name}" }}\n'
        + ('set = { "flow.e.traffic.rate" = "{100*k}kbit/s" }\n' if name == "e" else "")
        for name in TEMPLATES
    ]
    return STUDY + "\n".join(templates)


def scenario_text() -> str:
    flows = [
        f'[flow.{name}]\nfrom = "vehicle"\ntraffic = {{ kind = "cbr", rate = "100kbit/s", packet = "125B" }}\n'
        'transport = { protocol = "udp" }\n'
        for name in TEMPLATES
    ]
    return FLOWS + "\n".join(flows)


PUBLISHED = "x,mean,sd\n1,100,\n2,200,\n3,300,\n"


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder of two studies with an index; they share a scenario, and one experiment has no file."""
    studies = tmp_path / "studies"
    for name, prefix in (("nobody2026", "NOB"), ("somebody2026", "SOM")):
        shared = {"study.toml": study_text(), "flows.toml": scenario_text(), "published/a.csv": PUBLISHED}
        experiments = {
            f"{prefix}-E0{number}.toml": claim_file(kind, CASES[kind][0])
            for number, kind in ((1, "ratio"), (2, "rises"))
        }
        write(studies / name, shared | experiments)
    write(studies, {"index.toml": INDEX})
    return studies


@pytest.fixture
def drawings() -> None:
    """Lets experiments draw their figures."""


@pytest.fixture(autouse=True)
def without_drawings(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps empty figures, as drawing takes longer than all else; test_figures.py is about what they show."""
    if "drawings" not in request.fixturenames:
        monkeypatch.setattr(figure, "draw", lambda *_, **__: Figure(figsize=(1, 1)))


# The index.


def of_the_papers() -> dict[str, tuple[str, str]]:
    """Paper and type of each experiment, as the list of the papers has them."""
    if not PAPERS.is_file():
        pytest.skip(
            "the list of the papers' experiments is next to the checkout, ../shared/papers/INDEX.md, or nowhere"
        )
    rows = re.finditer(
        r"^\| \d+ \| (\S+) \| (\S+) \| .* \| (\S+) \|$", PAPERS.read_text(encoding="utf-8"), re.MULTILINE
    )
    return {row[2]: (row[1], row[3]) for row in rows}


def test_the_index_has_every_experiment_of_the_papers() -> None:
    found = {one.id: (one.paper, one.type) for one in index.entries(STUDIES).values()}
    assert len(found) == 152
    assert found == of_the_papers()


@pytest.mark.parametrize(
    "folder", sorted(file.parent for file in STUDIES.glob("*/study.toml")), ids=lambda folder: folder.name
)
def test_every_experiment_of_a_study_in_the_index_has_a_file(folder: Path) -> None:
    wanted = {one.id for one in index.entries(STUDIES).values() if one.paper == folder.name}
    assert wanted <= Study(folder).experiments().keys()


def test_the_list_has_them_all(skybraid: Command) -> None:
    listed = json.loads(skybraid("reproduce", "--list", "--json").stdout)
    assert {one["id"] for one in listed} >= index.entries(STUDIES).keys()
    files = {file.stem for file in STUDIES.glob("*/experiments/*.toml")}
    assert all(one["missing"] == (one["id"] not in files) for one in listed)


# Verdicts come from the runs.


def test_each_kind_of_claim_has_a_case() -> None:
    assert CASES.keys() >= KINDS.keys()


@pytest.mark.parametrize("kind", KINDS)
def test_a_verdict_changes_with_the_scenario(kind: str, tmp_path: Path) -> None:
    keys, flow, rate = CASES[kind]
    folder = tmp_path / "nobody2026"
    write(folder, {"flows.toml": scenario_text(), "NOB-E01.toml": claim_file(kind, keys), "published/a.csv": PUBLISHED})
    right = study_text()
    wrong = re.sub(rf'("flow.{flow}.traffic.rate" =) "[^"]*"', rf'\1 "{rate}kbit/s"', right)
    assert wrong != right
    for text, verdict in ((right, "holds"), (wrong, "does not hold")):
        (folder / "study.toml").write_text(text, encoding="utf-8")
        (row,) = reproduce(Study(folder)).rows
        assert (row.verdict, [claim.verdict for claim in row.claims]) == (verdict, [verdict]), row.why


def finished(out: Path) -> set[str]:
    """The keys of the runs and calculations that an output keeps."""
    return {key for file in (out / "points").glob("part-*.parquet") for key in pl.read_parquet(file)["key"]}


def rewrite(out: Path, change: Callable[[dict[str, Any]], None], runs: int | None = None) -> None:
    """Changes what an output keeps of its runs, or of the first few of them."""
    for file in sorted((out / "points").glob("part-*.parquet")):
        frame = pl.read_parquet(file)
        kept = [json.loads(text) for text in frame["kept"]]
        for one in kept[:runs]:
            change(one)
        runs = None if runs is None else max(runs - len(kept), 0)
        frame.with_columns(pl.Series("kept", [json.dumps(one) for one in kept])).write_parquet(file)


def test_a_verdict_changes_with_the_numbers_that_were_kept(place: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (first,) = reproduce(Study(place / "nobody2026"), ["NOB-E01"], out=out).rows

    def doubled(kept: dict[str, Any]) -> None:
        kept["bits"]["b"] *= 2

    rewrite(out, doubled)
    (second,) = reproduce(Study(place / "nobody2026"), ["NOB-E01"], out=out).rows
    assert (first.verdict, second.verdict) == ("holds", "does not hold")
    assert second.ours is not None
    assert first.ours is not None
    assert second.ours == pytest.approx(2 * first.ours, rel=0.05)


def test_what_was_kept_of_other_code_is_flown_again(place: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    reproduce(Study(place / "nobody2026"), ["NOB-E01"], out=out)
    rewrite(out, lambda kept: kept.update(code={"": "older"}), runs=1)
    again = reproduce(Study(place / "nobody2026"), ["NOB-E01"], out=out)
    assert again.runs - again.kept == 1


# The command.


def rows_of(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    found = json.loads(done.stdout)
    assert isinstance(found, list)
    return found


def test_all_studies_give_one_flat_list_of_rows(skybraid: Command, place: Path, tmp_path: Path) -> None:
    done = skybraid("reproduce", "--json", "--studies", place)
    rows = rows_of(done)
    assert [row["id"] for row in rows] == ["NOB-E01", "NOB-E02", "NOB-E03", "SOM-E01", "SOM-E02"]
    for row in rows:
        assert row.keys() >= {
            *("id", "paper", "finding", "theirs", "ours", "low", "high", "ratio", "verdict", "why", "figure_file")
        }
    assert [row["verdict"] for row in rows] == ["holds", "holds", "cannot be judged", "holds", "holds"]
    # An experiment without a file is reported, and makes the command fail.
    assert rows[2]["why"] == "Missing: no file nobody2026/NOB-E03.toml."
    assert done.returncode == 1
    out = tmp_path / "runs" / "reproduce"
    assert all((tmp_path / row["figure_file"]).is_file() for row in rows if row["seeds"])
    assert (out / "nobody2026" / "scorecard.json").is_file()
    assert json.loads((out / "rows.json").read_text(encoding="utf-8")) == rows
    # Both studies fly the same three rates three times, for E 5 and for all others: their runs are shared.
    assert len(finished(out)) == 18


def test_experiments_are_named_by_their_ids_alone(skybraid: Command, place: Path) -> None:
    rows = rows_of(skybraid("reproduce", "som-e01", "NOB-E02", "--quick", "--json", "--studies", place))
    assert [(row["id"], row["quick"], row["seeds"]) for row in rows] == [("NOB-E02", True, 2), ("SOM-E01", True, 2)]
    assert rows[0]["replay"] == "skybraid reproduce NOB-E02 --quick"
    of_one = rows_of(skybraid("reproduce", "somebody2026", "--full", "--json", "--studies", place))
    assert [(row["id"], row["quick"]) for row in of_one] == [("SOM-E01", False), ("SOM-E02", False)]


def test_a_word_that_names_nothing_is_refused(skybraid: Command, place: Path) -> None:
    for words, message in [
        (
            ("NOB-E99",),
            "found nob-e99, expected one of nobody2026, somebody2026, or an experiment of `--list`; did you mean NOB-E",
        ),
        (("somebody2026", "NOB-E01"), "reproduce somebody2026: found NOB-E01, expected some of SOM-E01, SOM-E02"),
        (("--emulate", "--quick"), "--emulate: found --quick too"),
        (("--emulate", "somebody2026"), "--emulate: found no emulation in somebody2026"),
    ]:
        refused = skybraid("reproduce", *words, "--studies", place)
        assert refused.returncode == 2
        assert message in refused.stderr


def test_what_is_finished_is_kept_and_told(skybraid: Command, place: Path) -> None:
    first = skybraid("reproduce", "NOB-E01", "--studies", place)
    assert "100 %, 18 of 18 runs and calculations done, 0 kept from before" in first.stderr
    again = skybraid("reproduce", "NOB-E01", "--studies", place)
    assert again.returncode == 0
    assert again.stderr == ""
    assert "1 experiment; holds: 1; 18 of 18 runs and calculations kept from before" in again.stdout
    assert "scorecard: runs/reproduce/index.html" in again.stdout


def test_a_damaged_part_is_set_aside_and_its_runs_are_made_again(place: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = reproduce(Study(place / "nobody2026"), ["NOB-E01"], out=out)
    for file in (out / "points").glob("part-*.parquet"):
        file.write_bytes(file.read_bytes()[:-20])
    again = reproduce(Study(place / "nobody2026"), ["NOB-E01"], out=out)
    assert (again.kept, again.rows[0].ours) == (0, first.rows[0].ours)
    assert list((out / "points").glob("*.damaged"))
    assert len(finished(out)) == again.runs


def test_a_later_part_may_have_more_of_a_run(place: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    study = Study(place / "nobody2026")
    whole = reproduce(study, ["NOB-E01"], out=out)
    (older,) = (pl.read_parquet(file) for file in sorted((out / "points").glob("part-*.parquet"))[:1])
    broken = older.with_columns(pl.lit(json.dumps({"recording": None})).alias("kept"))
    broken.write_parquet(out / "points" / "part-ffffffffff-ffffff-00001.parquet")
    again = reproduce(study, ["NOB-E01"], out=out)
    assert again.kept == whole.runs


# What goes wrong.


def test_a_broken_scenario_costs_its_own_experiment_alone(skybraid: Command, place: Path) -> None:
    file = place / "nobody2026" / "NOB-E01.toml"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace('use = "b"', 'use = "b"\nset = { "flow.b.trafic" = 1 }'), encoding="utf-8")
    done = skybraid("reproduce", "nobody2026", "NOB-E01", "NOB-E02", "--json", "--studies", place)
    broken, sound = rows_of(done)
    assert done.returncode == 1
    assert (broken["verdict"], sound["verdict"]) == ("failed", "holds")
    assert "trafic" in broken["why"]
    assert "Again: `skybraid reproduce NOB-E01`." in broken["why"]


def test_a_run_that_fails_costs_its_own_experiment_alone(place: Path, tmp_path: Path) -> None:
    @observation("failing", "messages")
    def failing(seen: RunData, flow: str) -> float:
        message = "no such luck"
        raise RuntimeError(message)

    text = claim_file("ratio", CASES["ratio"][0])
    broken = text.replace('use = "c"', 'use = "c"\nmeasure = { kind = "failing", flow = "c" }')
    # A run of its own, which no other experiment shares.
    broken = broken.replace('use = "c"', 'use = "c"\nset = { "flow.c.traffic.rate" = "1Mbit/s" }')
    (place / "nobody2026" / "NOB-E03.toml").write_text(broken, encoding="utf-8")
    first, second, failed = reproduce(Study(place / "nobody2026"), out=tmp_path / "out").rows
    assert (first.verdict, second.verdict) == ("holds", "holds")
    assert failed.verdict == "failed"
    assert failed.failed == 1
    again = re.search(r"no such luck\. Again: `skybraid run (\S+flows.toml) --seed 1 --set", failed.why)
    assert again, failed.why
    assert Path(again[1]).is_file()
    # The claim itself does not need the series that failed, and is judged.
    assert [claim.verdict for claim in failed.claims] == ["holds"]


LONG = """
figure = "Fig. 1"
finding = "It takes a while."
unit = "kbit/s"
sweep = { label = "x", values = [1, 2, 3, 4, 5, 6, 7, 8], set = { "flow.a.traffic.rate" = "{100*x}kbit/s" } }
runs = { duration = "200s" }
[series.A]
use = "a"
[[claim]]
words = "It rises."
kind = "rises"
of = "A"
by = 6
"""


@pytest.fixture
def long(place: Path) -> Path:
    """A study of 24 runs that take a tenth of a second each."""
    for file in place.glob("*/*-*.toml"):
        file.unlink()
    (place / "index.toml").unlink()
    (place / "nobody2026" / "NOB-E01.toml").write_text(LONG, encoding="utf-8")
    return place


def begun(long: Path, tmp_path: Path, runs: int, before: Callable[[], None] | None = None) -> subprocess.Popen[str]:
    """The command, once it has finished some runs."""
    words = [sys.executable, "-m", "skybraid", "reproduce", "--studies", str(long), "--workers", "1", "--quiet"]
    process = subprocess.Popen(words, cwd=tmp_path, preexec_fn=before, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while (
        len(finished(tmp_path / "runs" / "reproduce")) < runs and process.poll() is None and time.monotonic() < deadline
    ):
        time.sleep(0.01)
    return process


@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, 130)])
def test_what_is_interrupted_goes_on_where_it_stopped(
    skybraid: Command, long: Path, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    with begun(long, tmp_path, 3) as process:
        process.send_signal(number)
        assert process.wait(timeout=120) == code
    kept = finished(tmp_path / "runs" / "reproduce")
    assert 3 <= len(kept) < 24
    done = skybraid("reproduce", "--studies", long)
    assert done.returncode == 0, done.stderr
    assert f"{len(kept)} of 24 runs and calculations kept from before" in done.stdout
    assert len(finished(tmp_path / "runs" / "reproduce")) == 24
    resumed = json.loads((tmp_path / "runs" / "reproduce" / "rows.json").read_text(encoding="utf-8"))
    (whole,) = reproduce(Study(long / "nobody2026")).rows
    assert resumed[0]["ours"] == whole.ours
    assert resumed[0]["low"] == whole.low


def test_a_full_disk_is_told_and_leaves_nothing_half_written(skybraid: Command, long: Path, tmp_path: Path) -> None:
    # A limit on the size of files stands for the disk: both refuse what is written.
    with begun(long, tmp_path, 1, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))) as process:
        _, stderr = process.communicate(timeout=120)
    assert process.returncode == 2
    assert "cannot write the result: File too large" in stderr
    assert finished(tmp_path / "runs" / "reproduce") == set()
    assert list((tmp_path / "runs" / "reproduce").rglob("*.partial")) == []
    assert skybraid("reproduce", "--studies", long).returncode == 0


# The page.


class Page(HTMLParser):
    """What a page is made of."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def of(self, tag: str) -> Iterator[dict[str, str | None]]:
        return (attributes for name, attributes in self.tags if name == tag)


def test_the_page_has_every_row_and_needs_no_network(
    skybraid: Command, place: Path, tmp_path: Path, drawings: None
) -> None:
    skybraid("reproduce", "--quick", "--studies", place)
    text = (tmp_path / "runs" / "reproduce" / "index.html").read_text(encoding="utf-8")
    page = Page(text)
    rows = [row for row in page.of("tr") if "data-verdict" in row]
    assert [(row["id"], row["data-verdict"]) for row in rows] == [
        ("NOB-E01", "holds"),
        ("NOB-E02", "holds"),
        ("NOB-E03", "cannot be judged"),
        ("SOM-E01", "holds"),
        ("SOM-E02", "holds"),
    ]
    assert "holds: 4" in text
    assert "Quick look" in text
    assert "skybraid reproduce NOB-E01 --quick" in text
    # Drawings wait as text until their row is unfolded.
    assert sum(script.get("type") == "image/svg+xml" for script in page.of("script")) == 4
    assert list(page.of("svg")) == []
    assert not any("src" in attributes for _, attributes in page.tags)
    assert list(page.of("link")) == []
    assert all(str(link["href"]).startswith("#") for link in page.of("a"))
    assert re.findall(r"(?:https?:)?//(?!\s)[\w.-]+\.\w+/", text) == []
    for words in ("prefers-color-scheme: dark", "@media print", "max-width: 48rem"):
        assert words in text


# Real time.

TWO_PATHS = """
name = "Two paths in real time"
duration = "60s"

[path.lte]
rate = "5Mbit/s"
delay = "30ms"

[path.leo]
rate = "10Mbit/s"
delay = "40ms"

[flow.video]
from = "vehicle"
traffic = { kind = "bulk" }
transport = { protocol = "mptcp", scheduler = "low_rtt", congestion = "lia" }
"""

EMULATED = """
figure = "Fig. 1"
finding = "Two paths carry more than one, over our transport and the kernel's."
unit = "kbit/s"
emulate = { seeds = 2, duration = "2s" }

[series.Ours]
scenario = "two.toml"
measure = { kind = "goodput", flow = "video" }

[series.Kernel]
scenario = "two.toml"
set = { "flow.video.transport" = { protocol = "tcp", congestion = "cubic", stack = "kernel", paths = ["leo"] } }
measure = { kind = "goodput", flow = "video" }

[[claim]]
words = "Both paths together carry more than the faster one."
kind = "above"
of = "Ours"
to = "Kernel"
"""


@pytest.fixture
def emulated(place: Path) -> Path:
    """A study whose first experiment is an emulation of two paths."""
    (place / "nobody2026" / "two.toml").write_text(TWO_PATHS, encoding="utf-8")
    (place / "nobody2026" / "NOB-E01.toml").write_text(EMULATED, encoding="utf-8")
    return place


def test_emulations_are_flown_in_real_time(skybraid_process: Command, emulated: Path) -> None:
    if lacking := emulator_lacks():
        pytest.skip(f"the emulator cannot run here: {lacking}")
    file = emulated / "nobody2026" / "NOB-E01.toml"
    file.write_text(EMULATED.replace("seeds = 2", "seeds = 1"), encoding="utf-8")
    done = skybraid_process("reproduce", "--emulate", "--json", "--studies", emulated)
    (row,) = rows_of(done)
    assert row["driver"] == "emulation", done.stderr
    assert "2 runs in real time, one at a time: about 7 s; 0 kept from before" in done.stderr
    assert row["verdict"] in ("holds", "does not hold", "cannot be judged")
    assert row["failed"] == 0, row["why"]
    assert "Emulated: " in row["why"]
    assert row["ours"] is not None
    assert 0.5 < row["ours"] < 3
    assert row["replay"] == "skybraid reproduce NOB-E01 --emulate"
    again = skybraid_process("reproduce", "--emulate", "--json", "--studies", emulated)
    assert "0 runs in real time, one at a time: about 0 ms; 2 kept from before" in again.stderr
    assert rows_of(again)[0]["ours"] == row["ours"]


def test_real_time_is_kept_within_what_is_given(emulated: Path) -> None:
    from skybraid_studies.engine import emulating

    of = errand_of(Study(emulated / "nobody2026"), ["NOB-E01", "NOB-E02"])
    whole = emulating.affordable([of], 1e6, None)
    # Two series of two seeds and 2 s; NOB-E02 has 3 rates, for E 5 and for all others, two seeds each, and 2 s.
    assert [job.length_s for job in whole.missing] == [2.0] * (4 + 12)
    one_seed = emulating.affordable([of], 40, None)
    assert len(one_seed.missing) == 2 + 6
    first = emulating.affordable([of], 10, None)
    assert len(first.missing) == 2
    assert emulating.estimate_s(first) <= 10
    (words,) = {failure.words for failure in first.refused.values()}
    assert words == "Left out: it takes another 21 s, and --max-time is 10 s"


def test_what_no_emulator_can_fly_is_told(place: Path) -> None:
    folder = place / "nobody2026"
    (folder / "NOB-E06.toml").write_text(
        'figure = "§1"\nfinding = "…"\n[series.S]\ncompute = "pedrazzi.paths"\n', encoding="utf-8"
    )
    planned = plan([errand_of(Study(folder), ["NOB-E06"])], form=Form.EMULATED)
    (failure,) = planned.refused.values()
    assert failure.words == "A calculation has no links to emulate"


def test_a_network_is_not_emulated() -> None:
    planned = plan([errand_of(Study(STUDIES / "palazzi2007"), ["PAL-E02"])], form=Form.EMULATED)
    assert planned.jobs == {}
    assert "found a network of 5 nodes" in next(iter(planned.refused.values())).words


def test_a_machine_without_an_emulator_says_what_it_lacks(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skybraid_studies.command.lacks", lambda: "user namespaces (found none; sysctl …)")
    words = ["reproduce", "--emulate", "NOB-E01", "--studies", str(place)]
    with pytest.raises(Exception, match="this machine lacks user namespaces") as caught:
        CliRunner().invoke(cli.app, words, catch_exceptions=False)
    assert type(caught.value).__name__ == "EmulationError"
