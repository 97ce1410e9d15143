"""The built-in clips, files of a user's own, and the number in the picture."""

import binascii
import importlib
import sys
import wave
from collections.abc import Iterator
from fractions import Fraction
from itertools import islice, pairwise
from pathlib import Path

import av
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import Command
from skybraid.model.errors import MissingExtraError, VideoError
from skybraid.video import cache, clips, terrain, timecode
from skybraid.video.flight import DURATION_S, Flight

WIDTH, HEIGHT = 240, 136


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> clips.Clip:
    """The first second of the flight, small."""
    file = tmp_path_factory.mktemp("clips") / "second.mkv"
    clips.render(file, WIDTH, HEIGHT, 1.0)
    return clips.open_clip(file)


def test_a_flight_is_drawn_alike_each_time(second: clips.Clip, tmp_path: Path) -> None:
    again = tmp_path / "again.mkv"
    clips.render(again, WIDTH, HEIGHT, 1.0)
    assert again.read_bytes() == second.file.read_bytes()
    assert clips.open_clip(again).digest() == second.digest()


def test_the_flight_moves_banks_and_lands() -> None:
    flight = Flight(WIDTH, HEIGHT)
    times = np.arange(0.0, DURATION_S, 0.5)
    pictures = [flight.picture(time_s) for time_s in times]
    assert {picture.shape for picture in pictures} == {(HEIGHT * 3 // 2, WIDTH)}
    assert all(np.any(a != b) for a, b in pairwise(pictures))
    # Blue sky above, by its chroma; a bank is a horizon that lies lower on one side.
    blue = np.array([picture[HEIGHT:].reshape(2, HEIGHT // 2, WIDTH // 2)[0] for picture in pictures])
    sky = blue > 134
    lower = sky[:, :, : WIDTH // 8].sum((1, 2)) - sky[:, :, -WIDTH // 8 :].sum((1, 2))
    assert lower.min() < -200
    assert lower.max() > 200
    # On the ground the asphalt's grey is around the middle of the picture's lower edge.
    assert np.abs(blue[-1, -8:, WIDTH // 4 - 8 : WIDTH // 4 + 8].astype(int) - 128).max() <= 3


def test_a_surface_is_interpolated_and_wraps_at_its_edge() -> None:
    picture = np.zeros((4, 4), np.uint8)
    picture[0, 0], picture[0, 1], picture[1, 0] = 80, 160, 40
    surface = terrain.Surface(picture, texel_m=2.0)

    def at(east_m: float, north_m: float, pixel_m: float = 2.0) -> float:
        places = (np.array([value], np.float32) for value in (east_m, north_m, pixel_m))
        return float(surface.at(*places)[0][0])

    assert [at(0, 0), at(2, 0), at(0, 2)] == [80, 160, 40]
    assert [at(1, 0), at(0, 1), at(1, 1)] == [120, 60, (80 + 160 + 40 + 0) / 4]
    assert [at(8, 0), at(-8, 16), at(-1, 0)] == [80, 80, 40]
    # From far away, what is seen is the mean of all.
    assert at(3, 5, pixel_m=100.0) == pytest.approx(picture.mean(), abs=1)


def test_a_built_in_clip_is_drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(clips.BUILT_IN, "short", clips.BuiltIn(WIDTH, HEIGHT, 0.2))
    shares: list[float] = []
    drawn = clips.open_clip("short", shares.append)
    assert shares == pytest.approx([1 / 6, 2 / 6, 3 / 6, 4 / 6, 5 / 6, 1])
    assert (drawn.width, drawn.height, float(drawn.fps)) == (WIDTH, HEIGHT, 30.0)
    assert drawn.file.parent == cache.folder()
    monkeypatch.setattr(clips, "render", None)
    assert clips.open_clip("short") == drawn
    assert [file.name for file in cache.folder().iterdir()] == [drawn.file.name]


def test_a_clip_that_is_broken_off_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(clips.BUILT_IN, "short", clips.BuiltIn(WIDTH, HEIGHT, 0.2))

    def stop(share: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        clips.open_clip("short", stop)
    assert list(cache.folder().iterdir()) == []


def test_another_frame_rate_takes_the_nearest_pictures(second: clips.Clip) -> None:
    every = list(second.pictures())
    assert len(every) == 30
    half = list(second.pictures(fps=Fraction(15)))
    assert len(half) == 15
    assert all(np.array_equal(a, b) for a, b in zip(half, every[::2], strict=True))
    double = list(second.pictures(fps=Fraction(60)))
    assert len(double) in (59, 60)
    assert all(any(np.array_equal(a, b) for b in every[n // 2 : n // 2 + 2]) for n, a in enumerate(double))


def test_a_picture_may_be_drawn_into_and_resized(second: clips.Clip) -> None:
    for picture in islice(second.pictures(fps=Fraction(60)), 4):
        assert picture.max() > 0
        picture[:] = 0
    assert next(second.pictures((120, 68))).shape == (102, 120)


def broken(folder: Path) -> Iterator[tuple[Path, str]]:
    """Files that are no clips, with what is said of them."""
    text = folder / "notes.txt"
    text.write_text("not a video", encoding="utf-8")
    sound = folder / "sound.wav"
    with wave.open(str(sound), "wb") as file:
        file.setparams((1, 2, 8000, 0, "NONE", ""))
        file.writeframes(bytes(1600))
    yield folder / "missing.mp4", "no such file"
    yield folder, "a folder"
    yield text, "FFmpeg cannot read"
    yield sound, "audio and no pictures"


def test_what_is_no_clip_is_named_with_what_was_found(tmp_path: Path) -> None:
    for file, found in broken(tmp_path):
        with pytest.raises(VideoError, match=f"{file}: found .*{found}.*, expected a video"):
            clips.open_clip(file)


def test_without_pyav_the_words_say_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    monkeypatch.delitem(sys.modules, "skybraid.video.pyav")
    with pytest.raises(MissingExtraError, match=r"no package av, .* pip install 'skybraid\[video\]'"):
        _ = importlib.import_module("skybraid.video.pyav").av.open


def blank(
    level: int = 128, width: int = WIDTH, height: int = HEIGHT
) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
    return np.full((height * 3 // 2, width), level, np.uint8)


@given(number=st.integers(0, 2**timecode.BITS - 1), width=st.sampled_from([128, 480, 1920]))
def test_a_number_that_was_drawn_is_read_again(number: int, width: int) -> None:
    planes = blank(width=width)
    timecode.draw(planes, number)
    assert timecode.read(planes[:HEIGHT]) == number


def test_the_code_is_the_number_with_its_crc_in_squares() -> None:
    # Source: the check value of CRC-16/CCITT-FALSE (IBM-3740) in the catalogue of parametrised CRC algorithms.
    assert binascii.crc_hqx(b"123456789", 0xFFFF) == 0x29B1
    planes = blank()
    timecode.draw(planes, 0x123456789ABC)
    squares = planes[4:32:8, 4:128:8] > 128
    rows = [int("".join("01"[int(bit)] for bit in row), 2) for row in squares]
    assert rows == [0x1234, 0x5678, 0x9ABC, binascii.crc_hqx(bytes.fromhex("123456789ABC"), 0xFFFF)]
    assert timecode.square(1920) == 16
    assert (planes[HEIGHT:].reshape(2, HEIGHT // 2, WIDTH // 2)[:, :16, :64] == 128).all()


@pytest.mark.parametrize("level", [0, 16, 128, 235, 255])
def test_a_plain_picture_shows_no_number(level: int) -> None:
    assert timecode.read(blank(level)[:HEIGHT]) is None


def test_a_number_is_not_read_from_a_damaged_code() -> None:
    for row in range(4):
        for column in range(16):
            planes = blank()
            timecode.draw(planes, 42)
            square = planes[8 * row : 8 * row + 8, 8 * column : 8 * column + 8]
            square[:] = 255 - square
            assert timecode.read(planes[:HEIGHT]) is None
            square[:] = 130
            assert timecode.read(planes[:HEIGHT]) is None


def test_a_code_needs_room_and_a_number_of_48_bits() -> None:
    with pytest.raises(VideoError, match="found 120×136 pixels, expected at least 128×32"):
        timecode.draw(blank(width=120), 1)
    with pytest.raises(VideoError, match="expected 0 to 2"):
        timecode.draw(blank(), 2**48)
    assert timecode.read(blank(width=120)[:HEIGHT]) is None


def test_the_command_lists_the_frames_that_a_recording_shows(skybraid: Command, tmp_path: Path) -> None:
    file = tmp_path / "recording.mkv"
    with av.open(str(file), "w") as container:
        stream = container.add_stream("libx264", rate=30, options={"qp": "30"})
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        for number in (7, None, 2**40):
            planes = blank()
            if number is not None:
                timecode.draw(planes, number)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(planes, format="yuv420p")))
        container.mux(stream.encode(None))
    result = skybraid("video", "read-time", file)
    assert result.stderr == ""
    assert result.stdout.splitlines() == ["picture,code", "0,7", "1,", f"2,{2**40}"]
    other = skybraid("video", "clip", "flight-270", "--out", tmp_path / "flight.y4m")
    assert (other.returncode, "expected a name that ends in .mkv" in other.stderr) == (2, True)
    unknown = skybraid("video", "clip", "orbit", "--out", tmp_path / "orbit.mkv")
    assert unknown.returncode == 2
    assert unknown.stderr == "error: clip: found orbit, expected one of flight, flight-540, flight-270\n"
