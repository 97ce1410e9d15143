"""Logs of ArduPilot's autopilots (DataFlash, `.bin`): radio status and positions.

Source: ArduPilot's `LogStructure.h`: each message begins with A3 95 and its type; messages of type 128 (FMT) describe
the others: type, length, name, format, columns. `GPS` has the week (`GWk`) and its ms (`GMS`) of GPS time, which is
18 s ahead of UTC since 2017; `RAD` has the telemetry radio's values.
"""

from __future__ import annotations

import itertools
import struct
from typing import TYPE_CHECKING, Any

from skybraid.model.heavy import np
from skybraid.traces.formats.damage import sound_stamps
from skybraid.traces.measurement import Column, Imported, MeasuredTrack, Measurement

if TYPE_CHECKING:
    from skybraid.traces.formats.source import Options, Source

_FORMAT_TYPE = 128
_SIZES = {
    "a": "64s", "b": "b", "B": "B", "h": "h", "H": "H", "i": "i", "I": "I", "f": "f", "d": "d", "n": "4s", "N": "16s",
    "Z": "64s", "c": "h", "C": "H", "e": "i", "E": "I", "L": "i", "M": "B", "q": "q", "Q": "Q", "g": "e",
}  # fmt: skip
_SCALES = {"c": 1e-2, "C": 1e-2, "e": 1e-2, "E": 1e-2, "L": 1e-7}
_GPS_EPOCH_S = 315964800
_LEAP_S = 18
_RADIO = {
    "RSSI": "rssi",
    "RemRSSI": "remote rssi",
    "Noise": "noise",
    "RemNoise": "remote noise",
    "RxErrors": "rxerrors",
}


def recognises(source: Source) -> bool:
    """Whether the file is a DataFlash log."""
    return source.data[:3] == b"\xa3\x95\x80"


def read(source: Source, options: Options) -> list[Imported]:
    """Reads the radio's values and the track.

    Raises:
        TraceError: the log has neither, or covers several boots.
    """
    del options
    messages = _messages(source, {"GPS", "RAD", "RADI"})
    found: list[Imported] = []
    offset_s = _offset_s(messages["GPS"])
    radio = messages["RAD"] or messages["RADI"]
    if radio:
        found.append(_radio(source, radio, offset_s))
    fixed = [row for row in messages["GPS"] if row.get("Status", 3) >= 3 and row.get("I", 0) == 0]
    if len(fixed) > 1:
        found.append(_track(source, fixed, offset_s))
    if not found:
        source.fail(None, "neither RAD nor GPS messages", "a log with one of them")
    return found


def _messages(source: Source, wanted: set[str]) -> dict[str, list[dict[str, Any]]]:
    data, place = source.data, 0
    layouts: dict[int, tuple[str, int, struct.Struct, str, list[str]]] = {}
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in wanted}
    while (place := data.find(b"\xa3\x95", place)) >= 0 and place + 3 <= len(data):
        kind = data[place + 2]
        if kind == _FORMAT_TYPE and place + 89 <= len(data):
            number, length = data[place + 3], data[place + 4]
            name, form, listed = (_word(part) for part in struct.unpack_from("4s16s64s", data, place + 5))
            codes = "".join(_SIZES.get(code, "") for code in form)
            layout = struct.Struct(f"<{codes}")
            if layout.size + 3 == length:
                layouts[number] = (name, length, layout, form, listed.split(","))
            place += 89
        elif kind in layouts and place + layouts[kind][1] <= len(data):
            name, length, layout, form, columns = layouts[kind]
            if name in found:
                values = layout.unpack_from(data, place + 3)
                found[name].append(
                    {
                        column: value * _SCALES.get(code, 1) if isinstance(value, int | float) else value
                        for column, value, code in zip(columns, values, form, strict=False)
                    }
                )
            place += length
        else:
            place += 2
    return found


def _word(raw: bytes) -> str:
    return raw.split(b"\0", 1)[0].decode("ascii", errors="replace")


def _time_s(row: dict[str, Any]) -> float:
    return float(row["TimeUS"]) * 1e-6 if "TimeUS" in row else float(row.get("TimeMS", 0)) * 1e-3


def _offset_s(fixes: list[dict[str, Any]]) -> float | None:
    """Returns the Unix time in s at which the autopilot's clock was zero; None without a fix."""
    for row in fixes:
        if row.get("Status", 0) >= 3 and row.get("GWk", 0) > 0:
            gps_s = float(row["GWk"]) * 604800 + float(row["GMS"]) * 1e-3
            return _GPS_EPOCH_S + gps_s - _LEAP_S - _time_s(row)
    return None


def _increasing(source: Source, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    sound = sound_stamps(source, np.array([_time_s(row) for row in rows]), "their messages are left out")
    kept: list[dict[str, Any]] = []
    for row in itertools.compress(rows, sound):
        if not kept or _time_s(row) > _time_s(kept[-1]):
            kept.append(row)
    return kept


def _radio(source: Source, rows: list[dict[str, Any]], offset_s: float | None) -> Measurement:
    kept = _increasing(source, rows)
    times_s = np.array([_time_s(row) for row in kept])
    columns = tuple(
        Column(name, "packets" if name == "rxerrors" else "device", np.array([float(row[key]) for row in kept]))
        for key, name in _RADIO.items()
        if key in kept[0]
    )
    start_s = None if offset_s is None else offset_s + float(times_s[0])
    return Measurement(str(source.path), times_s - times_s[0], columns, start_s, None, False, label="radio")


def _track(source: Source, rows: list[dict[str, Any]], offset_s: float | None) -> MeasuredTrack:
    kept = _increasing(source, rows)
    table = np.array([[_time_s(row), float(row["Lat"]), float(row["Lng"]), float(row["Alt"])] for row in kept])
    times_s, latitude_deg, longitude_deg, altitude_m = table.T
    start_s = None if offset_s is None else offset_s + float(times_s[0])
    notes = ("altitudes are above mean sea level",)
    return MeasuredTrack(
        str(source.path), times_s - times_s[0], latitude_deg, longitude_deg, altitude_m, start_s, notes
    )
