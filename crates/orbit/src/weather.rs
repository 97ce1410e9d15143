//! Rain attenuation, and loss by elevation.
//!
//! Sources: ITU-R P.838-3 (specific attenuation); P.618-14 §2.2.1.1, step 2 (slant path through the rain). Rain
//! is assumed along the whole slant path, without the path reduction factor of P.618, so attenuation is
//! overestimated for long paths in heavy rain.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use skybraid_track::Track;
use skybraid_units::{
    Angle, Decibels, Duration, Frequency, Instant, Length, Probability, RainRate, defaults,
};

use crate::service::Service;

/// Rain over the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Rain {
    /// Rain rate.
    pub rate: RainRate,
    /// Carrier frequency, 1 GHz to 1000 GHz.
    pub frequency: Frequency,
    /// Link margin: the link is down while attenuation exceeds it.
    pub margin: Decibels,
    /// Rain height above sea level. Default: 5 km (ITU-R P.839 has 5.4 km in the tropics and about 3 km at 50° of
    /// latitude).
    #[serde(default = "rain_height")]
    pub height: Length,
    /// Start of the rain. Default: the start of the run.
    #[serde(default)]
    pub from: Option<Duration>,
    /// Duration of the rain. Default: until the end of the run.
    #[serde(default)]
    pub length: Option<Duration>,
}

defaults! { rain_height: Length = Length::from_metres(5000.0); }

/// ITU-R P.838-3, tables 1 to 4: a, b, c of each term, then m and c of the line.
struct Fit<const N: usize> {
    terms: [(f64, f64, f64); N],
    slope: f64,
    offset: f64,
}

const K_HORIZONTAL: Fit<4> = Fit {
    terms: [
        (-5.339_80, -0.100_08, 1.130_98),
        (-0.353_51, 1.269_70, 0.454_00),
        (-0.237_89, 0.860_36, 0.153_54),
        (-0.941_58, 0.645_52, 0.168_17),
    ],
    slope: -0.189_61,
    offset: 0.711_47,
};
const K_VERTICAL: Fit<4> = Fit {
    terms: [
        (-3.805_95, 0.569_34, 0.810_61),
        (-3.449_65, -0.229_11, 0.510_59),
        (-0.399_02, 0.730_42, 0.118_99),
        (0.501_67, 1.073_19, 0.271_95),
    ],
    slope: -0.163_98,
    offset: 0.632_97,
};
const ALPHA_HORIZONTAL: Fit<5> = Fit {
    terms: [
        (-0.143_18, 1.824_42, -0.551_87),
        (0.295_91, 0.775_64, 0.198_22),
        (0.321_77, 0.637_73, 0.131_64),
        (-5.376_10, -0.962_30, 1.478_28),
        (16.172_1, -3.299_80, 3.439_90),
    ],
    slope: 0.678_49,
    offset: -1.955_37,
};
const ALPHA_VERTICAL: Fit<5> = Fit {
    terms: [
        (-0.077_71, 2.338_40, -0.762_84),
        (0.567_27, 0.955_45, 0.540_39),
        (-0.202_38, 1.145_20, 0.268_09),
        (-48.299_1, 0.791_669, 0.116_226),
        (48.583_3, 0.791_459, 0.116_479),
    ],
    slope: -0.053_739,
    offset: 0.834_33,
};

impl<const N: usize> Fit<N> {
    /// Returns equations (2) and (3) at the decimal logarithm of the frequency in GHz.
    fn at(&self, log: f64) -> f64 {
        let term = |(a, b, c): &(f64, f64, f64)| {
            let turned = (log - b) / c;
            a * libm::exp(-turned * turned)
        };
        self.terms.iter().map(term).sum::<f64>() + self.slope * log + self.offset
    }
}

/// Returns the specific attenuation of rain in dB/km, for circular polarisation and frequencies from 1 GHz to
/// 1000 GHz (ITU-R P.838-3, equations 1 to 5).
pub fn specific_attenuation(rate: RainRate, frequency: Frequency) -> f64 {
    let log = libm::log10(frequency.as_hertz() / 1e9);
    let horizontal = libm::pow(10.0, K_HORIZONTAL.at(log));
    let vertical = libm::pow(10.0, K_VERTICAL.at(log));
    let k = (horizontal + vertical) / 2.0;
    let alpha =
        (horizontal * ALPHA_HORIZONTAL.at(log) + vertical * ALPHA_VERTICAL.at(log)) / (2.0 * k);
    k * libm::pow(rate.as_millimetres_per_hour().max(0.0), alpha)
}

/// Effective radius of the Earth in m, which accounts for refraction (ITU-R P.618).
const EFFECTIVE_RADIUS: f64 = 8_500_000.0;

impl Rain {
    /// Checks the ranges.
    ///
    /// # Errors
    /// Value that was found, and what was expected.
    pub fn check(&self) -> Result<(), alloc::string::String> {
        use alloc::format;
        if !(1e9..=1e12).contains(&self.frequency.as_hertz()) {
            return Err(format!(
                "found the frequency {}, expected 1GHz to 1000GHz",
                self.frequency
            ));
        }
        if !(0.0..=1e4).contains(&self.rate.as_millimetres_per_hour()) {
            return Err(format!("found the rate {}, expected 0mm/h to 10000mm/h", self.rate));
        }
        Ok(())
    }

    /// Returns the attenuation in dB of the slant path from a terminal at this altitude in m, at this elevation
    /// in degrees.
    pub fn attenuation(&self, altitude: f64, elevation: f64) -> f64 {
        let depth = (self.height.as_metres() - altitude).max(0.0);
        let sine = libm::sin(elevation.max(0.0).to_radians());
        let path = if elevation >= 5.0 {
            depth / sine
        } else {
            2.0 * depth / (libm::sqrt(sine * sine + 2.0 * depth / EFFECTIVE_RADIUS) + sine)
        };
        specific_attenuation(self.rate, self.frequency) * path / 1000.0
    }

    /// Returns the spans (start, length) in which the attenuation exceeds the margin.
    pub fn outages(&self, service: &Service, terminal: &Track) -> Vec<(Instant, Duration)> {
        let mut outages: Vec<(Instant, Duration)> = Vec::new();
        for (begin, end, attenuation) in self.rainy(service, terminal) {
            if attenuation <= self.margin.get() {
                continue;
            }
            match outages.last_mut() {
                Some((start, length)) if *start + *length == begin => *length += end - begin,
                _ => outages.push((begin, end - begin)),
            }
        }
        outages
    }

    /// Returns the attenuation in dB from each instant on, beginning at the start of the run, rounded to 0.001 dB; zero
    /// where it does not rain.
    pub fn attenuations(&self, service: &Service, terminal: &Track) -> Vec<(Instant, f64)> {
        let mut steps: Vec<(Instant, f64)> = alloc::vec![(Instant::ZERO, 0.0)];
        let mut set = |at: Instant, value: f64| match steps.last_mut() {
            Some((last, held)) if *last == at => *held = value,
            Some((_, held)) if *held == value => {}
            _ => steps.push((at, value)),
        };
        for (begin, end, attenuation) in self.rainy(service, terminal) {
            set(begin, libm::round(attenuation * 1e3) / 1e3);
            set(end, 0.0);
        }
        steps
    }

    /// Returns the start, the end and the attenuation in dB of each part of the service in which it rains.
    fn rainy(
        &self,
        service: &Service,
        terminal: &Track,
    ) -> impl Iterator<Item = (Instant, Instant, f64)> {
        let from = Instant::ZERO + self.from.unwrap_or(Duration::ZERO);
        let to = self.length.map_or(Instant::FAR_FUTURE, |length| from + length);
        service.held().filter_map(move |(sample, held)| {
            let (begin, end) = (sample.at.max(from), (sample.at + held).min(to));
            let altitude = terminal.at(sample.at - Instant::ZERO).altitude();
            (begin < end).then(|| (begin, end, self.attenuation(altitude, sample.elevation)))
        })
    }
}

/// Loss by elevation: linear between the points, constant before the first and after the last.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct ElevationLoss(pub Vec<(Angle, Probability)>);

impl ElevationLoss {
    /// Checks that there are points of increasing elevation.
    ///
    /// # Errors
    /// There are no points, or their elevations do not increase.
    pub fn check(&self) -> Result<(), alloc::string::String> {
        let points = self.0.iter().zip(self.0.iter().skip(1));
        let rises = points.clone().all(|(a, b)| a.0 < b.0);
        if self.0.is_empty() || !rises {
            let expected = "expected points of rising elevation, \
                            for example [[\"10deg\", \"2%\"], [\"25deg\", \"0.1%\"]]";
            return Err(expected.into());
        }
        Ok(())
    }

    /// Returns the loss probability at this elevation in degrees.
    pub fn at(&self, elevation: f64) -> f64 {
        let mut below: Option<(f64, f64)> = None;
        for (angle, loss) in &self.0 {
            let point = (angle.as_degrees(), loss.ratio());
            if elevation <= point.0 {
                return match below {
                    Some((from, loss)) => {
                        loss + (point.1 - loss) * (elevation - from) / (point.0 - from)
                    }
                    None => point.1,
                };
            }
            below = Some(point);
        }
        below.map_or(0.0, |(_, loss)| loss)
    }

    /// Returns the loss probability from each instant on, beginning at the start of the run, rounded to 10⁻⁶.
    pub fn steps(&self, service: &Service) -> Vec<(Instant, f64)> {
        let mut steps: Vec<(Instant, f64)> = Vec::new();
        for sample in &service.samples {
            let loss = libm::round(self.at(sample.elevation) * 1e6) / 1e6;
            if steps.last().is_none_or(|(_, last)| *last != loss) {
                let at = if steps.is_empty() { Instant::ZERO } else { sample.at };
                steps.push((at, loss));
            }
        }
        steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::{Sample, Serving};
    use alloc::vec;
    use skybraid_track::Position;

    fn k_and_alpha(gigahertz: f64) -> [f64; 4] {
        let log = libm::log10(gigahertz);
        [
            libm::pow(10.0, K_HORIZONTAL.at(log)),
            ALPHA_HORIZONTAL.at(log),
            libm::pow(10.0, K_VERTICAL.at(log)),
            ALPHA_VERTICAL.at(log),
        ]
    }

    #[test]
    fn the_coefficients_agree_with_the_recommendations_table() {
        // Source: ITU-R P.838-3, table 5: kH, αH, kV, αV.
        for (frequency, expected) in [
            (1.0, [0.000_025_9, 0.9691, 0.000_030_8, 0.8592]),
            (12.0, [0.023_86, 1.1825, 0.024_55, 1.1216]),
            (20.0, [0.091_64, 1.0568, 0.096_11, 0.9847]),
            (30.0, [0.2403, 0.9485, 0.2291, 0.9129]),
            (100.0, [1.3671, 0.6815, 1.3680, 0.6765]),
        ] {
            for (found, expected) in k_and_alpha(frequency).iter().zip(expected) {
                let off = (found / expected - 1.0).abs();
                assert!(off < 2e-3, "{frequency} GHz: found {found}, expected {expected}");
            }
        }
    }

    fn rain(rate: f64) -> Rain {
        Rain {
            rate: RainRate::from_millimetres_per_hour(rate),
            frequency: Frequency::from_hertz(12e9),
            margin: Decibels::new(5.0),
            height: rain_height(),
            from: None,
            length: None,
        }
    }

    #[test]
    fn attenuation_grows_with_the_slant_path() {
        // 25 mm/h at 12 GHz, circular: k = 0.024205, α = 1.15162, 0.9860 dB/km by hand; 5 km straight
        // up, twice as far at 30°.
        let upwards = rain(25.0).attenuation(0.0, 90.0);
        assert!((upwards - 5.0 * 0.9860).abs() < 0.02, "{upwards}");
        assert!((rain(25.0).attenuation(0.0, 30.0) - 2.0 * upwards).abs() < 1e-9);
        assert_eq!(rain(25.0).attenuation(6000.0, 30.0), 0.0);
        assert_eq!(rain(0.0).attenuation(0.0, 30.0), 0.0);
        let low = rain(25.0);
        assert!(low.attenuation(0.0, 4.9) > low.attenuation(0.0, 5.1));
        assert!(low.attenuation(0.0, 0.0).is_finite());
    }

    #[test]
    fn attenuation_over_time_follows_the_elevation() {
        let ground = Track::fixed(Position::new(47.0, 7.0, 0.0).unwrap());
        let shower = Rain {
            from: Some(Duration::from_secs(10)),
            length: Some(Duration::from_millis(2500)),
            ..rain(25.0)
        };
        let steps = shower.attenuations(&falling(), &ground);
        let times: Vec<i64> = steps.iter().map(|(at, _)| at.as_nanos() / 1_000_000).collect();
        assert_eq!(times, [0, 10_000, 11_000, 12_000, 12_500]);
        assert_eq!((steps[0].1, steps[4].1), (0.0, 0.0));
        // 78° above the horizon after 12 s.
        assert!((steps[3].1 - shower.attenuation(0.0, 78.0)).abs() < 1e-3, "{steps:?}");
    }

    fn falling() -> Service {
        // One satellite that sinks by a degree a second, from 90°.
        let samples = (0..80).map(|second| Sample {
            at: Instant::from_millis(second * 1000),
            delay: Duration::from_millis(5),
            elevation: 90.0 - second as f64,
            gateway: 0,
            hops: 0,
        });
        let to = Instant::from_millis(80_000);
        let serving = vec![Serving { satellite: "s".into(), from: Instant::ZERO, to }];
        Service { samples: samples.collect(), serving, ..Service::default() }
    }

    #[test]
    fn the_link_is_down_while_attenuation_exceeds_the_margin() {
        let ground = Track::fixed(Position::new(47.0, 7.0, 0.0).unwrap());
        let outages = rain(25.0).outages(&falling(), &ground);
        // 4.93 dB / sin(e) > 5 dB from e < 80.4° on, which is the sample after 10 s.
        assert_eq!(outages, [(Instant::from_millis(10_000), Duration::from_secs(70))]);
        let shower = Rain {
            from: Some(Duration::from_millis(20_500)),
            length: Some(Duration::from_secs(5)),
            ..rain(25.0)
        };
        let outages = shower.outages(&falling(), &ground);
        assert_eq!(outages, [(Instant::from_millis(20_500), Duration::from_secs(5))]);
        assert_eq!(rain(1.0).outages(&falling(), &ground), []);
    }

    #[test]
    fn loss_is_linear_in_elevation_between_points() {
        let percent = |percent: f64| Probability::new(percent / 100.0).unwrap();
        let points = vec![
            (Angle::from_degrees(10.0), percent(2.0)),
            (Angle::from_degrees(30.0), percent(1.0)),
        ];
        let loss = ElevationLoss(points);
        loss.check().unwrap();
        assert_eq!((loss.at(5.0), loss.at(10.0), loss.at(90.0)), (0.02, 0.02, 0.01));
        assert!((loss.at(20.0) - 0.015).abs() < 1e-12);
        let steps = loss.steps(&falling());
        assert_eq!(steps[0], (Instant::ZERO, 0.01));
        assert_eq!(steps[1], (Instant::from_millis(61_000), 0.010_5));
        assert!(ElevationLoss(vec![]).check().is_err());
    }
}
