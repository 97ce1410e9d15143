"""Networks end to end: groups, pooled and single verdicts, what is shown of routes."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import skybraid
from skybraid import network
from skybraid.cli import app

FLEET = """
duration = "20s"
[node.uav]
kind = "vehicle"
count = 3
[node.cell]
[node.ground]
[link.lte]
from = "uav"
to = "cell"
rate = "5Mbit/s"
delay = "20ms"
[link.backhaul]
from = "cell"
to = "ground"
rate = "5Mbit/s"
delay = "5ms"
[flow.control]
from = "ground"
to = "uav"
traffic = { kind = "cbr", rate = "100kbit/s", packet = "125B" }
transport = { protocol = "udp" }
require = { deadline = "100ms", share = "99%" }
[flow.video]
from = "uav"
to = "ground"
traffic = { kind = "cbr", rate = "1Mbit/s", packet = "1200B" }
transport = { protocol = "tcp" }
"""


def fleet(**changes: object) -> skybraid.Scenario:
    return skybraid.Scenario(FLEET).with_all({key.replace("__", "."): value for key, value in changes.items()})


def test_a_fleet_is_judged_together_and_vehicle_by_vehicle() -> None:
    outage = fleet().with_("event", [{"at": "5s", "link": {"lte.uav-2": {"down": "10s"}}}])
    results = skybraid.run(outage, tables=[])
    control = results.requirements[0]
    members = control.members
    assert members is not None
    # Twenty seconds without a miss prove 81.5 % at most.
    assert (members.met, members.not_met, members.total) == (0, 1, 3)
    assert members.worst == "control.uav-2"
    assert members.worst_estimate == pytest.approx(0.5, abs=0.02)
    assert control.estimate == pytest.approx(1 - 0.5 / 3, abs=0.02)
    flows = results.flows_frame()
    sent = dict(flows.select("flow", "sent").iter_rows())
    assert sent["control"] == sum(sent[f"control.uav-{number}"] for number in (1, 2, 3))


def test_several_seeds_pool_each_member_over_its_runs(tmp_path: Path) -> None:
    lossy = fleet().with_("link.lte.loss", {"uniform": "0.1%"})
    results = skybraid.run(lossy, seeds=[1, 2], tables=[], out=tmp_path / "fleet")
    again = skybraid.Results.open(tmp_path / "fleet")
    assert again.requirements == results.requirements
    assert again.flights[1].members["video.uav-3"].sent > 0
    assert set(again.flights[0].members) == {f"{name}.uav-{n}" for name in ("control", "video") for n in (1, 2, 3)}


def test_what_aircraft_share_they_share() -> None:
    greedy = fleet(flow__video__traffic={"kind": "bulk"}, link__lte__rate="50Mbit/s", duration="60s")
    greedy = greedy.with_("link.backhaul.queue", {"packets": 50})
    results = skybraid.run(greedy, tables=[])
    goodputs = [results.flights[0].members[f"video.uav-{number}"].goodput_bps for number in (1, 2, 3)]
    # Payload is 1448 of 1500 bytes; control takes none of this direction.
    assert sum(goodputs) == pytest.approx(5e6 * 1448 / 1500, rel=0.02)
    assert min(goodputs) > 0.15 * sum(goodputs)


def test_two_hosts_written_out_give_the_tables_of_the_paths() -> None:
    flows = FLEET[FLEET.index("[flow.control]") :].replace('"uav"', '"vehicle"')
    keys = 'rate = "5Mbit/s"\ndelay = { mean = "20ms", sd = "5ms" }\nloss = { uniform = "1%" }\n'
    paths = f'duration = "20s"\n[path.lte]\n{keys}[path.leo]\n{keys}'
    written_out = (
        'duration = "20s"\n[node.vehicle]\n[node.ground]\n'
        f'[link.lte]\nfrom = "vehicle"\nto = "ground"\n{keys}[link.leo]\nfrom = "vehicle"\nto = "ground"\n{keys}'
    )
    flows = flows.replace('protocol = "tcp"', 'protocol = "mptcp"')
    one, other = (skybraid.run(skybraid.Scenario(text + flows), seed=5) for text in (paths, written_out))
    for table in ("messages", "subflows", "links"):
        assert one.tables[table].equals(other.tables[table])
    assert one.flights == other.flights


def test_windows_of_a_proxy_stand_under_its_node() -> None:
    split = fleet(flow__video__proxies=[{"at": "cell", "cache": {"packets": 50}}])
    results = skybraid.run(split, tables=["subflows"])
    sides = set(results.tables["subflows"].filter(flow="video.uav-1")["side"].unique())
    assert sides == {"vehicle", "cell.downstream"}
    assert results.flights[0].members["video.uav-1"].delivered > 0


def test_more_flows_than_a_byte_can_count_keep_their_names() -> None:
    many = fleet(flow__control__connections=100, duration="1s")
    results = skybraid.run(many, tables=["messages"])
    messages = results.tables["messages"]
    assert messages["flow"].n_unique() == 303
    assert messages.filter(flow="control.uav-3.100").height > 0


def test_routes_are_shown_as_a_frame_and_on_the_command_line(tmp_path: Path) -> None:
    ways = network.routes(fleet())
    assert ways.filter(flow="video.uav-2", direction="uplink")["links"].to_list() == [["lte.uav-2", "backhaul"]]
    file = tmp_path / "fleet.toml"
    file.write_text(FLEET, encoding="utf-8")
    shown = CliRunner().invoke(app, ["network", str(file)])
    assert shown.exit_code == 0
    assert "5 nodes: uav × 3, cell, ground" in shown.output
    assert "control: 3 flows, 3 subflows, 2 links, single route" in shown.output
    answer = json.loads(CliRunner().invoke(app, ["network", str(file), "--json", "--flow", "video"]).output)
    assert len(answer["routes"]) == 6
    assert {"link": "backhaul", "from": "cell", "to": "ground"} in answer["links"]


def test_the_emulator_refuses_a_network_plainly() -> None:
    with pytest.raises(skybraid.ScenarioError, match=r"found a network of 5 nodes.* simulated only"):
        skybraid.emulate(fleet(), seed=1)


# Two applications of one host, as pedrazzi2020's mixed hosts have them (PED-C30): they share the host's link and its
# queue, which carries 9.5 Mbit/s of payload in packets of 1500 B, of which 52 to 76 B are headers.
def test_applications_of_one_host_share_its_queue() -> None:
    link = {"from": "terminal", "to": "server", "rate": "10Mbit/s", "delay": "20ms", "queue": {"packets": 50}}
    bulk = {"from": "terminal", "to": "server", "traffic": {"kind": "bulk"}}
    mptcp = {"protocol": "mptcp", "scheduler": "round_robin", "congestion": "lia"}
    tcp = {"protocol": "tcp", "paths": ["a"], "congestion": "reno"}
    mixed = {
        "duration": "10s",
        "node": {"terminal": {"kind": "vehicle"}, "server": {"kind": "ground"}},
        "link": {"a": link, "b": link},
        "flow": {"coupled": {**bulk, "transport": mptcp}, "single": {**bulk, "transport": tcp}},
    }
    flows = skybraid.run(skybraid.Scenario.build(mixed), tables=[]).flows
    coupled, single = flows["coupled"], flows["single"]
    on_a = (coupled.goodput_bps * coupled.share["a"] + single.goodput_bps) / 1e6
    assert 9.0 < on_a < 9.6
    assert min(coupled.goodput_bps * coupled.share["a"], single.goodput_bps) > 1e6
    assert coupled.lost_by_cause["queue"] > 0
    assert single.lost_by_cause["queue"] > 0
