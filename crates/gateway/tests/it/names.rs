//! As many paths and channels with as long names as a file may have.

use std::fmt::Write;

use crate::field::{AIRCRAFT, Field, GROUND, Shape, frame, read};
use skybraid_units::{Duration, Instant, Rate};

const COMMAND_LONG: u32 = 76;

/// A name of 32 characters.
fn name(kind: &str, number: usize) -> String {
    format!("{kind}-{number:02}-{}", "x".repeat(28 - kind.len()))
}

#[test]
fn paths_and_ports_of_long_names_carry_everything() {
    let ports: Vec<String> = (0..40).map(|number| name("port", number)).collect();
    let mut extra = "[[mavlink]]\nserial = \"-\"\n".to_string();
    for port in &ports {
        assert_eq!(port.len(), 32);
        writeln!(extra, "[udp.{port}]\nsend_to = \"127.0.0.1:1\"\nclass = \"telemetry\"").unwrap();
    }
    let shapes: Vec<Shape> = (0..32)
        .map(|number| {
            let name: &'static str = name("path", number).leak();
            Shape(name, Rate::from_mbps(10.0), Duration::from_millis(20 + number as i64), 1_500)
        })
        .collect();
    let mut field = Field::new(1, &shapes, &extra);
    field.run(Instant::from_millis(3_000));
    for number in 0..50_u32 {
        field.run(Instant::from_millis(3_000 + 20 * i64::from(number)));
        field.write(GROUND, 0, &frame(255, COMMAND_LONG, number));
        let port = (number % 40) as u8;
        field.write(AIRCRAFT, 1 + port, &[port; 100]);
    }
    field.run(Instant::from_millis(5_000));
    let commands: Vec<u32> = field.handed[AIRCRAFT].iter().map(|(.., it)| read(it).1).collect();
    assert_eq!(commands, (0..50).collect::<Vec<_>>());
    let mut ports: Vec<(u8, u8)> =
        field.handed[GROUND].iter().map(|(_, channel, it)| (channel.0, it[0])).collect();
    ports.sort_unstable();
    let mut sent: Vec<(u8, u8)> = (0..50).map(|number| (1 + number % 40, number % 40)).collect();
    sent.sort_unstable();
    assert_eq!(ports, sent);
    let shown = field.snapshot(GROUND);
    assert!(shown.channels.iter().all(|channel| channel.shared));
    assert!(shown.paths.iter().all(|path| path.rtt_ms.is_some()), "every path is used");
}

#[test]
fn names_that_do_not_fit_or_match_raise_an_alarm() {
    let shapes = |kind: &str| -> Vec<Shape> {
        let name = |number| name(if number == 7 { kind } else { "path" }, number).leak();
        (0..32)
            .map(|at| Shape(name(at), Rate::from_mbps(10.0), Duration::from_millis(20), 1_500))
            .collect()
    };
    let (mut field, mut other) =
        (Field::new(1, &shapes("path"), ""), Field::new(1, &shapes("path-b"), ""));
    std::mem::swap(&mut field.ends[GROUND], &mut other.ends[GROUND]);
    field.run(Instant::from_millis(4_000));
    let texts: Vec<String> = std::iter::from_fn(|| field.ends[AIRCRAFT].poll_event())
        .filter_map(|event| match event.what {
            skybraid_gateway::event::What::Alarm { text } => Some(text),
            _ => None,
        })
        .collect();
    let own = format!("path `{}` is here and not at the peer", name("path", 7));
    assert!(texts.iter().any(|text| text.starts_with(&own)), "{texts:?}");
    assert!(
        texts.iter().any(|text| text.starts_with("the peer has 1 names of a path")),
        "{texts:?}"
    );
}
