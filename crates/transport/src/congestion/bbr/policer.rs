//! Token-bucket policers: two stretches of heavy loss with the same rate give that rate away.
//!
//! Source: Linux `tcp_bbr.c`, long-term bandwidth sampling; Flach et al., "An Internet-wide analysis of
//! traffic policing", SIGCOMM 2016.

use skybraid_units::{Bytes, Instant, Rate};

use super::times;

/// A stretch has at least so many rounds …
const LEAST_ROUNDS: u32 = 4;
/// … and is given up after so many without a loss at its end.
const MOST_ROUNDS: u32 = 16;
/// Lost for each byte delivered.
const HEAVY_LOSS: f64 = 50.0 / 256.0;
/// Two rates are the same when they differ by at most this share, or by this rate.
const SAME_SHARE: f64 = 1.0 / 8.0;
const SAME_RATE: u64 = 4_000;
/// The rate is held for so many rounds.
const HOLD_ROUNDS: u32 = 48;

/// What an acknowledgement shows of the flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub at: Instant,
    /// Bytes delivered and lost since the start.
    pub delivered: Bytes,
    pub lost: Bytes,
    /// Something was found lost just now.
    pub losing: bool,
    pub round_started: bool,
    pub app_limited: bool,
}

/// A stretch of the flow between two losses.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    since: Instant,
    delivered: Bytes,
    lost: Bytes,
    rounds: u32,
}

impl Stretch {
    fn from(seen: &Seen) -> Self {
        Self { since: seen.at, delivered: seen.delivered, lost: seen.lost, rounds: 0 }
    }
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    /// Waiting for a loss.
    #[default]
    Idle,
    /// Measuring, with the rate of the stretch before.
    Sampling(Stretch, Option<Rate>),
    /// A policer's rate, and the rounds for which it has been held while probing for bandwidth.
    Policed(Rate, u32),
}

/// Finds policers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Policer {
    state: State,
}

impl Policer {
    /// The rate that a policer lets through, where one is suspected.
    pub(super) fn rate(&self) -> Option<Rate> {
        match self.state {
            State::Policed(rate, _) => Some(rate),
            State::Idle | State::Sampling(..) => None,
        }
    }

    /// Takes an acknowledgement in; `steady` while probing for bandwidth. Answers whether a held rate
    /// has just been let go.
    pub(super) fn update(&mut self, seen: &Seen, steady: bool) -> bool {
        match &mut self.state {
            State::Idle if seen.losing => {
                self.state = State::Sampling(Stretch::from(seen), None);
            }
            State::Idle => {}
            State::Policed(_, held) => {
                *held += u32::from(steady && seen.round_started);
                if *held >= HOLD_ROUNDS {
                    self.state = State::Idle;
                    return true;
                }
            }
            State::Sampling(stretch, before) => {
                stretch.rounds += u32::from(seen.round_started);
                let (stretch, before) = (*stretch, *before);
                if seen.app_limited || stretch.rounds > MOST_ROUNDS {
                    self.state = State::Idle;
                } else if seen.losing && stretch.rounds >= LEAST_ROUNDS {
                    self.end_stretch(seen, &stretch, before);
                }
            }
        }
        false
    }

    fn end_stretch(&mut self, seen: &Seen, stretch: &Stretch, before: Option<Rate>) {
        let delivered = (seen.delivered - stretch.delivered).get() as f64;
        let lost = (seen.lost - stretch.lost).get() as f64;
        let seconds = seen.at.since(stretch.since).as_secs_f64();
        if delivered <= 0.0 || lost < HEAVY_LOSS * delivered || seconds < 0.001 {
            return;
        }
        let rate = Rate::from_bps((delivered * 8.0 / seconds) as u64);
        self.state = match before {
            Some(before) if same(rate, before) => {
                State::Policed(Rate::from_bps(rate.as_bps().midpoint(before.as_bps())), 0)
            }
            _ => State::Sampling(Stretch::from(seen), Some(rate)),
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

    /// Rounds of 100 ms, in each of which `delivered` and `lost` bytes are added.
    fn rounds(policer: &mut Policer, seen: &mut Seen, count: u32, delivered: u64, lost: u64) {
        for _ in 0..count {
            seen.at += skybraid_units::Duration::from_millis(100);
            seen.delivered += Bytes::new(delivered);
            seen.lost += Bytes::new(lost);
            policer.update(seen, true);
        }
    }

    fn start() -> (Policer, Seen) {
        let seen = Seen {
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
    fn two_stretches_of_20_percent_loss_at_about_the_same_rate_give_their_mean_for_48_rounds() {
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
    fn loss_below_a_fifth_and_rates_an_eighth_apart_are_no_policer() {
        for (first, second, lost) in [(10_000, 10_000, 1_900), (10_000, 12_000, 2_400)] {
            let (mut policer, mut seen) = start();
            policer.update(&seen, true);
            rounds(&mut policer, &mut seen, 4, first, lost);
            rounds(&mut policer, &mut seen, 4, second, lost);
            assert_eq!(policer.rate(), None, "{first} {second} {lost}");
        }
    }

    #[test]
    fn a_stretch_is_given_up_after_16_rounds_without_heavy_loss_or_when_the_application_pauses() {
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
