"""Two gateways over emulated links give the delays and the reliability that the simulator predicts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from predicted import HEADING, cases, hold
from skybraid.gateway import binary
from skybraid.gateway.field import lacks

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.skipif(bool(lacks()), reason=lacks() or "the emulator can run"),
    pytest.mark.skipif(binary() is None, reason="found no skybraid-node: make node, or name it by SKYBRAID_NODE"),
]

LENGTH_S = 14.0


def test_control_on_two_paths_and_video_over_mp_dccp_arrive_as_the_simulator_says(tmp_path: Path) -> None:
    held = hold("constant", cases(LENGTH_S)["constant"], tmp_path, [1], LENGTH_S)
    table = "\n".join([HEADING, *(one.line() for one in held)])
    assert [words for one in held for words in one.wrong] == [], table
