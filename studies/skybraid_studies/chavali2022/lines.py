"""Conversion of scenario lines of the testbed of Chavali 2022 to scenarios.

A line such as `-N 10 -O LEO -E 10,10 -L 0.001 -r MP -S blest -c balia` describes measurements over an emulated LTE and
satellite link. `expand` parses it into every combination of its lists; `scenario_toml` writes one combination as a
scenario; the command is `skybraid import-lines`. Option letters, their lists and defaults are those of the testbed
(KaushikChavali/cellular-satcom-emulator, README); links are those of the thesis, Table 5.1. `docs/chavali.md` describes
both.
"""

import itertools
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from skybraid._core import ScenarioError, SkybraidError
from skybraid.model.scenario import Scenario
from skybraid_studies.chavali2022.lines_toml import CLEAR_SKY_DB, LETTERS, SCHEDULERS, name_of, scenario_toml

ORBITS = ("LEO", "MEO", "GEO")
ROUTES = ("LTE", "SAT", "MP")
_MODCODS = 28
CONGESTION = ("lia", "olia", "balia", "wvegas", "reno", "cubic")
PATH_MANAGERS = ("default", "fullmesh", "ndiffports", "binder", "netlink")


class LineError(SkybraidError):
    """A scenario line is invalid; the message has line, option, value and expectation."""


def _bad(option: str, found: str, expected: str) -> LineError:
    return LineError(f"-{option}: found {found or 'nothing'}, expected {expected}")


def _integer(option: str, text: str) -> int:
    if not text.isdecimal():
        raise _bad(option, text, "a whole number")
    return int(text)


def _count(option: str, text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise _bad(option, text, "a whole number above zero")
    return int(text)


def _number(option: str, text: str, expected: str = "a number") -> float:
    if not re.fullmatch(r"\d+(\.\d+)?", text):
        raise _bad(option, text, expected)
    return float(text)


def _percent(option: str, text: str) -> float:
    share = _number(option, text, "a loss in percent")
    if share > 100:
        raise _bad(option, text, "at most 100 (percent)")
    return share


def _attenuation(option: str, text: str) -> float:
    attenuation_db = _number(option, text)
    if attenuation_db > CLEAR_SKY_DB:
        raise _bad(option, text, f"at most {CLEAR_SKY_DB:g} dB: nothing is received below 0 dB")
    return attenuation_db


def _modulation(option: str, text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= _MODCODS:
        raise _bad(option, text, f"a MODCOD of DVB-S2, 1 to {_MODCODS}")
    return int(text)


def _choice(choices: tuple[str, ...]) -> Callable[[str, str], str]:
    def read(option: str, text: str) -> str:
        by_lower = {name.lower(): name for name in choices}
        if text.lower() not in by_lower:
            raise _bad(option, text, f"one of {', '.join(choices)}")
        return by_lower[text.lower()]

    return read


def _letters(option: str, text: str) -> str:
    if not re.fullmatch("[rcRC]{4}", text):
        raise _bad(option, text, "four letters r or c: server, gateway, terminal, client")
    return text.lower()


def _congestion(option: str, text: str) -> str:
    # The thesis's own listing passes the four letters of -C to -c.
    return _letters(option, text) if re.fullmatch("[rcRC]{4}", text) else _choice(CONGESTION)(option, text)


def _several(
    count: int, names: str, parse: Callable[[str, str], float], *, allow_single: bool = False
) -> Callable[[str, str], tuple[float, ...]]:
    """Returns a parser of `count` values separated by commas; with `allow_single`, one value applies to all."""

    def read(option: str, text: str) -> tuple[float, ...]:
        parts = text.split(",")
        if allow_single and len(parts) == 1:
            parts *= count
        if len(parts) != count:
            raise _bad(option, text, f"{count} values: {names}")
        return tuple(parse(option, part) for part in parts)

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
    """Meaning of an option letter.

    Attributes:
        name: key in the result of `expand`.
        read: parser of the value.
        default: default of the testbed.
        lists: whether commas separate alternatives; otherwise the option is repeated.
        once: whether the option applies to the whole line and has a single value.
    """

    name: str
    read: Callable[[str, str], Any]
    default: Any
    lists: bool = False
    once: bool = False


OPTIONS = {
    "O": _Option("orbit", _choice(ORBITS), "GEO", lists=True),
    "A": _Option("attenuation_db", _attenuation, 0.0, lists=True),
    "E": _Option("space_delays_ms", _several(2, "ms at gateway and terminal", _delay_ms, allow_single=True), None),
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
        _several(4, "segments of server, gateway, terminal and client", _count, allow_single=True),
        (10, 10, 10, 10),
    ),
    "M": _Option("modulation", _modulation, None, once=True),
    "N": _Option("runs", _count, 1, once=True),
    "T": _Option("timing_runs", _integer, 4, once=True),
    "P": _Option("priming_s", _integer, 5, once=True),
    "D": _Option("dumped_packets", _integer, 0, once=True),
    # Options of QUIC, video and newer versions; accepted, and listed in the scenario as unsupported.
    "B": _Option("transfer_buffers", _text, None),
    "F": _Option("ack_frequency", _text, None),
    "Q": _Option("quic_buffers", _text, None),
    "U": _Option("udp_buffers", _text, None),
    "l": _Option("qlog_files", _text, None, once=True),
}
"""Options with a value."""

SWITCHES = {
    "H": "http", "W": "pep", "Y": "quic", "X": "ping", "Z": "tcp", "V": "plain",
    "R": "rtp", "d": "duplex", "o": "video_log",
}  # fmt: skip
"""Options that switch a measurement off."""


def expand(line: str) -> list[dict[str, Any]]:
    """Returns every combination described by a scenario line, in the order of its options' values.

    Each has a value for every option, by default that of the testbed: `orbit`, `route`, `scheduler`, `congestion`,
    `end_congestion`, `path_manager` (text), `attenuation_db`, `modulation` (a MODCOD, None: not given), `loss_percent`
    (percent, None: not given), `space_delays_ms` (gateway, terminal; None: not given), `ground_delays_ms` (client to
    satellite, client to LTE, server), `rates_mbps` (UL, DL), `initial_windows` (segments of server, gateway, terminal,
    client), `runs`, `timing_runs`, `priming_s`, `dumped_packets`, `off` (the measurements switched off) and `given`
    (the option letters in the line).

    Four letters after `-c` are read as those of `-C`, as in the thesis's listing.

    Raises:
        LineError: an option or value is unknown.
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
    """Yields the options of a line with their values; a switch has an empty one. Switches may be joined: `-HWY`."""
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


def read_lines(text: str, source: str) -> dict[str, str]:
    """Returns the scenarios of a text of lines by file name; blank lines and comments (#) are skipped.

    Combinations that differ only in options unused by their route are one scenario.

    Raises:
        LineError: a line is invalid, or makes no scenario; the message names the line of `source`.
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


def _free(name: str, names: Mapping[str, str]) -> str:
    free, number = name, 1
    while free in names:
        number += 1
        free = name.replace(".toml", f"-{number}.toml")
    return free
