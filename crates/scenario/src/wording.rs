//! Plain wording of errors of serde and the TOML parser, with suggestions for mistyped names.

/// Key under which `toml_edit` passes a date to serde.
pub(crate) const DATE: &str = "$__toml_private_datetime";

/// Problem of a table where a list is expected.
pub(crate) const TABLE_FOR_LIST: &str = "found a table, expected a list";

/// Returns the problem of an unknown name of kind `what`, with the known names and the likeliest one suggested.
pub fn unknown(what: &str, found: &str, known: &[&str]) -> String {
    let mut text = unknown_of_many(what, found, known);
    let listed: Vec<String> = known.iter().map(|name| format!("`{name}`")).collect();
    match listed.as_slice() {
        [] => text.push_str(" (there is none)"),
        [only] => text.push_str(&format!(" (expected {only})")),
        all => text.push_str(&format!(" (expected one of {})", all.join(", "))),
    }
    text
}

/// Returns the problem of an unknown name where the known names are too many to list.
pub(crate) fn unknown_of_many(what: &str, found: &str, known: &[&str]) -> String {
    let mut text = format!("unknown {what} `{found}`");
    if let Some(likely) = likeliest(found, known) {
        text.push_str(&format!("; did you mean `{likely}`?"));
    }
    text
}

/// Returns the known name that `found` probably stands for.
fn likeliest<'a>(found: &str, known: &[&'a str]) -> Option<&'a str> {
    // Both measures take time quadratic in the length; no name is nearly as long.
    if found.len() > 64 {
        return None;
    }
    let found = found.to_lowercase();
    let slips_to = |name: &str| strsim::damerau_levenshtein(&found, &name.to_lowercase());
    let near = |name: &&&str| {
        let slips = slips_to(name);
        let alike = strsim::jaro_winkler(&found, &name.to_lowercase());
        slips <= 2 && slips * 2 < name.len().max(2) || alike >= 0.85
    };
    let letters = |text: &str| {
        let mut letters: Vec<char> = text.chars().collect();
        letters.sort_unstable();
        letters
    };
    // Among names at the same distance, swapped letters are likelier than a wrong letter.
    let distance = |name: &&&str| (slips_to(name), letters(&found) != letters(name));
    known.iter().filter(near).min_by_key(distance).copied()
}

/// Rewords a message of serde or the TOML parser. `last_key` is the key of the value at which the error arose.
pub(crate) fn plain(message: &str, last_key: Option<&str>) -> String {
    // An error that was wrapped as a message includes the key path.
    let message = message.split("\nin `").next().unwrap_or(message).trim();
    if let Some((found, known)) = names(message, "unknown field `") {
        if found == DATE {
            return "found a date, expected a value with a unit or a table".to_string();
        }
        return unknown("key", found, &known);
    }
    if let Some((found, known)) = names(message, "unknown variant `") {
        let what = match last_key {
            // In an enum written as a table the variant is a key.
            Some(key) if key == found => "key",
            Some("from") => "host",
            Some("kind") if known.contains(&"cbr") => "kind of traffic",
            Some("congestion") => "congestion control",
            Some("reordering") => "reordering engine",
            other => other.unwrap_or("value"),
        };
        return unknown(what, found, &known);
    }
    if let Some(rest) = message.strip_prefix("missing field `") {
        return format!("the key `{}` is missing", rest.trim_end_matches('`'));
    }
    let is_length = message.starts_with("invalid length ");
    let found = ["invalid type: ", "invalid value: ", "invalid length "]
        .iter()
        .find_map(|start| message.strip_prefix(start));
    if let Some((found, expected)) = found.and_then(|rest| rest.rsplit_once(", expected ")) {
        let list_of = if is_length { "a list of " } else { "" };
        return format!("found {list_of}{}, expected {}", toml_word(found), toml_word(expected));
    }
    match message {
        "wanted string or table" => "expected a name or a table".to_string(),
        "wanted exactly 1 element, more than 1 element" => {
            "found several keys, expected exactly one".to_string()
        }
        "wanted exactly 1 element, found 0 elements" => {
            "found no key, expected exactly one".to_string()
        }
        _ => message.lines().map(str::trim).collect::<Vec<_>>().join("; "),
    }
}

/// Returns the expected keys in a message about an unknown one.
pub(crate) fn expected_names(message: &str) -> Vec<&str> {
    names(message, "unknown field `").map(|(_, known)| known).unwrap_or_default()
}

/// Returns the name after `start` and the names expected instead.
fn names<'a>(message: &'a str, start: &str) -> Option<(&'a str, Vec<&'a str>)> {
    let rest = message.strip_prefix(start)?;
    let (found, expected) =
        rest.rsplit_once("`, expected ").or_else(|| rest.rsplit_once("`, there are no "))?;
    Some((found, expected.split('`').skip(1).step_by(2).collect()))
}

/// Returns the TOML term for a type name of serde.
pub(crate) fn toml_word(text: &str) -> &str {
    match text {
        "u8" | "u32" | "u64" | "usize" => "a whole number, 0 or more",
        "u16" => "a whole number, 0 to 65535",
        "i64" => "a whole number",
        "f64" => "a number",
        "a sequence" => "a list",
        "sequence" => "a list",
        "map" => "a table",
        "a map" => "a table",
        "a tuple of size 2" | "an array of length 2" => "a list of two",
        _ if text.starts_with("struct ") || text.contains("enum ") => "a table",
        _ => text,
    }
}

/// Returns the text of the scenario quoted by a message: the first text between backticks or quotation marks, or
/// the second if the first is a part "in" it, unless the message reports it as missing.
pub(crate) fn quoted(whole: &str) -> Option<&str> {
    if whole.starts_with("missing field") {
        return None;
    }
    let message = whole.split_once("` in `").and_then(|(part, _)| whole.get(part.len() + 5..));
    let message = message.unwrap_or(whole);
    let start = message.find(['`', '"'])?;
    let mark = message.get(start..start + 1)?;
    let rest = message.get(start + 1..)?;
    rest.find(mark).and_then(|end| rest.get(..end))
}
