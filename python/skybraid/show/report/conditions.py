"""State of paths and sender at a moment, compared with the median of the run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from skybraid.model.formatting import count, milliseconds, rate, span
from skybraid.show.series import first_seed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from skybraid.model.results import Results

NOTABLE_MS = 20.0
"""Minimum delay, queue or wait in ms that is mentioned; shorter ones decide no deadline of a pilot."""

SAMPLE_NS = 100_000_000
"""Interval between samples of links and subflows."""

_CAUSES = {
    "queue": "by a full queue",
    "random": "at random",
    "burst": "in a burst",
    "handover": "by a handover",
    "outage": "by an outage",
    "mtu": "as too large",
}


@dataclass(frozen=True, slots=True)
class Conditions:
    """Samples of a run's links and senders.

    Attributes:
        links: rows of the table `links`, with usual values of each direction of each path; None if it was not kept.
        senders: rows of the table `subflows`; None if it was not kept.
        messages: messages of the first run that were sent in one of the moments to describe.
    """

    links: pl.DataFrame | None
    senders: pl.DataFrame | None
    messages: pl.DataFrame

    @classmethod
    def of(cls, results: Results, messages: pl.LazyFrame, moments: Iterable[tuple[int, int]]) -> Conditions:
        """Reads the first run of a result.

        Args:
            results: result.
            messages: messages of the first run.
            moments: begin and end in ns of each moment to describe.
        """
        kept = list(results.tables)
        links = senders = None
        if "links" in kept:
            rows = first_seed(results.tables.scan("links")).with_columns(
                pl.col("path", "direction").cast(pl.String),
                (pl.col("queue_bytes") * 8e3 / pl.col("rate_bps")).fill_nan(None).alias("queue_ms"),
                (pl.col("delay_ns") * 1e-6).alias("delay_ms"),
            )
            usual = [pl.col(name).median().over("path", "direction").alias(f"usual_{name}") for name in _LEVELS]
            links = rows.with_columns(*usual).collect()
        if "subflows" in kept:
            rows = first_seed(results.tables.scan("subflows")).with_columns(
                pl.col("flow", "side", "path").cast(pl.String)
            )
            senders = rows.collect()
        in_moments = pl.lit(value=False)
        for begin_ns, end_ns in moments:
            in_moments = in_moments | _is_sent_in(begin_ns, end_ns)
        sent = messages.filter(in_moments).select("flow", "sent_ns", "held_us", "bytes").collect(engine="streaming")
        return cls(links, senders, sent)

    def at(self, flow: str, side: str | None, begin_ns: int, end_ns: int) -> tuple[str, ...] | None:
        """Describes unusual conditions, one line per path and one for the sender; None without recorded links.

        Args:
            flow: name of the flow.
            side: direction of the flow, "uplink" or "downlink"; None: both.
            begin_ns: sending time of the first message of the moment.
            end_ns: deadline of its last message.
        """
        if self.links is None:
            return None
        inside = pl.col("time_ns").is_between(begin_ns, end_ns + SAMPLE_NS)
        # Packets of a link do not overtake one another, so earlier samples matter too.
        levels = pl.col("time_ns").is_between(begin_ns - 2 * SAMPLE_NS, end_ns)
        links = self.links.filter(inside | levels)
        senders = self.senders
        sent = None if senders is None else senders.filter(inside, pl.col("flow") == flow)
        parts = links.partition_by("path", "direction", as_dict=True, maintain_order=True)
        lines = []
        for (path, direction), rows in parts.items():
            # The other direction carries acknowledgements; it is mentioned if only it was out.
            carries = side in (None, direction)
            found = _out(rows) if carries or not _out(parts[path, side]) else []
            if carries:
                found += _link(rows.filter(levels)) + _losses(rows.filter(inside))
            if sent is not None and direction == side:
                found += _subflow(sent.filter(pl.col("path") == path))
            name = path if direction == side else f"{path} {direction}"
            lines += [f"{name}: {', '.join(found)}"] if found else []
        return (*lines, *self._sender(flow, sent, begin_ns, end_ns))

    def _sender(self, flow: str, sent: pl.DataFrame | None, begin_ns: int, end_ns: int) -> list[str]:
        """Describes messages that waited for an earlier one, and those that waited for congestion windows."""
        during = self.messages.filter(pl.col("flow") == flow, _is_sent_in(begin_ns, end_ns))
        held_us, size, first_ns, last_ns = during.select(
            pl.col("held_us").max(),
            pl.col("bytes").sum(),
            pl.col("sent_ns").min(),
            pl.col("sent_ns").max().alias("last_ns"),
        ).row(0)
        found = []
        if (held_us or 0) >= NOTABLE_MS * 1000:
            found.append(f"receiver: messages waited up to {milliseconds(held_us / 1000)} for an earlier one")
        if sent is None or not sent.height or not size or last_ns - first_ns < SAMPLE_NS:
            return found
        allowed = (
            sent.filter(pl.col("srtt_ns") > 0)
            .group_by("time_ns")
            .agg((pl.col("cwnd_bytes") * 8e9 / pl.col("srtt_ns")).sum().alias("bps"))["bps"]
            .median()
        )
        offered = size * 8e9 / (last_ns - first_ns)
        if isinstance(allowed, float) and allowed < offered:
            found.append(f"sender: the congestion windows let {rate(allowed)} through, {rate(offered)} was offered")
        return found


_LEVELS = ("delay_ms", "rate_bps")


def _is_sent_in(begin_ns: int, end_ns: int) -> pl.Expr:
    """Returns whether messages are sent in a moment, which lasts at least one sample."""
    return pl.col("sent_ns").is_between(begin_ns, max(end_ns, begin_ns + SAMPLE_NS))


def _out(rows: pl.DataFrame) -> list[str]:
    """Describes how long one direction of a path was out."""
    found = []
    for words, holds in (("down", ~pl.col("up")), ("without service", pl.col("up") & (pl.col("rate_bps") == 0))):
        number = rows.filter(holds).height
        found += [f"{words} for about {span(number * SAMPLE_NS * 1e-9)}"] if number else []
    return found


def _link(rows: pl.DataFrame) -> list[str]:
    """Describes unusual values in samples of one direction of a path."""
    found: list[str] = []
    if not rows.height:
        return found
    usual_ms, usual_bps = rows["usual_delay_ms"][0], rows["usual_rate_bps"][0]
    served = rows.filter(pl.col("up"), pl.col("rate_bps") > 0)
    if served.height:
        delay_ms, rate_bps, queue_ms = (
            float(value or 0.0)
            for value in served.select(
                pl.col("delay_ms").max(), pl.col("rate_bps").min(), pl.col("queue_ms").max()
            ).row(0)
        )
        if delay_ms >= max(2 * usual_ms, usual_ms + NOTABLE_MS):
            found.append(f"link delay up to {milliseconds(delay_ms)} (usually {milliseconds(usual_ms)})")
        if rate_bps <= usual_bps / 2:
            found.append(f"rate down to {rate(rate_bps)} (usually {rate(usual_bps)})")
        if queue_ms >= NOTABLE_MS:
            found.append(f"queue up to {milliseconds(queue_ms)}")
    return found


def _losses(rows: pl.DataFrame) -> list[str]:
    """Describes the losses of one direction of a path."""
    found = []
    for cause, words in _CAUSES.items():
        number = int(rows[f"lost_{cause}"].sum())
        found += [f"{count(number)} packet{'s' * (number != 1)} lost {words}"] if number else []
    return found


def _subflow(rows: pl.DataFrame) -> list[str]:
    """Describes the retransmissions of a sender on a path."""
    number = int(rows["retransmitted"].sum()) if rows.height else 0
    return [f"{count(number)} segment{'s' * (number != 1)} retransmitted"] if number else []
