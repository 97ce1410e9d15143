//! Concealed loss: what hybrid ARQ repairs costs time instead of packets.
//!
//! Follows the LTE emulator of MoonGen (`lte-emulator.lua`): the number of retransmissions of a packet
//! is geometric and each takes one HARQ round trip. Packets behind it wait for it and then follow at
//! the catch-up rate; none of them draws a retransmission of its own while catching up.

use alloc::string::{String, ToString};

use serde::{Deserialize, Serialize};
use skybraid_units::{Bytes, Duration, Instant, Probability, Rate, Stream};

/// Keys of a `harq` table; what is absent comes from the preset or from the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct HarqConfig {
    /// Probability that a transmission fails and is repeated. Required.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<Probability>,
    /// Time that a repetition takes; 8 ms (LTE FDD) unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub round_trip: Option<Duration>,
    /// Rate at which held-up packets follow; 1 Gbit/s unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub catch_up: Option<Rate>,
}

/// Hybrid ARQ, complete and checked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Harq {
    /// Probability that a transmission fails and is repeated; below one.
    pub loss: Probability,
    /// Time that a repetition takes.
    pub round_trip: Duration,
    /// Rate at which held-up packets follow.
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
        if loss.ratio() >= 1.0 {
            return Err(("loss", "expected less than 100%".to_string()));
        }
        if harq.round_trip < Duration::ZERO {
            return Err(("round_trip", "expected a time that is not negative".to_string()));
        }
        if harq.catch_up == Rate::ZERO {
            return Err(("catch_up", "expected a rate above zero".to_string()));
        }
        Ok(harq)
    }
}

/// The HARQ process of one direction.
#[derive(Clone, Debug)]
pub(crate) struct HarqProcess {
    harq: Harq,
    stream: Stream,
    released: Instant,
}

/// More repetitions than any draw of a sensible probability gives; keeps the loop finite.
const MOST_REPETITIONS: i64 = 10_000;

impl HarqProcess {
    pub const fn new(harq: Harq, stream: Stream) -> Self {
        Self { harq, stream, released: Instant::ZERO }
    }

    /// When a packet that was sent at `sent` is through.
    pub fn release(&mut self, sent: Instant, size: Bytes) -> Instant {
        if sent < self.released {
            let follows = self.released + self.harq.catch_up.time_for(size);
            self.released = follows.max(sent);
            return self.released;
        }
        let mut repetitions = 0;
        while self.stream.chance(self.harq.loss) && repetitions < MOST_REPETITIONS {
            repetitions += 1;
        }
        self.released = sent + self.harq.round_trip * repetitions;
        self.released
    }
}
