//! Event loop: one thread between the networks and the local applications.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use skybraid_gateway::{Event, Gateway, GatewayConfig, Random, Secrets};
use skybraid_units::{Duration, Instant};

use super::alarms::Alarms;
use super::arrival::TICK;
use super::interfaces::Interfaces;
use super::local::Local;
use super::names::NameOwner;
use super::network::Paths;
use super::notify::Notify;
use super::poller::{Poller, Ready, Source};
use super::tools::Tools;
use super::{GatewayError, Shared, SocketCounters};
use skybraid_io::clock::Clock;

/// Interval at which the state is published.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(200);
/// Maximum datagrams sent before sources are polled again.
const MAX_BATCH: usize = 256;
/// Maximum batches read from a source before other sources are served.
const MAX_BATCHES: usize = 16;

/// Daemon of one gateway.
pub struct Engine {
    clock: Clock,
    gateway: Gateway,
    paths: Paths,
    local: Local,
    tools: Tools,
    interfaces: Interfaces,
    signals: SignalFd,
    notify: Notify,
    shared: Arc<Shared>,
    publish: Instant,
    /// More is queued than one round may send.
    more: bool,
    /// Buffer for an outgoing datagram, and for data to a local application.
    out: Vec<u8>,
    whole: Vec<u8>,
}

impl Engine {
    /// Opens sockets and timers.
    pub fn new(
        config: &GatewayConfig,
        secrets: Secrets,
        shared: Arc<Shared>,
        events: SyncSender<Event>,
    ) -> Result<Self, GatewayError> {
        let system = |what| move |error| GatewayError::System { what, error };
        super::hold_signals().map_err(system("cannot hold signals back"))?;
        let clock = Clock::starting_now();
        let now = clock.now();
        let poller = Poller::new(clock).map_err(system("cannot wait for descriptors"))?;
        let tools = Tools::new(poller, Alarms::new(events));
        let mut tools = tools.map_err(system("cannot start the resolver"))?;
        let interfaces = Interfaces::open().map_err(system("cannot ask for interfaces"))?;
        let watched = tools.poller.watch(&interfaces, Source::Interfaces);
        watched.map_err(system("cannot watch interfaces"))?;
        let signals = signals().map_err(system("cannot take signals"))?;
        let watched = tools.poller.watch(&signals, Source::Signal);
        watched.map_err(system("cannot watch for signals"))?;
        let mut random = Kernel;
        random.check().map_err(system("the kernel has no random numbers"))?;
        let local = Local::open(now, config, &mut tools)?;
        let paths = Paths::new(now, config)?;
        let gateway = Gateway::new(now, config, secrets, Box::new(random));
        Ok(Self {
            clock,
            gateway,
            paths,
            local,
            tools,
            interfaces,
            signals,
            notify: Notify::from_environment(),
            shared,
            publish: now,
            more: false,
            out: Vec::new(),
            whole: Vec::new(),
        })
    }

    /// Forwards traffic until shutdown.
    pub fn run(&mut self) -> Result<(), GatewayError> {
        let mut ready = Vec::new();
        self.notify.ready(self.clock.now());
        loop {
            let due = self.keep_time();
            if self.shared.ended() || self.shutdown_requested(&ready) {
                break;
            }
            let waited = self.tools.poller.wait(self.clock.now(), due, &mut ready);
            waited.map_err(|error| GatewayError::System { what: "cannot wait", error })?;
            let mut room = MAX_BATCH;
            for ready in &ready {
                // If the send limit of a round is reached, incoming data is still read: it waits in queues
                // with fair shares instead of in a socket after another sender's data.
                for _ in 0..MAX_BATCHES {
                    let now = self.clock.now();
                    self.tools.alarms.at(now);
                    let again = self.serve(now, *ready);
                    if room > 0 {
                        room -= self.pump(self.clock.now(), room);
                    }
                    if !again {
                        break;
                    }
                }
            }
            self.more = room == 0;
        }
        self.notify.stopping();
        self.publish(self.clock.now());
        self.paths.close();
        Ok(())
    }

    fn due(&self) -> Instant {
        let gateway = self.gateway.next_wakeup();
        let edges = self.paths.due().min(self.local.due());
        let due = gateway.min(edges).min(self.publish).min(self.notify.due());
        if self.local.has_streams() { due.min(self.clock.now() + TICK) } else { due }
    }

    /// Handles expired timers and sends pending data. Returns the time of the next timer.
    fn keep_time(&mut self) -> Instant {
        let (now, due) = (self.clock.now(), self.due());
        if now < due && !self.more {
            return due;
        }
        self.tools.alarms.at(now);
        if now >= self.gateway.next_wakeup() {
            self.gateway.wake(now);
        }
        if now >= self.paths.due() {
            self.paths.refresh(now, &self.interfaces, &mut self.tools, &mut self.gateway);
        }
        if now >= self.local.due() {
            let gateway = &self.gateway;
            self.local.wake(now, &mut self.tools, || gateway.snapshot(now));
        }
        if now >= self.publish {
            self.publish(now);
        }
        self.notify.alive(now);
        self.more = self.pump(now, MAX_BATCH) == MAX_BATCH;
        if self.more { now } else { self.due() }
    }

    fn shutdown_requested(&mut self, ready: &[Ready]) -> bool {
        ready.iter().any(|ready| ready.source == Source::Signal)
            && self.signals.read_signal().is_ok_and(|signal| signal.is_some())
    }

    /// Reads a batch from a ready source. Returns true if there may be more.
    fn serve(&mut self, now: Instant, ready: Ready) -> bool {
        let Self { gateway, paths, local, tools, interfaces, .. } = self;
        match ready.source {
            Source::Timer | Source::Signal => {}
            Source::Socket(_) | Source::Listener(_) | Source::Stream(_) => {
                return paths.ready(now, ready, tools, gateway);
            }
            Source::Mavlink(_) | Source::Client(..) | Source::Port(_) | Source::Tun => {
                return local.ready(now, ready, tools, &mut |channel, origin, bytes| {
                    gateway.write_from(now, channel, origin, bytes);
                });
            }
            Source::Interfaces => {
                if interfaces.read() {
                    paths.refresh(now, interfaces, tools, gateway);
                }
            }
            Source::Names => {
                while let Some(answer) = tools.names.answer() {
                    match answer.whose {
                        NameOwner::Path(path) => paths.resolved(now, path, answer.addresses, tools),
                        whose => local.resolved(now, whose, answer.addresses, tools),
                    }
                }
            }
        }
        false
    }

    /// Flushes at most `max` outgoing datagrams and delivers received messages. Returns the number sent.
    fn pump(&mut self, now: Instant, max: usize) -> usize {
        let Self { gateway, paths, local, tools, out, whole, .. } = self;
        let mut sent = 0;
        while sent < max
            && let Some(outgoing) = gateway.poll_send(now, out)
        {
            paths.send(now, &outgoing, out, tools, gateway);
            sent += 1;
        }
        paths.flush();
        let mut delivered = false;
        while let Some((channel, expires)) = gateway.poll_local_until(whole) {
            local.deliver(now, channel, expires, whole, tools);
            delivered = true;
        }
        if delivered {
            local.flush(tools.poller.now(), tools);
        }
        while let Some(event) = gateway.poll_event() {
            tools.alarms.pass(event);
        }
        sent
    }

    fn publish(&mut self, now: Instant) {
        self.publish = now + PUBLISH_INTERVAL;
        if let Some(unfragmented) = self.gateway.unfragmented() {
            self.local.follow_mtu(unfragmented);
        }
        self.local.watch_tun(&self.interfaces, &mut self.tools);
        let alarms = self.tools.alarms.raised().clone();
        let edges = SocketCounters { paths: self.paths.edges(), local: self.local.edges(), alarms };
        self.shared.publish(self.gateway.snapshot(now), edges);
    }
}

fn signals() -> std::io::Result<SignalFd> {
    let mut set = SigSet::empty();
    set.add(Signal::SIGTERM);
    set.add(Signal::SIGINT);
    let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
    Ok(SignalFd::with_flags(&set, flags)?)
}

/// Random number generator of the kernel.
struct Kernel;

impl Kernel {
    fn check(&mut self) -> std::io::Result<()> {
        self.draw(&mut [0; 1])
    }

    #[expect(unsafe_code, reason = "getrandom has no wrapper here")]
    fn draw(&mut self, mut bytes: &mut [u8]) -> std::io::Result<()> {
        while !bytes.is_empty() {
            // SAFETY: the bytes are valid for writes of their length, and outlive the call.
            let drawn = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
            match usize::try_from(drawn) {
                Ok(drawn) => bytes = bytes.get_mut(drawn..).unwrap_or_default(),
                Err(_) => {
                    let error = std::io::Error::last_os_error();
                    if error.kind() != std::io::ErrorKind::Interrupted {
                        return Err(error);
                    }
                }
            }
        }
        Ok(())
    }
}

impl Random for Kernel {
    fn fill(&mut self, bytes: &mut [u8]) {
        // It worked at startup, and Linux does not revoke it. A guessable key would be worse.
        if self.draw(bytes).is_err() {
            std::process::abort();
        }
    }
}
