"""The Debian package of the gateway: the same twice, and installed in a chroot."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BINARY = ROOT / "target" / "skybraid-node"
MAX_BYTES = 8_000_000

# The whole system of this machine as the lower layer of an overlay: nothing of the machine itself is changed.
CHROOT = """
set -e
mount -t tmpfs tmpfs "$1"
cd "$1"
mkdir upper work root
mount -t overlay overlay -o lowerdir=/,upperdir=upper,workdir=work root
mount --rbind /dev root/dev
cp "$2" root/mnt/node.deb
chroot root sh -euc '
    dpkg --install /mnt/node.deb
    id --groups --name skybraid
    stat --format "%U %a" /etc/skybraid
    skybraid-node --version
    skybraid-node keygen /etc/skybraid/aircraft.key
    man -P cat skybraid-node-status | head -4
    ! command -v systemd-analyze >/dev/null || systemd-analyze verify skybraid-gateway@aircraft.service
    ls /usr/lib/systemd/system/skybraid-gateway@.service /usr/share/doc/skybraid-node/examples
    dpkg --remove skybraid-node
    test ! -e /usr/bin/skybraid-node
'
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not BINARY.exists() or shutil.which("dpkg") is None:
        pytest.skip("needs dpkg, and target/skybraid-node from `make node`")
    folders = [tmp_path_factory.mktemp(name) for name in ("one", "two")]
    for folder in folders:
        command: list[str | Path] = [
            sys.executable,
            ROOT / "packaging/build_deb.py",
            BINARY,
            "--arch",
            "amd64",
            "--out",
            folder,
        ]
        subprocess.run(command, check=True, capture_output=True)
    first, second = (next(folder.glob("*.deb")) for folder in folders)
    assert first.read_bytes() == second.read_bytes()
    return first


def test_the_program_carries_no_lines_of_its_source(package: Path) -> None:
    listed = subprocess.run(["dpkg-deb", "--contents", package], capture_output=True, text=True, check=True).stdout
    (size,) = (int(line.split()[2]) for line in listed.splitlines() if line.endswith("./usr/bin/skybraid-node"))
    assert size <= MAX_BYTES


def test_the_package_has_a_unit_a_user_pages_and_completions(package: Path) -> None:
    listed = subprocess.run(["dpkg-deb", "--contents", package], capture_output=True, text=True, check=True).stdout
    for name in (
        "usr/bin/skybraid-node",
        "usr/lib/systemd/system/skybraid-gateway@.service",
        "usr/lib/sysusers.d/skybraid.conf",
        "usr/share/man/man1/skybraid-node-gateway.1.gz",
        "usr/share/bash-completion/completions/skybraid-node",
        "usr/share/doc/skybraid-node/examples/aircraft.toml",
    ):
        assert f"./{name}\n" in listed


def test_the_package_installs_works_and_goes_again(package: Path, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("a chroot needs root")
    mounted: list[str | Path] = ["unshare", "--mount", "sh", "-c", CHROOT, "sh", tmp_path, package]
    done = subprocess.run(mounted, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "skybraid dialout\nskybraid 750\nskybraid-node " in done.stdout
    assert 'peer = "' in done.stdout
    assert "SKYBRAID-NODE-STATUS(1)" in done.stdout
