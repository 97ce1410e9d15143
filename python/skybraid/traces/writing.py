"""Writing of traces as CSV, Parquet or mahimahi opportunities."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from skybraid.model.heavy import np, pl
from skybraid.traces.series import Trace, TraceError

if TYPE_CHECKING:
    from numpy.typing import NDArray

OutputFormat = Literal["csv", "mahimahi", "parquet"]

OUTPUT_FORMATS: tuple[str, ...] = get_args(OutputFormat)

BITS_PER_OPPORTUNITY = 1500 * 8
"""Size of the IP packet of one opportunity: 1500 bytes (mahimahi adds 4 of its own)."""


def write(trace: Trace, path: str | Path, to: OutputFormat | None = None) -> None:
    """Writes a trace as CSV, Parquet or mahimahi opportunities (rates only).

    Args:
        trace: trace to write.
        path: new file; an existing one is never overwritten.
        to: output format; default: recognised by the name.

    Raises:
        TraceError: the file exists or cannot be written, or the trace does not fit the format.
    """
    path = Path(path)
    chosen = to or _output_format(path)
    if path.exists():
        raise TraceError(f"{path}: exists already; expected a new file")
    if chosen != "csv" and not np.isfinite(trace.values).all():
        raise TraceError(f"{trace.name}: has gaps without a path, which {chosen} cannot hold")
    header = ("time [s]", f"{trace.quantity} [{trace.unit}]")
    try:
        if chosen == "parquet":
            pl.DataFrame(dict(zip(header, (trace.times_s, trace.values), strict=True))).write_parquet(path)
        elif chosen == "csv":
            rows = (
                f"{time:.9f}".rstrip("0").rstrip(".") + f",{value:.9g}\n"
                for time, value in zip(trace.times_s, trace.values, strict=True)
            )
            path.write_text(",".join(header) + "\n" + "".join(rows), encoding="utf-8", newline="\n")
        else:
            lines = "".join(f"{stamp}\n" for stamp in opportunities_ms(trace))
            path.write_text(lines, encoding="utf-8", newline="\n")
    except OSError as error:
        raise TraceError(f"{path}: cannot be written: {error.strerror}") from error


def opportunities_ms(trace: Trace) -> NDArray[np.int64]:
    """Returns the times in ms, shape (n,), at which a link of this rate has sent one more 1500-byte packet.

    mahimahi repeats a trace after its last line, so the period ends with the last whole packet.

    Raises:
        TraceError: the trace is no rate, or carries less than one packet.
    """
    if trace.quantity != "rate":
        raise TraceError(f"{trace.name}: found {trace.quantity}; a mahimahi trace holds a rate")
    bits_per_s = trace.values * 1e6
    sent = np.concatenate(([0.0], np.cumsum(bits_per_s * trace.durations_s())))
    # One part in 1e9 keeps a last packet that rounding would lose.
    count = int(sent[-1] * (1 + 1e-9) // BITS_PER_OPPORTUNITY)
    if count == 0:
        raise TraceError(f"{trace.name}: {sent[-1]:.0f} bits in all; expected at least one 1500-byte packet")
    due = np.minimum(BITS_PER_OPPORTUNITY * np.arange(1, count + 1), sent[-1])
    step = np.searchsorted(sent, due, side="left") - 1
    times_s = trace.times_s[step] + (due - sent[step]) / bits_per_s[step]
    stamps_ms: NDArray[np.int64] = np.ceil(times_s * 1e3 - 1e-6).astype(np.int64)
    return stamps_ms


def _output_format(path: Path) -> OutputFormat:
    by_suffix: dict[str, OutputFormat] = {
        ".csv": "csv",
        ".parquet": "parquet",
        ".up": "mahimahi",
        ".down": "mahimahi",
    }
    if path.suffix not in by_suffix:
        raise TraceError(f"{path}: found suffix `{path.suffix}`; expected {', '.join(by_suffix)}, or a format given")
    return by_suffix[path.suffix]
