"""Decoding of a run's received video, and comparison of each picture with the camera's."""

from __future__ import annotations

import functools
import shlex
import tomllib
from collections.abc import Container
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skybraid.model.episodes import RunShare
from skybraid.model.errors import ResultError, VideoError
from skybraid.model.evidence import judge_share
from skybraid.model.heavy import np, pl
from skybraid.model.scenario import Scenario
from skybraid.video import quality
from skybraid.video.flows import MODEL, encoded, received
from skybraid.video.strip import Moment, Strip, sheet, thumbnail, write

if TYPE_CHECKING:
    from PIL import Image

    from skybraid.model.requirements import Requirement
    from skybraid.model.results import Results
    from skybraid.video.clips import Clip
    from skybraid.video.encode import Encoded
    from skybraid.video.pyav import av
    from skybraid.video.quality import Quality, See

QUALITY = "quality.parquet"
"""File of picture quality in a result's folder."""

PERCENTILES = {"p1": 0.01, "p5": 0.05, "p50": 0.5}


@dataclass(frozen=True, slots=True)
class Watched:
    """Picture quality of a flow on the pilot's screen.

    Attributes:
        flow: name of the flow.
        frames: rows of `quality.Quality.frames`, preceded by the columns `flow` and `seed`.
        every_nth: interval between compared frames, in frames.
        requirements: its requirements on SSIM, with verdicts.
        moments: moments of lowest SSIM, by seed.
    """

    flow: str
    frames: pl.DataFrame
    every_nth: int
    requirements: tuple[Requirement, ...]
    moments: dict[int, list[Moment]]

    def summary(self) -> dict[str, float]:
        """Returns mean SSIM and PSNR against the camera's picture, and percentiles of SSIM."""
        similar = self.frames["source_ssim"].to_numpy()
        ratio = self.frames["source_psnr_db"].to_numpy()
        quantiles = {f"ssim_{name}": float(np.quantile(similar, share)) for name, share in PERCENTILES.items()}
        return {"ssim_mean": float(similar.mean()), "psnr_mean_db": float(ratio.mean())} | quantiles


def watch(results: Results, flow: str | None = None, *, every_nth: int = 1) -> Watched:
    """Decodes the received video of a flow, in every run of a result with the table `frames`.

    Args:
        results: result.
        flow: name of the flow; default: the only one with a clip.
        every_nth: interval between compared frames, in frames; all are decoded.

    Raises:
        VideoError: there is no such flow, it has no clip, or its rate changed during the run.
        ResultError: the result has no table `frames`.
    """
    film = _Film.of(results, flow)
    parts, moments = [], {}
    for seed in results.seeds:
        strip = Strip()
        seen = film.measure(seed, every_nth=every_nth, see=strip.offer)
        of_run = (pl.lit(film.flow).alias("flow"), pl.lit(seed, pl.UInt64).alias("seed"))
        parts.append(seen.frames.select(*of_run, pl.all()))
        moments[seed] = strip.moments()
    frames = pl.concat(parts)
    wanted = [one for one in results.requirements if one.flow == film.flow and one.metric == "ssim"]
    return Watched(film.flow, frames, every_nth, tuple(_judged(one, frames) for one in wanted), moments)


def save(watched: Watched, folder: Path) -> None:
    """Writes the quality into a result's folder: `quality.parquet`, and pictures of the worst moments.

    Raises:
        ResultError: a file cannot be written.
    """
    try:
        watched.frames.write_parquet(folder / QUALITY)
        for seed, moments in watched.moments.items():
            write(folder, watched.flow, seed, moments)
    except OSError as error:
        raise ResultError(f"{folder}: cannot keep what was seen: {error.strerror}") from error


def beside(one: Results, other: Results, flow: str | None = None, *, rows: int = 6) -> Image.Image:
    """Draws pictures of two results next to the original, at the frames where their quality differs most.

    Args:
        one: result.
        other: result with the same clip and encoder settings; the first run of each is used.
        flow: name of the flow; default: the only one with a clip.
        rows: number of frames, at least a second apart.

    Raises:
        VideoError: as for `watch`, or the two have no frame in common.
        ResultError: as for `watch`.
    """
    films = [_Film.of(results, flow) for results in (one, other)]
    columns = ("frame", "source_ssim")
    similar = [film.measure(film.results.seeds[0]).frames.select(columns) for film in films]
    both = similar[0].join(similar[1], on="frame", suffix="_other")
    if both.is_empty():
        raise VideoError("the two results have no frame in common, expected flights of the same video")
    chosen: dict[int, tuple[float, float]] = {}
    apart = (pl.col("source_ssim") - pl.col("source_ssim_other")).abs()
    for frame, *values in both.sort(apart, descending=True).iter_rows():
        if len(chosen) < rows and all(abs(frame - taken) >= _APART_FRAMES for taken in chosen):
            chosen[frame] = (values[0], values[1])
    found: list[dict[int, list[Image.Image]]] = []
    for film in films:
        pictures: dict[int, list[Image.Image]] = {}

        film.measure(film.results.seeds[0], see=functools.partial(_picture, chosen, pictures))
        found.append(pictures)
    lines = [
        (f"frame {frame}: SSIM {first:.3f} and {second:.3f}", [*found[0][frame], found[1][frame][1]])
        for frame, (first, second) in sorted(chosen.items())
    ]
    names = [results.name for results in (one, other)]
    if names[0] == names[1]:
        names = [
            name if results.folder is None else results.folder.name
            for name, results in zip(names, (one, other), strict=True)
        ]
    return sheet(["sent", *names], lines)


def _picture(
    chosen: Container[int],
    pictures: dict[int, list[Image.Image]],
    frame: int,
    _ssim: float,
    sent: av.VideoFrame,
    screen: av.VideoFrame | None,
) -> None:
    """Stores a selected frame, as sent and as shown."""
    if frame in chosen:
        picture = thumbnail(sent)
        pictures[frame] = [picture, thumbnail(screen, picture)]


_APART_FRAMES = 30


@dataclass(frozen=True)
class _Film:
    """Inputs for decoding a flow of a result."""

    results: Results
    flow: str
    video: dict[str, Any]
    made: Encoded
    clip: Clip
    table: pl.DataFrame

    @classmethod
    def of(cls, results: Results, flow: str | None) -> _Film:
        traffics = _traffics(results.scenario)
        flow = _chosen(traffics, flow)
        native = Scenario.build(
            {
                "duration": "1s",
                "path": {"any": {"rate": "1Gbit/s", "delay": "1ms"}},
                "flow": {flow: {"from": "vehicle", "traffic": traffics[flow], "transport": {"protocol": "udp"}}},
            }
        ).native
        video = native.videos()[flow]
        clip, made = encoded(flow, video, _scenario_folder(results))
        if "frames" not in results.tables:
            raise ResultError("the result has no table `frames`; run it again with --tables frames")
        table = results.tables["frames"].filter(pl.col("flow") == flow)
        return cls(results, flow, video, made, clip, table)

    def measure(self, seed: int, *, every_nth: int = 1, see: See | None = None) -> Quality:
        """Decodes the video received in a run."""
        of_seed = pl.col("seed") == seed
        rows = _decided((self.table.filter(of_seed) if "seed" in self.table.columns else self.table).sort("frame"))
        units = received(self.made, self.video, rows)
        return quality.measure(self.made, units, source=self.clip, every_nth=every_nth, see=see)


def _decided(rows: pl.DataFrame) -> pl.DataFrame:
    """Drops the frames in flight at the end of the run."""
    shown = rows["shown_ns"].is_not_null().arg_true()
    return rows.head(int(shown[-1]) + 1 if len(shown) else 0)


def _traffics(scenario: str) -> dict[str, dict[str, Any]]:
    flows = tomllib.loads(scenario).get("flow", {})
    return {name: flow["traffic"] for name, flow in flows.items() if flow["traffic"].get("kind") == "video"}


def _chosen(traffics: dict[str, dict[str, Any]], flow: str | None) -> str:
    of_clips = [name for name, traffic in traffics.items() if traffic.get("clip", MODEL) != MODEL]
    if flow is None and len(of_clips) == 1:
        return of_clips[0]
    if flow in of_clips:
        return flow
    found = f"{len(of_clips)} of them" if flow is None else flow
    known = ", ".join(of_clips) or "none in this result; give `clip` in its traffic"
    raise VideoError(f"flow: found {found}, expected one whose video has a clip: {known}")


def _scenario_folder(results: Results) -> Path:
    """Returns the folder of the scenario file at the time of the run."""
    words = shlex.split(str(results.provenance.get("replay", "")))
    return Path(words[2]).parent if len(words) > 2 else Path()


_FPS = 30
"""Approximate frame rate in 1/s: only the order of decoded frames is known here."""


def _judged(requirement: Requirement, frames: pl.DataFrame) -> Requirement:
    similar = frames["source_ssim"].to_numpy()
    spacing_s = 1 / _FPS
    met = similar >= requirement.ssim
    judged = judge_share([RunShare.of_bins(np.ones(met.size), met, spacing_s)], requirement.target)
    return replace(requirement, **asdict(judged))
