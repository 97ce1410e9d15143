"""Tracks in GPX and KML.

Source: GPX 1.1 (`trkpt` with `ele` and `time`) and KML 2.2 (`gx:Track` with `when` and `gx:coord`, or placemarks with a
`TimeStamp` each). A route without times needs a speed, which a scenario can give (`track = { file = "route.gpx", speed
= "60m/s" }`).
"""

from __future__ import annotations

import re
from xml.etree import ElementTree

from skybraid.model.heavy import np
from skybraid.traces.formats.source import Options, Source, unix_time, zone_of
from skybraid.traces.measurement import Imported, MeasuredTrack

_PAUSE_S = 60.0
"""Minimum time in s between two points that a note mentions."""


def recognises(source: Source) -> bool:
    """Whether the file is GPX or KML."""
    return source.head.lstrip().startswith("<") and bool(re.search(r"<(gpx|kml)[\s>]", source.head))


def read(source: Source, options: Options) -> list[Imported]:
    """Reads the points with their times.

    Raises:
        TraceError: the file is damaged, or its points have no times.
    """
    if "<!ENTITY" in source.text:
        source.fail(None, "entities of its own", "a track without them")
    try:
        root = ElementTree.fromstring(source.data)
    except (ElementTree.ParseError, ValueError) as error:
        source.fail(None, f"no XML ({error})", "GPX or KML")
    points = _gpx(root) if _name(root) == "gpx" else _kml(root)
    rows: list[tuple[float, float, float, float]] = []
    zone = zone_of(options)
    lost = 0
    for number, (when, words) in enumerate(points, start=1):
        at_s = unix_time(when or "", zone)
        if at_s is None:
            expected = 'times; without, use it as it is: track = { file = "…", speed = "60m/s" }'
            source.fail(None, f"point {number} without a time", expected)
        try:
            latitude, longitude, altitude = (float(word) for word in words)
        except ValueError:
            source.fail(None, f"point {number} at `{', '.join(words)}`", "latitude, longitude and altitude")
        if not (-90 <= latitude <= 90 and -180 <= longitude <= 180) or abs(altitude) >= 1e6:
            source.fail(None, f"point {number} at {latitude:g}, {longitude:g}, {altitude:g} m", "a place on earth")
        if latitude == longitude == 0:
            # A receiver writes zeros without a fix.
            lost += 1
            continue
        if rows and at_s < rows[-1][0]:
            source.fail(None, f"point {number} at {when}, before the one before it", "increasing times")
        if not rows or at_s > rows[-1][0]:
            rows.append((at_s, latitude, longitude, altitude))
    if not rows and lost:
        source.fail(None, "only points at 0, 0", "points with a fix")
    if not rows:
        if any(_name(one) in {"rtept", "LineString"} for one in root.iter()):
            source.fail(
                None, "a route without times", 'times; use it as it is: track = { file = "…", speed = "60m/s" }'
            )
        source.fail(None, "no points", "trkpt of GPX, gx:Track or placemarks with times of KML")
    times_s, latitude_deg, longitude_deg, altitude_m = np.array(rows).T
    start_s = float(times_s[0])
    notes = [f"{lost} of {lost + len(rows)} points left out, at 0, 0 without a fix"] if lost else []
    known = np.isfinite(altitude_m)
    if not known.all() and known.any():
        notes.append(f"{int((~known).sum())} of {len(known)} altitudes are missing: taken from their neighbours")
        altitude_m = np.interp(times_s, times_s[known], altitude_m[known])
    altitude_m = np.nan_to_num(altitude_m)
    if not altitude_m.any():
        notes.append("no altitudes: the track is at 0 m")
    if re.search(r"<altitudeMode>\s*(relativeToGround|clampToGround)", source.text):
        notes.append("altitudes are above the ground, and taken as above mean sea level")
    longest_s = float(np.diff(times_s, append=times_s[-1]).max())
    if longest_s > _PAUSE_S:
        notes.append(f"{longest_s:g} s without a point: a run moves evenly between the points")
    return [
        MeasuredTrack(
            str(source.path), times_s - start_s, latitude_deg, longitude_deg, altitude_m, start_s, tuple(notes)
        )
    ]


def _name(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def _gpx(root: ElementTree.Element) -> list[tuple[str | None, list[str]]]:
    found: list[tuple[str | None, list[str]]] = []
    for point in root.iter():
        if _name(point) == "trkpt":
            inside = {_name(child): (child.text or "").strip() for child in point}
            place = [point.get("lat", ""), point.get("lon", ""), inside.get("ele", "nan")]
            found.append((inside.get("time"), place))
    return found


def _kml(root: ElementTree.Element) -> list[tuple[str | None, list[str]]]:
    found: list[tuple[str | None, list[str]]] = []
    for placemark in root.iter():
        if _name(placemark) == "Placemark":
            inside = {_name(one): (one.text or "").strip() for one in placemark.iter()}
            if {"Point", "when", "coordinates"} <= inside.keys():
                longitude, latitude, altitude = [*inside["coordinates"].split(","), "0", "nan"][:3]
                found.append((inside["when"], [latitude, longitude, altitude]))
    for track in root.iter():
        if _name(track) != "Track":
            continue
        whens = [(child.text or "").strip() for child in track if _name(child) == "when"]
        coords = [(child.text or "").split() for child in track if _name(child) == "coord"]
        for at, words in enumerate(coords):
            longitude, latitude, altitude = [*words, *("", "", "nan")[len(words) :]][:3]
            found.append((whens[at] if at < len(whens) else None, [latitude, longitude, altitude]))
    return found
