"""Film strips: pictures of the moments with the worst quality."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from skybraid.model.heavy import Image, ImageDraw

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from skybraid.video.pyav import av

FOLDER = "moments"
"""Where a result keeps the pictures."""

WIDTH = 320
"""Of each picture in pixels."""

_JPEG_QUALITY = 80
_NAME = re.compile(r"(?P<flow>.+)-(?P<seed>\d+)-(?P<frame>\d+)-sent\.jpg")


@dataclass(frozen=True, slots=True)
class Moment:
    """Frame as sent and as shown, both as JPEG.

    Attributes:
        frame: its number.
        ssim: how near the screen was to what the camera saw.
        sent: what the encoder made of it.
        shown: what was on the screen at its time.
    """

    frame: int
    ssim: float
    sent: bytes
    shown: bytes


class Strip:
    """Collects the worst moments of a run, spaced apart.

    Args:
        most: how many.
        apart: at least so many frames lie between two.
        below: a moment is only kept whose SSIM is below this.
    """

    def __init__(self, most: int = 6, apart: int = 30, below: float = 0.98) -> None:
        self.most, self.apart, self.below = most, apart, below
        self._moments: list[Moment] = []

    def offer(self, frame: int, ssim: float, sent: av.VideoFrame, shown: av.VideoFrame | None) -> None:
        """Considers a frame; `shown` is None before the first picture."""
        near = [moment for moment in self._moments if abs(moment.frame - frame) < self.apart]
        full = len(self._moments) >= self.most and not near
        rivals = near or (self._moments if full else [])
        if ssim >= self.below or any(moment.ssim <= ssim for moment in near):
            return
        if full and max(moment.ssim for moment in rivals) <= ssim:
            return
        beaten = near or ([max(rivals, key=lambda moment: moment.ssim)] if full else [])
        self._moments = [moment for moment in self._moments if moment not in beaten]
        picture = _thumbnail(sent)
        black = Image.new("RGB", picture.size)
        self._moments.append(Moment(frame, ssim, _jpeg(picture), _jpeg(black if shown is None else _thumbnail(shown))))

    def moments(self) -> list[Moment]:
        """Moments in chronological order."""
        return sorted(self._moments, key=lambda moment: moment.frame)


def write(folder: Path, flow: str, seed: int, moments: Iterable[Moment]) -> None:
    """Puts pictures into a result's folder.

    Raises:
        OSError: it cannot be written.
    """
    kept = folder / FOLDER
    kept.mkdir(exist_ok=True)
    for moment in moments:
        for what, data in (("sent", moment.sent), ("shown", moment.shown)):
            (kept / f"{flow}-{seed}-{moment.frame:06}-{what}.jpg").write_bytes(data)


def kept(folder: Path) -> Iterator[tuple[str, int, int, bytes, bytes]]:
    """Pictures in a result's folder: flow, seed, frame and both pictures, in order."""
    for file in sorted((folder / FOLDER).glob("*-sent.jpg")):
        found = _NAME.fullmatch(file.name)
        shown = file.with_name(file.name.replace("-sent.jpg", "-shown.jpg"))
        if found is not None and shown.exists():
            yield found["flow"], int(found["seed"]), int(found["frame"]), file.read_bytes(), shown.read_bytes()


def sheet(heads: Sequence[str], rows: Sequence[tuple[str, Sequence[Image.Image]]]) -> Image.Image:
    """Draws pictures in columns with heads, one labelled row each.

    Args:
        heads: one for each column.
        rows: at least one; all pictures of one size.
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
    """Thumbnail of a frame; black for None."""
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
