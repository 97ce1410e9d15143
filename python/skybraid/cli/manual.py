"""Manual pages and completions of a command, from the same description as its help.

A description comes from the command line of Python (`described`) or from the help that a program prints
(`read_help`), so that `skybraid` and `skybraid-node` share all of this. Imports nothing that has to be installed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

SHELLS = ("bash", "zsh", "fish")

EXAMPLE = "Example: "
"""Start of the last paragraph of a help, a command line."""

UNWRAPPED = "\b\n"
"""Mark before a paragraph whose lines the command line does not wrap."""


@dataclass(frozen=True, slots=True)
class Option:
    """An option or an argument.

    Attributes:
        names: `--seed`, `-q`; of an argument its placeholder alone.
        value: placeholder of the value, empty if there is none.
        help: its line in the help.
    """

    names: tuple[str, ...]
    value: str
    help: str


@dataclass(frozen=True, slots=True)
class Command:
    """A command.

    Attributes:
        name: all words, "skybraid trace stats".
        help: paragraphs of its help.
        arguments: in their order.
        options: in the order of the help.
        commands: those below it.
    """

    name: str
    help: str
    arguments: tuple[Option, ...] = ()
    options: tuple[Option, ...] = ()
    commands: tuple[Command, ...] = ()

    @property
    def summary(self) -> str:
        """First sentence of the help."""
        return re.split(r"(?<=[.])\s", " ".join(self.help.split()), maxsplit=1)[0].rstrip(".")

    @property
    def paragraphs(self) -> list[str]:
        """Paragraphs of the help, without its example."""
        return [one for one in self._all_paragraphs() if not one.startswith(EXAMPLE)]

    @property
    def example(self) -> str:
        """Command line that the help ends in; empty if there is none."""
        last = self._all_paragraphs()[-1:]
        return last[0].removeprefix(EXAMPLE) if last and last[0].startswith(EXAMPLE) else ""

    def _all_paragraphs(self) -> list[str]:
        return [" ".join(one.split()) for one in re.split(r"\n\s*\n", self.help.strip())]

    def all(self) -> list[Command]:
        """This command and all below it."""
        return [self, *(each for command in self.commands for each in command.all())]


def described(command: Any, name: str) -> Command:  # noqa: ANN401 typer's types of these are private
    """Describes a command of typer, with those below it.

    Args:
        command: as `typer.main.get_command` returns it.
        name: its words.
    """
    arguments, options = [], []
    for parameter in command.params:
        if getattr(parameter, "hidden", False):
            continue
        help_ = " ".join((getattr(parameter, "help", None) or "").split())
        if parameter.param_type_name == "argument":
            arguments.append(Option((parameter.metavar or parameter.name.upper(),), "", help_))
        else:
            value = "" if parameter.is_flag else (parameter.metavar or parameter.name.strip("_").upper())
            options.append(Option((*parameter.opts, *parameter.secondary_opts), value, help_))
    options.append(Option(("--help",), "", "Show the help and exit."))
    below = getattr(command, "commands", {})
    return Command(
        name,
        (command.help or "").replace(UNWRAPPED, ""),
        tuple(arguments),
        tuple(options),
        tuple(described(each, f"{name} {word}") for word, each in below.items()),
    )


def read_help(name: str, text: str, commands: tuple[Command, ...] = ()) -> Command:
    """Reads the help of a program with sections "Arguments:", "Options:" and "Commands:".

    Args:
        name: its words.
        text: as the program prints it for `--help`.
        commands: those below it.
    """
    about, _, rest = text.partition("Usage:")
    arguments, options, section = [], [], ""
    for found in re.finditer(r"^(\S.*):$|^ +((?:-|<|\[)\S.*?)(?:  +(\S.*)|\n +(\S.*)|)$", rest, re.MULTILINE):
        if found[1]:
            section = found[1]
            continue
        words, help_ = found[2], found[3] or found[4] or ""
        if section == "Arguments":
            arguments.append(Option((words.strip("<>[]"),), "", help_))
        elif section == "Options":
            value = re.search(r"<(.+?)>", words)
            names = tuple(re.findall(r"--?[\w-]+", words.partition("<")[0]))
            options.append(Option(names, value[1] if value else "", help_))
    return Command(name, about.strip(), tuple(arguments), tuple(options), commands)


def man_page(command: Command, version: str) -> str:
    """Returns the manual page of a command, section 1, as roff."""
    words = command.name.replace(" ", "-")
    lines = [
        f'.TH "{words.upper()}" 1 "" "{_roff(version)}"',
        ".SH NAME",
        f"{_roff(words)} \\- {_roff(command.summary)}",
    ]
    usage = [f"\\fB{_roff(command.name)}\\fR", *(["[\\fIOPTION\\fR]..."] if command.options else [])]
    usage += [f"\\fI{_roff(one.names[0])}\\fR" for one in command.arguments]
    usage += ["\\fICOMMAND\\fR ..."] if command.commands else []
    lines += [".SH SYNOPSIS", " ".join(usage), ".SH DESCRIPTION"]
    for paragraph in command.paragraphs:
        lines += [".PP", _roff(paragraph)]
    for title, entries in (("ARGUMENTS", command.arguments), ("OPTIONS", command.options)):
        lines += [f".SH {title}"] if entries else []
        for entry in entries:
            names = ", ".join(f"\\fB{_roff(name)}\\fR" for name in entry.names)
            lines += [".TP", names + (f" \\fI{_roff(entry.value)}\\fR" if entry.value else ""), _roff(entry.help)]
    lines += [".SH COMMANDS"] if command.commands else []
    for below in command.commands:
        lines += [".TP", f"\\fB{_roff(below.name.replace(' ', '-'))}\\fR(1)", _roff(f"{below.summary}.")]
    lines += [".SH EXAMPLE", ".EX", _roff(command.example), ".EE"] if command.example else []
    return "\n".join(lines) + "\n"


def _roff(text: str) -> str:
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("…", "...").replace("’", "'")
    escaped = "".join(letter if letter.isascii() else f"\\[u{ord(letter):04X}]" for letter in escaped)
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


def completion(command: Command, shell: str) -> str:
    """Returns the completion of a command for one of `SHELLS`; it calls no program."""
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](command)


def _known(command: Command) -> list[tuple[str, str]]:
    """Words that may follow a command, with a phrase about each."""
    below = [(each.name.rpartition(" ")[2], each.summary) for each in command.commands]
    return below + [(name, each.help) for each in command.options for name in each.names if name.startswith("--")]


def _walk(command: Command) -> str:
    """Arms of a shell's `case` that go from a command and a word to the command below it."""
    return " ".join(f'"{each.name}") command="{each.name}";;' for each in command.all()[1:])


def _bash(command: Command) -> str:
    function = f"_{command.name.replace('-', '_')}"
    lines = [
        f"# Completion of {command.name} for bash.",
        f"{function}() {{",
        f'  local current="${{COMP_WORDS[COMP_CWORD]}}" command="{command.name}" words="" place',
        "  for ((place = 1; place < COMP_CWORD; place++)); do",
        f'    case "$command ${{COMP_WORDS[place]}}" in {_walk(command)} esac',
        "  done",
        '  case "$command" in',
    ]
    lines += [f'    "{each.name}") words="{" ".join(word for word, _ in _known(each))}";;' for each in command.all()]
    lines += [
        "  esac",
        '  COMPREPLY=($(compgen -W "$words" -- "$current"))',
        "}",
        f"complete -o default -F {function} {command.name}",
    ]
    return "\n".join(lines) + "\n"


def _zsh(command: Command) -> str:
    function = f"_{command.name.replace('-', '_')}"
    lines = [
        f"#compdef {command.name}",
        f"{function}() {{",
        f'  local command="{command.name}" word',
        "  local -a known",
        "  for word in ${words[2,CURRENT-1]}; do",
        f'    case "$command $word" in {_walk(command)} esac',
        "  done",
        '  case "$command" in',
    ]
    for each in command.all():
        known = " ".join(_quoted(f"{word}:{help_}") for word, help_ in _known(each))
        lines.append(f'    "{each.name}") known=({known});;')
    lines += ["  esac", "  _describe -o command known", "  _files", "}", f"compdef {function} {command.name}"]
    return "\n".join(lines) + "\n"


def _fish(command: Command) -> str:
    lines = [f"# Completion of {command.name} for fish."]
    for each in command.all():
        words = each.name.split()[1:]
        seen = [f"__fish_seen_subcommand_from {word}" for word in words]
        below = " ".join(one.name.rpartition(" ")[2] for one in each.commands)
        here = [*seen, *([f"not __fish_seen_subcommand_from {below}"] if below else [])]
        condition = f" -n {_quoted('; and '.join(here))}" if here else ""
        for one in each.commands:
            word = one.name.rpartition(" ")[2]
            lines.append(f"complete -c {command.name}{condition} -a {word} -d {_quoted(one.summary)}")
        for option in each.options:
            names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names)
            value = " -r" if option.value else ""
            lines.append(f"complete -c {command.name}{condition} {names}{value} -d {_quoted(option.help)}")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "’") + "'"
