//! Output of Linux `ping`, with `-D` stamps (`[1683995463.546]`), with stamps of date and time
//! (`[2023-05-13 12:31:03.658655]`), or without any.
//!
//! A stamp is the time of the reply, so the probe was sent one round-trip time earlier; without stamps, probes
//! are evenly spaced, by the summary's time if there is one. A sequence number without a reply is a lost probe, as
//! is a probe that the summary's "packets transmitted" counts after the last sequence number. Lost probes are
//! evenly spaced between their neighbours. A log without its heading was cut off at its beginning: nothing before
//! its first reply was lost. A last line that nothing ends is left out if it is no whole reply: an interrupted ping did
//! not finish it. Duplicate replies (`DUP!`) are skipped. Sequence numbers have 16 bits and wrap around
//! after 65535.
//!
//! Round-trip times and losses share their times, which begin with the first probe, lost or not, and their end.

use alloc::collections::BTreeMap;
use alloc::string::ToString;
use alloc::vec::Vec;

use skybraid_units::calendar::days_since_1970;
use skybraid_units::{Duration, Instant};

use crate::trace::{Series, TraceError};

/// Measurements of a ping log.
#[derive(Clone, Debug, PartialEq)]
pub struct PingLog {
    /// Round-trip time in ns of each probe, from its transmission on; infinity, a gap, for a lost probe.
    pub rtt: Series,
    /// Loss of each probe, from its transmission on: 1 for a lost probe, 0 for an answered one.
    pub loss: Series,
    /// Probes sent.
    pub sent: u64,
    /// Probes answered.
    pub answered: u64,
}

impl PingLog {
    /// Returns half the round-trip times, in ns; infinity for a lost probe.
    ///
    /// # Errors
    /// None; the type is that of [`Series::new`].
    pub fn one_way_delay(&self) -> Result<Series, TraceError> {
        let halves = self.rtt.values().iter().map(|value| value / 2.0).collect();
        Series::new(self.rtt.times().to_vec(), halves, self.rtt.end(), self.rtt.repeats())
    }
}

const EXPECTED: &str = "a reply such as `64 bytes from 10.0.0.1: icmp_seq=1 ttl=44 time=78.0 ms`";

struct Reply {
    line: usize,
    sequence: u64,
    rtt_ns: f64,
    /// Time of the reply in seconds, on the log's clock.
    stamp_s: Option<f64>,
}

/// Parses a ping log. `every` is the spacing of the probes in a log without stamps. Default: that of the summary, else
/// 1 s.
///
/// # Errors
/// A reply has no sequence number or time, a stamp is invalid, or there is no reply.
pub fn read(text: &str, every: Option<Duration>, repeat: bool) -> Result<PingLog, TraceError> {
    let mut replies: BTreeMap<u64, Reply> = BTreeMap::new();
    let mut transmitted = 0;
    let mut took_ms = None;
    let mut newest = 0;
    let mut is_headed = false;
    let mut lines = text.lines().enumerate().peekable();
    while let Some((index, line)) = lines.next() {
        if let Some(found) = read_summary(line) {
            (transmitted, took_ms) = found;
        }
        if line.contains("PING ") && line.contains(" data") {
            if !replies.is_empty() {
                return Err(TraceError::Line {
                    line: index + 1,
                    found: line.trim().to_string(),
                    expected: "one log, its sequence numbers on one clock: a file for each"
                        .to_string(),
                });
            }
            is_headed = true;
        }
        if line.contains(" bytes from ") {
            let is_last = lines.peek().is_none() && !text.ends_with('\n');
            let mut reply = match read_reply(line.trim(), index + 1) {
                Err(_) if is_last && !replies.is_empty() => break,
                found => found?,
            };
            reply.sequence = unwrapped(reply.sequence, newest);
            newest = newest.max(reply.sequence);
            replies.entry(reply.sequence).or_insert(reply);
        }
    }
    let (Some(first), Some(last)) = (replies.keys().next(), replies.keys().next_back()) else {
        return Err(TraceError::Empty { expected: EXPECTED });
    };
    let first = if is_headed { (*first).min(1) } else { *first };
    let sent = transmitted.saturating_sub(first.saturating_sub(1)).max(last + 1 - first);
    if sent > MAX_PROBES {
        let line = replies.values().next_back().map_or(1, |reply| reply.line);
        return Err(TraceError::Line {
            line,
            found: last.to_string(),
            expected: "fewer than ten million probes".to_string(),
        });
    }
    let even =
        took_ms.map(|took_ms| Duration::from_secs_f64(took_ms * 1e-3 / (transmitted - 1) as f64));
    let clock = Clock::of(&replies, every.or(even).unwrap_or(Duration::from_secs(1)));

    let mut probes: Vec<(Instant, Option<f64>)> = Vec::new();
    for sequence in first..first + sent {
        let at = Instant::from_secs_f64(clock.sent_s(sequence, &replies));
        // An inexact stamp may put a probe before its predecessor.
        if probes.last().is_none_or(|(previous, _)| at > *previous) {
            probes.push((at, replies.get(&sequence).map(|reply| reply.rtt_ns)));
        }
    }
    Ok(PingLog {
        rtt: series(&probes, |rtt_ns| rtt_ns.unwrap_or(f64::INFINITY), repeat)?,
        loss: series(&probes, |rtt_ns| if rtt_ns.is_some() { 0.0 } else { 1.0 }, repeat)?,
        sent,
        answered: replies.len() as u64,
    })
}

/// Returns the number of probes and their time in ms from the summary of a log.
fn read_summary(line: &str) -> Option<(u64, Option<f64>)> {
    let (before, after) = line.split_once(" packets transmitted")?;
    let count = before.rsplit(char::is_whitespace).next()?;
    let transmitted = count.parse::<u64>().unwrap_or(0).min(MAX_PROBES);
    let took = after.rsplit_once("time ").and_then(|(_, time)| time.trim().strip_suffix("ms"));
    let took_ms = took
        .and_then(|time| time.parse::<f64>().ok())
        .filter(|ms| (1.0..1e15).contains(ms) && transmitted > 1);
    Some((transmitted, took_ms))
}

/// Returns the full sequence number of a 16-bit `sequence` near `newest`.
const fn unwrapped(sequence: u64, newest: u64) -> u64 {
    const ROUND: u64 = 1 << 16;
    if sequence >= ROUND {
        return sequence;
    }
    let rounds = (newest + ROUND / 2).saturating_sub(sequence) / ROUND;
    sequence + rounds * ROUND
}

/// Maximum number of probes, which bounds the memory that a corrupt sequence number can take.
const MAX_PROBES: u64 = 10_000_000;

/// Returns the series of a value of each probe, in time since the first probe.
fn series(
    probes: &[(Instant, Option<f64>)],
    value: fn(Option<f64>) -> f64,
    repeat: bool,
) -> Result<Series, TraceError> {
    let origin = probes.first().map_or(Instant::ZERO, |(at, _)| *at);
    let samples: Vec<(Instant, f64)> = probes
        .iter()
        .map(|(at, rtt_ns)| (Instant::ZERO + (*at - origin), value(*rtt_ns)))
        .collect();
    Series::from_samples(&samples, repeat)
}

/// Transmission times of the probes.
enum Clock {
    /// Evenly spaced by this many seconds.
    Even(f64),
    /// By the stamps of the replies, in seconds since `origin_s`; `spacing_s` apart on average.
    Stamped { origin_s: f64, spacing_s: f64 },
}

impl Clock {
    fn of(replies: &BTreeMap<u64, Reply>, every: Duration) -> Self {
        let stamped = |reply: &Reply| reply.stamp_s.map(|stamp| (reply.sequence, stamp));
        let first = replies.values().find_map(stamped);
        let last = replies.values().rev().find_map(stamped);
        let (Some((first, origin_s)), Some((last, end_s))) = (first, last) else {
            return Self::Even(every.as_secs_f64());
        };
        let spacing_s = if last > first {
            (end_s - origin_s) / (last - first) as f64
        } else {
            every.as_secs_f64()
        };
        Self::Stamped { origin_s, spacing_s: spacing_s.max(1e-6) }
    }

    fn sent_s(&self, sequence: u64, replies: &BTreeMap<u64, Reply>) -> f64 {
        match self {
            Self::Even(spacing_s) => sequence as f64 * spacing_s,
            Self::Stamped { origin_s, spacing_s } => {
                let of = |reply: &Reply| Some(reply.stamp_s? - origin_s - reply.rtt_ns * 1e-9);
                let known = |(number, reply): (&u64, &Reply)| Some((*number as f64, of(reply)?));
                let number = sequence as f64;
                let before = replies.range(..=sequence).next_back().and_then(known);
                let after = replies.range(sequence..).next().and_then(known);
                match (before, after) {
                    (Some((low, from)), Some((high, to))) if high > low && to > from => {
                        from + (to - from) * (number - low) / (high - low)
                    }
                    (Some((near, sent)), _) | (None, Some((near, sent))) => {
                        sent + (number - near) * spacing_s
                    }
                    (None, None) => number * spacing_s,
                }
            }
        }
    }
}

fn read_reply(line: &str, number: usize) -> Result<Reply, TraceError> {
    let wrong = |expected: &str| TraceError::Line {
        line: number,
        found: line.to_string(),
        expected: expected.to_string(),
    };
    let value_after = |key: &str, unit: &str| {
        let (_, rest) = line.split_once(key)?;
        let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
        let (value, after) = rest.split_at_checked(end)?;
        // A decimal comma, or the end of a line that was cut, would cut the number short.
        if !after.trim_start().starts_with(unit) || after.starts_with(',') {
            return None;
        }
        value.parse::<f64>().ok().filter(|value| value.is_finite())
    };
    let sequence = value_after("icmp_seq=", "").or_else(|| value_after("icmp_req=", ""));
    let rtt_ms = value_after("time=", "ms").or_else(|| value_after("time<", "ms"));
    let (Some(sequence), Some(rtt_ms)) = (sequence, rtt_ms) else { return Err(wrong(EXPECTED)) };
    if !(0.0..1e9).contains(&rtt_ms) || !(0.0..1e15).contains(&sequence) {
        return Err(wrong(EXPECTED));
    }
    let stamp_s =
        match line.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((stamp, _)) => Some(read_stamp(stamp).ok_or_else(|| {
                wrong("a stamp such as `[1683995463.5]` or `[2023-05-13 12:31:03]`")
            })?),
            None => None,
        };
    Ok(Reply { line: number, sequence: sequence as u64, rtt_ns: rtt_ms * 1e6, stamp_s })
}

/// Parses a stamp into seconds: since 1970, or a date and a time of day.
fn read_stamp(stamp: &str) -> Option<f64> {
    if let Ok(seconds) = stamp.trim().parse::<f64>() {
        return seconds.is_finite().then_some(seconds);
    }
    let (date, time) = stamp.trim().split_once([' ', 'T'])?;
    let mut date = date.split('-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let mut time = time.split(':').map(|part| part.parse::<f64>().ok());
    let (hour, minute, second) = (time.next()??, time.next()??, time.next()??);
    let sound = (0..=9999).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && (0.0..24.0).contains(&hour)
        && (0.0..60.0).contains(&minute)
        && (0.0..61.0).contains(&second);
    sound.then(|| {
        days_since_1970(year, month, day) as f64 * 86_400.0 + hour * 3600.0 + minute * 60.0 + second
    })
}
