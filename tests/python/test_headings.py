"""Headings and numbers of tables: what a column is, which clock it has, and what is never guessed."""

from pathlib import Path

import pytest

from skybraid.traces import TraceError, load
from test_trace_import import measured, values, write

ROWS = 12


def table(folder: Path, heading: str, *columns: list[str], separator: str = ",") -> Path:
    lines = [separator.join(cells) for cells in zip(*columns, strict=True)]
    return write(folder, "a.csv", "\n".join([heading, *lines, ""]))


def numbers(value: str) -> list[str]:
    return [value] * ROWS


def seconds(first: int = 0, step: int = 1) -> list[str]:
    return [str(first + step * at) for at in range(ROWS)]


@pytest.mark.parametrize(
    "name",
    [
        "battery [%]",
        "cpu (%)",
        "humidity [%]",
        "jitter [ms]",
        "rtt_mdev_ms",
        "ping_stddev [ms]",
        "delay variation [ms]",
        "handover duration [ms]",
        "ping_interval_ms",
        "age [s]",
    ],
)
@pytest.mark.parametrize("times", ["time [s]", "time_s"])
def test_another_quantity_of_the_same_unit_is_left_out(name: str, times: str, tmp_path: Path) -> None:
    one = measured(table(tmp_path, f"{times},rate [Mbit/s],{name}", seconds(), numbers("20"), numbers("50")))
    assert [column.name for column in one.columns] == ["rate"]
    assert any(name in note for note in one.notes)


@pytest.mark.parametrize("name", ["loss [%]", "packet_loss_pct", "PER [%]", "plr [%]", "lost (%)"])
def test_a_share_that_is_a_loss_is_read(name: str, tmp_path: Path) -> None:
    one = measured(table(tmp_path, f"time [s],{name}", seconds(), numbers("50")))
    assert [column.quantity for column in one.columns] == ["loss"]


@pytest.mark.parametrize(
    ("name", "quantity", "note"),
    [
        ("ping [ms]", "rtt", ""),
        ("ping_ms", "rtt", ""),
        ("latency [ms]", "delay", "`latency [ms]` taken as a one-way delay (otherwise --as 'latency=rtt [ms]')"),
        ("latency_ms", "rtt", "`latency_ms` taken as a round trip (otherwise --as 'latency_ms=delay [ms]')"),
    ],
)
def test_a_time_is_one_way_or_a_round_trip(name: str, quantity: str, note: str, tmp_path: Path) -> None:
    one = measured(table(tmp_path, f"time [s],{name}", seconds(), numbers("50")))
    assert [column.quantity for column in one.columns] == [quantity]
    assert one.notes == ((note,) if note else ())


@pytest.mark.parametrize(
    ("heading", "first", "step", "start_unix_s"),
    [
        ("time [us]", 1234567890, 10**6, None),
        ("time [ns]", 1234567890123, 10**9, None),
        ("timestamp_ns", 1234567890123, 10**9, None),
        ("time_ms", 1234567890, 10**3, None),
        ("uptime (us)", 1234567890123, 10**6, None),
        ("time [s]", 1683992966, 1, 1683992966.0),
        ("time [ms]", 1683992966000, 10**3, 1683992966.0),
        ("time [s]", 1683992966000, 10**3, 1683992966.0),
        ("timestamp_us", 1683992966000000, 10**6, 1683992966.0),
    ],
)
def test_a_time_since_a_start_is_no_date(
    heading: str, first: int, step: int, start_unix_s: float | None, tmp_path: Path
) -> None:
    one = measured(table(tmp_path, f"{heading},dl_mbps", seconds(first, step), numbers("20")))
    assert one.times_s.tolist() == list(range(ROWS))
    assert one.start_unix_s == start_unix_s


def test_dates_in_seconds_may_have_decimal_commas(tmp_path: Path) -> None:
    times = [f"{1683992966 + at},25" for at in range(ROWS)]
    one = measured(table(tmp_path, "time;rtt_ms", times, numbers("12,5"), separator=";"))
    assert (one.start_unix_s, one.times_s.tolist()) == (1683992966.25, list(range(ROWS)))


def test_points_between_thousands_are_no_decimals(tmp_path: Path) -> None:
    rates = [*["900,5"] * (ROWS - 1), "1.234"]
    with pytest.raises(TraceError, match=r"a.csv:13: found `1.234`; expected decimals as in `900,5`"):
        load(table(tmp_path, "time [s];rate [kbit/s]", seconds(), rates, separator=";"))


@pytest.mark.parametrize("heading", ["time_s,rx_mbps,tx_mbps", "time [s],rx [Mbit/s],tx_rate [Mbit/s]"])
def test_what_is_received_came_down_and_what_is_sent_goes_up(heading: str, tmp_path: Path) -> None:
    one = measured(table(tmp_path, heading, seconds(), numbers("20"), numbers("4")))
    assert values(one, "downlink rate") == [20.0] * ROWS
    assert values(one, "uplink rate") == [4.0] * ROWS
