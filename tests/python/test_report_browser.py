"""The report in a browser without a network: opened, clicked, typed into, zoomed, hovered, darkened and printed."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from chromium import Chromium, browser
from skybraid.show.live import LivePage, show_emulation
from skybraid.show.palette import COLOURS, DARK_COLOURS
from skybraid.show.report import write_report

if TYPE_CHECKING:
    from collections.abc import Iterator

    from skybraid import Campaign, Results

PROGRAM = browser()

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="found no Chromium or Chrome; SKYBRAID_BROWSER may name one")

ARTEFACTS = Path(os.environ.get("SKYBRAID_ARTEFACTS", Path(__file__).parents[2] / "target" / "report-screenshots"))

PHONE = 390

VIEWS = "[...(Bokeh.index.roots ?? Object.values(Bokeh.index))]"

FIGURE = VIEWS + ".find((view) => view.model.name === '{}')"

PLACE = """((view) => {
  const outer = view.el.getBoundingClientRect(), inner = view.frame.bbox;
  return [outer.left + inner.left, outer.top + inner.top, inner.width, inner.height];
})"""

MIDDLE = """((one) => {
  one.scrollIntoView({block: "center", inline: "center"});
  const box = one.getBoundingClientRect();
  return [box.left + box.width / 2, box.top + box.height / 2];
})"""

BLANK = """((view) => {
  const made = view.export("png", false).canvas;
  if (!made.width || !made.height) return false;
  return !made.getContext("2d").getImageData(0, 0, made.width, made.height).data.some((value) => value > 0);
})"""

TOOLTIPS = """(() => {
  const found = [];
  const walk = (root) => {
    for (const one of root.querySelectorAll("*")) {
      if (one.classList.contains("bk-Tooltip")) found.push((one.shadowRoot ?? one).textContent);
      if (one.shadowRoot) walk(one.shadowRoot);
    }
  };
  walk(document);
  return found.join(" ");
})()"""

ON_PAPER = """window.addEventListener("beforeprint", () => {
  const count = (selector) => document.querySelectorAll(selector).length;
  window.seen = [count(".chart > img"), count(".chart"), count("details:not([open])")];
})"""

OUTSIDE = """[...document.querySelectorAll("body *")].filter((one) => one.checkVisibility()
  && one.getBoundingClientRect().right > innerWidth + 1 && !one.closest(".wide, .tall, pre, code"))
  .map((one) => one.tagName)"""
"""What ends beyond the screen and is not in a box that scrolls by itself."""

CLIPBOARD = """Object.defineProperty(navigator, "clipboard", {
  value: { writeText: async (text) => { window.copied = text; } },
}) && true"""


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    """One browser for all tests."""
    assert PROGRAM is not None
    with Chromium(PROGRAM, tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def single(flown: Results, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of one flight."""
    return write_report(flown, tmp_path_factory.mktemp("single") / "report.html")


@pytest.fixture(scope="module")
def campaign(swept: Campaign, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a campaign."""
    return write_report(swept, tmp_path_factory.mktemp("campaign") / "report.html")


@pytest.fixture
def folded(window: Chromium, single: Path) -> Chromium:
    """The flight's report on a desk, in daylight, as it opens."""
    window.look()
    window.open(single)
    return window


@pytest.fixture
def page(folded: Chromium) -> Chromium:
    """The flight's report with all its parts unfolded."""
    return unfolded(folded)


@pytest.fixture
def many(window: Chromium, campaign: Path) -> Chromium:
    """The campaign's report on a desk, in daylight, with all its parts unfolded."""
    window.look()
    window.open(campaign)
    return unfolded(window)


def unfolded(window: Chromium) -> Chromium:
    """Opens all parts of the page."""
    window.run("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
    window.rest()
    return window


def place(window: Chromium, name: str) -> tuple[float, float, float, float]:
    """Where the frame of a chart is in the window, once it is scrolled to: left, top, width, height."""
    window.run(f"{FIGURE.format(name)}.el.scrollIntoView({{block: 'center'}})")
    window.rest()
    found = window.run(f"{PLACE}({FIGURE.format(name)})")
    left, top, width, height = (float(number) for number in found)
    return left, top, width, height


def x_range(window: Chromium, name: str) -> tuple[float, float]:
    start, end = window.run(
        f"(() => {{ const range = {FIGURE.format(name)}.model.x_range; return [range.start, range.end]; }})()"
    )
    return float(start), float(end)


def column(window: Chromium, table: str, number: int) -> list[str]:
    """What is seen of a column of a table."""
    found = window.run(
        f"[...document.querySelectorAll('#{table} tbody tr')].filter((row) => row.checkVisibility())"
        f".map((row) => row.cells[{number}].textContent)"
    )
    return [str(text) for text in found]


def click(window: Chromium, selector: str) -> None:
    """A click of the mouse in the middle of an element."""
    x, y = window.run(f"{MIDDLE}(document.querySelector({selector!r}))")
    held: dict[str, object] = {"button": "left", "buttons": 1, "clickCount": 1}
    window.point(x, y)
    window.point(x, y, kind="mousePressed", **held)
    window.point(x, y, kind="mouseReleased", **held)
    window.rest()


def test_the_page_asks_for_nothing_and_complains_of_nothing(page: Chromium, single: Path) -> None:
    assert page.requests[0] == single.resolve().as_uri()
    assert not [address for address in page.requests[1:] if not address.startswith(("data:", "blob:"))]
    assert page.problems == []
    assert page.run("document.querySelectorAll('.chart canvas, .chart div').length") > 0


def test_the_verdict_is_what_is_seen_first(folded: Chromium, flown: Results) -> None:
    text = folded.run("document.querySelector('.headline').innerText")
    assert "3 of 3 are inconclusive" in text
    assert folded.run("document.querySelector('.headline').getBoundingClientRect().bottom") < 300
    found = folded.run("[...document.querySelectorAll('.card h2')].map((one) => one.innerText)")
    assert sorted(" ".join(text.split()) for text in found) == sorted(
        f"{one.flow} {one.verdict}" for one in flown.requirements
    )
    tops = folded.run("[...document.querySelectorAll('.card, .chart')].map((one) => one.className)")
    assert tops[: len(found)] == ["card inconclusive"] * len(found)


def test_only_what_matters_is_open_at_first(folded: Chromium) -> None:
    assert folded.run("document.querySelectorAll('details[open]').length") == 0
    seen = folded.run("[...document.querySelectorAll('.chart')].filter((one) => one.checkVisibility()).length")
    assert 3 <= seen <= 6
    title = "[...document.querySelectorAll('.part')].find((one) => one.innerText.startsWith('Links'))"
    folded.run(f"{title}.open = true")
    folded.rest()
    _, _, width, height = place(folded, "queue")
    assert width > 500
    assert height > 80


def test_a_moment_leads_all_charts_to_its_time(folded: Chromium) -> None:
    begin, end = folded.run(
        "(({dataset}) => [Number(dataset.from), Number(dataset.to)])(document.querySelector('a[data-from]'))"
    )
    click(folded, "a[data-from]")
    assert x_range(folded, "delay-0") == pytest.approx((begin, end))
    assert x_range(folded, "queue") == pytest.approx((begin, end))
    click(folded, "[data-whole]")
    assert x_range(folded, "delay-0") == (0, 10)


def test_every_chart_has_ink(page: Chromium) -> None:
    blank = page.run(f"{VIEWS}.filter({BLANK}).map((view) => view.model.name)")
    assert blank == []
    page.shoot(ARTEFACTS / "flight-light.png")


def test_a_click_on_a_head_sorts_and_another_one_turns_it_round(page: Chromium) -> None:
    head = "#flights thead th:nth-child(3) button"
    before = column(page, "flights", 0)
    click(page, head)
    rising = column(page, "flights", 2)
    click(page, head)
    falling = column(page, "flights", 2)
    assert rising != falling
    assert falling == rising[::-1]
    assert page.run("document.querySelector('#flights th:nth-child(3)').getAttribute('aria-sort')") == "descending"
    assert sorted(column(page, "flights", 0)) == sorted(before)


def test_two_rows_need_no_filter(page: Chromium) -> None:
    assert len(column(page, "flights", 0)) == 2
    assert page.run("document.querySelector('input[data-filters=flights]')") is None


def test_a_box_drawn_on_one_chart_zooms_all_charts_over_time(page: Chromium) -> None:
    left, top, width, height = place(page, "goodput")
    whole = x_range(page, "goodput")
    page.drag((left + 0.25 * width, top + height / 2), (left + 0.5 * width, top + height / 2 + 5))
    zoomed = x_range(page, "goodput")
    assert list(whole) == [0, 10]
    assert list(zoomed) == pytest.approx([2.5, 5], abs=0.1)
    for other in ("share-0", "delay-0", "rate-0-uplink", "queue"):
        assert x_range(page, other) == zoomed


def test_the_wheel_zooms_with_control_and_scrolls_without(page: Chromium) -> None:
    left, top, width, height = place(page, "queue")
    x, y = left + width / 2, top + height / 2
    scrolled = page.run("window.scrollY")
    page.point(x, y)
    page.point(x, y, kind="mouseWheel", deltaX=0, deltaY=-120, modifiers=2)
    page.rest()
    start, end = x_range(page, "queue")
    assert end - start < 9.9
    assert 0 <= start < 5 < end <= 10
    assert page.run("window.scrollY") == scrolled
    page.point(x, y, kind="mouseWheel", deltaX=0, deltaY=120)
    page.rest()
    assert x_range(page, "queue") == (start, end)
    assert page.run("window.scrollY") != scrolled


def test_pointing_at_a_chart_tells_its_values(page: Chromium) -> None:
    left, top, width, height = place(page, "goodput")
    page.point(left + 0.4 * width, top + 0.5 * height)
    page.point(left + 0.42 * width, top + 0.5 * height)
    page.rest()
    found = page.run(TOOLTIPS)
    assert "Mbit/s" in found
    assert "video" in found


def test_the_dark_reaches_the_page_and_its_charts_and_goes_again(page: Chromium) -> None:
    ink = f"{FIGURE.format('goodput')}.model.below[0].major_label_text_color"
    line = f"{FIGURE.format('goodput')}.model.renderers[0].glyph.line_color"
    day = page.run(f"JSON.stringify([{ink}, {line}, getComputedStyle(document.body).backgroundColor])")
    page.look(dark=True)
    night = page.run(f"JSON.stringify([{ink}, {line}, getComputedStyle(document.body).backgroundColor])")
    page.shoot(ARTEFACTS / "flight-dark.png")
    assert "#e6e9ee" in night
    assert "rgb(20, 24, 30)" in night
    page.look()
    assert page.run(f"JSON.stringify([{ink}, {line}, getComputedStyle(document.body).backgroundColor])") == day


@pytest.mark.parametrize("which", ["single", "campaign"])
def test_on_a_phone_nothing_sticks_out(window: Chromium, which: str, request: pytest.FixtureRequest) -> None:
    window.look(width=PHONE, height=844)
    window.open(request.getfixturevalue(which))
    unfolded(window)
    assert window.problems == []
    assert window.run("document.documentElement.scrollWidth") <= PHONE
    assert window.run("document.body.scrollWidth") <= PHONE
    assert window.run(OUTSIDE) == []
    charts = window.run("[...document.querySelectorAll('.chart')].map((one) => one.getBoundingClientRect().right)")
    assert max(charts) <= PHONE
    window.shoot(ARTEFACTS / f"{which}-phone.png")


def test_a_command_to_type_is_whole_on_a_phone(window: Chromium, single: Path) -> None:
    window.look(width=PHONE, height=844)
    window.open(single)
    unfolded(window)
    commands = "[...document.querySelectorAll('pre.command, code.line')]"
    assert window.run(f"{commands}.some((one) => one.textContent.startsWith('skybraid run'))")
    assert window.run(f"{commands}.filter((one) => one.scrollWidth > one.clientWidth + 1).length") == 0


def test_on_paper_charts_are_light_pictures_and_all_is_open(folded: Chromium) -> None:
    folded.look(dark=True)
    folded.send("Emulation.setEmulatedMedia", media="", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    folded.run(ON_PAPER)
    printed = folded.paper(ARTEFACTS / "flight.pdf")
    pictures, charts, closed = folded.run("window.seen")
    assert pictures == charts > 5
    assert closed == 0
    assert folded.run("document.querySelectorAll('details[open]').length") == 0
    # The PDF holds them as pictures at least as wide as a chart on the screen.
    widths = [int(width) for width in re.findall(rb"/Subtype /Image\s*/Width (\d+)", printed)]
    assert sum(width > 500 for width in widths) >= charts


def test_a_command_is_copied_by_a_click(page: Chromium) -> None:
    assert page.run(CLIPBOARD)
    click(page, "#flights tbody code")
    assert page.run("window.copied").startswith("skybraid run")
    assert page.run("document.querySelector('#flights tbody code').textContent") == "copied"


def test_a_campaign_asks_for_nothing_and_complains_of_nothing(many: Chromium) -> None:
    assert not [address for address in many.requests[1:] if not address.startswith(("data:", "blob:"))]
    assert many.problems == []
    assert "requirement" in many.run("document.querySelector('.headline').innerText")
    many.shoot(ARTEFACTS / "campaign-light.png")


def test_a_campaigns_points_are_sorted_and_filtered(many: Chromium) -> None:
    assert len(column(many, "points", 0)) == 12
    click(many, "#points thead th:nth-child(1) button")
    click(many, "#points thead th:nth-child(1) button")
    assert column(many, "points", 0)[0] == "11"
    click(many, "input[data-filters=points]")
    many.send("Input.insertText", text="ROUND_ROBIN 60ms")
    many.rest()
    assert column(many, "points", 0) == ["4"]
    assert many.run("document.querySelector('[data-counts=points]').textContent") == "1 of 12 rows"


def test_a_campaigns_failed_runs_have_their_error_and_their_command(many: Chromium) -> None:
    assert len(column(many, "failed", 0)) == 15
    assert "not in the mood" in column(many, "failed", 2)[0]
    assert column(many, "failed", 3)[0].startswith("skybraid run")


def test_another_heat_map_is_chosen_and_drawn(many: Chromium) -> None:
    seen = "[...document.querySelectorAll('[data-choice=heat]')].map((one) => one.checkVisibility())"
    first = many.run(seen)
    assert first.count(True) == 1
    select = "document.querySelector('select[data-shows=heat]')"
    many.run(f"{select}.selectedIndex = 2; {select}.dispatchEvent(new Event('change'))")
    many.rest()
    assert many.run(seen).index(True) == 2
    _, _, width, height = place(many, "heat-2")
    assert width > 300
    assert height > 50


def test_pointing_at_a_point_tells_its_axes(many: Chromium) -> None:
    left, top, width, height = place(many, "heat-0")
    many.point(left + 0.1 * width, top + 0.5 * height)
    many.point(left + 0.12 * width, top + 0.5 * height)
    many.rest()
    found = many.run(TOOLTIPS)
    assert "single" in found
    assert "60ms" in found
    many.look(dark=True)
    many.shoot(ARTEFACTS / "campaign-dark.png")


def test_a_live_page_fills_and_becomes_the_report(window: Chromium) -> None:
    window.look()
    with LivePage("a <run>") as live:
        live.update(0.25, "3 of 12 runs done")
        live.fill(lambda: "<p id='ranking'>so far</p>")
        window.requests.clear()
        window.problems.clear()
        window.send("Page.navigate", url=live.address)
        window.until("document.getElementById('ranking')?.innerText === 'so far'")
        assert window.run("document.querySelector('h1').innerText") == "a <run>"
        assert window.run("document.getElementById('bar').value") == 0.25
        colour = "getComputedStyle(document.documentElement).getPropertyValue('--series-6').trim()"
        assert window.run(colour) == COLOURS[6]
        window.look(dark=True)
        assert window.run(colour) == DARK_COLOURS[6]
        links = {"lte uplink": {"up": True, "rate": 5.0, "load": 2.0, "delay": 20.0, "queue": 0.0, "lost": 3}}
        for second in range(3):
            live.update(None, f"{second} s", {"at_s": float(second), "links": links})
            window.until(f"document.getElementById('words').innerText === '{second} s'")
        window.until("document.querySelectorAll('#charts polyline').length === 3")
        charts = window.run("document.getElementById('charts').innerText")
        assert "lte uplink, 3 packets lost" in charts
        ticks = "[...document.querySelectorAll('#charts figure:nth-of-type(2) text')].map((one) => one.textContent)"
        assert window.run(ticks) == ["0", "5", "10", "15", "20", "0", "0.5", "1", "1.5", "2 s"]
        window.send("Page.reload")
        window.until("document.querySelector('#charts polyline')?.points.length === 3")
        live.finish("<!doctype html><html><head><title>done</title></head><body>the report</body></html>")
        window.until("location.pathname === '/report' && document.body?.innerText === 'the report'")
        assert window.problems == []
        assert all(address.startswith((live.address, "data:")) for address in window.requests)


def test_the_bar_moves_while_results_are_gathered(window: Chromium) -> None:
    gathered = threading.Event()
    with LivePage("run") as live:
        live.fill(lambda: f"<p id='late'>{gathered.wait(30)}</p>")
        live.update(0.1, "1 of 10 runs done")
        window.send("Page.navigate", url=live.address)
        for words in ("1 of 10 runs done", "5 of 10 runs done"):
            live.update(0.5, words)
            window.until(f"document.getElementById('words')?.innerText === '{words}'")
        assert window.run("document.getElementById('late')") is None
        gathered.set()
        window.until("document.getElementById('late')?.innerText === 'True'")
        live.finish(None)


def test_a_live_page_draws_no_delay_where_nothing_arrives(window: Chromium) -> None:
    with LivePage("run") as live:
        live.update(0.5, "simulating: 50 %, 6.2 s left")
        for second, delay_ms in enumerate([20.0, 20.0, None, None, 20.0]):
            link = {"up": True, "rate_bps": 5e6, "delivered_bps": 2e6, "delay_ms": delay_ms, "queue_bytes": 0}
            path = {"path": "lte", "uplink": link | {"lost": {}}, "downlink": link | {"lost": {}}}
            show_emulation(live, {"at_s": float(second), "paths": [path]})
        live.update(0.5, "simulating: 50 %, 6.2 s left")
        window.send("Page.navigate", url=live.address)
        lines = "[...one.querySelectorAll('polyline')].map((it) => it.points.length)"
        charts = f"[...document.querySelectorAll('#charts svg')].map((one) => {lines})"
        window.until(f"JSON.stringify({charts}) === '[[5,5],[2,0,1,2,0,1],[5,5]]'")
    window.until("document.getElementById('words').innerText === 'simulating: 50 %, no longer running'")


def test_a_live_page_refuses_other_names_for_its_address() -> None:
    with LivePage("run") as live:
        request = Request(live.address, headers={"Host": "elsewhere.example:80"})
        with pytest.raises(HTTPError, match="403"):
            urlopen(request, timeout=60)


def test_a_live_page_refuses_a_time_that_is_none() -> None:
    with LivePage("run") as live, pytest.raises(HTTPError, match="400"):
        urlopen(f"{live.address}status?after=soon", timeout=60)
