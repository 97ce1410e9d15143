"""Colours, markers and lines of figures and pages, without a drawing library.

Every scheduler and congestion control has the same look everywhere, by its place in the registry. The first colours are
those of Okabe and Ito, which people with colour-blindness can distinguish; neighbours remain distinguishable for them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from skybraid._core import registry

COLOURS = (
    "#0072B2", "#E69F00", "#009E73", "#D55E00", "#999999", "#56B4E9",
    "#CC79A7", "#3217E6", "#66230A", "#262699", "#661A4D", "#E617D8",
    "#939945", "#0A663B", "#22990F", "#CC1445", "#800D78", "#66540A",
    "#B484FC", "#14636E", "#D79A66", "#037EF3",
)  # fmt: skip
"""Palette of Okabe and Ito without black, the colour of text, and yellow, which fades on white; then fifteen more, so
that no two algorithms of a registry share one. Any two differ by 20 in CIELAB, by 6 for people with protanopia or
deuteranopia.
"""

DARK_COLOURS = (
    "#4BA3E3", "#F0B840", "#2FC596", "#FF8A4C", "#B5B5B5", "#8FD6FF",
    "#E08DBC", "#A540FF", "#F23D54", "#8C8CFF", "#F200BB", "#D9368D",
    "#87FF00", "#19FF94", "#4B8C00", "#FF0900", "#FFD9ED", "#D5F261",
    "#90603C", "#8AA167", "#33989B", "#84DA74",
)  # fmt: skip
"""`COLOURS` on a dark page, each slightly lighter, so that thin lines and pale bands remain visible."""

FORMATS = ("pdf", "svg", "png")
"""File formats of figures."""

MARKERS = ("o", "s", "^", "D", "v", "P", "*")

LINE_STYLES = ("-", "--", ":", "-.")
"""Line styles that distinguish several subflows on one path, which share its colour."""

INK = "#010203"
"""Colour of text and axes: black to the eye, and replaced by a page with its own."""

SECOND_INK = "#6b7280"
"""Colour of secondary lines; readable on white and on black."""

DOWN, HALTED = COLOURS[3], COLOURS[6]
"""Colours of times when a link was down, and when it was up without service."""

ALGORITHMS = {"scheduler": "schedulers", "congestion": "congestion"}
"""Kinds of algorithms with fixed looks: last part of their key in a scenario, and their registry."""

_BASE = 7
"""Colours of paths and flows: those of Okabe and Ito."""

_FLOW_ORDER = (3, 5, 6, 2, 1, 0, 4)


@dataclass(frozen=True, slots=True)
class Look:
    """Colour, marker and line style of an item."""

    colour: str
    marker: str
    line: str


def look(index: int) -> Look:
    """Returns the style of an index: the first 22 differ in colour, neighbours in colour and marker."""
    place = index % len(COLOURS)
    marker_ = MARKERS[(index + index // len(COLOURS)) % len(MARKERS)]
    return Look(COLOURS[place], marker_, LINE_STYLES[index // len(MARKERS) % len(LINE_STYLES)])


def looks(axis: str, values: Iterable[object]) -> dict[str, Look]:
    """Returns a style for each value of an axis.

    An algorithm has the style of its place in the registry, a user-defined one any of the remaining styles. Values of
    other axes are styled in their order.

    Args:
        axis: name of the axis; `flow.video.transport.scheduler` and `scheduler` are equivalent.
        values: all values of the axis.
    """
    names = list(dict.fromkeys(str(value) for value in values))
    kind = ALGORITHMS.get(axis.rpartition(".")[2])
    known = [] if kind is None else [str(entry["name"]) for entry in registry(kind)]
    own = [name for name in names if name not in known]
    places = {name: place for place, name in enumerate([*known, *own])}
    return {name: look(places[name]) for name in names}


def path_colour(index: int) -> str:
    """Returns the colour of a path, by its index in the scenario."""
    return COLOURS[index % _BASE]


def flow_colour(index: int) -> str:
    """Returns the colour of a flow, by its index in the scenario."""
    return COLOURS[_FLOW_ORDER[index % len(_FLOW_ORDER)]]


def marker(index: int) -> str:
    """Returns the marker of a flow, by its index in the scenario."""
    return MARKERS[index % len(MARKERS)]
