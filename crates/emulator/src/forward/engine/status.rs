//! State of the links, sampled and published.

use skybraid_host::record::samples::SAMPLE_INTERVAL;
use skybraid_link::Conditions;
use skybraid_units::invariant::Promised;
use skybraid_units::{Bytes, Instant};

use super::Engine;
use crate::forward::live::{DirectionStatus, PathStatus};

impl Engine {
    /// Samples every direction and publishes the state.
    pub(super) fn sample(&mut self, now: Instant) {
        let at = self.next_sample;
        self.next_sample += SAMPLE_INTERVAL;
        self.count_drops();
        for way in 0..self.ways.len() {
            let (state, queue) = self.state(way, now);
            if let Some(way) = self.ways.get_mut(way).promised("a direction of a link") {
                way.down_since = if state.up { None } else { way.down_since.or(Some(at)) };
            }
            if at <= self.end {
                self.counters.sample(way, at, state, queue);
            }
        }
        if let Some(capture) = &mut self.capture {
            capture.flush();
        }
        self.publish(now, false);
    }

    /// Returns the state of a direction: links in series have the lowest rate and the sum of the delays.
    fn state(&mut self, way: usize, now: Instant) -> (Conditions, Bytes) {
        let way = self.ways.get(way).promised("a direction of a link");
        let range = way.map(|way| way.stages.clone()).unwrap_or_default();
        let stages = self.stages.get_mut(range).promised("a link of a direction");
        let mut all: Option<Conditions> = None;
        let mut queue = Bytes::ZERO;
        for stage in stages.unwrap_or_default() {
            let one = stage.link.conditions(now);
            queue += stage.link.backlog(now);
            all = Some(all.map_or(one, |all| all.in_series_with(&one)));
        }
        (all.unwrap_or(Conditions::DOWN), queue)
    }

    /// Publishes the state of all directions; `urgent` if somebody waits for it.
    pub(super) fn publish(&mut self, now: Instant, urgent: bool) {
        let mut directions = Vec::with_capacity(self.ways.len());
        for way in 0..self.ways.len() {
            let (state, queue) = self.state(way, now);
            let account = self.counters.account_of(way);
            directions.push(DirectionStatus {
                rate: state.rate,
                delay: state.delay,
                loss: state.loss,
                up: state.up,
                down_since: self.ways.get(way).and_then(|way| way.down_since),
                queue,
                delivered_rate: self.counters.recent_rate(way),
                delivered: account.delivered,
                lost: account.lost,
            });
        }
        let (lost, p99) = (self.counters.lost_by_emulator(), self.lateness.quantile(0.99));
        self.commands.publish(urgent, |snapshot, names| {
            snapshot.at = now;
            snapshot.lost_by_emulator = lost;
            snapshot.lateness_p99 = p99;
            let pairs = names.iter().zip(directions.chunks_exact(2));
            snapshot.paths = pairs
                .filter_map(|(name, pair)| match pair {
                    [uplink, downlink] => Some(PathStatus {
                        name: name.clone(),
                        uplink: *uplink,
                        downlink: *downlink,
                    }),
                    _ => None,
                })
                .collect();
        });
    }
}
