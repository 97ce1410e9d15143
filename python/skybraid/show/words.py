"""Descriptions of programs, proxies and links, shared by commands and reports."""

from typing import Any

from skybraid.model.requirements import count


def ended(program: dict[str, Any]) -> str:
    """Describes how a program ended."""
    return "stopped at the end" if program["stopped"] else f"exit code {program['exit']}"


def split(proxy: dict[str, Any]) -> str:
    """Describes what a proxy did."""
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
    """Lines on the packets delivered and lost by each direction of each path."""
    return [
        f"{link['path']} {link['direction']}: {count(link.get('delivered', 0))} packets delivered, "
        f"{size(link.get('delivered_bytes', 0))}{_losses(link)}"
        for link in links
    ]


def _losses(link: dict[str, Any]) -> str:
    causes = {name.removeprefix("lost_"): number for name, number in link.items() if name.startswith("lost_")}
    lost = ", ".join(f"{count(number)} {cause}" for cause, number in causes.items() if number)
    return f"; lost: {lost}" if lost else "; none lost"


def readable(number: float) -> str:
    """Formats a number with up to four digits and no exponent: 0.002, 45, 9870, 15.7 k, 3.2 M."""
    magnitude = abs(number)
    for factor, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if magnitude >= factor and magnitude >= 1e4:
            return f"{_digits(number / factor, 3)} {prefix}"
    return _digits(number, 4)


def _digits(number: float, digits: int) -> str:
    text = f"{float(f'{number:.{digits}g}'):.12f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def clock(time_s: float) -> str:
    """Formats a time of a run as "12:34", or "1:12:34"."""
    whole = int(time_s + 1e-9)
    hours, minutes, seconds = whole // 3600, whole // 60 % 60, whole % 60
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def size(number: float) -> str:
    """Formats a number of bytes as "1.23 MB"."""
    for factor, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if number >= factor:
            return f"{number / factor:.3g} {unit}"
    return f"{number:.0f} B"
