//! Restart of the congestion window after an idle period.
//!
//! Source: RFC 5681 §4.1; RFC 2861 §3 as Linux has it (`tcp_cwnd_restart`).

use core::fmt;

use serde::Deserializer;
use serde::de::{Error, Visitor};
use skybraid_units::{Duration, Instant};

/// Rule by which the window restarts after an idle period longer than the retransmission timeout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdleRestart {
    /// The window stays.
    Off,
    /// The window returns to the initial one at once (RFC 5681 §4.1).
    #[default]
    Initial,
    /// The window halves with each timeout that has passed, but not below the initial one, and the
    /// threshold keeps three quarters of the former window (RFC 2861, Linux).
    Rfc2861,
}

impl IdleRestart {
    /// Value in scenarios.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "false",
            Self::Initial => "true",
            Self::Rfc2861 => "rfc2861",
        }
    }
}

impl<'de> serde::Deserialize<'de> for IdleRestart {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Rule;

        impl Visitor<'_> for Rule {
            type Value = IdleRestart;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("true, false or `rfc2861`")
            }

            fn visit_bool<E: Error>(self, on: bool) -> Result<IdleRestart, E> {
                Ok(if on { IdleRestart::Initial } else { IdleRestart::Off })
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<IdleRestart, E> {
                match name {
                    "rfc2861" => Ok(IdleRestart::Rfc2861),
                    _ => Err(E::unknown_variant(name, &["rfc2861"])),
                }
            }
        }

        from.deserialize_any(Rule)
    }
}

/// Idle period longer than the retransmission timeout.
#[derive(Clone, Copy, Debug)]
pub struct Idle {
    /// Time of the first transmission after it.
    pub now: Instant,
    /// Time since the transmission before it.
    pub span: Duration,
    /// Retransmission timeout.
    pub timeout: Duration,
    /// Rule that applies.
    pub rule: IdleRestart,
}

impl Idle {
    /// Returns the window after the restart. `window` and `initial` have the same unit.
    pub fn window(&self, window: f64, initial: f64) -> f64 {
        let floor = window.min(initial);
        if self.rule != IdleRestart::Rfc2861 {
            return floor;
        }
        let timeout = self.timeout.as_nanos().max(1);
        // A multiple of the timeout that has just been reached does not count.
        let halvings = (self.span.as_nanos() - 1).max(0) / timeout;
        libm::ldexp(window, -(halvings.min(64) as i32)).max(floor)
    }

    /// Returns the slow start threshold after the restart, from the threshold and the window before it.
    pub fn threshold(&self, threshold: f64, window: f64) -> f64 {
        match self.rule {
            IdleRestart::Rfc2861 => threshold.max(0.75 * window),
            IdleRestart::Off | IdleRestart::Initial => threshold,
        }
    }
}

#[cfg(test)]
pub(super) mod testing {
    use super::*;

    /// Returns an idle period of two timeouts that ends at `ms`, under RFC 5681.
    pub fn idle_until(ms: i64) -> Idle {
        Idle {
            now: Instant::from_millis(ms),
            span: Duration::from_millis(400),
            timeout: Duration::from_millis(200),
            rule: IdleRestart::Initial,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::idle_until;
    use super::*;

    fn halving(span_ms: i64) -> Idle {
        let span = Duration::from_millis(span_ms);
        Idle { span, rule: IdleRestart::Rfc2861, ..idle_until(0) }
    }

    // Source: Linux `tcp_cwnd_restart`: the window halves while a whole timeout is left and it is above the restart
    // window, min(IW, cwnd).
    #[test]
    fn the_window_halves_with_each_timeout_of_idle_time() {
        let windows = [201, 400, 401, 601, 950, 100_000].map(|ms| halving(ms).window(100.0, 10.0));
        assert_eq!(windows, [50.0, 50.0, 25.0, 12.5, 10.0, 10.0]);
        assert_eq!(halving(401).window(8.0, 10.0), 8.0);
        assert_eq!(idle_until(0).window(100.0, 10.0), 10.0);
    }

    // Source: Linux `tcp_current_ssthresh`: max(ssthresh, 3/4 cwnd).
    #[test]
    fn the_threshold_remembers_three_quarters_of_the_window() {
        assert_eq!(halving(201).threshold(20.0, 100.0), 75.0);
        assert_eq!(halving(201).threshold(90.0, 100.0), 90.0);
        assert_eq!(idle_until(0).threshold(20.0, 100.0), 20.0);
    }

    #[test]
    fn a_scenario_names_the_rule_or_switches_it() {
        use serde::Deserialize;
        use serde::de::IntoDeserializer;
        use serde::de::value::{BoolDeserializer, Error, StrDeserializer};

        let switched = [true, false].map(|on| {
            let value: BoolDeserializer<Error> = on.into_deserializer();
            IdleRestart::deserialize(value).unwrap()
        });
        assert_eq!(switched, [IdleRestart::Initial, IdleRestart::Off]);
        let named = ["rfc2861", "linux"].map(|name| {
            let value: StrDeserializer<'_, Error> = name.into_deserializer();
            IdleRestart::deserialize(value).ok()
        });
        assert_eq!(named, [Some(IdleRestart::Rfc2861), None]);
    }
}
