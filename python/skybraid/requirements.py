"""Requirements of a flow, judged against what was seen, in numbers and in words."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol, Self

from skybraid.statistics import (
    Verdict,
    mean_interval,
    percentile_ranks,
    share_verdict,
    values_needed,
)


class Stats(Protocol):
    """What is read of a flow's statistics, pooled over the seeds (`_core.FlowStats`)."""

    @property
    def delivered(self) -> int: ...  # noqa: D102
    def met(self, deadline_ms: float | None = None) -> tuple[int, int]: ...  # noqa: D102
    def frames_met(self, within_ms: float) -> tuple[int, int]: ...  # noqa: D102
    def delay_quantile(self, q: float) -> float: ...  # noqa: D102
    def delay_rank(self, rank: int) -> float: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class Members:
    """How the single flows of a group fare, each judged by itself: one per vehicle, node or connection.

    Attributes:
        met: how many meet the requirement.
        not_met: how many do not.
        not_shown: of how many it is not shown.
        worst: the name of the one that does worst; None where nothing was seen of any.
        worst_estimate: what it does: share from 0 to 1, delay in ms, or bit/s.
    """

    met: int
    not_met: int
    not_shown: int
    worst: str | None
    worst_estimate: float | None

    @property
    def total(self) -> int:
        """How many there are."""
        return self.met + self.not_met + self.not_shown

    def words(self, metric: str) -> str:
        """The same in a sentence."""
        text = f"met by {count(self.met)} of {count(self.total)}"
        if self.not_shown:
            text += f", not shown of {count(self.not_shown)}"
        if self.worst is None or self.worst_estimate is None:
            return text
        shown = _SHOWN[metric](self.worst_estimate)
        return f"{text}; worst is {self.worst} with {shown}"


@dataclass(frozen=True, slots=True)
class Requirement:
    """One requirement of one flow, with what the trials show about it.

    Attributes:
        flow: the flow's name.
        metric: "share" of the messages that arrive within the deadline, delay "percentile" of the messages that
            arrive, or "goodput"; of a video the share of "frames" that are shown undamaged in time, the "frame_rate",
            the "worst_frame_rate" of a second, the "freezes" a minute, or the share of frames with at least an "ssim".
        deadline_ms: the delay in question in ms; None for goodput, for a share without deadline, and of a video for all
            but "frames".
        target: share from 0 to 1, quantile from 0 to 1, bit/s, frames a second, or freezes a minute.
        estimate: share from 0 to 1, delay in ms, bit/s, frames a second, or freezes a minute; None without trials.
        low: lower end of the two-sided 95 % interval, in the unit of `estimate`; None where there is none.
        high: upper end; None where nothing bounds it.
        trials: messages or frames whose fate is decided, messages that arrived, or runs.
        verdict: met, not met or not shown.
        needed: how many trials (messages, or runs for goodput) would show it, where it is not shown and more would.
        members: of a flow that stands for several, how each of them fares; the rest is of all together.
        ssim: the structural similarity in question.
    """

    flow: str
    metric: str
    deadline_ms: float | None
    target: float
    estimate: float | None
    low: float | None
    high: float | None
    trials: int
    verdict: Verdict
    needed: int | None
    members: Members | None = None
    ssim: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """As plain values for JSON."""
        return asdict(self) | {"verdict": str(self.verdict)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """From what `to_dict` gave."""
        members = values.get("members")
        return cls(
            **(
                values
                | {"verdict": Verdict(values["verdict"]), "members": None if members is None else Members(**members)}
            )
        )

    @property
    def words(self) -> str:
        """What was seen and what was required, in one sentence without the verdict."""
        match self.metric:
            case "share":
                return self._share_words()
            case "percentile":
                return self._percentile_words()
            case "goodput":
                return self._mean_words(rate, required=f"required {rate(self.target)}")
            case "frames" | "ssim":
                return self._share_words()
            case "frame_rate":
                return self._mean_words(frames_a_second, required=f"required {frames_a_second(self.target)}")
            case "worst_frame_rate":
                required = f"required {frames_a_second(self.target)}"
                return f"in the worst second {self._mean_words(frames_a_second, required=required)}"
            case _:
                return self._mean_words(freezes_a_minute, required=f"at most {freezes_a_minute(self.target)} allowed")

    def _share_words(self) -> str:
        within = "" if self.deadline_ms is None else f" within {milliseconds(self.deadline_ms)}"
        required = f"required {percent(self.target)}"
        things, did = {
            "share": ("messages", f"arrived{within}"),
            "frames": ("frames", f"were shown undamaged{within}"),
            "ssim": ("decoded frames", f"have an SSIM of at least {self.ssim}"),
        }[self.metric]
        if self.estimate is None or self.low is None or self.high is None:
            none = {
                "share": f"no message was due to arrive{within}",
                "frames": f"no frame was due to be shown{within}",
                "ssim": "no frame was decoded: `skybraid video watch` does that",
            }[self.metric]
            return f"{none}; {required}"
        text = (
            f"{percent(self.estimate)} of {count(self.trials)} {things} {did} "
            f"(95 % interval {percent_range(self.low, self.high)}, {required})"
        )
        # A share is judged by a one-sided bound, so the wider interval may still hold the target.
        if self.verdict is Verdict.MET:
            return (
                text
                if self.low >= self.target
                else f"{text}: the one-sided 95 % bound, which decides, reaches the target"
            )
        if self.verdict is Verdict.NOT_MET:
            return (
                text
                if self.high < self.target
                else f"{text}: the one-sided 95 % bound, which decides, is below the target"
            )
        if self.needed is None:
            return f"{text}: the interval holds the target; more {things} would tell"
        if self.estimate == 1:
            return f"{text}: {count(self.needed)} {things} without a miss would show it"
        missed = round((1 - self.estimate) * self.trials)
        return f"{text}: {count(self.needed)} {things} with only these {count(missed)} missed would show it"

    def _percentile_words(self) -> str:
        limit = milliseconds(self.deadline_ms or 0.0)
        which = f"{percent(self.target)} of the messages that arrived"
        if self.estimate is None:
            return f"no message arrived; {percent(self.target)} of them were required to take at most {limit}"
        low = milliseconds(self.low or 0.0)
        high = "no upper end" if self.high is None else milliseconds(self.high)
        text = (
            f"{which} took at most {milliseconds(self.estimate)} "
            f"(95 % interval {low} to {high}, {count(self.trials)} messages, required at most {limit})"
        )
        if self.verdict is Verdict.NOT_SHOWN and self.needed is not None:
            return f"{text}: at least {count(self.needed)} messages are needed"
        return text

    def _mean_words(self, shown: Callable[[float], str], *, required: str) -> str:
        if self.estimate is None:
            return f"nothing was {'carried' if self.metric == 'goodput' else 'shown'}; {required}"
        runs = "1 run" if self.trials == 1 else f"{count(self.trials)} runs"
        if self.low is None or self.high is None:
            return f"{shown(self.estimate)} in {runs}, which gives no interval ({required}): fly several seeds"
        return (
            f"{shown(self.estimate)} on average over {runs} "
            f"(95 % interval {shown(self.low)} to {shown(self.high)}, {required})"
        )


def members_of(judged: Sequence[tuple[str, Requirement]]) -> Members:
    """What the requirements of a group's single flows, each with its name, come to."""
    seen = [(name, one) for name, one in judged if one.estimate is not None]
    worst = min(
        seen,
        key=lambda it: -(it[1].estimate or 0.0) if it[1].metric in _LESS_IS_BETTER else (it[1].estimate or 0.0),
        default=None,
    )
    verdicts = [one.verdict for _, one in judged]
    return Members(
        met=verdicts.count(Verdict.MET),
        not_met=verdicts.count(Verdict.NOT_MET),
        not_shown=verdicts.count(Verdict.NOT_SHOWN),
        worst=None if worst is None else worst[0],
        worst_estimate=None if worst is None else worst[1].estimate,
    )


def judge(
    requirement: dict[str, Any],
    pooled: Stats,
    goodputs_bps: Sequence[float],
    videos: Sequence[dict[str, Any] | None] = (),
) -> Requirement:
    """Judges one requirement of a flow.

    Args:
        requirement: `flow`, `metric`, `deadline_ms`, `target`, perhaps `ssim`, as the scenario gives them.
        pooled: the flow's statistics over all runs.
        goodputs_bps: its goodput in each run, in bit/s.
        videos: what the frames of its video came to in each run.

    A share is judged by its one-sided 95 % bounds, a percentile and a goodput by their two-sided 95 % intervals; the
    interval that is kept and printed is always the two-sided one. A percentile is that of the messages that arrived,
    since a lost one has no delay; its losses are a share's business. Goodput is one number a run: its interval needs
    two runs, so one run does not show it. So do frame rates and freezes. Frames are judged like messages; an SSIM only
    by those who decode them.
    """
    metric, target = str(requirement["metric"]), float(requirement["target"])
    given: float | None = requirement.get("deadline_ms")
    deadline_ms = None if given is None else float(given)
    estimate: float | None
    low: float | None
    high: float | None
    needed: int | None
    match metric:
        case "share":
            successes, trials = pooled.met(deadline_ms)
            judged = share_verdict(successes, trials, target)
            verdict, needed = judged.verdict, judged.needed
            estimate, low, high = _finite(judged.estimate), judged.interval.low, judged.interval.high
        case "percentile":
            trials = pooled.delivered
            estimate = _finite(pooled.delay_quantile(target)) if trials else None
            low, high = _percentile_interval(pooled, target)
            verdict, needed = _percentile_verdict(low, high, deadline_ms or 0.0), None
            if verdict is Verdict.NOT_SHOWN and high is None:
                needed = values_needed(target)
        case "goodput":
            trials, estimate, low, high = _mean(goodputs_bps)
            verdict = _mean_verdict(low, high, target)
            needed = 2 if trials < 2 else None
        case "frames":
            successes, trials = pooled.frames_met(deadline_ms or 0.0)
            judged = share_verdict(successes, trials, target)
            verdict, needed = judged.verdict, judged.needed
            estimate, low, high = _finite(judged.estimate), judged.interval.low, judged.interval.high
        case "frame_rate" | "worst_frame_rate" | "freezes":
            name = "freezes_per_minute" if metric == "freezes" else metric
            values = [seen for video in videos if video is not None and (seen := a_second(video, name)) is not None]
            trials, estimate, low, high = _mean(values)
            # Few freezes are good, many frames are.
            sign = -1 if metric == "freezes" else 1
            bounds = (low, high) if sign > 0 else (_negative(high), _negative(low))
            verdict = _mean_verdict(*bounds, sign * target)
            needed = 2 if trials < 2 else None
        case "ssim":
            estimate = low = high = needed = None
            trials, verdict = 0, Verdict.NOT_SHOWN
        case _:
            expected = "share, percentile, goodput, frames, frame_rate, worst_frame_rate, freezes or ssim"
            raise ValueError(f"metric: found {metric}, expected {expected}")
    found = Requirement(
        str(requirement["flow"]), metric, deadline_ms, target, estimate, low, high, trials, verdict, needed
    )
    return replace(found, ssim=requirement["ssim"]) if "ssim" in requirement else found


def a_second(video: Mapping[str, Any], name: str) -> float | None:
    """A frame rate, or freezes a minute, of what a video's frames came to in one run; None where nothing tells.

    A picture that never came has no second to be counted in; it is no frame a second.
    """
    if name in ("frame_rate", "worst_frame_rate") and video["frames"] and not video["shown"]:
        return 0.0
    value = video[name]
    return None if value is None else float(value)


def headline(requirements: Sequence[Requirement]) -> str:
    """The verdict on all requirements in one sentence."""
    total = len(requirements)
    if total == 0:
        return "The scenario states no requirement."
    failed = sum(requirement.verdict is Verdict.NOT_MET for requirement in requirements)
    open_ = sum(requirement.verdict is Verdict.NOT_SHOWN for requirement in requirements)
    if failed:
        return f"{failed} of {_requirements(total)} {'is' if failed == 1 else 'are'} not met."
    if open_:
        verb = "is" if open_ == 1 else "are"
        return f"None failed, but {open_} of {_requirements(total)} {verb} not shown by this number of trials."
    return "The requirement is met." if total == 1 else f"All {_requirements(total)} are met."


def _requirements(number: int) -> str:
    return "1 requirement" if number == 1 else f"{number} requirements"


def _percentile_interval(pooled: Stats, quantile: float) -> tuple[float | None, float | None]:
    ranks = percentile_ranks(pooled.delivered, quantile)
    low = _finite(pooled.delay_rank(ranks.low)) if ranks.low >= 1 else None
    high = _finite(pooled.delay_rank(ranks.high)) if ranks.high <= pooled.delivered else None
    return low, high


def _percentile_verdict(low: float | None, high: float | None, limit_ms: float) -> Verdict:
    if high is not None and high <= limit_ms:
        return Verdict.MET
    return Verdict.NOT_MET if low is not None and low > limit_ms else Verdict.NOT_SHOWN


def _mean(values: Sequence[float]) -> tuple[int, float | None, float | None, float | None]:
    """Of one number a run: how many, their mean, and its interval."""
    low, high = mean_interval(values) or (None, None)
    return len(values), math.fsum(values) / len(values) if values else None, low, high


def _negative(value: float | None) -> float | None:
    return None if value is None else -value


def _mean_verdict(low: float | None, high: float | None, target: float) -> Verdict:
    if low is not None and low >= target:
        return Verdict.MET
    return Verdict.NOT_MET if high is not None and high < target else Verdict.NOT_SHOWN


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def count(number: int) -> str:
    """A whole number with its thousands set apart: 1 799 990."""
    return f"{number:,}".replace(",", " ")


def percent(share: float) -> str:
    """A share from 0 to 1 as "99.9993 %", with as many digits as its distance from 0 % or 100 % needs."""
    return f"{_percent_digits(share)} %"


def percent_range(low: float, high: float) -> str:
    """Two shares as "99.9989–99.9996 %"."""
    return f"{_percent_digits(low)}–{_percent_digits(high)} %"


def _percent_digits(share: float) -> str:
    from_edge = min(share, 1 - share) * 100
    decimals = 0 if from_edge < 1e-12 else min(max(2 - math.floor(math.log10(from_edge)), 1), 10)
    text = f"{share * 100:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def milliseconds(delay_ms: float) -> str:
    """A delay as "42.3 ms" or, from ten seconds on, "12.3 s"."""
    if delay_ms >= 10_000:
        return f"{_rounded(delay_ms / 1000):g} s"
    return f"{delay_ms:.0f} ms" if delay_ms >= 999.5 else f"{_rounded(delay_ms):g} ms"


def microseconds(time_us: float) -> str:
    """A short time as "42 µs" or "1.3 ms"."""
    if 0 < time_us < 1:
        return "under 1 µs"
    return f"{_rounded(time_us):g} µs" if time_us < 999.5 else milliseconds(time_us / 1000)


def _rounded(value: float) -> float:
    """Three significant digits."""
    return float(f"{value:.3g}")


def span(time_s: float) -> str:
    """A time as "30 min", "80 s", "12.5 s" or "85 ms": the next larger unit from two of it on, or where it is whole."""
    for size, unit in ((3600, "h"), (60, "min"), (1, "s")):
        if time_s >= 2 * size or (time_s >= size and (size == 1 or time_s % size == 0)):
            return f"{time_s / size:.4g} {unit}"
    return milliseconds(time_s * 1000)


def rate(bits_per_second: float) -> str:
    """A rate as "9.87 Mbit/s"."""
    value = _rounded(bits_per_second)
    for size, unit in ((1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")):
        if value >= size:
            return f"{value / size:g} {unit}"
    return f"{value:g} bit/s"


def frames_a_second(frames: float) -> str:
    """A frame rate as "29.97 frames/s"."""
    return f"{frames:.4g} frames/s"


def freezes_a_minute(freezes: float) -> str:
    """How often the picture freezes, as "0.5 freezes/min"."""
    return f"{_rounded(freezes):g} freezes/min"


_LESS_IS_BETTER = frozenset({"percentile", "freezes"})

_SHOWN: dict[str, Callable[[float], str]] = {
    "share": percent,
    "percentile": milliseconds,
    "goodput": rate,
    "frames": percent,
    "frame_rate": frames_a_second,
    "worst_frame_rate": frames_a_second,
    "freezes": freezes_a_minute,
    "ssim": percent,
}
