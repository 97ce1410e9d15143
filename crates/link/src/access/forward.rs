//! Forward link of a satellite: DVB-S2 frames, filled by generic stream encapsulation (GSE).
//!
//! At every tick of the scheduler as many BBFRAMEs are sent as the carriers have symbols for; symbols short of a frame
//! are kept for the next tick while packets wait. A frame that is not full is sent at once. GSE (ETSI TS 102 606-1)
//! adds 4 bytes and a label to a packet; a fragmented packet has 3 bytes more in its first fragment, 3 in every other
//! one, and a checksum of 4 bytes at its end. All packets with a byte in a lost frame are lost.

use skybraid_units::{Bytes, Duration, Instant};

use super::adaptive::{Coding, Codings};
use super::config::Rules;
use super::frame_loss::{FrameLoss, ip_packets};
use super::ticks::Ticks;
use super::{MAX_FRAMES, Placed, Sent};
use crate::link::Cause;

/// Bytes of a GSE header without its label: flags and length (2), protocol type (2).
const GSE_HEADER: u64 = 4;

/// Further bytes of the first fragment: its number (1), and the total length (2).
const FIRST_FRAGMENT: u64 = 3;

/// Bytes of the header of a later fragment.
const LATER_FRAGMENT: u64 = 3;

/// Checksum at the end of a fragmented packet. OpenSAND does not count it.
const CHECKSUM: u64 = 4;

/// Bytes that OpenSAND adds to the data of a frame: sequence number (1), headers (6), trailer with the C/N (4).
const OPENSAND_HEADERS: u64 = 11;

/// Place in the sequence of frames.
#[derive(Clone, Copy, Debug, Default)]
struct Position {
    /// Tick of the scheduler.
    tick: i64,
    /// Symbols left in it.
    symbols: u64,
    /// Number of the open frame, or of the next one.
    frame: u64,
    /// Bytes in the open frame, if there is one.
    open: Option<u64>,
    /// First frame since the queue was last empty.
    oldest: u64,
}

impl Position {
    fn close(&mut self) {
        if self.open.take().is_some() {
            self.frame += 1;
        }
    }

    /// Begins a tick with this many symbols.
    fn enter(&mut self, tick: i64, symbols: u64) {
        self.close();
        self.tick = tick;
        self.symbols = symbols;
    }
}

/// Forward link of a gateway.
#[derive(Clone, Debug)]
pub(crate) struct Forward {
    ticks: Ticks,
    rules: Rules,
    label: u64,
    /// Delay on the ground, before the queue.
    ground: Duration,
    /// Symbols of all carriers per tick.
    symbols: u64,
    codings: Codings,
    loss: FrameLoss,
    position: Position,
}

impl Forward {
    pub fn new(
        ticks: Ticks,
        rules: Rules,
        (label, ground, symbols): (u64, Duration, u64),
        codings: Codings,
        loss: FrameLoss,
    ) -> Self {
        Self { ticks, rules, label, ground, symbols, codings, loss, position: Position::default() }
    }

    /// Places a packet of `size` that has arrived at `ready` into frames sent before `limit`. `on_sent` is called
    /// with the frames of each tick. `resume` returns the end of the halt that contains an instant, or that instant.
    pub fn place(
        &mut self,
        (ready, size, limit): (Instant, Bytes, Instant),
        mut resume: impl FnMut(Instant) -> Instant,
        mut on_sent: impl FnMut(Sent),
    ) -> Placed {
        let mut at = self.position;
        let first = self.ticks.after(ready + self.ground);
        if first > at.tick {
            at.enter(first, self.symbols);
            at.oldest = at.frame;
        }
        let mut packet =
            Packet { rest: size.get().saturating_add(GSE_HEADER + self.label), cut: false };
        let mut frames: Option<(u64, u64)> = None;
        let mut faded = false;
        for _ in 0..MAX_FRAMES {
            let start = self.ticks.at(at.tick);
            if start >= limit || start >= Instant::FAR_FUTURE {
                at.enter(at.tick, self.symbols);
                self.position = at;
                return if start < Instant::FAR_FUTURE { Placed::Cut } else { Placed::Never };
            }
            let resumed = resume(start);
            if resumed > start {
                at.enter(self.ticks.from(resumed), self.symbols);
                continue;
            }
            let Some((coding, received)) = self.codings.at(start) else { return Placed::Never };
            if let Some(filled) = self.fill(&mut at, &mut packet, &coding) {
                faded |= !received;
                frames = Some((frames.map_or(filled.0, |(first, _)| first), filled.1));
                on_sent(Sent { frames: filled, at: start, coding, received });
            }
            if packet.rest == 0 {
                self.position = at;
                let lost = self.is_lost(frames.unwrap_or((at.frame, at.frame)), &coding);
                let cause = if faded { Some(Cause::Burst) } else { lost.then_some(Cause::Random) };
                return Placed::At { sent: start, cause };
            }
            let carried = at.symbols.saturating_add(self.symbols);
            at.enter(at.tick.saturating_add(1), carried);
        }
        Placed::Never
    }

    /// Fills the frames of one tick with what is left of a packet. Returns the first and the last one used.
    fn fill(&self, at: &mut Position, packet: &mut Packet, coding: &Coding) -> Option<(u64, u64)> {
        let mut frames: Option<(u64, u64)> = None;
        while packet.rest > 0 {
            let Some(used) = at.open else {
                if at.symbols < coding.symbols {
                    return frames;
                }
                at.symbols -= coding.symbols;
                at.open = Some(0);
                continue;
            };
            let free = coding.payload.saturating_sub(used);
            if free <= GSE_HEADER + self.label + FIRST_FRAGMENT {
                at.close();
                continue;
            }
            let whole = packet.rest <= free;
            let part = if whole { packet.rest } else { packet.cut_for(free, self.rules) };
            at.open = Some(used + part);
            frames = Some((frames.map_or(at.frame, |(first, _)| first), at.frame));
            if whole {
                packet.rest = 0;
            } else {
                at.close();
            }
        }
        frames
    }

    /// Whether any of the frames is lost. A frame with room left, whose size depends on packets yet to come, counts
    /// as full if packets have waited since before it.
    pub fn is_lost(&self, (first, last): (u64, u64), coding: &Coding) -> bool {
        let at = &self.position;
        let parts = |data: u64| match self.rules {
            Rules::Standard => 1,
            Rules::Opensand => ip_packets(data + OPENSAND_HEADERS),
        };
        let of_frame = |frame: u64| match at.open {
            Some(used) if frame == at.frame && frame == at.oldest => parts(used),
            _ => parts(coding.payload),
        };
        (first..=last).any(|frame| self.loss.is_lost(frame, of_frame(frame)))
    }

    /// Delay on the ground, before the queue.
    pub const fn ground(&self) -> Duration {
        self.ground
    }

    /// Bits per second of full frames at `at`, and the loss of a packet of `size`.
    pub fn conditions(&mut self, at: Instant, size: Bytes) -> (u64, f64) {
        let Some((coding, received)) = self.codings.at(at) else { return (0, 1.0) };
        let frames =
            self.symbols as f64 / coding.symbols as f64 / self.ticks.period().as_secs_f64();
        let room = coding.payload.saturating_sub(FIRST_FRAGMENT).max(1);
        let parts = (size.get() + GSE_HEADER + self.label).div_ceil(room);
        (
            (frames * coding.payload as f64 * 8.0) as u64,
            if received { self.loss.of_parts(parts) } else { 1.0 },
        )
    }

    /// Removes the packets that have not left by `now`.
    pub fn on_cut(&mut self, now: Instant) {
        let next = self.ticks.after(now);
        if next <= self.position.tick {
            self.position.enter(next, self.symbols);
            self.position.oldest = self.position.frame;
        }
    }
}

/// Remaining bits of a packet.
struct Packet {
    /// Bytes with the header of the next fragment.
    rest: u64,
    /// Whether a fragment has been cut off.
    cut: bool,
}

impl Packet {
    /// Cuts off a fragment that fills `free` bytes; returns its size.
    fn cut_for(&mut self, free: u64, rules: Rules) -> u64 {
        let first = !self.cut || rules == Rules::Opensand;
        let header = if first { FIRST_FRAGMENT } else { 0 };
        let checksum = if !self.cut && rules == Rules::Standard { CHECKSUM } else { 0 };
        self.cut = true;
        self.rest = self.rest - (free - header) + LATER_FRAGMENT + checksum;
        free
    }
}
