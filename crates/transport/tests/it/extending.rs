//! The scheduler of `docs/extending.md`, as a user would add it.

use skybraid_transport::scheduler::{
    Choice, Reason, Scheduler, Unit, candidates, send_on, untried,
};
use skybraid_transport::{PathView, algorithm};
use skybraid_units::{Duration, Instant};

algorithm! {
    name: "thrifty",
    summary: "The cheapest path with room; paths with round-trip times above a limit come last.",
    source: "an example",
    parameters: {
        limit: Duration = Duration::from_millis(200), "time", "200ms",
            "round-trip time above which a path comes last", "above zero" if limit.is_positive();
    },
    scheduler: |config| Thrifty { limit: config.limit },
}

#[derive(Debug)]
struct Thrifty {
    limit: Duration,
}

impl Scheduler for Thrifty {
    fn choose(&mut self, _now: Instant, unit: &Unit, paths: &[PathView]) -> Choice {
        let is_slow = |path: &PathView| path.srtt.is_some_and(|srtt| srtt > self.limit);
        let with_room = untried(unit, candidates(paths)).filter(|path| path.has_room);
        send_on(with_room.min_by_key(|path| (is_slow(path), path.cost)), Reason::Cheapest, paths)
    }

    fn needs_rtt(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skybraid_transport::{Class, PathId, PathSet};
    use skybraid_units::Bytes;

    #[test]
    fn the_cheapest_path_is_left_when_it_becomes_slow() {
        let path = |id: u8, cost: u32, rtt_ms: i64| PathView {
            id: PathId(id),
            usable: true,
            has_room: true,
            srtt: Some(Duration::from_millis(rtt_ms)),
            rtt_deviation: Duration::ZERO,
            min_rtt: None,
            window: Bytes::new(14_000),
            threshold: Bytes::new(14_000),
            pacing: None,
            in_flight: Bytes::ZERO,
            queued: Bytes::ZERO,
            segment: Bytes::new(1400),
            cost,
            backup: false,
            priority: 3,
        };
        let unit = Unit {
            bytes: Bytes::new(1400),
            class: Class::Data,
            deadline: None,
            carried_by: PathSet::EMPTY,
            backlog: Bytes::ZERO,
            window: Bytes::new(u64::MAX),
            window_room: Bytes::new(u64::MAX),
            blocked: 0,
        };
        let mut scheduler = Config::default().build();
        let mut chosen = |unit: &Unit, rtt_ms, cheap_rtt_ms| {
            let paths = [path(0, 5, rtt_ms), path(1, 1, cheap_rtt_ms)];
            scheduler.choose(Instant::ZERO, unit, &paths)
        };
        let cheapest = |id| Choice::Send(PathSet::only(PathId(id)), Reason::Cheapest);
        assert_eq!(chosen(&unit, 50, 200), cheapest(1));
        assert_eq!(chosen(&unit, 50, 201), cheapest(0));
        assert_eq!(chosen(&unit, 300, 201), cheapest(1));
        let sent_before = Unit { carried_by: PathSet::only(PathId(1)), ..unit };
        assert_eq!(chosen(&sent_before, 50, 20), cheapest(0));
    }

    #[test]
    fn a_limit_of_zero_is_refused() {
        assert_eq!(ABOUT.name, "thrifty");
        assert!(Config::default().check().is_ok());
        assert_eq!(Config { limit: Duration::ZERO }.check().unwrap_err().0, "limit");
    }
}
