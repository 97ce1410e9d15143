//! Two hosts and the emulator between them, with nothing in the way: what the testbed is made of, without
//! its routes and rules.
#![allow(dead_code, unsafe_code, clippy::unwrap_used, clippy::panic)]

use std::net::IpAddr;
use std::thread;
use std::time::Duration;

use skybraid_emulator::testbed::{set_sysctl, switch_offloads_off};
use skybraid_io::netlink::{self, Netlink, Network, VethEnd};

/// A network namespace.
pub struct Namespace(netlink::Namespace);

impl Namespace {
    /// A new one; `None` without the right to make it.
    pub fn create() -> Option<Self> {
        let namespace = netlink::Namespace::create("bed").ok()?;
        // Interfaces have no addresses but those that they are given.
        set_sysctl(&namespace, "ipv6/conf/default/addr_gen_mode", "1").ok();
        Some(Self(namespace))
    }

    /// Does something in it.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.0.run(work).unwrap()
    }

    /// Starts a thread in it.
    pub fn spawn<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> thread::JoinHandle<T> {
        let inside = self.0.try_clone().unwrap();
        thread::spawn(move || inside.run(work).unwrap())
    }

    /// The index of an interface.
    pub fn index(&self, interface: &str) -> u32 {
        self.netlink().link(interface).unwrap().index
    }

    /// Switches an interface on or off.
    pub fn switch(&self, interface: &str, on: bool) {
        let (mut netlink, index) = (self.netlink(), self.index(interface));
        if on { netlink.set_up(index) } else { netlink.set_down(index) }.unwrap();
        // The kernel tells the other end of the wire a little later.
        thread::sleep(Duration::from_millis(20));
    }

    /// Removes an interface, and with it the other end of its wire.
    pub fn delete(&self, interface: &str) {
        self.netlink().delete_link(self.index(interface)).unwrap();
    }

    fn netlink(&self) -> Netlink {
        self.0.netlink().unwrap()
    }

    fn end<'a>(&'a self, name: &'a str) -> VethEnd<'a> {
        VethEnd { namespace: &self.0, name }
    }

    /// Gives an interface an address.
    fn address(&self, interface: &str, address: impl Into<IpAddr>, prefix: u8) {
        let network = Network { address: address.into(), prefix };
        self.netlink().add_address(self.index(interface), network).unwrap();
    }

    /// Readies the end of a wire: real packets, an address, on.
    fn ready(&self, interface: &str, address: [u8; 4]) {
        switch_offloads_off(&self.0, interface).unwrap();
        self.address(interface, address, 24);
        self.switch(interface, true);
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
        for (path, mtu) in (0..).zip(mtus) {
            for (host, side, number) in [(&vehicle, "v", 1), (&ground, "g", 2)] {
                let (inner, outer) = (format!("{side}{path}"), format!("p{path}"));
                let ends = [emulator.end(&inner), host.end(&outer)];
                emulator.netlink().add_veth(ends, *mtu).unwrap();
                emulator.switch(&inner, true);
                host.ready(&outer, [10, path, 0, number]);
            }
        }
        Some(Self { vehicle, ground, emulator })
    }

    /// Gives path 0 the addresses fd73:6b79::1 and ::2.
    pub fn with_ipv6(&self) {
        for (host, last) in [(&self.vehicle, 1), (&self.ground, 2)] {
            host.address("p0", [0xfd73, 0x6b79, 0, 0, 0, 0, 0, last], 64);
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
    vehicle.netlink().add_veth([vehicle.end("p0"), ground.end("p0")], 1500).unwrap();
    vehicle.ready("p0", [10, 0, 0, 1]);
    ground.ready("p0", [10, 0, 0, 2]);
    Some((vehicle, ground))
}

/// Lets the calling thread come before all ordinary work of the machine, if that is permitted, so that
/// a measurement is not one of the machine's other work.
pub fn come_first() {
    let parameters = libc::sched_param { sched_priority: 5 };
    // SAFETY: the parameters outlive the call.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) };
}
