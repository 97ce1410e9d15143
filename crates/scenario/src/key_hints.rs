//! Hints for keys in the wrong table.

use serde::de::DeserializeOwned;
use skybraid_transport::TransportConfig;

use crate::file::{FlowFile, LinkFile, RequirementFile};
use crate::key::{KeyPath, Step};
use crate::wording;

/// Returns a hint where the unknown key at the end of `key` belongs, if it is known in another table.
pub(crate) fn hint(key: &KeyPath) -> Option<String> {
    let name = key.last_key()?;
    match key.steps() {
        [Step::Key(_)] => at_top_level(name),
        [Step::Key(flow), Step::Key(_), below @ ..] if flow == "flow" => in_a_flow(name, below),
        _ => None,
    }
}

fn at_top_level(name: &str) -> Option<String> {
    let of_names = [("paths", "path"), ("flows", "flow"), ("links", "link"), ("nodes", "node")];
    if let Some((_, table)) = of_names.into_iter().find(|(plural, _)| *plural == name) {
        return Some(format!("did you mean `[{table}.NAME]`, one table for each {table}?"));
    }
    let of_lists = [("events", "event"), ("routes", "route"), ("outage", "outages")];
    if let Some((_, table)) = of_lists.into_iter().find(|(other, _)| *other == name) {
        return Some(format!("did you mean `[[{table}]]`?"));
    }
    let of_flow = has_key::<FlowFile>(name) || table_of_flow(name).is_some();
    if of_flow && has_key::<LinkFile>(name) {
        return None;
    }
    if of_flow {
        return Some("it belongs to a flow, in `[flow.NAME]`".to_string());
    }
    let of_path = has_key::<LinkFile>(name);
    of_path.then(|| "it belongs to a path, in `[path.NAME]`".to_string())
}

/// Returns the hint for a key in a flow; `below` are the steps after the flow's name.
fn in_a_flow(name: &str, below: &[Step]) -> Option<String> {
    match below {
        [] => None,
        [Step::Key(_)] => {
            let table = table_of_flow(name)?;
            Some(format!("it belongs to the flow's `{table}`: `{table} = {{ {name} = … }}`"))
        }
        [Step::Key(table), ..] => {
            let other = table_of_flow(name).filter(|other| other != table);
            let other = other.map(|other| format!("it belongs to the flow's `{other}`"));
            let of_flow = has_key::<FlowFile>(name);
            other.or(of_flow.then(|| format!("it belongs to the flow, not to its `{table}`")))
        }
        [Step::Index(_), ..] => None,
    }
}

/// Returns the table of a flow that has the key `name`.
fn table_of_flow(name: &str) -> Option<&'static str> {
    let of_traffic = ["kind", "rate", "packet", "every", "size"];
    if has_key::<TransportConfig>(name) {
        Some("transport")
    } else if has_key::<RequirementFile>(name) {
        Some("require")
    } else {
        of_traffic.contains(&name).then_some("traffic")
    }
}

/// Returns whether tables deserialized as `T` have a key, according to the list in their own error.
fn has_key<T: DeserializeOwned>(name: &str) -> bool {
    let probe = toml_edit::de::from_str::<T>("\"\" = 0");
    probe.err().is_some_and(|error| wording::expected_names(error.message()).contains(&name))
}
