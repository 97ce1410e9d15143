"""Causes of misses: counted by the engine, named in every output, and answered by runs in `explain`."""

import html
import json
from pathlib import Path

import pytest

from conftest import Command
from skybraid import Results, Scenario, run
from skybraid.model.misses import causes, causes_of, main_cause
from skybraid.show.explain import Budget, explain, text

PATHS = """
duration = "20s"

[path.lte]
uplink = { rate = "20Mbit/s", delay = "30ms" }
downlink = { rate = "20Mbit/s", delay = "30ms" }

[path.leo]
uplink = { rate = "20Mbit/s", delay = "40ms", loss = { uniform = "2%" } }
downlink = { rate = "20Mbit/s", delay = "40ms" }
"""

REFUSED = (
    PATHS
    + """
[flow.video]
from = "vehicle"
traffic = { kind = "video", rate = "8Mbit/s" }
transport = { protocol = "mp_dccp", scheduler = "low_rtt", congestion = "bbr", tx_queue = 5 }
require = { frames = "95%", within = "400ms" }
"""
)

LOST = (
    PATHS
    + """
[flow.control]
from = "vehicle"
traffic = { kind = "cbr", rate = "400kbit/s", packet = "500B" }
transport = { protocol = "udp", paths = ["leo"] }
require = { deadline = "300ms", share = "99.9%" }
"""
)


def flown(text: str, **settings: object) -> Results:
    return run(Scenario(text, "flight.toml"), tables=(), **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("seeds", [None, [1, 2, 3]])
def test_causes_add_up_to_all_misses_in_every_summary(seeds: list[int] | None, tmp_path: Path) -> None:
    results = flown(LOST, seeds=seeds)
    (requirement,) = results.requirements
    misses = round((1 - (requirement.estimate or 0)) * requirement.trials)
    found = causes(results.flows["control"], "share", 300.0)
    assert sum(cause.count for cause in found) == misses > 0
    assert [(cause.cause, cause.path, cause.effect) for cause in found] == [("lost", "leo", "random")]
    kept = results.save(tmp_path / "result")
    assert causes(Results.open(kept.folder or tmp_path).flows["control"], "share", 300.0) == found


def test_the_main_cause_is_one_sentence_from_the_summary() -> None:
    results = flown(LOST)
    (requirement,) = results.requirements
    total = causes_of(requirement, results.flows["control"])[0].count
    sentence = main_cause(requirement, results.flows["control"])
    assert sentence == f"Main cause: {total} of {total} misses were lost on leo by random loss."
    met = flown(LOST.replace('"99.9%"', '"50%"'))
    assert main_cause(met.requirements[0], met.flows["control"]) is None


def test_explain_begins_with_the_misses_and_tries_what_helps() -> None:
    (flow,) = explain(flown(LOST), budget=Budget())
    (one,) = flow.requirements
    assert sum(cause.count for cause in one.causes) == one.misses
    copy, bound = one.remedies
    assert copy.changes["flow.control.transport.scheduler"] == "redundant"
    assert copy.words == 'with a copy on lte (`scheduler = "redundant"`): 100 %'
    assert (copy.reached, copy.helped) == (1, True)
    assert bound.words == "at most: 100 %, had every message taken the better path"
    found = text(flow)
    assert found.index("not met") < found.index("what would have helped") < found.index("leo: 100 % of the packets")
    assert "nothing to explain" not in found


def test_a_change_that_was_run_reaches_what_the_user_gets_with_it() -> None:
    (flow,) = explain(flown(LOST), budget=Budget())
    copy = flow.requirements[0].remedies[0]
    again = run(Scenario(LOST, "flight.toml").with_all(copy.changes), tables=())
    assert again.requirements[0].estimate == copy.reached


def test_the_bound_is_no_lower_than_what_a_run_reached() -> None:
    lossy = LOST.replace('delay = "30ms" }', 'delay = "30ms", loss = { uniform = "30%" } }')
    (flow,) = explain(flown(lossy), budget=Budget())
    *runs, bound = flow.requirements[0].remedies
    assert bound.changes == {}
    assert all((bound.reached or 0) >= (one.reached or 0) for one in runs)
    # Both copies are lost with a probability of 0.6 %.
    assert 0.985 < (bound.reached or 0) < 0.999


def test_fewer_copies_are_no_change_against_losses_of_all() -> None:
    lossy = LOST.replace('delay = "30ms" }', 'delay = "30ms", loss = { uniform = "30%" } }')
    doubled = lossy.replace('paths = ["leo"]', 'scheduler = "redundant"')
    (flow,) = explain(flown(doubled), budget=Budget())
    (one,) = flow.requirements
    assert one.causes[0].cause == "lost"
    assert [remedy.changes for remedy in one.remedies] == [{}]


def test_a_budget_of_no_time_makes_no_runs() -> None:
    (flow,) = explain(flown(LOST), budget=Budget(wall_s=-1))
    assert flow.requirements[0].remedies == []
    assert "are used up" in flow.requirements[0].notes[-1]


def test_refused_messages_are_explained_and_a_longer_queue_helps() -> None:
    results = flown(REFUSED)
    refused = results.flows["video"].refused
    assert refused > 1000
    (flow,) = explain(results, budget=Budget(changes=1))
    (one,) = flow.requirements
    assert one.causes[0].cause == "refused"
    assert "refused at the sender, whose queue was full" in one.main_cause
    assert any("messages were refused at the sender" in fact for fact in one.facts)
    assert one.remedies[0].changes == {"flow.video.transport.tx_queue": 500}
    assert one.remedies[0].helped


def test_refused_messages_are_named_without_a_requirement() -> None:
    (flow,) = explain(flown(REFUSED.replace("require = ", "# ")))
    assert flow.requirements == []
    assert "messages were refused at the sender" in text(flow)
    assert "nothing to explain" not in text(flow)


def test_a_video_s_queue_holds_a_key_frame_by_default() -> None:
    video = flown(REFUSED.replace(", tx_queue = 5", "")).flows["video"]
    # Some of the first frames find the window of a new connection small.
    assert video.refused < 0.005 * video.sent
    assert causes(video, "frames", 400.0)[0].cause != "refused"


def test_a_mean_that_only_lacks_runs_says_so() -> None:
    enough = REFUSED.replace('frames = "95%", within = "400ms"', "freezes = 100000.0")
    results = flown(enough)
    sentence = main_cause(results.requirements[0], results.flows["video"])
    assert sentence == "Main cause: one run gives no interval; run several seeds."


@pytest.mark.parametrize(
    "required",
    [
        'percentile = "99%", delay = "10ms"',
        'goodput = "1Gbit/s"',
        'deadline = "20ms", share = "99%"',
        'share = "99.99%"',
    ],
)
def test_nothing_that_is_not_met_stays_unexplained(required: str) -> None:
    results = flown(LOST.replace('deadline = "300ms", share = "99.9%"', required))
    (flow,) = explain(results)
    (one,) = flow.requirements
    assert one.main_cause.startswith("Main cause: ")
    assert one.causes or one.facts
    assert "nothing to explain" not in text(flow)


@pytest.mark.parametrize("profile", ["", ', profile = "linux"', ', profile = "rfc"'])
def test_mptcp_uses_both_paths_by_default(profile: str) -> None:
    bulk = f'traffic = {{ kind = "bulk" }}\ntransport = {{ protocol = "mptcp"{profile} }}\n'
    results = flown(PATHS.replace(', loss = { uniform = "2%" }', "") + '[flow.data]\nfrom = "vehicle"\n' + bulk)
    assert results.flows["data"].goodput_bps > 36e6
    assert min(results.flows["data"].share.values()) > 0.4


def test_the_commands_name_causes_and_refused_messages(skybraid: Command, tmp_path: Path) -> None:
    (tmp_path / "flight.toml").write_text(REFUSED, encoding="utf-8")
    ran = skybraid("run", "flight.toml", "--out", "result", "--report")
    assert ran.returncode == 1
    assert "Main cause: " in ran.stdout
    assert "messages were refused at the sender" in ran.stdout
    page = (tmp_path / "result" / "report.html").read_text(encoding="utf-8")
    assert html.escape(ran.stdout.split("Main cause: ")[1].splitlines()[0][1:]) in page
    assert "refused at the sender" in page
    done = skybraid("explain", "result", "--no-runs", "--json")
    (entry,) = json.loads(done.stdout)["flows"]
    (one,) = entry["requirements"]
    assert sum(cause["count"] for cause in one["causes"]) == one["misses"]
    assert one["remedies"] == []
    tried = skybraid("explain", "result", "--runs-for", "1min")
    assert "with `tx_queue = 500`: " in tried.stdout
