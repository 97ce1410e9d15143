//! Namespaces, wires, addresses and routes, tried with the kernel's own sockets.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use crate::bridge::Bridge;
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::UdpGsoSegment;
use skybraid_emulator::command::{Output, Program, exit_code};
use skybraid_emulator::testbed::{Path, Plan, Testbed, get_sysctl};
use skybraid_io::netlink::{
    Endpoint, EndpointFlags, Limits, Namespace, Network, PathManager, Route, Rule,
};
use socket2::{Domain, Protocol, Socket, Type};

/// Whether namespaces can be made; says why not.
fn namespaces() -> bool {
    match Namespace::create("probe") {
        Ok(_) => true,
        Err(error) => {
            println!("skipped: {error}");
            false
        }
    }
}

fn udp(testbed: &Testbed, node: &str, address: IpAddr) -> UdpSocket {
    let namespace = &testbed.node(node).unwrap().namespace;
    let bind = || UdpSocket::bind((address, 0));
    let socket = namespace.run(bind).unwrap().unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    socket
}

/// Sends a datagram from `from` to `to` and back; gives the source that the receiver saw.
fn echo(from: &UdpSocket, to: &UdpSocket) -> SocketAddr {
    let mut buffer = [0; 2000];
    from.send_to(b"ping", to.local_addr().unwrap()).unwrap();
    let (length, source) = to.recv_from(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], b"ping");
    to.send_to(b"pong", source).unwrap();
    let (length, source_back) = from.recv_from(&mut buffer).unwrap();
    assert_eq!((&buffer[..length], source_back), (&b"pong"[..], to.local_addr().unwrap()));
    source
}

/// Bytes that the vehicle has sent into each path's interface.
fn sent(testbed: &Testbed) -> Vec<u64> {
    let mut netlink = testbed.vehicle().namespace.netlink().unwrap();
    let link = |path: &skybraid_emulator::testbed::Path| netlink.link(&path.interface).unwrap();
    testbed.paths.iter().map(link).map(|state| state.sent_bytes).collect()
}

/// Each source address talks to every ground address, in both kinds, and leaves by its own path.
fn check_sources(testbed: &Testbed) {
    let ground = testbed.ground().name.clone();
    for (number, from) in testbed.paths.iter().enumerate() {
        for to in &testbed.paths {
            let kinds: [(IpAddr, IpAddr); 2] = [
                (from.vehicle.v4.into(), to.ground.v4.into()),
                (from.vehicle.v6.into(), to.ground.v6.into()),
            ];
            for (source, target) in kinds {
                let near = udp(testbed, "vehicle", source);
                let far = udp(testbed, &ground, target);
                // The first exchange may ask for hardware addresses.
                echo(&near, &far);
                let before = sent(testbed);
                for _ in 0..10 {
                    assert_eq!(echo(&near, &far).ip(), source);
                }
                let after = sent(testbed);
                for (path, (before, after)) in before.iter().zip(&after).enumerate() {
                    let carried = after - before;
                    let headers = if source.is_ipv4() { 42 } else { 62 };
                    let expected = if path == number { 10 * (headers + 4) } else { 0 };
                    assert!(
                        (expected..expected + 300).contains(&carried),
                        "{source} to {target} put {carried} bytes on path {path}"
                    );
                }
            }
        }
    }
}

#[test]
fn each_source_address_leaves_by_its_own_path() {
    if !namespaces() {
        return;
    }
    let testbed = Plan::direct(&[("lte", 1500), ("sat", 1400)]).build().unwrap();
    let _bridge = Bridge::over(&testbed);
    check_sources(&testbed);
}

#[test]
fn a_server_behind_the_gateway_is_reached_over_each_path() {
    if !namespaces() {
        return;
    }
    let plan = Plan::behind_gateway(&[("lte", 1500), ("sat", 1400)]);
    let testbed = plan.build().unwrap();
    assert_eq!(testbed.segments.len(), 2);
    let bridge = Bridge::over(&testbed);
    check_sources(&testbed);
    drop(bridge);
    let testbed = plan.with_server_segment(1500).build().unwrap();
    assert_eq!(testbed.segments[2].name, "server");
    let _bridge = Bridge::over(&testbed);
    check_sources(&testbed);
}

#[test]
fn testbeds_run_in_parallel_and_within_one_another() {
    if !namespaces() {
        return;
    }
    let paths = [("lte", 1500), ("sat", 1400)];
    let within = |place: &Namespace| {
        let nested = || Plan::direct(&paths).nested_here()?.build();
        place.run(nested).unwrap().unwrap()
    };
    let outer = Plan::direct(&paths).build().unwrap();
    let (vehicle, ground) = (&outer.vehicle().namespace, &outer.ground().namespace);
    let mut all = vec![within(vehicle), within(vehicle), within(ground), within(ground)];
    let deeper = [0, 0, 1, 2].map(|of: usize| within(&all[of].vehicle().namespace));
    all.extend(deeper);
    let _bridges: Vec<_> = all.iter().chain([&outer]).map(Bridge::over).collect();
    for v6 in [false, true] {
        let ends = |path: &Path| -> (IpAddr, IpAddr) {
            let (vehicle, ground) = (path.vehicle, path.ground);
            if v6 {
                (vehicle.v6.into(), ground.v6.into())
            } else {
                (vehicle.v4.into(), ground.v4.into())
            }
        };
        let (_, ground) = ends(&outer.paths[0]);
        let ground = udp(&outer, "ground", ground);
        for testbed in &all {
            for path in &testbed.paths {
                let (own, far) = ends(path);
                let vehicle = udp(testbed, "vehicle", own);
                assert_eq!(echo(&vehicle, &ground).ip(), own);
                assert_eq!(echo(&vehicle, &udp(testbed, "ground", far)).ip(), own);
            }
        }
    }
}

#[test]
fn proxies_forward_between_segments_and_keep_addresses() {
    if !namespaces() {
        return;
    }
    let paths = [("lte", 1500), ("sat", 1400)];
    for (vehicle_side, ground_side) in [(true, false), (false, true), (true, true)] {
        let plan = Plan::direct(&paths).with_proxies("sat", vehicle_side, ground_side);
        let testbed = plan.build().unwrap();
        assert_eq!(
            testbed.segments.len(),
            2 + usize::from(vehicle_side) + usize::from(ground_side)
        );
        let _bridge = Bridge::over(&testbed);
        check_sources(&testbed);
    }
    let plan = Plan::behind_gateway(&paths)
        .with_proxies("lte", true, true)
        .with_proxies("sat", true, true);
    let testbed = plan.build().unwrap();
    let _bridge = Bridge::over(&testbed);
    check_sources(&testbed);
    // Proxies reach each other and both ends by their own addresses as well.
    for (near, far) in [("vehicle", "sat-gp"), ("sat-vp", "gateway"), ("sat-vp", "sat-gp")] {
        let address = |node: &str| -> IpAddr {
            match node {
                "vehicle" => "10.1.0.1",
                "sat-vp" => "10.101.0.2",
                "sat-gp" => "10.101.2.1",
                _ => "10.1.0.2",
            }
            .parse()
            .unwrap()
        };
        echo(&udp(&testbed, near, address(near)), &udp(&testbed, far, address(far)));
    }
}

#[test]
fn a_tcp_connection_crosses_in_packets_of_the_paths_mtu() {
    if !namespaces() {
        return;
    }
    let testbed = Plan::direct(&[("narrow", 1300)]).build().unwrap();
    let bridge = Bridge::over(&testbed);
    let listen = || TcpListener::bind("10.0.0.2:0").unwrap();
    let listener = testbed.ground().namespace.run(listen).unwrap();
    let target = listener.local_addr().unwrap();
    let connect = || TcpStream::connect(target).unwrap();
    let mut client = testbed.vehicle().namespace.run(connect).unwrap();
    assert_eq!(client.local_addr().unwrap().ip(), IpAddr::from([10, 0, 0, 1]));
    let (mut server, _) = listener.accept().unwrap();
    let data: Vec<u8> = (0..300_000_u32).map(|n| (n % 251) as u8).collect();
    let copy = data.clone();
    let writer = std::thread::spawn(move || client.write_all(&copy).unwrap());
    let mut received = Vec::new();
    server.read_to_end(&mut received).unwrap();
    writer.join().unwrap();
    assert!(received == data);
    // An Ethernet header of 14 bytes and a full packet.
    assert_eq!(bridge.max_frame(), 1314);
    let state = testbed.vehicle().namespace.netlink().unwrap().link("narrow").unwrap();
    assert_eq!((state.mtu, state.up), (1300, true));
}

// QUIC stacks hand the kernel many datagrams at once (`UDP_SEGMENT`, udp(7)).
#[test]
fn datagrams_handed_over_together_cross_a_segment_one_by_one() {
    if !namespaces() {
        return;
    }
    let testbed = Plan::direct(&[("lte", 1500)]).build().unwrap();
    let bridge = Bridge::over(&testbed);
    let path = &testbed.paths[0];
    let near = udp(&testbed, "vehicle", path.vehicle.v4.into());
    let far = udp(&testbed, "ground", path.ground.v4.into());
    setsockopt(&near, UdpGsoSegment, &1000).unwrap();
    near.send_to(&[7; 10_000], far.local_addr().unwrap()).unwrap();
    let mut buffer = [0; 20_000];
    for _ in 0..10 {
        assert_eq!(far.recv(&mut buffer).unwrap(), 1000);
    }
    // Ethernet, IPv4 and UDP headers are 42 bytes.
    assert_eq!(bridge.max_frame(), 1042);
}

#[test]
fn nodes_filter_no_sources_and_only_routers_forward() {
    if !namespaces() {
        return;
    }
    let testbed = Plan::behind_gateway(&[("lte", 1500)]).build().unwrap();
    for node in &testbed.nodes {
        for interface in ["all", "default"] {
            let key = format!("ipv4/conf/{interface}/rp_filter");
            assert_eq!(get_sysctl(&node.namespace, &key).unwrap(), "0");
        }
        let forwards = get_sysctl(&node.namespace, "ipv4/ip_forward").unwrap();
        assert_eq!(forwards, if node.name == "gateway" { "1" } else { "0" });
    }
    let vehicle = &testbed.vehicle().namespace;
    assert_eq!(get_sysctl(vehicle, "ipv4/conf/lte/rp_filter").unwrap(), "0");
    assert_eq!(get_sysctl(vehicle, "ipv6/conf/lte/accept_dad").unwrap(), "0");
}

#[test]
fn an_error_names_interface_place_and_the_kernels_reason() {
    if !namespaces() {
        return;
    }
    let node = Namespace::create("node").unwrap();
    let mut netlink = node.netlink().unwrap();
    let missing = netlink.link("nowhere").unwrap_err().to_string();
    assert!(missing.contains("node:nowhere") && missing.contains("No such device"), "{missing}");
    let loopback = netlink.link("lo").unwrap();
    assert!(loopback.up);
    let network = Network { address: IpAddr::from([10, 9, 0, 1]), prefix: 24 };
    netlink.add_address(loopback.index, network).unwrap();
    let twice = netlink.add_address(loopback.index, network).unwrap_err().to_string();
    assert!(twice.contains("10.9.0.1/24") && twice.contains("already assigned"), "{twice}");
    netlink.delete_address(loopback.index, network).unwrap();
}

#[test]
fn rules_and_routes_for_a_proxy_come_and_go() {
    if !namespaces() {
        return;
    }
    let node = Namespace::create("node").unwrap();
    let mut netlink = node.netlink().unwrap();
    let interface = netlink.link("lo").unwrap().index;
    let (to, table) = (Network::ALL_V4, 300);
    let route = Route { to, via: None, interface, source: None, table, local: true };
    netlink.add_route(&route).unwrap();
    let from = Some(Network { address: IpAddr::from([10, 1, 0, 0]), prefix: 24 });
    let incoming = Some("sat.a".to_owned());
    let (ip_protocol, mark) = (Some(libc::IPPROTO_TCP as u8), Some(7));
    let rule = Rule { ipv6: false, from, incoming, ip_protocol, mark, priority: 50, table };
    netlink.add_rule(&rule).unwrap();
    let twice = netlink.add_rule(&rule).unwrap_err();
    assert_eq!(twice.kind(), std::io::ErrorKind::AlreadyExists, "{twice}");
    netlink.delete_rule(&rule).unwrap();
    netlink.delete_route(&route).unwrap();
    let gone = netlink.delete_route(&route).unwrap_err().to_string();
    assert!(gone.contains("0.0.0.0/0 dev #1 table 300 in node"), "{gone}");
}

#[test]
fn a_path_too_narrow_for_ipv6_carries_ipv4() {
    if !namespaces() {
        return;
    }
    let testbed = Plan::direct(&[("lte", 1500), ("narrow", 576)]).build().unwrap();
    let _bridge = Bridge::over(&testbed);
    let path = &testbed.paths[1];
    echo(
        &udp(&testbed, "vehicle", path.vehicle.v4.into()),
        &udp(&testbed, "ground", path.ground.v4.into()),
    );
}

/// A socket of the kernel's MPTCP.
fn mptcp_socket(namespace: &Namespace) -> Socket {
    let open =
        || Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::from(libc::IPPROTO_MPTCP)));
    namespace.run(open).unwrap().unwrap()
}

/// A counter of the namespace's MPTCP, as `nstat` shows it.
fn mptcp_counter(namespace: &Namespace, name: &str) -> u64 {
    let read = || std::fs::read_to_string("/proc/thread-self/net/netstat").unwrap();
    let counters = namespace.run(read).unwrap();
    let mut lines = counters.lines().filter(|line| line.starts_with("MPTcpExt:"));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let place = names.split(' ').position(|found| found == name).unwrap();
    values.split(' ').nth(place).unwrap().parse().unwrap()
}

// Source: RFC 8684 §3.2: a host joins another address of its own to a connection by MP_JOIN.
#[test]
fn two_paths_give_a_kernel_mptcp_connection_two_subflows() {
    if !namespaces() {
        return;
    }
    let testbed = Plan::direct(&[("lte", 1500), ("sat", 1500)]).build().unwrap();
    let _bridge = Bridge::over(&testbed);
    let [vehicle, ground] = [testbed.vehicle(), testbed.ground()].map(|node| &node.namespace);
    let mut manager = match PathManager::open(vehicle) {
        Ok(manager) => manager,
        Err(error) => return println!("skipped: {error}"),
    };
    let limits = Limits { subflows: 1, add_addr_accepted: 0 };
    for namespace in [vehicle, ground] {
        PathManager::open(namespace).unwrap().set_limits(limits).unwrap();
    }
    assert_eq!(manager.limits().unwrap(), limits);
    let interface = vehicle.netlink().unwrap().link("sat").unwrap().index;
    let flags = EndpointFlags { subflow: true, ..EndpointFlags::default() };
    let address = testbed.paths[1].vehicle.v4.into();
    let endpoint = Endpoint { address, interface, flags, id: 7 };
    manager.add(&endpoint).unwrap();
    assert_eq!(manager.endpoints().unwrap(), [endpoint]);

    let listener = mptcp_socket(ground);
    listener.bind(&SocketAddr::from((testbed.paths[0].ground.v4, 0)).into()).unwrap();
    listener.listen(1).unwrap();
    let client = mptcp_socket(vehicle);
    client.bind(&SocketAddr::from((testbed.paths[0].vehicle.v4, 0)).into()).unwrap();
    client.connect(&listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    // The first byte that comes back lets the client join.
    let (mut client, mut server) = (client, server);
    for (from, to) in [(0, 1), (1, 0)].map(|(from, to)| {
        let ends = [&client, &server];
        (ends[from], ends[to])
    }) {
        let (mut from, mut to) = (from, to);
        from.write_all(&[1]).unwrap();
        to.read_exact(&mut [0]).unwrap();
    }
    let joined = (0..200).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        mptcp_counter(ground, "MPJoinAckRx") == 1
    });
    assert!(joined, "the second subflow is not there");
    let before = sent(&testbed);
    let writer = std::thread::spawn(move || {
        for _ in 0..200 {
            client.write_all(&[7; 20_000]).unwrap();
        }
        client
    });
    let mut left = 4_000_000;
    let mut buffer = vec![0; 65_536];
    while left > 0 {
        left -= server.read(&mut buffer).unwrap();
    }
    let client = writer.join().unwrap();
    let carried: Vec<u64> = sent(&testbed).iter().zip(&before).map(|(b, a)| b - a).collect();
    for counter in ["MPCapableSYNTX", "MPJoinSynTx", "MPJoinSynAckRx"] {
        assert_eq!(mptcp_counter(vehicle, counter), 1, "{counter}");
    }
    assert_eq!(mptcp_counter(vehicle, "MPCapableFallbackSYNACK"), 0);
    println!("bytes over the two paths: {carried:?}");
    assert!(carried[1] > 100_000, "the joined subflow carried {carried:?}");
    assert!(carried.iter().sum::<u64>() > 4_000_000);
    drop((client, server));
    manager.flush().unwrap();
    assert!(manager.endpoints().unwrap().is_empty());
}

#[test]
fn a_program_in_a_node_has_the_addresses_in_its_environment() {
    if !namespaces() {
        return;
    }
    let testbed = Plan::direct(&[("lte", 1500), ("sat-1", 1500)]).build().unwrap();
    let folder = std::env::temp_dir().join(format!("skybraid-command-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (stdout, stderr) = (folder.join("out"), folder.join("err"));
    let output = Output::Files { stdout: &stdout, stderr: &stderr };
    let script = "echo $SKYBRAID_NODE $SKYBRAID_VEHICLE $SKYBRAID_GROUND_SAT_1; \
                  cut -d: -f1 /proc/net/dev | tail -n +3 | sort | xargs; echo no >&2; exit 3";
    let environment = testbed.environment("vehicle");
    let node = &testbed.vehicle().namespace;
    let mut program =
        Program::start(node, &["sh", "-c", script], &environment, output, true).unwrap();
    assert_eq!(exit_code(program.wait().unwrap()), 3);
    let written = std::fs::read_to_string(&stdout).unwrap();
    let mut lines = written.lines();
    assert_eq!(lines.next().unwrap(), "vehicle 10.0.0.1 10.1.0.2");
    assert!(lines.next().unwrap().ends_with("lo lte sat-1"), "{written}");
    assert_eq!(std::fs::read_to_string(&stderr).unwrap(), "no\n");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_program_ends_with_its_children_and_a_deaf_one_is_killed() {
    if !namespaces() {
        return;
    }
    let node = Namespace::create("node").unwrap();
    let start =
        |script: &str| Program::start(&node, &["sh", "-c", script], &[], Output::Inherit, true);
    let grace = skybraid_units::Duration::from_millis(200);
    let mut program = start("sleep 60 & wait").unwrap();
    assert!(program.poll().unwrap().is_none());
    assert_eq!(exit_code(program.terminate(grace).unwrap()), 128 + libc::SIGTERM);
    let mut deaf = start("trap '' TERM; while :; do sleep 0.05; done").unwrap();
    assert!(deaf.wait_for(grace).unwrap().is_none());
    assert_eq!(exit_code(deaf.terminate(grace).unwrap()), 128 + libc::SIGKILL);
    let missing =
        Program::start(&node, &["no-such-program"], &[], Output::Inherit, true).unwrap_err();
    assert_eq!(missing.to_string(), "there is no program `no-such-program`");
}

#[test]
fn a_program_that_root_starts_has_rights_over_its_network_alone() {
    if !namespaces() || !nix::unistd::geteuid().is_root() {
        return;
    }
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap();
    if !map.split_whitespace().eq(["0", "0", "4294967295"]) {
        println!("skipped: this is no root of the machine");
        return;
    }
    let node = Namespace::create("node").unwrap();
    let folder = std::env::temp_dir().join(format!("skybraid-confined-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let home = nix::unistd::User::from_uid(nix::unistd::Uid::from_raw(0)).unwrap().unwrap().dir;
    let file = home.join(format!(".skybraid-test-{}", std::process::id()));
    // Rights, then what it can do in its network and may not do elsewhere.
    let script = format!(
        "grep CapPrm /proc/self/status; grep NoNewPrivs /proc/self/status; \
         ip link set lo up && echo network; touch {file} && echo home; \
         cat {home}/* >/dev/null; mount -t tmpfs none /mnt && echo mount; touch {own} && echo own",
        file = file.display(),
        home = home.display(),
        own = folder.join("own").display(),
    );
    let run = || {
        let stdout = folder.join("out");
        let output = Output::Files { stdout: &stdout, stderr: &folder.join("err") };
        let argv = ["sh", "-c", &script];
        Program::start(&node, &argv, &[], output, false).unwrap().wait().unwrap();
        std::fs::read_to_string(&stdout).unwrap()
    };
    let confined = run();
    let was_written = file.exists();
    assert_eq!(confined, "CapPrm:\t0000000000003400\nNoNewPrivs:\t1\nnetwork\nown\n");
    assert!(!was_written);
    std::fs::remove_dir_all(&folder).unwrap();
}
