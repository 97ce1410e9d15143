"""Speed and memory of the main scenario on one core."""

import json
import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
SKYBRAID = str(Path(sys.executable).with_name("skybraid"))
SCENARIO = str(ROOT / "scenarios" / "remote-piloting.toml")
REPEAT = [f"--set=path.leo.{direction}.delay.repeat=true" for direction in ("uplink", "downlink")]
MIN_SPEED = 1000
VARIANTS = [
    ("with tables", [], 400),
    ("--summary", ["--summary"], 100),
    ("--summary, three times as long", ["--summary", "--set=duration=90min", *REPEAT], 100),
]


def fly(options: list[str]) -> tuple[float, float]:
    """Simulates in a child process; returns simulated seconds per second, and the peak memory in MB."""
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "found.json"
        process = os.fork()
        if process == 0:
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
            os.dup2(os.open(found, os.O_WRONLY | os.O_CREAT, 0o600), 1)
            os.execv(SKYBRAID, [SKYBRAID, "run", SCENARIO, "--json", "--quiet", "--out", f"{folder}/flight", *options])
        _, status, usage = os.wait4(process, 0)
        if os.waitstatus_to_exitcode(status) == 2:
            sys.exit(2)
        flight = json.loads(found.read_text(encoding="utf-8"))
    return flight["simulated_s"] / flight["wall_s"], usage.ru_maxrss / 1000


def main() -> int:
    """Prints one line per variant; returns 1 if a target is missed."""
    missed = False
    print(f"{'main scenario':<32} {'x real time':>11} {'target':>7} {'peak MB':>8} {'target':>7}")
    for name, options, max_mb in VARIANTS:
        speed, peak_mb = fly(options)
        missed |= speed < MIN_SPEED or peak_mb > max_mb
        print(f"{name:<32} {speed:>11.0f} {MIN_SPEED:>7} {peak_mb:>8.0f} {max_mb:>7}")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
