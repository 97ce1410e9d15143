//! Two gateways in network namespaces: interfaces that go and come back, addresses that change, TUN, TCP
//! over several interfaces.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread::sleep;
use std::time::Duration;

use crate::daemons::{COMMAND, Daemon, frame, prepare, within};
use skybraid_gateway::event::{PathState, What};
use skybraid_io::netlink::{Namespace, Network, VethEnd};

const NAMES: [&str; 2] = ["lte", "sat"];
const AUTOPILOT: u16 = 14_550;
const STATION: u16 = 14_551;

/// An aircraft and a ground station with a wire between them for each path: 10.N.0.1 and 10.N.0.2.
struct Field {
    air: Namespace,
    ground: Namespace,
}

impl Field {
    /// Without wires; `None`, with a word, without the rights.
    fn new() -> Option<Self> {
        let spaces = (Namespace::create("air"), Namespace::create("ground"));
        let (Ok(air), Ok(ground)) = spaces else {
            println!("skipped: this takes root or a user namespace of its own");
            return None;
        };
        Some(Self { air, ground })
    }

    fn wire(&self, path: u8) {
        let name = NAMES[usize::from(path)];
        let end = |namespace| VethEnd { namespace, name };
        let mut netlink = self.air.netlink().unwrap();
        netlink.add_veth([end(&self.air), end(&self.ground)], 1500).unwrap();
        for (namespace, last) in [(&self.air, 1), (&self.ground, 2)] {
            self.address(namespace, path, last, true);
            let mut netlink = namespace.netlink().unwrap();
            let index = netlink.link(name).unwrap().index;
            netlink.set_up(index).unwrap();
        }
    }

    fn address(&self, namespace: &Namespace, path: u8, last: u8, add: bool) {
        let mut netlink = namespace.netlink().unwrap();
        let index = netlink.link(NAMES[usize::from(path)]).unwrap().index;
        let network = Network { address: IpAddr::from([10, path, 0, last]), prefix: 24 };
        if add {
            netlink.add_address(index, network).unwrap();
        } else {
            netlink.delete_address(index, network).unwrap();
        }
    }

    fn cut(&self, path: u8) {
        let mut netlink = self.air.netlink().unwrap();
        let index = netlink.link(NAMES[usize::from(path)]).unwrap().index;
        netlink.delete_link(index).unwrap();
    }

    /// Gateways at both ends, with `more` in both files.
    fn daemons(&self, network: &str, air: &str, ground: &str) -> [Daemon; 2] {
        let (mut air_file, mut ground_file) = (network.to_owned(), network.to_owned());
        for (number, name) in NAMES.iter().enumerate() {
            air_file += &format!(
                "[path.{name}]\ninterface = \"{name}\"\nremote = \"10.{number}.0.2:9417\"\n"
            );
            ground_file += &format!("[path.{name}]\nlisten = \"10.{number}.0.2:9417\"\n");
        }
        let mavlink = |port| format!("[[mavlink]]\nudp_listen = \"127.0.0.1:{port}\"\n");
        air_file += &(mavlink(AUTOPILOT) + air);
        ground_file += &(mavlink(STATION) + ground);
        let ground = Daemon::start("ground", &ground_file, Some(&self.ground));
        let aircraft = Daemon::start("aircraft", &air_file, Some(&self.air));
        [aircraft, ground]
    }
}

fn udp(namespace: &Namespace, near: &str, far: (&str, u16)) -> UdpSocket {
    let socket = namespace.run(|| UdpSocket::bind(near)).unwrap().unwrap();
    socket.connect(SocketAddr::new(far.0.parse().unwrap(), far.1)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
    socket
}

/// A pilot's program and an autopilot, known to their gateways.
fn programs(field: &Field) -> [UdpSocket; 2] {
    let pilot = udp(&field.ground, "127.0.0.1:0", ("127.0.0.1", STATION));
    let vehicle = udp(&field.air, "127.0.0.1:0", ("127.0.0.1", AUTOPILOT));
    pilot.send(&frame(255, COMMAND, 0, 0)).unwrap();
    vehicle.send(&frame(1, COMMAND, 0, 0)).unwrap();
    sleep(Duration::from_millis(200));
    for program in [&pilot, &vehicle] {
        program.set_nonblocking(true).unwrap();
        while program.recv(&mut [0; 300]).is_ok() {}
        program.set_nonblocking(false).unwrap();
    }
    [pilot, vehicle]
}

fn talk([pilot, vehicle]: &[UdpSocket; 2], numbers: std::ops::Range<u32>) {
    let mut bytes = [0; 300];
    for number in numbers {
        let (up, down) = (frame(255, COMMAND, 0, number), frame(1, COMMAND, 0, number));
        pilot.send(&up).unwrap();
        vehicle.send(&down).unwrap();
        let length = vehicle.recv(&mut bytes).unwrap();
        assert_eq!(bytes[..length], up, "up {number}");
        let length = pilot.recv(&mut bytes).unwrap();
        assert_eq!(bytes[..length], down, "down {number}");
        sleep(Duration::from_millis(5));
    }
}

#[test]
fn an_interface_may_vanish_and_return_with_another_index() {
    prepare();
    let Some(field) = Field::new() else { return };
    field.wire(0);
    let [aircraft, ground] = field.daemons("", "", "");
    aircraft.wait_for_paths(1);
    ground.wait_for_paths(1);
    let programs = programs(&field);
    talk(&programs, 1..50);
    field.wire(1);
    aircraft.wait_for_paths(2);
    talk(&programs, 50..100);
    field.cut(0);
    talk(&programs, 100..150);
    aircraft.wait(|shown| shown.paths[0].incoming == PathState::Down);
    assert!(!aircraft.shared.edges().paths[0].open);
    field.wire(0);
    aircraft.wait_for_paths(2);
    ground.wait_for_paths(2);
    field.cut(1);
    talk(&programs, 150..200);
}

#[test]
fn an_address_that_changes_costs_no_message() {
    prepare();
    let Some(field) = Field::new() else { return };
    field.wire(0);
    field.wire(1);
    let [aircraft, ground] = field.daemons("", "", "");
    aircraft.wait_for_paths(2);
    ground.wait_for_paths(2);
    let programs = programs(&field);
    talk(&programs, 1..20);
    field.address(&field.air, 0, 1, false);
    talk(&programs, 20..40);
    field.address(&field.air, 0, 7, true);
    talk(&programs, 40..60);
    ground.wait(|shown| {
        shown.paths[0].remote.as_deref().is_some_and(|remote| remote.starts_with("10.0.0.7:"))
    });
    ground.wait_for_paths(2);
    let moved = ground.events.try_iter().filter(|event| {
        matches!(&event.what, What::Address { address, .. } if address.starts_with("10.0.0.7:"))
    });
    assert_eq!(moved.count(), 1);
}

#[test]
fn ip_packets_cross_by_the_tun_interface() {
    prepare();
    let Some(field) = Field::new() else { return };
    field.wire(0);
    field.wire(1);
    let tun = |last| format!("[tun]\naddress = \"10.77.0.{last}/24\"\n");
    if !std::path::Path::new("/dev/net/tun").exists() {
        println!("skipped: there is no /dev/net/tun");
        return;
    }
    let [aircraft, ground] = field.daemons("", &tun(1), &tun(2));
    aircraft.wait_for_paths(2);
    ground.wait_for_paths(2);
    let far = udp(&field.ground, "10.77.0.2:5000", ("10.77.0.1", 5000));
    let near = udp(&field.air, "10.77.0.1:5000", ("10.77.0.2", 5000));
    let mut bytes = [0; 2000];
    for length in [1, 100, 1252] {
        near.send(&vec![3; length]).unwrap();
        assert_eq!(far.recv(&mut bytes).unwrap(), length);
        far.send(&vec![4; length]).unwrap();
        assert_eq!(near.recv(&mut bytes).unwrap(), length);
    }
    let mut netlink = field.air.netlink().unwrap();
    assert_eq!(netlink.link("skybraid0").unwrap().mtu, 1280);
    aircraft.end().unwrap();
    assert!(netlink.link("skybraid0").is_err());
}

#[test]
fn a_tun_interface_that_was_removed_is_made_again() {
    prepare();
    let Some(field) = Field::new() else { return };
    field.wire(0);
    let tun = |last| format!("[tun]\naddress = \"10.77.0.{last}/24\"\n");
    if !std::path::Path::new("/dev/net/tun").exists() {
        println!("skipped: there is no /dev/net/tun");
        return;
    }
    let [aircraft, ground] = field.daemons("", &tun(1), &tun(2));
    aircraft.wait_for_paths(1);
    ground.wait_for_paths(1);
    let mut netlink = field.air.netlink().unwrap();
    let removed = netlink.link("skybraid0").unwrap().index;
    netlink.delete_link(removed).unwrap();
    let tun_exists = || {
        let edges = aircraft.shared.edges();
        edges.local.iter().any(|edge| edge.name == "tun skybraid0" && edge.clients == 1)
    };
    for exists in [false, true] {
        assert!(within(Duration::from_secs(5), || tun_exists() == exists));
    }
    let alarms = aircraft.events.try_iter().filter(|event| {
        matches!(&event.what, What::Alarm { text } if text.starts_with("tun skybraid0 is gone: "))
    });
    assert_eq!(alarms.count(), 1);
    let far = udp(&field.ground, "10.77.0.2:5000", ("10.77.0.1", 5000));
    let near = udp(&field.air, "10.77.0.1:5000", ("10.77.0.2", 5000));
    let mut bytes = [0; 2000];
    for length in [1, 1252] {
        near.send(&vec![3; length]).unwrap();
        assert_eq!(far.recv(&mut bytes).unwrap(), length);
        far.send(&vec![4; length]).unwrap();
        assert_eq!(near.recv(&mut bytes).unwrap(), length);
    }
}

#[test]
fn a_program_is_reached_after_the_gateways_address_changed() {
    prepare();
    let Some(field) = Field::new() else { return };
    field.wire(0);
    field.wire(1);
    let pilot = "[[mavlink]]\nudp_connect = \"10.1.0.1:15000\"\n";
    let [aircraft, ground] = field.daemons("", "", pilot);
    aircraft.wait_for_paths(2);
    ground.wait_for_paths(2);
    let pilot = field.air.run(|| UdpSocket::bind("10.1.0.1:15000")).unwrap().unwrap();
    pilot.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let vehicle = udp(&field.air, "127.0.0.1:0", ("127.0.0.1", AUTOPILOT));
    let is_reached_from = |last: u8| {
        let from = IpAddr::from([10, 1, 0, last]);
        (0..100).any(|number| {
            vehicle.send(&frame(1, COMMAND, 0, number)).unwrap();
            pilot.recv_from(&mut [0; 300]).is_ok_and(|(_, found)| found.ip() == from)
        })
    };
    assert!(is_reached_from(2));
    field.address(&field.ground, 1, 2, false);
    field.address(&field.ground, 1, 9, true);
    assert!(is_reached_from(9));
}

#[test]
fn a_tcp_listener_survives_the_return_of_its_interface() {
    prepare();
    let Some(field) = Field::new() else { return };
    field.wire(0);
    let mavlink = "[[mavlink]]\nudp_listen = \"127.0.0.1:14550\"\n";
    let ground = "[path.lte]\ninterface = \"lte\"\nlisten = \"0.0.0.0:9417\"\n";
    let aircraft = "[path.lte]\ninterface = \"lte\"\nremote = \"10.0.0.2:9417\"\n";
    let file = |path: &str| format!("network = \"tcp\"\n{path}{mavlink}");
    let ground = Daemon::start("ground", &file(ground), Some(&field.ground));
    let aircraft = Daemon::start("aircraft", &file(aircraft), Some(&field.air));
    aircraft.wait_for_paths(1);
    field.cut(0);
    aircraft.wait(|shown| !shown.session);
    ground.wait(|shown| !shown.session);
    field.wire(0);
    aircraft.wait_for_paths(1);
    ground.wait_for_paths(1);
}

/// Kernel counters of the TUN interface of a namespace: bytes and packets in, bytes and packets out.
fn counted(namespace: &Namespace) -> [u64; 4] {
    let text = namespace.run(|| std::fs::read_to_string("/proc/thread-self/net/dev"));
    let text = text.unwrap().unwrap();
    let line = text.lines().find_map(|line| line.trim().strip_prefix("skybraid0:")).unwrap();
    let fields: Vec<u64> = line.split_whitespace().map(|field| field.parse().unwrap()).collect();
    [fields[0], fields[1], fields[8], fields[9]]
}

/// Segments with a wrong checksum that TCP has seen in a namespace.
fn wrong_checksums(namespace: &Namespace) -> u64 {
    let text = namespace.run(|| std::fs::read_to_string("/proc/thread-self/net/snmp"));
    let text = text.unwrap().unwrap();
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let mut pairs = names.split(' ').zip(values.split(' '));
    pairs.find(|(name, _)| *name == "InCsumErrors").unwrap().1.parse().unwrap()
}

#[test]
fn tcp_crosses_the_tun_interface_in_large_packets_unchanged() {
    prepare();
    if !std::path::Path::new("/dev/net/tun").exists() {
        println!("skipped: there is no /dev/net/tun");
        return;
    }
    for (near, far) in [("10.77.0.1", "10.77.0.2"), ("fd77::1", "fd77::2")] {
        let Some(field) = Field::new() else { return };
        field.wire(0);
        let prefix = if near.contains(':') { 64 } else { 24 };
        let tun = |address| format!("[tun]\naddress = \"{address}/{prefix}\"\n");
        let [aircraft, ground] = field.daemons("", &tun(near), &tun(far));
        aircraft.wait_for_paths(1);
        ground.wait_for_paths(1);
        // An IPv6 address is not used before nobody else was found to have it.
        sleep(Duration::from_secs(if near.contains(':') { 2 } else { 0 }));
        let to: SocketAddr = (far.parse::<IpAddr>().unwrap(), 5001).into();
        let listener = field.ground.run(|| TcpListener::bind(to)).unwrap().unwrap();
        let mut there = field.air.run(|| TcpStream::connect(to)).unwrap().unwrap();
        let (mut here, _) = listener.accept().unwrap();
        let bytes: Vec<u8> =
            (0..4_000_000_u32).map(|at| (at.wrapping_mul(at) >> 7) as u8).collect();
        for stream in [&there, &here] {
            stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        }
        std::thread::scope(|scope| {
            scope.spawn(|| there.write_all(&bytes).unwrap());
            let mut seen = vec![0; bytes.len()];
            here.read_exact(&mut seen).unwrap();
            assert!(seen == bytes, "{far}");
        });
        let [_, _, sent, packets] = counted(&field.air);
        assert!(sent / packets > 2_000, "{sent} bytes in {packets} packets");
        let [taken, packets, ..] = counted(&field.ground);
        assert!(taken / packets > 2_000, "{taken} bytes in {packets} packets");
        assert_eq!([&field.air, &field.ground].map(wrong_checksums), [0, 0]);
        aircraft.end().unwrap();
    }
}

#[test]
fn over_tcp_data_survive_the_loss_of_the_first_interface() {
    prepare();
    let Some(field) = Field::new() else { return };
    field.wire(0);
    field.wire(1);
    let air = "[udp.video]\nlisten = \"127.0.0.1:5600\"\n";
    let ground = "[udp.video]\nsend_to = \"127.0.0.1:5600\"\n";
    let [aircraft, station] = field.daemons("network = \"tcp\"\n", air, ground);
    aircraft.wait_for_paths(2);
    station.wait_for_paths(2);
    let programs = programs(&field);
    let screen = field.ground.run(|| UdpSocket::bind("127.0.0.1:5600")).unwrap().unwrap();
    screen.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
    let camera = udp(&field.air, "127.0.0.1:0", ("127.0.0.1", 5600));
    let mut bytes = [0; 2000];
    let mut film = |pictures: std::ops::Range<u8>| {
        for number in pictures {
            camera.send(&[number; 1100]).unwrap();
            assert_eq!(screen.recv(&mut bytes).unwrap(), 1100);
            assert_eq!(bytes[0], number);
        }
    };
    // The second subflow is made a moment after the first.
    sleep(Duration::from_millis(500));
    film(0..100);
    talk(&programs, 1..20);
    field.cut(0);
    talk(&programs, 20..40);
    film(100..200);
    talk(&programs, 40..60);
    field.wire(0);
    aircraft.wait_for_paths(2);
    // The interface that came back carries data again, too.
    sleep(Duration::from_millis(1_000));
    film(200..220);
    field.cut(1);
    talk(&programs, 60..80);
    film(220..255);
}
