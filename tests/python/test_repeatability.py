"""Same seed, same tables; another scheduler, the same links; one effect moves no other."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray
from polars.testing import assert_frame_equal

from skybraid import Link, Scenario, run
from skybraid.model.tables import ALL

REMOTE_PILOTING = Path(__file__).parents[2] / "scenarios" / "remote-piloting.toml"

CONDITIONS = ("time_ns", "path", "direction", "rate_bps", "delay_ns", "loss", "up")
"""Columns of the links table that say what a link is like, whatever it carries."""

RADIO = """
uplink.rate = "20Mbit/s"
uplink.delay = { min = "20ms", max = "30ms" }
uplink.queue = "unlimited"
uplink.loss = [{ uniform = "1%" }, { gilbert_elliott = \
{ good_to_bad = "1%", bad_to_good = "20%", good_loss = "0%", bad_loss = "50%" } }]
downlink.rate = "20Mbit/s"
"""

HARQ = '\nuplink.harq = { loss = "10%" }'
HANDOVER = '\nhandover = { interval = { mean = "5s" }, interruption = { mixture = "lte-aerial" } }'


def one_minute(**changes: object) -> Scenario:
    """The flight of `make fly`, cut to a minute; `path__lte__handover="off"` sets that key."""
    scenario = Scenario.load(REMOTE_PILOTING).with_("duration", "60s")
    for key, value in changes.items():
        scenario = scenario.with_(key.replace("__", "."), value)
    return scenario


def conditions(scenario: Scenario) -> pl.DataFrame:
    return run(scenario, tables=["links"]).tables["links"].select(CONDITIONS)


def packets(number: int, every_s: float) -> tuple[NDArray[np.float64], NDArray[np.uint32]]:
    return np.arange(number, dtype=np.float64) * every_s, np.full(number, 1_200, dtype=np.uint32)


@pytest.fixture(scope="module")
def measured() -> pl.DataFrame:
    """What the links of the unchanged flight are like."""
    return conditions(one_minute())


def test_the_same_seed_gives_the_same_contents_of_every_table() -> None:
    filmed = one_minute(flow__video__traffic={"kind": "video", "rate": "10Mbit/s"})
    first, again = (run(filmed, tables=ALL).tables for _ in range(2))
    assert set(first) == set(ALL)
    for table in ALL:
        assert first[table].height > 0, table
        assert_frame_equal(first[table], again[table])


def test_another_seed_gives_other_contents() -> None:
    first, other = (run(one_minute(), seed=seed, tables=["messages"]).tables["messages"] for seed in (1, 2))
    assert not first.equals(other)


@pytest.mark.parametrize("scheduler", ["low_rtt", "round_robin", "redundant"])
def test_every_scheduler_meets_the_very_same_links(measured: pl.DataFrame, scheduler: str) -> None:
    chosen = one_minute(flow__video__transport__scheduler=scheduler, flow__control__transport__scheduler=scheduler)
    assert_frame_equal(conditions(chosen), measured)


@pytest.mark.parametrize(
    "changes",
    [
        {"path__lte__handover": "off"},
        {"path__lte__uplink__harq": {"loss": "10%"}},
        {"path__lte__uplink__loss": {"uniform": "5%"}},
    ],
    ids=["handover", "harq", "loss"],
)
def test_an_effect_switched_on_one_path_leaves_the_other_path_alone(
    measured: pl.DataFrame, changes: dict[str, object]
) -> None:
    changed = conditions(one_minute(**changes))
    leo = pl.col("path") == "leo"
    assert_frame_equal(changed.filter(leo), measured.filter(leo))


def test_a_path_without_handovers_keeps_its_delay_and_loss(measured: pl.DataFrame) -> None:
    columns = ("time_ns", "direction", "delay_ns", "loss", "up")
    lte = pl.col("path") == "lte"
    changed = conditions(one_minute(path__lte__handover="off"))
    assert_frame_equal(changed.filter(lte).select(columns), measured.filter(lte).select(columns))


@pytest.mark.parametrize("effect", [HARQ, HANDOVER, HARQ + HANDOVER], ids=["harq", "handover", "both"])
def test_an_effect_that_delays_loses_no_other_packets(effect: str) -> None:
    times_s, sizes = packets(100_000, 0.001)
    plain_s, plain_cause = Link(RADIO, seed=5).admit(times_s, sizes)
    moved_s, moved_cause = Link(RADIO + effect, seed=5).admit(times_s, sizes)
    assert np.array_equal(moved_cause, plain_cause)
    assert 0.02 < (plain_cause > 0).mean() < 0.06
    arrived = plain_cause == 0
    assert (moved_s[arrived] > plain_s[arrived] + 0.001).any()


@pytest.mark.parametrize(
    "preset",
    ["lte-aerial", "lte-ground", "starlink", "leo", "meo", "geo", "geo-dvb", "wifi", "ethernet"]
    + [f"testbed-{work}-{link}" for work in ("article", "thesis") for link in ("satellite", "lte")],
)
def test_a_link_fed_twice_gives_the_same_arrays(preset: str) -> None:
    times_s, sizes = packets(20_000, 0.002)
    first_s, first_cause = Link(f'preset = "{preset}"', seed=3).admit(times_s, sizes)
    again_s, again_cause = Link(f'preset = "{preset}"', seed=3).admit(times_s, sizes)
    assert np.array_equal(first_s, again_s, equal_nan=True)
    assert np.array_equal(first_cause, again_cause)


def test_a_million_packets_pass_every_effect_of_a_preset() -> None:
    times_s, sizes = packets(1_000_000, 0.001)
    link = Link('preset = "lte-aerial"', seed=1)
    arrivals_s, cause = link.admit(times_s, sizes)
    assert arrivals_s.shape == cause.shape == (1_000_000,)
    arrived = cause == 0
    assert np.array_equal(np.isnan(arrivals_s), ~arrived)
    assert (arrivals_s[arrived] > times_s[arrived]).all()
    assert (np.diff(arrivals_s[arrived]) >= 0).all()
