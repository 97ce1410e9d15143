"""Two gateways over emulated links give the delays and the reliability that the simulator predicts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from marks import needs_gateway, needs_namespaces
from predicted import HEADING, cases, flown, hold, simulate
from stalls import StallError

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [needs_namespaces, needs_gateway]

LENGTH_S = 14.0


@pytest.mark.parametrize("case", ["constant", "frames"])
def test_control_and_video_arrive_as_the_simulator_says(case: str, tmp_path: Path) -> None:
    try:
        held = hold(case, cases(LENGTH_S)[case], tmp_path, [1], LENGTH_S)
    except StallError as still:
        pytest.skip(str(still))
    table = "\n".join([HEADING, *(one.line() for one in held)])
    assert [words for one in held for words in one.wrong] == [], table


def test_repair_packets_restore_frames_over_two_lossy_links(tmp_path: Path) -> None:
    file = tmp_path / "frames.toml"
    file.write_text(cases(LENGTH_S)["frames"], encoding="utf-8")
    # A frame of 17 packets, each lost with 1 %, is whole with 84 %. Groups of 10 and 7 with 2 repair packets each fail
    # with 2e-4 and 8e-5, and what is lost at the end of a frame may be recovered only with the next one.
    try:
        video = flown(file, tmp_path, 1, LENGTH_S, [simulate(file, 1)], {"repair": {"share": "20%"}})["video"]
    except StallError as still:
        pytest.skip(str(still))
    assert len(video.delays_ms) > 0.99 * video.sent > 100
