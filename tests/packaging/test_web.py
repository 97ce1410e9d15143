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
from browser import PROGRAM, Browser
from polars.testing import assert_frame_equal

import skybraid

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
    for found, told in zip(judged, results.requirements, strict=True):
        if found["verdict"] is not None:
            assert found["verdict"] == told.verdict
        if found["low"] is not None:
            assert (found["low"], found["high"]) == pytest.approx((told.low, told.high), rel=1e-12)


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A web server that logs nothing."""

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def site() -> Iterator[str]:
    """The address of the documentation, as a web server gives it."""
    if not (SITE / "try/skybraid.wasm").exists() or PROGRAM is None:
        pytest.skip("needs Chromium, and target/site from `make site`")
    handler = functools.partial(Quiet, directory=SITE)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_a_page_runs_completes_and_shares_a_scenario(site: str, tmp_path: Path) -> None:
    ready, done = "document.querySelector('#try')?.dataset.ready === 'yes'", "!!document.querySelector('#try .cards')"
    with Browser(tmp_path) as browser:
        browser.show(1280, 900)
        browser.open(f"{site}/try.html")
        browser.wait(ready)
        browser.value("document.querySelector('#try .run').click()")
        browser.wait(done)
        assert browser.value("document.querySelectorAll('#try .card').length") == 2
        assert browser.value("document.querySelectorAll('#try svg').length") == 4
        speed = browser.value("document.querySelector('#try .status').textContent")
        assert int(speed.rpartition(":")[2].split("×")[0].replace(" ", "")) >= 100, speed

        browser.value("document.querySelector('#try textarea').focus()")
        browser.value("document.querySelector('#try textarea').value = '[path.lte]\\n'")
        browser.call("Input.insertText", text="pres")
        assert browser.value("document.querySelector('#try .options li').firstChild.textContent") == "preset"

        browser.value("document.querySelector('#try .share').click()")
        browser.wait("location.hash.length > 1")
        link = browser.value("location.href")
        browser.open("about:blank")
        browser.open(link)
        browser.wait(ready)
        assert browser.value("document.querySelector('#try textarea').value") == "[path.lte]\npres"
        browser.value("document.querySelector('#try .run').click()")
        browser.wait("!!document.querySelector('#try .error')")
        assert "scenario.toml:2" in browser.value("document.querySelector('#try .error').textContent")
        assert browser.problems == []


def test_the_page_fits_a_phone(site: str, tmp_path: Path) -> None:
    with Browser(tmp_path) as browser:
        browser.show(360, 740, dark=True)
        browser.open(f"{site}/try.html")
        browser.wait("document.querySelector('#try')?.dataset.ready === 'yes'")
        browser.value("document.querySelector('#try .run').click()")
        browser.wait("!!document.querySelector('#try .cards')")
        assert browser.value("document.documentElement.scrollWidth") <= 360
