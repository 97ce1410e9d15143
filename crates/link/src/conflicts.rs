//! Keys of a path that exclude one another.

use alloc::format;
use alloc::string::String;

use skybraid_units::Bytes;

use crate::config::{ConfigError, Direction, LinkConfig, PathConfig, Switch};
use crate::outage::ChangeConfig;
use crate::queue::QueueConfig;
use crate::rate::RateSource;

/// Maximum size of a packet that is cut into frames: that of IP.
const MAX_MTU_OF_FRAMES: Bytes = Bytes::new(65_535);

/// Checks the keys of one direction, which `link` was built from, against one another.
///
/// # Errors
/// The first key in conflict with another.
pub(crate) fn check(
    path: &PathConfig,
    direction: Direction,
    link: &LinkConfig,
) -> Result<(), ConfigError> {
    if let Some(problem) = of_delay_line(link) {
        return Err(ConfigError { key: format!("{direction}.queue"), problem });
    }
    if link.access.is_none() {
        return Ok(());
    }
    if link.mtu > MAX_MTU_OF_FRAMES {
        let mtu = link.mtu;
        let problem = format!("found {mtu}, expected at most {MAX_MTU_OF_FRAMES} with `access`");
        return Err(ConfigError { key: "mtu".into(), problem });
    }
    match of_access(path, direction, link) {
        Some((key, problem)) => Err(ConfigError { key: format!("{direction}.{key}"), problem }),
        None => Ok(()),
    }
}

/// Returns what excludes a delay line on this link.
fn of_delay_line(link: &LinkConfig) -> Option<String> {
    let holds_delay = matches!(link.queue, QueueConfig::DelayLine(_));
    let others = [
        ("access", link.access.is_some()),
        ("opportunities", matches!(link.rate, RateSource::Opportunities(_))),
        ("reconfiguration", link.reconfiguration.is_some()),
    ];
    let (other, _) = others.iter().find(|(_, given)| holds_delay && *given)?;
    Some(format!("`holds_delay` and `{other}` exclude one another"))
}

/// Returns what excludes the access layer of this link, by the key in its direction.
fn of_access(
    path: &PathConfig,
    direction: Direction,
    link: &LinkConfig,
) -> Option<(&'static str, String)> {
    if matches!(link.queue, QueueConfig::Codel(_)) {
        return Some(("queue", "expected a drop-tail queue with `access`".into()));
    }
    let own = path.direction(direction);
    let stacked = own.access.as_ref().is_some_and(|access| access.reorder_stack.is_some());
    let behind = [
        ("delay", own.delay.is_some()),
        ("harq", own.harq.as_ref().and_then(Switch::on).is_some()),
        ("reorder", link.reorder),
    ];
    if let Some((key, _)) = behind.iter().find(|(_, given)| stacked && *given) {
        let problem = format!("`reorder_stack` and `{key}` exclude one another");
        return Some(("access.reorder_stack", problem));
    }
    let sets_rate = own.changes.iter().any(|(_, change)| matches!(change, ChangeConfig::Rate(_)));
    sets_rate.then(|| ("rate", "an event sets it, which a link with `access` does not take".into()))
}
