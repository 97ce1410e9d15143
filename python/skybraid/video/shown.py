"""Picture quality of a run, for the cost of decoding its clip once.

A frame shown undamaged equals the encoded frame, so the cached SSIM of the clip applies. Only a flight with damaged
frames is decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skybraid.model.heavy import np, pl
from skybraid.video.cache import atomic_file, exclusive
from skybraid.video.decode import Decoder, luma
from skybraid.video.flows import received
from skybraid.video.quality import camera, measure, ssim

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skybraid.video.clips import Clip
    from skybraid.video.encode import Encoded

    Floats = NDArray[np.float64]
    Luma = NDArray[np.uint8]

AGES = (0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377)
"""Ages in frames of old pictures that are compared with new ones."""

_VERSION = 1
_APART = 31
"""Interval in frames at which old pictures are compared: one more than the usual key frame interval."""


def similarity(clip: Clip, encoded: Encoded, video: Mapping[str, Any], frames: pl.DataFrame) -> Floats:
    """Returns the SSIM of each frame shown, against the camera's picture of the same frame.

    Args:
        clip: original clip.
        encoded: sent clip.
        video: entry of `_core.Scenario.videos`.
        frames: the flow's rows of the table `frames` of one run.

    Raises:
        VideoError: the clip cannot be decoded, or the rate of the flow changed, so that the sent frames were never
            encoded.
    """
    frames = frames.sort("frame")
    shown = frames.filter(pl.col("shown_ns").is_not_null())
    if shown["intact"].all() and not video["controlled"]:
        places = shown["frame"].to_numpy().astype(np.int64) % len(encoded)
        of_whole: Floats = encoded_similarity(clip, encoded)[places]
        return of_whole
    until = frames.filter(pl.col("frame") <= shown["frame"].max())
    seen = measure(encoded, received(encoded, video, until), source=clip).frames
    of_shown: Floats = seen.filter(pl.col("frame").is_in(shown["frame"].to_list()))["source_ssim"].to_numpy()
    return of_shown


def encoded_similarity(clip: Clip, encoded: Encoded) -> Floats:
    """Returns the SSIM of each encoded frame of a clip against the camera's picture; cached."""

    def work_out() -> Floats:
        return np.array([ssim(*pair) for pair in zip(_decoded(encoded), camera(encoded, clip), strict=False)])

    return _cached(encoded, "ssim", work_out)


def aged_similarity(clip: Clip, encoded: Encoded) -> dict[int, Floats]:
    """Returns the SSIM of earlier encoded pictures of a clip against the camera's current picture; cached.

    Returns:
        For each of `AGES`, the SSIM at every `_APART`th frame; NaN if the old picture would precede the clip.
    """

    def work_out() -> Floats:
        places = range(0, len(encoded), _APART)
        now = dict(zip(places, islice(camera(encoded, clip), 0, len(encoded), _APART), strict=True))
        found = np.full((len(AGES), len(places)), np.nan)
        for frame, picture in enumerate(_decoded(encoded)):
            for row, age in enumerate(AGES):
                if frame + age in now:
                    found[row, (frame + age) // _APART] = ssim(picture, now[frame + age])
        return found

    return dict(zip(AGES, _cached(encoded, "aged", work_out), strict=True))


def similarity_at(
    ages: NDArray[np.int64], clip: Clip, encoded: Encoded, worth: Callable[[Floats], Floats] = lambda found: found
) -> Floats:
    """Returns the worth of the SSIM of pictures of given ages, in frames, against the camera's current picture.

    Values are averaged over some places of the clip and interpolated linearly between `AGES`. Older pictures count as
    the oldest of these, since a repeated clip shows the same places again.

    Args:
        ages: ages of the pictures in frames.
        clip: original clip.
        encoded: sent clip.
        worth: function of an SSIM that is averaged.

    Returns:
        The mean worth for each age.
    """
    known = [(age, found[np.isfinite(found)]) for age, found in aged_similarity(clip, encoded).items()]
    by_age = {age: float(worth(found).mean()) for age, found in known if found.size}
    found: Floats = np.interp(ages, list(by_age), list(by_age.values()))
    return found


def screen_ages(frames: pl.DataFrame, until_ns: float) -> NDArray[np.int64]:
    """Returns the lag of the screen in frames, at each frame's playout time, from the first picture on.

    A frame is due at its capture time plus the flight's minimum latency from camera to screen.

    Args:
        frames: the flow's rows of the table `frames` of one run.
        until_ns: end of the flight in ns.
    """
    shown = frames.filter(pl.col("shown_ns").is_not_null()).sort("shown_ns")
    shown_ns, captured_ns = shown["shown_ns"].to_numpy(), frames["captured_ns"].to_numpy()
    if not shown_ns.size:
        return np.empty(0, np.int64)
    due_ns = captured_ns + (shown_ns - shown["captured_ns"].to_numpy()).min()
    place = np.searchsorted(shown_ns, due_ns, side="right") - 1
    seen = (place >= 0) & (due_ns <= until_ns)
    ages: NDArray[np.int64] = frames["frame"].to_numpy()[seen].astype(np.int64) - shown["frame"].to_numpy()[place[seen]]
    return ages


def _decoded(encoded: Encoded) -> Iterator[Luma]:
    decoder = Decoder(encoded.settings.codec)
    for number in range(len(encoded)):
        yield from map(luma, decoder.push(number, encoded.units(number)))


def _cached(encoded: Encoded, kind: str, work_out: Callable[[], Floats]) -> Floats:
    file = encoded.file.with_name(f"{encoded.file.name}.{kind}-{_VERSION}.npy")
    with exclusive(file):
        found = _read_cached(file)
        if found is None:
            found = work_out()
            with atomic_file(file) as aside, aside.open("wb") as stream:
                np.save(stream, found, allow_pickle=False)
    return found


def _read_cached(file: Path) -> Floats | None:
    try:
        found: Floats = np.load(file, allow_pickle=False)
    except (OSError, EOFError, ValueError):
        return None
    return found
