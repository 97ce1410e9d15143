//! The links in real time: frames between network interfaces, delayed and lost as [`Link`] says.
//!
//! Each path is a [`Lane`] between two interfaces of the emulator's namespace. A frame enters its
//! link at the time at which the kernel got it, not when the emulator came to read it, and leaves
//! when the link says that its last bit is at the other end. What the machine adds to that is
//! measured and told in [`Forwarded::lateness`].

mod capture;
mod counters;
mod engine;
pub(crate) mod frame;
mod frames;
mod lateness;
mod live;
mod pacer;
mod port;
mod report;
mod stage;
pub(crate) mod thread;

use std::io;
use std::path::PathBuf;
use std::thread::JoinHandle;

use skybraid_host::record::{PacketKind, Record};
use skybraid_link::{Direction, Link};
use skybraid_units::{Instant, Seed};

use capture::Capture;
use engine::Engine;
pub use lateness::Lateness;
pub use live::{Command, Controls, DirectionStatus, PathStatus, Snapshot};
use port::Port;
pub use report::{Account, DOUBTFUL_LOSS, DOUBTFUL_P99, DOUBTFUL_P999, Forwarded};
use skybraid_io::clock::Clock;

/// The flow of a packet in the table of packets when nobody knows it.
pub const UNKNOWN_FLOW: u16 = u16::MAX;

/// Tells the flow and the kind of an IP packet, given from its IP header on; `None` for one of none
/// of the flows.
pub type Classifier = Box<dyn FnMut(&[u8]) -> Option<(u16, PacketKind)> + Send>;

/// Is shown an IP packet, from its IP header on.
pub type See = Box<dyn Fn(&[u8]) + Send>;

/// Somebody who sees the IP packets of a direction of a lane as they come in. It keeps the forwarder
/// from its work for as long as it looks.
pub struct Watcher {
    /// The lane's name.
    pub lane: String,
    /// The direction of the packets.
    pub direction: Direction,
    /// Is shown each packet before it can leave.
    pub see: See,
}

/// A path: links between two interfaces.
#[derive(Debug)]
pub struct Lane {
    /// Its name, by which [`Controls::apply`] finds it.
    pub name: String,
    /// Index of the interface toward the vehicle and of the one toward the ground.
    pub ends: [u32; 2],
    /// From vehicle to ground: links in series, at least one.
    pub up: Vec<Link>,
    /// From ground to vehicle: links in series, at least one. As many as in `up` where the directions
    /// share radios; the last then belongs to the first of `up`.
    pub down: Vec<Link>,
}

/// How a forwarder works.
pub struct Options {
    /// The run's clock. Packets that come before its zero wait for it at the entrance.
    pub clock: Clock,
    /// When samples end.
    pub end: Instant,
    /// Keep the processors awake and spend up to a whole one, so that packets leave on time.
    pub precise: bool,
    /// Which tables are kept; those of links and packets are the forwarder's.
    pub record: Record,
    /// What tells flows apart, if they are wanted.
    pub classifier: Option<Classifier>,
    /// The folder for captures, `NAME-vehicle.pcapng` and `NAME-ground.pcapng` for each lane.
    pub captures: Option<PathBuf>,
    /// Who looks at the packets that come in.
    pub watchers: Vec<Watcher>,
    /// What delay and loss draw from that are set while the forwarder runs.
    pub seed: Seed,
}

impl Options {
    /// No tables, no flows, no end; not precise.
    pub fn new(clock: Clock) -> Self {
        Self {
            clock,
            end: Instant::FAR_FUTURE,
            precise: false,
            record: Record::default(),
            classifier: None,
            captures: None,
            watchers: Vec::new(),
            seed: Seed(1),
        }
    }
}

/// A forwarder at work in a thread of its own. Dropping it ends the work.
pub struct Forwarder {
    controls: Controls,
    thread: Option<JoinHandle<Forwarded>>,
}

impl Forwarder {
    /// Opens the interfaces of `lanes` in the network namespace of the calling thread and begins to
    /// forward.
    ///
    /// # Errors
    /// A lane has no link, an interface is missing or the right to open it (`CAP_NET_RAW`), or a capture
    /// cannot be written.
    pub fn start(lanes: Vec<Lane>, options: Options) -> io::Result<Self> {
        let mut ports = Vec::new();
        for lane in &lanes {
            if lane.up.is_empty() || lane.down.is_empty() {
                let text = format!("path `{}`: found no link, expected at least one", lane.name);
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
            for end in lane.ends {
                ports.push(Port::open(end)?);
            }
        }
        for Watcher { lane, .. } in &options.watchers {
            if lanes.iter().all(|known| known.name != *lane) {
                let text = format!("cannot watch path `{lane}`: there is no such path");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
        }
        let names: Vec<String> = lanes.iter().map(|lane| lane.name.clone()).collect();
        let folder = options.captures.as_deref();
        let capture = folder.map(|folder| Capture::create(folder, &names)).transpose()?;
        let (controls, desk) = live::desk(names)?;
        let precise = options.precise;
        let engine = Engine::new(ports, lanes, options, desk, capture);
        let thread = std::thread::Builder::new().name("forwarder".into()).spawn(move || {
            thread::prepare();
            let _awake = if precise { thread::keep_awake() } else { None };
            engine.run()
        })?;
        Ok(Self { controls, thread: Some(thread) })
    }

    /// A handle for looking on and for taking a hand.
    pub fn controls(&self) -> Controls {
        self.controls.clone()
    }

    /// Ends the work.
    ///
    /// # Errors
    /// The forwarder's thread has panicked.
    pub fn stop(mut self) -> io::Result<Forwarded> {
        self.controls.stop();
        let ended = self.thread.take().map(JoinHandle::join);
        ended
            .and_then(Result::ok)
            .ok_or_else(|| io::Error::other("the forwarder has ended by an error of its own"))
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.controls.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}
