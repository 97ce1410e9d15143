//! Paths or links that a table of a scenario names.

/// A key and the problem with its value.
pub(crate) type Problem = (&'static str, String);

/// Returns the links that `paths`, or `links` in a network, name, each once. `find` returns the links of a name.
///
/// # Errors
/// A key and the problem with its value.
pub(crate) fn members(
    paths: &[String],
    links: &[String],
    of_paths: bool,
    find: impl Fn(&str) -> Result<Vec<usize>, String>,
) -> Result<Vec<usize>, Problem> {
    let (key, names, other, strange) = match of_paths {
        true => ("paths", paths, "links", links),
        false => ("links", links, "paths", paths),
    };
    if !strange.is_empty() {
        return Err((other, format!("expected `{key}`, as in the scenario")));
    }
    let mut found = Vec::new();
    for name in names {
        for link in find(name).map_err(|problem| (key, problem))? {
            if found.contains(&link) {
                return Err((key, format!("`{name}` is named twice")));
            }
            found.push(link);
        }
    }
    if found.is_empty() {
        return Err((key, "found an empty list, expected at least one name".to_string()));
    }
    Ok(found)
}
