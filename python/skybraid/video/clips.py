"""Clips: built-in ones, rendered once and cached, and any file that FFmpeg can read."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from skybraid.model.errors import VideoError
from skybraid.video.cache import atomic_file, exclusive, folder
from skybraid.video.flight import DURATION_S, RENDERER, Flight
from skybraid.video.pyav import av

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FPS = 30
"""Frame rate of the built-in clips in 1/s."""


class BuiltIn(NamedTuple):
    """Built-in clip: picture size in pixels and duration."""

    width: int
    height: int
    duration_s: float


BUILT_IN = {
    "flight": BuiltIn(1920, 1080, DURATION_S),
    "flight-540": BuiltIn(960, 540, DURATION_S),
    "flight-270": BuiltIn(480, 270, DURATION_S),
}
"""Built-in clips: a flight over fields, hills, a river and a wood, with turns, to a runway; in three sizes."""

_QP = "14"
"""Quantiser of x264 for cached clips: about 47 dB, and a third of the size of lossless encoding."""


@dataclass(frozen=True, slots=True)
class Clip:
    """Video file.

    Attributes:
        file: path of the file.
        width: width in pixels, even.
        height: height in pixels, even.
        fps: frame rate in 1/s; the mean if it varies.
    """

    file: Path
    width: int
    height: int
    fps: Fraction

    def digest(self) -> str:
        """Returns the SHA-256 of the file."""
        found = self.file.stat()
        return _digest(self.file, found.st_size, found.st_mtime_ns)

    def pictures(self, size: tuple[int, int] | None = None, fps: Fraction | None = None) -> Iterator[NDArray[np.uint8]]:
        """Yields pictures as writable planes Y, Cb, Cr (4:2:0), shape (1.5 · height, width).

        Args:
            size: width and height in pixels, even; default: those of the clip.
            fps: frame rate in 1/s, with the nearest picture in time; default: that of the clip.

        Raises:
            VideoError: the file cannot be decoded.
        """
        width, height = size or (self.width, self.height)
        rate = fps or self.fps
        half = 1 / (2 * self.fps)
        given = 0
        held: av.VideoFrame | None = None
        start = next_s = Fraction(0)
        try:
            with av.open(str(self.file)) as container:
                container.streams.video[0].thread_type = "AUTO"
                for number, frame in enumerate(container.decode(video=0)):
                    time_s = number / self.fps
                    if frame.pts is not None and frame.time_base is not None:
                        time_s = frame.pts * frame.time_base
                    if held is None:
                        start = time_s
                    while held is not None and given / rate < time_s - start - half:
                        yield _planes(held, width, height)
                        given += 1
                    held, next_s = frame, time_s - start + 1 / self.fps
        except av.error.FFmpegError as error:
            raise _unreadable(self.file, error) from error
        while held is not None and given / rate < next_s - half:
            yield _planes(held, width, height)
            given += 1


def open_clip(name: str | Path, progress: Callable[[float], None] | None = None) -> Clip:
    """Opens a built-in clip by name (rendered on first use), or a file.

    Args:
        name: key of `BUILT_IN`, or path of a file.
        progress: callback with the rendered share of a built-in clip, 0 to 1.

    Raises:
        VideoError: there is no such clip, or it has no pictures.
        ResultError: the rendered clip cannot be written.
    """
    built_in = BUILT_IN.get(str(name))
    if built_in is None:
        return _opened(Path(name))
    file = folder() / f"{name}-{RENDERER}.mkv"
    with exclusive(file):
        if not file.exists():
            render(file, *built_in, progress)
    return _opened(file)


def render(
    file: Path, width: int, height: int, duration_s: float, progress: Callable[[float], None] | None = None
) -> None:
    """Renders the built-in flight into a file, atomically.

    Args:
        file: Matroska file with nearly lossless H.264.
        width: width in pixels, a multiple of 4.
        height: height in pixels, even.
        duration_s: duration in s, at most `DURATION_S`.
        progress: callback with the completed share, 0 to 1.

    Raises:
        ResultError: the file cannot be written.
    """
    flight = Flight(width, height)
    number = round(min(duration_s, DURATION_S) * FPS)
    options = {"qp": _QP, "preset": "superfast", "threads": "1", "bf": "0", "g": str(FPS)}
    with (
        atomic_file(file) as aside,
        av.open(str(aside), "w", format="matroska", options={"fflags": "+bitexact"}) as container,
    ):
        stream = container.add_stream("libx264", rate=FPS, options=options)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        for count in range(number):
            frame = av.VideoFrame.from_ndarray(flight.picture(count / FPS), format="yuv420p")
            frame.pts = count
            container.mux(stream.encode(frame))
            if progress is not None:
                progress((count + 1) / number)
        container.mux(stream.encode(None))


def _opened(file: Path) -> Clip:
    if not file.is_file():
        found = "a folder" if file.is_dir() else "no such file"
        raise VideoError(f"{file}: found {found}, expected a video or one of {', '.join(BUILT_IN)}")
    try:
        with av.open(str(file)) as container:
            if not container.streams.video:
                kinds = ", ".join(sorted({stream.type for stream in container.streams})) or "nothing"
                raise VideoError(f"{file}: found {kinds} and no pictures, expected a video")
            stream = container.streams.video[0]
            width, height, fps = stream.width // 2 * 2, stream.height // 2 * 2, stream.average_rate or stream.base_rate
    except (av.error.FFmpegError, OSError) as error:
        raise _unreadable(file, error) from error
    if not width or not height or not fps:
        raise VideoError(f"{file}: found {width}×{height} pixels and {fps} pictures a second, expected a video")
    return Clip(file, width, height, Fraction(fps))


def _unreadable(file: Path, error: Exception) -> VideoError:
    return VideoError(f"{file}: found what FFmpeg cannot read ({getattr(error, 'strerror', error)}), expected a video")


def _planes(frame: av.VideoFrame, width: int, height: int) -> NDArray[np.uint8]:
    return cast("NDArray[np.uint8]", frame.reformat(width, height, "yuv420p").to_ndarray())


@cache
def _digest(file: Path, size: int, changed_ns: int) -> str:  # noqa: ARG001 another size or time, another content
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
