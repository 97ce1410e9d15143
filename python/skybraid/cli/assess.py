"""Command `assess`: ranks transports over measured flights."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Self

import typer

from skybraid.cli.late import assess, assess_page, formats, series
from skybraid.cli.measured import Client, Every, InFormat, Lost, Meaning, Zone, read_options
from skybraid.cli.options import MET, NOT_MET, AsJson, Page, Quiet, new_file, print_json, renamed, seconds
from skybraid.cli.progress import progress
from skybraid.model.errors import ScenarioError
from skybraid.model.folder import write_whole
from skybraid.model.formatting import about, percent, percent_range, rate
from skybraid.model.statistics import Verdict

if TYPE_CHECKING:
    from skybraid.assess import Answer, Network, RankedFlow, Row, Wanted

QUICK_S = 10.0
"""Computing time in s of `--quick`."""

_SHOWN = 6


class Measured(NamedTuple):
    """Measurements to assess, and their options."""

    networks: list[Network]
    wanted: list[Wanted]

    @classmethod
    def read(
        cls, measurements: list[str], require: list[str], rates: list[str], options: formats.Options | None = None
    ) -> Self:
        """Reads measurements and requirements.

        Raises:
            ScenarioError: nothing is required, or a word is wrong.
            TraceError: a measurement cannot be read.
        """
        if not require:
            raise ScenarioError("--require: found none; expected one, such as 'control: 99.9% within 300ms'")
        given = dict(_rate_of(text) for text in rates)
        wanted = [assess.parse_wanted(text, given) for text in require]
        unknown = set(given) - {one.flow for one in wanted}
        if unknown:
            raise ScenarioError(f"--rate: found {', '.join(sorted(unknown))}; expected flows of --require")
        return cls(assess.read_networks(measurements, options), wanted)


def assess_command(
    measurements: Annotated[
        list[str],
        typer.Argument(
            help="One flight per argument: lte=drive1.csv lte=drive2.csv leo=ping.log; join files of a flight by +.",
            metavar="NAME=FLIGHT...",
        ),
    ],
    require: Annotated[
        list[str],
        typer.Option(
            help="Requirement: 'control: 99.9% within 300ms', 'video: 95% of frames within 300ms', 'data: 8Mbit/s'.",
            metavar="FLOW:REQUIREMENT",
        ),
    ],
    rates: Annotated[
        list[str] | None, typer.Option("--rate", help="Rate of a flow: control=40kbit/s.", metavar="FLOW=RATE")
    ] = None,
    page: Page = None,
    out: Annotated[Path | None, typer.Option(hidden=True)] = None,
    budget: Annotated[str | None, typer.Option(help="Computing time of the runs.", metavar="DURATION")] = None,
    quick: Annotated[bool, typer.Option(help="Give a first answer after about 10 s of computing.")] = False,
    format_: InFormat = None,
    every: Every = None,
    zone: Zone = None,
    meanings: Meaning = None,
    client: Client = "vehicle",
    lost: Lost = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Rank transports over measured flights; report which ones are good enough and what to measure next.

    Exit code: 0 every requirement met, 1 not, 2 bad input. Reads every format of `skybraid trace import`.

    Example: skybraid assess lte=drive.csv leo=ping.log --require 'control: 99% within 300ms'
    """
    options = replace(read_options(zone, meanings, client, lost, every), format=format_)
    page = renamed(out, page, "--out", "--page")
    if page is not None:
        new_file(page)
    measured = Measured.read(measurements, require, rates or [], options)
    budget_s = seconds("--budget", budget) or (QUICK_S if quick else assess.BUDGET_S)
    with progress(shown=not quiet) as report_progress:
        answer = assess.assess(measured.networks, measured.wanted, budget_s, report_progress)
    if page is not None:
        write_whole(page, assess_page.assess_html(answer).encode())
    if as_json:
        print_json(answer_json(answer))
    elif not quiet:
        typer.echo(answer_text(answer))
    raise typer.Exit(MET if answer.verdict is Verdict.MET else NOT_MET)


def _rate_of(text: str) -> tuple[str, float]:
    flow, equals, value = text.partition("=")
    parts = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(\S+)\s*", value)
    found = 0.0 if parts is None else float(parts[1]) * series.RATE_UNITS.get(parts[2], 0.0)
    if not equals or found <= 0:
        raise ScenarioError(f"--rate: found `{text}`; expected FLOW=RATE, such as control=40kbit/s")
    return flow.strip(), found


def answer_json(answer: Answer) -> dict[str, Any]:
    """Converts an answer to plain values."""
    return {
        "verdict": str(answer.verdict),
        "flows": [
            {
                "flow": flow.wanted.flow,
                "required": flow.wanted.text,
                "transports": [
                    {
                        "names": list(row.names),
                        "estimate": row.judged.estimate,
                        "low": row.judged.low,
                        "high": row.judged.high if math.isfinite(row.judged.high) else None,
                        "verdict": str(row.verdict),
                        "why": row.judged.why,
                        "needed_s": row.judged.needed_s,
                        "delay_p50_ms": row.delay_p50_ms if math.isfinite(row.delay_p50_ms) else None,
                        "delay_p99_ms": row.delay_p99_ms if math.isfinite(row.delay_p99_ms) else None,
                        "whole": row.is_final,
                    }
                    for row in flow.rows
                ],
            }
            for flow in answer.flows
        ],
        "networks": [
            {"name": one.name, "flights": len(one.flights), "measured_s": one.measured_s} for one in answer.networks
        ],
        "assumed": list(answer.assumed),
        "missing": list(answer.missing),
        "wall_s": answer.wall_s,
    }


def answer_text(answer: Answer, shown: int = _SHOWN, others: str = "with --page and --json") -> str:
    """Formats an answer with at most `shown` rows of each flow, and says how to see the others."""
    lines = ["; ".join(f"{one.name}: {_flights(len(one.flights))}, {about(one.measured_s)}" for one in answer.networks)]
    lines += [f"  assumed: {one}" for one in answer.assumed]
    for flow in answer.flows:
        lines += ["", flow.wanted.text, *_table(flow, shown, others)]
    lines += ["", *(_answer(flow) for flow in answer.flows)]
    lines += [f"  to do: {one}" for one in answer.missing]
    return "\n".join(lines)


def _table(flow: RankedFlow, shown: int, others: str) -> list[str]:
    rows = [_cells(flow, row) for row in flow.rows[:shown]]
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    if len(flow.rows) > shown:
        lines.append(f"  and {len(flow.rows) - shown} more: {others}")
    return lines


def _cells(flow: RankedFlow, row: Row) -> list[str]:
    judged = row.judged
    if flow.wanted.metric == "goodput":
        high = rate(judged.high) if math.isfinite(judged.high) else "no upper end"
        shown, interval = rate(judged.estimate), f"{rate(judged.low)} to {high}"
    else:
        shown, interval = percent(judged.estimate), percent_range(judged.low, judged.high)
    why = f" ({judged.why})" if judged.why and row.is_final else ""
    delay = f"p99 {row.delay_p99_ms:.0f} ms" if math.isfinite(row.delay_p99_ms) else ""
    return [row.name, shown, interval, delay, f"{row.outcome}{why}"]


def _answer(flow: RankedFlow) -> str:
    best = flow.best
    if best.verdict is Verdict.MET:
        return f"{flow.wanted.flow}: {best.names[0]} would do."
    if best.verdict is Verdict.NOT_MET:
        return f"{flow.wanted.flow}: no transport over these networks would do; {best.names[0]} comes nearest."
    alike = sum(row.is_final and row.reached == best.reached for row in flow.rows[1:])
    by_delay = f", by its delay alone: {alike} more reached the same" if alike else ""
    return f"{flow.wanted.flow}: inconclusive; {best.name} does best{by_delay}."


def _flights(count: int) -> str:
    return "1 flight" if count == 1 else f"{count} flights"
