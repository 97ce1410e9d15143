//! Acknowledgements of a subflow: samples, the congestion control, and reactions to losses.
//!
//! Source: RFC 4341 §5 and §6.

use skybraid_units::{Bytes, Duration, Instant};

use super::Subflow;
use crate::congestion::{Acked, Lost, Siblings};
use crate::mpdccp::sent_packets::Progress;
use crate::segment::Dccp;

impl Subflow {
    fn sample_rtt(&mut self, rtt: Duration) {
        self.rtt_report.on_sample(rtt);
        self.timer.on_handshake(Some(rtt));
    }

    /// Takes a round-trip time sample if the packet acknowledges the probe, and returns the probe's age.
    pub(super) fn end_probe(&mut self, now: Instant, dccp: &Dccp) -> Option<Duration> {
        let age = self.probe.end(now, dccp.acks.newest())?;
        self.sample_rtt(age - dccp.elapsed);
        Some(age)
    }

    /// Handles an acknowledgement or a SyncAck, which shows that the path works.
    pub(super) fn on_progress(&mut self, now: Instant) {
        self.timer.on_progress();
        self.probe.on_progress();
        self.arm(now);
    }

    /// Processes the acknowledgements of a packet that the peer sent at `sent_at` by its clock.
    pub(super) fn process_acks(
        &mut self,
        now: Instant,
        sent_at: Instant,
        dccp: &Dccp,
        siblings: Siblings<'_>,
    ) {
        let before = self.sent.in_flight();
        let progress = self.sent.on_ack(now, &dccp.acks);
        if !progress.news {
            return;
        }
        if let (Some(tracking), Some(age)) = (&mut self.tracking, progress.newest_age) {
            tracking.on_acked(now, sent_at, dccp, age);
        }
        let rtt = progress.newest_age.map(|age| age - dccp.elapsed);
        if let Some(rtt) = rtt {
            self.sample_rtt(rtt);
        }
        self.on_progress(now);
        self.limit.on_ack(now);
        if self.limit.is_overdue() {
            self.check_age(now);
        }
        self.totals.acked_bytes += progress.payload;
        let delivered = u64::from(progress.delivered) * u64::from(self.segment);
        self.window.on_acked(delivered);
        self.limit.on_delivered(delivered, self.window.bytes());
        if progress.delivered > 0 || progress.lost > 0 {
            self.update_control(now, before, rtt, &progress, siblings);
        }
        let window = self.window_in_packets();
        let newest = self.sent.newest_known();
        self.ratio.on_ack(newest, progress.delivered, self.sent.next(), window);
        self.window.control_mut().set_ack_ratio(self.ratio.get());
    }

    fn update_control(
        &mut self,
        now: Instant,
        before: u64,
        rtt: Option<Duration>,
        progress: &Progress,
        siblings: Siblings<'_>,
    ) {
        let in_bytes = |packets: u32| Bytes::new(u64::from(packets) * u64::from(self.segment));
        let (window, threshold) = (self.window.bytes(), self.window.threshold());
        let acked = Acked {
            now,
            bytes: in_bytes(progress.delivered),
            delivered: Bytes::new(self.sent.delivered()),
            srtt: self.timer.srtt().unwrap_or(Duration::ZERO),
            rtt,
            latest_rtt: rtt,
            in_flight: Bytes::new(before),
            in_flight_after: Bytes::new(self.sent.in_flight()),
            lost: in_bytes(progress.lost),
            window_limited: progress.first.is_some_and(|first| first < self.limited_mark)
                || window < threshold && window < 2 * before,
            recovering: self.reaction.is_recovering(),
            rate: progress.rate,
        };
        self.window.control_mut().on_delivery(&acked, siblings);
        if self.reaction.end(self.sent.newest_known()) {
            self.window.control_mut().on_recovered(now);
        }
        if progress.last_lost.is_some_and(|lost| self.reaction.is_due(lost)) {
            self.reaction.begin(self.sent.next());
            self.totals.fast_recoveries += 1;
            self.window.on_loss(&Lost { now, in_flight: Bytes::new(before) }, siblings);
            self.window.update(self.timer.srtt());
            self.on_reduction(false);
        } else if progress.delivered > 0 {
            // Nothing is retransmitted, so that the window may grow in recovery.
            self.window.control_mut().on_ack(&acked, siblings);
            self.window.update(self.timer.srtt());
        }
    }

    const fn window_in_packets(&self) -> u32 {
        (self.window.bytes() / self.segment as u64) as u32
    }

    /// Records a reduction of the window.
    pub(super) fn on_reduction(&mut self, timeout: bool) {
        self.ratio.on_reduction(self.window_in_packets(), timeout);
        self.window.control_mut().set_ack_ratio(self.ratio.get());
    }
}
