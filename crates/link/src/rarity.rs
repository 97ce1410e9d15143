//! How much a run shows of the random processes of a link that take it down for a time.
//!
//! The time down in a run is a sum of a Poisson number of lengths. Its relative variance is that of a Poisson number of
//! the mean `n E[L]^2 / E[L^2]`, where `n` is the mean number of events and `L` the length of one: few long events
//! among many short ones count as few. A moment of the time down is in an event of the mean length `E[L^2] / E[L]`.

use skybraid_units::Duration;

use crate::config::LinkConfig;
use crate::distribution::{Distribution, Shape};
use crate::handover::Handover;
use crate::loss::{GilbertElliott, LossSource, OnOff};
use crate::shared_outage::SharedOutages;
use crate::spans::RandomSpans;

/// Packets per second that a Gilbert–Elliott chain is assumed to count: those of a slow control flow.
const PACKETS_PER_S: f64 = 10.0;

/// Events of one process in a run.
struct Events {
    /// Mean number.
    number: f64,
    /// Mean length in s.
    mean: f64,
    /// Mean square of the lengths in s².
    square: f64,
}

impl Events {
    /// Events with lengths of this distribution.
    fn of(number: f64, lengths: &Distribution) -> Self {
        Self { number, mean: lengths.mean().as_secs_f64(), square: lengths.mean_square() }
    }

    /// Events with exponential lengths of this mean in s.
    const fn exponential(number: f64, mean: f64) -> Self {
        Self { number, mean, square: 2.0 * mean * mean }
    }

    /// Returns the mean number of equally long events whose time down would vary as much; `None` if most of the time
    /// down is in events shorter than `shortest`.
    fn equal(&self, shortest: Duration) -> Option<f64> {
        let Self { number, mean, square } = *self;
        let lasts = square >= shortest.as_secs_f64() * mean && square > 0.0;
        lasts.then(|| number * mean * mean / square)
    }
}

/// Returns the mean number of events in a run; those in clusters count as the clusters.
fn between(interval: &Distribution, run: Duration) -> f64 {
    let mean = match &interval.shape {
        Shape::Exponentials(phases) => {
            let longest = phases.iter().map(|phase| phase.mean).max();
            longest.unwrap_or(Duration::ZERO) + interval.plus
        }
        _ => interval.mean(),
    };
    number(run, mean)
}

/// Returns how often `interval` fits into a run.
fn number(run: Duration, interval: Duration) -> f64 {
    run.as_secs_f64() / interval.as_secs_f64()
}

impl LinkConfig {
    /// Returns the mean number of equally long events in a run whose time down would vary as much as that of the
    /// process that varies most; infinity without a random process whose events last `shortest` and longer.
    ///
    /// Counted are outages, stalls, handovers, and bad states of the losses.
    pub fn equal_events(&self, run: Duration, shortest: Duration) -> f64 {
        let spans = [&self.outage, &self.stall].into_iter().flatten().map(
            |RandomSpans { interval, length, rate, factor: _ }| {
                Events::of(rate * between(interval, run), length)
            },
        );
        let handovers = self.handover.iter().map(
            |Handover { interval, interruption, at_least: _, factor: _ }| {
                Events::of(between(interval, run), interruption)
            },
        );
        let losses = self.losses.iter().filter_map(|loss| loss.events(run));
        let all = spans.chain(handovers).chain(losses);
        all.filter_map(|events| events.equal(shortest)).fold(f64::INFINITY, f64::min)
    }
}

impl LossSource {
    /// Returns the bad states; `None` without them.
    fn events(&self, run: Duration) -> Option<Events> {
        match self {
            Self::GilbertElliott(GilbertElliott { good_to_bad, bad_to_good, .. }) => {
                let number = run.as_secs_f64() * PACKETS_PER_S * good_to_bad.ratio();
                Some(Events::exponential(number, 1.0 / (PACKETS_PER_S * bad_to_good.ratio())))
            }
            Self::OnOff(OnOff { on, off, .. }) => {
                Some(Events::of(number(run, on.mean() + off.mean()), off))
            }
            Self::Lutz(lutz) => {
                let cycle = lutz.cycle();
                let bad_s = cycle.as_secs_f64() * lutz.shadowed();
                Some(Events::exponential(number(run, cycle), bad_s))
            }
            Self::Uniform(_) | Self::BitErrors(_) | Self::Series(_) => None,
        }
    }
}

impl SharedOutages {
    /// Returns the mean number of equally long events, as [`LinkConfig::equal_events`] does, of the carriers' own
    /// outages, or of the common ones if these are fewer.
    pub fn equal_events(&self, run: Duration, shortest: Duration) -> f64 {
        let kinds = self.shares_down().into_iter().filter(|share| *share > 0.0);
        let share = kinds.fold(f64::INFINITY, f64::min);
        let events = Events::of(share * number(run, self.down().mean()), self.down());
        events.equal(shortest).unwrap_or(f64::INFINITY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Direction, PathConfig};

    fn events_in_a_minute(keys: &str) -> f64 {
        let text = alloc::format!("{keys}\nuplink.rate = '1Mbit/s'\nuplink.delay = '1ms'");
        let path: PathConfig = toml::from_str(&text).unwrap();
        let link = path.link(Direction::Uplink).unwrap();
        link.equal_events(Duration::from_secs(60), Duration::from_millis(40))
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
    fn short_events_do_not_count() {
        let outage = |length: &str| {
            events_in_a_minute(&alloc::format!(
                "outage = {{ interval = {{ mean = '2min' }}, length = {length} }}"
            ))
        };
        assert_eq!(outage("'39ms'"), f64::INFINITY);
        assert!((outage("'50ms'") - 0.5).abs() < 1e-9);
        // A moment of the time down is in an event of 60 ms, twice the mean.
        assert!(outage("{ mean = '30ms' }").is_finite());
    }

    #[test]
    fn few_long_events_among_short_ones_count_as_few() {
        let events = |length: &str| {
            events_in_a_minute(&alloc::format!(
                "outage = {{ interval = {{ mean = '1s' }}, length = {length} }}"
            ))
        };
        assert!((events("'100ms'") - 60.0).abs() < 1e-9);
        // Exponential: half; uniform from 0: three quarters.
        assert!((events("{ mean = '100ms' }") - 30.0).abs() < 1e-6);
        assert!((events("{ min = '0ms', max = '100ms' }") - 45.0).abs() < 1e-6);
        // Truncated Pareto: E[L] = 0.606 s, E[L^2] = 16.46 s^2.
        let pareto = events("{ pareto = '100ms', alpha = 1.1, max = '300s' }");
        assert!((pareto - 1.34).abs() < 0.01, "{pareto}");
    }
}
