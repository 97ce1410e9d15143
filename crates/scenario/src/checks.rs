//! What a transport must not be, and what is allowed but probably not meant.

use skybraid_link::{DelayConfig, Shape};
use skybraid_transport::{PathSet, Protocol, TransportConfig};
use skybraid_units::{Bytes, Duration};

use crate::{Flow, Path};

/// A key below `transport` and what is wrong with it.
type Wrong = (String, String);

/// Checks the ranges of a transport's numbers.
pub(crate) fn transport(config: &TransportConfig) -> Result<(), Wrong> {
    let above_zero = [
        ("receive_buffer", config.receive_buffer > Bytes::ZERO),
        ("send_buffer", config.send_buffer > Bytes::ZERO),
        ("initial_window", config.initial_window > 0),
        ("initial_threshold", config.initial_threshold.is_none_or(|size| size > Bytes::ZERO)),
        ("segment", config.segment.is_none_or(|size| size > Bytes::ZERO)),
        ("ack_every", config.ack_every > 0),
        ("rto_min", config.rto_min.is_positive()),
        ("report_every", config.report_every.is_positive()),
        ("tx_queue", config.tx_queue > 0),
        ("keep_alive", config.keep_alive.is_positive()),
        ("probe_every", config.probe_every.is_positive()),
    ];
    for (key, sound) in above_zero {
        if !sound {
            return Err((key.to_string(), "expected above zero".to_string()));
        }
    }
    config.scheduler.check().map_err(|(key, problem)| (format!("scheduler.{key}"), problem))?;
    config.congestion.check().map_err(|(key, problem)| (format!("congestion.{key}"), problem))?;
    config.reordering.check().map_err(|(key, problem)| (format!("reordering.{key}"), problem))?;
    Ok(())
}

/// Checks that a transport can do with the paths that it uses. `used` are positions in `paths`.
pub(crate) fn use_of_paths(
    config: &TransportConfig,
    used: &[usize],
    paths: &[Path],
) -> Result<(), Wrong> {
    if used.len() > PathSet::CAPACITY {
        let (count, most) = (used.len(), PathSet::CAPACITY);
        return Err(("paths".to_string(), format!("found {count} paths, expected at most {most}")));
    }
    if config.protocol.is_single_path() && used.len() > 1 {
        let names: Vec<&str> =
            used.iter().filter_map(|index| paths.get(*index)).map(|it| it.name.as_str()).collect();
        let others = match config.protocol {
            Protocol::Tcp => "`mptcp` or `parallel_tcp`",
            _ => "`mp_dccp`",
        };
        let problem = format!(
            "{} uses one path, found {} ({}); name one with `paths`, or use protocol {others}",
            config.protocol.name(),
            used.len(),
            names.join(", "),
        );
        return Err(("paths".to_string(), problem));
    }
    for (key, position) in config.scheduler.positions() {
        if usize::from(position) >= used.len() {
            let last = used.len().saturating_sub(1);
            let problem = format!("found path {position}, expected a position from 0 to {last}");
            return Err((format!("scheduler.{key}"), problem));
        }
    }
    Ok(())
}

/// What is allowed but probably not meant: deadlines that no packet can keep.
pub(crate) fn warnings(paths: &[Path], flows: &[Flow]) -> Vec<String> {
    let mut warnings = Vec::new();
    for flow in flows {
        let Some(deadline) = flow.deadline else { continue };
        let used = flow.paths.iter().filter_map(|index| paths.get(*index));
        let delays: Option<Vec<Duration>> = used.map(|path| constant_delay(path, flow)).collect();
        let Some(least) = delays.and_then(|delays| delays.into_iter().min()) else { continue };
        if deadline < least {
            warnings.push(format!(
                "flow.{}.require: no message can arrive within {deadline}, since every path delays \
                 it by {least} or more",
                flow.name
            ));
        }
    }
    warnings
}

/// The propagation delay of a flow's direction, if it is always the same.
fn constant_delay(path: &Path, flow: &Flow) -> Option<Duration> {
    let direction = path.config.direction(flow.from.sends());
    if !direction.changes.is_empty() {
        return None;
    }
    match &direction.delay {
        None => Some(Duration::ZERO),
        Some(DelayConfig::Distribution(delay)) => match delay.shape {
            Shape::Fixed(span) => Some(span + delay.plus),
            _ => None,
        },
        Some(_) => None,
    }
}
