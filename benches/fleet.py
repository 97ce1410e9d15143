"""Cost of a packet-hop by size of the fleet, and memory per flow."""

import json
import os
import statistics
import subprocess
import sys

FLEETS = ((1, 2000), (10, 200), (100, 20), (1000, 6))
"""Aircraft, and simulated time in s."""
MAX_GROWTH = 1.5
MAX_IDLE_KIB = 4
MAX_ACTIVE_KIB = 32
LARGE_FLEET = 10_000
LARGE_FLEET_SECONDS = 600
MAX_FLEET_GB = 8
REPEATS = 3

FLEET = """
duration = "{seconds}s"
[node.uav]
kind = "vehicle"
count = {aircraft}
[node.cell]
[node.gateway]
[node.ground]
[link.lte]
from = "uav"
to = "cell"
rate = "20Mbit/s"
delay = "20ms"
[link.leo]
from = "uav"
to = "gateway"
rate = "20Mbit/s"
delay = "30ms"
[link.core]
from = "cell"
to = "ground"
rate = "{shared}Mbit/s"
delay = "5ms"
[link.internet]
from = "gateway"
to = "ground"
rate = "{shared}Mbit/s"
delay = "5ms"
[flow.control]
from = "ground"
to = "uav"
traffic = {{ kind = "cbr", rate = "100kbit/s", packet = "125B" }}
transport = {{ protocol = "udp", scheduler = "redundant" }}
[flow.telemetry]
from = "uav"
to = "ground"
traffic = {{ kind = "cbr", rate = "100kbit/s", packet = "125B" }}
transport = {{ protocol = "udp", scheduler = "redundant" }}
[flow.video]
from = "uav"
to = "ground"
traffic = {{ kind = "cbr", rate = "1Mbit/s", packet = "1200B" }}
transport = {{ protocol = "mptcp" }}
[flow.log]
from = "uav"
to = "ground"
traffic = {{ kind = "cbr", rate = "200kbit/s", packet = "1200B" }}
transport = {{ protocol = "tcp", paths = ["lte"] }}
"""

CROWD = """
duration = "20s"
[node.uav]
kind = "vehicle"
count = 100
[node.ground]
[link.lte]
from = "uav"
to = "ground"
rate = "20Mbit/s"
delay = "20ms"
[flow.f]
from = "uav"
to = "ground"
connections = {connections}
start = "{start}"
traffic = {{ kind = "cbr", rate = "20kbit/s", packet = "1200B" }}
transport = {{ protocol = "{protocol}" }}
"""

CHILD = """
import json, resource, sys, skybraid
run = skybraid.Scenario(sys.stdin.read()).native.run(1, [])
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"ns": 1e9 * run.wall_s / run.packet_hops, "hops": run.packet_hops, "peak_kib": peak}))
"""


def run(scenario: str) -> dict[str, float]:
    """Simulates a scenario in a child process, on one core, without tables."""
    core = min(os.sched_getaffinity(0))
    done = subprocess.run(
        [sys.executable, "-c", CHILD],
        input=scenario,
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),
    )
    measured: dict[str, float] = json.loads(done.stdout)
    return measured


def per_flow_kib(protocol: str, start: str) -> float:
    """Returns the peak memory in KiB that each of 3900 further flows adds."""
    few, many = (
        run(CROWD.format(connections=number, start=start, protocol=protocol))["peak_kib"] for number in (1, 40)
    )
    return (many - few) / 3900


def fleet(aircraft: int, seconds: int) -> dict[str, float]:
    """Simulates a fleet whose shared links scale with its size."""
    return run(FLEET.format(aircraft=aircraft, seconds=seconds, shared=20 * aircraft))


def large_fleet_gb() -> float:
    """Returns the large fleet's memory in GB, extrapolated from 30 further aircraft in a run of the same length."""
    few, many = (fleet(aircraft, LARGE_FLEET_SECONDS)["peak_kib"] for aircraft in (10, 40))
    return (few + (many - few) / 30 * (LARGE_FLEET - 10)) * 1024 / 1e9


def main() -> int:
    """Prints one line per fleet and kind of flow; returns 1 if a target is missed."""
    missed = False
    print(f"{'fleet':<32} {'ns/packet-hop':>13} {'growth':>7} {'target':>7}")
    first = None
    for aircraft, seconds in FLEETS:
        ns = statistics.median(fleet(aircraft, seconds)["ns"] for _ in range(REPEATS))
        first = first or ns
        missed |= ns > MAX_GROWTH * first
        name = f"{aircraft} aircraft, {2 * aircraft} paths, {4 * aircraft} flows"
        print(f"{name:<32} {ns:>13.0f} {ns / first:>7.2f} {MAX_GROWTH:>7}")
    print(f"\n{'memory of a flow':<32} {'KiB':>13} {'':>7} {'target':>7}")
    for protocol in ("udp", "tcp", "mptcp"):
        for kind, start, limit in (("idle", "19999ms", MAX_IDLE_KIB), ("active", "0s", MAX_ACTIVE_KIB)):
            kib = per_flow_kib(protocol, start)
            missed |= kib > limit
            print(f"{f'{protocol}, {kind}':<32} {kib:>13.1f} {'':>7} {limit:>7}")
    gb = large_fleet_gb()
    missed |= gb > MAX_FLEET_GB
    print(f"\n{f'{LARGE_FLEET} aircraft, {LARGE_FLEET_SECONDS} s':<32} {gb:>10.1f} GB {'':>7} {MAX_FLEET_GB:>7}")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
