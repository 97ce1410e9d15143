//! The transparent proxy, on a satellite's path in real time, with the kernel's own sockets at both
//! ends.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::thread::JoinHandle;

use skybraid_emulator::forward::{Forwarder, Lane, Options};
use skybraid_emulator::proxy::{Proxy, Statistics, multipath_warning};
use skybraid_emulator::testbed::{Plan, Testbed};
use skybraid_io::clock::Clock;
use skybraid_io::netlink::{Endpoint, EndpointFlags, Limits, Namespace, PathManager};
use skybraid_link::{Link, LinkConfig, LossSource, RateSource};
use skybraid_units::{Duration, Probability, Rate, Seed};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

const ACCESS_DELAY: Duration = Duration::from_millis(5);
/// Whoever waits longer gives up, so that a test fails instead of hanging.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);

/// Hosts `vehicle` and `ground` with a satellite between them, and the proxies at its ends.
struct Course {
    testbed: Testbed,
    /// Proxies, the vehicle's first.
    proxies: Vec<Proxy>,
    _forwarder: Forwarder,
}

fn plain(delay: Duration) -> LinkConfig {
    LinkConfig::plain(RateSource::Constant(Rate::from_bps(500_000_000)), delay)
}

/// Path `sat` with the congestion controls of its proxies; the stretches next to it have no loss and
/// 5 ms. `None`, with a word, without the rights.
fn course(sides: [Option<&str>; 2], up: &LinkConfig, down: &LinkConfig) -> Option<Course> {
    if let Err(error) = Namespace::create("probe") {
        println!("skipped: {error}");
        return None;
    }
    let plan = Plan::direct(&[("lte", 1500), ("sat", 1500)]);
    let testbed = plan.with_proxies("sat", sides[0].is_some(), sides[1].is_some()).build().unwrap();
    let mut watchers = Vec::new();
    let mut proxies = Vec::new();
    for (side, congestion) in sides.iter().enumerate() {
        let Some(congestion) = congestion else { continue };
        let node = testbed.node(["sat-vp", "sat-gp"][side]).unwrap();
        let proxy = Proxy::start(&node.namespace, congestion).unwrap();
        let [before, behind] = [["sat.a", "sat"], ["sat", "sat.b"]][side];
        watchers.extend(proxy.watchers(before, behind));
        proxies.push(proxy);
    }
    let lanes = testbed.segments.iter().map(|segment| {
        let access = plain(ACCESS_DELAY);
        let [up, down] = if segment.name == "sat" { [up, down] } else { [&access, &access] };
        let link = |config, way| vec![Link::new(config, &segment.name, way, Seed(1))];
        Lane {
            name: segment.name.clone(),
            ends: [segment.ends[0].index, segment.ends[1].index],
            up: link(up, "uplink"),
            down: link(down, "downlink"),
        }
    });
    let lanes = lanes.collect();
    let options = Options { watchers, ..Options::new(Clock::starting_now()) };
    let forwarder = testbed.emulator.run(|| Forwarder::start(lanes, options)).unwrap().unwrap();
    Some(Course { testbed, proxies, _forwarder: forwarder })
}

impl Course {
    fn quick(sides: [Option<&str>; 2]) -> Option<Self> {
        let link = plain(Duration::from_millis(10));
        course(sides, &link, &link)
    }

    fn addresses(&self, ipv6: bool) -> [IpAddr; 2] {
        let path = &self.testbed.paths[1];
        [path.vehicle, path.ground].map(|end| if ipv6 { end.v6.into() } else { end.v4.into() })
    }

    /// Lets the ground listen and does `work` with each connection.
    fn serve<T: Send + 'static>(
        &self,
        ipv6: bool,
        work: impl FnOnce(TcpStream) -> T + Send + 'static,
    ) -> (SocketAddr, JoinHandle<T>) {
        let listen = || TcpListener::bind((self.addresses(ipv6)[1], 0));
        let listener = self.testbed.ground().namespace.run(listen).unwrap().unwrap();
        let address = listener.local_addr().unwrap();
        // What is accepted inherits it.
        SockRef::from(&listener).set_read_timeout(Some(PATIENCE)).unwrap();
        (address, std::thread::spawn(move || work(listener.accept().unwrap().0)))
    }

    /// Connects from the vehicle over the satellite; says how long it took.
    fn connect(&self, to: SocketAddr) -> (TcpStream, Duration) {
        self.connect_from(SocketAddr::new(self.addresses(to.is_ipv6())[0], 0), to)
    }

    fn connect_from(&self, from: SocketAddr, to: SocketAddr) -> (TcpStream, Duration) {
        let connect = || {
            let socket = Socket::new(Domain::for_address(to), Type::STREAM, None).unwrap();
            socket.set_reuse_address(true).unwrap();
            socket.bind(&from.into()).unwrap();
            let clock = Clock::starting_now();
            let start = clock.now();
            socket.connect(&to.into()).unwrap();
            (TcpStream::from(socket), clock.now() - start)
        };
        let (stream, took) = self.testbed.vehicle().namespace.run(connect).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        (stream, took)
    }

    /// Waits until the first proxy's statistics are as wanted.
    fn settled(&self, wanted: impl Fn(&Statistics) -> bool) -> Statistics {
        for _ in 0..3_000 {
            if wanted(&self.proxies[0].statistics()) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let statistics = self.proxies[0].statistics();
        assert!(wanted(&statistics), "{statistics:?}");
        statistics
    }
}

/// Bytes without any order.
fn noise(length: usize, mut state: u64) -> Vec<u8> {
    let byte = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..length).map(byte).collect()
}

/// Sends `bytes`, then the FIN, while it reads to the end what the other side sends.
fn exchange(stream: &TcpStream, bytes: &[u8]) -> Vec<u8> {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut to = stream;
            to.write_all(bytes).unwrap();
            to.shutdown(Shutdown::Write).unwrap();
        });
        let mut read = Vec::new();
        let mut from = stream;
        from.read_to_end(&mut read).unwrap();
        read
    })
}

const BOTH: [Option<&str>; 2] = [Some("cubic"), Some("cubic")];

#[test]
fn the_split_answers_within_a_round_trip_of_the_access_link() {
    let satellite = plain(Duration::from_millis(200));
    let Some(mut course) = course(BOTH, &satellite, &satellite) else { return };
    let (server, served) = course.serve(false, |stream| stream.peer_addr().unwrap());
    let (stream, took) = course.connect(server);
    // Less than one way over the satellite.
    assert!(took >= ACCESS_DELAY * 2 && took < Duration::from_millis(200), "{took}");
    assert_eq!(served.join().unwrap(), stream.local_addr().unwrap());
    // Without proxies the nodes are routers, and the handshake takes a round trip of the whole path.
    for proxy in course.proxies.drain(..) {
        let done = proxy.stop().unwrap();
        assert_eq!((done.opened, done.failed, done.unheard), (1, 0, 0));
    }
    let (server, _served) = course.serve(false, drop);
    let (_stream, took) = course.connect(server);
    assert!(took >= Duration::from_millis(2 * (5 + 200 + 5)), "{took}");
}

#[test]
fn any_proxies_deliver_all_bytes_with_the_clients_address() {
    let one = Some("cubic");
    for sides in [[one, one], [one, None], [None, one]] {
        let Some(course) = Course::quick(sides) else { return };
        for ipv6 in [false, true] {
            let [up, down] = [noise(700_000, 7), noise(900_000, 9)];
            let reply = down.clone();
            let (server, served) = course.serve(ipv6, move |mut stream| {
                // The client's half is closed long before the server's.
                let mut read = Vec::new();
                stream.read_to_end(&mut read).unwrap();
                stream.write_all(&reply).unwrap();
                (read, stream.peer_addr().unwrap())
            });
            let (stream, _) = course.connect(server);
            assert_eq!(stream.peer_addr().unwrap(), server);
            assert!(exchange(&stream, &up) == down);
            let (read, client) = served.join().unwrap();
            assert!(read == up);
            assert_eq!(client, stream.local_addr().unwrap());
        }
        let done = course.settled(|counts| counts.finished == 2);
        assert_eq!((done.to_server, done.to_client), (1_400_000, 1_800_000));
        assert_eq!((done.opened, done.open, done.reset, done.failed), (2, 0, 0, 0));
        // Datagrams pass as before.
        let [near, far] = course.addresses(false);
        let bind = |node: &str, ip: IpAddr| {
            let namespace = &course.testbed.node(node).unwrap().namespace;
            namespace.run(|| UdpSocket::bind((ip, 0))).unwrap().unwrap()
        };
        let [near, far] = [bind("vehicle", near), bind("ground", far)];
        near.send_to(b"ping", far.local_addr().unwrap()).unwrap();
        let from = far.recv_from(&mut [0; 10]).unwrap().1;
        assert_eq!(from, near.local_addr().unwrap());
    }
}

#[test]
fn both_halves_have_their_own_congestion_control_and_rtt() {
    let satellite = plain(Duration::from_millis(50));
    let Some(course) = course([Some("reno"), Some("bbr")], &satellite, &satellite) else { return };
    let (server, served) = course.serve(false, |mut stream| {
        stream.write_all(&noise(20_000, 3)).unwrap();
        let mut read = Vec::new();
        stream.read_to_end(&mut read).unwrap();
    });
    let (mut stream, _) = course.connect(server);
    stream.write_all(&noise(20_000, 5)).unwrap();
    stream.read_exact(&mut [0; 20_000]).unwrap();
    let seen: Vec<_> = course.proxies.iter().flat_map(Proxy::connections).collect();
    let [first, second] = seen.as_slice() else { panic!("{seen:?}") };
    for (split, congestion) in [(first, "reno"), (second, "bbr")] {
        assert_eq!((split.client, split.server), (stream.local_addr().unwrap(), server));
        assert!(split.established);
        assert_eq!([&*split.near.congestion, &*split.far.congestion], [congestion; 2]);
    }
    // Delayed acknowledgements add 40 ms to some samples.
    let satellite = Duration::from_millis(100);
    assert!(first.far.rtt >= satellite, "{first:?}");
    for access in [first.near.rtt, second.far.rtt] {
        assert!(access >= ACCESS_DELAY * 2 && access < satellite, "{seen:?}");
    }
    drop(stream);
    served.join().unwrap();
}

#[test]
fn what_one_side_breaks_off_is_broken_off_at_the_other() {
    let Some(course) = Course::quick(BOTH) else { return };
    // Nobody listens at port 9, which only the server's host knows.
    let (mut stream, _) = course.connect((course.addresses(false)[1], 9).into());
    stream.write_all(b"anybody there?").unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    // To the first proxy the far side stood: the second had answered.
    let broken = course.settled(|counts| counts.reset + counts.failed == 1);
    assert_eq!(broken.open, 0);
    let (server, served) = course.serve(false, |mut stream| {
        stream.write_all(b"hello").unwrap();
        stream.read(&mut [0]).unwrap_err().kind()
    });
    let (mut stream, _) = course.connect(server);
    stream.read_exact(&mut [0; 5]).unwrap();
    SockRef::from(&stream).set_linger(Some(std::time::Duration::ZERO)).unwrap();
    drop(stream);
    assert_eq!(served.join().unwrap(), ErrorKind::ConnectionReset);
    // The proxy's own address is no server.
    let (mut stream, _) = course.connect("10.101.0.2:9".parse().unwrap());
    assert!(stream.read(&mut [0]).is_err());
    course.settled(|counts| counts.failed + counts.reset == 3);
}

#[test]
fn a_server_that_does_not_read_blocks_the_client_without_loss() {
    let Some(course) = Course::quick(BOTH) else { return };
    let (go, wait) = std::sync::mpsc::channel();
    let (server, served) = course.serve(false, move |mut stream| {
        wait.recv().unwrap();
        let mut read = Vec::new();
        stream.read_to_end(&mut read).unwrap();
        read
    });
    let (mut stream, _) = course.connect(server);
    let bytes = noise(64 << 20, 11);
    stream.set_write_timeout(Some(std::time::Duration::from_millis(500))).unwrap();
    let mut sent = 0;
    while let Ok(count) = stream.write(&bytes[sent..(sent + 65_536).min(bytes.len())]) {
        sent += count;
        assert!(sent < bytes.len(), "nothing holds the client up");
    }
    assert!(course.proxies.iter().all(|proxy| proxy.statistics().max_held <= 64 << 10));
    go.send(()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let read = served.join().unwrap();
    assert!(read == bytes[..sent], "{} of {sent} bytes", read.len());
}

#[test]
fn fifty_connections_to_ten_ports_begin_at_once() {
    let Some(course) = Course::quick(BOTH) else { return };
    let namespace = &course.testbed.ground().namespace;
    let ground = course.addresses(false)[1];
    let listen = || TcpListener::bind((ground, 0)).unwrap();
    let mut servers = Vec::new();
    for _ in 0..10 {
        let listener = namespace.run(listen).unwrap();
        SockRef::from(&listener).set_read_timeout(Some(PATIENCE)).unwrap();
        servers.push(listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for stream in listener.incoming().take(5) {
                let mut stream = stream.unwrap();
                std::thread::spawn(move || {
                    let mut read = Vec::new();
                    stream.read_to_end(&mut read).unwrap();
                    stream.write_all(&read).unwrap();
                });
            }
        });
    }
    std::thread::scope(|scope| {
        for number in 0..50 {
            let (course, server) = (&course, servers[number % 10]);
            scope.spawn(move || {
                let bytes = noise(50_000, 100 + number as u64);
                let (stream, _) = course.connect(server);
                assert!(exchange(&stream, &bytes) == bytes, "connection {number}");
            });
        }
    });
    let done = course.settled(|counts| counts.finished == 50);
    assert_eq!((done.opened, done.failed, done.unheard), (50, 0, 0));
    assert_eq!((done.to_server, done.to_client), (2_500_000, 2_500_000));
}

// The port from which a client connects may be one at which the proxy listens, and one that was used
// before.
#[test]
fn a_client_may_have_any_port_and_have_it_again() {
    let Some(course) = Course::quick(BOTH) else { return };
    let (server, served) = course.serve(false, drop);
    drop(course.connect(server));
    served.join().unwrap();
    for round in 0..3 {
        let (other, served) = course.serve(false, |mut stream| {
            let mut read = Vec::new();
            stream.read_to_end(&mut read).unwrap();
            read
        });
        let client = SocketAddr::new(course.addresses(false)[0], server.port());
        let mut stream = course.connect_from(client, other).0;
        assert_eq!(stream.local_addr().unwrap(), client);
        stream.write_all(&[round; 100]).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(served.join().unwrap(), [round; 100]);
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    }
    course.settled(|counts| counts.finished == 4);
}

#[test]
fn an_unavailable_congestion_control_is_refused_at_once() {
    let Ok(node) = Namespace::create("sat-vp") else { return };
    let error = Proxy::start(&node, "hybla-of-tomorrow").err().unwrap().to_string();
    assert!(error.contains("sat-vp with hybla-of-tomorrow"), "{error}");
}

/// Bytes that arrive over a path of 20 Mbps and 120 ms with 2 % loss within 3 s, from a sender with
/// Reno.
fn arrives(sides: [Option<&str>; 2]) -> Option<u64> {
    let delay = Duration::from_millis(50);
    let down = LinkConfig::plain(RateSource::Constant(Rate::from_bps(20_000_000)), delay);
    let loss = LossSource::Uniform(Probability::new(0.02).unwrap());
    let up = LinkConfig { losses: vec![loss], ..down.clone() };
    let course = course(sides, &up, &down)?;
    let (server, served) = course.serve(false, |mut stream| {
        let mut buffer = vec![0; 1 << 16];
        let mut total = 0;
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            total += count as u64;
        }
        total
    });
    let (mut stream, _) = course.connect(server);
    SockRef::from(&stream).set_tcp_congestion(b"reno").unwrap();
    let clock = Clock::starting_now();
    let end = clock.now() + Duration::from_secs(3);
    stream.set_write_timeout(Some(std::time::Duration::from_millis(50))).unwrap();
    while clock.now() < end {
        let _ = stream.write(&[0; 16 << 10]);
    }
    SockRef::from(&stream).set_linger(Some(std::time::Duration::ZERO)).unwrap();
    drop(stream);
    Some(served.join().unwrap())
}

// Source: Mathis 1997: Reno gets MSS / RTT √(3 / 2p), here 0.84 Mbps of 20; BBR does not slow down for
// single losses.
#[test]
fn over_a_long_lossy_link_proxies_carry_more_than_reno() {
    let known = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
    if !known.unwrap_or_default().contains("bbr") {
        println!("skipped: the kernel has no BBR");
        return;
    }
    let (alone, split) = std::thread::scope(|scope| {
        let alone = scope.spawn(|| arrives([None, None]));
        let split = scope.spawn(|| arrives([Some("bbr"), Some("bbr")]));
        (alone.join().unwrap(), split.join().unwrap())
    });
    let (Some(alone), Some(split)) = (alone, split) else { return };
    let rate = |bytes: u64| bytes as f64 * 8.0 / 3e6;
    println!("{:.2} Mbps from end to end, {:.2} Mbps with proxies", rate(alone), rate(split));
    assert!(split > 3 * alone, "{alone} B from end to end, {split} B with proxies");
}

/// Subflows of an MPTCP socket besides its first; `None` if it fell back to TCP.
fn additional_subflows(socket: &impl AsRawFd) -> Option<u8> {
    const SOL_MPTCP: i32 = 284;
    const MPTCP_INFO: i32 = 1;
    let mut info = [0_u8; 200];
    let mut length = 200_u32;
    let (to, fd) = (info.as_mut_ptr(), socket.as_raw_fd());
    #[allow(unsafe_code, reason = "MPTCP_INFO has no safe wrapper")]
    // SAFETY: the buffer has the length that is passed; both outlive the call.
    let failed = unsafe { libc::getsockopt(fd, SOL_MPTCP, MPTCP_INFO, to.cast(), &mut length) };
    (failed == 0).then_some(info[0])
}

// Source: RFC 8684 §3.7 (fallback when the answer to MP_CAPABLE lacks it) and §3.2 (a subflow whose
// answer lacks MP_JOIN is closed).
#[test]
fn mptcp_falls_back_to_tcp_on_a_path_with_a_proxy() {
    let Some(course) = Course::quick(BOTH) else { return };
    let vehicle = &course.testbed.vehicle().namespace;
    let Ok(mut manager) = PathManager::open(vehicle) else {
        println!("skipped: the kernel has no MPTCP");
        return;
    };
    let multipath = || Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP)).unwrap();
    let talk = |path: usize| {
        let path = &course.testbed.paths[path];
        let [from, to] = [path.vehicle.v4, path.ground.v4].map(|ip| SocketAddr::from((ip, 0)));
        let listener = course.testbed.ground().namespace.run(multipath).unwrap();
        listener.bind(&to.into()).unwrap();
        listener.listen(1).unwrap();
        listener.set_read_timeout(Some(PATIENCE)).unwrap();
        let to = listener.local_addr().unwrap();
        let served = std::thread::spawn(move || {
            let stream = TcpStream::from(listener.accept().unwrap().0);
            let mut both = &stream;
            let mut word = [0; 4];
            both.read_exact(&mut word).unwrap();
            both.write_all(&word).unwrap();
            stream
        });
        let socket = vehicle.run(multipath).unwrap();
        socket.bind(&from.into()).unwrap();
        socket.connect(&to).unwrap();
        let mut stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(b"word").unwrap();
        stream.read_exact(&mut [0; 4]).unwrap();
        (stream, served.join().unwrap())
    };
    assert_eq!(additional_subflows(&talk(1).0), None);
    let fallen_back = course.proxies[0].statistics();
    assert_eq!((fallen_back.opened, fallen_back.multipath), (1, 1));
    manager.set_limits(Limits { subflows: 2, add_addr_accepted: 2 }).unwrap();
    let flags = EndpointFlags { subflow: true, ..EndpointFlags::default() };
    let address = course.testbed.paths[1].vehicle.v4.into();
    manager.add(&Endpoint { address, interface: 0, flags, id: 0 }).unwrap();
    let (stream, _server) = talk(0);
    course.settled(|counts| counts.multipath >= 2);
    std::thread::sleep(std::time::Duration::from_millis(100));
    assert_eq!(additional_subflows(&stream), Some(0));
    assert_eq!(course.proxies[0].statistics().opened, 1);
    let message = multipath_warning("video", "sat");
    assert!(
        message.contains("`video`") && message.contains("`sat`") && message.contains("falls back")
    );
}
