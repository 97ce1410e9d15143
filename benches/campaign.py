"""What a campaign costs beside its runs: time a run, memory, cores used, and what a killed one takes to go on."""

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
MOST_OVERHEAD_MS = 5.0
MOST_GROWTH_MIB = 40.0
LEAST_CORES = 1.8

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
import json, os, resource, sys, threading, time
import skybraid
file, out, first, last, points, duration, workers = sys.argv[1:8]
peaks = []
def watch():
    while True:
        with open("/proc/self/statm") as statm:
            peaks.append(int(statm.read().split()[1]) * resource.getpagesize())
        time.sleep(0.05)
delays = [f"{5 + place / 1000:g}ms" for place in range(int(points))]
threading.Thread(target=watch, daemon=True).start()
skybraid.sweep(file, out=out + "-warm", seeds=[1], vary={"path.near.delay": delays[:2]})
began, cpu, before = time.perf_counter(), time.process_time(), peaks[-1]
campaign = skybraid.sweep(
    file, out=out, seeds=range(int(first), int(last) + 1), vary={"path.near.delay": delays},
    overrides=[("duration", duration)], workers=int(workers),
)
wall_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu
half = len(peaks) // 2
print(json.dumps({
    "wall_s": wall_s,
    "cores": cpu_s / wall_s,
    "growth_mib": (max(peaks) - before) / 2**20,
    "late_growth_mib": (max(peaks[half:]) - max(peaks[:half])) / 2**20,
    "runs": campaign.scan("runs").collect().height,
    "simulated_wall_s": campaign.scan("runs").collect()["wall_s"].sum(),
}))
"""


def child(folder: Path, *, seeds: tuple[int, int], points: int, duration: str, workers: int = 2) -> dict[str, float]:
    """Flies a campaign in a process of its own and gives what it measured."""
    words = [str(folder / "tiny.toml"), str(folder / f"out-{points}-{duration}"), *map(str, seeds), str(points)]
    done = subprocess.run(
        [sys.executable, "-c", CHILD, *words, duration, str(workers)], capture_output=True, text=True, check=True
    )
    told: dict[str, float] = json.loads(done.stdout)
    return told


def killed(folder: Path) -> tuple[int, float]:
    """Kills a campaign of 10 000 runs in the middle; gives how many were there, and how long the rest took, in s."""
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
    """Prints a line a measurement. Returns 1 when a target is missed."""
    missed = False
    print(f"{'campaign':<44} {'measured':>12} {'target':>8}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "tiny.toml").write_text(TINY, encoding="utf-8")
        for points in (1, RUNS):
            told = child(folder, seeds=(1, RUNS // points), points=points, duration="50ms")
            overhead_ms = 1e3 * (told["wall_s"] - told["simulated_wall_s"] / told["cores"]) / RUNS
            missed |= overhead_ms > MOST_OVERHEAD_MS
            print(f"{f'{RUNS} runs, {points} points: ms a run':<44} {overhead_ms:>12.3f} {MOST_OVERHEAD_MS:>8}")
            missed |= told["growth_mib"] > MOST_GROWTH_MIB * (1 if points == 1 else 2)
            print(f"{'  memory over what a small one takes, MiB':<44} {told['growth_mib']:>12.1f} {MOST_GROWTH_MIB:>8}")
            print(f"{'  of it in the second half, MiB':<44} {told['late_growth_mib']:>12.1f}")
        told = child(folder, seeds=(1, 200), points=1, duration="10min")
        missed |= told["cores"] < LEAST_CORES and (os.cpu_count() or 1) >= 2
        print(f"{'cores used by two workers':<44} {told['cores']:>12.2f} {LEAST_CORES:>8}")
        there, took_s = killed(folder)
        print(f"{f'killed after {there} of {RUNS}, the rest, s':<44} {took_s:>12.1f}")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
