//! Statistics of a flow, which can be merged over runs.

use std::collections::BTreeMap;

use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use skybraid_host::record::{Deadline, MissCounts, Summary, Tally, Timeline};
use skybraid_link::Cause;
use skybraid_units::Duration;

use crate::error::bad_input;

/// Statistics of a flow over one or several runs.
#[pyclass(module = "skybraid._core")]
#[derive(Clone)]
pub struct FlowStats {
    #[pyo3(get)]
    flow: String,
    /// Group of the flow in the scenario.
    #[pyo3(get)]
    group: String,
    summary: Summary,
    paths: Vec<String>,
    /// Time during which the flow wrote, over all runs.
    active_s: f64,
}

/// Cause, path and link effect if known, and number of misses.
type Miss = (&'static str, Option<String>, Option<&'static str>, u64);

impl FlowStats {
    pub fn new(
        flow: String,
        group: String,
        summary: Summary,
        paths: Vec<String>,
        active_s: f64,
    ) -> Self {
        Self { flow, group, summary, paths, active_s }
    }

    /// Pools the flows of a group: messages are added, goodput is the mean of the flows. Paths at the same
    /// position in each flow are added under the common part of their names.
    pub fn pooled(members: &[Self]) -> Option<Self> {
        let mut all = members.first()?.clone();
        all.flow.clone_from(&all.group);
        for member in members.iter().skip(1) {
            all.summary.merge(&member.summary);
            all.active_s += member.active_s;
        }
        let shared = |path: &String| path.split('.').next().unwrap_or_default().to_string();
        let shared: Vec<String> = all.paths.iter().map(shared).collect();
        let twins = |name: &String| shared.iter().filter(|other| *other == name).count() > 1;
        let numbered = shared.iter().enumerate().map(|(place, name)| {
            if twins(name) { format!("{name}-{}", place + 1) } else { name.clone() }
        });
        all.paths = numbered.collect();
        Some(all)
    }

    /// Returns the group of the flow in the scenario.
    pub fn group(&self) -> &str {
        &self.group
    }

    fn deadline(&self, wanted: f64) -> PyResult<(&Deadline, Option<&MissCounts>)> {
        let summary = &self.summary;
        judged_by(&summary.deadlines, &summary.misses.by_deadline, "deadline_ms", wanted)
    }

    fn frame_deadline(&self, within_ms: f64) -> PyResult<(&Deadline, Option<&MissCounts>)> {
        let video = self.summary.video.as_ref();
        let (deadlines, misses) =
            video.map_or((&[][..], &[][..]), |video| (&video.deadlines[..], &video.misses[..]));
        judged_by(deadlines, misses, "within_ms", within_ms)
    }

    /// Returns the misses by cause, the most frequent first.
    fn causes(&self, counts: &MissCounts) -> Vec<Miss> {
        let named = |path: u8| self.paths.get(usize::from(path)).cloned();
        let mut causes: Vec<Miss> = counts
            .iter()
            .map(|(cause, count)| {
                (cause.name(), cause.path().and_then(named), cause.effect(), count)
            })
            .collect();
        causes.sort_by_key(|(.., count)| std::cmp::Reverse(*count));
        causes
    }

    fn by_path(&self, counts: &[u64]) -> BTreeMap<String, f64> {
        let total = counts.iter().sum::<u64>().max(1) as f64;
        let shares = counts.iter().map(|count| *count as f64 / total);
        self.paths.iter().cloned().zip(shares).collect()
    }
}

/// Trials and successes by bin, and the width of a bin in s.
type Binned<'py> = (Bound<'py, PyArray1<u64>>, Bound<'py, PyArray1<u64>>, f64);

fn binned<'py>(py: Python<'py>, trials: Vec<u64>, met: Vec<u64>, width: Duration) -> Binned<'py> {
    (trials.into_pyarray(py), met.into_pyarray(py), width.as_secs_f64())
}

fn tallies<'py>(py: Python<'py>, timeline: &Timeline<Tally>) -> Binned<'py> {
    let (trials, met) = timeline.bins(|bin| (u64::from(bin.trials), u64::from(bin.met))).unzip();
    binned(py, trials, met, timeline.width())
}

/// Returns the deadline of a given length with its counts.
fn judged_by<'a, T>(
    deadlines: &'a [Deadline],
    counts: &'a [T],
    argument: &str,
    wanted: f64,
) -> PyResult<(&'a Deadline, Option<&'a T>)> {
    let close = |deadline: &Deadline| (deadline.limit.as_millis_f64() - wanted).abs() < 1e-6;
    let place = deadlines.iter().position(close);
    place.and_then(|place| Some((deadlines.get(place)?, counts.get(place)))).ok_or_else(|| {
        bad_input(format!("{argument}: found {wanted}, which no requirement of the flow names"))
    })
}

#[pymethods]
impl FlowStats {
    #[getter]
    fn sent(&self) -> u64 {
        self.summary.sent
    }

    #[getter]
    fn delivered(&self) -> u64 {
        self.summary.delivered
    }

    #[getter]
    fn in_flight(&self) -> u64 {
        self.summary.in_flight
    }

    #[getter]
    fn lost(&self) -> u64 {
        self.summary.lost
    }

    /// Lost messages that were not sent for lack of buffer space or time.
    #[getter]
    fn refused(&self) -> u64 {
        self.summary.refused
    }

    #[getter]
    fn bytes_delivered(&self) -> u64 {
        self.summary.delivered_bytes
    }

    #[getter]
    fn goodput_bps(&self) -> f64 {
        if self.active_s > 0.0 {
            self.summary.delivered_bytes as f64 * 8.0 / self.active_s
        } else {
            0.0
        }
    }

    /// Payload packets lost by the links, by cause.
    #[getter]
    fn lost_by_cause(&self) -> BTreeMap<&'static str, u64> {
        Cause::ALL.iter().map(|cause| cause.name()).zip(self.summary.lost_packets).collect()
    }

    /// Complete messages that waited in the receiver's buffer for missing data.
    #[getter]
    fn held_messages(&self) -> u64 {
        self.summary.held.messages
    }

    /// Total waiting time of held messages, in s.
    #[getter]
    fn held_total_s(&self) -> f64 {
        self.summary.held.total.as_secs_f64()
    }

    /// Maximum waiting time of a held message, in s.
    #[getter]
    fn held_longest_s(&self) -> f64 {
        self.summary.held.longest.as_secs_f64()
    }

    /// Time for which the peer's receive window blocked data despite room on a path, in s.
    #[getter]
    fn window_blocked_s(&self) -> f64 {
        self.summary.connection.window_blocked.as_secs_f64()
    }

    /// Number of times the receive window blocked data.
    #[getter]
    fn window_blocked_times(&self) -> u64 {
        self.summary.connection.window_blocked_times
    }

    /// Time during which the receiver held data after a gap, in s.
    #[getter]
    fn holding_s(&self) -> f64 {
        self.summary.connection.holding.as_secs_f64()
    }

    /// Chunks moved to another path because theirs failed.
    #[getter]
    fn reinjections(&self) -> u64 {
        self.summary.connection.reinjections
    }

    /// Chunks retransmitted on a faster path because the peer's window was blocked.
    #[getter]
    fn opportunistic_retransmissions(&self) -> u64 {
        self.summary.connection.opportunistic
    }

    /// Share of the last messages that the sender's scheduler expects in time: `within_ms`, `wanted`,
    /// `expected`, `overhead`, `best`, `best_overhead`, and the same in `words`; of all messages, the misses that it
    /// expected as `misses_so_far`, and with a copy on each path as `min_misses_so_far`. Of shares and misses also the
    /// 95 % intervals, `expected_interval` and so on. None without an estimate.
    fn forecast<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let forecast = self.summary.forecast.as_deref().and_then(|forecast| forecast.known());
        let Some(forecast) = forecast else { return Ok(None) };
        let dict = dict!(
            py,
            "within_ms": forecast.within().as_millis_f64(),
            "wanted": forecast.wanted(),
            "overhead": forecast.overhead(),
            "best_overhead": forecast.best_overhead(),
        );
        let [misses, min_misses] = forecast.misses_so_far();
        let estimates = [
            ("expected", forecast.expected()),
            ("best", forecast.best()),
            ("misses_so_far", misses),
            ("min_misses_so_far", min_misses),
        ];
        for (name, value) in estimates {
            dict.set_item(name, value.mean)?;
            dict.set_item(format!("{name}_interval"), (value.low, value.high))?;
        }
        dict.set_item("words", forecast.to_string())?;
        Ok(Some(dict))
    }

    /// Share of payload packets sent on each path.
    #[getter]
    fn share(&self) -> BTreeMap<String, f64> {
        self.by_path(&self.summary.packets_by_path)
    }

    /// Share of messages delivered first by each path.
    #[getter]
    fn won(&self) -> BTreeMap<String, f64> {
        self.by_path(&self.summary.won_by_path)
    }

    /// Returns the number of messages delivered within the deadline, and the number of decided messages.
    /// Without a deadline: all delivered messages.
    #[pyo3(signature = (deadline_ms = None))]
    fn met(&self, deadline_ms: Option<f64>) -> PyResult<(u64, u64)> {
        let Some(wanted) = deadline_ms else {
            let summary = &self.summary;
            return Ok((summary.delivered, summary.delivered + summary.lost));
        };
        let (deadline, _) = self.deadline(wanted)?;
        Ok((deadline.met, deadline.trials))
    }

    /// Returns the counts of `met` by the time of writing: trials and successes of each bin, and the width of
    /// a bin in s.
    #[pyo3(signature = (deadline_ms = None))]
    fn met_over_time<'py>(
        &self,
        py: Python<'py>,
        deadline_ms: Option<f64>,
    ) -> PyResult<Binned<'py>> {
        let Some(wanted) = deadline_ms else { return Ok(tallies(py, &self.summary.arrivals)) };
        let (deadline, _) = self.deadline(wanted)?;
        Ok(tallies(py, &deadline.timeline))
    }

    /// Returns the causes of missed deadlines, most frequent first: cause, path, link effect, count. The
    /// counts add up to all misses. Without a deadline: causes of messages never delivered.
    #[pyo3(signature = (deadline_ms = None))]
    fn misses(&self, deadline_ms: Option<f64>) -> PyResult<Vec<Miss>> {
        let misses = &self.summary.misses;
        let Some(wanted) = deadline_ms else { return Ok(self.causes(&misses.lost)) };
        let (_, counts) = self.deadline(wanted)?;
        Ok(counts.map(|counts| self.causes(counts)).unwrap_or_default())
    }

    /// Returns all misses by cause: "share" with each deadline, or `None` for messages never delivered; for
    /// video also "frames" with each time, or `None` for frames not shown undamaged.
    fn all_misses(&self) -> Vec<(&'static str, Option<f64>, Vec<Miss>)> {
        let misses = &self.summary.misses;
        let mut all = vec![("share", None, self.causes(&misses.lost))];
        for (deadline, counts) in self.summary.deadlines.iter().zip(&misses.by_deadline) {
            all.push(("share", Some(deadline.limit.as_millis_f64()), self.causes(counts)));
        }
        let Some(video) = &self.summary.video else { return all };
        all.push(("frames", None, self.causes(&video.damaged)));
        for (deadline, counts) in video.deadlines.iter().zip(&video.misses) {
            all.push(("frames", Some(deadline.limit.as_millis_f64()), self.causes(counts)));
        }
        all
    }

    /// Returns the causes of video frames not shown undamaged within the time, as [`misses`](Self::misses).
    fn frame_misses(&self, within_ms: f64) -> PyResult<Vec<Miss>> {
        let (_, counts) = self.frame_deadline(within_ms)?;
        Ok(counts.map(|counts| self.causes(counts)).unwrap_or_default())
    }

    /// Returns the number of video frames shown undamaged within the time, and the number of decided frames.
    fn frames_met(&self, within_ms: f64) -> PyResult<(u64, u64)> {
        let (deadline, _) = self.frame_deadline(within_ms)?;
        Ok((deadline.met, deadline.trials))
    }

    /// Returns the counts of `frames_met` by capture time, as in `met_over_time`.
    fn frames_met_over_time<'py>(&self, py: Python<'py>, within_ms: f64) -> PyResult<Binned<'py>> {
        let (deadline, _) = self.frame_deadline(within_ms)?;
        Ok(tallies(py, &deadline.timeline))
    }

    /// Returns the number of delivered messages with at most this delay.
    fn delays_within(&self, delay_ms: f64) -> u64 {
        self.summary.delays.up_to(Duration::from_secs_f64(delay_ms / 1e3))
    }

    /// Returns the counts of `delays_within` by the time of writing, as in `met_over_time`; `None` if no
    /// requirement names a percentile.
    fn delays_within_over_time<'py>(&self, py: Python<'py>, delay_ms: f64) -> Option<Binned<'py>> {
        let timeline = self.summary.delays_over_time.as_ref()?;
        let limit = Duration::from_secs_f64(delay_ms / 1e3);
        let (trials, met) = timeline.bins(|delays| (delays.total(), delays.up_to(limit))).unzip();
        Some(binned(py, trials, met, timeline.width()))
    }

    /// Returns the payload bytes delivered in each bin of time, and the width of a bin in s.
    fn goodput_over_time<'py>(&self, py: Python<'py>) -> (Bound<'py, PyArray1<u64>>, f64) {
        let timeline = &self.summary.goodput;
        let bytes: Vec<_> = timeline.bins(|bytes| *bytes).collect();
        (bytes.into_pyarray(py), timeline.width().as_secs_f64())
    }

    /// Time during which the flow wrote, over all its members, in s.
    #[getter]
    fn active_s(&self) -> f64 {
        self.active_s
    }

    /// Returns the frame statistics of a video; `None` for other flows.
    fn video<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let Some(video) = &self.summary.video else { return Ok(None) };
        let latency = |share: f64| {
            let rank = (share * video.latencies.total() as f64).ceil().max(1.0) as u64;
            video.latencies.at_rank(rank).map(|latency| latency.as_millis_f64())
        };
        let per_second =
            |count: u64| (video.seconds > 0).then(|| count as f64 / video.seconds as f64);
        let latencies = dict!(
            py, "p50": latency(0.5), "p95": latency(0.95), "p99": latency(0.99), "p999": latency(0.999),
            "max": latency(1.0),
        );
        let dict = dict!(
            py,
            "frames": video.frames,
            "complete": video.complete,
            "intact": video.intact,
            "shown": video.shown,
            "latency_ms": latencies,
            "frame_rate": per_second(video.shown_in_seconds),
            "worst_frame_rate": video.worst_second,
            "freezes": video.freezes,
            "freezes_per_minute": per_second(60 * video.freezes),
            "frozen_s": video.frozen.as_secs_f64(),
            "longest_gap_s": video.longest_gap.as_secs_f64(),
        );
        Ok(Some(dict))
    }

    /// Returns the delay not exceeded by a share of the delivered messages, in ms; NaN without any.
    fn delay_quantile(&self, q: f64) -> f64 {
        let rank = (q * self.summary.delays.total() as f64).ceil().max(1.0);
        self.delay_rank(rank as u64)
    }

    /// Returns the delay at a rank, from 1 for the smallest, in ms; NaN where there is none.
    fn delay_rank(&self, rank: u64) -> f64 {
        self.summary.delays.at_rank(rank).map_or(f64::NAN, |delay| delay.as_millis_f64())
    }

    /// Returns the statistics merged with those of another run.
    fn merge(&self, other: &Self) -> PyResult<Self> {
        if self.flow != other.flow || self.paths != other.paths {
            return Err(bad_input(format!(
                "flow: found `{}`, expected another run of `{}` over the same paths",
                other.flow, self.flow
            )));
        }
        let mut both = self.clone();
        both.summary.merge(&other.summary);
        both.active_s += other.active_s;
        Ok(both)
    }
}
