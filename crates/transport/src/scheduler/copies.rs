//! The budget of further copies.

use skybraid_units::{Bytes, Duration, Instant};

use super::Unit;
use crate::{PathSet, PathView};

/// First copies whose budget may be saved up for bursts of trouble.
const SAVED: f64 = 16_384.0;
/// Time whose first copies' budget may be saved up, where these are more than [`SAVED`].
const SAVED_TIME: Duration = Duration::from_secs(160);
/// Weight of a message in the mean size.
const GAIN: f64 = 1.0 / 64.0;
/// Weight of a message in the mean interval; small, since the packets of a video frame are sent back to back.
const INTERVAL_GAIN: f64 = 1.0 / 1024.0;
/// Interval of the messages before it is known, in seconds.
const USUAL_INTERVAL: f64 = 0.01;

/// A token bucket: first copies earn, further copies spend.
#[derive(Clone, Debug)]
pub struct Purse {
    share: f64,
    /// Share of the capacity that is there at the first message.
    initial: f64,
    /// Bytes that may be spent.
    tokens: f64,
    /// Mean size of the messages in bytes; zero before the first.
    mean: f64,
    /// Mean interval of the messages in seconds.
    interval: f64,
    /// Time of the last message.
    last: Instant,
    /// Bytes that may be saved up.
    capacity: f64,
}

impl Purse {
    /// Creates a bucket that earns `share` of each first copy, and is filled to `initial` (0 to 1)
    /// by the first message.
    pub const fn new(share: f64, initial: f64) -> Self {
        Self {
            share,
            initial,
            tokens: 0.0,
            mean: 0.0,
            interval: USUAL_INTERVAL,
            last: Instant::ZERO,
            capacity: 0.0,
        }
    }

    /// Earns from a first copy.
    pub fn earn(&mut self, now: Instant, bytes: Bytes) {
        let size = bytes.get() as f64;
        let is_first = self.mean == 0.0;
        if is_first {
            self.mean = size;
        } else {
            self.mean += (size - self.mean) * GAIN;
            let since = now.since(self.last).as_secs_f64();
            self.interval += (since - self.interval) * INTERVAL_GAIN;
        }
        self.last = now;
        let saved = SAVED.max(SAVED_TIME.as_secs_f64() / self.interval);
        self.capacity = self.share * self.mean * saved;
        let before = if is_first { self.initial * self.capacity } else { self.tokens };
        self.tokens = (before + self.share * size).min(self.capacity);
    }

    /// Pays for a further copy. Returns false if the budget does not allow it.
    pub fn spend(&mut self, bytes: Bytes) -> bool {
        let price = bytes.get() as f64;
        // Sums of shares may fall short of a whole copy by the error of a floating-point number.
        let affordable = price <= self.tokens * (1.0 + 1e-9);
        if affordable {
            self.tokens = (self.tokens - price).max(0.0);
        }
        affordable
    }

    /// Pays for a further copy of `unit` on `path`. Returns no path without one, or if the budget does not
    /// allow it.
    pub fn copy(&mut self, unit: &Unit, path: Option<&PathView>) -> PathSet {
        match path {
            Some(path) if self.spend(unit.bytes) => PathSet::only(path.id),
            _ => PathSet::EMPTY,
        }
    }

    /// Share of the capacity that is saved, 0 to 1.
    pub fn fill(&self) -> f64 {
        match self.capacity {
            0.0 => 0.0,
            capacity if self.tokens >= capacity => 1.0,
            capacity => self.tokens / capacity,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Bytes = Bytes::new(1000);

    /// Sends first copies at a constant rate.
    fn earn(purse: &mut Purse, messages: i64, per_second: i64) {
        for place in 0..messages {
            purse.earn(Instant::from_nanos(place * 1_000_000_000 / per_second), SIZE);
        }
    }

    fn spend_all(purse: &mut Purse) -> usize {
        (0..1_000_000).take_while(|_| purse.spend(SIZE)).count()
    }

    #[test]
    fn a_quarter_of_the_messages_is_copied_at_25_percent() {
        let mut purse = Purse::new(0.25, 0.0);
        let paid = |place: i64, purse: &mut Purse| {
            purse.earn(Instant::from_millis(place), SIZE);
            purse.spend(SIZE)
        };
        assert_eq!((0..4000).filter(|place| paid(*place, &mut purse)).count(), 1000);
    }

    #[test]
    fn what_is_not_spent_is_saved_up_to_the_capacity() {
        let mut purse = Purse::new(0.5, 0.0);
        earn(&mut purse, 20_000, 100);
        assert_eq!(purse.fill(), 1.0);
        assert_eq!(spend_all(&mut purse), 8192);
        assert_eq!(purse.fill(), 0.0);
    }

    #[test]
    fn a_thousand_messages_a_second_save_for_160_seconds() {
        let mut purse = Purse::new(0.5, 0.0);
        earn(&mut purse, 400_000, 1000);
        let seconds = spend_all(&mut purse) as f64 / 0.5 / 1000.0;
        assert!((159.0..161.0).contains(&seconds), "{seconds}");
    }
}
