"""A small grid of results as a table that a network person can read; a change shows as a diff."""

import os
from itertools import product
from pathlib import Path

import skybraid

TABLE = Path(__file__).parents[1] / "golden" / "flights.txt"

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
    table = "\n".join([HEADER, *(row(*configuration) for configuration in grid)]) + "\n"
    if os.environ.get("SKYBRAID_UPDATE_GOLDEN"):
        TABLE.write_text(table, encoding="utf-8")
    assert table == TABLE.read_text(encoding="utf-8"), "SKYBRAID_UPDATE_GOLDEN=1 writes the table anew"
