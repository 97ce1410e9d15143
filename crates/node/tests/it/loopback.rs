//! Two gateways on sockets: what programs on either side see.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::daemons::{ATTITUDE, COMMAND, Daemon, frame, free_ports, prepare, program, within};
use nix::pty::openpty;

/// Reads a stream until so many bytes have come.
fn read(stream: &mut impl Read, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).unwrap();
    bytes
}

fn receive(socket: &UdpSocket) -> Vec<u8> {
    let mut bytes = [0; 2048];
    let length = socket.recv(&mut bytes).unwrap();
    bytes[..length].to_vec()
}

/// Two paths over loopback, which share the ground's port.
fn two_paths(port: u16) -> [String; 2] {
    let aircraft = |name: &str, last: u8| {
        format!("[path.{name}]\naddress = \"127.0.0.{last}\"\nremote = \"127.0.0.1:{port}\"\n")
    };
    let ground = |name: &str| format!("[path.{name}]\nlisten = \"127.0.0.1:{port}\"\n");
    [aircraft("lte", 2) + &aircraft("sat", 3), ground("lte") + &ground("sat")]
}

#[test]
fn mavlink_and_video_cross_both_ways_over_udp() {
    prepare();
    let [wan, autopilot, station, camera, screen] = free_ports();
    let [air, ground] = two_paths(wan);
    let ground = Daemon::start(
        "ground",
        &format!(
            "{ground}[[mavlink]]\nudp_listen = \"127.0.0.1:{station}\"\n\
             [udp.video]\nsend_to = \"localhost:{screen}\"\n"
        ),
        None,
    );
    let aircraft = Daemon::start(
        "aircraft",
        &format!(
            "{air}[[mavlink]]\nudp_listen = \"127.0.0.1:{autopilot}\"\n\
             [udp.video]\nlisten = \"127.0.0.1:{camera}\"\n"
        ),
        None,
    );
    aircraft.wait_for_paths(2);
    ground.wait_for_paths(2);
    let (vehicle, pilot, second) = (program(autopilot), program(station), program(station));
    // Who has never sent is not known; a word of either side introduces it.
    let hello = |program: &UdpSocket, system| program.send(&frame(system, COMMAND, 0, 0)).unwrap();
    hello(&vehicle, 1);
    std::thread::sleep(Duration::from_millis(100));
    hello(&pilot, 255);
    hello(&second, 254);
    for _ in 0..2 {
        receive(&vehicle);
    }
    for number in 1..=200 {
        let (down, up) = (frame(1, COMMAND, number as u8, number), frame(255, COMMAND, 0, number));
        vehicle.send(&down).unwrap();
        pilot.send(&up).unwrap();
        assert_eq!(receive(&pilot), down);
        assert_eq!(receive(&second), down);
        assert_eq!(receive(&vehicle), up);
    }
    // Two frames in one datagram come out as two; half a one does not come out.
    let both = [frame(1, ATTITUDE, 1, 7), frame(1, COMMAND, 2, 8)].concat();
    vehicle.send(&both).unwrap();
    let mut got = [receive(&pilot), receive(&pilot)];
    got.sort_by_key(|frame| frame[4]);
    assert_eq!(got.concat(), both);
    vehicle.send(&both[..60]).unwrap();
    assert_eq!(receive(&pilot), both[..44]);
    let screen = UdpSocket::bind(("127.0.0.1", screen)).unwrap();
    screen.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let camera = program(camera);
    for number in 0..50_u8 {
        camera.send(&[number; 1200]).unwrap();
        assert_eq!(receive(&screen), [number; 1200]);
    }
    std::thread::sleep(Duration::from_millis(300));
    let (shown, edges) = (ground.shared.snapshot().unwrap(), ground.shared.edges());
    assert_eq!(shown.classes[0].delivered, 202);
    assert_eq!(edges.local[0].clients, 2);
    assert!(edges.paths.iter().all(|path| path.open));
    assert_eq!(aircraft.shared.edges().local[0].foreign_bytes, 16);
    aircraft.end().unwrap();
    ground.end().unwrap();
}

#[test]
fn mavlink_crosses_from_a_serial_device_to_tcp_and_back() {
    prepare();
    let [wan] = free_ports();
    let [tcp, called] = free_ports();
    let pty = openpty(None, None).unwrap();
    let device = nix::unistd::ttyname(&pty.slave).unwrap();
    let device = device.to_str().unwrap();
    let [air, ground] = two_paths(wan);
    let caller = TcpListener::bind(("127.0.0.1", called)).unwrap();
    let ground = Daemon::start(
        "ground",
        &format!(
            "{ground}[[mavlink]]\ntcp_listen = \"127.0.0.1:{tcp}\"\n\
             [[mavlink]]\ntcp_connect = \"127.0.0.1:{called}\"\n"
        ),
        None,
    );
    let aircraft = Daemon::start(
        "aircraft",
        &format!("{air}[[mavlink]]\nserial = \"{device}\"\nbaud = 921600\nradio_status = true\n"),
        None,
    );
    aircraft.wait_for_paths(2);
    ground.wait_for_paths(2);
    let mut vehicle = File::from(pty.master);
    let mut pilot = TcpStream::connect(("127.0.0.1", tcp)).unwrap();
    let (mut second, _) = caller.accept().unwrap();
    for stream in [&pilot, &second] {
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    }
    std::thread::sleep(Duration::from_millis(100));
    vehicle.write_all(b"boot: ok\n").unwrap();
    for number in 0..50 {
        let down = frame(1, COMMAND, number as u8, number);
        // A serial line delivers bytes as they come.
        vehicle.write_all(&down[..13]).unwrap();
        vehicle.write_all(&down[13..]).unwrap();
        assert_eq!(read(&mut pilot, 44), down);
        assert_eq!(read(&mut second, 44), down);
        let up = frame(255, COMMAND, number as u8, number);
        second.write_all(&up[..20]).unwrap();
        second.write_all(&up[20..]).unwrap();
        loop {
            let head = read(&mut vehicle, 10);
            let rest = read(&mut vehicle, usize::from(head[1]) + 2);
            if head[7] != 109 {
                assert_eq!([head, rest].concat(), up);
                break;
            }
            assert_eq!((head[5], head[6]), (51, 68));
        }
    }
    // Who goes is forgotten, and called again.
    drop(second);
    let (mut again, _) = caller.accept().unwrap();
    std::thread::sleep(Duration::from_millis(100));
    vehicle.write_all(&frame(1, COMMAND, 50, 50)).unwrap();
    assert_eq!(read(&mut again, 44), frame(1, COMMAND, 50, 50));
    assert_eq!(aircraft.shared.edges().local[0].foreign_bytes, 9);
}

/// Starts an aircraft and a ground station that pilots reach by TCP. Returns them with the autopilot's socket and the
/// pilots' port.
fn start_with_pilots() -> ([Daemon; 2], UdpSocket, u16) {
    prepare();
    let [wan, autopilot] = free_ports();
    let [tcp] = free_ports();
    let [air, ground] = two_paths(wan);
    let mavlink = format!("[[mavlink]]\ntcp_listen = \"127.0.0.1:{tcp}\"\n");
    let ground = Daemon::start("ground", &(ground + &mavlink), None);
    let mavlink = format!("[[mavlink]]\nudp_listen = \"127.0.0.1:{autopilot}\"\n");
    let aircraft = Daemon::start("aircraft", &(air + &mavlink), None);
    ground.wait_for_paths(2);
    ([aircraft, ground], program(autopilot), tcp)
}

#[test]
fn a_reader_that_has_stopped_costs_nobody_else_anything() {
    let ([aircraft, ground], vehicle, tcp) = start_with_pilots();
    let stopped = TcpStream::connect(("127.0.0.1", tcp)).unwrap();
    let mut pilot = TcpStream::connect(("127.0.0.1", tcp)).unwrap();
    pilot.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    ground.wait(|_| ground.shared.edges().local[0].clients == 2);
    let mut number = 0;
    while ground.shared.edges().local[0].dropped == 0 {
        for _ in 0..50 {
            number += 1;
            let sent = frame(1, COMMAND, number as u8, number);
            vehicle.send(&sent).unwrap();
            assert_eq!(read(&mut pilot, 44), sent);
        }
        assert!(number < 2_000_000);
    }
    drop((stopped, aircraft));
}

#[test]
fn clients_that_send_nothing_keep_no_pilot_out() {
    let (daemons, vehicle, tcp) = start_with_pilots();
    vehicle.send(&frame(1, COMMAND, 0, 0)).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    let pilot = || {
        let mut pilot = TcpStream::connect(("127.0.0.1", tcp)).unwrap();
        pilot.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        pilot.write_all(&frame(255, COMMAND, 1, 1)).unwrap();
        assert_eq!(receive(&vehicle), frame(255, COMMAND, 1, 1));
        pilot
    };
    let mut first = pilot();
    let silent = [(); 100].map(|()| TcpStream::connect(("127.0.0.1", tcp)).unwrap());
    let mut second = pilot();
    vehicle.send(&frame(1, COMMAND, 2, 2)).unwrap();
    for pilot in [&mut first, &mut second] {
        assert_eq!(read(pilot, 44), frame(1, COMMAND, 2, 2));
    }
    drop((silent, daemons));
}

#[test]
fn a_flood_of_tcp_connections_keeps_no_aircraft_out() {
    prepare();
    let [wan] = free_ports();
    let mavlink = "[[mavlink]]\nudp_connect = \"127.0.0.1:9\"\n";
    let paths = format!("network = \"tcp\"\n[path.one]\nlisten = \"127.0.0.1:{wan}\"\n{mavlink}");
    let ground = Daemon::start("ground", &paths, None);
    let ended = Arc::new(AtomicBool::new(false));
    let flood = {
        let ended = Arc::clone(&ended);
        std::thread::spawn(move || {
            let mut held: Vec<TcpStream> = Vec::new();
            while !ended.load(Ordering::Relaxed) {
                let closed = |stream: &mut TcpStream| matches!(stream.read(&mut [0]), Ok(0));
                held.retain_mut(|stream| !closed(stream));
                while held.len() < 100 {
                    let Ok(stream) = TcpStream::connect(("127.0.0.1", wan)) else { break };
                    stream.set_nonblocking(true).unwrap();
                    held.push(stream);
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        })
    };
    std::thread::sleep(Duration::from_millis(500));
    let path = format!("[path.one]\naddress = \"127.0.0.2\"\nremote = \"127.0.0.1:{wan}\"\n");
    let paths = format!("network = \"tcp\"\n{path}{mavlink}");
    let aircraft = Daemon::start("aircraft", &paths, None);
    // Silent connections end after 5 s; the aircraft does not have to wait for that.
    let has_session = || ground.shared.snapshot().is_some_and(|shown| shown.session);
    let is_in_time = within(Duration::from_secs(3), has_session);
    ended.store(true, Ordering::Relaxed);
    flood.join().unwrap();
    assert!(is_in_time);
    drop(aircraft);
}

#[test]
fn over_tcp_both_directions_resume_after_a_restart() {
    prepare();
    let [autopilot, station, camera, screen] = free_ports();
    let [wan] = free_ports();
    let [air, ground_paths] = two_paths(wan);
    let tcp = "network = \"tcp\"\n";
    let start_ground = || {
        Daemon::start(
            "ground",
            &format!(
                "{tcp}{ground_paths}[[mavlink]]\nudp_listen = \"127.0.0.1:{station}\"\n\
                 [udp.video]\nsend_to = \"127.0.0.1:{screen}\"\n"
            ),
            None,
        )
    };
    let ground = start_ground();
    let aircraft = Daemon::start(
        "aircraft",
        &format!(
            "{tcp}{air}[[mavlink]]\nudp_listen = \"127.0.0.1:{autopilot}\"\n\
             [udp.video]\nlisten = \"127.0.0.1:{camera}\"\n"
        ),
        None,
    );
    aircraft.wait_for_paths(2);
    ground.wait_for_paths(2);
    let (vehicle, pilot, camera) = (program(autopilot), program(station), program(camera));
    let screen = UdpSocket::bind(("127.0.0.1", screen)).unwrap();
    screen.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let talk = |numbers: std::ops::Range<u32>| {
        vehicle.send(&frame(1, COMMAND, 0, numbers.start)).unwrap();
        std::thread::sleep(Duration::from_millis(200));
        pilot.send(&frame(255, COMMAND, 0, numbers.start)).unwrap();
        receive(&vehicle);
        for number in numbers {
            let down = frame(1, COMMAND, number as u8, number);
            vehicle.send(&down).unwrap();
            assert_eq!(receive(&pilot), down);
            camera.send(&[number as u8; 1100]).unwrap();
            assert_eq!(receive(&screen), [number as u8; 1100]);
        }
    };
    talk(0..100);
    drop(ground);
    let ground = start_ground();
    ground.wait_for_paths(2);
    aircraft.wait_for_paths(2);
    talk(100..200);
}

#[test]
fn a_flood_of_video_does_not_stop_video() {
    prepare();
    let [wan, camera, screen] = free_ports();
    let air = format!("[path.lte]\nremote = \"127.0.0.1:{wan}\"\n");
    let ground = format!("[path.lte]\nlisten = \"127.0.0.1:{wan}\"\n");
    let end = format!("[udp.video]\nsend_to = \"127.0.0.1:{screen}\"\n");
    let ground = Daemon::start("ground", &(ground + &end), None);
    let end = format!("[udp.video]\nlisten = \"127.0.0.1:{camera}\"\n");
    let aircraft = Daemon::start("aircraft", &(air + &end), None);
    aircraft.wait_for_paths(1);
    ground.wait_for_paths(1);
    let camera = program(camera);
    let screen = UdpSocket::bind(("127.0.0.1", screen)).unwrap();
    screen.set_nonblocking(true).unwrap();
    let seen = || std::iter::repeat_with(|| screen.recv(&mut [0; 2048])).take_while(Result::is_ok);
    for _ in 0..3 {
        let mut arrived = 0;
        for _ in 0..2_000 {
            for number in 0..10 {
                camera.send(&[number; 1200]).unwrap();
            }
            std::thread::sleep(Duration::from_micros(130));
            arrived += seen().count();
        }
        // Far more than fits into a second's queue: most are refused, and the others get through.
        assert!(arrived > 500, "{arrived} {:#?}", aircraft.shared.snapshot());
    }
    std::thread::sleep(Duration::from_secs(1));
    seen().count();
    screen.set_nonblocking(false).unwrap();
    screen.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    for number in 0..20_u8 {
        camera.send(&[number; 1200]).unwrap();
        assert_eq!(receive(&screen), [number; 1200]);
    }
}
