"""MuTran's study where it needs no long runs: what its calculations and observations read."""

import math
from statistics import fmean

import pytest

from skybraid import Scenario
from skybraid_studies import Study, reproduce
from skybraid_studies.engine import theory
from skybraid_studies.engine.claims import Holds
from skybraid_studies.engine.observe import RunData, observations
from skybraid_studies.engine.papers import FOLDER as STUDIES
from skybraid_studies.lee2021mutran import observations as lee

FOLDER = STUDIES / "lee2021mutran"


def seen(system: str, *tables: str) -> RunData:
    return RunData(Scenario.load(FOLDER / "scenarios" / f"{system}.toml").native.run(1, list(tables)))


def read(what: RunData, name: str, **keys: object) -> float:
    one = observations()[name]
    return one(what, {key: default for key, default in one.keys.items() if key in keys} | keys)


def test_the_study_has_every_experiment_of_the_paper() -> None:
    ids = Study(FOLDER).experiments()
    papers = [f"LEE-E{number:02}" for number in range(1, 15)] + [f"LEE-T{number}" for number in range(1, 8)]
    assert {*papers, "LEE-V1", "LEE-V2"} <= ids.keys()


# Source: Lee 2021, the values of figures 5 and 7, of which the table of test_mutran.py has more.
@pytest.mark.parametrize(
    ("name", "loss", "value"),
    [("tcp_ratio", 0.25, 0.8), ("udp_ratio", 0.25, 0.2), ("udp", 0.5, 1 / 3), ("tcp", 0.5, 4 / 3)],
)
def test_drawn_links_give_the_curves(name: str, loss: float, value: float) -> None:
    assert theory.compute(f"lee.{name}.2", loss, 1) == pytest.approx(value)
    drawn = name.split("_")[0] + ("_ratio" if "ratio" in name else "") + "_drawn"
    seeds = [theory.compute(f"lee.{drawn}.2", loss, seed) for seed in range(1, 11)]
    assert fmean(seeds) == pytest.approx(value, rel=0.02)


def test_a_number_of_interfaces_for_no_time_is_none() -> None:
    assert math.isnan(theory.compute("lee.fewest_tcp", 1.0, 1))
    assert theory.compute("lee.refused", 1.0, 1) == 3


def test_what_needs_no_runs_comes_out_as_the_page_says() -> None:
    rows = reproduce(Study(FOLDER), ["LEE-T7", "LEE-V1"], quick=True).rows
    assert [row.verdict for row in rows] == [Holds.YES, Holds.YES]


# Source: LEE-V1, figure 1: a the data alone, b all copied, c plain duplicates, d MuTran in either mode.
def test_a_copy_survives_a_failed_link_only_on_another_link() -> None:
    arrived = {system: lee.figure_1_arrived(system, 1) for system in range(1, 6)}
    assert arrived == {1: 0, 2: 1, 3: 0, 4: 1, 5: 1}
    later = {system: lee.figure_1_extra(system, 1) for system in range(1, 6)}
    assert max(later[system] for system in (2, 4, 5)) < 100
    assert min(later[system] for system in (1, 3)) > 300


def test_copies_take_different_paths_and_the_first_one_counts() -> None:
    for system in ("mutran-udp", "mutran-tcp"):
        flight = seen(system, "messages", "packets", "decisions")
        assert read(flight, "lee.different_paths", flow="control", until_s=59) == 100
        assert read(flight, "lee.first_wins", flow="control", until_s=59) == 100
    assert read(flight, "lee.chosen_paths", flow="data", reason="control copies", until_s=59) == 2
    plain = seen("default-duplicates", "messages", "packets")
    assert read(plain, "lee.different_paths", flow="control", until_s=59) < 10


def test_arrivals_are_read_in_their_phase() -> None:
    flight = seen("single", "messages")
    assert read(flight, "lee.arrivals", flow="control", period_s=0.5, from_s=5, to_s=60) == pytest.approx(100, abs=1)
    assert read(flight, "lee.arrivals", flow="control", period_s=0.5, from_s=60, to_s=120) < 90
    assert read(flight, "lee.missing", flow="control", from_s=5, to_s=59) == 0
    assert read(flight, "lee.missing", flow="control", from_s=61, to_s=119) == pytest.approx(30, abs=12)
    assert read(flight, "lee.regular", flow="control", from_s=5, to_s=60) == 100
    assert read(flight, "lee.goodput", flow="data", from_s=5, to_s=60) == pytest.approx(19, rel=0.05)
