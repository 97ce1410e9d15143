//! Discontinuous reception: an LTE radio that has nothing to do listens only now and then, and after
//! long silence has to set up its connection again.
//!
//! Follows the LTE emulator of MoonGen (`lte-emulator.lua`). The radio has four states, entered by the
//! time since its last activity in either direction: continuous reception, short DRX, long DRX and
//! RRC idle. A cycle begins with its sleep; the listening window is its last part. A packet that
//! arrives during sleep waits for the window. In RRC idle the downlink waits for the paging window and
//! both directions wait for the connection, after which the rate ramps up.

use alloc::string::{String, ToString};

use serde::{Deserialize, Serialize};
use skybraid_units::{Duration, Instant, Rate};

/// Keys of a `drx` table; what is absent comes from the preset or from the default. The defaults are
/// those of Chavali 2022, section 4 (see `presets/lte-aerial.toml`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct DrxConfig {
    /// Silence after which short DRX begins; 200 ms unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inactivity: Option<Duration>,
    /// Cycle in short DRX; 6 ms unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub short_cycle: Option<Duration>,
    /// How long short DRX lasts; 2298 ms unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub short_for: Option<Duration>,
    /// Cycle in long DRX; 12 ms unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub long_cycle: Option<Duration>,
    /// How long long DRX lasts before RRC idle; 7848 ms unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub long_for: Option<Duration>,
    /// Listening part of every cycle; 1 ms unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<Duration>,
    /// Paging cycle of the downlink in RRC idle; 50 ms unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paging_cycle: Option<Duration>,
    /// Time to set the connection up; 70 ms unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub setup: Option<Duration>,
    /// Rate right after the set-up; 5 Mbit/s unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ramp_from: Option<Rate>,
    /// How long the rate rises, linearly, to the link's own; 500 ms unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ramp_for: Option<Duration>,
}

/// Discontinuous reception of one direction, complete and checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drx {
    /// Silence after which short DRX begins.
    pub inactivity: Duration,
    /// Cycle in short DRX.
    pub short_cycle: Duration,
    /// How long short DRX lasts.
    pub short_for: Duration,
    /// Cycle in long DRX.
    pub long_cycle: Duration,
    /// How long long DRX lasts.
    pub long_for: Duration,
    /// Listening part of every cycle.
    pub listen: Duration,
    /// Paging cycle in RRC idle; zero for a direction that need not be paged (the uplink).
    pub paging_cycle: Duration,
    /// Time to set the connection up.
    pub setup: Duration,
    /// Rate right after the set-up.
    pub ramp_from: Rate,
    /// How long the rate rises to the link's own.
    pub ramp_for: Duration,
}

impl DrxConfig {
    /// The downlink's DRX; the uplink is not paged.
    pub(crate) fn resolve(&self) -> Result<Drx, (&'static str, String)> {
        let ms = Duration::from_millis;
        let drx = Drx {
            inactivity: self.inactivity.unwrap_or(ms(200)),
            short_cycle: self.short_cycle.unwrap_or(ms(6)),
            short_for: self.short_for.unwrap_or(ms(2298)),
            long_cycle: self.long_cycle.unwrap_or(ms(12)),
            long_for: self.long_for.unwrap_or(ms(7848)),
            listen: self.listen.unwrap_or(ms(1)),
            paging_cycle: self.paging_cycle.unwrap_or(ms(50)),
            setup: self.setup.unwrap_or(ms(70)),
            ramp_from: self.ramp_from.unwrap_or(Rate::from_bps(5_000_000)),
            ramp_for: self.ramp_for.unwrap_or(ms(500)),
        };
        if !drx.listen.is_positive() {
            return Err(("listen", "expected a time above zero".to_string()));
        }
        for (key, cycle) in [("short_cycle", drx.short_cycle), ("long_cycle", drx.long_cycle)] {
            if cycle < drx.listen {
                return Err((key, "expected at least `listen`".to_string()));
            }
        }
        if drx.paging_cycle != Duration::ZERO && drx.paging_cycle < drx.listen {
            return Err(("paging_cycle", "expected zero or at least `listen`".to_string()));
        }
        if drx.ramp_from == Rate::ZERO {
            return Err(("ramp_from", "expected a rate above zero".to_string()));
        }
        for (key, span) in [
            ("inactivity", drx.inactivity),
            ("short_for", drx.short_for),
            ("long_for", drx.long_for),
            ("setup", drx.setup),
            ("ramp_for", drx.ramp_for),
        ] {
            if span < Duration::ZERO {
                return Err((key, "expected a time that is not negative".to_string()));
            }
        }
        Ok(drx)
    }
}

/// What the two directions share of a radio. A radio begins connected, with its last activity at the
/// start of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Radio {
    /// When the radio woke for its current activity; later than now while a packet waits for it.
    awake_from: Instant,
    /// When the last packet of either direction was sent.
    last_activity: Instant,
    /// When the connection was last set up; the ramp begins there.
    connected: Option<Instant>,
}

impl Radio {
    /// The earliest instant at which a packet that arrives at `now` can be sent, and the radio as it
    /// will then be.
    pub(crate) fn woken(self, now: Instant, drx: &Drx) -> (Instant, Self) {
        if now < self.awake_from {
            return (self.awake_from, self);
        }
        let idle = now.since(self.last_activity);
        let short_from = drx.inactivity;
        let long_from = short_from + drx.short_for;
        let idle_from = long_from + drx.long_for;
        if idle < short_from {
            return (now, self);
        }
        if idle < idle_from {
            let (entered, cycle) = if idle < long_from {
                (short_from, drx.short_cycle)
            } else {
                (long_from, drx.long_cycle)
            };
            let awake_from = now + until_listening(idle - entered, cycle, drx.listen);
            return (awake_from, Self { awake_from, ..self });
        }
        let paged = now + until_listening(idle - idle_from, drx.paging_cycle, drx.listen);
        let awake_from = paged + drx.setup;
        (awake_from, Self { awake_from, connected: Some(awake_from), ..self })
    }

    /// Notes that a packet is sent until `at`.
    pub(crate) fn active(&mut self, at: Instant) {
        self.last_activity = self.last_activity.max(at);
    }

    /// When the ramp after the last connection set-up began, if it is not over at `at`.
    pub(crate) fn ramp(&self, at: Instant, drx: &Drx) -> Option<Instant> {
        self.connected.filter(|from| at < *from + drx.ramp_for)
    }
}

/// How long a radio that is `phase` into a state still sleeps.
fn until_listening(phase: Duration, cycle: Duration, listen: Duration) -> Duration {
    if !cycle.is_positive() {
        return Duration::ZERO;
    }
    let within = Duration::from_nanos(phase.as_nanos().rem_euclid(cycle.as_nanos()));
    (cycle - listen - within).max(Duration::ZERO)
}
