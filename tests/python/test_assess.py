"""Assessments: what is asked, what is run, verdicts that few flights cannot bear, and the command on real files."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from conftest import Command
from skybraid.assess import Network, Wanted, assess, parse_wanted, read_networks
from skybraid.assess.answer import Answer, Cost, RankedFlow, Row
from skybraid.assess.candidates import candidates
from skybraid.assess.judging import (
    BAD_FLIGHT,
    MIN_OCCASIONS,
    Judged,
    Seen,
    flights_needed,
    judge_link_passes,
    judge_passes,
    unseen_flights,
)
from skybraid.cli.assess import answer_text
from skybraid.model.episodes import RunShare
from skybraid.model.errors import ScenarioError
from skybraid.model.statistics import Verdict
from skybraid.traces.formats.source import Options
from skybraid.traces.series import TraceError

ROOT = Path(__file__).resolve().parents[2]
CARS = ROOT / "traces" / "lte_drive_pam2025"
CONTROL = parse_wanted("control: 99% within 300ms")


def seen(missed_s: int, length_s: int = 3600, at: int = 100) -> Seen:
    """A flight of ten messages a second that lost all in some seconds together."""
    trials = np.full(length_s, 10)
    met = trials.copy()
    met[at : at + missed_s] = 0
    return Seen(RunShare.of_bins(trials, met, 1.0), 1e6, 30.0, 90.0)


class TestWanted:
    @pytest.mark.parametrize(
        ("text", "metric", "target", "within_ms", "direction"),
        [
            ("control: 99.9% within 300ms", "share", 0.999, 300.0, "downlink"),
            ("control: 99.9 % within 0.3 s", "share", 0.999, 300.0, "downlink"),
            ("video: 95% of frames within 300ms", "frames", 0.95, 300.0, "uplink"),
            ("data: 8Mbit/s", "goodput", 8e6, None, "uplink"),
        ],
    )
    def test_a_sentence_is_a_requirement(
        self, text: str, metric: str, target: float, within_ms: float | None, direction: str
    ) -> None:
        wanted = parse_wanted(text)
        assert (wanted.metric, wanted.target, wanted.direction) == (metric, target, direction)
        assert wanted.within_ms == (None if within_ms is None else pytest.approx(within_ms))

    def test_a_profile_stands_for_its_numbers(self) -> None:
        wanted = parse_wanted("control: 3gpp-c2-sticks")
        assert (wanted.metric, wanted.target, wanted.within_ms) == ("share", 0.999, 40.0)
        assert parse_wanted("video: 3gpp-video-beyond-sight").target == 4e6

    def test_a_required_link_performance_is_a_table_or_its_file(self, tmp_path: Path) -> None:
        keys = 'expiration = "1s", continuity = "99%", availability = "98%", lost_after = "3s"'
        (tmp_path / "rlp.toml").write_text(keys.replace(", ", "\n"))
        table, file = (parse_wanted(f"control: {text}") for text in (f"{{ {keys} }}", str(tmp_path / "rlp.toml")))
        assert replace(table, text="") == replace(file, text="")
        assert (table.metric, table.target, table.within_ms) == ("rlp", 0.99, 1000.0)
        targets = {one["metric"]: one["target"] for one in table.parameters}
        assert (targets["continuity"], targets["availability"]) == (0.99, 0.98)

    @pytest.mark.parametrize(
        "text",
        ["control", "control: 3gpp", "control: fast", "control: 101% within 1s", "a b: 99% within 1s", "c: no.toml"],
    )
    def test_another_sentence_is_an_error(self, text: str) -> None:
        with pytest.raises(ScenarioError, match="--require: found"):
            parse_wanted(text)

    def test_every_candidate_is_a_correct_transport(self, tmp_path: Path) -> None:
        networks = read_networks([f"a={CARS}/atnt.csv", f"b={CARS}/tmobile.csv"])
        assert [len(candidates(["a"], is_video=flag)) for flag in (False, True)] == [1, 4]
        assert len({one.name for one in candidates(["a", "b"], is_video=True)}) == 13
        assert [network.name for network in networks] == ["a", "b"]


class TestVerdict:
    def test_one_flight_is_never_enough(self) -> None:
        judged = judge_passes(CONTROL, [[seen(0, 50 * 3600)]], 1, apart=False)
        assert judged.estimate == 1.0
        assert judged.verdict is Verdict.INCONCLUSIVE

    def test_many_good_flights_meet_it(self) -> None:
        flights = [seen(0) for _ in range(40)]
        judged = judge_passes(CONTROL, [flights], 40, apart=False)
        assert judged.verdict is Verdict.MET

    def test_one_flight_says_little_of_the_next_one(self) -> None:
        for missed_s, verdict in ((0, Verdict.INCONCLUSIVE), (360, Verdict.INCONCLUSIVE), (3600, Verdict.NOT_MET)):
            judged = judge_passes(CONTROL, [[seen(missed_s, at=0)]], 1, apart=False)
            # If only 2.5 % of all flights were like it, it would be seen in 2.5 % of the cases.
            assert judged.low <= 0.025 * judged.estimate + 1e-9
            assert judged.high >= 1 - 0.025 * (1 - judged.estimate) - 1e-9
            assert judged.verdict is verdict

    def test_two_bad_flights_are_not_met(self) -> None:
        losing = Seen(RunShare.of_bins(np.full(3600, 10), np.full(3600, 9), 1.0), 1e6, 30.0, 90.0)
        judged = judge_passes(CONTROL, [[losing, losing]], 2, apart=False)
        assert judged.verdict is Verdict.NOT_MET
        # If only 15.8 % of all flights were bad, two bad ones would be seen in 2.5 % of the cases.
        assert judged.high >= 0.9 + 0.1 * (1 - math.sqrt(0.025)) - 1e-9

    def test_the_flights_needed_are_enough(self) -> None:
        number = flights_needed(CONTROL, 1.0, 1)
        assert number is not None
        worst = BAD_FLIGHT[CONTROL.direction]
        assert worst * unseen_flights(number) <= 0.01 < worst * unseen_flights(number - 1)
        assert flights_needed(CONTROL, 0.98, 1) is None

    def test_flights_or_their_time_would_decide_it_not_both(self) -> None:
        # 20 flights of an hour contain the hours that one miss in ten of them takes; 20 of a minute do not.
        for length_s, says_flights in ((3600, True), (60, False)):
            flights = [seen(0, length_s) for _ in range(9)] + [seen(1, length_s, 10)]
            judged = judge_passes(CONTROL, [flights], 10, apart=False)
            assert judged.verdict is Verdict.INCONCLUSIVE
            assert (judged.flights_needed is not None) is says_flights
            assert (judged.needed_s is None) is says_flights

    def test_unseen_flights_follow_the_binomial(self) -> None:
        # If that share of all flights were bad, none of n would be in 2.5 % of the cases.
        for number in (5, 30):
            assert (1 - unseen_flights(number)) ** number == pytest.approx(0.025)

    @pytest.mark.parametrize("number", [MIN_OCCASIONS, 8, 12, 30])
    @pytest.mark.parametrize(
        ("bad_share", "lost"), [(0.35, 0.029), (0.6, 0.029), (0.25, 0.05), (0.12, 0.1), (0.3, 0.1)]
    )
    def test_flights_that_differ_are_hardly_ever_wrongly_met(self, number: int, bad_share: float, lost: float) -> None:
        # A part of all flights is bad, at most as assumed: the mean is below what is required.
        random = np.random.default_rng(number)
        assert lost <= BAD_FLIGHT[CONTROL.direction]
        assert 1 - bad_share * lost < CONTROL.target
        wrong = 0
        for _ in range(300):
            flights = []
            for _ in range(number):
                missed = round(lost * 1800) if random.random() < bad_share else 0
                flights.append(seen(missed, 1800, int(random.integers(10, 1000))))
            judged = judge_passes(CONTROL, [flights], number, apart=False)
            wrong += judged.verdict is Verdict.MET
        # The interval errs on this side in 2.5 %; 300 trials of that have up to 5 %.
        assert wrong / 300 <= 0.05

    def test_misses_of_networks_apart_weigh_more(self) -> None:
        flights = [seen(36, at=100 + 10 * n) for n in range(30)]
        together = judge_passes(CONTROL, [flights], 3000, 2, apart=False)
        apart = judge_passes(CONTROL, [flights], 3000, 2, apart=True)
        assert 1 - apart.low == pytest.approx(3.6 * (1 - together.low), rel=1e-6)

    def test_a_link_performance_is_as_good_as_its_worst_parameter(self) -> None:
        def flight(met: RunShare, up: RunShare | None) -> Seen:
            return Seen(met, 1e6, 30.0, 90.0, (("continuity", met), ("availability", up)))

        keys = 'expiration = "1s", continuity = "99%", availability = "98%", lost_after = "3s"'
        wanted = parse_wanted(f"control: {{ {keys} }}")
        good = RunShare.of_bins(np.full(3600, 10), np.full(3600, 10), 1.0)
        poor = RunShare.of_bins(np.full(3600, 1000), np.full(3600, 950), 1.0)

        def judged(wanted: Wanted, met: RunShare, up: RunShare | None) -> tuple[Verdict, str]:
            found = judge_link_passes(wanted, [[flight(met, up) for _ in range(40)]], 40, apart=False)
            return found.verdict, found.why

        assert judged(wanted, good, good)[0] is Verdict.MET
        assert judged(wanted, good, poor) == (Verdict.NOT_MET, "availability")
        assert judged(wanted, poor, good) == (Verdict.NOT_MET, "continuity")
        long = judged(wanted, good, None)
        assert long == (Verdict.INCONCLUSIVE, "availability, flights too long to see a loss")
        # No run says what a check lets pass; its length does.
        whole = parse_wanted(f'control: {{ {keys}, integrity = "99.999%" }}')
        assert judged(whole, good, good) == (Verdict.INCONCLUSIVE, "integrity")
        checked = parse_wanted(f'control: {{ {keys}, integrity = "99.999%", check_bits = 32 }}')
        assert judged(checked, good, good)[0] is Verdict.MET

    def test_the_goodput_of_one_flight_decides_nothing(self) -> None:
        wanted = parse_wanted("data: 8Mbit/s")
        one = Seen(None, 20e6, 30.0, 90.0)
        judged = judge_passes(wanted, [[one]], 1, apart=False)
        assert judged.verdict is Verdict.INCONCLUSIVE
        assert math.isinf(judged.high)

    def test_five_flights_of_full_goodput_exclude_no_bad_one(self) -> None:
        wanted = parse_wanted("data: 8Mbit/s")

        def judged(flights: int) -> Judged:
            return judge_passes(wanted, [[Seen(None, 10e6, 30.0, 90.0)] * flights] * 2, flights, apart=False)

        # Of all flights 52 % may be unseen ones (0.025 = 0.48^5), each with half of the goodput.
        assert judged(5).low == pytest.approx(10e6 * (1 - 0.5 * (1 - 0.025**0.2)))
        assert (judged(5).verdict, judged(5).flights_needed) == (Verdict.INCONCLUSIVE, 8)
        assert judged(8).verdict is Verdict.MET

    @pytest.mark.parametrize("flights", [5, 8, 12])
    def test_goodput_over_good_and_bad_flights_is_covered(self, flights: int) -> None:
        wanted, random = parse_wanted("data: 8Mbit/s"), np.random.default_rng(flights)
        # Of all flights 45 % carry half: on average 7.75 Mbit/s.
        covered = met = 0
        for _ in range(400):
            carried = np.where(random.random(flights) < 0.45, 5e6, 10e6 - 1e4 * random.random(flights))
            passes = [[Seen(None, bps, 30.0, 90.0) for bps in carried]]
            judged = judge_passes(wanted, passes, flights, apart=False)
            covered += judged.low <= 7.75e6 <= judged.high
            met += judged.verdict is Verdict.MET
        # Two standard errors of 95 % in 400 are 2 %.
        assert covered >= 0.93 * 400
        assert met <= 0.025 * 400


class TestNetworks:
    def test_a_measurement_needs_the_name_of_its_network(self) -> None:
        with pytest.raises(ScenarioError, match="expected NAME=FLIGHT"):
            read_networks(["drive.csv"])

    def test_the_same_measurement_counts_once(self, tmp_path: Path) -> None:
        rows = "".join(f"{at},{30 + at % 7}\n" for at in range(120))
        for name in ("a", "b"):
            (tmp_path / f"{name}.csv").write_text(f"time [s],rtt [ms]\n{rows}")
        (tmp_path / "c.csv").write_text(f"time [s],rtt [ms]\n{rows}120,31\n")
        (network,) = read_networks([f"lte={tmp_path}/{name}.csv" for name in ("a", "b", "a", "c")])
        assert (len(network.flights), network.occasions) == (2, 2)
        assert [("counted once" in note) for note in network.flights[0].notes] == [True, True]

    def test_flights_of_seconds_count_by_the_minute(self, tmp_path: Path) -> None:
        for at in range(10):
            (tmp_path / f"{at}.csv").write_text(f"time [s],rtt [ms]\n0,3{at}\n10,31\n20,32\n")
        (network,) = read_networks([f"lte={tmp_path}/{at}.csv" for at in range(10)])
        assert (len(network.flights), network.occasions) == (10, 5)
        assert Network("lte", network.flights[:2]).occasions == 1

    def test_joined_series_are_networks_measured_together(self, tmp_path: Path) -> None:
        rows = "".join(f"{at},{20 + at},{'inf' if at == 3 else 10}\n" for at in range(10))
        path = tmp_path / "both.csv"
        path.write_text(f"time [s],lte delay [ms],leo uplink delay [ms]\n{rows}")
        lte, leo = read_networks([f"lte,leo={path}"])
        assert lte.together == leo.together == "lte,leo"
        assert not lte.lacks("delay", "downlink")
        assert leo.lacks("delay", "downlink")
        delay = leo.flights[0].values("delay", "uplink")
        assert delay is not None
        assert math.isinf(delay[3])


class TestAssess:
    def test_many_equal_transports_have_a_short_name(self) -> None:
        judged = judge_passes(CONTROL, [[seen(0)]], 1, apart=False)
        names = tuple(f"mptcp low_rtt {control}" for control in ("reno", "cubic", "lia"))
        row = Row(names, ("lte",), judged, 30.0, 90.0, True)
        assert row.name == "mptcp low_rtt reno and 2 that did the same"
        assert replace(row, names=names[:2]).name == "mptcp low_rtt reno = mptcp low_rtt cubic"

    def test_a_tie_is_said_not_to_be_the_best(self) -> None:
        judged = judge_passes(CONTROL, [[seen(0)]], 1, apart=False)
        rows = tuple(Row((name,), ("lte",), judged, 30.0, 90.0 + at, True) for at, name in enumerate("abc"))
        rest = replace(rows[2], is_final=False)
        words = answer_text(Answer((RankedFlow(CONTROL, (*rows[:2], rest)),), (), (), (), 1.0))
        assert "control: inconclusive; a does best, by its delay alone: 1 more reached the same." in words
        assert words.count("not in the final") == 1

    def test_two_networks_are_ranked_and_what_is_missing_is_said(self) -> None:
        networks = read_networks([f"a={CARS}/atnt.csv", f"b={CARS}/verizon.csv"])
        cut = [type(one)(one.name, (one.flights[0].part(0, 300),)) for one in networks]
        answer = assess(cut, [parse_wanted("control: 99.9% within 300ms", {"control": 0.1})], budget_s=60)
        (flow,) = answer.flows
        assert "redundant" in flow.best.names[0]
        assert answer.verdict is not Verdict.MET
        words = " ".join(answer.missing)
        assert "more flights of a" in words
        assert "at the same time" in words
        assert sum(len(row.names) for row in flow.rows) == 4

    def test_the_budget_pays_for_preparing_runs_first(self) -> None:
        cost = Cost(per_run=0.5, per_simulated_s=0.01)
        assert cost.affordable_s(10.0, runs=4) == pytest.approx(800.0)
        assert cost.affordable_s(1.0, runs=4) == 0.0

    def test_an_outage_costs_availability_and_not_continuity(self, tmp_path: Path) -> None:
        # 30 s of 300 s without a reply, all at once.
        rows = "".join(f"{at / 5:.1f},{-1 if 100 <= at / 5 < 130 else 40 + at % 3}\n" for at in range(1500))
        (tmp_path / "ping.csv").write_text(f"time [s],delay [ms]\n{rows}")
        networks = read_networks([f"a={tmp_path}/ping.csv"], Options(lost=-1))
        keys = 'expiration = "1s", continuity = "99%", availability = "99%", lost_after = "3s"'
        wanted = parse_wanted(f"control: {{ {keys} }}", {"control": 0.1})
        judged = assess(networks, [wanted], budget_s=20).flows[0].best.judged
        assert judged.why.startswith("availability")
        assert judged.estimate == pytest.approx(0.9, abs=0.02)

    def test_a_goodput_is_offered_and_judged(self, tmp_path: Path) -> None:
        (tmp_path / "up.csv").write_text("time [s],uplink rate [Mbit/s]\n" + "".join(f"{at},20\n" for at in range(60)))
        (network,) = read_networks([f"a={tmp_path}/up.csv"])
        answer = assess([network], [parse_wanted("data: 8Mbit/s")], budget_s=20)
        # What is offered is a quarter more, and the link carries it.
        assert answer.flows[0].best.judged.estimate == pytest.approx(10e6, rel=0.02)

    def test_a_video_is_not_judged_without_a_rate(self) -> None:
        (network,) = read_networks([f"a={CARS}/atnt.csv"])
        cut = type(network)("a", (network.flights[0].part(0, 60),))
        answer = assess([cut], [parse_wanted("video: 50% of frames within 300ms", {"video": 1.0})], budget_s=20)
        assert answer.verdict is Verdict.INCONCLUSIVE
        assert answer.flows[0].best.judged.why == "no rate measured"
        assert any("measure the uplink rate of a" in one for one in answer.missing)

    def test_the_command_answers_on_a_ping_log(self, skybraid: Command, tmp_path: Path) -> None:
        lines = "\n".join(
            f"[{1683995463 + at * 0.2:.6f}] 64 bytes from 10.0.0.1: icmp_seq={at + 1} ttl=44 time={40 + at % 7} ms"
            for at in range(300)
            if at % 50
        )
        (tmp_path / "ping.log").write_text(f"PING 10.0.0.1 (10.0.0.1) 56(84) bytes of data.\n{lines}\n")
        require = ["--require", "control: 99.9% within 300ms", "--rate", "control=40kbit/s"]
        out = tmp_path / "report.html"
        done = skybraid("assess", f"leo={tmp_path}/ping.log", *require, "--json", "--page", out)
        assert done.returncode == 1, done.stderr
        found = json.loads(done.stdout)
        (flow,) = found["flows"]
        # One flight does not say that others lose probes too.
        assert found["verdict"] == "inconclusive"
        # Five of 300 probes were lost, each for 0.2 s.
        assert flow["transports"][0]["estimate"] == pytest.approx(1 - 6 / 300, abs=0.012)
        assert "no uplink rate was measured" in out.read_text()
        again = skybraid("assess", f"leo={tmp_path}/ping.log", *require, "--out", out)
        assert (again.returncode, "exists already" in again.stderr) == (2, True)
        assert again.stderr.count("note: --out is called --page now\n") == 1
        both = skybraid("assess", f"leo={tmp_path}/ping.log", *require, "--out", out, "--page", out)
        assert (both.returncode, "found it and --page" in both.stderr) == (2, True)


class TestStumbles:
    """What a new user's files hold."""

    def written(self, folder: Path, text: str) -> str:
        (folder / "drive.csv").write_text(text, encoding="utf-8")
        return f"lte={folder}/drive.csv"

    def test_a_pause_in_an_even_series_is_cut_out(self, tmp_path: Path) -> None:
        # Two minutes of seconds with an hour between.
        rows = [f"{at + (3600 if at >= 60 else 0)},{at}" for at in range(120)]
        text = self.written(tmp_path, "time [s],downlink rate [Mbit/s]\n" + "\n".join(rows))
        (network,) = read_networks([text])
        assert network.measured_s == pytest.approx(120)
        assert any("3600 s were cut out" in note for note in network.flights[0].notes)

    def test_a_value_that_holds_until_the_next_is_no_pause(self, tmp_path: Path) -> None:
        text = self.written(tmp_path, "time [s],delay [ms]\n0,30\n10,40\n600,50\n700,60\n")
        (network,) = read_networks([text])
        assert network.measured_s == pytest.approx(800)

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("time [s],delay [ms]\n0,30\n0.1,40\n", "found 0.2 s of measurements; expected at least 1 s"),
            (
                "time [s],a [Mbit/s],b [Mbit/s]\n0,1,2\n1,1,2\n2,1,2\n",
                "found `a rate`, `b rate`; expected NAME,NAME=FILE",
            ),
            ("1,29.6\n2,30.1\n", "`skybraid trace import"),
        ],
    )
    def test_an_error_says_the_way_out(self, tmp_path: Path, text: str, words: str) -> None:
        with pytest.raises(TraceError) as error:
            read_networks([self.written(tmp_path, text)])
        assert words in str(error.value)
        assert "drive.csv" in str(error.value)
