"""Judges the required link performance of stored runs and gateway logs (definitions: `model.link_performance`)."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
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
    import numpy.typing as npt

    from skybraid.model.results import Results
    from skybraid.show.report.logs import GatewayLog

SIDES = ("ground", "aircraft")

_SLOTS = 2 * SLOTS_PER_LOSS
_SETTLE = 3
"""Number of samples at the end of a log in which messages may still be in flight."""

_CARRIER = (
    'duration = "1s"\n[path.link]\nrate = "1Mbit/s"\n[flow.FLOW]\nfrom = "ground"\n'
    'traffic = { kind = "cbr", rate = "1kbit/s", packet = "125B" }\ntransport = { protocol = "udp" }\n'
)


def read_rlp(text: str, flow: str, option: str = "--rlp") -> list[dict[str, Any]]:
    """Reads a required link performance: a TOML table (`{ expiration = "1s", … }`), or a file with the table's keys.

    Returns:
        One requirement for each parameter, in the form of `Scenario.requirements`.

    Raises:
        ScenarioError: the text or file is not a table with the keys of `require.rlp`.
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
        ResultError: the result has no table of messages, or no such flow.
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
        # The outcome of messages that expire after the end is unknown.
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

    Transactions are the messages of the class with the flow's name. A transaction begins when an application writes the
    message at the sender; it completes when the receiver delivers the message, or drops it because a newer one was
    already delivered. A gateway drops messages that are older than the deadline of their class, so transactions
    complete within that deadline, not within `expiration`.

    Args:
        logs: one log of each side.
        required: requirements as returned by `read_rlp`.
        sender: `ground` or `aircraft`.

    Raises:
        ResultError: there is not exactly one log of each side, no such class, or no time that both logs cover.
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
    """Returns the messages of a class over the time that both logs cover.

    Logs sample counters. The difference of written and delivered messages is the number in flight or lost. The part
    below which this difference never falls again is lost, so neither the phase of the samples nor the offset of the
    clocks counts as a loss.

    Raises:
        ResultError: there is no such class, or the logs have fewer than four samples in common.
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
    missing = wrote - done
    lost = np.minimum.accumulate(np.minimum(missing, missing[-_SETTLE:].min())[::-1])[::-1]
    begun = np.diff(np.rint(wrote))
    failed = np.clip(np.diff(np.rint(lost - lost[0])), 0, begun)
    return Slots(begun, begun - failed, slot_s)


def _counter(
    log: GatewayLog, name: str, columns: Sequence[str]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Returns the wall time in s and the sum of some counters of a class, for each sample."""
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
    """Judges the percentile of completed transactions by their share within the expiration time."""
    together = np.concatenate(delays_ms)
    judged = judge_share(within, float(wanted["target"]))
    if not together.size:
        return Evidence()
    estimate = float(np.quantile(together, wanted["target"], method="inverted_cdf"))
    return replace(judged, estimate=estimate, low=None, high=None, missed=None)


def _requirement(wanted: dict[str, Any], evidence: Evidence, runs: int) -> Requirement:
    return Requirement(**asdict(evidence), **wanted, runs=runs)
