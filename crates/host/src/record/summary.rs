//! Statistics of a flow.

use alloc::boxed::Box;
use alloc::vec::Vec;

use skybraid_link::Cause;
use skybraid_transport::ConnectionTotals;
use skybraid_transport::scheduler::forecast::Forecast;
use skybraid_units::{Duration, Instant};

use super::misses::Misses;
use super::timeline::{Tally, Timeline};
use super::{Histogram, MessageRow, VideoSummary};

/// Statistics of a flow.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Messages written.
    pub sent: u64,
    /// Messages delivered.
    pub delivered: u64,
    /// Payload bytes of delivered messages.
    pub delivered_bytes: u64,
    /// Messages written and delivered, by the time of writing; without those in flight at the end.
    pub arrivals: Timeline<Tally>,
    /// Payload bytes delivered, by the time of delivery.
    pub goodput: Timeline<u64>,
    /// One-way delays of delivered messages.
    pub delays: Histogram,
    /// For each deadline: messages due within the run, and those that met it.
    pub deadlines: Vec<Deadline>,
    /// Packets with payload sent, by path of the sender's connection.
    pub packets_by_path: Vec<u64>,
    /// Messages delivered, by the path of the receiver's connection that delivered them first.
    pub won_by_path: Vec<u64>,
    /// One-way delays by the time of writing, if a requirement bounds a percentile.
    pub delays_over_time: Option<Timeline<Histogram, 64>>,
    /// Head-of-line blocking of delivered messages.
    pub held: Held,
    /// Messages in flight at the end of the run.
    pub in_flight: u64,
    /// Messages that are never delivered.
    pub lost: u64,
    /// Lost messages that the sender dropped for want of room or time.
    pub refused: u64,
    /// Packets with payload that the links lost, in the order of [`Cause::ALL`].
    pub lost_packets: [u64; Cause::ALL.len()],
    /// Causes of missed deadlines and of lost messages.
    pub misses: Misses,
    /// Totals of the connection, as seen by this flow's sender and receiver.
    pub connection: ConnectionTotals,
    /// Share of the last messages that the sender's scheduler expects in time, if it estimates that.
    pub forecast: Option<Box<Forecast>>,
    /// Statistics of the frames of a video.
    pub video: Option<Box<VideoSummary>>,
}

/// Head-of-line blocking: messages that were complete in the receive buffer but waited for an earlier one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Blocked messages.
    pub messages: u64,
    /// Sum of their waits.
    pub total: Duration,
    /// Longest wait.
    pub longest: Duration,
}

impl Held {
    #[inline]
    pub(super) fn add(&mut self, held: Duration) {
        if held.is_positive() {
            self.messages += 1;
            self.total += held;
            self.longest = self.longest.max(held);
        }
    }
}

impl Summary {
    /// Counts messages by their rows, in a run that ends at `end`. A message that is delivered later is counted as
    /// written; call [`count_delivery`](Self::count_delivery) for it then.
    pub(super) fn count(&mut self, rows: &[MessageRow], end: Instant) {
        let tally = |met| Tally { trials: 1, met: u32::from(met) };
        self.sent += rows.len() as u64;
        self.arrivals.extend(rows.iter().map(|row| (row.sent(), tally(row.delivered().is_some()))));
        for Deadline { limit, trials, met, timeline } in &mut self.deadlines {
            let (limit, last) = (*limit, end - *limit);
            let (mut due, mut in_time) = (0, 0);
            timeline.extend(rows.iter().filter(|row| row.sent() <= last).map(|row| {
                let is_met = row.delivered().is_some_and(|at| at - row.sent() <= limit);
                due += 1;
                in_time += u64::from(is_met);
                (row.sent(), tally(is_met))
            }));
            *trials += due;
            *met += in_time;
        }
        self.add_deliveries(rows.iter().filter_map(|row| Some((row, row.delivered()?))));
    }

    /// Counts what does not depend on the deadlines.
    #[inline]
    fn add_deliveries<'a>(&mut self, rows: impl Iterator<Item = (&'a MessageRow, Instant)>) {
        for (row, at) in rows {
            let (delay, bytes) = (at - row.sent(), u64::from(row.bytes));
            self.delivered += 1;
            self.delivered_bytes += bytes;
            // Paths of different delay deliver in turn, each into a bin of its own.
            *self.goodput.at(at) += bytes;
            self.delays.add(delay);
            if let Some(delays) = &mut self.delays_over_time {
                delays.at(row.sent()).add(delay);
            }
            // A kernel that has several paths does not say which one it was.
            if let Some(won) = self.won_by_path.get_mut(usize::from(row.path)) {
                *won += 1;
            }
        }
    }

    /// Counts the delivery of a message that has been counted as written.
    pub(super) fn count_delivery(&mut self, row: &MessageRow, end: Instant) {
        let Some(at) = row.delivered() else { return };
        let sent = row.sent();
        self.arrivals.at(sent).met += 1;
        for deadline in &mut self.deadlines {
            if sent + deadline.limit <= end && at - sent <= deadline.limit {
                deadline.on_met(sent);
            }
        }
        self.add_deliveries(core::iter::once((row, at)));
    }

    /// Adds the counts of another flow; timelines are added as if both flows ran at the same time.
    pub fn merge(&mut self, other: &Self) {
        self.sent += other.sent;
        self.delivered += other.delivered;
        self.in_flight += other.in_flight;
        self.lost += other.lost;
        self.refused += other.refused;
        self.delivered_bytes += other.delivered_bytes;
        self.arrivals.merge(&other.arrivals);
        self.goodput.merge(&other.goodput);
        self.delays.merge(&other.delays);
        if let (Some(delays), Some(more)) = (&mut self.delays_over_time, &other.delays_over_time) {
            delays.merge(more);
        }
        for (deadline, more) in self.deadlines.iter_mut().zip(&other.deadlines) {
            deadline.merge(more);
        }
        let add = |counts: &mut [u64], more: &[u64]| {
            for (count, more) in counts.iter_mut().zip(more) {
                *count += more;
            }
        };
        add(&mut self.lost_packets, &other.lost_packets);
        self.misses.merge(&other.misses);
        add(&mut self.packets_by_path, &other.packets_by_path);
        add(&mut self.won_by_path, &other.won_by_path);
        self.held.messages += other.held.messages;
        self.held.total += other.held.total;
        self.held.longest = self.held.longest.max(other.held.longest);
        self.connection += other.connection;
        if let Some(forecast) = &other.forecast {
            **self.forecast.get_or_insert_default() += **forecast;
        }
        if let (Some(video), Some(more)) = (&mut self.video, &other.video) {
            video.merge(more);
        }
    }
}

/// Arrivals judged by one deadline.
#[derive(Clone, Debug)]
pub struct Deadline {
    /// Time from writing to the deadline.
    pub limit: Duration,
    /// Messages whose deadline fell within the run.
    pub trials: u64,
    /// Messages among these that were delivered in time.
    pub met: u64,
    /// Both counts by the time of writing.
    pub timeline: Timeline<Tally>,
}

impl Deadline {
    /// Creates the counts of a deadline, without a message.
    pub fn new(limit: Duration) -> Self {
        Self { limit, trials: 0, met: 0, timeline: Timeline::default() }
    }

    /// Counts a message or frame of `sent` whose deadline falls within the run.
    #[inline]
    pub fn on_due(&mut self, sent: Instant) {
        self.trials += 1;
        self.timeline.at(sent).trials += 1;
    }

    /// Counts a message or frame of `sent`, already counted by [`on_due`](Self::on_due), as delivered in time.
    #[inline]
    pub fn on_met(&mut self, sent: Instant) {
        self.met += 1;
        self.timeline.at(sent).met += 1;
    }

    /// Adds the counts of another flow in the same run.
    pub fn merge(&mut self, other: &Self) {
        self.trials += other.trials;
        self.met += other.met;
        self.timeline.merge(&other.timeline);
    }
}
