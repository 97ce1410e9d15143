//! A run draws its flight from a family, with the spread between flights.

use skybraid_link::{
    DelaySource, Direction, LinkConfig, LossSource, PathConfig, Population, RateConfig, RateSource,
    SpreadConfig,
};
use skybraid_testing::Config;
use skybraid_units::{Rate, Seed};

fn family(extra: &str) -> PathConfig {
    let flight = |mbps: u32| {
        format!(
            "[[flight]]\nname = \"{mbps}\"\nuplink.rate = \"{mbps}Mbit/s\"\n\
             downlink.rate = \"{mbps}Mbit/s\"\n"
        )
    };
    let flights: Vec<String> = (1..=10).map(|number| flight(number * 10)).collect();
    let text = format!("{extra}\nuplink.delay = \"30ms\"\n{}", flights.concat());
    PathConfig::parse(&text).unwrap()
}

fn rate([uplink, _]: &[LinkConfig; 2]) -> f64 {
    let RateSource::Constant(rate) = uplink.rate else { return 0.0 };
    rate.as_bps() as f64 * 1e-6
}

#[test]
fn a_run_draws_any_flight_alike_and_by_its_seed() {
    let population = family("").population().unwrap().unwrap();
    let mut counts = [0u32; 11];
    for seed in 0..10_000 {
        let drawn = population.draw(Seed(seed), "lte", None);
        assert_eq!(drawn, population.draw(Seed(seed), "lte", None));
        counts[(rate(&drawn) / 10.0) as usize] += 1;
    }
    // Binomial: a standard deviation of 30.
    assert!(counts[1..].iter().all(|count| count.abs_diff(1000) < 120), "{counts:?}");
}

#[test]
fn jitter_and_loss_spread_apart_from_the_constant_delay() {
    let text = "[[flight]]\nuplink.delay = { process = [[0, \"0ms\"], [1, \"8ms\"]], plus = \"30ms\" }\n\
                uplink.rate = \"1Mbit/s\"\nuplink.loss = { uniform = \"1%\" }\n\
                downlink.rate = \"1Mbit/s\"\n[spread]\njitter = 2\nloss = 1.5\n";
    let path = PathConfig::parse(text).unwrap();
    let population = path.population().unwrap().unwrap();
    let (mut jitter, mut loss) = (0.0, 0.0);
    for seed in 0..20_000 {
        let [uplink, _] = population.draw(Seed(seed), "lte", None);
        let DelaySource::Process(process) = uplink.delay else { panic!("no process") };
        assert!((process.plus - 30e6).abs() < 1.0);
        jitter += libm::pow(libm::log(process.scale) / libm::log(2.0), 2.0) / 20_000.0;
        let [LossSource::Uniform(share)] = uplink.losses[..] else { panic!("no loss") };
        loss += libm::pow(libm::log(share.ratio() / 0.01) / libm::log(1.5), 2.0) / 20_000.0;
    }
    // A variance of n normals has the standard error `variance sqrt(2 / n)`, one hundredth of it.
    assert!((jitter - 1.0).abs() < 0.05 && (loss - 1.0).abs() < 0.05, "{jitter} {loss}");
}

#[test]
fn factors_have_their_geometric_spread() {
    let text = "draw = \"random\"\nspread = { rate = 1.5, delay = 1.2 }";
    let population = family(text).population().unwrap().unwrap();
    let (mut rates, mut delays) = (Vec::new(), Vec::new());
    for seed in 0..20_000 {
        let drawn = population.draw(Seed(seed), "lte", None);
        let flight = Population { spread: SpreadConfig::default(), ..population.clone() };
        rates.push(libm::log(rate(&drawn) / rate(&flight.draw(Seed(seed), "lte", None))));
        let DelaySource::Distribution(delay) = &drawn[0].delay else { return };
        delays.push(libm::log(delay.mean().as_millis_f64() / 30.0));
    }
    for (drawn, spread) in [(&rates, 1.5f64), (&delays, 1.2)] {
        let count = drawn.len() as f64;
        let mean = drawn.iter().sum::<f64>() / count;
        let variance = drawn.iter().map(|value| value * value).sum::<f64>() / count;
        let sd = libm::log(spread);
        assert!(mean.abs() < 4.0 * sd / libm::sqrt(count), "{mean}");
        assert!((libm::sqrt(variance) / sd - 1.0).abs() < 0.03, "{variance}");
    }
}

#[test]
fn the_median_and_the_worst_decile_are_fixed() {
    for (draw, mbps) in [("median", 60.0), ("worst-decile", 20.0)] {
        let text = format!("draw = \"{draw}\"\nspread = {{ rate = 3.0 }}");
        let population = family(&text).population().unwrap().unwrap();
        for seed in 0..10 {
            assert_eq!(rate(&population.draw(Seed(seed), "lte", None)), mbps);
        }
    }
}

#[test]
fn flights_of_paths_that_share_a_score_are_correlated() {
    let population = family("").population().unwrap().unwrap();
    let (mut cross, mut squares) = (0.0, 0.0);
    for seed in 0..20_000 {
        let common = Seed(seed).stream("common").standard_normal();
        let shared = Some((common, libm::sqrt(0.5)));
        let [a, b] = ["a", "b"].map(|path| rate(&population.draw(Seed(seed), path, shared)) - 55.0);
        cross += a * b;
        squares += a * a;
    }
    // Rank correlation of a bivariate normal with correlation 0.5 (Pearson 1907); ten steps lose under 1 %.
    let expected = 6.0 / std::f64::consts::PI * libm::asin(0.25);
    assert!((cross / squares - expected).abs() < 0.03, "{} of {expected}", cross / squares);
}

#[test]
fn keys_of_a_path_override_those_of_its_flights() {
    let own = PathConfig::parse("uplink.rate = \"7Mbit/s\"\ndrx = \"off\"").unwrap();
    let merged = own.with_defaults(&family("spread = { rate = 1.2 }"));
    let population = merged.population().unwrap().unwrap();
    assert_eq!((population.flights.len(), population.spread.rate), (10, Some(1.2)));
    let rates = |[uplink, downlink]: &[LinkConfig; 2]| [uplink.rate.clone(), downlink.rate.clone()];
    let constant = |mbps| RateSource::Constant(Rate::from_mbps(mbps));
    assert_eq!(rates(&population.flights[2]), [7.0, 30.0].map(constant));
    // Without a seed a path is that of its median flight.
    assert_eq!(merged.link(Direction::Downlink).unwrap().rate, constant(60.0));
}

#[test]
fn an_invalid_flight_is_named_in_the_error() {
    let mut broken = family("");
    broken.flight[3].uplink.rate = Some(RateConfig::Constant(Rate::ZERO));
    assert_eq!(broken.population().unwrap_err().key, "flight.3.uplink.rate");
    let key = family("spread = { stall = 0.5 }").population().unwrap_err().key;
    assert_eq!(key, "spread.stall");
}
