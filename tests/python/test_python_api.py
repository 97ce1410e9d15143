"""The package as a researcher meets it in a notebook."""

from __future__ import annotations

import inspect
import pickle
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import polars as pl
import pytest

import skybraid
from conftest import TWO_PATHS
from skybraid import Campaign, Link, MissingTableError, Results, Scenario, ScenarioError

if TYPE_CHECKING:
    from pathlib import Path

SHORT = Scenario(TWO_PATHS).with_("duration", "5s")

RATES = ("5Mbit/s", "20Mbit/s", "10Mbit/s")


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    """Two axes, of which one moves two keys in step, and two seeds."""
    text = f"""{TWO_PATHS}
[sweep]
seeds = "4..5"
vary."path.near.uplink.rate" = {list(RATES)}
zip = [{{ "path.near.uplink.delay" = ["5ms", "7ms"], "path.far.uplink.delay" = ["20ms", "21ms"] }}]
"""
    scenario = Scenario(text).with_("duration", "5s")
    return skybraid.sweep(scenario, out=tmp_path_factory.mktemp("api") / "campaign")


def test_public_modules_need_no_import_of_their_own() -> None:
    words = "import skybraid; print(*(getattr(skybraid, name).__name__ for name in skybraid._MODULES))"
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [f"skybraid.{place}" for place in skybraid._MODULES.values()]


def test_a_report_loads_no_library_of_pictures() -> None:
    words = "import sys, skybraid.show.report.single; print('PIL' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_all_that_is_public_says_what_it_is() -> None:
    for name in skybraid.__all__:
        public = getattr(skybraid, name)
        members = vars(public).items() if inspect.isclass(public) else ()
        fields = getattr(public, "__dataclass_fields__", {})
        for member, value in ((name, public), *(pair for pair in members if not pair[0].startswith("_"))):
            if member in fields:
                assert f"    {member}" in (inspect.getdoc(public) or ""), (name, member)
            elif callable(value) or isinstance(value, property):
                assert inspect.getdoc(value), (name, member)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (TWO_PATHS, r"scenario: found a text of several lines, expected a file's path; Scenario\(text\) takes TOML"),
        ({"name": "x"}, r"scenario: found dict, expected a Scenario or a file's path; Scenario\.build takes mappings"),
        (None, "scenario: found NoneType, expected a Scenario"),
    ],
)
def test_what_is_no_scenario_is_refused_with_advice(given: Any, words: str) -> None:
    for call in (skybraid.run, skybraid.sweep, skybraid.emulate, skybraid.compare.compare):
        with pytest.raises(ScenarioError, match=words):
            call(given)


def test_a_path_in_place_of_a_text_is_refused_with_advice() -> None:
    with pytest.raises(ScenarioError, match=r"found the path flight\.toml, expected TOML; Scenario\.load reads a file"):
        Scenario("flight.toml")


def test_runs_are_judged_while_others_fly() -> None:
    given: list[Any] = []
    shares: list[int] = []

    def look(_share: float) -> None:
        results = given[0]()
        shares.append(0 if results is None else len(results.flights))

    whole = skybraid.run(SHORT, seeds="1..30", tables=[], progress=look, watch=given.append)
    assert shares == sorted(shares)
    assert shares[-1] == 30
    assert given[0]().requirements == whole.requirements


def test_keys_to_vary_are_a_mapping() -> None:
    with pytest.raises(ScenarioError, match="vary: found list, expected a mapping of keys to lists of values"):
        skybraid.sweep(SHORT, vary=["path"])  # type: ignore[arg-type]


@pytest.mark.parametrize("values", [range(1, 3), (1, 2), np.arange(1, 3), pl.Series([1, 2]), [np.int64(1), 2]])
def test_varied_values_are_any_sequence(values: object, tmp_path: Path) -> None:
    campaign = skybraid.sweep(SHORT, vary={"flow.video.copies": values}, seeds=[1], out=tmp_path / "out")
    assert campaign.axes[0].values == [1, 2]


def test_a_varied_value_that_toml_lacks_names_its_key(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"flow\.video\.copies: found None, expected a text, a number"):
        skybraid.sweep(SHORT, vary={"flow.video.copies": [None]}, out=tmp_path / "out")
    with pytest.raises(ScenarioError, match=r"flow\.video\.copies: found None, expected a text, a number"):
        SHORT.with_("flow.video.copies", None)


def test_too_few_workers_are_refused_before_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="workers: found -1, expected 1 or more"):
        skybraid.sweep(SHORT, workers=-1, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_scenario_goes_to_another_process_by_pickle() -> None:
    changed = SHORT.with_("duration", "6s")
    there = pickle.loads(pickle.dumps(changed))
    assert (there.toml(), there.file) == (changed.toml(), changed.file)


def test_a_missing_table_names_those_that_are_there() -> None:
    tables = skybraid.run(SHORT, tables=["links"]).tables
    with pytest.raises(MissingTableError) as caught:
        tables["messages"]
    assert str(caught.value) == "table messages: this result does not contain it; found links"
    assert tables.get("messages") is None


def test_what_a_notebook_shows_fits_on_a_screen(flown: Results, campaign: Campaign) -> None:
    flow, flight = flown.flows["control"], flown.flights[0]
    assert repr(flight) == f"Flight(seed {flight.seed}, 10 s; flows: video, control)"
    assert repr(flow).startswith(f"FlowSummary({flow.delivered:,} of".replace(",", " "))
    assert len(repr(flow)) < 200
    requirement = flown.requirements[0]
    assert repr(requirement) == f"Requirement({requirement.flow}: {requirement.verdict}. {requirement.words})"
    assert str(skybraid.explain.explain(flown)[0]).startswith("video: ")
    assert repr(campaign).startswith("Campaign('Two plain paths': 6 points in ")
    assert "Mbit/s" in campaign._repr_html_()
    paired = skybraid.paired(SHORT, SHORT.with_("flow.control.transport.scheduler", "low_rtt"), seeds="1..2")
    assert len(repr(paired).splitlines()) == 1 + min(len(paired.differences), 12)
    assert paired.differences[0].words in repr(paired)


def test_tables_go_to_polars_and_duckdb_by_arrow(flown: Results, campaign: Campaign) -> None:
    for offers, frame in ((flown, flown.summary_frame()), (campaign, campaign.scan("runs").collect())):
        assert pl.DataFrame(offers).equals(frame)
        counted = duckdb.sql("select count(*) from offers")
        assert counted is not None
        assert counted.fetchall() == [(len(frame),)]


def test_a_campaign_is_a_grid_of_its_axes_flows_and_seeds(campaign: Campaign) -> None:
    dataset = campaign.to_xarray()
    rate, delay = (axis.keys[0] for axis in campaign.axes)
    assert dict(dataset.sizes) == {rate: 3, delay: 2, "flow": 2, "seed": 2}
    assert dataset[rate].values.tolist() == list(RATES)
    second = campaign.axes[1].keys[1]
    assert dataset[second].dims == (delay,)
    for row in campaign.scan("flows").collect().iter_rows(named=True):
        place = {key: row[key] for key in (rate, delay, "flow", "seed")}
        assert dataset.sel(place)["goodput_bps"] == row["goodput_bps"]
    assert dataset["goodput_bps"].notnull().all()


def test_a_run_that_is_missing_is_nan_in_the_grid(tmp_path: Path) -> None:
    key = "path.far.uplink.rate"
    skybraid.sweep(SHORT, vary={key: ["5Mbit/s", "9Mbit/s"]}, seeds=[1], out=tmp_path / "grown")
    grown = skybraid.sweep(SHORT, vary={key: ["9Mbit/s"]}, seeds=[2], out=tmp_path / "grown")
    sent = grown.to_xarray()["sent"].sel(flow="video")
    assert sent.sel({key: "5Mbit/s"}).isnull().values.tolist() == [False, True]
    assert sent.sel({key: "9Mbit/s"}).notnull().all()


def test_a_link_takes_any_numbers_and_shows_itself() -> None:
    link = Link('preset = "ethernet"', direction="downlink", seed=3)
    assert repr(link) == "Link(downlink, seed 3)"
    same = [
        Link('preset = "ethernet"').admit(*pair)
        for pair in (([0, 1], [100, 200]), (np.arange(2.0), np.array([100, 200], np.uint32)))
    ]
    assert np.array_equal(same[0][0], same[1][0])
    for size in (-1, 1.5, 2**32, np.nan):
        with pytest.raises(ScenarioError, match=r"sizes_bytes\[1\]: found .*, expected a whole number below 2\^32"):
            link.admit([0, 1], [100, size])
