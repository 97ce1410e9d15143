//! No reordering: each datagram is delivered on arrival.

use super::Reorderer;
use crate::algorithm;

algorithm! {
    name: "none",
    summary: "Delivers each datagram on arrival. MP-DCCP calls it `default`, which is accepted \
              too.",
    source: "RFC 9897, which leaves reordering to the receiver",
}

impl Config {
    /// Returns `None`.
    pub fn build(&self) -> Option<Reorderer> {
        None
    }
}
