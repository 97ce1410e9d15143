"""Command `completion`: prints what a shell needs to complete commands and options."""

from typing import Annotated

import typer

from skybraid import cli
from skybraid.cli.manual import SHELLS, completion
from skybraid.model.errors import ScenarioError, unknown


def completion_command(
    shell: Annotated[str, typer.Argument(help=f"{', '.join(SHELLS)}.", metavar="SHELL")],
) -> None:
    """Print the completion of commands and options for a shell.

    Files to write it to: bash ~/.local/share/bash-completion/completions/skybraid, zsh _skybraid in a folder of $fpath,
    fish ~/.config/fish/completions/skybraid.fish.

    Example: skybraid completion bash >~/.local/share/bash-completion/completions/skybraid
    """
    if shell not in SHELLS:
        raise ScenarioError(unknown("completion", shell, SHELLS))
    typer.echo(completion(cli.description(), shell), nl=False)
