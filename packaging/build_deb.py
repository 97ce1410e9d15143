"""Builds the Debian package of the gateway from its static binary; the same inputs give the same bytes.

    build_deb.py BINARY --arch arm64 --out dist [--describe NATIVE_BINARY]

The manual pages and completions come from the help of the binary, or of `--describe` where the binary is for another
machine. Uses nothing but Python's own library.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import importlib.util
import io
import os
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
NAME = "skybraid-node"
ARCHITECTURES = ("amd64", "arm64", "armhf")

POSTINST = """#!/bin/sh
set -e
if [ "$1" = configure ]; then
    if command -v systemd-sysusers >/dev/null; then
        systemd-sysusers skybraid.conf
    elif ! getent passwd skybraid >/dev/null; then
        useradd --system --no-create-home --home-dir / --shell /usr/sbin/nologin --user-group skybraid
        usermod --append --groups dialout skybraid
    fi
    install -d -o skybraid -g skybraid -m 750 /etc/skybraid /var/log/skybraid
    if [ -d /run/systemd/system ]; then
        systemctl daemon-reload
        # A gateway that runs goes on with the new program.
        systemctl try-restart 'skybraid-gateway@*.service'
    fi
fi
"""

PRERM = """#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
    systemctl stop 'skybraid-gateway@*.service'
fi
"""

POSTRM = """#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
fi
"""


def manual() -> ModuleType:
    """Returns the module that writes manual pages and completions; the package itself need not be built."""
    spec = importlib.util.spec_from_file_location("manual", ROOT / "python/skybraid/cli/manual.py")
    if spec is None or spec.loader is None:
        sys.exit("python/skybraid/cli/manual.py is missing")
    module = importlib.util.module_from_spec(spec)
    sys.modules["manual"] = module
    spec.loader.exec_module(module)
    return module


def help_of(binary: Path, *words: str) -> str:
    """Returns what the binary prints for `--help`."""
    return subprocess.run([binary, *words, "--help"], capture_output=True, text=True, check=True).stdout


def described(pages: ModuleType, binary: Path) -> object:
    """Describes the commands of the binary."""
    text = help_of(binary)
    section = text.partition("Commands:\n")[2].partition("\n\n")[0]
    names = [line.split()[0] for line in section.splitlines() if line.startswith("  ")]
    below = tuple(pages.read_help(f"{NAME} {name}", help_of(binary, name)) for name in names if name != "help")
    return pages.read_help(NAME, text, below)


def version() -> str:
    """Returns the version of the workspace."""
    return str(tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))["workspace"]["package"]["version"])


def contents(binary: Path, describe: Path) -> dict[str, tuple[bytes, int]]:
    """Returns the files of the package: contents and mode by path."""
    pages = manual()
    command = described(pages, describe)
    unit = (HERE / "skybraid-gateway@.service").read_text(encoding="utf-8")
    system = "usr/lib/systemd/system/skybraid-gateway@.service"
    files = {
        f"usr/bin/{NAME}": (binary.read_bytes(), 0o755),
        system: (unit.replace("/usr/local/bin", "/usr/bin").encode(), 0o644),
        "usr/lib/sysusers.d/skybraid.conf": ((HERE / "skybraid.sysusers").read_bytes(), 0o644),
        f"usr/share/bash-completion/completions/{NAME}": (pages.completion(command, "bash").encode(), 0o644),
        f"usr/share/zsh/vendor-completions/_{NAME}": (pages.completion(command, "zsh").encode(), 0o644),
        f"usr/share/fish/vendor_completions.d/{NAME}.fish": (pages.completion(command, "fish").encode(), 0o644),
    }
    shared = f"usr/share/doc/{NAME}"
    licences = [(ROOT / name).read_text(encoding="utf-8") for name in ("LICENSE-MIT", "LICENSE-APACHE")]
    files[f"{shared}/copyright"] = ("MIT or Apache-2.0, at your choice.\n\n" + "\n\n".join(licences)).encode(), 0o644
    files[f"{shared}/changelog.gz"] = packed((ROOT / "CHANGELOG.md").read_bytes()), 0o644
    files[f"{shared}/gateway.md.gz"] = packed((ROOT / "docs/gateway.md").read_bytes()), 0o644
    for example in ("aircraft.toml", "ground.toml"):
        files[f"{shared}/examples/{example}"] = (HERE / example).read_bytes(), 0o644
    for one in command.all():  # type: ignore[attr-defined] # of a module loaded by path
        page = pages.man_page(one, f"{NAME} {version()}").encode()
        files[f"usr/share/man/man1/{one.name.replace(' ', '-')}.1.gz"] = packed(page), 0o644
    return files


def packed(data: bytes) -> bytes:
    """Compresses without a time."""
    return gzip.compress(data, 9, mtime=0)


def tar(files: dict[str, tuple[bytes, int]], moment: int) -> bytes:
    """Packs files and the folders above them as root's, sorted, as .tar.xz."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:xz", format=tarfile.GNU_FORMAT, preset=6) as archive:
        folders = {str(above) for name in files for above in Path(name).parents} - {"."}
        for name in ["", *sorted(folders | files.keys())]:
            entry = tarfile.TarInfo(f"./{name}")
            entry.mtime, entry.uname, entry.gname = moment, "root", "root"
            if name in files:
                data, entry.mode = files[name]
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))
            else:
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                archive.addfile(entry)
    return out.getvalue()


def control(files: dict[str, tuple[bytes, int]], arch: str) -> dict[str, tuple[bytes, int]]:
    """Returns the control files of the package."""
    size = sum(-(-len(data) // 1024) for data, _ in files.values())
    fields = f"""Package: {NAME}
Version: {version()}
Architecture: {arch}
Maintainer: The Skybraid contributors <skybraid@localhost>
Installed-Size: {size}
Recommends: systemd
Section: net
Priority: optional
Description: multipath gateway of a remotely piloted aircraft
 Carries MAVLink, video and IP traffic between an aircraft and its ground station
 over several networks at once, encrypted. One static program; the kernel needs no
 patch. Examples of its configuration are in /usr/share/doc/{NAME}/examples.
"""
    sums = "".join(
        f"{hashlib.md5(data, usedforsecurity=False).hexdigest()}  {name}\n" for name, (data, _) in sorted(files.items())
    )
    return {
        "control": (fields.encode(), 0o644),
        "md5sums": (sums.encode(), 0o644),
        "postinst": (POSTINST.encode(), 0o755),
        "prerm": (PRERM.encode(), 0o755),
        "postrm": (POSTRM.encode(), 0o755),
    }


def archive(members: list[tuple[str, bytes]], moment: int) -> bytes:
    """Packs members as `ar` does."""
    out = b"!<arch>\n"
    for name, data in members:
        out += f"{name:<16}{moment:<12}{0:<6}{0:<6}{100644:<8}{len(data):<10}`\n".encode()
        out += data + b"\n" * (len(data) % 2)
    return out


def main() -> None:
    """Writes the package and its checksum."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("binary", type=Path)
    parser.add_argument("--arch", choices=ARCHITECTURES, required=True)
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument("--describe", type=Path, help="the same program for this machine")
    chosen = parser.parse_args()
    moment = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
    files = contents(chosen.binary, (chosen.describe or chosen.binary).resolve())
    package = archive(
        [
            ("debian-binary", b"2.0\n"),
            ("control.tar.xz", tar(control(files, chosen.arch), moment)),
            ("data.tar.xz", tar(files, moment)),
        ],
        moment,
    )
    chosen.out.mkdir(parents=True, exist_ok=True)
    path = chosen.out / f"{NAME}_{version()}_{chosen.arch}.deb"
    path.write_bytes(package)
    digest = hashlib.sha256(package).hexdigest()
    path.with_suffix(".deb.sha256").write_text(f"{digest}  {path.name}\n", encoding="ascii")
    print(f"{path}: {len(package)} bytes, sha256 {digest}")


if __name__ == "__main__":
    main()
