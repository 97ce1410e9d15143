//! Share of the messages that a scheduler expects in time, by its own estimates.

use core::fmt;

use skybraid_units::Duration;

use super::odds::Estimate;

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
    missed: Estimate,
    /// Expected misses with a copy on each path.
    min_missed: Estimate,
    /// First copies, further copies, and further copies with one on each path, in bytes.
    first: f64,
    further: f64,
    max_further: f64,
}

impl Sums {
    fn each(&mut self) -> [&mut f64; 10] {
        let Self { messages, missed, min_missed, first, further, max_further } = self;
        let Estimate { mean, low, high } = missed;
        let Estimate { mean: min_mean, low: min_low, high: min_high } = min_missed;
        [messages, mean, low, high, min_mean, min_low, min_high, first, further, max_further]
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
    /// Chance of a miss with what is planned.
    pub missed: Estimate,
    /// The same with a copy on each path: what is planned misses no less.
    pub min_missed: Estimate,
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
        let least = &planned.min_missed;
        sums.missed += planned.missed.max(least);
        sums.min_missed += *least;
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
    pub fn expected(&self) -> Estimate {
        self.recent.missed.share_left(self.recent.messages)
    }

    /// Share expected in time with a copy on each path: no plan reaches more.
    pub fn best(&self) -> Estimate {
        self.recent.min_missed.share_left(self.recent.messages)
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
    pub fn misses_so_far(&self) -> [Estimate; 2] {
        let mut all = self.recent;
        all += self.earlier;
        [all.missed, all.min_missed]
    }

    /// True if no plan suffices, whatever it costs: not even the upper end of the interval does.
    pub fn is_out_of_reach(&self) -> bool {
        self.best().high < self.wanted()
    }

    /// True if a plan is expected to suffice, whatever it costs; the interval may say less.
    pub fn may_be_reached(&self) -> bool {
        self.best().mean >= self.wanted()
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
        let (wanted, within) = (self.wanted(), self.within.as_millis_f64());
        let (expected, best) = (self.expected(), self.best());
        let planned = Expected { share: expected, overhead: 100.0 * self.overhead(), digits: 1 };
        let most = Expected { share: best, overhead: 100.0 * self.best_overhead(), digits: 0 };
        let share = Percent(wanted);
        write!(f, "within {within:.0} ms ")?;
        if expected.low >= wanted {
            write!(f, "{planned} are expected, wanted {share} %")
        } else if self.is_out_of_reach() {
            write!(f, "no plan reaches {share} %: best {most}, {planned}")
        } else if expected.high < wanted && best.low >= wanted {
            write!(f, "the budget does not reach {share} %: {planned}, {most}")
        } else {
            write!(f, "it is not known yet whether {share} % are reached: {planned}, best {most}")
        }
    }
}

/// A share with its interval, and the overhead in % that brings it.
struct Expected {
    share: Estimate,
    overhead: f64,
    digits: usize,
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { share: Estimate { mean, low, high }, overhead, digits } = self;
        let [mean, low, high] = [mean, low, high].map(|share| Percent(*share));
        write!(f, "{mean} % ({low} to {high}) at +{overhead:.digits$} %")
    }
}

/// A share in % with two significant digits of what is missing, rounded down.
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
        let digits = if shown == 100.0 { 0 } else { digits.max(0) };
        write!(f, "{shown:.*}", digits as usize)
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    /// A chance of a miss, certain to a factor of two.
    fn about(mean: f64) -> Estimate {
        Estimate { mean, low: mean / 2.0, high: 2.0 * mean }
    }

    /// The forecast of 2000 equal messages of 100 bytes, of which `copied` have a further copy.
    fn forecast(missed: Estimate, min_missed: Estimate, copied: usize) -> Forecast {
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
            forecast(about(5e-4), about(2e-4), 400).to_string(),
            "within 150 ms no plan reaches 99.999 %: best 99.98 % (99.96 to 99.99) at +100 %, \
             99.95 % (99.9 to 99.975) at +20.0 %"
        );
        assert_eq!(
            forecast(about(5e-4), about(2e-6), 400).to_string(),
            "within 150 ms the budget does not reach 99.999 %: 99.95 % (99.9 to 99.975) at +20.0 %, \
             99.9998 % (99.9996 to 99.9999) at +100 %"
        );
        assert_eq!(
            forecast(about(4e-6), about(2e-6), 100).to_string(),
            "within 150 ms 99.9996 % (99.9992 to 99.9998) at +5.0 % are expected, wanted 99.999 %"
        );
    }

    #[test]
    fn what_the_interval_does_not_decide_is_not_known_yet() {
        let unsure = Estimate { mean: 2e-6, low: 0.0, high: 3e-4 };
        assert_eq!(
            forecast(unsure, unsure, 100).to_string(),
            "within 150 ms it is not known yet whether 99.999 % are reached: 99.9998 % (99.97 to 100) \
             at +5.0 %, best 99.9998 % (99.97 to 100) at +100 %"
        );
    }

    #[test]
    fn the_mean_is_that_of_the_last_messages() {
        let mut sum = forecast(about(0.5), about(0.25), 0);
        let none = about(0.0);
        let planned = Planned { bytes: 100.0, missed: none, min_missed: none, others: 1.0 };
        (0..200_000).for_each(|_| sum.on_planned(Duration::from_millis(150), 1e-5, &planned));
        let so_far = sum.misses_so_far();
        assert!(
            so_far.iter().zip([1000.0, 500.0]).all(|(it, all)| (it.mean - all).abs() < 1e-6),
            "{so_far:?}"
        );
        assert!(sum.recent.missed.mean < 1e-3 && sum.recent.messages <= WINDOW, "{sum:?}");
    }

    #[test]
    fn two_runs_add_up_to_their_mean() {
        let mut both = forecast(about(1e-3), about(0.0), 0);
        both += forecast(about(3e-3), about(0.0), 400);
        assert!((both.expected().mean - 0.998).abs() < 1e-12);
        assert!((both.overhead() - 0.1).abs() < 1e-12);
    }

    #[test]
    fn a_few_messages_are_no_forecast() {
        let mut few = Forecast::default();
        let (missed, min_missed) = (about(0.1), about(0.1));
        let planned = Planned { bytes: 100.0, missed, min_missed, others: 1.0 };
        (0..999).for_each(|_| few.on_planned(Duration::from_millis(150), 1e-5, &planned));
        assert_eq!(few.known(), None);
        few.on_planned(Duration::from_millis(150), 1e-5, &planned);
        assert!(few.known().is_some_and(|known| known.is_out_of_reach()));
    }
}
