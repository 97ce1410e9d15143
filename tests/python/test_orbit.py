"""Satellites against skyfield: where they are, when they serve and with what delay; and the command that tells it."""

import datetime as dt
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from skyfield.api import EarthSatellite, Timescale, load, wgs84
from skyfield.framelib import itrs

from conftest import Command
from skybraid import ScenarioError, _core, orbit

MEASUREMENTS = Path(os.environ.get("SKYBRAID_TRACES") or Path(__file__).parents[3] / "shared" / "traces")
STARLINK = MEASUREMENTS / "aux_tle" / "starlink_2026-01-01.tle"
LIGHT_M_S = 299_792_458.0

ISS = """ISS (ZARYA)
1 25544U 98067A   20194.88612269 -.00002218  00000-0 -31515-4 0  9992
2 25544  51.6461 221.2784 0001413  89.1723 280.4612 15.49507896236008
"""

BERNE = {"latitude": 46.95, "longitude": 7.44, "altitude": "550m"}
GATEWAY = {"latitude": 45.5, "longitude": 9.2}


@pytest.fixture(scope="module")
def timescale() -> Timescale:
    # Without its built-in tables skyfield would fetch some.
    return load.timescale(builtin=True)


def in_skyfield(elements: str, times: Any, timescale: Timescale) -> list[NDArray[np.float64]]:
    """Earth-fixed positions in m of each satellite, shape (t, 3)."""
    lines = [line for line in elements.splitlines() if line.strip()]
    found = []
    for start in range(0, len(lines), 3):
        name, first, second = lines[start : start + 3]
        satellite = EarthSatellite(first, second, name, timescale)
        found.append(satellite.at(times).frame_xyz(itrs).m.T)
    return found


def check_positions(elements: str, day: dt.date, timescale: Timescale) -> None:
    into_s = np.arange(0.0, 86_400.0, 300.0)
    midnight = dt.datetime(day.year, day.month, day.day, tzinfo=dt.UTC)
    names, ours = orbit.positions(elements, midnight.timestamp() + into_s)
    theirs = in_skyfield(elements, timescale.utc(day.year, day.month, day.day, 0, 0, into_s), timescale)
    berne = wgs84.latlon(46.95, 7.44, 550).itrs_xyz.m
    assert len(names) == len(theirs)
    for name, own, other in zip(names, ours, theirs, strict=True):
        apart_m = np.linalg.norm(own - other, axis=1)
        assert apart_m.max() < 1_000, f"{name}: {apart_m.max()} m"
        delays_s = [np.linalg.norm(positions - berne, axis=1) / LIGHT_M_S for positions in (own, other)]
        assert np.abs(delays_s[0] - delays_s[1]).max() < 5e-6, name


def test_a_day_of_the_station_lies_where_skyfield_puts_it(timescale: Timescale) -> None:
    check_positions(ISS, dt.date(2020, 7, 13), timescale)


def test_a_day_of_a_hundred_satellites_lies_where_skyfield_puts_it(timescale: Timescale) -> None:
    if not STARLINK.is_file():
        pytest.skip(f"{STARLINK.name} is not here: it is read from the measurement folder, SKYBRAID_TRACES")
    lines = STARLINK.read_text(encoding="utf-8").splitlines()
    every = len(lines) // 3 // 100
    chosen = [line for index in range(100) for line in lines[3 * every * index : 3 * every * index + 3]]
    check_positions("\n".join(chosen), dt.date(2026, 1, 1), timescale)


def test_passes_begin_and_end_when_skyfield_says(tmp_path: Path, timescale: Timescale) -> None:
    (tmp_path / "iss.tle").write_text(ISS, encoding="utf-8")
    table: dict[str, Any] = {"elements": "iss.tle", "start": "2020-07-13T00:00:00Z", "mask": "10deg", "step": "1s"}
    here = {"position": BERNE}
    service = orbit.serve(table, here, "24h", other=here, file=str(tmp_path / "request.toml"))
    satellite = EarthSatellite(*ISS.splitlines()[1:], "ISS", timescale)
    place = wgs84.latlon(46.95, 7.44, 550)
    start, end = timescale.utc(2020, 7, 13), timescale.utc(2020, 7, 14)
    times, events = satellite.find_events(place, start, end, altitude_degrees=10)
    rises, sets = ((times[events == kind] - start) * 86_400 for kind in (0, 2))
    assert len(service.serving) == len(rises) == len(sets) > 3
    for span, rise_s, set_s in zip(service.serving, rises, sets, strict=True):
        # 100 m of position at 7.7 km/s are 13 ms, more at a grazing pass; skyfield's own search ends at 1 ms.
        assert span.from_s == pytest.approx(rise_s, abs=0.1)
        assert span.to_s == pytest.approx(set_s, abs=0.1)
    assert service.handovers == []


def request(**orbit_keys: Any) -> orbit.Service:
    table = {"constellation": "starlink-550", "gateways": [GATEWAY]} | orbit_keys
    return orbit.serve(table, {"position": BERNE}, "5min")


def test_a_service_has_arrays_spans_and_texts() -> None:
    service = request()
    assert service.start == "2026-01-01T00:00:00Z"
    assert service.length_s == 300
    columns = service.samples
    assert {len(values) for values in columns.values()} == {len(columns["time_s"])}
    assert np.all(np.diff(columns["time_s"]) > 0)
    assert columns["elevation_deg"].min() >= 25 - 1e-9
    delays = service.delays_ms
    assert delays is not None
    # 562 km up and down (Berne is 12 km nearer to the Earth's centre than the equator) take 3.75 ms, and 1145 km each
    # way at 25° 7.64 ms; over ground nothing is added, since the gateway is the other end.
    assert 3.75 < delays.min <= delays.median <= delays.max < 7.64
    assert service.served_share == pytest.approx(1 - sum(gap.length_s for gap in service.gaps) / 300)
    header, *rows = service.csv().splitlines()
    assert header == "time_s,delay_ms"
    assert rows[0].startswith("0.000,")
    times, rtts_ns = _core.read_trace(service.hypatia(), "hypatia")
    assert times[0] == 0
    assert rtts_ns[np.isfinite(rtts_ns)].max() == pytest.approx(2e6 * delays.max, abs=2)


def test_rain_and_gaps_are_told_apart() -> None:
    rain = {"rate": "60mm/h", "frequency": "12GHz", "margin": "3dB", "from": "60s", "length": "30s"}
    service = request(rain=rain)
    assert sum(gap.length_s for gap in service.rain) == pytest.approx(30)
    assert request().rain == []


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"constellation": "sputnik"}, 'orbit.constellation: found "sputnik", expected one of starlink'),
        ({"constellation": "starlink", "mask": "25"}, "orbit.mask: `25` has no unit"),
        ({"constellation": "starlink", "choise": "nearest"}, "did you mean `choice`?"),
        ({"elements": "none.tle"}, "none.tle: there is no such file"),
        ({"walker": "53deg:10/3/0@550km"}, "found 10 satellites in 3 planes"),
    ],
)
def test_a_wrong_table_is_refused_with_its_key(table: dict[str, Any], words: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        orbit.serve(table | {"gateways": [GATEWAY]}, {"position": BERNE}, "1min")
    assert words in str(refused.value)


def test_the_command_tells_who_serves_and_writes_what_is_asked_for(skybraid: Command, tmp_path: Path) -> None:
    where = ["--at", "46.95,7.44,550m", "--gateway", "45.5,9.2"]
    place = ["--constellation", "starlink-550", *where, "--duration", "3min"]
    files = {"--csv": "delay.csv", "--hypatia": "rtt.txt", "--plot": "service.svg"}
    done = skybraid("orbit", *place, *(word for pair in files.items() for word in pair))
    assert done.returncode == 0, done.stderr
    assert "from 2026-01-01T00:00:00Z for 3 min" in done.stdout
    assert "starlink-550." in done.stdout
    assert "one-way delay: " in done.stdout
    assert (tmp_path / "delay.csv").read_text(encoding="utf-8").startswith("time_s,delay_ms\n0.000,")
    assert "one-way delay, ms" in (tmp_path / "service.svg").read_text(encoding="utf-8")
    again = skybraid("orbit", *place, "--csv", "delay.csv")
    assert again.returncode == 2
    assert "delay.csv: found a file, expected a new name" in again.stderr
    answer = json.loads(skybraid("orbit", *place, "--json", "--choice", "epoch").stdout)
    assert {"start", "length_s", "served_share", "delay_ms", "serving", "handovers", "gaps"} <= set(answer)
    changes_s = [handover["at_s"] for handover in answer["handovers"]]
    assert changes_s
    assert all((round(1000 * change_s) - 12_000) % 15_000 == 0 for change_s in changes_s)


def test_the_command_follows_a_track_and_lists_what_has_a_name(skybraid: Command, tmp_path: Path) -> None:
    track = "time_s,latitude,longitude,altitude_m\n0,47.0,7.4,500\n60,47.01,7.4,3000\n"
    (tmp_path / "flight.csv").write_text(track, encoding="utf-8")
    flight = ("orbit", "--track", "flight.csv", "--gateway", "45.5,9.2", "--duration", "1min")
    done = skybraid(*flight, "--geostationary", "13deg")
    assert done.returncode == 0, done.stderr
    assert "geo 13E" in done.stdout
    assert "handovers: 0" in done.stdout
    assert "starlink-550: " in skybraid("orbit", "--list").stdout
    for words, arguments in (
        ("expected one of constellation, walker, elements", flight),
        ("expected either --at LAT,LON or --track FILE", ("orbit", "--constellation", "iridium")),
        ("--at: found 47, expected LAT,LON", ("orbit", "--constellation", "iridium", "--at", "47")),
        ("expected at least one gateway", ("orbit", "--constellation", "iridium", "--at", "47,8")),
    ):
        refused = skybraid(*arguments)
        assert refused.returncode == 2
        assert words in refused.stderr
