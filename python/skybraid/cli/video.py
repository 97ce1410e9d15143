"""Commands `video`: clips, encoding, camera and screen, and the frames that a recording shows."""

from __future__ import annotations

import re
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from skybraid.cli.options import AsJson, Group, Quiet, print_json, print_result, seconds
from skybraid.cli.progress import progress
from skybraid.model.errors import ResultError, VideoError
from skybraid.model.folder import cannot_write
from skybraid.model.formatting import rate as rate_words
from skybraid.model.results import Results
from skybraid.video import cache, clips, pipeline, sockets, timecode
from skybraid.video import encode as encoding
from skybraid.video import watch as watching

if TYPE_CHECKING:
    from skybraid.video.pipeline import Received

_RATES = {"bit/s": 1.0, "kbit/s": 1e3, "Mbit/s": 1e6, "Gbit/s": 1e9}

app = typer.Typer(
    cls=Group,
    add_completion=False,
    rich_markup_mode=None,
    help="Encode clips, send and receive them as RTP, and judge the pictures of a run.",
    no_args_is_help=True,
)

NewFile = Annotated[Path, typer.Option(help="The file to write, Matroska with H.264.", metavar="FILE")]
Recording = Annotated[Path, typer.Argument(help="A recording of a screen or a stream.", metavar="FILE")]
ClipName = Annotated[
    str, typer.Argument(help="flight, flight-540, flight-270, or a video of your own.", metavar="CLIP")
]


Rate = Annotated[str, typer.Option(help="Constant rate, for example 10Mbit/s.", metavar="RATE")]
Codec = Annotated[str, typer.Option(help="h264 or h265.")]
Tcp = Annotated[bool, typer.Option("--tcp", help="Over a TCP connection, each packet behind its length (RFC 4571).")]
Mptcp = Annotated[bool, typer.Option("--mptcp", help="As --tcp, over an MPTCP connection.")]


@app.command()
def clip(
    name: Annotated[str, typer.Argument(help="flight, flight-540 or flight-270.", metavar="NAME")],
    out: NewFile,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Write a built-in clip to a file: a flight over fields and hills to a runway, 30 s at 30 fps.

    Example: skybraid video clip flight-270 --out flight.mkv
    """
    if name not in clips.BUILT_IN:
        raise VideoError(f"clip: found {name}, expected one of {', '.join(clips.BUILT_IN)}")
    if out.suffix.lower() != ".mkv":
        raise VideoError(f"--out: found {out}, expected a name that ends in .mkv: the clip is Matroska")
    if out.exists():
        raise ResultError(f"{out}: found a file, expected a new name; nothing was changed")
    with progress(shown=not quiet, doing="drawing") as report_progress:
        drawn = clips.open_clip(name, report_progress)
    with cache.atomic_file(out) as aside:
        shutil.copyfile(drawn.file, aside)
    print_result({"clip": str(out)}, out, as_json=as_json, quiet=quiet)


@app.command()
def encode(
    clip: ClipName,
    rate: Rate,
    codec: Codec = "h264",
    fps: Annotated[float | None, typer.Option(help="Pictures a second; by default the clip's.")] = None,
    size: Annotated[
        str | None, typer.Option(help="Width and height in pixels; by default the clip's.", metavar="WxH")
    ] = None,
    key_every: Annotated[str, typer.Option(help="Time between key frames.", metavar="TIME")] = "1s",
    intra_refresh: Annotated[
        bool, typer.Option("--intra-refresh", help="A wandering strip in place of key frames; h264.")
    ] = False,
    slices: Annotated[int, typer.Option(help="Slices per picture.")] = 1,
    preset: Annotated[str, typer.Option(help="Preset of x264: its effort per frame.")] = "veryfast",
    buffer_frames: Annotated[float, typer.Option(help="Buffer of the rate control, in mean frames.")] = 5.0,
    time_code: Annotated[bool, typer.Option(help="Draw each frame's number into it.")] = True,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Encode a clip as a run would (or use the cached one) and print its properties.

    Example: skybraid video encode flight-270 --rate 4Mbit/s
    """
    rate_bps, pixels = _rate(rate), None if size is None else _size(size)
    with progress(shown=not quiet, doing="drawing") as report_progress:
        source = clips.open_clip(clip, report_progress)
    key_every_s = cast("float", seconds("--key-every", key_every))
    wanted = encoding.Encoding(
        codec=codec,
        rate_bps=rate_bps,
        fps=fps,
        size=pixels,
        key_every_s=key_every_s,
        intra_refresh=intra_refresh,
        slices=slices,
        preset=preset,
        buffer_frames=buffer_frames,
        time_code=time_code,
    )
    made = encoding.encode(source, wanted)
    largest = max(map(sum, made.unit_lengths()))
    keys = int(made.key.sum())
    if as_json:
        told_all = {
            "file": str(made.file),
            "frames": len(made),
            "duration_s": made.duration_s,
            "rate_bps": made.mean_rate_bps,
            "key_frames": keys,
            "units": len(made.unit_bytes),
            "largest_frame_bytes": largest,
        }
        print_json(told_all)
    elif not quiet:
        size_words = f"{made.settings.width}×{made.settings.height} pixels"
        typer.echo(f"{len(made)} frames of {size_words}, {made.duration_s:.3f} s, {rate_words(made.mean_rate_bps)}")
        typer.echo(f"{keys} key frames, {len(made.unit_bytes)} NAL units, largest frame {largest} bytes")
        typer.echo(made.file)


@app.command()
def send(
    clip: ClipName,
    to: Annotated[str, typer.Option(help="Where the receiver listens.", metavar="HOST:PORT")],
    rate: Rate,
    codec: Codec = "h264",
    fps: Annotated[float | None, typer.Option(help="Pictures a second; by default the clip's.")] = None,
    key_every: Annotated[str, typer.Option(help="Time between key frames.", metavar="TIME")] = "1s",
    preset: Annotated[str, typer.Option(help="Preset of x264: its effort per frame.")] = "veryfast",
    tcp: Tcp = False,
    mptcp: Mptcp = False,
    one_port: Annotated[bool, typer.Option("--one-port", help="RTCP on RTP's own port (RFC 5761).")] = False,
    packet: Annotated[int, typer.Option(help="The largest RTP packet in bytes.", metavar="BYTES")] = 1200,
    limit: Annotated[
        str | None, typer.Option("--for", help="Time to play; by default once through the clip.", metavar="TIME")
    ] = None,
    sdp: Annotated[
        Path | None, typer.Option(help="Write the session description that players open.", metavar="FILE")
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Send a clip as a camera would: encoded, as RTP in real time, with an RTCP report each second.

    Example: skybraid video send flight-270 --rate 1Mbit/s --to 192.0.2.1:5004
    """
    where, rate_bps, limit_s = sockets.address(to), _rate(rate), seconds("--for", limit)
    key_every_s = cast("float", seconds("--key-every", key_every))
    if sdp is not None and (tcp or mptcp):
        raise VideoError("--sdp: found a connection, expected UDP; players do not take RTP over TCP by a description")
    with progress(shown=not quiet, doing="drawing") as report_progress:
        source = clips.open_clip(clip, report_progress)
    wanted = encoding.Encoding(codec=codec, rate_bps=rate_bps, fps=fps, key_every_s=key_every_s, preset=preset)
    made = encoding.encode(source, wanted)
    if sdp is not None:
        with cache.atomic_file(sdp) as aside:
            aside.write_text(pipeline.sdp(made, where, one_port=one_port), encoding="utf-8")
    sent = pipeline.send(made, where, tcp=tcp, mptcp=mptcp, one_port=one_port, packet_bytes=packet, duration_s=limit_s)
    words = "no report came back" if sent.lost is None else f"{sent.lost} packets lost"
    if sent.round_trip_s is not None:
        words += f", round trip {sent.round_trip_s * 1000:.1f} ms"
    text = f"{sent.frames} frames in {sent.packets} packets; {words}"
    value = {name: getattr(sent, name) for name in ("frames", "packets", "lost", "round_trip_s")}
    print_result(value, text, as_json=as_json, quiet=quiet)


@app.command()
def receive(
    listen: Annotated[str, typer.Option(help="Port, or address and port; RTCP on the one above.", metavar="PORT")],
    out: Annotated[Path, typer.Option(help="A CSV file, one row a picture.", metavar="FRAMES.csv")],
    codec: Codec = "h264",
    jitter_buffer: Annotated[
        str, typer.Option(help="Length of the jitter buffer: time for which the earliest packets wait.", metavar="TIME")
    ] = "150ms",
    tcp: Tcp = False,
    mptcp: Mptcp = False,
    decode: Annotated[bool, typer.Option(help="Decode, and read the time code of each picture.")] = True,
    limit: Annotated[
        str | None, typer.Option("--for", help="Maximum time; by default until the sender ends.", metavar="TIME")
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Receive RTP as a screen would: jitter buffer and decoder; write which frame was shown when as CSV.

    Example: skybraid video receive --listen 5004 --out frames.csv
    """
    where, limit_s = sockets.address(listen, listening=True), seconds("--for", limit)
    length_s = cast("float", seconds("--jitter-buffer", jitter_buffer))
    try:
        with out.open("w", encoding="utf-8", newline="") as rows:
            receiver = pipeline.Receiver(
                where, codec=codec, jitter_buffer_s=length_s, tcp=tcp, mptcp=mptcp, decode=decode, out=rows
            )
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda *_: receiver.stop())
            received = receiver.run(limit_s)
    except OSError as error:
        raise cannot_write(out, error) from error
    damaged = sum(row.damaged for row in received.rows)
    value = {"pictures": len(received.rows), "damaged": damaged, "packets": received.packets, "lost": received.lost}
    print_result(value | {"rows": str(out)}, "\n".join(_lines(received)), as_json=as_json, quiet=quiet)


def _lines(received: Received) -> list[str]:
    rows = received.rows
    damaged = sum(row.damaged for row in rows)
    lines = [f"{len(rows)} pictures, {damaged} of them damaged; {received.packets} packets, {received.lost} lost"]
    latencies = sorted(row.latency_ns / 1e6 for row in rows if row.latency_ns is not None)
    if latencies:
        middle, late = (latencies[int(share * (len(latencies) - 1))] for share in (0.5, 0.99))
        lines.append(f"latency {middle:.1f} ms (median), {late:.1f} ms (p99), {latencies[-1]:.1f} ms (most)")
    return lines


@app.command(name="read-time")
def read_time(
    file: Recording,
    as_json: AsJson = False,
) -> None:
    """Read the time code of each picture of a recording, as CSV: picture,code.

    Example: skybraid video read-time screen.y4m
    """
    source = clips.open_clip(file)
    codes = [timecode.read(planes[: source.height]) for planes in source.pictures()]
    if as_json:
        print_json({"codes": codes})
        return
    typer.echo("picture,code")
    for picture, code in enumerate(codes):
        typer.echo(f"{picture},{'' if code is None else code}")


def _rate(text: str) -> float:
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kMG]?bit/s)\s*", text)
    if found is None:
        raise VideoError(f"--rate: found {text}, expected a rate with its unit, for example 10Mbit/s")
    return float(found[1]) * _RATES[found[2]]


def _size(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"\s*(\d+)\s*[x×]\s*(\d+)\s*", text)
    if found is None:
        raise VideoError(f"--size: found {text}, expected width and height in pixels, for example 1280x720")
    return int(found[1]), int(found[2])


@app.command()
def watch(
    result: Annotated[Path, typer.Argument(help="The folder of a result.", metavar="RESULT")],
    flow: Annotated[str | None, typer.Option(help="Which flow; by default the only one with a clip.")] = None,
    every: Annotated[int, typer.Option(help="Compare every so many frames; all are decoded.")] = 1,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Decode the video received in a run and measure its picture quality.

    Writes quality.parquet and pictures of the worst moments into the result, which its report shows.

    Example: skybraid video watch runs/first-1 --flow video
    """
    seen = watching.watch(Results.open(result), flow, every_nth=every)
    watching.save(seen, result)
    report_progress = seen.summary()
    if as_json:
        requirements = [one.to_dict() for one in seen.requirements]
        frames = {"flow": seen.flow, "frames": len(seen.frames), "every_nth": seen.every_nth}
        print_json(frames | report_progress | {"requirements": requirements})
    elif not quiet:
        sampled = "" if seen.every_nth == 1 else f", one of {seen.every_nth}"
        typer.echo(
            f"{seen.flow}: {len(seen.frames)} frames{sampled}; SSIM {report_progress['ssim_mean']:.4f} on average, "
            f"{report_progress['ssim_p5']:.4f} at the 5th percentile; PSNR {report_progress['psnr_mean_db']:.1f} dB"
        )
        for one in seen.requirements:
            typer.echo(f"  {one.flow}: {one.verdict}. {one.words}.")


@app.command()
def beside(
    one: Annotated[Path, typer.Argument(help="The folder of a result.", metavar="RESULT")],
    other: Annotated[Path, typer.Argument(help="The folder of another of the same video.", metavar="OTHER")],
    out: Annotated[Path, typer.Option(help="The picture to write, .png or .jpg.", metavar="FILE")],
    flow: Annotated[str | None, typer.Option(help="Which flow; by default the only one with a clip.")] = None,
    rows: Annotated[int, typer.Option(help="How many frames.")] = 6,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Draw two runs of one video next to the original, at the frames where their quality differs most.

    Example: skybraid video beside runs/first-1 runs/second-1 --out beside.png
    """
    if out.exists():
        raise ResultError(f"{out}: found a file, expected a new name; nothing was changed")
    if out.suffix not in (".png", ".jpg"):
        raise ResultError(f"{out}: found {out.suffix or 'no ending'}, expected .png or .jpg")
    drawn = watching.beside(Results.open(one), Results.open(other), flow, rows=rows)
    try:
        drawn.save(out)
    except OSError as error:
        raise ResultError(f"{out}: cannot be written: {error.strerror}") from error
    print_result({"picture": str(out)}, out, as_json=as_json, quiet=quiet)
