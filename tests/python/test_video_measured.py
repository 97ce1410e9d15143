"""Video among what is compared: schedulers side by side, two scenarios in pairs, campaigns and their questions."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import skybraid
from conftest import FILM, FILMED, Command
from skybraid import Campaign, ResultError, Results, ScenarioError, Verdict
from skybraid.execute import overview as summary
from skybraid.execute.compare import compare, text
from skybraid.execute.pairs import Difference, Paired
from skybraid.execute.until import question
from skybraid.model.episodes import RunShare, share_interval
from skybraid.model.measures import MEASURES
from skybraid.model.statistics import mean_interval
from skybraid.model.summary import FRAMES_IN_TIME, VIDEO_COUNTS, VIDEO_MEASURES
from skybraid.show import plots
from skybraid.show.report.points import judged

DARK = FILM.with_("event", [{"at": "1s", "path": {"near": {"down": "1s"}, "far": {"down": "1s"}}}])

VIDEO_COLUMNS = (*VIDEO_COUNTS, *VIDEO_MEASURES, *FRAMES_IN_TIME)


@pytest.fixture(scope="module")
def results() -> Results:
    return skybraid.run(FILM, seeds=[1, 2], tables=())


# Schedulers side by side.


def test_a_row_of_a_comparison_tells_of_a_video_what_a_run_tells() -> None:
    frame = compare(FILM, flows=["video"], protocols=["udp"], schedulers=["redundant", "round_robin"], seed=2)
    results = skybraid.run(FILM, seed=2, tables=())
    row = frame.filter(flow="video", scheduler="round_robin").row(0, named=True)
    video, required = results.flows["video"].video, results.requirements[0]
    assert video is not None
    assert (row["frames"], row["frames_intact"]) == (video["frames"], video["intact"])
    assert (row["frames_within_ms"], row["frames_in_time"]) == (300.0, required.estimate)
    assert row["frames_due"] == required.trials
    assert row["frame_latency_p95_ms"] == video["latency_ms"]["p95"]
    control = frame.filter(flow="control")
    assert all(control[name].null_count() == control.height for name in VIDEO_COLUMNS)


def test_the_text_has_frames_of_video_and_messages_of_others() -> None:
    frame = compare(FILM, flows=["video"], protocols=["udp"], schedulers=["redundant"])
    _, titles, line = text(frame).splitlines()
    assert titles.split("  ")[0] == "protocol"
    for title in ("frames in 300 ms", "frames/s", "worst", "freezes/min", "in 100 ms"):
        assert titles.count(title) == 1
    # A camera of 25 frames a second over two paths, one of which loses nothing.
    assert line.split()[3:5] == ["100.000", "%"]
    assert " 25.00   25.0         0.00 " in line


def test_without_a_requirement_of_frames_all_that_were_taken_count() -> None:
    frame = compare(FILM.with_("flow.video.require", []), flows=["video"], protocols=["udp"], schedulers=["redundant"])
    row = frame.filter(flow="video").row(0, named=True)
    assert (row["frames_within_ms"], row["frames_met"], row["frames_due"]) == (None, row["frames_intact"], 75)
    assert "undamaged" in text(frame)


def test_without_video_a_comparison_has_no_columns_of_it() -> None:
    keys = {"flow.video.traffic": {"kind": "cbr", "rate": "1Mbit/s", "packet": "1000B"}, "flow.video.require": []}
    frame = compare(FILM.with_all(keys), protocols=["udp"], schedulers=["single"])
    assert not set(VIDEO_COLUMNS) & set(frame.columns)


# In pairs.


def difference(found: Paired, metric: str) -> Difference:
    (one,) = (one for one in found.differences if (one.flow, one.metric) == ("video", metric))
    return one


def test_a_link_that_is_longer_shows_every_frame_later_by_as_much() -> None:
    # A frame is due after the least transit: 30 ms more on both paths are 30 ms more on the screen.
    longer = FILM.with_all({"path.near.delay": "50ms", "path.far.delay": "90ms"})
    found = skybraid.paired(FILM, longer, seeds=[1, 2, 3])
    for name in ("p50", "p95", "p99"):
        # Percentiles have a resolution of 0.1 %.
        assert difference(found, f"frame_latency_{name}_ms").difference == pytest.approx(30, abs=0.5)
    assert difference(found, "frame_rate").words == "video, frame rate: equal in all 3 pairs"
    assert {one.metric for one in found.differences if one.flow == "video"} == {
        measure.column for measure in MEASURES if measure.listed
    }
    assert not any("frame" in one.metric for one in found.differences if one.flow == "control")


def test_a_second_without_paths_freezes_the_picture_once() -> None:
    found = skybraid.paired(FILM, DARK, seeds=[1, 2, 3])
    worst, freezes, share = (
        difference(found, metric) for metric in ("worst_frame_rate", "freezes_per_minute", "frames_in_time")
    )
    # From the first picture, after 170 ms, to the end there are two whole seconds.
    assert (freezes.mean_a, freezes.mean_b) == (0, 30)
    assert (
        freezes.words
        == "video, freezes: 30 freezes/min higher in B (95 % interval +30 freezes/min to +30 freezes/min, 3 pairs)"
    )
    assert (worst.mean_a, worst.words.startswith("video, frame rate of the worst second: ")) == (25, True)
    assert worst.mean_b < 5
    assert worst.words.endswith(" frames/s, 3 pairs)")
    assert share.deadline_ms == 300
    assert share.words.startswith("video, frames shown undamaged within 300 ms: ")
    assert " percentage points, 3 pairs)" in share.words


def test_results_campaigns_and_scenarios_tell_the_same_of_a_video(results: Results, tmp_path: Path) -> None:
    campaign = skybraid.sweep(FILM, seeds=[1, 2], out=tmp_path / "c", workers=1)
    for other in (campaign, FILM):
        found = skybraid.paired(results, other)
        assert len([one for one in found.differences if one.flow == "video"]) == 11
        assert {one.difference for one in found.differences} == {0}


# Campaigns.


def test_a_campaign_counts_frames_by_the_strictest_requirement(shot: Campaign) -> None:
    flows = shot.scan("flows").filter(pl.col("flow") == "video").sort("point", "seed").collect()
    required = shot.scan("requirements").filter(metric="frames", deadline_ms=300.0).sort("point", "seed").collect()
    assert flows["frames_within_ms"].unique().to_list() == [300.0]
    assert flows["frames_met"].to_list() == required["met"].to_list()
    assert flows["frames_due"].to_list() == required["trials"].to_list()
    assert flows["frames_in_time"].to_list() == required["estimate"].to_list()
    control = shot.scan("flows").filter(pl.col("flow") == "control").collect()
    assert all(control[name].null_count() == control.height for name in VIDEO_COLUMNS)


def test_the_threshold_of_an_ssim_is_kept_beside_its_target(shot: Campaign, results: Results, tmp_path: Path) -> None:
    required = shot.scan("requirements").filter(pl.col("point") == 0, pl.col("seed") == 1).collect()
    found = required.filter(metric="ssim").select("target", "ssim", "trials").rows()
    assert found == [(0.95, 0.5, 0), (0.5, 0.8, 0)]
    assert required.filter(pl.col("metric") != "ssim")["ssim"].null_count() == required.height - 2
    own = results.summary_frame().filter(pl.col("seed").is_null(), metric="ssim")
    assert own.select("target", "ssim").rows() == [(0.95, 0.5), (0.5, 0.8)]
    results.save(tmp_path / "result")
    assert pl.read_parquet(tmp_path / "result" / "summary.parquet")["ssim"].drop_nulls().to_list() == [0.5, 0.8] * 3
    words = {one.wanted.words for one in judged(required)}
    assert {"video: 95 % of frames of an SSIM of 0.5", "video: 50 % of frames of an SSIM of 0.8"} <= words


def test_the_summary_has_the_frames_of_all_runs_with_their_interval(shot: Campaign) -> None:
    row = shot.summary().filter(pl.col("flow") == "video", pl.col("point") == 1).row(0, named=True)
    runs = shot.scan("flows").filter(pl.col("flow") == "video", pl.col("point") == 1).sort("seed").collect()
    met, due = runs["frames_met"].to_list(), runs["frames_due"].to_list()
    assert (row["frames_met"], row["frames_due"], row["frames_within_ms"]) == (sum(met), sum(due), 300.0)
    assert row["frames_in_time"] == sum(met) / sum(due)
    known = (RunShare.of_row(one, "frames_met", "frames_due", "frames_misses_") for one in runs.iter_rows(named=True))
    share = share_interval([one for one in known if one is not None])
    assert (row["frames_low"], row["frames_high"]) == share.interval
    assert (row["frames_episodes"], row["frames_method"]) == (share.episodes, share.method)
    assert (row["frame_rate_low"], row["frame_rate_high"]) == mean_interval(runs["frame_rate"].to_list())
    assert row["frame_latency_p99_ms"] == runs["frame_latency_p99_ms"].median()
    control = shot.summary().filter(pl.col("flow") == "control")
    assert control["frames_due"].null_count() == control["frame_rate"].null_count() == control.height


def test_its_table_tells_a_video_by_its_frames(shot: Campaign) -> None:
    _, titles, *lines = summary.text(shot.summary(), shot.columns).splitlines()
    assert titles.count("freezes/min") == 1
    assert titles.count("95 % interval") == titles.count("episodes") == 2
    assert len([line for line in lines if line]) == 4


def test_a_campaign_over_video_draws_its_frames_by_point(shot: Campaign) -> None:
    assert set(plots.OF_VIDEO) <= set(plots.kinds_of(shot))
    (axes,) = plots.draw(shot, "frames").axes
    assert axes.get_ylabel() == "frames shown undamaged in time, %"
    drawn = {str(line.get_label()): np.asarray(line.get_ydata()) for line in axes.get_lines()}
    flows = shot.scan("flows").filter(pl.col("flow") == "video").collect()
    for scheduler in ("round_robin", "redundant"):
        own = flows.filter(pl.col("flow.video.transport.scheduler") == scheduler)["frames_in_time"]
        assert sorted(drawn[scheduler]) == pytest.approx(sorted(own * 100))
    (latency,) = plots.draw(shot, "frame_latency").axes
    assert {str(line.get_label()) for line in latency.get_lines()} == {"round_robin", "redundant"}
    assert (
        plots.draw(shot, "frame_rate", y="worst_frame_rate").axes[0].get_ylabel()
        == "frame rate in the worst second, 1/s"
    )
    with pytest.raises(ResultError, match="--flow: found control, expected one that is video, video"):
        plots.draw(shot, "frames", flow="control")


def test_a_campaign_without_video_has_no_such_figure(swept: Campaign) -> None:
    assert not set(plots.OF_VIDEO) & set(plots.kinds_of(swept))
    with pytest.raises(ResultError, match="found frames, which takes a flow that is video, expected one of ecdf"):
        plots.draw(swept, "frames")


def test_the_newcomer_s_line_compares_all_schedulers_of_a_video(skybraid_process: Command, tmp_path: Path) -> None:
    (tmp_path / "filmed.toml").write_text(FILMED.split("[[event]]", 1)[0].replace("10s", "1500ms"), encoding="utf-8")
    done = skybraid_process("sweep", "filmed.toml", "--vary", "flow.video.transport.scheduler=all")
    assert done.returncode == 0, done.stderr
    assert "frames in 300 ms" in done.stdout
    place = done.stdout.split("campaign: ", 1)[1].splitlines()[0]
    drawn = skybraid_process("plot", place, "--kind", "frames")
    assert (drawn.returncode, drawn.stdout.strip()) == (0, f"{place}/plots/frames.svg")


# Questions.


@pytest.mark.parametrize(
    ("asked", "verdict", "words"),
    [
        ("video.frame_rate ± 0.5", Verdict.MET, "25 frames/s in 10 flights (95 % interval 25 frames/s to 25 frames/s)"),
        ("video.worst_frame_rate >= 26 ± shown", Verdict.NOT_MET, "25 frames/s in 10 flights"),
        ("video.freezes <= 1 ± shown", Verdict.MET, "0 freezes/min in 10 flights"),
        ("video.frame_latency_p99 <= 160ms ± shown", Verdict.NOT_MET, "171 ms in 10 flights"),
    ],
)
def test_seeds_are_added_until_a_question_of_a_video_is_decided(
    asked: str, verdict: Verdict, words: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    # All of them go into one campaign: what was flown for one question answers the next.
    out = tmp_path_factory.getbasetemp() / "asked"
    scenario = FILM.with_("flow.video.transport.scheduler", "redundant")
    (answer,) = skybraid.sweep(scenario, until=asked, out=out, workers=1).answers
    assert answer.verdict is verdict, answer.words
    assert words in answer.words


def test_a_video_never_shown_has_rate_zero_and_infinite_latency(tmp_path: Path) -> None:
    black = FILM.with_("event", [{"at": "0s", "path": {"near": {"down": "3s"}, "far": {"down": "3s"}}}])
    for asked, words in (
        ("video.frame_rate >= 20 ± shown", "not met. 0 frames/s in 10 flights"),
        ("video.frame_latency_p50 <= 5s ± shown", "not met. without end in 10 flights"),
        ("video.freezes <= 1 ± shown", "inconclusive. without end in 10 flights (no interval)"),
    ):
        (answer,) = skybraid.sweep(black, until=asked, budget=10, out=tmp_path / "out", workers=1).answers
        assert words in answer.words


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (
            "control.frames >= 95% ± shown",
            (
                "found frames of control, which is no video, expected one of "
                "share, goodput, p50, p95, p99, p99.9, p99.999; flows that are video: video"
            ),
        ),
        ("film.frames ± 1%", "found the flow film, expected one of video, control"),
    ],
)
def test_a_flow_without_video_has_none_of_its_metrics(asked: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(ScenarioError) as caught:
        skybraid.sweep(FILM, until=asked, out=tmp_path / "out")
    assert str(caught.value) == f"--until: {words}"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("video.frame_rate >= 28ms ± shown", "found 28ms, expected a value of frame_rate without a unit, such as 28.5"),
        ("video.frames >= 95 ± shown", "found 95, expected a value of frames with its unit, such as 99.9%"),
        ("video.ssim ± 0.1", "found ssim, expected one of share, goodput, p50"),
    ],
)
def test_what_is_wrong_with_a_question_of_a_video_is_told(asked: str, words: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        question(asked)
    assert words in str(caught.value)


def test_every_measure_has_a_name_and_a_column_of_its_own(shot: Campaign) -> None:
    answer: dict[str, Any] = {one.name: one.column for one in MEASURES}
    assert len(answer) == len(set(answer.values())) == len(MEASURES)
    assert set(answer.values()) <= set(shot.scan("flows").collect_schema())
