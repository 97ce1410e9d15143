//! Loss detection: by time, by selective acknowledgements, by duplicates, by a timeout.

use skybraid_units::{Duration, Instant, Promised};

use super::{DUPLICATE_THRESHOLD, LossDetection, Progress, Scoreboard, Sent, State};

impl Scoreboard {
    /// Records a partial acknowledgement in fast recovery: without SACK, the oldest segment is lost (RFC 6582 §3.2
    /// step 3); ns-3 gives up the retransmission of the oldest segment.
    pub fn on_partial_ack(&mut self) {
        let gives_up = match self.detection {
            LossDetection::NewReno => true,
            LossDetection::Ns3 => self.sent.front().is_some_and(|oldest| oldest.retransmitted),
            LossDetection::Rack | LossDetection::Sack => false,
        };
        if gives_up {
            self.mark_first_lost();
        }
    }

    fn mark_first_lost(&mut self) -> bool {
        self.cursor = 0;
        self.mark_lost(0)
    }

    /// Returns the segments marked lost and not retransmitted to the pipe: the recovery was
    /// spurious.
    pub fn undo_losses(&mut self) {
        for sent in &mut self.sent {
            if sent.state == State::Lost {
                sent.state = State::InFlight;
                self.pipe += u64::from(sent.chunk.len);
            }
        }
        self.lost = 0;
        self.inflation = 0;
        self.judged = self.una;
    }

    /// Records the end of a recovery.
    pub fn on_recovered(&mut self) {
        self.rack.on_recovered();
        if self.detection == LossDetection::Ns3 {
            self.duplicate_acks = 0;
        }
    }

    /// Instant at which [`detect`](Self::detect) must be called.
    pub const fn detect_at(&self) -> Instant {
        self.detect_at
    }

    /// Detects losses by time. Returns true if one was found.
    pub fn detect(&mut self, now: Instant, recovering: bool, srtt: Duration) -> bool {
        self.detect_at <= now && self.detect_by_time(now, recovering, srtt)
    }

    /// Marks segments lost after a retransmission timeout: all of them (RFC 6298 §5.4, RFC 6675
    /// §5.1), or the oldest and all whose time has come (RFC 8985 §6.3).
    pub fn on_timeout(&mut self, now: Instant, recovering: bool, srtt: Duration) {
        self.deflate();
        let window = self.rack.window(recovering, self.sacked_segments, srtt);
        for index in 0..self.sent.len() {
            let due = self.detection != LossDetection::Rack
                || index == 0
                || self
                    .sent
                    .get(index)
                    .promised("a sent segment")
                    .is_some_and(|sent| self.rack.lost_at(sent.at, window) <= now);
            if due {
                self.mark_lost(index);
            }
        }
        self.cursor = 0;
        self.duplicate_acks = 0;
        if self.detection != LossDetection::Rack {
            self.judged = self.next;
            if let Some(repairs) = &mut self.repairs {
                repairs.resent.clear();
            }
        }
    }

    #[inline(never)]
    pub(super) fn count_duplicates(&mut self, repeated: bool, progress: &mut Progress) {
        if progress.advanced > 0 {
            self.duplicate_acks = 0;
            // The hole that the acknowledgement fills was not counted; the segments after it were.
            let counted = progress.advanced - progress.advanced.min(self.segment);
            let counted = counted.min(self.inflation);
            self.inflation -= counted;
            self.pipe = (self.pipe + counted).min(self.next - self.una);
            if self.judged <= self.una {
                self.deflate();
            }
        } else if repeated && !self.sent.is_empty() {
            self.duplicate_acks += 1;
            // Each duplicate acknowledgement is for a segment that has left the network (RFC 5681
            // §3.2).
            let left = self.pipe.min(self.segment);
            self.pipe -= left;
            self.inflation += left;
            // A loss below `judged` is being recovered already (RFC 6582 §3.2 step 1).
            if self.duplicate_acks == DUPLICATE_THRESHOLD && self.judged <= self.una {
                progress.found_loss = self.mark_first_lost();
                self.judged = self.next;
            }
        }
    }

    /// Counts an acknowledgement with or without news of segments out of order. Returns true if a recovery begins:
    /// with the third one since the cumulative acknowledgement advanced, or if the first segment after the oldest one
    /// that is known to be lost or to have arrived is lost. (ns-3 looks for a lost segment from the second one on,
    /// where RFC 6675 §5 step 2 has the first one.)
    pub(super) fn count_news(&mut self, has_news: bool, recovering: bool, advanced: u64) -> bool {
        if !has_news {
            if advanced > 0 {
                self.duplicate_acks = 0;
            }
            return false;
        }
        if recovering {
            return false;
        }
        self.duplicate_acks += 1;
        if self.duplicate_acks == DUPLICATE_THRESHOLD {
            self.mark_first_lost();
            return true;
        }
        let is_lost = |sent: &Sent| {
            sent.state == State::Lost || sent.state == State::InFlight && sent.retransmitted
        };
        let mut later = self.sent.iter().skip(usize::from(advanced == 0));
        later.find(|sent| sent.state == State::Sacked || is_lost(sent)).is_some_and(is_lost)
    }

    /// Restores the pipe from the segments in flight: the recovery is over.
    fn deflate(&mut self) {
        self.pipe = self
            .sent
            .iter()
            .filter(|sent| sent.state == State::InFlight)
            .map(|sent| u64::from(sent.chunk.len))
            .sum();
        self.inflation = 0;
    }

    /// Marks segments lost that are below the third highest selectively acknowledged segment.
    #[inline(never)]
    pub(super) fn detect_by_sacks(&mut self) -> bool {
        if self.highest_sacked <= self.una {
            return false;
        }
        let top = self.sent.partition_point(|sent| sent.seq < self.highest_sacked);
        let mut seen = 0;
        let mut line = None;
        for sent in self.sent.range(..top).rev() {
            if sent.seq < self.judged {
                break;
            }
            if sent.state == State::Sacked {
                seen += 1;
                if seen == DUPLICATE_THRESHOLD {
                    line = Some(sent.seq);
                    break;
                }
            }
        }
        let Some(line) = line else { return false };
        let first = self.sent.partition_point(|sent| sent.seq < self.judged);
        let last = self.sent.partition_point(|sent| sent.seq < line);
        let mut found = false;
        for index in first..last {
            let sent = self.sent.get(index).promised("a sent segment");
            let once = sent.is_some_and(|sent| !sent.retransmitted);
            found |= once && self.mark_lost(index);
        }
        self.judged = line;
        found
    }

    /// True if no segment has been overtaken by one that arrived, and none was retransmitted: there is no loss to
    /// detect by time.
    #[inline]
    pub(super) fn is_in_order(&self) -> bool {
        self.first_resent().is_none()
            && self.judged <= self.una
            && self.sent.front().is_none_or(|sent| {
                sent.was_sent_once() && !self.rack.is_overtaken(sent.at, sent.end())
            })
    }

    /// RACK: marks segments lost that a later one has overtaken by more than the reordering window,
    /// and sets the timer for the others (RFC 8985 §6.2 step 5).
    #[cold]
    pub(super) fn detect_by_time(
        &mut self,
        now: Instant,
        recovering: bool,
        srtt: Duration,
    ) -> bool {
        self.detect_at = Instant::FAR_FUTURE;
        let window = self.rack.window(recovering, self.sacked_segments, srtt);
        let mut latest = Instant::ZERO;
        let mut found = false;
        // Segments sent once are in the order of their transmission.
        let mut index = if self.judged <= self.una {
            0
        } else {
            self.sent.partition_point(|sent| sent.seq < self.judged)
        };
        let mut settled = true;
        while let Some(sent) = self.sent.get(index) {
            if sent.was_sent_once() {
                if !self.rack.is_overtaken(sent.at, sent.end()) {
                    break;
                }
                let lost_at = self.rack.lost_at(sent.at, window);
                if lost_at <= now {
                    found |= self.mark_lost(index);
                } else {
                    settled = false;
                    latest = latest.max(lost_at);
                }
            }
            index += 1;
            if settled {
                self.judged = self.sent.get(index).map_or(self.next, |sent| sent.seq);
            }
        }
        // Retransmissions are in their own order.
        while let Some((at, seq)) = self.first_resent() {
            let index = self.sent.partition_point(|sent| sent.seq < seq);
            let under_way = self
                .sent
                .get(index)
                .is_some_and(|sent| (sent.seq, sent.at, sent.state) == (seq, at, State::InFlight));
            if under_way {
                let end = self.sent.get(index).map_or(seq, Sent::end);
                if !self.rack.is_overtaken(at, end) {
                    break;
                }
                let lost_at = self.rack.lost_at(at, window);
                if lost_at > now {
                    latest = latest.max(lost_at);
                    break;
                }
                found |= self.mark_lost(index);
            }
            self.forget_first_resent();
        }
        if latest > now {
            self.detect_at = latest;
        }
        found
    }

    /// Returns the oldest retransmission that is remembered: its time and its sequence number.
    #[inline]
    fn first_resent(&self) -> Option<(Instant, u64)> {
        self.repairs.as_ref()?.resent.front().copied()
    }

    /// Forgets the retransmission of [`first_resent`](Self::first_resent).
    fn forget_first_resent(&mut self) {
        if let Some(repairs) = &mut self.repairs {
            repairs.resent.pop_front();
        }
    }

    /// Marks retransmissions lost that later segments have overtaken.
    #[inline(never)]
    pub(super) fn detect_lost_retransmissions(&mut self) {
        while let Some((at, seq)) = self.first_resent() {
            let stale = seq < self.una;
            if !stale && at + self.min_rtt / 4 >= self.newest_arrived {
                break;
            }
            self.forget_first_resent();
            let index = self.sent.partition_point(|sent| sent.seq < seq);
            let under_way = self
                .sent
                .get(index)
                .is_some_and(|sent| (sent.seq, sent.at, sent.state) == (seq, at, State::InFlight));
            if under_way {
                self.mark_lost(index);
            }
        }
    }
}
