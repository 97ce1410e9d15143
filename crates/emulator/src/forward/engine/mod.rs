//! Forwarding loop: read, admit, release, sleep.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

use skybraid_host::record::samples::SAMPLE_INTERVAL;
use skybraid_link::{Cause, Direction, Fate};
use skybraid_units::invariant::Promised;
use skybraid_units::{Bytes, Duration, Instant, Seed};

use super::capture::Capture;
use super::counters::LinkCounters;
use super::frame::{ETHERNET, shaped};
use super::frames::Frames;
use super::lateness::Lateness;
use super::live::CommandReceiver;
use super::pacer::Pacer;
use super::port::{BATCH, Port, Received, Receiver, Sender};
use super::stage::{Stage, Waiting};
use super::way::Way;
use super::{Classifier, Forwarded, Lane, Options, Watcher, thread};
use skybraid_io::clock::Clock;

mod orders;
mod status;

/// Maximum lead with which a frame is passed to the kernel before it is due, to compensate for the kernel's
/// processing time.
const MAX_EARLY: Duration = Duration::from_micros(20);
/// Maximum lateness of frames that wait for others due soon after, so that all leave at one wakeup; none
/// wait if the forwarder is precise.
const MAX_LATENESS: Duration = Duration::from_micros(100);
/// Maximum attempts to send a frame on an interface whose queue is full, and the wait in between.
const ATTEMPTS: u32 = 20;
const BETWEEN_ATTEMPTS: Duration = Duration::from_micros(50);

/// A received frame that has not entered its link.
struct Incoming {
    at: Instant,
    /// Sequence number, which keeps simultaneous frames in the order in which they were read.
    number: u32,
    way: usize,
    frame: Received,
}

/// Real-time links of an emulation.
pub(super) struct Engine {
    clock: Clock,
    end: Instant,
    seed: Seed,
    classifier: Option<Classifier>,
    commands: CommandReceiver,
    ports: Vec<Port>,
    ways: Vec<Way>,
    stages: Vec<Stage>,
    frames: Frames,
    receiver: Receiver,
    sender: Sender,
    incoming: Vec<Incoming>,
    pacer: Pacer,
    counters: LinkCounters,
    capture: Option<Capture>,
    lateness: Lateness,
    /// Time the kernel takes to send one frame.
    handing_over: Duration,
    /// Maximum lateness of frames that wait for others.
    max_lateness: Duration,
    next_sample: Instant,
    /// Time of the last reading of the ports that wake nobody.
    last_read: Instant,
    /// Time until which frames of these ports may stay unread.
    read_from: Instant,
}

impl Engine {
    /// Creates an engine with two ports and two directions per lane.
    pub fn new(
        ports: Vec<Port>,
        lanes: Vec<Lane>,
        options: Options,
        commands: CommandReceiver,
        capture: Option<Capture>,
    ) -> Self {
        let largest = ports.iter().map(|port| port.mtu).max().unwrap_or_default();
        let mut frames = Frames::new(largest + ETHERNET);
        let receiver = Receiver::new(&mut frames);
        let clock = options.clock;
        let now = clock.now();
        let (ways, stages) = directions(lanes, options.watchers, now);
        let watched = ports.iter().map(Port::fd);
        let watched = watched.chain([commands.wakeup().as_fd().as_raw_fd()]);
        let mut engine = Self {
            pacer: Pacer::new(clock, options.precise, watched),
            counters: LinkCounters::new(options.record, ways.len()),
            capture,
            clock,
            end: options.end,
            seed: options.seed,
            classifier: options.classifier,
            commands,
            ports,
            ways,
            stages,
            frames,
            receiver,
            sender: Sender::new(),
            incoming: Vec::with_capacity(4 * BATCH),
            lateness: Lateness::default(),
            handing_over: Duration::from_micros(5),
            max_lateness: if options.precise { Duration::ZERO } else { MAX_LATENESS },
            next_sample: Instant::ZERO,
            last_read: now,
            read_from: now,
        };
        engine.learn_min_delays();
        engine
    }

    /// Forwards frames until stopped.
    pub fn run(mut self) -> Forwarded {
        let mut precedence = thread::Precedence::new();
        while !self.commands.is_stopped() {
            self.release();
            let more = self.receive(false);
            self.release();
            let now = self.clock.now();
            if now >= self.next_sample {
                self.sample(now);
                precedence.review(SAMPLE_INTERVAL);
            }
            self.take_orders();
            self.commands
                .publish_in_flight(self.stages.iter().map(|stage| stage.waiting.len()).sum());
            if !more {
                self.wait();
            }
        }
        self.close()
    }

    /// Reads the ports that may be readable, or `all`, and admits the frames in order of arrival. Returns
    /// true if more are waiting.
    fn receive(&mut self, all: bool) -> bool {
        let before = self.clock.now();
        let overdue = before >= self.read_from;
        let mut more = false;
        for (way, port) in self.ports.iter_mut().enumerate() {
            let wakes = self.pacer.wakes_by(way);
            if !(all || if wakes { self.pacer.may_be_readable(way) } else { overdue }) {
                continue;
            }
            let incoming = &mut self.incoming;
            let count = self.receiver.receive(port, &mut self.frames, |frame| {
                let number = incoming.len() as u32;
                incoming.push(Incoming { at: Instant::ZERO, number, way, frame });
            });
            port.emptied = (count < BATCH).then_some(before);
            more |= count == BATCH;
        }
        self.pacer.forget();
        if all || overdue {
            self.last_read = before;
            self.read_from = before;
        }
        if !self.incoming.is_empty() {
            self.take_in();
        }
        for port in &mut self.ports {
            port.read_until = port.read_until.max(port.emptied.take().unwrap_or(port.read_until));
        }
        more
    }

    /// Admits the frames that were read in order of arrival.
    fn take_in(&mut self) {
        let offset = self.clock.from_realtime_ns();
        let now = self.clock.now();
        let mut mixed = false;
        let first = self.incoming.first().map(|frame| frame.way);
        for frame in &mut self.incoming {
            let Some(port) = self.ports.get_mut(frame.way).promised("a port of a link") else {
                continue;
            };
            frame.at = frame.frame.arrival(offset, port.read_until, now);
            port.read_until = frame.at;
            if let Some(way) = self.ways.get_mut(frame.way) {
                way.last_frame = now;
            }
            mixed |= Some(frame.way) != first;
        }
        if mixed {
            self.incoming.sort_unstable_by_key(|frame| (frame.at, frame.number));
        }
        let mut incoming = std::mem::take(&mut self.incoming);
        for frame in incoming.drain(..) {
            self.enter(&frame);
        }
        self.incoming = incoming;
    }

    /// Passes a frame to the first link of its direction, or around it if it is not shaped.
    fn enter(&mut self, incoming: &Incoming) {
        let Some(way) = self.ways.get_mut(incoming.way).promised("a direction of a link") else {
            return;
        };
        let Received { slot, length, cut_off, .. } = incoming.frame;
        let Some(account) = self.counters.account(incoming.way) else { return };
        account.received += 1;
        if let Some(capture) = &mut self.capture {
            capture.note(incoming.way, incoming.at, self.frames.bytes(slot, length));
        }
        let mut frame = Waiting {
            due: incoming.at,
            departs: incoming.at,
            entered: incoming.at,
            slot,
            length,
            flow: None,
        };
        if cut_off {
            account.oversized += 1;
            self.frames.give_back(slot);
            return;
        }
        match shaped(self.frames.bytes(slot, length)) {
            None => way.leaving.push((frame, false)),
            Some(packet) => {
                for watcher in &way.watchers {
                    (watcher.see)(packet);
                }
                frame.flow = self.classifier.as_mut().and_then(|classify| classify(packet));
                let first = way.stages.start;
                self.admit(first, incoming.at, frame);
            }
        }
    }

    /// Passes a packet to a link.
    #[inline]
    fn admit(&mut self, index: usize, at: Instant, mut packet: Waiting) {
        let Some(stage) = self.stages.get_mut(index).promised("a link of a direction") else {
            return;
        };
        let size = Bytes::new(u64::from(packet.length) - ETHERNET as u64);
        let fate = stage.link.admit(at, size);
        stage.release_held();
        match fate {
            Fate::Delivered { at } => {
                packet.due = at;
                packet.departs = stage.link.last_departure();
                stage.push(packet);
            }
            Fate::Held => {
                packet.departs = stage.link.last_departure();
                stage.hold(packet);
            }
            Fate::Lost { at, cause } => {
                self.counters.lost(stage.way, &packet, at, cause);
                self.frames.give_back(packet.slot);
            }
        }
        if let (Some(sibling), Some(radio)) = (stage.sibling, stage.link.radio())
            && let Some(sibling) = self.stages.get_mut(sibling).promised("a link of a direction")
        {
            sibling.link.set_radio(radio);
        }
    }

    /// Sends due frames, and moves frames from the end of a link to the next link. Frames due shortly after
    /// are included, which saves system calls under load.
    fn release(&mut self) {
        let now = self.clock.now();
        let (due, along) = (now + self.early(), now + MAX_EARLY);
        for index in 0..self.stages.len() {
            if self.stages.get(index).is_none_or(|stage| stage.due() > due) {
                continue;
            }
            while let Some(stage) = self.stages.get_mut(index)
                && let Some(packet) = stage.pop(along)
            {
                match stage.next {
                    Some(next) => self.admit(next, packet.due, packet),
                    None => {
                        if let Some(way) =
                            self.ways.get_mut(stage.way).promised("a direction of a link")
                        {
                            way.leaving.push((packet, true));
                        }
                    }
                }
            }
        }
        for way in 0..self.ways.len() {
            self.send(way);
        }
    }

    /// Returns how long before its due time a frame is passed to the kernel.
    fn early(&self) -> Duration {
        self.handing_over.min(MAX_EARLY)
    }

    /// Sends the outgoing frames of a direction.
    fn send(&mut self, index: usize) {
        let Some(way) = self.ways.get_mut(index).promised("a direction of a link") else { return };
        let Some(port) = self.ports.get(index ^ 1).promised("a port of a link") else { return };
        let mut attempts = 0;
        let mut rest = way.leaving.as_slice();
        while !rest.is_empty() {
            let now = self.clock.now();
            let batch = rest.iter().map(|(frame, _)| (frame.slot, frame.length));
            let sent = match self.sender.send(port, &mut self.frames, batch) {
                Ok(sent) => sent,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    // The queue at the other end is full; let its kernel run.
                    let full = matches!(error.raw_os_error(), Some(libc::ENOBUFS | libc::EAGAIN));
                    let connected = port.is_connected();
                    attempts += 1;
                    if full && connected && attempts < ATTEMPTS {
                        thread::rest(BETWEEN_ATTEMPTS);
                        continue;
                    }
                    attempts = 0;
                    let Some((frame, shaped)) = rest.split_off_first() else { break };
                    self.frames.give_back(frame.slot);
                    match (connected, self.counters.account(index)) {
                        (false, _) if *shaped => {
                            self.counters.lost(index, frame, now, Cause::Outage);
                        }
                        (false, Some(account)) => account.unshaped += 1,
                        (true, Some(account)) => account.unsendable += 1,
                        (_, None) => {}
                    }
                    continue;
                }
            };
            if rest.len() == 1 {
                let took = self.clock.now() - now;
                // Mean over about sixteen frames, in which an interruption has little weight.
                let took = took.min(self.handing_over * 2 + Duration::from_micros(1));
                self.handing_over = (self.handing_over * 15 + took) / 16;
            }
            attempts = 0;
            for (frame, shaped) in rest.split_off(..sent).unwrap_or_default() {
                if let Some(capture) = &mut self.capture {
                    capture.note(index ^ 1, now, self.frames.bytes(frame.slot, frame.length));
                }
                self.frames.give_back(frame.slot);
                if *shaped {
                    self.lateness.add(now - frame.due);
                    self.counters.delivered(index, frame);
                } else if let Some(account) = self.counters.account(index) {
                    account.unshaped += 1;
                }
            }
        }
        way.leaving.clear();
    }

    /// Sleeps until a frame must leave, arrives, or must be read because it may be due soon.
    fn wait(&mut self) {
        let now = self.clock.now();
        let mut unread: Option<Duration> = None;
        for (index, way) in self.ways.iter().enumerate() {
            let may_wait = way.may_wait(&self.stages, now);
            self.pacer.wake_by(index, may_wait.is_none());
            unread = unread.into_iter().chain(may_wait).min();
        }
        let mut roughly = self.next_sample.min(now + SAMPLE_INTERVAL);
        self.read_from = Instant::FAR_FUTURE;
        if let Some(unread) = unread {
            roughly = roughly.min(self.last_read + unread);
            // A thread that is awake in the second half of the interval reads at once, which saves a wakeup.
            self.read_from = self.last_read + unread / 2;
        }
        let exact = self.next_departure();
        if exact > now {
            self.pacer.wait(now, exact, roughly);
        }
    }

    /// Returns the time at which the next frame must be passed to the kernel, or the last of those that are
    /// due within [`MAX_LATENESS`] after it.
    fn next_departure(&self) -> Instant {
        let first = self.stages.iter().map(Stage::due).min().unwrap_or(Instant::FAR_FUTURE);
        if first == Instant::FAR_FUTURE {
            return first;
        }
        let horizon = first + self.max_lateness;
        let last = self.stages.iter().filter_map(|stage| stage.last_due(horizon)).max();
        last.unwrap_or(first) - self.early()
    }

    fn learn_min_delays(&mut self) {
        for way in &mut self.ways {
            way.learn_min_delay(&self.stages);
        }
    }

    /// Counts the frames that no port had space for.
    fn count_drops(&mut self) {
        for (index, port) in self.ports.iter().enumerate() {
            let drops = port.take_drops();
            if let Some(account) = self.counters.account(index) {
                account.unread += drops;
            }
        }
    }

    fn close(mut self) -> Forwarded {
        self.count_drops();
        for stage in &self.stages {
            if let Some(account) = self.counters.account(stage.way) {
                account.in_flight += stage.waiting.len() as u64;
            }
        }
        let mut report =
            Forwarded { lateness: self.lateness, cpu: thread::cpu_time(), ..Forwarded::default() };
        if let Some(capture) = self.capture {
            (report.uncaptured, report.capture_error) = capture.finish();
        }
        self.counters.close(&mut report);
        report
    }
}

/// Returns two directions per lane, and the links of all in series.
fn directions(
    lanes: Vec<Lane>,
    mut watchers: Vec<Watcher>,
    now: Instant,
) -> (Vec<Way>, Vec<Stage>) {
    let (mut ways, mut stages) = (Vec::new(), Vec::new());
    for lane in lanes {
        let (up, down) = (lane.up.len(), lane.down.len());
        let first = stages.len();
        let directions = Direction::ALL.into_iter();
        for (direction, (links, from)) in
            directions.zip([(lane.up, first), (lane.down, first + up)])
        {
            let range = from..from + links.len();
            for (index, link) in links.into_iter().enumerate() {
                let place = from + index;
                let opposite = first + (first + up + down - 1 - place);
                stages.push(Stage {
                    sibling: (up == down && link.radio().is_some()).then_some(opposite),
                    link,
                    waiting: VecDeque::with_capacity(4096),
                    held: 0,
                    way: ways.len(),
                    next: (place + 1 < range.end).then_some(place + 1),
                });
            }
            let mine =
                |watcher: &mut Watcher| watcher.lane == lane.name && watcher.direction == direction;
            let watchers = watchers.extract_if(.., mine).collect();
            ways.push(Way::new(range, watchers, now));
        }
    }
    (ways, stages)
}
