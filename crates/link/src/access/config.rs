//! Configuration of an access layer: the `access` table of a direction, and its checked form.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use skybraid_units::{Bytes, Duration, Frequency, Probability, Rate, expect};

use super::adaptive::{Attenuation, AttenuationConfig, Coding, EsN0, EsN0Config};
use super::capacity::Capacity;
use super::modcod::{FecFrame, MODCODS, Modcod};
use super::return_link::MIN_BURST;
use super::waveform::{WAVEFORMS, Waveform};
use crate::config::{Direction, Switch};
use crate::delay::{DelayConfig, DelaySource};
use crate::distribution::Distribution;
use crate::trace::TraceSource;

/// Kind of an access layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AccessKind {
    /// DVB-S2 forward, DVB-RCS2 return.
    Dvb,
}

/// Link of a satellite system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// From the gateway to the terminal.
    Forward,
    /// From the terminal to the gateway.
    Return,
}

/// Rules by which sizes and capacities are computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Rules {
    /// Those of the standards.
    #[default]
    Standard,
    /// Those of the emulator OpenSAND 5.2: burst payloads by modulation and code rate, frame symbols by a rounded
    /// efficiency, capacity in whole kbit per superframe, frames in UDP datagrams, each of whose IP packets can be
    /// lost.
    Opensand,
}

/// Keys of an `access` table; missing keys come from the preset, else from the defaults.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct AccessConfig {
    /// Kind of the access layer. Required.
    pub kind: Option<AccessKind>,
    /// Link of the direction. Default: return for the uplink, forward for the downlink.
    pub link: Option<Role>,
    /// Rules of sizes and capacities. Default: those of the standards.
    pub rules: Option<Rules>,
    /// Period of the forward scheduler, or length of a superframe. Required.
    pub frame: Option<Duration>,
    /// Phase of the frames and requests. Default: drawn from the seed.
    pub phase: Option<Duration>,
    /// Bytes of a label: of a GSE packet (default 6), or of a return burst (default 3).
    pub label: Option<Bytes>,
    /// Symbol rate of a carrier, as a frequency. Required forward; on the return link it limits the bursts.
    pub symbol_rate: Option<Frequency>,
    /// Number of carriers. Default: 1.
    pub carriers: Option<u32>,
    /// Forward: MODCOD, 1 to 28. Default: adaptive, by `es_n0`.
    pub modcod: Option<u8>,
    /// Forward: length of FECFRAMEs. Default: normal.
    pub fec_frame: Option<FecFrame>,
    /// Forward: whether frames have pilots. Default: false.
    pub pilots: Option<bool>,
    /// Return: waveform, 3 to 22. Default: adaptive, by `es_n0`.
    pub waveform: Option<u8>,
    /// Return: symbols of the bursts among which adaptation chooses, 536 or 1616. Default: 1616.
    pub burst: Option<u32>,
    /// Return: constant rate assignment. Default: none.
    pub cra: Option<Rate>,
    /// Return: maximum rate by rate requests. Default: none.
    pub rbdc: Option<Rate>,
    /// Return: maximum rate at which requested volume is granted. Default: none.
    pub vbdc: Option<Rate>,
    /// Return: free capacity. Default: none.
    pub fca: Option<Rate>,
    /// Return: time between requests. Required for `rbdc` and `vbdc`.
    pub request_period: Option<Duration>,
    /// Return: time from a request to the first superframe that it affects. Required for `rbdc` and `vbdc`.
    pub scheduling_latency: Option<Duration>,
    /// Es/N0, for adaptive coding and for losses below the threshold of a coding. Default: off.
    pub es_n0: Option<Switch<EsN0Config>>,
    /// Loss of a frame or burst; with OpenSAND's rules of each IP packet that carries it. Default: 0 %.
    pub frame_loss: Option<Probability>,
    /// Delay between terminal and satellite. Default: none.
    pub terminal_delay: Option<DelayConfig>,
    /// Delay between gateway and satellite. Default: none.
    pub gateway_delay: Option<DelayConfig>,
    /// Timer with which the delay queues are looked at. Default: none.
    pub delay_clock: Option<Duration>,
    /// Timer with which the satellite forwards. Default: none.
    pub satellite_frame: Option<Duration>,
    /// Delay on the ground, behind the gateway. Default: none.
    pub ground: Option<Duration>,
    /// Maximum number of frames that wait at the receiver for a missing one, without a timer. Default: none wait.
    pub reorder_stack: Option<u32>,
}

/// Access layer of one direction, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Access {
    /// Rules of sizes and capacities.
    pub rules: Rules,
    /// Period of the forward scheduler, or length of a superframe.
    pub frame: Duration,
    /// Phase of the frames and requests, unless drawn.
    pub phase: Option<Duration>,
    /// Bytes of a label.
    pub label: Bytes,
    /// Configuration specific to the direction.
    pub carrier: Carrier,
    /// Es/N0, if it matters.
    pub es_n0: Option<EsN0>,
    /// Loss of a frame, burst or IP packet.
    pub frame_loss: Probability,
    /// Way of the frames.
    pub way: Way,
    /// Maximum number of frames that wait at the receiver for a missing one.
    pub reorder_stack: Option<u32>,
}

/// Carriers of a link, checked.
#[derive(Clone, Debug, PartialEq)]
pub enum Carrier {
    /// Forward link.
    Forward {
        /// MODCOD, unless adaptive.
        modcod: Option<u8>,
        /// Length of FECFRAMEs.
        fec_frame: FecFrame,
        /// Whether frames have pilots.
        pilots: bool,
        /// Symbols of all carriers per period.
        symbols: u64,
    },
    /// Return link.
    Return {
        /// Waveform, unless adaptive.
        waveform: Option<u8>,
        /// Symbols of a burst, for adaptation.
        burst: u32,
        /// Capacity by category.
        capacity: Capacity,
        /// Symbols of all carriers per superframe, if they are limited.
        symbols: Option<u64>,
    },
}

/// Way of a frame to the other end, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Way {
    /// Delay to the satellite.
    pub first: DelaySource,
    /// Delay from the satellite.
    pub second: DelaySource,
    /// Timer of the delay queues.
    pub clock: Option<Duration>,
    /// Timer of the satellite.
    pub satellite_frame: Option<Duration>,
    /// Delay on the ground before the frames.
    pub ground_before: Duration,
    /// Delay on the ground after the frames.
    pub ground_after: Duration,
}

type Problem = (&'static str, String);

/// Bounds of a period: shorter ones make runs slow, longer ones are mistakes.
const PERIODS: (Duration, Duration) = (Duration::from_micros(100), Duration::from_secs(3600));

/// Maximum of a reorder stack, half of a sequence number of eight bits.
const MAX_STACK: u32 = 127;

fn period(key: &'static str, value: Duration) -> Result<Duration, Problem> {
    let (min, max) = PERIODS;
    if (min..=max).contains(&value) {
        Ok(value)
    } else {
        Err((key, format!("found {value}, expected {min} to {max}")))
    }
}

fn optional_period(
    key: &'static str,
    value: Option<Duration>,
) -> Result<Option<Duration>, Problem> {
    value.map(|value| period(key, value)).transpose()
}

fn not_negative(key: &'static str, value: Option<Duration>) -> Result<Duration, Problem> {
    let value = value.unwrap_or(Duration::ZERO);
    if value >= Duration::ZERO {
        Ok(value)
    } else {
        Err((key, "expected a time that is not negative".to_string()))
    }
}

impl AccessConfig {
    /// Trace files of the table, each with its key.
    pub fn traces_mut(&mut self) -> impl Iterator<Item = (&'static str, &mut TraceSource)> {
        let delays = [
            ("terminal_delay", self.terminal_delay.as_mut()),
            ("gateway_delay", self.gateway_delay.as_mut()),
        ];
        let delays = delays.into_iter().filter_map(|(key, delay)| match delay {
            Some(DelayConfig::Trace(source)) => Some((key, source)),
            _ => None,
        });
        let attenuation = match &mut self.es_n0 {
            Some(Switch::On(es_n0)) => es_n0.attenuation.as_mut(),
            _ => None,
        };
        delays.chain(attenuation.and_then(|attenuation| match attenuation {
            AttenuationConfig::Trace(source) => Some(("es_n0.attenuation", source)),
            _ => None,
        }))
    }

    /// Returns the checked access layer of `direction`, or the key at fault.
    pub(crate) fn resolve(&self, direction: Direction) -> Result<Access, Problem> {
        expect(self.kind.is_some(), "kind", "\"dvb\"")?;
        let role = self.link.unwrap_or(match direction {
            Direction::Uplink => Role::Return,
            Direction::Downlink => Role::Forward,
        });
        self.check_role(role)?;
        let required = ("frame", "expected a time, for example \"10ms\"".to_string());
        let frame = period("frame", self.frame.ok_or(required)?)?;
        let es_n0 = self.es_n0.as_ref().and_then(Switch::on);
        let es_n0 = es_n0.map(EsN0Config::resolve).transpose()?;
        let default_label = match role {
            Role::Forward => Bytes::new(6),
            Role::Return => Bytes::new(3),
        };
        let label = self.label.unwrap_or(default_label);
        if label.get() > 12 {
            return Err(("label", format!("found {label}, expected at most 12B")));
        }
        let access = Access {
            rules: self.rules.unwrap_or_default(),
            frame,
            phase: self.phase.map(|phase| not_negative("phase", Some(phase))).transpose()?,
            label,
            carrier: match role {
                Role::Forward => self.forward(frame)?,
                Role::Return => self.return_link(frame)?,
            },
            es_n0,
            frame_loss: self.frame_loss.unwrap_or_default(),
            way: self.way(role)?,
            reorder_stack: self.stack()?,
        };
        access.check_codings()?;
        Ok(access)
    }

    fn stack(&self) -> Result<Option<u32>, Problem> {
        match self.reorder_stack {
            Some(max) if !(1..=MAX_STACK).contains(&max) => {
                Err(("reorder_stack", format!("found {max}, expected 1 to {MAX_STACK}")))
            }
            stack => Ok(stack),
        }
    }

    /// Returns an error for a key of the other link.
    fn check_role(&self, role: Role) -> Result<(), Problem> {
        let forward = [
            ("modcod", self.modcod.is_some()),
            ("fec_frame", self.fec_frame.is_some()),
            ("pilots", self.pilots.is_some()),
        ];
        let back = [
            ("waveform", self.waveform.is_some()),
            ("burst", self.burst.is_some()),
            ("cra", self.cra.is_some()),
            ("rbdc", self.rbdc.is_some()),
            ("vbdc", self.vbdc.is_some()),
            ("fca", self.fca.is_some()),
            ("request_period", self.request_period.is_some()),
            ("scheduling_latency", self.scheduling_latency.is_some()),
        ];
        let (others, name): (&[(&'static str, bool)], _) = match role {
            Role::Forward => (&back, "return"),
            Role::Return => (&forward, "forward"),
        };
        match others.iter().find(|(_, given)| *given) {
            Some((key, _)) => Err((*key, format!("expected on a {name} link only"))),
            None => Ok(()),
        }
    }

    /// Symbols of all carriers in a frame.
    fn symbols(&self, frame: Duration) -> Result<Option<u64>, Problem> {
        let Some(rate) = self.symbol_rate else { return Ok(None) };
        let carriers = self.carriers.unwrap_or(1);
        expect(carriers > 0, "carriers", "at least 1")?;
        // A millionth of a symbol more, so that a whole number does not come out below itself.
        let symbols = rate.as_hertz() * f64::from(carriers) * frame.as_secs_f64() + 1e-6;
        if !(1.0..1e12).contains(&symbols) {
            return Err((
                "symbol_rate",
                format!("found {rate}, expected at least a symbol per frame"),
            ));
        }
        Ok(Some(symbols as u64))
    }

    fn forward(&self, frame: Duration) -> Result<Carrier, Problem> {
        expect(self.modcod.is_none_or(|id| Modcod::find(id).is_some()), "modcod", "1 to 28")?;
        let required = ("symbol_rate", "expected a symbol rate, for example \"30MHz\"".to_string());
        Ok(Carrier::Forward {
            modcod: self.modcod,
            fec_frame: self.fec_frame.unwrap_or_default(),
            pilots: self.pilots.unwrap_or(false),
            symbols: self.symbols(frame)?.ok_or(required)?,
        })
    }

    fn return_link(&self, frame: Duration) -> Result<Carrier, Problem> {
        expect(self.waveform.is_none_or(|id| Waveform::find(id).is_some()), "waveform", "3 to 22")?;
        let burst = self.burst.unwrap_or(1616);
        if ![536, 1616].contains(&burst) {
            return Err(("burst", format!("found {burst}, expected 536 or 1616 symbols")));
        }
        let rate = |rate: Option<Rate>| rate.unwrap_or(Rate::ZERO);
        let mut capacity = Capacity {
            cra: rate(self.cra),
            rbdc: rate(self.rbdc),
            vbdc: rate(self.vbdc),
            fca: rate(self.fca),
            ..Capacity::default()
        };
        if capacity.max_rate() == Rate::ZERO {
            let expected = "expected a rate here, or for `rbdc`, `vbdc` or `fca`".to_string();
            return Err(("cra", expected));
        }
        if capacity.is_requested() {
            let expected = "expected a time, for example \"1s\"".to_string();
            let missing = |key| (key, expected.clone());
            let every = self.request_period.ok_or_else(|| missing("request_period"))?;
            capacity.period = period("request_period", every)?;
            let latency = self.scheduling_latency.ok_or_else(|| missing("scheduling_latency"))?;
            capacity.latency = not_negative("scheduling_latency", Some(latency))?;
        }
        Ok(Carrier::Return {
            waveform: self.waveform,
            burst,
            capacity,
            symbols: self.symbols(frame)?,
        })
    }

    fn way(&self, role: Role) -> Result<Way, Problem> {
        let delay = |key, config: &Option<DelayConfig>| {
            let none = DelayConfig::Distribution(Distribution::fixed(Duration::ZERO));
            let source = config.as_ref().unwrap_or(&none).resolve();
            match source.map_err(|problem| (key, problem))? {
                DelaySource::Distribution(drawn) if drawn.constant().is_none() => {
                    Err((key, "expected a fixed time, steps or a trace".to_string()))
                }
                source => Ok(source),
            }
        };
        let terminal = delay("terminal_delay", &self.terminal_delay)?;
        let gateway = delay("gateway_delay", &self.gateway_delay)?;
        let ground = not_negative("ground", self.ground)?;
        let (first, second, ground_before, ground_after) = match role {
            Role::Forward => (gateway, terminal, ground, Duration::ZERO),
            Role::Return => (terminal, gateway, Duration::ZERO, ground),
        };
        Ok(Way {
            first,
            second,
            clock: optional_period("delay_clock", self.delay_clock)?,
            satellite_frame: optional_period("satellite_frame", self.satellite_frame)?,
            ground_before,
            ground_after,
        })
    }
}

impl Access {
    /// Returns an error if there is no coding, or one carries too little.
    fn check_codings(&self) -> Result<(), Problem> {
        let codings = self.codings();
        let key = match self.carrier {
            Carrier::Forward { .. } => "modcod",
            Carrier::Return { .. } => "waveform",
        };
        let fixed = codings.len() == 1;
        expect(!codings.is_empty(), key, "one that has short frames")?;
        expect(fixed || self.es_n0.is_some(), key, "a number, or `es_n0` for adaptive coding")?;
        let min = self.label.get() + MIN_BURST.max(16);
        expect(
            codings.iter().all(|coding| coding.payload >= min),
            "label",
            "less than the payload of a burst",
        )?;
        if let Carrier::Return { symbols: Some(symbols), .. } = self.carrier
            && codings.iter().any(|coding| coding.symbols > symbols)
        {
            return Err(("symbol_rate", "expected at least a burst per superframe".to_string()));
        }
        Ok(())
    }

    /// Codings of the direction, by the rules.
    pub(crate) fn codings(&self) -> Vec<Coding> {
        match &self.carrier {
            Carrier::Forward { modcod, fec_frame, pilots, .. } => {
                let chosen = MODCODS.iter().filter(|each| modcod.is_none_or(|id| id == each.id));
                chosen.filter_map(|each| self.of_modcod(each, *fec_frame, *pilots)).collect()
            }
            Carrier::Return { waveform, burst, .. } => {
                let chosen = WAVEFORMS.iter().filter(|each| match waveform {
                    Some(id) => *id == each.id,
                    None => each.symbols == *burst,
                });
                chosen.map(|each| self.of_waveform(each)).collect()
            }
        }
    }

    fn of_modcod(&self, modcod: &Modcod, frame: FecFrame, pilots: bool) -> Option<Coding> {
        let bits = modcod.k_bch(frame)?;
        let (payload, symbols) = match self.rules {
            Rules::Standard => (modcod.data_field(frame)?, modcod.symbols(frame, pilots)),
            Rules::Opensand => {
                // The whole of the frame but a header of 6 bytes; symbols by the efficiency with two decimals.
                let hundredths = libm::round(modcod.efficiency() * 100.0) as u32;
                (bits / 8 - 6, bits * 100 / hundredths.max(1))
            }
        };
        Some(Coding {
            payload: payload.into(),
            symbols: symbols.into(),
            coded_bits: frame.bits().into(),
            rate: (modcod.rate.0.into(), modcod.rate.1.into()),
            threshold: modcod.threshold(frame),
        })
    }

    fn of_waveform(&self, waveform: &Waveform) -> Coding {
        let (part, of) = waveform.rate;
        let payload = match self.rules {
            Rules::Standard => waveform.payload,
            Rules::Opensand => (waveform.coded_bits() * part).div_ceil(of) / 8,
        };
        Coding {
            payload: payload.into(),
            symbols: waveform.symbols.into(),
            coded_bits: waveform.coded_bits().into(),
            rate: (part.into(), of.into()),
            threshold: waveform.es_n0,
        }
    }

    /// Whether the fate of a packet may depend on the seed.
    pub(crate) fn is_random(&self) -> bool {
        let drawn = |delay: &DelaySource| match delay {
            DelaySource::Series(replay) => replay.is_random(),
            DelaySource::Distribution(_) => false,
            DelaySource::Process(_) => true,
        };
        let attenuation = self.es_n0.as_ref().is_some_and(|es_n0| match &es_n0.attenuation {
            Attenuation::Series(replay) => replay.is_random(),
            Attenuation::Constant(_) => false,
        });
        self.phase.is_none()
            || self.frame_loss > Probability::ZERO
            || self.way.clock.is_some()
            || self.way.satellite_frame.is_some()
            || drawn(&self.way.first)
            || drawn(&self.way.second)
            || attenuation
    }
}
