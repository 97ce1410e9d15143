//! Helpers of tests of error messages.

/// Returns the first line of an error without the column; `bad_input/places.rs` checks columns and excerpts.
pub fn first_line(error: &str) -> String {
    let first = error.lines().next().unwrap_or_default();
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let parts: Vec<&str> = first.split(':').collect();
    let column = parts
        .windows(3)
        .position(|parts| is_number(parts[0]) && is_number(parts[1]) && parts[2].starts_with(' '));
    let kept =
        parts.iter().enumerate().filter(|(place, _)| column.is_none_or(|at| *place != at + 1));
    kept.map(|(_, part)| *part).collect::<Vec<_>>().join(":")
}
