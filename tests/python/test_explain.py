"""`skybraid explain` names the cause where the cause is known."""

import json
from pathlib import Path

import pytest

from conftest import Command
from skybraid import ResultError, Results, Scenario, run
from skybraid.show.explain import FlowExplained, PathUse, explain, text

SCENARIO = """
duration = "10s"

[path.near]
uplink = { rate = "8Mbit/s", delay = "15ms", queue = { packets = 60 } }
downlink = { rate = "8Mbit/s", delay = "15ms" }

[path.far]
uplink = { rate = "8Mbit/s", delay = "80ms", queue = { packets = 60 } }
downlink = { rate = "8Mbit/s", delay = "80ms" }

[flow.data]
from = "vehicle"
traffic = { kind = "bulk" }
transport = { protocol = "mptcp", scheduler = "low_rtt" }
"""

ALL = ["messages", "subflows", "links", "decisions"]
SAMPLED = ["messages", "subflows", "links"]


def flown(tables: list[str], **keys: object) -> Results:
    scenario = Scenario(SCENARIO)
    for key, value in keys.items():
        scenario = scenario.with_(key.replace("__", "."), value)
    return run(scenario, tables=tables)


def explained(tables: list[str], **keys: object) -> FlowExplained:
    (only,) = explain(flown(tables, **keys))
    return only


def path(flow: FlowExplained, name: str) -> PathUse:
    return next(path for path in flow.paths if path.path == name)


@pytest.mark.parametrize("tables", [ALL, SAMPLED, []], ids=["with decisions", "without decisions", "summary alone"])
def test_the_scheduler_single_is_named_for_its_unused_path(tables: list[str]) -> None:
    flow = explained(tables, flow__data__transport__scheduler="single")
    assert path(flow, "near").findings == []
    assert path(flow, "far").findings == [
        "far is unused: the scheduler single sends everything on near and never on another path"
    ]


def test_single_on_the_slower_link_is_named_for_the_aggregate() -> None:
    keys = {"path__far__uplink__rate": "20Mbit/s", "flow__data__transport__scheduler": "single"}
    flow = explained(ALL, **keys)
    assert flow.best_path == "far"
    assert flow.findings[0].endswith("of the 20 Mbit/s that far alone carries")
    assert flow.findings[-1] == "the scheduler single uses near, whose link carries 8 Mbit/s"


def test_a_tiny_receive_buffer_is_named_with_its_blocked_share() -> None:
    flow = explained(ALL, flow__data__transport__receive_buffer="20kB")
    assert flow.goodput_bps < 6e6
    blocked = next(finding for finding in flow.findings if "receive window" in finding)
    assert "blocked data that a path had room for" in blocked
    assert "receive buffer of 20 kB" in blocked
    assert flow.waits is not None
    share = {wait.reason: wait.share_of_time for wait in flow.waits}
    # One buffer per round trip of a path bounds what it carries, so most of the time is waiting.
    assert share["peer's window"] > 0.5
    assert sum(share.values()) <= 1 + 1e-9


def test_a_large_receive_buffer_is_not_named() -> None:
    flow = explained(ALL, flow__data__transport__receive_buffer="6MB")
    assert flow.goodput_bps > 12e6
    assert flow.findings == []
    assert "nothing to explain" in text(flow)


def test_without_decisions_bytes_in_flight_show_the_buffer() -> None:
    flow = explained(SAMPLED, flow__data__transport__receive_buffer="20kB")
    assert any("of the samples what was in flight nearly filled" in finding for finding in flow.findings)
    assert flow.waits is None
    assert any("`decisions` (--decisions)" in words for words in flow.missing)
    assert "to learn more: why the scheduler chose as it did" in text(flow)


@pytest.mark.parametrize("tables", [ALL, SAMPLED])
def test_a_path_that_is_down_is_named(tables: list[str]) -> None:
    flow = explained(tables, path__far__down=[["0s", "10s"]])
    far = path(flow, "far")
    assert far.down == pytest.approx(1)
    assert "far is unused: it was down 100 % of the time" in far.findings
    assert any("subflow never carried data" in finding for finding in far.findings)
    assert flow.findings == []


def test_half_a_flight_of_outage_is_half_the_time_down() -> None:
    flow = explained(ALL, path__near__down=[["5s", "5s"]])
    assert path(flow, "near").down == pytest.approx(0.5, abs=0.011)


def test_a_slow_path_unused_by_low_rtt_has_both_round_trips() -> None:
    keys = {"flow__data__traffic": {"kind": "cbr", "rate": "1Mbit/s", "packet": "1000B"}}
    flow = explained(ALL, **keys)
    findings = path(flow, "far").findings
    assert any(
        "the flow offers 1 Mbit/s, and near alone carries 8 Mbit/s: one path is enough" in finding
        for finding in findings
    )
    assert any("chose near" in finding and "“lowest RTT”" in finding for finding in findings)
    assert flow.findings == []
    near = path(flow, "near")
    assert near.share_of_decisions == pytest.approx(1)
    assert near.chosen_because == {"lowest RTT": 1}


def test_backup_and_priority_are_told() -> None:
    flow = explained(ALL, path__far__backup=True)
    assert any("it is a backup path" in finding for finding in path(flow, "far").findings)


def test_shares_of_decisions_and_packets_agree_without_loss() -> None:
    flow = explained(ALL)
    for one in flow.paths:
        assert one.share_of_decisions == pytest.approx(one.share_of_packets, abs=0.02)
        assert one.carried_bps is not None
        assert one.link_bps == 8e6
    assert sum(one.carried_bps or 0 for one in flow.paths) == pytest.approx(flow.goodput_bps, rel=0.05)


def test_several_seeds_are_explained_together() -> None:
    tables = ["links", "subflows", "decisions"]
    keys = {"flow__data__transport__receive_buffer": "20kB"}
    scenario = Scenario(SCENARIO).with_("flow.data.transport.receive_buffer", "20kB")
    # So rare that it hits nothing, but runs that cannot differ would be flown once.
    rare = scenario.with_("path.near.uplink.loss", {"uniform": "0.0001ppm"})
    (several,) = explain(run(rare, seeds=[1, 2, 3], tables=tables))
    (one,) = explain(flown(tables, **keys))
    assert several.waits is not None
    assert one.waits is not None
    # Nothing is lost here, so three flights are three times the same.
    assert [(wait.reason, wait.waits) for wait in several.waits] == [
        (wait.reason, 3 * wait.waits) for wait in one.waits
    ]
    assert [wait.share_of_time for wait in several.waits] == pytest.approx([wait.share_of_time for wait in one.waits])


def test_tcp_alone_tells_why_it_waits() -> None:
    tcp = {"protocol": "tcp", "paths": ["near"], "receive_buffer": "20kB"}
    flow = explained(ALL, flow__data__transport=tcp)
    assert flow.waits is not None
    assert max(flow.waits, key=lambda wait: wait.share_of_time).reason == "peer's window"
    # RFC 9293 §3.8: no more than the window per round trip; the round trip is at least 30 ms.
    assert flow.goodput_bps <= 20_000 * 8 / 0.030


def test_the_command_prints_words_and_json(skybraid: Command, tmp_path: Path) -> None:
    (tmp_path / "flight.toml").write_text(SCENARIO, encoding="utf-8")
    words = ["run", "flight.toml", "--set", "flow.data.transport.scheduler=single", "--out", "result", "--decisions"]
    assert skybraid(*words, "--quiet").returncode == 0
    done = skybraid("explain", "result")
    assert done.returncode == 0
    assert "far is unused: the scheduler single" in done.stdout
    (entry,) = json.loads(skybraid("explain", "result", "--flow", "data", "--json").stdout)["flows"]
    assert entry["offered_bps"] is None
    assert entry["scheduler"] == "single"
    assert [one["path"] for one in entry["paths"]] == ["near", "far"]
    unknown = skybraid("explain", "result", "--flow", "sound")
    assert unknown.returncode == 2
    assert "found sound, expected data" in unknown.stderr
    assert skybraid("explain", ".").returncode == 2


def test_a_flow_that_is_not_there_is_refused() -> None:
    with pytest.raises(ResultError, match="expected data"):
        explain(flown([]), "sound")
