"""Routes: coverage along a track, and the map and profile of the report."""

import json
from pathlib import Path

import numpy as np
import pytest

from skybraid import Results, Scenario, ScenarioError, run
from skybraid.show.report.charts import Charts
from skybraid.show.report.page import page
from skybraid.show.report.route import BACKGROUND, clock, distance_km, section

SCENARIO = """
duration = "100s"

[node.vehicle]
track = { waypoints = [[0.0, 0.0], [0.0, 0.02]], speed = "20m/s", altitude = "100m" }

[path.lte]
uplink.rate = "1Mbit/s"

[path.lte.coverage]
file = "coverage.csv"
radius = "60m"

[flow.control]
from = "ground"
traffic = { kind = "cbr", rate = "8kbit/s", packet = "100B" }
transport = { protocol = "udp" }
require = { deadline = "100ms", share = "99%" }
"""

DEGREE_M = 6371008.8 * np.pi / 180
"""Length of a degree on the equator of the tracks' sphere."""


@pytest.fixture(scope="module")
def flown(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """A flight along the equator: 30 ms for 400 m, nothing known of 200 m, then 150 ms."""
    folder = tmp_path_factory.mktemp("route")
    rows = [
        f"0,{metres / DEGREE_M:.8f},{30 if metres <= 400 else 150},5"
        for metres in (*range(0, 401, 50), *range(600, 2101, 50))
    ]
    text = "\n".join(["latitude,longitude,delay [ms],downlink rate [Mbit/s]", *rows])
    (folder / "coverage.csv").write_text(text, encoding="utf-8")
    (folder / "route.toml").write_text(SCENARIO, encoding="utf-8")
    return run(folder / "route.toml", out=folder / "result")


def test_delay_and_outage_follow_the_places_along_the_track(flown: Results) -> None:
    messages = flown.tables["messages"].with_columns(at_m=20 * flown.tables["messages"]["sent_ns"] / 1e9)
    delay_ms = (messages["delivered_ns"] - messages["sent_ns"]) / 1e6
    near, far = messages["at_m"] < 400, messages["at_m"] > 620
    # A packet of 100 bytes takes 0.2 ms at 5 Mbit/s.
    assert delay_ms.filter(near).to_numpy() == pytest.approx(30.2, abs=0.2)
    assert delay_ms.filter(far).drop_nulls().to_numpy() == pytest.approx(150.2, abs=0.2)
    # 50 m beyond the last known place there is none within 60 m, up to 540 m.
    gap = (messages["at_m"] > 470) & (messages["at_m"] < 530)
    assert delay_ms.filter(gap).null_count() == gap.sum()


def test_the_map_shows_the_flow_that_missed_most(tmp_path: Path) -> None:
    (tmp_path / "coverage.csv").write_text(
        "latitude,longitude,downlink delay [ms],uplink delay [ms],rate [Mbit/s]\n0,0,30,300,5\n0,0.02,30,300,5\n"
    )
    late = """
[flow.video]
from = "vehicle"
traffic = { kind = "cbr", rate = "8kbit/s", packet = "100B" }
transport = { protocol = "udp" }
require = { deadline = "200ms", share = "90%" }
"""
    text = SCENARIO.replace('uplink.rate = "1Mbit/s"\n', "").replace("60m", "5km") + late
    (tmp_path / "route.toml").write_text(text, encoding="utf-8")
    route = section(run(tmp_path / "route.toml", out=tmp_path / "result"), Charts())
    assert route is not None
    assert "median delay of video" in route.drawings[0].caption


def test_a_route_has_a_map_a_profile_and_its_worst_stretches(flown: Results) -> None:
    charts = Charts()
    route = section(flown, charts)
    assert route is not None
    assert [drawing.title for drawing in route.drawings] == ["Map", "Delay by distance", "Height by distance"]
    assert list(charts.figures) == ["route-map", "route-delay", "route-height"]
    assert "vehicle flew 1.98 km in 100 s" in route.words
    assert route.table is not None
    (first, _) = route.table.rows[0]
    # From 460 m on: nothing arrives at first, then all of it too late.
    assert first[0].order == pytest.approx(0.46, abs=0.03)
    assert first[5].order == pytest.approx(20, rel=0.02)


def test_a_geojson_next_to_the_scenario_is_the_background(flown: Results) -> None:
    assert flown.folder is not None
    file = flown.folder / BACKGROUND
    shapes = [
        {"type": "LineString", "coordinates": [[0.0, 0.001], [0.01, 0.002]]},
        {"type": "LineString", "coordinates": [[90.0, 0.0], [91.0, 0.0]]},
        {"type": "Point", "coordinates": [0.005, 0.001]},
    ]
    features = [{"type": "Feature", "properties": {"name": f"n{at}"}, "geometry": one} for at, one in enumerate(shapes)]
    try:
        file.write_text(json.dumps({"type": "FeatureCollection", "features": features}), encoding="utf-8")
        charts = Charts()
        section(flown, charts)
        drawn, _ = charts.embedded()
        assert '"n2"' in drawn
        file.write_text('{"type": "LineString", "coordinates": [[1], "x", null]}', encoding="utf-8")
        assert section(flown, Charts()) is not None
    finally:
        file.unlink()


def test_the_page_shows_a_route_where_there_is_one(flown: Results) -> None:
    charts = Charts()
    assert "Worst stretches" in page("route.html.j2", charts, route=section(flown, charts))
    assert page("route.html.j2", Charts(), route=None).strip() == ""


def test_a_flight_without_a_track_has_no_route() -> None:
    scenario = Scenario.load("scenarios/remote-piloting.toml", [("duration", "2s")])
    assert section(run(scenario), Charts()) is None


def test_distances_follow_the_sphere() -> None:
    # A degree along the equator, then a quarter of a meridian.
    found = distance_km(np.array([0.0, 0.0, 90.0]), np.array([0.0, 1.0, 1.0]))
    assert found == pytest.approx([0, DEGREE_M / 1000, 91 * DEGREE_M / 1000])
    assert [clock(time_s) for time_s in (0, 59.9, 255)] == ["0:00", "0:59", "4:15"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("latitude,longitude,delay\n0,0,3\n", "found the columns delay; expected one such as"),
        ("latitude,longitude,delay [km]\n0,0,3\n", "delay [km]"),
        ("latitude,longitude,delay [ms]\n0,x,3\n", "coverage.csv:2:3: found `x`, expected a longitude in degrees"),
        ("latitude,longitude,delay [ms]\n50,0,3\n", "found no place of `coverage.csv` with a `delay [ms]` within 60 m"),
    ],
)
def test_an_error_in_coverage_names_its_place(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "coverage.csv").write_text(text, encoding="utf-8")
    with pytest.raises(ScenarioError) as error:
        Scenario(SCENARIO, str(tmp_path / "route.toml"))
    assert words in str(error.value).replace("60m", "60 m")


def test_coverage_and_a_key_do_not_give_the_same(tmp_path: Path) -> None:
    (tmp_path / "coverage.csv").write_text("latitude,longitude,delay [ms],rate [Mbit/s]\n0,0,3,1\n")
    with pytest.raises(ScenarioError, match="found `coverage` too"):
        Scenario(SCENARIO, str(tmp_path / "route.toml"))
