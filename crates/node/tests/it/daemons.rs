//! Two gateways in one process, and the programs at their ends.

use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use skybraid_gateway::{Event, PrivateKey};
use skybraid_io::netlink::Namespace;
use skybraid_node::{GatewayError, Shared, hold_signals, run};
use skybraid_scenario::GatewayFile;

/// A gateway that runs until it is dropped.
pub struct Daemon {
    pub shared: Arc<Shared>,
    pub events: Receiver<Event>,
    thread: Option<JoinHandle<Result<(), GatewayError>>>,
}

fn private(side: &str) -> PrivateKey {
    PrivateKey([if side == "aircraft" { 1 } else { 2 }; 32])
}

impl Daemon {
    /// Starts one of these `lines` of a file next to its side and keys; in `place`, if one is given.
    pub fn start(side: &'static str, lines: &str, place: Option<&Namespace>) -> Self {
        let peer = if side == "aircraft" { "ground" } else { "aircraft" };
        let peer = private(peer).public();
        let head = format!("side = \"{side}\"\nkey = \"unused.key\"\npeer = \"{peer}\"\n");
        let text = format!("{head}{lines}\n[status]\nlisten = \"\"\n");
        let file = GatewayFile::parse(&text, Path::new("gateway.toml")).unwrap();
        let shared = Arc::new(Shared::default());
        let (sender, events) = sync_channel(1000);
        let (mine, place) = (Arc::clone(&shared), place.map(|place| place.try_clone().unwrap()));
        let thread = thread::spawn(move || {
            let work = || run(&file.config, private(side), mine, sender);
            match place {
                Some(place) => place.run(work).unwrap(),
                None => work(),
            }
        });
        Self { shared, events, thread: Some(thread) }
    }

    /// Waits until `wanted` is true of the state.
    pub fn wait(&self, wanted: impl Fn(&skybraid_gateway::Snapshot) -> bool) {
        let holds = || self.shared.snapshot().is_some_and(|snapshot| wanted(&snapshot));
        let held = within(PATIENCE, holds);
        assert!(held, "{:#?} {:#?}", self.shared.snapshot(), self.shared.edges());
    }

    /// Waits for a session in which every path is heard, and the peer hears it.
    pub fn wait_for_paths(&self, paths: usize) {
        use skybraid_gateway::event::PathState::{Probation, Up};
        self.wait(|snapshot| {
            let heard = snapshot.paths.iter().filter(|path| {
                [path.incoming, path.outgoing].iter().all(|state| matches!(state, Up | Probation))
            });
            snapshot.session && heard.count() == paths
        });
    }

    /// Ends it, and says how.
    pub fn end(mut self) -> Result<(), GatewayError> {
        self.shared.end();
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.shared.end();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            if !thread::panicking() {
                ended.unwrap().unwrap();
            }
        }
    }
}

/// Longest time in which another thread or process does what is asked of it, on a busy machine too.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Returns true as soon as `is_met` does; false if it does not within `timeout`.
pub fn within(timeout: Duration, is_met: impl Fn() -> bool) -> bool {
    const POLL_INTERVAL: Duration = Duration::from_millis(50);
    let polls = timeout.as_millis() / POLL_INTERVAL.as_millis();
    (0..polls).any(|_| {
        let met = is_met();
        if !met {
            thread::sleep(POLL_INTERVAL);
        }
        met
    })
}

/// Signals go to the gateways, not to the test.
pub fn prepare() {
    hold_signals().unwrap();
}

/// Ports of loopback on which neither TCP nor UDP is in use. They are below those that Linux gives to clients
/// (`ip_local_port_range`), so that none is taken between this call and the server's start.
pub fn free_ports<const N: usize>() -> [u16; N] {
    static TRIED: AtomicU16 = AtomicU16::new(0);
    let first = std::process::id() * 64;
    [(); N].map(|()| {
        loop {
            let tried = u32::from(TRIED.fetch_add(1, Ordering::Relaxed));
            let port = 10_000 + ((first + tried) % 22_000) as u16;
            let address = ("127.0.0.1", port);
            if UdpSocket::bind(address).is_ok() && TcpListener::bind(address).is_ok() {
                break port;
            }
        }
    })
}

/// A program's UDP socket, which talks to one port.
pub fn program(port: u16) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(SocketAddr::from(([127, 0, 0, 1], port))).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    socket
}

/// A MAVLink 2 frame of a message, with a number for payload and a checksum that nobody reads.
pub fn frame(system: u8, message: u32, sequence: u8, number: u32) -> Vec<u8> {
    let [low, middle, high, _] = message.to_le_bytes();
    let mut frame = vec![0xfd, 32, 0, 0, sequence, system, 1, low, middle, high];
    frame.extend(number.to_le_bytes());
    frame.extend([9; 28]);
    frame.extend([0xab, 0xcd]);
    frame
}

/// COMMAND_LONG, which is control and each of which counts.
pub const COMMAND: u32 = 76;
/// ATTITUDE, which is telemetry.
pub const ATTITUDE: u32 = 30;
