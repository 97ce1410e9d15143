"""Measured files with mistakes: each is read rightly, or is an error that says where; none gives wrong numbers."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from skybraid.traces import TraceError
from skybraid.traces.flights import Flight, read_flight
from skybraid.traces.formats import Options

SECONDS = range(60)
CSV = "time [s],downlink rate [Mbit/s],delay [ms]\n" + "".join(f"{at},{20 + at % 7},{5 + at % 3}\n" for at in SECONDS)
DATED = "time,dl_mbps,rtt_ms\n" + "".join(
    f"2026-05-13T12:00:{at:02d}Z,{20 + at % 7},{10 + 2 * (at % 3)}\n" for at in SECONDS
)
PING = "PING a (10.0.0.1) 56(84) bytes of data.\n" + "".join(
    f"[{1683992966 + at}.5] 64 bytes from 10.0.0.1: icmp_seq={at + 1} ttl=48 time={10 + 2 * (at % 3)} ms\n"
    for at in SECONDS
)
GOOD = {"a.csv": CSV, "dated.csv": DATED, "ping.txt": PING}


def read(folder: Path, name: str, data: str | bytes, options: Options | None = None) -> list[Flight]:
    path = folder / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return read_flight(str(path), options).journeys()


def cell(text: str, row: int, column: int, value: str) -> str:
    lines = text.splitlines()
    cells = lines[row].split(",")
    cells[column] = value
    lines[row] = ",".join(cells)
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize(
    "mutate",
    [
        str.encode,
        lambda text: text.replace("\n", "\r\n").encode(),
        lambda text: text.replace("\n", "\r").encode(),
        lambda text: b"\xef\xbb\xbf" + text.encode(),
        lambda text: text.encode("utf-16"),
        lambda text: b"\xfe\xff" + text.encode("utf-16-be"),
        lambda text: gzip.compress(text.encode()),
        lambda text: text.rstrip("\n").encode(),
        lambda text: b"\n\n" + text.encode() + b"\n\n",
    ],
    ids=["as-is", "crlf", "cr", "bom", "utf-16", "utf-16-be", "gz", "no-last-newline", "blank-lines"],
)
def test_a_files_encoding_changes_no_value(tmp_path: Path, name: str, mutate) -> None:  # type: ignore[no-untyped-def]
    (flight,) = read(tmp_path, name, mutate(GOOD[name]))
    delay = flight.values("delay", "uplink")
    assert delay is not None
    assert delay == pytest.approx(5 + np.arange(60) % 3)
    assert flight.length_s == pytest.approx(60, abs=0.01)


LINES = CSV.splitlines(keepends=True)
DATED_LINES = DATED.splitlines(keepends=True)
PING_LINES = PING.splitlines(keepends=True)


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("a.csv", "", "a.csv: found an empty file; expected a measurement"),
        ("a.csv", LINES[0], "a.csv: found headings without rows"),
        ("a.csv", CSV[:-6] + "\n", "a.csv:61: found 1 cells; expected 3"),
        ("a.csv", "".join(LINES[:10] + LINES[20:30] + LINES[10:]), "a.csv:21: found a step of -19 s"),
        ("a.csv", "".join(LINES[:10] + LINES[9:]), "a.csv:11: found a step of 0 s"),
        ("a.csv", CSV + CSV, "a.csv:63: found a step of -59 s"),
        ("a.csv", cell(CSV, 20, 1, "-5"), "a.csv:21: found -5 as rate; expected 0 to 1e+09 Mbit/s"),
        ("a.csv", cell(CSV, 20, 1, "inf"), "a.csv:21: found inf as rate"),
        ("a.csv", cell(CSV, 20, 1, "1e308"), "a.csv:21: found 1e+308 as rate"),
        ("a.csv", cell(CSV, 20, 2, "1e308"), "a.csv:21: found 1e+308 as delay"),
        ("a.csv", cell(CSV, 20, 1, "20,5"), "a.csv:21: found 4 cells; expected 3"),
        ("a.csv", gzip.compress(CSV.encode())[:-20], "a.csv: found a damaged gzip file"),
        ("dated.csv", DATED_LINES[0], "dated.csv:1: found one line alone, `time,dl_mbps,rtt_ms`"),
        ("dated.csv", "".join(DATED_LINES[:10] + DATED_LINES[20:30] + DATED_LINES[10:]), ":21: found a step of -19 s"),
        ("dated.csv", "".join(DATED_LINES[:10] + DATED_LINES[9:]), ":11: found a step of 0 s"),
        ("dated.csv", DATED + DATED, "dated.csv:63: found a step of -59 s"),
        ("dated.csv", DATED.replace(":30Z", ":30"), "dated.csv:32: found `2026-05-13T12:00:30` without a zone"),
        ("dated.csv", cell(DATED, 20, 1, "-5"), "dated.csv:21: found -5 as rate"),
        ("dated.csv", cell(DATED, 20, 1, "inf"), "dated.csv:21: found inf as rate"),
        ("dated.csv", cell(DATED, 20, 2, "1e308"), "dated.csv:21: found 1e+308 as rtt"),
        ("dated.csv", cell(DATED, 20, 1, "1_000"), "dated.csv:21: found `1_000`; expected a number"),
        ("dated.csv", cell(DATED, 20, 1, "\u0661\u0662"), "dated.csv:21: found `\u0661\u0662`; expected a number"),
        ("dated.csv", cell(DATED, 20, 1, "20,5"), "dated.csv:21: found 4 cells; expected 3"),
        ("dated.csv", "".join(DATED_LINES[:30]) + "2026\n", "dated.csv:31: found 1 cells; expected 3"),
        ("ping.txt", "".join(PING_LINES[:30]) + PING_LINES[30][:40] + "\n", "line 31: found"),
        ("ping.txt", PING.replace("time=12 ms", "time=12,5 ms", 1), "ping.txt:3: found `12,5`"),
        ("ping.txt", PING.replace("time=12 ms", "time=-12 ms", 1), "line 3: found"),
        ("ping.txt", PING + PING.replace("[16", "[17"), "ping.txt:62: found `PING a"),
        ("flags.txt", "0\n1\n" * 30, "found numbers without headings that begin with `0`; expected --format values"),
        ("a.up", "0\n1\n0\n", "line 3: found `0`, expected a time not before the one above"),
        ("a.up", "-1\n5\n", "line 1: found `-1`"),
        ("a.json", '{"start": {"timestamp"', "a.json: found JSON of no known tool"),
        ("a.bin", bytes(range(256)), "a.bin: found bytes that begin with"),
    ],
)
def test_a_mistake_is_an_error_with_its_line(tmp_path: Path, name: str, data: str | bytes, words: str) -> None:
    with pytest.raises(TraceError) as error:
        read(tmp_path, name, data)
    assert words in str(error.value)
    assert name in str(error.value)


def test_a_gap_is_cut_out_and_said(tmp_path: Path) -> None:
    for name, lines in (("a.csv", LINES), ("dated.csv", DATED_LINES)):
        (flight,) = read(tmp_path, name, "".join(lines[:10] + lines[40:]))
        assert flight.length_s == pytest.approx(30)
        assert "cut out" in flight.notes[-1]


def test_a_cell_that_is_no_number_is_a_gap_that_is_said(tmp_path: Path) -> None:
    (flight,) = read(tmp_path, "a.csv", cell(CSV, 20, 1, "NaN"))
    assert flight.length_s == pytest.approx(59)
    assert "cut out" in flight.notes[-1]


def test_decimal_commas_between_semicolons_are_read(tmp_path: Path) -> None:
    (flight,) = read(tmp_path, "a.csv", CSV.replace(",", ";").replace(";20;", ";20,5;"))
    rate = flight.values("rate", "downlink")
    assert rate is not None
    assert rate.tolist() == [20 + (at % 7 or 0.5) for at in SECONDS]


@pytest.mark.parametrize(
    ("name", "data"),
    [("a.csv", CSV[:-6]), ("dated.csv", DATED[:-6]), ("ping.txt", "".join(PING_LINES[:-1]) + PING_LINES[-1][:40])],
)
def test_a_last_line_that_was_cut_off_is_said(tmp_path: Path, name: str, data: str) -> None:
    (flight,) = read(tmp_path, name, data)
    assert flight.length_s == pytest.approx(59, abs=0.1)
    assert any("cut off" in note for note in flight.notes)


def test_zones_within_a_file_may_differ(tmp_path: Path) -> None:
    lines = [line.replace("T12", "T14").replace("Z", "+02:00") for line in DATED_LINES[1::2]]
    mixed = [DATED_LINES[0], *(line for pair in zip(lines, DATED_LINES[2::2], strict=True) for line in pair)]
    (flight,) = read(tmp_path, "dated.csv", "".join(mixed))
    assert flight.length_s == pytest.approx(60, abs=0.01)


def test_columns_may_be_parted_by_blanks(tmp_path: Path) -> None:
    text = "pub_time(ms) delay(ms) x(m)\n" + "".join(
        f"{1721289684683 + 50 * at} {20 + at % 5} 3 \n" for at in range(60)
    )
    (flight,) = read(tmp_path, "car.txt", text, Options(columns={"delay(ms)": "rtt [ms]"}))
    delay = flight.values("delay", "uplink")
    assert delay is not None
    assert delay.tolist() == [(20 + at % 5) / 2 for at in range(60)]


def test_lines_without_headings_are_named_by_number(tmp_path: Path) -> None:
    text = "".join(f"{1694478364.5 + at}\t{at}\t{-1 if at == 20 else 40}\n" for at in range(60))
    with pytest.raises(TraceError, match="--as"):
        read(tmp_path, "gw.txt", text)
    (flight,) = read(tmp_path, "gw.txt", text, Options(columns={"3": "rtt [ms]"}, lost=-1))
    delay = flight.values("delay", "uplink")
    assert delay is not None
    assert np.flatnonzero(np.isinf(delay)).tolist() == [20]
    with pytest.raises(TraceError, match=r"gw.txt:21: found -1 as rtt"):
        read(tmp_path, "gw.txt", text, Options(columns={"3": "rtt [ms]"}))


def test_a_column_of_lines_of_numbers_is_read(tmp_path: Path) -> None:
    options = Options(format="values", every_s=1.0, columns={"2": "downlink rate [Mbit/s]"})
    (flight,) = read(tmp_path, "rate.csv", "1,29.6\n2,36.4\n3,38.6\n", options)
    rate = flight.values("rate", "downlink")
    assert rate is not None
    assert rate.tolist() == [29.6, 36.4, 38.6]
    with pytest.raises(TraceError, match=r"rate.csv:2: found 1 numbers; expected at least 2"):
        read(tmp_path, "rate.csv", "1,29.6\n2\n", options)


def test_columns_of_one_kind_keep_their_names(tmp_path: Path) -> None:
    text = "time [s],a [Mbit/s],b [Mbit/s]\n" + "".join(f"{at},{at},{2 * at}\n" for at in SECONDS)
    (flight,) = read(tmp_path, "pair.csv", text)
    assert [column.name for column in flight.columns] == ["a rate", "b rate"]
    (flight,) = read(tmp_path, "pair.csv", text, Options(columns={"b": "downlink rate [Mbit/s]"}))
    rate = flight.values("rate", "downlink")
    assert rate is not None
    assert rate.tolist() == [2.0 * at for at in SECONDS]
