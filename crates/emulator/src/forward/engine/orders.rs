//! Orders given to a running emulation: links cut, restored and set.

use skybraid_link::{Cause, DelaySource, Distribution, Link, LossSource};
use skybraid_units::invariant::Promised;
use skybraid_units::{Duration, Instant, Probability, Rate, Seed};

use super::Engine;
use crate::forward::live::Command;

impl Engine {
    /// Executes pending orders.
    pub(super) fn take_orders(&mut self) {
        while let Some(order) = self.commands.order() {
            // Before the next check, so that an order arriving after it triggers a new wakeup.
            self.commands.clear_wakeup();
            self.receive(true);
            let now = self.clock.now();
            for side in 0..2 {
                self.obey(now, 2 * order.path + side, side, order.command);
            }
            self.learn_min_delays();
            self.publish(now, true);
            // The caller may have given up waiting.
            order.done.try_send(()).ok();
        }
    }

    fn obey(&mut self, now: Instant, index: usize, side: usize, command: Command) {
        let Some(way) = self.ways.get_mut(index).promised("a direction of a link") else { return };
        let seed = Seed(self.seed.0 ^ now.as_nanos() as u64);
        let stages = self.stages.get_mut(way.stages.clone()).promised("a link of a direction");
        for stage in stages.unwrap_or_default() {
            match command {
                Command::Cut => {
                    way.down_since = way.down_since.or(Some(now));
                    stage.cut(now, |frame| {
                        self.counters.lost(index, frame, now, Cause::Outage);
                        self.frames.give_back(frame.slot);
                    });
                }
                Command::Restore => stage.link.restore(),
                Command::Reset => stage.link.reset(),
                Command::Set { direction, rate, delay, loss } => {
                    if direction.is_none_or(|direction| direction as usize == side) {
                        set(&mut stage.link, rate, delay, loss, seed);
                    }
                }
            }
            if stage.link.conditions(now).up {
                way.down_since = None;
            }
        }
    }
}

/// Sets the given values of a link; `seed` is that of what it draws from now on.
fn set(
    link: &mut Link,
    rate: Option<Rate>,
    delay: Option<Duration>,
    loss: Option<Probability>,
    seed: Seed,
) {
    if let Some(rate) = rate {
        link.set_rate(rate);
    }
    if let Some(delay) = delay {
        link.set_delay(&DelaySource::Distribution(Distribution::fixed(delay)), seed);
    }
    if let Some(loss) = loss {
        link.set_loss(&[LossSource::Uniform(loss)], seed);
    }
}
