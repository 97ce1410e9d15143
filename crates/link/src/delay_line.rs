//! Queue that is also the delay line, as in the LTE emulator of MoonGen (`lte-emulator-handover-air.lua`).
//!
//! One thread takes a packet from the queue, waits until its delay has passed, hands it to the interface and takes the
//! next. So packets that wait for their delay fill the queue, all behind a delayed packet wait, and the rate comes
//! after the delay. Rate and delay are those of the trace's row when the packet is taken; the row advances by at most
//! one per packet. A handover adds its remainder to a packet that is taken while it lasts; the time that a packet
//! waited for the radio to wake is added to its delay once more. HARQ adds round trips to a packet, and those behind it
//! follow at the catch-up rate until one would leave later than the delayed packet's own time.

use alloc::collections::VecDeque;

use skybraid_units::{Bytes, Duration, Instant, Rate, Stream};

use crate::delay::Delay;
use crate::harq::Harq;
use crate::rate::RateCursor;

/// Packets that the interface holds besides the queue: 128 descriptors, of which one in 23 is a packet and the others
/// fill the gaps at 40 of 1000 Mbit/s.
const OF_INTERFACE: i64 = 5;

/// Maximum number of retransmissions per packet, which bounds the loop.
const MAX_RETRANSMISSIONS: i64 = 10_000;

/// Delay line of one direction. Packets must be in order of admission.
#[derive(Clone, Debug)]
pub(crate) struct DelayLine {
    capacity: u64,
    harq: Option<(Harq, Stream)>,
    /// Time at which each packet is taken, if that is later than the last admission.
    queued: VecDeque<Instant>,
    /// Time at which the thread takes the next packet.
    free: Instant,
    /// End of the last packet at the interface.
    sent: Instant,
    /// Time in the trace's current row.
    row: Instant,
    /// Own time of the packet that HARQ has delayed, while others catch up.
    delayed: Option<Instant>,
}

/// Effects on a packet that do not depend on the delay line.
pub(crate) struct Effects<'a> {
    /// Arrival, and the time at which the radio is awake.
    pub now: Instant,
    pub awake: Instant,
    /// Size with overhead.
    pub size: Bytes,
    pub rate: &'a mut RateCursor,
    pub delay: &'a mut Delay,
}

impl DelayLine {
    pub const fn new(capacity: u64, harq: Option<(Harq, Stream)>) -> Self {
        Self {
            capacity,
            harq,
            queued: VecDeque::new(),
            free: Instant::ZERO,
            sent: Instant::ZERO,
            row: Instant::ZERO,
            delayed: None,
        }
    }

    /// Whether a packet fits at `now`.
    pub fn has_room(&mut self, now: Instant) -> bool {
        while self.queued.front().is_some_and(|taken| *taken <= now) {
            self.queued.pop_front();
        }
        (self.queued.len() as u64) < self.capacity
    }

    /// Returns the departure of a packet after its delay; `None` if the rate is zero or the delay has a gap. `resume`
    /// returns the end of the halt that contains an instant, `ramp` the rate that the radio allows.
    pub fn pass(
        &mut self,
        effects: Effects<'_>,
        mut resume: impl FnMut(Instant) -> Instant,
        ramp: impl FnOnce(Rate, Instant) -> Rate,
    ) -> Option<Instant> {
        let Effects { now, awake, size, rate, delay } = effects;
        let stuck = if self.free <= now { awake.since(now) } else { Duration::ZERO };
        let taken = now.max(self.free) + stuck;
        let (rate, delay) = self.row_at(taken, rate, delay);
        if rate == Rate::ZERO || delay == Duration::MAX {
            return None;
        }
        let retransmissions = self.retransmissions();
        let halt = resume(taken).since(taken);
        let due = now + delay + retransmissions + halt + stuck;
        let handed = taken.max(due);
        let time = ramp(rate, handed).time_for(size);
        if retransmissions.is_positive() {
            self.delayed = Some(due);
        } else if self.delayed.is_some_and(|delayed| due + time > delayed) {
            self.delayed = None;
        }
        let gap = match (&self.harq, self.delayed) {
            (Some((harq, _)), Some(_)) => harq.catch_up.time_for(size),
            _ => time,
        };
        self.queued.push_back(taken);
        self.sent = self.sent.max(handed) + gap;
        self.free = handed.max(Instant::from_nanos(
            self.sent.as_nanos().saturating_sub((time * OF_INTERFACE).as_nanos()),
        ));
        Some(self.sent)
    }

    /// Rate and delay of the row in which a packet is taken at `taken`, at most one row after the last.
    fn row_at(
        &mut self,
        taken: Instant,
        rate: &mut RateCursor,
        delay: &mut Delay,
    ) -> (Rate, Duration) {
        let rate_until = match rate {
            RateCursor::Series(cursor) => cursor.at(self.row).1,
            _ => Instant::FAR_FUTURE,
        };
        let delay_until = match delay {
            Delay::Series(cursor) => cursor.at(self.row).1,
            _ => Instant::FAR_FUTURE,
        };
        self.row = taken.min(rate_until.min(delay_until)).max(self.row);
        (rate.mean_rate(self.row), delay.of_packet(self.row))
    }

    /// Draws the delay by retransmissions; zero while packets catch up.
    fn retransmissions(&mut self) -> Duration {
        let Some((harq, stream)) = &mut self.harq else { return Duration::ZERO };
        let mut count = 0;
        while self.delayed.is_none() && stream.chance(harq.loss) && count < MAX_RETRANSMISSIONS {
            count += 1;
        }
        harq.round_trip * count
    }

    /// Removes the packets that have not left by `now`.
    pub fn on_cut(&mut self, now: Instant) {
        self.queued.clear();
        self.free = self.free.min(now);
        self.sent = self.sent.min(now);
        self.delayed = None;
    }
}
