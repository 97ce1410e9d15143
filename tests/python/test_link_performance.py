"""Required link performance, held against cases computed by hand."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import Command
from skybraid import run
from skybraid.assess.link import judge_logs, judge_results, read_rlp, slots_of_logs
from skybraid.model.errors import ResultError, ScenarioError
from skybraid.model.link_performance import LinkService, Slots, judge_integrity, judge_link
from skybraid.model.scenario import Scenario
from skybraid.model.statistics import Verdict
from skybraid.show.report.logs import GatewayLog

SLOT_S = 0.5

SCENARIO = """
duration = "60s"

[path.lte]
rate = "10Mbit/s"
delay = "20ms"
down = [["20s", "5s"]]

[flow.control]
from = "ground"
traffic = { kind = "cbr", rate = "40kbit/s", packet = "100B" }
transport = { protocol = "udp" }
require = { rlp = { expiration = "1s", continuity = "99%", availability = "99%", integrity = "99.9%", KEYS } }
"""


def slots(completed: list[int], each: int = 10) -> Slots:
    return Slots([each] * len(completed), completed, SLOT_S)


def required(metric: str, **more: Any) -> dict[str, Any]:
    return {"metric": metric, "target": 0.9, "lost_after_ms": 1000.0} | more


def test_a_link_is_lost_while_nothing_completes() -> None:
    # 4 of 10 slots without a completed transaction, 2 s: 3 s of 5 s are left.
    service = LinkService.of(slots([10, 10, 10, 0, 0, 0, 0, 10, 10, 10]), 1.0)
    assert service.losses_s == ((1.5, 2.0),)
    assert service.up_ms.sum() == pytest.approx(3000)
    # Sixty transactions begun on an available link completed; the one that was lost with it did not.
    assert (service.begun.sum(), service.completed.sum()) == (61, 60)


def test_failed_parts_of_the_neighbours_belong_to_a_loss() -> None:
    # 6 of 10 failed before and 3 of 10 after two slots without any: 1 s + 0.3 s + 0.15 s.
    service = LinkService.of(slots([10, 4, 0, 0, 7, 10]), 1.2)
    assert service.losses_s[0] == pytest.approx((0.7, 1.45))
    assert service.up_ms.sum() == pytest.approx(1550)
    assert (service.begun.sum(), service.completed.sum()) == (10 + 4 + 1 + 7 + 10, 31)


def test_a_shorter_silence_counts_against_continuity() -> None:
    service = LinkService.of(slots([10, 10, 0, 10, 9]), 1.0)
    assert service.losses_s == ()
    assert service.up_ms.sum() == pytest.approx(2500)
    assert (service.begun.sum(), service.completed.sum()) == (50, 39)


def test_slots_without_a_transaction_belong_to_their_silence() -> None:
    # One transaction a second: the second one fails, so that none completes from 1 s to 2 s.
    service = LinkService.of(Slots([1, 0, 1, 0, 1, 0, 1], [1, 0, 0, 0, 1, 0, 1], SLOT_S), 1.0)
    assert service.losses_s == ((1.0, 1.0),)
    assert (service.begun.sum(), service.completed.sum()) == (4, 3)


def test_a_flight_without_transactions_says_nothing() -> None:
    judged = judge_link(required("continuity"), [Slots([0, 0], [0, 0], SLOT_S)])
    assert (judged.estimate, judged.trials, judged.verdict) == (None, 0, Verdict.INCONCLUSIVE)


def test_long_slots_cannot_show_a_loss() -> None:
    judged = judge_link(required("availability", lost_after_ms=900.0), [slots([10, 0, 10])])
    assert judged.estimate is None
    assert judged.verdict is Verdict.INCONCLUSIVE
    assert "slots of 0.5 s, too long to see a loss of 0.9 s" in judged.note


def test_availability_has_an_interval_by_losses() -> None:
    # Losses of 2 s that begin at random in one of 50 places of 10 s each: 2 s of 100 s.
    draw = np.random.default_rng(5)
    runs = []
    for _ in range(20):
        completed = np.where(np.repeat(draw.random(50) < 0.1, 20) & (np.arange(1000) % 20 < 4), 0, 10)
        runs.append(Slots(np.full(1000, 10), completed, SLOT_S))
    lost = sum(len(LinkService.of(one, 1.0).losses_s) for one in runs)
    judged = judge_link(required("availability"), runs)
    assert judged.episodes == lost
    assert judged.estimate is not None
    assert judged.estimate == pytest.approx(1 - lost * 2 / 10_000, abs=1e-3)
    assert judged.low is not None
    assert judged.high is not None
    # The number of losses is binomial with a mean of 100 and a deviation of 9.5: 0.4 % either way.
    assert judged.low == pytest.approx(judged.estimate - 0.004, abs=0.002)
    assert judged.high == pytest.approx(judged.estimate + 0.004, abs=0.002)
    assert judged.verdict is Verdict.MET


def test_a_check_bounds_what_passes_undetected() -> None:
    # CRC-16: 2^-16 = 1.5e-5 of damaged messages.
    met, missed = (judge_integrity({"target": target, "check_bits": 16}) for target in (0.9999, 0.99999))
    assert met.low == pytest.approx(1 - 1 / 65536)
    assert (met.verdict, missed.verdict) == (Verdict.MET, Verdict.INCONCLUSIVE)
    assert judge_integrity({"target": 0.9, "check_bits": None}).low is None


def test_the_four_parameters_are_judged_over_a_run() -> None:
    results = run(Scenario(SCENARIO.replace("KEYS", 'lost_after = "2s", check_bits = 32'), "rlp.toml"))
    by_metric = {one.metric: one for one in results.requirements}
    assert list(by_metric) == ["expiration", "continuity", "availability", "integrity"]
    # 50 messages/s; those of 20 s to 25 s are lost, and those of the last second are undecided.
    available = by_metric["availability"]
    assert available.episodes == 1
    assert available.estimate == pytest.approx(54 / 59, abs=2e-3)
    continuity = by_metric["continuity"]
    assert continuity.missed == 1
    assert continuity.trials == pytest.approx(50 * 54 + 1, abs=1)
    # One run of a minute cannot exclude that a later percent takes longer.
    assert by_metric["expiration"].verdict is Verdict.INCONCLUSIVE
    assert by_metric["expiration"].estimate == pytest.approx(20.1, abs=0.2)
    assert by_metric["integrity"].verdict is Verdict.MET
    assert "lost once for at least 2 s" in available.words
    assert "1 miss in 1 episode" in continuity.words


def test_a_loss_is_by_default_as_long_as_the_expiration() -> None:
    scenario = Scenario(SCENARIO.replace(", KEYS", ""), "rlp.toml")
    assert {one["lost_after_ms"] for one in scenario.requirements} == {1000.0}


RLP = '{ expiration = "1s", continuity = "99%", availability = "90%", integrity = "99.9%", lost_after = "2s" }'


def log_of(folder: Path, side: str, counts: list[dict[str, int]], begun: float) -> GatewayLog:
    """Writes a log with a sample of the class `control` each second, and reads it."""
    lines: list[dict[str, Any]] = [{"format": "skybraid-gateway-log", "version": 1, "side": side}]
    for at_s, own in enumerate(counts):
        found = {"name": "control", "delay_p99_ms": 40.0} | own
        lines.append({"t_ms": 1000 * at_s, "unix": begun + at_s, "sample": {"paths": [], "classes": [found]}})
    file = folder / f"{side}.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return GatewayLog.read(file)


def logs_of(folder: Path, *, lost_from: int, lost_to: int, length_s: int = 100) -> tuple[GatewayLog, GatewayLog]:
    """Logs of 20 messages a second, those of some seconds lost; the receiver samples 0.3 s later, 1 under way."""
    written = [20 * at for at in range(length_s)]
    got = [max(20 * at + 6 - 1 - 20 * (min(at, lost_to) - min(at, lost_from)), 0) for at in range(length_s)]
    ground = log_of(folder, "ground", [{"written": one} for one in written], 1000.0)
    aircraft = log_of(
        folder, "aircraft", [{"delivered": one - one // 50, "superseded": one // 50} for one in got], 1000.3
    )
    return ground, aircraft


def test_logs_of_two_gateways_show_what_was_lost(tmp_path: Path) -> None:
    slots = slots_of_logs(*logs_of(tmp_path, lost_from=40, lost_to=45), "control")
    begun, completed = np.asarray(slots.begun), np.asarray(slots.completed)
    assert slots.slot_s == 1
    # The receiver's samples are 0.3 s late: rounding may move a message to the next second.
    assert (begun - completed).sum() == pytest.approx(100, abs=2)
    assert set(np.flatnonzero(begun - completed)) <= set(range(38, 47))
    service = LinkService.of(slots, 2.0)
    assert len(service.losses_s) == 1
    assert service.losses_s[0][1] == pytest.approx(5, abs=0.2)


def test_logs_without_a_loss_lose_nothing_by_their_phase(tmp_path: Path) -> None:
    slots = slots_of_logs(*logs_of(tmp_path, lost_from=0, lost_to=0), "control")
    assert np.array_equal(slots.begun, slots.completed)


def test_logs_are_judged_by_the_same_parameters(tmp_path: Path) -> None:
    logs = logs_of(tmp_path, lost_from=40, lost_to=45)
    judged = {one.metric: one for one in judge_logs(logs, read_rlp(RLP, "control"), "ground")}
    assert list(judged) == ["expiration", "continuity", "availability", "integrity"]
    assert judged["availability"].estimate == pytest.approx(94 / 99, abs=5e-3)
    # Authenticated messages: no check of one's own is needed.
    assert judged["integrity"].verdict is Verdict.MET
    assert judged["expiration"].verdict is Verdict.MET
    assert "at most 40 ms in the worst sample" in judged["expiration"].words
    with pytest.raises(ResultError, match="expected two logs"):
        judge_logs(logs[:1], read_rlp(RLP, "control"), "ground")
    with pytest.raises(ResultError, match="found sticks, expected control"):
        judge_logs(logs, read_rlp(RLP, "sticks"), "ground")


def test_a_stored_run_is_judged_as_the_run_was() -> None:
    results = run(Scenario(SCENARIO.replace("KEYS", 'lost_after = "2s", check_bits = 32'), "rlp.toml"))
    again = {one.metric: one for one in judge_results(results, results_required(results))}
    for one in results.requirements:
        other = again[one.metric]
        assert other.verdict is one.verdict, one.metric
        if one.metric in ("continuity", "availability"):
            # Its slots are finer than those of the run.
            assert other.estimate == pytest.approx(one.estimate, abs=2e-3)
            assert other.missed is not None
            assert one.missed is not None
            assert other.missed / other.trials == pytest.approx(one.missed / one.trials, abs=2e-3)


def results_required(results: Any) -> list[dict[str, Any]]:
    return Scenario(results.scenario, "rlp.toml").requirements


def test_a_table_of_one_s_own_is_checked(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('expiration = "1s"\ncontinuity = "99%"\n', encoding="utf-8")
    assert [one["metric"] for one in read_rlp(str(file), "control")] == ["expiration", "continuity"]
    for text, words in (("none.toml", "cannot be read"), ("{ expiration = 1 }", "expiration")):
        with pytest.raises(ScenarioError, match=words):
            read_rlp(text, "control")


def test_the_command_judges_logs(skybraid: Command, tmp_path: Path) -> None:
    logs_of(tmp_path, lost_from=40, lost_to=45)
    done = skybraid("judge", "ground.jsonl", "aircraft.jsonl", "--rlp", RLP)
    assert done.returncode == 1, done.stderr
    assert "control, availability: inconclusive" in done.stdout
    found = json.loads(skybraid("judge", "ground.jsonl", "aircraft.jsonl", "--rlp", RLP, "--json").stdout)
    assert [one["metric"] for one in found["requirements"]] == ["expiration", "continuity", "availability", "integrity"]
