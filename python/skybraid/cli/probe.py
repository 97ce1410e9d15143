"""Commands `skybraid probe …`."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType
from typing import Annotated, NamedTuple

import typer

from skybraid.cli.options import AsJson, Group, Quiet, print_json
from skybraid.model.folder import check_new_file, write_whole
from skybraid.probe import echo, tcp
from skybraid.probe.measure import Measurement, ProbeError, Row, repeat, seconds, size_bytes
from skybraid.probe.server import Server, quic_module
from skybraid.probe.site import MAX_OBJECTS, Site, place

PORT, QUIC_PORT = 8080, 8081

MEASURED, IN_PART = 0, 1

app = typer.Typer(
    cls=Group,
    add_completion=False,
    rich_markup_mode=None,
    help="Measure a network from its ends: round trips, connections, web pages, QUIC.",
    no_args_is_help=True,
)

Host = Annotated[str, typer.Argument(help="Name or address of the server.", metavar="HOST")]
Port = Annotated[int, typer.Argument(help="Port of `probe serve`.", metavar="[PORT]", min=1, max=65_535)]
Runs = Annotated[int, typer.Option(help="Number of runs.", min=1)]
Mptcp = Annotated[bool, typer.Option("--mptcp", help="Over Multipath TCP instead of TCP.")]
Objects = Annotated[
    int | None, typer.Option(help="Number of objects on the page that `probe serve` makes.", min=0, max=MAX_OBJECTS)
]
ObjectBytes = Annotated[str | None, typer.Option("--bytes", help="Size of each object on that page.", metavar="SIZE")]
Timeout = Annotated[str, typer.Option(help="Maximum wait for a connection, and for its answer.")]
Wait = Annotated[str, typer.Option(help="How long to retry while nothing listens there yet.")]
Out = Annotated[Path | None, typer.Option(help="Also write the samples as CSV.", metavar="FILE.csv")]


@app.command()
def serve(
    host: Annotated[str, typer.Option(help="Address to listen on; :: is every one, of IPv4 too.")] = "::",
    port: Annotated[
        int, typer.Option(help="For HTTP and echo; QUIC has the next one. 0: any that is free.", min=0, max=65_534)
    ] = PORT,
    objects: Annotated[int, typer.Option(help="Objects of the page at /.", min=0, max=MAX_OBJECTS)] = 10,
    bytes_: Annotated[str, typer.Option("--bytes", help="Size of each object.", metavar="SIZE")] = "50kB",
    think: Annotated[str, typer.Option(help="Time before each answer over HTTP.", metavar="TIME")] = "0ms",
    quiet: Quiet = False,
) -> None:
    """Answer the other probes.

    Until SIGTERM or Ctrl-C: HTTP/1.1, HTTP/3 and an echo over UDP. HTTP offers a page at /, one of your own
    at /page?objects=10&bytes=50kB, and /bytes/SIZE.

    Example: skybraid probe serve --port 8080
    """
    site = Site(objects, size_bytes(bytes_, "--bytes"))
    server = Server(host, port, site, seconds(think, "--think"))
    asyncio.run(server.run(lambda words: None if quiet else typer.echo(words)))


@app.command()
def ping(
    host: Host,
    port: Port = PORT,
    every: Annotated[str, typer.Option(help="Interval between datagrams.", metavar="TIME")] = "10ms",
    count: Annotated[int, typer.Option(help="Datagrams in a run.", min=1)] = 300,
    bytes_: Annotated[str, typer.Option("--bytes", help="Payload of a datagram.", metavar="SIZE")] = "56",
    runs: Runs = 1,
    timeout: Annotated[str, typer.Option(help="A datagram that takes longer is lost.", metavar="TIME")] = "2s",
    wait: Wait = "5s",
    out: Out = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Measure round trips and loss of UDP datagrams.

    Exit code: 0 measured, 1 some runs failed, 2 nothing came back.

    Example: skybraid probe ping 192.0.2.1 --count 1000 --out ping.csv
    """
    size = size_bytes(bytes_, "--bytes")
    if not echo.MIN_BYTES <= size <= echo.MAX_BYTES:
        raise ProbeError(f"--bytes: found {size}, expected {echo.MIN_BYTES} to {echo.MAX_BYTES}")
    every_s, timeout_s = seconds(every, "--every"), seconds(timeout, "--timeout")

    def one(run: int) -> Awaitable[list[Row]]:
        return echo.ping(run, host, port, every_s=every_s, count=count, size=size, timeout_s=timeout_s)

    def words(rows: list[Row]) -> str:
        lost = sum(row["rtt_ms"] is None for row in rows)
        share = f"{100 * lost / len(rows):.3g} %"
        return f"{host} port {port}: {len(rows)} datagrams of {size} bytes every {every}, {lost} lost ({share})"

    _measure("ping", f"{host} {port}", runs, wait, one, words, Print(out, as_json, quiet))


@app.command()
def connect(
    host: Host,
    port: Port = PORT,
    mptcp: Mptcp = False,
    runs: Runs = 10,
    timeout: Timeout = "10s",
    wait: Wait = "5s",
    out: Out = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Measure the establishment of connections.

    Of TCP, or of MPTCP where both ends have it. Exit code: 0 measured, 1 some runs failed, 2 nothing could
    be measured.

    Example: skybraid probe connect 192.0.2.1 --mptcp --runs 10
    """
    timeout_s = seconds(timeout, "--timeout")

    def one(run: int) -> Awaitable[list[Row]]:
        return tcp.establish(run, host, port, mptcp=mptcp, timeout_s=timeout_s)

    def words(rows: list[Row]) -> str:
        return f"{host} port {port}: {_plural(len(rows), 'connection')} of {_protocols(rows)}"

    _measure("connect", f"{host} {port}", runs, wait, one, words, Print(out, as_json, quiet))


@app.command()
def http(
    url: Annotated[str, typer.Argument(help="A page, http://HOST:8080/ for `probe serve`.", metavar="URL")],
    objects: Objects = None,
    bytes_: ObjectBytes = None,
    parallel: Annotated[int, typer.Option(help="Maximum parallel connections; browsers use 6.", min=1)] = 6,
    mptcp: Mptcp = False,
    runs: Runs = 1,
    timeout: Timeout = "60s",
    wait: Wait = "5s",
    out: Out = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Measure a web page over HTTP/1.1.

    The connection, the time to first byte, the whole page with its objects, and the goodput. All times
    count from the beginning of the connection's establishment. Exit code: 0 measured, 1 some runs failed, 2
    nothing could be measured.

    Example: skybraid probe http http://192.0.2.1:8080/ --runs 20
    """
    timeout_s = seconds(timeout, "--timeout")
    page = place(tcp.joined(url, objects, bytes_), "http", 80)

    def one(run: int) -> Awaitable[list[Row]]:
        return tcp.load(run, page, parallel=parallel, mptcp=mptcp, timeout_s=timeout_s)

    _measure("http", page.url, runs, wait, one, _page_words(page.url), Print(out, as_json, quiet))


@app.command()
def http3(
    url: Annotated[str, typer.Argument(help="A page, https://HOST:8081/ for `probe serve`.", metavar="URL")],
    objects: Objects = None,
    bytes_: ObjectBytes = None,
    runs: Runs = 1,
    timeout: Timeout = "60s",
    wait: Wait = "5s",
    out: Out = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Measure a web page over HTTP/3.

    The same as `http`, over one connection of QUIC on a single path. Certificates are not checked. Exit
    code: 0 measured, 1 some runs failed, 2 nothing could be measured.

    Example: skybraid probe http3 https://192.0.2.1:8081/ --runs 20
    """
    quic = _quic()
    timeout_s = seconds(timeout, "--timeout")
    page = place(tcp.joined(url, objects, bytes_), "https", 443)

    def one(run: int) -> Awaitable[list[Row]]:
        return quic.load(run, page, timeout_s=timeout_s)  # type: ignore[no-any-return]

    _measure("http3", page.url, runs, wait, one, _page_words(page.url), Print(out, as_json, quiet))


@app.command("quic-bulk")
def quic_bulk(
    host: Host,
    port: Annotated[int, typer.Argument(help="QUIC port of `probe serve`.", metavar="[PORT]")] = QUIC_PORT,
    for_: Annotated[
        str, typer.Option("--for", help="Time to download, from the first byte on.", metavar="TIME")
    ] = "10s",
    runs: Runs = 1,
    timeout: Timeout = "60s",
    wait: Wait = "5s",
    out: Out = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Measure bulk transfer over QUIC.

    Downloads as much as the connection takes for a while. The protocol runs in Python, which bounds the
    rate. Exit code: 0 measured, 1 some runs failed, 2 nothing could be measured.

    Example: skybraid probe quic-bulk 192.0.2.1 --for 5s
    """
    quic = _quic()
    for_s, timeout_s = seconds(for_, "--for"), seconds(timeout, "--timeout")

    def one(run: int) -> Awaitable[list[Row]]:
        return quic.bulk(run, host, port, for_s=for_s, timeout_s=timeout_s)  # type: ignore[no-any-return]

    def words(rows: list[Row]) -> str:
        return f"{host} port {port}: {for_} of bulk transfer over QUIC, {_plural(len(rows), 'run')}"

    _measure("quic-bulk", f"{host} {port}", runs, wait, one, words, Print(out, as_json, quiet))


class Print(NamedTuple):
    """Outputs of a measurement: a CSV file, and the terminal."""

    out: Path | None
    as_json: bool
    quiet: bool


def _measure(
    probe: str,
    target: str,
    runs: int,
    wait: str,
    one: Callable[[int], Awaitable[list[Row]]],
    words: Callable[[list[Row]], str],
    to: Print,
) -> None:
    """Runs a probe, prints and writes its results, and exits with the command's exit code."""
    if to.out is not None:
        check_new_file(to.out)
    rows, failures = asyncio.run(repeat(runs, seconds(wait, "--wait"), one))
    found = Measurement(probe, target, words(rows), rows, failures)
    if to.out is not None:
        write_whole(to.out, found.csv().encode())
    for failure in failures:
        typer.echo(f"error: {failure}", err=True)
    if to.as_json:
        print_json(found.json())
    elif not to.quiet:
        typer.echo(found.text())
    raise typer.Exit(IN_PART if failures else MEASURED)


def _quic() -> ModuleType:
    module = quic_module()
    if module is None:
        raise ProbeError("QUIC: found no aioquic, expected it with pip install 'skybraid[quic]'")
    return module


def _page_words(url: str) -> Callable[[list[Row]], str]:
    def words(rows: list[Row]) -> str:
        first = rows[0]
        count, over = int(first["objects"] or 0), int(first["connections"] or 1)
        return (
            f"{url}: a page and {_plural(count, 'object')}, {int(first['bytes'] or 0) / 1e3:.6g} kB, "
            f"over {_plural(over, 'connection')} of {_protocols(rows)}, {_plural(len(rows), 'run')}"
        )

    return words


def _plural(count: int, thing: str) -> str:
    return f"{count} {thing}{'' if count == 1 else 's'}"


def _protocols(rows: list[Row]) -> str:
    return " and ".join(sorted({str(row["protocol"]).upper() for row in rows}))
