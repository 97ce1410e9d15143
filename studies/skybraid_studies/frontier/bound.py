"""Lower bound on misses for a mean number of copies: a Markov decision process over two paths.

Each path is independently up or down for a whole round trip (Gilbert and Elliott). A message may be sent in each round
before its deadline, on either path, both or none. Before each round the rule knows which paths were up in the previous
round, used or not, and whether the message has arrived. This is at least the information in acknowledgements, so no
rule misses less with as many copies.

Source: parallel links with a deadline as a Markov decision process, arXiv 2208.11978. Value iteration with a price per
copy (Lagrange) gives the lower convex hull of all rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from skybraid_studies.frontier.measurements import STEP_S, Together

ROUND_TRIP_MS = 1000 * STEP_S
ONE_WAY_MS = ROUND_TRIP_MS / 2
MARGIN_MS = 1
"""Margin in ms, since a packet needs some microseconds in addition to its delay."""

_ERROR = 1e-12
"""Tolerance for floating-point differences."""

State = tuple[bool, bool]
"""Whether each path was up in the last round."""
STATES: tuple[State, ...] = ((False, False), (False, True), (True, False), (True, True))


@dataclass(frozen=True, slots=True)
class UpDown:
    """Path with its probabilities to go down after a round up, and to be up after a round down."""

    fails: float
    recovers: float

    @property
    def down(self) -> float:
        """Share of rounds in which the path is down."""
        return self.fails / (self.fails + self.recovers)

    def up_after(self, up: bool) -> float:
        """Returns the probability that the path is up in the next round."""
        return 1 - self.fails if up else self.recovers


@dataclass(frozen=True, slots=True)
class Plan:
    """Performance of a rule.

    Attributes:
        missed: share of the messages that do not arrive in time.
        copies: mean number of copies of a message.
    """

    missed: float
    copies: float


def deadline_ms(rounds: int) -> float:
    """Returns the deadline in ms that allows `rounds` rounds."""
    return ONE_WAY_MS + (rounds - 1) * ROUND_TRIP_MS + MARGIN_MS


def best_plan(paths: Sequence[UpDown], rounds: int, price: float) -> Plan:
    """Returns the performance of the rule that minimises misses plus the price of copies."""
    one, other = paths

    @cache
    def plan(last: State, left: int) -> Plan:
        if left == 0:
            return Plan(1.0, 0.0)
        ups = one.up_after(last[0]), other.up_after(last[1])
        chance = {now: (ups[0] if now[0] else 1 - ups[0]) * (ups[1] if now[1] else 1 - ups[1]) for now in STATES}
        found = []
        for sent in STATES:
            failed = [now for now in STATES if not any(a and b for a, b in zip(sent, now, strict=True))]
            later = [(chance[now], plan(now, left - 1)) for now in failed]
            missed = sum(weight * each.missed for weight, each in later)
            copies = sum(sent) + sum(weight * each.copies for weight, each in later)
            found.append(Plan(missed, copies))
        return min(found, key=lambda each: each.missed + price * each.copies)

    def share(state: State) -> float:
        downs = one.down, other.down
        return float(np.prod([1 - down if up else down for up, down in zip(state, downs, strict=True)]))

    plans = [(share(state), plan(state, rounds)) for state in STATES]
    return Plan(sum(w * each.missed for w, each in plans), sum(w * each.copies for w, each in plans))


def bound(paths: Sequence[UpDown], rounds: int) -> list[Plan]:
    """Returns the corners of the bound, by increasing number of copies."""

    def between(few: Plan, many: Plan) -> list[Plan]:
        if many.copies <= few.copies:
            return []
        price = (few.missed - many.missed) / (many.copies - few.copies)
        found = best_plan(paths, rounds, price)
        gain = few.missed + price * few.copies - found.missed - price * found.copies
        if gain <= _ERROR:
            return []
        return [*between(few, found), found, *between(found, many)]

    few, many = best_plan(paths, rounds, 2.0), best_plan(paths, rounds, _ERROR)
    return [few, *between(few, many), many]


def min_missed(corners: Sequence[Plan], copies: float) -> float:
    """Returns the minimum missed share for a number of copies; a rule may choose between two at random."""
    return float(np.interp(copies, [each.copies for each in corners], [each.missed for each in corners]))


def drawn(paths: Sequence[UpDown], rounds: int, seed: int) -> Together:
    """Returns the same paths as a series for the simulator, whose step is one round trip."""
    draws = np.random.default_rng(seed).random((len(paths), rounds))
    delays = np.full((len(paths), rounds), ONE_WAY_MS)
    for row, path in enumerate(paths):
        up = True
        for step in range(rounds):
            up = bool(draws[row, step] < path.up_after(up))
            if not up:
                delays[row, step] = np.inf
    return Together(("one", "other"), (delays,))
