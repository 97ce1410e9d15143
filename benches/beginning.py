"""Processor time of `import skybraid` and of commands that simulate nothing."""

import os
import subprocess
import sys

REPEATS = 9

MAX_MS = {
    ("-c", "import skybraid"): 150.0,
    ("-m", "skybraid", "--version"): 200.0,
    ("-m", "skybraid", "--help"): 300.0,
    ("-m", "skybraid", "list"): 500.0,
}
"""Limit in ms of user and system time, by what Python is given."""


def cpu_ms(words: tuple[str, ...]) -> float:
    """Returns the user and system time of a Python process in ms."""
    before = os.times()
    subprocess.run([sys.executable, *words], stdout=subprocess.DEVNULL, check=True)
    after = os.times()
    spent_s = after.children_user - before.children_user + after.children_system - before.children_system
    return 1000 * spent_s


def main() -> int:
    """Prints each time with its limit; returns 1 if one exceeds it."""
    missed = False
    print(f"{'minimum of ' + str(REPEATS) + ', CPU ms':<32} {'here':>9} {'limit':>8}")
    for words, limit_ms in MAX_MS.items():
        ms = min(cpu_ms(words) for _ in range(REPEATS))
        missed |= ms > limit_ms
        print(f"{' '.join(words[1:]):<32} {ms:>9.0f} {limit_ms:>8.0f}")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
