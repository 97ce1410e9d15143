"""Causes of claims that do not hold, defined once in a study's file and referenced by the claims.

    [cause.framing]
    explained = "A packet of 1350 B is in seven bursts, and one lost burst loses it."

A cause is `explained` if runs show it, `contradicted` if the paper's own numbers contradict each other, and `open` if
it is unknown; its text then lists what was tried.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skybraid.model.keys import Keys


class Status(enum.StrEnum):
    """Certainty of a cause."""

    EXPLAINED = "explained"
    CONTRADICTED = "contradicted"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Cause:
    """Cause of a claim that does not hold.

    Attributes:
        name: name in the study's file; empty for a cause stated by a single claim.
        status: certainty of the cause.
        text: description.
    """

    name: str
    status: Status
    text: str

    @classmethod
    def parse(cls, name: str, keys: Keys) -> Cause:
        """Parses a cause from a study's file.

        Raises:
            ScenarioError: a key is missing, unknown or of another type.
        """
        found = {status: keys.take(str(status), str, "") for status in Status}
        keys.done()
        stated = [status for status, text in found.items() if text]
        if len(stated) != 1:
            keys.refuse("text", ", ".join(stated) or "none", f"one of {', '.join(Status)}")
        return cls(name, stated[0], found[stated[0]])
