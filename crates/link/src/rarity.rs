//! How much a run shows of the random processes of a link that take it down for a time.
//!
//! The time down in a run is a sum of a Poisson number of lengths. Its relative variance is that of a Poisson number of
//! the mean `n E[L]^2 / E[L^2]`, where `n` is the mean number of events and `L` the length of one: few long events
//! among many short ones count as few.

use skybraid_units::{Duration, Seed};

use crate::config::LinkConfig;
use crate::distribution::{Distribution, Shape};
use crate::handover::Handover;
use crate::loss::{GilbertElliott, LossSource, OnOff};
use crate::shared_outage::SharedOutages;
use crate::spans::RandomSpans;

/// Packets per second that a Gilbert–Elliott chain is assumed to count: those of a slow control flow.
const PACKETS_PER_S: f64 = 10.0;
/// `E[L]^2 / E[L^2]` of exponential lengths.
const EXPONENTIAL: f64 = 0.5;
/// Number of draws from which moments are computed.
const DRAWS: usize = 4_096;

impl LinkConfig {
    /// Returns the mean number of equally long events in a run of `length` whose time down would vary as much as that
    /// of the process that varies most; infinity without a random process.
    ///
    /// Counted are outages, stalls, handovers, and bad states of the losses.
    pub fn equal_events(&self, length: Duration) -> f64 {
        let spans = [&self.outage, &self.stall].into_iter().flatten().map(
            |RandomSpans { interval, length: lasts, rate, factor: _ }| {
                rate * events(interval, length) * evenness(lasts)
            },
        );
        let handovers = self.handover.iter().map(
            |Handover { interval, interruption, at_least: _, factor: _ }| {
                events(interval, length) * evenness(interruption)
            },
        );
        let losses = self.losses.iter().filter_map(|loss| loss.equal_events(length));
        spans.chain(handovers).chain(losses).fold(f64::INFINITY, f64::min)
    }
}

impl LossSource {
    /// Returns the same of the bad states; `None` without bad states.
    fn equal_events(&self, length: Duration) -> Option<f64> {
        match self {
            Self::GilbertElliott(GilbertElliott { good_to_bad, .. }) => {
                Some(length.as_secs_f64() * PACKETS_PER_S * good_to_bad.ratio() * EXPONENTIAL)
            }
            Self::OnOff(OnOff { on, off, .. }) => {
                let cycle = on.mean() + off.mean();
                Some(length.as_secs_f64() / cycle.as_secs_f64() * evenness(off))
            }
            Self::Lutz(lutz) => {
                Some(length.as_secs_f64() / lutz.cycle().as_secs_f64() * EXPONENTIAL)
            }
            Self::Uniform(_) | Self::BitErrors(_) | Self::Series(_) => None,
        }
    }
}

impl SharedOutages {
    /// Returns the same of the carriers' own outages, or of the common ones if these are fewer.
    pub fn equal_events(&self, length: Duration) -> f64 {
        let kinds = self.shares_down().into_iter().filter(|share| *share > 0.0);
        let per_share = length.as_secs_f64() / self.down().mean().as_secs_f64();
        kinds.fold(f64::INFINITY, f64::min) * per_share * evenness(self.down())
    }
}

/// Returns the mean number of intervals in `length`; intervals in clusters count as the clusters.
fn events(interval: &Distribution, length: Duration) -> f64 {
    let mean = match &interval.shape {
        Shape::Exponentials(phases) => {
            phases.iter().map(|phase| phase.mean).max().unwrap_or(Duration::ZERO) + interval.plus
        }
        _ => interval.mean(),
    };
    length.as_secs_f64() / mean.as_secs_f64()
}

/// Returns `E[L]^2 / E[L^2]`: 1 for equal lengths, near 0 if few events have most of the time.
fn evenness(lengths: &Distribution) -> f64 {
    if lengths.constant().is_some() {
        return 1.0;
    }
    let draws = lengths.draws(Seed(0), "evenness").take(DRAWS).map(Duration::as_secs_f64);
    let (sum, squares) =
        draws.fold((0.0, 0.0), |(sum, squares), length| (sum + length, squares + length * length));
    if squares > 0.0 { sum * sum / (DRAWS as f64 * squares) } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Direction, PathConfig};

    fn events_in_a_minute(keys: &str) -> f64 {
        let text = alloc::format!("{keys}\nuplink.rate = '1Mbit/s'\nuplink.delay = '1ms'");
        let path: PathConfig = toml::from_str(&text).unwrap();
        path.link(Direction::Uplink).unwrap().equal_events(Duration::from_secs(60))
    }

    #[test]
    fn the_rarest_process_of_a_link_counts() {
        let outages = "outage = { interval = { mean = '2min' }, length = '1s' }";
        let handovers = "handover = { interval = { mean = '20s' }, interruption = '50ms' }";
        let chain =
            "uplink.loss = { gilbert_elliott = { good_to_bad = '0.5%', bad_to_good = '20%' } }";
        let phases =
            "uplink.loss = { on_off = { on = { mean = '25s' }, off = '5s', off_loss = '50%' } }";
        let clusters = "stall = { interval = { exponentials = [{ weight = 0.9, mean = '1s' }, \
                        { weight = 0.1, mean = '5min' }] }, length = '1s' }";
        assert_eq!(events_in_a_minute(""), f64::INFINITY);
        assert_eq!(events_in_a_minute("uplink.loss = { uniform = '1%' }"), f64::INFINITY);
        for (keys, events) in
            [(outages, 0.5), (handovers, 3.0), (chain, 1.5), (phases, 2.0), (clusters, 0.2)]
        {
            assert!((events_in_a_minute(keys) - events).abs() < 1e-9, "{keys}");
        }
        assert!((events_in_a_minute(&alloc::format!("{outages}\n{handovers}")) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn few_long_events_among_short_ones_count_as_few() {
        let events = |length: &str| {
            events_in_a_minute(&alloc::format!(
                "outage = {{ interval = {{ mean = '1s' }}, length = {length} }}"
            ))
        };
        assert!((events("'100ms'") - 60.0).abs() < 1e-9);
        // Exponential: half; uniform from 0: three quarters. The standard error of 4,096 draws is below 2 %.
        assert!((events("{ mean = '100ms' }") / 30.0 - 1.0).abs() < 0.06);
        assert!((events("{ min = '0ms', max = '100ms' }") / 45.0 - 1.0).abs() < 0.06);
        // Truncated Pareto: E[L] = 0.61 s, E[L^2] = 16.4 s^2.
        let pareto = events("{ pareto = '100ms', alpha = 1.1, max = '300s' }");
        assert!((0.6..3.0).contains(&pareto), "{pareto}");
    }
}
