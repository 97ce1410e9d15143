"""What is said to be kept is on the disk; what ends a command leaves nothing behind but what is said to be kept."""

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import polars as pl
import pytest

import skybraid as sky
from conftest import TWO_PATHS
from skybraid import Campaign, ResultError, Scenario
from skybraid.model.folder import new_folder, remove_left_over, write_whole

Command = Callable[..., CompletedProcess[str]]

SHORT = Scenario(TWO_PATHS, "two-paths.toml").with_("duration", "5s")


@pytest.fixture
def flushed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files and folders that have been flushed to the disk, in order."""
    names: list[str] = []
    fsync = os.fsync

    def note(descriptor: int) -> None:
        names.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    return names


def test_a_file_is_flushed_before_its_name_and_folder(tmp_path: Path, flushed: list[str]) -> None:
    write_whole(tmp_path / "new" / "report.html", b"whole")
    assert flushed[0] == tmp_path.name
    assert flushed[1].startswith(".report.html.")
    assert flushed[2] == "new"


def test_all_of_a_result_is_flushed_before_it_is_there(tmp_path: Path, flushed: list[str]) -> None:
    sky.run(SHORT, tables=["messages"], seeds=[1, 2], out=tmp_path / "out")
    files = {path.name for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert {"summary.json", "provenance.json", "scenario.toml", "seed-1.parquet", "seed-2.parquet"} <= files
    assert files <= set(flushed)
    assert flushed[-1] == tmp_path.name


def test_each_part_of_a_campaign_is_flushed_with_its_folder(tmp_path: Path, flushed: list[str]) -> None:
    sky.sweep(SHORT, seeds=range(1, 9), out=tmp_path / "out")
    for table in ("flows", "requirements", "runs"):
        parts = [path.name for path in (tmp_path / "out" / table).iterdir()]
        assert len(parts) >= 1
        assert flushed.count(table) == len(parts)
        assert all(any(name.startswith(f".{part}") for name in flushed) for part in parts)
    # A few for each part, not for each run.
    assert len(flushed) < 20


def test_what_is_interrupted_as_it_begins_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("skybraid.model.folder.fcntl.flock", interrupt)
    with pytest.raises(KeyboardInterrupt), new_folder(tmp_path / "out"):
        pass
    assert list(tmp_path.iterdir()) == []


def waiting(words: list[str], cwd: Path, seen: Callable[[], bool]) -> subprocess.Popen[str]:
    """A command in the middle of its work."""
    command = [sys.executable, "-m", "skybraid", *words]
    child = subprocess.Popen(command, cwd=cwd, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not seen() and time.monotonic() < deadline:
        time.sleep(0.02)
    return child


def test_sigterm_interrupts_as_ctrl_c_does(two_paths: Path) -> None:
    where = two_paths.parent
    words = ["run", str(two_paths), "--out", "later", "--set", "duration=200h"]
    child = waiting(words, where, lambda: bool(list(where.glob(".later.*.partial"))))
    child.send_signal(signal.SIGTERM)
    _, stderr = child.communicate(timeout=120)
    assert child.returncode == 143
    assert "interrupted: nothing was written" in stderr
    assert "Traceback" not in stderr
    assert [path.name for path in where.iterdir()] == ["two-paths.toml"]


def test_sigterm_keeps_the_runs_of_a_campaign(two_paths: Path) -> None:
    where = two_paths.parent
    words = ["sweep", str(two_paths), "--seeds", "1..100000", "--out", "out"]
    child = waiting(words, where, lambda: bool(list((where / "out" / "runs").glob("part-*.parquet"))))
    child.send_signal(signal.SIGTERM)
    _, stderr = child.communicate(timeout=120)
    assert child.returncode == 143
    assert "the same command goes on from there" in stderr
    campaign = sky.open_results(where / "out")
    assert isinstance(campaign, Campaign)
    assert campaign.scan("runs").collect().height > 0


def test_clean_removes_what_sigkill_left_and_only_that(skybraid_process: Command, two_paths: Path) -> None:
    where = two_paths.parent
    words = ["run", str(two_paths), "--out", "later", "--set", "duration=200h"]
    child = waiting(words, where, lambda: bool(list(where.glob(".later.*.partial"))))
    (aside,) = where.glob(".later.*.partial")
    (where / "result").mkdir()
    (where / "result" / ".report.html.1.partial").write_text("half")
    assert str(aside.name) not in skybraid_process("clean").stdout
    assert aside.is_dir()
    assert not list((where / "result").iterdir())
    child.kill()
    child.communicate(timeout=120)
    assert aside.is_dir()
    assert f"removed {aside.name}" in skybraid_process("clean").stdout
    assert not aside.exists()
    assert skybraid_process("clean", "nowhere").returncode == 2


def test_a_folder_removed_before_its_lock_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flock = fcntl.flock
    removed: list[Path] = []

    def late(descriptor: int, how: int) -> None:
        if how == fcntl.LOCK_EX and not removed:
            removed.append(Path(f"/proc/self/fd/{descriptor}").readlink())
            removed[0].rmdir()
        flock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with new_folder(tmp_path / "out") as aside:
        assert removed == [aside]
        assert remove_left_over(tmp_path) == []
        (aside / "file").write_text("kept")
    assert (tmp_path / "out" / "file").read_text() == "kept"


@pytest.fixture
def campaign(two_paths: Path) -> Path:
    """A campaign of two parts, with seeds 1 and 2 in the first and 3 in the second."""
    out = two_paths.with_name("out")
    for seeds in ([1, 2], [1, 2, 3]):
        sky.sweep(SHORT, seeds=seeds, out=out)
    return out


def cut_short(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def overwrite(file: Path) -> None:
    file.write_bytes(b"garbage" * 100)


def damage_inside(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[4 : len(data) // 2] = bytes(len(data) // 2 - 4)
    file.write_bytes(data)


@pytest.mark.parametrize(
    ("damage", "table"),
    [
        (cut_short, "runs"),
        (overwrite, "flows"),
        (damage_inside, "runs"),
        (damage_inside, "flows"),
        (Path.unlink, "flows"),
    ],
)
def test_a_campaign_goes_on_around_a_damaged_part(
    skybraid: Command, campaign: Path, damage: Callable[[Path], None], table: str
) -> None:
    part = sorted((campaign / table).glob("part-*.parquet"))[0]
    damage(part)
    for words in (["report", "out"], ["plot", "out"], ["compare", "out", "out"]):
        done = skybraid(*words)
        assert done.returncode == 2, done.stderr
        assert "Traceback" not in done.stderr
        assert f"{table}/{part.name}" in done.stderr
        assert "`skybraid sweep`" in done.stderr
    with pytest.raises(ResultError, match=part.name):
        sky.open_results(campaign)
    notes: list[str] = []
    again = sky.sweep(SHORT, seeds=[1, 2, 3], out=campaign, note=notes.append)
    assert any(f"{table}/{part.name}" in words and "set aside" in words for words in notes)
    assert sorted(again.scan("runs").select("seed").collect()["seed"]) == [1, 2, 3]
    assert again.scan("flows").select(pl.len()).collect().item() == 6
    aside = sorted(path.name for path in campaign.rglob("*.damaged"))
    assert set(aside) == {f"{part.name}.damaged"}
    # They stay where they are, and the campaign goes on as if nothing had been.
    sky.sweep(SHORT, seeds=[4], out=campaign)
    assert len(list(campaign.rglob("*.damaged"))) == len(aside)
    assert skybraid("report", "out").returncode == 0


def test_a_damaged_table_of_a_result_is_named(skybraid: Command, two_paths: Path) -> None:
    skybraid("run", two_paths, "--out", "result", "--quiet")
    cut_short(two_paths.with_name("result") / "messages.parquet")
    for words in (["report", "result"], ["plot", "result"]):
        done = skybraid(*words)
        assert done.returncode == 2
        assert "Traceback" not in done.stderr
        assert "messages.parquet: the table is damaged" in done.stderr
        assert "makes the result again" in done.stderr


def test_a_broken_invariant_of_the_engine_is_a_notice(two_paths: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = iter([(0, None), (3, "crates/host/src/hosts.rs:1:2")])
    monkeypatch.setattr("skybraid._core.bugs", lambda: next(counts))
    (notice,) = sky.run(Scenario.load(two_paths), tables=[]).notices
    assert notice.startswith("3 broken invariants in Skybraid, first at crates/host/src/hosts.rs:1:2")
