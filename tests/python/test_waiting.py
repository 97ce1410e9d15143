"""Head-of-line blocking, blocked windows and refused messages, read through Python."""

import numpy as np
import polars as pl
import pytest

from skybraid import Results, Scenario, run
from skybraid.model.summary import FlowSummary
from skybraid.show import plots
from skybraid.show.explain import explain
from skybraid.show.report import html, waits

LINK = {"rate": "1Gbit/s", "queue": "unlimited"}

SERIALISATION_NS = 8 * (20 + 20 + 12 + 1000)
"""A segment of 1000 bytes behind IPv4, TCP and timestamps, at 1 Gbit/s."""

ACK_NS = 8 * (20 + 20 + 12 + 12)
"""An acknowledgement with one SACK block."""


def path(delay: str, **uplink: object) -> dict[str, object]:
    return {"uplink": LINK | {"delay": delay} | uplink, "downlink": LINK | {"delay": delay} | uplink}


def flown(paths: dict[str, object], traffic: dict[str, str], transport: dict[str, object], duration: str) -> Results:
    """One flow from the vehicle, from 1 s on."""
    flow = {"from": "vehicle", "start": "1s", "traffic": traffic, "transport": transport}
    return run(Scenario.build({"name": "Waiting", "duration": duration, "path": paths, "flow": {"data": flow}}))


EVERY_TEN_MS = {"kind": "cbr", "rate": "800kbit/s", "packet": "1000B"}


@pytest.fixture(scope="module")
def two_delays() -> Results:
    transport: dict[str, object] = {"protocol": "mptcp", "scheduler": "round_robin"}
    return flown({"fast": path("10ms"), "slow": path("60ms")}, EVERY_TEN_MS, transport, "3s")


def test_over_10_and_60_ms_in_turn_every_second_waits_40_ms(two_delays: Results) -> None:
    # The message after one on the slow path leaves 10 ms later and needs 50 ms less.
    data = two_delays.flows["data"]
    assert data.held_longest_s == 0.04
    settled = two_delays.tables["messages"].filter(pl.col("id").is_between(10, 189))
    assert settled["held_us"].value_counts().sort("held_us").rows() == [(0, 90), (40_000, 90)]
    assert settled.filter(pl.col("held_us") > 0)["path"].unique().to_list() == ["fast"]
    held = two_delays.tables["messages"].filter(pl.col("held_us") > 0)
    assert data.held_messages == held.height
    assert data.held_total_s == pytest.approx(int(held["held_us"].sum()) / 1e6, abs=held.height * 1e-6)
    # One comes every 20 ms and stays for 40 ms, so the receiver holds some from the third message's arrival to the end.
    third_arrived_s = 1.02 + 0.01 + (SERIALISATION_NS + 8 * 24) * 1e-9
    assert data.holding_s == pytest.approx(3 - third_arrived_s, abs=1e-9)
    assert (data.window_blocked_times, data.reinjections, data.opportunistic_retransmissions) == (0, 0, 0)


def test_what_was_held_is_in_the_frame_of_flows_and_in_the_report(two_delays: Results) -> None:
    data = two_delays.flows["data"]
    (row,) = two_delays.flows_frame().rows(named=True)
    for name in ("held_messages", "held_total_s", "held_longest_s", "holding_s", "window_blocked_s", "refused"):
        assert row[name] == getattr(data, name)
    page = html(two_delays).replace("\u00a0", " ")
    assert "Head-of-line blocking" in page
    assert "an earlier missing one, 40 ms on average and 40 ms at most" in page
    assert "window blocked data" not in page


def test_one_lost_segment_holds_the_next_thirteen() -> None:
    # Message 50 leaves at 1.5 s into an outage of a millisecond.
    paths: dict[str, object] = {"only": path("50ms") | {"down": [["1500ms", "1ms"]]}}
    results = flown(paths, EVERY_TEN_MS, {"protocol": "tcp", "loss_detection": "sack"}, "4s")
    data = results.flows["data"]
    # The third segment behind it leaves 30 ms later; its acknowledgement brings the retransmission.
    late_ns = 30_000_000 + SERIALISATION_NS + 50_000_000 + ACK_NS + 50_000_000 + SERIALISATION_NS + 50_000_000
    first_arrived_ns = 10_000_000 + SERIALISATION_NS + 50_000_000
    assert data.held_messages == 13
    assert data.held_longest_s == pytest.approx((late_ns - first_arrived_ns) * 1e-9, abs=1e-12)
    each_ns = [late_ns - first_arrived_ns - behind * 10_000_000 for behind in range(13)]
    assert data.held_total_s == pytest.approx(sum(each_ns) * 1e-9, abs=1e-12)
    # Within the one subflow, so nothing waits for another.
    assert data.holding_s == 0


# Source: RFC 8684 §3.3.5's rule: 8 Mbit/s at 20 ms and 2 Mbit/s at 150 ms need between 37.5 and 187.5 kB.
@pytest.mark.parametrize(("buffer", "blocks"), [("37.5kB", True), ("750kB", False)])
def test_a_receive_buffer_of_one_paths_product_blocks(buffer: str, blocks: bool) -> None:
    queue = {"bytes": "40kB"}
    paths: dict[str, object] = {
        "fast": path("10ms", rate="8Mbit/s", queue=queue),
        "slow": path("75ms", rate="2Mbit/s", queue=queue),
    }
    transport: dict[str, object] = {"protocol": "mptcp", "scheduler": "low_rtt", "receive_buffer": buffer}
    results = flown(paths, {"kind": "bulk"}, transport, "31s")
    data = results.flows["data"]
    assert (data.window_blocked_s > 5) is blocks
    assert any("receive window blocked data" in found for found in waits(data)) is (data.window_blocked_times > 0)


def test_what_finds_no_room_is_refused_and_lost() -> None:
    traffic = {"kind": "cbr", "rate": "10Mbit/s", "packet": "1000B"}
    results = flown({"only": path("10ms", rate="1Mbit/s")}, traffic, {"protocol": "dccp"}, "4s")
    data = results.flows["data"]
    assert 0.8 * data.sent < data.refused <= data.lost
    assert waits(data)[-1].endswith("of all, because the send buffer was full or the deadline passed")


def test_several_runs_add_up_but_for_the_longest() -> None:
    paths = {"fast": path("10ms"), "slow": path("60ms", loss={"uniform": "20%"})}
    flow = {
        "from": "vehicle",
        "traffic": EVERY_TEN_MS,
        "transport": {"protocol": "mptcp", "scheduler": "round_robin"},
    }
    scenario = Scenario.build({"name": "Waiting", "duration": "5s", "path": paths, "flow": {"data": flow}})
    results = run(scenario, seeds=[1, 2, 3])
    runs = [flight.flows["data"] for flight in results.flights]
    data = results.flows["data"]
    assert data.held_messages == sum(one.held_messages for one in runs)
    assert data.held_total_s == pytest.approx(sum(one.held_total_s for one in runs))
    assert data.held_longest_s == max(one.held_longest_s for one in runs)
    assert len({one.held_longest_s for one in runs}) > 1


def test_a_result_of_before_these_numbers_still_opens(two_delays: Results) -> None:
    values = two_delays.flows["data"].to_dict()
    for name in ("refused", "held_messages", "window_blocked_s", "reinjections"):
        del values[name]
    assert FlowSummary.from_dict(values).held_messages == 0


@pytest.fixture(scope="module")
def three_ports() -> Results:
    transport: dict[str, object] = {"protocol": "mptcp", "scheduler": "round_robin", "path_manager": {"ports": 3}}
    queue = {"packets": 30}
    paths: dict[str, object] = {
        "used": path("20ms", rate="6Mbit/s", queue=queue, loss={"uniform": "0.5%"}),
        "idle": path("20ms", rate="6Mbit/s", queue=queue),
    }
    return flown(paths, {"kind": "bulk"}, transport, "6s")


def test_three_subflows_on_a_path_are_three_lines_of_its_colour(three_ports: Results) -> None:
    upper, lower = plots.window(three_ports).axes
    for axes in (upper, lower):
        lines = axes.get_lines()
        assert [line.get_label() for line in lines] == [f"used, subflow {number}" for number in (1, 2, 3)]
        assert {line.get_color() for line in lines} == {plots.COLOURS[0]}
        assert len({line.get_linestyle() for line in lines}) == 3
    rows = three_ports.tables["subflows"].filter(pl.col("subflow") == 1)
    # Six seconds have fewer samples than the figure has columns, so that each sample is drawn.
    drawn_kb = np.asarray(upper.get_lines()[1].get_ydata(), dtype=float)
    assert drawn_kb == pytest.approx(rows["cwnd_bytes"].to_numpy() / 1e3)


def test_the_windows_of_subflows_on_one_path_add_up_when_explained(three_ports: Results) -> None:
    (flow,) = explain(three_ports)
    used = next(one for one in flow.paths if one.path == "used")
    rows = three_ports.tables["subflows"].filter(pl.col("time_ns") >= 1e9, pl.col("srtt_ns").is_not_null())
    together = rows.group_by("time_ns").agg(pl.col("cwnd_bytes").sum())["cwnd_bytes"].median()
    assert used.window_bytes == together
