//! Any text as a trace. The first byte picks the reader. What is accepted must be in order, not
//! negative, and finite but for gaps without a path.
#![no_main]

use libfuzzer_sys::fuzz_target;
use skybraid_link::trace::{Quantity, mahimahi, ping, read};
use skybraid_link::{Series, TraceFile, TraceFormat};
use skybraid_units::{Duration, Instant};

fn check(series: &Series) {
    assert_eq!(series.times().len(), series.values().len());
    assert_eq!(series.times().first(), Some(&Instant::ZERO));
    assert!(series.times().is_sorted_by(|earlier, later| earlier < later));
    assert!(series.times().last().is_some_and(|last| *last < series.end()));
    assert!(series.values().iter().all(|value| !value.is_nan() && *value >= 0.0));
}

fn file(unit: &str, column: &str) -> TraceFile {
    TraceFile {
        trace: "t".into(),
        unit: Some(unit.into()),
        column: (!column.is_empty()).then(|| column.into()),
        ..TraceFile::default()
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((first, rest)) = input.split_first() else { return };
    let Ok(text) = std::str::from_utf8(rest) else { return };
    let formatted = |format| TraceFile { format: Some(format), ..TraceFile::default() };
    let series = match first % 8 {
        0 => read(text, &file("Mbit/s", "rate"), Quantity::Rate),
        1 => read(text, &file("ms", "2"), Quantity::Delay),
        2 => read(text, &file("%", ""), Quantity::Loss),
        3 => {
            let file = TraceFile { every: Some(Duration::from_millis(100)), ..file("ratio", "") };
            read(text, &file, Quantity::Loss)
        }
        4 => {
            if let Ok(opportunities) = mahimahi::read(text) {
                assert!(opportunities.times_ms().is_sorted());
                assert_eq!(opportunities.times_ms().last(), Some(&opportunities.period_ms()));
            }
            return;
        }
        5 => {
            if let Ok(log) = ping::read(text, None, true) {
                check(&log.rtt);
                check(&log.loss);
            }
            return;
        }
        6 => read(text, &formatted(TraceFormat::Ping), Quantity::Delay),
        _ => read(text, &formatted(TraceFormat::Hypatia), Quantity::Delay),
    };
    if let Ok(series) = series {
        check(&series);
    }
});
