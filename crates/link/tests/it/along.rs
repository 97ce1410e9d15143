//! Factors along a route: height, speed, hour and surroundings.

use skybraid_link::{AlongConfig, Moment};
use skybraid_testing::Config;
use skybraid_units::{Duration, Length, Speed};

#[test]
fn factors_of_height_speed_hour_and_place_multiply() {
    let along = AlongConfig::parse(
        "ground = \"100m\"\nhour = 23.5\nsurroundings = [[\"0s\", \"open\"], [\"60s\", \"trees\"]]\n\
         [outage]\nheight = [[\"10m\", 2], [\"40m\", 3]]\nspeed = [[\"0m/s\", 1], [\"10m/s\", 5]]\n\
         hour = [[0, 7], [12, 1]]\nsurroundings = { open = 1, trees = 11 }\n",
    )
    .unwrap();
    let moment = |at, altitude, speed| Moment {
        at: Duration::from_secs(at),
        altitude: Some(Length::from_metres(altitude)),
        speed: Some(Speed::from_metres_per_second(speed)),
    };
    let route = [
        moment(0, 100.0, 0.0),
        moment(30, 140.0, 9.0),
        moment(60, 140.0, 10.0),
        moment(1800, 120.0, 0.0),
    ];
    let found = along.factors(&route).unwrap();
    let values: Vec<f64> = found.outage.entries().iter().map(|(_, factor)| *factor).collect();
    assert_eq!(values, [2.0, 3.0, 3.0 * 5.0 * 11.0, 2.0 * 7.0 * 11.0]);
    assert!(found.handover.is_one() && found.rate.is_one());
}

#[test]
fn what_a_table_needs_is_named() {
    let along = AlongConfig::parse("handover.height = [[\"0m\", 1]]").unwrap();
    assert_eq!(along.missing(true), Some(("handover.height".to_string(), "`ground`")));
    let wrong = AlongConfig::parse("rate.speed = [[\"9m/s\", 1], [\"3m/s\", 2]]").unwrap();
    assert_eq!(wrong.factors(&[]).unwrap_err().0, "rate.speed");
    let wrong = AlongConfig::parse(
        "surroundings = [[\"0s\", \"sea\"]]\n[outage]\nsurroundings = { trees = 2 }",
    )
    .unwrap();
    assert_eq!(wrong.factors(&[]).unwrap_err().1, "expected a factor of `sea`");
}
