"""Clips flown and watched: what arrives decodes to what was sent, and a loss breaks what FFmpeg says that it breaks."""

import io
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image

import skybraid
from skybraid.model.errors import VideoError
from skybraid.model.results import Results
from skybraid.model.scenario import Scenario
from skybraid.model.statistics import Verdict
from skybraid.video import clips
from skybraid.video.decode import decode
from skybraid.video.encode import Encoding, encode
from skybraid.video.watch import QUALITY, beside, save, watch

WIDTH, HEIGHT, FRAMES = 240, 136, 60
RATE_BPS = 600e3


pytestmark = pytest.mark.usefixtures("own_cache")


def flown(folder: Path, loss: str, require: str = "[]", **traffic: object) -> Results:
    keys = "".join(f", {key} = {value}" for key, value in traffic.items())
    text = f"""
duration = "5s"
[path.lte]
rate = "50Mbit/s"
delay = "40ms"
uplink.loss = {{ uniform = "{loss}" }}
[flow.video]
from = "vehicle"
traffic = {{ kind = "video", clip = "flight.mkv", rate = "600kbit/s"{keys} }}
transport = {{ protocol = "udp" }}
require = {require}
"""
    return skybraid.run(Scenario(text, str(folder / "scenario.toml")), tables=["frames"])


def test_without_loss_the_screen_shows_what_the_encoder_made(folder: Path) -> None:
    seen = watch(flown(folder, "0%", '[{ ssim = 0.5, ssim_share = "95%" }]'))
    shown = seen.frames.filter(pl.col("decoded"))
    # Frames of the last 190 ms of the flight are on their way and no trials.
    assert (seen.frames.height, shown.height) == (145, 145)
    assert (shown["ssim"] == 1.0).all()
    assert shown["code"].to_list() == [number % FRAMES for number in range(145)]
    own = shown["source_ssim"].to_numpy()
    # The flight plays the clip over and over, and so does what it looks like.
    assert np.allclose(own[:FRAMES], own[FRAMES : 2 * FRAMES])
    (judged,) = seen.requirements
    # Five seconds of good pictures prove no 95 %.
    assert (judged.verdict, judged.estimate) == (Verdict.INCONCLUSIVE, 1)
    assert judged.trials == 145


def test_lost_packets_damage_the_frames_that_ffmpeg_damages(folder: Path) -> None:
    results = flown(folder, "1%", slices=4)
    frames = results.tables["frames"]
    assert frames.filter(pl.col("missing") != "").height > 3
    made = encode(clips.open_clip(folder / "flight.mkv"), Encoding(rate_bps=RATE_BPS, slices=4))
    counts = [
        sum(-(-max(unit - 1, 1) // 1186) if unit > 1188 else 1 for unit in units) for units in made.unit_lengths()
    ]
    assert frames["packets"].to_list() == [counts[number % FRAMES] for number in frames["frame"]]

    def units(number: int, missing: str, shown: bool) -> list[bytes] | None:
        if not shown:
            return None
        lost = {
            packet for run in missing.split() for packet in range(int(run.split("-")[0]), int(run.split("-")[-1]) + 1)
        }
        kept, first = [], 0
        for unit in made.units(number % FRAMES):
            packets = -(-(len(unit) - 1) // 1186) if len(unit) > 1188 else 1
            if lost.isdisjoint(range(first, first + packets)):
                kept.append(unit)
            first += packets
        return kept

    rows = frames.select("frame", "missing", pl.col("shown_ns").is_not_null()).iter_rows()
    by_hand = {number for number, _ in decode(made, (units(*row) for row in rows))}
    seen = watch(results)
    decoded = set(seen.frames.filter(pl.col("decoded"))["frame"].to_list())
    assert decoded == by_hand
    intact = set(frames.filter(pl.col("intact"))["frame"].to_list())
    whole = set(seen.frames.filter(pl.col("decoded") & (pl.col("ssim") == 1.0))["frame"].to_list())
    # The model takes no frame for undamaged that the decoder breaks, but for those that it holds back.
    assert len(intact - whole) <= len(intact) // 10
    assert not whole - intact


def test_the_camera_sends_what_the_encoder_made(folder: Path) -> None:
    frames = flown(folder, "0%").tables["frames"]
    made = encode(clips.open_clip(folder / "flight.mkv"), Encoding(rate_bps=RATE_BPS))
    assert frames["key"].to_list() == [bool(made.key[number % FRAMES]) for number in range(150)]
    lengths = made.unit_lengths()
    for number, size, packets in frames.select("frame", "bytes", "packets").iter_rows():
        units = lengths[number % FRAMES]
        # 12 bytes of RTP a packet; of a unit in fragments one byte goes and two come with each.
        cut = [(unit, -(-(unit - 1) // 1186)) for unit in units if unit > 1188]
        assert packets == len(units) - len(cut) + sum(count for _, count in cut)
        assert size == sum(units) + 12 * packets + sum(2 * count - 1 for _, count in cut)


@pytest.mark.parametrize(
    ("clip", "words"),
    [('"nowhere.mkv"', "nowhere.mkv"), ('"scenario.txt"', "scenario.txt")],
)
def test_a_clip_that_is_none_is_an_error_before_the_flight(folder: Path, clip: str, words: str) -> None:
    (folder / "scenario.txt").write_text("no film\n", encoding="utf-8")
    scenario = Scenario.build(
        {
            "duration": "5s",
            "path": {"lte": {"rate": "5Mbit/s", "delay": "40ms"}},
            "flow": {
                "video": {
                    "from": "vehicle",
                    "traffic": {"kind": "video", "clip": clip.strip('"'), "rate": "1Mbit/s"},
                    "transport": {"protocol": "udp"},
                }
            },
        },
        str(folder / "scenario.toml"),
    )
    with pytest.raises(VideoError, match=words) as raised:
        skybraid.run(scenario)
    assert str(raised.value).startswith("flow.video.traffic: ")


def test_a_rate_that_changed_was_never_encoded_and_cannot_be_watched(folder: Path) -> None:
    results = flown(folder, "0%", rate_control='{ kind = "gcc" }')
    with pytest.raises(VideoError, match="constant rate"):
        watch(results)


def test_a_model_has_no_pictures_to_watch(tmp_path: Path) -> None:
    text = """
duration = "2s"
[path.lte]
rate = "50Mbit/s"
delay = "40ms"
[flow.video]
from = "vehicle"
traffic = { kind = "video", rate = "1Mbit/s" }
transport = { protocol = "udp" }
"""
    results = skybraid.run(Scenario(text, str(tmp_path / "scenario.toml")), tables=["frames"])
    with pytest.raises(VideoError, match="has a clip"):
        watch(results)


def test_the_worst_moments_are_kept_apart_and_shown_in_the_report(folder: Path, tmp_path: Path) -> None:
    results = flown(folder, "2%").save(tmp_path / "result")
    seen = watch(results)
    save(seen, tmp_path / "result")
    (moments,) = seen.moments.values()
    frames = [moment.frame for moment in moments]
    assert frames
    assert all(later - earlier >= 30 for earlier, later in pairwise(frames))
    similar = dict(seen.frames.select("frame", "source_ssim").iter_rows())
    assert [moment.ssim for moment in moments] == [similar[frame] for frame in frames]
    assert min(similar.values()) == min(moment.ssim for moment in moments)
    for moment in moments:
        pictures = [Image.open(io.BytesIO(data)) for data in (moment.sent, moment.shown)]
        assert [picture.size for picture in pictures] == [(WIDTH, HEIGHT)] * 2
    page = Results.open(tmp_path / "result").report(tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.count("data:image/jpeg;base64,") == 2 * len(moments)
    assert "Worst moments" in page
    assert "Picture quality" in page
    table = pl.read_parquet(tmp_path / "result" / QUALITY)
    assert table.columns[:3] == ["flow", "seed", "frame"]
    assert "Worst moments" not in flown(folder, "2%").report(tmp_path / "plain.html").read_text(encoding="utf-8")


def test_two_flights_are_shown_next_to_the_original(folder: Path) -> None:
    plain, repaired = flown(folder, "3%"), flown(folder, "3%", repair='{ kind = "reed_solomon", share = "50%" }')
    drawn = beside(plain, repaired, rows=2)
    # Three columns and two rows of pictures, lines of words above each.
    assert drawn.width == 3 * (WIDTH + 4) + 4
    assert drawn.height == 18 + 2 * (HEIGHT + 18 + 4)
    left, middle, right = (
        np.asarray(drawn.crop((4 + place * (WIDTH + 4), 36, 4 + place * (WIDTH + 4) + WIDTH, 36 + HEIGHT)))
        for place in range(3)
    )
    assert np.abs(left.astype(int) - right).mean() < np.abs(left.astype(int) - middle).mean()
