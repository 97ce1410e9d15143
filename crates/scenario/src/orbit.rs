//! Satellites of a link: service over time, and its effect on the link.

use std::path::Path as FilePath;
use std::sync::Arc;

use serde::Deserialize;
use skybraid_link::access::Attenuation;
use skybraid_link::{DelaySource, LinkConfig, LossSource, Series};
use skybraid_orbit::{InvalidKey, OrbitConfig, Service};
use skybraid_track::Track;
use skybraid_units::{Duration, Instant};

use crate::ScenarioError;
use crate::cells::Place;
use crate::inputs::Inputs;
use crate::key::KeyPath;
use crate::text::ScenarioText;

/// Satellites of a link, and their service over the run.
#[derive(Clone, Debug, PartialEq)]
pub struct Orbit {
    /// Configuration with its element sets loaded.
    pub config: OrbitConfig,
    /// Track of the terminal.
    pub terminal: Track,
    /// Track of the link's other end.
    pub other: Track,
    /// Serving satellites and delays over time.
    pub service: Service,
    /// Start and length of outages by rain.
    pub rain: Vec<(Instant, Duration)>,
    /// Attenuation by rain in dB from each instant on; empty without rain.
    pub attenuation: Vec<(Instant, f64)>,
    /// Loss by elevation from each instant on; empty if none is configured.
    pub loss: Vec<(Instant, f64)>,
}

impl Orbit {
    /// Computes the service of a link between a terminal and `other` in a run of `length`.
    ///
    /// # Errors
    /// A key below `orbit` and the problem with its value.
    pub fn new(
        config: OrbitConfig,
        terminal: Track,
        other: Track,
        length: Duration,
    ) -> Result<Self, InvalidKey> {
        let service = config.serve(&terminal, &other, length)?;
        let rain = config.rain.map_or(Vec::new(), |rain| rain.outages(&service, &terminal));
        let attenuation =
            config.rain.map_or(Vec::new(), |rain| rain.attenuations(&service, &terminal));
        let loss = config.elevation_loss.as_ref();
        let loss = loss.map_or(Vec::new(), |loss| loss.steps(&service));
        Ok(Self { config, terminal, other, service, rain, attenuation, loss })
    }

    /// Applies the service to one direction of a link: the delay over time replaces that of the link, with its
    /// handovers and reconfiguration; outages are added where no satellite serves or rain interrupts the link (or rain
    /// attenuates the Es/N0 of an access layer), halts at handovers, and loss by elevation on top of the link's own.
    pub fn apply(&self, link: &mut LinkConfig) {
        let steps = self.service.delay_steps().into_iter();
        let steps: Vec<(Instant, f64)> =
            steps.map(|(at, delay)| (at, delay.as_nanos() as f64)).collect();
        let series = |steps: &[(Instant, f64)]| Series::from_samples(steps, false).ok();
        link.handover = None;
        link.reconfiguration = None;
        // Without any service there is no delay, and the link is down throughout.
        if let Some(delay) = series(&steps) {
            link.delay = DelaySource::Series(Arc::new(delay).into());
        }
        link.down.extend(self.service.gaps.iter().copied());
        // An access layer with an Es/N0 adapts its coding to the rain; other links have a margin.
        let es_n0 = link.access.as_mut().and_then(|access| access.es_n0.as_mut());
        match (es_n0, series(&self.attenuation)) {
            (Some(es_n0), Some(rain)) => {
                es_n0.attenuation = Attenuation::Series(Arc::new(rain).into())
            }
            _ => link.down.extend(self.rain.iter().copied()),
        }
        let breaks = self.service.handovers.iter().filter(|handover| handover.gap.is_positive());
        link.halts.extend(breaks.map(|handover| (handover.at, handover.gap)));
        if let Some(loss) = series(&self.loss) {
            link.losses.push(LossSource::Series(Arc::new(loss).into()));
        }
    }
}

/// Checks a configuration and reads its element sets. `key` is that of its table.
pub(crate) fn prepare(
    config: &mut OrbitConfig,
    inputs: &mut Inputs,
    text: &ScenarioText,
    key: &KeyPath,
) -> Result<(), ScenarioError> {
    config.check().map_err(|(below, problem)| text.wrong(&key.below(below), problem))?;
    let Some(file) = config.file().map(str::to_string) else { return Ok(()) };
    let key = key.key("elements");
    let read = inputs.text(&file, &key)?.to_string();
    config.load(&read).map_err(|error| {
        use skybraid_orbit::ElementsError;
        let (line, problem) = match error {
            ElementsError::Empty => (None, error.to_string()),
            ElementsError::Line { line, found, expected } => {
                (Some(line), format!("found `{found}`, expected {expected}"))
            }
        };
        inputs.wrong_file(&file, line, problem, &key)
    })
}

/// Returns the service of a link between `terminal` and `other` in a run of `length`; one already in `known` is
/// shared.
///
/// # Errors
/// A key below `orbit` and the problem with its value.
pub(crate) fn shared(
    config: &OrbitConfig,
    terminal: Option<&Track>,
    other: Option<&Track>,
    length: Duration,
    known: &mut Vec<Arc<Orbit>>,
) -> Result<Arc<Orbit>, InvalidKey> {
    let nowhere = || {
        let problem = "found an end without a place, expected `position` or `track` of both, for \
                       example in `[node.vehicle]` and `[node.ground]`";
        ("", problem.to_string())
    };
    let terminal = terminal.ok_or_else(nowhere)?;
    // If gateways and the delay from there are given, the place of the other end does not matter.
    let gateway = config.gateways.first().filter(|_| config.ground_delay.is_some());
    let gateway = gateway.map(|place| Track::fixed(*place));
    let other = other.or(gateway.as_ref()).ok_or_else(nowhere)?;
    let same = |orbit: &&Arc<Orbit>| orbit.terminal == *terminal && orbit.other == *other;
    if let Some(orbit) = known.iter().find(same) {
        return Ok(Arc::clone(orbit));
    }
    let orbit = Arc::new(Orbit::new(config.clone(), terminal.clone(), other.clone(), length)?);
    known.push(Arc::clone(&orbit));
    Ok(orbit)
}

/// A terminal without a scenario: `duration`, `[orbit]`, `[terminal]` and optionally `[other]`, the link's
/// other end.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    duration: Duration,
    orbit: OrbitConfig,
    terminal: Place,
    #[serde(default)]
    other: Place,
}

/// Reads a terminal without a scenario and computes its service. The other end is the first gateway unless
/// given. Files are relative to `file`, which is not opened itself.
///
/// # Errors
/// As for a scenario.
pub fn load_orbit(text: &str, file: &FilePath) -> Result<Orbit, ScenarioError> {
    let text = ScenarioText::parse(text, file, &[])?;
    let mut request: Request = text.read()?;
    let folder = file.parent().unwrap_or(FilePath::new("."));
    let mut inputs = Inputs::new(&text, folder, Some(request.duration));
    let top = |key: &str| KeyPath::dotted(key);
    if !request.duration.is_positive() {
        return Err(text.wrong(&top("duration"), "expected a time above zero".to_string()));
    }
    let wrong = |(key, problem): InvalidKey| text.wrong(&top("orbit").below(key), problem);
    prepare(&mut request.orbit, &mut inputs, &text, &top("orbit"))?;
    let Some(terminal) = request.terminal.track(&mut inputs, &text, &top("terminal"))? else {
        return Err(text.wrong(&top("terminal"), "expected `position` or `track`".to_string()));
    };
    let other = request.other.track(&mut inputs, &text, &top("other"))?;
    let first = || request.orbit.gateways.first().map(|place| Track::fixed(*place));
    let Some(other) = other.or_else(first) else {
        let problem = "expected at least one gateway, or the other end of the link".to_string();
        return Err(text.wrong(&top("orbit.gateways"), problem));
    };
    Orbit::new(request.orbit, terminal, other, request.duration).map_err(wrong)
}
