"""Links fitted to measurements: processes of rate, delay, loss, stalls, outages and handovers, and their goodness.

    flights = [read_flight("drive1.csv"), read_flight("drive2.csv")]
    link = fit_link(flights)
    Path("link.toml").write_text(link.toml())

`docs/fit.md` describes the methods.
"""

from skybraid.fit.goodness import Check, held_back
from skybraid.fit.link import FittedFlight, FittedLink, fit_link, read_handovers
from skybraid.fit.loaded import without_load

__all__ = ["Check", "FittedFlight", "FittedLink", "fit_link", "held_back", "read_handovers", "without_load"]
