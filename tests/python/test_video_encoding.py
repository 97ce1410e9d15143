"""Encoded clips: their rate, their frames, what is kept, and what a loss does to their pictures."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import av
import numpy as np
import polars as pl
import pytest
from skimage.metrics import peak_signal_noise_ratio, structural_similarity

from conftest import Command
from skybraid.model.errors import VideoError
from skybraid.video import cache, clips, quality, timecode
from skybraid.video import encode as room
from skybraid.video.decode import decode
from skybraid.video.encode import Encoded, Encoding, encode

WIDTH, HEIGHT, FRAMES = 240, 136, 75
RATE_BPS = 600e3

TYPE: dict[str, Callable[[bytes], int]] = {
    "h264": lambda unit: unit[0] & 0x1F,
    "h265": lambda unit: unit[0] >> 1 & 0x3F,
}
"""Type of a NAL unit (ITU-T H.264 7.3.1, H.265 7.3.1.2)."""

PARAMETER_SETS = {"h264": [7, 8], "h265": [32, 33, 34]}
"""SPS and PPS; VPS, SPS and PPS."""

Picture = np.ndarray[Any, np.dtype[np.uint8]]
Received = list[list[bytes] | None]


pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture(params=["h264", "h265"])
def encoded(request: pytest.FixtureRequest, clip: clips.Clip) -> Encoded:
    return encode(clip, Encoding(codec=request.param, rate_bps=RATE_BPS))


def sent(encoded: Encoded) -> Received:
    return [list(frame.units) for frame in encoded.frames]


def plainly_decoded(file: Path, codec: str) -> list[Picture]:
    """The pictures that PyAV makes of a byte stream by itself, damaged ones as well."""
    with av.open(str(file), format={"h264": "h264", "h265": "hevc"}[codec]) as container:
        context = container.streams.video[0].codec_context
        context.thread_count = 1
        context.flags |= av.codec.context.Flags.output_corrupt | av.codec.context.Flags.low_delay
        return [frame.to_ndarray().astype(np.uint8) for frame in container.decode(video=0)]


def test_a_frame_is_a_picture_and_the_rate_is_kept(encoded: Encoded) -> None:
    assert len(encoded) == FRAMES
    assert encoded.mean_rate_bps == pytest.approx(RATE_BPS, rel=0.05)
    assert [frame.captured_ns for frame in encoded.frames[:4]] == [0, 33_333_333, 66_666_667, 100_000_000]
    with av.open(str(encoded.file), format="hevc" if encoded.settings.codec == "h265" else "h264") as container:
        kinds = [av.video.frame.PictureType(frame.pict_type).name for frame in container.decode(video=0)]
    assert len(kinds) == FRAMES
    assert {kind for number, kind in enumerate(kinds) if number % 30} == {"P"}
    assert kinds[::30] == ["I", "I", "I"]


def test_a_key_frame_comes_each_second_with_its_parameter_sets(encoded: Encoded) -> None:
    assert np.flatnonzero(encoded.key).tolist() == [0, 30, 60]
    kind = TYPE[encoded.settings.codec]
    for number, frame in enumerate(encoded.frames):
        assert frame.key == (number % 30 == 0)
        assert frame.recovery_frames == (0 if frame.key else None)
        found = [kind(unit) for unit in frame.units]
        sets = PARAMETER_SETS[encoded.settings.codec]
        assert found[: len(sets)] == sets if frame.key else len(found) == 1


def test_the_index_tells_what_the_byte_stream_holds(encoded: Encoded) -> None:
    lengths = encoded.unit_lengths()
    assert lengths == [[len(unit) for unit in frame.units] for frame in encoded.frames]
    data = encoded.file.read_bytes()
    units = [unit for frame in encoded.frames for unit in frame.units]
    # Start codes have three bytes, or four before parameter sets and first slices (annex B).
    assert 3 * len(units) <= len(data) - sum(map(sum, lengths)) <= 4 * len(units)
    assert data.replace(b"\0\0\0\1", b"\0\0\1") == b"".join(b"\0\0\1" + unit for unit in units)


@pytest.mark.parametrize("buffer_frames", [3.0, 10.0])
def test_no_stretch_of_frames_is_larger_than_its_rate_and_the_buffer(clip: clips.Clip, buffer_frames: float) -> None:
    made = encode(clip, Encoding(rate_bps=RATE_BPS, buffer_frames=buffer_frames))
    sizes = np.array([8 * sum(frame) for frame in made.unit_lengths()])
    per_frame = RATE_BPS / 30
    ahead = np.concatenate(([0], np.cumsum(sizes - per_frame)))
    most = (ahead - np.minimum.accumulate(ahead)).max() / per_frame
    assert most <= buffer_frames
    assert sizes.max() <= (buffer_frames + 1) * per_frame


@pytest.mark.parametrize("codec", ["h264", "h265"])
def test_a_picture_is_cut_into_as_many_slices_as_asked(clip: clips.Clip, codec: str) -> None:
    made = encode(clip, Encoding(codec=codec, rate_bps=RATE_BPS, slices=2))
    slices = [[unit for unit in frame.units if TYPE[codec](unit) in (1, 5, 19, 20)] for frame in made.frames]
    assert {len(found) for found in slices} == {2}


def test_every_decoded_picture_is_numbered_even_at_a_low_rate(clip: clips.Clip) -> None:
    for codec in ("h264", "h265"):
        made = encode(clip, Encoding(codec=codec, rate_bps=60e3))
        codes = [(number, timecode.read(planes[:HEIGHT])) for number, planes in decode(made, sent(made))]
        assert codes == [(number, number) for number in range(FRAMES)]
    without = encode(clip, Encoding(rate_bps=RATE_BPS, time_code=False))
    assert {timecode.read(planes[:HEIGHT]) for _, planes in decode(without, sent(without))} == {None}


def test_what_was_encoded_is_found_again_and_another_setting_is_not(
    clip: clips.Clip, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {"rate_bps": 500e3, "fps": 10, "size": (128, 64)}
    first = encode(clip, Encoding(**settings))
    assert (len(first), float(first.fps), first.settings.width) == (FRAMES // 3, 10.0, 128)
    monkeypatch.setattr(room, "_encoder", None)
    again = encode(clip, Encoding(**settings))
    assert again.file == first.file
    assert again.unit_lengths() == first.unit_lengths()
    assert again.frames == first.frames
    for other in ({"rate_bps": 501e3}, {"slices": 2}, {"preset": "fast"}, {"time_code": False}):
        with pytest.raises(TypeError, match="not callable"):
            encode(clip, Encoding(**(settings | other)))


def test_what_was_kept_and_is_cut_short_is_made_again(clip: clips.Clip) -> None:
    first = encode(clip, Encoding(rate_bps=400e3))
    whole = first.file.read_bytes()
    first.file.write_bytes(whole[:-1])
    again = encode(clip, Encoding(rate_bps=400e3))
    assert again.file.read_bytes() == whole
    index = first.file.with_suffix(".h264.npz")
    for kept in (index.read_bytes()[:-100], b"", b"PK\3\4"):
        index.write_bytes(kept)
        assert encode(clip, Encoding(rate_bps=400e3)).unit_lengths() == first.unit_lengths()
    assert not list(cache.folder().glob(".*"))


def differing(pictures: dict[int, Picture], whole: dict[int, Picture]) -> list[int]:
    return [number for number in whole if number not in pictures or np.any(pictures[number] != whole[number])]


def test_without_loss_the_pictures_are_those_of_the_byte_stream(encoded: Encoded) -> None:
    pictures = list(decode(encoded, sent(encoded)))
    assert [number for number, _ in pictures] == list(range(FRAMES))
    plain = plainly_decoded(encoded.file, encoded.settings.codec)
    assert all(np.array_equal(ours, theirs) for (_, ours), theirs in zip(pictures, plain, strict=True))


@pytest.mark.parametrize("codec", ["h264", "h265"])
@pytest.mark.parametrize(("slices", "lost"), [(1, 40), (2, 40), (2, 0)])
def test_a_lost_unit_damages_like_its_absence_in_the_stream(
    clip: clips.Clip, codec: str, slices: int, lost: int, tmp_path: Path
) -> None:
    made = encode(clip, Encoding(codec=codec, rate_bps=RATE_BPS, slices=slices))
    received = sent(made)
    received[lost] = (received[lost] or [])[:-1]
    pictures = dict(decode(made, received))
    # The same loss as bytes cut out of the file: the frame's last unit with its start code, up to the next one's.
    data = made.file.read_bytes()
    first = data.rindex(b"\0\0\1", 0, int(made.unit_offset[made.unit_frame == lost][-1]))
    following = data.index(b"\0\0\1", first + 3)
    cut = tmp_path / "cut"
    cut.write_bytes(data[:first] + data[following:])
    plain = plainly_decoded(cut, codec)
    assert all(np.array_equal(ours, theirs) for ours, theirs in zip(pictures.values(), plain, strict=True))
    # What was lost, and all that was foretold from it, up to the next key frame.
    whole = dict(decode(made, sent(made)))
    broken = differing(pictures, whole)
    assert broken == list(range(lost, lost // 30 * 30 + 30))
    assert (lost in pictures) == (slices == 2)


def test_nothing_is_shown_before_the_first_key_frame_that_came(encoded: Encoded) -> None:
    received = sent(encoded)
    received[0] = None
    whole = dict(decode(encoded, sent(encoded)))
    pictures = dict(decode(encoded, received))
    assert sorted(pictures) == list(range(30, FRAMES))
    assert all(np.array_equal(picture, whole[number]) for number, picture in pictures.items())


def test_with_intra_refresh_a_loss_heals_by_the_recovery_point(clip: clips.Clip) -> None:
    made = encode(clip, Encoding(rate_bps=RATE_BPS, intra_refresh=True, key_every_s=0.5))
    assert np.flatnonzero(made.key).tolist() == [0]
    points = {number: later for number, later in enumerate(made.recovery_frames.tolist()) if later >= 0}
    assert list(points) == [0, 15, 30, 45, 60]
    received, whole = sent(made), dict(decode(made, sent(made)))
    received[20] = None
    pictures = dict(decode(made, received))
    broken = differing(pictures, whole)
    assert broken[:2] == [20, 21]
    assert 30 < broken[-1] < 30 + points[30]


def test_a_flight_goes_through_the_clip_again_and_again(encoded: Encoded) -> None:
    pictures = list(decode(encoded, sent(encoded) * 2))
    assert [number for number, _ in pictures] == list(range(2 * FRAMES))
    assert all(np.array_equal(pictures[n][1], pictures[n + FRAMES][1]) for n in range(FRAMES))


def noisy(seed: int, spread: int, shape: tuple[int, int] = (71, 93)) -> tuple[Picture, Picture]:
    rng = np.random.default_rng(seed)
    picture = rng.integers(0, 256, shape).astype(np.uint8)
    other = np.clip(picture + rng.integers(-spread, spread + 1, shape), 0, 255).astype(np.uint8)
    return picture, other


@pytest.mark.parametrize("spread", [1, 10, 255])
def test_ssim_and_psnr_are_those_of_scikit_image(spread: int) -> None:
    a, b = noisy(spread, spread)
    assert quality.ssim(a, b) == pytest.approx(structural_similarity(a, b), abs=1e-6)
    assert quality.psnr_db(a, b) == pytest.approx(peak_signal_noise_ratio(a, b), abs=1e-9)


def test_ssim_of_the_furthest_pictures_overflows_nowhere() -> None:
    black, white = np.zeros((40, 50), np.uint8), np.full((40, 50), 255, np.uint8)
    assert quality.ssim(black, white) == pytest.approx(structural_similarity(black, white), abs=1e-6)
    assert quality.ssim(white, white - 1) == pytest.approx(structural_similarity(white, white - 1), abs=1e-6)
    with pytest.raises(VideoError, match="equal shapes"):
        quality.ssim(black, white[:-1])


def test_a_screen_is_as_good_as_the_encoder_until_something_is_lost(clip: clips.Clip) -> None:
    made = encode(clip, Encoding(rate_bps=RATE_BPS))
    received = sent(made)
    received[40] = None
    seen = quality.measure(made, received, source=clip)
    rows, broken = seen.frames, pl.col("frame").is_between(40, 59)
    assert rows.height == FRAMES
    intact = rows.filter(~broken)
    assert intact["ssim"].to_list() == [1.0] * intact.height
    assert np.isinf(intact["psnr_db"].to_numpy()).all()
    assert intact["code"].to_list() == intact["frame"].to_list()
    assert intact["source_ssim"].is_between(0.7, 0.999).all()
    assert (rows.filter(broken)["ssim"] < 1).all()
    assert (rows.filter(broken)["source_ssim"] < 1).all()
    # The screen stands still for the frame that is missing.
    whole = dict(decode(made, sent(made)))
    still = rows.row(40, named=True)
    assert (still["decoded"], still["code"]) == (False, 39)
    assert still["ssim"] == pytest.approx(structural_similarity(whole[39][:HEIGHT], whole[40][:HEIGHT]), abs=1e-6)
    sampled = quality.measure(made, received, every_nth=7)
    assert sampled.every_nth == 7
    assert sampled.frames.drop("source_ssim", "source_psnr_db").equals(
        rows.gather_every(7).drop("source_ssim", "source_psnr_db")
    )


def test_a_rate_that_does_not_even_carry_the_headers_is_refused(clip: clips.Clip) -> None:
    # Eight slices of some eight bytes, 30 times a second, are 15 kbit/s.
    with pytest.raises(VideoError, match=r"found a rate of 5\.?0* kbit/s, expected .* kbit/s, which 240×136 pixels"):
        encode(clip, Encoding(rate_bps=5e3, slices=8))
    assert not list(cache.folder().glob(".*"))
    with pytest.raises(VideoError, match="5 kbit/s"):
        encode(clip, Encoding(rate_bps=5e3, slices=8))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"codec": "vp9"}, "codec: found vp9, expected one of h264, h265"),
        ({"preset": "placebo"}, "preset: found placebo, expected one of ultrafast"),
        ({"rate_bps": 4e3}, "rate: found .*, expected at least .* for 240×136 pixels, 30 times a second"),
        ({"size": (241, 136)}, "size: found 241×136, expected even numbers"),
        ({"fps": 0}, "fps: found 0"),
        ({"slices": 0}, "slices: found 0, expected 1 to 8"),
        ({"key_every_s": 0.0}, "key_every_s: found 0.0"),
        ({"buffer_frames": 0.5}, "buffer_frames: found 0.5, expected 1 to 1000"),
        ({"codec": "h265", "intra_refresh": True}, "intra_refresh: found codec h265, expected h264"),
    ],
)
def test_a_setting_without_meaning_is_refused_in_words(clip: clips.Clip, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(VideoError, match=words):
        encode(clip, Encoding(**({"rate_bps": RATE_BPS} | settings)))


def test_the_command_tells_what_was_encoded(skybraid: Command, clip: clips.Clip) -> None:
    made = encode(clip, Encoding(rate_bps=RATE_BPS))
    result = skybraid("video", "encode", clip.file, "--rate", "600kbit/s")
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[0].startswith("75 frames of 240×136 pixels, 2.500 s, ")
    assert result.stdout.splitlines()[1].startswith(f"3 key frames, {len(made.unit_bytes)} NAL units, largest frame ")
    assert result.stdout.splitlines()[2] == str(made.file)
    as_json = json.loads(skybraid("video", "encode", clip.file, "--rate", "0.6Mbit/s", "--json", "--quiet").stdout)
    assert as_json["rate_bps"] == pytest.approx(made.mean_rate_bps)
    for options, words in ((("--rate", "10"), "--rate: found 10"), (("--rate", "1Mbit/s", "--size", "big"), "--size")):
        refused = skybraid("video", "encode", clip.file, *options)
        assert refused.returncode == 2
        assert words in refused.stderr
