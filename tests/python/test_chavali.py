"""Scenario lines of the testbed of Chavali 2022, against the thesis and its repository's README."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from conftest import Command
from marks import needs_emulator
from skybraid import Results, Scenario, Verdict, run
from skybraid.execute import control
from skybraid_studies.chavali2022.lines import LineError, expand, read_lines
from skybraid_studies.chavali2022.lines_toml import name_of, scenario_toml

# Source: Chavali 2022, Listing 4.1.
LISTING = """\
-N 1 -O LEO -r LTE -c cccc
-N 5 -O LEO -E 10,10 -r SAT -c rrrr
-N 10 -O LEO -E 10,10 -L 0.001 -r MP -S default -c lia -H -W -Y
"""


def one(line: str) -> dict[str, Any]:
    (found,) = expand(line)
    return found


def written(line: str) -> dict[str, Any]:
    return tomllib.loads(scenario_toml(one(line), line))


def test_the_listings_first_line_is_a_single_path_over_lte_with_cubic() -> None:
    found = written(LISTING.splitlines()[0])
    assert found["path"].keys() == {"lte"}
    assert found["flow"]["stream"]["transport"]["protocol"] == "tcp"
    assert found["flow"]["stream"]["transport"]["congestion"] == "cubic"


def test_the_listings_second_line_is_a_satellite_with_ground_delays() -> None:
    found = written(LISTING.splitlines()[1])
    assert found["path"].keys() == {"leo"}
    assert found["path"]["leo"]["uplink"]["delay"] == "20ms"
    assert found["path"]["leo"]["downlink"]["delay"] == "20ms"
    assert found["testbed"]["path"]["leo"]["ground_delay"] == "10ms"
    assert found["flow"]["stream"]["transport"]["congestion"] == "reno"


def test_the_listings_third_line_is_multipath_with_loss_in_percent() -> None:
    # CHV-C23: `-L` is in percent, the table's loss a ratio.
    found = written(LISTING.splitlines()[2])
    assert list(found["path"]) == ["lte", "leo"]
    assert found["path"]["leo"]["downlink"]["loss"] == {"uniform": "0.001%"}
    transport = found["flow"]["stream"]["transport"]
    assert (transport["protocol"], transport["scheduler"], transport["congestion"]) == ("mptcp", "low_rtt", "lia")
    assert transport["path_manager"] == "full_mesh"


def test_four_letters_behind_the_small_c_are_those_of_the_large_one() -> None:
    # CHV-C24: the listing gives them to -c, which names the congestion control of MPTCP.
    assert one("-r SAT -c ccrr")["end_congestion"] == "ccrr"
    assert one("-r MP -c cccc")["congestion"] == "cubic"
    with pytest.raises(LineError, match="-c: found lia,cccc, expected either names or four letters"):
        expand("-c lia,cccc")


def test_the_links_are_those_of_table_5_1() -> None:
    # Source: Chavali 2022, Table 5.1.
    paths = written("-O LEO -r MP")["path"]
    lte, leo = paths["lte"], paths["leo"]
    assert (lte["downlink"]["rate"], lte["uplink"]["rate"]) == ("38Mbit/s", "40Mbit/s")
    assert (lte["downlink"]["delay"], lte["uplink"]["delay"]) == ("10ms", "30ms")
    assert (lte["downlink"]["queue"], lte["uplink"]["queue"]) == ({"packets": 1000}, {"packets": 350})
    for way in ("uplink", "downlink"):
        assert lte[way]["loss"] == {"uniform": f"{100 * 0.00006:.3f}%"}
        assert lte[way]["harq"]["loss"] == "0.5%"
        assert leo[way]["rate"] == "19Mbit/s"
        assert leo[way]["delay"] == f"{9 + 9 + 10}ms"
        assert leo[way]["loss"] == {"uniform": f"{100 * 0.00166:.3f}%"}


def test_drx_sleeps_as_the_thesis_says() -> None:
    # Source: Chavali 2022, section 4.2.1.
    drx = written("-r LTE")["path"]["lte"]["drx"]
    assert (drx["inactivity"], drx["short_cycle"], drx["short_for"]) == ("200ms", "6ms", "2298ms")
    assert (drx["long_cycle"], drx["long_for"], drx["paging_cycle"]) == ("12ms", "7848ms", "50ms")
    assert (drx["setup"], drx["ramp_from"], drx["ramp_for"]) == ("70ms", "5Mbit/s", "500ms")


def test_thirty_seconds_of_20_mbit_s_follow_the_priming() -> None:
    flow = written("-P 7")["flow"]["stream"]
    assert (flow["from"], flow["start"], flow["stop"]) == ("ground", "7s", "37s")
    assert flow["traffic"]["rate"] == "20Mbit/s"
    assert flow["require"] == {"goodput": "19Mbit/s"}


def test_what_a_line_leaves_out_is_the_testbeds_default() -> None:
    # Source: README of KaushikChavali/cellular-satcom-emulator, table of parameters.
    found = one("")
    expected: dict[str, Any] = {
        "orbit": "GEO",
        "route": "LTE",
        "scheduler": "default",
        "congestion": "lia",
        "end_congestion": "rrrr",
    }
    expected |= {"path_manager": "fullmesh", "attenuation_db": 0, "runs": 1, "timing_runs": 4, "priming_s": 5}
    expected |= {"rates_mbps": (20, 5), "ground_delays_ms": (0, 0, 0), "initial_windows": (10, 10, 10, 10)}
    expected |= {"dumped_packets": 0, "off": frozenset(), "given": ""}
    assert {name: found[name] for name in expected} == expected
    # Its -E is 125,125 by default, and it adds 40 ms for the ground.
    assert written("-r SAT -W")["path"]["geo"]["uplink"]["delay"] == "290ms"


def test_every_combination_of_the_lists_is_one() -> None:
    found = expand(
        "-O LEO,GEO -r MP -S default,roundrobin,redundant,blest -c lia,olia,balia,wVegas,reno,cubic -L 0,0.1"
    )
    assert len(found) == 2 * 4 * 6 * 2
    assert len({name_of(line) for line in found}) == len(found)


def test_values_that_are_lists_have_alternatives_by_repetition() -> None:
    found = expand("-E 9,9 -E 10,12 -I 10,10,10,10 -I 2,2,2,2")
    assert [(line["space_delays_ms"], line["initial_windows"][0]) for line in found] == [
        ((9, 9), 10),
        ((9, 9), 2),
        ((10, 12), 10),
        ((10, 12), 2),
    ]


# Source: setup-opensand.sh of the testbed: 20 dB up and down, 17 dB together, less the attenuation; waveforms 12 and 10
# need 12.56 and 10.82 dB. The forward link has one MODCOD, 1 unless -M says another.
def test_attenuation_and_modulation_act_on_the_coding_of_frames() -> None:
    weather = written("-O LEO -r SAT -W -A 6 -E 9,11")["path"]["leo"]
    clear = written("-O LEO -r SAT -W -M 13")["path"]["leo"]
    assert (weather["uplink"]["access"]["waveform"], weather["downlink"]["access"]["modcod"]) == (10, 1)
    assert (clear["uplink"]["access"]["waveform"], clear["downlink"]["access"]["modcod"]) == (12, 13)
    ends = {"terminal_delay": "11ms", "gateway_delay": "9ms", "ground": "10ms", "frame_loss": "0.166%"}
    assert {key: weather["uplink"]["access"][key] for key in ends} == ends
    assert "access" not in written("-O LEO -r SAT -W -A 0")["path"]["leo"]["uplink"]
    # Behind the gateway's proxy the ground is the testbed's.
    split = written("-O LEO -r SAT -A 6")
    assert split["path"]["leo"]["uplink"]["access"]["ground"] == "0ms"
    assert split["testbed"]["path"]["leo"]["ground_delay"] == "10ms"


# Source: Chavali 2022, figures 4.9 and 4.10; README of the testbed, options -C, -W and -g.
def test_a_pep_splits_tcp_on_both_sides_of_the_satellite() -> None:
    testbed = written("-O LEO -r SAT -C rccr")["testbed"]
    cubic = {"congestion": "cubic"}
    assert testbed["path"]["leo"]["proxy"] == {"vehicle": cubic, "ground": cubic}
    testbed = written("-O LEO -r SAT -C crcr")["testbed"]
    assert testbed["path"]["leo"]["proxy"] == {"vehicle": cubic, "ground": {"congestion": "reno"}}


@pytest.mark.parametrize("line", ["-O LEO -r SAT -W", "-O LEO -r LTE", "-O LEO -r MP"])
def test_no_pep_is_on_other_routes_before_mptcp_or_switched_off(line: str) -> None:
    assert written(line)["testbed"] == {"server": {}}


def test_the_gateways_ground_delay_is_the_paths_without_a_proxy() -> None:
    split, whole = written("-O LEO -r SAT"), written("-O LEO -r SAT -W")
    assert split["path"]["leo"]["downlink"]["delay"] == "18ms"
    assert split["testbed"]["path"]["leo"]["ground_delay"] == "10ms"
    assert whole["path"]["leo"]["downlink"]["delay"] == "28ms"


def test_ground_delays_surround_their_path_and_end_at_the_server() -> None:
    found = written("-O LEO -r MP -g 1,2,4")
    assert found["testbed"] == {
        "server": {"delay": "4ms"},
        "path": {"lte": {"vehicle_delay": "2ms"}, "leo": {"vehicle_delay": "1ms"}},
    }
    assert found["path"]["leo"]["uplink"]["delay"] == "28ms"
    assert (found["path"]["lte"]["uplink"]["delay"], found["path"]["lte"]["downlink"]["delay"]) == ("30ms", "10ms")


@pytest.mark.parametrize(
    ("line", "delays"),
    [
        ("-O LEO -r MP -g 1,2,4", {"lte": ("36ms", "16ms"), "leo": ("33ms", "33ms")}),
        ("-O LEO -r MP -g 1,0,0", {"leo": ("29ms", "29ms")}),
        ("-O LEO -r SAT -g 1,2,4", {"leo": ("33ms", "33ms")}),
        ("-O MEO -r SAT", {"meo": ("120ms", "120ms")}),
        ("-O LEO -r MP", {}),
    ],
)
def test_a_scenario_says_how_to_simulate_delays_it_leaves_out(line: str, delays: dict[str, tuple[str, str]]) -> None:
    text = scenario_toml(one(line), line)
    assert "skybraid run leaves [testbed] out" in text
    found = re.findall(r"--set (\S+)=(\S+)", text)
    ways = ("uplink", "downlink")
    expected = [(f"path.{path}.{way}.delay", both[at]) for path, both in delays.items() for at, way in enumerate(ways)]
    assert found == expected
    whole = tomllib.loads(Scenario(text, "line", found).toml())
    for path, (up, down) in delays.items():
        assert (whole["path"][path]["uplink"]["delay"], whole["path"][path]["downlink"]["delay"]) == (up, down)


@pytest.mark.parametrize(
    ("given", "ours"),
    [("default", "low_rtt"), ("roundrobin", "round_robin"), ("redundant", "redundant"), ("blest", "blest")],
)
def test_schedulers_have_our_names(given: str, ours: str) -> None:
    assert written(f"-r MP -S {given}")["flow"]["stream"]["transport"]["scheduler"] == ours


@pytest.mark.parametrize(
    ("given", "paths", "manager"),
    [
        ("fullmesh", ["lte", "leo"], "full_mesh"),
        ("ndiffports", ["lte", "leo"], {"ports": 2}),
        ("default", ["lte"], "full_mesh"),
        ("binder", ["lte", "leo"], "full_mesh"),
    ],
)
def test_path_managers_have_their_counterparts(given: str, paths: list[str], manager: object) -> None:
    transport = written(f"-O LEO -r MP -p {given}")["flow"]["stream"]["transport"]
    assert (transport["paths"], transport["path_manager"]) == (paths, manager)


def test_the_servers_letter_and_window_count_as_it_sends() -> None:
    transport = written("-r SAT -C crrr -I 4,10,10,10")["flow"]["stream"]["transport"]
    assert (transport["congestion"], transport["initial_window"]) == ("cubic", 4)


def test_a_lossless_campaign_has_no_loss_on_the_satellite() -> None:
    assert written("-O LEO -r SAT -L 0")["path"]["leo"]["downlink"]["loss"] == []


@pytest.mark.parametrize(
    "line", [*LISTING.splitlines(), "-HWYXZVRdo", "-O MEO -r SAT -b 10M,1M -D 100 -M 1 -Q 1M,2M,3M,4M"]
)
def test_a_scenario_says_which_line_it_came_from_and_loads(line: str, tmp_path: Path) -> None:
    for name, text in read_lines(f"# a comment\n\n{line}\n", "lines.txt").items():
        assert text.startswith(f"# From lines.txt, line 3, of Chavali 2022:\n#   {line}\n")
        (tmp_path / name).write_text(text, encoding="utf-8")
        assert Scenario.load(tmp_path / name).flows == ["stream"]


def test_what_has_no_counterpart_is_said() -> None:
    def comments(line: str) -> str:
        return scenario_toml(one(line), line).split("\nname = ")[0]

    assert "PEP (no -W)" in comments("-r MP")
    assert "PEP (no -W)" not in comments("-r SAT")
    assert "without PEP too" in comments("-r SAT")
    assert "PEP" not in comments("-r SAT -V")
    assert "PEP" not in comments("-r SAT -W")
    assert "PEP" not in comments("-r LTE")
    assert "-I 4" in comments("-r SAT -I 4")
    assert "-C cccr" in comments("-r SAT -C cccr")
    assert "-p binder" in comments("-r MP -p binder")
    assert "-Z" in comments("-Z")
    assert "--seeds 1..10" in comments("-N 10")
    assert "--pcap" in comments("-D 100")


def test_what_a_line_measures_besides_has_its_probe() -> None:
    # The testbed measures neither HTTP nor QUIC over several paths.
    def probes(line: str) -> list[str]:
        return re.findall(r"^#   skybraid probe (\S+)", scenario_toml(one(line), line), re.MULTILINE)

    assert probes("-r SAT") == ["ping", "connect", "http", "http3", "quic-bulk"]
    assert probes("-r MP") == ["ping", "connect"]
    assert probes("-r SAT -H -Y -X") == ["connect"]
    assert probes("-r SAT -Z -Y") == ["ping"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("-N 1 -K 3", "-K: found an unknown option, expected one of -A -B -b"),
        ("-O HEO", "-O: found HEO, expected one of LEO, MEO, GEO"),
        ("-S blst", "-S: found blst, expected one of default, roundrobin, redundant, blest"),
        ("-c bbr", "-c: found bbr, expected one of lia, olia, balia, wvegas, reno, cubic"),
        ("-C rrr", "-C: found rrr, expected four letters"),
        ("-E 1,2,3", "-E: found 1,2,3, expected 2 values"),
        ("-E 0;10,20", "-E: found 0;10, expected ms"),
        ("-A 18", "-A: found 18, expected at most 17 dB"),
        ("-M 29", "-M: found 29, expected a MODCOD of DVB-S2, 1 to 28"),
        ("-L 101", "-L: found 101, expected at most 100"),
        ("-L -1", "-L: found -1, expected a loss in percent"),
        ("-g 1,2", "-g: found 1,2, expected 3 values"),
        ("-b 20,M", "-b: found M, expected a rate"),
        ("-I 0", "-I: found 0, expected a whole number above zero"),
        ("-N", "-N: found nothing, expected a whole number"),
        ("-N 1 -N 2", "-N: found it twice"),
        ("LEO", "found LEO, expected an option"),
        ("-O 'LEO", "No closing quotation"),
    ],
)
def test_a_wrong_line_is_refused_with_place_found_and_expected(line: str, message: str) -> None:
    with pytest.raises(LineError) as caught:
        read_lines(f"\n{line}\n", "lines.txt")
    assert str(caught.value).startswith("lines.txt, line 2: ")
    assert message in str(caught.value)


def test_a_line_that_makes_no_scenario_is_refused() -> None:
    with pytest.raises(LineError, match=r"lines.txt, line 1: .*duration"):
        read_lines("-P 99999999999999999999", "lines.txt")


def test_the_command_writes_a_folder_of_scenarios(skybraid: Command, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text(LISTING, encoding="utf-8")
    done = skybraid("import-lines", "lines.txt", "--out", "new")
    assert (done.returncode, done.stderr) == (0, "")
    names = ["lte-leo-cccc.toml", "sat-leo-rrrr-e10+10.toml", "mp-leo-default-lia-e10+10-l0.001.toml"]
    assert done.stdout.splitlines() == [str(Path("new") / name) for name in names]
    for name in names:
        Scenario.load(tmp_path / "new" / name)
    again = skybraid("import-lines", "lines.txt", "--out", "new")
    assert again.returncode == 2
    assert "found files in it" in again.stderr


def test_a_command_with_a_wrong_line_writes_nothing(skybraid: Command, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text(LISTING + "-O SUN\n", encoding="utf-8")
    done = skybraid("import-lines", "lines.txt", "--out", "new")
    assert done.returncode == 2
    assert done.stderr == "error: lines.txt, line 4: -O: found SUN, expected one of LEO, MEO, GEO\n"
    assert not (tmp_path / "new").exists()


def test_lte_alone_carries_the_flow_and_the_satellite_does_not() -> None:
    # Source: Chavali 2022, Figure 5.7, single paths with loss: LTE keeps 20 Mbit/s, the satellite falls short.
    scenarios = read_lines("-O LEO -r LTE,SAT -C rrrr,cccc", "lines.txt")
    for name, text in scenarios.items():
        (requirement,) = run(Scenario(text), seeds=range(1, 11), tables=[]).requirements
        assert requirement.verdict is (Verdict.MET if name.startswith("lte") else Verdict.NOT_MET), name


@needs_emulator
@pytest.mark.parametrize(
    ("line", "stack", "proxies"),
    [
        ("-O LEO -r SAT -C rcrc", "kernel tcp reno", {"leo-vp", "leo-gp"}),
        ("-O LEO -r MP -S blest -c balia", "skybraid mptcp", set()),
    ],
)
def test_a_line_is_flown_in_real_time_too(
    skybraid_process: Command,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    line: str,
    stack: str,
    proxies: set[str],
) -> None:
    # A socket's path has at most 107 bytes.
    monkeypatch.setenv(control.FOLDER, str(tmp_path_factory.mktemp("c")))
    ((name, text),) = read_lines(line, "lines.txt").items()
    (tmp_path / name).write_text(text, encoding="utf-8")
    shorter = {"duration": "2s", "flow.stream.start": "0s", "flow.stream.stop": "1500ms"}
    words = [word for key, value in shorter.items() for word in ("--set", f"{key}={value}")]
    done = skybraid_process("emulate", name, *words, "--out", "result")
    assert done.returncode in (0, 1), done.stderr
    results = Results.open(tmp_path / "result")
    emulation = results.flights[0].emulation or {}
    assert emulation["stacks"] == {"stream": stack}
    assert emulation["proxies"].keys() == proxies
    # All that arrived came through each proxy, from the server to the client.
    arrived = results.flows["stream"].delivered * 1250
    assert arrived > 100_000
    for proxy in emulation["proxies"].values():
        assert (proxy["opened"], proxy["failed"]) == (1, 0)
        assert max(proxy["to_client_bytes"], proxy["to_server_bytes"]) >= arrived
