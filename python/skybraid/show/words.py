"""Descriptions of programs, proxies and links, shared by commands and reports."""

from typing import Any

from skybraid.model.formatting import count, size


def ended(program: dict[str, Any]) -> str:
    """Describes how a program ended."""
    return "stopped at the end" if program["stopped"] else f"exit code {program['exit']}"


def split(proxy: dict[str, Any]) -> str:
    """Describes the counters of a proxy."""
    opened = proxy["opened"]
    connections = "1 connection" if opened == 1 else f"{count(opened)} connections"
    text = f"{connections} split"
    if opened:
        text += f", {size(proxy['to_server_bytes'])} to the server side, {size(proxy['to_client_bytes'])} to the client"
    for key, words in (("reset", "ended by a reset"), ("failed", "never connected")):
        if proxy[key]:
            text += f"; {count(proxy[key])} {words}"
    return text


def link_lines(links: list[dict[str, Any]]) -> list[str]:
    """Describes the packets delivered and lost by each direction of each path."""
    return [
        f"{link['path']} {link['direction']}: {count(link.get('delivered', 0))} packets delivered, "
        f"{size(link.get('delivered_bytes', 0))}{_losses(link)}"
        for link in links
    ]


def _losses(link: dict[str, Any]) -> str:
    causes = {name.removeprefix("lost_"): number for name, number in link.items() if name.startswith("lost_")}
    lost = ", ".join(f"{count(number)} {cause}" for cause, number in causes.items() if number)
    return f"; lost: {lost}" if lost else "; none lost"
