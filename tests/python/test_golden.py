"""Grids of results as tables that a network person can read; a change shows as a diff.

`make golden` rewrites them.
"""

import difflib
import os
from itertools import product
from pathlib import Path

import polars as pl
import pytest

import skybraid
from skybraid.execute.compare import compare, text

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden"

SCENARIO = """
name = "Golden grid"
duration = "60s"
seed = 11

[path.lte]
preset = "lte-aerial"

[path.leo]
preset = "starlink"

[flow.video]
from = "vehicle"
start = "1s"
traffic = {{ kind = "cbr", rate = "10Mbit/s", packet = "1200B" }}
transport = {{ protocol = "{protocol}", scheduler = "{scheduler}", congestion = "{congestion}" }}
require = {{ deadline = "300ms", share = "99%" }}

[[event]]
at = "30s"
path.leo.down = "5s"
"""

SCHEDULERS = ("single", "round_robin", "low_rtt", "cheapest_path", "redundant")
HEADER = "protocol scheduler     congestion  Mbit/s  p50 ms  p99 ms  on time  lost  LTE share"


def hold_against(file: str, table: str) -> None:
    """Compares a table with the one in the repository, line by line."""
    path = GOLDEN / file
    if os.environ.get("SKYBRAID_UPDATE_GOLDEN"):
        path.write_text(table, encoding="utf-8")
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    if table != before:
        changes = list(difflib.unified_diff(before.splitlines(), table.splitlines(), file, "now", "", "", 0, ""))
        more = [] if len(changes) <= 60 else [f"… and {len(changes) - 60} lines more"]
        words = f"{file} is not as it was; if that is meant, `make golden` rewrites it:"
        pytest.fail("\n".join([words, *changes[:60], *more]), pytrace=False)


def row(protocol: str, scheduler: str, congestion: str) -> str:
    """One configuration's line."""
    text = SCENARIO.format(protocol=protocol, scheduler=scheduler, congestion=congestion)
    results = skybraid.run(skybraid.Scenario(text, "golden.toml"), tables=())
    video = results.flows["video"]
    return (
        f"{protocol:<8} {scheduler:<13} {congestion:<10} {video.goodput_bps / 1e6:7.2f} {video.delay_ms['p50']:7.1f} "
        f"{video.delay_ms['p99']:7.1f} {100 * (results.requirements[0].estimate or 0):7.2f}% {video.lost:5d} "
        f"{100 * video.share['lte']:8.1f} %"
    )


def test_the_grid_of_schedulers_and_congestion_controls_is_as_it_was() -> None:
    grid = [("udp", scheduler, "cubic") for scheduler in SCHEDULERS]
    grid += list(product(["mptcp"], SCHEDULERS, ["reno", "cubic"]))
    hold_against("flights.txt", "\n".join([HEADER, *(row(*configuration) for configuration in grid)]) + "\n")


PILOTING = ROOT / "scenarios" / "remote-piloting.toml"

OUTAGES = [
    {"at": "10s", "path": {"lte": {"down": "2s"}}},
    {"at": "20s", "path": {"leo": {"down": "2s"}}},
]

ABOUT = """\
# Every scheduler with every congestion control over both multipath protocols: the first 30 s of
# scenarios/remote-piloting.toml, seed 7, with an outage of 2 s on each path (LTE at 10 s, Starlink at 20 s).
# Both flows, video (10 Mbit/s up) and control (1 Mbit/s down), take the row's protocol, scheduler and
# congestion control, each with its defaults. "in 300 ms": messages that arrived within the deadline, of all
# whose deadline fell within the flight; "p50", "p99": one-way delay of those that arrived; "on lte": share of
# the flow's packets. A new algorithm gets its rows by itself: `make golden` rewrites the table, and
# `skybraid compare` makes one of any scenario (docs/compare.md).

"""


def test_every_scheduler_with_every_congestion_control() -> None:
    scenario = skybraid.Scenario.load(PILOTING).with_all({"duration": "30s", "event": OUTAGES})
    schedulers, congestion = (
        [entry["name"] for entry in skybraid.registry(kind)] for kind in ("schedulers", "congestion")
    )
    frame = compare(scenario, schedulers=schedulers, congestion=congestion)
    flown = frame.filter(pl.col("flow") == "video").select("protocol", "scheduler", "congestion").rows()
    assert flown == list(product(("mptcp", "mp_dccp"), schedulers, congestion))
    hold_against("combinations.txt", ABOUT + text(frame) + "\n")
