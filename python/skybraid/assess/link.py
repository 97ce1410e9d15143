"""Required link performance of stored runs and of gateways' logs, by the definitions of `model.link_performance`."""

from __future__ import annotations

import tomllib
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skybraid.model.episodes import RunShare
from skybraid.model.errors import ResultError, ScenarioError, unknown
from skybraid.model.evidence import Evidence, judge_share
from skybraid.model.formatting import milliseconds, percent
from skybraid.model.heavy import np, pl
from skybraid.model.link_performance import SLOTS_PER_LOSS, Slots, judge_integrity, judge_link
from skybraid.model.requirements import Requirement
from skybraid.model.scenario import Scenario, toml_value
from skybraid.model.statistics import Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from skybraid.model.results import Results
    from skybraid.show.report.logs import GatewayLog

SIDES = ("ground", "aircraft")

_SLOTS = 2 * SLOTS_PER_LOSS
_SETTLE = 3
"""Samples at the end of a log from which messages may still be under way."""

_CARRIER = (
    'duration = "1s"\n[path.link]\nrate = "1Mbit/s"\n[flow.FLOW]\nfrom = "ground"\n'
    'traffic = { kind = "cbr", rate = "1kbit/s", packet = "125B" }\ntransport = { protocol = "udp" }\n'
)


def read_rlp(text: str, flow: str, option: str = "--rlp") -> list[dict[str, Any]]:
    """Reads a required link performance: a table in TOML (`{ expiration = "1s", … }`), or a file of its keys.

    Returns:
        The requirements, one for each parameter, as a scenario has them.

    Raises:
        ScenarioError: it cannot be read; the keys are those of `require.rlp`.
    """
    table = text.strip()
    if not table.startswith("{"):
        try:
            table = toml_value(tomllib.loads(Path(text).read_text(encoding="utf-8")))
        except OSError as error:
            found = f"found `{text}`, which cannot be read ({error.strerror})"
            raise ScenarioError(f'{option}: {found}; expected {{ expiration = "1s", continuity = "99%" }}') from error
        except ValueError as error:
            raise ScenarioError(f"{text}: {error}") from error
    lines = _CARRIER.replace("FLOW", flow)
    return Scenario(f"{lines}require = {{ rlp = {table} }}\n", option).requirements


def judge_results(results: Results, required: Sequence[dict[str, Any]]) -> list[Requirement]:
    """Judges the stored messages of a result.

    Raises:
        ResultError: it has no messages, or no such flow.
    """
    flow = str(required[0]["flow"])
    if flow not in results.flows:
        raise ResultError(unknown("--flow", flow, list(results.flows)))
    if "messages" not in list(results.tables):
        raise ResultError(f"{results.name}: found no table of messages; expected a run with `--tables messages`")
    messages = results.tables.scan("messages").filter(
        (pl.col("flow") == flow) | pl.col("flow").cast(pl.String).str.starts_with(f"{flow}.")
    )
    several = "seed" in messages.collect_schema().names()
    expiration_ns = float(required[0]["deadline_ms"]) * 1e6
    slot_s = float(required[0]["lost_after_ms"]) / 1e3 / _SLOTS
    runs: list[Slots] = []
    delays_ms: list[npt.NDArray[np.float64]] = []
    within: list[RunShare] = []
    for flight in results.flights:
        own = messages.filter(pl.col("seed") == flight.seed) if several else messages
        frame = own.select("sent_ns", "delivered_ns").collect(engine="streaming").sort("sent_ns")
        # Whether a message that expires after the end would have completed is unknown.
        frame = frame.filter(pl.col("sent_ns") + expiration_ns <= flight.simulated_s * 1e9)
        sent = frame["sent_ns"].to_numpy()
        delay = frame["delivered_ns"].cast(pl.Float64).fill_null(float("inf")).to_numpy() - sent
        slot = (sent / (slot_s * 1e9)).astype(np.int64)
        count = int(slot.max(initial=-1)) + 1
        begun = np.bincount(slot, minlength=count)
        runs.append(Slots(begun, np.bincount(slot[delay <= expiration_ns], minlength=count), slot_s))
        arrived = np.isfinite(delay)
        delays_ms.append(delay[arrived] / 1e6)
        of_arrived = np.bincount(slot[arrived], minlength=count)
        in_time = np.bincount(slot[delay <= expiration_ns], minlength=count)
        within.append(RunShare.of_bins(of_arrived, in_time, slot_s))
    return [
        _requirement(wanted, _expiration(wanted, delays_ms, within), len(runs))
        if wanted["metric"] == "expiration"
        else _requirement(wanted, _judged(wanted, runs, is_authentic=False), len(runs))
        for wanted in required
    ]


def judge_logs(logs: Sequence[GatewayLog], required: Sequence[dict[str, Any]], sender: str) -> list[Requirement]:
    """Judges the logs of both gateways of a flight.

    The transactions are the messages of the class that is called like the flow: those that an application wrote at the
    sender, and those that the other side delivered, or dropped because a newer one had been. A gateway drops what is
    older than its class's deadline, so that the deadline and not `expiration` is the time within which they complete.

    Args:
        logs: one of each side.
        required: as `read_rlp` returns it.
        sender: `ground` or `aircraft`.

    Raises:
        ResultError: not one log of each side, no such class, or no time in common.
    """
    sides = {log.side: log for log in logs}
    if len(logs) != len(SIDES) or set(sides) != set(SIDES):
        given = ", ".join(f"{log.file.name} ({log.side})" for log in logs)
        raise ResultError(f"found {given}; expected two logs, one of the ground and one of the aircraft")
    name = str(required[0]["flow"])
    receiver = sides[SIDES[1 - SIDES.index(sender)]]
    slots = slots_of_logs(sides[sender], receiver, name)
    worst_ms = receiver.classes.filter(pl.col("name") == name)["delay_p99_ms"].max()
    found: list[Requirement] = []
    for wanted in required:
        if wanted["metric"] == "expiration":
            limit_ms = float(wanted["deadline_ms"])
            evidence = Evidence(note="the logs hold no delay")
            if isinstance(worst_ms, float):
                is_met = wanted["target"] <= 0.99 and worst_ms <= limit_ms
                wanted_words = f"{percent(wanted['target'])} in {milliseconds(limit_ms)}"
                note = (
                    f"99 % of the newest messages took at most {milliseconds(worst_ms)} in the worst sample; "
                    f"a log holds no other percentile (required {wanted_words})"
                )
                evidence = Evidence(verdict=Verdict.MET if is_met else Verdict.INCONCLUSIVE, note=note)
            found.append(_requirement(wanted, evidence, 1))
        else:
            found.append(_requirement(wanted, _judged(wanted, [slots], is_authentic=True), 1))
    return found


def slots_of_logs(sender: GatewayLog, receiver: GatewayLog, name: str) -> Slots:
    """Returns the messages of a class over the time that both logs have.

    A log holds counters of its samples. Messages under way are the difference of what was written and what has been
    delivered; what it never falls below again is lost. So the samples' phase and the clocks' difference lose nothing.

    Raises:
        ResultError: no such class, or less than four samples in common.
    """
    written = _counter(sender, name, ("written",))
    delivered = _counter(receiver, name, ("delivered", "superseded"))
    begin_s, end_s = max(written[0][0], delivered[0][0]), min(written[0][-1], delivered[0][-1])
    slot_s = float(np.median(np.diff(written[0]))) if written[0].size > 1 else 0.0
    if slot_s <= 0 or (end_s - begin_s) / slot_s < _SETTLE + 1:
        raise ResultError(
            f"{sender.file.name}, {receiver.file.name}: found hardly any time in common; expected one flight"
        )
    times_s = np.arange(begin_s, end_s + 1e-9, slot_s)
    wrote, done = np.interp(times_s, *written), np.interp(times_s, *delivered)
    under_way = wrote - done
    lost = np.minimum.accumulate(np.minimum(under_way, under_way[-_SETTLE:].min())[::-1])[::-1]
    begun = np.diff(np.rint(wrote))
    failed = np.clip(np.diff(np.rint(lost - lost[0])), 0, begun)
    return Slots(begun, begun - failed, slot_s)


def _counter(
    log: GatewayLog, name: str, columns: Sequence[str]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Wall time in s, and the sum of counters of a class, of each sample."""
    own = log.classes.filter(pl.col("name") == name)
    if own.is_empty():
        known = log.classes["name"].unique(maintain_order=True).to_list()
        raise ResultError(unknown("--flow", name, [str(one) for one in known]))
    values = own.select(pl.sum_horizontal(pl.col(columns).fill_null(0))).to_series().cast(pl.Float64).to_numpy()
    return log.begun_unix + own["time_ns"].to_numpy() / 1e9, values


def _judged(wanted: dict[str, Any], runs: Sequence[Slots], *, is_authentic: bool) -> Evidence:
    if wanted["metric"] == "integrity":
        return judge_integrity(wanted, is_authentic=is_authentic)
    return judge_link(wanted, runs)


def _expiration(
    wanted: dict[str, Any], delays_ms: Sequence[npt.NDArray[np.float64]], within: Sequence[RunShare]
) -> Evidence:
    """Judges the percentile of those that completed by the share of them within the expiration time."""
    together = np.concatenate(delays_ms)
    judged = judge_share(within, float(wanted["target"]))
    if not together.size:
        return Evidence()
    estimate = float(np.quantile(together, wanted["target"], method="inverted_cdf"))
    return replace(judged, estimate=estimate, low=None, high=None, missed=None)


def _requirement(wanted: dict[str, Any], evidence: Evidence, runs: int) -> Requirement:
    return Requirement(**asdict(evidence), **wanted, runs=runs)
