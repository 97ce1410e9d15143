"""Prints the tables of the study's page: `python -m skybraid_studies.frontier`."""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable, Iterable, Sequence

import typer

from skybraid_studies.engine.readings import measurements
from skybraid_studies.frontier.bound import UpDown, bound, deadline_ms, drawn, min_missed
from skybraid_studies.frontier.frontier import CONTROL, oracle, point, replay
from skybraid_studies.frontier.measurements import CARRIERS, HALVES, NETWORKS, bursts, driven, late_shares
from skybraid_studies.frontier.observations import (
    DEADLINES_MS,
    DRAWN,
    PATTERNS,
    SETS,
    films,
    has_oracle,
    outcomes,
    settled,
)
from skybraid_studies.frontier.population import flights
from skybraid_studies.frontier.rules import ORACLE, RULES, in_rounds
from skybraid_studies.frontier.video import DEADLINES_MS as FILM_DEADLINES_MS
from skybraid_studies.frontier.video import FILM_RULES, RATES, screen_ssim

TABLES = (("pairs", "control"), ("triples", "control"), ("two_of_three", "control"), ("pairs", "mavlink"))
SHUFFLED = (("shuffled", "control"),)
DRIVES = (("driven_pairs", "control"), ("driven_triples", "control"))


def grid(rules: Iterable[str], deadlines_ms: Sequence[int], cell: Callable[[str, int], str], head: str) -> str:
    """Formats a Markdown table with one row per rule and one column per deadline."""
    columns = [f"{deadline} ms{head}" for deadline in deadlines_ms]
    lines = ["| rule | " + " | ".join(columns) + " |", "|---" * (1 + len(columns)) + "|"]
    lines += [f"| `{rule}` | {' | '.join(cell(rule, deadline) for deadline in deadlines_ms)} |" for rule in rules]
    return "\n".join(lines)


def table(data: str, pattern: str, half: str) -> str:
    """Formats misses, their share with its interval, and the overhead."""

    def cell(rule: str, deadline: int) -> str:
        seen = point(outcomes(data, PATTERNS[pattern], rule, settled(rule, deadline), half), deadline)
        share = f"{100 * seen.missed:.3f} % ({100 * seen.low:.3f} to {100 * seen.high:.2f})"
        return f"{seen.misses}: {share}, +{100 * seen.overhead:.1f} %"

    return grid((*RULES, ORACLE) if has_oracle(data) else RULES, DEADLINES_MS, cell, "")


def video_table(data: str, rate: str, half: str) -> str:
    """Formats the share of frames missed with its interval, freezes per minute, and the overhead."""

    def cell(rule: str, deadline: int) -> str:
        found = films(data, rate, rule, deadline, half)
        seen = point([each.frames for each in found], deadline)
        freezes = 60 * sum(sum(each.freezes[deadline]) for each in found) / sum(each.seconds for each in found)
        share = f"{100 * seen.missed:.2f} % ({100 * seen.low:.2f} to {100 * seen.high:.2f})"
        return f"{share}, {freezes:.2f} freezes/min, +{100 * seen.overhead:.1f} %"

    return grid(FILM_RULES, FILM_DEADLINES_MS, cell, ", overhead")


def picture_table(data: str, rate: str, half: str) -> str:
    """Formats the mean SSIM of the screen, and the overhead."""

    def cell(rule: str, deadline: int) -> str:
        found = films(data, rate, rule, deadline, half)
        overhead = point([each.frames for each in found], deadline).overhead
        return f"{screen_ssim(found, rate, deadline):.5f}, +{100 * overhead:.1f} %"

    return grid(FILM_RULES, FILM_DEADLINES_MS, cell, ", overhead")


UP_AND_DOWN = (UpDown(0.01, 0.2), UpDown(0.02, 0.4))
"""Two paths with outages of 5 and 2.5 rounds: each is down for 4.8 % of the time."""
DRAWN_ROUNDS = 15_000


def bound_table() -> str:
    """Formats misses, overhead and lower bound on misses: one row per rule, one column per number of rounds."""
    measured = drawn(UP_AND_DOWN, DRAWN_ROUNDS, seed=1)
    rounds = (1, 3)
    lines = ["| rule | " + " | ".join(f"{left} round{'s' * (left > 1)}" for left in rounds) + " |", "|---|---|---|"]
    corners = {left: bound(UP_AND_DOWN, left) for left in rounds}
    for rule in RULES:
        cells = []
        for left in rounds:
            within = round(deadline_ms(left))
            seen = point([replay(measured, in_rounds(rule, within), CONTROL, (within,))], within)
            least = min_missed(corners[left], 1 + seen.overhead)
            share = f"{100 * seen.missed:.2f} % ({100 * seen.low:.2f} to {100 * seen.high:.2f})"
            cells.append(f"{share}, +{100 * seen.overhead:.1f} %, bound {100 * least:.2f} %")
        lines.append(f"| `{rule}` | {' | '.join(cells)} |")
    deadlines = [round(deadline_ms(left)) for left in rounds]
    known = oracle(measured, CONTROL, deadlines)
    cells = [f"{100 * point([known], deadline).missed:.2f} %" for deadline in deadlines]
    lines.append(f"| `{ORACLE}` | {' | '.join(cells)} |")
    return "\n".join(lines)


BUDGETS = ("20%", "25%", "30%", "100%")


def budget_table(data: str, deadline_ms: int, half: str) -> str:
    """Formats misses and overhead over drawn flights: one row per budget of `deadline` and of duplication."""
    lines = ["| budget | missed | overhead |", "|---|---|---|"]
    plain = RULES["deadline"](deadline_ms)
    transports = {each: plain | {"scheduler": plain["scheduler"] | {"budget": each}} for each in BUDGETS}
    for name, transport in (transports | {"`redundant`": RULES["redundant"](deadline_ms)}).items():
        seen = point([flights(DRAWN[data], transport, CONTROL, (deadline_ms,), half)], deadline_ms)
        lines.append(f"| {name} | {seen.misses} | +{100 * seen.overhead:.1f} % |")
    return "\n".join(lines)


CALIBRATED = ("pairs", "triples", *DRAWN)


def calibration_table(half: str) -> str:
    """Formats expected and observed misses of `deadline`: one row per set of paths, one column per deadline."""
    lines = ["| paths | " + " | ".join(f"{deadline} ms" for deadline in DEADLINES_MS) + " |", "|---|---|---|---|"]
    for data in CALIBRATED:
        cells = []
        for deadline in DEADLINES_MS:
            found = outcomes(data, CONTROL, "deadline", deadline, half)
            if not found:
                break
            seen = point(found, deadline)
            least, expected, most = map(sum, zip(*(each.expected for each in found), strict=True))
            low, high = seen.low * seen.messages, seen.high * seen.messages
            expected_text = f"{expected:.1f} ({least:.1f} to {most:.0f}) expected"
            cells.append(f"{expected_text}, {seen.misses} ({low:.0f} to {high:.0f}) missed")
        if cells:
            lines.append(f"| {data} | {' | '.join(cells)} |")
    return "\n".join(lines)


def print_tables(tables: Sequence[tuple[str, str]], half: str) -> None:
    """Prints a table for each set of paths."""
    for data, pattern in tables:
        messages = point(outcomes(data, PATTERNS[pattern], "low_rtt", DEADLINES_MS[0], half), 300).messages
        sets = ", ".join("+".join(paths) for paths in (SETS.get(data) or (DRAWN[data],)))
        typer.echo(f"{data}, {pattern}: {messages} messages, {sets}, {half}\n")
        typer.echo(table(data, pattern, half) + "\n")


def print_control(half: str) -> None:
    """Prints the tables of control and MAVLink over measured delays."""
    print_tables(TABLES, half)


def print_shuffled(half: str) -> None:
    """Prints the table over carriers measured at different times."""
    print_tables(SHUFFLED, half)


def print_restless(half: str) -> None:
    """Prints the share of late probes on a calm path, within 4 s after a late one and otherwise."""
    typer.echo("| deadline | rested | restless |\n|---|---|---|")
    for deadline in DEADLINES_MS:
        rested, restless = (f"{100 * share:.2f} %" for share in late_shares(deadline, half))
        typer.echo(f"| {deadline} ms | {rested} | {restless} |")


def print_drives(half: str) -> None:
    """Prints the tables over measured capacities."""
    print_tables(DRIVES, half)


def print_drawn(half: str) -> None:
    """Prints the tables over drawn flights."""
    print_tables([(data, "control") for data in DRAWN], half)


def print_video(half: str) -> None:
    """Prints the tables of video."""
    for data, rate in itertools.product(("pairs", "triples"), RATES):
        typer.echo(f"{data}, video of {rate}, {half}\n\n{video_table(data, rate, half)}\n")


def print_pictures(half: str) -> None:
    """Prints the tables of picture quality."""
    for rate in RATES:
        typer.echo(f"pairs, video of {rate}, {half}\n\n{picture_table('pairs', rate, half)}\n")


def print_bound(_: str) -> None:
    """Prints the decision bound next to the rules."""
    typer.echo(bound_table())


def print_budgets(half: str) -> None:
    """Prints the misses of `deadline` by its budget."""
    for data in ("two_drones", "drone_dish"):
        typer.echo(f"{data}\n\n{budget_table(data, DEADLINES_MS[0], half)}\n")


def print_calibration(half: str) -> None:
    """Prints expected and observed misses of `deadline`."""
    typer.echo(calibration_table(half))


PRINTERS = {
    "control": print_control,
    "shuffled": print_shuffled,
    "restless": print_restless,
    "drives": print_drives,
    "drawn": print_drawn,
    "video": print_video,
    "pictures": print_pictures,
    "bound": print_bound,
    "budgets": print_budgets,
    "calibration": print_calibration,
}


def missing(table: str) -> str | None:
    """Returns the measurements required by a table that are missing; None if there are none."""
    if table == "drives" and not driven(NETWORKS, HALVES[1]).episodes:
        return "conext23_paired"
    pinged = ("control", "shuffled", "restless", "video", "pictures", "calibration")
    if table in pinged and not all(bursts(carrier) for carrier in CARRIERS):
        return "pam2025_multicarrier_ping"
    return None


def main() -> int:
    """Prints the tables of one kind, or the missing measurements; returns the exit code."""
    parser = argparse.ArgumentParser("python -m skybraid_studies.frontier", description="Print the study's tables.")
    parser.add_argument("table", nargs="?", choices=PRINTERS, default="control", help="What they show.")
    parser.add_argument("--chosen", action="store_true", help="Of the half that chose the parameters.")
    read = parser.parse_args()
    if name := missing(read.table):
        typer.echo(f"{name}: not in {measurements()}, the folder that SKYBRAID_TRACES names")
        return 1
    PRINTERS[read.table](HALVES[0 if read.chosen else 1])
    return 0


if __name__ == "__main__":
    sys.exit(main())
