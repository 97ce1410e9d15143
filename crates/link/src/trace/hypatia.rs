//! Round-trip times of Hypatia: `flow_id,time_ns,rtt_ns` of a TCP flow in ns-3, or `time_ns,rtt_ns` of the
//! shortest path over the constellation (`networkx_rtt_A_to_B.txt`), in which a round-trip time of zero means
//! no path.

use alloc::string::ToString;
use alloc::vec::Vec;

use skybraid_units::Instant;

use crate::trace::{Series, TraceError};

const OF_FLOW: &str = "`flow_id,time_ns,rtt_ns`, for example `0,14692581,14000000`";
const OF_PATH: &str = "`time_ns,rtt_ns`, for example `100000000,25331740.5120000000`";
const EITHER: &str =
    "`flow_id,time_ns,rtt_ns` or `time_ns,rtt_ns`, for example `0,14692581,14000000`";

/// A line: number of the flow (zero for a path), time in ns, and round-trip time in ns, infinite without a path.
struct Row {
    flow: u64,
    time: i64,
    rtt: f64,
}

/// Parses the round-trip times in ns. In a file of flows, only the flow of the first line is read. Times are
/// relative to the first. Of several lines with the same time, the last is used. A gap is a round-trip time of
/// infinity.
///
/// # Errors
/// A line does not have the columns of the first line, a time is before its predecessor, or the text is empty or has no
/// path.
pub fn read(text: &str, repeat: bool) -> Result<Series, TraceError> {
    let mut samples: Vec<(Instant, f64)> = Vec::new();
    let mut first: Option<(u64, i64, usize)> = None;
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
        let width = line.split(',').count();
        let (chosen, origin, columns) = match first {
            Some(first) => first,
            None => {
                let row = row(line, width).ok_or_else(|| wrong(EITHER))?;
                *first.insert((row.flow, row.time, width))
            }
        };
        let expected = if columns == 2 { OF_PATH } else { OF_FLOW };
        let row = row(line, columns).ok_or_else(|| wrong(expected))?;
        if row.flow != chosen {
            continue;
        }
        let at = Instant::from_nanos(row.time) - Instant::from_nanos(origin);
        let at = Instant::ZERO + at;
        match samples.last_mut() {
            Some((previous, _)) if at < *previous => {
                return Err(wrong("a time not before the one above"));
            }
            Some((previous, value)) if at == *previous => *value = row.rtt,
            _ => samples.push((at, row.rtt)),
        }
    }
    if !samples.iter().any(|(_, rtt)| rtt.is_finite()) {
        return Err(TraceError::Empty { expected: EITHER });
    }
    Series::from_samples(&samples, repeat)
}

/// Parses a line of `columns` columns.
fn row(line: &str, columns: usize) -> Option<Row> {
    let mut fields = line.split(',').map(str::trim);
    let flow = if columns == 2 { 0 } else { fields.next()?.parse().ok()? };
    let time = fields.next()?.parse().ok()?;
    let rtt = fields.next()?;
    if fields.next().is_some() {
        return None;
    }
    let rtt = if columns == 2 {
        // Twice the maximum delay of a trace.
        let rtt = rtt.parse::<f64>().ok().filter(|rtt| (0.0..1.8e16).contains(rtt))?;
        if rtt == 0.0 { f64::INFINITY } else { rtt }
    } else {
        f64::from(rtt.parse::<u32>().ok()?)
    };
    Some(Row { flow, time, rtt })
}

/// Parses the file as one-way delays: half the round-trip times, infinite without a path.
///
/// # Errors
/// As for [`read`].
pub fn read_one_way(text: &str, repeat: bool) -> Result<Series, TraceError> {
    let rtt = read(text, repeat)?;
    let halves = rtt.values().iter().map(|value| value / 2.0).collect();
    Series::new(rtt.times().to_vec(), halves, rtt.end(), rtt.repeats())
}
