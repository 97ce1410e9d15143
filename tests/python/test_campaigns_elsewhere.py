"""Campaigns whose dataset or whose runs are on other machines: S3, and a Dask cluster."""

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

import skybraid
from ports import free_ports
from skybraid import Campaign, ResultError
from skybraid.execute.rows import FLOWS, RUNS
from skybraid.execute.store import Lock, Store
from skybraid.execute.sweep import Status
from test_campaigns import TINY

pytest.importorskip("moto")
pytest.importorskip("distributed")

# Warnings of libraries cannot be fixed here.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    file = tmp_path / "tiny.toml"
    file.write_text(TINY, encoding="utf-8")
    return file


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A bucket of an S3 server on this machine."""
    import s3fs
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "anybody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "anything")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    s3fs.S3FileSystem.clear_instance_cache()
    with contextlib.suppress(FileExistsError):
        s3fs.S3FileSystem().mkdir("flights")
    yield "s3://flights"
    s3fs.S3FileSystem.clear_instance_cache()
    server.stop()


def test_a_campaign_lies_on_s3_and_grows_there(tiny: Path, bucket: str) -> None:
    url = f"{bucket}/tiny"
    skybraid.sweep(tiny, vary={"path.near.delay": ["5ms", "6ms"]}, seeds=[1, 2], out=url)
    skybraid.sweep(tiny, vary={"path.near.delay": ["5ms", "6ms"]}, seeds=[1, 2, 3], out=url)
    campaign = skybraid.open_results(url)
    assert isinstance(campaign, Campaign)
    assert campaign.scan(RUNS).select(pl.len()).collect().item() == 6
    lazy = campaign.scan(FLOWS)
    assert isinstance(lazy, pl.LazyFrame)
    row = lazy.filter((pl.col("seed") == 3) & (pl.col("path.near.delay") == "6ms")).select("met", "trials").collect()
    assert row.rows() == [(77, 77)]
    assert campaign.summary()["runs"].to_list() == [3, 3]
    # The error names the holder of a campaign; a process that has died holds none.
    with Lock(Store.at(url)), pytest.raises(ResultError, match="at work on this campaign"):
        skybraid.sweep(tiny, vary={"path.near.delay": ["5ms", "6ms"]}, seeds=[4], out=url)


def test_what_s3_refuses_is_told_in_words(tiny: Path, bucket: str) -> None:
    with pytest.raises(ResultError, match=r"s3://no-such-bucket/tiny: cannot (read|write) the campaign"):
        skybraid.sweep(tiny, out="s3://no-such-bucket/tiny")


@contextlib.contextmanager
def cluster() -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """A Dask scheduler and two workers of one core, each a process of its own."""
    (port,) = free_ports(1)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "stdin": subprocess.DEVNULL}
    scheduler = ["distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard"]
    worker = ["distributed.cli.dask_worker", f"127.0.0.1:{port}", "--nthreads", "1", "--no-nanny", "--no-dashboard"]
    processes = []
    try:
        for words in (scheduler, worker, worker):
            processes.append(subprocess.Popen([sys.executable, "-m", *words], env=environment, **quiet))  # type: ignore[call-overload]
            end = time.monotonic() + 120
            while words is scheduler and time.monotonic() < end:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                    break
                time.sleep(0.1)
        yield f"dask://127.0.0.1:{port}", processes[1:]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_a_worker_that_dies_loses_no_run_and_repeats_none(tiny: Path, tmp_path: Path) -> None:
    with cluster() as (url, workers):
        died = threading.Event()

        def kill_one(status: Status) -> None:
            if status.done >= 20 and not died.is_set():
                died.set()
                workers[0].kill()

        campaign = skybraid.sweep(
            tiny,
            seeds=range(1, 201),
            overrides=[("duration", "120s")],
            out=tmp_path / "out",
            on=url,
            progress=kill_one,
        )
        assert died.is_set()
    rows = campaign.scan(RUNS).sort("seed").collect()
    assert rows["seed"].to_list() == list(range(1, 201))
    assert rows["status"].unique().to_list() == ["done"]
    here = skybraid.sweep(tiny, seeds=[7], overrides=[("duration", "120s")], out=tmp_path / "here")
    columns = ["key", "met", "trials", "delay_p99_ms", "goodput_bps"]
    there = campaign.scan(FLOWS).filter(pl.col("seed") == 7).select(columns).collect()
    assert there.rows() == here.scan(FLOWS).select(columns).collect().rows()


def test_nobody_at_the_other_end_is_told(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skybraid.execute.dask._CONNECT_S", 0.5)
    with pytest.raises(ResultError, match="no Dask scheduler answers"):
        skybraid.sweep(tiny, out=tmp_path / "out", on="dask://127.0.0.1:9")
    assert not (tmp_path / "out").exists()
