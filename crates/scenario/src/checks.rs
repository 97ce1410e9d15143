//! Checks of transports, and warnings about scenarios.

use skybraid_host::{Host, PathSetup, Route, Setup};
use skybraid_link::{DelayConfig, Shape};
use skybraid_traffic::TrafficConfig;
use skybraid_transport::{PathSet, Protocol, TransportConfig};
use skybraid_units::invariant::Promised as _;
use skybraid_units::{Bytes, Duration};

use crate::network::DirectedLink;
use crate::{Flow, Link, Node};

/// A key below `transport` and the problem with its value.
type Problem = (String, String);

/// Checks the ranges of a transport's parameters.
pub(crate) fn transport(config: &TransportConfig) -> Result<(), Problem> {
    let above_zero = [
        ("receive_buffer", config.receive_buffer > Bytes::ZERO),
        ("send_buffer", config.send_buffer > Bytes::ZERO),
        ("initial_window", config.initial_window > 0),
        ("initial_threshold", config.initial_threshold.is_none_or(|size| size > Bytes::ZERO)),
        ("max_in_flight", config.max_in_flight.is_none_or(|size| size > Bytes::ZERO)),
        ("segment", config.segment.is_none_or(|size| size > Bytes::ZERO)),
        ("ack_every", config.ack_every > 0),
        ("rto_min", config.rto_min.is_positive()),
        ("report_every", config.report_every.is_positive()),
        ("tx_queue", config.tx_queue() > 0),
        ("keep_alive", config.keep_alive.is_positive()),
        ("probe_every", config.probe_every.is_positive()),
    ];
    for (key, is_valid) in above_zero {
        if !is_valid {
            return Err((key.to_string(), "expected above zero".to_string()));
        }
    }
    config.scheduler.check().map_err(|(key, problem)| (format!("scheduler.{key}"), problem))?;
    config.congestion.check().map_err(|(key, problem)| (format!("congestion.{key}"), problem))?;
    config.reordering.check().map_err(|(key, problem)| (format!("reordering.{key}"), problem))?;
    Ok(())
}

/// Checks that a transport supports `count` paths; `names` are those of the named paths.
pub(crate) fn use_of_paths(
    config: &TransportConfig,
    count: usize,
    names: &[&str],
) -> Result<(), Problem> {
    if count > PathSet::CAPACITY {
        let max = PathSet::CAPACITY;
        return Err(("paths".to_string(), format!("found {count} paths, expected at most {max}")));
    }
    if config.protocol.is_single_path() && count > 1 {
        let others = match config.protocol {
            Protocol::Tcp => "`mptcp` or `parallel_tcp`",
            _ => "`mp_dccp`",
        };
        let problem = format!(
            "{} uses one path, found {count} ({}); name one with `paths`, or use protocol {others}",
            config.protocol.name(),
            names.join(", "),
        );
        return Err(("paths".to_string(), problem));
    }
    for (key, position) in config.scheduler.positions() {
        if usize::from(position) >= count {
            let last = count.saturating_sub(1);
            let problem = format!("found path {position}, expected a position from 0 to {last}");
            return Err((format!("scheduler.{key}"), problem));
        }
    }
    Ok(())
}

/// Returns whether an application would write endlessly at one instant, since its transport is never full.
pub(crate) fn never_full(traffic: &TrafficConfig, protocol: Protocol) -> bool {
    matches!(traffic, TrafficConfig::Bulk { .. }) && protocol == Protocol::Udp
}

/// Returns warnings about valid but probably unintended settings: nodes without a link, and deadlines that no
/// message can meet. `setup` holds the routes of the flows.
pub(crate) fn warnings(
    nodes: &[Node],
    links: &[Link],
    flows: &[Flow],
    setup: &Setup,
) -> Vec<String> {
    let mut warnings = Vec::new();
    for (number, node) in nodes.iter().enumerate() {
        if !links.iter().any(|link| link.ends.contains(&number)) {
            warnings.push(format!("node.{}: no link leads to it", node.name));
        }
    }
    for link in links {
        if let Some(warning) = link.orbit.as_ref().and_then(|orbit| orbit.config.warning()) {
            warnings.push(format!("{}.orbit: {warning}", link.name));
        }
    }
    let mut reported: Vec<&str> = Vec::new();
    for (flow, setup_flow) in flows.iter().zip(&setup.flows) {
        let Some(deadline) = flow.deadline else { continue };
        let split = setup_flow.proxies.iter().map(|proxy| proxy.paths.as_slice());
        let segments = core::iter::once(setup_flow.paths.as_slice()).chain(split);
        let min_delays = segments.map(|paths| {
            let paths = paths
                .iter()
                .filter_map(|path| setup.paths.get(*path).promised("a path of the flow"));
            let delays: Option<Vec<Duration>> =
                paths.map(|path| constant_delay(path, links, flow.from)).collect();
            delays.and_then(|delays| delays.into_iter().min())
        });
        let Some(min_delays) = min_delays.collect::<Option<Vec<Duration>>>() else { continue };
        let min_delay = min_delays.into_iter().fold(Duration::ZERO, |sum, delay| sum + delay);
        if deadline < min_delay && !reported.contains(&flow.group.as_str()) {
            reported.push(&flow.group);
            warnings.push(format!(
                "flow.{}.require: no message can arrive within {deadline}, since every path delays \
                 it by {min_delay} or more",
                flow.group
            ));
        }
    }
    warnings
}

/// Returns the propagation delay of a path in the direction of the sender, if it is constant.
fn constant_delay(path: &PathSetup, links: &[Link], from: Host) -> Option<Duration> {
    let route = match from {
        Host::Vehicle => &path.uplink,
        Host::Ground => &path.downlink,
    };
    let Route::Fixed(hops) = route else { return None };
    let mut sum = Duration::ZERO;
    for hop in hops {
        let hop = DirectedLink(*hop);
        let link = links.get(hop.link()).promised("a link of the route")?;
        let direction = link.config.direction(hop.direction());
        if !direction.changes.is_empty() || link.orbit.is_some() {
            return None;
        }
        sum += match &direction.delay {
            None => Duration::ZERO,
            Some(DelayConfig::Distribution(delay)) => match delay.shape {
                Shape::Fixed(span) => span + delay.plus,
                _ => return None,
            },
            Some(_) => return None,
        };
    }
    Some(sum)
}
