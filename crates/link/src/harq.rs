//! Hybrid ARQ (HARQ): losses that the radio repairs, which cost delay rather than packets.
//!
//! Follows the LTE emulator of MoonGen (`lte-emulator.lua`): the number of retransmissions of a packet is
//! geometric, and each takes one HARQ round trip. Later packets wait for it and then follow at the catch-up
//! rate, without retransmissions of their own.

use alloc::string::{String, ToString};

use serde::{Deserialize, Serialize};
use skybraid_units::{Bytes, Duration, Instant, Probability, Rate, Stream, expect};

/// Keys of a `harq` table; missing keys come from the preset, else from the defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct HarqConfig {
    /// Probability that a transmission fails. Required.
    pub loss: Option<Probability>,
    /// HARQ round trip, the duration of one retransmission. Default: 8 ms (LTE FDD).
    pub round_trip: Option<Duration>,
    /// Rate at which delayed packets follow. Default: 1 Gbit/s.
    pub catch_up: Option<Rate>,
}

/// Hybrid ARQ, checked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Harq {
    /// Probability that a transmission fails; below one.
    pub loss: Probability,
    /// Duration of one retransmission.
    pub round_trip: Duration,
    /// Rate at which delayed packets follow.
    pub catch_up: Rate,
}

impl HarqConfig {
    pub(crate) fn resolve(&self) -> Result<Harq, (&'static str, String)> {
        let loss = self.loss.ok_or(("loss", "expected a probability".to_string()))?;
        let harq = Harq {
            loss,
            round_trip: self.round_trip.unwrap_or(Duration::from_millis(8)),
            catch_up: self.catch_up.unwrap_or(Rate::from_bps(1_000_000_000)),
        };
        expect(loss.ratio() < 1.0, "loss", "less than 100%")?;
        expect(harq.round_trip >= Duration::ZERO, "round_trip", "a time that is not negative")?;
        expect(harq.catch_up != Rate::ZERO, "catch_up", "a rate above zero")?;
        Ok(harq)
    }
}

/// HARQ process of one direction.
#[derive(Clone, Debug)]
pub(crate) struct HarqProcess {
    harq: Harq,
    stream: Stream,
    released: Instant,
}

/// Maximum number of retransmissions per packet, which bounds the loop.
const MAX_RETRANSMISSIONS: i64 = 10_000;

impl HarqProcess {
    pub const fn new(harq: Harq, stream: Stream) -> Self {
        Self { harq, stream, released: Instant::ZERO }
    }

    /// Returns the time at which a packet that departed at `sent` is received by the radio.
    pub fn release(&mut self, sent: Instant, size: Bytes) -> Instant {
        if sent < self.released {
            let follows = self.released + self.harq.catch_up.time_for(size);
            self.released = follows.max(sent);
            return self.released;
        }
        let mut retransmissions = 0;
        while self.stream.chance(self.harq.loss) && retransmissions < MAX_RETRANSMISSIONS {
            retransmissions += 1;
        }
        self.released = sent + self.harq.round_trip * retransmissions;
        self.released
    }
}
