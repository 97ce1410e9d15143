"""Builds the traces of this folder from the original measurements.

Run it as `python traces/build_traces.py`. The measurements are looked for in `$SKYBRAID_TRACES`,
else in `../shared/traces` from the repository's root. The same measurements give the same files,
byte for byte. SOURCE.txt in each folder describes the files and their reliability.
"""

import argparse
import math
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent

LEOCC_SLOT_MS = 10
PAM_PROBE_PERIOD_S = 0.2
PAM_PROBES_PER_WINDOW = 5
PAM_CARRIERS = ("atnt", "tmobile", "verizon")
CICV5G_RUNS = (
    "arterial_n8_v80/arterial_n8_v80_run01",
    "urban_n8_v30/urban_n8_v30_run01",
    "urban_n78_v30/urban_n78_v30_run01",
)


class MissingMeasurementsError(Exception):
    """The folder of original measurements, or a file of it, is not there."""


@dataclass(frozen=True)
class PingBurst:
    """One run of `ping`.

    rtts_ms: round-trip time of each probe in the order of sending, in ms; None where no reply came.
    """

    start_epoch_ms: int
    rtts_ms: tuple[float | None, ...]


def measurement_folder() -> Path:
    """Returns the folder of original measurements: `$SKYBRAID_TRACES`, else `../shared/traces`."""
    named = os.environ.get("SKYBRAID_TRACES")
    folder = Path(named) if named else HERE.parent.parent / "shared" / "traces"
    if not folder.is_dir():
        raise MissingMeasurementsError(
            f"{folder}: no such folder; set SKYBRAID_TRACES to the folder of original measurements"
        )
    return folder


def one_way_loss(round_trip_loss: float) -> float:
    """Returns the loss per direction that gives a share of lost round trips.

    The direction in which a probe was lost is unknown; equal and independent directions are assumed:
    (1 - q)^2 = 1 - p.
    """
    return 1.0 - math.sqrt(1.0 - round_trip_loss)


def number(value: float, digits: int) -> str:
    """Formats a value rounded to `digits` decimals, without trailing zeros."""
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write a CSV file with Unix line ends."""
    lines = [",".join(header), *(",".join(row) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")


def change_rows(values: Sequence[int], step_s: float) -> list[tuple[str, str]]:
    """Returns run-length rows (time in s, value) of a series sampled every `step_s`.

    A row is written where the value changes. The last two samples are always written, so that a
    reader which lets the last value last as long as the step before it finds the true end.
    """
    last = len(values) - 1
    return [
        (number(i * step_s, 2), str(value))
        for i, value in enumerate(values)
        if i == 0 or value != values[i - 1] or i >= last - 1
    ]


def slot_delays(path: Path) -> list[int]:
    """Reads delays in ms, one line per 10 ms slot.

    A leading 0 stands for "nothing measured yet" (it occurs once, in delay_18); the first measured
    value takes its place.
    """
    values = [int(line) for line in path.read_text(encoding="utf-8").split()]
    first = next(value for value in values if value > 0)
    return [value if value > 0 else first for value in values]


def build_leocc(source: Path, out: Path) -> None:
    """Writes Starlink downlink capacity (120 s, with its delay) and a delay series of 42 minutes."""
    folder = source / "leocc_starlink"
    step_s = LEOCC_SLOT_MS / 1000
    header = ("time [s]", "delay [ms]")
    example = slot_delays(folder / "delay_example.txt")
    (out / "downlink.down").write_bytes((folder / "bw_example.txt").read_bytes())
    write_csv(out / "downlink_delay.csv", header, change_rows(example, step_s))

    parts = sorted(
        (folder / "A_download_delay").glob("delay_*.txt"),
        key=lambda path: int(path.stem.removeprefix("delay_")),
    )
    series = list(example)
    for part in parts:
        series.extend(slot_delays(part))
    write_csv(out / "delay_42min.csv", header, change_rows(series, step_s))
    shutil.copyfile(folder / "LICENSE.MIT.txt", out / "LICENSE.MIT.txt")


def read_ping(path: Path) -> PingBurst:
    """Read the log of one burst. The first reply to a probe counts, duplicates do not."""
    text = path.read_text(encoding="utf-8")
    start = re.search(r"^Start time: (\d+)", text)
    if start is None:
        raise MissingMeasurementsError(f"{path}: line 1: expected `Start time: <epoch ms>`")
    replies: dict[int, float] = {}
    for match in re.finditer(r"icmp_seq=(\d+) ttl=\d+ time=([\d.]+) ms", text):
        replies.setdefault(int(match[1]), float(match[2]))
    summary = re.search(r"(\d+) packets transmitted", text)
    sent = int(summary[1]) if summary else max(replies, default=0)
    rtts_ms = tuple(replies.get(sequence) for sequence in range(1, sent + 1))
    return PingBurst(int(start[1]), rtts_ms)


def ping_rows(bursts: Iterable[PingBurst]) -> list[tuple[str, str, str, str]]:
    """Returns rows (time s, one-way delay ms, one-way loss %, round-trip loss %), bursts end to end.

    A lost probe holds the delay before it; probes lost before the first reply of all take its
    delay. The loss of a row is the share of lost probes in its window of 1 s (5 probes; the last
    window of a burst may have fewer), so that the mean over rows is the loss of the probes.
    """
    bursts = list(bursts)
    delay_ms = next(rtt for burst in bursts for rtt in burst.rtts_ms if rtt is not None) / 2
    rows: list[tuple[str, str, str, str]] = []
    for burst in bursts:
        for first in range(0, len(burst.rtts_ms), PAM_PROBES_PER_WINDOW):
            window = burst.rtts_ms[first : first + PAM_PROBES_PER_WINDOW]
            lost = sum(rtt is None for rtt in window) / len(window)
            for rtt in window:
                delay_ms = delay_ms if rtt is None else rtt / 2
                rows.append(
                    (
                        number(len(rows) * PAM_PROBE_PERIOD_S, 1),
                        number(delay_ms, 3),
                        number(100 * one_way_loss(lost), 4),
                        number(100 * lost, 4),
                    )
                )
    return rows


def build_pam2025(source: Path, out: Path) -> None:
    """Writes delay and loss of three carriers from a car, 13 May 2023."""
    folder = source / "pam2025_multicarrier_ping"
    header = ("time [s]", "delay [ms]", "loss [%]", "round_trip_loss [%]")
    for carrier in PAM_CARRIERS:
        logs = (folder / "trip2_05_13_2023" / "app" / carrier).glob("*/ping_*.out")
        bursts = sorted((read_ping(log) for log in logs), key=lambda burst: burst.start_epoch_ms)
        if not bursts:
            raise MissingMeasurementsError(f"{folder}: no ping logs of carrier {carrier}")
        write_csv(out / f"{carrier}.csv", header, ping_rows(bursts))
    shutil.copyfile(folder / "LICENSE.CC0.txt", out / "LICENSE.CC0.txt")


def build_fjordlink(source: Path, out: Path) -> None:
    """Writes delay and loss of a Starlink dish on a vessel, 9 January 2025, 8 hours."""
    import polars as pl

    folder = source / "fjordlink"
    columns = {
        "@timestamp": "time",
        "dish_status.pop_ping_latency_ms": "rtt_ms",
        "dish_status.pop_ping_drop_rate": "lost",
    }
    files = sorted((folder / "starlink_2025-01-09").glob("*.parquet.gzip"))
    table = (
        pl.concat([pl.read_parquet(file, columns=list(columns)) for file in files])
        .rename(columns)
        .with_columns(pl.col("time").str.to_datetime(time_unit="us", time_zone="UTC").dt.epoch("us"))
        .sort("time")
    )
    start = table.item(0, "time")
    rows = (
        (
            number((time - start) / 1e6, 2),
            number(rtt_ms / 2, 3),
            number(100 * one_way_loss(lost), 3),
            number(100 * lost, 3),
        )
        for time, rtt_ms, lost in table.select("time", "rtt_ms", "lost").iter_rows()
    )
    header = ("time [s]", "delay [ms]", "loss [%]", "round_trip_loss [%]")
    write_csv(out / "vessel_8h.csv", header, rows)
    shutil.copyfile(folder / "LICENSE.CC-BY-4.0.txt", out / "LICENSE.CC-BY-4.0.txt")


def build_cicv5g(source: Path, out: Path) -> None:
    """Writes round-trip times vehicle-cloud-vehicle of three drives over 5G."""
    folder = source / "cicv5g_rtt"
    for run in CICV5G_RUNS:
        lines = (folder / f"{run}.txt").read_text(encoding="utf-8").splitlines()[1:]
        fields = [line.split() for line in lines if line.strip()]
        start_ms = int(fields[0][0])
        rows = (
            (
                number((int(published_ms) - start_ms) / 1000, 3),
                rtt_ms,
                number(int(rtt_ms) / 2, 1),
            )
            for published_ms, _, rtt_ms, *_ in fields
        )
        header = ("time [s]", "rtt [ms]", "delay [ms]")
        write_csv(out / f"{Path(run).name}.csv", header, rows)
    # Both folders are under CC BY 4.0; this one brings no text of it.
    shutil.copyfile(source / "fjordlink" / "LICENSE.CC-BY-4.0.txt", out / "LICENSE.CC-BY-4.0.txt")


FOLDERS: dict[str, Callable[[Path, Path], None]] = {
    "starlink_leocc": build_leocc,
    "lte_drive_pam2025": build_pam2025,
    "starlink_fjordlink": build_fjordlink,
    "nr5g_cicv5g": build_cicv5g,
}


def build(source: Path, out: Path) -> list[Path]:
    """Builds every shipped trace below `out`; returns the files, sorted by name."""
    made: list[Path] = []
    for name, make in FOLDERS.items():
        folder = out / name
        folder.mkdir(parents=True, exist_ok=True)
        make(source, folder)
        made += [path for path in folder.iterdir() if path.name != "SOURCE.txt"]
    return sorted(made)


def main() -> int:
    """Runs the command line; returns the exit code: 0, or 2 without measurements."""
    parser = argparse.ArgumentParser(description="Make the shipped traces from the measurements.")
    parser.add_argument("--out", type=Path, default=HERE, help="folder to write to")
    out: Path = parser.parse_args().out
    try:
        made = build(measurement_folder(), out)
    except (MissingMeasurementsError, FileNotFoundError) as error:
        sys.stderr.write(f"build_traces: {error}\n")
        return 2
    for path in made:
        sys.stdout.write(f"{path.stat().st_size:>9}  {path.relative_to(out)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
