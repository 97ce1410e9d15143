"""The wheel in a fresh environment without Rust."""

import json
import os
import re
import subprocess
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAX_BYTES = 8_000_000
MAX_INSTALLED_BYTES = 320_000_000


@pytest.fixture(scope="module")
def wheel() -> Path:
    found = sorted((ROOT / "dist").glob(f"skybraid-*linux*_{os.uname().machine}.whl"))
    if not found:
        pytest.skip("needs dist/*.whl from `make wheel`")
    return found[-1]


@pytest.fixture(scope="module")
def fresh(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a new environment with the wheel alone."""
    folder = tmp_path_factory.mktemp("fresh")
    venv.create(folder, with_pip=True)
    subprocess.run([folder / "bin/pip", "install", "--quiet", wheel], check=True)
    return folder / "bin"


def run(fresh: Path, *words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    # Without Rust, and without what this environment has.
    environment = {"PATH": f"{fresh}:/usr/bin:/bin", "HOME": str(cwd)}
    return subprocess.run(
        [fresh / "skybraid", *words], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )


def test_all_wheels_are_small_and_of_the_stable_interface() -> None:
    for file in (ROOT / "dist").glob("*.whl"):
        assert file.stat().st_size <= MAX_BYTES, file
        assert "-abi3-" in file.name
        names = zipfile.ZipFile(file).namelist()
        assert "skybraid/cli/starts/remote-piloting.toml" in names
        assert not [name for name in names if "__pycache__" in name or name.endswith(".pyi.bak")]


def test_the_module_of_windows_is_what_python_there_loads() -> None:
    """Without the entry and the stable interface, Python cannot import it; both may be lost in cross compilation."""
    found = sorted((ROOT / "dist").glob("skybraid-*-win_amd64.whl"))
    if not found:
        pytest.skip("needs dist/*-win_amd64.whl from `make wheel`, which needs gcc-mingw-w64-x86-64")
    module = zipfile.ZipFile(found[-1]).read("skybraid/_core.pyd")
    assert b"PyInit__core\0" in module
    assert b"python3.dll\0" in module


def test_what_is_installed_is_as_large_as_the_readme_says(fresh: Path) -> None:
    folder = next((fresh.parent / "lib").glob("python3*/site-packages"))
    sizes = {
        one.name: sum(file.stat().st_size for file in one.rglob("*") if file.is_file()) for one in folder.iterdir()
    }
    total = sum(size for name, size in sizes.items() if not name.startswith("pip"))
    libraries = sum(size for name, size in sizes.items() if name.startswith(("_polars", "polars", "numpy")))
    assert total - libraries < 60_000_000 < total < MAX_INSTALLED_BYTES


def test_the_container_file_chooses_the_wheel_of_its_machine(tmp_path: Path) -> None:
    text = (ROOT / "packaging/Containerfile").read_text(encoding="utf-8")
    (argument,) = re.findall(r'pip install --no-cache-dir (".*\[report,plot\]")', text)
    for machine in ("aarch64", "x86_64", "ppc64le"):
        (tmp_path / f"skybraid-1-cp311-abi3-manylinux_2_17_{machine}.manylinux2014_{machine}.whl").touch()
    echoed = ["sh", "-c", f"echo {argument.replace('/wheels', str(tmp_path))}"]
    (wheel,) = subprocess.run(echoed, capture_output=True, text=True, check=True).stdout.split()
    assert wheel.endswith(f"_{os.uname().machine}.whl[report,plot]")


def test_a_first_flight_needs_nothing_but_the_wheel(fresh: Path, tmp_path: Path) -> None:
    assert run(fresh, "new", "first", "--like", "video", cwd=tmp_path).returncode == 0
    done = run(fresh, "run", "first.toml", "--json", cwd=tmp_path)
    assert done.returncode in (0, 1), done.stderr
    result = json.loads(done.stdout)
    assert (result["schema"], result["simulated_s"]) == (1, 60)
    assert (tmp_path / result["tables"]["messages"]).exists()


@pytest.mark.parametrize("command", ["compare", "assess", "fit", "sweep", "explain", "judge", "probe", "orbit", "list"])
def test_a_command_needs_no_extra_until_it_draws(fresh: Path, tmp_path: Path, command: str) -> None:
    done = run(fresh, command, "--help", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_missing_extra_is_named_in_one_line(fresh: Path, tmp_path: Path) -> None:
    run(fresh, "new", "second", cwd=tmp_path)
    run(fresh, "run", "second.toml", "--summary", "--out", "kept", cwd=tmp_path)
    assert "skybraid fit" in run(fresh, "completion", "bash", cwd=tmp_path).stdout
    for words, extra in ((("report", "kept"), "report"), (("plot", "kept"), "plot")):
        done = run(fresh, *words, cwd=tmp_path)
        assert done.returncode == 2
        assert done.stderr.startswith(f"error: {extra}: found no package")
        assert done.stderr.rstrip().endswith(f"pip install 'skybraid[{extra}]'")
        assert len(done.stderr.splitlines()) == 1


def test_the_extra_brings_the_report(wheel: Path, fresh: Path, tmp_path: Path) -> None:
    subprocess.run([fresh / "pip", "install", "--quiet", f"{wheel}[report]"], check=True)
    run(fresh, "new", "third", "--like", "video", cwd=tmp_path)
    done = run(fresh, "run", "third.toml", "--report", "--out", "kept", cwd=tmp_path)
    assert done.returncode in (0, 1), done.stderr
    assert (tmp_path / "kept" / "report.html").stat().st_size > 100_000
