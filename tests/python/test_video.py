"""Video flows in the simulator: what a camera sends, and what its receiver shows of it."""

import itertools
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from conftest import FILMED, Command
from skybraid import Results, Scenario, ScenarioError, Verdict, run, sweep
from skybraid.model.summary import VIDEO_COUNTS, VIDEO_MEASURES, video_words
from skybraid.show.explain import explain
from skybraid.show.frames import frames_of, freezes, rates
from skybraid.show.series import duration_s

ONE_LINK = """
name = "One fat link"
duration = "10s"

[path.lte]
rate = "1Gbit/s"
delay = "20ms"

[flow.video]
from = "vehicle"
traffic = { kind = "video", rate = "5Mbit/s", fps = 25 }
transport = { protocol = "udp" }
require = [{ frames = "75%", within = "300ms" }]
"""

SCENARIOS = Path(__file__).parents[2] / "scenarios"


def outage(at: str, length: str) -> str:
    return f'\n[[event]]\nat = "{at}"\npath.lte.down = "{length}"\n'


def flight(text: str = ONE_LINK, **keys: Any) -> tuple[dict[str, Any], pl.DataFrame]:
    """What the frames of the flow came to, and the frames."""
    results = run(Scenario(text).with_all(keys))
    video = results.flows["video"].video
    assert video is not None
    return video, results.tables["frames"]


# By hand: a packet of 1200 B, behind 28 B of IP and UDP, takes 9.824 µs at 1 Gbit/s, and 20 ms to the ground. The first
# of a frame is the soonest, so a frame is due after 20.009824 ms and the 150 ms of the jitter buffer.
DUE_NS = 20_009_824 + 150_000_000


def test_without_loss_every_frame_is_shown_when_due() -> None:
    video, frames = flight()
    # 25 frames a second; those of the last 170 ms are not due before the end.
    assert (video["frames"], video["complete"], video["intact"], video["shown"]) == (250, 250, 246, 246)
    assert frames["shown_ns"].null_count() == 4
    assert frames["latency_ns"].drop_nulls().unique().to_list() == [DUE_NS]
    assert (video["frame_rate"], video["worst_frame_rate"], video["freezes"]) == (25, 25, 0)
    assert video["longest_gap_s"] == pytest.approx(0.04)
    assert video["latency_ms"]["p50"] == pytest.approx(DUE_NS / 1e6, rel=1e-3)


@pytest.mark.parametrize("jitter_buffer_ms", [0, 40, 500])
def test_the_jitter_buffer_is_what_a_frame_waits(jitter_buffer_ms: int) -> None:
    keys = {"flow.video.traffic.jitter_buffer": f"{jitter_buffer_ms}ms", "flow.video.traffic.rate": "200kbit/s"}
    _, frames = flight(**keys)
    latency_ms = frames["latency_ns"].drop_nulls().to_numpy() / 1e6
    # Packets of one frame may follow one another by some microseconds.
    assert latency_ms.min() >= 20 + jitter_buffer_ms
    assert latency_ms.max() < 20.1 + jitter_buffer_ms


def test_a_second_of_video_has_its_encoders_rate_and_key_frame() -> None:
    _, frames = flight()
    payload = (frames["bytes"] - 12 * frames["packets"].cast(pl.UInt32)).cast(pl.Int64)
    assert payload.sum() * 8 / 10 == pytest.approx(5e6, rel=0.005)
    keys = frames["key"].to_list()
    assert [place for place, key in enumerate(keys) if key] == list(range(0, 250, 25))
    # Headers of fragments, 2 B for each of the NAL unit's 1, add less than 0.2 %.
    assert payload[0] / payload[1] == pytest.approx(4, rel=0.002)


def test_a_frame_is_sent_when_the_last_of_its_packets_is() -> None:
    _, at_once = flight()
    assert (at_once["sent_ns"] == at_once["captured_ns"]).all()
    _, spread = flight(**{"flow.video.traffic.spread": "20ms"})
    packets = spread["packets"].cast(pl.Int64)
    assert (spread["sent_ns"] - spread["captured_ns"]).to_list() == (20_000_000 // packets * (packets - 1)).to_list()


def test_a_lost_frame_damages_pictures_until_the_next_key_frame() -> None:
    # Frame 63 leaves at 2.52 s, alone in these 40 ms; the next key frame is 75.
    video, frames = flight(ONE_LINK + outage("2.49s", "40ms"))
    damaged = frames.filter(pl.col("shown_ns").is_not_null() & ~pl.col("intact"))
    assert damaged["frame"].to_list() == list(range(64, 75))
    lost = frames.row(63, named=True)
    assert (lost["arrived"], lost["shown_ns"], lost["complete"]) == (0, None, False)
    assert video["shown"] == 245
    # A picture that misses once stands for two intervals, 80 ms, which is no freeze.
    assert (video["freezes"], video["longest_gap_s"]) == (0, pytest.approx(0.08))


def test_a_key_frame_more_often_shortens_the_damage() -> None:
    _, frames = flight(ONE_LINK + outage("2.49s", "40ms"), **{"flow.video.traffic.key_every": "200ms"})
    damaged = frames.filter(pl.col("shown_ns").is_not_null() & ~pl.col("intact"))
    assert damaged["frame"].to_list() == [64]


def test_without_retransmission_a_freeze_is_as_long_as_the_outage() -> None:
    # Frames 75 to 124 are lost; 125, a key frame, is shown 51 intervals after 74.
    video, frames = flight(ONE_LINK + outage("3s", "2s"))
    assert frames["arrived"].eq(0).sum() == 50
    assert (video["freezes"], video["frozen_s"], video["worst_frame_rate"]) == (1, pytest.approx(2.04), 0)
    assert video["latency_ms"]["max"] == pytest.approx(DUE_NS / 1e6, rel=1e-3)
    # 9.83 s from the first picture on are nine whole seconds.
    assert video["freezes_per_minute"] == pytest.approx(60 / 9)


def test_over_mptcp_an_outage_freezes_the_picture_once() -> None:
    video, frames = flight(ONE_LINK + outage("3s", "2s"), **{"flow.video.transport.protocol": "mptcp"})
    assert (video["complete"], video["intact"], video["shown"]) == (250, 246, 246)
    assert video["freezes"] == 1
    assert video["frozen_s"] > 2
    # In the first second the windows are still small.
    before, after = (frames.filter(pl.col("frame").is_between(*span)) for span in ((25, 74), (225, 245)))
    assert after["latency_ns"].unique().to_list() == before["latency_ns"].unique().to_list()
    # A byte stream has RFC 4571's two bytes of length before each packet.
    assert frames["bytes"][0] == flight()[1]["bytes"][0] + 2 * frames["packets"][0]


def test_a_picture_that_stands_still_at_the_end_has_frozen() -> None:
    video, frames = flight(ONE_LINK + outage("8s", "2s"))
    assert video["freezes"] == 1
    last = frames["shown_ns"].drop_nulls()[-1] * 1e-9
    assert video["frozen_s"] == pytest.approx(10 - last)
    assert freezes(frames, 10.0) == [pytest.approx((last, 10.0))]


def checked(results: Results) -> None:
    """What holds of every table of frames, and that the summary and the figures say the same."""
    video, frames = results.flows["video"].video, frames_of(results, "video")
    assert video is not None
    assert frames["frame"].to_list() == list(range(frames.height))
    fps = tomllib.loads(results.scenario)["flow"]["video"]["traffic"]["fps"]
    assert frames["captured_ns"].to_list() == [number * 1_000_000_000 // fps for number in range(frames.height)]
    shown = frames.filter(pl.col("shown_ns").is_not_null())
    whole = frames.filter("complete")
    assert (frames["arrived"] <= frames["packets"]).all()
    assert (whole["arrived"] == whole["packets"]).all()
    assert (frames.filter(~pl.col("complete"))["arrived"] < frames.filter(~pl.col("complete"))["packets"]).all()
    # What is undamaged is whole and was shown.
    assert frames.filter(pl.col("intact") & ~(pl.col("complete") & pl.col("shown_ns").is_not_null())).is_empty()
    assert (frames["arrived"].eq(0) == frames["first_ns"].is_null()).all()
    assert (frames["arrived"].eq(0) == frames["last_ns"].is_null()).all()
    assert (shown["sent_ns"] >= shown["captured_ns"]).all()
    assert whole.filter(pl.col("repaired").eq(0) & (pl.col("last_ns") <= pl.col("sent_ns"))).is_empty()
    assert (shown["first_ns"] > shown["captured_ns"]).all()
    assert (shown["first_ns"] <= shown["last_ns"]).all()
    assert (shown["last_ns"] <= shown["shown_ns"]).all()
    # Frames are shown in their order.
    assert shown["shown_ns"].is_sorted()
    assert (shown["latency_ns"] == shown["shown_ns"] - shown["captured_ns"]).all()
    assert (shown["latency_ns"] >= 0).all()
    assert shown["gap_ns"].to_list() == [None, *shown["shown_ns"].diff()[1:]]
    assert frames["latency_ns"].null_count() == frames.height - shown.height

    counts = (frames.height, whole.height, frames["intact"].sum(), shown.height)
    assert (video["frames"], video["complete"], video["intact"], video["shown"]) == counts
    by_second = rates(frames, duration_s(results), columns=10_000)["rate_mean"].to_numpy()
    assert video["worst_frame_rate"] == by_second.min()
    assert video["frame_rate"] == pytest.approx(by_second.mean())
    spans = freezes(frames, duration_s(results))
    assert video["freezes"] == len(spans)
    assert video["frozen_s"] == pytest.approx(sum(end - begin for begin, end in spans))
    longest_ms = np.max(shown["latency_ns"].to_numpy()) / 1e6
    assert video["latency_ms"]["max"] == pytest.approx(longest_ms, rel=2e-3)
    required = next(one for one in results.requirements if one.metric == "frames")
    assert required.deadline_ms is not None
    within = round(required.deadline_ms * 1e6)
    due = frames.filter(pl.col("captured_ns") + within <= round(duration_s(results) * 1e9))
    in_time = due.filter(pl.col("intact") & (pl.col("latency_ns") <= within)).height
    assert required.trials == due.height
    assert required.estimate == pytest.approx(in_time / due.height)


@pytest.mark.parametrize("protocol", ["udp", "mptcp", "mp_dccp"])
@pytest.mark.parametrize("fps", [30, 25])
def test_every_table_of_frames_keeps_its_laws(protocol: str, fps: int) -> None:
    keys = {"flow.video.transport.protocol": protocol, "flow.video.traffic.fps": fps}
    scenario = Scenario(FILMED).with_all(keys | {"flow.video.transport.scheduler": "low_rtt"})
    for seed in range(1, 6):
        checked(run(scenario, seed=seed, tables=["frames"]))


@pytest.mark.parametrize("seed", range(1, 4))
def test_so_do_those_of_links_that_delay_and_lose_as_measured(seed: int) -> None:
    checked(run(SCENARIOS / "video.toml", seed=seed, tables=["frames"]))


def test_several_seeds_have_their_frames_side_by_side_and_add_up() -> None:
    results = run(Scenario(FILMED), seeds=[1, 2, 3], tables=["frames"])
    frames, video = results.tables["frames"], results.flows["video"].video
    assert video is not None
    assert frames["seed"].unique().sort().to_list() == [1, 2, 3]
    assert video["frames"] == frames.height == 3 * 250
    each = [flight.flows["video"].video for flight in results.flights]
    assert video["freezes"] == sum(one["freezes"] for one in each if one)
    judged = next(one for one in results.requirements if one.metric == "frame_rate")
    assert judged.trials == 3
    assert judged.estimate == pytest.approx(np.mean([one["frame_rate"] for one in each if one]))


def test_a_flow_that_is_no_video_has_no_frames(filmed: Results, flown: Results) -> None:
    assert filmed.tables["frames"]["flow"].unique().to_list() == ["video"]
    assert filmed.flows["control"].video is None
    assert "frames" not in flown.tables
    assert flown.flows["video"].video is None
    assert "frames" not in flown.flows_frame().columns


def test_opened_again_a_video_is_the_same(filmed: Results) -> None:
    assert filmed.folder is not None
    opened = Results.open(filmed.folder)
    assert opened.flows == filmed.flows
    assert opened.tables["frames"].equals(filmed.tables["frames"])
    flows = opened.flows_frame()
    video = filmed.flows["video"].video
    assert video is not None
    row = flows.filter(pl.col("flow") == "video").row(0, named=True)
    assert (row["frames"], row["frames_shown"], row["frames_intact"]) == (250, video["shown"], video["intact"])
    assert row["frame_latency_p99_ms"] == video["latency_ms"]["p99"]
    others = flows.filter(pl.col("flow") == "control").row(0, named=True)
    assert all(others[name] is None for name in (*VIDEO_COUNTS, *VIDEO_MEASURES))


def test_a_campaign_keeps_what_a_flight_showed_of_its_frames(tmp_path: Path) -> None:
    scenario = Scenario(FILMED, "filmed.toml").with_("duration", "5s")
    campaign = sweep(
        scenario, vary={"flow.video.traffic.rate": ["2Mbit/s", "4Mbit/s"]}, seeds=[7, 8], out=tmp_path / "c", workers=1
    )
    rows = campaign.scan("flows").filter(pl.col("flow") == "video", pl.col("seed") == 8).sort("point").collect()
    alone = run(scenario.with_("flow.video.traffic.rate", "4Mbit/s"), seed=8, tables=())
    video, row = alone.flows["video"].video, rows.row(1, named=True)
    assert video is not None
    assert (row["frames"], row["frames_shown"], row["frames_intact"]) == (125, video["shown"], video["intact"])
    assert row["intact_share"] == video["intact"] / 125
    for name in ("frame_rate", "worst_frame_rate", "freezes_per_minute"):
        assert row[name] == video[name]
    control = campaign.scan("flows").filter(pl.col("flow") == "control").collect()
    assert all(control[name].null_count() == control.height for name in (*VIDEO_COUNTS, *VIDEO_MEASURES))
    required = campaign.scan("requirements").filter(pl.col("flow") == "video", point=1, seed=8).collect()
    found = {one["metric"]: one for one in required.to_dicts()}
    for requirement in alone.requirements:
        if requirement.flow == "video":
            assert found[requirement.metric]["estimate"] == requirement.estimate
    assert found["frames"]["met"] == round(found["frames"]["estimate"] * found["frames"]["trials"])


def test_the_terminal_says_what_came_to_the_screen(skybraid: Command, tmp_path: Path) -> None:
    (tmp_path / "one.toml").write_text(ONE_LINK, encoding="utf-8")
    printed = skybraid("run", "one.toml", "--summary")
    assert printed.returncode == 0, printed.stderr
    assert "  video: met. 100 % of 243 frames were shown undamaged within 300 ms" in printed.stdout
    assert (
        "  video: 246 of 250 frames shown, 98.4 % of all undamaged; 25 frames/s, 0 freezes/min; from camera to screen "
        "170 ms (median), 170 ms (p99).\n"
    ) in printed.stdout


def test_a_video_is_measured_against_its_encoders_rate() -> None:
    (explained,) = explain(run(Scenario(ONE_LINK)))
    assert explained.offered_bps == 5e6
    assert explained.findings == []


def test_a_video_of_which_nothing_came_says_so() -> None:
    video, _ = flight(ONE_LINK + outage("0s", "9.99s"))
    assert video_words(video) == "none of 250 frames was shown"
    results = run(Scenario(ONE_LINK + outage("0s", "9.99s")))
    (required,) = results.requirements
    assert (required.verdict, required.estimate) == (Verdict.NOT_MET, 0)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("traffic.fps", 0, "found 0, expected 1 to 240"),
        ("traffic.slices", 65, "found 65, expected 1 to 64"),
        ("traffic.packet", "50B", "expected 100 to 65000"),
        ("traffic.codec", "vp8", "codec"),
        ("traffic.repair", {"kind": "fountain"}, "unknown kind `fountain`"),
        ("traffic.repair", {"kind": "xor", "share": "0%"}, r"traffic\.repair\.share: .* above 0 %"),
        ("traffic.repair", {"kind": "xor", "fails": "1%"}, r'kind = "reed_solomon"'),
        ("traffic.rate_control", {"kind": "gcc", "pacing": 0}, r"traffic\.rate_control\.pacing: .* 1 to 1000"),
        ("traffic.start_rate", "500Mbit/s", "in order"),
        ("traffic.drop_after", "0s", "above zero"),
        ("require", [{"frames": "95%"}], "together with `within`"),
        ("require", [{"within": "300ms"}], "together with `frames`"),
        ("require", [{"frame_rate": 0}], "above zero"),
        ("require", [{"ssim": 0.5}], "together with `ssim_share`"),
    ],
)
def test_what_makes_no_sense_of_a_video_is_refused(key: str, value: object, words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        Scenario(ONE_LINK).with_(f"flow.video.{key}", value)


def test_only_a_video_takes_the_requirements_of_one() -> None:
    for requirement in ({"frames": "95%", "within": "1s"}, {"frame_rate": 20.0}, {"freezes": 1.0}):
        keys = {"flow.video.traffic": {"kind": "cbr", "rate": "1Mbit/s", "packet": "1000B"}}
        with pytest.raises(ScenarioError, match=r'expected `traffic\.kind = "video"`'):
            Scenario(ONE_LINK).with_all({**keys, "flow.video.require": [requirement]})


def test_rates_count_whole_seconds_from_the_first_picture() -> None:
    shown_ns = [int(1e9 * at) for at in itertools.chain(np.arange(0.25, 1.2, 0.5), [2.0, 2.1, 2.2, 3.3])]
    frames = pl.DataFrame({"shown_ns": [*shown_ns, None]})
    found = rates(frames, 3.4, columns=100)
    # From 0.25 s: two until 1.25, three until 2.25, none until 3.25; the rest is no whole second.
    assert found["time_s"].to_list() == pytest.approx([0.25, 1.25, 2.25])
    assert found["rate_mean"].to_list() == [2, 3, 0]
