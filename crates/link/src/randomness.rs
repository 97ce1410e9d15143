//! Dependence of a link on the seed.

use skybraid_units::Probability;

use crate::access::Access;
use crate::config::LinkConfig;
use crate::delay::DelaySource;
use crate::distribution::Distribution;
use crate::handover::Handover;
use crate::harq::Harq;
use crate::loss::{LossSource, OnOff};
use crate::outage::Change;
use crate::rate::RateSource;
use crate::reconfiguration::Reconfiguration;
use crate::trace::{Replay, Series};

impl LinkConfig {
    /// Whether the fate of a packet may depend on the seed. Steps, constant values and traces replayed from a fixed
    /// start do not.
    pub fn is_random(&self) -> bool {
        // All fields are named, so that a new effect cannot be omitted here.
        let Self {
            mtu: _,
            rate,
            access,
            overhead: _,
            queue: _,
            delay,
            reorder: _,
            losses,
            harq,
            drx: _,
            handover,
            stall,
            outage,
            reconfiguration,
            down: _,
            halts: _,
            changes,
        } = self;
        let harq = harq.as_ref().is_some_and(|Harq { loss, .. }| loss.ratio() > 0.0);
        let handover =
            handover.as_ref().is_some_and(|Handover { interval, interruption, .. }| {
                varies(interval) || varies(interruption)
            });
        let reconfiguration = reconfiguration.as_ref().is_some_and(
            |Reconfiguration { delay_step, interruption, loss, .. }| {
                varies(delay_step) || varies(interruption) || is_uncertain(*loss)
            },
        );
        let spans = [stall, outage].into_iter().flatten();
        rate.is_random()
            || spans.into_iter().any(|spans| varies(&spans.interval) || varies(&spans.length))
            || access.as_ref().is_some_and(Access::is_random)
            || delay.is_random()
            || losses.iter().any(LossSource::is_random)
            || harq
            || handover
            || reconfiguration
            || changes.iter().any(|(_, change)| match change {
                Change::Rate(rate) => rate.is_random(),
                Change::Delay(delay) => delay.is_random(),
                Change::Loss(losses) => losses.iter().any(LossSource::is_random),
            })
    }
}

impl RateSource {
    fn is_random(&self) -> bool {
        match self {
            Self::Constant(_) => false,
            Self::Series(replay) => replay.is_random(),
            Self::Process(process) => process.varies(),
            Self::Opportunities(replay) => replay.is_random(),
        }
    }
}

impl DelaySource {
    fn is_random(&self) -> bool {
        match self {
            Self::Distribution(distribution) => varies(distribution),
            Self::Series(replay) => replay.is_random(),
            Self::Process(process) => process.varies(),
        }
    }
}

impl LossSource {
    fn is_random(&self) -> bool {
        match self {
            Self::Uniform(probability) => is_uncertain(*probability),
            Self::BitErrors(ratio) => *ratio > 0.0,
            Self::OnOff(OnOff { on, off, off_loss, on_bit_errors }) => {
                varies(on) || varies(off) || is_uncertain(*off_loss) || *on_bit_errors > 0.0
            }
            Self::GilbertElliott(_) | Self::Lutz(_) => true,
            Self::Series(replay) => replay.is_random() || !is_certain(replay),
        }
    }
}

/// Whether `distribution` is not constant.
fn varies(distribution: &Distribution) -> bool {
    distribution.constant().is_none()
}

/// Whether an event of this probability is neither certain nor impossible.
fn is_uncertain(probability: Probability) -> bool {
    (f64::MIN_POSITIVE..1.0).contains(&probability.ratio())
}

/// Whether every probability of a series is zero or one.
fn is_certain(replay: &Replay<Series>) -> bool {
    replay.data.values().iter().all(|value| *value <= 0.0 || *value >= 1.0)
}
