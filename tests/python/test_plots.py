"""Figures for print: looks that can be told apart, sizes on paper, and what each kind shows."""

import inspect
import math
import re
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from matplotlib.text import Text
from numpy.typing import NDArray

from conftest import TWO_PATHS, Command
from skybraid import Campaign, ResultError, Results, Scenario, registry, run
from skybraid.cli import plot as plot_cli
from skybraid.show import plots
from skybraid.show.plots.runs import Runs, ellipse, short
from skybraid.show.plots.style import COLOURS, DARK_COLOURS, Look, look, looks, millimetres
from skybraid.show.report.charts import DASHES, SHAPES

# Source: Machado, Oliveira and Fernandes, A physiologically-based model for simulation of color vision deficiency, IEEE
# Transactions on Visualization and Computer Graphics 15(6), 2009: severity 1.0, on linear RGB.
EYES = {
    "common": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
}

FAR_APART = 15.0
"""A difference in CIELAB that nobody overlooks; 2.3 is just noticeable (Sharma, Digital Color Imaging Handbook)."""


def lab(colour: str, eyes: NDArray[np.float64]) -> NDArray[np.float64]:
    """A colour in CIELAB (D65) as some eyes see it (IEC 61966-2-1, CIE 15)."""
    coded = np.array([int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)])
    linear = np.where(coded <= 0.04045, coded / 12.92, ((coded + 0.055) / 1.055) ** 2.4)
    to_xyz = np.array(
        [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
    )
    ratio = to_xyz @ np.clip(eyes @ linear, 0, 1) / np.array([0.95047, 1.0, 1.08883])
    root = np.where(ratio > (6 / 29) ** 3, np.cbrt(ratio), ratio / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * root[1] - 16, 500 * (root[0] - root[1]), 200 * (root[1] - root[2])])


@pytest.mark.parametrize("kind", ["schedulers", "congestion"])
def test_every_algorithm_has_a_colour_of_its_own(kind: str) -> None:
    names = [entry["name"] for entry in registry(kind)]
    axis = {"schedulers": "flow.video.transport.scheduler", "congestion": "flow.video.transport.congestion"}[kind]
    found = looks(axis, names)
    assert len({one.colour for one in found.values()}) == len(names)
    # The order of a figure does not matter, only that of the registry.
    assert looks(axis, names[::-1]) == found
    assert looks(axis, names[-1:])[names[-1]] == found[names[-1]]


@pytest.mark.parametrize("eyes", EYES)
@pytest.mark.parametrize("palette", [COLOURS, DARK_COLOURS], ids=["light", "dark"])
def test_neighbours_are_told_apart_by_all_eyes(palette: tuple[str, ...], eyes: str) -> None:
    seen = [lab(colour, EYES[eyes]) for colour in (*palette, palette[0])]
    assert min(np.linalg.norm(one - other) for one, other in pairwise(seen)) > FAR_APART


@pytest.mark.parametrize("palette", [COLOURS, DARK_COLOURS], ids=["light", "dark"])
def test_any_two_colours_are_apart(palette: tuple[str, ...]) -> None:
    # 2.3 in CIELAB is just noticeable; where colour-blind readers see less, markers differ too.
    for eyes, least in (("common", 20.0), ("protanopia", 6.0), ("deuteranopia", 6.0)):
        seen = [lab(colour, EYES[eyes]) for colour in palette]
        assert min(np.linalg.norm(one - other) for one, other in combinations(seen, 2)) > least, eyes


def test_neighbours_differ_in_their_marker_as_well() -> None:
    every = [look(index) for index in range(49)]
    assert len({(one.colour, one.marker) for one in every}) == 49
    assert all(one.colour != other.colour and one.marker != other.marker for one, other in pairwise(every))


def test_a_plugin_algorithm_has_a_look_of_its_own() -> None:
    built_in = looks("scheduler", [entry["name"] for entry in registry("schedulers")])
    own = looks("scheduler", ["low_rtt", "python:patient", "python:moody"])
    assert own["low_rtt"] == built_in["low_rtt"]
    taken = {(one.colour, one.marker) for one in built_in.values()}
    assert {(one.colour, one.marker) for name, one in own.items() if name != "low_rtt"}.isdisjoint(taken)
    assert own["python:patient"] != own["python:moody"]


def test_pages_have_every_marker_and_line_of_paper() -> None:
    assert set(SHAPES) == set(plots.MARKERS)
    assert set(DASHES) == set(plots.LINE_STYLES)
    assert len(set(SHAPES.values())) == len(SHAPES)
    assert isinstance(look(0), Look)


@pytest.mark.parametrize(("text", "length_mm"), [("88mm", 88), ("18cm", 180), ("3.5in", 88.9), ("120", 120)])
def test_a_length_has_a_unit_or_is_in_millimetres(text: str, length_mm: float) -> None:
    assert millimetres("--width", text) == pytest.approx(length_mm)


@pytest.mark.parametrize("text", ["wide", "5mm", "2000mm", "-88mm", "88px"])
def test_another_length_is_refused(text: str) -> None:
    with pytest.raises(ResultError, match=f"--width: found {text}, expected a length"):
        millimetres("--width", text)


@pytest.mark.parametrize("kind", plots.KINDS)
def test_every_kind_is_drawn_of_what_has_it(
    flown: Results, filmed: Results, swept: Campaign, shot: Campaign, kind: str, tmp_path: Path
) -> None:
    drawn = [source for source in (flown, filmed, swept, shot) if kind in plots.kinds_of(source)]
    assert drawn
    for source in drawn:
        figure = plots.draw(source, kind)
        assert figure.axes
        assert plots.save(figure, tmp_path / f"{kind}.svg").stat().st_size > 5000


def test_a_figure_has_the_requested_width_and_its_fonts(swept: Campaign, tmp_path: Path) -> None:
    figure = plots.draw(swept, "tradeoff", flow="video")
    pdf = plots.save(figure, tmp_path / "one.pdf", width="88mm").read_bytes()
    (box,) = re.findall(rb"/MediaBox \[ ?0 0 ([\d.]+) [\d.]+ ?\]", pdf)
    assert float(box) == pytest.approx(88 / 25.4 * 72, abs=0.1)
    assert b"/FontFile2" in pdf
    assert b"/Type3" not in pdf
    svg = plots.save(figure, tmp_path / "one.svg", width="88mm").read_text(encoding="utf-8")
    assert "goodput, Mbit/s</text>" in svg
    (width,) = re.findall(r'<svg [^>]*width="([\d.]+)pt"', svg)
    assert float(width) == pytest.approx(88 / 25.4 * 72, abs=0.1)


@pytest.mark.parametrize("kind", ["ccdf", "ecdf", "box", "shares"])
def test_a_column_of_a_paper_has_room_for_each_figure(flown: Results, kind: str, tmp_path: Path) -> None:
    # A layout that does not fit at all is a warning, and warnings are errors here.
    figure = plots.draw(flown, kind)
    plots.save(figure, tmp_path / f"{kind}.pdf", width="88mm")
    assert all(axes.get_position().width > 0.6 for axes in figure.axes)


@pytest.mark.parametrize("width", ["60mm", "88mm", "120mm", "180mm"])
def test_no_title_covers_a_legend(flown: Results, width: str, tmp_path: Path) -> None:
    figure = plots.draw(flown, "timeline")
    plots.save(figure, tmp_path / "timeline.png", width=width)
    titled = [axes for axes in figure.axes if axes.get_title(loc="left")]
    assert [axes.get_title(loc="left") for axes in titled] == ["near", "far"]
    for axes in titled:
        (title,) = (text for text in axes.findobj(Text) if text.get_text() in ("near", "far"))
        legend = axes.get_legend()
        assert legend is not None
        assert not title.get_window_extent().overlaps(legend.get_window_extent())


def test_delays_between_two_powers_of_ten_are_plain_numbers(flown: Results, tmp_path: Path) -> None:
    figure = plots.draw(flown, "box")
    plots.save(figure, tmp_path / "box.png")
    names = {label.get_text() for label in figure.axes[-1].get_xticklabels(which="both")} - {""}
    assert {"20", "50"} <= names
    assert all(re.fullmatch(r"\d+", name) for name in names)


def test_a_figure_is_the_same_each_time(flown: Results, tmp_path: Path) -> None:
    for suffix in plots.FORMATS:
        files = [plots.save(plots.draw(flown, "ccdf"), tmp_path / name / f"ccdf.{suffix}") for name in ("a", "b")]
        assert files[0].read_bytes() == files[1].read_bytes()


def test_the_region_of_a_mean_is_hotellings() -> None:
    # Source: Johnson and Wichern, Applied Multivariate Statistical Analysis, section 5.4. Ten pairs without
    # correlation, variance 4 and 1: half axes √(variance · 2 · 9 / (10 · 8) · F(2, 8; 0.95)) with F = 4.459.
    across = np.array([-3.0, -1, 1, 3, 0, 0, 0, 0, 0, 0])
    up = np.array([0.0, 0, 0, 0, -1.5, 1.5, -1, 1, 0, 0])
    pairs = np.stack([across * math.sqrt(4 / across.var(ddof=1)), up * math.sqrt(1 / up.var(ddof=1))], axis=1)
    found = ellipse(pairs)
    assert found is not None
    width, height, angle = found
    reach = 2 * math.sqrt(2 * 9 / (10 * 8) * 4.459)
    assert [width, height] == pytest.approx([2 * reach, reach], rel=1e-3)
    assert angle % 180 == pytest.approx(0, abs=1e-6)
    assert ellipse(pairs[:3]) is None


def test_a_curve_of_the_tail_ends_at_the_share_that_was_lost(flown: Results) -> None:
    axes = plots.ccdf(flown, "video").axes[0]
    video = flown.flows["video"]
    last = float(np.asarray(axes.get_lines()[0].get_ydata())[-1])
    assert last == pytest.approx(video.lost / (video.lost + video.delivered), rel=0.05)


def test_an_unknown_flow_and_an_unknown_axis_are_errors(flown: Results, swept: Campaign) -> None:
    with pytest.raises(ResultError, match="--flow: found moon, expected one of video, control"):
        plots.draw(flown, "ccdf", flow="moon")
    with pytest.raises(ResultError, match="--flow: found moon, expected one of"):
        plots.draw(swept, "box", flow="moon")
    with pytest.raises(ResultError, match=r"--by: found moon, expected one of flow\.video\.transport\.scheduler"):
        plots.draw(swept, "box", by="moon")
    with pytest.raises(ResultError, match="--y: found moon, expected one of"):
        plots.draw(swept, "ecdf", y="moon")
    with pytest.raises(ResultError, match="--kind: found timeline, expected one of ecdf"):
        plots.draw(swept, "timeline")
    with pytest.raises(ResultError, match="--x: found delay, but --kind ccdf of a single result"):
        plots.draw(flown, "ccdf", x="delay")


def test_a_heat_map_shows_the_median_of_each_cell(swept: Campaign) -> None:
    figure = plots.draw(swept, "heatmap", flow="video", x="delay", by="scheduler", y="goodput_bps")
    image = figure.axes[0].get_images()[0]
    found: NDArray[np.float64] = np.ma.asarray(image.get_array()).filled(np.nan)
    frame = swept.scan("flows").filter(pl.col("flow") == "video").collect()
    cell = frame.filter(
        pl.col("path.far.uplink.delay") == "60ms", pl.col("flow.video.transport.scheduler") == "redundant"
    )
    columns = [text.get_text() for text in figure.axes[0].get_xticklabels()]
    lines = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    median_mbps = cell.select(pl.col("goodput_bps").median() / 1e6).item()
    assert found[lines.index("redundant"), columns.index("60ms")] == pytest.approx(median_mbps)


def test_seeds_of_one_result_are_runs_as_well() -> None:
    scenario = Scenario(TWO_PATHS).with_("duration", "5s")
    results = run(scenario, seeds=range(1, 6), tables=[])
    frame = Runs.of(results).frame
    assert frame.select("flow", "seed").n_unique() == 10
    within = frame.filter(pl.col("flow") == "video", pl.col("seed") == 1)["within_deadline"].item()
    assert within == results.flights[0].requirements[0].estimate
    assert "tradeoff" in plots.kinds_of(results)
    assert len(plots.draw(results, "tradeoff", flow="video").axes[0].patches) == 1


def test_axes_go_by_names_as_short_as_tells_them_apart() -> None:
    keys = ("flow.a.transport.scheduler", "flow.b.transport.scheduler", "path.lte.uplink.rate", "case")
    assert list(short(keys).values()) == ["a.transport.scheduler", "b.transport.scheduler", "rate", "case"]


def test_the_command_lists_and_draws(skybraid: Command, swept: Campaign, tmp_path: Path) -> None:
    listed = skybraid("plot", swept.url, "--list")
    assert [line.split()[0] for line in listed.stdout.splitlines()] == plots.kinds_of(swept)
    one = skybraid("plot", swept.url, "--kind", "heatmap", "--y", "delay_p99_ms", "--out", "h.pdf", "--width", "180mm")
    assert (one.returncode, one.stdout.strip()) == (0, "h.pdf")
    assert (tmp_path / "h.pdf").read_bytes().startswith(b"%PDF")
    refused = skybraid("plot", swept.url, "--kind", "queue")
    assert refused.returncode == 2
    assert "found queue, expected one of ecdf, ccdf, box, shares, heatmap, tradeoff" in refused.stderr
    page = skybraid("report", swept.url, "--out", "page.html")
    assert (page.returncode, page.stdout.strip()) == (0, "page.html")


GUIDE = (Path(__file__).parents[2] / "docs" / "report.md").read_text(encoding="utf-8")


def first_cells(head: str) -> set[str]:
    """What a table of the guide names in its first column."""
    rows = GUIDE.split(f"\n| {head} |", 1)[1].split("\n\n", 1)[0].splitlines()[2:]
    return {name for row in rows for name in re.findall(r"`(?:--)?(\w+)`", row.split("|")[1])}


def test_the_guide_names_the_kinds_and_the_options() -> None:
    assert first_cells("kind") == set(plots.KINDS)
    parameters = set(inspect.signature(plot_cli.plot).parameters) - {"source"}
    assert first_cells("option") == {name.removeprefix("as_").rstrip("_") for name in parameters}


def test_frames_are_drawn_of_video_alone(flown: Results, filmed: Results) -> None:
    assert set(plots.OF_VIDEO) & set(plots.kinds_of(filmed)) == {"frame_latency", "frame_rate"}
    for kind in plots.OF_VIDEO:
        assert kind not in plots.kinds_of(flown)
        with pytest.raises(ResultError, match=f"found {kind}, which takes a flow that is video, expected one of ecdf"):
            plots.draw(flown, kind)


def test_the_frame_rate_is_zero_in_the_shaded_outage(filmed: Results) -> None:
    (axes,) = plots.frame_rate(filmed).axes
    line = next(one for one in axes.get_lines() if one.get_label() == "frames shown in a second")
    video = filmed.flows["video"].video
    assert video is not None
    assert np.asarray(line.get_ydata()).min() == video["worst_frame_rate"]
    assert len(axes.patches) == video["freezes"] == 1
    (begin_s, _), (end_s, _) = axes.patches[0].get_extents().transformed(axes.transData.inverted()).get_points()
    assert end_s - begin_s == pytest.approx(video["frozen_s"])
    assert 4 < begin_s < 4.3


def test_the_curve_of_undamaged_frames_shows_the_missed_share(filmed: Results) -> None:
    _, tail = plots.frame_latency(filmed).axes
    curve = next(one for one in tail.get_lines() if one.get_label() == "video")
    latency_ms, missing = np.asarray(curve.get_xdata()), np.asarray(curve.get_ydata())
    frames = next(one for one in filmed.requirements if one.metric == "frames")
    assert frames.estimate is not None
    assert missing[latency_ms <= 300][-1] == pytest.approx(1 - frames.estimate)
