//! Return link of a satellite: DVB-RCS2 bursts in superframes, filled by return link encapsulation (RLE).
//!
//! Packets are cut into PPDUs (EN 301 545-2, clause 7): an ALPDU adds the protocol type (2 bytes) and, if it is
//! fragmented, a sequence number (1 byte); a PPDU header has 4 bytes at the start of a fragmented ALPDU, else 2; each
//! burst begins with a label. A burst is filled by several packets, within one superframe. A packet with a byte in a
//! lost burst is lost.

use skybraid_units::{Bytes, Instant, Rate};

use super::adaptive::{Coding, Codings};
use super::capacity::{Demand, Grant};
use super::config::Rules;
use super::frame_loss::FrameLoss;
use super::ticks::Ticks;
use super::{MAX_FRAMES, Placed, Sent};
use crate::link::Cause;

/// Bytes of the protocol type of an ALPDU.
const PROTOCOL_TYPE: u64 = 2;

/// Bytes of the sequence number of a fragmented ALPDU.
const SEQUENCE: u64 = 1;

/// Bytes of a PPDU header: the first of a fragmented ALPDU, and all others.
const START_HEADER: u64 = 4;
const HEADER: u64 = 2;

/// Minimum bytes of a burst after its label.
pub(crate) const MIN_BURST: u64 = START_HEADER + 1;

/// Place in the sequence of bursts.
#[derive(Clone, Copy, Debug, Default)]
struct Position {
    /// Superframe.
    frame: i64,
    /// Bits of its closed bursts.
    spent: u64,
    /// Number of the open burst, or of the next one.
    burst: u64,
    /// Bytes in the open burst, if there is one.
    open: Option<u64>,
}

impl Position {
    /// Closes the open burst, which costs `bits`.
    fn close(&mut self, bits: u64) {
        if self.open.take().is_some() {
            self.spent = self.spent.saturating_add(bits);
            self.burst += 1;
        }
    }

    /// Begins another superframe.
    fn enter(&mut self, frame: i64) {
        self.close(0);
        self.frame = frame;
        self.spent = 0;
    }
}

/// Return link of one terminal.
#[derive(Clone, Debug)]
pub(crate) struct Return {
    frames: Ticks,
    rules: Rules,
    label: u64,
    /// Bursts that the carriers have in a superframe.
    max_bursts: u64,
    codings: Codings,
    demand: Demand,
    loss: FrameLoss,
    position: Position,
}

impl Return {
    pub fn new(
        frames: Ticks,
        rules: Rules,
        (label, max_bursts): (u64, u64),
        codings: Codings,
        demand: Demand,
        loss: FrameLoss,
    ) -> Self {
        let position = Position::default();
        Self { frames, rules, label, max_bursts, codings, demand, loss, position }
    }

    /// Places a packet of `size` that has arrived at `ready` into bursts sent before `limit`. `on_sent` is called with
    /// the bursts of each superframe. `resume` returns the end of the halt that contains an instant, or that instant.
    pub fn place(
        &mut self,
        (ready, size, limit): (Instant, Bytes, Instant),
        mut resume: impl FnMut(Instant) -> Instant,
        mut on_sent: impl FnMut(Sent),
    ) -> Placed {
        let own = self.needed(size);
        self.demand.on_admission(ready, own);
        let mut at = self.position;
        let first = self.frames.after(ready);
        if first > at.frame {
            at.enter(first);
        }
        let mut rest = size.get().saturating_add(PROTOCOL_TYPE + SEQUENCE);
        let mut bursts: Option<(u64, u64)> = None;
        let mut faded = false;
        for _ in 0..MAX_FRAMES {
            let start = self.frames.at(at.frame);
            if start >= limit || start >= Instant::FAR_FUTURE {
                at.enter(at.frame);
                self.position = at;
                return if start < Instant::FAR_FUTURE { Placed::Cut } else { Placed::Never };
            }
            let resumed = resume(start);
            if resumed > start {
                at.enter(self.frames.from(resumed));
                continue;
            }
            let Some((coding, received)) = self.codings.at(start) else { return Placed::Never };
            let Some(grant) = self.demand.grant(at.frame, own) else {
                return Placed::Never;
            };
            let budget = self.budget(grant, &coding);
            if let Some(filled) = self.fill(&mut at, &mut rest, size, budget, &coding) {
                faded |= !received;
                bursts = Some((bursts.map_or(filled.0, |(first, _)| first), filled.1));
                on_sent(Sent { frames: filled, at: start, coding, received });
            }
            if rest == 0 {
                self.position = at;
                self.demand.on_placed(start, own);
                let (first, last) = bursts.unwrap_or((at.burst, at.burst));
                let lost = (first..=last).any(|burst| self.is_lost(burst));
                let cause = if faded { Some(Cause::Burst) } else { lost.then_some(Cause::Random) };
                return Placed::At { sent: start, cause };
            }
            at.enter(at.frame.saturating_add(1));
        }
        Placed::Never
    }

    /// Bits that a request counts for a packet: with its headers, in bursts of the least efficient coding.
    fn needed(&self, size: Bytes) -> u64 {
        let alpdu = size.get().saturating_add(PROTOCOL_TYPE + SEQUENCE);
        let burst = self.codings.min_payload().saturating_sub(self.label + HEADER).max(1);
        let headers = alpdu.div_ceil(burst).saturating_mul(self.label + HEADER);
        alpdu.saturating_add(headers + START_HEADER - HEADER).saturating_mul(8)
    }

    /// Whether a burst is lost.
    pub fn is_lost(&self, burst: u64) -> bool {
        self.loss.is_lost(burst, 1)
    }

    /// Fills bursts of one superframe with the `rest` of a packet. Returns the first and the last one used.
    fn fill(
        &self,
        at: &mut Position,
        rest: &mut u64,
        size: Bytes,
        budget: u64,
        coding: &Coding,
    ) -> Option<(u64, u64)> {
        let mut bursts: Option<(u64, u64)> = None;
        while *rest > 0 {
            let Some(used) = at.open else {
                if !self.has_burst(at.spent, budget, coding) {
                    return bursts;
                }
                at.open = Some(self.label);
                continue;
            };
            let free = coding.payload.saturating_sub(used);
            let started = *rest < size.get().saturating_add(PROTOCOL_TYPE + SEQUENCE);
            let whole = !started && *rest - SEQUENCE + HEADER <= free;
            let header = if whole || started { HEADER } else { START_HEADER };
            if free <= header {
                at.close(self.cost(used, coding));
                continue;
            }
            let part = if whole { *rest - SEQUENCE } else { (*rest).min(free - header) };
            *rest = if whole { 0 } else { *rest - part };
            let used = used + part + header;
            at.open = Some(used);
            bursts = Some((bursts.map_or(at.burst, |(first, _)| first), at.burst));
            if self.rules == Rules::Opensand && budget <= at.spent.saturating_add(used * 8) {
                at.close(self.cost(used, coding));
            }
        }
        bursts
    }

    /// Whether another burst fits. Under OpenSAND's rules it does while any bit is left, and may exceed the budget.
    fn has_burst(&self, spent: u64, budget: u64, coding: &Coding) -> bool {
        match self.rules {
            Rules::Standard => spent.saturating_add(coding.payload * 8) <= budget,
            Rules::Opensand => spent < budget,
        }
    }

    /// Bits that a burst takes from the budget.
    const fn cost(&self, used: u64, coding: &Coding) -> u64 {
        match self.rules {
            Rules::Standard => coding.payload * 8,
            Rules::Opensand => used * 8,
        }
    }

    /// Bits of payload that a superframe has for the terminal. Rates and volumes are rounded up to whole bursts; under
    /// OpenSAND's rules then to whole kbit/s, and to whole kbit per superframe.
    fn budget(&self, grant: Grant, coding: &Coding) -> u64 {
        let span = self.frames.period();
        let bits = |bps: u64| Rate::from_bps(bps).bits_in(span);
        match self.rules {
            Rules::Standard => {
                let burst = coding.payload * 8;
                let whole = bits(grant.rate).div_ceil(burst) + grant.volume.div_ceil(burst);
                let all = whole + bits(grant.free) / burst;
                all.min(self.max_bursts).saturating_mul(burst)
            }
            Rules::Opensand => {
                let (part, of) = coding.rate;
                // Whole kbit/s with redundancy, then whole bursts.
                let with_redundancy = |bps: u64| bits(bps / 1000 * of / part * 1000);
                let all = with_redundancy(grant.rate).div_ceil(coding.coded_bits)
                    + (grant.volume * of / part).div_ceil(coding.coded_bits)
                    + with_redundancy(grant.free) / coding.coded_bits;
                let coded_bits = all.min(self.max_bursts).saturating_mul(coding.coded_bits);
                let millis = span.as_millis_f64().max(1e-6);
                let kbps = libm::ceil(coded_bits as f64 * part as f64 / of as f64 / millis);
                libm::ceil(kbps * millis / 1000.0) as u64 * 1000
            }
        }
    }

    /// Bits per second that the terminal can have at most at `at`, and the loss of a packet of `size`.
    pub fn conditions(&mut self, at: Instant, size: Bytes, max_rate: u64) -> (u64, f64) {
        let Some((coding, received)) = self.codings.at(at) else { return (0, 1.0) };
        let budget = self.budget(Grant { rate: max_rate, ..Grant::default() }, &coding);
        let rate = budget as f64 / self.frames.period().as_secs_f64();
        let room = coding.payload.saturating_sub(self.label + HEADER).max(1);
        let bursts = (size.get() + PROTOCOL_TYPE + SEQUENCE + HEADER).div_ceil(room);
        (rate as u64, if received { self.loss.of_parts(bursts) } else { 1.0 })
    }

    /// Removes the packets that have not left by `now`.
    pub fn on_cut(&mut self, now: Instant) {
        let next = self.frames.after(now);
        if next <= self.position.frame {
            self.position.enter(next);
        }
        self.demand.on_cut(now);
    }
}
