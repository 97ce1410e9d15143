//! Flows that share a connection, and addresses that come and go.

use skybraid_transport::{PathId, Protocol};
use skybraid_units::{Duration, Instant};

use crate::file::FlowEvent;
use crate::wording::unknown;
use crate::{AddressChange, Flow, Path};

/// Lets flow number `index` ride in the connection of the flow named `with`.
pub(crate) fn ride(flows: &mut [Flow], index: usize, with: &str) -> Result<(), String> {
    let Some(carrier) = flows.iter().position(|flow| flow.name == with) else {
        let known: Vec<&str> = flows.iter().map(|flow| flow.name.as_str()).collect();
        return Err(unknown("flow", with, &known));
    };
    if carrier == index {
        return Err("found the flow itself, expected another one".to_string());
    }
    let Some(other) = flows.get(carrier) else { return Ok(()) };
    if other.rides_with.is_some() {
        return Err(format!("`{with}` rides with another flow itself, expected one that does not"));
    }
    let (transport, paths) = (other.transport.clone(), other.paths.clone());
    if !matches!(transport.protocol, Protocol::Tcp | Protocol::Mptcp) {
        let name = transport.protocol.name();
        return Err(format!("`{with}` uses {name}, expected a stream: tcp or mptcp"));
    }
    if let Some(flow) = flows.get_mut(index) {
        flow.rides_with = Some(carrier);
        flow.transport = transport;
        flow.paths = paths;
    }
    Ok(())
}

/// What an event does to the addresses of the connection of the flow `name`; errors carry the key below
/// the flow's.
pub(crate) fn address_changes(
    at: Duration,
    name: &str,
    event: &FlowEvent,
    flows: &[Flow],
    paths: &[Path],
) -> Result<Vec<AddressChange>, (&'static str, String)> {
    let Some((index, flow)) = flows.iter().enumerate().find(|(_, flow)| flow.name == name) else {
        let known: Vec<&str> = flows.iter().map(|flow| flow.name.as_str()).collect();
        return Err(("", unknown("flow", name, &known)));
    };
    if flow.transport.protocol != Protocol::Mptcp || flow.rides_with.is_some() {
        let problem = "expected a flow with an mptcp connection of its own";
        return Err(("", problem.to_string()));
    }
    let given = [("remove_path", &event.remove_path, false), ("add_path", &event.add_path, true)];
    let mut changes = Vec::new();
    for (key, wanted, added) in given {
        let Some(wanted) = wanted else { continue };
        let used: Vec<&str> = flow
            .paths
            .iter()
            .filter_map(|path| paths.get(*path))
            .map(|it| it.name.as_str())
            .collect();
        let Some(path) = used.iter().position(|known| known == wanted) else {
            return Err((key, unknown("path", wanted, &used)));
        };
        let (at, path) = (Instant::ZERO + at, PathId(path as u8));
        changes.push(AddressChange { at, flow: index, path, added });
    }
    if changes.is_empty() {
        let problem = "the event has no effect; expected `remove_path` or `add_path`";
        return Err(("", problem.to_string()));
    }
    Ok(changes)
}
