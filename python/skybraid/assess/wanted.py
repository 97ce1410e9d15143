"""Requirements as sentences: "control: 99.9% within 300ms", "video: 95% of frames within 300ms", "video: 8Mbit/s".

A required link performance is a TOML table, `control: { expiration = "1s", continuity = "99.9%" }`, or a file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from skybraid._core import registry
from skybraid.assess.link import read_rlp
from skybraid.model.errors import ScenarioError
from skybraid.traces.series import RATE_UNITS, TIME_UNITS

_SHARE = re.compile(
    r"(?P<share>\d+(?:\.\d+)?)\s*%\s*(?P<frames>of frames\s+)?within\s+(?P<time>\d+(?:\.\d+)?)\s*(?P<unit>[a-zµ]+)"
)
_RATE = re.compile(r"(?P<rate>\d+(?:\.\d+)?)\s*(?P<unit>[kMG]?bit/s)")
_EXPECTED = "`FLOW: SHARE% [of frames] within TIME` or `FLOW: RATE`, such as `control: 99.9% within 300ms`"
_FILE = ".toml"

_OFFERED = 1.25

CONTROL_MBPS, VIDEO_MBPS = 1.0, 10.0
"""Rates in Mbit/s of control (from the ground) and video (from the vehicle): Baltaci et al. 2023."""


@dataclass(frozen=True)
class Wanted:
    """A requirement of a flow.

    Attributes:
        text: the user's sentence.
        flow: name of the flow; a name that begins with "video" is video from the vehicle, any other control from the
            ground.
        metric: "share" (of messages in time), "frames" (share of frames in time), "goodput", or "rlp" (required link
            performance).
        target: share from 0 to 1, or bit/s; for a required link performance, its continuity.
        within_ms: deadline in ms; None for goodput.
        rate_mbps: rate of the flow in Mbit/s.
        parameters: requirements of a required link performance, in the form of `Scenario.requirements`; else empty.
    """

    text: str
    flow: str
    metric: str
    target: float
    within_ms: float | None
    rate_mbps: float
    parameters: tuple[dict[str, Any], ...] = ()

    @property
    def is_video(self) -> bool:
        """Whether the flow is video."""
        return self.metric == "frames" or self.flow.startswith("video")

    @property
    def direction(self) -> str:
        """Direction of the flow: `uplink` or `downlink`."""
        return "uplink" if self.is_video or self.metric == "goodput" else "downlink"

    @property
    def words(self) -> str:
        """Description of the flow's traffic."""
        what = "a video of" if self.metric == "frames" else "messages at"
        sender = "the vehicle" if self.direction == "uplink" else "the ground"
        return f"{self.flow}: {what} {self.rate_mbps:g} Mbit/s from {sender}"

    def lines(self, transport: str) -> str:
        """Returns the scenario lines of this flow, with `transport` as its TOML table."""
        if self.metric == "frames":
            traffic = f'{{ kind = "video", rate = "{self.rate_mbps:g}Mbit/s", fps = 30, jitter_buffer = "150ms" }}'
            require = f'{{ frames = "{100 * self.target:g}%", within = "{self.within_ms:g}ms" }}'
        else:
            size = 1200 if self.direction == "uplink" else 125
            traffic = f'{{ kind = "cbr", rate = "{self.rate_mbps:g}Mbit/s", packet = "{size}B" }}'
            if self.metric == "goodput":
                require = f'{{ goodput = "{self.target:g}bit/s" }}'
            else:
                require = f'{{ deadline = "{self.within_ms:g}ms", share = "{100 * self.target:g}%" }}'
        sender = "vehicle" if self.direction == "uplink" else "ground"
        return (
            f'[flow.{self.flow}]\nfrom = "{sender}"\ntraffic = {traffic}\n'
            f"transport = {transport}\nrequire = {require}\n"
        )


def parse_wanted(text: str, rates_mbps: dict[str, float] | None = None) -> Wanted:
    """Parses a requirement.

    Args:
        text: the sentence.
        rates_mbps: rates of flows in Mbit/s, by name; `CONTROL_MBPS` and `VIDEO_MBPS` by default.

    Raises:
        ScenarioError: the text is not a requirement.
    """
    flow, colon, rest = text.partition(":")
    flow = flow.strip()
    if not colon or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", flow):
        raise ScenarioError(f"--require: found `{text}`; expected {_EXPECTED}")
    given = (rates_mbps or {}).get(flow)
    if rest.strip().startswith("{") or rest.strip().endswith(_FILE):
        return _of_link(text, flow, rest.strip(), given)
    if share := _SHARE.fullmatch(rest.strip()):
        target = round(float(share["share"]) / 100, 12)
        scale = TIME_UNITS.get(share["unit"])
        if scale is None or not 0 < target < 1 or float(share["time"]) == 0:
            raise ScenarioError(f"--require: found `{text}`; expected a share between 0 and 100 %, and a time")
        metric = "frames" if share["frames"] or flow.startswith("video") else "share"
        default = VIDEO_MBPS if metric == "frames" else CONTROL_MBPS
        return Wanted(text, flow, metric, target, float(share["time"]) * scale, given or default)
    if rate := _RATE.fullmatch(rest.strip()):
        target_bps = float(rate["rate"]) * RATE_UNITS[rate["unit"]] * 1e6
        # The offered rate must exceed the required goodput, or no transport could reach it.
        return Wanted(text, flow, "goodput", target_bps, None, given or _OFFERED * target_bps * 1e-6)
    if wanted := _of_profile(text, flow, rest.strip(), given):
        return wanted
    profiles = ", ".join(str(entry["name"]) for entry in registry("requirements"))
    raise ScenarioError(
        f"--require: found `{text}`; expected {_EXPECTED}, a profile ({profiles}), or the file "
        "or table of a required link performance (docs/requirements.md)"
    )


def _of_link(text: str, flow: str, table: str, given: float | None) -> Wanted:
    """Parses a required link performance; its transactions are the messages of control."""
    found = read_rlp(table, flow, "--require")
    continuity = next(one for one in found if one["metric"] == "continuity")
    return Wanted(
        text,
        flow,
        "rlp",
        float(continuity["target"]),
        float(continuity["deadline_ms"]),
        given or CONTROL_MBPS,
        tuple(found),
    )


def _of_profile(text: str, flow: str, name: str, given: float | None) -> Wanted | None:
    """Returns the requirement of a profile; None if there is no such profile."""
    for entry in registry("requirements"):
        if entry["name"] == name:
            numbers = {str(one["name"]): str(one["default"]) for one in entry["parameters"]}
            if "goodput" in numbers:
                return replace(
                    parse_wanted(f"{flow}: {numbers['goodput']}", {flow: given} if given else None), text=text
                )
            sentence = f"{flow}: {numbers['share']} within {numbers['deadline']}"
            return replace(parse_wanted(sentence, {flow: given} if given else None), text=text)
    return None
