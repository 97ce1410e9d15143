//! Results of a run for the page: the flows' statistics and requirements, and series for its charts.

use serde::Serialize;
use skybraid_host::record::{Deadline, Histogram, Summary, Tally, Timeline};
use skybraid_scenario::Requirement;
use skybraid_statistics::clustering::{BINS as CLUSTERING_BINS, WINDOWS};
use skybraid_statistics::{
    CONFIDENCE, Clustering, Family, ProbeDelays, RunShare, ShareInterval, Verdict, share_interval,
};
use skybraid_units::{Duration, Probability};

use crate::flight::{Flight, within};

/// Bins of a chart's time.
const BINS: usize = 240;

#[derive(Serialize)]
struct Answer<'a> {
    schema: u32,
    name: &'a str,
    seed: u64,
    duration_s: f64,
    packet_hops: u64,
    /// Broken invariants in this module; not zero is a bug of Skybraid.
    bugs: u64,
    warnings: &'a [String],
    flows: Vec<FlowAnswer<'a>>,
    links: Vec<LinkAnswer<'a>>,
}

/// A flow of the scenario, with all its connections and vehicles.
#[derive(Serialize)]
struct FlowAnswer<'a> {
    flow: String,
    sent: u64,
    delivered: u64,
    lost: u64,
    goodput_bps: f64,
    delay_ms: Percentiles,
    /// Shortest deadline, by which the chart counts misses.
    deadline_ms: Option<f64>,
    /// Share of the messages that each path delivered first.
    won: Vec<(&'a str, f64)>,
    requirements: Vec<Judged>,
    chart: Chart,
}

/// Delays in ms; `None` without a delivered message.
#[derive(Serialize)]
struct Percentiles {
    p50: Option<f64>,
    p95: Option<f64>,
    p99: Option<f64>,
    max: Option<f64>,
}

/// One number for each bin of time, by the time of writing.
#[derive(Serialize)]
struct Chart {
    /// Median delay in ms; `None` where nothing was delivered.
    median_ms: Vec<Option<f64>>,
    max_ms: Vec<Option<f64>>,
    /// Messages that missed the shortest deadline, or were never delivered where there is none.
    missed: Vec<u32>,
}

/// A requirement and what the run shows of it.
#[derive(Debug, PartialEq, Serialize)]
struct Judged {
    metric: &'static str,
    deadline_ms: Option<f64>,
    target: f64,
    /// In the unit of `target`; for delays in ms, with `deadline_ms` as the bound. `None` where the run shows
    /// nothing or only the installed program can tell.
    estimate: Option<f64>,
    /// Ends of the 95 % interval of a share.
    low: Option<f64>,
    high: Option<f64>,
    trials: u64,
    /// "met", "not met" or "inconclusive"; `None` where only the installed program can tell.
    verdict: Option<&'static str>,
}

/// A direction of a link over time.
#[derive(Serialize)]
struct LinkAnswer<'a> {
    path: &'a str,
    direction: &'static str,
    delivered_bps: Vec<f64>,
    /// Share of the bin in which the link was down.
    down: Vec<f32>,
}

impl Flight {
    /// Returns what the page shows, as JSON.
    pub fn answer(&self) -> String {
        let measurements = self.scenario.measurements(WINDOWS, CLUSTERING_BINS);
        let clustering = Clustering::of(&measurements);
        let answer = Answer {
            schema: 2,
            name: &self.scenario.name,
            seed: self.setup.seed.0,
            duration_s: self.setup.duration.as_nanos() as f64 / 1e9,
            packet_hops: self.outcome.packet_hops,
            bugs: skybraid_units::invariant::bugs(),
            warnings: &self.scenario.warnings,
            flows: self
                .groups()
                .into_iter()
                .filter_map(|group| self.flow(&group, &clustering))
                .collect(),
            links: self.links(),
        };
        serde_json::to_string(&answer)
            .unwrap_or_else(|error| format!("{{\"error\":\"answer: {error}\"}}"))
    }

    /// Returns the records of each flow of the scenario, then those of its answers.
    fn groups(&self) -> Vec<Vec<usize>> {
        let name = |record: &usize| {
            let flow = self.origins.get(*record).and_then(|flow| self.setup.flows.get(*flow));
            (flow.map(|flow| &flow.group), self.suffix(*record))
        };
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for record in 0..self.origins.len() {
            let own = name(&record);
            match groups.iter_mut().find(|group| group.first().map(name) == Some(own)) {
                Some(group) => group.push(record),
                None => groups.push(vec![record]),
            }
        }
        groups
    }

    fn flow(&self, group: &[usize], clustering: &Clustering) -> Option<FlowAnswer<'_>> {
        let first = *group.first()?;
        let setup = self.setup.flows.get(*self.origins.get(first)?)?;
        let mut summary = self.outcome.flows.get(first)?.summary.clone();
        for record in group.iter().skip(1) {
            summary.merge(&self.outcome.flows.get(*record)?.summary);
        }
        let active = setup.stop.min(self.end()).since(setup.start).as_secs_f64();
        let active_s = active * group.len() as f64;
        let goodput_bps =
            if active_s > 0.0 { summary.delivered_bytes as f64 * 8.0 / active_s } else { 0.0 };
        let own = self.scenario.flows.iter().find(|flow| flow.group == setup.group);
        let is_answer = !self.suffix(first).is_empty();
        let requirements = own.filter(|_| !is_answer).map_or(&[][..], |flow| &flow.requirements);
        let total = summary.won_by_path.iter().sum::<u64>().max(1) as f64;
        let won = summary
            .won_by_path
            .iter()
            .enumerate()
            .filter_map(|(own, won)| Some((self.path(first, own)?, *won as f64 / total)));
        let at = |share: f64| quantile_ms(&summary.delays, share);
        let drawn = !requirements.is_empty() && self.scenario.needs_other_runs();
        let probes = drawn.then(|| {
            let run = self.scenario.probe(&setup.group, self.setup.seed)?;
            Some((run, self.scenario.probe_family(&setup.group)?))
        });
        let known = KnownLinks { clustering, probes: probes.flatten() };
        Some(FlowAnswer {
            flow: format!("{}{}", setup.group, self.suffix(first)),
            sent: summary.sent,
            delivered: summary.delivered,
            lost: summary.lost,
            goodput_bps,
            delay_ms: Percentiles { p50: at(0.5), p95: at(0.95), p99: at(0.99), max: at(1.0) },
            deadline_ms: setup.deadline.map(Duration::as_millis_f64),
            won: won.collect(),
            requirements: requirements
                .iter()
                .flat_map(|requirement| judge(requirement, &summary, goodput_bps, &known))
                .collect(),
            chart: self.chart(group, setup.deadline),
        })
    }

    /// Returns the bin of a time.
    fn bin(&self, nanos: i64) -> usize {
        let share = nanos as f64 / self.setup.duration.as_nanos().max(1) as f64;
        ((share * BINS as f64) as usize).min(BINS - 1)
    }

    fn chart(&self, group: &[usize], deadline: Option<Duration>) -> Chart {
        let mut delays: Vec<Vec<f32>> = vec![Vec::new(); BINS];
        let mut missed = vec![0; BINS];
        let records = group.iter().filter_map(|record| self.outcome.flows.get(*record));
        for row in records.flat_map(|record| record.blocks()).flatten() {
            let bin = self.bin(row.sent().as_nanos());
            let late = match deadline {
                Some(limit) => within(row, limit, self.end()) == Some(false),
                None => row.delivered().is_none(),
            };
            if let (true, Some(count)) = (late, missed.get_mut(bin)) {
                *count += 1;
            }
            if let (Some(at), Some(delays)) = (row.delivered(), delays.get_mut(bin)) {
                delays.push((at - row.sent()).as_millis_f64() as f32);
            }
        }
        let median = delays.iter_mut().map(|delays| {
            delays.sort_unstable_by(f32::total_cmp);
            delays.get(delays.len() / 2).map(|delay| f64::from(*delay))
        });
        let median_ms = median.collect();
        let max_ms = delays.iter().map(|delays| delays.last().map(|delay| f64::from(*delay)));
        Chart { median_ms, max_ms: max_ms.collect(), missed }
    }

    fn links(&self) -> Vec<LinkAnswer<'_>> {
        let directed = self.setup.links.iter().flat_map(|link| {
            ["uplink", "downlink"].map(|direction| LinkAnswer {
                path: &link.name,
                direction,
                delivered_bps: vec![0.0; BINS],
                down: vec![0.0; BINS],
            })
        });
        let mut links: Vec<LinkAnswer<'_>> = directed.collect();
        let mut samples = vec![vec![0_u32; BINS]; links.len()];
        let bin_s = self.setup.duration.as_secs_f64() / BINS as f64;
        for row in &self.outcome.links {
            let (link, bin) = (usize::from(row.link), self.bin(row.at.as_nanos()));
            let (Some(link), Some(samples)) = (links.get_mut(link), samples.get_mut(link)) else {
                continue;
            };
            if let Some(rate) = link.delivered_bps.get_mut(bin) {
                *rate += row.delivered_bytes as f64 * 8.0 / bin_s;
            }
            if let (Some(down), Some(samples)) = (link.down.get_mut(bin), samples.get_mut(bin)) {
                *down += if row.up { 0.0 } else { 1.0 };
                *samples += 1;
            }
        }
        for (link, samples) in links.iter_mut().zip(&samples) {
            for (down, samples) in link.down.iter_mut().zip(samples) {
                *down /= (*samples).max(1) as f32;
            }
        }
        links
    }
}

/// Returns the delay not exceeded by a share of the delivered messages, in ms.
fn quantile_ms(delays: &Histogram, share: f64) -> Option<f64> {
    let rank = (share * delays.total() as f64).ceil().max(1.0);
    delays.at_rank(rank as u64).map(Duration::as_millis_f64)
}

/// Trials and successes by bin of time.
#[derive(Default)]
struct Binned {
    trials: Vec<f64>,
    met: Vec<f64>,
    width: Duration,
}

impl Binned {
    fn of(timeline: &Timeline<Tally>) -> Self {
        let (trials, met) =
            timeline.bins(|bin| (f64::from(bin.trials), f64::from(bin.met))).unzip();
        Self { trials, met, width: timeline.width() }
    }

    /// Counts of the deadline `limit`.
    fn of_deadline(deadlines: &[Deadline], limit: Duration) -> Self {
        let deadline = deadlines.iter().find(|deadline| deadline.limit == limit);
        deadline.map_or_else(Self::default, |deadline| Self::of(&deadline.timeline))
    }

    /// Messages that took at most `limit`, among those that arrived.
    fn of_delays(summary: &Summary, limit: Duration) -> Self {
        let Some(timeline) = &summary.delays_over_time else { return Self::default() };
        let (trials, met) =
            timeline.bins(|delays| (delays.total() as f64, delays.up_to(limit) as f64)).unzip();
        Self { trials, met, width: timeline.width() }
    }

    fn judged(&self, known: &KnownLinks<'_>, limit: Option<Duration>) -> ShareInterval {
        let mut run = RunShare::of_bins(&self.trials, &self.met, self.width.as_secs_f64());
        if run.trials > 0 {
            run.clustering = known.clustering.factor(run.missed as f64 / run.trials as f64);
        }
        if let Some(probes) = &known.probes {
            let deadline_s = limit.map_or(f64::INFINITY, Duration::as_secs_f64);
            let (seen, family) = probes;
            run.seen = seen.exposure(deadline_s);
            [run.family, run.family_more] = family.exposure(deadline_s);
        }
        share_interval(&[run], CONFIDENCE)
    }
}

/// What the scenario says of the links of a flow beyond what the run saw of them.
struct KnownLinks<'a> {
    clustering: &'a Clustering,
    /// Probes of the run and of other flights, if flights are drawn.
    probes: Option<(ProbeDelays, Family)>,
}

impl Judged {
    /// A requirement of which the run shows nothing yet.
    fn new(metric: &'static str, limit: Option<Duration>, target: f64) -> Self {
        let deadline_ms = limit.map(Duration::as_millis_f64);
        let (estimate, low, high, verdict) = (None, None, None, None);
        Self { metric, deadline_ms, target, estimate, low, high, trials: 0, verdict }
    }

    /// A share, by its interval.
    fn share(self, binned: &Binned, known: &KnownLinks<'_>, limit: Option<Duration>) -> Self {
        let seen = binned.judged(known, limit);
        if seen.trials == 0 {
            return Self { verdict: Some(Verdict::Inconclusive.name()), ..self };
        }
        Self {
            estimate: Some(seen.estimate),
            low: Some(seen.interval.low),
            high: Some(seen.interval.high),
            trials: seen.trials,
            verdict: Some(Verdict::of(seen.interval, self.target).name()),
            ..self
        }
    }

    /// A percentile of the messages that arrived, by the share of them that took at most `limit`.
    fn percentile(self, summary: &Summary, limit: Duration, known: &KnownLinks<'_>) -> Self {
        let seen = Binned::of_delays(summary, limit).judged(known, Some(limit));
        let verdict = if seen.trials == 0 {
            Verdict::Inconclusive
        } else {
            Verdict::of(seen.interval, self.target)
        };
        Self {
            estimate: quantile_ms(&summary.delays, self.target),
            trials: summary.delivered,
            verdict: Some(verdict.name()),
            ..self
        }
    }

    /// One number of a run, which gives no interval.
    fn number(self, estimate: Option<f64>) -> Self {
        Self { estimate, trials: 1, verdict: Some(Verdict::Inconclusive.name()), ..self }
    }
}

fn judge(
    requirement: &Requirement,
    summary: &Summary,
    goodput_bps: f64,
    known: &KnownLinks<'_>,
) -> Vec<Judged> {
    let video = summary.video.as_ref();
    let a_second = |count: u64| {
        let video = video.filter(|video| video.seconds > 0)?;
        Some(count as f64 / video.seconds as f64)
    };
    vec![match requirement {
        Requirement::Share { deadline, share: target } => {
            let binned = match deadline {
                Some(limit) => Binned::of_deadline(&summary.deadlines, *limit),
                None => Binned::of(&summary.arrivals),
            };
            Judged::new("share", *deadline, target.ratio()).share(&binned, known, *deadline)
        }
        Requirement::Delay { percentile, delay: limit } => {
            Judged::new("percentile", Some(*limit), percentile.ratio())
                .percentile(summary, *limit, known)
        }
        Requirement::Goodput { rate } => Judged {
            estimate: Some(goodput_bps),
            trials: 1,
            ..Judged::new("goodput", None, rate.as_bps() as f64)
        },
        Requirement::Frames { share: target, within } => {
            let deadlines = video.map_or(&[][..], |video| &video.deadlines);
            let binned = Binned::of_deadline(deadlines, *within);
            Judged::new("frames", Some(*within), target.ratio()).share(
                &binned,
                known,
                Some(*within),
            )
        }
        Requirement::FrameRate { min, worst: false } => {
            let shown = video.and_then(|video| a_second(video.shown_in_seconds));
            Judged::new("frame_rate", None, *min).number(shown)
        }
        Requirement::FrameRate { min, worst: true } => {
            let worst = video.and_then(|video| video.worst_second);
            Judged::new("worst_frame_rate", None, *min).number(worst.map(f64::from))
        }
        Requirement::Freezes { max } => {
            let freezes = video.and_then(|video| a_second(60 * video.freezes));
            Judged::new("freezes", None, *max).number(freezes)
        }
        Requirement::Ssim { share, .. } => Judged::new("ssim", None, share.ratio()),
        Requirement::LinkPerformance(rlp) => {
            let expiration = rlp.expiration;
            let unknown =
                |metric, target: Probability| Judged::new(metric, Some(expiration), target.ratio());
            let mut judged = vec![
                unknown("expiration", rlp.continuity).percentile(summary, expiration, known),
                unknown("continuity", rlp.continuity),
            ];
            let others = [("availability", rlp.availability), ("integrity", rlp.integrity)];
            judged.extend(
                others.into_iter().filter_map(|(metric, target)| Some(unknown(metric, target?))),
            );
            return judged;
        }
    }]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use crate::flight::{Flight, Request};

    fn flown(scenario: &str, files: &[(&str, &str)]) -> Result<Flight, String> {
        let files = files.iter().map(|(name, text)| ((*name).to_string(), (*text).to_string()));
        let request = Request {
            scenario: scenario.into(),
            seed: None,
            files: files.collect::<BTreeMap<_, _>>(),
        };
        Flight::new(&request, &mut |_| ())
    }

    const TRACE: &str = "duration = '10s'
[path.lte]
rate = '20Mbit/s'
delay = { trace = 'drive.csv', column = 'delay [ms]', unit = 'ms', repeat = true }
[flow.control]
from = 'ground'
traffic = { kind = 'cbr', rate = '100kbit/s', packet = '125B' }
transport = { protocol = 'udp' }
require = { deadline = '50ms', share = '60%' }";

    #[test]
    fn half_of_a_second_of_delay_meets_half_the_deadlines() {
        // 30 ms and 70 ms take turns every second: of ten seconds, five meet 50 ms.
        let csv = "time [s],delay [ms]\n0,30\n1,70\n";
        let flight = flown(TRACE, &[("drive.csv", csv)]).unwrap();
        let answer: serde_json::Value = serde_json::from_str(&flight.answer()).unwrap();
        let requirement = &answer["flows"][0]["requirements"][0];
        assert_eq!(requirement["trials"], 996);
        // Five good seconds of ten do not say that a longer flight stays below 60 %.
        assert_eq!(requirement["verdict"], "inconclusive");
        assert!((requirement["estimate"].as_f64().unwrap() - 0.5).abs() < 0.01);
        assert_eq!(answer["flows"][0]["chart"]["missed"].as_array().unwrap().len(), super::BINS);
    }

    #[test]
    fn a_row_says_when_a_message_was_written_and_arrived() {
        let csv = "time [s],delay [ms]\n0,30\n100,30\n";
        let mut flight = flown(TRACE, &[("drive.csv", csv)]).unwrap();
        let text = flight.next_rows().unwrap();
        let row = text.lines().nth(1).unwrap();
        // 125 bytes of payload and 28 of headers take 61.2 us at 20 Mbit/s.
        assert_eq!(row, "control,0,control,125,0,30061200,1,1,lte,0,true");
        assert_eq!(flight.next_rows(), None);
    }

    #[test]
    fn a_file_that_the_page_lacks_is_named_with_its_key() {
        let problem = flown(TRACE, &[]).err().unwrap();
        assert!(
            problem.contains("path.lte.delay: found `drive.csv`, expected a file of this page"),
            "{problem}"
        );
    }

    #[test]
    fn an_algorithm_of_ones_own_needs_the_installed_program() {
        let own = TRACE.replace("'udp'", "'mptcp', scheduler = 'python:mine'");
        let csv = "time [s],delay [ms]\n0,30\n100,30\n";
        let problem = flown(&own, &[("drive.csv", csv)]).err().unwrap();
        assert!(problem.starts_with("flow.control.transport: found `python:mine`"), "{problem}");
    }
}
