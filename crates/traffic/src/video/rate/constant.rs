//! Constant rate.

use skybraid_units::{Instant, Rate};

use super::{Bounds, RateControl, Report, Sent, rate};
use crate::about::Kind;

/// Registry entry.
pub const ABOUT: Kind = Kind {
    name: "constant",
    summary: "The encoder's rate never changes, and packets leave as soon as they are made.",
    parameters: &[],
    source: "baltaci2023 §2.3",
};

/// Rate control with a constant target.
#[derive(Clone, Debug)]
pub struct Constant {
    target: Rate,
}

impl Constant {
    pub(super) fn new(bounds: &Bounds) -> Self {
        Self { target: rate(bounds.first()) }
    }
}

impl RateControl for Constant {
    fn on_sent(&mut self, _now: Instant, _packet: Sent) {}

    fn on_feedback(&mut self, _now: Instant, _report: &Report<'_>) {}

    fn target(&self) -> Rate {
        self.target
    }
}
