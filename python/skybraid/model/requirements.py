"""Requirements of a flow, judged against the runs, in numbers and in words."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Protocol, Self

from skybraid import _core
from skybraid.model.episodes import FEW, KnownRun, RunShare, ShareInterval, mean_over_time, share_interval
from skybraid.model.evidence import Evidence, judge_share, time_needed_s
from skybraid.model.formatting import (
    about,
    count,
    frames_a_second,
    freezes_a_minute,
    milliseconds,
    percent,
    percent_range,
    rate,
    span,
)
from skybraid.model.heavy import np, npt
from skybraid.model.link_performance import Slots, judge_integrity, judge_link
from skybraid.model.statistics import Interval, Verdict, judge_interval, mean_interval

_ENOUGH = 30
"""Shortfalls of a goodput from which on their sum is as good as normal, as the blocks' mean supposes."""

_UNLIKE = 1.5
"""Factor between the misses that were seen and those expected of all flights from which on the words say so."""

_HALVINGS = 20
"""Steps in which the end of a percentile's interval is found: to a millionth of the messages."""

Binned = tuple["npt.NDArray[np.uint64]", "npt.NDArray[np.uint64]", float]
"""Trials and successes of each bin of time, and the width of a bin in s."""


class Stats(Protocol):
    """Statistics of a flow in one run (`_core.FlowStats`)."""

    @property
    def delivered(self) -> int: ...  # noqa: D102
    @property
    def goodput_bps(self) -> float: ...  # noqa: D102
    def met_over_time(self, deadline_ms: float | None = None) -> Binned: ...  # noqa: D102
    def frames_met_over_time(self, within_ms: float) -> Binned: ...  # noqa: D102
    def delays_within_over_time(self, delay_ms: float) -> Binned | None: ...  # noqa: D102
    def goodput_over_time(self) -> "tuple[npt.NDArray[np.uint64], float]": ...  # noqa: D102
    def delay_quantile(self, q: float) -> float: ...  # noqa: D102
    def video(self) -> dict[str, Any] | None: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class Members:
    """Verdicts of a group's single flows: one per vehicle, node or connection.

    Attributes:
        met: number of trials that meet the requirement.
        not_met: number of trials that do not.
        inconclusive: for how many the runs do not decide.
        worst: the name of the one that does worst; None where nothing was seen of any.
        worst_estimate: its value: share from 0 to 1, delay in ms, or bit/s.
    """

    met: int
    not_met: int
    inconclusive: int
    worst: str | None
    worst_estimate: float | None

    @property
    def total(self) -> int:
        """Total number."""
        return self.met + self.not_met + self.inconclusive

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Reads plain values; earlier versions called `inconclusive` "not_shown"."""
        renamed = {"inconclusive" if name == "not_shown" else name: value for name, value in values.items()}
        return cls(**renamed)

    def words(self, metric: str) -> str:
        """Requirement in a sentence."""
        text = f"met by {count(self.met)} of {count(self.total)}"
        if self.inconclusive:
            text += f", inconclusive for {count(self.inconclusive)}"
        if self.worst is None or self.worst_estimate is None:
            return text
        shown = SHOWN[metric](self.worst_estimate)
        return f"{text}; worst is {self.worst} with {shown}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement(Evidence):
    """Requirement of a flow, with its evidence.

    Attributes:
        flow: the flow's name.
        metric: "share" of the messages that arrive within the deadline, delay "percentile" of the messages that
            arrive, or "goodput"; of a video the share of "frames" that are shown undamaged in time, the "frame_rate",
            the "worst_frame_rate" of a second, the "freezes" a minute, or the share of frames with at least an "ssim";
            of a required link performance its "expiration", "continuity", "availability" or "integrity".
        deadline_ms: the delay in question in ms; None for goodput, for a share without deadline, and of a video for all
            but "frames".
        target: share from 0 to 1, quantile from 0 to 1, bit/s, frames a second, or freezes a minute.
        runs: number of runs.
        members: of a flow that is several connections or vehicles, how each fares; all else is of them together.
        ssim: the structural similarity in question.
        lost_after_ms: of a required link performance, time in ms without a completed transaction after which the link
            counts as lost.
        check_bits: of the same, length in bits of the messages' check.
    """

    flow: str
    metric: str
    deadline_ms: float | None
    target: float
    runs: int = 1
    members: Members | None = None
    ssim: float | None = None
    lost_after_ms: float | None = None
    check_bits: int | None = None

    def __repr__(self) -> str:
        return f"Requirement({self})"

    def __str__(self) -> str:
        return f"{self.flow}: {self.verdict}. {self.words}"

    def to_dict(self) -> dict[str, Any]:
        """Converts to plain values for JSON."""
        return asdict(self) | {"verdict": str(self.verdict)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Reads the output of `to_dict`."""
        known = {field.name for field in fields(cls)}
        members = values.get("members")
        return cls(
            **{name: value for name, value in values.items() if name in known}
            | {
                "verdict": Verdict(values["verdict"]),
                "members": None if members is None else Members.from_dict(members),
            }
        )

    @property
    def words(self) -> str:
        """Estimate and target in one sentence, without the verdict."""
        match self.metric:
            case "share":
                return self._share_words()
            case "percentile":
                return self._percentile_words()
            case "goodput":
                return self._mean_words(rate, required=f"required {rate(self.target)}")
            case "frames" | "ssim" | "continuity":
                return self._share_words()
            case "expiration":
                return self._percentile_words()
            case "availability":
                return self._availability_words()
            case "integrity":
                return f"{self.note} (required {percent(self.target)})"
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
            "continuity": ("transactions begun on an available link", f"completed{within}"),
        }[self.metric]
        if self.estimate is None or self.low is None or self.high is None:
            none = {
                "share": f"no message was due to arrive{within}",
                "frames": f"no frame was due to be shown{within}",
                "ssim": "no frame was decoded: `skybraid video watch` does that",
                "continuity": self.note or "no transaction was begun on an available link",
            }[self.metric]
            return f"{none}; {required}"
        seen = (
            f"{percent(self.estimate)} of {count(self.trials)} {things} {did} "
            f"(95 % interval {percent_range(self.low, self.high)}, {required}{self._misses_words()})"
        )
        return "; ".join(filter(None, (seen, self.family_words, self._parts_words()))) + self._needed_words()

    def _availability_words(self) -> str:
        """Share of the time in which the link was available."""
        required = f"required {percent(self.target)}"
        if self.estimate is None or self.low is None or self.high is None:
            return f"{self.note or 'no transaction was begun'}; {required}"
        episodes = self.episodes or 0
        losses = "not lost" if not episodes else "lost once" if episodes == 1 else f"lost {count(episodes)} times"
        for_at_least = f" for at least {span((self.lost_after_ms or 0.0) / 1000)}" + (" each" if episodes > 1 else "")
        return (
            f"available for {percent(self.estimate)} of {about(self.trials / 1000)} "
            f"(95 % interval {percent_range(self.low, self.high)}, {required}; "
            f"{losses}{for_at_least}){self._needed_words()}"
        )

    def _misses_words(self) -> str:
        """Misses of a share and their episodes: "; 17 misses in 4 episodes"."""
        if self.missed is None or self.episodes is None:
            return ""
        if self.missed == 0:
            seen_s = self.span_s or 0.0
            rarer = f"outages rarer than one in {about(seen_s / 3)} cannot be excluded"
            return f"; no miss in {about(seen_s)}: {rarer}"
        misses = "1 miss" if self.missed == 1 else f"{count(self.missed)} misses"
        together = "1 episode" if self.episodes == 1 else f"{count(self.episodes)} episodes"
        few = ", too few for a narrow interval" if self.episodes < FEW else ""
        return f"; {misses} in {together}{few}"

    @property
    def family_words(self) -> str:
        """What other runs of the links are expected to have, where those seen were not like them."""
        if self.expected is None or self.estimate is None:
            return ""
        seen, expected = 1 - self.estimate, 1 - self.expected
        if max(seen, expected) < _UNLIKE * min(seen, expected):
            return ""
        here = "the links were better" if expected > seen else "the links were worse"
        return f"{here} here than on average: over many runs {percent(self.expected)} is expected"

    def _parts_words(self) -> str:
        """Reason why the interval is wider than the run's own episodes require."""
        if self.clustering < 2:
            return ""
        return "parts of the measurements differ, and a run sees one: more seeds see more"

    @property
    def needed_runs(self) -> int | None:
        """Number of runs that would decide an inconclusive requirement; None where none would."""
        if self.verdict is not Verdict.INCONCLUSIVE or self.needed_s is None or not self.span_s:
            return None
        return math.ceil(self.runs * self.needed_s / self.span_s)

    def decided_by(self) -> str:
        """Flight time that would decide an inconclusive requirement, in words; where `needed_runs` is known."""
        clean = " without a miss" if self.missed == 0 and self.expected is None else ""
        like = "this" if self.runs == 1 else "these"
        return f"about {about(self.needed_s or 0.0)} of flight{clean} ({count(self.needed_runs or 0)} runs like {like})"

    def _needed_words(self) -> str:
        if self.verdict is not Verdict.INCONCLUSIVE:
            return ""
        if self.needed_runs is None:
            if self.target == 1 and self.metric != "goodput":
                return ": flights may refute 100 %, and never prove it"
            return ": too close to the requirement to be decided by more flights"
        if (self.needed_s or 0.0) <= (self.span_s or 0.0):
            return ": more runs would narrow the interval"
        return f": {self.decided_by()} would decide it"

    def _percentile_words(self) -> str:
        limit = milliseconds(self.deadline_ms or 0.0)
        what = "transactions that completed" if self.metric == "expiration" else "messages that arrived"
        which = f"{percent(self.target)} of the {what}"
        if self.note:
            return self.note
        if self.estimate is None:
            return f"no message arrived; {percent(self.target)} of them were required to take at most {limit}"
        low = milliseconds(self.low or 0.0)
        high = "no upper end" if self.high is None else milliseconds(self.high)
        # Judged by the share within the limit alone, a percentile has no interval of its own.
        interval = "" if self.low is None and self.high is None else f"95 % interval {low} to {high}, "
        return (
            f"{which} took at most {milliseconds(self.estimate)} "
            f"({interval}{count(self.trials)} messages, required at most {limit})"
            f"{self._needed_words()}"
        )

    def _mean_words(self, shown: Callable[[float], str], *, required: str) -> str:
        if self.estimate is None:
            return f"nothing was {'carried' if self.metric == 'goodput' else 'shown'}; {required}"
        runs = "1 run" if self.trials == 1 else f"{count(self.trials)} runs"
        if self.low is None or self.high is None:
            return f"{shown(self.estimate)} in {runs}, which gives no interval ({required}): run several seeds"
        return (
            f"{shown(self.estimate)} on average over {runs} "
            f"(95 % interval {shown(self.low)} to {shown(self.high)}, {required})"
        )


def members_of(judged: Sequence[tuple[str, Requirement]]) -> Members:
    """Aggregates the requirements of a group's single flows, given by name."""
    seen = [(name, one) for name, one in judged if one.estimate is not None]
    worst = min(
        seen,
        key=lambda member: (
            -(member[1].estimate or 0.0) if member[1].metric in LESS_IS_BETTER else (member[1].estimate or 0.0)
        ),
        default=None,
    )
    verdicts = [one.verdict for _, one in judged]
    return Members(
        met=verdicts.count(Verdict.MET),
        not_met=verdicts.count(Verdict.NOT_MET),
        inconclusive=verdicts.count(Verdict.INCONCLUSIVE),
        worst=None if worst is None else worst[0],
        worst_estimate=None if worst is None else worst[1].estimate,
    )


def judge(
    requirement: dict[str, Any],
    runs: Sequence[Stats],
    pooled: Stats,
    links: _core.KnownLinks | None = None,
    seeds: Sequence[int] = (),
) -> Requirement:
    """Judges one requirement of a flow by its 95 % interval.

    Args:
        requirement: `flow`, `metric`, `deadline_ms`, `target`, perhaps `ssim`, `lost_after_ms` and `check_bits`, as the
            scenario gives them.
        runs: the flow's statistics in each run.
        pooled: the same over all runs.
        links: what the scenario says of its links, if the runs are of one.
        seeds: seed of each run, where `links` is given.

    Shares of messages and frames, percentiles and goodput are judged by episodes (`skybraid.episodes`). A percentile is
    that of the messages that arrived, since a lost one has no delay; its losses are a share's business. Frame rates and
    freezes are one number a run: their interval needs two runs, so one run does not decide. An SSIM is judged only by
    those who decode the frames.
    """
    metric, target = str(requirement["metric"]), float(requirement["target"])
    given: float | None = requirement.get("deadline_ms")
    deadline_ms = None if given is None else float(given)
    flow = str(requirement["flow"])
    known = [None if links is None else KnownRun(links, flow, seed) for seed in seeds or [0] * len(runs)]
    match metric:
        case "share":
            met = [run.met_over_time(deadline_ms) for run in runs]
            seen = judge_share(_shares(met, known, deadline_ms), target)
        case "frames":
            met = [run.frames_met_over_time(deadline_ms or 0.0) for run in runs]
            seen = judge_share(_shares(met, known, deadline_ms), target)
        case "percentile" | "expiration":
            seen = _percentile(runs, pooled, target, deadline_ms or 0.0, known)
        case "continuity" | "availability":
            seen = judge_link(requirement, [Slots(*run.met_over_time(deadline_ms)) for run in runs], known)
        case "integrity":
            seen = judge_integrity(requirement)
        case "goodput":
            seen = _goodput(runs, target, known)
        case "frame_rate" | "worst_frame_rate" | "freezes":
            name = "freezes_per_minute" if metric == "freezes" else metric
            videos = [video for run in runs if (video := run.video()) is not None]
            values = [value for video in videos if (value := a_second(video, name)) is not None]
            trials, estimate, low, high = _mean(values)
            # Few freezes are good, many frames are.
            good = (low, high, target) if metric != "freezes" else (_negative(high), _negative(low), -target)
            verdict = judge_interval(*good)
            seen = Evidence(estimate=estimate, low=low, high=high, trials=trials, verdict=verdict)
        case "ssim":
            seen = Evidence()
        case _:
            expected = (
                "share, percentile, goodput, frames, frame_rate, worst_frame_rate, freezes, ssim, expiration, "
                "continuity, availability or integrity"
            )
            raise ValueError(f"metric: found {metric}, expected {expected}")
    return Requirement(
        **asdict(seen),
        flow=flow,
        metric=metric,
        deadline_ms=deadline_ms,
        target=target,
        runs=len(runs),
        ssim=requirement.get("ssim"),
        lost_after_ms=requirement.get("lost_after_ms"),
        check_bits=requirement.get("check_bits"),
    )


def _shares(over_time: Sequence[Binned], known: Sequence[KnownRun | None], within_ms: float | None) -> list[RunShare]:
    """Share of each run."""
    pairs = zip(over_time, known, strict=True)
    return [RunShare.of_bins(*binned, about, within_ms) for binned, about in pairs]


def _percentile(
    runs: Sequence[Stats], pooled: Stats, target: float, limit_ms: float, known: Sequence[KnownRun | None]
) -> Evidence:
    """Interval of a delay percentile, by inverting the interval of its share (Woodruff, JASA 47, 1952)."""
    if not pooled.delivered:
        return Evidence()

    def shares(delay_ms: float) -> list[RunShare]:
        found = [run.delays_within_over_time(delay_ms) for run in runs]
        pairs = zip(found, known, strict=True)
        return [RunShare.of_bins(*binned, about, delay_ms) for binned, about in pairs if binned is not None]

    def share(delay_ms: float) -> ShareInterval:
        return share_interval(shares(delay_ms))

    estimate_ms = pooled.delay_quantile(target)
    seen = share(estimate_ms)
    low = _delay_at(pooled, lambda delay_ms: share(delay_ms).interval.high >= target, 0.0, target)
    high = _delay_at(pooled, lambda delay_ms: share(delay_ms).interval.low >= target, target, 1.0)
    verdict = Verdict.INCONCLUSIVE
    if high is not None and high <= limit_ms:
        verdict = Verdict.MET
    elif low is not None and low > limit_ms:
        verdict = Verdict.NOT_MET
    needed = time_needed_s(shares(limit_ms), target, seen) if verdict is Verdict.INCONCLUSIVE else None
    return Evidence(
        estimate=estimate_ms,
        low=low,
        high=high,
        trials=pooled.delivered,
        verdict=verdict,
        needed_s=needed,
        episodes=seen.episodes,
        span_s=seen.span_s,
    )


def _delay_at(pooled: Stats, holds: Callable[[float], bool], low: float, high: float) -> float | None:
    """Smallest delay for which a monotone condition holds, between two quantiles; None if it never holds."""
    if not holds(pooled.delay_quantile(high)):
        return None
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(pooled.delay_quantile(middle)) else (middle, high)
    return pooled.delay_quantile(high)


def _goodput(runs: Sequence[Stats], target: float, known: Sequence[KnownRun | None]) -> Evidence:
    """Judges goodput, by runs if there are several, else by blocks; allows for outages, which come in episodes."""
    estimate = math.fsum(run.goodput_bps for run in runs) / len(runs)
    over_time = [_bytes_over_time(run) for run in runs]
    span_s = math.fsum(series.size * bin_s for series, bin_s in over_time)
    ends = mean_interval([run.goodput_bps for run in runs])
    # One flight of a family does not say what others carry.
    drawn = known[0] is not None and known[0].links.drawn
    if len(runs) == 1 and not drawn:
        series, _ = over_time[0]
        relative = mean_over_time(series) if series.any() else None
        ends = relative and Interval(*(end * estimate / float(series.mean()) for end in relative))
    if ends is None or estimate == 0:
        verdict = Verdict.INCONCLUSIVE if estimate else judge_interval(0.0, 0.0, target)
        return Evidence(estimate=estimate, trials=len(runs), verdict=verdict, span_s=span_s)
    # What falls short of the usual rate comes in episodes, as misses do. Flights that the seed draws speak for one
    # another by their goodput, and need no probes.
    usual = [float(np.median(series)) for series, _ in over_time]
    probed = [None] * len(runs) if drawn else known
    short = share_interval(
        [
            RunShare.of_bins(np.full(series.size, one), np.minimum(series, one), bin_s, links).clustered(about)
            for (series, bin_s), one, links, about in zip(over_time, usual, probed, known, strict=True)
        ]
    )
    low, high = ends
    if (short.episodes < _ENOUGH * short.clustering or short.expected != short.estimate) and short.estimate > 0:
        low = min(low, estimate * short.interval.low / short.estimate)
        high = max(high, estimate * short.interval.high / short.estimate)
    low = max(low, 0.0)
    verdict = judge_interval(low, high, target)
    return Evidence(
        estimate=estimate,
        low=low,
        high=high,
        trials=len(runs),
        verdict=verdict,
        episodes=short.episodes,
        span_s=span_s,
    )


def _bytes_over_time(run: Stats) -> "tuple[npt.NDArray[np.float64], float]":
    """Bytes delivered per bin, from the first non-empty one on, and the bin width in s."""
    arrived, bin_s = run.goodput_over_time()
    written, _, written_bin_s = run.met_over_time(None)
    # An outage at the end leaves bins empty that nothing arrived in.
    bins = max(arrived.size, int(written.size * written_bin_s / bin_s))
    series = np.concatenate([arrived, np.zeros(bins - arrived.size)])
    busy = np.flatnonzero(series)
    return (series[busy[0] :] if busy.size else series), bin_s


def a_second(video: Mapping[str, Any], name: str) -> float | None:
    """Frame rate or freezes per minute of a video in one run; None where unknown.

    A picture that never came has no second to be counted in; it is no frame a second.
    """
    if name in ("frame_rate", "worst_frame_rate") and video["frames"] and not video["shown"]:
        return 0.0
    value = video[name]
    return None if value is None else float(value)


def headline(requirements: Sequence[Requirement]) -> str:
    """Overall verdict in one sentence."""
    total = len(requirements)
    if total == 0:
        return "The scenario states no requirement."
    failed = sum(requirement.verdict is Verdict.NOT_MET for requirement in requirements)
    open_ = sum(requirement.verdict is Verdict.INCONCLUSIVE for requirement in requirements)
    if total == 1 and failed + open_:
        return f"The requirement is {requirements[0].verdict}."
    if failed:
        return f"{failed} of {_requirements(total)} {'is' if failed == 1 else 'are'} not met."
    if open_:
        return f"No requirement failed; {open_} of {total} {'is' if open_ == 1 else 'are'} inconclusive."
    return "The requirement is met." if total == 1 else f"All {_requirements(total)} are met."


def _requirements(number: int) -> str:
    return "1 requirement" if number == 1 else f"{number} requirements"


def _mean(values: Sequence[float]) -> tuple[int, float | None, float | None, float | None]:
    """Count, mean and interval of one number per run."""
    low, high = mean_interval(values) or (None, None)
    return len(values), math.fsum(values) / len(values) if values else None, low, high


def _negative(value: float | None) -> float | None:
    return None if value is None else -value


LESS_IS_BETTER = frozenset({"percentile", "expiration", "freezes"})
"""Metrics of which less is better."""

SHOWN: dict[str, Callable[[float], str]] = {
    "share": percent,
    "percentile": milliseconds,
    "goodput": rate,
    "frames": percent,
    "frame_rate": frames_a_second,
    "worst_frame_rate": frames_a_second,
    "freezes": freezes_a_minute,
    "ssim": percent,
    "expiration": milliseconds,
    "continuity": percent,
    "availability": percent,
    "integrity": percent,
}
"""Value of each metric with its unit."""
