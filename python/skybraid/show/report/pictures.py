"""Picture quality of a result's decoded videos, and the worst moments."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from skybraid.model.errors import ResultError
from skybraid.model.formatting import percent
from skybraid.show.palette import flow_colour
from skybraid.show.report.charts import Charts, chart, hover, legend, steps
from skybraid.show.report.flight import Drawing, limit
from skybraid.show.report.models import Source
from skybraid.video.strip import read_pictures
from skybraid.video.watch import QUALITY

if TYPE_CHECKING:
    from skybraid.model.results import Results

_MAX_POINTS = 400
_MAX_MOMENTS = 12


@dataclass(frozen=True, slots=True)
class Picture:
    """Moment of a video: caption, and the sent and shown pictures as data URLs."""

    words: str
    sent: str
    shown: str


@dataclass(frozen=True, slots=True)
class Pictures:
    """Picture section of the page."""

    drawing: Drawing
    moments: list[Picture]


def pictures(results: Results, charts: Charts) -> Pictures | None:
    """Reads the picture quality from a result's folder; None if the video was not decoded.

    Raises:
        ResultError: the stored quality cannot be read.
    """
    if results.folder is None or not (results.folder / QUALITY).exists():
        return None
    try:
        frames = pl.read_parquet(results.folder / QUALITY, columns=["flow", "seed", "frame", "source_ssim"])
    except (OSError, pl.exceptions.PolarsError) as error:
        raise ResultError(f"{results.folder / QUALITY}: expected what `skybraid video watch` wrote: {error}") from error
    similar = {(flow, seed, frame): ssim for flow, seed, frame, ssim in frames.iter_rows()}
    moments = [
        Picture(
            f"{flow}, frame {frame}{f', seed {seed}' if len(results.seeds) > 1 else ''}: "
            f"SSIM {similar.get((flow, seed, frame), float('nan')):.3f}",
            _address(sent),
            _address(shown),
        )
        for flow, seed, frame, sent, shown in read_pictures(results.folder)
    ]
    return Pictures(_distribution(results, charts, frames), moments[:_MAX_MOMENTS])


def _address(jpeg: bytes) -> str:
    return f"data:image/jpeg;base64,{base64.b64encode(jpeg).decode('ascii')}"


def _distribution(results: Results, charts: Charts, frames: pl.DataFrame) -> Drawing:
    drawn = chart(x_label="SSIM", y_label="share of frames below", height=260)
    entries: list[tuple[str, list[Any]]] = []
    lines: list[Any] = []
    names = list(results.flows)
    for (flow,), rows in frames.group_by("flow", maintain_order=True):
        name = str(flow)
        similar = np.sort(rows["source_ssim"].to_numpy())
        places = np.unique(np.linspace(0, len(similar) - 1, min(len(similar), _MAX_POINTS)).astype(int))
        share = (places + 1) / len(similar)
        table = {"ssim": similar[places].astype(np.float32), "share": share.astype(np.float32)}
        words = [percent(float(value)) for value in share]
        colour = flow_colour(names.index(name)) if name in names else flow_colour(len(entries))
        shown, line = steps(drawn, Source(table | {"words": words}), "ssim", "share", colour, name)
        entries.append((name, [shown]))
        lines.append(line)
    for one in results.requirements:
        if one.metric == "ssim":
            drawn.add_layout(limit(1 - one.target, flow_colour(names.index(one.flow))))
    hover(drawn, lines, [("", "$name: @words of the frames have at most @ssim{0.000}")], mode="mouse")
    legend(drawn, entries)
    caption = (
        "Structural similarity of the screen to the camera's picture, over all frames measured. A "
        "dashed line marks the share of frames that a requirement lets fall below its SSIM."
    )
    return Drawing("Picture quality", caption, charts.add("picture-quality", drawn))
