//! Share of the messages that a scheduler expects in time, by its own estimates.

use core::fmt;

use skybraid_units::Duration;

/// Messages after which older ones count half.
const WINDOW: f64 = 2048.0;
/// Messages before which nothing is said.
const MIN_MESSAGES: f64 = 1000.0;

/// Expected misses and bytes of the last messages. Sums, so that connections and runs can be added.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Forecast {
    /// Time within which messages must arrive; zero without messages.
    within: Duration,
    /// Share that may be missed, 0 to 1.
    allowed: f64,
    recent: Sums,
    /// Those that are recent no more.
    earlier: Sums,
}

/// Sums over messages.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sums {
    messages: f64,
    /// Expected misses with what was planned.
    missed: f64,
    /// Expected misses with a copy on each path.
    min_missed: f64,
    /// First copies, further copies, and further copies with one on each path, in bytes.
    first: f64,
    further: f64,
    max_further: f64,
}

impl Sums {
    fn each(&mut self) -> [&mut f64; 6] {
        let Self { messages, missed, min_missed, first, further, max_further } = self;
        [messages, missed, min_missed, first, further, max_further]
    }
}

impl core::ops::AddAssign for Sums {
    fn add_assign(&mut self, mut more: Self) {
        for (sum, more) in self.each().into_iter().zip(more.each()) {
            *sum += *more;
        }
    }
}

/// A message as it was planned.
#[derive(Clone, Copy, Debug)]
pub struct Planned {
    /// Size in bytes.
    pub bytes: f64,
    /// Chance of a miss with what is planned, and with a copy on each path.
    pub missed: f64,
    /// The same with a copy on each path.
    pub min_missed: f64,
    /// Number of the paths besides the first.
    pub others: f64,
}

impl Forecast {
    /// Adds a message that must arrive within `within`; the share `allowed` of such may be missed.
    pub fn on_planned(&mut self, within: Duration, allowed: f64, planned: &Planned) {
        if self.recent.messages >= WINDOW {
            self.recent.each().into_iter().for_each(|sum| *sum /= 2.0);
            self.earlier += self.recent;
        }
        (self.within, self.allowed) = (within, allowed);
        let sums = &mut self.recent;
        sums.messages += 1.0;
        sums.missed += planned.missed;
        sums.min_missed += planned.min_missed;
        sums.first += planned.bytes;
        sums.max_further += planned.others * planned.bytes;
    }

    /// Adds a further copy of `bytes`.
    pub fn on_copied(&mut self, bytes: f64) {
        self.recent.further += bytes;
    }

    /// Returns the forecast if there are enough messages for one.
    pub fn known(self) -> Option<Self> {
        (self.recent.messages >= MIN_MESSAGES).then_some(self)
    }

    /// Time within which messages must arrive.
    pub const fn within(&self) -> Duration {
        self.within
    }

    /// Share of the messages that must arrive in time.
    pub fn wanted(&self) -> f64 {
        1.0 - self.allowed
    }

    /// Share expected in time with what is planned.
    pub fn expected(&self) -> f64 {
        1.0 - self.recent.missed / self.recent.messages.max(1.0)
    }

    /// Share expected in time with a copy on each path: no plan reaches more.
    pub fn best(&self) -> f64 {
        1.0 - self.recent.min_missed / self.recent.messages.max(1.0)
    }

    /// Bytes of further copies over those of first copies.
    pub fn overhead(&self) -> f64 {
        self.recent.further / self.recent.first.max(1.0)
    }

    /// The same with a copy on each path.
    pub fn best_overhead(&self) -> f64 {
        self.recent.max_further / self.recent.first.max(1.0)
    }

    /// Expected misses of all messages so far, with what was planned and with a copy on each path.
    pub fn misses_so_far(&self) -> [f64; 2] {
        let Self { recent, earlier, .. } = self;
        [recent.missed + earlier.missed, recent.min_missed + earlier.min_missed]
    }

    /// True if what is planned is expected to suffice.
    pub fn is_reached(&self) -> bool {
        self.recent.missed <= self.allowed * self.recent.messages
    }

    /// True if a plan is expected to suffice, whatever it costs.
    pub fn is_reachable(&self) -> bool {
        self.is_reachable_with(1.0)
    }

    /// True if a plan is expected to suffice with only this part of what may be missed.
    pub fn is_reachable_with(&self, part: f64) -> bool {
        self.recent.min_missed <= part * self.allowed * self.recent.messages
    }
}

impl core::ops::AddAssign for Forecast {
    fn add_assign(&mut self, more: Self) {
        if more.recent.messages > 0.0 {
            (self.within, self.allowed) = (more.within, more.allowed);
        }
        self.recent += more.recent;
        self.earlier += more.earlier;
    }
}

impl fmt::Display for Forecast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let within = self.within.as_millis_f64();
        let wanted = Percent(self.wanted());
        let (expected, overhead) = (Percent(self.expected()), 100.0 * self.overhead());
        let (best, most) = (Percent(self.best()), 100.0 * self.best_overhead());
        if self.is_reached() {
            write!(
                f,
                "within {within:.0} ms {expected} are expected at +{overhead:.1} %, wanted {wanted}"
            )
        } else if self.is_reachable() {
            write!(
                f,
                "within {within:.0} ms the budget does not reach {wanted}: {expected} at +{overhead:.1} %, \
                 {best} at +{most:.0} %"
            )
        } else {
            write!(
                f,
                "within {within:.0} ms no plan reaches {wanted}: best {best} at +{most:.0} %, {expected} at \
                 +{overhead:.1} %"
            )
        }
    }
}

/// A share with two significant digits of what is missing, rounded down.
struct Percent(f64);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Complements have the error of a floating-point number, which must not make 99.999 % less.
        let missing = (100.0 * (1.0 - self.0)).max(1e-7);
        let first_digit = -libm::floor(libm::log10(missing) + 1e-9) as i32;
        let digits = (first_digit + 1).clamp(0, 8);
        let scale = libm::pow(10.0, f64::from(digits));
        let shown = libm::floor(100.0 * self.0 * scale + 1e-4) / scale;
        // A wanted share of one digit, as 99.999 %, has no zero after it.
        let digits = if (shown * scale) % 10.0 == 0.0 { digits - 1 } else { digits };
        write!(f, "{shown:.*} %", digits.max(0) as usize)
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    /// The forecast of 2000 equal messages of 100 bytes, of which `copied` have a further copy.
    fn forecast(missed: f64, min_missed: f64, copied: usize) -> Forecast {
        let mut forecast = Forecast::default();
        let planned = Planned { bytes: 100.0, missed, min_missed, others: 1.0 };
        for _ in 0..2000 {
            forecast.on_planned(Duration::from_millis(150), 1e-5, &planned);
        }
        (0..copied).for_each(|_| forecast.on_copied(100.0));
        forecast
    }

    #[test]
    fn a_forecast_says_what_cannot_be_reached() {
        assert_eq!(
            forecast(5e-4, 2e-4, 400).to_string(),
            "within 150 ms no plan reaches 99.999 %: best 99.98 % at +100 %, 99.95 % at +20.0 %"
        );
        assert_eq!(
            forecast(5e-4, 2e-6, 400).to_string(),
            "within 150 ms the budget does not reach 99.999 %: 99.95 % at +20.0 %, 99.9998 % at +100 %"
        );
        assert_eq!(
            forecast(4e-6, 2e-6, 100).to_string(),
            "within 150 ms 99.9996 % are expected at +5.0 %, wanted 99.999 %"
        );
    }

    #[test]
    fn the_mean_is_that_of_the_last_messages() {
        let mut sum = forecast(0.5, 0.25, 0);
        let planned = Planned { bytes: 100.0, missed: 0.0, min_missed: 0.0, others: 1.0 };
        (0..200_000).for_each(|_| sum.on_planned(Duration::from_millis(150), 1e-5, &planned));
        assert!(
            sum.misses_so_far()
                .iter()
                .zip([1000.0, 500.0])
                .all(|(it, all)| (it - all).abs() < 1e-6)
        );
        assert!(sum.recent.missed < 1e-3 && sum.recent.messages <= WINDOW, "{sum:?}");
    }

    #[test]
    fn two_runs_add_up_to_their_mean() {
        let mut both = forecast(1e-3, 0.0, 0);
        both += forecast(3e-3, 0.0, 400);
        assert!((both.expected() - 0.998).abs() < 1e-12);
        assert!((both.overhead() - 0.1).abs() < 1e-12);
    }

    #[test]
    fn a_few_messages_are_no_forecast() {
        let mut few = Forecast::default();
        let planned = Planned { bytes: 100.0, missed: 0.1, min_missed: 0.1, others: 1.0 };
        (0..999).for_each(|_| few.on_planned(Duration::from_millis(150), 1e-5, &planned));
        assert_eq!(few.known(), None);
        few.on_planned(Duration::from_millis(150), 1e-5, &planned);
        assert!(few.known().is_some_and(|known| !known.is_reachable()));
    }
}
