"""Required link performance (RLP): continuity, availability and integrity of a link for command and control.

`docs/requirements.md` has the definitions and their sources. Transactions are the messages of a flow, counted in slots
of time: those of a simulated run, or the samples of a gateway's log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from skybraid.model.episodes import KnownRun, RunShare
from skybraid.model.evidence import Evidence, judge_share
from skybraid.model.heavy import np
from skybraid.model.statistics import Verdict

if TYPE_CHECKING:
    import numpy.typing as npt

METRICS = ("expiration", "continuity", "availability", "integrity")
"""Metrics of the four parameters, each judged as a requirement of its own."""

SHARES = ("continuity", "availability")
"""Those that are shares over time."""

SLOTS_PER_LOSS = 2
"""Minimum number of slots in the time after which a link counts as lost: then every loss fills a slot."""

_MS = 1e3


class Slots(NamedTuple):
    """Transactions over time.

    Attributes:
        begun: transactions begun in each slot.
        completed: those of them that completed before they expired.
        slot_s: width of a slot in s.
    """

    begun: npt.ArrayLike
    completed: npt.ArrayLike
    slot_s: float


@dataclass(frozen=True)
class LinkService:
    """Service of a link's transactions over a run.

    Attributes:
        begun: transactions begun on an available link, in each slot; each loss of the link counts as one.
        completed: those of them that completed in time.
        up_ms: time in ms of each slot in which the link was available.
        slot_s: width of a slot in s.
        losses_s: start and length in s of each loss of the link, from the first slot with a transaction on.
    """

    begun: npt.NDArray[np.float64]
    completed: npt.NDArray[np.float64]
    up_ms: npt.NDArray[np.float64]
    slot_s: float
    losses_s: tuple[tuple[float, float], ...]

    @classmethod
    def of(cls, slots: Slots, lost_after_s: float) -> LinkService:
        """Returns the service of a link.

        The link is lost while no transaction completes for `lost_after_s`: from the first slot of which none completes
        to the next of which one does, and the shares of both neighbours that failed. Of a slot longer than half of that
        time, single losses cannot be identified: none is found then, and every failure counts against continuity.
        """
        begun, completed = (np.asarray(values, dtype=np.float64) for values in (slots.begun, slots.completed))
        busy = np.flatnonzero(begun)
        if busy.size == 0:
            empty = np.zeros(0)
            return cls(empty, empty, empty, slots.slot_s, ())
        begun, completed = begun[busy[0] : busy[-1] + 1], completed[busy[0] : busy[-1] + 1]
        failed = begun - completed
        up_ms = np.full(begun.size, slots.slot_s * _MS)
        on_up, done = begun.copy(), completed.copy()
        losses: list[tuple[float, float]] = []
        for first, after in _silences(begun, completed) if is_resolved(slots.slot_s, lost_after_s) else ():
            edges = [at for at in (first - 1, after) if 0 <= at < begun.size and begun[at] > 0]
            parts = {at: failed[at] / begun[at] for at in edges}
            length_s = slots.slot_s * (after - first + sum(parts.values()))
            if length_s < lost_after_s - 1e-9:
                continue
            up_ms[first:after] = 0
            on_up[first:after] = done[first:after] = 0
            for at, part in parts.items():
                up_ms[at] = max(up_ms[at] - part * slots.slot_s * _MS, 0)
                on_up[at] = completed[at]
            # The transaction during which the link was lost had begun on an available one.
            on_up[first] += 1
            losses.append((slots.slot_s * (first - parts.get(first - 1, 0.0)), length_s))
        return cls(on_up, done, up_ms, slots.slot_s, tuple(losses))

    def continuity(self, known: KnownRun | None = None, within_ms: float | None = None) -> RunShare:
        """Share of the transactions begun on an available link that completed in time."""
        return RunShare.of_bins(self.begun, self.completed, self.slot_s, known, within_ms)

    def availability(self, known: KnownRun | None = None, within_ms: float | None = None) -> RunShare:
        """Share of the time in which the link was available, in ms."""
        available_ms = np.full(self.up_ms.size, self.slot_s * _MS)
        return RunShare.of_bins(available_ms, self.up_ms, self.slot_s, known, within_ms)


def is_resolved(slot_s: float, lost_after_s: float) -> bool:
    """Whether slots are short enough that each loss of the link fills one."""
    return slot_s * SLOTS_PER_LOSS <= lost_after_s + 1e-9


def share_of(requirement: Mapping[str, Any], slots: Slots, known: KnownRun | None = None) -> RunShare | None:
    """Share of one run by a metric of `SHARES`; None where its slots are too long to see a loss."""
    lost_after_s = float(requirement["lost_after_ms"]) / _MS
    within_ms = requirement.get("deadline_ms")
    if requirement["metric"] == "continuity":
        return LinkService.of(slots, lost_after_s).continuity(known, within_ms)
    if not is_resolved(slots.slot_s, lost_after_s):
        return None
    return LinkService.of(slots, lost_after_s).availability(known, within_ms)


def judge_link(
    requirement: Mapping[str, Any], runs: Sequence[Slots], known: Sequence[KnownRun | None] | None = None
) -> Evidence:
    """Judges continuity or availability over all runs.

    Args:
        requirement: `metric`, `target` and `lost_after_ms`.
        runs: transactions of each run.
        known: their links, if a scenario says more of them than the runs saw.
    """
    lost_after_s = float(requirement["lost_after_ms"]) / _MS
    pairs = zip(runs, [None] * len(runs) if known is None else known, strict=True)
    shares = [share_of(requirement, slots, about) for slots, about in pairs]
    resolved = [share for share in shares if share is not None]
    if len(resolved) < len(shares):
        slot_s = max(slots.slot_s for slots in runs)
        note = (
            f"a run is counted in slots of {slot_s:.3g} s, too long to see a loss of {lost_after_s:.3g} s: "
            "several shorter runs (--seeds) show it"
        )
        return Evidence(note=note)
    judged = judge_share(resolved, float(requirement["target"]))
    if requirement["metric"] == "continuity":
        return judged
    # Neighbouring losses are one episode of the interval, and yet several losses.
    losses = sum(len(LinkService.of(slots, lost_after_s).losses_s) for slots in runs)
    return replace(judged, episodes=losses)


def judge_integrity(requirement: Mapping[str, Any], *, is_authentic: bool = False) -> Evidence:
    """Judges integrity by the length of the check that finds damaged messages.

    Of damage at random, a check of `n` bits lets one in `2^n` messages pass; so the share without an undetected error
    is at least `1 - 2^-n`, even if every message was damaged.

    Args:
        requirement: `target` and `check_bits`.
        is_authentic: whether every message was authenticated, as a gateway's are.
    """
    bits = requirement.get("check_bits")
    if bits is None and is_authentic:
        bits = TAG_BITS
    if bits is None:
        return Evidence(
            note="links of a simulation lose what they damage; the length of the messages' check (`check_bits`) bounds "
            "what passes undetected"
        )
    low = 1 - 2.0 ** -int(bits)
    met = low >= float(requirement["target"])
    return Evidence(
        low=low, high=1.0, verdict=Verdict.MET if met else Verdict.INCONCLUSIVE, note=_check_words(int(bits))
    )


TAG_BITS = 95
"""Security of a gateway's authentication in bits: ChaCha20-Poly1305 limits a forgery to n/2^102 for a message of 16 n
bytes (RFC 8439 §4), which is 2^-95 for 2 kB. Damage at random passes less often still."""


def _check_words(bits: int) -> str:
    return f"a check of {bits} bits lets at most {2.0**-bits:.2g} of damaged messages pass, even if all were damaged"


def _silences(begun: npt.NDArray[np.float64], completed: npt.NDArray[np.float64]) -> list[tuple[int, int]]:
    """First slot of which none completes, and the next of which one does, of each silence; empty slots belong to it."""
    found: list[tuple[int, int]] = []
    first: int | None = None
    for at in np.flatnonzero(begun):
        if completed[at] == 0 and first is None:
            first = int(at)
        elif completed[at] > 0 and first is not None:
            found.append((first, int(at)))
            first = None
    if first is not None:
        found.append((first, begun.size))
    return found
