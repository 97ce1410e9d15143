//! The budget of further copies.

use skybraid_units::Bytes;

use super::Unit;
use crate::{PathSet, PathView};

/// First copies whose budget may be saved up for bursts of trouble.
const SAVED: f64 = 16_384.0;
/// Share by which a message changes the mean size.
const GAIN: f64 = 1.0 / 64.0;

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
}

impl Purse {
    /// Creates a bucket that earns `share` of each first copy, and is filled to `initial` (0 to 1)
    /// by the first message.
    pub const fn new(share: f64, initial: f64) -> Self {
        Self { share, initial, tokens: 0.0, mean: 0.0 }
    }

    const fn capacity(&self) -> f64 {
        self.share * SAVED * self.mean
    }

    /// Earns from a first copy.
    pub fn earn(&mut self, bytes: Bytes) {
        let size = bytes.get() as f64;
        if self.mean > 0.0 {
            self.mean += (size - self.mean) * GAIN;
        } else {
            self.mean = size;
            self.tokens = self.initial * self.capacity();
        }
        self.tokens = (self.tokens + self.share * size).min(self.capacity());
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
        let capacity = self.capacity();
        if capacity > 0.0 { (self.tokens / capacity).clamp(0.0, 1.0) } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Bytes = Bytes::new(1000);

    #[test]
    fn a_quarter_of_the_messages_is_copied_at_25_percent() {
        let mut purse = Purse::new(0.25, 0.0);
        let paid = |purse: &mut Purse| {
            purse.earn(SIZE);
            purse.spend(SIZE)
        };
        assert_eq!((0..4000).filter(|_| paid(&mut purse)).count(), 1000);
    }

    #[test]
    fn what_is_not_spent_is_saved_up_to_the_capacity() {
        let mut purse = Purse::new(0.5, 0.0);
        for _ in 0..20_000 {
            purse.earn(SIZE);
        }
        assert_eq!(purse.fill(), 1.0);
        assert_eq!((0..10_000).filter(|_| purse.spend(SIZE)).count(), 8192);
        assert_eq!(purse.fill(), 0.0);
    }
}
