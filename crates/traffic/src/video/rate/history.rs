//! Sender's history of sent packets, and the changes that a report brings.

use alloc::collections::VecDeque;

use skybraid_units::invariant::Promised as _;
use skybraid_units::{Duration, Instant};

use super::{Arrival, Report, Sent};

/// Time for which sent packets are kept; reports on older packets are ignored.
const MEMORY: Duration = Duration::from_secs(10);

/// A sent packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet {
    pub number: u64,
    pub sent: Instant,
    pub bytes: u32,
    /// Bytes of all packets up to and including this one.
    pub total: u64,
    status: Status,
}

/// Reported status of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Unreported,
    Missing { since: Instant },
    Arrived,
}

/// Change of a packet's status by a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Update {
    /// Reported received, with its arrival time by the receiver's clock.
    Arrived(Instant),
    /// Reported missing.
    Missing,
    /// Reported received after it was reported missing at `since`.
    Late { at: Instant, since: Instant },
}

/// Recently sent packets.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    packets: VecDeque<Packet>,
    /// Bytes of all packets sent.
    pub total: u64,
}

impl History {
    /// Records a sent packet. One whose number does not ascend is counted, but not kept.
    pub fn on_sent(&mut self, now: Instant, packet: Sent) {
        self.total += u64::from(packet.bytes);
        if self.packets.back().is_some_and(|last| last.number >= packet.number) {
            return;
        }
        while self.packets.front().is_some_and(|old| now - old.sent > MEMORY) {
            self.packets.pop_front();
        }
        self.packets.push_back(Packet {
            number: packet.number,
            sent: now,
            bytes: packet.bytes,
            total: self.total,
            status: Status::Unreported,
        });
    }

    /// Returns the changes by a report received at `now`, by ascending number.
    pub fn updates(
        &mut self,
        now: Instant,
        report: &Report<'_>,
    ) -> impl Iterator<Item = (Packet, Update)> {
        report.arrivals.iter().filter_map(move |arrival| self.update(now, arrival))
    }

    fn update(&mut self, now: Instant, arrival: &Arrival) -> Option<(Packet, Update)> {
        let index = self.packets.binary_search_by_key(&arrival.number, |sent| sent.number).ok()?;
        let packet = self.packets.get_mut(index).promised("the packet just found")?;
        let (status, update) = match (packet.status, arrival.at) {
            (Status::Unreported, None) => (Status::Missing { since: now }, Update::Missing),
            (Status::Unreported, Some(at)) => (Status::Arrived, Update::Arrived(at)),
            (Status::Missing { since }, Some(at)) => (Status::Arrived, Update::Late { at, since }),
            (Status::Missing { .. }, None) | (Status::Arrived, _) => return None,
        };
        packet.status = status;
        Some((*packet, update))
    }
}

/// Smoothed round-trip time (RFC 6298 §2): each sample weighs one eighth.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RoundTrip(Option<Duration>);

impl RoundTrip {
    /// Adds a sample: a packet sent at `sent` was received at `at` and reported at `reported`, both by the
    /// receiver's clock, and the report arrived at `now`. The receiver's delay is excluded.
    pub fn sample(&mut self, now: Instant, sent: Instant, at: Instant, reported: Instant) {
        let sample = now.since(sent) - reported.since(at);
        if sample.is_positive() {
            self.0 = Some(self.0.map_or(sample, |old| old + (sample - old) / 8));
        }
    }

    /// Returns the smoothed round-trip time once there is a sample.
    pub fn get(self) -> Option<Duration> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn ms(millis: i64) -> Instant {
        Instant::from_millis(millis)
    }

    #[test]
    fn a_status_change_is_reported_once_and_a_late_one_twice() {
        let mut history = History::default();
        for number in 0..3 {
            history.on_sent(ms(10), Sent { number, bytes: 100 });
        }
        let mut updates = |now, at: [Option<Instant>; 3]| -> Vec<(u64, u64, Update)> {
            let arrivals: Vec<_> =
                (0u64..).zip(at).map(|(number, at)| Arrival { number, at }).collect();
            let report = Report { reported: ms(40), arrivals: &arrivals };
            history
                .updates(ms(now), &report)
                .map(|(p, update)| (p.number, p.total, update))
                .collect()
        };
        assert_eq!(
            updates(60, [Some(ms(30)), None, Some(ms(31))]),
            [
                (0, 100, Update::Arrived(ms(30))),
                (1, 200, Update::Missing),
                (2, 300, Update::Arrived(ms(31)))
            ]
        );
        assert_eq!(
            updates(80, [Some(ms(30)), Some(ms(45)), Some(ms(31))]),
            [(1, 200, Update::Late { at: ms(45), since: ms(60) })]
        );
        assert_eq!(updates(90, [None, None, None]), []);
    }

    // Source: RFC 6298 §2: SRTT ← 7/8 SRTT + 1/8 R'. The receiver's clock is an hour ahead.
    #[test]
    fn the_round_trip_time_excludes_the_receivers_delay() {
        let hour = Duration::from_secs(3600);
        let mut round_trip = RoundTrip::default();
        round_trip.sample(ms(100), ms(0), ms(20) + hour, ms(60) + hour);
        assert_eq!(round_trip.get(), Some(Duration::from_millis(60)));
        round_trip.sample(ms(300), ms(160), ms(200) + hour, ms(200) + hour);
        assert_eq!(round_trip.get(), Some(Duration::from_millis(70)));
    }
}
