//! Real-time links: frames between network interfaces, delayed and lost as [`Link`] determines.
//!
//! Each path is a [`Lane`] between two interfaces of the emulator's namespace. A frame enters its link at the
//! time at which the kernel received it, not when the emulator read it, and leaves when the link reports its
//! last bit at the other end. The delay added by the machine is measured and reported in
//! [`Forwarded::lateness`].

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
mod way;

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

/// Flow of unknown packets in the packet table.
pub const UNKNOWN_FLOW: u16 = u16::MAX;

/// Returns the flow and the kind of an IP packet, passed from its IP header on; `None` if it belongs to no
/// flow.
pub type Classifier = Box<dyn FnMut(&[u8]) -> Option<(u16, PacketKind)> + Send>;

/// Receives an IP packet, from its IP header on.
pub type See = Box<dyn Fn(&[u8]) + Send>;

/// Observer of the incoming IP packets of one direction of a lane. It blocks the forwarder while it runs.
pub struct Watcher {
    /// Lane name.
    pub lane: String,
    /// Direction of the packets.
    pub direction: Direction,
    /// Called for each packet before it can leave.
    pub see: See,
}

/// A path: links between two interfaces.
#[derive(Debug)]
pub struct Lane {
    /// Lane name, used by [`Controls::apply`].
    pub name: String,
    /// Indices of the interfaces toward the vehicle and toward the ground.
    pub ends: [u32; 2],
    /// Vehicle to ground: links in series, at least one.
    pub up: Vec<Link>,
    /// Ground to vehicle: links in series, at least one. If the directions share radios, as many as in `up`;
    /// the last is then paired with the first of `up`.
    pub down: Vec<Link>,
}

/// Options of a forwarder.
pub struct Options {
    /// Clock of the run. Packets that arrive before its zero wait at the entrance of the link.
    pub clock: Clock,
    /// End of sampling.
    pub end: Instant,
    /// Keep the processors awake and use up to a whole one, so that packets leave on time.
    pub precise: bool,
    /// Tables to record; the forwarder keeps those of links and packets.
    pub record: Record,
    /// Flow classifier, if flows are recorded.
    pub classifier: Option<Classifier>,
    /// Folder for captures, `NAME-vehicle.pcapng` and `NAME-ground.pcapng` for each lane.
    pub captures: Option<PathBuf>,
    /// Observers of incoming packets.
    pub watchers: Vec<Watcher>,
    /// Random seed of delay and loss set while the forwarder runs.
    pub seed: Seed,
}

impl Options {
    /// Returns options without tables, flows or an end; not precise.
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

/// A forwarder running in its own thread. Dropping it stops the thread.
pub struct Forwarder {
    controls: Controls,
    thread: Option<JoinHandle<Forwarded>>,
}

impl Forwarder {
    /// Opens the interfaces of `lanes` in the network namespace of the calling thread and starts forwarding.
    ///
    /// # Errors
    /// A lane has no link, an interface or the capability to open it (`CAP_NET_RAW`) is missing, or a capture
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
        let (controls, commands) = live::commands(names)?;
        let precise = options.precise;
        let engine = Engine::new(ports, lanes, options, commands, capture);
        let thread = std::thread::Builder::new().name("forwarder".into()).spawn(move || {
            thread::prepare();
            let _awake = if precise { thread::keep_awake() } else { None };
            engine.run()
        })?;
        Ok(Self { controls, thread: Some(thread) })
    }

    /// Returns a handle for status and control.
    pub fn controls(&self) -> Controls {
        self.controls.clone()
    }

    /// Stops the thread and returns its results.
    ///
    /// # Errors
    /// The thread of the forwarder has panicked.
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
