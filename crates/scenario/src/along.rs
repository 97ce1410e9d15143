//! `along` of a path: factors on its processes along the route of the node that moves.

use skybraid_link::{ConfigError, Direction, Moment, PathConfig};
use skybraid_track::Track;
use skybraid_units::{Duration, Length, Speed};

/// A key of the path and what is wrong with its value.
type InvalidKey = (String, String);

/// Time between two looks at the position.
const EVERY: Duration = Duration::from_secs(1);

/// Sets the factors of a path whose table `along` the scenario (not just its preset) has.
///
/// # Errors
/// A key that needs what the scenario does not say, or whose value is invalid.
pub(crate) fn apply(
    config: &mut PathConfig,
    terminal: Option<&Track>,
    length: Duration,
) -> Result<(), InvalidKey> {
    let Some(along) = config.along.clone() else { return Ok(()) };
    if let Some((key, needed)) = along.missing(terminal.is_some()) {
        return Err((format!("along.{key}"), format!("expected {needed} too")));
    }
    let factors = along.factors(&route(terminal, length));
    config.factors = factors.map_err(|(key, problem)| (format!("along.{key}"), problem))?;
    // A rate that is a trace takes no factor.
    for direction in Direction::ALL {
        config.link(direction).map_err(|ConfigError { key, problem }| (key, problem))?;
    }
    config.population().map_err(|ConfigError { key, problem }| (key, problem))?;
    Ok(())
}

/// Returns altitude and speed in each second of a run.
fn route(terminal: Option<&Track>, length: Duration) -> Vec<Moment> {
    let seconds = length.as_nanos().div_euclid(EVERY.as_nanos()) + 1;
    let moment = |second: i64| {
        let at = EVERY * second;
        let Some(track) = terminal else { return Moment { at, ..Moment::default() } };
        let (here, next) = (track.at(at), track.at(at + EVERY));
        let climb = next.altitude() - here.altitude();
        let metres = here.distance(next).hypot(climb);
        Moment {
            at,
            altitude: Some(Length::from_metres(here.altitude())),
            speed: Some(Speed::from_metres_per_second(metres / EVERY.as_secs_f64())),
        }
    };
    (0..seconds).map(moment).collect()
}
