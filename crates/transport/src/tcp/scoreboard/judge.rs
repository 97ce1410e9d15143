//! Which segments are lost: by time, by selective acknowledgements, by duplicates, by a timeout.

use skybraid_units::{Duration, Instant};

use super::{DUPLICATE_THRESHOLD, LossDetection, Progress, Scoreboard, Sent, State};

impl Scoreboard {
    /// Marks the oldest segment lost, as a partial acknowledgement says without SACK (RFC 6582
    /// §3.2 step 3).
    pub fn mark_first_lost(&mut self) -> bool {
        self.cursor = 0;
        self.take_for_lost(0)
    }

    /// What is taken for lost and was not sent again is on its way after all.
    pub fn take_back_losses(&mut self) {
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

    /// A recovery has ended.
    pub fn recovered(&mut self) {
        self.rack.recovered();
    }

    /// When to call [`detect`](Self::detect).
    pub const fn judge_at(&self) -> Instant {
        self.judge_at
    }

    /// Looks for losses because time has passed. True if one was found.
    pub fn detect(&mut self, now: Instant, recovering: bool, srtt: Duration) -> bool {
        self.judge_at <= now && self.judge_by_time(now, recovering, srtt)
    }

    /// The retransmission timer has expired: takes for lost what must be (RFC 6298 §5.4, RFC 6675 §5.1:
    /// everything; RFC 8985 §6.3: the oldest segment and all whose time has come).
    pub fn time_out(&mut self, now: Instant, recovering: bool, srtt: Duration) {
        self.deflate();
        let window = self.rack.window(recovering, self.sacked_segments, srtt);
        for index in 0..self.sent.len() {
            let due = self.detection != LossDetection::Rack
                || index == 0
                || self.sent.get(index).is_some_and(|it| self.rack.lost_at(it.at, window) <= now);
            if due {
                self.take_for_lost(index);
            }
        }
        self.cursor = 0;
        self.duplicate_acks = 0;
        if self.detection != LossDetection::Rack {
            self.judged = self.next;
            self.resent.clear();
        }
    }

    pub(super) fn count_duplicates(&mut self, repeated: bool, progress: &mut Progress) {
        if progress.advanced > 0 {
            self.duplicate_acks = 0;
            // The hole that the acknowledgement fills had not been counted; what lay behind it had.
            let counted = progress.advanced - progress.advanced.min(self.segment);
            let counted = counted.min(self.inflation);
            self.inflation -= counted;
            self.pipe = (self.pipe + counted).min(self.next - self.una);
            if self.judged <= self.una {
                self.deflate();
            }
        } else if repeated && !self.sent.is_empty() {
            self.duplicate_acks += 1;
            // Each duplicate stands for a segment that has left the network (RFC 5681 §3.2).
            let left = self.pipe.min(self.segment);
            self.pipe -= left;
            self.inflation += left;
            // A loss below `judged` is being repaired already (RFC 6582 §3.2 step 1).
            if self.duplicate_acks == DUPLICATE_THRESHOLD && self.judged <= self.una {
                progress.found_loss = self.mark_first_lost();
                self.judged = self.next;
            }
        }
    }

    /// Puts back into the pipe what duplicate acknowledgements took out: the recovery is over.
    fn deflate(&mut self) {
        self.pipe = self
            .sent
            .iter()
            .filter(|sent| sent.state == State::InFlight)
            .map(|sent| u64::from(sent.chunk.len))
            .sum();
        self.inflation = 0;
    }

    /// Judges what lies below the third segment from the top that was selectively acknowledged.
    pub(super) fn judge(&mut self) -> bool {
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
            let once = self.sent.get(index).is_some_and(|sent| !sent.retransmitted);
            found |= once && self.take_for_lost(index);
        }
        self.judged = line;
        found
    }

    /// RACK: takes for lost what something sent later has overtaken by more than the reordering window,
    /// and sets the time for the rest (RFC 8985 §6.2 step 5).
    pub(super) fn judge_by_time(&mut self, now: Instant, recovering: bool, srtt: Duration) -> bool {
        self.judge_at = Instant::FAR_FUTURE;
        let window = self.rack.window(recovering, self.sacked_segments, srtt);
        let mut latest = Instant::ZERO;
        let mut found = false;
        // Segments sent once are in the order of their sending.
        let mut index = if self.judged <= self.una {
            0
        } else {
            self.sent.partition_point(|sent| sent.seq < self.judged)
        };
        let mut settled = true;
        while let Some(sent) = self.sent.get(index) {
            if !sent.retransmitted && sent.state == State::InFlight {
                if !self.rack.is_overtaken(sent.at, sent.end()) {
                    break;
                }
                let lost_at = self.rack.lost_at(sent.at, window);
                if lost_at <= now {
                    found |= self.take_for_lost(index);
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
        // So are those sent again, among themselves.
        while let Some((at, seq)) = self.resent.front().copied() {
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
                found |= self.take_for_lost(index);
            }
            self.resent.pop_front();
        }
        if latest > now {
            self.judge_at = latest;
        }
        found
    }

    /// Takes retransmissions for lost that later segments have overtaken.
    pub(super) fn judge_retransmissions(&mut self) {
        while let Some((at, seq)) = self.resent.front().copied() {
            let stale = seq < self.una;
            if !stale && at + self.least_rtt / 4 >= self.newest_arrived {
                break;
            }
            self.resent.pop_front();
            let index = self.sent.partition_point(|sent| sent.seq < seq);
            let under_way = self
                .sent
                .get(index)
                .is_some_and(|sent| (sent.seq, sent.at, sent.state) == (seq, at, State::InFlight));
            if under_way {
                self.take_for_lost(index);
            }
        }
    }
}
