"""Formats of measuring tools: one file per format, with its recogniser and its reader."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from skybraid.traces.formats import (
    dataflash,
    dish,
    fping,
    iperf2_csv,
    iperf3,
    iperf3_text,
    irtt,
    mavlink,
    mtr,
    nuttcp,
    pcap,
    ping_bsd,
    ping_linux,
    ping_windows,
    series,
    speedtest,
    table,
    test_connection,
    tracks,
    ulog,
    values,
)
from skybraid.traces.formats.source import Options, Source
from skybraid.traces.series import TraceError

if TYPE_CHECKING:
    from skybraid.traces.measurement import Imported

__all__ = ["FORMATS", "Entry", "Options", "Source", "entry_of", "fitting", "recognise"]


class Entry(NamedTuple):
    """File format of a measuring tool.

    Attributes:
        title: name of the format.
        gives: quantities read from it.
        recognises: whether a file is of this format.
        read: reader of a file.
    """

    title: str
    gives: str
    recognises: Callable[[Source], bool]
    read: Callable[[Source, Options], Sequence[Imported]]


FORMATS = {
    "csv": Entry("CSV, headings with units", "its columns", series.recognises_csv, series.read_csv),
    "parquet": Entry("Parquet", "its columns", series.recognises_parquet, series.read_parquet),
    "mahimahi": Entry("mahimahi opportunities", "rate", series.recognises_mahimahi, series.read_mahimahi),
    "hypatia": Entry("Hypatia series", "round trip", series.recognises_hypatia, series.read_hypatia),
    "dated": Entry("CSV or JSON records with dates", "columns by heading, or `--as`", table.recognises, table.read),
    "values": Entry("numbers without times", "what `--every` and `--as` say", values.recognises, values.read),
    "ping": Entry("`ping` of Linux", "round trip, loss", ping_linux.recognises, ping_linux.read),
    "ping-bsd": Entry("`ping` of macOS and BSD", "round trip, loss", ping_bsd.recognises, ping_bsd.read),
    "ping-windows": Entry("`ping` of Windows", "round trip, loss", ping_windows.recognises, ping_windows.read),
    "test-connection": Entry(
        "PowerShell's `Test-Connection`", "round trip, loss", test_connection.recognises, test_connection.read
    ),
    "fping": Entry("`fping -l`, `-c`", "round trip, loss", fping.recognises, fping.read),
    "mtr": Entry("`mtr --raw`, or reports in series", "round trip, loss to the last hop", mtr.recognises, mtr.read),
    "irtt": Entry("`irtt client -o`", "round trip, loss, with `--one-way` one way", irtt.recognises, irtt.read),
    "iperf3": Entry("`iperf3 --json`", "rate, loss of UDP", iperf3.recognises, iperf3.read),
    "iperf3-text": Entry("`iperf3`", "rate, loss of UDP", iperf3_text.recognises, iperf3_text.read),
    "iperf2": Entry("`iperf -y C` of iperf 2", "rate, loss of UDP", iperf2_csv.recognises, iperf2_csv.read),
    "nuttcp": Entry("`nuttcp -i`", "rate, loss of UDP", nuttcp.recognises, nuttcp.read),
    "speedtest": Entry("CSV of speed tests", "rates, round trip, loss", speedtest.recognises, speedtest.read),
    "starlink": Entry("Starlink dish statistics", "round trip, loss, carried rates", dish.recognises, dish.read),
    "pcap": Entry("captures of both ends", "one-way delay, loss by packet", pcap.recognises, pcap.read),
    "tlog": Entry("MAVLink telemetry log", "loss, radio, track", mavlink.recognises, mavlink.read),
    "dataflash": Entry("ArduPilot log (`.bin`)", "radio, track", dataflash.recognises, dataflash.read),
    "ulog": Entry("PX4 log (`.ulg`)", "loss, radio, track", ulog.recognises, ulog.read),
    "track": Entry("GPX, KML", "track", tracks.recognises, tracks.read),
}
"""Formats by their name for `--format`."""


_MAX_TITLE = 12
"""Maximum number of lines above the headings that an error shows."""

_OTHER_BYTES = (
    (b"\xd0\xcf\x11\xe0", "a workbook of Excel", "its sheet saved as CSV"),
    (b"\x89HDF", "a file of HDF5 (MATLAB 7.3, pandas)", "its columns as CSV or Parquet"),
    (b"MATLAB 5", "a file of MATLAB", "its columns as CSV or Parquet"),
    (b"SQLite format 3", "a database of SQLite", "its columns as CSV or Parquet"),
    (b"%PDF", "a PDF", "the measurement itself"),
)
"""First bytes of unsupported files, their kind, and the expected alternative."""

_OTHER_TEXTS = (
    (r"^(\[Connecting\] |seq=\d+ rtt=)", "irtt's output for people", "its JSON: irtt client -o FILE.json"),
    (
        r"^\d+ \S+( \S+)? \d+ \d+ \d+ \d+ \d+ \d+$",
        "mtr --split, averages since its start",
        "each probe: mtr --raw TARGET > FILE",
    ),
    (r"^HPING ", "hping's output", "that of ping -D, fping -D or irtt client -o"),
    (r"^\S+ +: (xmt/rcv/|[\d.]+ [\d.-]+)", "sums of fping", "its lines of each probe: fping -D -l or -c"),
    (r'^\{"(resp|timeout)": *\{"host"', "JSON of fping", "its lines of each probe: fping -D -l or -c"),
    (r"<dm_log_packet>", "XML of MobileInsight", "CSV of what its analyzers write, with a timestamp and units"),
    (r"^FMT, 128, ", "a log of ArduPilot as text", "the log itself (.bin)"),
    (r'"skybraid-gateway-log"', "the log of a gateway", "a measurement (skybraid report FILE and judge read it)"),
    (r"^\$G[A-Z](GGA|RMC|GSA|GSV),", "NMEA of a GPS receiver", "its track as GPX"),
    (r"^[\d:.]+ IP6? \S+ > \S+: ", "text of tcpdump", "captures of both ends: tcpdump -w FILE"),
    (
        r"^\"?\d{1,2}[./-]\d{1,2}[./-]\d{2}[T\s,;]+\d{1,2}:\d{2}",
        "dates with a year of two digits",
        "years of four digits, such as 2026-05-13T12:31:03Z",
    ),
    (
        r"\A\s*[\[{]",
        "JSON of no known tool",
        'that of iperf3, irtt, mtr, a speed test or a Starlink dish, or records such as {"time": …, "rtt_ms": 12}',
    ),
    (r"^\s*<(!doctype|html)", "a page", "the measurement itself"),
)
"""Patterns of unsupported outputs, their kind, and the expected alternative."""


def entry_of(name: str) -> Entry:
    """Returns the format of a name.

    Raises:
        TraceError: there is none.
    """
    if name not in FORMATS:
        raise TraceError(f"--format: found `{name}`; expected one of {', '.join(FORMATS)}")
    return FORMATS[name]


def fitting(source: Source) -> list[str]:
    """Returns the names of the formats that a file may have."""
    names = [name for name, entry in FORMATS.items() if entry.recognises(source)]
    # A table with dates is the fallback for CSV of no known tool.
    return [name for name in names if name != "dated"] if len(names) > 1 else names


def recognise(source: Source) -> str:
    """Returns the name of the only format that matches a file.

    Raises:
        TraceError: none or several match; the error shows the beginning of the file.
    """
    names = fitting(source)
    if len(names) != 1:
        _fail_ambiguous(source, names)
    return names[0]


def _fail_ambiguous(source: Source, names: list[str]) -> NoReturn:
    """Raises TraceError with the formats that match a file."""
    if not source.data.removeprefix(codecs.BOM_UTF8).strip():
        source.fail(None, "an empty file", "a measurement")
    any_format = f"--format with one of {', '.join(FORMATS)}"
    is_text = bool(source.first_lines) and source.first_lines[0].replace("\t", " ").isprintable()
    if not is_text:
        for magic, kind, expected in _OTHER_BYTES:
            if source.data.startswith(magic):
                source.fail(None, kind, expected)
        source.fail(None, f"bytes that begin with `{source.data[:12].hex(' ')}`", any_format)
    first = source.first_lines[0][:60]
    if names:
        source.fail(None, f"what may be {' or '.join(names)}", "--format with one of them")
    for form, found, expected in _OTHER_TEXTS:
        if re.search(form, source.head, re.MULTILINE):
            source.fail(None, found, expected)
    if all(re.fullmatch(r"[-+\d.eE]+|inf|nan", cell.lower()) for cell in re.split(r"[\s,;]+", first)):
        how = "--format values --every 1s --as '1=downlink rate [Mbit/s]', the column's number and meaning, or "
        source.fail(None, f"numbers without headings that begin with `{first}`", how + any_format)
    if len(source.first_lines) == 1:
        source.fail(1, f"one line alone, `{first}`", "a measurement: headings and rows, or a tool's output")
    for above in range(1, min(len(source.lines), _MAX_TITLE)):
        if table.recognises(Source.of_text(source.path, "\n".join(source.lines[above:]))):
            source.fail(1, f"`{first}` above headings", "headings on the first line, or # before the lines above them")
    source.fail(None, f"text that begins with `{first}`", any_format)
