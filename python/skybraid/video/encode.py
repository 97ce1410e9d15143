"""Encoding of a clip by x264 or x265 at constant rate, cached by its inputs.

Encodes for low delay: no reordered pictures, no look-ahead, parameter sets repeated with each key frame. A single
thread makes the result independent of the number of cores. The rate is limited by a buffer (VBV) of some frames: any
sequence of frames has at most the bits of the rate plus the buffer.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import re
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from skybraid import _core
from skybraid.model.errors import VideoError
from skybraid.model.formatting import rate as rate_words
from skybraid.model.heavy import np
from skybraid.video import timecode
from skybraid.video.cache import atomic_file, exclusive, folder
from skybraid.video.pyav import av

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skybraid.video.clips import Clip

START_CODE = b"\0\0\0\1"
"""Prefix of a unit in a byte stream (ITU-T H.264 and H.265, annex B)."""

PRESETS = ("ultrafast", "superfast", "veryfast", "faster", "fast", "medium", "slow", "slower", "veryslow")
"""Effort presets of x264 and x265; from "medium" on, 1080p takes minutes."""

_CODECS = {"h264": "libx264", "h265": "libx265"}
_VERSION = 1
_MAX_OVER = 1.1
_MIN_BITS = 0.005
"""Minimum bits per pixel: below it, x264 produces grey blocks; 311 kbit/s for 1080p30."""


@dataclass(frozen=True, slots=True)
class EncodedFrame:
    """Encoded picture.

    Attributes:
        captured_ns: capture time in ns from the start of the clip.
        key: whether decoding can start here (IDR in H.264, IRAP in H.265).
        recovery_frames: number of frames until pictures are complete if decoding starts here: 0 at a key frame, the
            count of a recovery point with intra refresh, None elsewhere.
        units: NAL units without start codes.
    """

    captured_ns: int
    key: bool
    recovery_frames: int | None
    units: list[bytes]


@dataclass(frozen=True, slots=True)
class Settings:
    """Complete settings of an encoding; for the fields see `Encoding`."""

    codec: str
    rate_bps: int
    fps: str
    width: int
    height: int
    key_frames: int
    intra_refresh: bool
    slices: int
    preset: str
    buffer_frames: float
    time_code: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """Options for encoding a clip.

    Attributes:
        codec: "h264" or "h265".
        rate_bps: constant rate of all units in bit/s.
        fps: frame rate in 1/s; None: that of the clip.
        size: width and height in pixels, even; None: those of the clip.
        key_every_s: time between key frames, or period of `intra_refresh`, in s.
        intra_refresh: replaces key frames after the first by a moving intra-coded strip; H.264 only.
        slices: number of independently decodable slices of a picture.
        preset: one of `PRESETS`.
        buffer_frames: buffer of the rate control (VBV) in mean frames; it also bounds key frames.
        time_code: whether to draw the number of each frame (`timecode`).
    """

    rate_bps: float
    codec: str = "h264"
    fps: float | Fraction | None = None
    size: tuple[int, int] | None = None
    key_every_s: float = 1.0
    intra_refresh: bool = False
    slices: int = 1
    preset: str = "veryfast"
    buffer_frames: float = 5.0
    time_code: bool = True

    def settings(self, clip: Clip) -> Settings:
        """Returns the complete settings for a clip.

        Raises:
            VideoError: a setting is invalid, the picture needs a higher rate, or this PyAV lacks the codec.
        """
        fps = clip.fps if self.fps is None else Fraction(self.fps).limit_denominator(1001)
        width, height = self.size or (clip.width, clip.height)
        self._check(fps, width, height)
        return Settings(
            self.codec,
            round(self.rate_bps),
            str(fps),
            width,
            height,
            max(1, round(self.key_every_s * fps)),
            self.intra_refresh,
            self.slices,
            self.preset,
            float(self.buffer_frames),
            self.time_code,
        )

    def _check(self, fps: Fraction, width: int, height: int) -> None:
        if self.codec not in _CODECS:
            raise VideoError(f"codec: found {self.codec}, expected one of {', '.join(_CODECS)}")
        if _CODECS[self.codec] not in av.codecs_available:
            raise VideoError(
                f"codec {self.codec}: this PyAV was built without {_CODECS[self.codec]}; pip's wheels of av have it"
            )
        if self.codec == "h265" and self.intra_refresh:
            raise VideoError("intra_refresh: found codec h265, expected h264; x265's does not end the traces of a loss")
        if self.preset not in PRESETS:
            raise VideoError(f"preset: found {self.preset}, expected one of {', '.join(PRESETS)}")
        if min(width, height) < 32 or width % 2 or height % 2:
            raise VideoError(f"size: found {width}×{height}, expected even numbers of at least 32 pixels")
        min_bps = _MIN_BITS * width * height * fps
        if self.rate_bps < min_bps:
            picture = f"{width}×{height} pixels, {float(fps):g} times a second"
            raise VideoError(
                f"rate: found {rate_words(self.rate_bps)}, expected at least {rate_words(min_bps)} for {picture}"
            )
        min_rows = 32 if self.codec == "h265" else 16
        for name, value, least, most in (
            ("rate_bps", self.rate_bps, 1000, 1e9),
            ("fps", fps, 1, 1000),
            ("key_every_s", self.key_every_s, 0.01, 3600),
            ("slices", self.slices, 1, max(1, height // min_rows)),
            ("buffer_frames", self.buffer_frames, 1, 1000),
        ):
            if not least <= value <= most:
                raise VideoError(f"{name}: found {value}, expected {least:g} to {most:g}")


@dataclass(frozen=True)
class Encoded:
    """Encoded clip: an index in memory, the units in a file read on demand.

    Attributes:
        file: byte stream, which players can open.
        settings: settings of the encoding.
        unit_frame: frame number of each NAL unit, from 0; int32.
        unit_offset: offset of each NAL unit in the file in bytes; int64.
        unit_bytes: length of each NAL unit without its start code; int32.
        key: whether each frame is a key frame.
        recovery_frames: `EncodedFrame.recovery_frames` of each frame, -1 for None; int32.
    """

    file: Path
    settings: Settings
    unit_frame: NDArray[np.int32]
    unit_offset: NDArray[np.int64]
    unit_bytes: NDArray[np.int32]
    key: NDArray[np.bool_]
    recovery_frames: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.key)

    @property
    def fps(self) -> Fraction:
        """Frame rate in 1/s."""
        return Fraction(self.settings.fps)

    @property
    def duration_s(self) -> float:
        """Duration in s."""
        return float(len(self) / self.fps)

    @property
    def mean_rate_bps(self) -> float:
        """Mean rate in bit/s."""
        return 8 * int(self.unit_bytes.sum()) / self.duration_s

    def captured_ns(self, frame: int) -> int:
        """Returns the capture time of a frame in ns from the start."""
        return round(frame * 1_000_000_000 / self.fps)

    def unit_lengths(self) -> list[list[int]]:
        """Returns the lengths of the units of each frame in bytes."""
        return [part.tolist() for part in np.split(self.unit_bytes, self._first[1:-1])]

    def units(self, frame: int) -> list[bytes]:
        """Returns the NAL units of a frame, without start codes."""
        places = range(self._first[frame], self._first[frame + 1])
        parts = [(int(self.unit_offset[place]), int(self.unit_bytes[place])) for place in places]
        return [self._bits[offset : offset + length] for offset, length in parts]

    @property
    def frames(self) -> list[EncodedFrame]:
        """Returns all frames with their units."""
        return [
            EncodedFrame(
                self.captured_ns(frame), bool(self.key[frame]), None if later < 0 else later, self.units(frame)
            )
            for frame, later in enumerate(self.recovery_frames.tolist())
        ]

    @cached_property
    def _first(self) -> list[int]:
        """Returns the first unit of each frame, and the total number of units."""
        firsts: list[int] = np.searchsorted(self.unit_frame, np.arange(len(self) + 1)).tolist()
        return firsts

    @cached_property
    def _bits(self) -> mmap.mmap:
        with self.file.open("rb") as stream:
            return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)


def encode(clip: Clip, encoding: Encoding, progress: Callable[[int], None] | None = None) -> Encoded:
    """Encodes a clip, or returns the cached encoding of the same clip and settings.

    Args:
        clip: clip to encode.
        encoding: options.
        progress: callback with the number of encoded frames.

    Raises:
        VideoError: a setting is invalid, the picture needs a higher rate, this PyAV lacks the codec, or the clip cannot
            be decoded.
        ResultError: the encoded clip cannot be written.
    """
    settings = encoding.settings(clip)
    made_of = {"version": _VERSION, "clip": clip.digest(), "libavcodec": av.library_versions["libavcodec"]}
    essence = json.dumps(made_of | asdict(settings), sort_keys=True).encode()
    file = folder() / f"{hashlib.sha256(essence).hexdigest()[:32]}.{settings.codec}"
    with exclusive(file):
        found = _read_cached(file, settings)
        return found if found is not None else _encoded(clip, file, settings, progress)


def units_of(data: bytes) -> list[tuple[int, int]]:
    """Returns offset and length of each NAL unit in a byte stream with start codes."""
    starts = [found.end() for found in re.finditer(b"\0\0\1", data)]
    ends = [start - 3 for start in starts[1:]] + [len(data)]
    # No unit ends in a zero byte, so trailing zeros belong to the next start code (annex B).
    return [(start, len(data[start:end].rstrip(b"\0"))) for start, end in zip(starts, ends, strict=False)]


class _Index:
    """Index of a byte stream: offsets of the units of each frame."""

    def __init__(self, clip: Clip, settings: Settings) -> None:
        self.clip, self.settings = clip, settings
        self.units: list[tuple[int, int, int]] = []
        self.key: list[bool] = []
        self.recovery_frames: list[int] = []

    def add(self, packet: av.Packet[Any], start: int) -> bytes:
        """Adds the next picture, which starts at offset `start`; returns its byte stream."""
        frame, data = len(self.key), bytes(packet)
        if packet.pts != frame:
            words = f"found picture {packet.pts}, expected {frame}"
            raise VideoError(f"{self.clip.file}: the encoder gave its pictures out of order: {words}")
        places = units_of(data)
        codec = self.settings.codec
        kinds = [_core.nal_unit_kind(codec, data[offset : offset + min(length, 16)]) for offset, length in places]
        self.units += [(frame, start + offset, length) for offset, length in places]
        self.key.append(any(key for key, _ in kinds))
        later = [frames for _, frames in kinds if frames is not None]
        self.recovery_frames.append(0 if self.key[-1] else later[0] if later else -1)
        return data

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Returns the index as arrays."""
        frame, offset, length = np.array(self.units, np.int64).T
        return {
            "unit_frame": frame.astype(np.int32),
            "unit_offset": offset,
            "unit_bytes": length.astype(np.int32),
            "key": np.array(self.key, np.bool_),
            "recovery_frames": np.array(self.recovery_frames, np.int32),
        }


def _encoded(clip: Clip, file: Path, settings: Settings, progress: Callable[[int], None] | None) -> Encoded:
    index = _Index(clip, settings)
    with atomic_file(file) as aside:
        with aside.open("wb") as stream:
            for packet in _packets(clip, settings, progress):
                stream.write(index.add(packet, stream.tell()))
        if not index.key:
            raise VideoError(f"{clip.file}: found no pictures, expected a video")
        made = Encoded(file, settings, **index.arrays())
        _check_rate(made, clip)
    with atomic_file(_index(file)) as aside, aside.open("wb") as stream:
        np.savez(stream, allow_pickle=False, **index.arrays())
    return made


def _packets(clip: Clip, settings: Settings, progress: Callable[[int], None] | None) -> Iterator[av.Packet[Any]]:
    """Yields the encoded packets of a clip, one per picture."""
    context = _encoder(settings)
    number = coded = 0
    try:
        for number, planes in enumerate(clip.pictures((settings.width, settings.height), Fraction(settings.fps)), 1):
            if settings.time_code:
                timecode.draw(planes, number - 1)
            frame = av.VideoFrame.from_ndarray(planes, format="yuv420p")
            frame.pts = number - 1
            for packet in context.encode(frame):
                coded += 1
                yield packet
            if progress is not None:
                progress(number)
        for packet in context.encode(None):
            coded += 1
            yield packet
    except av.error.FFmpegError as error:
        words = f"{_CODECS[settings.codec]} refuses {asdict(settings)}: {error.strerror}"
        raise VideoError(f"{clip.file}: {words}") from error
    if coded != number:
        raise VideoError(f"{clip.file}: found {coded} encoded pictures, expected {number}, one each")


def _encoder(settings: Settings) -> av.VideoCodecContext:
    kbps = settings.rate_bps / 1000
    buffer_kbit = kbps * settings.buffer_frames / Fraction(settings.fps)
    parameters: dict[str, Any] = {
        "bitrate": round(kbps),
        "vbv-maxrate": round(kbps),
        "vbv-bufsize": max(1, round(buffer_kbit)),
        "keyint": settings.key_frames,
        "min-keyint": settings.key_frames,
        "scenecut": 0,
        "bframes": 0,
        "slices": settings.slices,
        "intra-refresh": int(settings.intra_refresh),
        "repeat-headers": 1,
    }
    if settings.codec == "h264":
        parameters |= {"sliced-threads": 0}
    else:
        # x265 makes slices only with wavefront processing (WPP), which needs a thread pool, even of one thread.
        cut = settings.slices > 1
        parameters |= {"frame-threads": 1, "pools": "1" if cut else "none", "wpp": int(cut), "open-gop": 0}
        parameters |= {"info": 0, "log-level": "none"}
    options = ":".join(f"{name}={value}" for name, value in parameters.items())
    name = _CODECS[settings.codec]
    context = cast("av.VideoCodecContext", av.CodecContext.create(name, "w"))
    context.width, context.height, context.pix_fmt = settings.width, settings.height, "yuv420p"
    context.framerate = Fraction(settings.fps)
    context.time_base = 1 / context.framerate
    context.thread_count = 1
    context.options = {"preset": settings.preset, "tune": "zerolatency", f"{name[3:]}-params": options}
    return context


def _check_rate(encoded: Encoded, clip: Clip) -> None:
    if encoded.mean_rate_bps <= _MAX_OVER * encoded.settings.rate_bps:
        return
    picture = f"{encoded.settings.width}×{encoded.settings.height} pixels, {float(encoded.fps):g} pictures a second"
    wanted, reached = rate_words(encoded.settings.rate_bps), rate_words(encoded.mean_rate_bps)
    raise VideoError(f"{clip.file}: found a rate of {wanted}, expected {reached}, which {picture} take at the coarsest")


def _read_cached(file: Path, settings: Settings) -> Encoded | None:
    """Returns the cached encoding, if complete."""
    try:
        with _index(file).open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            found = Encoded(file, settings, **arrays)
        size = file.stat().st_size
    except (OSError, EOFError, TypeError, ValueError, zipfile.BadZipFile):
        return None
    return found if size == found.unit_offset[-1] + found.unit_bytes[-1] else None


def _index(file: Path) -> Path:
    return file.with_suffix(f"{file.suffix}.npz")
