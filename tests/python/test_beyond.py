"""Our own study: what its observations count."""

import pytest

from skybraid import Scenario
from skybraid_studies import Study
from skybraid_studies.beyond import observations as beyond
from skybraid_studies.engine.observe import RunData
from skybraid_studies.engine.papers import FOLDER as STUDIES

FOLDER = STUDIES / "beyond"

LOSSY = {
    "duration": "20s",
    "path": {"one": {"rate": "10Mbit/s", "delay": "50ms", "loss": {"uniform": "20%"}}},
    "flow": {
        "control": {
            "from": "ground",
            "traffic": {"kind": "cbr", "rate": "1Mbit/s", "packet": "1250B"},
            "transport": {"protocol": "udp"},
        }
    },
}


def test_messages_count_once_they_had_the_time_to_arrive() -> None:
    flight = RunData(Scenario.build(LOSSY).native.run(1, ["messages", "packets"]))
    # 100 a second from 5 s on, up to 300 ms before the end.
    assert beyond.decided(flight, "control", 300, 5) == pytest.approx(1470, abs=1)
    late = beyond.late(flight, "control", 300, 5)
    assert late == pytest.approx(20, abs=3)
    met, all_ = beyond.met(flight, "control", 300, 5), beyond.decided(flight, "control", 300, 5)
    assert late == pytest.approx(100 * (1 - met / all_))
    assert beyond.late(flight, "control", 49, 5) == 100
    # 28 B of headers with each datagram, and one in five does not arrive.
    assert beyond.paid(flight, "control") == pytest.approx(1278 / 1250 / 0.8, rel=0.05)


def test_the_survey_has_every_configuration() -> None:
    survey = Study(FOLDER).experiments()["BEY-E11"]
    shares = [series.name for series in survey.series if series.name.endswith(", late")]
    assert len(set(shares)) == 420
    points = [{"series": name, "ours": "0.5"} for name in shares]
    lines = beyond.survey(points).splitlines()
    assert len(lines) == 2 + 20
    assert lines[2] == "| MPTCP | `low_rtt` | 0.5 · 0.5 · 0.5 | 0.5 · 0.5 · 0.5 |"
