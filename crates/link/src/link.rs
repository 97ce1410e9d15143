//! One direction of a path, from the admission of a packet to its arrival.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use skybraid_units::{Bytes, Duration, Instant, Probability, Rate, Seed, named};

mod live;

use crate::access::{AccessProcess, Placed};
use crate::config::LinkConfig;
use crate::delay::Delay;
use crate::delay_line::DelayLine;
use crate::drx::{Drx, Radio};
use crate::harq::HarqProcess;
use crate::loss::LossProcess;
use crate::outage::{Change, Outages, Schedule};
use crate::queue::{Queue, QueueConfig};
use crate::reconfiguration::Epochs;
use crate::service::{Job, Served, Service};

named! {
    /// Cause of a packet's loss.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Cause {
        /// Drop by a full queue or by CoDel.
        Queue = "queue",
        /// Memoryless loss.
        Random = "random",
        /// Loss in a bad state or phase.
        Burst = "burst",
        /// Loss at a change of the serving satellite or cell.
        Handover = "handover",
        /// Loss on a link that was down or went down before the packet was sent, whose rate stays zero, or whose delay
        /// trace has a gap at the packet's departure.
        Outage = "outage",
        /// Packet larger than the link's MTU.
        Mtu = "mtu",
    }
}

/// Fate of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The packet arrives.
    Delivered {
        /// Arrival of its last bit.
        at: Instant,
    },
    /// The packet is lost.
    Lost {
        /// Time of the loss: at admission, at the head of the queue, at the start of an outage, or after the
        /// departure of its last bit.
        at: Instant,
        /// Cause of the loss.
        cause: Cause,
    },
    /// The packet waits at the receiver for frames that are sent later; [`Link::release`] says when it arrives. Only a
    /// link with a reorder stack holds packets.
    Held,
}

/// Arrival of packets that were held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    /// Number of packets, the oldest of those that are held.
    pub packets: usize,
    /// Arrival of all of them.
    pub at: Instant,
}

/// State of a link at an instant, independent of its traffic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conditions {
    /// Rate; zero during a handover or reconfiguration. Mahimahi opportunities are averaged over 100 ms. The ramp
    /// after a DRX connection set-up is not included, since it depends on traffic.
    pub rate: Rate,
    /// Propagation delay of a packet that departs at that instant: the mean if it is drawn per packet, zero in a gap
    /// of a delay trace.
    pub delay: Duration,
    /// Loss probability of a 1200-byte packet that departs at that instant.
    pub loss: Probability,
    /// False during an outage, scripted or not, and in a gap of a delay trace.
    pub up: bool,
}

impl Conditions {
    /// State of a link that carries nothing.
    pub const DOWN: Self =
        Self { rate: Rate::ZERO, delay: Duration::ZERO, loss: Probability::ZERO, up: false };

    /// Returns the state of this link and `next` in series: the lower rate, the sum of the delays, and independent
    /// losses.
    #[must_use]
    pub fn in_series_with(&self, next: &Self) -> Self {
        let kept = self.loss.complement().ratio() * next.loss.complement().ratio();
        Self {
            rate: self.rate.min(next.rate),
            delay: self.delay + next.delay,
            loss: Probability::saturating(1.0 - kept),
            up: self.up && next.up,
        }
    }
}

/// Packet size of [`Conditions::loss`].
const CONDITIONS_SIZE: Bytes = Bytes::new(1200);

/// One direction of a path.
#[derive(Clone, Debug)]
pub struct Link {
    mtu: Bytes,
    overhead: Bytes,
    reorder: bool,
    now: Instant,
    /// Departure of the last packet admitted.
    free: Instant,
    last_arrival: Instant,
    outages: Outages,
    queue: Queue,
    // What most links do not have is boxed: a network of thousands of links reads little of each.
    drx: Option<Box<Drx>>,
    radio: Radio,
    service: Service,
    access: Option<Box<AccessProcess>>,
    line: Option<Box<DelayLine>>,
    harq: Option<Box<HarqProcess>>,
    losses: Schedule<Vec<LossProcess>>,
    epochs: Option<Box<Epochs>>,
    delays: Schedule<Delay>,
    view: Box<View>,
}

/// Cursors of [`Link::conditions`], separate from those that packets advance.
#[derive(Clone, Debug)]
struct View {
    at: Instant,
    outages: Outages,
    service: Service,
    access: Option<Box<AccessProcess>>,
    losses: Schedule<Vec<LossProcess>>,
    epochs: Option<Box<Epochs>>,
    delays: Schedule<Delay>,
    scripted: live::Scripted,
}

impl Link {
    /// Creates the `direction` ("uplink" or "downlink") of `path`. The names of its random streams derive from both
    /// names; those of processes that both directions share derive from `path` alone.
    pub fn new(config: &LinkConfig, path: &str, direction: &str, seed: Seed) -> Self {
        let outages = Outages::new(
            &config.down,
            config.outage.as_ref().map(|outage| outage.timeline(seed, &format!("{path}.outage"))),
        );
        let service = Service::new(config, path, direction, seed);
        let access = config.access.as_ref().and_then(|access| {
            AccessProcess::new(access, seed, &format!("{path}.{direction}.access")).map(Box::new)
        });
        let epochs = config.reconfiguration.as_ref();
        let epochs = epochs.map(|config| Box::new(Epochs::new(config, path, direction, seed)));
        let losses = losses(config, path, direction, seed);
        let delays = delays(config, path, direction, seed);
        let harq_stream = || seed.stream(&format!("{path}.{direction}.harq"));
        let view = View {
            at: Instant::ZERO,
            outages: outages.clone(),
            service: service.clone(),
            access: access.clone(),
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
            drx: config.drx.map(Box::new),
            radio: Radio::default(),
            service,
            access,
            line: match config.queue {
                QueueConfig::DelayLine(packets) => {
                    let harq = config.harq.map(|harq| (harq, harq_stream()));
                    Some(Box::new(DelayLine::new(packets, harq)))
                }
                _ => None,
            },
            harq: config.harq.map(|harq| Box::new(HarqProcess::new(harq, harq_stream()))),
            losses,
            epochs,
            delays,
            view: Box::new(view),
        }
    }

    /// Admits a packet at `now` and returns its fate. A `now` before that of the previous call counts as the
    /// previous.
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
        self.queue.remove_departed(now);
        if !self.queue.has_room(size, self.free.since(now)) {
            return Fate::Lost { at: now, cause: Cause::Queue };
        }
        let (ready, radio) = match &self.drx {
            Some(drx) => self.radio.woken(now, drx),
            None => (now, self.radio),
        };
        if self.line.is_some()
            && let Some(mut line) = self.line.take()
        {
            let fate = self.admit_to_line(&mut line, now, (ready, radio), limit, size);
            self.line = Some(line);
            return fate;
        }
        if self.access.is_some()
            && let Some(mut access) = self.access.take()
        {
            let fate = self.admit_to_access(&mut access, (ready, radio), limit, size);
            self.access = Some(access);
            return fate;
        }
        let job = Job { ready, free: self.free, size: size + self.overhead, limit };
        if self.queue.drops_at_head() {
            let head = self.service.head(job);
            if head < limit && self.queue.on_head(head, head - now, self.mtu) {
                self.queue.push(head, size);
                self.free = self.free.max(head);
                self.radio = radio;
                return Fate::Lost { at: head, cause: Cause::Queue };
            }
        }
        let ramp = self.drx.as_deref().filter(|drx| radio.ramp(ready, drx).is_some());
        let sent = match self.service.serve(job, ramp.map(|drx| (&radio, drx))) {
            Served::At(sent) => sent,
            Served::Cut => {
                self.queue.push(limit, size);
                self.free = limit;
                return Fate::Lost { at: limit, cause: Cause::Outage };
            }
            Served::Never => {
                self.free = Instant::FAR_FUTURE;
                return Fate::Lost { at: now, cause: Cause::Outage };
            }
        };
        self.queue.push(sent, size);
        self.free = sent;
        if self.drx.is_some() {
            self.radio = radio;
            self.radio.on_sent(sent);
        }
        self.propagate(sent, size, (sent, None))
    }

    /// Admits a packet to a delay line, in place of the service: the packet arrives when it leaves the line.
    #[cold]
    fn admit_to_line(
        &mut self,
        line: &mut DelayLine,
        now: Instant,
        (ready, radio): (Instant, Radio),
        limit: Instant,
        size: Bytes,
    ) -> Fate {
        if !line.has_room(now) {
            return Fate::Lost { at: now, cause: Cause::Queue };
        }
        let ramp = self.drx.as_deref().filter(|drx| radio.ramp(ready, drx).is_some());
        let delay = self.delays.at(now).0;
        let ramp = ramp.map(|drx| (&radio, drx));
        let sent = self.service.pass(line, (now, ready, size + self.overhead), delay, ramp);
        self.radio = radio;
        let Some(sent) = sent else { return Fate::Lost { at: now, cause: Cause::Outage } };
        self.queue.push(sent.min(limit), size);
        self.free = sent.min(limit);
        if self.drx.is_some() {
            self.radio.on_sent(sent);
        }
        if sent >= limit {
            return Fate::Lost { at: limit, cause: Cause::Outage };
        }
        match self.draw_losses(sent, size) {
            Some(cause) => Fate::Lost { at: sent, cause },
            None => Fate::Delivered { at: sent },
        }
    }

    /// Admits a packet to an access layer, in place of the service.
    #[cold]
    fn admit_to_access(
        &mut self,
        access: &mut AccessProcess,
        (ready, radio): (Instant, Radio),
        limit: Instant,
        size: Bytes,
    ) -> Fate {
        let length = size + self.overhead;
        let (sent, cause) = match access.place(ready, length, limit, |at| self.service.resume(at)) {
            Placed::At { sent, cause } => (sent, cause),
            Placed::Cut => {
                self.queue.push(limit, size);
                self.free = limit;
                return Fate::Lost { at: limit, cause: Cause::Outage };
            }
            Placed::Never => {
                self.free = Instant::FAR_FUTURE;
                return Fate::Lost { at: self.now, cause: Cause::Outage };
            }
        };
        let passed = access.pass(sent);
        let cause = cause.or(passed.is_none().then_some(Cause::Outage));
        self.queue.push(sent, size);
        self.free = sent;
        if self.drx.is_some() {
            self.radio = radio;
            self.radio.on_sent(sent);
        }
        match self.propagate(sent, size, (passed.unwrap_or(sent), cause)) {
            Fate::Delivered { .. } if access.holds() => Fate::Held,
            fate => fate,
        }
    }

    /// Whether packets may be [held](Fate::Held).
    pub fn may_hold(&self) -> bool {
        self.access.as_ref().is_some_and(|access| access.has_stack())
    }

    /// Returns the next release of held packets. After each [`admit`](Self::admit) it must be called until it returns
    /// `None`; the packets arrive no later than that just admitted.
    #[inline]
    pub fn release(&mut self) -> Option<Release> {
        self.access.as_mut()?.release()
    }

    /// Draws from every loss process and returns the first cause.
    #[inline]
    fn draw_losses(&mut self, sent: Instant, size: Bytes) -> Option<Cause> {
        let mut cause = None;
        for loss in self.losses.at(sent).0 {
            let loss = loss.on_sent(sent, size);
            cause = cause.or(loss);
        }
        cause
    }

    /// Returns the fate of a packet whose last bit departs at `sent` and has `passed` the access layer, if there is
    /// one, at an instant, lost or not. Every effect draws for every packet, whatever the other effects decide.
    #[inline]
    fn propagate(
        &mut self,
        sent: Instant,
        size: Bytes,
        (passed, cause): (Instant, Option<Cause>),
    ) -> Fate {
        let drawn = self.draw_losses(sent, size);
        let mut cause = cause.or(drawn);
        let mut through = passed;
        if let Some(harq) = &mut self.harq {
            through = harq.release(through, size);
        }
        let mut delay = self.delays.at(sent).0.of_packet(sent);
        if delay == Duration::MAX {
            cause = cause.or(Some(Cause::Outage));
        }
        if let Some(epochs) = &mut self.epochs {
            let lost = epochs.on_sent(sent);
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

    /// Returns the link's state at `at`, which depends on time and seed alone. An `at` before that of the previous
    /// call counts as the previous.
    pub fn conditions(&mut self, at: Instant) -> Conditions {
        let view = &mut self.view;
        view.at = at.max(view.at);
        let at = view.at;
        let mut kept = 1.0;
        for loss in view.losses.at(at).0 {
            kept *= 1.0 - loss.probability(at, CONDITIONS_SIZE);
        }
        let mut delay = view.delays.at(at).0.expected(at);
        let mut has_path = delay < Duration::MAX;
        if !has_path {
            delay = Duration::ZERO;
        }
        let mut rate = view.service.rate(at);
        if let Some(access) = &mut view.access {
            let (of_frames, way, loss) = access.conditions(at, CONDITIONS_SIZE);
            kept *= 1.0 - loss;
            has_path &= way.is_some();
            delay += way.unwrap_or(Duration::ZERO);
            rate = if view.service.resume(at) > at { Rate::ZERO } else { of_frames };
        }
        if let Some(epochs) = &mut view.epochs {
            kept *= epochs.loss(at).complement().ratio();
            delay += epochs.delay_step(at);
        }
        Conditions {
            rate,
            delay,
            loss: Probability::saturating(1.0 - kept),
            up: has_path && view.outages.next_start(at) > at,
        }
    }

    /// Bytes queued or in service at `at`, which must not be before the last admission.
    pub fn backlog(&self, at: Instant) -> Bytes {
        self.queue.backlog(at)
    }

    /// Time at which the last packet admitted has departed.
    #[inline]
    pub const fn busy_until(&self) -> Instant {
        self.free
    }

    /// Last halt that delayed a packet (a handover, a reconfiguration, or a scripted halt), from the instant at
    /// which the packet met it to its end. Both are zero before the first halt.
    #[inline]
    pub const fn last_halt(&self) -> (Instant, Instant) {
        self.service.last_halt()
    }

    /// Radio that the two directions share, if this link has discontinuous reception. The driver must copy it to the
    /// other direction with [`set_radio`](Self::set_radio) after each admission.
    pub fn radio(&self) -> Option<Radio> {
        self.drx.is_some().then_some(self.radio)
    }

    /// Sets the radio to its state after an admission in the other direction.
    pub fn set_radio(&mut self, radio: Radio) {
        self.radio = radio;
    }

    /// Whether packets arrive in the order in which they were admitted.
    pub const fn keeps_order(&self) -> bool {
        !self.reorder
    }
}

/// Creates the loss processes, with a stream for each model and each scripted change.
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
    let (name, both) = (format!("{path}.{direction}.delay"), format!("{path}.delay"));
    let changes = config.changes.iter().enumerate().filter_map(|(index, (from, change))| {
        let Change::Delay(delay) = change else { return None };
        let number = index + 1;
        let (name, both) = (format!("{name}.{number}"), format!("{both}.{number}"));
        Some((*from, Delay::new(delay, seed, &name, &both)))
    });
    Schedule::new(Delay::new(&config.delay, seed, &name, &both), changes.collect())
}
