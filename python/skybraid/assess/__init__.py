"""From measurements to an answer: which transport over which networks meets what is required.

    networks = read_networks(["lte=drive1.csv", "lte=drive2.csv", "leo=ping.log"])
    answer = assess(networks, [parse_wanted("control: 99.9% within 300ms")])
    for ranked in answer.flows: print(ranked.wanted.text, ranked.rows[0].verdict)

`docs/assess.md` says what is run and how it is judged.
"""

from skybraid.assess.answer import BUDGET_S, Answer, RankedFlow, Row, assess
from skybraid.assess.networks import Network, read_networks
from skybraid.assess.wanted import Wanted, parse_wanted

__all__ = ["BUDGET_S", "Answer", "Network", "RankedFlow", "Row", "Wanted", "assess", "parse_wanted", "read_networks"]
