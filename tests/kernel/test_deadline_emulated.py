"""Copies and repair packets before a deadline in real time have the simulated misses and overhead."""

import statistics
from pathlib import Path

import pytest
from scipy import stats

import skybraid
from agreement import LOSSY, scenario
from marks import needs_emulator
from skybraid.model.results import Results

pytestmark = needs_emulator

WITHIN_MS = 150.0
SEEDS = (1, 2, 3)
SETTINGS = {
    "hedge": 'within = "150ms"',
    "deadline": 'within = "150ms"',
    "coded": 'within = "150ms"',
    "rounds": 'within = "150ms"',
    "streaming": "burst = 8, delay = 3",
    "budget": 'rtt = "300ms"',
}
CASES = [*(("udp", scheduler) for scheduler in SETTINGS), ("mp_dccp", "hedge")]
PROTOCOLS = {"udp": 'protocol = "udp"', "mp_dccp": 'protocol = "mp_dccp", congestion = "ccid5"'}
"""Of MP-DCCP's controls one whose window these losses leave open."""
RUNS = 3
"""Runs of a seed, of which the first counts that the machine was not too busy for."""


def text(protocol: str, scheduler: str) -> str:
    rule = f'{PROTOCOLS[protocol]}, scheduler = {{ name = "{scheduler}", {SETTINGS[scheduler]} }}'
    whole = scenario(20, LOSSY, rule, 'kind = "cbr", rate = "1Mbit/s", packet = "1250B"')
    return f'{whole}require = {{ deadline = "{WITHIN_MS:.0f}ms", share = "90%" }}\n'


def emulated(file: Path, seed: int) -> Results:
    for _ in range(RUNS):
        results = skybraid.emulate(file, seed=seed, tables=())
        if not (results.flights[0].emulation or {}).get("doubtful"):
            return results
    pytest.skip("the machine was too busy for a run in real time")


def missed(results: list[Results]) -> tuple[int, int]:
    """Returns the numbers of missed and of decided messages."""
    shares = [each.requirements[0] for each in results]
    trials = sum(share.trials for share in shares)
    return trials - round(sum((share.estimate or 0.0) * share.trials for share in shares)), trials


def bytes_per_message(results: Results) -> float:
    """Returns the bytes that the links delivered in both directions, per message."""
    return float(sum(link["delivered_bytes"] for link in results.links()) / results.flows["data"].sent)


# 6,000 messages each: intervals of 95 % that have something in common, and bytes within 2 %.
@pytest.mark.parametrize(("protocol", "scheduler"), CASES)
def test_copies_in_real_time_are_those_of_the_simulator(protocol: str, scheduler: str, tmp_path: Path) -> None:
    file = tmp_path / "copies.toml"
    file.write_text(text(protocol, scheduler), encoding="utf-8")
    virtual = [skybraid.run(file, seed=seed, tables=()) for seed in SEEDS]
    real = [emulated(file, seed) for seed in SEEDS]
    (ours, trials), (theirs, decided) = missed(virtual), missed(real)
    one, other = (stats.binomtest(*each).proportion_ci() for each in ((ours, trials), (theirs, decided)))
    bytes_of = [statistics.mean(map(bytes_per_message, each)) for each in (virtual, real)]
    print(f"{protocol} {scheduler}: missed {ours} of {trials}, in real time {theirs} of {decided}; bytes {bytes_of}")  # noqa: T201
    assert max(one.low, other.low) <= min(one.high, other.high)
    assert bytes_of[1] == pytest.approx(bytes_of[0], rel=0.02)
