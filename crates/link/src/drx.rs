//! Discontinuous reception (DRX): an inactive LTE radio listens in short windows only, and sets up its
//! connection again after long inactivity.
//!
//! Follows the LTE emulator of MoonGen (`lte-emulator.lua`). The radio has four states, entered by the time since the
//! last activity in either direction: continuous reception, short DRX, long DRX and RRC idle. A cycle starts with its
//! sleep and ends with the listening window. A packet that arrives during sleep waits for the window. In RRC idle the
//! downlink waits for the paging window, and both directions wait for the connection set-up; then the rate ramps up.

use alloc::string::String;

use serde::{Deserialize, Serialize};
use skybraid_units::{Duration, Instant, Rate, expect};

/// Keys of a `drx` table; missing keys come from the preset, else from the defaults, which are those of Chavali 2022,
/// section 4 (see `presets/testbed-lte-aerial.toml`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct DrxConfig {
    /// Inactivity timer, after which short DRX begins. Default: 200 ms.
    pub inactivity: Option<Duration>,
    /// Cycle in short DRX. Default: 6 ms.
    pub short_cycle: Option<Duration>,
    /// Duration of short DRX. Default: 2298 ms.
    pub short_for: Option<Duration>,
    /// Cycle in long DRX. Default: 12 ms.
    pub long_cycle: Option<Duration>,
    /// Duration of long DRX, before RRC idle. Default: 7848 ms.
    pub long_for: Option<Duration>,
    /// Listening window of every cycle. Default: 1 ms.
    pub listen: Option<Duration>,
    /// Paging cycle of the downlink in RRC idle. Default: 50 ms.
    pub paging_cycle: Option<Duration>,
    /// Duration of the connection set-up. Default: 70 ms.
    pub setup: Option<Duration>,
    /// Rate at the end of the set-up. Default: 5 Mbit/s.
    pub ramp_from: Option<Rate>,
    /// Duration of the linear ramp to the link's rate. Default: 500 ms.
    pub ramp_for: Option<Duration>,
}

/// Discontinuous reception of one direction, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drx {
    /// Inactivity timer, after which short DRX begins.
    pub inactivity: Duration,
    /// Cycle in short DRX.
    pub short_cycle: Duration,
    /// Duration of short DRX.
    pub short_for: Duration,
    /// Cycle in long DRX.
    pub long_cycle: Duration,
    /// Duration of long DRX.
    pub long_for: Duration,
    /// Listening window of every cycle.
    pub listen: Duration,
    /// Paging cycle in RRC idle; zero for the uplink, which is not paged.
    pub paging_cycle: Duration,
    /// Duration of the connection set-up.
    pub setup: Duration,
    /// Rate at the end of the set-up.
    pub ramp_from: Rate,
    /// Duration of the ramp to the link's rate.
    pub ramp_for: Duration,
}

impl DrxConfig {
    /// Returns the checked DRX of the downlink; the uplink differs in that it is not paged.
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
        expect(drx.listen.is_positive(), "listen", "a time above zero")?;
        for (key, cycle) in [("short_cycle", drx.short_cycle), ("long_cycle", drx.long_cycle)] {
            expect(cycle >= drx.listen, key, "at least `listen`")?;
        }
        expect(
            drx.paging_cycle == Duration::ZERO || drx.paging_cycle >= drx.listen,
            "paging_cycle",
            "zero or at least `listen`",
        )?;
        expect(drx.ramp_from != Rate::ZERO, "ramp_from", "a rate above zero")?;
        for (key, span) in [
            ("inactivity", drx.inactivity),
            ("short_for", drx.short_for),
            ("long_for", drx.long_for),
            ("setup", drx.setup),
            ("ramp_for", drx.ramp_for),
        ] {
            expect(span >= Duration::ZERO, key, "a time that is not negative")?;
        }
        Ok(drx)
    }
}

/// Radio state that the two directions share. A radio starts connected, with its last activity at the start of the
/// run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Radio {
    /// Time at which the radio wakes or woke for its current activity.
    awake_from: Instant,
    /// Departure of the last packet of either direction.
    last_activity: Instant,
    /// End of the last connection set-up, at which the ramp starts.
    connected: Option<Instant>,
}

impl Radio {
    /// Returns the earliest instant at which a packet that arrives at `now` can be sent, with the radio's state then.
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

    /// Records the departure of a packet.
    pub(crate) fn on_sent(&mut self, at: Instant) {
        self.last_activity = self.last_activity.max(at);
    }

    /// Start of the ramp after the last connection set-up, unless the ramp has ended by `at`.
    pub(crate) fn ramp(&self, at: Instant, drx: &Drx) -> Option<Instant> {
        self.connected.filter(|from| at < *from + drx.ramp_for)
    }
}

/// Returns the remaining sleep of a radio that entered its state `phase` ago.
fn until_listening(phase: Duration, cycle: Duration, listen: Duration) -> Duration {
    if !cycle.is_positive() {
        return Duration::ZERO;
    }
    let within = Duration::from_nanos(phase.as_nanos().rem_euclid(cycle.as_nanos()));
    (cycle - listen - within).max(Duration::ZERO)
}
