"""Clips of a scenario's flows: encoded before a run, decoded afterwards from the received units."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skybraid import _core
from skybraid.model.errors import VideoError
from skybraid.model.heavy import np, pl
from skybraid.video import clips
from skybraid.video.encode import Encoding, encode

if TYPE_CHECKING:
    from skybraid.model.scenario import Scenario
    from skybraid.video.clips import Clip
    from skybraid.video.encode import Encoded

MODEL = "model"
"""Clip name of the frame size model, which has no pictures."""


def with_clips(scenario: Scenario) -> _core.Scenario:
    """Returns the parsed scenario with the encoded frames of its flows' clips; encodings are cached.

    Raises:
        VideoError: a clip is missing, is no video, or cannot be encoded with the flow's settings, or PyAV is missing.
    """
    native = scenario.native
    for flow, video in native.videos().items():
        if video["clip"] != MODEL:
            _, made = encoded(flow, video, Path(scenario.file).parent)
            native = native.with_clip(flow, list(zip(made.key.tolist(), made.unit_lengths(), strict=True)))
    return native


def encoded(flow: str, video: Mapping[str, Any], folder: Path) -> tuple[Clip, Encoded]:
    """Returns the clip of a flow and its encoding.

    Args:
        flow: name of the flow, for errors.
        video: entry of `_core.Scenario.videos`.
        folder: base folder of relative file names.

    Raises:
        VideoError: as for `with_clips`.
    """
    name = str(video["clip"])
    try:
        clip = clips.open_clip(name if name in clips.BUILT_IN else folder / name)
        encoding = Encoding(
            codec=video["codec"],
            rate_bps=float(video["rate_bps"]),
            fps=video["fps"],
            key_every_s=video["key_every_s"],
            intra_refresh=video["intra_refresh"],
            slices=video["slices"],
        )
        made = encode(clip, encoding)
    except VideoError as error:
        raise VideoError(f"flow.{flow}.traffic: {error}") from error
    return clip, made


def received(sent: Encoded, video: Mapping[str, Any], frames: pl.DataFrame) -> Iterator[list[bytes] | None]:
    """Yields the NAL units of each frame that reached the decoder; None for a frame that was not shown.

    Args:
        sent: sent clip.
        video: entry of `_core.Scenario.videos`.
        frames: the flow's rows of the table `frames` of one run, in order.

    Raises:
        VideoError: the rate of the flow changed, so that the sent frames were never encoded.
    """
    if video["controlled"]:
        raise VideoError("rate_control: the frames of a changing rate are a model; expected a constant rate to decode")
    packets: dict[int, list[int]] = {}
    lengths = sent.unit_lengths()
    columns = frames.select("frame", "missing", pl.col("shown_ns").is_not_null().alias("shown"))
    for number, missing, shown in columns.iter_rows():
        place = int(number) % len(sent)
        if place not in packets:
            packets[place] = _core.packets_of_units(video["codec"], lengths[place], video["packet_bytes"])
        yield _arrived(sent.units(place), packets[place], missing) if shown else None


def _arrived(units: list[bytes], packets: list[int], missing: str) -> list[bytes]:
    """Returns the units without a missing packet; `missing` lists packet numbers, as in "3 7-9"."""
    if not missing:
        return units
    lost = np.zeros(sum(packets), dtype=bool)
    for run in missing.split():
        first, _, last = run.partition("-")
        lost[int(first) : int(last or first) + 1] = True
    ends = np.cumsum(packets)
    return [unit for unit, end, count in zip(units, ends, packets, strict=True) if not lost[end - count : end].any()]
