"""Fits: laws recovered from what they made, events in made series, and a fit against what it did not see."""

import importlib
import json
import math
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from conftest import Command
from skybraid.fit import fit_link, held_back
from skybraid.fit.draw import draw_flight, resample_flight
from skybraid.fit.durations import DurationPrior, Exponentials, fit_durations, fit_intervals
from skybraid.fit.epochs import find_phases
from skybraid.fit.events import find_events, find_round_trip_events
from skybraid.fit.goodness import _range
from skybraid.fit.link import read_handovers
from skybraid.fit.process import Memory, Process, autocorrelation, fit_memory, normal_scores, quantile_table
from skybraid.traces import TraceError
from skybraid.traces.flights import Flight, read_flight
from skybraid.traces.measurement import Column
from test_traces import MEASUREMENTS, needs_measurements

ROOT = Path(__file__).resolve().parents[2]
CARS = [ROOT / "traces" / "lte_drive_pam2025" / f"{name}.csv" for name in ("atnt", "tmobile", "verizon")]


def probes(delay_ms: list[float], every_s: float = 0.1) -> tuple[np.ndarray, np.ndarray, float]:
    values = np.array(delay_ms)
    return np.arange(len(values)) * every_s, values, len(values) * every_s


class TestMemory:
    @pytest.mark.parametrize(("slow_s", "fast_s", "share"), [(40.0, 2.0, 0.6), (20.0, 0.0, 0.5), (30.0, 1.5, 0.9)])
    def test_two_times_are_found_in_what_they_made(self, slow_s: float, fast_s: float, share: float) -> None:
        memory = Memory(slow_s, fast_s, share)
        table = ((0.0, 0.0), (0.5, 20.0), (1.0, 60.0))
        values = Process(table, memory, 1.0).sample(40_000, np.random.default_rng(3))
        found = fit_memory([values], 1.0)
        lags_s = np.array([1.0, 5.0, 15.0, 40.0])
        # 40,000 s are 500 times the longest memory: the standard error of a correlation is below 0.05.
        assert found.correlation(lags_s) == pytest.approx(memory.correlation(lags_s), abs=0.07)

    def test_windows_are_not_taken_for_what_they_forget(self) -> None:
        memory, table = Memory(60.0, 0.0, 0.8), ((0.0, 0.0), (1.0, 1.0))
        process, random = Process(table, memory, 1.0), np.random.default_rng(11)
        found = fit_memory([process.sample(400, random) for _ in range(100)], 1.0)
        # About the windows' own means, the correlation at 30 s is 0.31 in place of 0.49. What is left of that is less
        # than two standard errors of 40,000 s, some 300 times the memory.
        lags_s = np.array([1.0, 15.0, 30.0, 60.0])
        assert found.correlation(lags_s) == pytest.approx(memory.correlation(lags_s), abs=0.07)

    def test_a_sample_has_the_closed_forms_correlation(self) -> None:
        memory = Memory(20.0, 2.0, 0.7)
        values = Process(((0.0, 0.0), (1.0, 1.0)), memory, 0.5).sample(100_000, np.random.default_rng(5))
        found = autocorrelation([normal_scores(values)], [1, 10, 40])
        expected = [0.7 * math.exp(-t / 20) + 0.3 * math.exp(-t / 2) for t in (0.5, 5.0, 20.0)]
        assert found == pytest.approx(expected, abs=0.05)

    def test_a_sample_has_the_tables_quantiles(self) -> None:
        table = ((0.0, 5.0), (0.1, 5.0), (0.9, 45.0), (1.0, 50.0))
        values = Process(table, Memory(0.0, 0.0, 0.5), 1.0, plus=1.0).sample(50_000, np.random.default_rng(1))
        assert np.quantile(values, [0.05, 0.5, 0.9]) == pytest.approx([6.0, 26.0, 46.0], abs=0.5)

    def test_a_second_without_rate_is_drawn_as_often_as_seen(self) -> None:
        # One of 600; a table that has it at the probability zero alone never draws it.
        probabilities, values = np.array(quantile_table(np.append(np.full(599, 20.0), 0.0))).T
        drawn = np.interp((np.arange(60_000) + 0.5) / 60_000, probabilities, values)
        assert np.mean(20.0 - drawn) == pytest.approx(20 / 600, rel=0.25)

    def test_a_table_says_no_more_than_the_values(self) -> None:
        table = quantile_table(np.arange(11.0))
        assert table[0] == (0.0, 0.0)
        assert table[-1] == (1.0, 10.0)
        # Eleven values know nothing of the thousandth: the smallest one stands for its half of an eleventh.
        assert [value for p, value in table if p <= 0.5 / 11] == [0.0, 0.0]
        assert min(p for p, _ in table if p > 0) == 0.5 / 11

    def test_equal_values_share_a_score(self) -> None:
        scores = normal_scores(np.array([1.0, 1.0, 2.0, np.nan]))
        assert scores[0] == scores[1] < scores[2]
        assert math.isnan(scores[3])


class TestDurations:
    def test_clusters_are_found_in_what_made_them(self) -> None:
        law = Exponentials((0.8, 0.2), (2.0, 60.0))
        values = law.sample(5000, np.random.default_rng(2))
        found = fit_intervals(values, float(values.sum()))
        assert found.weights == pytest.approx(law.weights, abs=0.03)
        assert found.means_s == pytest.approx(law.means_s, rel=0.1)

    def test_a_poisson_process_stays_one_exponential(self) -> None:
        values = np.random.default_rng(2).exponential(5.0, 2000)
        found = fit_intervals(values, float(values.sum()))
        assert found.weights == (1.0,)
        assert found.means_s[0] == pytest.approx(5.0, rel=0.05)

    @pytest.mark.parametrize("count", [1, 3, 10])
    def test_few_durations_predict_the_next_as_often_as_they_say(self, count: int) -> None:
        random = np.random.default_rng(1)
        longer = {0.5: 0, 0.9: 0, 0.98: 0}
        for _ in range(4000):
            quantiles = dict(fit_durations(random.exponential(3.0, count), DurationPrior(0.0, 0, 1e9)).table)
            following_s = random.exponential(3.0)
            for probability in longer:
                longer[probability] += following_s > quantiles[probability]
        # Four standard deviations of 4000 trials: 3 %.
        for probability, times in longer.items():
            assert times / 4000 == pytest.approx(1 - probability, abs=0.03)

    def test_few_durations_lean_on_those_of_other_networks(self) -> None:
        few, usual = np.array([0.25]), DurationPrior(mean_s=0.4, events=5, longest_s=10.0)
        alone, leaning = (dict(fit_durations(few, one).table) for one in (None, usual))
        # One value tells next to nothing of its law's mean: in one of ten cases the next is nine times as long.
        assert alone[0.9] == pytest.approx(9 * 0.25)
        assert leaning[0.9] == pytest.approx(2.25 * (10 ** (1 / 6) - 1))

    @pytest.mark.parametrize("shape", [0.2, 0.4])
    def test_beyond_the_longest_half_are_as_long_as_said(self, shape: float) -> None:
        random = np.random.default_rng(1)
        longer = longest = 0
        for _ in range(1000):
            seen = random.random(60) ** -shape - 1
            table = fit_durations(seen, DurationPrior(0.0, 0, 1e9)).table
            middle = next(value for p, value in table if p > 60.4 / 61)
            # The next one, given that it is the longest.
            following = ((seen.max() + 1) ** (-1 / shape) * random.random(20)) ** -shape - 1
            longest += 20
            longer += int((following > middle).sum())
        assert longer / longest == pytest.approx(0.5, abs=0.07)

    def test_the_next_duration_may_be_the_longest(self) -> None:
        law = fit_durations(np.linspace(0.2, 0.4, 39), DurationPrior(0.0, 0, 10.0))
        drawn = law.sample(100_000, np.random.default_rng(1))
        # Of 40 values in any order, the last one is the longest with the probability 1 / 40.
        assert float(np.mean(drawn > 0.4)) == pytest.approx(1 / 40, abs=0.002)
        assert float(drawn.max()) <= 10.0

    def test_longer_durations_than_assumed_stay_the_longest(self) -> None:
        law = fit_durations(np.linspace(1.0, 30.0, 30), DurationPrior(0.0, 0, 10.0))
        assert float(law.sample(1000, np.random.default_rng(1)).max()) <= 30.0


class TestIntervals:
    def test_the_interval_of_draws_has_the_next_in_95_of_100(self) -> None:
        random = np.random.default_rng(1)
        inside = 0
        for _ in range(2000):
            drawn = _range(random.lognormal(size=40).tolist())
            assert drawn is not None
            inside += drawn.low <= random.lognormal() <= drawn.high
        # Four standard deviations of 2000 trials: 2 %.
        assert inside / 2000 == pytest.approx(0.95, abs=0.02)


class TestEvents:
    def test_a_run_of_lost_probes_is_one_outage(self) -> None:
        found = find_events(*probes([30.0] * 10 + [math.inf] * 20 + [30.0] * 10))
        assert found.outages.tolist() == [[pytest.approx(1.0), pytest.approx(2.0)]]
        assert (found.lost, found.probes) == (0, 20)

    def test_a_single_lost_probe_is_a_loss(self) -> None:
        found = find_events(*probes([30.0, math.inf, 30.0, 30.0]))
        assert (len(found.outages), found.lost, found.probes) == (0, 1, 4)

    def test_a_delay_that_falls_with_the_time_is_a_stall(self) -> None:
        falling = [30.0 + 100 * left for left in range(20, 0, -1)]
        found = find_events(*probes([30.0] * 50 + falling + [30.0] * 50))
        assert found.stalls.tolist() == [[pytest.approx(5.0), pytest.approx(2.0)]]
        assert np.nanmax(found.calm) == 30.0

    def test_a_stall_of_a_round_trip_is_found_in_its_halves(self) -> None:
        falling = [30.0 + 50 * left for left in range(20, 0, -1)]
        found = find_round_trip_events(*probes([30.0] * 50 + falling + [30.0] * 50))
        # The round trip of the first probe was 2 s longer: that long nothing was sent.
        assert found.stalls.tolist() == [[pytest.approx(5.0), pytest.approx(2.0)]]
        assert np.nanmax(found.calm) == 30.0

    def test_a_second_stall_before_the_first_is_over_counts_its_own_rise(self) -> None:
        falling = [1030.0 - 100 * at for at in range(6)] + [1030.0 - 100 * at for at in range(10)]
        found = find_events(*probes([30.0] * 50 + falling + [30.0] * 50))
        assert found.stalls[:, 1] == pytest.approx([1.0, 0.5])

    def test_a_fall_with_steps_off_its_slope_is_one_stall(self) -> None:
        # Every fifth probe arrives 40 ms after the one before it: the queue does not drain at once.
        falling = [2030.0 - 100 * at + 40 * (at // 5) for at in range(20)]
        found = find_events(*probes([30.0] * 50 + falling + [30.0] * 50))
        assert found.stalls.tolist() == [[pytest.approx(5.0), pytest.approx(2.0)]]
        assert np.nanmax(found.calm) == 30.0

    def test_noise_is_no_stall(self) -> None:
        noise = 30 + np.random.default_rng(1).normal(0, 3, 2000)
        assert len(find_events(*probes(noise.tolist())).stalls) == 0


class TestFlights:
    def test_files_of_one_flight_are_on_one_clock(self, tmp_path: Path) -> None:
        (tmp_path / "up.csv").write_text("time [s],rate [Mbit/s]\n0,5\n1,6\n2,7\n")
        (tmp_path / "ping.txt").write_text(
            "PING a (10.0.0.1) 56(84) bytes of data.\n64 bytes from a: icmp_seq=1 ttl=1 time=40 ms\n"
            "64 bytes from a: icmp_seq=3 ttl=1 time=60 ms\n"
        )
        flight = read_flight(f"uplink:{tmp_path}/up.csv+{tmp_path}/ping.txt")
        rate, delay = flight.values("rate", "uplink"), flight.values("delay", "downlink")
        assert rate is not None
        assert delay is not None
        assert (rate.tolist(), delay.tolist()) == ([5.0, 6.0, 7.0], [20.0, math.inf, 30.0])
        assert flight.values("rate", "downlink") is None

    def test_gaps_are_cut_and_reported(self, tmp_path: Path) -> None:
        rows = "".join(f"2026-05-13T12:00:{at:02d}Z,{at}\n" for at in (*range(10), *range(30, 40)))
        (tmp_path / "a.csv").write_text(f"time,dl_mbps\n{rows}")
        flight = read_flight(str(tmp_path / "a.csv"))
        assert flight.length_s == pytest.approx(40.0)
        whole = flight.without_gaps()
        assert whole.length_s == pytest.approx(20.0)
        assert "gaps of 20 s were cut out" in whole.notes[-1]

    def test_a_pause_is_cut_out_and_a_long_one_parts_flights(self) -> None:
        def logged(pause_s: float) -> Flight:
            times_s = np.concatenate([np.arange(150.0), np.arange(150.0) + 149 + pause_s])
            return Flight("log", times_s, (Column("delay", "ms", np.full(300, 30.0)),), 299 + pause_s)

        (cut,) = logged(30).journeys()
        assert cut.length_s == pytest.approx(300)
        assert "a pause of 29 s cut out" in cut.notes[-1]
        parts = logged(3600).journeys()
        assert [part.length_s for part in parts] == pytest.approx([150, 150])
        assert [part.name for part in parts] == ["log, part 1", "log, part 2"]

    def test_a_ping_that_waits_for_its_timeout_loses_one_probe(self) -> None:
        times_s = np.arange(0, 40, 0.2, dtype=np.float64)
        times_s[101:] += 5
        delay = np.full(200, 30.0)
        delay[100:102] = math.inf
        (flight,) = Flight("ping", times_s, (Column("delay", "ms", delay),), 45.0).journeys()
        found = find_events(flight.times_s, delay, flight.length_s)
        assert (len(found.outages), found.lost) == (0, 2)

    def test_a_ping_of_windows_loses_a_probe_and_no_five_seconds(self, tmp_path: Path) -> None:
        lines = [
            "Request timed out." if at % 5 == 2 else "Reply from 1.1.1.1: bytes=32 time=40ms TTL=60" for at in range(20)
        ]
        (tmp_path / "ping.txt").write_text("\n".join(["Pinging 1.1.1.1 with 32 bytes of data:", *lines, ""]))
        (flight,) = read_flight(str(tmp_path / "ping.txt")).journeys()
        assert flight.length_s == pytest.approx(20)
        delay = flight.values("delay", "uplink")
        assert delay is not None
        assert int(np.isinf(delay).sum()) == 4
        assert "4 pauses of 16 s cut out" in flight.notes[-1]

    def test_values_that_hold_until_the_next_have_no_pauses(self) -> None:
        times_s = np.array([0.0, 10.0, 600.0, 700.0])
        flight = Flight("steps", times_s, (Column("delay", "ms", np.full(4, 30.0)),), 800.0)
        assert flight.journeys() == [flight]


def made(seed: int, length_s: int = 600) -> Flight:
    """A flight of known processes: 25 Mbit/s, 40 ms, an outage of 3 s each 100 s."""
    random = np.random.default_rng(seed)
    times_s = np.arange(0, length_s, 0.5)
    rate = Process(((0.0, 2.0), (0.5, 25.0), (1.0, 50.0)), Memory(20.0, 2.0, 0.6), 0.5).sample(len(times_s), random)
    delay = 40 + random.exponential(5, len(times_s))
    for start_s in np.cumsum(random.exponential(100, 40)):
        delay[(times_s >= start_s) & (times_s < start_s + 3)] = math.inf
    columns = (Column("rate", "Mbit/s", rate, "uplink"), Column("delay", "ms", delay))
    return Flight(f"made {seed}", times_s, columns, float(length_s))


class TestLink:
    def test_outages_are_as_frequent_as_made(self) -> None:
        link = fit_link([made(seed) for seed in range(6)])
        random = np.random.default_rng(1)
        drawn = [draw_flight(link, 600.0, random) for _ in range(200)]
        lost = [float(np.isinf(one.columns[1].values).mean()) for one in drawn]
        measured = [float(np.isinf(made(seed).columns[1].values).mean()) for seed in range(6)]
        assert float(np.mean(lost)) == pytest.approx(float(np.mean(measured)), rel=0.35)

    def test_both_halves_of_a_round_trip_vary_together(self) -> None:
        link = fit_link([made(1)])
        table = tomllib.loads(link.toml())
        assert table["uplink"]["delay"]["both_ways"] == 1
        drawn = draw_flight(link, 600.0, np.random.default_rng(2))
        up, down = (drawn.values("delay", direction) for direction in ("uplink", "downlink"))
        assert up is not None
        assert down is not None
        assert np.array_equal(up, down)

    def test_the_correlation_of_both_ways_is_found(self) -> None:
        random = np.random.default_rng(4)
        times_s = np.arange(20_000.0)
        memory, table = Memory(10.0, 1.0, 0.5), ((0.0, 1.0), (1.0, 50.0))
        noise = random.standard_normal((2, len(times_s)))
        ways = [
            Column(
                "rate", "Mbit/s", Process(table, memory, 1.0, both_ways=0.6).sample(len(times_s), random, 1, noise), way
            )
            for way in ("uplink", "downlink")
        ]
        link = fit_link([Flight("both", times_s, tuple(ways), 20_000.0)])
        # Some 2000 independent values: a standard error of (1 - 0.36) / sqrt(2000).
        assert link.flights[0].processes["uplink.rate"].both_ways == pytest.approx(0.6, abs=0.05)

    def test_outages_differ_between_flights_by_more_than_chance(self) -> None:
        def flight(number: int, every_s: int) -> Flight:
            times_s = np.arange(0.0, 600.0)
            delay = np.where(times_s % every_s < 2, math.inf, 30.0 + times_s % 3)
            return Flight(str(number), times_s, (Column("delay", "ms", delay),), 600.0)

        # Of six flights, the variance of other networks' counts as 2 / 7; their middle is uncertain by a sixth of it.
        alike = fit_link([flight(number, 30) for number in range(6)])
        assert math.log(alike.spread["outage"]) == pytest.approx(1.0 * math.sqrt(2 / 7 * 7 / 6))
        apart = fit_link([flight(number, every_s) for number, every_s in enumerate((10, 20, 40, 80))])
        # ln 2 apart: a variance of 5/3 (ln 2)^2. Of few flights the next one has 6/5 of 4/2 of it, and a drawn one 4/5;
        # chance takes a few hundredths off.
        expected = (6 / 5 * 4 / 2 - 4 / 5) * 5 / 3 * math.log(2) ** 2 + 2 / 5 * 5 / 4 * 1.0**2
        assert math.log(apart.spread["outage"]) == pytest.approx(math.sqrt(expected), rel=0.1)
        assert tomllib.loads(apart.toml())["spread"]["outage"] > 1

    def test_one_flight_differs_as_other_networks_do(self) -> None:
        # The difference of two flights has twice the variance of one.
        link = fit_link([made(1)])
        assert math.log(link.spread["rate"]) == pytest.approx(0.65 * math.sqrt(2))
        assert tomllib.loads(link.toml())["spread"]["rate"] == pytest.approx(math.exp(0.65 * math.sqrt(2)), rel=1e-3)

    def test_a_short_flight_says_less_of_the_next_one(self) -> None:
        def spread(length_s: float) -> float:
            return math.log(fit_link([made(1).part(0, length_s)]).spread["rate"])

        assert spread(3) > spread(60) > spread(200) > spread(300) == pytest.approx(0.65 * math.sqrt(2))
        # Of next to nothing measured, what other networks change within five minutes is all that is known.
        assert spread(0.2) ** 2 == pytest.approx(2 * 0.65**2 + 0.6, rel=0.1)

    def test_stalls_are_assumed_where_none_was_seen(self) -> None:
        def calm(length_s: int) -> Flight:
            delay_ms = 30.0 + (np.arange(5 * length_s) % 3).astype(np.float64)
            return Flight("calm", np.arange(5 * length_s) / 5, (Column("delay", "ms", delay_ms),), float(length_s))

        short, long = (fit_link([calm(length_s)]) for length_s in (20, 3600))
        # Half of one in half the time in which cars have one, for the network and again for the flight.
        assert short.flights[0].stalls_per_s == pytest.approx(0.5 / (20 + 20 + 16))
        assert (long.flights[0].stalls_per_s or 0) < 1 / 3600
        assert "No stall in 20 s" in " ".join(short.unknown)
        random = np.random.default_rng(1)
        tails_ms = [
            float(np.nanquantile(np.where(np.isfinite(delay), delay, np.nan), 0.999))
            for _ in range(100)
            for delay in [draw_flight(short, 300.0, random).columns[0].values]
        ]
        # The next flight of a car often has a stall of 0.2 s and more.
        assert 0.3 < float(np.mean(np.array(tails_ms) > 100)) < 1

    def test_times_of_waiting_are_no_spread_of_the_constant_delay(self) -> None:
        # Both flights have 30 ms; one of them waits most of its time, so that the medians are 10 times apart.
        times_s = np.arange(600.0)
        flights = [
            Flight(name, times_s, (Column("delay", "ms", np.where(times_s % 5 < calm, 30.0, 300.0)),), 600.0)
            for name, calm in (("calm", 4), ("waiting", 1))
        ]
        # Two flights: two thirds of the prior's variance, and a half more for the uncertain middle.
        assert math.log(fit_link(flights).spread["delay"]) == pytest.approx(0.1 * math.sqrt(2 / 3 * 3 / 2))

    @pytest.mark.parametrize(
        "column", [Column("rate", "Mbit/s", np.zeros(300), "uplink"), Column("delay", "ms", np.full(300, math.inf))]
    )
    def test_flights_like_one_without_service_have_none(self, column: Column) -> None:
        link = fit_link([Flight("dark", np.arange(300.0), (column,), 300.0)])
        random = np.random.default_rng(1)
        lost = [drawn.values("loss", "uplink") for drawn in (draw_flight(link, 300.0, random) for _ in range(40))]
        assert np.mean([0.0 if one is None else one.mean() for one in lost]) > 80

    def test_a_short_flight_without_service_is_no_number_of_its_own(self) -> None:
        def flight(delay_ms: np.ndarray) -> Flight:
            return Flight("short", np.arange(120.0), (Column("delay", "ms", delay_ms),), 120.0)

        usual = flight(30 + np.arange(120.0) % 7)
        with np.errstate(all="raise"):
            alone, spread = (fit_link(flights).spread for flights in ([usual], [usual, flight(np.full(120, math.inf))]))
        assert spread["jitter"] == pytest.approx(alone["jitter"], rel=0.5)

    def test_a_flight_without_service_keeps_its_outages_to_itself(self) -> None:
        def flight(name: str, down: np.ndarray) -> Flight:
            delay = np.where(down, math.inf, 30.0 + np.arange(len(down)) % 3)
            return Flight(name, np.arange(600.0), (Column("delay", "ms", delay),), 600.0)

        at_s = np.arange(600)
        usual = [flight(str(number), (at_s + number) % 100 < 3) for number in range(4)]
        link = fit_link([*usual, flight("dark", at_s >= 60)])
        random = np.random.default_rng(1)
        assert link.outage_length is not None
        # 24 outages of at most 3 s; the tail allows for longer ones, and 540 s of darkness is none of them.
        assert float(np.mean(link.outage_length.sample(1000, random))) == pytest.approx(3, rel=0.4)
        lost = [float(np.isinf(draw_flight(link, 600.0, random).columns[0].values).mean()) for _ in range(300)]
        # A fifth of the flights is dark for most of its time, the others for three hundredths of it.
        assert float(np.mean(np.array(lost) > 0.5)) == pytest.approx(0.2, abs=0.07)
        assert float(np.median(lost)) < 0.1

    def test_a_long_flight_is_a_population_of_its_windows(self) -> None:
        times_s = np.arange(2400.0)
        rate = np.repeat([10.0, 20.0, 30.0, 40.0], 600) + times_s % 3
        link = fit_link([Flight("long", times_s, (Column("rate", "Mbit/s", rate, "uplink"),), 2400.0)])
        medians = sorted(flight.processes["uplink.rate"].table[0][1] for flight in link.flights)
        assert medians == [10, 20, 30, 40]

    def test_a_time_without_any_rate_keeps_the_queue(self) -> None:
        times_s = np.arange(600.0)
        rate = np.where(times_s % 100 < 5, 0.0, 20.0 + times_s % 3)
        link = fit_link([Flight("gone", times_s, (Column("rate", "Mbit/s", rate, "uplink"),), 600.0)])
        assert (link.outage_gaps, link.stall_gaps is None) == (None, False)
        assert link.flights[0].processes["uplink.rate"].table[0][1] == 20

    def test_lone_seconds_without_rate_come_one_by_one(self) -> None:
        random = np.random.default_rng(1)
        process = Process(((0.0, 5.0), (1.0, 60.0)), Memory(60.0, 5.0, 0.7), 1.0)

        def flight(name: str) -> Flight:
            rates = process.sample(600, random)
            rates[5:595:40] = 0.0
            return Flight(name, np.arange(600.0), (Column("rate", "Mbit/s", rates, "downlink"),), 600.0)

        link = fit_link([flight(str(at)) for at in range(10)])
        drawn = [draw_flight(link, 300.0, random).values("rate", "downlink") for _ in range(200)]
        counts = [int((rates < 0.01).sum()) for rates in drawn if rates is not None]
        # 15 in 600 s of each flight. As low values of a rate that remembers for a minute, they would come together.
        assert np.median(counts) == pytest.approx(7.5, rel=0.25)
        assert np.mean(np.array(counts) == 0) < 0.05

    def test_the_file_is_toml_with_flights_from_worst_to_best(self) -> None:
        link = fit_link([made(seed) for seed in range(4)])
        table = tomllib.loads(link.toml("made flights"))
        # Round trips do not tell the direction of stalls: each flight has them both ways, down, and up.
        assert len(table["flight"]) == 3 * 4
        assert table["spread"]["rate"] >= 1
        process = table["flight"][0]["uplink"]["rate"]["process"]
        probabilities = [p for p, _ in process]
        assert probabilities[0] == 0
        assert probabilities[-1] == 1
        assert (np.diff(probabilities) > 0).all()
        assert [flight.badness for flight in link.flights] == sorted((f.badness for f in link.flights), reverse=True)

    def test_the_limits_of_the_data_are_reported(self) -> None:
        times_s = np.arange(100.0)
        link = fit_link([Flight("short", times_s, (Column("delay", "ms", times_s + 20),), 100.0)])
        words = " ".join(link.unknown)
        for expected in ("One flight", "A flight of 100 s", "No uplink rate", "loss is unknown, not zero", "No outage"):
            assert expected in words

    def test_a_constant_rate_may_be_the_senders(self) -> None:
        times_s = np.arange(300.0)
        warned = []
        for rate in (np.where(times_s % 100 < 3, 0.0, 20.0), 20.0 + times_s % 3):
            link = fit_link([Flight("one", times_s, (Column("rate", "Mbit/s", rate, "uplink"),), 300.0)])
            warned.append("The uplink rate never changes" in " ".join(link.unknown))
        assert warned == [True, False]

    def test_a_short_flight_without_an_outage_is_not_safe_for_ever(self) -> None:
        calm = Flight("calm", np.arange(60.0), (Column("delay", "ms", np.full(60, 30.0)),), 60.0)
        link = fit_link([*(made(seed) for seed in range(3)), calm])
        rates = {flight.name: flight.outages_per_s for flight in link.flights}
        assert rates["calm"] is not None
        assert rates["calm"] > 0.1 * (rates["made 0"] or 0)

    def test_where_no_outage_was_seen_rare_ones_are_assumed(self) -> None:
        times_s = np.arange(1800.0)
        rates = Column("rate", "Mbit/s", 20 + times_s % 3, "uplink")
        link = fit_link([Flight("calm", times_s, (rates,), 1800.0)])
        assert link.outage_gaps is not None
        # Half of one in the time measured, and in half of 840 s.
        assert link.outage_gaps.mean_s == pytest.approx((1800 + 420) / 0.5)
        table = tomllib.loads(link.toml())
        assert table["outage"]["length"]["quantiles"][-1] == [1, "34000ms"]
        assert any("rare ones are assumed" in one for one in link.unknown)

    def test_assumed_outages_delay_no_packet_and_seen_ones_do(self) -> None:
        times_s = np.arange(1800.0)
        late = []
        for length_s in (0, 5):
            rate = np.where(times_s % 600 < length_s, 0.0, 20 + times_s % 3)
            link = fit_link([Flight("one", times_s, (Column("rate", "Mbit/s", rate, "uplink"),), 1800.0)])
            late.append("stall" in tomllib.loads(link.toml()))
        assert late == [False, True]

    def test_a_flight_with_longer_outages_has_longer_ones(self) -> None:
        def flight(lasts_s: int) -> Flight:
            times_s = np.arange(0.0, 600.0)
            delay = np.where(times_s % 60 < lasts_s, math.inf, 30.0 + times_s % 3)
            return Flight(str(lasts_s), times_s, (Column("delay", "ms", delay),), 600.0)

        link = fit_link([flight(lasts_s) for lasts_s in (2, 2, 2, 16)])
        scales = {one.name: one.outage_scale for one in link.flights}
        # Their mean logarithm is a factor of 8^(1/4) above that of the short ones; 10 of 12 events are a flight's own.
        assert scales["2"] == pytest.approx(8 ** (-10 / 12 / 4))
        assert scales["16"] == pytest.approx(8 ** (10 / 12 * 3 / 4))

    def test_which_way_a_probe_was_lost_is_left_open(self) -> None:
        times_s = np.arange(0.0, 600.0, 0.2)
        delay = np.where(np.random.default_rng(1).random(3000) < 0.04, math.inf, 30.0 + times_s % 3)
        link = fit_link([Flight("ping", times_s, (Column("delay", "ms", delay),), 600.0)])
        losses = [one.losses() for one in link.flights]
        for each in losses:
            kept = math.prod(1 - share for share in each.values())
            assert 1 - kept == pytest.approx(0.04, abs=0.015)
        lossy = [sorted(way for way, share in each.items() if share) for each in losses]
        assert sorted(lossy) == [["downlink"], ["downlink", "uplink"], ["uplink"]]
        # What a flight does not say is that of the family: a direction that loses nothing says so.
        written = tomllib.loads(link.toml())["flight"]
        assert all({"uplink", "downlink"} <= {way for way in flight if "loss" in flight[way]} for flight in written)
        assert link.flights[len(link.flights) // 2].event_direction is None
        stalls = {flight.get("stall", {}).get("direction") for flight in tomllib.loads(link.toml())["flight"]}
        assert stalls <= {None, "downlink", "uplink"}

    def test_a_loss_of_one_direction_stays_in_it(self) -> None:
        # A tenth of the packets up, and 20 s without any: a log of the ground says nothing of the way down.
        loss = np.full(600, 10.0)
        loss[100:120] = 100.0
        column = Column("loss", "%", loss, "uplink")
        link = fit_link([Flight("telemetry", np.arange(600, dtype=np.float64), (column,), 600.0)])
        assert link.flights[0].losses() == {"uplink": pytest.approx(0.1)}
        assert any("No downlink loss was measured" in one for one in link.unknown)
        drawn = [draw_flight(link, 600.0, np.random.default_rng(seed)) for seed in range(20)]
        assert all(one.values("loss", "downlink") is None for one in drawn)
        up = [one.values("loss", "uplink") for one in drawn]
        assert any(one is not None and (one == 100).sum() > 5 for one in up)

    def test_networks_joined_in_a_file_are_not_fitted_as_one(self) -> None:
        columns = tuple(Column("delay", "ms", np.full(100, 30.0), name) for name in ("lte", "leo"))
        joined = Flight("joined.csv", np.arange(100, dtype=np.float64), columns, 100.0)
        with pytest.raises(TraceError, match=r"joined.csv: found .*leo.*; expected rate, delay or loss"):
            fit_link([joined])

    def test_speed_tests_every_15_minutes_are_fitted(self) -> None:
        rates = 20 * np.exp(np.random.default_rng(2).standard_normal(40))
        column = Column("rate", "Mbit/s", rates, "downlink")
        link = fit_link([Flight("tests", 900.0 * np.arange(40, dtype=np.float64), (column,), 36_000.0)])
        assert link.windows == 2
        tomllib.loads(link.toml())

    def test_handovers_come_in_their_measured_clusters(self, tmp_path: Path) -> None:
        path = tmp_path / "handovers.csv"
        path.write_text("flight,start [s],duration [ms]\na,0,2\na,5,3\nb,0,2\nb,7,x\n")
        with pytest.raises(TraceError, match=r"handovers.csv:5: found `x`; expected a duration in ms"):
            read_handovers(path)
        path.write_text("flight,start [s],duration [ms]\na,0,2\na,5,3\nb,0,2\nb,7,3\n")
        link = fit_link([made(1)], read_handovers(path))
        assert link.handover_gaps is not None
        assert link.handover_gaps.mean_s == pytest.approx(6.0)
        assert "handover = {" in link.toml()


def starlink(seed: int, start_unix_s: float, every_s: float = 15.0) -> Flight:
    """Ten minutes of round trips that step every 15 s, at 12 s past the minute, by 0 to 20 ms of a direction."""
    random = np.random.default_rng(seed)
    times_s = np.arange(0, 600, 0.2, dtype=np.float64)
    clock_s = start_unix_s + times_s
    epochs = np.floor((clock_s - 12) / every_s).astype(int)
    steps_ms = random.uniform(0, 20, int(np.ptp(epochs)) + 1)[epochs - epochs.min()]
    delay = 15 + steps_ms + random.exponential(1.0, len(times_s))
    return Flight(str(seed), times_s, (Column("delay", "ms", delay),), 600.0, clock_s=clock_s)


class TestEpochs:
    def test_steps_of_15_s_are_found_with_their_phase(self) -> None:
        # 1.7e9 is 5 s past a multiple of 15: boundaries of two flights are the same on the calendar.
        link = fit_link([starlink(seed, 1.7e9 + 1234.5 * seed) for seed in range(3)])
        assert link.phase_s == 12
        table = tomllib.loads(link.toml())
        assert (table["reconfiguration"]["every"], table["reconfiguration"]["phase"]) == ("15s", "12s")
        # Uniform from 0 to 20 ms, above the lowest of 40 epochs.
        steps = dict(table["flight"][0]["reconfiguration"]["delay_step"]["quantiles"])
        assert float(steps[0.5].removesuffix("ms")) == pytest.approx(10, abs=4)
        # What is left is the exponential jitter of 1 ms, give or take the error of the levels of 75 probes each.
        median = dict(link.flights[0].processes["uplink.delay"].table)[0.5]
        assert median == pytest.approx(math.log(2), abs=0.2)

    @pytest.mark.parametrize("every_s", [7.0, 20.0, 1e6])
    def test_other_steps_are_no_epochs(self, every_s: float) -> None:
        assert fit_link([starlink(seed, 1.7e9 + 1000 * seed, every_s) for seed in range(3)]).phase_s is None

    def test_a_pause_that_is_cut_out_keeps_the_phase(self) -> None:
        flight = starlink(1, 1.7e9)
        delay = flight.columns[0].values.copy()
        delay[1000:1037] = math.nan
        cut = replace(flight, columns=(Column("delay", "ms", delay),)).without_gaps()
        assert cut.length_s == pytest.approx(600 - 37 * 0.2)
        assert find_phases([cut]) == [12.0]

    def test_drawn_flights_step_too(self) -> None:
        link = fit_link([starlink(seed, 1.7e9) for seed in range(3)])
        drawn = draw_flight(link, 600.0, np.random.default_rng(1)).columns[0].values
        measured = starlink(1, 1.7e9).columns[0].values
        assert float(np.std(drawn)) == pytest.approx(float(np.std(measured)), rel=0.3)


class TestLoaded:
    def test_the_queue_of_a_load_is_taken_apart_from_the_delay(self) -> None:
        """A sawtooth of a 300 kB queue at 20 Mbit/s, which runs empty every 8 s, over a base of 40 ms both ways."""
        times_s = np.arange(0, 600, 0.1, dtype=np.float64)
        queued_bytes = 300e3 * (times_s % 8) / 8
        rtt_ms = 40 + queued_bytes * 8 / 20e6 * 1e3
        columns = (Column("rate", "Mbit/s", np.full(6000, 20.0), "downlink"), Column("delay", "ms", rtt_ms / 2))
        flight = Flight("iperf", times_s, columns, 600.0)
        link = fit_link([flight], is_loaded=True)
        assert link.queue_bytes == {"downlink": pytest.approx(300e3, rel=0.02)}
        assert link.flights[0].processes["downlink.delay"].plus == pytest.approx(20)
        assert dict(link.flights[0].processes["downlink.delay"].table)[0.99] < 1
        table = tomllib.loads(link.toml())
        assert 290e3 < float(table["downlink"]["queue"]["bytes"].removesuffix("B")) < 301e3
        assert any("--loaded" in one for one in fit_link([flight]).unknown)


class TestGoodness:
    def test_a_fit_of_its_own_processes_covers_other_flights(self) -> None:
        found = held_back([made(seed) for seed in range(8)], runs=0)
        inside = sum(check.inside for check in found.checks)
        total = sum(len(check.measured) for check in found.checks)
        # Intervals of 95 % over 4 flights and some 12 numbers; half of the flights were seen.
        assert inside / total > 0.8

    def test_blocks_keep_what_was_measured_together(self) -> None:
        flight = made(1)
        drawn = resample_flight([flight], 300.0, np.random.default_rng(1))
        pairs = {(round(a, 9), round(b, 9)) for a, b in zip(*(column.values for column in flight.columns), strict=True)}
        seen = {(round(a, 9), round(b, 9)) for a, b in zip(*(column.values for column in drawn.columns), strict=True)}
        assert seen <= pairs

    @needs_measurements
    def test_drone_flights_are_covered_by_the_fit_of_their_first_half(self) -> None:
        folder = MEASUREMENTS / "imc22_drone_lte"
        text = f"uplink:{folder}/urban_p2_uplink.csv+downlink:{folder}/urban_p2_downlink.csv"
        # The bounds of 95 % by 40 draws differ by chance alone.
        found = held_back([read_flight(text)], draws=150, runs=0)
        quantiles = [check for check in found.checks if "quantile" in check.name]
        assert len(quantiles) == 6
        inside, total = (sum(each) for each in zip(*((c.inside, len(c.measured)) for c in quantiles), strict=True))
        assert inside / total >= 0.8


class TestCommand:
    def test_a_fit_writes_its_file_and_its_page(self, skybraid: Command, tmp_path: Path) -> None:
        out, page = tmp_path / "link.toml", tmp_path / "link.html"
        done = skybraid("fit", *CARS, "--out", out, "--page", page, "--no-check", "--json")
        assert done.returncode == 0, done.stderr
        assert (json.loads(done.stdout)["flights"], json.loads(done.stdout)["windows"]) == (3, 9)
        assert tomllib.loads(out.read_text())["outage"]
        text = page.read_text()
        assert "Limits of the data" in text
        # Without a check too, measured and fitted stand side by side.
        assert "there are no held-out data" in text
        assert text.count("<svg") > 0

    def test_a_page_shows_measured_and_fitted(self, skybraid: Command, tmp_path: Path) -> None:
        page = tmp_path / "link.html"
        done = skybraid("fit", CARS[0], "--out", tmp_path / "a.toml", "--page", page)
        assert done.returncode == 0, done.stderr
        assert "unknown: One flight" in done.stdout
        text = page.read_text()
        assert text.count("<svg") == 1
        assert "control within 300 ms, doubled" in text

    def test_an_existing_file_is_never_written_over(self, skybraid: Command, tmp_path: Path) -> None:
        out = tmp_path / "a.toml"
        out.write_text("")
        done = skybraid("fit", CARS[0], "--out", out, "--no-check")
        assert done.returncode == 2
        assert "exists already" in done.stderr


class TestRecordings:
    def test_the_seam_of_two_recordings_is_no_outage(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.syspath_prepend(str(ROOT / "traces"))
        recordings = importlib.import_module("fit_presets").drone_recordings
        one, other = [20.0 + at % 7 for at in range(200)], [10.0 + at % 5 for at in range(300)]
        # Parts of a second at both ends; a time without service stays. The second recording is there twice.
        one[100:102] = [0.0, 0.0]
        rates = [3.0, *one, 5.0, 0.0004, *other, 2.0, 0.0004, *other, 2.0]
        folder = tmp_path / "imc22_drone_lte"
        folder.mkdir()
        rows = "".join(f"{at},{rate}\n" for at, rate in enumerate(rates))
        (folder / "rural_uplink.csv").write_text(f"time [s],rate [Mbit/s]\n{rows}")
        assert [own.tolist() for own in recordings(tmp_path, "rural_uplink")] == [one, other]
