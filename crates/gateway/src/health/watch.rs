//! Liveness of a path, from received datagrams.
//!
//! | state | becomes | when |
//! |---|---|---|
//! | unheard | up | something arrives |
//! | up | suspected | silent for three probe intervals |
//! | suspected | up | something arrives |
//! | suspected | down | silent for `give_up` |
//! | down | probation | something arrives |
//! | probation | up | `probation` has passed without three probe intervals of silence |
//! | probation | down | silent for three probe intervals |

use skybraid_units::Instant;

use crate::config::HealthConfig;
use crate::event::PathState;

/// Probe intervals of silence after which a path is suspected.
const SUSPICIOUS: i64 = 3;

/// Tracks the liveness of a path.
#[derive(Clone, Copy, Debug, Default)]
pub struct Watch {
    state: PathState,
    heard: Option<Instant>,
    /// Start of probation.
    since: Instant,
}

impl Watch {
    /// Returns the state of the path.
    pub const fn state(&self) -> PathState {
        self.state
    }

    /// Returns the time of the last arrival.
    pub const fn heard(&self) -> Option<Instant> {
        self.heard
    }

    /// Records an arrival. Returns the previous state if it changes.
    pub fn on_received(&mut self, now: Instant) -> Option<PathState> {
        self.heard = Some(now);
        let next = match self.state {
            PathState::Unheard | PathState::Suspected => PathState::Up,
            PathState::Down => {
                self.since = now;
                PathState::Probation
            }
            PathState::Up | PathState::Probation => return None,
        };
        Some(core::mem::replace(&mut self.state, next))
    }

    /// Handles timeouts. Returns the previous state if it changes.
    pub fn wake(&mut self, now: Instant, config: &HealthConfig) -> Option<PathState> {
        if now < self.next_wakeup(config) {
            return None;
        }
        let silent = self.heard.is_none_or(|heard| now.since(heard) >= config.probe * SUSPICIOUS);
        let next = match self.state {
            PathState::Up => PathState::Suspected,
            PathState::Probation if !silent => PathState::Up,
            _ => PathState::Down,
        };
        Some(core::mem::replace(&mut self.state, next))
    }

    /// Time at which the state changes if nothing arrives.
    pub fn next_wakeup(&self, config: &HealthConfig) -> Instant {
        let Some(heard) = self.heard else { return Instant::FAR_FUTURE };
        let suspicious = heard + config.probe * SUSPICIOUS;
        match self.state {
            PathState::Unheard | PathState::Down => Instant::FAR_FUTURE,
            PathState::Up => suspicious,
            PathState::Suspected => heard + config.give_up,
            PathState::Probation => suspicious.min(self.since + config.probation),
        }
    }

    /// Handles a lost interface. Returns the previous state if it changes.
    pub fn give_up(&mut self) -> Option<PathState> {
        self.state.is_alive().then(|| core::mem::replace(&mut self.state, PathState::Down))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use PathState::{Down, Probation, Suspected, Up};

    fn at(ms: i64) -> Instant {
        Instant::from_millis(ms)
    }

    /// Returns the states of a path with arrivals at these milliseconds, and the times of change.
    fn states(arrivals: &[i64], until: i64) -> Vec<(i64, PathState)> {
        let (config, mut watch, mut seen) = (HealthConfig::default(), Watch::default(), Vec::new());
        for ms in 0..=until {
            if watch.wake(at(ms), &config).is_some() {
                seen.push((ms, watch.state()));
            }
            if arrivals.contains(&ms) && watch.on_received(at(ms)).is_some() {
                seen.push((ms, watch.state()));
            }
        }
        seen
    }
    use alloc::vec::Vec;

    #[test]
    fn a_silent_path_is_suspected_then_down_within_300_ms() {
        assert_eq!(states(&[0, 50, 100], 1_000), [(0, Up), (250, Suspected), (300, Down)]);
    }

    #[test]
    fn a_path_that_came_back_carries_data_only_after_its_probation() {
        let arrivals: Vec<i64> = [0].into_iter().chain((500..2_000).step_by(50)).collect();
        let expected = [(0, Up), (150, Suspected), (200, Down), (500, Probation), (1_500, Up)];
        assert_eq!(states(&arrivals, 1_900), expected);
    }

    #[test]
    fn a_flapping_path_does_not_pass_its_probation() {
        let arrivals = [0, 500, 550, 600, 900, 950, 1_300, 1_350, 1_400];
        let seen = states(&arrivals, 3_000);
        assert!(!seen[1..].iter().any(|(_, state)| *state == Up), "{seen:?}");
        assert_eq!(seen.last(), Some(&(1_550, Down)));
    }
}
