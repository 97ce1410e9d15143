//! The link: what happens to a packet from the moment it is handed over until it arrives.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use skybraid_units::{Bytes, Duration, Instant, Probability, Rate, Seed};

mod live;

use crate::config::LinkConfig;
use crate::delay::Delay;
use crate::drx::{Drx, Radio};
use crate::harq::HarqProcess;
use crate::loss::LossProcess;
use crate::outage::{Change, Outages, Schedule};
use crate::queue::Queue;
use crate::reconfiguration::Epochs;
use crate::service::{Job, Served, Service};

/// Why a packet was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// The queue was full, or CoDel dropped it.
    Queue,
    /// A loss without memory.
    Random,
    /// A loss in a bad phase.
    Burst,
    /// A loss at a change of the serving satellite or cell.
    Handover,
    /// The link was down, or went down before the packet was sent, or its rate stays zero for ever, or a
    /// delay trace has no path when the packet leaves.
    Outage,
    /// The packet is larger than the link takes.
    Mtu,
}

impl Cause {
    /// Every cause, in the order of the tables.
    pub const ALL: [Self; 6] =
        [Self::Queue, Self::Random, Self::Burst, Self::Handover, Self::Outage, Self::Mtu];

    /// The name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Random => "random",
            Self::Burst => "burst",
            Self::Handover => "handover",
            Self::Outage => "outage",
            Self::Mtu => "mtu",
        }
    }
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It arrives.
    Delivered {
        /// When its last bit is at the other end.
        at: Instant,
    },
    /// It does not.
    Lost {
        /// When it is lost: on arrival at the link, at the head of the queue, at the start of an
        /// outage, or when its last bit has left.
        at: Instant,
        /// Why.
        cause: Cause,
    },
}

/// The state of a link at an instant, apart from the traffic on it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conditions {
    /// Rate; zero during a handover or reconfiguration. Mahimahi opportunities are averaged over
    /// 100 ms. The ramp after a DRX connection set-up depends on traffic and is left out.
    pub rate: Rate,
    /// Propagation delay of a packet that leaves at that instant; the mean where it is drawn per
    /// packet; zero in a gap of a delay trace.
    pub delay: Duration,
    /// Probability that a 1200-byte packet that leaves at that instant is lost on the way.
    pub loss: Probability,
    /// False during an outage, scripted or not, and in a gap of a delay trace.
    pub up: bool,
}

/// The size that [`Conditions::loss`] speaks of.
const SHOWN_SIZE: Bytes = Bytes::new(1200);

/// One direction of a path.
#[derive(Clone, Debug)]
pub struct Link {
    mtu: Bytes,
    overhead: Bytes,
    reorder: bool,
    now: Instant,
    /// When the last packet admitted has left.
    free: Instant,
    last_arrival: Instant,
    outages: Outages,
    queue: Queue,
    drx: Option<Drx>,
    radio: Radio,
    service: Service,
    harq: Option<HarqProcess>,
    losses: Schedule<Vec<LossProcess>>,
    epochs: Option<Epochs>,
    delays: Schedule<Delay>,
    view: Box<View>,
}

/// Cursors of a reader, apart from those that packets move.
#[derive(Clone, Debug)]
struct View {
    at: Instant,
    outages: Outages,
    service: Service,
    losses: Schedule<Vec<LossProcess>>,
    epochs: Option<Epochs>,
    delays: Schedule<Delay>,
    scripted: live::Scripted,
}

impl Link {
    /// The `direction` ("uplink", "downlink") of `path`. Its random streams derive from `seed` and
    /// these names; those that both directions share from `seed` and `path`.
    pub fn new(config: &LinkConfig, path: &str, direction: &str, seed: Seed) -> Self {
        let outages = Outages::new(&config.down);
        let service = Service::new(config, path, seed);
        let epochs =
            config.reconfiguration.as_ref().map(|it| Epochs::new(it, path, direction, seed));
        let losses = losses(config, path, direction, seed);
        let delays = delays(config, path, direction, seed);
        let view = View {
            at: Instant::ZERO,
            outages: outages.clone(),
            service: service.clone(),
            losses: losses.clone(),
            epochs: epochs.clone(),
            delays: delays.clone(),
            scripted: live::Scripted::default(),
        };
        Self {
            mtu: config.mtu,
            overhead: config.overhead,
            reorder: config.reorder,
            now: Instant::ZERO,
            free: Instant::ZERO,
            last_arrival: Instant::ZERO,
            outages,
            queue: Queue::new(config.queue),
            drx: config.drx,
            radio: Radio::default(),
            service,
            harq: config.harq.map(|harq| {
                HarqProcess::new(harq, seed.stream(&format!("{path}.{direction}.harq")))
            }),
            losses,
            epochs,
            delays,
            view: Box::new(view),
        }
    }

    /// Hands a packet to the link at `now` and tells its fate. An earlier `now` than the last counts
    /// as the last.
    pub fn admit(&mut self, now: Instant, size: Bytes) -> Fate {
        let now = now.max(self.now);
        self.now = now;
        if size > self.mtu {
            return Fate::Lost { at: now, cause: Cause::Mtu };
        }
        let limit = self.outages.next_start(now);
        if limit <= now {
            return Fate::Lost { at: now, cause: Cause::Outage };
        }
        self.queue.forget_sent(now);
        if !self.queue.has_room(size, self.free.since(now)) {
            return Fate::Lost { at: now, cause: Cause::Queue };
        }
        let (ready, radio) = match &self.drx {
            Some(drx) => self.radio.woken(now, drx),
            None => (now, self.radio),
        };
        let job = Job { ready, free: self.free, size: size + self.overhead, limit };
        if self.queue.drops_at_head() {
            let head = self.service.head(job);
            if head < limit && self.queue.drops(head, head - now, self.mtu) {
                self.queue.join(head, size);
                self.free = self.free.max(head);
                self.radio = radio;
                return Fate::Lost { at: head, cause: Cause::Queue };
            }
        }
        let ramp = self.drx.as_ref().filter(|drx| radio.ramp(ready, drx).is_some());
        let sent = match self.service.serve(job, ramp.map(|drx| (&radio, drx))) {
            Served::At(sent) => sent,
            Served::Cut => {
                self.queue.join(limit, size);
                self.free = limit;
                return Fate::Lost { at: limit, cause: Cause::Outage };
            }
            Served::Never => {
                self.free = Instant::FAR_FUTURE;
                return Fate::Lost { at: now, cause: Cause::Outage };
            }
        };
        self.queue.join(sent, size);
        self.free = sent;
        if self.drx.is_some() {
            self.radio = radio;
            self.radio.active(sent);
        }
        self.carry(sent, size)
    }

    /// What happens to a packet after its last bit has left. Every effect draws for every packet,
    /// whatever the others decide.
    fn carry(&mut self, sent: Instant, size: Bytes) -> Fate {
        let mut cause = None;
        for loss in self.losses.at(sent).0 {
            let lost = loss.loses(sent, size);
            cause = cause.or(lost);
        }
        let mut through = sent;
        if let Some(harq) = &mut self.harq {
            through = harq.release(sent, size);
        }
        let mut delay = self.delays.at(sent).0.of_packet(sent);
        if delay == Duration::MAX {
            cause = cause.or(Some(Cause::Outage));
        }
        if let Some(epochs) = &mut self.epochs {
            let lost = epochs.loses(sent);
            cause = cause.or(lost.then_some(Cause::Handover));
            delay += epochs.delay_step(sent);
        }
        if let Some(cause) = cause {
            return Fate::Lost { at: sent, cause };
        }
        let mut at = through + delay;
        if !self.reorder {
            at = at.max(self.last_arrival);
            self.last_arrival = at;
        }
        Fate::Delivered { at }
    }

    /// The link's state at `at`, which depends on time and seed alone. An earlier `at` than the last
    /// counts as the last.
    pub fn conditions(&mut self, at: Instant) -> Conditions {
        let view = &mut self.view;
        view.at = at.max(view.at);
        let at = view.at;
        let mut kept = 1.0;
        for loss in view.losses.at(at).0 {
            kept *= 1.0 - loss.shown(at, SHOWN_SIZE);
        }
        let mut delay = view.delays.at(at).0.expected(at);
        let there = delay < Duration::MAX;
        if !there {
            delay = Duration::ZERO;
        }
        if let Some(epochs) = &mut view.epochs {
            kept *= epochs.loss(at).complement().ratio();
            delay += epochs.delay_step(at);
        }
        Conditions {
            rate: view.service.shown(at),
            delay,
            loss: Probability::new((1.0 - kept).clamp(0.0, 1.0)).unwrap_or_default(),
            up: there && view.outages.next_start(at) > at,
        }
    }

    /// Bytes admitted that have not left at `at`, which must not be before the last admission.
    pub fn backlog(&self, at: Instant) -> Bytes {
        self.queue.backlog(at)
    }

    /// When the last packet admitted will have left.
    #[inline]
    pub const fn busy_until(&self) -> Instant {
        self.free
    }

    /// Start and end of the last halt that packets met: a handover, a reconfiguration, or a scripted one. Both
    /// are zero before the first.
    #[inline]
    pub const fn last_halt(&self) -> (Instant, Instant) {
        self.service.last_halt()
    }

    /// The radio that the two directions share, if this link has discontinuous reception. Whoever
    /// drives both hands it on with [`set_radio`](Self::set_radio) after each admission.
    pub fn radio(&self) -> Option<Radio> {
        self.drx.is_some().then_some(self.radio)
    }

    /// Takes over the radio's state from the other direction.
    pub fn set_radio(&mut self, radio: Radio) {
        self.radio = radio;
    }

    /// Whether packets arrive in the order in which they were admitted.
    pub const fn keeps_order(&self) -> bool {
        !self.reorder
    }
}

fn losses(
    config: &LinkConfig,
    path: &str,
    direction: &str,
    seed: Seed,
) -> Schedule<Vec<LossProcess>> {
    let processes = |sources: &[_], part: usize| {
        let numbered = sources.iter().enumerate().map(|(index, source)| {
            let twins = sources.iter().take(index);
            let number = twins
                .filter(|twin| core::mem::discriminant(*twin) == core::mem::discriminant(source))
                .count();
            let place = match (part, number) {
                (0, 0) => String::new(),
                _ => format!(".{part}.{number}"),
            };
            let own = format!("{path}.{direction}.loss{place}");
            LossProcess::new(source, seed, &own, &format!("{path}.loss{place}"))
        });
        numbered.collect::<Vec<_>>()
    };
    let changes = config.changes.iter().enumerate().filter_map(|(index, (from, change))| {
        let Change::Loss(losses) = change else { return None };
        Some((*from, processes(losses, index + 1)))
    });
    Schedule::new(processes(&config.losses, 0), changes.collect())
}

fn delays(config: &LinkConfig, path: &str, direction: &str, seed: Seed) -> Schedule<Delay> {
    let name = format!("{path}.{direction}.delay");
    let changes = config.changes.iter().enumerate().filter_map(|(index, (from, change))| {
        let Change::Delay(delay) = change else { return None };
        Some((*from, Delay::new(delay, seed, &format!("{name}.{}", index + 1))))
    });
    Schedule::new(Delay::new(&config.delay, seed, &name), changes.collect())
}
