//! Live control of a link.

use crate::common::{arrival_ms, fates, lost, ms, near, span, uplink};
use skybraid_link::{Cause, DelaySource, Distribution, LossSource};
use skybraid_units::{Bytes, Duration, Probability, Rate, Seed};

/// A rate at which 1000 B take 1 ms.
const PLAIN: &str = "uplink = { rate = \"8Mbit/s\", delay = \"20ms\" }";

#[test]
fn a_queued_packet_keeps_its_rate() {
    let mut link = uplink(PLAIN);
    near(arrival_ms(&mut link, 0.0, 1000), 21.0, 1e-6);
    near(arrival_ms(&mut link, 0.0, 1000), 22.0, 1e-6);
    link.set_rate(Rate::from_bps(4_000_000));
    assert_eq!(link.conditions(ms(0.0)).rate, Rate::from_bps(4_000_000));
    near(arrival_ms(&mut link, 0.0, 1000), 24.0, 1e-6);
    link.reset();
    assert_eq!(link.conditions(ms(0.0)).rate, Rate::from_bps(8_000_000));
    near(arrival_ms(&mut link, 0.0, 1000), 25.0, 1e-6);
}

#[test]
fn a_scripted_change_takes_effect_after_a_reset() {
    let mut link =
        uplink("uplink.rate = { steps = [[\"0s\", \"8Mbit/s\"], [\"1s\", \"2Mbit/s\"]] }");
    link.set_rate(Rate::from_bps(16_000_000));
    near(arrival_ms(&mut link, 2000.0, 1000), 2000.5, 1e-6);
    link.reset();
    near(arrival_ms(&mut link, 3000.0, 1000), 3004.0, 1e-6);
}

#[test]
fn a_new_delay_applies_to_later_packets() {
    let mut link = uplink(PLAIN);
    assert_eq!(link.min_delay(), span("20ms"));
    let delay = |text| DelaySource::Distribution(Distribution::fixed(span(text)));
    link.set_delay(&delay("50ms"), Seed(1));
    assert_eq!(link.min_delay(), span("50ms"));
    near(arrival_ms(&mut link, 0.0, 1000), 51.0, 1e-6);
    // The order is kept although the delay decreases.
    link.set_delay(&delay("1ms"), Seed(1));
    near(arrival_ms(&mut link, 10.0, 1000), 51.0, 1e-6);
    near(arrival_ms(&mut link, 100.0, 1000), 102.0, 1e-6);
}

#[test]
fn the_minimum_delay_includes_scripted_changes() {
    let least = |delay: &str| {
        uplink(&format!("uplink = {{ rate = \"8Mbit/s\", delay = {delay} }}")).min_delay()
    };
    assert_eq!(least("{ steps = [[\"0s\", \"30ms\"], [\"5s\", \"8ms\"]] }"), span("8ms"));
    assert_eq!(least("{ min = \"4ms\", max = \"9ms\" }"), span("4ms"));
    assert_eq!(least("{ mean = \"4ms\", sd = \"1ms\", plus = \"7ms\" }"), span("7ms"));
    assert_eq!(least("{ mean = \"4ms\" }"), Duration::ZERO);
}

#[test]
fn a_new_loss_replaces_the_scripted_loss() {
    let mut link = uplink("uplink = { rate = \"1Gbit/s\", loss = { uniform = \"100%\" } }");
    link.set_loss(&[LossSource::Uniform(Probability::new(0.1).unwrap())], Seed(3));
    near(link.conditions(ms(0.0)).loss.ratio(), 0.1, 1e-12);
    let count = fates(&mut link, 10_000, 0.1, 1000).iter().flatten().count() as f64;
    // Four standard deviations of a binomial count.
    near(count, 1000.0, 4.0 * (10_000.0_f64 * 0.1 * 0.9).sqrt());
    link.set_loss(&[], Seed(3));
    assert_eq!(lost(link.admit(ms(2000.0), Bytes::new(1000))), None);
    link.reset();
    assert_eq!(lost(link.admit(ms(3000.0), Bytes::new(1000))), Some(Cause::Random));
}

#[test]
fn a_cut_empties_the_queue_until_the_link_is_restored() {
    let mut link = uplink(PLAIN);
    let mut departures = Vec::new();
    for _ in 0..10 {
        arrival_ms(&mut link, 0.0, 1000);
        departures.push(link.last_departure());
    }
    assert_eq!(departures.last(), Some(&ms(10.0)));
    link.cut(ms(4.5), 0);
    assert!(link.is_cut() && !link.conditions(ms(4.5)).up);
    assert_eq!(link.backlog(ms(4.5)), Bytes::ZERO);
    assert_eq!(lost(link.admit(ms(5.0), Bytes::new(1000))), Some(Cause::Outage));
    assert_eq!(lost(link.admit(ms(5000.0), Bytes::new(1000))), Some(Cause::Outage));
    link.restore();
    assert!(!link.is_cut() && link.conditions(ms(5000.0)).up);
    near(arrival_ms(&mut link, 5001.0, 1000), 5022.0, 1e-6);
}

#[test]
fn a_packet_that_departs_before_the_cut_is_delivered() {
    let mut link = uplink(PLAIN);
    link.cut(ms(3.0), 0);
    near(arrival_ms(&mut link, 1.0, 1000), 22.0, 1e-6);
    assert_eq!(lost(link.admit(ms(2.5), Bytes::new(1000))), Some(Cause::Outage));
}

#[test]
fn restoring_keeps_scripted_outages() {
    let mut link = uplink("down = [[\"1s\", \"2s\"]]\nuplink.rate = \"8Mbit/s\"");
    link.cut(ms(100.0), 0);
    assert_eq!(lost(link.admit(ms(500.0), Bytes::new(1000))), Some(Cause::Outage));
    link.restore();
    near(arrival_ms(&mut link, 600.0, 1000), 601.0, 1e-6);
    assert_eq!(lost(link.admit(ms(1500.0), Bytes::new(1000))), Some(Cause::Outage));
    near(arrival_ms(&mut link, 3500.0, 1000), 3501.0, 1e-6);
}

#[test]
fn a_link_at_rate_zero_sends_again_with_a_new_rate() {
    let mut link = uplink(PLAIN);
    link.set_rate(Rate::ZERO);
    assert_eq!(lost(link.admit(ms(1.0), Bytes::new(1000))), Some(Cause::Outage));
    link.set_rate(Rate::from_bps(8_000_000));
    near(arrival_ms(&mut link, 2.0, 1000), 23.0, 1e-6);
}
