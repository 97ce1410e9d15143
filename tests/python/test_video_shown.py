"""How good the pictures of a flight were: what is known of its clip tells the same as decoding the flight."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from skybraid.model.errors import SkybraidError, VideoError
from skybraid.model.scenario import Scenario
from skybraid.video import clips, quality, shown
from skybraid.video.encode import Encoded
from skybraid.video.flows import encoded, received, with_clips
from skybraid_studies.engine.observe import RunData, observations
from skybraid_studies.engine.papers import FOLDER as STUDIES

FRAMES = 60
MS = 1_000_000


pytestmark = pytest.mark.usefixtures("own_cache")


def scenario(folder: Path, loss: str = "0%", clip: str = "flight.mkv", more: str = "") -> Scenario:
    text = f"""
duration = "3s"
[path.lte]
rate = "50Mbit/s"
delay = "40ms"
uplink.loss = {{ uniform = "{loss}" }}
[flow.video]
from = "vehicle"
traffic = {{ kind = "video", clip = "{clip}", rate = "600kbit/s"{more} }}
transport = {{ protocol = "udp" }}
"""
    return Scenario(text, str(folder / "scenario.toml"))


def flown(scenario: Scenario) -> RunData:
    return RunData(with_clips(scenario).run(1, ["frames"]), scenario)


def read(seen: RunData, name: str, **keys: float) -> float:
    known = {"flow": "video", "above": 0.5} | keys
    return observations()[name](seen, {key: known[key] for key in observations()[name].keys})


def made_of(folder: Path) -> tuple[clips.Clip, Encoded]:
    return encoded("video", scenario(folder).native.videos()["video"], folder)


@pytest.mark.parametrize("loss", ["0%", "2%"])
def test_frames_are_as_good_as_decoding_the_whole_flight_says(folder: Path, loss: str) -> None:
    one = scenario(folder, loss)
    seen, video = flown(one), one.native.videos()["video"]
    clip, made = made_of(folder)
    frames = seen.table("frames")
    of_shown = pl.col("shown_ns").is_not_null()
    assert (loss == "0%") == frames.filter(of_shown)["intact"].all()
    text = quality.measure(made, received(made, video, frames), source=clip).frames["source_ssim"]
    wanted = text.to_numpy()[frames.select(of_shown).to_series().to_numpy()]
    found = shown.similarity(clip, made, video, frames)
    assert np.array_equal(found, wanted)
    assert read(seen, "ssim_mean") == pytest.approx(wanted.mean())
    assert read(seen, "ssim_share", above=0.9) == pytest.approx(100 * (wanted > 0.9).mean())
    assert read(seen, "ssim_quantile", q=1.0) == wanted.max()


def test_what_was_worked_out_of_a_clip_is_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clip, made = made_of(folder)
    once = shown.encoded_similarity(clip, made)
    assert once.shape == (FRAMES,)
    monkeypatch.setattr(shown, "ssim", lambda *_: pytest.fail("worked out again"))
    assert np.array_equal(shown.encoded_similarity(clip, made), once)


def test_older_pictures_resemble_the_cameras_view_less(folder: Path) -> None:
    clip, made = made_of(folder)
    found = shown.aged_similarity(clip, made)
    assert np.array_equal(found[0], shown.encoded_similarity(clip, made)[[0, 31]])
    # The first frame has none before it, frame 31 those up to 31 frames ago.
    assert all(np.isnan(found[age][0]) for age in shown.AGES if age)
    known = [found[age][1] for age in shown.AGES if not np.isnan(found[age][1])]
    assert len(known) == sum(age <= 31 for age in shown.AGES)
    assert (np.diff(known[:5]) < 0).all()


def frames(shown_ms: list[float | None]) -> pl.DataFrame:
    """Frames taken each 100 ms."""
    at = pl.Series([None if time is None else round(time * MS) for time in shown_ms], dtype=pl.Int64)
    return pl.DataFrame(
        {"frame": range(len(shown_ms)), "captured_ns": [100 * MS * each for each in range(len(shown_ms))]}
    ).with_columns(at.alias("shown_ns"))


def test_a_screen_is_behind_by_the_frames_that_are_late() -> None:
    # Due at 150, 250, 350, 450, 550 and 650 ms; the third is 200 ms late, the fourth with it, the sixth never comes.
    table = frames([150, 250, 550, 550, 550, None])
    assert shown.screen_ages(table, 1e9).tolist() == [0, 0, 1, 2, 0, 1]
    # At 600 ms the flight has ended.
    assert shown.screen_ages(table, 600 * MS).tolist() == [0, 0, 1, 2, 0]
    assert shown.screen_ages(frames([None, None]), 1e9).size == 0


def test_a_timely_screen_shows_the_encoded_quality_a_late_one_less(folder: Path) -> None:
    in_time = flown(scenario(folder))
    clip, made = made_of(folder)
    fresh = shown.aged_similarity(clip, made)[0]
    assert read(in_time, "screen_ssim_mean") == pytest.approx(fresh.mean())
    assert read(in_time, "screen_ssim_share") == 100 * (fresh > 0.5).mean()
    slow = flown(scenario(folder).with_("path.lte.uplink.rate", "400kbit/s"))
    assert read(slow, "screen_ssim_mean") < read(in_time, "screen_ssim_mean")


def test_pictures_that_were_never_encoded_cannot_be_compared(folder: Path) -> None:
    with pytest.raises(SkybraidError, match=r"^flow\.video\.traffic: found no clip"):
        read(flown(scenario(folder, clip="model")), "ssim_mean")
    with pytest.raises(VideoError, match=r"^rate_control: "):
        read(flown(scenario(folder, more=', rate_control = { kind = "gcc" }')), "ssim_mean")


_WITHOUT_PYAV = """
import sys
sys.modules["av"] = None
from pathlib import Path
from skybraid_studies import Study, reproduce
(row,) = reproduce(Study(Path(sys.argv[1])), ["BAL-E20"], quick=True).rows
print(row.verdict, row.why)
"""


def test_without_the_extra_an_experiment_says_that_it_needs_it() -> None:
    study = STUDIES / "baltaci2023"
    result = subprocess.run(
        [sys.executable, "-c", _WITHOUT_PYAV, str(study)], capture_output=True, text=True, check=True
    ).stdout
    assert result.startswith("needs video ")
    assert "found no package av, expected it with pip install 'skybraid[video]'" in result
