"""The laws that the compiler does not hold: who may use whom, and how long a file may grow."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import pytest

import skybraid
from skybraid import cli

ROOT = Path(__file__).parents[2]

PURE = ("units", "statistics", "track", "orbit", "link", "transport", "traffic", "host", "gateway", "sim")

MAY_USE = {
    "units": set[str](),
    "statistics": set(),
    "track": {"units"},
    "orbit": {"units", "track"},
    "link": {"units", "testing"},
    "transport": {"units"},
    "traffic": {"units"},
    "host": {"units", "link", "transport", "traffic"},
    "gateway": {"units", "transport", "traffic", "link", "host", "sim", "statistics", "testing"},
    "sim": {"host", "units", "link", "transport", "traffic", "testing"},
    "testing": {"link", "traffic", "transport", "gateway", "units"},
    "scenario": {"host", "gateway", "units", "statistics", "track", "orbit", "link", "transport", "traffic"},
    "io": {"units"},
    "emulator": {"io", "scenario", "host", "units", "track", "orbit", "link", "transport", "traffic"},
    "node": {"io", "scenario", "gateway", "transport", "units"},
    "web": {"scenario", "sim", "host", "transport", "statistics", "units"},
    "python": {
        "scenario",
        "sim",
        "emulator",
        "host",
        "units",
        "statistics",
        "track",
        "orbit",
        "link",
        "transport",
        "traffic",
    },
}
"""Crates that each crate may use. Only tests use `testing`, and `link`, `host`, `sim` and `statistics` in `gateway`."""

USES = {
    "units": "libm once_cell rand_core rand_pcg serde thiserror",
    "statistics": "libm statrs",
    "track": "units libm roxmltree serde serde_json thiserror",
    "orbit": "units track libm serde serde_json sgp4 thiserror",
    "link": "units libm serde thiserror",
    "transport": "units libm serde thiserror",
    "traffic": "units libm serde thiserror",
    "host": "units link transport traffic serde",
    "gateway": "units transport traffic curve25519-dalek serde sha2 snow thiserror zeroize ring",
    "sim": "units link transport host",
    "testing": "link traffic transport gateway serde toml",
    "scenario": "units statistics track orbit link transport traffic host gateway serde serde_path_to_error sha2 "
    "strsim thiserror toml_edit zeroize",
    "io": "units libc netlink-packet-core netlink-packet-generic netlink-packet-route netlink-sys nix socket2",
    "emulator": "units link transport traffic host scenario io etherparse libc nix pcap-file serde serde_json socket2 "
    "thiserror",
    "node": "units transport gateway scenario io clap etherparse httparse landlock libc netlink-packet-core "
    "netlink-packet-route netlink-sys nix seccompiler serde serde_json socket2 thiserror",
    "web": "units statistics transport host sim scenario serde serde_json",
    "python": "units statistics orbit link transport traffic host sim scenario emulator numpy pyo3",
}
"""Dependencies of each crate, so that none gains one unnoticed."""

ENGINE = ("units", "statistics", "link", "transport", "traffic", "host", "sim", "orbit", "track")

MAY_BE_ABSENT = {
    "host/src/record/messages.rs": 1,  # the row of a message that arrives may have been dropped
    "host/src/record/summary.rs": 1,  # a kernel does not say over which of several paths a message came
    "host/src/record/video_stats.rs": 1,  # the last second of a video is not whole
    "host/src/setup.rs": 1,  # checked here: a flow may name a carrier that is not there
    "orbit/src/omm.rs": 1,  # text of a file
    "track/src/coverage.rs": 1,  # a file's rows may be shorter than its heading
    "traffic/src/video/key_frames.rs": 1,  # bytes of a peer
    "traffic/src/video/repair/group.rs": 1,  # a peer's packet may be of no group
    "transport/src/datagram/feedback.rs": 1,  # the path that a driver names
    "transport/src/datagram/mod.rs": 1,  # the same
    "transport/src/mpdccp/ack_vector.rs": 1,  # a peer's number may be too old to be known
    "transport/src/mpdccp/connection.rs": 4,  # the path that a driver names
    "transport/src/mptcp/subflows.rs": 1,  # the path that a driver names
    "transport/src/mptcp/walk.rs": 1,  # a search: the chunk may not have been sent yet
    "transport/src/mutran/classifier.rs": 1,  # bytes of an application
    "transport/src/parallel.rs": 1,  # the path that a driver names
    "transport/src/segment.rs": 1,  # a fourth SACK block has no place
}
"""Lookups of the engine that pass over what is not there, by file: input, or a search. All others are invariants, which
an id with `Index` or `.promised("…")` holds."""

PACKAGES = {
    "model": set[str](),
    "probe": set(),
    "algorithms": {"model"},
    "errors": {"model"},
    "network": {"model"},
    "traces": {"model"},
    "fit": {"model", "execute", "traces"},
    "assess": {"model", "execute", "traces"},
    "video": {"model"},
    "execute": {"model", "video"},
    "compare": {"execute"},
    "gateway": {"model", "execute"},
    "show": {"model", "video", "execute", "fit", "assess", "traces"},
    "orbit": {"model", "show"},
    "cli": {"model", "video", "execute", "show", "network", "orbit", "probe", "traces", "fit", "assess"},
    "__main__": {"cli"},
}
"""Which Python packages and modules of `skybraid` each may use; all may use the native one. `skybraid_studies` may use
all of them."""

PAPERS = {"chavali2022", "lee2021mutran", "palazzi2007", "pedrazzi2020", "baltaci2023", "beyond", "frontier"}
"""Packages of `skybraid_studies` that are papers: each may use `engine`, and none another paper."""

CLIMBING = {("model.results", "show.report")}
"""The arrows that climb: `Results.report` writes the page that `show` makes."""

OPTIONAL = {"aioquic", "diptest", "matplotlib", "pyulog", "xarray"}
"""What a function may import: packages that need not be there, and matplotlib, which takes half a second."""

SPARED = ("bokeh", "jinja2", "matplotlib", "numpy", "polars", "rich.progress", "scipy")
"""What `import skybraid` and the command's beginning go without."""

SPARED_BY_HELP = ("PIL", "bokeh", "jinja2", "matplotlib", "numpy", "polars", "pydantic", "rich", "scipy")
"""What the help of a command goes without."""

OURS_SPARED = tuple(f"skybraid.{name}" for name in ("assess", "execute.runs", "execute.store", "fit", "show.report"))
"""And what that of a command of this distribution goes without."""

UNSPARING = {"ctl", "import-lines"}
"""Commands whose help is not seen here: their own option is read before."""

MAX_LINES = 620
"""Maximum lines of a file."""


@pytest.fixture(scope="module")
def packages() -> dict[str, dict[str, Any]]:
    """Every crate of the workspace by its short name, as cargo describes it."""
    if shutil.which("cargo") is None:
        pytest.skip("the dependency graph is read with cargo, which is not installed")
    command = ["cargo", "metadata", "--format-version", "1", "--locked"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    described = json.loads(result)
    members = set(described["workspace_members"])
    return {room(package["name"]): package for package in described["packages"] if package["id"] in members}


def room(crate: str) -> str:
    return crate.removeprefix("skybraid-")


def used(package: dict[str, Any], *kinds: str | None) -> set[str]:
    """Names of a crate's dependencies of some kinds: None (normal), "build" or "dev"."""
    return {room(dependency["name"]) for dependency in package["dependencies"] if dependency["kind"] in kinds}


def sources(*patterns: str) -> Iterator[Path]:
    for pattern in patterns:
        yield from sorted(ROOT.glob(pattern))


def test_every_crate_uses_exactly_the_crates_of_its_line(packages: dict[str, dict[str, Any]]) -> None:
    found = {name: used(package, None) for name, package in packages.items() if name != "bench"}
    assert found == {name: set(words.split()) for name, words in USES.items()}


def test_no_crate_uses_another_against_the_design(packages: dict[str, dict[str, Any]]) -> None:
    for name, allowed in MAY_USE.items():
        assert used(packages[name], None, "build", "dev") & packages.keys() <= allowed, name


def test_what_a_published_crate_uses_is_published_too(packages: dict[str, dict[str, Any]]) -> None:
    published = {name: package for name, package in packages.items() if package["publish"] is None}
    assert set(PURE) | {"scenario"} <= published.keys()
    for name, package in published.items():
        assert all(package[key] for key in ("license", "description", "readme")), name
        for dependency in package["dependencies"]:
            if (own := room(dependency["name"])) in packages and dependency["kind"] is None:
                assert own in published, f"{name} uses {own}"
                assert dependency["req"] != "*", f"{name} names no version of {own}"


def test_tests_in_rust_and_python_share_every_built_crate() -> None:
    if shutil.which("cargo") is None:
        pytest.skip("the features of crates are read with cargo, which is not installed")
    tree = ["cargo", "tree", "--locked", "--prefix", "none", "--format", "{p} {f}"]

    def built(*arguments: str) -> set[str]:
        lines = subprocess.run([*tree, *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout
        return {line.removesuffix(" (*)") for line in lines.splitlines()}

    again = built("--package", "skybraid-python", "--edges", "normal") - built("--workspace")
    assert again == set(), "features that differ make the native module's crates compile twice in `make test`"


def test_no_crate_runs_code_while_it_is_built(packages: dict[str, dict[str, Any]]) -> None:
    assert {name: used(package, "build") for name, package in packages.items() if used(package, "build")} == {}


@pytest.mark.parametrize("name", PURE)
def test_a_pure_crate_has_no_system_calls_and_no_unsafe_code(name: str) -> None:
    text = (ROOT / "crates" / name / "src" / "lib.rs").read_text(encoding="utf-8")
    code = [line for line in text.splitlines() if line and not line.startswith("//!")]
    assert code[:2] == ["#![no_std]", "#![forbid(unsafe_code)]"]
    for file in sources(f"crates/{name}/src/**/*.rs"):
        assert "extern crate std" not in file.read_text(encoding="utf-8"), file


def test_no_file_is_longer_than_the_limit() -> None:
    lengths = {
        file.relative_to(ROOT).as_posix(): len(file.read_text(encoding="utf-8").splitlines())
        for file in sources("crates/**/*.rs", "python/**/*.py", "python/**/*.pyi", "studies/**/*.py")
    }
    assert lengths
    too_long = {name: lines for name, lines in lengths.items() if lines > MAX_LINES}
    assert too_long == {}


def test_a_tests_name_has_at_most_60_characters() -> None:
    declared = re.compile(r"#\[test\]\s*(?:#\[[^\]]*\]\s*)*fn (\w+)|^\s*def test_(\w+)", re.MULTILINE)
    names = [
        match[1] or match[2]
        for file in sources("crates/**/*.rs", "benches/**/*.rs", "tests/**/test_*.py")
        for match in declared.finditer(file.read_text(encoding="utf-8"))
    ]
    assert names
    assert [name for name in names if len(name) > 60] == []


def test_a_lint_is_switched_off_only_with_a_reason() -> None:
    bare = re.compile(r"#!?\[(?:allow|expect)\((?![^\]]*reason\s*=)[^\]]*\]")
    found = [
        f"{file.relative_to(ROOT)}: {match[0]}"
        for file in sources("crates/*/src/**/*.rs")
        for match in bare.finditer(file.read_text(encoding="utf-8"))
    ]
    assert found == []


LOOKUP = re.compile(r"\.get(?:_mut)?\((?!\))")

BOUND = re.compile(
    r"(?P<loop>while\s+)?\blet\s+(?:Some|\(|\[)[^=;]*?=\s(?P<value>(?:[^;{]|\{[^}]*\}[^;{]*\.)*?)(?:\s\{|\belse\b|&& )"
)
"""What a `let` takes apart, and which value it does."""

NAMED = re.compile(
    r"\blet\s+(?P<name>\w+)\s*=\s(?P<value>[^;]*);\s*(?:if\s+)?let\s+Some\([^=;]*=\s(?P=name)(?:\s|\.copied)"
)
"""The same in two steps."""


def silent_lookups(text: str) -> int:
    """Number of lookups in Rust code that pass over what is not there and that no `.promised("…")` watches."""
    code = re.sub(r"^\s*//.*$", "", text.split("#[cfg(test)]\nmod tests")[0], flags=re.MULTILINE)
    bound = [match["value"] for match in BOUND.finditer(code) if not match["loop"]]
    values = bound + [match["value"] for match in NAMED.finditer(code)]
    return sum("promised(" not in value and LOOKUP.search(value) is not None for value in values)


def test_a_lookup_in_the_engine_is_input_or_watched() -> None:
    found = {
        file.relative_to(ROOT / "crates").as_posix(): count
        for file in sources(*(f"crates/{name}/src/**/*.rs" for name in ENGINE))
        if file.name != "tests.rs" and (count := silent_lookups(file.read_text(encoding="utf-8")))
    }
    assert found == MAY_BE_ABSENT


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ("let Some(one) = all.get(own) else { return };", 1),
        ("if let Some(one) = self.all.get_mut(id.index()) {\n    one.wake();\n}", 1),
        ("let one = all.get(own);\nlet Some(one) = one else { return };", 1),
        ('let Some(one) = all.get(own).promised("a subflow") else { return };', 0),
        ('let one = all.get(own);\nlet Some(one) = one.promised("a subflow") else { return };', 0),
        ("while let Some(sent) = self.sent.get(index) {", 0),
        ("let Some(rate) = self.rate.get() else { return };", 0),
    ],
)
def test_a_silent_lookup_is_one_that_nothing_watches(code: str, count: int) -> None:
    assert silent_lookups(code) == count


class Imports(ast.NodeVisitor):
    """Everything that a module imports at run time, inside its functions too.

    Attributes:
        found: names as they stand, `package.module` or `package.module.name`.
        inside: those of them inside a function.
    """

    def __init__(self, text: str) -> None:
        self.found: set[str] = set()
        self.inside: set[str] = set()
        self._depth = 0
        self.visit(ast.parse(text))

    def visit_If(self, node: ast.If) -> None:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            for statement in node.orelse:
                self.visit(statement)
        else:
            self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._depth += 1
        self.generic_visit(node)
        self._depth -= 1

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 the visitor's name

    def visit_Import(self, node: ast.Import) -> None:
        self._add(*(alias.name for alias in node.names))

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        assert node.level == 0, "imports are absolute"
        self._add(*(f"{node.module}.{alias.name}" for alias in node.names))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.value, ast.Name) and node.value.id == "skybraid":
            self._add(f"skybraid.{node.attr}")
        self.generic_visit(node)

    def _add(self, *names: str) -> None:
        self.found.update(names)
        if self._depth:
            self.inside.update(names)


@pytest.fixture(scope="module")
def modules() -> dict[str, Imports]:
    """The imports of every Python module of the package, by its name without `skybraid.`."""
    base = ROOT / "python" / "skybraid"
    return {
        ".".join(file.relative_to(base).with_suffix("").parts).removesuffix(".__init__"): Imports(
            file.read_text(encoding="utf-8")
        )
        for file in sources("python/skybraid/**/*.py")
    }


@pytest.fixture(scope="module")
def studies() -> dict[str, Imports]:
    """The imports of every module of `skybraid_studies`, by its name."""
    base = ROOT / "studies"
    return {
        ".".join(file.relative_to(base).with_suffix("").parts).removesuffix(".__init__"): Imports(
            file.read_text(encoding="utf-8")
        )
        for file in sources("studies/**/*.py")
    }


def module_of(name: str, modules: dict[str, Imports]) -> str | None:
    """The module of ours that an import names; a module is imported with the name of something in it or without."""
    inner = name.removeprefix("skybraid.")
    if inner == name:
        return None
    return next((one for one in (inner, inner.rpartition(".")[0]) if one in modules), None)


def test_no_python_module_imports_itself_through_others(modules: dict[str, Imports]) -> None:
    graph = {
        name: {used for one in imports.found if (used := module_of(one, modules)) not in (None, name)}
        for name, imports in modules.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def test_python_packages_use_only_what_is_below_them(modules: dict[str, Imports]) -> None:
    late = {f"skybraid.{name}": f"skybraid.{place}" for name, place in skybraid._MODULES.items()}
    climbing = {
        (name, used)
        for name, imports in modules.items()
        for one in imports.found
        if (used := module_of(late.get(one, one), modules)) is not None
        and (package := used.partition(".")[0]) != (own := name.partition(".")[0])
        and package not in PACKAGES.get(own, set())
    }
    assert climbing == CLIMBING


def test_nothing_of_the_package_imports_the_studies(modules: dict[str, Imports]) -> None:
    assert {
        name for name, imports in modules.items() for one in imports.found if one.startswith("skybraid_studies")
    } == set()


def test_a_paper_uses_the_engine_of_studies_and_no_other(studies: dict[str, Imports]) -> None:
    packages = {name.split(".")[1] for name in studies if name.count(".")}
    assert packages - {"engine", "command", "commands"} == PAPERS
    arrows = {
        (package, used)
        for name, imports in studies.items()
        for one in imports.found
        if one.startswith("skybraid_studies.")
        and (package := (*name.split("."), "")[1]) != (used := one.split(".")[1])
        and package in {*PAPERS, "engine"}
    }
    assert arrows == {(paper, "engine") for paper in PAPERS}


def test_the_studies_import_themselves_through_nothing(studies: dict[str, Imports]) -> None:
    graph = {
        name: {
            each for one in imports.found for each in (one, one.rpartition(".")[0]) if each in studies and each != name
        }
        for name, imports in studies.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def test_functions_import_only_what_is_optional(modules: dict[str, Imports], studies: dict[str, Imports]) -> None:
    found = {(name, one) for name, imports in (modules | studies).items() for one in imports.inside}
    moved = [name for name, place in skybraid._MODULES.items() if name != place]
    late = {f"skybraid.{name}" for name in (*moved, *skybraid.__all__)}
    ours = {pair for pair in found if pair[1].startswith("skybraid.") and pair[1] not in late}
    assert ours == {("probe.server", "skybraid.probe.quic")}
    assert {one.partition(".")[0] for pair in found - ours if (one := pair[1]) not in late} <= OPTIONAL


@pytest.mark.parametrize("words", ["import skybraid", "from skybraid.cli import main; main()"])
def test_the_first_command_loads_nothing_heavy(words: str) -> None:
    program = f"import atexit, sys\natexit.register(lambda: print([name for name in {SPARED} if name in sys.modules]))"
    command = [sys.executable, "-c", f"{program}\n{words}", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_help_of_every_command_draws_and_fits_nothing() -> None:
    words = [[*command.name.split()[1:], "--help"] for command in cli.description().all()]
    assert len(words) > len(cli.COMMANDS)
    program = f"""
import contextlib, io, sys
from skybraid import cli
for words in {words!r}:
    if words[0] not in {UNSPARING!r}:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            cli.app(words, prog_name="skybraid", standalone_mode=False)
        assert "--help" in printed.getvalue(), words
        spared = {SPARED_BY_HELP!r} + ({OURS_SPARED!r} if words[0] in cli.COMMANDS else ())
        print(words, *(name for name in spared if name in sys.modules), sep=", ")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    printed = done.stdout.splitlines()
    assert printed == [str(each) for each in words if each[0] not in UNSPARING]


def test_every_public_name_is_there_and_says_where_it_is() -> None:
    assert set(skybraid.__all__) == set(skybraid._MODULE_OF)
    for name in (*skybraid.__all__, *skybraid._MODULES):
        assert getattr(skybraid, name) is not None


def test_open_says_its_new_name_and_works() -> None:
    skybraid.__dict__.pop("open", None)
    with pytest.warns(DeprecationWarning, match="open_results"):
        found = skybraid.__getattr__("open")
    assert found is skybraid.open_results


def test_each_command_is_in_one_section_of_the_help() -> None:
    assert sorted(name for names in cli.GROUPS.values() for name in names) == sorted(cli.COMMANDS)


def test_the_list_of_commands_has_each_commands_help() -> None:
    assert cli.added().keys() == {"reproduce", "import-lines"}
    for name, entry in (cli.COMMANDS | cli.added()).items():
        assert " ".join(str(cli.imported(name).help).split()).startswith(entry.help.rstrip(".")), name


def test_the_scripts_of_kernel_and_field_find_their_modules() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (folders,) = re.findall(r"^kernel field: export PYTHONPATH := (.+)$", makefile, re.MULTILINE)
    scripts = sorted(set(re.findall(r"tests/(?:kernel|gateway)/(\w+)\.py", makefile)) - {"test_kernel"})
    assert "agreement" in scripts
    environment = os.environ | {"PYTHONPATH": folders}
    done = subprocess.run(
        [sys.executable, "-c", f"import {', '.join(scripts)}"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
