"""Overhead of campaigns: time per run, memory, cores used, and the cost of resuming a killed campaign."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import polars as pl

RUNS = 10_000
MAX_MS = 5.0
MAX_GROWTH_MIB = 40.0
MIN_CORES = 1.8

TINY = """
name = "Tiny"
duration = "50ms"
[path.near]
rate = "10Mbit/s"
delay = "5ms"
[flow.control]
from = "ground"
traffic = { kind = "cbr", rate = "100kbit/s", packet = "125B" }
transport = { protocol = "udp", scheduler = "redundant" }
require = { deadline = "20ms", share = "99%" }
"""

CHILD = """
import json, os, pathlib, resource, sys, threading, time
import skybraid
file, out, seeds, points, duration, workers = sys.argv[1:7]
peaks, wanted = [], {}
def watch():
    while True:
        peaks.append(int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize())
        for task in pathlib.Path("/proc/self/task").iterdir():
            try:
                running, waiting, _ = map(int, (task / "schedstat").read_text().split())
            except OSError:
                continue
            wanted[task.name] = (running + waiting) / 1e9
        time.sleep(0.05)
delays = [f"{5 + place / 1000:g}ms" for place in range(int(points))]
skybraid.sweep(file, out=out + "-warm", seeds=range(1, 500), vary={"path.near.delay": delays[:2]})
threading.Thread(target=watch, daemon=True).start()
time.sleep(0.2)
began, wanted_s, first = time.perf_counter(), sum(wanted.values()), len(peaks)
campaign = skybraid.sweep(
    file, out=out, seeds=range(1, int(seeds) + 1), vary={"path.near.delay": delays},
    overrides=[("duration", duration)], workers=int(workers),
)
wall_s, seen = time.perf_counter() - began, peaks[first:]
print(json.dumps({
    "wall_s": wall_s,
    "cores": (sum(wanted.values()) - wanted_s) / wall_s,
    "growth_mib": (max(seen) - peaks[first - 1]) / 2**20,
    "last_half_mib": (max(seen[len(seen) // 2:]) - max(seen[:len(seen) // 2])) / 2**20,
}))
"""


def child(folder: Path, *, seeds: int, points: int, duration: str, workers: int = 2) -> dict[str, float]:
    """Runs a campaign in a child process and returns its measurements.

    Cores are those that its threads ran on, or waited for while other processes had them; a thread that waits for
    another of its process wants none.
    """
    place = folder / f"out-{seeds}-{points}-{duration}"
    words = [str(folder / "tiny.toml"), str(place), str(seeds), str(points), duration, str(workers)]
    done = subprocess.run([sys.executable, "-c", CHILD, *words], capture_output=True, text=True, check=True)
    measured: dict[str, float] = json.loads(done.stdout)
    return measured


def killed(folder: Path) -> tuple[int, float]:
    """Kills a campaign of 10 000 runs midway; returns the number of completed runs, and the time in s of the others."""
    out = folder / "killed"
    words = [sys.executable, "-m", "skybraid", "sweep", str(folder / "tiny.toml"), "--seeds", f"1..{RUNS}"]
    words += ["--set", "duration=5s", "--out", str(out), "--quiet"]
    began = subprocess.Popen(words)
    while began.poll() is None and len(list(out.glob("runs/*.parquet"))) < 2:
        time.sleep(0.05)
    began.send_signal(signal.SIGKILL)
    began.wait()
    there = pl.read_parquet(out / "runs" / "*.parquet").height
    clock = time.perf_counter()
    subprocess.run(words, check=True)
    took_s = time.perf_counter() - clock
    runs = pl.read_parquet(out / "runs" / "*.parquet")
    flows = pl.read_parquet(out / "flows" / "*.parquet")
    whole = runs["key"].n_unique() == runs.height == flows.height == RUNS and set(runs["key"]) == set(flows["key"])
    if not whole:
        raise SystemExit(f"found {runs.height} runs, {runs['key'].n_unique()} different, expected {RUNS}")
    return there, took_s


def main() -> int:
    """Prints one line per measurement; returns 1 if a target is missed."""
    missed = False
    print(f"{'campaign':<56} {'measured':>9} {'target':>8}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "tiny.toml").write_text(TINY, encoding="utf-8")
        for runs, points in ((RUNS, 1), (4 * RUNS, 1), (RUNS, RUNS)):
            measured = child(folder, seeds=runs // points, points=points, duration="50ms")
            ms = 1e3 * measured["wall_s"] / runs
            missed |= ms > MAX_MS
            print(f"{f'{runs} runs of {points} points: ms a run, all in all':<56} {ms:>9.3f} {MAX_MS:>8}")
            growth_mib = measured["growth_mib"]
            missed |= growth_mib > MAX_GROWTH_MIB
            print(f"{'  peak of memory over that of 1000 runs, MiB':<56} {growth_mib:>9.1f} {MAX_GROWTH_MIB:>8}")
            print(f"{'  of it in the second half of the time, MiB':<56} {measured['last_half_mib']:>9.1f}")
        measured = child(folder, seeds=200, points=1, duration="10min")
        missed |= measured["cores"] < MIN_CORES and (os.cpu_count() or 1) >= 2
        print(f"{'cores that two workers keep busy':<56} {measured['cores']:>9.2f} {MIN_CORES:>8}")
        there, took_s = killed(folder)
        print(f"{f'killed after {there} of {RUNS}, the rest, s':<56} {took_s:>9.1f}")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
