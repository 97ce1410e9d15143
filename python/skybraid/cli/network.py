"""Command `network`: nodes, links and routes of a scenario."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skybraid.cli.options import AsJson, Overrides, Seed, assignment, print_json
from skybraid.model.errors import ScenarioError
from skybraid.model.formatting import count
from skybraid.model.scenario import Scenario
from skybraid.network import PACKET_BY_PACKET, links, nodes, routes

if TYPE_CHECKING:
    import polars as pl


def network(
    scenario: Annotated[Path, typer.Argument(help="The scenario, a TOML file.", metavar="SCENARIO")],
    flow: Annotated[
        str | None, typer.Option(help="Only flows whose names begin with NAME, with the links of each.", metavar="NAME")
    ] = None,
    seed: Seed = None,
    set_: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Show the nodes and links of a scenario and the route of each subflow.

    Example: skybraid network fleet.toml
    """
    chosen = Scenario.load(scenario, [assignment(text) for text in set_ or []])
    ways = routes(chosen, seed)
    if flow is not None:
        ways = ways.filter(ways["flow"].str.starts_with(flow))
        if ways.is_empty():
            raise ScenarioError(
                f"--flow: found no flow that begins with {flow}; expected one of {', '.join(chosen.flows)}"
            )
    if as_json:
        tables = {"nodes": nodes(chosen).to_dicts(), "links": links(chosen).to_dicts(), "routes": ways.to_dicts()}
        print_json(tables)
        return
    for line in _lines(chosen, ways, each=flow is not None):
        typer.echo(line)


def _lines(scenario: Scenario, ways: pl.DataFrame, *, each: bool) -> list[str]:
    all_nodes, all_links = nodes(scenario), links(scenario)
    groups = Counter(all_nodes["group"].to_list())
    named = [name if size == 1 else f"{name} × {count(size)}" for name, size in groups.items()]
    lines = [
        f"{count(len(all_nodes))} nodes: {', '.join(named)}",
        f"{count(len(all_links))} links",
        *(f"warning: {warning}" for warning in scenario.warnings()),
    ]
    if each:
        for row in ways.iter_rows(named=True):
            way = PACKET_BY_PACKET if row["links"] is None else " → ".join(row["links"])
            place = f"{row['flow']}, subflow {row['subflow'] + 1}, {row['direction']}"
            lines.append(f"{place}: {way} (1 of {count(row['ways'])})" if row["ways"] > 1 else f"{place}: {way}")
        return lines
    away = ways.filter(ways["direction"] == "uplink")
    for name in scenario.flows:
        own = away.filter((away["flow"] == name) | away["flow"].str.starts_with(f"{name}."))
        number = own["flow"].n_unique()
        hops = own["links"].list.len().drop_nulls()
        long = "packet by packet" if hops.is_empty() else _number(hops, "link")
        lines.append(
            f"{name}: {count(number)} {'flow' if number == 1 else 'flows'}, {count(len(own))} "
            f"{'subflow' if len(own) == 1 else 'subflows'}, {long}, {_ways(own['ways'])}"
        )
    return lines


def _ways(values: pl.Series) -> str:
    return "single route" if values.max() == 1 else f"{_range(values)} equal ways"


def _range(values: pl.Series) -> str:
    numbers = values.to_list()
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"


def _number(values: pl.Series, thing: str) -> str:
    words = _range(values)
    return f"{words} {thing}" if words == "1" else f"{words} {thing}s"
