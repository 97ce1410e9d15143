"""Sensible transports for a flow over some networks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from skybraid.model.errors import ScenarioError
from skybraid.model.scenario import Scenario

_VIDEO_MPTCP = (("low_rtt", "cubic"), ("low_rtt", "bbr"), ("blest", "cubic"), ("ecf", "cubic"), ("redundant", "cubic"))


class Candidate(NamedTuple):
    """A transport over some of the networks.

    Attributes:
        name: description in words.
        table: its TOML table.
        networks: networks in use.
    """

    name: str
    table: str
    networks: tuple[str, ...]


def candidates(networks: list[str], *, is_video: bool) -> list[Candidate]:
    """Returns the transports for a flow, beginning with a safe choice.

    Control is sent as datagrams: over each single network, duplicated over all networks, and over the network with the
    lowest round trip. Video and bulk are also sent as streams and as datagrams with congestion control.
    """
    found: list[Candidate] = []
    every = tuple(networks)
    if len(networks) > 1:
        found.append(_of("udp", every, scheduler="redundant"))
        found.append(_of("udp", every, scheduler="low_rtt"))
    found += [_of("udp", (name,)) for name in networks]
    if not is_video:
        return found
    found += [_of("tcp", (name,), congestion="cubic") for name in networks]
    if len(networks) > 1:
        found += [_of("mptcp", every, scheduler=one, congestion=control) for one, control in _VIDEO_MPTCP]
        found += [_of("mp_dccp", every, scheduler=one, congestion="bbr") for one in ("low_rtt", "redundant")]
    else:
        found += [_of("dccp", every, congestion="bbr"), _of("tcp", every, congestion="bbr")]
    return found


def combined(
    networks: list[str], combinations: Iterable[tuple[str, str, str | None]]
) -> tuple[list[Candidate], list[str]]:
    """Returns the transports of combinations of protocol, scheduler and congestion control over all networks.

    Args:
        networks: names of the paths.
        combinations: protocol, scheduler and congestion control; None for a protocol without congestion control.

    Returns:
        The transports, and sentences on the combinations that cannot be run.
    """
    paths = "".join(f'[path.{name}]\nrate = "1Mbit/s"\ndelay = "1ms"\n' for name in networks)
    flow = '[flow.data]\nfrom = "vehicle"\ntraffic = { kind = "cbr", rate = "1kbit/s", packet = "125B" }\n'
    found: list[Candidate] = []
    refused: dict[str, list[str]] = {}
    for protocol, scheduler, congestion in combinations:
        keys = {"scheduler": scheduler} | ({} if congestion is None else {"congestion": congestion})
        candidate = _of(protocol, tuple(networks), **keys)
        try:
            Scenario(f'duration = "1s"\n{paths}{flow}transport = {candidate.table}\n', "compare.toml")
        except ScenarioError as error:
            why = str(error).rpartition(": ")[2]
            refused.setdefault(why, []).append(f"{protocol} {scheduler}")
            continue
        found.append(candidate)
    return found, [f"{', '.join(dict.fromkeys(names))}: left out: {why}" for why, names in refused.items()]


def _of(protocol: str, networks: tuple[str, ...], **keys: str) -> Candidate:
    words = " ".join([protocol, *keys.values()])
    over = "+".join(networks)
    listed = ", ".join(f'"{name}"' for name in networks)
    table = "".join(f', {key} = "{value}"' for key, value in keys.items())
    return Candidate(f"{words} over {over}", f'{{ protocol = "{protocol}", paths = [{listed}]{table} }}', networks)
