"""Scenario files from the scenario lines of Chavali 2022, which `lines` parses.

The PEP, ground delays of client and server, and the single-homed server are in `[testbed]`, which the simulator
ignores. The delay between gateway and server is therefore added to the satellite link unless a PEP splits the
connections.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

MEASURED_S = 30
"""Duration of each measurement in s (section 5.1)."""

MEASURED_MBPS = 20.0
"""Rate in Mbit/s of the flow whose goodput the thesis judges, if `-b` is missing."""

ENOUGH_OF_IT = 0.95
"""Required share of the rate: 19 of 20 Mbit/s (section 5.2)."""

SCHEDULERS = {"default": "low_rtt", "roundrobin": "round_robin", "redundant": "redundant", "blest": "blest"}
LETTERS = {"r": "reno", "c": "cubic"}

SPACE_MS = {
    "LEO": ((9.0, 9.0), "Table 5.1"),
    "MEO": ((30.0, 30.0), "assumed, as in the preset meo"),
    "GEO": ((125.0, 125.0), "the testbed's default"),
}
"""One-way delay in ms at gateway and terminal if `-E` is missing, by orbit, with its source."""

GROUND_MS = {"LEO": (10.0, "Table 5.1"), "MEO": (60.0, "the testbed's"), "GEO": (40.0, "the testbed's")}
"""One-way delay in ms between gateway and server, which the testbed adds by orbit."""

LTE_MS = {"uplink": 30.0, "downlink": 10.0}
"""Baseline one-way delay of LTE in ms (Table 5.1)."""

LEO_LOSS_PERCENT = 0.166
"""Loss of the satellite in % if `-L` is missing (Table 5.1: a ratio of 0.00166)."""

CLEAR_SKY_DB = 17.0
"""Es/N0 without attenuation: 20 dB up and 20 dB down (osnd:setup-opensand.sh); `-A` lowers both."""

WAVEFORM_DB = {3: 0.22, 4: 2.34, 5: 4.29, 6: 5.36, 7: 6.68, 8: 8.08, 9: 9.31, 10: 10.82, 11: 11.17, 12: 12.56}
"""Es/N0 that each waveform of a burst of 536 symbols needs (OpenSAND 5.2, table of DVB-RCS2)."""

MODCOD = 1
"""Modulation of the forward link if `-M` is missing (osnd:setup-opensand.sh)."""

_LTE = """\
# LTE: Table 5.1 and, for DRX, section 4; overhead, listening time and repetitions are MoonGen's.
[path.lte]
mtu = "1500B"
uplink.rate = "40Mbit/s"
uplink.delay = "{uplink}"
uplink.overhead = "24B"  # of each frame on the wire
uplink.queue = {{ packets = 350 }}
uplink.loss = {{ uniform = "0.006%" }}  # a ratio of 0.00006; -L is the satellite's alone
uplink.harq = {{ loss = "0.5%", round_trip = "8ms", catch_up = "1Gbit/s" }}  # concealed loss
downlink.rate = "38Mbit/s"
downlink.delay = "{downlink}"
downlink.overhead = "24B"
downlink.queue = {{ packets = 1000 }}
downlink.loss = {{ uniform = "0.006%" }}
downlink.harq = {{ loss = "0.5%", round_trip = "8ms", catch_up = "1Gbit/s" }}
drx.inactivity = "200ms"
drx.short_cycle = "6ms"
drx.short_for = "2298ms"
drx.long_cycle = "12ms"
drx.long_for = "7848ms"
drx.listen = "1ms"
drx.paging_cycle = "50ms"
drx.setup = "70ms"
drx.ramp_from = "5Mbit/s"
drx.ramp_for = "500ms"
"""

_SATELLITE = """\
# Satellite ({orbit}): {source}.
[path.{name}]
mtu = "1500B"
uplink.rate = "19Mbit/s"
uplink.delay = "{delay}"{why}
uplink.queue = {{ packets = 1000 }}  # assumed; the thesis kept OpenSAND's own
{uplink_loss}
downlink.rate = "19Mbit/s"
downlink.delay = "{delay}"
downlink.queue = {{ packets = 1000 }}
{downlink_loss}
"""

_FRAMED = """\
# Satellite ({orbit}): -A and -M act on the frames of the published testbed, see docs/satellite-access.md.
[path.{name}]
preset = "testbed-thesis-satellite"
uplink.access.waveform = {waveform}  # {waveform_why}
downlink.access.modcod = {modcod}  # {modcod_why}
{ends}
"""

_FLOW = """\
[flow.stream]
from = "ground"  # the thesis sends down, server to client, what a vehicle sends up
start = "{start}"  # -P: priming; links here need none, so that time is silent
stop = "{stop}"
traffic = {{ kind = "cbr", rate = "{rate}", packet = "1250B" }}  # -b: the first value
transport = {transport}
require = {{ goodput = "{enough}" }}  # the thesis: more than this in 70 % of its samples of 1 s
"""


def scenario_toml(combination: Mapping[str, Any], line: str, place: str = "a scenario line", file: str = "FILE") -> str:
    """Formats one combination of `expand` as a scenario, with comments on its origin and unsupported options.

    Args:
        combination: combination of `expand`.
        line: text of the scenario line.
        place: position of the line, such as "lines.txt, line 3".
        file: name of the scenario file, for commands.
    """
    one = combination
    paths = _paths(one)
    first, last = one["priming_s"], one["priming_s"] + MEASURED_S
    rate = one["rates_mbps"][0]
    parts = [
        _heading(one, line, place, file),
        f'name = {json.dumps(name_of(one))}\nduration = "{last + 3}s"\nseed = 1\n',
        *(
            _LTE.format(**{way: _ms(delay) for way, delay in LTE_MS.items()})
            if path == "lte"
            else _satellite(one, path)
            for path in paths
        ),
        _FLOW.format(
            start=f"{first}s",
            stop=f"{last}s",
            rate=_mbps(rate),
            enough=_mbps(rate * ENOUGH_OF_IT),
            transport=_transport(one, paths),
        ),
        _testbed(one),
    ]
    return "\n".join([parts[0], *map(_aligned, parts[1:])])


def _split(one: Mapping[str, Any]) -> bool:
    """Whether a PEP splits the connections. It is on both sides of the satellite; MPTCP cannot pass it."""
    return one["route"] == "SAT" and "pep" not in one["off"]


def _satellite_ms(one: Mapping[str, Any]) -> tuple[float, float, float]:
    """Returns the one-way delays in ms at gateway, at terminal, and between gateway and server."""
    gateway, terminal = one["space_delays_ms"] or SPACE_MS[one["orbit"]][0]
    return gateway, terminal, GROUND_MS[one["orbit"]][0]


def _path_ms(one: Mapping[str, Any]) -> dict[tuple[str, str], float]:
    """Returns the one-way delay in ms of each path and direction, without the parts in `[testbed]`."""
    satellite = one["orbit"].lower()
    space_ms = sum(_satellite_ms(one)[: 2 if _split(one) else 3])
    known = {("lte", way): delay for way, delay in LTE_MS.items()}
    # Frames have their own delays.
    known |= {(satellite, way): 0.0 if _framed(one) else space_ms for way in LTE_MS}
    return {place: delay for place, delay in known.items() if place[0] in _paths(one)}


def _framed(one: Mapping[str, Any]) -> bool:
    """Whether the satellite link has frames, to whose coding `-A` and `-M` apply."""
    return one["route"] != "LTE" and (one["attenuation_db"] > 0 or one["modulation"] is not None)


def _paths(one: Mapping[str, Any]) -> list[str]:
    satellite = one["orbit"].lower()
    return {"LTE": ["lte"], "SAT": [satellite], "MP": ["lte", satellite]}[one["route"]]


def _around_ms(one: Mapping[str, Any], path: str) -> dict[str, float]:
    """Returns the one-way delays in `[testbed]` in ms of a packet on a path, by key, without zeros."""
    to_satellite, to_lte, server = one["ground_delays_ms"]
    found = {
        f"path.{path}.vehicle_delay": to_lte if path == "lte" else to_satellite,
        f"path.{path}.ground_delay": _satellite_ms(one)[2] if _split(one) else 0.0,
        "server.delay": server,
    }
    return {key: delay for key, delay in found.items() if delay}


def _testbed(one: Mapping[str, Any]) -> str:
    """Returns the table `[testbed]`: the server, ground delays, proxies."""
    delays = {key: delay for path in _paths(one) for key, delay in _around_ms(one, path).items()}
    server_ms = delays.pop("server.delay", 0.0)
    whose = GROUND_MS[one["orbit"]][1]
    why = {"vehicle_delay": "-g: the client's", "ground_delay": f"from the gateway on ({whose}), behind its proxy"}
    lines = [
        "# Around the paths, in the emulator alone.",
        "[testbed]",
        f'server.delay = "{_ms(server_ms)}"  # -g: the server\'s'
        if server_ms
        else "server = {}  # one address, behind a gateway at which the paths end",
        *(f'{key} = "{_ms(delay)}"  # {why[key.rpartition(".")[2]]}' for key, delay in delays.items()),
    ]
    if _split(one):
        _, gateway, terminal, _ = (LETTERS[letter] for letter in one["end_congestion"])
        path = f"path.{one['orbit'].lower()}"
        lines += [
            f'{path}.proxy.vehicle = {{ congestion = "{terminal}" }}  # PEP at the terminal: the third letter of -C',
            f'{path}.proxy.ground = {{ congestion = "{gateway}" }}  # PEP at the gateway: the second',
        ]
    return "\n".join(lines) + "\n"


def _satellite(one: Mapping[str, Any], name: str) -> str:
    orbit = one["orbit"]
    gateway_ms, terminal_ms, ground_ms = _satellite_ms(one)
    whose = SPACE_MS[orbit][1] if one["space_delays_ms"] is None else "-E"
    why = f"{gateway_ms:g} + {terminal_ms:g} ms at gateway and terminal ({whose})"
    if not _split(one):
        why += f", {ground_ms:g} ms from the gateway on ({GROUND_MS[orbit][1]})"
    loss = one["loss_percent"]
    if loss is not None:
        loss_why = "-L, in percent"
    elif orbit == "LEO":
        loss, loss_why = LEO_LOSS_PERCENT, "Table 5.1; -L not given, where the testbed itself takes 0"
    else:
        loss, loss_why = 0.0, "-L not given: the testbed's default"
    if _framed(one):
        return _frames(one, name, loss, loss_why)
    text = f'loss = {{ uniform = "{loss:.10g}%" }}' if loss else "loss = []"
    return _SATELLITE.format(
        orbit=orbit,
        source="Table 5.1" if orbit == "LEO" else "Table 5.1 has LEO alone, whose rate is taken",
        name=name,
        delay=_ms(_path_ms(one)[name, "uplink"]),
        why=f"  # {why}",
        uplink_loss=f"uplink.{text}  # {loss_why}",
        downlink_loss=f"downlink.{text}",
    )


def _frames(one: Mapping[str, Any], name: str, loss: float, loss_why: str) -> str:
    gateway_ms, terminal_ms, ground_ms = _satellite_ms(one)
    es_n0_db = CLEAR_SKY_DB - one["attenuation_db"]
    fitting = [waveform for waveform, needed_db in WAVEFORM_DB.items() if needed_db <= es_n0_db]
    ends = {
        "terminal_delay": (_ms(terminal_ms), "-E" if one["space_delays_ms"] else SPACE_MS[one["orbit"]][1]),
        "gateway_delay": (_ms(gateway_ms), "as the terminal's"),
        "ground": (_ms(0.0 if _split(one) else ground_ms), GROUND_MS[one["orbit"]][1]),
        "frame_loss": (f"{loss:.10g}%", f"of each frame or burst; {loss_why}"),
    }
    return _FRAMED.format(
        orbit=one["orbit"],
        name=name,
        waveform=max(fitting, default=min(WAVEFORM_DB)),
        waveform_why=f"-A {one['attenuation_db']:g}: of Es/N0 {es_n0_db:g} dB",
        modcod=one["modulation"] or MODCOD,
        modcod_why="-M" if one["modulation"] else "-M not given",
        ends="\n".join(
            f'{way}.access.{key} = "{value}"  # {why}' for way in LTE_MS for key, (value, why) in ends.items()
        ),
    )


def _transport(one: Mapping[str, Any], paths: list[str]) -> str:
    window = f"initial_window = {one['initial_windows'][0]}"
    if one["route"] != "MP":
        congestion = LETTERS[one["end_congestion"][0]]
        head = f'profile = "linux", protocol = "tcp", paths = {json.dumps(paths)}'
        return f'{{ {head}, congestion = "{congestion}", {window} }}'
    # The path manager `default` of that MPTCP opens only the first subflow.
    used = paths[:1] if one["path_manager"] == "default" else paths
    manager = "{ ports = 2 }" if one["path_manager"] == "ndiffports" else '"full_mesh"'
    algorithms = f'scheduler = "{SCHEDULERS[one["scheduler"]]}", congestion = "{one["congestion"]}"'
    head = f'profile = "linux", protocol = "mptcp", paths = {json.dumps(used)}'
    return f"{{ {head}, {algorithms}, path_manager = {manager}, {window} }}"


def _heading(one: Mapping[str, Any], line: str, place: str, file: str) -> str:
    """Returns a comment with the scenario's origin, its commands, further measurements of its line, and omissions."""
    runs = one["runs"]
    lines = [
        f"From {place}, of Chavali 2022:",
        f"  {line.strip()}",
        f"-N {runs}: skybraid run {file}" + (f" --seeds 1..{runs}" if runs > 1 else ""),
        f"In real time, with what stands around the paths: skybraid emulate {file}",
        *_left_out(one, file),
    ]
    if one["dumped_packets"]:
        lines.append(
            f"-D {one['dumped_packets']}: skybraid run --pcap captures; every packet, not the first ones alone"
        )
    if probes := _probes(one):
        lines += [
            "",
            "What the line measures besides, each as COMMAND in",
            f"  skybraid emulate {file} --ground 'skybraid probe serve' --vehicle 'COMMAND':",
        ]
        lines += [f"  skybraid probe {probe}" for probe in probes]
    if lacking := _lacking(one):
        lines += ["", "Without counterpart:", *(f"  {words}" for words in lacking)]
    return "".join(f"# {words}".rstrip() + "\n" for words in lines)


def _left_out(one: Mapping[str, Any], file: str) -> list[str]:
    """Returns a comment on simulating without `[testbed]`, and on how to keep its delays."""
    around_ms = {path: sum(_around_ms(one, path).values()) for path in _paths(one)}
    if not any(around_ms.values()):
        return ["skybraid run leaves [testbed] out, which has no delay: all of it is the paths'."]
    flown = "what is between the proxies" if _split(one) else "the paths alone"
    words = [
        f"--set path.{path}.{way}.delay={_ms(delay + around_ms[path])}"
        for (path, way), delay in _path_ms(one).items()
        if around_ms[path]
    ]
    return [
        f"skybraid run leaves [testbed] out: it runs {flown}. With all delays and no proxy:",
        f"  skybraid run {file} {' '.join(words)}",
    ]


def _probes(one: Mapping[str, Any]) -> list[str]:
    off, several = one["off"], one["route"] == "MP"
    mptcp = " --mptcp" if several else ""
    web = not several and "http" not in off
    found = {
        "ping $SKYBRAID_GROUND": "ping" not in off,
        f"connect $SKYBRAID_GROUND{mptcp} --runs {one['timing_runs']}": "tcp" not in off and one["timing_runs"] > 0,
        f"http http://$SKYBRAID_GROUND:8080/ --runs {one['runs']}": web and "tcp" not in off,
        f"http3 https://$SKYBRAID_GROUND:8081/ --runs {one['runs']}": web and "quic" not in off,
        f"quic-bulk $SKYBRAID_GROUND --for {MEASURED_S}s --runs {one['runs']}": not several and "quic" not in off,
    }
    return [probe for probe, wanted in found.items() if wanted]


def _lacking(one: Mapping[str, Any]) -> list[str]:
    off, given, several = one["off"], one["given"], one["route"] == "MP"
    split = _split(one)
    letters, first = one["end_congestion"], one["initial_windows"][0]
    found = {
        "PEP (no -W): MPTCP falls back to TCP at a proxy, which does not answer as MPTCP; none is placed": several
        and "pep" not in off,
        "no -V: the testbed measures without PEP too; the same line with -W is that": split and "plain" not in off,
        "-V: without PEP nothing would be left, so this is the plain measurement": not split and "plain" in off,
        "-Z: a scenario is judged by a flow, so TCP is measured all the same": "tcp" in off,
        f"-C {letters}: the client, the fourth, only acknowledges": split and letters[3] != letters[0],
        f"-C {letters}: the sender's counts, the first; gateway and terminal are the PEP's": not (several or split)
        and len(set(letters)) > 1,
        f"-p {one['path_manager']}: full_mesh stands for it": several and one["path_manager"] in ("binder", "netlink"),
        f"-b: {_mbps(one['rates_mbps'][1])} the other way, of newer versions; the thesis judges one flow": "b" in given,
        "-I: of four windows the sender's, the first": len(set(one["initial_windows"])) > 1,
        f"-I {first}: the kernel's TCP begins with 10, so Skybraid's own would carry the flow past the proxies; "
        "they split TCP of programs alone": split and first != 10,
        "-B -F -Q -U -l: of qperf, an implementation of QUIC": any(letter in given for letter in "BFQUl"),
    }
    return [words for words, lacks in found.items() if lacks]


def _aligned(text: str) -> str:
    """Aligns the comments after keys in one column, if they fit."""
    return re.sub(r"(?m)^([^#\n]+?)  # ", lambda match: f"{match[1]:<40}  # ", text)


def _ms(delay: float) -> str:
    return f"{delay:.6g}ms"


def _mbps(rate: float) -> str:
    return f"{rate:.9g}Mbit/s"


def name_of(combination: Mapping[str, Any]) -> str:
    """Returns a file name from the options of a combination: route, orbit, algorithms, and other given options."""
    one = combination
    words = [one["route"], one["orbit"]]
    words += [one["scheduler"], one["congestion"]] if one["route"] == "MP" else [one["end_congestion"]]
    tokens = {
        "A": one["attenuation_db"],
        "E": one["space_delays_ms"],
        "L": one["loss_percent"],
        "b": one["rates_mbps"],
        "g": one["ground_delays_ms"],
        "I": one["initial_windows"],
        "M": one["modulation"],
        "p": one["path_manager"],
        "P": one["priming_s"],
    }
    words += [f"{letter}{_token(value)}" for letter, value in tokens.items() if letter in one["given"]]
    return "-".join(words).lower()


def _token(value: object) -> str:
    if isinstance(value, tuple):
        return "+".join(_token(part) for part in value)
    return f"{value:g}" if isinstance(value, int | float) else str(value)
