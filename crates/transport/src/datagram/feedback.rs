//! Reports about each path: what a receiver reports, and what a sender learns from the peer's reports.

use alloc::vec::Vec;

use skybraid_units::{Duration, Instant, Promised};

use super::acks::{InFlight, Receipts};
use super::{Hedges, without_message};
use crate::endpoint::Transmit;
use crate::rtt::{RtoRule, RttEstimator};
use crate::scheduler::Scheduler;
use crate::segment::{AckedDatagrams, Body, Datagram, IPV4_HEADER, Report, UDP_HEADER};
use crate::{PathId, PathView};

/// Payload of a report in bytes: sequence number, two timestamps, count.
const REPORT_PAYLOAD: u32 = 28;
/// The same with acknowledgements: a sequence number and a bitmap besides.
const ACK_PAYLOAD: u32 = 36;
/// Those of recovered datagrams.
const RECOVERED_PAYLOAD: u32 = 16;
/// Number of consecutive missing reports after which a path counts as failed.
const MISSING_REPORTS: i64 = 3;

/// Both directions of the reports of a flow.
#[derive(Debug)]
pub struct Feedback {
    paths: Vec<Path>,
    report_every: Duration,
    /// Instant of the first packet that needs a report; far off once the peer has reported.
    asked_at: Option<Instant>,
    /// `None` if the scheduler needs no acknowledgements.
    acks: Option<Acks>,
}

/// Acknowledgements in reports, and the datagrams that lack one.
#[derive(Debug)]
struct Acks {
    /// Maximum delay of an acknowledgement.
    delay: Duration,
    /// Datagrams that are offered to the scheduler again.
    hedges: Hedges,
}

#[derive(Debug)]
struct Path {
    /// False if the driver has excluded the path.
    allowed: bool,
    rtt: RttEstimator,
    last_sent: Instant,
    /// Time of sending of the oldest datagram that no report has acknowledged.
    unanswered_since: Option<Instant>,
    /// Receiver: datagrams received so far, and the time of the last report.
    received: u64,
    reported: Option<Instant>,
    report: Option<Report>,
    receipts: Receipts,
    /// Receiver: datagrams were recovered since the last report.
    unreported_recovery: bool,
    in_flight: InFlight,
}

impl Feedback {
    /// Creates the state of this number of paths. `ack_delay` is the maximum delay of an acknowledgement, if the
    /// scheduler needs them.
    pub fn new(paths: usize, report_every: Duration, ack_delay: Option<Duration>) -> Self {
        let (min_rto, max_rto) = (Duration::from_millis(200), Duration::from_secs(120));
        let path = |_| Path {
            allowed: true,
            rtt: RttEstimator::new(RtoRule::Linux, min_rto, max_rto),
            last_sent: Instant::ZERO - report_every,
            unanswered_since: None,
            received: 0,
            reported: None,
            report: None,
            receipts: Receipts::default(),
            unreported_recovery: false,
            in_flight: InFlight::default(),
        };
        Self {
            paths: (0..paths).map(path).collect(),
            report_every,
            asked_at: None,
            acks: ack_delay.map(|delay| Acks { delay, hedges: Hedges::default() }),
        }
    }

    /// True if no report has come for `time` after a packet.
    pub fn never_came(&self, now: Instant, time: Duration) -> bool {
        self.asked_at.is_some_and(|at| now.since(at) > time)
    }

    /// Allows or forbids messages on `path`.
    pub fn set_allowed(&mut self, path: PathId, allowed: bool) {
        if let Some(state) = self.paths.get_mut(path.index()) {
            state.allowed = allowed;
        }
    }

    /// Datagrams that are offered to the scheduler again, if it needs acknowledgements.
    pub const fn hedges(&self) -> Option<&Hedges> {
        match &self.acks {
            Some(acks) => Some(&acks.hedges),
            None => None,
        }
    }

    /// Datagrams that are offered to the scheduler again, if it needs acknowledgements.
    pub const fn hedges_mut(&mut self) -> Option<&mut Hedges> {
        match &mut self.acks {
            Some(acks) => Some(&mut acks.hedges),
            None => None,
        }
    }

    /// Receiver: records the arrival of a datagram, a probe or a repair packet.
    pub fn on_arrival(
        &mut self,
        now: Instant,
        path: PathId,
        sent_at: Instant,
        sequence: Option<u64>,
    ) {
        let Some(state) = self.paths.get_mut(path.index()).promised("a path of the flow") else {
            return;
        };
        state.received += 1;
        let received = state.received;
        let (echo, arrived) = (sent_at, now);
        let report = Report { echo, arrived, received, acked: None, recovered: None };
        if let Some(acks) = &self.acks {
            let due = state.reported.map_or(now, |last| now.max(last + acks.delay));
            state.receipts.on_received(due, sequence);
            // The newest counts; one that was overtaken says nothing of the path's present.
            if state.report.is_none_or(|last| last.echo <= sent_at) {
                state.report = Some(report);
            }
        } else if state.reported.is_none_or(|last| now.since(last) >= self.report_every) {
            state.reported = Some(now);
            state.report = Some(report);
        }
    }

    /// Receiver: records that datagrams were recovered.
    pub fn on_recovered(&mut self) {
        self.paths.iter_mut().for_each(|path| path.unreported_recovery = true);
    }

    /// Sender: records that a datagram, a probe or a repair packet leaves on `path`.
    #[inline(never)]
    pub fn on_sent(
        &mut self,
        now: Instant,
        path: PathId,
        sequence: Option<u64>,
        scheduler: &mut dyn Scheduler,
    ) {
        if let Some(state) = self.paths.get_mut(path.index()).promised("the path of a view") {
            state.last_sent = now;
            state.unanswered_since.get_or_insert(now);
            self.asked_at.get_or_insert(now);
            if self.acks.is_some() {
                state.in_flight.on_sent(now, sequence);
                scheduler.on_sent(now, path);
            }
        }
    }

    /// Sender: processes the peer's report about `path`, sent at `sent_at` by the peer's clock.
    pub fn on_report(
        &mut self,
        now: Instant,
        path: PathId,
        sent_at: Instant,
        report: &Report,
        scheduler: &mut dyn Scheduler,
    ) {
        let Some(state) = self.paths.get_mut(path.index()).promised("a path of the flow") else {
            return;
        };
        let rtt = now.since(report.echo + sent_at.since(report.arrived));
        state.rtt.on_sample(rtt, true);
        state.unanswered_since = None;
        if self.acks.is_none() || report.acked.is_some() {
            self.asked_at = Some(Instant::FAR_FUTURE);
        }
        if let Some(Acks { hedges, .. }) = &mut self.acks {
            state.in_flight.on_report(now, rtt, report, |sent_at, sequence, delay| {
                scheduler.on_settled(now, path, sent_at, delay);
                if let Some(sequence) = sequence.filter(|_| delay.is_some()) {
                    hedges.on_acked(sequence);
                }
            });
        }
    }

    /// Returns the next report to send, or a probe of a path that carries nothing although datagrams wait. `recovered`
    /// are the newest datagrams that were recovered.
    #[inline(never)]
    pub fn poll(
        &mut self,
        now: Instant,
        recovered: Option<AckedDatagrams>,
        waiting: bool,
        scheduler: &mut dyn Scheduler,
    ) -> Option<Transmit> {
        for (index, state) in self.paths.iter_mut().enumerate() {
            let path = PathId(index as u8);
            let mut size = IPV4_HEADER + UDP_HEADER + REPORT_PAYLOAD;
            let ready = self.acks.is_none() || state.receipts.due() <= now;
            let body = if let Some(report) = state.report.take_if(|_| ready) {
                state.reported = Some(now);
                let acked = state.receipts.take();
                if acked.is_some() {
                    size = IPV4_HEADER + UDP_HEADER + ACK_PAYLOAD;
                }
                let news = core::mem::take(&mut state.unreported_recovery);
                let recovered = recovered.filter(|_| news);
                if recovered.is_some() {
                    size += RECOVERED_PAYLOAD;
                }
                Body::Report(Report { acked, recovered, ..report })
            } else if now.since(state.last_sent) >= self.report_every && waiting {
                state.last_sent = now;
                state.unanswered_since.get_or_insert(now);
                if self.acks.is_some() {
                    state.in_flight.on_sent(now, None);
                    scheduler.on_sent(now, path);
                }
                let (sequence, message, len, fragment, fragments) = (0, 0, 0, 0, 0);
                Body::Datagram(Datagram { sequence, message, len, fragment, fragments })
            } else {
                continue;
            };
            return Some(Transmit { path, segment: without_message(now, size, body) });
        }
        None
    }

    /// Updates the views of all paths. Not inlined: most flows have no reports.
    #[inline(never)]
    pub fn refresh(&self, now: Instant, views: &mut [PathView], judges_silence: bool) {
        let max_silence = self.report_every * MISSING_REPORTS;
        for (view, path) in views.iter_mut().zip(&self.paths) {
            let responds = judges_silence
                || path.unanswered_since.is_none_or(|since| {
                    now.since(since) <= max_silence + path.rtt.srtt().unwrap_or(max_silence)
                });
            view.usable = path.allowed && responds;
            view.srtt = path.rtt.srtt();
            view.rtt_deviation = path.rtt.deviation();
            view.min_rtt = path.rtt.min_rtt();
        }
        if views.iter().all(|view| !view.usable) {
            // If every path is silent, all of them are tried.
            views.iter_mut().for_each(|view| view.usable = true);
        }
    }

    /// Time of the next acknowledgement or offer.
    #[inline(never)]
    pub fn next_wakeup(&self) -> Instant {
        let Some(acks) = &self.acks else { return Instant::FAR_FUTURE };
        let due = self.paths.iter().map(|path| path.receipts.due());
        due.fold(acks.hedges.next(), Instant::min)
    }
}
