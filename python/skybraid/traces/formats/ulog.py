"""Logs of PX4 (`.ulg`): telemetry radio status and positions, read with pyulog.

Source: PX4's ULog format and the topics `radio_status`, `telemetry_status` and `vehicle_gps_position`.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from skybraid.model.heavy import np
from skybraid.traces.formats.damage import sound_stamps
from skybraid.traces.measurement import Column, Imported, MeasuredTrack, Measurement
from skybraid.traces.series import TraceError

if TYPE_CHECKING:
    from skybraid.traces.formats.source import Options, Source

_RADIO = {"rssi": "rssi", "remote_rssi": "remote rssi", "noise": "noise", "remote_noise": "remote noise"}
_TELEMETRY = "telemetry_status"
_HEARD, _LOST = "rx_message_count", "rx_message_lost_count"


def recognises(source: Source) -> bool:
    """Whether the file is a ULog."""
    return source.data[:7] == b"ULog\x01\x12\x35"


def read(source: Source, options: Options) -> list[Imported]:
    """Reads the loss of telemetry, the radio's values and the track.

    Raises:
        TraceError: pyulog is not installed, the log is damaged, or it has none of the three.
    """
    del options
    try:
        from pyulog import ULog
    except ImportError:
        raise TraceError(f"{source.path}: a ULog needs pyulog: pip install 'skybraid[px4]'") from None
    try:
        log = ULog(io.BytesIO(source.data), ["radio_status", _TELEMETRY, "vehicle_gps_position"])
    except Exception as error:
        raise TraceError(f"{source.path}: found a damaged ULog ({type(error).__name__}: {error})") from error
    topics: dict[str, Mapping[str, Any]] = {}
    # Of telemetry links, the one that received most messages; of other topics, the first instance.
    for one in sorted(log.data_list, key=lambda topic: -float(np.max(topic.data.get(_HEARD, 0.0), initial=0.0))):
        if len(one.data["timestamp"]) > 1 and one.name not in topics:
            topics[one.name] = one.data
    offset_s = _offset_s(topics.get("vehicle_gps_position"))
    found: list[Imported] = []
    if "radio_status" in topics:
        found.append(_radio(source, topics["radio_status"], offset_s))
    if _TELEMETRY in topics and _LOST in topics[_TELEMETRY]:
        found.append(_loss(source, topics[_TELEMETRY], offset_s))
    if "vehicle_gps_position" in topics:
        track = _track(source, topics["vehicle_gps_position"], offset_s)
        if track is not None:
            found.append(track)
    if not found:
        source.fail(None, "none of radio_status, telemetry_status, vehicle_gps_position", "a log with one of them")
    return found


def _offset_s(fixes: Mapping[str, Any] | None) -> float | None:
    """Returns the Unix time in s at which the autopilot's clock was zero; None without a fix."""
    if fixes is None or "time_utc_usec" not in fixes:
        return None
    known = np.flatnonzero(np.asarray(fixes["time_utc_usec"]) > 0)
    if known.size == 0:
        return None
    first = int(known[0])
    return (float(fixes["time_utc_usec"][first]) - float(fixes["timestamp"][first])) * 1e-6


def _times(source: Source, data: Mapping[str, Any], offset_s: float | None) -> tuple[Any, Any, float | None]:
    """Returns the rows with increasing time, their times in s from the first, and the first in s since 1970."""
    at_s = np.asarray(data["timestamp"], dtype=np.float64) * 1e-6
    sound = np.flatnonzero(sound_stamps(source, at_s, "their messages are left out"))
    rows = sound[np.diff(np.maximum.accumulate(at_s[sound]), prepend=-np.inf) > 0]
    start_s = None if offset_s is None else offset_s + float(at_s[rows[0]])
    return rows, at_s[rows] - at_s[rows[0]], start_s


def _radio(source: Source, data: Mapping[str, Any], offset_s: float | None) -> Measurement:
    rows, times_s, start_s = _times(source, data, offset_s)
    columns = tuple(
        Column(name, "device", np.asarray(data[key], dtype=np.float64)[rows])
        for key, name in _RADIO.items()
        if key in data
    )
    return Measurement(str(source.path), times_s, columns, start_s, None, is_sampled=False, label="radio")


def _loss(source: Source, data: Mapping[str, Any], offset_s: float | None) -> Measurement:
    rows, times_s, start_s = _times(source, data, offset_s)
    # `rx_message_lost_rate` is an average since the start; the counts over time show when packets were lost.
    received, lost = (np.diff(np.asarray(data[key], dtype=np.float64)[rows]) for key in (_HEARD, _LOST))
    total = np.maximum(received, 0) + np.maximum(lost, 0)
    share = np.where(total > 0, 100 * np.maximum(lost, 0) / np.maximum(total, 1), np.nan)
    columns = (Column("loss", "%", share, "downlink"),)
    notes = ("messages from the ground station; of several telemetry links that with most of them",)
    length_s = float(times_s[-1])
    return Measurement(str(source.path), times_s[:-1], columns, start_s, length_s, False, label="loss", notes=notes)


def _track(source: Source, data: Mapping[str, Any], offset_s: float | None) -> MeasuredTrack | None:
    rows, times_s, start_s = _times(source, data, offset_s)
    if "latitude_deg" in data:
        names, sizes = ("latitude_deg", "longitude_deg", "altitude_msl_m"), (1.0, 1.0, 1.0)
    else:
        # Before PX4 1.15: integers of 1e-7 degrees and of mm.
        names, sizes = ("lat", "lon", "alt"), (1e-7, 1e-7, 1e-3)
    if any(name not in data for name in names):
        return None
    values = [np.asarray(data[name], dtype=np.float64)[rows] * size for name, size in zip(names, sizes, strict=True)]
    fixed = np.asarray(data["fix_type"])[rows] >= 3 if "fix_type" in data else np.ones(len(rows), dtype=np.bool_)
    if fixed.sum() < 2:
        return None
    times_s, values = times_s[fixed], [one[fixed] for one in values]
    start_s = None if start_s is None else start_s + float(times_s[0])
    notes = ("altitudes are above mean sea level",)
    return MeasuredTrack(str(source.path), times_s - times_s[0], values[0], values[1], values[2], start_s, notes)
