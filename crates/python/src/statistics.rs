//! A flow's statistics, which add up over runs.

use std::collections::BTreeMap;

use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use skybraid_host::record::{Deadline, MissCounts, Summary, Tally, Timeline};
use skybraid_link::Cause;
use skybraid_units::Duration;

use crate::error::bad_input;

/// A flow's statistics over one run or several.
#[pyclass(module = "skybraid._core")]
#[derive(Clone)]
pub struct FlowStats {
    #[pyo3(get)]
    flow: String,
    /// The flow of the scenario that it belongs to.
    #[pyo3(get)]
    group: String,
    summary: Summary,
    paths: Vec<String>,
    /// Time in which the flow wrote, over all runs.
    active_s: f64,
}

/// A cause, the path and the effect of the link where it names them, and how many misses it had.
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

    /// The flows of a group as one: messages together, goodput the mean of the flows. Paths with the same
    /// place in each flow count together, under the name that their links share.
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

    /// The flow of the scenario that it belongs to.
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

    /// Misses by cause, the most frequent first.
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
    let (trials, met) =
        timeline.bins().iter().map(|bin| (u64::from(bin.trials), u64::from(bin.met))).unzip();
    binned(py, trials, met, timeline.width())
}

/// The deadline of that length with what was counted next to it.
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

    /// Of the lost messages, those that were not sent for want of room or time.
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

    /// Packets with payload that the links lost, by cause.
    #[getter]
    fn lost_by_cause(&self) -> BTreeMap<&'static str, u64> {
        Cause::ALL.iter().map(|cause| cause.name()).zip(self.summary.lost_packets).collect()
    }

    /// Messages that lay whole in the receiver's buffer behind something missing.
    #[getter]
    fn held_messages(&self) -> u64 {
        self.summary.held.messages
    }

    /// For how long they did, each one's time added up, in s.
    #[getter]
    fn held_total_s(&self) -> f64 {
        self.summary.held.total.as_secs_f64()
    }

    /// For how long one did at most, in s.
    #[getter]
    fn held_longest_s(&self) -> f64 {
        self.summary.held.longest.as_secs_f64()
    }

    /// How long the peer's window kept back data for which a path had room, in s.
    #[getter]
    fn window_blocked_s(&self) -> f64 {
        self.summary.connection.window_blocked.as_secs_f64()
    }

    /// How often it began to.
    #[getter]
    fn window_blocked_times(&self) -> u64 {
        self.summary.connection.window_blocked_times
    }

    /// How long the receiver of the connection held data behind something missing, in s.
    #[getter]
    fn holding_s(&self) -> f64 {
        self.summary.connection.holding.as_secs_f64()
    }

    /// Chunks offered to another path because theirs failed.
    #[getter]
    fn reinjections(&self) -> u64 {
        self.summary.connection.reinjections
    }

    /// Chunks sent again on a faster path because the peer's window was blocked.
    #[getter]
    fn opportunistic_retransmissions(&self) -> u64 {
        self.summary.connection.opportunistic
    }

    /// Share of the packets with payload that were sent on each path.
    #[getter]
    fn share(&self) -> BTreeMap<String, f64> {
        self.by_path(&self.summary.packets_by_path)
    }

    /// Share of the messages that each path brought first.
    #[getter]
    fn won(&self) -> BTreeMap<String, f64> {
        self.by_path(&self.summary.won_by_path)
    }

    /// How many messages arrived within the deadline, and of how many that is decided. Without a
    /// deadline: how many arrived at all.
    #[pyo3(signature = (deadline_ms = None))]
    fn met(&self, deadline_ms: Option<f64>) -> PyResult<(u64, u64)> {
        let Some(wanted) = deadline_ms else {
            let summary = &self.summary;
            return Ok((summary.delivered, summary.delivered + summary.lost));
        };
        let (deadline, _) = self.deadline(wanted)?;
        Ok((deadline.met, deadline.trials))
    }

    /// The same by the time at which the messages were written: trials and successes of each bin, and the width of a bin
    /// in s.
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

    /// Why messages missed the deadline, the most frequent cause first: cause, path, effect of the link, count.
    /// The counts add up to all misses. Without a deadline: why messages never arrived.
    #[pyo3(signature = (deadline_ms = None))]
    fn misses(&self, deadline_ms: Option<f64>) -> PyResult<Vec<Miss>> {
        let misses = &self.summary.misses;
        let Some(wanted) = deadline_ms else { return Ok(self.causes(&misses.lost)) };
        let (_, counts) = self.deadline(wanted)?;
        Ok(counts.map(|counts| self.causes(counts)).unwrap_or_default())
    }

    /// All misses by cause: "share" with each deadline, or `None` for messages that never arrived; of a video also
    /// "frames" with each time, or `None` for frames that were not shown undamaged.
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

    /// Why frames of a video were not shown undamaged within the time; as [`misses`](Self::misses).
    fn frame_misses(&self, within_ms: f64) -> PyResult<Vec<Miss>> {
        let (_, counts) = self.frame_deadline(within_ms)?;
        Ok(counts.map(|counts| self.causes(counts)).unwrap_or_default())
    }

    /// Of a video's frames, how many were shown undamaged within the time, and of how many that is decided.
    fn frames_met(&self, within_ms: f64) -> PyResult<(u64, u64)> {
        let (deadline, _) = self.frame_deadline(within_ms)?;
        Ok((deadline.met, deadline.trials))
    }

    /// The same by the time at which the camera took the frames, as in `met_over_time`.
    fn frames_met_over_time<'py>(&self, py: Python<'py>, within_ms: f64) -> PyResult<Binned<'py>> {
        let (deadline, _) = self.frame_deadline(within_ms)?;
        Ok(tallies(py, &deadline.timeline))
    }

    /// How many of the messages that arrived took at most this long.
    fn delays_within(&self, delay_ms: f64) -> u64 {
        self.summary.delays.up_to(Duration::from_secs_f64(delay_ms / 1e3))
    }

    /// The same by the time at which the messages were written, as in `met_over_time`; `None` where no requirement asks for
    /// a percentile.
    fn delays_within_over_time<'py>(&self, py: Python<'py>, delay_ms: f64) -> Option<Binned<'py>> {
        let timeline = self.summary.delays_over_time.as_ref()?;
        let limit = Duration::from_secs_f64(delay_ms / 1e3);
        let (trials, met) =
            timeline.bins().iter().map(|delays| (delays.total(), delays.up_to(limit))).unzip();
        Some(binned(py, trials, met, timeline.width()))
    }

    /// Payload bytes that arrived in each bin of time, and the width of a bin in s.
    fn goodput_over_time<'py>(&self, py: Python<'py>) -> (Bound<'py, PyArray1<u64>>, f64) {
        let timeline = &self.summary.goodput;
        (timeline.bins().to_vec().into_pyarray(py), timeline.width().as_secs_f64())
    }

    /// Time in which the flow wrote, over all its members, in s.
    #[getter]
    fn active_s(&self) -> f64 {
        self.active_s
    }

    /// What the frames of a video came to; `None` of another flow.
    fn video<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let Some(video) = &self.summary.video else { return Ok(None) };
        let latency = |share: f64| {
            let rank = (share * video.latencies.total() as f64).ceil().max(1.0) as u64;
            video.latencies.at_rank(rank).map(|latency| latency.as_millis_f64())
        };
        let dict = PyDict::new(py);
        dict.set_item("frames", video.frames)?;
        dict.set_item("complete", video.complete)?;
        dict.set_item("intact", video.intact)?;
        dict.set_item("shown", video.shown)?;
        let percentiles = [("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999)];
        let latencies = PyDict::new(py);
        for (name, share) in percentiles {
            latencies.set_item(name, latency(share))?;
        }
        latencies.set_item("max", latency(1.0))?;
        dict.set_item("latency_ms", latencies)?;
        let per_second =
            |count: u64| (video.seconds > 0).then(|| count as f64 / video.seconds as f64);
        dict.set_item("frame_rate", per_second(video.shown_in_seconds))?;
        dict.set_item("worst_frame_rate", video.worst_second)?;
        dict.set_item("freezes", video.freezes)?;
        dict.set_item("freezes_per_minute", per_second(60 * video.freezes))?;
        dict.set_item("frozen_s", video.frozen.as_secs_f64())?;
        dict.set_item("longest_gap_s", video.longest_gap.as_secs_f64())?;
        Ok(Some(dict))
    }

    /// The delay that a share of the messages that arrived did not exceed, in ms; NaN without any.
    fn delay_quantile(&self, q: f64) -> f64 {
        let rank = (q * self.summary.delays.total() as f64).ceil().max(1.0);
        self.delay_rank(rank as u64)
    }

    /// The delay at a rank, from 1 for the smallest, in ms; NaN where there is none.
    fn delay_rank(&self, rank: u64) -> f64 {
        self.summary.delays.at_rank(rank).map_or(f64::NAN, |delay| delay.as_millis_f64())
    }

    /// This flow's statistics and those of another run together.
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
