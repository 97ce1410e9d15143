"""Scenario lines of the testbed of Chavali 2022, as scenarios.

A line such as `-N 10 -O LEO -E 10,10 -L 0.001 -r MP -S blest -c balia` describes measurements over an
emulated LTE and satellite link. `expand` reads it, with every combination of its lists; `scenario_toml`
writes one combination as a scenario; the command is `skybraid import-lines`. Option letters, their lists
and defaults are those of the testbed (KaushikChavali/cellular-satcom-emulator, README); links are those
of the thesis, Table 5.1. `docs/chavali.md` describes both.
"""

import itertools
import json
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from skybraid._core import ScenarioError, SkybraidError
from skybraid.folder import new_folder
from skybraid.scenario import Scenario

MEASURED_S = 30
"""How long each measurement lasts (section 5.1)."""

MEASURED_MBPS = 20.0
"""Rate of the flow whose goodput the thesis judges, and `-b` left out."""

ENOUGH_OF_IT = 0.95
"""Share of the rate that has to arrive: 19 of 20 Mbit/s (section 5.2)."""

ORBITS = ("LEO", "MEO", "GEO")
ROUTES = ("LTE", "SAT", "MP")
SCHEDULERS = {"default": "low_rtt", "roundrobin": "round_robin", "redundant": "redundant", "blest": "blest"}
CONGESTION = ("lia", "olia", "balia", "wvegas", "reno", "cubic")
LETTERS = {"r": "reno", "c": "cubic"}
PATH_MANAGERS = ("default", "fullmesh", "ndiffports", "binder", "netlink")


class LineError(SkybraidError):
    """A scenario line is not one; says which line and option, what was found and what was expected."""


def _bad(option: str, found: str, expected: str) -> LineError:
    return LineError(f"-{option}: found {found or 'nothing'}, expected {expected}")


def _whole(option: str, text: str) -> int:
    if not text.isdecimal():
        raise _bad(option, text, "a whole number")
    return int(text)


def _count(option: str, text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise _bad(option, text, "a whole number above zero")
    return int(text)


def _number(option: str, text: str, what: str = "a number") -> float:
    if not re.fullmatch(r"\d+(\.\d+)?", text):
        raise _bad(option, text, what)
    return float(text)


def _percent(option: str, text: str) -> float:
    share = _number(option, text, "a loss in percent")
    if share > 100:
        raise _bad(option, text, "at most 100 (percent)")
    return share


def _choice(known: tuple[str, ...]) -> Callable[[str, str], str]:
    def read(option: str, text: str) -> str:
        by_lower = {name.lower(): name for name in known}
        if text.lower() not in by_lower:
            raise _bad(option, text, f"one of {', '.join(known)}")
        return by_lower[text.lower()]

    return read


def _letters(option: str, text: str) -> str:
    if not re.fullmatch("[rcRC]{4}", text):
        raise _bad(option, text, "four letters r or c: server, gateway, terminal, client")
    return text.lower()


def _congestion(option: str, text: str) -> str:
    # The thesis's own listing gives the four letters of -C to -c.
    return _letters(option, text) if re.fullmatch("[rcRC]{4}", text) else _choice(CONGESTION)(option, text)


def _several(
    count: int, what: str, one: Callable[[str, str], float], *, alone: bool = False
) -> Callable[[str, str], tuple[float, ...]]:
    """Reads `count` values between commas; with `alone`, one value stands for all."""

    def read(option: str, text: str) -> tuple[float, ...]:
        parts = text.split(",")
        if alone and len(parts) == 1:
            parts *= count
        if len(parts) != count:
            raise _bad(option, text, f"{count} values: {what}")
        return tuple(one(option, part) for part in parts)

    return read


def _delay_ms(option: str, text: str) -> float:
    expected = 'ms; a delay that changes has its place in the scenario: delay = { steps = [["0s", "9ms"], …] }'
    return _number(option, text, expected)


def _rate_mbps(option: str, text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kKmMgG]?)", text)
    if match is None or float(match[1]) == 0:
        raise _bad(option, text, "a rate above zero such as 20M")
    return float(match[1]) * {"": 1e-6, "k": 1e-3, "m": 1.0, "g": 1e3}[match[2].lower()]


def _text(option: str, text: str) -> str:
    if not text:
        raise _bad(option, text, "a value")
    return text


@dataclass(frozen=True, slots=True)
class _Option:
    """What an option letter means.

    Attributes:
        name: the key in what `expand` gives.
        read: turns its text into a value.
        default: the testbed's.
        lists: commas separate alternatives. Otherwise alternatives are given by repeating the option.
        once: holds for the whole line and takes a single value.
    """

    name: str
    read: Callable[[str, str], Any]
    default: Any
    lists: bool = False
    once: bool = False


OPTIONS = {
    "O": _Option("orbit", _choice(ORBITS), "GEO", lists=True),
    "A": _Option("attenuation_db", _number, 0.0, lists=True),
    "E": _Option("space_delays_ms", _several(2, "ms at gateway and terminal", _delay_ms, alone=True), None),
    "L": _Option("loss_percent", _percent, None, lists=True),
    "r": _Option("route", _choice(ROUTES), "LTE", lists=True),
    "S": _Option("scheduler", _choice(tuple(SCHEDULERS)), "default", lists=True),
    "c": _Option("congestion", _congestion, "lia", lists=True),
    "C": _Option("end_congestion", _letters, "rrrr", lists=True),
    "p": _Option("path_manager", _choice(PATH_MANAGERS), "fullmesh", lists=True),
    "b": _Option("rates_mbps", _several(2, "UL,DL", _rate_mbps), (20.0, 5.0)),
    "g": _Option(
        "ground_delays_ms",
        _several(3, "ms at the client towards satellite and LTE, and at the server", _number),
        (0.0, 0.0, 0.0),
    ),
    "I": _Option(
        "initial_windows",
        _several(4, "segments of server, gateway, terminal and client", _count, alone=True),
        (10, 10, 10, 10),
    ),
    "N": _Option("runs", _count, 1, once=True),
    "T": _Option("timing_runs", _whole, 4, once=True),
    "P": _Option("priming_s", _whole, 5, once=True),
    "D": _Option("dumped_packets", _whole, 0, once=True),
    # Of QUIC, video and newer versions; taken, and named in the scenario as without counterpart.
    "B": _Option("transfer_buffers", _text, None),
    "F": _Option("ack_frequency", _text, None),
    "M": _Option("modulation", _text, None, once=True),
    "Q": _Option("quic_buffers", _text, None),
    "U": _Option("udp_buffers", _text, None),
    "l": _Option("qlog_files", _text, None, once=True),
}
"""The options that take a value."""

SWITCHES = {
    "H": "http", "W": "pep", "Y": "quic", "X": "ping", "Z": "tcp", "V": "plain",
    "R": "rtp", "d": "duplex", "o": "video_log",
}  # fmt: skip
"""The options that switch a measurement off."""


def expand(line: str) -> list[dict[str, Any]]:
    """Every combination that a scenario line describes, in the order of its options' values.

    Each has a value for every option, the testbed's default where the line gives none: `orbit`, `route`,
    `scheduler`, `congestion`, `end_congestion`, `path_manager` (text), `attenuation_db`, `loss_percent`
    (percent, None: not given), `space_delays_ms` (gateway, terminal; None: not given), `ground_delays_ms`
    (client to satellite, client to LTE, server), `rates_mbps` (UL, DL), `initial_windows` (segments of
    server, gateway, terminal, client), `runs`, `timing_runs`, `priming_s`, `dumped_packets`, `off` (the
    measurements switched off) and `given` (the option letters in the line).

    Four letters behind `-c` are those of `-C`, as in the thesis's listing.

    Raises:
        LineError: an unknown option or value; names it, what was found and what was expected.
    """
    given: dict[str, list[Any]] = {}
    off: set[str] = set()
    for letter, text in _words(line):
        if letter in SWITCHES:
            off.add(SWITCHES[letter])
            continue
        option = OPTIONS[letter]
        if option.once and letter in given:
            raise _bad(letter, f"it twice (…{text})", "it once")
        values = [option.read(letter, part) for part in (text.split(",") if option.lists else [text])]
        given.setdefault(letter, []).extend(values)
    ends = [value for value in given.get("c", []) if re.fullmatch("[rc]{4}", value)]
    if ends:
        if len(ends) < len(given["c"]):
            raise _bad("c", ",".join(given["c"]), "either names or four letters each, not both")
        given["c"] = [None]
        given["C"] = [*given.get("C", []), *ends]
    letters = "".join(sorted({*given, *(letter for letter, name in SWITCHES.items() if name in off)}))
    lists = {option.name: given.get(letter, [option.default]) for letter, option in OPTIONS.items()}
    found = [dict(zip(lists, values, strict=True)) for values in itertools.product(*lists.values())]
    for one in found:
        one["congestion"] = one["congestion"] or LETTERS[one["end_congestion"][0]]
    return [one | {"off": frozenset(off), "given": letters} for one in found]


def _words(line: str) -> Iterator[tuple[str, str]]:
    """The options of a line with their values; a switch has an empty one. Switches may stand together: `-HWY`."""
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise LineError(f"found {line}, expected options such as -O LEO ({error})") from error
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if not re.fullmatch("-[A-Za-z].*", word):
            raise LineError(f"found {word}, expected an option such as -O LEO")
        rest = word[1:]
        while rest and rest[0] in SWITCHES:
            yield rest[0], ""
            rest = rest[1:]
        if not rest:
            continue
        letter, text = rest[0], rest[1:]
        if letter not in OPTIONS:
            known = " ".join(
                f"-{name}" for name in sorted({*OPTIONS, *SWITCHES}, key=lambda name: (name.lower(), name))
            )
            raise LineError(f"-{letter}: found an unknown option, expected one of {known}")
        if not text and at < len(words):
            text = words[at]
            at += 1
        yield letter, text


def name_of(combination: Mapping[str, Any]) -> str:
    """A name that tells the options of a combination: route, orbit, algorithms, and what else its line gave."""
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
        "p": one["path_manager"],
        "P": one["priming_s"],
    }
    words += [f"{letter}{_token(value)}" for letter, value in tokens.items() if letter in one["given"]]
    return "-".join(words).lower()


def _token(value: object) -> str:
    if isinstance(value, tuple):
        return "+".join(_token(part) for part in value)
    return f"{value:g}" if isinstance(value, int | float) else str(value)


# Writing.

SPACE_MS = {
    "LEO": ((9.0, 9.0), "Table 5.1"),
    "MEO": ((30.0, 30.0), "assumed, as in the preset meo"),
    "GEO": ((125.0, 125.0), "the testbed's default"),
}
"""One-way delay at gateway and terminal where `-E` is not given, and whose it is."""

GROUND_MS = {"LEO": (10.0, "Table 5.1"), "MEO": (60.0, "testbed"), "GEO": (40.0, "testbed")}
"""One-way delay between gateway and server, which the testbed adds by the orbit."""

LTE_MS = {"uplink": 30.0, "downlink": 10.0}
"""Baseline one-way delay of LTE (Table 5.1)."""

LEO_LOSS_PERCENT = 0.166
"""Loss of the satellite where `-L` is not given (Table 5.1: a ratio of 0.00166)."""

_LTE = """\
# LTE: Table 5.1 and, for DRX, section 4; overhead, listening time and repetitions are MoonGen's.
[path.lte]
mtu = "1500B"
uplink.rate = "40Mbit/s"
uplink.delay = "{uplink}"{uplink_why}
uplink.overhead = "24B"  # of each frame on the wire
uplink.queue = {{ packets = 350 }}
uplink.loss = {{ uniform = "0.006%" }}  # a ratio of 0.00006; -L is the satellite's alone
uplink.harq = {{ loss = "0.5%", round_trip = "8ms", catch_up = "1Gbit/s" }}  # concealed loss
downlink.rate = "38Mbit/s"
downlink.delay = "{downlink}"{downlink_why}
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
    """One combination of `expand` as a scenario; comments say where it came from and what has no counterpart.

    line: as it stood; place: where, for example "lines.txt, line 3"; file: the scenario's name, for commands.
    """
    one = combination
    satellite = one["orbit"].lower()
    paths = {"LTE": ["lte"], "SAT": [satellite], "MP": ["lte", satellite]}[one["route"]]
    first, last = one["priming_s"], one["priming_s"] + MEASURED_S
    rate = one["rates_mbps"][0]
    parts = [
        _heading(one, line, place, file),
        f'name = {json.dumps(name_of(one))}\nduration = "{last + 3}s"\nseed = 1\n',
        *([_lte(one)] if "lte" in paths else []),
        *([_satellite(one, satellite)] if satellite in paths else []),
        _FLOW.format(
            start=f"{first}s",
            stop=f"{last}s",
            rate=_mbps(rate),
            enough=_mbps(rate * ENOUGH_OF_IT),
            transport=_transport(one, paths),
        ),
    ]
    return "\n".join([parts[0], *map(_aligned, parts[1:])])


def _lte(one: Mapping[str, Any]) -> str:
    _, client_ms, server_ms = one["ground_delays_ms"]
    added = f"{_sum(client_ms, server_ms)} of -g (client, server)"
    return _LTE.format(
        **{way: _ms(delay + client_ms + server_ms) for way, delay in LTE_MS.items()},
        **{
            f"{way}_why": f"  # {delay:g} ms and {added}" if client_ms + server_ms else ""
            for way, delay in LTE_MS.items()
        },
    )


def _satellite(one: Mapping[str, Any], name: str) -> str:
    orbit = one["orbit"]
    client_ms, _, server_ms = one["ground_delays_ms"]
    (gateway_ms, terminal_ms), whose = (
        SPACE_MS[orbit] if one["space_delays_ms"] is None else (one["space_delays_ms"], "-E")
    )
    ground_ms, ground_whose = GROUND_MS[orbit]
    why = f"{_sum(gateway_ms, terminal_ms)} at gateway and terminal ({whose}), {ground_ms:g} ms ground ({ground_whose})"
    if client_ms + server_ms:
        why += f", {_sum(client_ms, server_ms)} of -g (client, server)"
    loss = one["loss_percent"]
    if loss is not None:
        loss_why = "-L, in percent"
    elif orbit == "LEO":
        loss, loss_why = LEO_LOSS_PERCENT, "Table 5.1; -L not given, where the testbed itself takes 0"
    else:
        loss, loss_why = 0.0, "-L not given: the testbed's default"
    text = f'loss = {{ uniform = "{loss:.10g}%" }}' if loss else "loss = []"
    return _SATELLITE.format(
        orbit=orbit,
        source="Table 5.1" if orbit == "LEO" else "Table 5.1 has LEO alone, whose rate is taken",
        name=name,
        delay=_ms(gateway_ms + terminal_ms + ground_ms + client_ms + server_ms),
        why=f"  # {why}",
        uplink_loss=f"uplink.{text}  # {loss_why}",
        downlink_loss=f"downlink.{text}",
    )


def _transport(one: Mapping[str, Any], paths: list[str]) -> str:
    window = f"initial_window = {one['initial_windows'][0]}"
    if one["route"] != "MP":
        congestion = LETTERS[one["end_congestion"][0]]
        head = f'profile = "linux", protocol = "tcp", paths = {json.dumps(paths)}'
        return f'{{ {head}, congestion = "{congestion}", {window} }}'
    # The manager `default` of that MPTCP opens no subflow beyond the first.
    used = paths[:1] if one["path_manager"] == "default" else paths
    manager = "{ ports = 2 }" if one["path_manager"] == "ndiffports" else '"full_mesh"'
    algorithms = f'scheduler = "{SCHEDULERS[one["scheduler"]]}", congestion = "{one["congestion"]}"'
    head = f'profile = "linux", protocol = "mptcp", paths = {json.dumps(used)}'
    return f"{{ {head}, {algorithms}, path_manager = {manager}, {window} }}"


def _heading(one: Mapping[str, Any], line: str, place: str, file: str) -> str:
    """Where a scenario comes from, how to run it, what its line measures besides and what it lacks."""
    runs = one["runs"]
    lines = [
        f"From {place}, of Chavali 2022:",
        f"  {line.strip()}",
        f"-N {runs}: skybraid run {file}" + (f" --seeds 1..{runs}" if runs > 1 else ""),
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
    by_air = one["route"] != "LTE"
    found = {
        f"-A {one['attenuation_db']:g}: how OpenSAND's rate follows attenuation is not published; clear sky": by_air
        and one["attenuation_db"] > 0,
        "PEP (no -W): TCP split at terminal and gateway; scenarios know no split connection": by_air
        and "pep" not in off,
        "-V: without PEP nothing would be left, so this is the plain measurement": "plain" in off,
        "-Z: a scenario is judged by a flow, so TCP is measured all the same": "tcp" in off,
        f"-C {one['end_congestion']}: the sender's counts, the first; gateway and terminal are the PEP's": not several
        and len(set(one["end_congestion"])) > 1,
        f"-p {one['path_manager']}: full_mesh stands for it": several and one["path_manager"] in ("binder", "netlink"),
        f"-b: {_mbps(one['rates_mbps'][1])} the other way, of newer versions; the thesis judges one flow": "b" in given,
        "-I: of four windows the sender's, the first": len(set(one["initial_windows"])) > 1,
        "-B -F -Q -U -l: of qperf, an implementation of QUIC": any(letter in given for letter in "BFQUl"),
        f"-M {one['modulation']}: how OpenSAND's rate follows modulation is not published": "M" in given,
    }
    return [words for words, lacks in found.items() if lacks]


def _aligned(text: str) -> str:
    """With the comments behind keys in one column, where they fit."""
    return re.sub(r"(?m)^([^#\n]+?)  # ", lambda match: f"{match[1]:<40}  # ", text)


def _sum(*delays_ms: float) -> str:
    return " + ".join(f"{delay:g}" for delay in delays_ms) + " ms"


def _ms(delay: float) -> str:
    return f"{delay:.6g}ms"


def _mbps(rate: float) -> str:
    return f"{rate:.9g}Mbit/s"


def import_lines(
    file: Annotated[str, typer.Argument(help="Scenario lines, a file or - for standard input.", metavar="FILE")],
    out: Annotated[Path, typer.Option(help="New folder for the scenarios.", metavar="DIR")],
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
) -> None:
    """Write the scenario lines of Chavali's testbed (-N 5 -O LEO -r MP -S blest -c balia …) as scenarios."""
    texts = read_lines(sys.stdin.read() if file == "-" else _text_of(file), "standard input" if file == "-" else file)
    with new_folder(out) as folder:
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8", newline="\n")
    if not quiet:
        for name in texts:
            typer.echo(out / name)


def read_lines(text: str, source: str) -> dict[str, str]:
    """The scenarios of a text of lines, by file name; blank lines and those that begin with # are skipped.

    Combinations of a line that differ only in what their route does not use are one scenario.

    Raises:
        LineError: a line is not one, or makes no scenario; says which line of `source` and why.
    """
    scenarios: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        place = f"{source}, line {number}"
        try:
            by_name = {name_of(one): one for one in reversed(expand(line))}
            for name, one in reversed(by_name.items()):
                file = _free(f"{name}.toml", scenarios)
                scenarios[file] = scenario_toml(one, line, place, file)
                Scenario(scenarios[file], file)
        except (LineError, ScenarioError) as error:
            raise LineError(f"{place}: {error}") from error
    if not scenarios:
        raise LineError(f"{source}: found no scenario line, expected for example -N 5 -O LEO -r MP -S blest -c balia")
    return scenarios


def _free(name: str, taken: Mapping[str, str]) -> str:
    free, number = name, 1
    while free in taken:
        number += 1
        free = name.replace(".toml", f"-{number}.toml")
    return free


def _text_of(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise LineError(f"{file}: cannot read the lines: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise LineError(f"{file}: byte {error.start} is not UTF-8, expected scenario lines") from error
