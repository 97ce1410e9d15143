"""Compares `skybraid fit` with the held-out part of each measured set.

Run it as `python traces/check_fit.py [SET ...]`. Of several flights every other one is fitted and predicts the others,
and the other way round; of a single one the first half predicts the second. Both sides fly: what was held back is
replayed, the fit is the preset of a path and draws a flight for each run. A value is covered if it is
within the central 95 % of the runs.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from build_traces import MissingMeasurementsError, measurement_folder
from engine_series import PROBES, round_trips
from fit_series import Values
from measured_flights import SETS

import skybraid
from skybraid.execute.runs import simulation
from skybraid.fit import fit_link
from skybraid.fit.goodness import range_of_next
from skybraid.fit.link import windows
from skybraid.traces.flights import DIRECTIONS, Flight
from skybraid.traces.replay import DELAY_MS, RATE_MBPS, path_lines, write_flight

RUNS = 40
RUN_S = 300.0
PROBE_S = 0.2
RESAMPLES = 1000
WITHIN = 'require = { deadline = "300ms", share = "99.9%" }\n'
FLOW_OF = {
    "single": 'traffic = { kind = "cbr", rate = "40kbit/s", packet = "100B" }\n'
    'transport = { protocol = "udp", scheduler = "single" }\n' + WITHIN,
    "doubled": 'traffic = { kind = "cbr", rate = "40kbit/s", packet = "100B" }\n'
    'transport = { protocol = "udp", scheduler = "redundant" }\n' + WITHIN,
    "video": 'traffic = { kind = "cbr", rate = "10Mbit/s", packet = "1200B" }\n'
    'transport = { protocol = "udp", scheduler = "single" }\n' + WITHIN,
    "cubic": 'traffic = { kind = "bulk" }\n'
    'transport = { protocol = "tcp", congestion = "cubic", scheduler = "single" }\n',
}


@dataclass(frozen=True)
class Piece:
    """Results of a piece of five minutes."""

    values: dict[str, float]
    """By name."""
    rtts_ms: Values
    """Round trips, NaN where lost."""


def outcomes(paths: Sequence[str], file: Path, length_s: float, seed: int, sender: str | None) -> Piece:
    """Returns the results of flows over paths.

    Args:
        paths: lines of a scenario, the second one for doubled control.
        file: of the scenario, next to what the paths name.
        length_s: of the run.
        seed: of the run.
        sender: of video and bulk; None: the rate is unknown.
    """
    found: dict[str, float] = {}
    for name, lines in FLOW_OF.items():
        is_load = name in ("video", "cubic")
        if is_load and sender is None:
            continue
        text = f'duration = "{length_s:.3f}s"\n' + "".join(paths if name == "doubled" else paths[:1])
        text += f'[flow.a]\nfrom = "{sender if is_load else "ground"}"\n{lines}'
        native, _ = simulation(skybraid.Scenario(text, str(file))).make(seed, [], lambda _: True, None, None)
        stats = native.flow_stats()[0]
        if name == "cubic":
            found["Cubic, Mbit/s"] = stats.goodput_bps * 1e-6
        else:
            met, trials = stats.met(300.0)
            found[f"{name} within 300 ms, %"] = 100 * met / trials
    text = f'duration = "{length_s:.3f}s"\n{paths[0]}{PROBES}'
    tables = skybraid.run(skybraid.Scenario(text, str(file)), seed=seed, tables=["messages"]).tables
    # The end of the run cuts the last ones off.
    rtts_ms = round_trips(tables["messages"])[: -round(1 / PROBE_S)]
    return Piece(found | of_probes(rtts_ms, length_s), rtts_ms)


def as_measured(flight: Flight, replayed: Piece) -> Piece:
    """Returns a flight with its measured round trips; a replay halves them, and ends the wait of a stall twice."""
    ways = [flight.values("delay", direction) for direction in DIRECTIONS]
    if flight.has("rate") or ways[0] is None or ways[1] is None:
        return replayed
    rtts_ms = ways[0] + ways[1]
    rtts_ms = np.where(np.isfinite(rtts_ms), rtts_ms, np.nan)
    found = of_probes(rtts_ms, flight.length_s)
    own = {name: found[name] for name in found if name.startswith(("round", "reply"))}
    return Piece(replayed.values | own, rtts_ms)


def of_probes(rtts_ms: Values, length_s: float) -> dict[str, float]:
    """Returns the statistics of round trips in ms, NaN if lost."""
    found = {}
    known = rtts_ms[np.isfinite(rtts_ms)]
    for q in (0.5, 0.99, 0.999):
        found[f"round trip p{100 * q:g}, ms"] = float(np.quantile(known, q)) if known.size else float("nan")
    found["over 300 ms at all, %"] = 100.0 * bool((np.nan_to_num(rtts_ms, nan=np.inf) > 300).any())
    found["reply within 300 ms, %"] = 100 * float(np.mean(np.nan_to_num(rtts_ms, nan=np.inf) <= 300))
    lost = np.isnan(rtts_ms)
    found["lost, %"] = 100 * float(lost.mean())
    edges = np.flatnonzero(np.diff(np.concatenate([[False], lost, [False]]).astype(int)))
    long = (edges[1::2] - edges[::2]) * PROBE_S >= 1.0
    found["outages of 1 s per h"] = float(long.sum()) * 3600 / length_s
    return found


def folds_of(flights: Sequence[Flight]) -> list[tuple[Sequence[Flight], Sequence[Flight]]]:
    """Returns fitted and held-out flights: every other flight, or the halves of a single flight."""
    if len(flights) > 1:
        return [(flights[::2], flights[1::2]), (flights[1::2], flights[::2])]
    half_s = flights[0].length_s / 2
    return [([flights[0].part(0, half_s)], [flights[0].part(half_s, 2 * half_s)])]


def turned(flight: Flight) -> Flight:
    """Returns a flight rotated by half, as a second path if there is no second flight."""
    half = len(flight.times_s) // 2
    return replace(flight, columns=tuple(replace(one, values=np.roll(one.values, half)) for one in flight.columns))


def check(name: str, seen: Sequence[Flight], held: Sequence[Flight], folder: Path) -> tuple[list[Piece], list[Piece]]:
    """Returns held-out pieces, and runs of the fit."""
    pieces = windows(held, RUN_S)
    length_s = min(RUN_S, float(np.median([one.length_s for one in pieces])))
    sender = None
    if seen[0].has("rate"):
        sender = "vehicle" if seen[0].values("rate", "uplink") is not None else "ground"
    link = fit_link(seen)
    (folder / "link.toml").write_text(link.toml())
    (folder / f"{name.replace(' ', '-')}.toml").write_text(link.toml())
    more = ""
    for direction in DIRECTIONS:
        if not any(f"{direction}.rate" in one.processes for one in link.flights):
            more += f'{direction}.rate = "{RATE_MBPS:g}Mbit/s"\n'
        if not any(f"{direction}.delay" in one.processes for one in link.flights):
            more += f'{direction}.delay = "{DELAY_MS:g}ms"\n'
    paths = [f'[path.{path}]\npreset = "link.toml"\n{more}' for path in ("p0", "p1")]
    fitted = [outcomes(paths, folder / "fit.toml", length_s, seed, sender) for seed in range(1, RUNS + 1)]
    measured = []
    for at, piece in enumerate(pieces):
        replayed = []
        other = pieces[at - 1] if len(pieces) > 1 else turned(piece)
        for path, own in enumerate((piece, other)):
            file = folder / f"path{path}.csv"
            write_flight(own, file)
            replayed.append(path_lines(own, file, f"p{path}"))
        flown = outcomes(replayed, folder / "replay.toml", min(length_s, piece.length_s), 1, sender)
        measured.append(as_measured(piece, flown))
    return measured, fitted


def main(arguments: Sequence[str]) -> int:
    """Prints the tables; returns the exit status."""
    parser = argparse.ArgumentParser(description="Hold `skybraid fit` against what it has not seen.")
    parser.add_argument("set", nargs="*", choices=[[], *SETS], help="Sets (default: all).")
    read = parser.parse_args(arguments)
    rows: list[str] = []
    try:
        traces = measurement_folder()
        for name in read.set or SETS:
            folds = folds_of(SETS[name](traces))
            with tempfile.TemporaryDirectory(prefix="skybraid-fit-") as folder:
                found = [check(name, *fold, Path(folder)) for fold in folds]
            for key in found[0][0][0].values:
                report(name, key, found)
            report_tail(name, found)
            rows.append(summary(name, found))
    except (MissingMeasurementsError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    heads = ("measured", *SUMMARY.values(), "round trip p99.9 of all pieces, ms")
    print("", f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *rows, sep="\n")
    return 0


SUMMARY = {
    "single within 300 ms, %": "control within 300 ms",
    "doubled within 300 ms, %": "doubled",
    "video within 300 ms, %": "10 Mbit/s video, %",
    "Cubic, Mbit/s": "Cubic, Mbit/s",
    "round trip p99.9, ms": "round trip p99.9, ms",
}
"""Values of the table of docs/fit.md, and its headings."""

Folds = Sequence[tuple[list[Piece], list[Piece]]]
"""Measured and fitted pieces of each fold."""


def of_both(key: str, folds: Folds) -> tuple[str, list[Values]]:
    """Returns the number of covered held-out values, and measured and fitted values."""
    inside = total = 0
    by_side = [[[piece.values[key] for piece in side] for side in fold] for fold in folds]
    for measured, fitted in by_side:
        low, _, high = range_of_next(fitted)
        slack = 1e-6 * abs(high) + 1e-9
        inside += sum(low - slack <= one <= high + slack for one in measured)
        total += len(measured)
    return f"{inside} of {total}", [np.array([one for fold in by_side for one in fold[side]]) for side in (0, 1)]


def report(name: str, key: str, folds: Folds) -> None:
    """Prints a row: number of covered held-out values, and both medians and ranges."""
    covered, every = of_both(key, folds)
    shown = [
        f"{np.nanmedian(own):9.3f} [{np.nanmin(own):.3f}, {np.nanmax(own):.3f}] mean {np.nanmean(own):.3f}"
        for own in every
    ]
    print(f"{name:24} {key:24} {covered:12} measured {shown[0]:44}   fitted {shown[1]}", flush=True)


def summary(name: str, folds: Folds) -> str:
    """Returns the row of a set in the table of docs/fit.md: medians measured and fitted in brackets."""
    cells = []
    for key in SUMMARY:
        if key not in folds[0][0][0].values:
            cells.append("")
            continue
        covered, every = of_both(key, folds)
        medians = ", ".join(rounded(float(np.nanmedian(own))) for own in every)
        cells.append(covered if key.startswith(("single", "doubled")) else f"{covered} ({medians})")
    tails = ", ".join(rounded(float(np.quantile(known_rtts(side, folds), 0.999))) for side in (0, 1))
    return f"| {' | '.join([name, *cells, tails])} |"


def rounded(value: float) -> str:
    """Formats a value with three digits; integers in full."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def known_rtts(side: int, folds: Folds) -> Values:
    """Returns all completed round trips, measured (0) or fitted (1)."""
    every = np.concatenate([piece.rtts_ms for fold in folds for piece in fold[side]])
    known: Values = every[np.isfinite(every)]
    return known


def report_tail(name: str, folds: Folds) -> None:
    """Prints the tail of all pieces' round trips, with the interval for other pieces."""
    shown = []
    for side in (0, 1):
        every = [piece.rtts_ms[np.isfinite(piece.rtts_ms)] for fold in folds for piece in fold[side]]
        generator = np.random.default_rng(1)
        drawn = [
            np.quantile(np.concatenate([every[at] for at in generator.integers(len(every), size=len(every))]), 0.999)
            for _ in range(RESAMPLES)
        ]
        low, high = np.quantile(drawn, (0.025, 0.975))
        shown.append(f"{np.quantile(known_rtts(side, folds), 0.999):9.1f} [{low:.1f}, {high:.1f}]")
    print(f"{name:24} {'round trip p99.9 of all, ms':36}   measured {shown[0]:44}   fitted {shown[1]}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
