"""Tables as spreadsheets and scripts write them: encodings, units, separators, compression, times of day, zones."""

import bz2
import gzip
import io
import lzma
import math
import zipfile
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Literal

import polars as pl
import pytest

from skybraid.traces import TraceError, load, read
from skybraid.traces.formats.source import CUT
from skybraid.traces.importing import import_files
from skybraid.traces.units import scale_of
from test_trace_import import measured, values, write

UNITS = "time [s],rate [Mbit/s]\n0,12\n1,13\n"
DATES = "timestamp,dl_mbps\n2026-05-13 10:00:0{}{zone},12\n2026-05-13 10:00:1{}{zone},13\n"


def dated(zone: str) -> str:
    return DATES.format(0, 0, zone=zone)


def zipped(*names: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(name, UNITS)
    return file.getvalue()


class TestUnits:
    @pytest.mark.parametrize(
        ("quantity", "scale", "units"),
        [
            ("rate", 1.0, "Mb/s Mbps MBit/s mbit/s Mbit/sec Mbits/sec Mbits/s MBPS"),
            ("rate", 1e-3, "kbit/s Kbps kb/s Kbit/s KBPS"),
            ("rate", 1e-6, "bit/s bits/sec b/s bps"),
            ("rate", 8.0, "MB/s MBps Mbytes/s"),
            ("rate", 8e-3, "kB/s KB/s"),
            ("rate", 8 * 1.048576, "MiB/s"),
            ("delay", 1.0, "ms msec milliseconds"),
            ("delay", 1e-3, "us µs μs usec"),
            ("delay", 1e3, "s sec Seconds"),
            ("loss", 1.0, "% pct percent"),
        ],
    )
    def test_units_are_known_in_many_spellings(self, quantity: str, scale: float, units: str) -> None:
        for unit in units.split():
            assert scale_of(quantity, unit) == pytest.approx(scale), unit

    @pytest.mark.parametrize("unit", ["M", "Mbit", "dBm", "bananas/s", ""])
    def test_another_unit_is_none(self, unit: str) -> None:
        assert [scale_of(quantity, unit) for quantity in ("rate", "delay", "loss")] == [None] * 3

    def test_a_trace_is_read_in_any_spelling_of_its_unit(self, tmp_path: Path) -> None:
        path = write(tmp_path, "a.csv", "sep=;\ntime (msec);DL [Mbits/sec];rtt (ms)\n0;12;30\n500;13;31\n")
        for column, unit, cells in (("DL", "Mbit/s", [12, 13]), ("rtt", "ms", [30, 31])):
            trace = read(path, column)
            assert trace.unit == unit
            assert trace.times_s == pytest.approx([0, 0.5])
            assert trace.values == pytest.approx(cells)

    @pytest.mark.parametrize("times", ["time [s]", "Time (sec)", "Zeit [s]", "t_s", "elapsed [s]", "relative time (s)"])
    @pytest.mark.parametrize("rates", ["DL [Mb/s]", "Downlink (Mbits/sec)", "downlink rate [Mbps]", "dl_mbps"])
    def test_headings_have_units_in_many_forms(self, times: str, rates: str, tmp_path: Path) -> None:
        one = measured(write(tmp_path, "a.csv", f"{times},{rates},RTT (ms)\n0,12,30\n1,13,31\n"))
        assert one.times_s.tolist() == [0, 1]
        assert (values(one, "downlink rate"), values(one, "rtt")) == ([12, 13], [30, 31])


class TestSpreadsheets:
    @pytest.mark.parametrize("first", ["sep=;", '"sep=;"', "SEP=;"])
    def test_the_separator_of_excel_is_no_heading(self, first: str, tmp_path: Path) -> None:
        path = write(tmp_path, "a.csv", f"{first}\r\n{UNITS.replace(',', ';').replace('13', '13,5')}2;x\n")
        with pytest.raises(TraceError, match=r"a.csv:5: found `x`; expected a number"):
            load(path)
        path.write_text(path.read_text().removesuffix("2;x\n"))
        assert values(measured(path), "rate") == [12, 13.5]

    @pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le"])
    @pytest.mark.parametrize("text", [UNITS, dated("Z")])
    def test_encodings_of_excel_and_powershell_are_read(self, encoding: str, text: str, tmp_path: Path) -> None:
        one = measured(write(tmp_path, "a.csv", text.encode(encoding)))
        assert one.columns[0].values.tolist() == [12, 13]

    def test_decimal_commas_in_quotes_are_read(self, tmp_path: Path) -> None:
        text = '"time [s]","rate [Mbit/s]"\n"0,0","12,5"\n"0,5","13"\n'
        one = measured(write(tmp_path, "a.csv", text))
        assert (one.times_s.tolist(), values(one, "rate")) == ([0, 0.5], [12.5, 13])

    def test_a_cell_may_repeat_the_unit_of_its_heading(self, tmp_path: Path) -> None:
        text = "time [s];rtt [ms];loss [%]\n0;12,5 ms;50%\n1;13ms;0 %\n"
        one = measured(write(tmp_path, "a.csv", text))
        assert (values(one, "rtt"), values(one, "loss")) == ([12.5, 13], [50, 0])
        with pytest.raises(TraceError, match=r"a.csv:3: found `13s`; expected a number"):
            load(write(tmp_path, "a.csv", text.replace("13ms", "13s")))

    def test_a_note_of_two_lines_is_one_cell(self, tmp_path: Path) -> None:
        text = 'time [s],rate [Mbit/s],note\n0,12,"bridge,\nthen trees"\n1,x,\n'
        with pytest.raises(TraceError, match=r"a.csv:4: found `x`"):
            load(write(tmp_path, "a.csv", text))

    def test_empty_cells_at_the_end_of_rows_are_none(self, tmp_path: Path) -> None:
        assert values(measured(write(tmp_path, "a.csv", UNITS.replace("12", "12,").replace("13", "13,,"))), "rate") == [
            12,
            13,
        ]

    def test_headings_that_come_again_are_passed_over(self, tmp_path: Path) -> None:
        text = dated("Z")
        later = text.replace("10:00", "10:05")
        assert values(measured(write(tmp_path, "a.csv", text + later)), "downlink rate") == [12, 13, 12, 13]


class TestRecords:
    TEXT = '{"time": "2026-05-13T10:00:00Z", "ping": {"rtt_ms": 12.5}}\n{"time": "2026-05-13T10:00:01Z", "cell": 7}\n'

    @pytest.mark.parametrize("text", [TEXT, f"[{TEXT.strip().replace(chr(10), ',')}]", TEXT + '{"time": "20'])
    def test_records_in_json_are_rows(self, text: str, tmp_path: Path) -> None:
        one = measured(write(tmp_path, "a.jsonl", text))
        assert one.start_unix_s == 1778666400.0
        assert one.column("rtt").values.tolist() == pytest.approx([12.5, math.nan], nan_ok=True)
        assert (CUT in one.notes) == (not text.endswith(("\n", "]")))

    def test_a_damaged_record_is_named_by_its_line(self, tmp_path: Path) -> None:
        with pytest.raises(TraceError, match=r"a.jsonl:2: found damaged JSON"):
            load(write(tmp_path, "a.jsonl", self.TEXT.replace('"cell": 7', '"cell": ')))
        with pytest.raises(TraceError, match=r"a.jsonl:3: found `7`; expected records"):
            load(write(tmp_path, "a.jsonl", f"{self.TEXT}7\n"))


class TestParquet:
    SECONDS = tuple(datetime(2026, 5, 13, 10, 0, second, tzinfo=UTC) for second in range(3))

    @pytest.mark.parametrize("unit", ["ms", "us", "ns"])
    @pytest.mark.parametrize("zone", ["UTC", "Europe/Zurich", None])
    def test_dates_have_a_zone_or_need_one(
        self, unit: Literal["ms", "us", "ns"], zone: str | None, tmp_path: Path
    ) -> None:
        times = pl.Series(self.SECONDS).dt.replace_time_zone(zone).cast(pl.Datetime(unit, zone))
        pl.DataFrame({"time": times, "rtt_ms": [12, None, 14]}).write_parquet(tmp_path / "a.parquet")
        if zone is None:
            with pytest.raises(TraceError, match="without a zone; expected a zone in the file, or --zone"):
                load(tmp_path / "a.parquet")
        one = measured(tmp_path / "a.parquet", zone=zone or "UTC")
        assert one.start_unix_s == (1778659200.0 if zone == "Europe/Zurich" else 1778666400.0)
        assert one.column("rtt").values.tolist() == pytest.approx([12, math.nan, 14], nan_ok=True)

    @pytest.mark.parametrize(
        "times",
        [
            pl.Series(["2026-05-13T10:00:00Z", "2026-05-13T10:00:01Z", "2026-05-13T10:00:02Z"]),
            pl.Series([1778666400.0, 1778666401.0, 1778666402.0]),
            pl.Series([1778666400 * 10**9, 1778666401 * 10**9, 1778666402 * 10**9]),
            pl.Series([timedelta(seconds=second) for second in range(3)]),
            pl.Series([time(23, 59, 59), time(0, 0, 0), time(0, 0, 1)]),
        ],
        ids=["text", "seconds", "nanoseconds", "durations", "times-of-day"],
    )
    @pytest.mark.parametrize(
        "cells",
        [
            pl.Series(["12.5", "13", "14"]),
            pl.Series(["12.5", "13", "14"], dtype=pl.Categorical),
            pl.Series([Decimal("12.5"), Decimal(13), Decimal(14)]),
            pl.Series([12.5, 13, 14], dtype=pl.Float32),
        ],
        ids=["text", "dictionary", "decimal", "float"],
    )
    def test_columns_of_many_types_are_read(self, times: pl.Series, cells: pl.Series, tmp_path: Path) -> None:
        table = pl.DataFrame({"time": times, "rtt [ms]": cells, "cells": [[1], [2], [3]]})
        table.write_parquet(tmp_path / "a.parquet")
        one = measured(tmp_path / "a.parquet")
        assert (one.times_s.tolist(), values(one, "rtt")) == ([0, 1, 2], [12.5, 13, 14])

    def test_a_file_that_was_cut_off_is_damaged(self, tmp_path: Path) -> None:
        path = tmp_path / "a.parquet"
        pl.DataFrame({"time [s]": [0, 1], "rate [Mbit/s]": [1, 2]}).write_parquet(path)
        path.write_bytes(path.read_bytes()[:-20])
        with pytest.raises(TraceError, match=r"a.parquet: found damaged Parquet"):
            load(path)


class TestFiles:
    @pytest.mark.parametrize(
        ("name", "data"),
        [
            ("a.csv.gz", gzip.compress(UNITS.encode())),
            ("a.csv.bz2", bz2.compress(UNITS.encode())),
            ("a.csv.xz", lzma.compress(UNITS.encode())),
            ("a.csv.zip", zipped("a.csv", "__MACOSX/a.csv")),
        ],
    )
    def test_a_compressed_file_is_read(self, name: str, data: bytes, tmp_path: Path) -> None:
        ((written, _),) = import_files([write(tmp_path, name, data)], tmp_path / "out")
        assert written.name == "a.csv"
        with pytest.raises(TraceError, match="damaged"):
            load(write(tmp_path, name, data[:30]))

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            (b"", "an empty file"),
            (b"\xef\xbb\xbf\r\n", "an empty file"),
            (UNITS.splitlines()[0], "headings without rows"),
            (dated("Z").splitlines()[0], "one line alone"),
            (f"My drive\n\n{UNITS}", "`My drive` above headings"),
            (zipped("a.csv", "b.csv"), "a zip file of 2 files"),
            (zipped("[Content_Types].xml", "xl/workbook.xml"), "a workbook of Excel"),
            (bytes.fromhex("d0cf11e0a1b11ae1"), "a workbook of Excel"),
            ('{"format":"skybraid-gateway-log","version":1}\n', "the log of a gateway"),
            ("FMT, 128, 89, FMT, BBnNZ, Type,Length,Name,Format,Columns\n", "a log of ArduPilot as text"),
            ("HPING 8.8.8.8 (eth0 8.8.8.8): S set\n", "hping's output"),
            ("8.8.8.8 : 12.3 13.3 - 12.1\n", "sums of fping"),
            ("$GPGGA,100000.00,4700.000,N,00800.000,E,1,08,0.9,400.0,M,46.9,M,,*47\n" * 2, "NMEA of a GPS receiver"),
            ("10:00:01.123456 IP 10.0.0.2 > 8.8.8.8: ICMP echo request, id 1, seq 1\n" * 2, "text of tcpdump"),
            ("time,rtt_ms\n13.05.26 10:00:00,12\n13.05.26 10:00:01,13\n", "dates with a year of two digits"),
            ("time,rtt_ms\n26-05-13 10:00:00,12\n26-05-13 10:00:01,13\n", "dates with a year of two digits"),
        ],
    )
    def test_another_file_is_named_as_what_it_is(self, content: str | bytes, words: str, tmp_path: Path) -> None:
        with pytest.raises(TraceError) as error:
            load(write(tmp_path, "a.csv", content))
        assert f"found {words}" in str(error.value)

    def test_a_folder_is_said_to_be_one(self, tmp_path: Path) -> None:
        with pytest.raises(TraceError, match="found a folder; expected a file"):
            load(tmp_path)

    def test_a_column_without_a_value_is_left_out_or_refused(self, tmp_path: Path) -> None:
        text = "time [s],rate [Mbit/s],rtt [ms]\n0,,1\n1,,2\n"
        one = measured(write(tmp_path, "a.csv", text))
        assert [column.name for column in one.columns] == ["rtt"]
        assert "`rate [Mbit/s]` left out" in one.notes[0]
        with pytest.raises(TraceError, match=r"a.csv: found no value of `rate`"):
            load(write(tmp_path, "a.csv", "time [s],rate [Mbit/s]\n0,\n1,NaN\n"))


class TestClocks:
    @pytest.mark.parametrize(
        ("whens", "times_s"),
        [
            (["23:59:58", "23:59:59", "00:00:00"], [0, 1, 2]),
            (["23:58", "23:59", "00:00"], [0, 60, 120]),
            (["11:59:59 PM", "12:00:00 AM", "12:00:01 AM"], [0, 1, 2]),
            (["23:59:59.5", "23:59:59.9", "00:00:00.3"], [0, 0.4, 0.8]),
        ],
    )
    def test_midnight_follows_the_evening(self, whens: list[str], times_s: list[float], tmp_path: Path) -> None:
        text = "\n".join(["time,rtt_ms", *(f"{when},12" for when in whens)])
        assert measured(write(tmp_path, "a.csv", text)).times_s == pytest.approx(times_s, abs=1e-6)

    @pytest.mark.parametrize("zone", [" CST", " IST", " XYZ"])
    def test_a_zone_of_several_places_is_asked_for(self, zone: str, tmp_path: Path) -> None:
        path = write(tmp_path, "a.csv", dated(zone))
        with pytest.raises(TraceError, match=rf"a.csv:2: found `2026-05-13 10:00:00{zone}`, whose zone .* --zone"):
            load(path)
        assert measured(path, zone="America/Chicago").start_unix_s == 1778684400.0

    @pytest.mark.parametrize("zone", ["+02", "+0200", "+02:00", " Europe/Zurich", " CEST"])
    def test_a_zone_may_have_many_forms(self, zone: str, tmp_path: Path) -> None:
        assert measured(write(tmp_path, "a.csv", dated(zone))).start_unix_s == 1778659200.0

    def test_numbers_of_numpy_since_1970_are_dates(self, tmp_path: Path) -> None:
        text = "time,rtt_ms\n1.778659200000000000e+09,1.2e+01\n1.778659201500000000e+09,1.3e+01\n"
        one = measured(write(tmp_path, "a.csv", text))
        assert (one.start_unix_s, one.times_s.tolist()) == (1778659200.0, [0, 1.5])

    def test_a_count_of_bytes_is_no_date(self, tmp_path: Path) -> None:
        one = measured(write(tmp_path, "a.csv", "bytes,time_s,rtt_ms\n1234567890,0,12\n1234567999,1,13\n"))
        assert (one.start_unix_s, one.times_s.tolist()) == (None, [0, 1])
