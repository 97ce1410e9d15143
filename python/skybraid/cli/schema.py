"""Command `schema`: prints the JSON Schema of a kind of file."""

import json
from typing import Annotated

import typer

from skybraid.model.errors import ScenarioError, unknown
from skybraid.model.schema import KINDS, file_schema


def schema(
    kind: Annotated[str, typer.Argument(help="Kind of file.", metavar="|".join(KINDS))],
) -> None:
    """Print the JSON Schema of scenario or gateway files, for completion and checks in editors.

    A first line `#:schema FILE` in a scenario names it to editors that know TOML.

    Example: skybraid schema scenario >scenario.schema.json
    """
    if kind not in KINDS:
        raise ScenarioError(unknown("schema", kind, KINDS))
    typer.echo(json.dumps(file_schema(kind), ensure_ascii=False, indent=1))
