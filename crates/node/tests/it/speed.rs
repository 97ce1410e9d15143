//! Speed of two gateways on this machine, next to a bare socket. Run by hand, in a release build:
//! `cargo test --release -p skybraid-node --test it speed -- --ignored --nocapture`.

use std::net::UdpSocket;
use std::thread;
use std::time::Duration;

use crate::daemons::{COMMAND, Daemon, free_ports, prepare, program};
use skybraid_io::clock::Clock;

/// A MAVLink 2 frame of 200 bytes with a number in it.
fn frame(message: u32, number: u32) -> Vec<u8> {
    let [low, middle, high, _] = message.to_le_bytes();
    let mut frame = vec![0xfd, 188, 0, 0, number as u8, 1, 1, low, middle, high];
    frame.extend(number.to_le_bytes());
    frame.resize(200, 7);
    frame
}

struct Pair {
    ground: Daemon,
    aircraft: Daemon,
    vehicle: UdpSocket,
    pilot: UdpSocket,
    camera: UdpSocket,
    screen: UdpSocket,
}

fn pair(paths: usize, more: &str) -> Pair {
    prepare();
    let [wan, autopilot, station, camera, screen] = free_ports();
    let mut files = [String::new(), String::new()];
    for path in 0..paths {
        let last = path + 2;
        files[0] += &format!(
            "[path.p{path}]\naddress = \"127.0.0.{last}\"\nremote = \"127.0.0.1:{wan}\"\n"
        );
        files[1] += &format!("[path.p{path}]\nlisten = \"127.0.0.1:{wan}\"\n");
    }
    let [air, ground] = files;
    let ends = |mavlink, video| {
        format!("[[mavlink]]\nudp_listen = \"127.0.0.1:{mavlink}\"\n[udp.video]\n{video}\n{more}\n")
    };
    let screen_end = format!("send_to = \"127.0.0.1:{screen}\"");
    let camera_end = format!("listen = \"127.0.0.1:{camera}\"");
    let ground = Daemon::start("ground", &(ground + &ends(station, screen_end)), None);
    let aircraft = Daemon::start("aircraft", &(air + &ends(autopilot, camera_end)), None);
    aircraft.wait_for_paths(paths);
    ground.wait_for_paths(paths);
    let (vehicle, pilot, camera) = (program(autopilot), program(station), program(camera));
    let screen = UdpSocket::bind(("127.0.0.1", screen)).unwrap();
    for socket in [&pilot, &screen] {
        socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        nix::sys::socket::setsockopt(socket, nix::sys::socket::sockopt::RcvBufForce, &(64 << 20))
            .ok();
    }
    pilot.send(&frame(COMMAND, 0)).unwrap();
    thread::sleep(Duration::from_millis(1500));
    Pair { ground, aircraft, vehicle, pilot, camera, screen }
}

/// One-way delays in microseconds, sorted.
fn delays(from: &UdpSocket, to: &UdpSocket, message: u32) -> Vec<f64> {
    let clock = Clock::starting_now();
    let mut bytes = [0; 2048];
    let mut delays: Vec<f64> = (1..3000)
        .map(|number| {
            let frame = frame(message, number);
            thread::sleep(Duration::from_micros(500));
            let before = clock.now();
            from.send(&frame).unwrap();
            let length = to.recv(&mut bytes).unwrap();
            assert_eq!(bytes[..length], frame);
            clock.now().since(before).as_millis_f64() * 1000.0
        })
        .collect();
    delays.sort_by(f64::total_cmp);
    delays
}

fn show(what: &str, delays: &[f64]) {
    let at = |share: f64| delays[(share * (delays.len() - 1) as f64) as usize];
    println!("{what}: p50 {:.1} µs, p90 {:.1}, p99 {:.1}", at(0.5), at(0.9), at(0.99));
}

/// Sends `rate` datagrams a second for three seconds; gives how many arrived, and in what time.
fn flood(from: &UdpSocket, to: &UdpSocket, rate: u32, make: impl Fn(u32) -> Vec<u8> + Sync) -> f64 {
    let clock = Clock::starting_now();
    let total = rate * 3;
    thread::scope(|scope| {
        scope.spawn(|| {
            let begin = clock.now();
            for number in 0..total {
                let due = f64::from(number) / f64::from(rate);
                while clock.now().since(begin).as_secs_f64() < due {
                    thread::sleep(Duration::from_micros(100));
                }
                from.send(&make(number)).unwrap();
            }
        });
        let (mut bytes, mut count, mut last) = ([0; 2048], 0, 0.0);
        let mut begin = None;
        while to.recv(&mut bytes).is_ok() {
            let now = clock.now();
            let begin = *begin.get_or_insert(now);
            count += 1;
            last = now.since(begin).as_secs_f64();
        }
        let share = f64::from(count) / f64::from(total);
        println!("  {rate} a second: {:.2} % in {last:.2} s", share * 100.0);
        share
    })
}

#[test]
#[ignore = "it measures, and wants the machine for itself"]
fn speed() {
    let [bare] = free_ports();
    let to = UdpSocket::bind(("127.0.0.1", bare)).unwrap();
    show("a bare socket", &delays(&program(bare), &to, COMMAND));
    for paths in [1, 2] {
        let pair = pair(paths, "");
        show(&format!("{paths} paths, control"), &delays(&pair.vehicle, &pair.pilot, COMMAND));
        show(&format!("{paths} paths, telemetry"), &delays(&pair.vehicle, &pair.pilot, 111));
        println!("messages of 200 B, telemetry");
        for rate in [20_000, 50_000, 60_000, 80_000] {
            flood(&pair.vehicle, &pair.pilot, rate, |number| frame(111, number));
        }
        println!("messages of 200 B, control");
        for rate in [20_000, 50_000, 60_000] {
            flood(&pair.vehicle, &pair.pilot, rate, |number| frame(COMMAND, number));
        }
        println!("video of 1200 B");
        for rate in [20_000, 40_000, 73_000] {
            flood(&pair.camera, &pair.screen, rate, |number| vec![number as u8; 1200]);
        }
        let shown = pair.ground.shared.snapshot().unwrap();
        let air = pair.aircraft.shared.snapshot().unwrap();
        for (sent, got) in air.classes.iter().zip(&shown.classes) {
            println!(
                "{}: written {} refused {} delivered {} late {} superseded {}",
                sent.name, sent.written, sent.refused, got.delivered, got.late, got.superseded
            );
        }
        println!("{:?}", pair.aircraft.shared.edges());
        println!("{:?}", pair.ground.shared.edges());
    }
}
