"""Units of rates, times and losses in any spelling that the scenario reader accepts."""

from __future__ import annotations

from skybraid import _core

_BASES = {"rate": 1e-6, "delay": 1e-6, "loss": 100.0}
"""Size of the engine's units (bit/s, ns, a ratio) in Mbit/s, ms and %."""


def scale_of(quantity: str, unit: str) -> float | None:
    """Returns a unit's size in the standard unit of a network quantity (Mbit/s, ms, %); None for another unit."""
    kind = "rate" if quantity == "rate" else "loss" if "loss" in quantity else "delay"
    size = _core.unit_size(kind, unit)
    return None if size is None else size * _BASES[kind]


def seconds_of(unit: str) -> float | None:
    """Returns the size of a unit of time in s; None for another unit."""
    scale = scale_of("delay", unit)
    return None if scale is None else scale * 1e-3
