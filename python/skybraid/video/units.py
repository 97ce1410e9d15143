"""NAL units of H.264 and H.265 streams: their types and frame boundaries."""

from __future__ import annotations

from typing import NamedTuple


class Kind(NamedTuple):
    """Role of a unit in its frame.

    Attributes:
        key: whether it belongs to a key frame (IDR in H.264, IRAP in H.265).
        recovery_frames: the count of a recovery point, or None.
        first: whether a frame begins with it.
    """

    key: bool = False
    recovery_frames: int | None = None
    first: bool = False


def kind(unit: bytes, codec: str) -> Kind:
    """Classifies a unit by its first bytes (ITU-T H.264 table 7-1 and D.1.8, H.265 table 7-1).

    Delimiters and the first of the parameter sets begin a frame, and the slice of its first block.
    """
    if codec == "h265":
        number = unit[0] >> 1 & 0x3F
        slice_, first = number < 32, number in (32, 35) or (number < 32 and _flag(unit, 2))
        return Kind(key=slice_ and 16 <= number < 24, first=first)
    number = unit[0] & 0x1F
    sei, recovery_point, idr = 6, 6, 5
    if number == sei and len(unit) > 1 and unit[1] == recovery_point:
        return Kind(recovery_frames=_exp_golomb(unit[3:]))
    return Kind(key=number == idr, first=number in (7, 9) or (number in (1, idr) and _flag(unit, 1)))


def _flag(unit: bytes, place: int) -> bool:
    return len(unit) > place and bool(unit[place] & 0x80)


def _exp_golomb(data: bytes) -> int | None:
    """Decodes an unsigned Exp-Golomb number (ITU-T H.264, section 9.1); None if truncated."""
    bits = "".join(f"{byte:08b}" for byte in data[:8].replace(b"\0\0\3", b"\0\0"))
    zeros = bits.find("1")
    return int(bits[zeros : 2 * zeros + 1], 2) - 1 if 0 <= 2 * zeros < len(bits) else None
