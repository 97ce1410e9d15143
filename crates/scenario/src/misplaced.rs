//! Keys that are known elsewhere in a scenario: where they belong.

use serde::de::DeserializeOwned;
use skybraid_transport::TransportConfig;

use crate::file::{FlowFile, LinkFile, RequirementFile};
use crate::key::{KeyPath, Step};
use crate::wording;

/// Returns where the unknown key at the end of `key` belongs; `None` where nothing is known of it.
pub(crate) fn hint(key: &KeyPath) -> Option<String> {
    let name = key.last_key()?;
    match key.steps() {
        [Step::Key(_)] => at_the_top(name),
        [Step::Key(flow), Step::Key(_), below @ ..] if flow == "flow" => in_a_flow(name, below),
        _ => None,
    }
}

fn at_the_top(name: &str) -> Option<String> {
    let of_names = [("paths", "path"), ("flows", "flow"), ("links", "link"), ("nodes", "node")];
    if let Some((_, table)) = of_names.into_iter().find(|(plural, _)| *plural == name) {
        return Some(format!("did you mean `[{table}.NAME]`, one table for each {table}?"));
    }
    let of_lists = [("events", "event"), ("routes", "route"), ("outage", "outages")];
    if let Some((_, table)) = of_lists.into_iter().find(|(other, _)| *other == name) {
        return Some(format!("did you mean `[[{table}]]`?"));
    }
    let of_flow = known_by::<FlowFile>(name) || below_a_flow(name).is_some();
    if of_flow && known_by::<LinkFile>(name) {
        return None;
    }
    if of_flow {
        return Some("it belongs to a flow, in `[flow.NAME]`".to_string());
    }
    let of_path = known_by::<LinkFile>(name);
    of_path.then(|| "it belongs to a path, in `[path.NAME]`".to_string())
}

/// `below` are the steps after the flow's name.
fn in_a_flow(name: &str, below: &[Step]) -> Option<String> {
    match below {
        [] => None,
        [Step::Key(_)] => {
            let table = below_a_flow(name)?;
            Some(format!("it belongs to the flow's `{table}`: `{table} = {{ {name} = … }}`"))
        }
        [Step::Key(table), ..] => {
            let other = below_a_flow(name).filter(|other| other != table);
            let other = other.map(|other| format!("it belongs to the flow's `{other}`"));
            let of_flow = known_by::<FlowFile>(name);
            other.or(of_flow.then(|| format!("it belongs to the flow, not to its `{table}`")))
        }
        [Step::Index(_), ..] => None,
    }
}

/// The table of a flow that has a key.
fn below_a_flow(name: &str) -> Option<&'static str> {
    let of_traffic = ["kind", "rate", "packet", "every", "size"];
    if known_by::<TransportConfig>(name) {
        Some("transport")
    } else if known_by::<RequirementFile>(name) {
        Some("require")
    } else {
        of_traffic.contains(&name).then_some("traffic")
    }
}

/// Whether the tables that are read as `T` have a key, as their own error lists them.
fn known_by<T: DeserializeOwned>(name: &str) -> bool {
    let probe = toml_edit::de::from_str::<T>("\"\" = 0");
    probe.err().is_some_and(|error| wording::expected_names(error.message()).contains(&name))
}
