//! Flows that share a connection, and address changes.

use skybraid_transport::{PathId, Protocol};
use skybraid_units::invariant::Promised as _;
use skybraid_units::{Duration, Instant};

use crate::file::FlowEvent;
use crate::wording::unknown;
use crate::{AddressChange, Flow, Link};

/// Lets the flows of group `name` share the connections of those of group `with`.
pub(crate) fn share_connection(flows: &mut [Flow], name: &str, with: &str) -> Result<(), String> {
    let members = |group: &str| -> Vec<usize> {
        let all = flows.iter().enumerate();
        all.filter(|(_, flow)| flow.group == group).map(|(number, _)| number).collect()
    };
    let (riders, carriers) = (members(name), members(with));
    if carriers.is_empty() {
        let mut known: Vec<&str> = flows.iter().map(|flow| flow.group.as_str()).collect();
        known.dedup();
        return Err(unknown("flow", with, &known));
    }
    if name == with {
        return Err("found the flow itself, expected another one".to_string());
    }
    if riders.len() != carriers.len() {
        let (ours, theirs) = (riders.len(), carriers.len());
        return Err(format!("found {ours} flows to ride with {theirs}, expected as many of both"));
    }
    for (rider, carrier) in riders.into_iter().zip(carriers) {
        let other = flows.get(carrier).promised("the flow to ride with");
        let Some(other) = other else { return Ok(()) };
        if other.rides_with.is_some() {
            let problem = "rides with another flow itself, expected one that does not";
            return Err(format!("`{with}` {problem}"));
        }
        let (transport, interfaces) = (other.transport.clone(), other.interfaces.clone());
        let (nodes, proxies) = (other.nodes, other.proxies.clone());
        if !matches!(transport.protocol, Protocol::Tcp | Protocol::Mptcp) {
            let name = transport.protocol.name();
            return Err(format!("`{with}` uses {name}, expected a stream: tcp or mptcp"));
        }
        if let Some(flow) = flows.get_mut(rider).promised("the riding flow") {
            if nodes != flow.nodes {
                return Err(format!("`{with}` runs between other nodes, expected the same"));
            }
            flow.rides_with = Some(carrier);
            flow.transport = transport;
            flow.interfaces = interfaces;
            flow.proxies = proxies;
        }
    }
    Ok(())
}

/// Returns the address changes by an event on the connection of the flow `name`. Errors carry the key below that
/// of the flow.
pub(crate) fn address_changes(
    at: Duration,
    name: &str,
    event: &FlowEvent,
    flows: &[Flow],
    links: &[Link],
) -> Result<Vec<AddressChange>, (&'static str, String)> {
    let all = flows.iter().enumerate();
    let named: Vec<_> = all.filter(|(_, flow)| flow.group == name || flow.name == name).collect();
    if named.is_empty() {
        let mut known: Vec<&str> = flows.iter().map(|flow| flow.group.as_str()).collect();
        known.dedup();
        return Err(("", unknown("flow", name, &known)));
    }
    let mut changes = Vec::new();
    for (index, flow) in named {
        if flow.transport.protocol != Protocol::Mptcp || flow.rides_with.is_some() {
            let problem = "expected a flow with an mptcp connection of its own";
            return Err(("", problem.to_string()));
        }
        let given =
            [("remove_path", &event.remove_path, false), ("add_path", &event.add_path, true)];
        let of_link = |interface: &Option<usize>| {
            links.get((*interface)?).promised("the link of an interface")
        };
        for (key, wanted, added) in given {
            let Some(wanted) = wanted else { continue };
            let used: Vec<Option<&Link>> = flow.interfaces.iter().map(of_link).collect();
            let fits = |link: &Option<&Link>| {
                link.is_some_and(|link| link.name == *wanted || link.group == *wanted)
            };
            let Some(path) = used.iter().position(fits) else {
                let names: Vec<&str> =
                    used.iter().flatten().map(|link| link.group.as_str()).collect();
                return Err((key, unknown("path", wanted, &names)));
            };
            let (at, path) = (Instant::ZERO + at, PathId(path as u8));
            changes.push(AddressChange { at, flow: index, path, added });
        }
    }
    if changes.is_empty() {
        let problem = "the event has no effect; expected `remove_path` or `add_path`";
        return Err(("", problem.to_string()));
    }
    Ok(changes)
}
