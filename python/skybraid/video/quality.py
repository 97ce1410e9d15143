"""Picture quality: SSIM and PSNR of luma, of shown against sent pictures.

SSIM after Wang et al. 2004 (IEEE Transactions on Image Processing 13(4)), over windows of 7×7 pixels of equal weight,
with the sample covariance, like the default of scikit-image's `structural_similarity`. VMAF is unavailable: PyAV's
FFmpeg lacks libvmaf.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from skybraid.model.errors import VideoError
from skybraid.model.heavy import np, pl
from skybraid.video import timecode
from skybraid.video.decode import Decoder, luma

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skybraid.video.clips import Clip
    from skybraid.video.encode import Encoded
    from skybraid.video.pyav import av

    Luma = NDArray[np.uint8]
    See = Callable[[int, float, av.VideoFrame, av.VideoFrame | None], None]

_WINDOW = 7
_PIXELS = _WINDOW * _WINDOW
_C1, _C2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
_ROWS = 32
_BLACK = 16
_SCHEMA = {
    "frame": int,
    "decoded": bool,
    "code": int,
    "ssim": float,
    "psnr_db": float,
    "source_ssim": float,
    "source_psnr_db": float,
}


@dataclass(frozen=True, slots=True)
class Quality:
    """Picture quality per frame.

    Attributes:
        frames: one row per compared frame: `frame`; `decoded`, whether it gave a picture; `code`, the time code on the
            screen, null if unreadable; `ssim` and `psnr_db` of the screen's luma against the encoded frame,
            `source_ssim` and `source_psnr_db` against the clip, null if not requested. Equal pictures have SSIM 1 and
            an infinite PSNR; before the first picture the screen is black.
        every_nth: interval between compared frames, in frames.
    """

    frames: pl.DataFrame
    every_nth: int


def measure(
    encoded: Encoded,
    received: Iterable[Sequence[bytes] | None],
    *,
    source: Clip | None = None,
    every_nth: int = 1,
    see: See | None = None,
) -> Quality:
    """Decodes received units and compares the screen with the original; a picture stays on screen until the next.

    Args:
        encoded: sent clip, repeated.
        received: received NAL units of each frame, or None, as for `decode`.
        source: original clip, for an additional comparison.
        every_nth: interval between compared frames, in frames; all are decoded.
        see: callback for each compared frame: its number, the SSIM against the source (else against the sent picture),
            the sent picture, and the picture on the screen.

    Raises:
        VideoError: `every_nth` is below one, or the source cannot be decoded.
    """
    if every_nth < 1:
        raise VideoError(f"every_nth: found {every_nth}, expected 1 or more")
    arriving, sending = Decoder(encoded.settings.codec), Decoder(encoded.settings.codec)
    screen: Luma = np.full((encoded.settings.height, encoded.settings.width), _BLACK, np.uint8)
    rows: list[tuple[object, ...]] = []
    on_screen: av.VideoFrame | None = None
    seen = None if source is None else camera(encoded, source)
    for number, units in enumerate(received):
        pictures = arriving.push(number, units)
        if pictures:
            on_screen = pictures[-1]
            screen = luma(on_screen)
        (picture,) = sending.push(number, encoded.units(number % len(encoded)))
        taken = None if seen is None else next(seen)
        if number % every_nth:
            continue
        sources = (None, None) if taken is None else (ssim(screen, taken), psnr_db(screen, taken))
        sent = luma(picture)
        similar = ssim(screen, sent)
        rows.append((number, bool(pictures), timecode.read(screen), similar, psnr_db(screen, sent), *sources))
        if see is not None:
            see(number, similar if sources[0] is None else sources[0], picture, on_screen)
    return Quality(pl.DataFrame(rows, _SCHEMA, orient="row"), every_nth)


def ssim(a: Luma, b: Luma) -> float:
    """Returns the mean structural similarity of two pictures of the same shape, at least 7×7: 1 if equal."""
    if a.shape != b.shape or min(a.shape) < _WINDOW:
        raise VideoError(f"ssim: found pictures of {a.shape} and {b.shape}, expected equal shapes of at least 7×7")
    if np.array_equal(a, b):
        return 1.0
    total = 0.0
    lines: int = a.shape[0] - _WINDOW + 1
    columns: int = a.shape[1] - _WINDOW + 1
    for first in range(0, lines, _ROWS):
        rows = slice(first, min(first + _ROWS, lines) + _WINDOW - 1)
        total += _similarity(a[rows], b[rows])
    return total / (lines * columns)


def psnr_db(a: Luma, b: Luma) -> float:
    """Returns the peak signal-to-noise ratio of two pictures of the same shape in dB: infinite if equal."""
    away = a.astype(np.int16) - b
    squares = float(np.square(away, dtype=np.int32).mean())
    return 10 * math.log10(255**2 / squares) if squares else math.inf


def _similarity(a: Luma, b: Luma) -> float:
    """Returns the sum of the structural similarity of all windows in some rows, from integer window sums."""
    x, y = a.astype(np.int32), b.astype(np.int32)
    sum_x, sum_y = _windows(x), _windows(y)
    both = sum_x * sum_y
    sum_x *= sum_x
    sum_y *= sum_y
    sum_x += sum_y
    covariance = _windows(x * y)
    covariance *= _PIXELS
    covariance -= both
    x *= x
    y *= y
    x += y
    variances = _windows(x)
    variances *= _PIXELS
    variances -= sum_x
    means, spread = np.float32(_C1 * _PIXELS**2), np.float32(_C2 * _PIXELS * (_PIXELS - 1))
    similar = _plus(2 * both, means) * _plus(2 * covariance, spread)
    similar /= _plus(sum_x, means) * _plus(variances, spread)
    return float(similar.sum(dtype=np.float64))


def _plus(values: NDArray[np.int32], constant: np.float32) -> NDArray[np.float32]:
    real: NDArray[np.float32] = values.astype(np.float32)
    real += constant
    return real


def _windows(values: NDArray[np.int32]) -> NDArray[np.int32]:
    """Returns the sums over all windows of 7×7, by rows and then by columns."""
    pairs = values[:-1] + values[1:]
    sums = pairs[:-2] + pairs[2:]
    sums = sums[:-3] + pairs[4:-1]
    sums += values[6:]
    pairs = sums[:, :-1] + sums[:, 1:]
    fours = pairs[:, :-2] + pairs[:, 2:]
    sevens: NDArray[np.int32] = fours[:, :-3] + pairs[:, 4:-1]
    sevens += sums[:, 6:]
    return sevens


def camera(encoded: Encoded, source: Clip) -> Iterator[Luma]:
    """Yields the camera's pictures in a loop, with their time codes."""
    settings = encoded.settings
    while True:
        for number, planes in enumerate(source.pictures((settings.width, settings.height), encoded.fps)):
            if settings.time_code:
                timecode.draw(planes, number)
            yield planes[: settings.height]
