"""The simulator and the Linux kernel agree over the same links: the short form of `make kernel`."""

from pathlib import Path

import pytest

from agreement import PATHS, STOOD, Agreement, Case, agreement, line, scenario
from marks import needs_emulator

pytestmark = needs_emulator

STARLINK = {"starlink": PATHS["starlink"] + 'uplink.loss = { uniform = "0.1%" }\n'}
BOTH = {"lte": PATHS["lte"], "starlink": PATHS["starlink"]}

CASES = [
    *[
        Case(
            f"{control}-starlink",
            scenario(8, STARLINK, f'protocol = "tcp", congestion = "{control}", stack = "kernel"'),
            within,
        )
        for control, within in (("reno", 0.10), ("cubic", 0.10), ("bbr", 0.15))
    ],
    Case("mptcp", scenario(8, BOTH, 'protocol = "mptcp", scheduler = "linux", stack = "kernel"'), 0.15),
]


def judge(found: Agreement, holds: bool) -> None:
    """Asserts that a case holds; skips it if the machine was too busy."""
    if not holds and found.stood > STOOD:
        pytest.skip(f"the machine stood still for {found.stood:.0%} of the time")
    assert holds, line(found)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_kernel_carries_over_a_link_what_the_simulator_says(case: Case, tmp_path: Path) -> None:
    found = agreement(case, (1, 2, 3), tmp_path, parallel=3)
    judge(found, found.holds)


def test_own_transports_agree_in_real_and_virtual_time(tmp_path: Path) -> None:
    text = scenario(
        8,
        {name: PATHS[name] + 'uplink.loss = { uniform = "0.5%" }\n' for name in ("lte", "starlink")},
        'protocol = "mp_dccp", scheduler = "round_robin", congestion = "ccid5", reordering = "adaptive"',
        'kind = "cbr", rate = "8Mbit/s", packet = "1200B"',
    )
    found = agreement(Case("mp_dccp", text, 0.05), (1, 2, 3), tmp_path)
    # The last percent of so few seconds is left to `make kernel`.
    times_ms = found.times_ms[1][:2] == pytest.approx(found.times_ms[0][:2], rel=0.05)
    judge(found, found.holds and times_ms)
