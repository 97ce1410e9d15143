//! Links in real time, with real packets between network namespaces. Takes root.

use std::io::ErrorKind;
use std::net::UdpSocket;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration as StdDuration;

use crate::bed::{self, Bed, come_first};
use pcap_file::pcapng::{Block, PcapNgReader};
use skybraid_emulator::forward::{Command, Forwarded, Forwarder, Lane, Options};
use skybraid_host::record::{PacketKind, Record};
use skybraid_io::clock::Clock;
use skybraid_link::{
    Cause, DelaySource, Direction, Distribution, Link, LinkConfig, LossSource, QueueConfig,
    RateSource,
};
use skybraid_units::{Bytes, Duration, Instant, Probability, Rate, Seed};

/// Timing is measured by one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn ms(millis: i64) -> Duration {
    Duration::from_millis(millis)
}

/// 9000-byte packets, no limit to the queue.
fn config(rate: Rate, delay: Duration) -> LinkConfig {
    LinkConfig {
        mtu: Bytes::new(9000),
        queue: QueueConfig::Unlimited,
        ..LinkConfig::plain(RateSource::Constant(rate), delay)
    }
}

fn lane(bed: &Bed, path: usize, up: &LinkConfig, down: &LinkConfig) -> Lane {
    let name = format!("p{path}");
    Lane {
        up: vec![Link::new(up, &name, "uplink", Seed(1))],
        down: vec![Link::new(down, &name, "downlink", Seed(1))],
        name,
        ends: bed.ends(path),
    }
}

fn start(bed: &Bed, lanes: Vec<Lane>, options: Options) -> Forwarder {
    bed.emulator.run(|| Forwarder::start(lanes, options)).unwrap()
}

fn plain() -> Options {
    Options::new(Clock::starting_now())
}

/// A socket at each host on path 0, each knowing the other.
fn sockets(bed: &Bed) -> [UdpSocket; 2] {
    let open = |host: &bed::Namespace, own: &str| {
        let socket = host.run(|| UdpSocket::bind(own)).unwrap();
        socket.set_read_timeout(Some(StdDuration::from_millis(400))).unwrap();
        nix::sys::socket::setsockopt(&socket, nix::sys::socket::sockopt::RcvBufForce, &(8 << 20))
            .unwrap();
        socket
    };
    let pair = [open(&bed.vehicle, "10.0.0.1:7000"), open(&bed.ground, "10.0.0.2:7000")];
    pair[0].connect("10.0.0.2:7000").unwrap();
    pair[1].connect("10.0.0.1:7000").unwrap();
    pair
}

fn sleep(span: Duration) {
    std::thread::sleep(StdDuration::from_nanos(span.as_nanos() as u64));
}

/// The numbers of the packets that come until none comes any more, with their times.
fn arrivals(socket: &UdpSocket, clock: Clock) -> Vec<(u32, Instant)> {
    let mut buffer = [0; 65_536];
    let mut all = Vec::new();
    loop {
        match socket.recv(&mut buffer) {
            Ok(length) if length >= 4 => {
                let number = u32::from_le_bytes(buffer[..4].try_into().unwrap());
                all.push((number, clock.now()));
            }
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return all,
            Err(error) => panic!("{error}"),
        }
    }
}

/// A numbered packet of so many payload bytes.
fn packet(number: u32, payload: usize) -> Vec<u8> {
    let mut packet = vec![0; payload];
    packet[..4].copy_from_slice(&number.to_le_bytes());
    packet
}

fn check(forwarded: &Forwarded) {
    for account in &forwarded.accounts {
        assert!(account.adds_up(), "{account:?}");
        assert_eq!(account.lost_by_emulator(), 0, "{account:?}");
    }
}

/// The kernel puts up with an interface that is switched off for as long as it is asked: a forwarder that
/// asked again and again would have no time for other paths.
#[test]
fn an_interface_that_is_off_is_an_outage_of_its_path_alone() {
    let _turn = alone();
    let Some(bed) = Bed::new(&[1500, 1500]) else { return };
    let link = config(Rate::from_mbps(100.0), ms(5));
    let options = plain();
    let clock = options.clock;
    let lanes = [0, 1].map(|path| lane(&bed, path, &link, &link));
    let forwarder = start(&bed, lanes.into(), options);
    let [vehicle, ground] = sockets(&bed);
    let open = |host: &bed::Namespace, own: &str, other: &str| {
        let socket = host.run(|| UdpSocket::bind(own)).unwrap();
        socket.connect(other).unwrap();
        socket.set_read_timeout(Some(StdDuration::from_millis(100))).unwrap();
        socket
    };
    ground.set_read_timeout(Some(StdDuration::from_millis(100))).unwrap();
    let other = open(&bed.vehicle, "10.1.0.1:7000", "10.1.0.2:7000");
    let beyond = open(&bed.ground, "10.1.0.2:7000", "10.1.0.1:7000");
    let mut outages = 0;
    let mut probes = 0;
    let mut last = 0;
    let both = |from: u32, count: u32| {
        for number in from..from + count {
            // Without a carrier the kernel may say so.
            vehicle.send(&packet(number, 64)).ok();
            other.send(&packet(number, 64)).unwrap();
            sleep(ms(1));
        }
        let numbers = |socket: &UdpSocket| -> Vec<u32> {
            arrivals(socket, clock).into_iter().map(|(number, _)| number).collect()
        };
        let all: Vec<u32> = (from..from + count).collect();
        assert_eq!(numbers(&beyond), all);
        let came = numbers(&ground);
        assert!(came == all || came.is_empty(), "{came:?}");
        came.len()
    };
    assert_eq!(both(0, 10), 10);
    let faults: [(&bed::Namespace, &str, u32); 3] =
        [(&bed.ground, "p0", 100), (&bed.emulator, "g0", 100), (&bed.emulator, "v0", 0)];
    for (place, interface, lost) in faults {
        last += 1000;
        place.switch(interface, false);
        assert_eq!(both(last, 100), 0, "{interface}");
        place.switch(interface, true);
        outages += lost;
        // Neighbours ask for one another once a second at most.
        let mut meets = |_| {
            probes += 1;
            vehicle.send(&packet(0, 64)).ok();
            !arrivals(&ground, clock).is_empty()
        };
        assert!((0..50).any(&mut meets), "{interface} does not come up");
        last += 1000;
        assert_eq!(both(last, 100), 100, "{interface}");
    }
    bed.emulator.delete("g0");
    assert_eq!(both(last + 1000, 100), 0);
    outages += 100;
    let forwarded = forwarder.stop().unwrap();
    check(&forwarded);
    let lost = forwarded.accounts[0].lost;
    let expected = u64::from(outages)..=u64::from(outages + probes);
    assert!(expected.contains(&lost[Cause::Outage as usize]), "{:?}", forwarded.accounts);
    assert_eq!(lost.iter().sum::<u64>(), lost[Cause::Outage as usize]);
    assert!(forwarded.lateness.quantile(0.5) < ms(1));
}

#[test]
fn the_delay_of_each_direction_is_kept() {
    let _turn = alone();
    let Some(bed) = Bed::new(&[1500]) else { return };
    let rate = Rate::from_mbps(10_000.0);
    let (up, down) = (config(rate, ms(20)), config(rate, ms(7)));
    let options = plain();
    let clock = options.clock;
    let forwarder = start(&bed, vec![lane(&bed, 0, &up, &down)], options);
    let [vehicle, ground] = sockets(&bed);
    // Neighbours get to know each other first.
    vehicle.send(&packet(0, 64)).unwrap();
    ground.recv(&mut [0; 64]).unwrap();
    for (from, to, delay) in [(&vehicle, &ground, ms(20)), (&ground, &vehicle, ms(7))] {
        let from = from.try_clone().unwrap();
        let sender = std::thread::spawn(move || {
            come_first();
            let times = (0..100).map(|number| {
                sleep(ms(2));
                let sent = clock.now();
                from.send(&packet(number, 64)).unwrap();
                sent
            });
            times.collect::<Vec<_>>()
        });
        let to = to.try_clone().unwrap();
        let receiver = std::thread::spawn(move || {
            come_first();
            arrivals(&to, clock)
        });
        let (sent, came) = (sender.join().unwrap(), receiver.join().unwrap());
        assert_eq!(came.len(), 100);
        let mut errors: Vec<i64> = came
            .iter()
            .map(|(number, at)| (*at - sent[*number as usize] - delay).as_nanos() / 1000)
            .collect();
        errors.sort_unstable();
        // At most 20 µs early; late by what a veth and waking up cost, and that of a busy machine.
        assert!(errors[0] >= -20, "{} µs", errors[0]);
        assert!(errors[50] <= 250, "{} µs", errors[50]);
    }
    let forwarded = forwarder.stop().unwrap();
    check(&forwarded);
    assert!(forwarded.lateness.earliest() <= Duration::from_micros(20));
    assert_eq!(forwarded.lateness.total(), 201);
}

#[test]
#[ignore = "measures times, which a busy machine spoils: make kernel"]
fn a_link_gives_its_rate_and_no_more_and_keeps_the_order() {
    let _turn = alone();
    let Some(bed) = Bed::new(&[1500]) else { return };
    let rate = Rate::from_mbps(8.0);
    let forwarder =
        start(&bed, vec![lane(&bed, 0, &config(rate, ms(5)), &config(rate, ms(5)))], plain());
    let clock = Clock::starting_now();
    let [vehicle, ground] = sockets(&bed);
    // Neighbours get to know each other first.
    vehicle.send(&packet(0, 64)).unwrap();
    ground.recv(&mut [0; 64]).unwrap();
    let receiver = std::thread::spawn(move || {
        come_first();
        arrivals(&ground, clock)
    });
    // 1000 B with headers: 1 ms each, passed on at once.
    let count = 600;
    for number in 0..count {
        vehicle.send(&packet(number, 972)).unwrap();
    }
    let came = receiver.join().unwrap();
    check(&forwarder.stop().unwrap());
    assert!(came.iter().map(|(number, _)| *number).eq(0..count), "{} came", came.len());
    let span = came[came.len() - 1].1 - came[0].1;
    let error = span.as_secs_f64() / (f64::from(count - 1) * 1e-3) - 1.0;
    assert!(error.abs() < 0.003, "{error}");
}

#[test]
fn every_packet_is_accounted_for_and_in_the_tables() {
    let _turn = alone();
    let Some(bed) = Bed::new(&[1500]) else { return };
    // 102 µs a packet: bursts of 40 overfill the queue of 20 on any machine.
    let rate = Rate::from_mbps(10.0);
    let mut up = config(rate, ms(5));
    up.losses = vec![LossSource::Uniform(Probability::new(0.2).unwrap())];
    up.queue = QueueConfig::Packets(20);
    let mut options = plain();
    options.record = Record { links: true, packets: true, ..Record::default() };
    // The flow is the vehicle's port less 7000, the same for both directions here.
    options.classifier = Some(Box::new(|packet| {
        let port = u16::from_be_bytes([*packet.get(20)?, *packet.get(21)?]);
        Some((port.checked_sub(7000)?, PacketKind::Data))
    }));
    let forwarder = start(&bed, vec![lane(&bed, 0, &up, &config(rate, ms(5)))], options);
    let [vehicle, ground] = sockets(&bed);
    let controls = forwarder.controls();
    for number in 0..1000 {
        vehicle.send(&packet(number, 100)).unwrap();
        if number % 40 == 0 {
            sleep(ms(2));
        }
    }
    let came = arrivals(&ground, Clock::starting_now()).len() as u64;
    ground.send(&packet(0, 100)).unwrap();
    vehicle.recv(&mut [0; 200]).unwrap();
    sleep(ms(150));
    let status = controls.snapshot();
    let forwarded = forwarder.stop().unwrap();
    check(&forwarded);
    let [uplink, downlink] = [forwarded.accounts[0], forwarded.accounts[1]];
    let lost: u64 = uplink.lost.iter().sum();
    assert_eq!((uplink.delivered, uplink.delivered + lost), (came, 1000));
    assert!(uplink.lost[Cause::Queue as usize] > 100, "{:?}", uplink.lost);
    assert!(uplink.lost[Cause::Random as usize] > 50, "{:?}", uplink.lost);
    assert_eq!(downlink.delivered, 1);
    assert_eq!(forwarded.lost_by_flow, vec![uplink.lost]);
    assert_eq!(forwarded.link_totals[0].delivered_bytes, came * 128);
    assert_eq!(forwarded.packets.len(), 1001);
    let delivered = forwarded.packets.iter().filter(|row| row.cause.is_none());
    assert_eq!(delivered.count() as u64, came + 1);
    for row in forwarded.packets.iter().filter(|row| row.cause.is_none()) {
        assert!(row.left - row.entered >= ms(5));
    }
    let sampled: u64 = forwarded
        .links
        .iter()
        .filter(|row| row.link == 0)
        .map(|row| u64::from(row.delivered))
        .sum();
    assert_eq!(sampled, came);
    let path = &status.paths[0];
    assert_eq!((path.name.as_str(), path.uplink.delivered), ("p0", came));
    assert_eq!(path.uplink.rate, rate);
    assert!(path.uplink.up && path.uplink.down_since.is_none());
}

#[test]
fn frames_that_carry_no_ip_are_not_shaped() {
    let _turn = alone();
    let Some(bed) = Bed::new(&[1500]) else { return };
    // All IP is lost.
    let mut lossy = config(Rate::from_mbps(100.0), ms(1));
    lossy.losses = vec![LossSource::Uniform(Probability::ONE)];
    let forwarder = start(&bed, vec![lane(&bed, 0, &lossy, &lossy)], plain());
    let [vehicle, ground] = sockets(&bed);
    vehicle.send(&packet(1, 64)).unwrap();
    assert!(arrivals(&ground, Clock::starting_now()).is_empty());
    let neighbours =
        bed.vehicle.run(|| std::fs::read_to_string("/proc/thread-self/net/arp")).unwrap();
    assert!(neighbours.contains("10.0.0.2"), "{neighbours}");
    assert!(!neighbours.contains("00:00:00:00:00:00"), "{neighbours}");
    // Neighbour discovery passes too, and nothing else of IPv6.
    bed.with_ipv6();
    let over_ipv6 = bed.vehicle.run(|| UdpSocket::bind("[fd73:6b79::1]:0")).unwrap();
    let controls = forwarder.controls();
    let lost = || controls.snapshot().paths[0].uplink.lost[Cause::Random as usize];
    // The kernel may take up to a second until it uses a new interface for IPv6.
    for _ in 0..20 {
        over_ipv6.send_to(&packet(1, 64), "[fd73:6b79::2]:7000").unwrap();
        sleep(ms(150));
        if lost() > 1 {
            break;
        }
    }
    let forwarded = forwarder.stop().unwrap();
    check(&forwarded);
    // Both ask: over ARP, and by neighbour solicitation.
    assert!(forwarded.accounts[0].unshaped >= 2 && forwarded.accounts[1].unshaped >= 2);
    assert_eq!(forwarded.accounts[0].delivered, 0);
    assert!(forwarded.accounts[0].lost[Cause::Random as usize] >= 2);
}

#[test]
fn a_cut_path_carries_nothing_and_comes_back() {
    let _turn = alone();
    let Some(bed) = Bed::new(&[1500, 1500]) else { return };
    let slow = config(Rate::from_mbps(8.0), ms(30));
    let lanes = vec![lane(&bed, 0, &slow, &slow), lane(&bed, 1, &slow, &slow)];
    let forwarder = start(&bed, lanes, plain());
    let controls = forwarder.controls();
    let [vehicle, ground] = sockets(&bed);
    vehicle.send(&packet(0, 64)).unwrap();
    ground.recv(&mut [0; 64]).unwrap();
    // 100 ms of queue; some 20 have left after 20 ms and arrive although the path is cut.
    for number in 0..100 {
        vehicle.send(&packet(number, 972)).unwrap();
    }
    sleep(ms(20));
    controls.apply("p0", Command::Cut).unwrap();
    let status = controls.snapshot().paths;
    assert!(!status[0].uplink.up && !status[0].downlink.up && status[1].uplink.up);
    assert!(status[0].uplink.down_since.is_some());
    let came = arrivals(&ground, Clock::starting_now());
    assert!((15..60).contains(&came.len()), "{} came", came.len());
    assert!(came.iter().map(|(number, _)| *number).eq(0..came.len() as u32));
    vehicle.send(&packet(7, 100)).unwrap();
    assert!(arrivals(&ground, Clock::starting_now()).is_empty());
    controls.apply("p0", Command::Restore).unwrap();
    vehicle.send(&packet(8, 100)).unwrap();
    assert_eq!(arrivals(&ground, Clock::starting_now()).len(), 1);
    let error = controls.apply("p9", Command::Cut).unwrap_err().to_string();
    assert_eq!(error, "found path `p9`, expected one of `p0`, `p1`");
    let forwarded = forwarder.stop().unwrap();
    check(&forwarded);
    let outage = forwarded.accounts[0].lost[Cause::Outage as usize];
    assert_eq!(outage, 100 - came.len() as u64 + 1);
}

#[test]
#[ignore = "measures times, which a busy machine spoils: make kernel"]
fn rate_delay_and_loss_are_set_while_packets_flow() {
    let _turn = alone();
    let Some(bed) = Bed::new(&[1500]) else { return };
    let fast = config(Rate::from_mbps(100.0), ms(5));
    let options = plain();
    let clock = options.clock;
    let forwarder = start(&bed, vec![lane(&bed, 0, &fast, &fast)], options);
    let controls = forwarder.controls();
    let [vehicle, ground] = sockets(&bed);
    let trip = || {
        let sent = clock.now();
        vehicle.send(&packet(0, 972)).unwrap();
        arrivals(&ground, clock).first().map(|(_, at)| (*at - sent).as_millis_f64())
    };
    assert!((5.0..15.0).contains(&trip().unwrap()));
    let set = |direction, rate, delay, loss| {
        controls.apply("p0", Command::Set { direction, rate, delay, loss }).unwrap();
    };
    set(Some(Direction::Downlink), None, Some(ms(300)), None);
    assert!((5.0..15.0).contains(&trip().unwrap()));
    set(None, Some(Rate::from_mbps(0.4)), Some(ms(50)), None);
    // 1000 B at 0.4 Mbit/s: 20 ms.
    assert!((70.0..80.0).contains(&trip().unwrap()));
    set(Some(Direction::Uplink), None, None, Some(Probability::ONE));
    assert_eq!(trip(), None);
    controls.apply("p0", Command::Reset).unwrap();
    assert!((5.0..15.0).contains(&trip().unwrap()));
    check(&forwarder.stop().unwrap());
}

#[test]
fn small_and_jumbo_packets_pass_whole() {
    let _turn = alone();
    let Some(bed) = Bed::new(&[9000]) else { return };
    let fast = config(Rate::from_mbps(1000.0), ms(3));
    let folder = std::env::temp_dir().join(format!("skybraid-forward-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let options = Options { captures: Some(folder.clone()), ..plain() };
    let forwarder = start(&bed, vec![lane(&bed, 0, &fast, &fast)], options);
    let [vehicle, ground] = sockets(&bed);
    for payload in [4, 64, 1472, 8972] {
        let sent: Vec<u8> = (0..payload).map(|byte| byte as u8).collect();
        vehicle.send(&sent).unwrap();
        let mut buffer = [0; 9000];
        let length = ground.recv(&mut buffer).unwrap();
        assert!(sent == buffer[..length], "{payload} B");
    }
    let forwarded = forwarder.stop().unwrap();
    check(&forwarded);
    assert_eq!(forwarded.link_totals[0].delivered_bytes, 4 + 64 + 1472 + 8972 + 4 * 28);
    assert!(forwarded.uncaptured == 0 && forwarded.capture_error.is_none());
    let [left, came] = ["vehicle", "ground"].map(|host| {
        let file = std::fs::File::open(folder.join(format!("p0-{host}.pcapng"))).unwrap();
        let mut reader = PcapNgReader::new(file).unwrap();
        let mut times = Vec::new();
        while let Some(block) = reader.next_block() {
            if let Block::EnhancedPacket(packet) = block.unwrap() {
                // UDP, not ARP.
                if packet.data[12..14] == [8, 0] {
                    times.push((packet.timestamp, packet.data.len()));
                }
            }
        }
        times
    });
    assert_eq!(left.len(), 4);
    for ((left, length), (came, same)) in left.iter().zip(&came) {
        assert_eq!(length, same);
        assert!(*came - *left > StdDuration::from_micros(2980), "{left:?} {came:?}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn links_in_series_add_up_and_jitter_reorders_only_where_it_may() {
    let _turn = alone();
    let Some(bed) = Bed::new(&[1500]) else { return };
    let fast = config(Rate::from_mbps(1000.0), ms(10));
    let mut jittery = config(Rate::from_mbps(1000.0), ms(0));
    jittery.delay = DelaySource::Distribution(Distribution::exponential(ms(5)));
    jittery.reorder = true;
    let link = |config: &LinkConfig, name: &str| Link::new(config, name, "uplink", Seed(3));
    let lane = Lane {
        name: "p0".into(),
        ends: bed.ends(0),
        up: vec![link(&fast, "a"), link(&jittery, "b"), link(&fast, "c")],
        down: vec![link(&fast, "d")],
    };
    let options = plain();
    let clock = options.clock;
    let forwarder = start(&bed, vec![lane], options);
    let [vehicle, ground] = sockets(&bed);
    let start = clock.now();
    for number in 0..300 {
        vehicle.send(&packet(number, 100)).unwrap();
    }
    let came = arrivals(&ground, clock);
    check(&forwarder.stop().unwrap());
    assert_eq!(came.len(), 300);
    assert!(came.iter().all(|(_, at)| *at - start >= ms(20)));
    assert!(!came.is_sorted_by_key(|(number, _)| *number));
    // Some wait long: an exponential delay of mean 5 ms exceeds 15 ms with probability e⁻³.
    assert!(came[299].1 - start > ms(35));
}
