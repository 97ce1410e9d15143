"""Gateways under attack, in short; `tests/gateway/enemies.py` has the long form."""

import sys
from typing import Any

import pytest

from skybraid.gateway import binary

pytestmark = pytest.mark.skipif(
    binary() is None or not sys.platform.startswith("linux"),
    reason="needs Linux and the program skybraid-node: make node, or SKYBRAID_NODE",
)

SHARE_UNACCOUNTED = 0.01
"""Of what came to an end: handshakes and answers to strangers, which are neither data nor refused."""


@pytest.fixture(scope="module")
def attacked() -> dict[str, Any]:
    """Attacks for five seconds: a forged datagram follows nine of ten, and one path spoils every second datagram."""
    import enemies

    return enemies.attack(5.0)


# Source: the first copy of a control message wins, and one path here loses nothing (lee2021mutran §1.1).
@pytest.mark.parametrize("stream", ["control-up", "control-down"])
def test_control_comes_once_and_whole_through_a_hostile_relay(attacked: dict[str, Any], stream: str) -> None:
    found = attacked["streams"][stream]
    assert found["written"] > 200
    assert (found["lost"], found["twice"], found["changed"]) == (0, 0, 0)


def test_video_is_never_changed_nor_doubled(attacked: dict[str, Any]) -> None:
    found = attacked["streams"]["video"]
    assert (found["twice"], found["changed"]) == (0, 0)
    assert found["lost"] < found["written"] / 2


@pytest.mark.parametrize("end", ["aircraft", "ground"])
def test_what_an_enemy_sends_is_refused_and_counted(attacked: dict[str, Any], end: str) -> None:
    found = attacked[end]
    assert found["bad_in_all"] > 300
    # Whatever was accepted, the other end had sent.
    assert found["accepted"] <= found["sent_to_it"]
    came = found["brought"] + found["bad_in_all"]
    assert 0 <= found["unaccounted"] <= SHARE_UNACCOUNTED * came
    assert attacked["sessions"] == 1


# The long form measures the effect of a busy machine on the rates, against garbage without a receiver.
def test_a_flood_of_garbage_is_refused_while_control_goes_on() -> None:
    import enemies

    found = enemies.flooded(1.5, 1, rate_per_s=20_000, offered_hz=500)
    (account,) = found["accounts"]
    assert account["refused"] + account["dropped"] == pytest.approx(account["sent"], rel=0.001)
    assert account["refused"] > 0.5 * account["sent"]
    for name in ("control-up", "control-down"):
        stream = found["streams"][name]
        assert (stream["twice"], stream["changed"]) == (0, 0)
        if account["dropped"] == 0:
            assert stream["lost"] == 0
