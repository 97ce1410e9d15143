//! Land-mobile-satellite channel of Lutz et al.: alternating line of sight and shadowing.
//!
//! Source: E. Lutz, D. Cygan, M. Dippold, F. Dolainsky, W. Papke, "The land mobile satellite communication
//! channel – recording, statistics, and channel model", IEEE Transactions on Vehicular Technology 40(2), 1991.
//! In the good state, fading is Rician about an unshadowed line of sight of power 1; in the bad state, it is
//! Rayleigh about a lognormal local mean. Durations of states are exponential. The paper models bit errors of a
//! modem; here a packet is lost if the received power is below the margin of the link. The local mean is drawn
//! for each bad state, which represents one obstacle, and the fading for each block of the coherence distance.
//! Both depend on time alone, and both directions are shadowed together.

use alloc::format;
use alloc::string::{String, ToString};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use skybraid_units::{Decibels, Duration, Instant, Length, Seed, Speed, Stream, form};

use crate::link::Cause;

/// A distance or a duration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Extent {
    /// Distance over ground, at the configured speed: `"90m"`.
    Way(Length),
    /// Duration: `"3s"`.
    Time(Duration),
}

impl Extent {
    /// Returns its duration at `speed`.
    fn duration(self, speed: Option<Speed>) -> Result<Duration, String> {
        match (self, speed) {
            (Self::Time(time), _) => Ok(time),
            (Self::Way(way), Some(speed)) if speed.as_metres_per_second() > 0.0 => {
                Ok(Duration::from_secs_f64(way.as_metres() / speed.as_metres_per_second()))
            }
            (Self::Way(_), Some(_)) => Err("`speed`: expected above zero".to_string()),
            (Self::Way(way), None) => {
                Err(format!("`speed`: expected one, for example \"30m/s\", since {way} is a way"))
            }
        }
    }
}

impl<'de> Deserialize<'de> for Extent {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        form::text(from, "a way or a time, for example \"90m\" or \"3s\"", |text| {
            let way = || Length::from_text(text).map(Self::Way);
            Duration::from_text(text).map(Self::Time).or_else(|_| way()).map_err(|_| {
                format!("found \"{text}\", expected a way or a time, for example \"90m\" or \"3s\"")
            })
        })
    }
}

impl Serialize for Extent {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Way(way) => way.serialize(to),
            Self::Time(time) => time.serialize(to),
        }
    }
}

/// Environments with parameters in the paper (Table I, 24° elevation, L band). The numbers are quoted from memory and
/// not verified; in each environment, the share of time in the shadow (0.89 and 0.25) agrees with the two distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Environment {
    /// City streets.
    City,
    /// Motorway.
    Highway,
}

/// Keys of a `lutz` table. `environment` sets all but the last three; explicit keys take precedence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct LutzConfig {
    /// Environment of the paper.
    pub environment: Option<Environment>,
    /// Rice factor, the power of the line of sight over that of the multipath, in the good state; −20 to 25 dB.
    pub rice_factor: Option<Decibels>,
    /// Mean power in the bad state, relative to the unshadowed line of sight; usually negative.
    pub shadow_mean: Option<Decibels>,
    /// Standard deviation of the power in the bad state; 0 to 30 dB.
    pub shadow_sd: Option<Decibels>,
    /// Mean extent of the good state.
    pub good: Option<Extent>,
    /// Mean extent of the bad state.
    pub bad: Option<Extent>,
    /// Extent over which fading is constant. Default: 0.1 m, half a wavelength at 1.5 GHz.
    pub coherence: Option<Extent>,
    /// Speed of the vehicle; required if an extent is a distance.
    pub speed: Option<Speed>,
    /// Link margin, relative to the unshadowed line of sight; −10 to 60 dB. Required.
    pub margin: Option<Decibels>,
}

/// Channel, checked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lutz {
    /// Rice factor as a ratio.
    rice_factor: f64,
    /// In dB.
    shadow_mean: f64,
    /// In dB.
    shadow_sd: f64,
    good: Duration,
    bad: Duration,
    coherence: Duration,
    /// Minimum power at which a packet is received, as a ratio to the unshadowed line of sight.
    threshold: f64,
}

impl Environment {
    /// Rice factor, mean and standard deviation of the shadowing in dB; good and bad state in metres.
    const fn parameters(self) -> [f64; 5] {
        match self {
            Self::City => [3.9, -11.5, 2.0, 9.0, 70.0],
            Self::Highway => [11.9, -7.7, 6.0, 90.0, 29.0],
        }
    }
}

impl LutzConfig {
    /// Returns the checked channel.
    ///
    /// # Errors
    /// Key that is missing or out of range, with what was expected.
    pub fn resolve(&self) -> Result<Lutz, String> {
        let of_paper = self.environment.map(Environment::parameters);
        let decibels = |key: &str, own: Option<Decibels>, place: usize, min: f64, max: f64| {
            let paper = of_paper.and_then(|all| all.get(place).copied());
            let value = own.map(Decibels::get).or(paper);
            let value = value.ok_or_else(|| format!("`{key}`: expected it, or `environment`"))?;
            let fits = (min..=max).contains(&value);
            let wrong = || format!("`{key}`: expected {min}dB to {max}dB");
            if fits { Ok(value) } else { Err(wrong()) }
        };
        let state = |key: &str, own: Option<Extent>, place: usize| {
            let paper = of_paper.and_then(|all| all.get(place).copied());
            let extent = own.or(paper.map(|metres| Extent::Way(Length::from_metres(metres))));
            let extent = extent.ok_or_else(|| format!("`{key}`: expected it, or `environment`"))?;
            let duration = extent.duration(self.speed)?;
            // The bound limits the number of draws.
            let fits = duration >= Duration::from_micros(100);
            if fits { Ok(duration) } else { Err(format!("`{key}`: expected at least 100us")) }
        };
        let margin = self.margin.ok_or("`margin`: expected one, for example \"6dB\"")?.get();
        if !(-10.0..=60.0).contains(&margin) {
            return Err("`margin`: expected -10dB to 60dB".to_string());
        }
        let half_a_wave = Extent::Way(Length::from_metres(0.1));
        let coherence = self.coherence.unwrap_or(half_a_wave).duration(self.speed)?;
        if !coherence.is_positive() {
            return Err("`coherence`: expected above zero".to_string());
        }
        let rice_factor = decibels("rice_factor", self.rice_factor, 0, -20.0, 25.0)?;
        Ok(Lutz {
            rice_factor: Decibels::new(rice_factor).power_ratio(),
            shadow_mean: decibels("shadow_mean", self.shadow_mean, 1, -60.0, 20.0)?,
            shadow_sd: decibels("shadow_sd", self.shadow_sd, 2, 0.0, 30.0)?,
            good: state("good", self.good, 3)?,
            bad: state("bad", self.bad, 4)?,
            coherence,
            threshold: Decibels::new(-margin).power_ratio(),
        })
    }
}

impl Lutz {
    /// Mean time from one bad state to the next.
    pub(crate) fn cycle(&self) -> Duration {
        self.good + self.bad
    }

    /// Share of time in the bad state.
    pub fn shadowed(&self) -> f64 {
        let (good, bad) = (self.good.as_secs_f64(), self.bad.as_secs_f64());
        bad / (good + bad)
    }

    /// Returns the loss probability in the good state: 1 − Q1(√2c, √2cs), with Marcum's Q function, the Rice
    /// factor c and the threshold s, both as ratios to the line of sight.
    pub fn loss_in_good(&self) -> f64 {
        // The power is noncentral χ² with two degrees of freedom: a Poisson mixture of χ².
        let (c, x) = (self.rice_factor, self.rice_factor * self.threshold);
        let (mut weight, mut term) = (libm::exp(-c), libm::exp(-x));
        let (mut below, mut sum) = (term, 0.0);
        let enough = c + 20.0 * libm::sqrt(c) + 60.0;
        let mut j = 0.0;
        while j < enough {
            sum += weight * (1.0 - below).max(0.0);
            j += 1.0;
            weight *= c / j;
            term *= x / j;
            below += term;
        }
        sum.min(1.0)
    }

    /// Returns the loss probability in the bad state at a local mean in dB.
    fn loss_at(&self, local_mean: f64) -> f64 {
        -libm::expm1(-self.threshold / Decibels::new(local_mean).power_ratio())
    }

    /// Returns the loss probability in the bad state, averaged over the local mean.
    pub fn loss_in_bad(&self) -> f64 {
        // The trapezoidal rule converges to machine precision for a smooth function times a normal density.
        const STEPS: i32 = 512;
        const REACH: f64 = 8.0;
        let step = REACH / f64::from(STEPS);
        let at = |k: i32| {
            let z = f64::from(k) * step;
            libm::exp(-z * z / 2.0) * self.loss_at(self.shadow_mean + self.shadow_sd * z)
        };
        let sum: f64 = (-STEPS..=STEPS).map(at).sum();
        sum * step / libm::sqrt(core::f64::consts::TAU)
    }

    /// Returns the loss probability averaged over time.
    pub fn loss(&self) -> f64 {
        let shadowed = self.shadowed();
        shadowed * self.loss_in_bad() + (1.0 - shadowed) * self.loss_in_good()
    }
}

/// Process of a channel. Queries must be in order of time.
#[derive(Clone, Debug)]
pub(crate) struct Fading {
    model: Lutz,
    loss_in_good: f64,
    states: Stream,
    bad: bool,
    until: Instant,
    /// Local mean of the current bad state, in dB.
    local_mean: f64,
    /// Seed of the coherence blocks. Each block has a stream of its own, so none depends on traffic.
    blocks: Seed,
}

impl Fading {
    /// Creates the process. The directions of a path share `states` but not `blocks`.
    pub fn new(model: &Lutz, mut states: Stream, mut blocks: Stream) -> Self {
        let bad = states.unit() < model.shadowed();
        let mut fading = Self {
            model: *model,
            loss_in_good: model.loss_in_good(),
            states,
            bad,
            until: Instant::ZERO,
            local_mean: 0.0,
            blocks: Seed(blocks.next_u64()),
        };
        fading.begin_state();
        fading
    }

    fn begin_state(&mut self) {
        let mean = if self.bad { self.model.bad } else { self.model.good };
        let seconds = self.states.exponential(mean.as_secs_f64());
        self.local_mean = self.states.normal(self.model.shadow_mean, self.model.shadow_sd);
        // At least a nanosecond, so that time advances.
        self.until += Duration::from_secs_f64(seconds).max(Duration::from_nanos(1));
    }

    fn advance(&mut self, at: Instant) {
        while at >= self.until && self.until < Instant::FAR_FUTURE {
            self.bad = !self.bad;
            self.begin_state();
        }
    }

    /// Draws whether a packet that departs at `at` is lost, with the cause of the loss.
    pub fn on_sent(&mut self, at: Instant) -> (bool, Cause) {
        self.advance(at);
        let block = at.as_nanos().div_euclid(self.model.coherence.as_nanos());
        let mut fade = Seed(self.blocks.0.wrapping_add(block as u64)).stream("fade");
        if self.bad {
            return (fade.unit() < self.model.loss_at(self.local_mean), Cause::Burst);
        }
        // Multipath of mean power 1 / c plus a line of sight of power 1.
        let spread = libm::sqrt(0.5 / self.model.rice_factor);
        let (along, across) =
            (1.0 + spread * fade.standard_normal(), spread * fade.standard_normal());
        (along * along + across * across < self.model.threshold, Cause::Random)
    }

    /// Returns the loss probability in the state at `at`.
    pub fn probability(&mut self, at: Instant) -> f64 {
        self.advance(at);
        if self.bad { self.model.loss_at(self.local_mean) } else { self.loss_in_good }
    }
}
