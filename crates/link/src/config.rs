//! Configuration of a path: the tables of scenarios and presets, and the checked configuration of a link.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use skybraid_units::form::text_or_table;
use skybraid_units::{Bytes, Duration, Instant, Rate, named};

use crate::access::{Access, AccessConfig};
use crate::along::{Along, AlongConfig, Factor};
use crate::conflicts;
use crate::delay::{DelayConfig, DelaySource};
use crate::distribution::Distribution;
use crate::drx::{Drx, DrxConfig};
use crate::handover::{Handover, HandoverConfig};
use crate::harq::{Harq, HarqConfig};
use crate::loss::{LossConfig, LossSource, Losses};
use crate::outage::{Change, ChangeConfig};
use crate::population::{Draw, FlightConfig, SpreadConfig};
use crate::queue::QueueConfig;
use crate::rate::{RateConfig, RateSource};
use crate::reconfiguration::{Reconfiguration, ReconfigurationConfig};
use crate::spans::{RandomSpans, RandomSpansConfig};
use crate::trace::TraceSource;

named! {
    /// A direction of a path.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Direction {
        /// From the vehicle to the ground.
        Uplink = "uplink",
        /// From the ground to the vehicle.
        Downlink = "downlink",
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Error in the configuration of a path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{key}`: {problem}")]
pub struct ConfigError {
    /// Key relative to the path's table, for example `uplink.rate`.
    pub key: String,
    /// Problem, or what was expected.
    pub problem: String,
}

/// A table of a configuration, or the word `"off"`, which disables an inherited table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch<T> {
    /// Table.
    On(T),
    /// Disabled, whatever the preset contains.
    Off,
}

impl<T> Switch<T> {
    /// The table, unless disabled.
    pub const fn on(&self) -> Option<&T> {
        match self {
            Self::On(value) => Some(value),
            Self::Off => None,
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Switch<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let off = |text: &str| match text {
            "off" => Ok(Self::Off),
            _ => Err(format!("found \"{text}\", expected a table or \"off\"")),
        };
        text_or_table(from, "a table, or \"off\"", off, |table| Ok::<_, String>(Self::On(table)))
    }
}

impl<T: Serialize> Serialize for Switch<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::On(table) => table.serialize(to),
            Self::Off => to.serialize_str("off"),
        }
    }
}

/// A table whose missing keys are taken from another table.
trait WithDefaults {
    fn with_defaults(self, base: &Self) -> Self;
}

macro_rules! with_defaults_by_key {
    ($($type:ident { $($field:ident),* })*) => {
        $(impl WithDefaults for $type {
            fn with_defaults(self, base: &Self) -> Self {
                Self { $($field: self.$field.or_else(|| base.$field.clone())),* }
            }
        })*
    };
}

with_defaults_by_key! {
    AccessConfig {
        kind, link, rules, frame, phase, label, symbol_rate, carriers, modcod, fec_frame, pilots, waveform, burst, cra,
        rbdc, vbdc, fca, request_period, scheduling_latency, es_n0, frame_loss, terminal_delay, gateway_delay,
        delay_clock, satellite_frame, ground, reorder_stack
    }
    HarqConfig { loss, round_trip, catch_up }
    HandoverConfig { interval, interruption, at_least }
    AlongConfig { ground, hour, surroundings, handover, stall, outage, rate }
    SpreadConfig { rate, delay, jitter, loss, stall, outage }
    RandomSpansConfig { interval, length, direction }
    ReconfigurationConfig { every, phase, delay_step, interruption, loss, loss_for }
    DrxConfig {
        inactivity, short_cycle, short_for, long_cycle, long_for, listen, paging_cycle, setup, ramp_from, ramp_for
    }
}

impl<T: WithDefaults + Clone> WithDefaults for Option<Switch<T>> {
    fn with_defaults(self, base: &Self) -> Self {
        match (self, base) {
            (Some(Switch::On(own)), Some(Switch::On(base))) => {
                Some(Switch::On(own.with_defaults(base)))
            }
            (Some(own), _) => Some(own),
            (None, base) => base.clone(),
        }
    }
}

/// Table of one direction of a path, in a scenario or preset. Missing keys come from the preset, else from the
/// defaults.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct DirectionConfig {
    /// Serialisation rate. Required, unless there is an access layer.
    pub rate: Option<RateConfig>,
    /// Access layer of a satellite system, in place of the rate. Default: none.
    pub access: Option<AccessConfig>,
    /// One-way propagation delay. Default: none.
    pub delay: Option<DelayConfig>,
    /// Whether packets may overtake one another. Default: false.
    pub reorder: Option<bool>,
    /// Queue limit. Default: 1000 packets.
    pub queue: Option<QueueConfig>,
    /// Packet loss. Default: none.
    pub loss: Option<Losses>,
    /// Hybrid ARQ. Default: off.
    pub harq: Option<Switch<HarqConfig>>,
    /// Bytes added to each packet for serialisation. Default: none.
    pub overhead: Option<Bytes>,
    /// Scripted changes, from a scenario's events. Not part of the table.
    #[serde(skip)]
    pub changes: Vec<(Instant, ChangeConfig)>,
}

impl WithDefaults for DirectionConfig {
    fn with_defaults(self, base: &Self) -> Self {
        // A rate replaces an inherited access layer, and an access layer an inherited rate.
        let access = match (self.access, &base.access) {
            (Some(own), Some(base)) => Some(own.with_defaults(base)),
            (None, Some(base)) if self.rate.is_none() => Some(base.clone()),
            (own, _) => own,
        };
        let rate = if access.is_some() { None } else { base.rate.clone() };
        Self {
            rate: self.rate.or(rate),
            access,
            delay: self.delay.or_else(|| base.delay.clone()),
            reorder: self.reorder.or(base.reorder),
            queue: self.queue.or(base.queue),
            loss: self.loss.or_else(|| base.loss.clone()),
            harq: self.harq.with_defaults(&base.harq),
            overhead: self.overhead.or(base.overhead),
            changes: if self.changes.is_empty() { base.changes.clone() } else { self.changes },
        }
    }
}

/// Table of a path, in a scenario or preset. Missing keys come from the preset, else from the defaults.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct PathConfig {
    /// Name of the preset for missing keys; see [`presets`](crate::presets).
    pub preset: Option<String>,
    /// Maximum packet size. Default: 1500 B.
    pub mtu: Option<Bytes>,
    /// Cost for schedulers that prefer cheap paths. Default: 1.
    pub cost: Option<u32>,
    /// Whether the path is used only if the others fail. Default: false.
    pub backup: Option<bool>,
    /// Priority of an MP-DCCP subflow (RFC 9897 §3.2.9): 0 never, 1 standby, 2 secondary, 3 to 15 primary, of which
    /// larger is preferred. Default: 3.
    pub priority: Option<u8>,
    /// Scripted outages of both directions (start, length).
    pub down: Option<Vec<(Duration, Duration)>>,
    /// Halts of both directions, from orbits or cells (start, length). Not part of the table.
    #[serde(skip)]
    pub halts: Vec<(Instant, Duration)>,
    /// Direction from the vehicle to the ground.
    pub uplink: DirectionConfig,
    /// Direction from the ground to the vehicle.
    pub downlink: DirectionConfig,
    /// Discontinuous reception. Default: off.
    pub drx: Option<Switch<DrxConfig>>,
    /// Handovers. Default: off.
    pub handover: Option<Switch<HandoverConfig>>,
    /// Stalls: nothing is sent, the queue is kept. Default: off.
    pub stall: Option<Switch<RandomSpansConfig>>,
    /// Random outages of both directions, which lose what waits. Default: off.
    pub outage: Option<Switch<RandomSpansConfig>>,
    /// Satellite reconfiguration. Default: off.
    pub reconfiguration: Option<Switch<ReconfigurationConfig>>,
    /// Factors along a route. Default: none.
    pub along: Option<AlongConfig>,
    /// What these amount to on the run's route. Not part of the table.
    #[serde(skip)]
    pub factors: Along,
    /// Flights of a family, from the worst to the best; a run draws one of them. Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flight: Vec<FlightConfig>,
    /// Factors of a run on its flight. Default: none.
    pub spread: Option<SpreadConfig>,
    /// Choice of the flight. Default: random.
    pub draw: Option<Draw>,
}

/// Configuration of one direction of a path, checked, for [`Link::new`](crate::Link::new).
#[derive(Clone, Debug, PartialEq)]
pub struct LinkConfig {
    /// Maximum packet size.
    pub mtu: Bytes,
    /// Serialisation rate; zero with an access layer.
    pub rate: RateSource,
    /// Access layer, in place of the rate.
    pub access: Option<Access>,
    /// Bytes added to each packet for serialisation.
    pub overhead: Bytes,
    /// Queue limit.
    pub queue: QueueConfig,
    /// One-way propagation delay.
    pub delay: DelaySource,
    /// Whether packets may overtake one another.
    pub reorder: bool,
    /// Loss models; the first that loses a packet sets the cause.
    pub losses: Vec<LossSource>,
    /// Hybrid ARQ.
    pub harq: Option<Harq>,
    /// Discontinuous reception.
    pub drx: Option<Drx>,
    /// Handovers.
    pub handover: Option<Handover>,
    /// Stalls.
    pub stall: Option<RandomSpans>,
    /// Random outages.
    pub outage: Option<RandomSpans>,
    /// Satellite reconfiguration.
    pub reconfiguration: Option<Reconfiguration>,
    /// Scripted outages (start, length).
    pub down: Vec<(Instant, Duration)>,
    /// Scripted halts (start, length), during which nothing is sent and the queue is kept.
    pub halts: Vec<(Instant, Duration)>,
    /// Scripted changes; each holds until the next change of its kind.
    pub changes: Vec<(Instant, Change)>,
}

impl LinkConfig {
    /// Returns a link of this rate and delay without any effect: an MTU of 1500 bytes, a queue of 1000 packets.
    pub fn plain(rate: RateSource, delay: Duration) -> Self {
        Self {
            mtu: Bytes::new(1500),
            rate,
            access: None,
            overhead: Bytes::ZERO,
            queue: QueueConfig::default(),
            delay: DelaySource::Distribution(Distribution::fixed(delay)),
            reorder: false,
            losses: Vec::new(),
            harq: None,
            drx: None,
            handover: None,
            stall: None,
            outage: None,
            reconfiguration: None,
            down: Vec::new(),
            halts: Vec::new(),
            changes: Vec::new(),
        }
    }
}

impl PathConfig {
    /// Returns this path with its missing keys taken from `base`, also those inside `uplink`, `downlink`,
    /// `harq`, `drx`, `handover`, `stall`, `outage`, `reconfiguration` and `along`. Values below these are replaced as
    /// a whole.
    #[must_use]
    pub fn with_defaults(self, base: &Self) -> Self {
        let flight = match self.flight.is_empty() {
            true => base.flight.iter().map(|flight| flight.overridden_by(&self)).collect(),
            false => self.flight.clone(),
        };
        let spread = match (self.spread, &base.spread) {
            (Some(own), Some(base)) => Some(own.with_defaults(base)),
            (own, base) => own.or(*base),
        };
        let along = match (self.along, &base.along) {
            (Some(own), Some(base)) => Some(own.with_defaults(base)),
            (own, base) => own.or_else(|| base.clone()),
        };
        Self {
            flight,
            spread,
            along,
            factors: self.factors,
            draw: self.draw.or(base.draw),
            preset: self.preset.or_else(|| base.preset.clone()),
            mtu: self.mtu.or(base.mtu),
            cost: self.cost.or(base.cost),
            backup: self.backup.or(base.backup),
            priority: self.priority.or(base.priority),
            down: self.down.or_else(|| base.down.clone()),
            halts: if self.halts.is_empty() { base.halts.clone() } else { self.halts },
            uplink: self.uplink.with_defaults(&base.uplink),
            downlink: self.downlink.with_defaults(&base.downlink),
            drx: self.drx.with_defaults(&base.drx),
            handover: self.handover.with_defaults(&base.handover),
            stall: self.stall.with_defaults(&base.stall),
            outage: self.outage.with_defaults(&base.outage),
            reconfiguration: self.reconfiguration.with_defaults(&base.reconfiguration),
        }
    }

    /// Table of one direction.
    pub const fn direction(&self, direction: Direction) -> &DirectionConfig {
        match direction {
            Direction::Uplink => &self.uplink,
            Direction::Downlink => &self.downlink,
        }
    }

    /// Mutable table of one direction.
    pub const fn direction_mut(&mut self, direction: Direction) -> &mut DirectionConfig {
        match direction {
            Direction::Uplink => &mut self.uplink,
            Direction::Downlink => &mut self.downlink,
        }
    }

    /// Tables of both directions, and of both directions of each flight, with the number of the flight.
    pub fn directions_mut(
        &mut self,
    ) -> impl Iterator<Item = (Option<usize>, Direction, &mut DirectionConfig)> {
        let both = |flight, uplink, downlink| {
            [(flight, Direction::Uplink, uplink), (flight, Direction::Downlink, downlink)]
        };
        let flights = self.flight.iter_mut().enumerate();
        let flights = flights.flat_map(move |(number, flight)| {
            both(Some(number), &mut flight.uplink, &mut flight.downlink)
        });
        both(None, &mut self.uplink, &mut self.downlink).into_iter().chain(flights)
    }

    /// Trace files of the path, which the caller must [load](TraceSource::load).
    pub fn traces_mut(&mut self) -> Vec<&mut TraceSource> {
        let mut found = Vec::new();
        for (_, _, direction) in self.directions_mut() {
            found.extend(direction.rate.as_mut().and_then(trace_of_rate));
            let access = direction.access.iter_mut().flat_map(AccessConfig::traces_mut);
            found.extend(access.map(|(_, source)| source));
            found.extend(direction.delay.as_mut().and_then(trace_of_delay));
            found.extend(direction.loss.iter_mut().flat_map(traces_of_losses));
            for (_, change) in &mut direction.changes {
                match change {
                    ChangeConfig::Rate(rate) => found.extend(trace_of_rate(rate)),
                    ChangeConfig::Delay(delay) => found.extend(trace_of_delay(delay)),
                    ChangeConfig::Loss(losses) => found.extend(traces_of_losses(losses)),
                }
            }
        }
        found
    }

    /// Returns the checked configuration of one direction, of the median flight in a family. The preset must have been
    /// applied by [`with_defaults`](Self::with_defaults), and traces loaded.
    ///
    /// # Errors
    /// Key that is missing, out of range or in conflict with another.
    pub fn link(&self, direction: Direction) -> Result<LinkConfig, ConfigError> {
        if let Some(median) =
            Draw::Median.fixed(self.flight.len()).filter(|_| !self.flight.is_empty())
        {
            return self.of_flight(median).link(direction);
        }
        let at = |key: &str| format!("{direction}.{key}");
        let wrong = |key: String| move |problem: String| ConfigError { key, problem };
        let own = self.direction(direction);

        let mtu = self.mtu.unwrap_or(Bytes::new(1500));
        if mtu == Bytes::ZERO {
            return Err(wrong("mtu".into())("expected a size above zero".into()));
        }
        let resolve = |access: &AccessConfig| access.resolve(direction);
        let access = resolved(&at("access"), own.access.as_ref(), resolve)?;
        let rate = self.rate_source(direction, access.is_some()).map_err(wrong(at("rate")))?;
        let delay = own.delay.clone();
        let delay = delay
            .unwrap_or(DelayConfig::Distribution(Distribution::fixed(Duration::ZERO)))
            .resolve()
            .map_err(wrong(at("delay")))?;
        let queue = own.queue.unwrap_or_default();
        queue.check().map_err(wrong(at("queue")))?;
        let losses = own.loss.iter().flat_map(|Losses(losses)| losses).map(LossConfig::resolve);
        let losses = losses.collect::<Result<_, _>>().map_err(wrong(at("loss")))?;
        let drx = resolved("drx", on(&self.drx), DrxConfig::resolve)?;
        let handover = resolved("handover", on(&self.handover), HandoverConfig::resolve)?;
        let spans = |name: &str, table, factor: &Factor| {
            let resolve = |spans: &RandomSpansConfig| spans.resolve(direction);
            let spans = resolved(name, on(table), resolve)?.flatten();
            Ok(spans.map(|spans| RandomSpans { factor: factor.clone(), ..spans }))
        };
        let down = self.down.iter().flatten();
        let changes = own.changes.iter();

        let link = LinkConfig {
            mtu,
            rate,
            access,
            overhead: own.overhead.unwrap_or(Bytes::ZERO),
            queue,
            delay,
            reorder: own.reorder.unwrap_or(false),
            losses,
            harq: resolved(&at("harq"), on(&own.harq), HarqConfig::resolve)?,
            drx: drx.map(|drx| match direction {
                Direction::Uplink => Drx { paging_cycle: Duration::ZERO, ..drx },
                Direction::Downlink => drx,
            }),
            handover: handover
                .map(|handover| Handover { factor: self.factors.handover.clone(), ..handover }),
            stall: spans("stall", &self.stall, &self.factors.stall)?,
            outage: spans("outage", &self.outage, &self.factors.outage)?,
            reconfiguration: resolved(
                "reconfiguration",
                on(&self.reconfiguration),
                ReconfigurationConfig::resolve,
            )?,
            down: down.map(|(from, length)| (Instant::ZERO + *from, *length)).collect(),
            halts: self.halts.clone(),
            changes: changes
                .map(|(from, change)| Ok((*from, change.resolve()?)))
                .collect::<Result<_, _>>()
                .map_err(in_table(direction.name()))?,
        };
        conflicts::check(self, direction, &link)?;
        Ok(link)
    }

    /// Returns the rate of one direction; zero with an access layer, which has its own capacity.
    fn rate_source(&self, direction: Direction, access: bool) -> Result<RateSource, String> {
        match (&self.direction(direction).rate, access) {
            (Some(_), true) => Err("`rate` and `access` exclude one another".into()),
            (Some(rate), false) => rate.resolve()?.along(&self.factors.rate),
            (None, true) => Ok(RateSource::Constant(Rate::ZERO)),
            (None, false) => Err("expected a rate, for example \"10Mbit/s\", or a preset".into()),
        }
    }
}

/// Returns the table of an effect that is on.
fn on<T>(table: &Option<Switch<T>>) -> Option<&T> {
    table.as_ref().and_then(Switch::on)
}

/// Resolves the table `name` if it is given.
fn resolved<C, T, K: fmt::Display>(
    name: &str,
    table: Option<&C>,
    resolve: impl FnOnce(&C) -> Result<T, (K, String)>,
) -> Result<Option<T>, ConfigError> {
    table.map(resolve).transpose().map_err(in_table(name))
}

/// Returns the error of a key in the table `name`.
fn in_table<K: fmt::Display>(name: &str) -> impl FnOnce((K, String)) -> ConfigError + '_ {
    move |(key, problem)| ConfigError { key: format!("{name}.{key}"), problem }
}

const fn trace_of_rate(rate: &mut RateConfig) -> Option<&mut TraceSource> {
    match rate {
        RateConfig::Trace(source) => Some(source),
        RateConfig::Constant(_) | RateConfig::Steps(_) | RateConfig::Process(..) => None,
    }
}

const fn trace_of_delay(delay: &mut DelayConfig) -> Option<&mut TraceSource> {
    match delay {
        DelayConfig::Trace(source) => Some(source),
        DelayConfig::Distribution(_) | DelayConfig::Steps(_) | DelayConfig::Process(..) => None,
    }
}

fn traces_of_losses(losses: &mut Losses) -> impl Iterator<Item = &mut TraceSource> {
    losses.0.iter_mut().filter_map(|loss| match loss {
        LossConfig::Trace(source) => Some(source),
        _ => None,
    })
}
