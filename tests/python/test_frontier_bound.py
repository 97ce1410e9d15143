"""The decision bound of the frontier: by formulas for paths without memory, and no rule below it."""

import itertools
import math

import numpy as np
import pytest

from skybraid_studies.frontier.bound import UpDown, best_plan, bound, deadline_ms, drawn, min_missed
from skybraid_studies.frontier.frontier import CONTROL, point, replay
from skybraid_studies.frontier.rules import in_rounds

P = 0.1
INDEPENDENT = (UpDown(P, 1 - P), UpDown(P, 1 - P))
BURSTS = (UpDown(0.02, 0.3), UpDown(0.05, 0.5))


# Without memory: two copies in each round leave p^(2 rounds); the second round is for those that the first missed.
@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_copies_on_both_paths_leave_the_product_of_the_losses(rounds: int) -> None:
    plan = best_plan(INDEPENDENT, rounds, 1e-12)
    assert plan.missed == pytest.approx(P ** (2 * rounds))
    assert plan.copies == pytest.approx(sum(2 * P ** (2 * done) for done in range(rounds)))


# A copy is worth (1 − p) at first, and p (1 − p) once one is on its way: dearer than that, one copy a round is best.
def test_a_dear_copy_is_sent_where_the_first_one_failed() -> None:
    plan = best_plan(INDEPENDENT, 2, 0.2)
    assert plan.missed == pytest.approx(P**2)
    assert plan.copies == pytest.approx(1 + P)


# By brute force: every rule of one round, which chooses paths by the four states, and every state.
def test_no_rule_of_one_round_is_below_the_bound() -> None:
    corners = bound(BURSTS, 1)
    states = tuple(itertools.product((False, True), repeat=2))
    down = [path.down for path in BURSTS]
    for rule in itertools.product(states, repeat=4):
        missed = copies = 0.0
        for last, sent in zip(states, rule, strict=True):
            share = math.prod([1 - d if up else d for up, d in zip(last, down, strict=True)])
            fails = [1 - path.up_after(up) for path, up in zip(BURSTS, last, strict=True)]
            missed += share * math.prod([fail for fail, used in zip(fails, sent, strict=True) if used])
            copies += share * sum(sent)
        assert missed >= min_missed(corners, float(copies)) - 1e-12


# 400 s of drawn paths: 2,000 rounds, in which the share of a rule has some error of its own.
@pytest.mark.parametrize("rule", ["low_rtt", "hedge", "deadline", "redundant"])
def test_schedulers_lie_above_the_bound(rule: str) -> None:
    measured = drawn(BURSTS, 2000, seed=1)
    within = round(deadline_ms(2))
    seen = point([replay(measured, in_rounds(rule, within), CONTROL, (within,))], within)
    down = [float(np.isinf(row).mean()) for row in measured.episodes[0]]
    assert down == pytest.approx([path.down for path in BURSTS], rel=0.35)
    least = min_missed(bound(BURSTS, 2), 1 + seen.overhead)
    assert seen.high >= least
