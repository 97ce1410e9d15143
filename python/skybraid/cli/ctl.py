"""Command `ctl`: watches and changes a running emulation."""

import sys
from contextvars import ContextVar
from typing import Annotated

import typer

from skybraid.cli.live import Direction, View
from skybraid.cli.options import AsJson, Group, print_json
from skybraid.cli.served import page
from skybraid.execute import control
from skybraid.model.errors import EmulationError
from skybraid.show.live import show_emulation

app = typer.Typer(
    cls=Group,
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Watch a running emulation, cut its paths, change its links. Use it in a second terminal, next to `emulate`, "
    "`shell` or `link`.",
)

Name = Annotated[
    str | None,
    typer.Option(help="Name or process of the emulation, if several run.", metavar="NAME|PID"),
]
PathName = Annotated[
    str, typer.Argument(help="A path, by its name in the scenario; that of `skybraid link` is `link`.", metavar="PATH")
]


_chosen: ContextVar[str | None] = ContextVar("chosen", default=None)
"""What `--name` before the command says."""


@app.callback()
def _choose(name: Name = None) -> None:
    _chosen.set(name)


@app.command()
def status(name: Name = None, as_json: AsJson = False) -> None:
    """Show the current state of the links, one line per direction: state, rate, delay, loss, queue, drops.

    Example: skybraid ctl status --json
    """
    found = _found(name)
    with control.Client(found.socket) as client:
        answer = client.ask(do="status")
    if as_json:
        print_json(answer)
        return
    view = View(found.label, on_stderr=False)
    view.show(answer)
    view.close()


@app.command()
def watch(name: Name = None, as_json: AsJson = False) -> None:
    """Show the links twice a second until the emulation ends or Ctrl-C.

    Example: skybraid ctl watch
    """
    found = _found(name)
    with control.Client(found.socket) as client:
        view = None if as_json else View(found.label, on_stderr=False)
        try:
            answer = client.ask(do="watch")
            while True:
                if view is None:
                    print_json(answer)
                    sys.stdout.flush()
                else:
                    view.show(answer)
                answer = client.answer()
        except control.EndedError:
            return
        except KeyboardInterrupt:
            return
        finally:
            if view is not None:
                view.close()


@app.command(name="page")
def page_(name: Name = None) -> None:
    """Serve a page that draws the links until the emulation ends or Ctrl-C; its address is printed.

    Example: skybraid ctl page
    """
    found = _found(name)
    with control.Client(found.socket) as client, page(found.label, shown=True) as served:
        try:
            answer = client.ask(do="watch")
            while served is not None:
                show_emulation(served, answer)
                answer = client.answer()
        except (control.EndedError, KeyboardInterrupt):
            if served is not None:
                served.finish(None)


@app.command()
def cut(path: PathName, name: Name = None, as_json: AsJson = False) -> None:
    """Take a path down in both directions. It stays down until `restore`.

    Example: skybraid ctl cut lte
    """
    _do(name, f"{path}: cut", as_json=as_json, do="cut", path=path)


@app.command()
def restore(path: PathName, name: Name = None, as_json: AsJson = False) -> None:
    """End a cut. Outages of the scenario remain.

    Example: skybraid ctl restore lte
    """
    _do(name, f"{path}: restored", as_json=as_json, do="restore", path=path)


@app.command(name="set")
def set_(
    path: PathName,
    rate: Annotated[str | None, typer.Option(help="Capacity: 5Mbit/s.", metavar="RATE")] = None,
    delay: Annotated[str | None, typer.Option(help="One-way delay: 80ms.", metavar="TIME")] = None,
    loss: Annotated[str | None, typer.Option(help="Share of the packets that is lost: 2%.", metavar="SHARE")] = None,
    direction: Annotated[
        Direction | None, typer.Option(help="Only from the vehicle (uplink) or to it (downlink); by default both.")
    ] = None,
    name: Name = None,
    as_json: AsJson = False,
) -> None:
    """Change a path's rate, delay or loss until `reset`; other values do not change.

    Example: skybraid ctl set lte --direction uplink --rate 5Mbit/s
    """
    changes = {"rate": rate, "delay": delay, "loss": loss}
    changed = ", ".join(f"{key} {value}" for key, value in changes.items() if value is not None)
    if not changed:
        raise EmulationError("ctl set: found nothing to set, expected --rate, --delay or --loss")
    where = path if direction is None else f"{path} {direction}"
    _do(name, f"{where}: {changed}", as_json=as_json, do="set", path=path, direction=direction, **changes)


@app.command()
def reset(path: PathName, name: Name = None, as_json: AsJson = False) -> None:
    """Undo `cut` and `set`: the path follows the scenario again.

    Example: skybraid ctl reset lte
    """
    _do(name, f"{path}: as the scenario says", as_json=as_json, do="reset", path=path)


@app.command()
def stop(name: Name = None, as_json: AsJson = False) -> None:
    """Stop an emulation. Its result holds the data so far.

    Example: skybraid ctl stop
    """
    _do(name, "stopping", as_json=as_json, do="stop")


def _found(name: str | None) -> control.Running:
    return control.find(name or _chosen.get())


def _do(name: str | None, done: str, *, as_json: bool, **request: object) -> None:
    with control.Client(_found(name).socket) as client:
        answer = client.ask(**request)
    if as_json:
        print_json(answer)
    else:
        typer.echo(done)
