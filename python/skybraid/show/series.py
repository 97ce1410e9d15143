"""Series of a result, downsampled without hiding short events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from skybraid.model.errors import ResultError, unknown
from skybraid.model.formatting import percent
from skybraid.model.heavy import np, pl

if TYPE_CHECKING:
    from skybraid.model.results import Results
    from skybraid.model.statistics import Verdict

PIXEL_COLUMNS = 480
"""Points of a drawn series over the whole time axis."""

DIRECTIONS = ("uplink", "downlink")


def first_seed(table: pl.LazyFrame) -> pl.LazyFrame:
    """Returns the rows of the first run, which figures over time show."""
    if "seed" not in table.collect_schema():
        return table
    return table.filter(pl.col("seed") == pl.col("seed").first()).drop("seed")


def delays(messages: pl.LazyFrame) -> pl.LazyFrame:
    """Returns `flow`, `path`, `sent_ns` and `delay_ns` of messages; a message that never arrived has no delay."""
    return messages.select("flow", "path", "sent_ns", (pl.col("delivered_ns") - pl.col("sent_ns")).alias("delay_ns"))


def envelope(
    table: pl.LazyFrame, values: Mapping[str, pl.Expr], *, by: Sequence[str] = (), columns: int = PIXEL_COLUMNS
) -> pl.DataFrame:
    """Returns minimum, mean and maximum of values in equal intervals over the table's time.

    Args:
        table: rows with `time_ns`.
        values: expressions to draw, by name.
        by: columns that separate series.
        columns: maximum number of points of a series.

    Returns:
        Columns `by`, `time_s`, and `NAME_low`, `NAME_mean`, `NAME_high` of each value, in order of time.
    """
    times = pl.col("time_ns")
    column = (times - times.min()) * columns // (times.max() - times.min() + 1)
    found = [
        part
        for name in values
        for part in (
            pl.col(name).min().alias(f"{name}_low"),
            pl.col(name).mean().alias(f"{name}_mean"),
            pl.col(name).max().alias(f"{name}_high"),
        )
    ]
    return (
        table.select(*by, "time_ns", column.alias("column"), *(value.alias(name) for name, value in values.items()))
        .group_by(*by, "column")
        .agg((times.min() * 1e-9).alias("time_s"), *found)
        .sort(*by, "column")
        .drop("column")
        .collect(engine="streaming")
    )


def outages(links: pl.LazyFrame) -> list[tuple[float, float]]:
    """Returns the spans in s in which a link direction was down, from its samples."""
    return _spans(links, ~pl.col("up"))


def halts(links: pl.LazyFrame) -> list[tuple[float, float]]:
    """Returns the spans in s in which a link direction was up with a rate of zero, as in a handover or a trace gap.

    Most halts shorter than the sampling interval are missing, since no sample falls into them.
    """
    return _spans(links, pl.col("up") & (pl.col("rate_bps") == 0))


def _spans(links: pl.LazyFrame, condition: pl.Expr) -> list[tuple[float, float]]:
    samples = links.sort("time_ns").select("time_ns", holds=condition).collect(engine="streaming")
    if samples.height < 2:
        return []
    step_s = float(samples["time_ns"][1] - samples["time_ns"][0]) * 1e-9
    times_s = samples["time_ns"].to_numpy() * 1e-9
    holds = samples["holds"].fill_null(value=False).to_numpy()
    changes = np.flatnonzero(np.diff(holds, prepend=False, append=False))
    return list(zip(times_s[changes[::2]].tolist(), (times_s[changes[1::2] - 1] + step_s).tolist(), strict=True))


def sample_step_s(links: pl.LazyFrame) -> float:
    """Returns the sampling interval of a link direction in s."""
    times = links.select(pl.col("time_ns").head(2)).collect(engine="streaming")["time_ns"]
    return float(times[1] - times[0]) * 1e-9 if len(times) > 1 else 0.1


def duration_s(results: Results) -> float:
    """Returns the duration of the first run in s."""
    return results.flights[0].simulated_s if results.flights else 0.0


def bin_ns(results: Results, columns: int = PIXEL_COLUMNS) -> int:
    """Returns the width of a time bin in ns: whole seconds for long flights, at least 100 ms."""
    flight_s = max((flight.simulated_s for flight in results.flights), default=0.0)
    width_s = flight_s / columns
    return int(-(-width_s // 1) * 1e9) if width_s > 1 else 1_000_000_000 if flight_s > 30 else 100_000_000


def bins(results: Results) -> int:
    """Returns the number of complete bins in the first run."""
    return int(results.flights[0].simulated_s * 1e9 // bin_ns(results)) if results.flights else 0


def binned(table: pl.LazyFrame, time: str, width_ns: int) -> pl.LazyFrame:
    """Adds the column `bin`, the time bin of each row."""
    return table.with_columns((pl.col(time) // width_ns).alias("bin"))


def flows_of(results: Results, flow: str | None) -> list[str]:
    """Returns the flows to draw: all, or the one of that name.

    Raises:
        ResultError: there is no such flow.
    """
    if flow is not None and flow not in results.flows:
        raise ResultError(unknown("--flow", flow, results.flows))
    return [name for name in results.flows if flow in (None, name)]


def not_arrived(results: Results, name: str) -> tuple[list[float], list[float]]:
    """Returns delays in ms, and the share of messages that have not arrived after each, lost ones included."""
    flow = results.flows[name]
    decided = max(flow.delivered + flow.lost, 1)
    missing = [(share * flow.delivered + flow.lost) / decided for _, share in flow.delay_tail]
    return [delay_ms for delay_ms, _ in flow.delay_tail], missing


def wanted(results: Results, name: str) -> Iterator[tuple[float, float, str, Verdict]]:
    """Yields delay requirements: deadline in ms, share that may miss it, description, verdict."""
    flow = results.flows[name]
    for requirement in results.requirements:
        if requirement.flow == name and requirement.metric != "frames" and requirement.deadline_ms is not None:
            allowed = 1 - requirement.target
            if requirement.metric == "percentile":
                allowed = (allowed * flow.delivered + flow.lost) / max(flow.delivered + flow.lost, 1)
            words = f"{percent(requirement.target)} within {requirement.deadline_ms:g} ms"
            yield requirement.deadline_ms, allowed, words, requirement.verdict
