"""Time code: a number drawn into the picture that survives encoding (frame number or capture time in µs).

48 bits and their CRC-16/CCITT-FALSE (polynomial 0x1021, initial value 0xFFFF) are drawn in the upper left corner as 4
rows of 16 squares, the highest bit first; bright is one. A square is at least 8 pixels wide and aligned to multiples of
8, the block boundaries of codecs.
"""

from __future__ import annotations

import binascii
from typing import TYPE_CHECKING

from skybraid.model.errors import VideoError
from skybraid.model.heavy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

BITS = 48
"""Number of bits: 0 to 2^48 - 1, in µs nearly nine years."""

_COLUMNS, _ROWS = 16, 4
_DARK, _BRIGHT = 48, 208
_CLEAR = 24
"""Minimum distance from mid-grey for a square to be readable."""


def square(width: int) -> int:
    """Returns the size of a square of the code in pixels: 8, or 16 for pictures at least 1920 wide."""
    return 8 * max(1, width // 960)


def draw(planes: NDArray[np.uint8], number: int) -> None:
    """Draws a number into a picture.

    Args:
        planes: Y, Cb, Cr (4:2:0) in rows, shape (1.5 · height, width); the area of the code is overwritten.
        number: number from 0 to 2^48 - 1.

    Raises:
        VideoError: the picture is too small for the code, or the number too large.
    """
    rows, width = planes.shape
    height = rows * 2 // 3
    side = square(width)
    if width < _COLUMNS * side or height < _ROWS * side:
        words = f"found {width}×{height} pixels, expected at least {_COLUMNS * side}×{_ROWS * side}"
        raise VideoError(f"time code: {words}")
    if not 0 <= number < 1 << BITS:
        raise VideoError(f"time code: found {number}, expected 0 to 2^{BITS} - 1")
    data = number.to_bytes(BITS // 8, "big")
    data += binascii.crc_hqx(data, 0xFFFF).to_bytes(2, "big")
    ones = np.unpackbits(np.frombuffer(data, np.uint8)).reshape(_ROWS, _COLUMNS)
    code = np.where(ones, np.uint8(_BRIGHT), np.uint8(_DARK)).repeat(side, 0).repeat(side, 1)
    planes[: code.shape[0], : code.shape[1]] = code
    chroma = planes[height:].reshape(2, height // 2, width // 2)
    chroma[:, : code.shape[0] // 2, : code.shape[1] // 2] = 128


def read(luma: NDArray[np.uint8]) -> int | None:
    """Reads the number in a picture; None if damaged or absent.

    A damaged code passes the check with a probability of 1 in 65536.

    Args:
        luma: luma plane, shape (height, width); rows below the code are ignored and may be missing.
    """
    rows, width = luma.shape
    side = square(width)
    if width < _COLUMNS * side or rows < _ROWS * side:
        return None
    squares = luma[: _ROWS * side, : _COLUMNS * side].reshape(_ROWS, side, _COLUMNS, side)
    edge = side // 4
    away = squares[:, edge:-edge, :, edge:-edge].mean((1, 3)) - (_DARK + _BRIGHT) / 2
    if np.abs(away).min() < _CLEAR:
        return None
    data = np.packbits(away > 0).tobytes()
    number, check = data[: BITS // 8], data[BITS // 8 :]
    if binascii.crc_hqx(number, 0xFFFF) != int.from_bytes(check, "big"):
        return None
    return int.from_bytes(number, "big")
