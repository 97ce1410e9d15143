//! Two hosts and the emulator between them, in network namespaces that vanish with this process.
#![allow(dead_code, unsafe_code, clippy::unwrap_used, clippy::panic)]

use std::fs::File;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::thread;

use nix::sched::{CloneFlags, setns, unshare};

/// A network namespace.
pub struct Namespace(File);

impl Namespace {
    /// A new one; `None` without the right to make it.
    pub fn create() -> Option<Self> {
        let own = || {
            unshare(CloneFlags::CLONE_NEWNET).ok()?;
            File::open("/proc/thread-self/ns/net").ok()
        };
        let namespace = Self(thread::spawn(own).join().unwrap()?);
        namespace.ip("link set lo up");
        Some(namespace)
    }

    /// Does something in it.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let inside = scope.spawn(|| {
                setns(&self.0, CloneFlags::CLONE_NEWNET).unwrap();
                work()
            });
            inside.join().unwrap()
        })
    }

    /// Starts a thread in it.
    pub fn spawn<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> thread::JoinHandle<T> {
        let file = self.0.try_clone().unwrap();
        thread::spawn(move || {
            setns(&file, CloneFlags::CLONE_NEWNET).unwrap();
            work()
        })
    }

    /// Runs `ip` with these words.
    pub fn ip(&self, words: &str) {
        let output =
            self.run(|| Command::new("ip").args(words.split_whitespace()).output()).unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "ip {words}: {told}");
    }

    fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }

    /// The index of an interface.
    pub fn index(&self, interface: &str) -> u32 {
        self.run(|| nix::net::if_::if_nametoindex(interface).unwrap())
    }

    fn offloads_off(&self, interface: &str) {
        // GRO, GSO, TSO, SG and transmit checksums of linux/ethtool.h.
        for request in [0x2c_u32, 0x24, 0x1f, 0x19, 0x17] {
            let failed = self.run(|| {
                let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
                let mut value = [request, 0];
                // SAFETY: all zeros are a valid `ifreq`.
                let mut ifreq: libc::ifreq = unsafe { std::mem::zeroed() };
                for (to, from) in ifreq.ifr_name.iter_mut().zip(interface.bytes()) {
                    *to = from as libc::c_char;
                }
                ifreq.ifr_ifru.ifru_data = value.as_mut_ptr().cast();
                // SAFETY: `ifreq` and the value that it points to outlive the call.
                unsafe { libc::ioctl(socket.as_raw_fd(), 0x8946, &raw mut ifreq) }
            });
            assert_eq!(failed, 0);
        }
    }
}

/// Hosts `vehicle` 10.N.0.1 and `ground` 10.N.0.2 for each path N, and the emulator between them.
pub struct Bed {
    pub vehicle: Namespace,
    pub ground: Namespace,
    pub emulator: Namespace,
}

impl Bed {
    /// Paths of these MTUs; `None`, with a word, without the rights.
    pub fn new(mtus: &[u32]) -> Option<Self> {
        let all = [Namespace::create(), Namespace::create(), Namespace::create()];
        let [Some(vehicle), Some(ground), Some(emulator)] = all else {
            eprintln!("skipped: this takes root or a user namespace of its own");
            return None;
        };
        for (path, mtu) in mtus.iter().enumerate() {
            let ends = [(&vehicle, format!("v{path}"), 1), (&ground, format!("g{path}"), 2)];
            for (host, end, number) in ends {
                let place = host.path();
                emulator.ip(&format!("link add {end} type veth peer name p{path} netns {place}"));
                emulator.ip(&format!("link set {end} mtu {mtu} addrgenmode none up"));
                host.ip(&format!("link set p{path} mtu {mtu} addrgenmode none up"));
                host.ip(&format!("addr add 10.{path}.0.{number}/24 dev p{path}"));
                host.offloads_off(&format!("p{path}"));
            }
        }
        Some(Self { vehicle, ground, emulator })
    }

    /// Gives path 0 the addresses fd73:6b79::1 and ::2.
    pub fn with_ipv6(&self) {
        for (host, number) in [(&self.vehicle, 1), (&self.ground, 2)] {
            host.ip(&format!("addr add fd73:6b79::{number}/64 dev p0 nodad"));
        }
    }

    /// The emulator's interfaces of a path.
    pub fn ends(&self, path: usize) -> [u32; 2] {
        ["v", "g"].map(|end| self.emulator.index(&format!("{end}{path}")))
    }
}

/// Two hosts with a bare veth between them, 10.0.0.1 and 10.0.0.2.
pub fn bare() -> Option<(Namespace, Namespace)> {
    let (vehicle, ground) = (Namespace::create()?, Namespace::create()?);
    let place = ground.path();
    vehicle.ip(&format!("link add p0 type veth peer name p0 netns {place}"));
    for (host, number) in [(&vehicle, 1), (&ground, 2)] {
        host.ip("link set p0 up");
        host.ip(&format!("addr add 10.0.0.{number}/24 dev p0"));
        host.offloads_off("p0");
    }
    Some((vehicle, ground))
}

/// Lets the calling thread come before all ordinary work of the machine, if that is permitted, so that
/// a measurement is not one of the machine's other work.
pub fn come_first() {
    let parameters = libc::sched_param { sched_priority: 5 };
    // SAFETY: the parameters outlive the call.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) };
}
