//! Round-trip times of a TCP flow as Hypatia's ns-3 writes them: `flow_id,time_ns,rtt_ns` a line.

use alloc::string::ToString;
use alloc::vec::Vec;

use skybraid_units::Instant;

use crate::trace::{Series, TraceError};

const EXPECTED: &str = "`flow_id,time_ns,rtt_ns`, for example `0,14692581,14000000`";

/// Reads the round-trip times in ns of the flow on the first line; other flows are skipped. The first
/// time becomes zero. Where several lines share a time the last of them counts.
///
/// # Errors
/// A line that is not three whole numbers, a time earlier than before, or an empty text.
pub fn read(text: &str, repeat: bool) -> Result<Series, TraceError> {
    let mut samples: Vec<(Instant, f64)> = Vec::new();
    let mut first: Option<(u64, i64)> = None;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() {
            continue;
        }
        let wrong = |expected: &str| TraceError::Line {
            line: index + 1,
            found: line.to_string(),
            expected: expected.to_string(),
        };
        let mut fields = line.split(',').map(str::trim);
        let row = (fields.next(), fields.next(), fields.next(), fields.next());
        let (Some(flow), Some(time), Some(rtt), None) = row else { return Err(wrong(EXPECTED)) };
        let flow: u64 = flow.parse().map_err(|_| wrong(EXPECTED))?;
        let time: i64 = time.parse().map_err(|_| wrong(EXPECTED))?;
        let rtt: u32 = rtt.parse().map_err(|_| wrong(EXPECTED))?;
        let (chosen, origin) = *first.get_or_insert((flow, time));
        if flow != chosen {
            continue;
        }
        let at = Instant::from_nanos(time) - Instant::from_nanos(origin);
        let at = Instant::ZERO + at;
        match samples.last_mut() {
            Some((previous, _)) if at < *previous => {
                return Err(wrong("a time not before the one above"));
            }
            Some((previous, value)) if at == *previous => *value = f64::from(rtt),
            _ => samples.push((at, f64::from(rtt))),
        }
    }
    if samples.is_empty() {
        return Err(TraceError::Empty { expected: EXPECTED });
    }
    Series::from_samples(&samples, repeat)
}

/// Reads the same file as one-way delays: half the round trip.
///
/// # Errors
/// As for [`read`].
pub fn read_one_way(text: &str, repeat: bool) -> Result<Series, TraceError> {
    let rtt = read(text, repeat)?;
    let halves = rtt.values().iter().map(|value| value / 2.0).collect();
    Series::new(rtt.times().to_vec(), halves, rtt.end(), rtt.repeats())
}
