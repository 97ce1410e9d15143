"""Random search for verdicts that other runs refute, and for unexplained misses.

    .venv/bin/python benches/search.py                     # 300 scenarios; some forty minutes on 2 cores
    .venv/bin/python benches/search.py --first 17 --scenarios 1 --show

Scenario number N follows from N alone. It is judged by one run and by ten. Each requirement that either calls met is
judged again by 100 runs of other seeds; "not met" there refutes it. Everything that is not met or inconclusive must
have an explanation, and the causes must add up to all misses. Prints each finding with the scenario's number, and
exits with 1 if there is one.
"""

import argparse
import sys
import traceback
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from skybraid import Results, Scenario, run
from skybraid.model.misses import is_short_of_runs
from skybraid.model.requirements import Requirement
from skybraid.model.statistics import Verdict
from skybraid.show.explain import Budget, explain
from skybraid.show.explain.requirement import UnmetRequirement

FLOWN_FROM = Path(__file__).parent / "search.toml"
"""The file that a scenario claims to be, so that it finds the traces."""

OTHER_SEEDS = range(100_001, 100_101)

PRESETS = ("lte-aerial", "lte-ground", "starlink", "leo", "meo", "geo", "wifi", "ethernet")

DELAYS = (
    ("lte_drive_pam2025/atnt.csv", "lte_drive_pam2025/tmobile.csv", "lte_drive_pam2025/verizon.csv"),
    ("starlink_fjordlink/vessel_8h.csv", "starlink_leocc/delay_42min.csv"),
    ("nr5g_cicv5g/arterial_n8_v80_run01.csv", "nr5g_cicv5g/urban_n8_v30_run01.csv"),
)
"""Measured delays by source, each as likely as the others."""

DATAGRAM_SCHEDULERS = (
    "single",
    "round_robin",
    "low_rtt",
    "cheapest_path",
    "redundant",
    "blest",
    "adaptive_cheapest_path",
)
STREAM_SCHEDULERS = ("round_robin", "low_rtt", "redundant", "blest", "ecf", "otias", "low_rtt_wait")
CONTROLS = ("reno", "cubic", "lia", "olia", "balia", "bbr", "vegas", "westwood")
QUEUES = ("{ packets = 50 }", '{ time = "200ms" }', '{ bytes = "256kB" }')
SHARES = ("80%", "90%", "95%", "98%", "99%", "99.5%", "99.9%", "99.99%", "99.999%")


def table(**keys: object) -> str:
    """Formats an inline TOML table."""
    return "{ " + ", ".join(f"{key} = {value}" for key, value in keys.items()) + " }"


def text(value: object) -> str:
    """Formats a TOML string."""
    return f'"{value}"'


def share(chance: Random) -> str:
    """Draws a required share."""
    return text(chance.choice(SHARES))


def loss(chance: Random) -> str:
    """Draws losses of a path."""
    match chance.randrange(4):
        case 0:
            return table(uniform=text(f"{10 ** chance.uniform(-3, 1):.4f}%"))
        case 1:
            states = table(
                good_to_bad=text(f"{10 ** chance.uniform(-3, 0):.4f}%"),
                bad_to_good=text(f"{10 ** chance.uniform(0, 1.7):.3f}%"),
                good_loss=text("0%"),
                bad_loss=text(f"{chance.randint(20, 100)}%"),
            )
            return table(gilbert_elliott=states)
        case 2:
            on, off = 10 ** chance.uniform(0.5, 2), 10 ** chance.uniform(-1.3, 0.7)
            phases = table(
                on=table(mean=text(f"{on:.3f}s")),
                off=table(mean=text(f"{off:.3f}s")),
                off_loss=text(f"{chance.randint(10, 100)}%"),
                on_bit_errors=0,
            )
            return table(on_off=phases)
        case _:
            margin = text(f"{chance.randint(3, 12)}dB")
            place = text(chance.choice(("city", "highway")))
            return table(lutz=table(environment=place, speed=text(f"{chance.randint(5, 40)}m/s"), margin=margin))


def delay(chance: Random) -> str:
    """Draws a measured or synthetic delay."""
    match chance.randrange(4):
        case 0:
            return text(f"{chance.randint(5, 250)}ms")
        case 1:
            return table(mean=text(f"{chance.randint(10, 80)}ms"), sd=text(f"{chance.randint(1, 30)}ms"))
        case _:
            file = chance.choice(chance.choice(DELAYS))
            keys = {"trace": text(f"../traces/{file}"), "column": text("delay [ms]"), "unit": text("ms")}
            if chance.random() < 0.3:
                keys["start"] = text("random")
            elif chance.random() < 0.1:
                keys["resample"] = text("30s")
            return table(**keys, repeat="true")


def path(chance: Random, name: str) -> list[str]:
    """Draws the keys of a path."""
    lines = [f"[path.{name}]"]
    if chance.random() < 0.4:
        lines.append(f"preset = {text(chance.choice(PRESETS))}")
        return lines
    if chance.random() < 0.2:
        lines.append('uplink.rate = "10Mbit/s"')
        lines.append('downlink.rate = { opportunities = "../traces/starlink_leocc/downlink.down" }')
    else:
        lines.append(f"rate = {text(f'{10 ** chance.uniform(0, 1.5):.2f}Mbit/s')}")
    lines.append(f"delay = {delay(chance)}")
    if chance.random() < 0.5:
        lines.append(f"loss = {loss(chance)}")
    if chance.random() < 0.3:
        lines.append(f"queue = {chance.choice(QUEUES)}")
    if chance.random() < 0.2:
        every, pause = chance.randint(5, 120), chance.randint(20, 2000)
        lines.append(f'handover = {{ interval = {{ mean = "{every}s" }}, interruption = {{ mean = "{pause}ms" }} }}')
    if chance.random() < 0.15:
        lines.append('reconfiguration = { every = "15s", delay_step = { min = "0ms", max = "60ms" } }')
    return lines


def outages(chance: Random, paths: Sequence[str]) -> list[str]:
    """Draws outages shared by all paths, or none."""
    if chance.random() < 0.6:
        return []
    up, down = 10 ** chance.uniform(1, 3), 10 ** chance.uniform(-1, 1.2)
    together = 1 + chance.random() * min(5.0, up / down) if len(paths) > 1 else 1
    named = ", ".join(text(one) for one in paths)
    return [
        "[[outages]]",
        f"paths = [{named}]",
        f'up = "{up:.2f}s"',
        f'down = {{ mean = "{down:.3f}s" }}',
        f"together = {together:.3f}",
    ]


def datagrams(chance: Random, paths: Sequence[str]) -> str:
    """Draws a datagram transport."""
    if chance.random() < 0.7:
        keys = {"protocol": text("udp"), "scheduler": text(chance.choice(DATAGRAM_SCHEDULERS))}
    else:
        keys = {
            "protocol": text("mp_dccp"),
            "scheduler": text(chance.choice(DATAGRAM_SCHEDULERS)),
            "congestion": text(chance.choice(("ccid2", "bbr", "cubic", "ccid5"))),
        }
    if chance.random() < 0.25:
        keys["reordering"] = text(chance.choice(("fixed", "adaptive", "equalised")))
    if chance.random() < 0.3:
        keys["paths"] = f"[{text(chance.choice(paths))}]"
    return table(**keys)


def stream(chance: Random, paths: Sequence[str]) -> str:
    """Draws a transport that delivers in order."""
    control = text(chance.choice(CONTROLS))
    if chance.random() < 0.4:
        return table(protocol=text("tcp"), congestion=control, paths=f"[{text(chance.choice(paths))}]")
    return table(protocol=text("mptcp"), scheduler=text(chance.choice(STREAM_SCHEDULERS)), congestion=control)


def control(chance: Random, paths: Sequence[str]) -> list[str]:
    """Draws a flow of control messages."""
    transport = datagrams(chance, paths) if chance.random() < 0.75 else stream(chance, paths)
    limit = chance.choice((30, 50, 80, 100, 150, 200, 300, 500, 1000))
    required = [
        table(deadline=text(f"{limit}ms"), share=share(chance)),
        table(delay=text(f"{limit}ms"), percentile=text(chance.choice(("50%", "90%", "95%", "99%", "99.9%")))),
    ]
    chosen = required if chance.random() < 0.3 else [chance.choice(required)]
    rate, packet = chance.choice((8, 20, 50, 100)), chance.choice((60, 125, 400))
    return [
        "[flow.control]",
        f"from = {text(chance.choice(('vehicle', 'ground')))}",
        f'traffic = {{ kind = "cbr", rate = "{rate * packet * 8 / 1000:.3f}kbit/s", packet = "{packet}B" }}',
        f"transport = {transport}",
        f"require = [{', '.join(chosen)}]",
    ]


def video(chance: Random, paths: Sequence[str]) -> list[str]:
    """Draws a video flow."""
    required = [
        table(frames=share(chance), within=text(f"{chance.choice((150, 300, 400, 600, 1000))}ms")),
        table(frame_rate=f"{chance.choice((10, 20, 25, 29))}.0"),
        table(worst_frame_rate=f"{chance.choice((5, 15, 25))}.0"),
        table(freezes=f"{chance.choice((0.5, 2, 10))}"),
    ]
    transport = datagrams(chance, paths) if chance.random() < 0.8 else stream(chance, paths)
    return [
        "[flow.video]",
        'from = "vehicle"',
        f'traffic = {{ kind = "video", rate = "{chance.choice((0.5, 1, 2, 4))}Mbit/s", fps = 30 }}',
        f"transport = {transport}",
        f"require = [{', '.join(chance.sample(required, chance.choice((1, 1, 2))))}]",
    ]


def bulk(chance: Random, paths: Sequence[str]) -> list[str]:
    """Draws a bulk flow."""
    return [
        "[flow.bulk]",
        f"from = {text(chance.choice(('vehicle', 'ground')))}",
        'traffic = { kind = "bulk" }',
        f"transport = {stream(chance, paths)}",
        f'require = {{ goodput = "{10 ** chance.uniform(-1, 1.3):.2f}Mbit/s" }}',
    ]


def scenario(number: int) -> Scenario:
    """Returns the scenario with a number."""
    chance = Random(number)
    paths = ("lte", "leo", "radio")[: chance.choice((1, 2, 2, 2, 3))]
    carries_bulk = chance.random() < 0.2
    shows_video = chance.random() < 0.3
    length_s = chance.choice((20, 40) if carries_bulk or shows_video else (20, 60, 120, 300))
    lines = [f'duration = "{length_s}s"']
    for name in paths:
        lines += path(chance, name)
    lines += outages(chance, paths)
    if shows_video:
        lines += video(chance, paths)
    if carries_bulk:
        lines += bulk(chance, paths)
    if not (shows_video or carries_bulk) or chance.random() < 0.5:
        lines += control(chance, paths)
    return Scenario("\n".join(lines) + "\n", str(FLOWN_FROM))


@dataclass(slots=True)
class Found:
    """Findings of a scenario.

    Attributes:
        number: of the scenario.
        verdicts: requirements by runs and verdict: "1 run met".
        confirmed: of those called met, what 100 other runs say.
        findings: contradictions, in sentences.
    """

    number: int
    verdicts: Counter[str] = field(default_factory=Counter)
    confirmed: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)


def search(number: int) -> Found:
    """Judges, explains and tries to refute a scenario."""
    found = Found(number)
    try:
        flight = scenario(number)
        judged = {
            "1 run": run(flight, seed=number, tables=()),
            "10 runs": run(flight, seeds=range(1, 11), tables=()),
        }
        for runs, results in judged.items():
            found.verdicts.update(f"{runs} {one.verdict}" for one in results.requirements)
            found.findings += [f"{runs}: {words}" for words in unexplained(results, tried=number % 20 == 0)]
        refute(flight, judged, found)
    except Exception:  # noqa: BLE001 whatever breaks is a finding
        found.findings.append(traceback.format_exc())
    return found


def unexplained(results: Results, *, tried: bool) -> list[str]:
    """Returns what the explanations of a result lack; with `tried`, also of remedies found by runs."""
    found = []
    flows = explain(results, budget=Budget() if tried else None)
    reasons = [one for flow in flows for one in flow.requirements]
    unmet = [one for one in results.requirements if one.verdict is not Verdict.MET]
    if len(reasons) != len(unmet):
        found.append(f"{len(unmet)} requirements are not met, {len(reasons)} are explained")
    for one in reasons:
        missing = missing_of(one)
        if missing:
            found.append(f"{one.requirement.flow} {one.requirement.metric}: {missing}")
    return found


def missing_of(one: UnmetRequirement) -> str | None:
    """Returns what an explanation lacks."""
    required = one.requirement
    if not one.main_cause:
        return "no main cause"
    if not (one.causes or one.facts or is_short_of_runs(required)) and required.metric not in ("share", "frames"):
        return f"neither a cause nor a fact: {one.main_cause}"
    if required.metric in ("share", "frames") and required.missed != one.misses:
        return f"causes add up to {one.misses} of {required.missed} misses"
    if any(cause.count <= 0 for cause in one.causes):
        return "a cause without misses"
    return None


def refute(flight: Scenario, judged: dict[str, Results], found: Found) -> None:
    """Judges requirements that were met by 100 other runs."""
    met = [
        (runs, place, one)
        for runs, results in judged.items()
        for place, one in enumerate(results.requirements)
        if one.verdict is Verdict.MET
    ]
    if not met:
        return
    others = run(flight, seeds=OTHER_SEEDS, tables=())
    for runs, place, one in met:
        other = others.requirements[place]
        found.confirmed[f"{runs} {other.verdict}"] += 1
        if other.verdict is Verdict.NOT_MET:
            found.findings.append(refuted(runs, one, other))


def refuted(runs: str, one: Requirement, other: Requirement) -> str:
    """Describes a refuted verdict."""
    return f"{runs}: {one.flow}: met: {one.words}\n    100 other runs: {other.words}"


def main() -> int:
    """Prints the findings."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--first", type=int, default=1, help="number of the first scenario")
    parser.add_argument("--scenarios", type=int, default=300, help="how many")
    parser.add_argument("--show", action="store_true", help="print each scenario")
    chosen = parser.parse_args()
    numbers = range(chosen.first, chosen.first + chosen.scenarios)
    verdicts: Counter[str] = Counter()
    confirmed: Counter[str] = Counter()
    wrong = 0
    with ProcessPoolExecutor() as pool:
        for done in as_completed([pool.submit(search, number) for number in numbers]):
            found = done.result()
            verdicts += found.verdicts
            confirmed += found.confirmed
            wrong += len(found.findings)
            if chosen.show:
                print(scenario(found.number).text)
            for words in found.findings:
                print(f"scenario {found.number}: {words}", flush=True)
    for heading, counted in (("verdicts", verdicts), ("met, by 100 other runs", confirmed)):
        print(f"{heading}: " + ", ".join(f"{count} {name}" for name, count in sorted(counted.items())))
    print(f"{wrong} findings in {len(numbers)} scenarios.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
