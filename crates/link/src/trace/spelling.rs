//! Units as tools and scripts spell them: `Mb/s`, `Mbits/sec`, `KBps`, `msec`, `pct`.

/// Spellings of units of time in lower case, with their size in ns.
const TIMES: &[(f64, &[&str])] = &[
    (1.0, &["ns", "nsec", "nsecs", "nanosecond", "nanoseconds"]),
    (1e3, &["us", "usec", "usecs", "microsecond", "microseconds"]),
    (1e6, &["ms", "msec", "msecs", "millis", "millisecond", "milliseconds", "millisekunden"]),
    (1e9, &["s", "sec", "secs", "second", "seconds", "sekunde", "sekunden", "seconde", "secondes"]),
    (60e9, &["min", "mins", "minute", "minutes"]),
    (3600e9, &["h", "hour", "hours"]),
];

/// Spellings of units of loss in lower case, with their size as a ratio.
const LOSSES: &[(f64, &[&str])] = &[
    (1e-2, &["%", "pct", "percent", "percentage", "prozent"]),
    (1.0, &["ratio", "fraction"]),
    (1e-6, &["ppm"]),
];

/// Returns the size of a unit of rate in bit/s.
///
/// A capital B is a byte, unless the whole unit is in capitals (`MBPS`).
pub(super) fn rate(unit: &str) -> Option<f64> {
    let lower = unit.to_ascii_lowercase();
    let amount = ["/second", "/secs", "/sec", "/s", "ps"]
        .into_iter()
        .find_map(|per| lower.strip_suffix(per))?;
    let is_byte =
        unit.as_bytes().get(amount.len().checked_sub(1)?) == Some(&b'B') && !unit.ends_with("PS");
    let of_letter = if is_byte { 8.0 } else { 1.0 };
    let (prefix, bits) =
        [("bits", 1.0), ("bit", 1.0), ("bytes", 8.0), ("byte", 8.0), ("b", of_letter)]
            .into_iter()
            .find_map(|(name, bits)| amount.strip_suffix(name).map(|prefix| (prefix, bits)))?;
    let (letter, base) = match prefix.strip_suffix('i') {
        Some(letter) => (letter, 1024.0),
        None => (prefix, 1000.0),
    };
    let power = ["", "k", "m", "g", "t"].into_iter().position(|known| known == letter)?;
    Some(bits * libm::pow(base, power as f64))
}

/// Returns the size of a unit of time in ns.
pub(super) fn time(unit: &str) -> Option<f64> {
    // The micro sign and the Greek letter.
    size_in(TIMES, &unit.replace(['µ', 'μ'], "u"))
}

/// Returns the size of a unit of loss as a ratio.
pub(super) fn loss(unit: &str) -> Option<f64> {
    size_in(LOSSES, unit)
}

fn size_in(spellings: &[(f64, &[&str])], unit: &str) -> Option<f64> {
    let is_known = |known: &[&str]| known.iter().any(|name| name.eq_ignore_ascii_case(unit));
    spellings.iter().find(|(_, known)| is_known(known)).map(|(size, _)| *size)
}
