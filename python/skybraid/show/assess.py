"""Report of an assessment: transports ranked with intervals, its assumptions and missing data."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from skybraid.model.formatting import about, milliseconds, percent, percent_range, rate
from skybraid.show.report.charts import Charts
from skybraid.show.report.page import page
from skybraid.show.report.ranking import Column, Entry, Estimate, Ranking, placed

if TYPE_CHECKING:
    from skybraid.assess.answer import Answer, RankedFlow, Row


def assess_html(answer: Answer) -> str:
    """Returns the report as HTML."""
    flows = [(flow.wanted, _ranking(flow)) for flow in answer.flows]
    networks = [(one.name, len(one.flights), about(one.measured_s)) for one in answer.networks]
    return page("assess.html.j2", Charts(), answer=answer, flows=flows, networks=networks)


def _ranking(flow: RankedFlow) -> Ranking:
    is_rate = flow.wanted.metric == "goodput"
    columns = [
        Column("seen (95 % interval)", "linear" if is_rate else "nines", flow.wanted.target),
        Column("median delay", "log"),
        Column("p99 delay", "log"),
    ]
    rows = [
        (str(at), [Entry({"": name}, _seen(row, is_rate=is_rate)) for name in row.names])
        for at, row in enumerate(flow.rows, start=1)
    ]
    return placed("transport", columns, rows)


def _seen(row: Row, *, is_rate: bool) -> list[Estimate]:
    judged = row.judged
    high = judged.high if math.isfinite(judged.high) else None
    if is_rate:
        ends = f"{rate(judged.low)} to {'no upper end' if high is None else rate(high)}"
    else:
        ends = percent_range(judged.low, judged.high)
    text = f"{(rate if is_rate else percent)(judged.estimate)} ({ends})"
    if not row.is_final:
        text += "; not in the final"
    elif judged.why:
        text += f"; {judged.why}"
    delays = [
        Estimate(
            milliseconds(value) if math.isfinite(value) else "–",
            value if math.isfinite(value) else None,
            None,
            None,
            0.0,
        )
        for value in (row.delay_p50_ms, row.delay_p99_ms)
    ]
    return [Estimate(text, judged.estimate, judged.low, high, 0.0, row.verdict if row.is_final else None), *delays]
