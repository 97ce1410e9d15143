"""Causes: why claims do not hold, each stated once in a study's file and named by the claims.

    [cause.framing]
    explained = "A packet of 1350 B is in seven bursts, and one lost burst loses it."

A cause is `explained` if runs show it, `contradicted` if the paper's own numbers exclude one another, and `open` if it
is not known; its text then has what was tried.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skybraid.model.keys import Keys


class Status(enum.StrEnum):
    """How much is known of a cause."""

    EXPLAINED = "explained"
    CONTRADICTED = "contradicted"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a claim does not hold.

    Attributes:
        name: in the study's file; nothing for a cause that a single claim tells itself.
        status: how much is known.
        text: in words.
    """

    name: str
    status: Status
    text: str

    @classmethod
    def parse(cls, name: str, keys: Keys) -> Cause:
        """Reads one of a study's file.

        Raises:
            ScenarioError: a key is missing, unknown or of another kind.
        """
        found = {status: keys.take(str(status), str, "") for status in Status}
        keys.done()
        stated = [status for status, text in found.items() if text]
        if len(stated) != 1:
            keys.refuse("text", ", ".join(stated) or "none", f"one of {', '.join(Status)}")
        return cls(name, stated[0], found[stated[0]])
