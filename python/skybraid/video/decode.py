"""Decoding of a partly received clip, with FFmpeg's error concealment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

from skybraid.model.heavy import np
from skybraid.video.encode import START_CODE
from skybraid.video.pyav import av

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skybraid.video.encode import Encoded


class Decoder:
    """FFmpeg decoder of one stream, fed with the received units of each frame.

    Partly received units must be left out, as RTP receivers do (RFC 6184, 5.8). The decoder conceals a missing slice
    from its neighbours and the previous picture. A completely lost frame, or one before the first decodable picture,
    gives no picture: the screen keeps the previous one. FFmpeg's H.264 decoder also drops pictures that it takes for
    old ones, up to half a second after a lost key frame or many lost frames; players based on it freeze too.
    """

    def __init__(self, codec: str) -> None:
        """Creates a decoder for "h264" or "h265"."""
        name = "hevc" if codec == "h265" else codec
        self._context = cast("av.VideoCodecContext", av.CodecContext.create(name, "r"))
        self._context.thread_count = 1
        flags = av.codec.context.Flags
        self._context.flags |= flags.output_corrupt | flags.low_delay
        self._context.options = {"ec": "guess_mvs+deblock"}

    def push(self, number: int, units: Sequence[bytes] | None) -> list[av.VideoFrame]:
        """Decodes the received units of a frame; returns pictures that are ready, with the frame number in `pts`."""
        if not units:
            return []
        packet: av.Packet[Any] = av.Packet(b"".join(START_CODE + unit for unit in units))
        packet.pts = packet.dts = number
        return self._decoded(packet)

    def end(self) -> list[av.VideoFrame]:
        """Flushes the decoder; returns the remaining pictures."""
        return self._decoded(None)

    def _decoded(self, packet: av.Packet[Any] | None) -> list[av.VideoFrame]:
        try:
            return [frame for frame in self._context.decode(packet) if frame.pts is not None]
        except av.error.InvalidDataError:
            return []


def decode(encoded: Encoded, received: Iterable[Sequence[bytes] | None]) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    """Decodes received units; yields pictures with their frame numbers, as described for `Decoder`.

    Args:
        encoded: sent clip, repeated if the flight is longer.
        received: received NAL units of each frame of the flight, in order, or None.

    Yields:
        The number of a frame and its picture: planes Y, Cb, Cr (4:2:0) in rows, shape (1.5 · height, width).
    """
    decoder = Decoder(encoded.settings.codec)
    for number, units in enumerate(received):
        yield from map(_numbered, decoder.push(number, units))
    yield from map(_numbered, decoder.end())


def _numbered(frame: av.VideoFrame) -> tuple[int, NDArray[np.uint8]]:
    return frame.pts or 0, cast("NDArray[np.uint8]", frame.to_ndarray())


def luma(frame: av.VideoFrame) -> NDArray[np.uint8]:
    """Returns the luma plane of a picture, shape (height, width), without copying."""
    plane = frame.planes[0]
    rows: NDArray[np.uint8] = np.frombuffer(memoryview(plane), np.uint8).reshape(-1, plane.line_size)
    return rows[: frame.height, : frame.width]
