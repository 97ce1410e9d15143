//! Detection of token-bucket policers: two intervals with heavy loss and the same rate reveal the
//! policed rate.
//!
//! Source: Linux `tcp_bbr.c`, long-term bandwidth sampling; Flach et al., "An Internet-wide
//! analysis of traffic policing", SIGCOMM 2016.

use skybraid_units::{Bytes, Instant, Rate};

use super::times;

/// Minimum rounds of an interval.
const MIN_ROUNDS: u32 = 4;
/// Rounds after which an interval without a loss at its end is abandoned.
const MAX_ROUNDS: u32 = 16;
/// Minimum ratio of lost to delivered bytes in a policed interval.
const HEAVY_LOSS: f64 = 50.0 / 256.0;
/// Two rates are equal if they differ by at most this share or by this rate in bit/s.
const SAME_SHARE: f64 = 1.0 / 8.0;
const SAME_RATE: u64 = 4_000;
/// Rounds for which a policed rate is kept.
const HOLD_ROUNDS: u32 = 48;

/// State of the flow at an acknowledgement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observation {
    pub at: Instant,
    /// Bytes delivered and lost since the start.
    pub delivered: Bytes,
    pub lost: Bytes,
    /// True if the acknowledgement revealed a loss.
    pub losing: bool,
    pub round_started: bool,
    pub app_limited: bool,
}

/// An interval of the flow between two losses.
#[derive(Clone, Copy, Debug)]
struct Interval {
    since: Instant,
    delivered: Bytes,
    lost: Bytes,
    rounds: u32,
}

impl Interval {
    fn from(seen: &Observation) -> Self {
        Self { since: seen.at, delivered: seen.delivered, lost: seen.lost, rounds: 0 }
    }
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    /// Waiting for a loss.
    #[default]
    Idle,
    /// Measuring an interval, with the rate of the one before.
    Sampling(Interval, Option<Rate>),
    /// Rate of a policer, and the rounds for which it was kept while probing for bandwidth.
    Policed(Rate, u32),
}

/// Policer detector.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Policer {
    state: State,
}

impl Policer {
    /// Rate of the suspected policer.
    pub(super) fn rate(&self) -> Option<Rate> {
        match self.state {
            State::Policed(rate, _) => Some(rate),
            State::Idle | State::Sampling(..) => None,
        }
    }

    /// Processes an acknowledgement. `steady` is true while probing for bandwidth. Returns true if
    /// a policed rate was just dropped.
    pub(super) fn update(&mut self, seen: &Observation, steady: bool) -> bool {
        match &mut self.state {
            State::Idle if seen.losing => {
                self.state = State::Sampling(Interval::from(seen), None);
            }
            State::Idle => {}
            State::Policed(_, held) => {
                *held += u32::from(steady && seen.round_started);
                if *held >= HOLD_ROUNDS {
                    self.state = State::Idle;
                    return true;
                }
            }
            State::Sampling(interval, before) => {
                interval.rounds += u32::from(seen.round_started);
                let (interval, before) = (*interval, *before);
                if seen.app_limited || interval.rounds > MAX_ROUNDS {
                    self.state = State::Idle;
                } else if seen.losing && interval.rounds >= MIN_ROUNDS {
                    self.end_interval(seen, &interval, before);
                }
            }
        }
        false
    }

    fn end_interval(&mut self, seen: &Observation, interval: &Interval, before: Option<Rate>) {
        let delivered = (seen.delivered - interval.delivered).get() as f64;
        let lost = (seen.lost - interval.lost).get() as f64;
        let seconds = seen.at.since(interval.since).as_secs_f64();
        if delivered <= 0.0 || lost < HEAVY_LOSS * delivered || seconds < 0.001 {
            return;
        }
        let rate = Rate::from_bps((delivered * 8.0 / seconds) as u64);
        self.state = match before {
            Some(before) if same(rate, before) => {
                State::Policed(Rate::from_bps(rate.as_bps().midpoint(before.as_bps())), 0)
            }
            _ => State::Sampling(Interval::from(seen), Some(rate)),
        };
    }
}

fn same(rate: Rate, before: Rate) -> bool {
    let difference = rate.as_bps().abs_diff(before.as_bps());
    difference <= times(before, SAME_SHARE).as_bps() || difference <= SAME_RATE
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs rounds of 100 ms, each of which adds `delivered` and `lost` bytes.
    fn rounds(
        policer: &mut Policer,
        seen: &mut Observation,
        count: u32,
        delivered: u64,
        lost: u64,
    ) {
        for _ in 0..count {
            seen.at += skybraid_units::Duration::from_millis(100);
            seen.delivered += Bytes::new(delivered);
            seen.lost += Bytes::new(lost);
            policer.update(seen, true);
        }
    }

    fn start() -> (Policer, Observation) {
        let seen = Observation {
            at: Instant::ZERO,
            delivered: Bytes::ZERO,
            lost: Bytes::ZERO,
            losing: true,
            round_started: true,
            app_limited: false,
        };
        (Policer::default(), seen)
    }

    // Source: the algorithm reference, §2.5 (long-term mode).
    #[test]
    fn two_lossy_intervals_at_one_rate_reveal_a_policer() {
        let (mut policer, mut seen) = start();
        policer.update(&seen, true);
        rounds(&mut policer, &mut seen, 4, 10_000, 2_000);
        assert_eq!(policer.rate(), None);
        rounds(&mut policer, &mut seen, 4, 11_000, 2_200);
        assert_eq!(policer.rate(), Some(Rate::from_bps(840_000)));
        rounds(&mut policer, &mut seen, 47, 11_000, 0);
        assert!(policer.rate().is_some());
        rounds(&mut policer, &mut seen, 1, 11_000, 0);
        assert_eq!(policer.rate(), None);
    }

    #[test]
    fn moderate_loss_or_unequal_rates_are_no_policer() {
        for (first, second, lost) in [(10_000, 10_000, 1_900), (10_000, 12_000, 2_400)] {
            let (mut policer, mut seen) = start();
            policer.update(&seen, true);
            rounds(&mut policer, &mut seen, 4, first, lost);
            rounds(&mut policer, &mut seen, 4, second, lost);
            assert_eq!(policer.rate(), None, "{first} {second} {lost}");
        }
    }

    #[test]
    fn an_interval_is_abandoned_without_loss_or_if_app_limited() {
        let (mut policer, mut seen) = start();
        policer.update(&seen, true);
        seen.losing = false;
        rounds(&mut policer, &mut seen, 17, 10_000, 0);
        assert!(matches!(policer.state, State::Idle));
        seen.losing = true;
        policer.update(&seen, true);
        seen.app_limited = true;
        policer.update(&seen, true);
        assert!(matches!(policer.state, State::Idle));
    }
}
