"""What this machine has and lacks, with the line that mends it."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from skybraid import _core
from skybraid.provenance import PACKAGES, package_version

_ENOUGH_MEMORY_MB = 1024
_PYTHON = (3, 11)


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at.

    Attributes:
        name: what was looked at.
        needed_for: "run" (simulation, tables, report) or "emulate" (real time, with the kernel).
        present: whether it is there.
        found: what is there.
        mend: the line that mends it, empty where nothing is missing.
    """

    name: str
    needed_for: str
    present: bool
    found: str
    mend: str = ""


def examine() -> list[Check]:
    """Looks at Python, its packages, the kernel, cores and memory; changes nothing."""
    return [_python(), _native(), *map(_package, PACKAGES), _cores(), _memory(), *_kernel()]


def _python() -> Check:
    found = ".".join(str(part) for part in sys.version_info[:3])
    return Check(
        "Python",
        "run",
        sys.version_info >= _PYTHON,
        found,
        "" if sys.version_info >= _PYTHON else "install Python 3.11 or later",
    )


def _native() -> Check:
    return Check("native module", "run", present=True, found=_core.__version__)


def _package(name: str) -> Check:
    version = package_version(name)
    mend = "" if version else f"python -m pip install -c constraints.txt {name}"
    return Check(f"package {name}", "run", version is not None, version or "not found", mend)


def _cores() -> Check:
    return Check("cores", "run", present=True, found=str(os.cpu_count() or 1))


def _memory() -> Check:
    try:
        fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines())
        available_mb = int(fields["MemAvailable"].split()[0]) // 1024
    except (OSError, KeyError, ValueError):
        return Check("memory", "run", present=True, found="unknown on this system")
    enough = available_mb >= _ENOUGH_MEMORY_MB
    mend = "" if enough else "skybraid run --summary SCENARIO needs under 100 MB"
    return Check("memory", "run", enough, f"{available_mb} MB available", mend)


def _kernel() -> list[Check]:
    if not sys.platform.startswith("linux"):
        return [Check("Linux kernel", "emulate", present=False, found=sys.platform, mend="emulate on a Linux machine")]
    return [
        _exists("network namespaces", Path("/proc/self/ns/net"), "use a kernel with CONFIG_NET_NS"),
        _module("veth", Path("/sys/module/veth")),
        _exists("TUN", Path("/dev/net/tun"), "sudo modprobe tun"),
        _mptcp(),
        _privilege(),
    ]


def _exists(name: str, path: Path, mend: str) -> Check:
    present = path.exists()
    return Check(name, "emulate", present, str(path) if present else "not found", "" if present else mend)


def _module(name: str, loaded: Path) -> Check:
    release = Path("/lib/modules") / os.uname().release
    if loaded.exists() or _listed(release / "modules.builtin", name):
        return Check(name, "emulate", present=True, found="loaded")
    if _listed(release / "modules.dep", name):
        return Check(name, "emulate", present=True, found="loads when it is used")
    return Check(name, "emulate", present=False, found="not found", mend=f"sudo modprobe {name}")


def _listed(index: Path, module: str) -> bool:
    try:
        return f"/{module}.ko" in index.read_text(encoding="utf-8")
    except OSError:
        return False


def _mptcp() -> Check:
    switch = Path("/proc/sys/net/mptcp/enabled")
    try:
        enabled = switch.read_text(encoding="ascii").strip() == "1"
    except OSError:
        return Check("MPTCP", "emulate", present=False, found="not found", mend="use a kernel with CONFIG_MPTCP")
    if enabled:
        return Check("MPTCP", "emulate", present=True, found="enabled")
    return Check("MPTCP", "emulate", present=False, found="off", mend="sudo sysctl -w net.mptcp.enabled=1")


def _privilege() -> Check:
    if os.geteuid() == 0:
        return Check("privilege", "emulate", present=True, found="root")
    try:
        allowed = int(Path("/proc/sys/user/max_user_namespaces").read_text(encoding="ascii")) > 0
    except (OSError, ValueError):
        allowed = False
    if allowed:
        return Check("privilege", "emulate", present=True, found="user namespaces")
    return Check(
        "privilege", "emulate", present=False, found="neither root nor user namespaces", mend="sudo skybraid emulate …"
    )
