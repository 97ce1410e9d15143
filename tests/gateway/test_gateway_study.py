"""MuTran's measurements flown by two gateways in place of the simulator, in short."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, cast

import polars as pl
import pytest

from skybraid import Scenario
from skybraid.gateway import flight, playing
from skybraid_studies import Study
from skybraid_studies.engine import emulating
from skybraid_studies.engine.observe import RunData, arrival_gaps_s
from skybraid_studies.engine.papers import FOLDER as STUDIES
from skybraid_studies.engine.points import GATEWAY, SIMULATION, Point
from skybraid_studies.engine.reproducing import selection
from skybraid_studies.engine.runner import Form

if TYPE_CHECKING:
    from conftest import Command
    from skybraid._core import Run

FOLDER = STUDIES / "lee2021mutran"

FAILURE = {"at": "4s", "path": {"b": {"rate": "6Mbit/s", "loss": {"uniform": "30%"}}}}


def scenario(name: str) -> Scenario:
    return Scenario.load(FOLDER / "scenarios" / f"{name}.toml")


# Source: lee2021mutran §3, the set-ups of figures 9, 11 and 13.
@pytest.mark.parametrize(
    ("name", "network", "classes", "paths"),
    [
        ("mutran-udp", "udp", {"bulk": {"scheduler": "low_rtt"}}, ("a", "b")),
        ("mutran-tcp", "tcp", {}, ("a", "b")),
        ("single", "udp", {}, ("b",)),
        ("all-duplicated", "udp", {"bulk": {"scheduler": "redundant"}}, ("a", "b")),
        (
            "separate-interfaces",
            "udp",
            {
                "bulk": {"scheduler": {"name": "single", "path": 0}},
                "control": {"scheduler": {"name": "single", "path": 1}},
            },
            ("a", "b"),
        ),
    ],
)
def test_each_system_of_the_paper_is_a_gateways_configuration(
    name: str, network: str, classes: dict[str, object], paths: tuple[str, ...]
) -> None:
    how = playing.play(scenario(name))
    assert how.tables.get("network") == network
    assert how.tables.get("class", {}) == classes
    assert how.paths == paths
    assert how.flows["control"].interval_s == pytest.approx(0.5)
    assert how.flows["data"].bits_per_s == 25e6


def test_control_in_the_stream_of_the_data_is_not_played() -> None:
    with pytest.raises(playing.CannotPlayError, match="never puts control into the stream"):
        playing.play(scenario("round-robin-duplicates"))
    # Where the data are looked at, their scheduler is what counts.
    how = playing.play(scenario("round-robin-duplicates"), playing.DATA)
    assert how.tables["class"]["bulk"]["scheduler"]["name"] == "round_robin"


def test_what_gateways_cannot_fly_is_simulated_and_said_so() -> None:
    of = selection(Study(FOLDER), ["LEE-E10"])
    planned = emulating.affordable([of], 1e9, None, Form.GATEWAY)
    drivers = {job.driver for job in planned.jobs.values() if isinstance(job, Point)}
    assert drivers == {GATEWAY, SIMULATION}
    simulated = {series for _, _, series in planned.simulated}
    assert simulated == {"3 default", "4 round robin"}
    assert set(planned.simulated.values()) == {playing.NO_STREAM}


def test_gateways_are_no_quick_look(skybraid: Command) -> None:
    refused = skybraid("reproduce", "lee2021mutran", "--gateway", "--quick")
    assert refused.returncode == 2
    assert "--gateway: found --quick too" in refused.stderr
    nothing = skybraid("reproduce", "palazzi2007", "--gateway")
    assert nothing.returncode == 2
    assert "--gateway: found no" in nothing.stderr


@pytest.mark.skipif(
    not sys.platform.startswith("linux") or bool(flight.missing()),
    reason="needs Linux, root and the program skybraid-node: make node, or SKYBRAID_NODE",
)
def test_control_keeps_its_period_over_two_paths_of_which_one_fails() -> None:
    short = scenario("mutran-udp").with_all({"duration": "8s", "event": [FAILURE]})
    flown = flight.fly(short, 1, "control")
    seen = RunData(cast("Run", flown))
    control = seen.messages("control")
    assert len(control) >= 10
    assert control["delivered_ns"].null_count() == 0
    gaps = arrival_gaps_s(seen, "control", 3, 8)
    assert gaps.mean() == pytest.approx(0.5, rel=0.02)
    data = seen.messages("data").filter(pl.col("delivered_ns").is_between(3_000_000_000, 4_000_000_000))
    assert data["bytes"].sum() * 8 > 10e6
    assert flown.facts["strange"] == {"data": 0, "control": 0}
