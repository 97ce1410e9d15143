"""Traces: the shipped files against what is said of them, the readers, conversion, error messages."""

import importlib.util
import json
import os
from pathlib import Path
from types import ModuleType

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from conftest import Command
from skybraid import traces
from skybraid.cli.trace import app
from skybraid.traces import Trace, TraceError, read, stats, write

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ROOT / "traces"
MEASUREMENTS = Path(os.environ.get("SKYBRAID_TRACES") or ROOT.parent / "shared" / "traces")

needs_measurements = pytest.mark.skipif(
    not MEASUREMENTS.is_dir(), reason=f"no measurements at {MEASUREMENTS}; set SKYBRAID_TRACES"
)


def readme_rows() -> list[list[str]]:
    lines = (SHIPPED / "README.md").read_text(encoding="utf-8").splitlines()
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return [row for row in table if (SHIPPED / row[0]).is_file()]


def load_build_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_traces", SHIPPED / "build_traces.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def steps(values: list[float], quantity: traces.Quantity = "rate", step_s: float = 1.0) -> Trace:
    times_s = np.arange(len(values), dtype=np.float64) * step_s
    return Trace(times_s, np.array(values), quantity, traces.UNIT_OF[quantity], "made")


class TestShipped:
    @pytest.mark.parametrize("row", readme_rows(), ids=lambda row: f"{row[0]}:{row[1]}")
    def test_the_readme_agrees_with_the_traces(self, row: list[str]) -> None:
        file, column, _, _, length_s, mean, p50, p99, unit = row
        trace = read(
            SHIPPED / file,
            column="rtt" if column == "rtt" else None if column == "rate" else column,
        )
        found = stats(trace)
        assert found.unit == unit
        assert found.length_s == pytest.approx(float(length_s), abs=0.06)
        assert found.mean == pytest.approx(float(mean), rel=2e-3)
        assert found.p50 == pytest.approx(float(p50), rel=2e-3)
        assert found.p99 == pytest.approx(float(p99), rel=2e-3)

    def test_every_series_is_described(self) -> None:
        described = {row[0] for row in readme_rows()}
        series = {str(path.relative_to(SHIPPED)) for path in SHIPPED.glob("*/*") if path.suffix in {".csv", ".down"}}
        assert described == series

    def test_every_folder_names_its_source_and_brings_its_licence(self) -> None:
        for folder in (path for path in SHIPPED.iterdir() if path.is_dir() and path.name != "__pycache__"):
            assert "LICENCE" in (folder / "SOURCE.txt").read_text(encoding="utf-8")
            assert len(list(folder.glob("LICENSE.*"))) == 1

    def test_the_set_stays_small(self) -> None:
        assert sum(path.stat().st_size for path in SHIPPED.rglob("*") if path.is_file()) < 6_000_000

    @pytest.mark.parametrize("name", ["atnt", "tmobile", "verizon"])
    def test_loss_met_once_each_way_is_the_loss_of_the_probes(self, name: str) -> None:
        file = SHIPPED / "lte_drive_pam2025" / f"{name}.csv"
        one_way = read(file, "loss").values / 100
        round_trip = read(file, "round_trip_loss").values / 100
        assert 1 - (1 - one_way) ** 2 == pytest.approx(round_trip, abs=2e-6)

    @needs_measurements
    def test_the_build_script_makes_the_very_same_files(self, tmp_path: Path) -> None:
        for made in load_build_script().build(MEASUREMENTS, tmp_path):
            shipped = SHIPPED / made.relative_to(tmp_path)
            assert made.read_bytes() == shipped.read_bytes(), shipped

    def test_the_build_script_says_what_is_missing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        script = load_build_script()
        monkeypatch.setenv("SKYBRAID_TRACES", str(tmp_path / "nowhere"))
        with pytest.raises(script.MissingMeasurementsError, match="no such folder; set SKYBRAID_TRACES"):
            script.measurement_folder()


@needs_measurements
class TestMeasurements:
    """Statistics that the folder's own SOURCE.txt states."""

    @pytest.mark.parametrize(
        ("name", "unit", "mean", "sd", "low", "high"),
        [
            ("bitrate_dl", "Mbit/s", 24.42, 9.78, 5.38, 50.40),
            ("bitrate_ul", "Mbit/s", 37.24, 7.17, 9.55, 47.40),
            ("latency_ul", "ms", 52.06, 111.2, 25.24, 2852.2),
            ("satdelay_gw", "ms", 8.79, None, 5, 13),
            ("satdelay_st", "ms", 9.61, None, 5, 17),
        ],
    )
    def test_inputs_of_baltaci2023(
        self, name: str, unit: str, mean: float, sd: float | None, low: float, high: float
    ) -> None:
        found = stats(read(MEASUREMENTS / "baltaci2023_inputs" / f"{name}.csv", column=2, unit=unit))
        assert found.samples == 1900
        assert found.length_s == pytest.approx(1900)
        assert found.mean == pytest.approx(mean, abs=0.006)
        assert found.min == pytest.approx(low, abs=0.006)
        assert found.max == pytest.approx(high, abs=0.06)
        if sd is not None:
            assert found.sd == pytest.approx(sd, abs=0.06)

    def test_hypatia_series(self) -> None:
        trace = read(MEASUREMENTS / "baltaci2023_inputs" / "tcp_flow_0_rtt.csv")
        assert trace.quantity == "rtt"
        assert trace.values[:3] == pytest.approx([14.0, 14.5, 15.3125])

    @pytest.mark.parametrize(("name", "megabits"), [("ATT-LTE-driving-2016.down", 4.6), ("TMobile-LTE-short.up", 13.3)])
    def test_mahimahi_capacities(self, name: str, megabits: float) -> None:
        file = MEASUREMENTS / "aux_mahimahi_lte" / name
        if not file.is_file():
            pytest.skip(f"no {file}")
        assert stats(read(file)).mean == pytest.approx(megabits, abs=0.1)

    def test_a_hypatia_path_has_gaps_where_there_is_none(self, tmp_path: Path) -> None:
        file = tmp_path / "networkx_rtt_1174_to_1229.txt"
        file.write_text("0,25000000.0000000000\n100000000,27000000.5000000000\n200000000,0.0000000000\n")
        trace = read(file)
        assert trace.quantity == "rtt"
        assert trace.values == pytest.approx([25.0, 27.0000005, np.inf])
        found = stats(trace)
        assert (found.mean, found.max) == pytest.approx((26.00000025, 27.0000005))
        assert found.share_without_path == pytest.approx(1 / 3)
        write(trace, tmp_path / "copy.csv")
        assert np.array_equal(read(tmp_path / "copy.csv").values, trace.values)
        with pytest.raises(TraceError, match="gaps without a path"):
            write(trace, tmp_path / "copy.parquet")
        result = CliRunner().invoke(app, ["stats", str(file)])
        assert "no path      33.33 % of the time" in result.output

    def test_a_lost_probe_is_a_gap_of_the_round_trips(self, tmp_path: Path) -> None:
        file = tmp_path / "ping.log"
        reply = "64 bytes from 10.0.0.1: icmp_seq={} ttl=44 time=30.0 ms\n"
        file.write_text("".join(reply.format(number) for number in (1, 2, 5)), encoding="utf-8")
        rtt, loss = read(file), read(file, "loss")
        assert rtt.values.tolist() == [30.0, 30.0, np.inf, np.inf, 30.0]
        assert loss.values.tolist() == [0.0, 0.0, 100.0, 100.0, 0.0]
        assert np.array_equal(rtt.times_s, loss.times_s)
        assert stats(rtt).share_without_path == pytest.approx(0.4)

    def test_a_ping_log(self) -> None:
        folder = MEASUREMENTS / "pam2025_multicarrier_ping" / "trip2_05_13_2023" / "app" / "verizon"
        trace = read(folder / "122651317" / "ping_123103537.out")
        assert (trace.quantity, trace.unit) == ("rtt", "ms")
        assert trace.values[:3] == pytest.approx([78.0, 88.0, 56.1])


class TestStats:
    def test_a_value_counts_for_as_long_as_it_holds(self) -> None:
        trace = Trace(np.array([0.0, 9.0]), np.array([10.0, 400.0]), "delay", "ms", end_s=10.0)
        found = stats(trace)
        assert found.mean == pytest.approx(49.0)
        assert found.sd == pytest.approx(117.0)
        assert (found.p50, found.p95) == (10.0, 400.0)
        assert found.share_over_300ms == pytest.approx(0.1)

    def test_the_last_value_holds_as_long_as_the_one_before(self) -> None:
        assert steps([1.0, 2.0, 3.0], step_s=0.5).length_s() == pytest.approx(1.5)

    def test_a_share_over_the_deadline_needs_one_way_delays(self) -> None:
        assert stats(steps([500.0, 1.0], "rtt")).share_over_300ms is None


class TestConversion:
    @pytest.mark.parametrize("suffix", [".csv", ".parquet"])
    def test_what_was_written_reads_back(self, tmp_path: Path, suffix: str) -> None:
        trace = steps([12.5, 0.25, 99.125], "delay", 0.1)
        write(trace, tmp_path / f"copy{suffix}")
        copy = read(tmp_path / f"copy{suffix}")
        assert copy.quantity == "delay"
        assert copy.times_s == pytest.approx(trace.times_s)
        assert copy.values == pytest.approx(trace.values)

    def test_a_constant_rate_becomes_evenly_spaced_opportunities(self) -> None:
        assert traces.opportunities_ms(steps([12.0, 12.0])).tolist() == list(range(1, 2001))
        assert traces.opportunities_ms(steps([1.2, 0.0, 1.2])).tolist()[99:101] == [1000, 2010]

    def test_a_rate_survives_mahimahi(self, tmp_path: Path) -> None:
        trace = steps([6.0, 24.0, 12.0, 3.0])
        write(trace, tmp_path / "copy.up")
        copy = read(tmp_path / "copy.up")
        middles = np.arange(0.05, 4.0, 0.1)
        assert copy.length_s() == pytest.approx(4.0)
        assert np.corrcoef(copy.at(middles), trace.at(middles))[0, 1] > 0.999
        assert stats(copy).mean == pytest.approx(stats(trace).mean, rel=1e-3)

    def test_the_shipped_capacity_survives_mahimahi(self, tmp_path: Path) -> None:
        original = read(SHIPPED / "starlink_leocc" / "downlink.down")
        write(original, tmp_path / "copy.down")
        copy = read(tmp_path / "copy.down")
        middles = np.arange(0.05, 120.0, 0.1)
        assert np.corrcoef(copy.at(middles), original.at(middles))[0, 1] > 0.999

    def test_only_a_rate_becomes_mahimahi(self, tmp_path: Path) -> None:
        with pytest.raises(TraceError, match="found delay; a mahimahi trace holds a rate"):
            write(steps([1.0, 2.0], "delay"), tmp_path / "copy.up")

    def test_nothing_is_written_over(self, tmp_path: Path) -> None:
        (tmp_path / "old.csv").write_text("precious", encoding="utf-8")
        with pytest.raises(TraceError, match=r"old\.csv: exists already"):
            write(steps([1.0, 2.0]), tmp_path / "old.csv")
        assert (tmp_path / "old.csv").read_text(encoding="utf-8") == "precious"


class TestReaders:
    @pytest.mark.parametrize(
        "text",
        [
            "time [s],delay [ms]\n0,1\n0.5,2\n",
            "# from a flight\n\ntime [ms];delay [ms]\n7000;1\n7500;2\n",
            "delay\tother [%]\n7\t1\n7.5\t2\n",
            "7 1\n7.5 2\n",
        ],
    )
    def test_csv_with_other_separators_and_units_of_time(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "trace.csv").write_text(text, encoding="utf-8")
        trace = read(tmp_path / "trace.csv", column=2, unit="ms")
        assert trace.times_s == pytest.approx([0.0, 0.5])
        assert trace.values == pytest.approx([1.0, 2.0])

    def test_the_first_column_that_a_link_can_have_is_taken(self, tmp_path: Path) -> None:
        (tmp_path / "trace.csv").write_text("time [s],day,height [m],rate [Mbit/s]\n0,1,50,9\n1,1,60,8\n")
        assert read(tmp_path / "trace.csv").values == pytest.approx([9, 8])

    def test_parquet_with_dates(self, tmp_path: Path) -> None:
        stamps = ["2025-01-09T10:00:00+01:00", "2025-01-09T10:00:01.5+01:00"]
        pl.DataFrame({"@timestamp": stamps, "rate": [4e6, 2e6]}).write_parquet(tmp_path / "trace.parquet")
        trace = read(tmp_path / "trace.parquet", "rate", "bit/s")
        assert trace.times_s == pytest.approx([0.0, 1.5])
        assert trace.values == pytest.approx([4.0, 2.0])


class TestErrors:
    @pytest.mark.parametrize(
        ("text", "column", "unit", "message"),
        [
            ("", None, "ms", r"trace\.csv: line 1: the file is empty; expected"),
            (
                "0,1\n1,2\n",
                None,
                None,
                r"trace\.csv: line 1: found no header; expected a unit for column 2",
            ),
            ("0,1\n1,2\n", "3", "ms", r"line 1: no column `3`; .* expected a number from 1 to 2"),
            ("time [s],delay\n0,1\n", None, None, "column `delay` states no unit"),
            (
                "time [s],delay [ms]\n0,1\n",
                "rate",
                None,
                "found `time`, `delay`; expected a column `rate`",
            ),
            (
                "time [s],delay [miles]\n0,1\n",
                None,
                None,
                "found unit `miles`; expected one of bit/s",
            ),
            ("time [s],delay [ms]\n0,1\n2,3\n1,4\n", None, None, r"trace\.csv: line 4: found"),
            ("time [s],delay [ms]\n0,1\n2,nan\n", None, None, r"trace\.csv: line 3: found"),
            ("time [s],delay [ms]\n0,1\n2,x\n", None, None, r"trace\.csv: line 3: found `x`"),
            (
                "time [s],delay [ms],delay [ms]\n0,1,2\n",
                None,
                None,
                r"trace\.csv: line 1: found `delay \[ms\]`, expected each column once",
            ),
            (
                'time [s],delay [ms]\n0,"1\n',
                None,
                None,
                r'trace\.csv: line 2: found `0,"1`, expected a closing quote',
            ),
        ],
    )
    def test_csv(self, tmp_path: Path, text: str, column: str | None, unit: str | None, message: str) -> None:
        (tmp_path / "trace.csv").write_text(text, encoding="utf-8")
        with pytest.raises(TraceError, match=message):
            read(tmp_path / "trace.csv", column, unit)

    def test_a_device_and_a_file_above_the_bound_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(TraceError, match="found a device; expected a file"):
            read("/dev/zero")
        large = tmp_path / "large.csv"
        with large.open("wb") as file:
            file.truncate(traces.MAX_BYTES + 1)
        for format_ in (None, "csv", "parquet"):
            with pytest.raises(TraceError, match="more than 1000 MB; expected at most so much"):
                read(large, format=format_)

    def test_mahimahi(self, tmp_path: Path) -> None:
        (tmp_path / "trace.up").write_text("1\n5\n3\n", encoding="utf-8")
        with pytest.raises(TraceError, match=r"trace\.up: line 3: found"):
            read(tmp_path / "trace.up")

    @pytest.mark.parametrize(
        ("columns", "message"),
        [
            (
                {"time [s]": [0.0, 2.0, 1.0], "delay [ms]": [1.0, 1.0, 1.0]},
                r"parquet:3: found a step of -1 s; expected increasing times",
            ),
            (
                {"time [s]": [0.0, 1.0], "delay [ms]": [1.0, None]},
                "`delay` is not measured at 1 s; expected",
            ),
            (
                {"time [s]": [0.0, 1.0], "delay [ms]": [1.0, -4.0]},
                "parquet:2: found -4 as delay; expected 0 to",
            ),
            (
                {"time [s]": [0.0, 1.0], "delay [ms]": ["a", "b"]},
                r"parquet:1: found `a`; expected a number as `delay \[ms\]`",
            ),
            ({"time [s]": [], "delay [ms]": []}, "found headings without rows; expected a row"),
        ],
    )
    def test_parquet(self, tmp_path: Path, columns: dict[str, list[object]], message: str) -> None:
        pl.DataFrame(columns, strict=False).write_parquet(tmp_path / "trace.parquet")
        with pytest.raises(TraceError, match=message):
            read(tmp_path / "trace.parquet")

    def test_a_file_that_is_not_there(self, tmp_path: Path) -> None:
        for name in ("none.csv", "none.parquet"):
            with pytest.raises(TraceError, match=f"{name}: no such file; expected"):
                read(tmp_path / name)

    def test_a_file_that_is_no_text(self, tmp_path: Path) -> None:
        (tmp_path / "trace.csv").write_bytes(b"0,\xff\n")
        with pytest.raises(TraceError, match="byte 2 is not text"):
            read(tmp_path / "trace.csv")


class TestCommand:
    def test_stats_of_dates_need_no_zone_and_columns_have_meanings(self, skybraid: Command, tmp_path: Path) -> None:
        (tmp_path / "a.csv").write_text("time,dl_mbps\n2026-05-13 10:00:00,9\n2026-05-13 10:00:01,8\n")
        assert "mean         8.5 Mbit/s" in skybraid("trace", "stats", "a.csv").stdout
        (tmp_path / "b.txt").write_text("1694478364.1\t1\t97.4\n1694478364.4\t2\t-1\n1694478364.6\t3\t97.4\n")
        shown = skybraid("trace", "stats", "b.txt", "--as", "3=rtt [ms]", "--lost", "-1").stdout
        assert "mean         97.4 ms" in shown
        assert "no path" in shown
        (tmp_path / "c.txt").write_text("12\n14\n")
        words = ("--format", "values", "--every", "10ms", "--as", "1=delay [ms]")
        assert "length       0.020 s" in skybraid("trace", "stats", "c.txt", *words).stdout

    def test_stats_prints_one_json_object(self) -> None:
        file = SHIPPED / "lte_drive_pam2025" / "atnt.csv"
        result = CliRunner().invoke(app, ["stats", str(file), "--column", "delay", "--json"])
        assert result.exit_code == 0
        found = json.loads(result.stdout)
        assert (found["quantity"], found["unit"], found["samples"]) == ("delay", "ms", 8245)
        assert 0 < found["share_over_300ms"] < 0.01

    def test_stats_prints_lines(self) -> None:
        result = CliRunner().invoke(app, ["stats", str(SHIPPED / "starlink_leocc" / "downlink_delay.csv")])
        assert result.exit_code == 0
        assert "p99" in result.stdout
        assert "over 300 ms" in result.stdout

    def test_stats_reads_a_ping_with_stamps(self, tmp_path: Path) -> None:
        log = tmp_path / "drive.log"
        replies = [
            f"[1780000000.{n}00000] 64 bytes from 192.0.2.1: icmp_seq={n} ttl=52 time=4{n}.0 ms" for n in (1, 2, 3)
        ]
        log.write_text("\n".join(["PING 192.0.2.1 (192.0.2.1) 56(84) bytes of data.", *replies]), encoding="utf-8")
        result = CliRunner().invoke(app, ["stats", str(log), "--json"])
        assert result.exit_code == 0, result.output
        assert json.loads(result.stdout)["quantity"] == "rtt"

    @pytest.mark.parametrize("suffix", [".svg", ".pdf", ".png"])
    def test_plot_writes_a_figure(self, tmp_path: Path, suffix: str) -> None:
        file = SHIPPED / "nr5g_cicv5g" / "arterial_n8_v80_run01.csv"
        out = tmp_path / f"figure{suffix}"
        result = CliRunner().invoke(app, ["plot", str(file), str(out)])
        assert result.exit_code == 0, result.output
        assert out.stat().st_size > 1000

    def test_convert_reads_headerless_columns_by_number(self, tmp_path: Path) -> None:
        (tmp_path / "in.csv").write_text("1,29.6\n2,36.4\n3,38.6\n", encoding="utf-8")
        arguments = [
            "convert",
            str(tmp_path / "in.csv"),
            str(tmp_path / "out.csv"),
            "--column",
            "2",
            "--unit",
            "Mbit/s",
        ]
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output
        expected = "time [s],rate [Mbit/s]\n0,29.6\n1,36.4\n2,38.6\n"
        assert (tmp_path / "out.csv").read_text(encoding="utf-8") == expected

    @pytest.mark.parametrize(
        "arguments",
        [
            ["stats", "none.csv"],
            ["stats", "none.csv", "--format", "xml"],
            ["convert", "none.csv", "out.csv", "--to", "xml"],
            ["plot", "none.csv", "figure.txt"],
        ],
    )
    def test_bad_input_exits_with_2(self, skybraid: Command, arguments: list[str]) -> None:
        result = skybraid("trace", *arguments)
        assert result.returncode == 2
        assert "error: " in result.stderr
        assert "expected" in result.stderr
