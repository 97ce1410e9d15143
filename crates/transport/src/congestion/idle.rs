//! Restart of the congestion window after an idle period.
//!
//! Source: RFC 5681 §4.1; RFC 2861 §3 as Linux has it (`tcp_cwnd_restart`).

use core::fmt;

use serde::Deserializer;
use serde::de::{Error, Visitor};
use skybraid_units::{Duration, Instant, named};

named! {
    /// How the window restarts after an idle period longer than the retransmission timeout.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum IdleRestart {
        /// The window stays.
        Off = "false",
        /// The window returns to the initial one at once (RFC 5681 §4.1).
        #[default]
        Initial = "true",
        /// The window halves with each timeout that has passed, but not below the initial one, and the
        /// threshold keeps three quarters of the former window (RFC 2861, Linux). A window that was not
        /// filled for a timeout goes half way to what was in flight, at least the initial one.
        Rfc2861 = "rfc2861",
        /// Only the second half of that rule (subflows of Linux's MPTCP up to 0.95).
        Used = "used",
    }
}

impl IdleRestart {
    /// True if a window that is not filled shrinks.
    pub const fn follows_use(self) -> bool {
        matches!(self, Self::Rfc2861 | Self::Used)
    }

    /// True if an idle period restarts the window.
    pub const fn restarts(self) -> bool {
        matches!(self, Self::Initial | Self::Rfc2861)
    }
}

impl<'de> serde::Deserialize<'de> for IdleRestart {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Rule;

        impl Visitor<'_> for Rule {
            type Value = IdleRestart;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("true, false, `rfc2861` or `used`")
            }

            fn visit_bool<E: Error>(self, on: bool) -> Result<IdleRestart, E> {
                Ok(if on { IdleRestart::Initial } else { IdleRestart::Off })
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<IdleRestart, E> {
                match name {
                    "rfc2861" => Ok(IdleRestart::Rfc2861),
                    "used" => Ok(IdleRestart::Used),
                    _ => Err(E::unknown_variant(name, &["rfc2861", "used"])),
                }
            }
        }

        from.deserialize_any(Rule)
    }
}

/// Transmission of new data with nothing in flight.
#[derive(Clone, Copy, Debug)]
pub struct Restart {
    /// Time of the transmission.
    pub now: Instant,
    /// Time since the transmission before it.
    pub span: Duration,
    /// True if the application had nothing to send.
    pub app_limited: bool,
}

/// Idle period longer than the retransmission timeout, or a timeout in which the window was not filled.
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
    /// Maximum share of the window that was in flight.
    pub used: f64,
}

impl Idle {
    /// Returns the window after the restart. `window` and `initial` have the same unit.
    pub fn window(&self, window: f64, initial: f64) -> f64 {
        let floor = window.min(initial);
        match self.rule {
            IdleRestart::Rfc2861 => {}
            IdleRestart::Used => {
                let used = (self.used * window).max(initial);
                return if used < window { (window + used) / 2.0 } else { window };
            }
            IdleRestart::Off | IdleRestart::Initial => return floor,
        }
        let timeout = self.timeout.as_nanos().max(1);
        // A multiple of the timeout that has just been reached does not count.
        let halvings = (self.span.as_nanos() - 1).max(0) / timeout;
        libm::ldexp(window, -(halvings.min(64) as i32)).max(floor)
    }

    /// Returns the slow start threshold after the restart, from the threshold and the window before it.
    pub fn threshold(&self, threshold: f64, window: f64) -> f64 {
        match self.rule {
            IdleRestart::Rfc2861 | IdleRestart::Used => threshold.max(0.75 * window),
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
            used: 0.0,
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

    // Source: Linux `tcp_cwnd_application_limited`: half way to what was used, counted as at least the initial window.
    #[test]
    fn an_unfilled_window_goes_half_way_to_what_was_used() {
        let after = |window, used| {
            Idle { used, rule: IdleRestart::Used, ..idle_until(0) }.window(window, 10.0)
        };
        assert_eq!([after(100.0, 0.4), after(100.0, 0.02), after(9.0, 0.5)], [70.0, 55.0, 9.0]);
        assert!(!IdleRestart::Used.restarts());
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
        let named = ["rfc2861", "used", "linux"].map(|name| {
            let value: StrDeserializer<'_, Error> = name.into_deserializer();
            IdleRestart::deserialize(value).ok()
        });
        assert_eq!(named, [Some(IdleRestart::Rfc2861), Some(IdleRestart::Used), None]);
    }
}
