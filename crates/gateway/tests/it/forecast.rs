//! Forecast of a class's scheduler, as a gateway reports it.

use crate::field::{AIRCRAFT, Field, LEO, LTE};
use skybraid_gateway::event::What;
use skybraid_units::Instant;

const VIDEO: usize = 2;
const CLASS: &str = "[udp.video]\nsend_to = \"127.0.0.1:1\"\n[class.video]\nprotocol = \"udp\"\n\
    scheduler = { name = \"deadline\", within = \"200ms\", share = \"99.9%\" }\ndeadline = \"400ms\"\n";

fn ms(ms: i64) -> Instant {
    Instant::from_millis(ms)
}

/// Writes a datagram every 10 ms for two minutes while the paths lose a share, and returns the alarms about
/// the share of video in time.
fn alarms(field: &mut Field, loss: f64) -> Vec<String> {
    for way in &mut field.ways {
        way.faults[AIRCRAFT].loss = loss;
    }
    for at in (1_000..120_000).step_by(10) {
        field.run(ms(at));
        field.write(AIRCRAFT, 1, &[7; 500]);
    }
    let events = std::iter::from_fn(|| field.ends[AIRCRAFT].poll_event());
    let texts = events.filter_map(|event| match event.what {
        What::Alarm { text } if text.starts_with("video: within") => Some(text),
        _ => None,
    });
    texts.collect()
}

// Two paths that lose a tenth each: with copies on both 1 % are missed.
#[test]
fn an_alarm_says_that_no_plan_reaches_the_share() {
    let mut field = Field::new(7, &[LTE(), LEO()], CLASS);
    field.run(ms(1_000));
    let raised = alarms(&mut field, 0.1);
    assert_eq!(raised.len(), 1, "{raised:?}");
    assert!(raised[0].contains("within 200 ms no plan reaches 99.9 %: best "), "{raised:?}");
    let forecast = field.snapshot(AIRCRAFT).classes[VIDEO].forecast.clone().unwrap();
    let [low, high] = forecast.best_interval;
    assert!(low < 0.99 && 0.99 < high && high < 0.999, "{forecast:?}");
    assert!(forecast.expected <= forecast.best && forecast.best_overhead == 1.0, "{forecast:?}");
}

#[test]
fn paths_without_trouble_raise_no_alarm() {
    let mut field = Field::new(7, &[LTE(), LEO()], CLASS);
    field.run(ms(1_000));
    assert_eq!(alarms(&mut field, 0.0), Vec::<String>::new());
    let forecast = field.snapshot(AIRCRAFT).classes[VIDEO].forecast.clone().unwrap();
    assert!(forecast.expected > 0.999, "{forecast:?}");
}

#[test]
fn a_scheduler_in_one_file_alone_raises_an_alarm() {
    let mut field =
        Field::new(7, &[LTE(), LEO()], &CLASS.replace("scheduler", "#aircraft scheduler"));
    field.run(ms(1_000));
    for at in (1_000..10_000).step_by(10) {
        field.run(ms(at));
        field.write(AIRCRAFT, 1, &[7; 500]);
    }
    let events = std::iter::from_fn(|| field.ends[AIRCRAFT].poll_event());
    let raised = events.filter(|event| {
        matches!(&event.what, What::Alarm { text } if text.starts_with("video: the other end does not report"))
    });
    assert_eq!(raised.count(), 1);
}
