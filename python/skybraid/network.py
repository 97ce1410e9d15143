"""Network of a scenario: nodes, links, and the route of each subflow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skybraid.model.heavy import pl

if TYPE_CHECKING:
    from skybraid.model.scenario import Scenario

PACKET_BY_PACKET = "each packet finds its own way"
"""Stands for the links of a route under `routing.ecmp` = "packet" or "round_robin"."""


def nodes(scenario: Scenario) -> pl.DataFrame:
    """Nodes: `node`, `kind` (vehicle, ground, router), `group` (its name in the scenario)."""
    return pl.DataFrame(scenario.native.nodes(), schema={"node": str, "kind": str, "group": str}, orient="row")


def links(scenario: Scenario) -> pl.DataFrame:
    """Links: `link`, and the nodes `from` and `to` that it joins."""
    return pl.DataFrame(scenario.native.links(), schema={"link": str, "from": str, "to": str}, orient="row")


def routes(scenario: Scenario, seed: int | None = None) -> pl.DataFrame:
    """Routes of each subflow in both directions.

    Args:
        scenario: the scenario.
        seed: root of the random streams, which choose among equal ways; the scenario's own by default.

    Returns:
        `flow`, `stretch` (between its ends and proxies, 0 for the first), `subflow`, `direction` (uplink is away from
        the end that opens the connection), `links` (a list; null where each packet finds its own way), `ways` (how
        many equally good ones there are).
    """
    schema: dict[str, pl.DataType | type[pl.DataType]] = {
        "flow": pl.String,
        "stretch": pl.Int64,
        "subflow": pl.Int64,
        "direction": pl.String,
        "links": pl.List(pl.String),
        "ways": pl.UInt64,
    }
    return pl.DataFrame(scenario.native.routes(scenario.seed if seed is None else seed), schema=schema)
