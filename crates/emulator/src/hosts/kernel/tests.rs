//! Flows over loopback, within one process and without privileges.

use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use nix::poll::{PollFd, ppoll};
use nix::sys::time::{TimeSpec, TimeValLike};
use skybraid_host::record::FlowRecord;
use skybraid_host::{FlowSetup, Host, Outcome};
use skybraid_traffic::TrafficConfig;
use skybraid_transport::config::Protocol;
use skybraid_transport::congestion::CongestionConfig;
use skybraid_transport::scheduler::SchedulerConfig;
use skybraid_transport::{Class, TransportConfig};
use skybraid_units::{Bytes, Duration, Instant, Rate};
use socket2::Domain;

use super::*;
use skybraid_io::clock::Clock;

/// Returns a flow of 0.3 s over TCP that starts with the run.
pub fn flow(traffic: &str, congestion: &str) -> FlowSetup {
    let traffic = match traffic {
        "cbr" => TrafficConfig::Cbr { rate: Rate::from_mbps(20.0), packet: Bytes::new(1000) },
        "bulk" => TrafficConfig::Bulk { packet: Bytes::new(16_384) },
        "file" => TrafficConfig::File { size: Bytes::new(3_000_001) },
        _ => TrafficConfig::Ping { every: Duration::from_millis(10), packet: Bytes::new(56) },
    };
    FlowSetup {
        name: "video".to_owned(),
        group: "video".to_owned(),
        from: Host::Vehicle,
        class: Class::Data,
        start: Instant::ZERO,
        stop: Instant::from_millis(300),
        traffic,
        transport: TransportConfig {
            protocol: Protocol::Tcp,
            congestion: CongestionConfig::by_name(congestion).unwrap(),
            ..TransportConfig::default()
        }
        .into(),
        paths: vec![0],
        deadline: None,
        judged_by: Vec::new(),
        frames_within: Vec::new(),
        judges_delays: false,
        rides_with: None,
        copies: 1,
        proxies: Vec::new(),
    }
}

fn over_mptcp(mut flow: FlowSetup) -> FlowSetup {
    let transport = Arc::make_mut(&mut flow.transport);
    transport.protocol = Protocol::Mptcp;
    transport.scheduler = SchedulerConfig::by_name("linux").unwrap();
    flow
}

/// A run of one flow.
struct Run {
    flow: KernelFlow,
    outcome: Outcome,
    clock: Clock,
}

const END: Instant = Instant::from_millis(2000);

fn ends<'a>(vehicle: &str, in_vehicle: MakeSocket<'a>, in_ground: MakeSocket<'a>) -> Ends<'a> {
    let vehicle: IpAddr = vehicle.parse().unwrap();
    let ground = "127.0.0.1".parse().unwrap();
    Ends { vehicle, ground, port: 0, paths: vec![(vehicle, 5)], in_vehicle, in_ground }
}

impl Run {
    fn new(setup: &FlowSetup, vehicle: &str) -> Result<Self, KernelError> {
        Self::within(setup, &ends(vehicle, &stream_socket, &stream_socket))
    }

    fn within(setup: &FlowSetup, ends: &Ends<'_>) -> Result<Self, KernelError> {
        let mut outcome = Outcome::default();
        let answers = setup.traffic.is_answered().then_some(1);
        for _ in 0..1 + answers.unwrap_or(0) {
            let record = FlowRecord::new(true, true, END, setup.paths.len(), &[]);
            outcome.flows.push(record.with_copies(setup.copies));
        }
        let flow = KernelFlow::open(setup, 0, answers, END, ends)?;
        Ok(Self { flow, outcome, clock: Clock::starting_now() })
    }

    /// Steps until `until`, or until nothing is left to do, with a sample every 100 ms.
    fn until(&mut self, until: Instant) -> Result<(), KernelError> {
        let mut sample = Instant::from_millis(100);
        loop {
            let now = self.clock.now();
            if now >= until {
                return Ok(());
            }
            if now >= sample {
                self.flow.sample(now, &mut self.outcome);
                sample += Duration::from_millis(100);
            }
            self.flow.step(now, &mut self.outcome)?;
            let interest: Vec<Interest> = self.flow.interest().collect();
            let due = self.flow.next_due();
            if interest.is_empty() && due == Instant::FAR_FUTURE {
                return Ok(());
            }
            wait(&interest, due.min(sample).min(until) - self.clock.now());
        }
    }

    fn finish(mut self) -> (Outcome, Finished) {
        let finished = self.flow.finish(&mut self.outcome);
        self.outcome.flows.iter_mut().for_each(|record| record.finish(&[]));
        (self.outcome, finished)
    }
}

fn wait(interest: &[Interest], span: Duration) {
    let mut polled: Vec<PollFd<'_>> = interest.iter().map(Interest::polled).collect();
    let span = TimeSpec::nanoseconds(span.as_nanos().max(0));
    ppoll(&mut polled, Some(span), None).unwrap();
}

/// Runs `setup` to its end.
fn run(setup: &FlowSetup, vehicle: &str) -> (Outcome, Finished) {
    let mut run = Run::new(setup, vehicle).unwrap();
    run.until(END).unwrap();
    run.finish()
}

#[test]
fn messages_at_a_constant_rate_arrive_whole_and_in_order() {
    for from in [Host::Vehicle, Host::Ground] {
        let mut setup = flow("cbr", "reno");
        setup.from = from;
        let (outcome, finished) = run(&setup, "127.0.0.2");
        let record = &outcome.flows[0];
        // 20 Mbit/s for 0.3 s in messages of 1000 B.
        assert_eq!((record.summary.sent, record.summary.delivered), (750, 750));
        assert_eq!(record.summary.delivered_bytes, 750_000);
        assert_eq!((record.summary.lost, record.summary.in_flight), (0, 0));
        let rows: Vec<_> = record.blocks().flatten().collect();
        assert!(rows.windows(2).all(|pair| pair[0].delivered() <= pair[1].delivered()));
        assert!(rows.iter().all(|row| row.path == 0 && row.delivered() >= Some(row.sent())));
        assert_eq!((rows[0].copies_sent, rows[0].copies_arrived), (1, 1));
        assert_eq!(finished.sent_by_second.iter().sum::<u64>(), 750_000);
        assert_eq!(finished.received_by_second, finished.sent_by_second);
        assert!(finished.handshake.is_some_and(|took| took < Duration::from_millis(100)));
        assert!(!finished.fell_back && finished.ended.is_none());
    }
}

#[test]
fn pings_are_answered_and_answers_carry_the_questions_time() {
    let (outcome, _) = run(&flow("ping", "reno"), "127.0.0.2");
    let [questions, answers] = &outcome.flows[..] else { panic!("two records") };
    assert_eq!((questions.summary.sent, questions.summary.delivered), (30, 30));
    assert_eq!((answers.summary.sent, answers.summary.delivered), (30, 30));
    let pairs = questions.blocks().flatten().zip(answers.blocks().flatten());
    for (question, answer) in pairs {
        assert_eq!(question.sent(), answer.sent());
        assert!(answer.delivered() >= question.delivered());
    }
    // Both ends write, so both are sampled.
    assert!(
        [true, false].iter().all(|end| outcome.subflows.iter().any(|row| row.vehicle() == *end))
    );
}

#[test]
fn a_message_written_three_times_counts_once() {
    let mut setup = flow("ping", "reno");
    setup.copies = 3;
    let (outcome, finished) = run(&setup, "127.0.0.2");
    for record in &outcome.flows {
        assert_eq!((record.summary.sent, record.summary.delivered), (30, 30));
        let copies = record.blocks().flatten().map(|row| (row.copies_sent, row.copies_arrived));
        assert!(copies.into_iter().all(|copies| copies == (3, 3)));
    }
    assert_eq!(finished.sent_by_second.iter().sum::<u64>(), 3 * 30 * 56);
}

#[test]
fn a_file_arrives_as_one_message() {
    let (outcome, finished) = run(&flow("file", "reno"), "127.0.0.2");
    let summary = &outcome.flows[0].summary;
    assert_eq!((summary.delivered, summary.delivered_bytes), (1, 3_000_001));
    assert_eq!(finished.received_by_second.iter().sum::<u64>(), 3_000_001);
}

#[test]
fn bulk_fills_the_connection_and_samples_fit_its_bytes() {
    let (outcome, finished) = run(&flow("bulk", "reno"), "127.0.0.2");
    let summary = &outcome.flows[0].summary;
    // Loopback carries gigabits; even a busy machine achieves 100 Mbit/s for 0.3 s.
    assert!(summary.delivered_bytes > 3_750_000, "{}", summary.delivered_bytes);
    assert_eq!((summary.sent, summary.in_flight), (summary.delivered, 0));
    let rows = &outcome.subflows;
    assert!(!rows.is_empty());
    for row in rows {
        assert_eq!((row.flow, row.vehicle(), row.path, row.subflow), (0, true, 5, 0));
        assert!(row.window > 0 && row.in_flight <= row.window, "{row:?}");
        assert!(row.srtt.is_some_and(|srtt| srtt < Duration::from_secs(1)), "{row:?}");
        assert_eq!(row.pacing_bps, None);
    }
    let acked: u64 = rows.iter().map(|row| row.acked_bytes).sum();
    // The SYN and the FIN count as a byte each.
    assert!(acked <= summary.delivered_bytes + 2 && acked > 0);
    assert!(summary.packets_by_path[0] >= summary.delivered_bytes / 65_536);
    assert_eq!(finished.subflows, 1);
}

#[test]
fn each_allowed_congestion_control_is_set_at_both_ends() {
    let available = "/proc/sys/net/ipv4/tcp_available_congestion_control";
    let available = std::fs::read_to_string(available).unwrap();
    for name in ["reno", "cubic", "bbr"] {
        let run = Run::new(&flow("cbr", name), "127.0.0.2");
        let mut run = match run {
            Ok(run) => run,
            Err(KernelError::Congestion { name: refused, available: offered, .. }) => {
                assert_eq!((refused.as_str(), offered.as_str()), (name, available.trim()));
                println!("skipped: {name} is not there or needs root");
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        run.until(Instant::from_millis(50)).unwrap();
        for end in run.flow.sockets() {
            let set = end.tcp_congestion().unwrap();
            assert_eq!(set.split(|byte| *byte == 0).next(), Some(name.as_bytes()));
        }
        assert_eq!(run.finish().1.congestion, name);
    }
}

#[test]
fn only_a_paced_connection_has_a_pacing_rate() {
    let mut setup = flow("bulk", "reno");
    Arc::make_mut(&mut setup.transport).pacing = true;
    let (outcome, _) = run(&setup, "127.0.0.2");
    assert!(!outcome.subflows.is_empty());
    assert!(outcome.subflows.iter().all(|row| row.pacing_bps.is_some_and(|rate| rate > 0)));
}

#[test]
fn a_segment_and_buffers_that_are_given_are_set() {
    let mut setup = flow("bulk", "reno");
    let transport = Arc::make_mut(&mut setup.transport);
    transport.segment = Some(Bytes::new(1000));
    transport.receive_buffer = Bytes::new(50_000);
    transport.send_buffer = Bytes::new(40_000);
    let mut run = Run::new(&setup, "127.0.0.2").unwrap();
    run.until(Instant::from_millis(50)).unwrap();
    for end in run.flow.sockets() {
        assert_eq!(info::tcp_info(end.as_fd()).unwrap().segment, 1000);
        assert_eq!(end.recv_buffer_size().unwrap(), 100_000);
        assert_eq!(end.send_buffer_size().unwrap(), 80_000);
    }
}

#[test]
fn a_refused_connection_names_the_flow_and_both_addresses() {
    let tcp = flow("cbr", "reno");
    for setup in [Some(tcp.clone()), has_mptcp().then(|| over_mptcp(tcp))].into_iter().flatten() {
        let mut run = Run::new(&setup, "127.0.0.2").unwrap();
        run.flow.stop_listening();
        let error = run.until(END).unwrap_err().to_string();
        assert!(error.contains("`video`") && error.contains("vehicle 127.0.0.2:"), "{error}");
        assert!(error.contains("connecting failed: Connection refused"), "{error}");
        assert_eq!(run.flow.interest().count(), 0);
        // The application continues in vain.
        run.until(END).unwrap();
        assert_eq!(run.flow.next_due(), Instant::FAR_FUTURE);
        let (outcome, finished) = run.finish();
        assert_eq!(finished.handshake, None);
        let summary = &outcome.flows[0].summary;
        assert_eq!((summary.delivered, summary.refused), (0, summary.sent));
        assert!(summary.sent > 0);
    }
}

#[test]
fn a_reset_connection_ends_its_flow_and_keeps_what_was_recorded() {
    let setup = flow("cbr", "reno");
    let mut run = Run::new(&setup, "127.0.0.2").unwrap();
    run.until(Instant::from_millis(100)).unwrap();
    let rows = run.outcome.flows[0].blocks().flatten();
    let before = rows.filter(|row| row.delivered().is_some()).count() as u64;
    assert!(before > 0);
    // A connection that is closed without lingering is reset.
    let [_, receiver] = run.flow.sockets();
    receiver.set_linger(Some(std::time::Duration::ZERO)).unwrap();
    run.flow.close_receiver();
    let error = run.until(END).unwrap_err();
    assert!(matches!(&error, KernelError::Connection { flow, .. } if flow == "video"), "{error}");
    assert!(["reset", "pipe"].iter().any(|word| error.to_string().contains(word)), "{error}");
    assert_eq!(run.flow.ended(), Some(&error));
    assert_eq!(run.flow.step(run.clock.now(), &mut run.outcome), Ok(()));
    let (outcome, finished) = run.finish();
    assert_eq!(finished.ended, Some(error));
    let summary = &outcome.flows[0].summary;
    assert_eq!(summary.delivered, before);
    assert_eq!((summary.lost, summary.in_flight), (summary.sent - before, 0));
    assert!(summary.lost > 0);
}

#[test]
fn a_message_that_does_not_arrive_is_found_when_the_stream_ends() {
    let mut run = Run::new(&flow("cbr", "reno"), "127.0.0.2").unwrap();
    run.until(Instant::from_millis(100)).unwrap();
    run.outcome.flows[0].on_written(run.clock.now(), 1000);
    let error = run.until(END).unwrap_err();
    let KernelError::Framing { error, .. } = error else { panic!("{error}") };
    // The next message sent has the number after the one that was never sent.
    assert!(
        matches!(error, framing::FramingError::Number { expected, found } if found == expected + 1)
    );
}

#[test]
fn a_kernel_without_mptcp_is_distinguished_from_other_errors() {
    for (number, expected) in
        [(libc::EPROTONOSUPPORT, "CONFIG_MPTCP"), (libc::EMFILE, "make a socket")]
    {
        let absent =
            |_: Domain, _: socket2::Protocol| Err(std::io::Error::from_raw_os_error(number));
        let ends = ends("127.0.0.2", &absent, &absent);
        let error = Run::within(&over_mptcp(flow("cbr", "reno")), &ends).err().unwrap();
        assert!(error.to_string().contains(expected), "{error}");
    }
}

/// Returns true if the kernel has MPTCP; logs if it has not.
fn has_mptcp() -> bool {
    let made = stream_socket(Domain::IPV4, socket2::Protocol::MPTCP);
    if let Err(error) = &made {
        println!("skipped: no MPTCP here ({error})");
    }
    made.is_ok()
}

#[test]
fn an_mptcp_connection_keeps_mptcp_and_uses_its_path() {
    if !has_mptcp() {
        return;
    }
    for from in [Host::Vehicle, Host::Ground] {
        let mut setup = over_mptcp(flow("cbr", "reno"));
        setup.from = from;
        let (outcome, finished) = run(&setup, "127.0.0.2");
        let summary = &outcome.flows[0].summary;
        assert_eq!((summary.sent, summary.delivered), (750, 750));
        assert!(!finished.fell_back);
        assert_eq!(finished.subflows, 1);
        assert!(!outcome.subflows.is_empty());
        assert!(outcome.subflows.iter().all(|row| row.path == 5 && row.window > 0));
        assert!(outcome.flows[0].blocks().flatten().all(|row| row.path == u8::MAX));
        assert!(summary.packets_by_path[0] > 0);
    }
}

#[test]
fn an_mptcp_connection_to_a_peer_that_speaks_tcp_falls_back() {
    if !has_mptcp() {
        return;
    }
    for from in [Host::Vehicle, Host::Ground] {
        let mut setup = over_mptcp(flow("cbr", "reno"));
        setup.from = from;
        Arc::make_mut(&mut setup.transport).peer_multipath = false;
        let (outcome, finished) = run(&setup, "127.0.0.2");
        let summary = &outcome.flows[0].summary;
        assert_eq!((summary.sent, summary.delivered), (750, 750));
        assert!(finished.fell_back, "{from:?}");
        assert!(outcome.subflows.iter().all(|row| row.path == 5));
    }
}

/// Runs a program with these arguments, if it exists.
fn ran(command: &str) -> bool {
    let mut words = command.split(' ');
    let run = std::process::Command::new(words.next().unwrap()).args(words).status();
    run.is_ok_and(|status| status.success())
}

/// Runs `work` in its own network namespace prepared by `commands`; logs if that fails.
fn in_own_namespace<T: Send + 'static>(
    commands: &'static [&'static str],
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    // Uses a separate thread, since the namespace belongs to the thread.
    let thread = std::thread::spawn(|| {
        if nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).is_err() {
            println!("skipped: making a network namespace needs root");
            return None;
        }
        if let Some(failed) = commands.iter().find(|command| !ran(command)) {
            println!("skipped: `{failed}` failed");
            return None;
        }
        Some(work())
    });
    thread.join().unwrap()
}

#[test]
fn each_subflow_of_mptcp_has_rows_on_the_path_of_its_address() {
    if !has_mptcp() {
        return;
    }
    let commands = &[
        "ip link set lo up",
        "ip mptcp limits set subflows 4",
        "ip mptcp endpoint add 127.0.0.3 dev lo subflow",
    ];
    let ran = in_own_namespace(commands, || {
        let mut setup = over_mptcp(flow("bulk", "reno"));
        setup.paths = vec![0, 1];
        let mut ends = ends("127.0.0.2", &stream_socket, &stream_socket);
        ends.paths.push(("127.0.0.3".parse().unwrap(), 9));
        let mut run = Run::within(&setup, &ends).unwrap();
        run.until(END).unwrap();
        run.finish()
    });
    let Some((outcome, finished)) = ran else { return };
    assert!(!finished.fell_back);
    assert_eq!(finished.subflows, 2);
    for (subflow, path) in [(0, 5), (1, 9)] {
        let mut rows = outcome.subflows.iter().filter(|row| row.subflow == subflow);
        assert!(rows.all(|row| row.path == path && row.window > 0));
        assert!(outcome.subflows.iter().any(|row| row.path == path && row.acked_bytes > 0));
        assert!(outcome.flows[0].summary.packets_by_path[usize::from(subflow)] > 0);
    }
    let summary = &outcome.flows[0].summary;
    assert_eq!((summary.sent, summary.in_flight), (summary.delivered, 0));
}

#[test]
fn sockets_stay_in_the_namespaces_in_which_they_were_made() {
    let ran = in_own_namespace(&[], || {
        let here = || std::fs::File::open("/proc/thread-self/ns/net").unwrap();
        let enter = |namespace: &std::fs::File| {
            nix::sched::setns(namespace, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
        };
        let vehicle = here();
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
        let ground = here();
        let there = format!("/proc/{}/fd/{}", std::process::id(), vehicle.as_raw_fd());
        if !ran(&format!("ip link add g type veth peer name v netns {there}")) {
            println!("skipped: `ip` cannot make veths");
            return None;
        }
        assert!(ran("ip address add 10.0.0.2/24 dev g") && ran("ip link set g up"));
        enter(&vehicle);
        assert!(ran("ip address add 10.0.0.1/24 dev v") && ran("ip link set v up"));
        // The thread that runs the flow has a third namespace, with no interface that is up.
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
        let own = here();
        let within = |namespace: &std::fs::File, domain, protocol| {
            enter(namespace);
            let socket = stream_socket(domain, protocol);
            enter(&own);
            socket
        };
        let in_vehicle = |domain, protocol| within(&vehicle, domain, protocol);
        let in_ground = |domain, protocol| within(&ground, domain, protocol);
        let mut ends = ends("10.0.0.1", &in_vehicle, &in_ground);
        ends.ground = "10.0.0.2".parse().unwrap();
        ends.port = 5000;
        let mut run = Run::within(&flow("ping", "reno"), &ends).unwrap();
        run.until(END).unwrap();
        Some(run.finish())
    });
    let Some((outcome, finished)) = ran.flatten() else { return };
    assert_eq!(outcome.flows[1].summary.delivered, 30);
    assert_eq!(finished.addresses.1.to_string(), "10.0.0.2:5000");
}

/// Returns the kernel's count of segments retransmitted in this thread's namespace.
fn retransmissions() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
    let mut lines = text.lines().filter(|line| line.starts_with("Tcp:"));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let mut pairs = names.split(' ').zip(values.split(' '));
    pairs.find(|(name, _)| *name == "RetransSegs").unwrap().1.parse().unwrap()
}

#[test]
fn a_bottleneck_shows_in_goodput_retransmissions_and_reductions() {
    let commands = &[
        "ip link set lo mtu 1500 up",
        "tc qdisc add dev lo root tbf rate 20mbit burst 10kb limit 60kb",
    ];
    let ran = in_own_namespace(commands, || {
        let mut setup = flow("bulk", "reno");
        setup.stop = END;
        let mut run = Run::new(&setup, "127.0.0.2").unwrap();
        run.until(END).unwrap();
        run.flow.sample(END, &mut run.outcome);
        (run.finish(), retransmissions())
    });
    let Some(((outcome, finished), counted)) = ran else { return };
    // Payload of 1448 B in packets of 1514 B with their Ethernet headers shares 20 Mbit/s for 2 s with the
    // acknowledgements; the maximum is 4.78 MB.
    let bytes = outcome.flows[0].summary.delivered_bytes;
    assert!((3_500_000..4_790_000).contains(&bytes), "{bytes}");
    let rows = &outcome.subflows;
    assert_eq!(finished.retransmitted, counted);
    assert_eq!(rows.iter().map(|row| row.retransmitted).sum::<u64>(), counted);
    assert!(counted > 0);
    assert!(rows.iter().map(|row| row.lost).sum::<u64>() >= counted);
    let reductions: u64 = rows.iter().map(|row| row.reductions).sum();
    assert!((1..=counted).contains(&reductions), "{reductions} of {counted}");
    assert!(rows.last().unwrap().threshold < 200_000);
    // The queue of 60 kB drains in 24 ms.
    let srtt = rows.last().unwrap().srtt.unwrap();
    assert!((1..60).contains(&(srtt.as_nanos() / 1_000_000)), "{srtt:?}");
}

/// Returns the processor time of the calling thread.
fn processor() -> Duration {
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap();
    Duration::from_secs(time.tv_sec()) + Duration::from_nanos(time.tv_nsec())
}

#[test]
#[ignore = "a measurement of some seconds"]
fn a_gigabit_takes_at_most_half_a_core() {
    for (protocol, bytes) in [("tcp", 1200), ("tcp", 16_384), ("mptcp", 1200)] {
        let mut setup = flow("cbr", "cubic");
        let packet = Bytes::new(bytes);
        setup.traffic = TrafficConfig::Cbr { rate: Rate::from_mbps(1000.0), packet };
        setup.stop = Instant::from_millis(2000);
        if protocol == "mptcp" {
            setup = over_mptcp(setup);
        }
        let mut run = Run::new(&setup, "127.0.0.2").unwrap();
        let before = processor();
        run.until(END).unwrap();
        let share = (processor() - before).as_secs_f64() / END.as_secs_f64();
        let (outcome, _) = run.finish();
        let summary = &outcome.flows[0].summary;
        let mbps = summary.delivered_bytes as f64 * 8e-6 / END.as_secs_f64();
        println!("{protocol}, {bytes} B: {mbps:.0} Mbit/s, {:.0} % of a core", share * 100.0);
        assert!(mbps > 950.0 && share < 0.5);
    }
    let mut setup = flow("bulk", "cubic");
    setup.stop = Instant::from_millis(2000);
    let mut run = Run::new(&setup, "127.0.0.2").unwrap();
    let before = processor();
    run.until(END).unwrap();
    let share = (processor() - before).as_secs_f64() / END.as_secs_f64();
    let bytes = run.finish().0.flows[0].summary.delivered_bytes as f64;
    let gbps = bytes * 8e-9 / END.as_secs_f64();
    println!("tcp, bulk: {gbps:.1} Gbit/s, {:.0} % of a core", share * 100.0);
}
