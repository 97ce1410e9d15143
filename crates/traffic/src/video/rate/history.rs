//! What the sender remembers of the packets it sent, and what a report says that is new of them.

use alloc::collections::VecDeque;

use skybraid_units::{Duration, Instant};

use super::{Arrival, Report, Sent};

/// How long a packet is remembered; a report on an older one says nothing.
const MEMORY: Duration = Duration::from_secs(10);

/// A packet that was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet {
    pub number: u64,
    pub sent: Instant,
    pub bytes: u32,
    /// Bytes of all packets up to this one and with it.
    pub total: u64,
    known: Known,
}

/// What has been reported of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    Nothing,
    Missing { since: Instant },
    Arrived,
}

/// What a report says of a packet and none has said before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// It arrived, at this time of the receiver.
    Arrived(Instant),
    /// It is missing.
    Missing,
    /// It was reported missing at `since`, and arrived after all.
    Late { at: Instant, since: Instant },
}

/// The packets sent of late.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    packets: VecDeque<Packet>,
    /// Bytes sent so far.
    pub total: u64,
}

impl History {
    /// A packet was sent. One whose number does not rise is counted, but never found again.
    pub fn sent(&mut self, now: Instant, packet: Sent) {
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
            known: Known::Nothing,
        });
    }

    /// What is new in a report that came `now`, by rising number.
    pub fn news(
        &mut self,
        now: Instant,
        report: &Report<'_>,
    ) -> impl Iterator<Item = (Packet, News)> {
        report.arrivals.iter().filter_map(move |arrival| self.learn(now, arrival))
    }

    fn learn(&mut self, now: Instant, arrival: &Arrival) -> Option<(Packet, News)> {
        let index = self.packets.binary_search_by_key(&arrival.number, |sent| sent.number).ok()?;
        let packet = self.packets.get_mut(index)?;
        let (known, news) = match (packet.known, arrival.at) {
            (Known::Nothing, None) => (Known::Missing { since: now }, News::Missing),
            (Known::Nothing, Some(at)) => (Known::Arrived, News::Arrived(at)),
            (Known::Missing { since }, Some(at)) => (Known::Arrived, News::Late { at, since }),
            (Known::Missing { .. }, None) | (Known::Arrived, _) => return None,
        };
        packet.known = known;
        Some((*packet, news))
    }
}

/// The smoothed round-trip time of RFC 6298 §2: an eighth of each sample.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RoundTrip(Option<Duration>);

impl RoundTrip {
    /// A packet sent at `sent` arrived at `at` and was reported at `reported`, both by the receiver's
    /// clock; the report came `now`. How long the receiver held it is no part of the round trip.
    pub fn sample(&mut self, now: Instant, sent: Instant, at: Instant, reported: Instant) {
        let sample = now.since(sent) - reported.since(at);
        if sample.is_positive() {
            self.0 = Some(self.0.map_or(sample, |old| old + (sample - old) / 8));
        }
    }

    /// The smoothed time, once there is one.
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
    fn a_report_is_news_once_and_a_late_packet_twice() {
        let mut history = History::default();
        for number in 0..3 {
            history.sent(ms(10), Sent { number, bytes: 100 });
        }
        let mut news = |now, at: [Option<Instant>; 3]| -> Vec<(u64, u64, News)> {
            let arrivals: Vec<_> =
                (0u64..).zip(at).map(|(number, at)| Arrival { number, at }).collect();
            let report = Report { reported: ms(40), arrivals: &arrivals };
            history.news(ms(now), &report).map(|(p, news)| (p.number, p.total, news)).collect()
        };
        assert_eq!(
            news(60, [Some(ms(30)), None, Some(ms(31))]),
            [
                (0, 100, News::Arrived(ms(30))),
                (1, 200, News::Missing),
                (2, 300, News::Arrived(ms(31)))
            ]
        );
        assert_eq!(
            news(80, [Some(ms(30)), Some(ms(45)), Some(ms(31))]),
            [(1, 200, News::Late { at: ms(45), since: ms(60) })]
        );
        assert_eq!(news(90, [None, None, None]), []);
    }

    // Source: RFC 6298 §2: SRTT ← 7/8 SRTT + 1/8 R'. The receiver's clock is an hour ahead.
    #[test]
    fn the_round_trip_leaves_out_how_long_the_receiver_held_the_packet() {
        let hour = Duration::from_secs(3600);
        let mut round_trip = RoundTrip::default();
        round_trip.sample(ms(100), ms(0), ms(20) + hour, ms(60) + hour);
        assert_eq!(round_trip.get(), Some(Duration::from_millis(60)));
        round_trip.sample(ms(300), ms(160), ms(200) + hour, ms(200) + hour);
        assert_eq!(round_trip.get(), Some(Duration::from_millis(70)));
    }
}
