"""The report and the figures."""

import base64
import gzip
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from matplotlib.axes import Axes
from numpy.typing import NDArray

from conftest import FILMED, TWO_PATHS
from skybraid import Campaign, MissingTableError, ResultError, Results, Scenario, Verdict, run, sweep
from skybraid.execute.compare import write
from skybraid.execute.ranking import rank
from skybraid.model.episodes import SPREAD, RunShare
from skybraid.model.formatting import clock, percent, readable
from skybraid.show import plots, series
from skybraid.show.explain import Budget, explain
from skybraid.show.plots import DARK_COLOURS
from skybraid.show.report import compared_html, html, judged, longest_gaps, path_stories
from skybraid.show.report.cards import cards
from skybraid.show.report.charts import Charts, Clock
from skybraid.show.report.compared import ranking, read_table
from skybraid.show.report.overview import overview
from skybraid.show.report.page import Cell
from skybraid.show.report.ranking import Column, Entry, Estimate, ranked
from skybraid.show.report.svg import inline_svg
from skybraid.show.series import wanted

VOID = {"meta", "br", "img", "hr", "link", "input"}


class Page(HTMLParser):
    """Collects the text, the addresses and the identifiers of a page, and holds its tags against one another."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""
        self.addresses: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "xlink:href", "data", "action", "srcset"):
                self.addresses.append(value or "")
            if name == "id":
                self.ids.append(value or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data.replace("\u00a0", " ")


def parsed(source: Results | Campaign) -> tuple[str, Page]:
    text, page = html(source), Page()
    page.feed(text)
    assert page.open == []
    return text, page


@pytest.fixture(scope="module")
def reported(flown: Results) -> tuple[str, Page]:
    """The report of one flight."""
    return parsed(flown)


def without_scripts(text: str) -> str:
    """Returns a page without its scripts and drawings."""
    return re.sub(r"<(script|noscript)\b.*?</\1>", "", text, flags=re.DOTALL)


def test_the_report_is_one_page_that_loads_nothing(flown: Results, reported: tuple[str, Page], tmp_path: Path) -> None:
    file = flown.report(tmp_path / "report.html")
    assert file.stat().st_size < 3_000_000
    text, page = reported
    assert file.read_text(encoding="utf-8") == text
    assert all(address.startswith("#") for address in page.addresses)
    assert not re.search(r"https?://|@import", without_scripts(text))
    assert not re.search(r"<(script|link|img|iframe)\b[^>]*\b(src|href)=", text)
    assert all(reference[1:] in page.ids for reference in page.addresses)
    assert len(set(page.ids)) == len(page.ids)
    assert "prefers-color-scheme: dark" in text
    assert 'name="viewport"' in text


def test_the_report_says_the_verdict_first_then_the_rest(flown: Results, reported: tuple[str, Page]) -> None:
    _, page = reported
    wanted = [
        "95 % required",
        "What happened",
        "p99.999",
        "Packets lost by cause",
        "Paths",
        "outages",
        "Every flow of every flight",
        "sha256",
        "[flow",
    ]
    places = [page.text.find(word) for word in wanted]
    assert -1 not in places
    for requirement in flown.requirements:
        assert requirement.words in page.text
    assert places[0] < places[1]


def test_paper_figures_take_their_colours_from_the_page(flown: Results, reported: tuple[str, Page]) -> None:
    drawing = inline_svg(plots.ccdf(flown), "ccdf")
    assert "currentColor" in drawing
    assert "var(--series-" in drawing
    assert not any(colour.lower() in drawing.lower() for colour in (*plots.COLOURS, plots.INK, plots.SECOND_INK))
    text, _ = reported
    for colour in (*plots.COLOURS, *DARK_COLOURS):
        assert colour in text
    assert len(DARK_COLOURS) == len(plots.COLOURS)


OUT = """name = "An outage that is not survived"
duration = "60s"
seed = 1

[path.a]
rate = "10Mbit/s"
delay = "20ms"

[path.b]
rate = "10Mbit/s"
delay = "40ms"

[flow.control]
from = "ground"
traffic = { kind = "cbr", rate = "80kbit/s", packet = "100B" }
transport = { protocol = "udp", scheduler = "single" }
require = { deadline = "100ms", share = "99.9%" }

"""
OUT += "".join(f'[[event]]\nat = "{at}s"\npath.a.down = "3s"\n' for at in (10, 20, 30, 40, 50))
"""One path of two is used; it is down for 15 of 60 s, in which 1500 of 6000 messages are lost."""


@pytest.fixture(scope="module")
def failed() -> Results:
    """A flight whose requirement an outage breaks."""
    return run(Scenario(OUT, "out.toml"), tables=["messages", "links"])


def test_the_card_of_a_failure_names_its_cause_and_a_change(failed: Results) -> None:
    (card,) = cards(failed, explain(failed))
    assert card.verdict is Verdict.NOT_MET
    assert card.seen == "75 %"
    assert card.what == "of 5 991 messages arrived within 100 ms; 99.9 % required"
    assert card.cause == "1 500 of 1 500 misses were lost on a by an outage."
    assert card.heading == "What may change it (not run yet)"
    assert card.changes[0].words == 'With a copy on b (`scheduler = "redundant"`).'
    assert "--set 'flow.control.transport.scheduler=\"redundant\"'" in card.changes[0].command
    _, page = parsed(failed)
    assert page.text.index(card.cause) < page.text.index("What happened")


def test_a_change_that_was_run_says_what_it_reached(failed: Results) -> None:
    (card,) = cards(failed, explain(failed, budget=Budget(changes=1)))
    assert card.heading == "What would change it, found by runs"
    assert card.changes[0].words == 'Helps: with a copy on b (`scheduler = "redundant"`): 100 %.'


def test_a_card_says_what_a_whole_family_is_expected_to_have() -> None:
    text = OUT.partition("[path.b]")[0].partition("[path.a]")[0] + '[path.a]\npreset = "starlink-car"\n'
    flow = OUT[OUT.index("[flow.control]") : OUT.index("[[event]]")]
    results = run(Scenario(text + flow.replace("99.9%", "90%").replace("100ms", "300ms"), "car.toml"), seed=3)
    (card,) = cards(results, ())
    (required,) = results.requirements
    assert required.estimate is not None
    assert required.expected is not None
    assert required.expected < required.estimate
    assert card.family.startswith("The links were better here than on average: over many runs ")
    assert percent(required.expected) in card.family
    assert parsed(results)[1].text.count("over many runs") == 2


def test_an_emulation_is_not_repeated_by_seeds_at_once(flown: Results) -> None:
    emulated = replace(flown, provenance=flown.provenance | {"driver": "emulation"})
    for results, commands in ((flown, 2), (emulated, 0)):
        undecided = [one for one in cards(results, ()) if one.verdict is Verdict.INCONCLUSIVE]
        assert undecided
        found = {change.command for one in undecided for change in one.changes if "would decide" in change.words}
        assert len([command for command in found if " --seeds 1.." in command]) == commands


def test_the_worst_moment_is_the_outage_and_leads_there(failed: Results) -> None:
    text, page = parsed(failed)
    seen = overview(failed, Charts(), Clock(60.0))
    assert len(seen.moments) == 4
    moment = seen.moments[0]
    assert (moment.begin_s, moment.end_s) == pytest.approx((10.0, 13.0), abs=0.05)
    assert moment.what == "300 never arrived"
    assert moment.paths == ("a: down for about 3 s, 300 packets lost by an outage",)
    assert moment.view[0] < 10 < 13 < moment.view[1]
    assert 'data-from="' in text
    assert "0:10 to 0:12" in page.text


HELD = """
duration = "20s"

[path.a]
preset = "ethernet"
uplink.rate = "10Mbit/s"
uplink.delay = "20ms"

[flow.camera]
from = "vehicle"
traffic = { kind = "cbr", rate = "4Mbit/s", packet = "1000B" }
transport = { protocol = "udp", scheduler = "single" }
require = { deadline = "100ms", share = "99%" }

[[event]]
at = "5s"
path.a.uplink.delay = "400ms"

[[event]]
at = "6s"
path.a.uplink.delay = "20ms"

[[event]]
at = "15s"
path.a.uplink.rate = "2Mbit/s"

[[event]]
at = "16s"
path.a.uplink.rate = "10Mbit/s"
"""


def test_a_moment_says_what_the_link_did_then() -> None:
    late = run(Scenario(HELD), tables=["messages", "links"])
    seen = {moment.when: moment.paths for moment in overview(late, Charts(), Clock(60.0)).moments}
    assert seen == {
        "0:05 to 0:06": ("a: link delay up to 400 ms (usually 20 ms)",),
        # A second of 4 Mbit/s over 2 Mbit/s leaves a second of queue.
        "0:15 to 0:16": ("a: rate down to 2 Mbit/s (usually 10 Mbit/s), queue up to 987 ms",),
    }


def test_without_samples_a_moment_is_unknown() -> None:
    late = run(Scenario(HELD), tables=["messages"])
    assert {moment.paths for moment in overview(late, Charts(), Clock(60.0)).moments} == {None}
    assert "unknown: the run kept no table links" in parsed(late)[1].text


def test_a_report_without_misses_shows_the_slowest_moments() -> None:
    _, page = parsed(run(Scenario(OUT.partition("[[event]]")[0]), tables=["messages", "links"]))
    assert "Slowest moments" in page.text
    assert "No message missed a deadline." in page.text


def test_a_message_more_or_less_is_never_hidden_by_pixels(failed: Results) -> None:
    charts = Charts()
    overview(failed, charts, Clock(60.0))
    document = json.loads(charts.embedded()[0])
    bands = [one for one in columns_of(document) if {"low", "high"} <= set(one) and "median" not in one]
    highest = failed.tables["messages"].select((pl.col("delivered_ns") - pl.col("sent_ns")).max() / 1e6).item()
    assert max(max(one["high"]) for one in bands) == pytest.approx(highest, rel=1e-6)


def columns_of(value: object) -> Iterator[dict[str, NDArray[np.float32]]]:
    """Columns of numbers of every data source of a document."""
    if isinstance(value, dict):
        if value.get("type") == "map" and isinstance(value.get("entries"), list):
            found = {
                name: np.frombuffer(gzip.decompress(base64.b64decode(column["array"]["data"])), dtype=np.float32)
                for name, column in value["entries"]
                if isinstance(column, dict) and column.get("type") == "ndarray" and column["dtype"] == "float32"
            }
            if found:
                yield found
        for part in value.values():
            yield from columns_of(part)
    elif isinstance(value, list):
        for part in value:
            yield from columns_of(part)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (15_700, "15.7 k"),
        (0.002, "0.002"),
        (1_234_567, "1.23 M"),
        (-20_000, "-20 k"),
        (9870.4, "9870"),
        (1e-7, "0.0000001"),
    ],
)
def test_numbers_are_written_as_people_read_them(number: float, text: str) -> None:
    assert readable(number) == text
    assert Cell.number(number).text == text


@pytest.mark.parametrize(("time_s", "text"), [(0, "0:00"), (754.9, "12:34"), (4354, "1:12:34")])
def test_times_of_long_flights_are_minutes_and_seconds(time_s: float, text: str) -> None:
    assert clock(time_s) == text


def test_points_that_did_the_same_share_a_row_of_the_ranking() -> None:
    def entry(scheduler: str, delay: str, share: float, verdict: Verdict) -> Entry:
        return Entry({"scheduler": scheduler, "delay": delay}, [Estimate(f"{share}", share, 0.9, 1.0, share, verdict)])

    entries = [
        entry("ecf", "20ms", 0.99, Verdict.MET),
        entry("blest", "20ms", 0.999, Verdict.INCONCLUSIVE),
        entry("ecf", "40ms", 0.99, Verdict.MET),
        entry("single", "20ms", 0.5, Verdict.NOT_MET),
    ]
    found = ranked("point", [Column("share", "nines", 0.95)], entries)
    assert [row.words for row in found.rows] == [
        "scheduler ecf; delay 20ms, 40ms",
        "scheduler blest; delay 20ms",
        "scheduler single; delay 20ms",
    ]
    first, second, third = (row.cells[0][1] for row in found.rows)
    assert third.estimate is not None
    assert first.estimate is not None
    assert second.estimate is not None
    assert third.estimate < first.estimate < second.estimate
    assert first.target == second.target


def test_a_ranking_folds_what_is_beyond_ten() -> None:
    entries = [Entry({"x": str(n)}, [Estimate(str(n), float(n), None, None, float(n))]) for n in range(25)]
    found = ranked("point", [Column("x", "linear")], entries)
    assert [len(found.top), len(found.rest)] == [10, 15]
    assert found.top[0].words == "x 24"


def test_a_ranking_marks_what_the_runs_cannot_tell_apart() -> None:
    def point(name: str, share: float, verdict: Verdict, seeds: dict[int, float | None]) -> Entry:
        return Entry({"x": name}, [Estimate(name, share, None, None, share, verdict)], seeds=seeds)

    best: dict[int, float | None] = {1: 0.9, 2: 0.8, 3: 1.0}
    entries = [
        point("first", 0.9, Verdict.MET, best),
        point("mixed", 0.89, Verdict.MET, {1: 0.91, 2: 0.78, 3: 0.98, 4: 0.1}),
        point("worse", 0.85, Verdict.MET, {1: 0.85, 2: 0.75, 3: 0.95}),
        point("open", 0.88, Verdict.INCONCLUSIVE, dict(best)),
        point("single", 0.84, Verdict.MET, {1: 0.84}),
        point("unknown", 0.83, Verdict.MET, {1: None}),
    ]
    found = ranked("point", [Column("share", "nines")], entries)
    assert [(row.words.removeprefix("x "), row.place) for row in found.rows] == [
        ("first", "1"),
        ("mixed", "2 ≈"),
        ("worse", "3"),
        ("single", "4"),
        ("unknown", "5"),
        ("open", "6"),
    ]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_comparisons_page_has_its_places_and_intervals(tmp_path: Path, suffix: str) -> None:
    scenario = Scenario(TWO_PATHS).with_("duration", "5s")
    schedulers = ["single", "low_rtt", "redundant"]
    found = rank(scenario, protocols=["mptcp"], schedulers=schedulers, congestion=["reno"], seeds=[1, 2])
    file = tmp_path / f"compared.{suffix}"
    write(found.frame, file)
    page = Page()
    page.feed(compared_html(file.stem, read_table(file)))
    assert page.open == []
    assert "3 combinations compared" in page.text
    for flow in {one.flow for one in found.places[0].requirements}:
        rows = ranking(read_table(file).filter(pl.col("flow") == flow)).rows
        assert [row.place.split()[0] for row in rows] == [str(at) for at in range(1, len(found.places) + 1)]
        for row, place in zip(rows, found.places, strict=True):
            one = next(one for one in place.requirements if one.flow == flow)
            seen = row.cells[0][0]
            assert all(combination.scheduler in row.words for combination in place.combinations)
            assert (seen.estimate, seen.low, seen.high) == pytest.approx((one.estimate, one.low, one.high))
            assert seen.verdict == one.verdict
    (tmp_path / "other.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(
        ResultError, match=r"found no column congestion, expected rows of `skybraid compare SCENARIO --out`"
    ):
        read_table(tmp_path / "other.csv")


def test_a_name_cannot_break_the_page() -> None:
    results = run(Scenario(TWO_PATHS.replace("Two plain paths", "<script>alert(1)</script> & co")), tables=[])
    text, page = parsed(results)
    assert "<script>alert" not in text
    assert "alert(1)" not in "".join(re.findall(r"<script>.*?</script>", text, re.DOTALL))
    assert "<script>alert(1)</script> & co" in page.text


def test_without_tables_the_report_says_what_is_missing() -> None:
    _, page = parsed(run(Scenario(TWO_PATHS), tables=[]))
    assert "not drawn" in page.text
    assert "95 % required" in page.text


def test_several_seeds_have_a_report_too() -> None:
    scenario = Scenario(TWO_PATHS).with_("duration", "5s")
    _, page = parsed(run(scenario, seeds=range(1, 8), tables=["links", "messages"]))
    assert "7 flights" in page.text
    assert "seeds 1 to 7" in page.text


def test_the_outage_of_the_scenario_is_in_the_story_of_its_path(flown: Results) -> None:
    stories = {(story.path, story.direction): story for story in path_stories(flown)}
    for direction in ("uplink", "downlink"):
        far, near = stories["far", direction], stories["near", direction]
        assert far.outages == 1
        assert far.longest_outage_s == pytest.approx(1.0, abs=0.11)
        assert far.down == pytest.approx(0.1, abs=0.02)
        assert near.outages == 0
        assert far.delay_ms == pytest.approx(60)
        assert near.rate_bps == pytest.approx(20e6)


def test_the_longest_gap_is_that_of_the_messages(flown: Results) -> None:
    gaps = longest_gaps(flown)
    assert set(gaps) == {"video", "control"}
    assert 0.01 <= gaps["control"] < 1


def test_a_run_of_several_has_the_command_that_flies_it_alone() -> None:
    scenario = Scenario(TWO_PATHS, "two paths.toml").with_("duration", "5s")
    _, page = parsed(run(scenario, seeds=[3, 5], tables=[]))
    for seed in (3, 5):
        assert f"skybraid run 'two paths.toml' --seed {seed} --set 'duration=\"5s\"'" in page.text


def test_a_path_that_went_unused_is_explained() -> None:
    scenario = Scenario(TWO_PATHS).with_all({"duration": "5s", "flow.video.transport.scheduler": "single"})
    _, page = parsed(run(scenario, tables=["messages", "links"]))
    assert "far is unused: the scheduler single sends everything on near" in page.text


def test_a_path_keeps_its_colour_through_all_figures(flown: Results) -> None:
    def colours(axes: Axes) -> dict[object, object]:
        return {line.get_label(): line.get_color() for line in axes.get_lines()}

    queue = colours(plots.queue(flown).axes[0])
    near = colours(plots.timeline(flown, ["near"]).axes[0])
    assert queue["near"] == near["capacity"] == plots.COLOURS[0]
    assert queue["far"] == plots.COLOURS[1]


def test_the_outage_is_shaded_on_its_own_path_alone(flown: Results) -> None:
    axes = plots.timeline(flown).axes
    near, far = axes[0], axes[1]
    assert len(far.patches) == 1
    assert len(near.patches) == 0
    assert far.get_legend_handles_labels()[1] == ["load", "capacity", "down"]


def test_paths_side_by_side_share_a_scale_that_cuts_none_of_them(flown: Results) -> None:
    near, far = plots.timeline(flown).axes[4:6]
    assert near.get_ylim() == far.get_ylim()
    assert near.get_ylim()[0] == 0
    assert near.get_ylim()[1] > 60


def test_outages_and_halts_are_told_apart() -> None:
    samples = pl.LazyFrame(
        {
            "time_ns": [number * 100_000_000 for number in range(6)],
            "up": [True, False, False, True, True, True],
            "rate_bps": [1_000, 0, 0, 1_000, 0, 1_000],
        }
    )
    assert series.outages(samples) == [pytest.approx((0.1, 0.3))]
    assert series.halts(samples) == [pytest.approx((0.4, 0.5))]


def test_a_missing_table_and_an_unknown_path_are_errors(flown: Results) -> None:
    with pytest.raises(MissingTableError, match="links"):
        plots.timeline(run(Scenario(TWO_PATHS), tables=[]))
    with pytest.raises(MissingTableError, match="found moon, expected one of near, far"):
        plots.timeline(flown, ["moon"])


def test_the_report_of_an_emulation_has_proxies_and_notes(flown: Results) -> None:
    counts = {"finished": 1, "reset": 0, "failed": 0, "to_server_bytes": 2_100_000, "to_client_bytes": 40_000}
    emulation = {
        "lateness_us": {"p50": 1.0},
        "emulator_losses": 0,
        "doubtful": None,
        "stacks": {"video": "kernel tcp reno"},
        "proxies": {
            "sat-vp": counts | {"opened": 3, "reset": 2},
            "sat-gp": counts | {"opened": 1},
            "idle-vp": dict.fromkeys(counts, 0) | {"opened": 0},
        },
        "notes": ["flow `video` uses <MPTCP>"],
    }
    text = parsed(replace(flown, flights=(replace(flown.flights[0], emulation=emulation),)))[1].text
    toward = "2.1 MB to the server side, 40 kB to the client"
    assert f"proxy sat-vp3 connections split, {toward}; 2 ended by a reset\n" in text
    assert f"proxy sat-gp1 connection split, {toward}\n" in text
    assert "proxy idle-vp0 connections split\n" in text
    assert "noteflow `video` uses <MPTCP>" in text


def test_a_video_has_a_section_of_its_own_with_its_charts(filmed: Results) -> None:
    text, page = parsed(filmed)
    assert len(text) < 3_000_000
    section = page.text.split("Video\n", 1)[1].split("Delay\n", 1)[0]
    for head in ("frames taken", "shown undamaged", "in the worst second", "freezes, 1/min", "latency p50"):
        assert head in section
    video = filmed.flows["video"].video
    assert video is not None
    assert f"{video['intact']} ({100 * video['intact'] / video['frames']:.2f}".rstrip("0") in section
    for title in ("video: frame rate", "video: latency", "Latency of frames"):
        assert title in section
    for chart in ("frame-rate-0", "frame-latency-0", "frame-tail"):
        assert f'id="chart-{chart}"' in text
    assert "not drawn" not in section


def test_without_video_the_report_does_not_speak_of_it(reported: tuple[str, Page]) -> None:
    text, page = reported
    assert "Video\n" not in page.text
    assert "frames taken" not in page.text
    assert "frame-rate-0" not in text


def test_without_the_table_of_frames_a_video_still_has_its_numbers() -> None:
    _, page = parsed(run(Scenario(FILMED), tables=["messages"]))
    section = page.text.split("Video\n", 1)[1].split("Delay\n", 1)[0]
    assert "frames taken" in section
    assert "not drawn. table frames: this result does not contain it" in section


def test_the_frames_in_time_are_no_deadline_of_the_messages(filmed: Results) -> None:
    deadlines = [deadline_ms for deadline_ms, *_ in wanted(filmed, "video")]
    assert deadlines == []
    assert [deadline_ms for deadline_ms, *_ in wanted(filmed, "control")] == [100.0]


def test_the_report_of_a_campaign_with_video_tells_its_frames(tmp_path: Path) -> None:
    scenario = Scenario(FILMED, "filmed.toml").with_("duration", "5s")
    rates = {"flow.video.traffic.rate": ["2Mbit/s", "4Mbit/s"]}
    campaign = sweep(scenario, vary=rates, seeds=range(1, 4), out=tmp_path / "campaign", workers=1)
    _, page = parsed(campaign)
    for head in (
        "video: 95 % of frames undamaged within 300 ms",
        "video: 20 frames/s",
        "video: 10 frames/s in the worst second",
        "video: at most 30 freezes/min",
        "video: frames shown undamaged in time, %",
        "video: frame rate, 1/s",
        "video: frame rate in the worst second, 1/s",
        "video: undamaged frames against their latency",
        "video: freezes, 1/min",
    ):
        assert head in page.text
    assert "control: frame rate" not in page.text


def independent(missed: int) -> dict[str, float]:
    """What a campaign keeps of misses that came one by one, over 100 s."""
    share = RunShare(1000, missed, missed, freedom=1000.0, largest=1.0, episodes=missed, block_s=0.1, span_s=100.0)
    return {f"misses_{name}": value for name, value in zip(SPREAD, share.spread, strict=True)}


def test_frames_of_a_campaign_are_judged_over_all_runs() -> None:
    columns = {"point": 0, "flow": "video", "ssim": None}
    shares = [
        columns
        | {"metric": "frames", "deadline_ms": 300.0, "target": 0.9, "estimate": met / 100, "met": met}
        | {"seed": seed, "trials": 100}
        | independent(100 - met)
        for seed, met in enumerate((96, 94))
    ]
    freezes = [
        columns
        | {"metric": "freezes", "deadline_ms": None, "target": 2.0, "estimate": value, "met": None}
        | {"seed": seed, "trials": 1}
        | dict.fromkeys(independent(0))
        for seed, value in enumerate((4.0, 4.2))
    ]
    found = {one.wanted.metric: one for one in judged(pl.DataFrame([*shares, *freezes], infer_schema_length=None))}
    assert (found["frames"].verdict, found["frames"].of) == (Verdict.MET, "200 frames, misses in 10 episodes")
    assert found["frames"].interval is not None
    # Ten independent misses have Garwood's interval, 4.795 to 18.391.
    assert found["frames"].interval.low == pytest.approx(1 - 18.391 / 200, abs=0.002)
    assert found["freezes"].estimate == pytest.approx(4.1)
    # Student's t with one degree of freedom: 4.1 ± 12.706 · 0.1414 / √2 is 2.83 to 5.37.
    assert found["freezes"].verdict is Verdict.NOT_MET
    assert found["freezes"].wanted.words == "video: at most 2 freezes/min"


def test_the_report_of_a_campaign_counts_points_and_failed_runs(swept: Campaign) -> None:
    text, page = parsed(swept)
    assert "No point is shown to meet every requirement; 6 of 12 undecided." in page.text
    assert "12 points, 60 runs, 15 failed" in page.text
    assert "not in the mood" in page.text
    assert "video: 95 % within 100 ms" in page.text
    ranked_rows = text.count('<td class="left named">')
    assert 0 < ranked_rows <= 12
    assert page.text.count("skybraid run two-paths.toml --seed") == 12 + 15 + ranked_rows
    assert not re.search(r"https?://|@import", without_scripts(text))
    assert len(text) < 3_000_000


def test_a_campaigns_requirement_is_judged_over_all_runs_of_a_point() -> None:
    # Two runs of 1000 messages that lost 8: 1992 of 2000 show 98 %, and 99.9 % is not met.
    columns = {"point": 0, "flow": "control", "metric": "share", "deadline_ms": 100.0, "ssim": None}
    rows = [
        columns
        | {"seed": seed, "target": target, "estimate": met / 1000, "met": met, "trials": 1000}
        | independent(1000 - met)
        for target in (0.98, 0.999)
        for seed, met in ((1, 994), (2, 998))
    ]
    easy, hard = judged(pl.DataFrame(rows))
    assert (easy.verdict, easy.estimate, easy.trials, len(easy.seeds)) == (Verdict.MET, 0.996, 2000, 2)
    assert hard.verdict is Verdict.NOT_MET
    assert easy.episodes == 8


def test_delay_and_goodput_of_a_campaign_are_judged_by_run_means() -> None:
    columns = {"point": 0, "flow": "video", "met": None, "trials": 1, "ssim": None}
    delays = [("percentile", 90.0, 0.95, value) for value in (70.0, 72.0, 74.0)]
    goodputs = [("goodput", None, 4e6, value) for value in (3.5e6, 3.6e6, 3.7e6)]
    rows = [
        columns | {"seed": seed, "metric": metric, "deadline_ms": limit, "target": target, "estimate": value}
        for seed, (metric, limit, target, value) in enumerate([*goodputs, *delays])
    ]
    found = {one.wanted.metric: one for one in judged(pl.DataFrame(rows, infer_schema_length=None))}
    assert (found["percentile"].verdict, found["percentile"].estimate) == (Verdict.MET, 72.0)
    # Student's t with two degrees of freedom: 4.303; 3.6 ± 4.303 · 0.1 / √3 Mbit/s ends at 3.848.
    assert found["goodput"].verdict is Verdict.NOT_MET
    assert found["goodput"].interval is not None
    assert found["goodput"].interval.high == pytest.approx(3.848e6, rel=1e-3)
