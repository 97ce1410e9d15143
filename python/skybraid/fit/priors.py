"""Priors from other networks for times without service and stalls that a measurement is too short to show."""

from skybraid.fit.durations import DurationPrior, Quantiles
from skybraid.fit.events import MIN_OUTAGE_S, MIN_STALL_S

RARE_EVERY_S = 840.0
"""Prior mean time in s between times without service.

46 in 38,751 s of three carriers in cars (Hu et al., CoNEXT 2023), runs of at least two seconds without any rate. It
counts as half of one.
"""

RARE_LENGTHS = Quantiles(((0.0, 2.0), (0.25, 2.0), (0.5, 3.0), (0.75, 7.5), (0.9, 22.5), (1.0, 34.0)))
"""Prior distribution of the length of times without service, in s."""

RARE_PRIOR = DurationPrior(mean_s=7.5, events=2, longest_s=RARE_LENGTHS.table[-1][1], shortest_s=MIN_OUTAGE_S)
"""Prior for times without service when few were measured; means differ by a factor of 2 between eight networks."""

STALL_PRIOR = DurationPrior(mean_s=0.4, events=5, longest_s=10.0, shortest_s=MIN_STALL_S)
"""Stalls of cars with service: 251 of PAM 2025 and CICV5G, means of 0.25 to 0.48 s, the longest 2.5 s.

With hardly any service, one lasted 33 s.
"""

STALL_EVERY_S = 32.0
"""Prior mean time in s between stalls, with the weight of half a stall."""
