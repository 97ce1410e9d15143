"""The least misses for a number of copies that any rule can reach: a Markov decision process over two paths.

Each path is up or down for a whole round trip (Gilbert and Elliott), on its own. A message may be sent in each round
that is left before its deadline, on either path, on both or on none. Before each round the rule knows which paths were
up in the round before, also those that carried nothing, and whether the message has arrived. So it knows at least what
any rule learns from acknowledgements: no rule misses less for as many copies.

Source: parallel links with a deadline as a Markov decision process, arXiv 2208.11978; the bound by value iteration with
a price of a copy (Lagrange) is the lower convex hull of what all rules reach.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from skybraid_studies.frontier.measurements import STEP_S, Together

if TYPE_CHECKING:
    from collections.abc import Sequence

ROUND_TRIP_MS = 1000 * STEP_S
ONE_WAY_MS = ROUND_TRIP_MS / 2
MARGIN_MS = 1
"""A packet needs some microseconds besides its delay."""

_ERROR = 1e-12
"""Below this, differences are those of floating-point numbers."""

State = tuple[bool, bool]
"""Whether each path was up in the last round."""
STATES: tuple[State, ...] = ((False, False), (False, True), (True, False), (True, True))


@dataclass(frozen=True, slots=True)
class UpDown:
    """A path: its chance to go down after a round in which it was up, and to be up after one in which it was not."""

    fails: float
    recovers: float

    @property
    def down(self) -> float:
        """Share of the rounds in which it is down."""
        return self.fails / (self.fails + self.recovers)

    def up_after(self, up: bool) -> float:
        """Chance to be up in the round after."""
        return 1 - self.fails if up else self.recovers


@dataclass(frozen=True, slots=True)
class Plan:
    """What a rule comes to.

    Attributes:
        missed: share of the messages that do not arrive in time.
        copies: copies of a message, mean.
    """

    missed: float
    copies: float


def deadline_ms(rounds: int) -> float:
    """The deadline that leaves so many rounds."""
    return ONE_WAY_MS + (rounds - 1) * ROUND_TRIP_MS + MARGIN_MS


def best_plan(paths: Sequence[UpDown], rounds: int, price: float) -> Plan:
    """The rule with the least sum of misses and the price of the copies."""
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
    """The corners of the bound, from the least copies to the most."""

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


def least_missed(corners: Sequence[Plan], copies: float) -> float:
    """The share that is missed at least by a rule with so many copies; a rule may choose between two by chance."""
    return float(np.interp(copies, [each.copies for each in corners], [each.missed for each in corners]))


def drawn(paths: Sequence[UpDown], rounds: int, seed: int) -> Together:
    """The same paths as a series for the simulator: a round trip and a step of the series take equally long."""
    draws = np.random.default_rng(seed).random((len(paths), rounds))
    delays = np.full((len(paths), rounds), ONE_WAY_MS)
    for row, path in enumerate(paths):
        up = True
        for step in range(rounds):
            up = bool(draws[row, step] < path.up_after(up))
            if not up:
                delays[row, step] = np.inf
    return Together(("one", "other"), (delays,))
