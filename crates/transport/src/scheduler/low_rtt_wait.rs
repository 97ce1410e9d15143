//! Lowest round-trip time, without a fallback while the window is full.

use skybraid_units::Instant;

use super::{
    Choice, Reason, Scheduler, Unit, candidates, fastest, send_on, untried, wait_for_room,
};
use crate::{PathView, algorithm};

algorithm! {
    name: "low_rtt_wait",
    summary: "MP-DCCP's lowest RTT as in the studies of remote piloting: uses the path with the \
              lowest smoothed round-trip time, and waits while its window is full. A slower path \
              is used only if every faster path has failed. Telekom's kernel compares only paths \
              with room, which is `low_rtt`.",
    source: "baltaci2023 §2.4 (LowRTT of MP-DCCP waits rather than spills over)",
    scheduler: |_config| LowRttWait,
}

#[derive(Debug)]
struct LowRttWait;

impl Scheduler for LowRttWait {
    fn choose(&mut self, _now: Instant, unit: &Unit, paths: &[PathView]) -> Choice {
        let open = untried(unit, candidates(paths));
        match fastest(open.clone()) {
            Some(best) if best.has_room => send_on(Some(best), Reason::LowestRtt, paths),
            Some(best) if open.into_iter().any(|path| path.has_room) => {
                Choice::wait_for(best.id, Reason::Patience)
            }
            _ => wait_for_room(paths),
        }
    }

    fn needs_rtt(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{UNIT, chosen, paths};
    use super::*;
    use crate::PathId;
    use alloc::vec;

    // Source: baltaci2023 §2.4.
    #[test]
    fn it_waits_for_the_full_fast_path_although_a_slow_one_is_free() {
        let mut scheduler = Config {}.build();
        let mut two = paths(&[100, 20]);
        assert_eq!(chosen(&mut *scheduler, &two), Some(vec![1]));
        two[1].has_room = false;
        let answer = scheduler.choose(Instant::ZERO, &UNIT, &two);
        assert_eq!(answer, Choice::wait_for(PathId(1), Reason::Patience));
    }

    #[test]
    fn the_slow_path_takes_over_when_the_fast_one_fails() {
        let mut scheduler = Config {}.build();
        let mut two = paths(&[100, 20]);
        two[1].usable = false;
        assert_eq!(chosen(&mut *scheduler, &two), Some(vec![0]));
        two[0].has_room = false;
        let answer = scheduler.choose(Instant::ZERO, &UNIT, &two);
        assert_eq!(answer, Choice::wait(Reason::WindowFull));
    }
}
