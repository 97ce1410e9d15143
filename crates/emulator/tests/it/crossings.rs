//! Crossing of the links: every protocol over IP, in packets of every size. Takes root.

use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use skybraid_emulator::emulation::{Emulated, Emulation, Options};
use skybraid_host::record::Record;
use skybraid_io::clock::Clock;
use skybraid_io::netlink::Namespace;
use skybraid_scenario::Scenario;
use skybraid_units::{Instant, Seed};
use socket2::{Domain, Protocol, Socket, Type};

const PATIENCE: Duration = Duration::from_secs(3);

/// A path of this MTU and delay.
fn path(name: &str, mtu: u32, delay: &str) -> String {
    let direction = |direction| {
        format!(
            "{direction}.rate = \"50Mbit/s\"\n{direction}.delay = \"{delay}\"\n\
             {direction}.queue = {{ time = \"1s\" }}\n"
        )
    };
    let (up, down) = (direction("uplink"), direction("downlink"));
    format!("[path.{name}]\nmtu = \"{mtu}B\"\n{up}{down}\n")
}

/// Vehicle and ground.
struct Nodes {
    vehicle: Namespace,
    ground: Namespace,
}

/// Lets `work` do something over the paths of a scenario, whose accounts then add up. `None`, with a word,
/// without the rights.
fn over(paths: &str, work: impl FnOnce(&Nodes) + Send) -> Option<Emulated> {
    if let Err(error) = Namespace::create("probe") {
        println!("skipped: {error}");
        return None;
    }
    let text = format!("name = \"Crossings\"\nduration = \"60s\"\n{paths}");
    let scenario = Scenario::parse(&text, Path::new("crossings.toml"), &[]).unwrap();
    let setup = scenario.setup(Seed(1), Record::default());
    let mut emulation = Emulation::build(setup, &scenario.testbed, Options::default()).unwrap();
    let [vehicle, ground] =
        ["vehicle", "ground"].map(|name| emulation.node(name).unwrap().try_clone());
    let nodes = Nodes { vehicle: vehicle.unwrap(), ground: ground.unwrap() };
    let [begun, done] = [false, false].map(AtomicBool::new);
    let carried = std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            // What leaves before the links carry is asked for again a second later.
            while !begun.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_millis(1));
            }
            work(&nodes);
            done.store(true, Ordering::Release);
        });
        let carried = emulation.carry(&mut |now| {
            begun.fetch_or(now >= Instant::ZERO, Ordering::AcqRel);
            !done.load(Ordering::Acquire) && !worker.is_finished()
        });
        begun.store(true, Ordering::Release);
        worker.join().unwrap();
        carried
    });
    let carried = carried.unwrap();
    for account in &carried.forwarded.accounts {
        assert!(account.adds_up(), "{account:?}");
        assert_eq!(account.lost_by_emulator(), 0, "{account:?}");
        assert_eq!(account.lost.iter().sum::<u64>(), 0, "{account:?}");
    }
    Some(carried)
}

/// The ends of path number `number`: vehicle, ground.
fn ends(number: u8, v6: bool) -> [IpAddr; 2] {
    [1, 2].map(|last: u8| {
        let text = match v6 {
            false => format!("10.{number}.0.{last}"),
            true => format!("fd73:6b79:0:{number}::{last}"),
        };
        text.parse().unwrap()
    })
}

fn udp(nodes: &Nodes, [vehicle, ground]: [IpAddr; 2]) -> [UdpSocket; 2] {
    let open = |node: &Namespace, address| {
        let socket = node.run(|| UdpSocket::bind((address, 0))).unwrap().unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    };
    let pair = [open(&nodes.vehicle, vehicle), open(&nodes.ground, ground)];
    pair[0].connect(pair[1].local_addr().unwrap()).unwrap();
    pair[1].connect(pair[0].local_addr().unwrap()).unwrap();
    pair
}

/// Sends a datagram each way and gives the time that both took together.
fn datagrams([vehicle, ground]: &[UdpSocket; 2], payload: usize) -> Duration {
    let sent: Vec<u8> = (0..payload).map(|place| place as u8).collect();
    let mut came = vec![0; payload + 1];
    let clock = Clock::starting_now();
    for (from, to) in [(vehicle, ground), (ground, vehicle)] {
        from.send(&sent).unwrap();
        let length = to.recv(&mut came).unwrap();
        assert!(came[..length] == sent, "{length} of {payload} bytes");
    }
    Duration::from_nanos(clock.now().as_nanos() as u64)
}

/// Sends bytes each way over a connection.
fn stream(nodes: &Nodes, [vehicle, ground]: [IpAddr; 2], protocol: Protocol, bytes: usize) {
    let open = |node: &Namespace| {
        let domain = Domain::for_address(SocketAddr::new(vehicle, 0));
        node.run(|| Socket::new(domain, Type::STREAM, Some(protocol))).unwrap().unwrap()
    };
    let listener = open(&nodes.ground);
    listener.bind(&SocketAddr::new(ground, 0).into()).unwrap();
    listener.listen(1).unwrap();
    let client = open(&nodes.vehicle);
    client.bind(&SocketAddr::new(vehicle, 0).into()).unwrap();
    client.connect_timeout(&listener.local_addr().unwrap(), PATIENCE).unwrap();
    let ends = [client, listener.accept().unwrap().0].map(TcpStream::from);
    let data: Vec<u8> = (0..bytes).map(|place| (place / 7) as u8).collect();
    for (from, to) in [(0, 1), (1, 0)] {
        let (mut from, mut to) = (&ends[from], &ends[to]);
        to.set_read_timeout(Some(PATIENCE)).unwrap();
        let came = std::thread::scope(|scope| {
            scope.spawn(|| {
                from.write_all(&data).unwrap();
                from.shutdown(Shutdown::Write).unwrap();
            });
            let mut came = Vec::new();
            to.read_to_end(&mut came).unwrap();
            came
        });
        assert!(came == data, "{protocol:?}: {} of {bytes} bytes", came.len());
    }
}

/// Asks the ground for an ICMP echo with so many bytes of payload.
fn echo(nodes: &Nodes, [vehicle, ground]: [IpAddr; 2], payload: usize) {
    let (domain, protocol, request, reply) = match vehicle {
        IpAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4, 8, 0),
        IpAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6, 128, 129),
    };
    let open = || Socket::new(domain, Type::RAW, Some(protocol));
    let mut socket = nodes.vehicle.run(open).unwrap().unwrap();
    socket.bind(&SocketAddr::new(vehicle, 0).into()).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut message = vec![request, 0, 0, 0, 0x5b, 0x1d, 0, 1];
    message.extend((0..payload).map(|place| place as u8));
    if vehicle.is_ipv4() {
        // The checksum of RFC 1071; the kernel adds that of ICMPv6 itself.
        let words = message
            .chunks(2)
            .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0)));
        let sum: u32 = words.sum();
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
        message[2..4].copy_from_slice(&sum.to_be_bytes());
    }
    socket.send_to(&message, &SocketAddr::new(ground, 0).into()).unwrap();
    let mut came = vec![0; payload + 100];
    loop {
        let length = socket.read(&mut came).unwrap();
        let came = &came[..length];
        let icmp = if vehicle.is_ipv4() { &came[20..] } else { came };
        if icmp[0] == reply {
            assert!(icmp[4..] == message[4..]);
            return;
        }
    }
}

#[test]
fn every_protocol_crosses_in_packets_of_every_size() {
    let paths = path("plain", 1500, "5ms") + &path("jumbo", 9000, "5ms");
    let carried = over(&paths, |nodes| {
        for (number, mtu) in [(0, 1500), (1, 9000)] {
            for v6 in [false, true] {
                let ends = ends(number, v6);
                let headers = if v6 { 48 } else { 28 };
                let sockets = udp(nodes, ends);
                for packet in [64, 576, 1280, mtu] {
                    datagrams(&sockets, packet - headers);
                    echo(nodes, ends, packet - headers);
                }
                stream(nodes, ends, Protocol::TCP, 300_000);
                stream(nodes, ends, Protocol::MPTCP, 300_000);
            }
        }
    });
    let Some(carried) = carried else { return };
    assert!(carried.forwarded.accounts.iter().all(|account| account.delivered > 100));
}

// Source: RFC 791 §3.2: a datagram larger than the MTU travels in fragments whose data begin at multiples
// of 8 bytes.
#[test]
fn a_datagram_larger_than_the_mtu_arrives_in_fragments() {
    let mut fragments = Vec::new();
    for v6 in [false, true] {
        let carried = over(&path("plain", 1500, "5ms"), |nodes| {
            datagrams(&udp(nodes, ends(0, v6)), 4000);
        });
        let Some(carried) = carried else { return };
        fragments.push(carried.forwarded.accounts[0].delivered);
    }
    // 4008 bytes in pieces of 1480, and of 1448 behind the longer header.
    assert_eq!(fragments, [3, 3]);
}

// Source: RFC 791 §3.1: every host takes datagrams of 576 bytes; RFC 8200 §5: IPv6 needs 1280.
#[test]
fn over_a_path_of_576_bytes_everything_crosses_in_small_packets() {
    let carried = over(&path("narrow", 576, "5ms"), |nodes| {
        let ends = ends(0, false);
        datagrams(&udp(nodes, ends), 4000);
        echo(nodes, ends, 2000);
        stream(nodes, ends, Protocol::TCP, 300_000);
        stream(nodes, ends, Protocol::MPTCP, 300_000);
    });
    let Some(carried) = carried else { return };
    let accounts = &carried.forwarded.accounts;
    // TCP's share alone is at least 2 · 300 000 / 536 packets each way.
    assert!(accounts.iter().all(|account| account.delivered > 1119), "{accounts:?}");
}

#[test]
fn neighbour_discovery_does_not_delay_the_first_packet() {
    let delay = Duration::from_millis(150);
    let carried = over(&path("far", 1500, "150ms"), |nodes| {
        for v6 in [false, true] {
            let took = datagrams(&udp(nodes, ends(0, v6)), 100);
            assert!((2 * delay..3 * delay).contains(&took), "{took:?}");
        }
    });
    let Some(carried) = carried else { return };
    assert!(carried.forwarded.accounts.iter().all(|account| account.unshaped >= 2));
}

#[test]
fn a_link_that_is_down_carries_neighbour_discovery_alone() {
    if let Err(error) = Namespace::create("probe") {
        println!("skipped: {error}");
        return;
    }
    let text = format!(
        "name = \"Down\"\nduration = \"60s\"\n{}[[event]]\nat = \"0s\"\npath.gone.down = \"60s\"\n",
        path("gone", 1500, "5ms")
    );
    let scenario = Scenario::parse(&text, Path::new("down.toml"), &[]).unwrap();
    let setup = scenario.setup(Seed(1), Record::default());
    let mut emulation = Emulation::build(setup, &scenario.testbed, Options::default()).unwrap();
    let [vehicle, ground] =
        ["vehicle", "ground"].map(|name| emulation.node(name).unwrap().try_clone());
    let nodes = Nodes { vehicle: vehicle.unwrap(), ground: ground.unwrap() };
    let [from, to] = udp(&nodes, ends(0, false));
    let known = || {
        let table = || std::fs::read_to_string("/proc/thread-self/net/arp");
        let table = nodes.vehicle.run(table).unwrap().unwrap();
        table.lines().any(|line| line.starts_with("10.0.0.2 ") && line.contains(" 0x2 "))
    };
    assert!(!known());
    let mut sent = false;
    let carried = emulation.carry(&mut |now| {
        if !sent {
            sent = true;
            from.send(&[0; 100]).unwrap();
        }
        now < skybraid_units::Instant::from_millis(200)
    });
    assert!(known());
    to.set_nonblocking(true).unwrap();
    assert!(to.recv(&mut [0; 200]).is_err());
    let account = carried.unwrap().forwarded.accounts[0];
    assert!(account.adds_up() && account.unshaped >= 1, "{account:?}");
    assert_eq!((account.delivered, account.lost.iter().sum::<u64>()), (0, 1), "{account:?}");
}
