"""Marks of tests that need more than a plain machine; without it they are skipped, with what is missing."""

import pytest

from conftest import emulator_lacks
from skybraid.gateway import binary
from skybraid.gateway.field import missing_requirement


def _unless(missing: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(bool(missing), reason=missing or "nothing is missing")


needs_emulator = _unless(emulator_lacks())
"""Emulated links between network namespaces."""

needs_namespaces = _unless(missing_requirement())
"""Emulated links with programs at both ends, as root."""

needs_gateway = _unless("" if binary() else "found no skybraid-node: make node, or name it by SKYBRAID_NODE")
"""The program of gateways."""
