"""The container file: what it copies is what the Makefile builds, and the gateway's image runs."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONTAINERFILE = ROOT / "packaging/Containerfile"
BINARY = ROOT / "target/skybraid-node"


def buildah(store: Path, *words: str | Path) -> str:
    """Runs buildah with images of its own; it needs neither a daemon nor a network."""
    places: list[str | Path] = ["--root", store / "root", "--runroot", store / "run", "--storage-driver", "vfs"]
    done = subprocess.run(["buildah", *places, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The image of the gateway, in a store of images."""
    if shutil.which("buildah") is None or os.geteuid() != 0 or not BINARY.exists():
        pytest.skip("needs buildah, root, and target/skybraid-node from `make node`")
    folder = tmp_path_factory.mktemp("images")
    words = f"build --isolation chroot --file {CONTAINERFILE} --target gateway --tag skybraid-node".split()
    buildah(folder, *words, ROOT)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def test_what_is_copied_is_what_the_makefile_builds() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    copied = re.findall(r"^COPY (\S+) \S+$", CONTAINERFILE.read_text(encoding="utf-8"), re.MULTILINE)
    assert copied == ["target/skybraid-node", "dist/*manylinux*.whl"]
    assert re.search(r"^\tinstall -D .* target/skybraid-node$", makefile, re.MULTILINE)
    assert re.search(r"-linux-gnu\) system=manylinux\d+ ;;", makefile)
    assert "--out dist" in makefile


def test_the_gateway_runs_from_its_image(store: Path) -> None:
    config = json.loads(buildah(store, "inspect", "--type", "image", "skybraid-node"))["OCIv1"]["config"]
    assert config["Entrypoint"] == ["/skybraid-node"]
    container = buildah(store, "from", "--pull-never", "skybraid-node")
    root = Path(buildah(store, "mount", container))
    assert [file.name for file in root.iterdir() if file.is_file()] == ["skybraid-node"]
    for words in (["--version"], ["gateway", "--help"]):
        done = subprocess.run(
            ["chroot", root, *config["Entrypoint"], *words], capture_output=True, text=True, check=False
        )
        assert (done.returncode, "skybraid-node" in done.stdout) == (0, True), done.stderr
    buildah(store, "umount", container)
