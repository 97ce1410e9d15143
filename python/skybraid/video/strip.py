"""Film strips: pictures of the moments with the worst quality."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from skybraid.model.heavy import Image, ImageDraw

if TYPE_CHECKING:
    from skybraid.video.pyav import av

FOLDER = "moments"
"""Folder of a result with the pictures."""

WIDTH = 320
"""Width of each picture in pixels."""

_JPEG_QUALITY = 80
_NAME = re.compile(r"(?P<flow>.+)-(?P<seed>\d+)-(?P<frame>\d+)-sent\.jpg")


@dataclass(frozen=True, slots=True)
class Moment:
    """Frame as sent and as shown, both as JPEG.

    Attributes:
        frame: number of the frame.
        ssim: SSIM of the screen against the camera's picture.
        sent: encoded picture.
        shown: picture on the screen at that time.
    """

    frame: int
    ssim: float
    sent: bytes
    shown: bytes


class Strip:
    """Collector of the worst moments of a run, spaced apart.

    Args:
        max_moments: maximum number of moments.
        min_frames: minimum distance between two moments in frames.
        max_ssim: SSIM below which a moment is kept.
    """

    def __init__(self, max_moments: int = 6, min_frames: int = 30, max_ssim: float = 0.98) -> None:
        self.max_moments, self.min_frames, self.max_ssim = max_moments, min_frames, max_ssim
        self._moments: list[Moment] = []

    def offer(self, frame: int, ssim: float, sent: av.VideoFrame, shown: av.VideoFrame | None) -> None:
        """Considers a frame; `shown` is None before the first picture."""
        neighbours = [moment for moment in self._moments if abs(moment.frame - frame) < self.min_frames]
        full = len(self._moments) >= self.max_moments and not neighbours
        rivals = neighbours or (self._moments if full else [])
        if ssim >= self.max_ssim or any(moment.ssim <= ssim for moment in neighbours):
            return
        if full and max(moment.ssim for moment in rivals) <= ssim:
            return
        replaced = neighbours or ([max(rivals, key=lambda moment: moment.ssim)] if full else [])
        self._moments = [moment for moment in self._moments if moment not in replaced]
        picture = _thumbnail(sent)
        black = Image.new("RGB", picture.size)
        self._moments.append(Moment(frame, ssim, _jpeg(picture), _jpeg(black if shown is None else _thumbnail(shown))))

    def moments(self) -> list[Moment]:
        """Returns the moments in chronological order."""
        return sorted(self._moments, key=lambda moment: moment.frame)


def write(folder: Path, flow: str, seed: int, moments: Iterable[Moment]) -> None:
    """Writes pictures into a result's folder.

    Raises:
        OSError: a file cannot be written.
    """
    pictures = folder / FOLDER
    pictures.mkdir(exist_ok=True)
    for moment in moments:
        for what, data in (("sent", moment.sent), ("shown", moment.shown)):
            (pictures / f"{flow}-{seed}-{moment.frame:06}-{what}.jpg").write_bytes(data)


def read_pictures(folder: Path) -> Iterator[tuple[str, int, int, bytes, bytes]]:
    """Yields the pictures in a result's folder in order: flow, seed, frame, and sent and shown picture."""
    for file in sorted((folder / FOLDER).glob("*-sent.jpg")):
        found = _NAME.fullmatch(file.name)
        shown = file.with_name(file.name.replace("-sent.jpg", "-shown.jpg"))
        if found is not None and shown.exists():
            yield found["flow"], int(found["seed"]), int(found["frame"]), file.read_bytes(), shown.read_bytes()


def sheet(heads: Sequence[str], rows: Sequence[tuple[str, Sequence[Image.Image]]]) -> Image.Image:
    """Draws pictures in columns with headings, one labelled row each.

    Args:
        heads: headings of the columns.
        rows: one or more rows; all pictures have the same size.
    """
    width, height = rows[0][1][0].size
    line, gap = 18, 4
    whole = Image.new("RGB", (len(heads) * (width + gap) + gap, line + len(rows) * (height + line + gap)), "white")
    pen = ImageDraw.Draw(whole)
    for place, head in enumerate(heads):
        pen.text((gap + place * (width + gap), 3), head, fill="black")
    for number, (words, pictures) in enumerate(rows):
        top = line + number * (height + line + gap)
        pen.text((gap, top + 2), words, fill="black")
        for place, picture in enumerate(pictures):
            whole.paste(picture, (gap + place * (width + gap), top + line))
    return whole


def thumbnail(frame: av.VideoFrame | None, like: Image.Image | None = None) -> Image.Image:
    """Returns the thumbnail of a frame; black for None."""
    if frame is not None:
        return _thumbnail(frame)
    return Image.new("RGB", like.size if like is not None else (WIDTH, WIDTH * 9 // 16))


def _thumbnail(frame: av.VideoFrame) -> Image.Image:
    width = min(WIDTH, frame.width)
    picture: Image.Image = frame.to_image()  # type: ignore[no-untyped-call]
    return picture.resize((width, round(frame.height * width / frame.width)))


def _jpeg(picture: Image.Image) -> bytes:
    data = io.BytesIO()
    picture.save(data, "JPEG", quality=_JPEG_QUALITY)
    return data.getvalue()
