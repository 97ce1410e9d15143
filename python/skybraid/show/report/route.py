"""Map of a run along its track, and profile over distance.

The map has no tiles and needs no server. A file `map.geojson` in the result's folder, or next to the scenario, is the
background (coast lines, airspace, base stations).
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

from skybraid.model.errors import SkybraidError
from skybraid.model.formatting import count, milliseconds, percent, span
from skybraid.model.heavy import palettes
from skybraid.model.scenario import Scenario
from skybraid.show.palette import COLOURS, INK, SECOND_INK
from skybraid.show.report.charts import Charts, chart, dots, from_zero, glyph, hover, legend, shade
from skybraid.show.report.flight import Drawing
from skybraid.show.report.models import Field, Figure, Model, Source
from skybraid.show.report.page import Cell, Table

if TYPE_CHECKING:
    import numpy.typing as npt

    from skybraid.model.requirements import Requirement
    from skybraid.model.results import Results

    Floats = npt.NDArray[np.float64]

BACKGROUND = "map.geojson"
"""File name of the map's background."""

MAX_POINTS = 1000
"""Maximum number of places on the map; each covers at least `MIN_WINDOW_S`."""

MIN_WINDOW_S = 1.0

WORST = 10
"""Maximum rows of the table of the worst stretches."""

EARTH_KM = 6371.0088
"""Mean radius of the earth in km, as for tracks."""

_WIDE = 20
"""Ratio of delays above which their axis is logarithmic."""

_BAD = 0.5
_MAX_BACKGROUND = 50_000
_NEAR = 2.0
_HEIGHT = 460


@dataclass(frozen=True)
class Route:
    """Route section of the report.

    Attributes:
        words: sentences on the map.
        drawings: map and profile.
        table: worst stretches.
    """

    words: str
    drawings: list[Drawing]
    table: Table | None


class Track(NamedTuple):
    """Track of a node, sampled in time windows.

    Attributes:
        node: name of the node.
        times_s: middle of each window in s.
        latitude_deg: latitude in degrees at these times.
        longitude_deg: longitude in degrees at these times.
        altitude_m: altitude in m at these times.
        distance_km: distance over ground since the start in km.
    """

    node: str
    times_s: Floats
    latitude_deg: Floats
    longitude_deg: Floats
    altitude_m: Floats
    distance_km: Floats

    def local_km(self, latitude_deg: Floats, longitude_deg: Floats) -> tuple[Floats, Floats]:
        """Returns positions in km east and north of the track's middle."""
        middle, centre = np.mean(self.latitude_deg), self.longitude_deg[0]
        east_deg = (longitude_deg - centre + 180) % 360 - 180
        scale = np.pi / 180 * EARTH_KM
        return east_deg * scale * np.cos(np.radians(middle)), (latitude_deg - middle) * scale


def section(results: Results, charts: Charts) -> Route | None:
    """Draws the first run along the track of its first moving node; None without a track or messages."""
    if "messages" not in list(results.tables):
        return None
    scenario = _scenario(results)
    if scenario is None:
        return None
    length_s = results.flights[0].simulated_s
    windows = int(min(MAX_POINTS, max(length_s / MIN_WINDOW_S, 1)))
    track = _track(scenario, (np.arange(windows) + 0.5) * length_s / windows)
    if track is None:
        return None
    flow = _flow(results)
    seen = _windows(results, flow, length_s, windows)
    data = _source(track, seen)
    lines, places = _background(results, scenario, track)
    middle = _map(data, lines, places)
    drawings = [
        Drawing(
            "Map", f"Where {track.node} was, coloured by the median delay of {flow}.", charts.add("route-map", middle)
        )
    ]
    delay, altitude = _profile(data)
    by = "by distance over ground"
    drawings += [
        Drawing(
            "Delay by distance",
            f"Median delay of {flow} {by}; marked where messages missed.",
            charts.add("route-delay", delay),
        ),
        Drawing("Height by distance", f"Height above the ellipsoid {by}.", charts.add("route-height", altitude)),
    ]
    window_s = length_s / windows
    words = (
        f"{track.node} flew {track.distance_km[-1]:.3g} km in {span(length_s)}; each place on the map stands for "
        f"{span(window_s)}."
    )
    return Route(words, drawings, _worst(track, seen, window_s))


def _scenario(results: Results) -> Scenario | None:
    """Returns the scenario of a result, if the files that it reads still exist."""
    words = shlex.split(str(results.provenance.get("replay", "")))
    if len(words) < 3:
        return None
    try:
        return Scenario(results.scenario, words[2])
    except SkybraidError:
        return None


def _track(scenario: Scenario, times_s: Floats) -> Track | None:
    for node, moves, latitude, longitude, altitude in scenario.native.tracks(times_s.tolist()):
        if moves:
            return Track(node, times_s, latitude, longitude, altitude, distance_km(latitude, longitude))
    return None


def distance_km(latitude_deg: Floats, longitude_deg: Floats) -> Floats:
    """Returns the distance over ground along the track to each position, in km, on a sphere (haversine)."""
    latitude, longitude = np.radians(latitude_deg), np.radians(longitude_deg)
    half = (
        np.sin(np.diff(latitude) / 2) ** 2
        + np.cos(latitude[1:]) * np.cos(latitude[:-1]) * np.sin(np.diff(longitude) / 2) ** 2
    )
    return np.concatenate([[0.0], np.cumsum(2 * EARTH_KM * np.arcsin(np.sqrt(half)))])


def clock(time_s: float) -> str:
    """Formats a time since the start as minutes and seconds: "4:15"."""
    return f"{int(time_s // 60)}:{int(time_s % 60):02d}"


def _flow(results: Results) -> str:
    """Returns the flow with the most misses relative to its limit, then with the shortest deadline, else the first."""
    named = [(-_misses(one), one.deadline_ms, one.flow) for one in results.requirements if one.deadline_ms is not None]
    return min(named)[2] if named else next(iter(results.flows))


def _misses(requirement: Requirement) -> float:
    """Returns the ratio of missed to permitted share; 0 without a required share."""
    if requirement.metric not in ("share", "frames") or requirement.estimate is None:
        return 0.0
    return (1 - requirement.estimate) / max(1 - requirement.target, 1e-9)


def _windows(results: Results, flow: str, length_s: float, windows: int) -> pl.DataFrame:
    """Returns the median delay in ms and the numbers of decided and missed messages, by window of the first run."""
    messages = results.tables.scan("messages")
    if "seed" in messages.collect_schema().names():
        messages = messages.filter(pl.col("seed") == results.seeds[0])
    window_ns = length_s * 1e9 / windows
    arrived = pl.col("delivered_ns").is_not_null()
    has_deadline = any(one.flow == flow and one.deadline_ms is not None for one in results.requirements)
    missed = pl.col("within_deadline").not_() if has_deadline else arrived.not_()
    found = (
        messages.filter((pl.col("flow") == flow) | pl.col("flow").cast(pl.String).str.starts_with(f"{flow}."))
        .select(
            (pl.col("sent_ns") / window_ns).floor().cast(pl.Int64).clip(0, windows - 1).alias("window"),
            ((pl.col("delivered_ns") - pl.col("sent_ns")) / 1e6).alias("delay_ms"),
            missed.alias("missed"),
        )
        .group_by("window")
        .agg(pl.col("delay_ms").median(), pl.col("missed").count().alias("decided"), pl.col("missed").sum())
        .collect(engine="streaming")
    )
    every = pl.DataFrame({"window": np.arange(windows)})
    return every.join(found, on="window", how="left").with_columns(pl.col("decided", "missed").fill_null(0))


def _source(track: Track, seen: pl.DataFrame) -> Source:
    east_km, north_km = track.local_km(track.latitude_deg, track.longitude_deg)
    decided = np.maximum(seen["decided"].to_numpy(), 1)
    return Source(
        {
            "east_km": east_km,
            "north_km": north_km,
            "time": [clock(time_s) for time_s in track.times_s],
            "distance_km": track.distance_km,
            "altitude_m": track.altitude_m,
            "delay_ms": seen["delay_ms"].fill_null(float("nan")).to_numpy(),
            "missed": seen["missed"].to_numpy() / decided * 100,
            "latitude": track.latitude_deg,
            "longitude": track.longitude_deg,
        }
    )


_TIPS = [
    ("time", "@time"),
    ("place", "@latitude{0.00000}, @longitude{0.00000}"),
    ("height", "@altitude_m{0} m"),
    ("distance", "@distance_km{0.00} km"),
    ("median delay", "@delay_ms{0.0} ms"),
    ("missed", "@missed{0.0} %"),
]


def _parts(data: Source) -> tuple[Source, Source]:
    """Returns the places where some messages missed their deadline, and where at least half of them did."""
    missed = np.asarray(data.data["missed"])
    some, most = (missed > 0) & (missed < 100 * _BAD), missed >= 100 * _BAD

    def only(rows: npt.NDArray[np.bool_]) -> Source:
        return Source({name: np.asarray(values)[rows] for name, values in data.data.items()})

    return only(some), only(most)


def _marked(drawn: Figure, data: Source, x: str, y: str) -> list[tuple[str, list[Any]]]:
    """Marks the places where messages missed their deadline; returns entries of a legend."""
    some, most = _parts(data)
    entries: list[tuple[str, list[Any]]] = []
    if len(some.data[x]):
        ring = dots(drawn, some, x, y, colour=COLOURS[1], filled=False, line_alpha=0.7)
        entries.append(("some missed", [ring]))
    if len(most.data[x]):
        cross = glyph(drawn, most, "Scatter", x=x, y=y, size=9, marker="x", line_color=COLOURS[3], line_width=2)
        entries.append(("half or more missed", [cross]))
    return entries


def _map(data: Source, lines: list[tuple[Floats, Floats]], places: list[tuple[str, float, float]]) -> Figure:
    drawn = chart(x_label="east, km", y_label="north, km", height=_HEIGHT, match_aspect=True)
    if lines:
        shapes = Source({"xs": [east.tolist() for east, _ in lines], "ys": [north.tolist() for _, north in lines]})
        glyph(drawn, shapes, "MultiLine", xs="xs", ys="ys", line_color=SECOND_INK, line_width=1)
    if places:
        named = Source(
            {"x": [x for _, x, _ in places], "y": [y for _, _, y in places], "name": [name for name, _, _ in places]}
        )
        dots(drawn, named, "x", "y", colour=SECOND_INK, shape="triangle", size=7)
        glyph(
            drawn,
            named,
            "Text",
            x="x",
            y="y",
            text="name",
            text_color=INK,
            text_font_size="10px",
            x_offset=6,
            y_offset=-2,
        )
    glyph(drawn, data, "Line", x="east_km", y="north_km", line_color=SECOND_INK, line_width=1, line_alpha=0.6)
    delays = np.asarray(data.data["delay_ms"], dtype=float)
    known = delays[np.isfinite(delays) & (delays > 0)]
    low, high = (float(np.min(known)), float(np.max(known))) if known.size else (1.0, 10.0)
    colours = {"palette": palettes.Cividis256, "low": low, "high": max(high, low * 1.01)}
    mapper = Model("LogColorMapper", **colours, nan_color="rgba(0,0,0,0)")
    fill = Field("delay_ms", mapper)
    shown = glyph(drawn, data, "Scatter", x="east_km", y="north_km", size=6, line_color=None, fill_color=fill)
    entries = _marked(drawn, data, "east_km", "north_km")
    first = Source({name: np.asarray(values)[:1] for name, values in data.data.items()})
    start = glyph(
        drawn, first, "Scatter", x="east_km", y="north_km", size=11, marker="star", line_color=INK, fill_color=INK
    )
    legend(drawn, [*entries, ("start", [start])])
    hover(drawn, [shown], _TIPS, mode="mouse")
    bar = Model(
        "ColorBar",
        color_mapper=mapper,
        formatter=Model("BasicTickFormatter", use_scientific=False),
        title="delay, ms",
        width=10,
        background_fill_color=None,
        title_text_color=INK,
        major_label_text_color=INK,
    )
    drawn.add_layout(bar, "right")
    return drawn


def _profile(data: Source) -> tuple[Figure, Figure]:
    delays = np.asarray(data.data["delay_ms"], dtype=float)
    known = delays[np.isfinite(delays) & (delays > 0)]
    is_wide = known.size > 0 and known.max() > _WIDE * known.min()
    delay = chart(x_label="distance, km", y_label="delay, ms", logarithmic="y" if is_wide else "")
    if not is_wide:
        from_zero(delay)
    line = glyph(delay, data, "Line", x="distance_km", y="delay_ms", line_color=COLOURS[0], line_width=1.3)
    legend(delay, _marked(delay, data, "distance_km", "delay_ms"))
    # Without deliveries there is no delay to mark.
    distance, missed = (np.asarray(data.data[name]) for name in ("distance_km", "missed"))
    ends = np.append(distance[1:], distance[-1])
    bad = missed >= 100 * _BAD
    shade(delay, list(zip(distance[bad].tolist(), ends[bad].tolist(), strict=True)), COLOURS[3])
    hover(delay, [line], _TIPS)
    height = chart(x_label="distance, km", y_label="height, m", height=140, x_range=delay.x_range)
    hover(height, [glyph(height, data, "Line", x="distance_km", y="altitude_m", line_color=COLOURS[2])], _TIPS)
    return delay, height


def _worst(track: Track, seen: pl.DataFrame, window_s: float) -> Table | None:
    """Returns a table of the stretches with misses, those with the most misses first."""
    missed, decided = seen["missed"].to_numpy(), seen["decided"].to_numpy()
    stretches: list[tuple[int, int]] = []
    for at in np.flatnonzero(missed):
        if stretches and stretches[-1][1] == at:
            stretches[-1] = (stretches[-1][0], int(at) + 1)
        else:
            stretches.append((int(at), int(at) + 1))
    if not stretches:
        return None
    stretches.sort(key=lambda one: -int(missed[one[0] : one[1]].sum()))
    rows = []
    for begin, end in stretches[:WORST]:
        lost, tried = int(missed[begin:end].sum()), int(decided[begin:end].sum())
        step_km = track.distance_km[min(end, track.times_s.size - 1)] - track.distance_km[begin]
        delay_ms = seen["delay_ms"][begin:end].max()
        rows.append(
            (
                [
                    Cell.number(float(track.distance_km[begin]), f"{track.distance_km[begin]:.2f}"),
                    Cell.number(float(track.times_s[begin]), clock(float(track.times_s[begin]))),
                    Cell.number((end - begin) * window_s, span((end - begin) * window_s)),
                    Cell(f"{track.latitude_deg[begin]:.5f}, {track.longitude_deg[begin]:.5f}"),
                    Cell.number(float(track.altitude_m[begin]), f"{track.altitude_m[begin]:.0f}"),
                    Cell.number(float(step_km * 1000 / ((end - begin) * window_s))),
                    Cell.number(lost, f"{count(lost)} of {count(tried)} ({percent(lost / max(tried, 1))})"),
                    Cell.number(delay_ms, milliseconds(delay_ms)) if isinstance(delay_ms, float) else Cell("–"),
                ],
                "",
            )
        )
    heads = ["at, km", "at", "for", "place", "height, m", "speed, m/s", "missed", "highest median delay"]
    return Table("stretches", heads, rows, replay=False)


def _background(
    results: Results, scenario: Scenario, track: Track
) -> tuple[list[tuple[Floats, Floats]], list[tuple[str, float, float]]]:
    """Returns lines in km near the track, and named points, from `BACKGROUND`; empty if it is no GeoJSON."""
    folders = [folder for folder in (results.folder, Path(scenario.file).parent) if folder is not None]
    file = next((folder / BACKGROUND for folder in folders if (folder / BACKGROUND).is_file()), None)
    if file is None:
        return [], []
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return [], []
    east_km, north_km = track.local_km(track.latitude_deg, track.longitude_deg)
    reach_km = _NEAR * max(float(np.ptp(east_km)), float(np.ptp(north_km)), 1.0)
    lines: list[tuple[Floats, Floats]] = []
    places: list[tuple[str, float, float]] = []
    points = 0
    for name, kind, coordinates in _geometries(found):
        east, north = track.local_km(coordinates[:, 1], coordinates[:, 0])
        near = (np.abs(east) <= reach_km) & (np.abs(north) <= reach_km)
        if not near.any() or points > _MAX_BACKGROUND:
            continue
        points += east.size
        if kind == "point":
            places.append((name, float(east[0]), float(north[0])))
        else:
            # Distant parts would shrink the map.
            lines.append((np.where(near, east, np.nan), np.where(near, north, np.nan)))
    return lines, places


def _geometries(found: object, name: str = "") -> list[tuple[str, str, Floats]]:
    """Parses the lines and points of a GeoJSON object (RFC 7946): name, "line" or "point", and coordinates."""
    if not isinstance(found, dict):
        return []
    kind, coordinates = found.get("type"), found.get("coordinates")
    match kind:
        case "FeatureCollection":
            return [one for part in _listed(found.get("features")) for one in _geometries(part)]
        case "Feature":
            own = found.get("properties")
            called = own.get("name") if isinstance(own, dict) else None
            return _geometries(found.get("geometry"), str(called or ""))
        case "GeometryCollection":
            return [one for part in _listed(found.get("geometries")) for one in _geometries(part, name)]
        case "Point":
            return _line(name, "point", [coordinates])
        case "LineString":
            return _line(name, "line", coordinates)
        case "MultiLineString" | "Polygon":
            return [one for part in _listed(coordinates) for one in _line(name, "line", part)]
        case "MultiPolygon":
            return [one for part in _listed(coordinates) for ring in _listed(part) for one in _line(name, "line", ring)]
        case _:
            return []


def _line(name: str, kind: str, coordinates: object) -> list[tuple[str, str, Floats]]:
    try:
        points = np.array([[float(point[0]), float(point[1])] for point in _listed(coordinates)])
    except (TypeError, ValueError, IndexError, KeyError):
        return []
    return [(name, kind, points)] if points.size and np.isfinite(points).all() else []


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
