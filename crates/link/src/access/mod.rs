//! Access layer of a satellite system, which takes the place of a link's rate.
//!
//! Packets wait in a queue, are encapsulated into frames or bursts of fixed size that leave at ticks of a timer, and
//! share the fate of the frames that carry them. The files: `modcod` and `waveform` are the tables of DVB-S2 and
//! DVB-RCS2; `forward` and `return_link` place packets; `capacity` is the return link's demand assignment; `adaptive`
//! chooses the coding by Es/N0; `frame_loss` draws losses; `hops` is the way through the satellite; `reorder_stack` is
//! a receiver that orders frames.

mod adaptive;
mod capacity;
mod config;
mod forward;
mod frame_loss;
mod hops;
pub mod modcod;
mod reorder_stack;
mod return_link;
mod ticks;
pub mod waveform;

use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;

use skybraid_units::{Bytes, Duration, Instant, Promised, Rate, Seed};

pub use adaptive::{Attenuation, AttenuationConfig, EsN0, EsN0Config};
pub use capacity::Capacity;
pub use config::{Access, AccessConfig, AccessKind, Carrier, Role, Rules, Way};

use crate::link::{Cause, Release};
use adaptive::{Coding, Codings};
use capacity::Demand;
use forward::Forward;
use frame_loss::FrameLoss;
use hops::Hops;
use reorder_stack::ReorderStack;
use return_link::Return;
use ticks::Ticks;

/// Maximum number of frames for one packet; a packet that needs more counts as never sent.
const MAX_FRAMES: u32 = 1_000_000;

/// Place of a packet in the frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placed {
    /// Time at which its last frame is sent, and the cause of its loss.
    At {
        /// Departure from the queue.
        sent: Instant,
        /// Cause of loss, if a frame is lost.
        cause: Option<Cause>,
    },
    /// An outage begins before its last frame is sent.
    Cut,
    /// The packet is never sent.
    Never,
}

/// Frames with bytes of one packet that are sent together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    /// Numbers of the first and the last one.
    pub frames: (u64, u64),
    /// Time at which they are sent.
    pub at: Instant,
    /// Their coding.
    pub coding: Coding,
    /// False if the Es/N0 is below its threshold.
    pub received: bool,
}

#[derive(Clone, Debug)]
enum Carriers {
    Forward(Box<Forward>),
    Return(Box<Return>, Rate),
}

impl Carriers {
    fn place(
        &mut self,
        (ready, size, limit): (Instant, Bytes, Instant),
        resume: impl FnMut(Instant) -> Instant,
        on_sent: impl FnMut(Sent),
    ) -> Placed {
        match self {
            Self::Forward(forward) => forward.place((ready, size, limit), resume, on_sent),
            Self::Return(back, _) => back.place((ready, size, limit), resume, on_sent),
        }
    }

    /// Whether a frame is lost.
    fn is_lost(&self, frame: u64, coding: &Coding) -> bool {
        match self {
            Self::Forward(forward) => forward.is_lost((frame, frame), coding),
            Self::Return(back, _) => back.is_lost(frame),
        }
    }
}

/// Access layer of one direction. Packets must be in order of admission.
#[derive(Clone, Debug)]
pub(crate) struct AccessProcess {
    carriers: Carriers,
    hops: Hops,
    receiver: Option<Receiver>,
}

/// Receiver that orders frames.
#[derive(Clone, Debug)]
struct Receiver {
    stack: ReorderStack,
    /// Frames below this number have been sent.
    next: u64,
    /// Frames of the packet placed last.
    sent: Vec<Sent>,
}

impl AccessProcess {
    /// Creates the access layer of `name`, for example `leo.uplink.access`, which prefixes its streams. `None` if it
    /// has no coding.
    pub fn new(access: &Access, seed: Seed, name: &str) -> Option<Self> {
        let stream = |of: &str| seed.stream(&format!("{name}.{of}"));
        let frames = match access.phase {
            Some(phase) => Ticks::new(access.frame, phase),
            None => Ticks::drawn(access.frame, &mut stream("phase")),
        };
        let codings = Codings::new(access.codings(), access.es_n0.as_ref(), seed);
        let codings = codings.promised("a coding")?;
        let loss = FrameLoss::new(access.frame_loss, stream("loss"));
        let label = access.label.get();
        let carriers = match &access.carrier {
            Carrier::Forward { symbols, .. } => {
                let sizes = (label, access.way.ground_before, *symbols);
                Carriers::Forward(Box::new(Forward::new(
                    frames,
                    access.rules,
                    sizes,
                    codings,
                    loss,
                )))
            }
            Carrier::Return { capacity, symbols, burst, waveform } => {
                let burst =
                    waveform.and_then(waveform::Waveform::find).map_or(*burst, |each| each.symbols);
                let max = symbols.map_or(u64::MAX, |symbols| symbols / u64::from(burst.max(1)));
                let times = match access.phase {
                    Some(phase) => Ticks::new(capacity.period, phase),
                    None => Ticks::drawn(capacity.period, &mut stream("requests")),
                };
                let demand = Demand::new(*capacity, frames, times);
                let sizes = (label, max);
                let back = Return::new(frames, access.rules, sizes, codings, demand, loss);
                Carriers::Return(Box::new(back), capacity.max_rate())
            }
        };
        let receiver = access.reorder_stack.map(|max| Receiver {
            stack: ReorderStack::new(max),
            next: 0,
            sent: Vec::new(),
        });
        Some(Self { carriers, hops: Hops::new(&access.way, seed, name), receiver })
    }

    /// Places a packet that has arrived at `ready` into frames sent before `limit`. `resume` returns the end of the
    /// halt that contains an instant, or that instant.
    pub fn place(
        &mut self,
        ready: Instant,
        size: Bytes,
        limit: Instant,
        resume: impl FnMut(Instant) -> Instant,
    ) -> Placed {
        let Some(receiver) = &mut self.receiver else {
            return self.carriers.place((ready, size, limit), resume, |_| {});
        };
        receiver.sent.clear();
        let placed =
            self.carriers.place((ready, size, limit), resume, |sent| receiver.sent.push(sent));
        for sent in &receiver.sent {
            let Some(at) = self.hops.pass(sent.at) else { continue };
            let (first, last) = sent.frames;
            for frame in first.max(receiver.next)..=last {
                receiver.next = frame + 1;
                if sent.received && !self.carriers.is_lost(frame, &sent.coding) {
                    receiver.stack.on_frame(frame, at);
                }
            }
        }
        placed
    }

    /// Whether the receiver has a reorder stack.
    pub const fn has_stack(&self) -> bool {
        self.receiver.is_some()
    }

    /// Returns whether the packet placed last waits at the receiver for later frames, and holds it there if so.
    pub fn holds(&mut self) -> bool {
        self.receiver.as_mut().is_some_and(|receiver| {
            receiver.sent.last().is_some_and(|sent| receiver.stack.holds(sent.frames.1))
        })
    }

    /// Returns the next release of held packets.
    #[inline]
    pub fn release(&mut self) -> Option<Release> {
        self.receiver.as_mut()?.stack.release()
    }

    /// Removes the newest held packets.
    pub fn remove_newest_held(&mut self, packets: usize) {
        if let Some(receiver) = &mut self.receiver {
            receiver.stack.remove_newest(packets);
        }
    }

    /// Returns the arrival of a frame sent at `sent`; `None` in a gap of a delay.
    pub fn pass(&mut self, sent: Instant) -> Option<Instant> {
        self.hops.pass(sent)
    }

    /// Returns the rate at `at`, the delay without waits (`None` in a gap) and the loss probability of a packet of
    /// `size`. The rate is that of full frames; on the return link with all requests granted.
    pub fn conditions(&mut self, at: Instant, size: Bytes) -> (Rate, Option<Duration>, f64) {
        let (rate, loss, before) = match &mut self.carriers {
            Carriers::Forward(forward) => {
                let (rate, loss) = forward.conditions(at, size);
                (rate, loss, forward.ground())
            }
            Carriers::Return(back, max) => {
                let (rate, loss) = back.conditions(at, size, max.as_bps());
                (rate, loss, Duration::ZERO)
            }
        };
        (Rate::from_bps(rate), self.hops.delay(at).map(|delay| delay + before), loss)
    }

    /// Removes the packets that have not left by `now`.
    pub fn on_cut(&mut self, now: Instant) {
        match &mut self.carriers {
            Carriers::Forward(forward) => forward.on_cut(now),
            Carriers::Return(back, _) => back.on_cut(now),
        }
    }
}
