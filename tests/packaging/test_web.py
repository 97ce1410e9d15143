"""The simulator as WebAssembly: the same table as the command, and a page that runs it in a browser."""

import functools
import http.server
import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import skybraid
from chromium import Chromium, browser

ROOT = Path(__file__).parents[2]
MODULE = ROOT / "target/wasm32-unknown-unknown/web/skybraid_web.wasm"
SITE = ROOT / "target/site"

# Reads requests, one a line, and prints each answer and its table.
PROGRAM_OF_NODE = """
import { readFileSync, writeFileSync } from "node:fs";
import { load } from "%s";
const [module, request, table] = process.argv.slice(2);
const engine = await load(readFileSync(module));
const answer = engine.fly(JSON.parse(readFileSync(request, "utf8")));
writeFileSync(table, [...engine.messages()].join(""));
console.log(JSON.stringify(answer));
"""


@pytest.fixture(scope="module")
def starts() -> dict[str, str]:
    """The page's starting points, each of at most two minutes."""
    files = [*(ROOT / "python/skybraid/cli/starts").glob("*.toml"), ROOT / "packaging/try/measured.toml"]
    texts = {file.stem: file.read_text(encoding="utf-8") for file in files}
    return {name: text.replace('0min"', '0s"') for name, text in texts.items()}


def traces() -> dict[str, str]:
    folder = ROOT / "traces"
    return {file.relative_to(folder).as_posix(): file.read_text() for file in folder.glob("lte*/*.csv")}


@pytest.mark.parametrize("name", ["two-networks", "remote-piloting", "video", "measured"])
def test_the_same_seed_gives_the_table_of_the_command(name: str, starts: dict[str, str], tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None or not MODULE.exists():
        pytest.skip("needs Node, and the module from `make web`")
    (tmp_path / "run.mjs").write_text(PROGRAM_OF_NODE % (ROOT / "packaging/try/engine.mjs").as_uri())
    request = {"scenario": starts[name], "seed": 7, "files": traces()}
    (tmp_path / "request.json").write_text(json.dumps(request))
    command: list[str | Path] = [node, tmp_path / "run.mjs", MODULE, tmp_path / "request.json", tmp_path / "table.csv"]
    answer = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert answer["bugs"] == 0

    scenario = skybraid.Scenario(starts[name], str(ROOT / "traces/scenario.toml"))
    results = skybraid.run(scenario, seed=7, tables=["messages"])
    wanted = results.tables["messages"].with_columns(pl.col(pl.Categorical, pl.Enum).cast(pl.String))
    found = pl.read_csv(tmp_path / "table.csv", schema=wanted.schema)
    assert found.height >= 2_000
    assert_frame_equal(found, wanted)
    judged = [one for flow in answer["flows"] for one in flow["requirements"]]
    assert [one["estimate"] for one in judged] == pytest.approx(
        [one.estimate for one in results.requirements], rel=1e-12
    )
    for found, text in zip(judged, results.requirements, strict=True):
        if found["verdict"] is not None:
            assert found["verdict"] == text.verdict
        if found["low"] is not None:
            assert (found["low"], found["high"]) == pytest.approx((text.low, text.high), rel=1e-12)


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A web server that logs nothing."""

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def window(tmp_path: Path) -> Iterator[Chromium]:
    program = browser()
    if program is None:
        pytest.skip("found no Chromium or Chrome; SKYBRAID_BROWSER may name one")
    with Chromium(program, tmp_path) as opened:
        yield opened


@pytest.fixture
def site() -> Iterator[str]:
    """The address of the documentation, as a web server gives it."""
    if not (SITE / "try/skybraid.wasm").exists():
        pytest.skip("needs target/site from `make site`")
    handler = functools.partial(Quiet, directory=SITE)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


READY = "document.querySelector('#try')?.dataset.ready === 'yes'"
DONE = "!!document.querySelector('#try .cards')"


def test_a_page_runs_completes_and_shares_a_scenario(site: str, window: Chromium) -> None:
    window.look(width=1280, height=900)
    window.visit(f"{site}/try.html", READY)
    window.run("document.querySelector('#try .run').click()")
    window.until(DONE, patience_s=120)
    assert window.run("document.querySelectorAll('#try .card').length") == 2
    assert window.run("document.querySelectorAll('#try svg').length") == 4
    speed = window.run("document.querySelector('#try .status').textContent")
    assert int(speed.rpartition(":")[2].split("×")[0].replace(" ", "")) >= 100, speed

    window.run("document.querySelector('#try textarea').focus()")
    window.run("document.querySelector('#try textarea').value = '[path.lte]\\n'")
    window.send("Input.insertText", text="pres")
    assert window.run("document.querySelector('#try .options li').firstChild.textContent") == "preset"

    window.run("document.querySelector('#try .share').click()")
    window.until("location.hash.length > 1")
    assert window.problems == []
    window.visit(window.run("location.href"), READY)
    assert window.run("document.querySelector('#try textarea').value") == "[path.lte]\npres"
    window.run("document.querySelector('#try .run').click()")
    window.until("!!document.querySelector('#try .error')")
    assert "scenario.toml:2" in window.run("document.querySelector('#try .error').textContent")
    assert window.problems == []


def test_the_page_fits_a_phone(site: str, window: Chromium) -> None:
    window.look(width=360, height=740, dark=True)
    window.visit(f"{site}/try.html", READY)
    window.run("document.querySelector('#try .run').click()")
    window.until(DONE, patience_s=120)
    assert window.run("document.documentElement.scrollWidth") <= 360


PAGES = ["index", "drive-log", "gallery", "scenario", "python", "commands", "first-flight", "try"]


@pytest.mark.parametrize("width", [1280, 390])
def test_pages_of_the_site_fit_their_screen(site: str, window: Chromium, width: int) -> None:
    window.look(width=width, height=844)
    for page in PAGES:
        window.visit(f"{site}/{page}.html", "!!document.querySelector('article')")
        assert window.run("document.documentElement.scrollWidth") <= width, page
        assert window.problems == [], page
        assert [address for address in window.requests if not address.startswith((site, "data:", "blob:"))] == []


def test_a_verdict_is_read_and_a_command_copied_alone(site: str, window: Chromium) -> None:
    window.look(width=390, height=844)
    window.visit(f"{site}/drive-log.html", "!!document.querySelector('code .gp')")
    blocks = "[...document.querySelectorAll('code:has(.gp)')]"
    assert window.run(f"{blocks}.filter((one) => one.scrollWidth > one.clientWidth + 1).length") == 0
    # So the theme marks a block while it takes its text for the clipboard.
    copied = window.run(f"{blocks}.map((one) => (one.setAttribute('data-md-copying', ''), one.innerText.trim()))")
    assert copied[1] == "skybraid trace stats drive-lte.csv --column delay"
    assert not any("$ " in text for text in copied)
