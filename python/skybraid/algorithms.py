"""Algorithms of one's own: a Python class as a scheduler or a congestion control (`docs/extending.md`)."""

from skybraid.model.algorithms import *  # noqa: F403 this is the public name of that module
from skybraid.model.algorithms import __all__ as __all__  # so that `pydoc` shows them
