//! Scripted outages and changes.

use crate::common::{arrival_ms, lost, ms, near, path, uplink};
use skybraid_link::{Cause, ChangeConfig, DelayConfig, Direction, Fate, Link};
use skybraid_link::{Distribution, LossConfig, Losses, RateConfig};
use skybraid_units::{Bytes, Probability, Rate, Seed};

#[test]
fn an_outage_loses_arriving_and_queued_packets() {
    let mut link = uplink(
        "down = [[\"100ms\", \"50ms\"]]\nuplink = { rate = \"12Mbit/s\", delay = \"30ms\" }",
    );
    near(arrival_ms(&mut link, 98.5, 1500), 129.5, 1e-9);
    let cut = Fate::Lost { at: ms(100.0), cause: Cause::Outage };
    assert_eq!(link.admit(ms(99.0), Bytes::new(1500)), cut);
    assert_eq!(link.backlog(ms(99.9)), Bytes::new(1500));
    assert_eq!(link.backlog(ms(100.0)), Bytes::ZERO);
    let down = Fate::Lost { at: ms(149.0), cause: Cause::Outage };
    assert_eq!(link.admit(ms(149.0), Bytes::new(1500)), down);
    near(arrival_ms(&mut link, 150.0, 1500), 181.0, 1e-9);
}

#[test]
fn a_packet_sent_just_before_an_outage_arrives() {
    let mut link = uplink("down = [[\"100ms\", \"50ms\"]]\nuplink.rate = \"12Mbit/s\"");
    near(arrival_ms(&mut link, 99.0, 1500), 100.0, 1e-9);
}

#[test]
fn outages_that_overlap_count_as_one() {
    let mut link = uplink(
        "down = [[\"120ms\", \"50ms\"], [\"100ms\", \"30ms\"], [\"300ms\", \"0s\"]]\nuplink.rate = \"1Gbit/s\"",
    );
    for (at, cause) in [
        (99.0, None),
        (100.0, Some(Cause::Outage)),
        (169.0, Some(Cause::Outage)),
        (170.0, None),
        (300.0, None),
    ] {
        assert_eq!(lost(link.admit(ms(at), Bytes::new(100))), cause, "at {at} ms");
    }
}

#[test]
fn changes_of_rate_delay_and_loss_hold_until_the_next() {
    let mut config = path("uplink = { rate = \"12Mbit/s\", delay = \"10ms\" }");
    let rate = |mbps| ChangeConfig::Rate(RateConfig::Constant(Rate::from_mbps(mbps)));
    let delay = |text| {
        ChangeConfig::Delay(DelayConfig::Distribution(Distribution::fixed(crate::common::span(
            text,
        ))))
    };
    let loss = |losses: &[LossConfig]| ChangeConfig::Loss(Losses(losses.to_vec()));
    config.uplink.changes = vec![
        (ms(400.0), loss(&[])),
        (ms(100.0), rate(6.0)),
        (ms(200.0), delay("50ms")),
        (ms(300.0), loss(&[LossConfig::Uniform(Probability::ONE)])),
        (ms(500.0), rate(24.0)),
    ];
    let mut link = Link::new(&config.link(Direction::Uplink).unwrap(), "p", "uplink", Seed(1));
    near(arrival_ms(&mut link, 50.0, 1500), 61.0, 1e-9);
    // Half at 12 Mbit/s, half at 6.
    near(arrival_ms(&mut link, 99.5, 1500), 100.5 + 10.0 + 0.5, 1e-9);
    near(arrival_ms(&mut link, 150.0, 1500), 162.0, 1e-9);
    near(arrival_ms(&mut link, 250.0, 1500), 302.0, 1e-9);
    assert_eq!(lost(link.admit(ms(350.0), Bytes::new(1500))), Some(Cause::Random));
    near(arrival_ms(&mut link, 450.0, 1500), 502.0, 1e-9);
    near(arrival_ms(&mut link, 600.0, 1500), 650.5, 1e-9);
}

#[test]
fn conditions_report_rate_delay_loss_and_state() {
    let mut config = path(
        "down = [[\"10s\", \"1s\"]]\n\
         uplink = { rate = { steps = [[\"0s\", \"12Mbit/s\"], [\"2s\", \"6Mbit/s\"]] }, delay = \"10ms\", \
         loss = [{ uniform = \"10%\" }, { bit_errors = 1e-5 }] }",
    );
    let delay = DelayConfig::Distribution(Distribution::fixed(crate::common::span("70ms")));
    config.uplink.changes = vec![(ms(5000.0), ChangeConfig::Delay(delay))];
    let mut link = Link::new(&config.link(Direction::Uplink).unwrap(), "p", "uplink", Seed(1));
    let first = link.conditions(ms(0.0));
    assert_eq!((first.rate, first.delay), (Rate::from_mbps(12.0), crate::common::span("10ms")));
    near(first.loss.ratio(), 1.0 - 0.9 * (1.0 - 1e-5f64).powi(9600), 1e-9);
    assert_eq!(link.conditions(ms(2000.0)).rate, Rate::from_mbps(6.0));
    assert_eq!(link.conditions(ms(5000.0)).delay, crate::common::span("70ms"));
    assert!(link.conditions(ms(9999.0)).up);
    assert!(!link.conditions(ms(10_500.0)).up);
    assert!(link.conditions(ms(11_000.0)).up);
}
