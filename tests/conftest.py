"""A flight of ten seconds over two plain paths, and the command as its users run it."""

import gc
import json
import logging
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest
from bokeh.document import Document
from hypothesis import settings

from skybraid import Campaign, Results, Scenario, cli, run, sweep
from skybraid.execute.emulation import lacks
from skybraid.show.report import charts, models
from skybraid.video.clips import Clip, open_clip, render

# Always the same random cases, so that a test that fails fails again.
settings.register_profile("repeatable", derandomize=True)
settings.load_profile("repeatable")

LONG = ("test_golden.py", "test_stubs.py")
"""Files with few tests that take long: begun last, one of them would keep a single worker busy at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begins with the longest files; the workers take them in this order (`--no-loadscope-reorder`)."""
    tests = Counter(item.path for item in items)
    items.sort(key=lambda item: (item.path.name not in LONG, -tests[item.path], item.path))


def pytest_collection_finish() -> None:
    """Exempts what has been imported and collected from garbage collection, which would look at all of it each time."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    """Undoes it, so that nothing seems to be leaked at the end."""
    gc.unfreeze()


def pytest_make_parametrize_id(val: object) -> str | None:
    """Names bytes by their length: what a compressor writes differs from second to second, and workers must agree."""
    return f"{len(val)}B" if isinstance(val, bytes) else None


TWO_PATHS = """
name = "Two plain paths"
duration = "10s"
seed = 3

[path.near]
uplink.rate = "20Mbit/s"
uplink.delay = "20ms"
uplink.queue = { packets = 100 }
uplink.loss = { uniform = "0.5%" }
downlink.rate = "20Mbit/s"
downlink.delay = "20ms"
downlink.queue = { packets = 100 }
downlink.loss = { uniform = "0.5%" }

[path.far]
uplink.rate = "20Mbit/s"
uplink.delay = "60ms"
uplink.queue = { packets = 100 }
downlink.rate = "20Mbit/s"
downlink.delay = "60ms"
downlink.queue = { packets = 100 }

[flow.video]
from = "vehicle"
traffic = { kind = "cbr", rate = "4Mbit/s", packet = "1000B" }
transport = { protocol = "udp", scheduler = "round_robin" }
require = [{ deadline = "100ms", share = "95%" }, { delay = "90ms", percentile = "95%" }]

[flow.control]
from = "ground"
traffic = { kind = "cbr", rate = "100kbit/s", packet = "125B" }
transport = { protocol = "udp", scheduler = "redundant" }
require = { deadline = "100ms", share = "99.999%" }

[[event]]
at = "4s"
path.far.down = "1s"
"""

FILMED = """
name = "A camera over two paths"
duration = "10s"
seed = 3

[path.near]
rate = "20Mbit/s"
delay = "20ms"
loss = { uniform = "0.5%" }

[path.far]
rate = "20Mbit/s"
delay = "60ms"

[flow.video]
from = "vehicle"
traffic = { kind = "video", rate = "4Mbit/s", fps = 25 }
transport = { protocol = "udp", scheduler = "round_robin" }
require = [
    { frames = "95%", within = "300ms" },
    { frame_rate = 20.0, worst_frame_rate = 10.0, freezes = 30.0 },
]

[flow.control]
from = "ground"
traffic = { kind = "cbr", rate = "100kbit/s", packet = "125B" }
transport = { protocol = "udp", scheduler = "redundant" }
require = { deadline = "100ms", share = "99.999%" }

[[event]]
at = "4s"
path.far.down = "1s"

[[event]]
at = "4s"
path.near.down = "1s"
"""


class Refusal(logging.Handler):
    """Fails a test where Bokeh only warns: of an attribute that it does not know."""

    def emit(self, record: logging.LogRecord) -> None:
        """Raises what was logged."""
        raise AssertionError(record.getMessage())


@pytest.fixture(scope="session", autouse=True)
def read_by_bokeh() -> Iterator[None]:
    """Lets Bokeh read and check the charts of every page that a test makes; pages are written without it."""

    def checked(roots: Mapping[str, models.Model]) -> tuple[str, dict[str, str]]:
        text, elements = models.document(roots)
        Document.from_json(json.loads(text)["documents"]["report"])
        return text, elements

    log, handler = logging.getLogger("bokeh"), Refusal()
    log.addHandler(handler)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(charts, "document", checked)
        yield
    log.removeHandler(handler)


def emulator_lacks() -> str:
    """What this machine lacks for the emulator, or nothing."""
    return lacks()


Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def two_paths(tmp_path: Path) -> Path:
    """The scenario's file, in a folder of its own."""
    file = tmp_path / "two-paths.toml"
    file.write_text(TWO_PATHS, encoding="utf-8")
    return file


@pytest.fixture(scope="session")
def flown(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """The result of one flight, on disk."""
    return run(Scenario(TWO_PATHS), out=tmp_path_factory.mktemp("flown") / "result")


@pytest.fixture(scope="session")
def filmed(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """The result of one flight with a camera, on disk."""
    return run(Scenario(FILMED), out=tmp_path_factory.mktemp("filmed") / "result")


MOODY = """
import skybraid


@skybraid.scheduler("moody")
class Moody:
    def choose(self, now_s, unit, paths):
        if now_s > 0.5:
            raise ValueError("not in the mood")
        return [path.id for path in paths if path.usable][:1]
"""
"""A scheduler that makes its run fail."""

SWEPT = {
    "flow.video.transport.scheduler": ["single", "round_robin", "redundant", "python:moody"],
    "path.far.uplink.delay": ["20ms", "60ms", "120ms"],
}


@pytest.fixture(scope="session")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    """A campaign over two axes and five seeds; the runs of one scheduler fail."""
    folder = tmp_path_factory.mktemp("swept")
    plugin = folder / "moody.py"
    plugin.write_text(MOODY, encoding="utf-8")
    scenario = Scenario(TWO_PATHS, "two-paths.toml").with_("duration", "5s")
    return sweep(scenario, vary=SWEPT, seeds=range(1, 6), out=folder / "campaign", plugins=[plugin], workers=1)


FILM = Scenario(FILMED, "filmed.toml").with_all(
    {
        "event": [],
        "duration": "3s",
        "flow.video.require": [
            {"frames": "95%", "within": "300ms"},
            {"frames": "80%", "within": "1s"},
            {"ssim": 0.5, "ssim_share": "95%"},
            {"ssim": 0.8, "ssim_share": "50%"},
        ],
    }
)
"""Three seconds of the camera's flight without its outages."""


@pytest.fixture(scope="session")
def shot(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    """A campaign with a camera over two axes and four seeds.

    Where a scheduler takes the paths in turn, losses of the near one damage pictures.
    """
    vary = {
        "flow.video.transport.scheduler": ["round_robin", "redundant"],
        "flow.video.traffic.rate": ["2Mbit/s", "4Mbit/s"],
    }
    return sweep(FILM, vary=vary, seeds=range(1, 5), out=tmp_path_factory.mktemp("shot") / "campaign", workers=1)


@pytest.fixture(scope="module")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Clips and what is made of them are kept in a folder of the tests' own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Clip:
    """Two and a half seconds of the built-in flight, small."""
    file = tmp_path_factory.mktemp("clips") / "flight.mkv"
    render(file, 240, 136, 2.5)
    return open_clip(file)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two seconds of the built-in flight, small, as `flight.mkv`."""
    folder = tmp_path_factory.mktemp("flights")
    render(folder / "flight.mkv", 240, 136, 2.0)
    return folder


@pytest.fixture
def skybraid(tmp_path: Path) -> Command:
    """Runs the command in an empty folder, in this process, and gives what it printed and its exit code."""

    def command(*arguments: object) -> subprocess.CompletedProcess[str]:
        words = ["skybraid", *map(str, arguments)]
        out, err = (TextIOWrapper(BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
        code: object = 0
        handler = signal.getsignal(signal.SIGTERM)
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            patch.chdir(tmp_path)
            patch.setattr(sys, "argv", words)
            patch.setenv("COLUMNS", "80")
            try:
                cli.main()
            except SystemExit as leaving:
                code = leaving.code or 0
            finally:
                signal.signal(signal.SIGTERM, handler)
        assert isinstance(code, int)
        printed = (stream.buffer.getvalue().decode("utf-8") for stream in (out, err))
        return subprocess.CompletedProcess(words, code, *printed)

    return command


@pytest.fixture
def skybraid_process(tmp_path: Path) -> Command:
    """Runs the command in a process of its own: for signals, namespaces, and algorithms that a process keeps."""

    def command(*arguments: object) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "-m", "skybraid", *map(str, arguments)]
        return subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)

    return command
