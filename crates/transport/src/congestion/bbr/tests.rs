use super::*;
use skybraid_units::Seed;

const SEGMENT: u64 = 1500;

fn bbr(compat: Compat) -> Bbr {
    let rules = Config { compat, ..Config::default() };
    let path = PathBasics {
        segment: Bytes::new(SEGMENT),
        initial_window: Bytes::new(10 * SEGMENT),
        initial_threshold: Bytes::new(u64::MAX),
        sack: true,
        seed: Seed(1),
    };
    Bbr::new(&rules, &path)
}

/// Returns the control in the middle of a flow of 10 Mbit/s over 50 ms.
fn steady(compat: Compat) -> Bbr {
    let mut control = bbr(compat);
    control.bandwidth.update(0, Rate::from_mbps(10.0), 10);
    control.min_rtt = MinRtt { value: Some(Duration::from_millis(50)), at: Instant::ZERO };
    control.filled = true;
    control.mode = Mode::ProbeBw { phase: 2, since: Instant::ZERO };
    control
}

fn acked(ms: i64, segments: u64, in_flight: u64) -> Acked {
    Acked {
        now: Instant::from_millis(ms),
        bytes: Bytes::new(segments * SEGMENT),
        in_flight: Bytes::new((in_flight + segments) * SEGMENT),
        in_flight_after: Bytes::new(in_flight * SEGMENT),
        ..Acked::default()
    }
}

// Source: the derived numbers of the algorithm reference, §2.5: 41.67 packets, window 84.
#[test]
fn the_window_is_two_bandwidth_delay_products() {
    let control = steady(Compat::Paper);
    let target = |gain| control.target(control.rate(), gain, Bytes::ZERO) / SEGMENT;
    assert_eq!((target(1.0), target(2.0)), (42, 84));
    assert!((bdp(control.rate(), Duration::from_millis(50), 1.0) - 62_500.0).abs() < 1e-6);
}

// Source: as above; Linux adds three transmission units of 2 segments, rounds up to an even number,
// and adds 2 in the phase of gain 1.25: 84 + 6 = 90 and 53 + 6, rounded, + 2 = 62.
#[test]
fn linux_adds_transmission_units_and_rounds_to_even() {
    let mut control = steady(Compat::Linux);
    control.set_pace(1.0);
    assert_eq!(control.pace, Rate::from_bps(9_900_000));
    assert_eq!(control.target(control.rate(), 2.0, Bytes::ZERO) / SEGMENT, 90);
    control.mode = Mode::ProbeBw { phase: 0, since: Instant::ZERO };
    assert_eq!(control.target(control.rate(), 1.25, Bytes::ZERO) / SEGMENT, 62);
    for (mbps, unit) in [(1.0, 1), (1.3, 2), (10.0, 2), (100.0, 8)] {
        control.pace = Rate::from_mbps(mbps);
        assert_eq!(control.transmission_unit(), unit, "{mbps} Mbit/s");
    }
}

// Source: the table of states of the algorithm reference, §2.5.
#[test]
fn the_start_gains_are_those_of_the_draft_or_of_linux() {
    let (start, drain) = Config::default().start_gains();
    assert!((start - 2.8854).abs() < 1e-4 && (start * drain - 1.0).abs() < 1e-12);
    let linux = Config { compat: Compat::Linux, ..Config::default() };
    assert_eq!(linux.start_gains(), (2.886_718_75, 0.343_75));
    // The startup gain less one is the maximum queue: 1.89 bandwidth-delay products.
    assert!((start - 1.0 - 1.89).abs() < 0.005);
}

#[test]
fn the_first_pacing_rate_follows_the_initial_window() {
    let mut control = bbr(Compat::Paper);
    assert!((control.pace.as_bps() as f64 - 2.8854 * 120e6).abs() < 1e4);
    control.on_established(Instant::ZERO, Some(Duration::from_millis(50)));
    assert!((control.pace.as_bps() as f64 - 2.8854 * 2.4e6).abs() < 1e3);
}

#[test]
fn the_first_round_trip_after_a_handshake_without_one_paces() {
    let mut control = bbr(Compat::Paper);
    control.on_established(Instant::ZERO, None);
    assert!((control.pace.as_bps() as f64 - 2.8854 * 120e6).abs() < 1e4);
    let rtt = Some(Duration::from_millis(50));
    control.on_delivery(&Acked { rtt, ..acked(50, 1, 9) }, Siblings::default());
    assert!((control.pace.as_bps() as f64 - 2.8854 * 2.4e6).abs() < 1e3);
}

#[test]
fn probing_for_bandwidth_never_starts_in_the_draining_phase() {
    let mut control = steady(Compat::Paper);
    let mut seen = [0; CYCLE.len()];
    for _ in 0..7000 {
        control.probe_bandwidth(Instant::ZERO);
        if let Mode::ProbeBw { phase, .. } = control.mode {
            seen[phase] += 1;
        }
    }
    assert_eq!(seen[1], 0);
    assert!(seen.iter().filter(|count| (850..1150).contains(*count)).count() == 7, "{seen:?}");
}

#[test]
fn a_phase_lasts_a_round_trip_the_probing_one_until_it_shows() {
    let phase_after = |phase, acked: Acked| {
        let mut control = steady(Compat::Paper);
        control.mode = Mode::ProbeBw { phase, since: Instant::ZERO };
        control.advance_cycle(&acked);
        match control.mode {
            Mode::ProbeBw { phase, .. } => phase,
            _ => unreachable!(),
        }
    };
    assert_eq!(phase_after(2, acked(50, 1, 40)), 2);
    assert_eq!(phase_after(2, acked(51, 1, 40)), 3);
    // 1.25 bandwidth-delay products are 53 segments.
    assert_eq!(phase_after(0, acked(51, 1, 51)), 0);
    assert_eq!(phase_after(0, acked(51, 1, 52)), 1);
    let lossy = Acked { lost: Bytes::new(SEGMENT), ..acked(51, 1, 40) };
    assert_eq!(phase_after(0, lossy), 1);
    assert_eq!(phase_after(1, acked(10, 1, 42)), 1);
    assert_eq!(phase_after(1, acked(10, 1, 41)), 2);
    assert_eq!(phase_after(7, acked(51, 1, 40)), 0);
}

#[test]
fn recovery_conserves_packets_for_a_round_then_restores() {
    let mut control = steady(Compat::Paper);
    control.window = 84 * SEGMENT;
    let nothing = Siblings::default();
    control.on_delivery(&acked(100, 1, 60), nothing);
    let lost = Lost { now: Instant::from_millis(100), in_flight: Bytes::new(62 * SEGMENT) };
    control.on_loss(&lost, nothing);
    assert_eq!(control.window / SEGMENT, 61);
    let in_recovery = Acked { lost: Bytes::new(2 * SEGMENT), ..acked(101, 1, 57) };
    control.on_delivery(&in_recovery, nothing);
    assert_eq!(control.window / SEGMENT, 59);
    control.conserving = false;
    control.on_delivery(&acked(160, 2, 57), nothing);
    assert_eq!(control.window / SEGMENT, 61);
    control.on_recovered(Instant::from_millis(170));
    assert_eq!(control.window / SEGMENT, 84);
}

#[test]
fn a_timeout_leaves_one_segment_and_slow_start() {
    let mut control = steady(Compat::Paper);
    control.window = 84 * SEGMENT;
    let nothing = Siblings::default();
    let lost = Lost { now: Instant::from_millis(100), in_flight: Bytes::new(84 * SEGMENT) };
    control.on_timeout(&lost, false, nothing);
    assert_eq!(control.window().get(), SEGMENT);
    control.on_delivery(&acked(400, 1, 0), nothing);
    assert_eq!(control.window / SEGMENT, 4);
    control.on_delivery(&acked(450, 4, 0), nothing);
    assert_eq!(control.window / SEGMENT, 8);
    control.on_recovered(Instant::from_millis(500));
    assert_eq!(control.window / SEGMENT, 84);
}

#[test]
fn a_restart_after_idle_keeps_the_bandwidth_without_probing() {
    let mut control = steady(Compat::Paper);
    control.mode = Mode::ProbeBw { phase: 0, since: Instant::ZERO };
    control.on_restart(&Restart {
        now: Instant::from_millis(20_000),
        span: Duration::from_secs(10),
        app_limited: true,
    });
    assert_eq!(control.pacing_rate(), Some(Rate::from_mbps(10.0)));
    let late = Acked { rtt: Some(Duration::from_millis(60)), ..acked(20_060, 1, 0) };
    control.on_delivery(&late, Siblings::default());
    assert!(matches!(control.mode, Mode::ProbeBw { .. }));
    assert_eq!(control.min_rtt.value, Some(Duration::from_millis(60)));
}

#[test]
fn over_radio_a_path_without_a_queue_is_not_drained() {
    let drained = |radio: bool, rtt: i64| {
        let mut control = steady(Compat::Paper);
        control.rules.radio = radio;
        let rtt = Some(Duration::from_millis(rtt));
        (0..300).any(|round| {
            let acked = Acked { rtt, ..acked(50 + 50 * round, 10, 10) };
            control.on_delivery(&acked, Siblings::default());
            matches!(control.mode, Mode::ProbeRtt { .. })
        })
    };
    assert!(drained(false, 52));
    assert!(!drained(true, 52));
    assert!(drained(true, 70));
}
