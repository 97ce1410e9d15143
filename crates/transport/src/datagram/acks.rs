//! Acknowledgements of datagrams, for schedulers that send a datagram again before its deadline.

use alloc::collections::VecDeque;

use skybraid_units::{Duration, Instant};

use super::PeerClock;
use crate::segment::{AckedDatagrams, Report};

/// Maximum packets of a path that are tracked; the oldest beyond that are forgotten.
const MAX_TRACKED: usize = 4096;
/// Time by which a packet may overtake another without the other counting as lost.
const REORDERING: Duration = Duration::from_millis(20);
/// Resolution of the times in reports on the wire, which are rounded up.
const TICK: Duration = Duration::from_micros(1);

/// Receiver of one path: which datagrams arrived, and when they must be acknowledged.
#[derive(Clone, Debug, Default)]
pub struct Receipts {
    acked: Option<AckedDatagrams>,
    due: Option<Instant>,
}

impl Receipts {
    /// Records an arrival; a probe has no sequence number.
    pub fn on_received(&mut self, due: Instant, sequence: Option<u64>) {
        if let Some(sequence) = sequence {
            match &mut self.acked {
                Some(acked) => acked.insert(sequence),
                none => *none = Some(AckedDatagrams::of(sequence)),
            }
        }
        self.due.get_or_insert(due);
    }

    /// Instant at which the acknowledgement must be sent; far off if there is nothing new.
    pub fn due(&self) -> Instant {
        self.due.unwrap_or(Instant::FAR_FUTURE)
    }

    /// Returns the datagrams to acknowledge, and waits for the next arrival.
    pub fn take(&mut self) -> Option<AckedDatagrams> {
        self.due = None;
        self.acked
    }
}

/// Sender of one path: the packets that are not acknowledged, and the offset of the peer's clock.
#[derive(Clone, Debug, Default)]
pub struct InFlight {
    packets: VecDeque<Sent>,
    /// Packets sent so far, and those of them that counted as lost.
    sent: u64,
    lost: u64,
    clock: PeerClock,
}

/// A packet whose fate is not known.
#[derive(Clone, Copy, Debug)]
struct Sent {
    at: Instant,
    /// None for a probe or a repair packet.
    sequence: Option<u64>,
    /// Number of packets sent up to this one.
    number: u64,
}

impl InFlight {
    /// Records a sent packet; a probe or a repair packet has no sequence number.
    pub fn on_sent(&mut self, now: Instant, sequence: Option<u64>) {
        if self.packets.len() == MAX_TRACKED {
            self.packets.pop_front();
        }
        self.sent += 1;
        self.packets.push_back(Sent { at: now, sequence, number: self.sent });
    }

    /// Returns the number of the packet that `report` echoes; of several sent at once, that of the first.
    fn echoed(&self, report: &Report) -> Option<u64> {
        let is_echoed = |sent: &&Sent| sent.at <= report.echo && report.echo < sent.at + TICK;
        self.packets.iter().find(is_echoed).map(|packet| packet.number)
    }

    /// Returns how many packets without a sequence number were lost by the count of a report: of all up to
    /// the `echoed` one, those that neither arrived nor are missed by their number.
    fn unnumbered_losses(&self, report: &Report, echoed: u64) -> u64 {
        let is_acked = |sequence| report.acked.is_some_and(|acked| acked.contains(sequence));
        let until = self.packets.iter().take_while(|packet| packet.number <= echoed);
        let missing =
            until.filter(|sent| sent.sequence.is_some_and(|sequence| !is_acked(sequence)));
        echoed.saturating_sub(report.received + self.lost + missing.count() as u64)
    }

    /// Processes a report whose round trip took `rtt`; `settle` hears of each packet whose fate it
    /// shows, oldest first: its delay one way, or `None` if it is lost. Of the packets without a sequence
    /// number as many are lost as the report's count says.
    pub fn on_report(
        &mut self,
        now: Instant,
        rtt: Duration,
        report: &Report,
        mut settle: impl FnMut(Instant, Option<u64>, Option<Duration>),
    ) {
        let delay = self.clock.delay(now, rtt, report.arrived - report.echo);
        let acked = report.acked;
        let echoed = self.echoed(report);
        let mut gone = echoed.map_or(0, |echoed| self.unnumbered_losses(report, echoed));
        let lost = &mut self.lost;
        self.packets.retain(|Sent { at: sent_at, sequence, number }| {
            // Packets arrive in order but for reordering, so those around the echoed one took about as long.
            let later = echoed.map_or(report.echo < *sent_at, |echoed| echoed < *number);
            let arrived = match sequence {
                Some(sequence) => acked.is_some_and(|acked| acked.contains(*sequence)),
                None => !later && gone == 0,
            };
            let overtaken = *sent_at + REORDERING < report.echo || sequence.is_none() && !later;
            if arrived {
                settle(*sent_at, *sequence, Some(delay));
            } else if overtaken {
                gone = gone.saturating_sub(u64::from(sequence.is_none()));
                *lost += 1;
                settle(*sent_at, *sequence, None);
            }
            !arrived && !overtaken
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn report(echo: i64, arrived: i64, acked: AckedDatagrams) -> Report {
        let at = Instant::from_millis;
        Report {
            echo: at(echo),
            arrived: at(arrived),
            received: 1,
            acked: Some(acked),
            recovered: None,
        }
    }

    fn fates(
        in_flight: &mut InFlight,
        now: i64,
        rtt: i64,
        report: &Report,
    ) -> Vec<(u64, Option<Duration>)> {
        let mut fates = Vec::new();
        let settle =
            |_, sequence: Option<u64>, fate| fates.push((sequence.unwrap_or(u64::MAX), fate));
        let (now, rtt) = (Instant::from_millis(now), Duration::from_millis(rtt));
        in_flight.on_report(now, rtt, report, settle);
        fates
    }

    #[test]
    fn a_gap_is_lost_once_later_packets_have_arrived() {
        let mut in_flight = InFlight::default();
        for sequence in 0..5 {
            in_flight.on_sent(Instant::from_millis(10 * sequence as i64), Some(sequence));
        }
        let arrived = Some(Duration::from_millis(20));
        // The packet sent at 10 ms is missing, but may have been overtaken by that sent at 20 ms.
        let first = report(20, 40, AckedDatagrams { newest: 2, before: 0b10 });
        assert_eq!(fates(&mut in_flight, 60, 40, &first), [(0, arrived), (2, arrived)]);
        let second = report(40, 60, AckedDatagrams { newest: 4, before: 0b1011 });
        assert_eq!(fates(&mut in_flight, 80, 40, &second), [(1, None), (3, arrived), (4, arrived)]);
    }

    // Two of four packets arrived: those with a number, so that both without one are lost.
    #[test]
    fn what_has_no_number_is_lost_by_the_count() {
        let mut in_flight = InFlight::default();
        for (sent, sequence) in [(0, Some(0)), (10, None), (20, None), (30, Some(1))] {
            in_flight.on_sent(Instant::from_millis(sent), sequence);
        }
        let arrived = Some(Duration::from_millis(20));
        let acked = AckedDatagrams { newest: 1, before: 1 };
        let both = Report { received: 2, ..report(30, 50, acked) };
        let none = u64::MAX;
        let expected = [(0, arrived), (none, None), (none, None), (1, arrived)];
        assert_eq!(fates(&mut in_flight, 70, 40, &both), expected);
        in_flight.on_sent(Instant::from_millis(40), None);
        let third = Report { received: 3, ..report(40, 60, acked) };
        assert_eq!(fates(&mut in_flight, 80, 40, &third), [(none, arrived)]);
    }

    // Times on the wire are whole microseconds, rounded up.
    #[test]
    fn a_rounded_echo_still_shows_what_was_lost() {
        let mut in_flight = InFlight::default();
        in_flight.on_sent(Instant::from_nanos(9_000_001), None);
        in_flight.on_sent(Instant::from_nanos(9_999_001), Some(0));
        let lost_and_arrived = [(u64::MAX, None), (0, Some(Duration::from_millis(20)))];
        let report = report(10, 30, AckedDatagrams::of(0));
        assert_eq!(fates(&mut in_flight, 50, 40, &report), lost_and_arrived);
    }

    // Three leave at once, and the second is lost: known once a later packet arrives.
    #[test]
    fn packets_sent_at_once_may_still_be_on_their_way() {
        let mut in_flight = InFlight::default();
        for sent in [0, 0, 0, 50] {
            in_flight.on_sent(Instant::from_millis(sent), None);
        }
        let (none, arrived) = (u64::MAX, Some(Duration::from_millis(20)));
        let counted = |received, echo| Report {
            received,
            acked: None,
            ..report(echo, echo + 20, AckedDatagrams::of(0))
        };
        assert_eq!(fates(&mut in_flight, 40, 40, &counted(1, 0)), [(none, arrived)]);
        assert_eq!(fates(&mut in_flight, 41, 40, &counted(2, 0)), [(none, arrived)]);
        let rest = [(none, None), (none, arrived)];
        assert_eq!(fates(&mut in_flight, 90, 40, &counted(3, 50)), rest);
    }

    // The peer's clock is an hour ahead. The way back takes 20 ms more with the second packet.
    #[test]
    fn a_slow_way_back_does_not_lengthen_the_delay() {
        let mut in_flight = InFlight::default();
        let hour = 3_600_000;
        in_flight.on_sent(Instant::ZERO, Some(0));
        in_flight.on_sent(Instant::from_millis(100), Some(1));
        let arrived = Some(Duration::from_millis(20));
        let first = report(0, hour + 20, AckedDatagrams::of(0));
        assert_eq!(fates(&mut in_flight, 40, 40, &first), [(0, arrived)]);
        let second = report(100, hour + 120, AckedDatagrams { newest: 1, before: 1 });
        assert_eq!(fates(&mut in_flight, 160, 60, &second), [(1, arrived)]);
    }

    proptest::proptest! {
        #[test]
        fn acknowledged_datagrams_are_those_received(
            sequences in proptest::collection::vec(0u64..200, 1..80)
        ) {
            let mut acked = AckedDatagrams::of(sequences[0]);
            for (count, sequence) in sequences.iter().enumerate() {
                acked.insert(*sequence);
                let seen = &sequences[..=count];
                let newest = *seen.iter().max().unwrap();
                proptest::prop_assert_eq!(acked.newest, newest);
                for number in 0..=newest + 1 {
                    if acked.contains(number) {
                        proptest::prop_assert!(seen.contains(&number), "{}", number);
                    }
                    // Recorded if it was received while no more than 64 below the newest.
                    let late = |at: usize| {
                        seen[..=at].iter().max().unwrap() - number > 64
                    };
                    let in_time = (0..seen.len()).any(|at| seen[at] == number && !late(at));
                    if in_time && newest - number.min(newest) <= 64 {
                        proptest::prop_assert!(acked.contains(number), "{}", number);
                    }
                }
            }
        }
    }
}
