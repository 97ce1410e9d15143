"""Copies before a deadline between two gateways against the simulator: misses and overhead.

    PYTHONPATH=tests/kernel python tests/gateway/copies.py [--seeds 3]

Messages of 1,250 B leave the vehicle 100 times a second over two paths that lose 5 % each, with a deadline of 150 ms,
as class `control`. Held are the share that is late or lost, by the 95 % intervals of both sides, and the packets over
those of `low_rtt`, which sends no copy. A message during whose way the machine itself stood still does not count.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scipy import stats

import skybraid
from agreement import LOSSY, scenario
from predicted import BEGIN_S, START_S, Meter, Side, pumped
from skybraid.gateway import Field, binary, configure_pair
from skybraid.gateway.daemons import in_emulator

if TYPE_CHECKING:
    from collections.abc import Mapping

WITHIN_MS = 150.0
RULES: dict[str, dict[str, str | int]] = {
    "low_rtt": {},
    "hedge": {"within": "150ms"},
    "early_warning": {"within": "150ms"},
    "deadline": {"within": "150ms"},
    "coded": {"within": "150ms"},
    "rounds": {"within": "150ms"},
    "streaming": {"burst": 8, "delay": 3},
    "budget": {"rtt": "300ms"},
}
"""Schedulers and their settings; the first sends no copy."""

OVERHEAD_WITHIN = 0.02
"""How far the overheads may differ."""

_BYTES, _EVERY_S, _PORT = 1250, 0.01, 5601


@dataclass(frozen=True, slots=True)
class Outcome:
    """Messages of several flights, and the packets that carried them.

    Attributes:
        missed: late or lost.
        sent: that count.
        packets_each: that the vehicle sent for one message.
    """

    missed: int
    sent: int
    packets_each: float

    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the share missed."""
        low, high = stats.binomtest(self.missed, self.sent).proportion_ci()
        return low, high


def rule(name: str) -> dict[str, str | int]:
    """Returns the scheduler's table."""
    return {"name": name, **RULES[name]}


def text(scheduler: str, length_s: float) -> str:
    """Returns the scenario."""
    words = ", ".join(f"{key} = {json.dumps(value)}" for key, value in rule(scheduler).items())
    transport = f'protocol = "udp", scheduler = {{ {words} }}'
    traffic = f'kind = "cbr", rate = "1Mbit/s", packet = "{_BYTES}B"'
    return f'{scenario(length_s, LOSSY, transport, traffic)}start = "{START_S:g}s"\n'


def packets(counters: Mapping[str, Any]) -> int:
    """Returns how many packets entered a link, from its counts of those delivered and lost."""
    return sum(count for name, count in counters.items() if isinstance(count, int) and name != "delivered_bytes")


def simulate(file: Path, seeds: range) -> Outcome:
    """What the simulator says of these seeds."""
    sides, carried, messages = [], 0, 0
    for seed in seeds:
        results = skybraid.run(file, seed=seed, tables=["messages"])
        end_ns = (results.simulated_s - 1) * 1e9
        own = results.tables["messages"]
        own = own.filter(own["sent_ns"].is_between(BEGIN_S * 1e9, end_ns))
        delays = (own["delivered_ns"] - own["sent_ns"]).drop_nulls() / 1e6
        sides.append(Side(delays.to_numpy(), own.height))
        carried += sum(map(packets, (link for link in results.links() if link["direction"] == "uplink")))
        messages += results.flows["data"].sent
    return _outcome(sides, carried / messages)


def fly(file: Path, folder: Path, scheduler: str, seeds: range, length_s: float) -> Outcome:
    """What two gateways make of it."""
    program = binary()
    assert program is not None, "found no skybraid-node: make node, or name it by SKYBRAID_NODE"
    sides, carried, messages = [], 0, 0
    for seed in seeds:
        place = folder / f"{scheduler}-{seed}"
        place.mkdir()
        local = f"127.0.0.1:{_PORT}"
        with Field(file, place, seed=seed) as links:
            began_ns = time.time_ns() - round(links.ask(do="status")["at_s"] * 1e9)
            # The ground is configured too: a receiver acknowledges where its own scheduler needs it.
            control = {"scheduler": rule(scheduler)}
            aircraft, ground = configure_pair(
                program,
                place,
                (links.vehicle, links.ground),
                in_emulator(links.addresses("ground")),
                aircraft={"class": {"control": control}, "udp": {"control": {"listen": local, "class": "control"}}},
                ground={"class": {"control": control}, "udp": {"control": {"send_to": local, "class": "control"}}},
            )
            meter = Meter.between(links.vehicle, links.ground, _PORT, _EVERY_S, [[_BYTES]])
            stalls = pumped((ground, aircraft), len(links.paths), [meter], began_ns, length_s)
            uplinks = [path["uplink"] for path in links.ask(do="status")["paths"]]
        carried += sum(packets({"delivered": one["delivered"], **one["lost"]}) for one in uplinks)
        messages += len(meter.sent_ns)
        first_ns, last_ns = began_ns + BEGIN_S * 1e9, began_ns + (length_s - 1) * 1e9
        sides.append(meter.side(first_ns, last_ns, stalls, round(WITHIN_MS * 1e6)))
    return _outcome(sides, carried / messages)


def _outcome(sides: list[Side], packets_each: float) -> Outcome:
    sent = sum(side.sent for side in sides)
    return Outcome(sent - sum(side.within(WITHIN_MS) for side in sides), sent, packets_each)


def main() -> int:
    """Prints a line a scheduler. Exit code: 0 all agree, 1 not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=list(RULES), choices=RULES, help="schedulers besides the first")
    parser.add_argument("--length", type=float, default=20.0 + START_S, help="of each flight in s")
    given = parser.parse_args()
    seeds, wrong = range(1, given.seeds + 1), 0
    heads = f"{'missed, simulated':>18} {'by gateways':>14} {'overhead, simulated':>20} {'by gateways':>12}"
    print(f"{'scheduler':13} {heads}")
    with tempfile.TemporaryDirectory(prefix="copies-") as name:
        alone: list[Outcome] = []
        for scheduler in dict.fromkeys([*RULES][:1] + given.only):
            file = Path(name) / f"{scheduler}.toml"
            file.write_text(text(scheduler, given.length), encoding="utf-8")
            both_sides = [simulate(file, seeds), fly(file, Path(name), scheduler, seeds, given.length)]
            alone = alone or both_sides
            over = [one.packets_each - base.packets_each for one, base in zip(both_sides, alone, strict=True)]
            (low, high), (own_low, own_high) = (one.interval() for one in both_sides)
            agree = max(low, own_low) <= min(high, own_high) and abs(over[1] - over[0]) <= OVERHEAD_WITHIN
            wrong += not agree
            missed = [f"{one.missed} of {one.sent}" for one in both_sides]
            found = f"{missed[0]:>18} {missed[1]:>14} {over[0]:>+20.1%} {over[1]:>+12.1%}"
            print(f"{scheduler:13} {found}  {'agree' if agree else 'DO NOT AGREE'}", flush=True)
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
