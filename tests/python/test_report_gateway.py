"""The post-flight report of gateways: what a log tells, what a damaged one still tells, and the page in a browser."""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING, Any

import pytest

from chromium import Chromium, browser
from marks import needs_gateway
from ports import free_ports
from skybraid.gateway import Node, binary, configure_pair
from skybraid.model.errors import ResultError
from skybraid.show.report import GatewayLog, gateway_html, is_log
from test_report import Page
from test_report_browser import BLANK, VIEWS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from conftest import Command

BEGUN = 1_764_000_000.0
PATHS = ("leo", "lte")


def path_of(name: str, at_s: int, **more: Any) -> dict[str, Any]:
    """A path as a snapshot tells it: 20 ms further away than the other, and heard 10 times a second."""
    base = 40.0 if name == "leo" else 60.0
    answer: dict[str, Any] = {
        "name": name,
        "outgoing": "up",
        "incoming": "up",
        "remote": "192.0.2.1:5000",
        "rtt_ms": base + at_s % 3,
        "min_rtt_ms": base,
        "incoming_delay_ms": base / 2,
        "outgoing_delay_ms": base / 2,
        "jitter_ms": 0.4,
        "incoming_loss": 0.01,
        "outgoing_loss": 0.0,
        "outgoing_bps": 1e6,
        "incoming_bps": 2e6,
        "outgoing_bytes": 125_000 * at_s,
        "incoming_bytes": 250_000 * at_s,
        "outgoing_datagrams": 100 * at_s,
        "incoming_datagrams": 200 * at_s,
        "control_won": 40 * at_s if name == "leo" else 10 * at_s,
        "mtu": 1500,
        "data_left": None,
        "given_up": 0,
    }
    return answer | more


def class_of(name: str, at_s: int, **more: Any) -> dict[str, Any]:
    """A class as a snapshot tells it: 50 messages a second, four of five by the first path."""
    answer: dict[str, Any] = {
        "name": name,
        "written": 50 * at_s,
        "written_bytes": 5000 * at_s,
        "refused": 0,
        "delivered": 50 * at_s,
        "delivered_bytes": 5000 * at_s,
        "late": 0,
        "superseded": 0,
        "duplicates": 48 * at_s,
        "repaired": 0,
        "delay_p50_ms": 21.0,
        "delay_p99_ms": 28.0,
        "longest_gap_ms": 31.0,
        "by_path": [40 * at_s, 10 * at_s],
    }
    return answer | more


def sample(side: str, at_s: int, control: dict[str, Any] | None = None) -> dict[str, Any]:
    classes = [class_of("control", at_s, **(control or {}))]
    classes += [class_of(name, 0) for name in ("telemetry", "video", "bulk")]
    return {
        "name": "X500",
        "side": side,
        "uptime_ms": at_s * 1000.0,
        "session": True,
        "sessions": 1,
        "peer_restarts": 0,
        "silent_ms": 3.0,
        "paths": [path_of(name, at_s) for name in PATHS],
        "classes": classes,
        "channels": [],
        "refused": {"foreign": 0, "forged": 2, "replayed": 0, "strangers": 0, "cookies": 0, "unreadable": 0},
    }


def change(path: str, before: str, after: str, direction: str = "incoming") -> dict[str, Any]:
    return {"event": "path", "path": path, "from": before, "to": after, "direction": direction}


STARTED = [
    (0.1, {"event": "session", "restarted": True}),
    *((0.1, change(path, "unheard", "up", direction)) for path in PATHS for direction in ("incoming", "outgoing")),
]


def log_of(
    folder: Path,
    happened: list[tuple[float, dict[str, Any]]],
    *,
    side: str = "aircraft",
    length_s: int = 20,
    control: dict[str, Any] | None = None,
    begun: float = BEGUN,
) -> Path:
    """Writes a log, as the daemon does."""
    head = {"format": "skybraid-gateway-log", "version": 1, "name": "X500", "side": side, "paths": list(PATHS)}
    entries = [(float(at_s), {"sample": sample(side, at_s, control)}) for at_s in range(1, length_s + 1)]
    entries += [(at_s, {"event": event}) for at_s, event in happened]
    entries.sort(key=lambda entry: entry[0])
    lines = [head] + [{"t_ms": at_s * 1000, "unix": begun + at_s} | entry for at_s, entry in entries]
    file = folder / f"{side}.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return file


def parsed(*files: Path) -> Page:
    page = Page()
    page.feed(gateway_html(list(files)))
    assert page.open == []
    return page


CUT = [(5.0, change("lte", "up", "suspected")), (5.1, change("lte", "suspected", "down"))]
BACK = [(8.1, change("lte", "down", "probation")), (9.1, change("lte", "probation", "up"))]


def test_downtime_of_a_path_is_exact_to_the_millisecond(tmp_path: Path) -> None:
    log = GatewayLog.read(log_of(tmp_path, [*STARTED, *CUT, *BACK]))
    found = [(one.state, round(one.end_s - one.begin_s, 3)) for one in log.spans("lte", "incoming")]
    assert found == [
        ("unheard", 0.1),
        ("up", 4.9),
        ("suspected", 0.1),
        ("down", 3.0),
        ("probation", 1.0),
        ("up", 10.9),
    ]
    assert [one.state for one in log.spans("lte", "outgoing")] == ["unheard", "up"]


def test_one_path_that_was_down_is_told_but_spoils_no_flight(tmp_path: Path) -> None:
    page = parsed(log_of(tmp_path, [*STARTED, *CUT, *BACK]))
    assert "The link was up throughout, and control was delivered in time." in page.text
    assert "lte was down once, 3 s in total, 3 s at most." in page.text
    assert "at least one path from the peer was alive" in page.text
    assert "1 000 control messages were delivered, none late; 99 % of them within 28 ms" in page.text
    assert "2 forged" in page.text


def test_a_time_without_any_path_is_what_is_said_first(tmp_path: Path) -> None:
    dark = [(6.0, change("leo", "up", "down")), (7.0, change("leo", "down", "up")), (6.2, {"event": "peer_lost"})]
    page = parsed(log_of(tmp_path, [*STARTED, *CUT, *dark, *BACK]))
    assert "need attention" in page.text
    assert "no path from the peer was alive once, 1 s in total; the first time at 6.0 s." in page.text
    assert "Nothing is heard from the peer on any path." in page.text


def test_an_alarm_and_control_that_came_too_late_are_findings(tmp_path: Path) -> None:
    alarm = [(3.0, {"event": "alarm", "text": "the disk is full"})]
    page = parsed(log_of(tmp_path, [*STARTED, *alarm], control={"late": 4, "refused": 1}))
    assert "alarm at 3.0 s: the disk is full" in page.text
    assert "4 control messages were late and dropped, 1 were refused at the sender." in page.text


def test_the_logs_of_both_sides_are_held_against_one_another(tmp_path: Path) -> None:
    air = log_of(tmp_path, STARTED, control={"written": 1000, "delivered": 400})
    ground = log_of(tmp_path, STARTED, side="ground", control={"written": 400, "delivered": 900}, begun=BEGUN + 2)
    page = parsed(air, ground)
    words = "1 000 messages written, 900 delivered at the other side, 0 superseded by a newer one, 0 late"
    assert f"Control from the aircraft: {words}, 100 lost." in page.text
    assert "Control from the ground: 400 messages written, 400 delivered" in page.text
    assert "22 s, from 2 logs" in page.text


def test_a_restarted_gateway_has_a_section_for_each_start(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    page = parsed(log_of(second, STARTED, begun=BEGUN + 60), log_of(first, STARTED))
    assert "Aircraft, start 2: 1 000 control messages were delivered" in page.text
    assert page.text.index("Aircraft, start 2: X500") < page.text.index("Aircraft, start 1: X500")


@pytest.mark.parametrize("cut", [1, 40, 200])
def test_a_last_line_that_was_cut_off_is_told_and_the_rest_is_read(tmp_path: Path, cut: int) -> None:
    file = log_of(tmp_path, STARTED)
    text = file.read_text(encoding="utf-8")
    lines = len(text.splitlines())
    file.write_text(text[: -1 - cut], encoding="utf-8")
    log = GatewayLog.read(file)
    assert log.notes == (f"Line {lines}, its last, is cut off: the log ends before it.",)
    assert log.length_s == 19
    assert "is cut off" in parsed(file).text


def test_broken_lines_within_are_left_out_and_counted(tmp_path: Path) -> None:
    file = log_of(tmp_path, STARTED)
    lines = file.read_text(encoding="utf-8").splitlines()
    lines[3] = "\x00\x00\x00"
    lines[5] = '{"t_ms": "soon"}'
    file.write_text("\n".join(lines), encoding="utf-8")
    log = GatewayLog.read(file)
    assert log.notes == ("2 lines, the first of them line 4 cannot be read and are left out.",)
    assert log.length_s == 20


def test_a_log_of_nothing_but_its_head_has_a_page_too(tmp_path: Path) -> None:
    file = log_of(tmp_path, [], length_s=0)
    assert "The log says too little for a verdict." in parsed(file).text


def test_what_is_no_log_and_what_is_newer_are_refused(tmp_path: Path) -> None:
    other = tmp_path / "other.jsonl"
    other.write_text('{"a": 1}\n', encoding="utf-8")
    assert not is_log(other)
    with pytest.raises(ResultError, match="line 1: found no gateway's log"):
        GatewayLog.read(other)
    newer = log_of(tmp_path, STARTED)
    newer.write_text(newer.read_text(encoding="utf-8").replace('"version": 1', '"version": 2'), encoding="utf-8")
    with pytest.raises(ResultError, match="found version 2, expected 1"):
        GatewayLog.read(newer)


def test_a_wall_clock_that_was_set_does_not_move_what_happened(tmp_path: Path) -> None:
    file = log_of(tmp_path, [*STARTED, *CUT])
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    for line in lines[-8:]:
        line["unix"] += 3600
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    log = GatewayLog.read(file)
    assert log.begun_unix == pytest.approx(BEGUN)
    assert log.length_s == 20
    assert any("The wall clock was set during the log, by 1 h" in note for note in log.notes)


def test_words_of_a_log_cannot_break_the_page(tmp_path: Path) -> None:
    evil = [(3.0, {"event": "alarm", "text": "</script><script>alert(1)</script>"})]
    text = gateway_html([log_of(tmp_path, [*STARTED, *evil])])
    assert "<script>alert" not in text


def test_the_command_writes_the_page_beside_the_first_log(skybraid: Command, tmp_path: Path) -> None:
    log_of(tmp_path, STARTED)
    log_of(tmp_path, STARTED, side="ground")
    done = skybraid("report", "aircraft.jsonl", "ground.jsonl")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "aircraft.html\n"
    assert (tmp_path / "aircraft.html").stat().st_size < 3_000_000
    wrong = skybraid("report", "aircraft.jsonl", "aircraft.html")
    assert wrong.returncode == 2
    assert "line 1: found no gateway's log" in wrong.stderr


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    program = browser()
    if program is None:
        pytest.skip("found no Chromium or Chrome; SKYBRAID_BROWSER may name one")
    with Chromium(program, tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def page_of_both(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gateway")
    air = log_of(folder, [*STARTED, *CUT, *BACK])
    ground = log_of(folder, STARTED, side="ground")
    file = folder / "report.html"
    file.write_text(gateway_html([air, ground]), encoding="utf-8")
    return file


@pytest.mark.parametrize(("width", "dark"), [(1000, False), (1000, True), (390, False)])
def test_a_browser_draws_all_without_requests_or_overflow(
    window: Chromium, page_of_both: Path, width: int, dark: bool
) -> None:
    window.look(width=width, dark=dark)
    window.open(page_of_both)
    assert window.problems == []
    assert not [address for address in window.requests[1:] if not address.startswith(("data:", "blob:"))]
    # States, round trip, delay, loss, rate, control and traffic by path, of both sides.
    assert window.run("document.querySelectorAll('.chart').length") == 14
    assert window.run("document.documentElement.scrollWidth") <= width
    views = f"{VIEWS}.filter((view) => view.frame)"
    assert window.run(f"{views}.length") == 14
    assert window.run(f"{views}.filter({BLANK}).map((view) => view.model.name)") == []


def test_in_a_browser_events_are_filtered(window: Chromium, page_of_both: Path) -> None:
    window.look()
    window.open(page_of_both)
    window.run(
        "(() => { const box = document.querySelector('input[data-filters=events]');"
        " box.value = 'lte down'; box.dispatchEvent(new Event('input')); })()"
    )
    rows = window.run(
        "[...document.querySelectorAll('#events tbody tr')].filter((r) => r.checkVisibility()).map((r) => r.innerText)"
    )
    assert len(rows) == 2
    assert all(re.search(r"lte, from the peer: (suspected → down|down → probation)", row) for row in rows)


@needs_gateway
def test_logs_of_both_gateways_are_compared(tmp_path: Path) -> None:
    program = binary()
    assert program is not None
    wan, into, out, air_page, ground_page = free_ports(5)
    here = Node()
    paths = {name: {"remote": f"127.0.0.1:{wan}", "address": f"127.0.0.{at}"} for at, name in enumerate(PATHS, 2)}
    aircraft, ground = configure_pair(
        program,
        tmp_path,
        (here, here),
        paths,
        aircraft={
            "udp": {"sticks": {"listen": f"127.0.0.1:{into}", "class": "control"}},
            "log": {"file": "air.jsonl", "every": "100ms"},
        },
        ground={
            "udp": {"sticks": {"send_to": f"127.0.0.1:{out}", "class": "control"}},
            "log": {"file": "ground.jsonl", "every": "100ms"},
        },
        status_ports=(air_page, ground_page),
    )
    try:
        for daemon in (ground, aircraft):
            daemon.start()
        aircraft.until_linked(2)
        with here.socket() as sticks:
            for number in range(50):
                sticks.sendto(number.to_bytes(40, "big"), ("127.0.0.1", into))
                time.sleep(0.01)
        ground.until(lambda state: state["classes"][0]["delivered"] == 50, 5)
    finally:
        for daemon in (aircraft, ground):
            daemon.stop()
    files = [next(tmp_path.glob(f"{side}-*.jsonl")) for side in ("air", "ground")]
    logs = [GatewayLog.read(file) for file in files]
    for log in logs:
        assert log.notes == ()
        assert log.path_names == PATHS
        for path in log.last["paths"]:
            spans = log.spans(path["name"], "incoming")
            assert "up" in {one.state for one in spans}
            assert spans[-1].state == path["incoming"]
    assert logs[0].counted("control", "written") == logs[1].counted("control", "delivered") == 50
    assert "Control from the aircraft: 50 messages written, 50 delivered" in parsed(*files).text
