"""The frontier: measurements that overlap, the bound of every rule, and the rules between it and duplication."""

import numpy as np
import pytest

from skybraid_studies.frontier.frontier import CONTROL, oracle, point, replay
from skybraid_studies.frontier.measurements import (
    CAPACITY,
    CARRIERS,
    HALVES,
    NETWORKS,
    Together,
    driven,
    pings,
    read_burst,
    together,
)
from skybraid_studies.frontier.population import DISH, DRONE, SEEDS, flights
from skybraid_studies.frontier.rules import RULES
from skybraid_studies.frontier.video import camera, count_freezes, film, screen_ages

PING = """Start time: 1683995463546
[2023-05-13 12:31:03.658655] 46 bytes from 3.129.108.199: icmp_seq=1 ttl=44 time=78.0 ms
[2023-05-13 12:31:04.037690] 46 bytes from 3.129.108.199: icmp_seq=3 ttl=44 time=56.1 ms
[2023-05-13 12:31:04.037690] 46 bytes from 3.129.108.199: icmp_seq=3 ttl=44 time=57.1 ms (DUP!)
[2023-05-13 12:31:33.580224] 4 packets transmitted, 2 received, 50% packet loss, time 29930ms
"""


def test_a_burst_has_a_round_trip_for_each_probe() -> None:
    burst = read_burst(PING)
    assert burst is not None
    assert burst.start_s == 1683995463.546
    np.testing.assert_array_equal(burst.rtt_ms, [78.0, np.inf, 56.1, np.inf])
    assert read_burst("ping: unknown host") is None


def test_the_halves_share_no_episode() -> None:
    if not pings().is_dir():
        pytest.skip(f"{pings()}: no measurements here")
    both = [together(CARRIERS[:2], half) for half in HALVES]
    assert all(each.episodes for each in both)
    whole = sum(each.seconds for each in both)
    assert 600 < whole < 1500
    assert {episode.shape[0] for each in both for episode in each.episodes} == {2}


def test_each_second_of_the_drives_is_in_one_half() -> None:
    both = [driven(NETWORKS, half) for half in HALVES]
    if not both[0].episodes:
        pytest.skip("conext23_paired: no measurements here")
    assert sum(each.seconds for each in both) == 12_917  # source: SOURCE.txt of the measurements
    assert {episode.shape[0] for each in both for episode in each.episodes} == {4}


# Two paths without service for 4 s each, not at once: of 1 Mbit/s one path misses what it holds up, both miss nothing.
def test_capacities_are_replayed_with_their_outages() -> None:
    rates = np.full((2, 30), 20.0)
    rates[0, 10:14] = 0.0
    rates[1, 20:24] = 0.0
    measured = Together(("one", "two"), (rates,), CAPACITY, 1.0)
    once, twice = (
        point([replay(measured, RULES[rule](150), CONTROL, (150,))], 150) for rule in ("one_path", "redundant")
    )
    assert once.messages == 3000
    assert once.misses == pytest.approx(350, abs=60)
    assert twice.misses == 0


def test_a_drawn_flight_is_an_episode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SEEDS, HALVES[1], range(101, 103))
    drawn = flights((DRONE, DISH), RULES["redundant"](150), CONTROL, (150,), HALVES[1])
    seen = point([drawn], 150)
    assert len(drawn.written) == 2
    assert seen.messages == 2 * 59_900
    assert seen.overhead == pytest.approx(1.0, abs=0.01)


@pytest.fixture(scope="module")
def trouble() -> Together:
    """Two paths of 30 ms for 60 s: each fails for 0.4 s every 10 s, and once both do."""
    steps = 300
    delays = np.full((2, steps), 30.0)
    for start in range(20, steps, 50):
        delays[0, start : start + 2] = np.inf
        delays[1, start + 25 : start + 27] = np.inf
    delays[1, 120:122] = np.inf
    return Together(("one", "other"), (delays,))


# Both paths fail for 0.4 s once in 60 s. Whoever knows the future sends up to 120 ms of it later, once they are back.
def test_the_oracle_misses_what_no_path_could_bring(trouble: Together) -> None:
    seen = point([oracle(trouble, CONTROL, (150,))], 150)
    assert seen.overhead == 0
    assert seen.misses == pytest.approx((0.4 - 0.12) / CONTROL.every_s, abs=2)


def test_no_rule_beats_the_oracle_and_deadline_is_cheap(trouble: Together) -> None:
    least = point([oracle(trouble, CONTROL, (150,))], 150)
    twice = point([replay(trouble, RULES["redundant"](150), CONTROL, (150,))], 150)
    once = point([replay(trouble, RULES["low_rtt"](150), CONTROL, (150,))], 150)
    rule = point([replay(trouble, RULES["deadline"](150), CONTROL, (150,))], 150)
    assert twice.overhead == pytest.approx(1.0, abs=0.01)
    assert least.misses <= min(twice.misses, rule.misses)
    assert rule.misses < once.misses
    assert rule.overhead < 0.25


# Source: W3C, freezeCount: a gap of more than max(3 δ, δ + 150 ms), at 30 frames a second 5.5 frames.
def test_a_freeze_is_a_gap_of_more_than_183_ms() -> None:
    for late, freezes in ((4, 0), (5, 1), (60, 1)):
        frames = np.zeros(120, dtype=bool)
        frames[30 : 30 + late] = True
        assert count_freezes(frames) == freezes


def test_the_screen_keeps_the_last_frame_in_time() -> None:
    late = np.array([True, False, False, True, True, False])
    np.testing.assert_array_equal(screen_ages(late), [1, 0, 0, 1, 2, 0])


# An outage of 0.4 s on the faster path: without a copy its frames are missed, duplicated none is.
def test_frames_of_an_outage_are_missed_without_copies() -> None:
    episode = np.full((2, 50), 20.0)
    episode[1] = 30.0
    episode[0, 25:27] = np.inf
    measured = Together(("one", "two"), (episode,))
    plain, twice = (
        film(measured, {"protocol": "udp", "scheduler": rule}, camera("1Mbit/s")) for rule in ("low_rtt", "redundant")
    )
    missed = [int(np.concatenate(each.frames.missed[150]).sum()) for each in (plain, twice)]
    assert 0 < missed[0] <= 13
    assert (missed[1], twice.freezes[150], twice.ages[150].size) == (0, [0], 1)
    assert plain.ages[150][1:].sum() == missed[0]
    assert twice.frames.sent == 2 * twice.frames.single
