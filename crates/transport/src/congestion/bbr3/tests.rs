use super::*;
use bounds::in_flight_at_loss;
use skybraid_units::Seed;

const SEGMENT: u64 = 1500;

/// Returns the control in the middle of a flow of 10 Mbit/s over 50 ms.
fn steady(state: State) -> Bbr3 {
    let path = PathBasics {
        segment: Bytes::new(SEGMENT),
        initial_window: Bytes::new(10 * SEGMENT),
        initial_threshold: Bytes::new(u64::MAX),
        sack: true,
        seed: Seed(1),
    };
    let mut control = Bbr3::new(&Config::default(), &path);
    control.on_established(Instant::ZERO, Some(Duration::from_millis(50)));
    control.max_bandwidth.update(0, Rate::from_mbps(10.0), 2);
    control.bandwidth = Rate::from_mbps(10.0);
    control.full.ever = true;
    control.window = 83 * SEGMENT;
    control.state = state;
    control
}

fn acked(ms: i64, delivered: u64, in_flight: u64) -> Acked {
    Acked {
        now: Instant::from_millis(ms),
        bytes: Bytes::new(SEGMENT),
        delivered: Bytes::new(delivered * SEGMENT),
        in_flight: Bytes::new((in_flight + 1) * SEGMENT),
        in_flight_after: Bytes::new(in_flight * SEGMENT),
        ..Acked::default()
    }
}

fn sample(prior: u64, in_flight: u64, lost: u64) -> RateSample {
    RateSample {
        rate: Rate::from_mbps(9.0),
        interval: Duration::from_millis(50),
        prior_delivered: Bytes::new(prior * SEGMENT),
        app_limited: false,
        sent_in_flight: Bytes::new(in_flight * SEGMENT),
        lost: Bytes::new(lost * SEGMENT),
    }
}

// Source: the algorithm reference, §2.7: of 98 segments in flight one was lost; the next loss
// crosses 2 %.
#[test]
fn the_bytes_in_flight_at_the_loss_threshold_are_interpolated() {
    assert!((in_flight_at_loss(99.0, 2.0, 1.0, 0.02) - 98.979_591_8).abs() < 1e-6);
}

// Source: the table of states and the constants of the algorithm reference, §2.7.
#[test]
fn gains_and_constants_are_those_of_the_draft() {
    let probe_rtt = State::ProbeRtt { until: None, round_over: false };
    let states = [
        State::Startup,
        State::Drain(0),
        State::Down,
        State::Cruise,
        State::Refill,
        State::Up,
        probe_rtt,
    ];
    assert_eq!(states.map(State::pacing_gain), [2.77, 0.5, 0.9, 1.0, 1.0, 1.25, 1.0]);
    assert_eq!(states.map(State::window_gain), [2.0, 2.0, 2.0, 2.0, 2.0, 2.25, 0.5]);
    assert!((STARTUP_PACING_GAIN - 4.0 * core::f64::consts::LN_2).abs() < 0.003);
    let rules = Config::default();
    assert_eq!((rules.loss_threshold.ratio(), rules.beta, rules.headroom), (0.02, 0.7, 0.15));
    assert_eq!(rules.min_rtt_window, Duration::from_secs(10));
    assert_eq!(rules.probe_rtt_interval, Duration::from_secs(5));
}

#[test]
fn the_window_is_two_products_and_a_half_while_probing_rtt() {
    let mut control = steady(State::Cruise);
    control.set_window(&acked(100, 100, 40));
    assert_eq!(control.window, 125_000);
    control.state = State::ProbeRtt { until: None, round_over: false };
    control.bound_window();
    assert_eq!(control.window, 31_250);
    control.set_pace(1.0);
    assert_eq!(control.pace, Rate::from_bps(9_900_000));
}

#[test]
fn the_budget_is_three_quanta_and_two_segments_more_going_up() {
    let mut control = steady(State::Cruise);
    for (mbps, bytes) in [(1.0, 9000), (100.0, 37_500), (1000.0, 3 * 65_536)] {
        control.pace = Rate::from_mbps(mbps);
        assert_eq!(control.with_budget(0), bytes);
    }
    control.pace = Rate::from_mbps(1.0);
    control.state = State::Up;
    assert_eq!(control.with_budget(0), 12_000);
}

#[test]
fn too_much_loss_going_up_sets_the_long_term_bound() {
    let mut control = steady(State::Up);
    control.probe.pending = true;
    let lossy = Acked { lost: Bytes::new(SEGMENT), ..acked(100, 100, 80) };
    control.on_lost(&lossy, Some(&sample(0, 99, 2)));
    assert_eq!(control.state, State::Down);
    assert_eq!(control.bounds.long_term, (98.979_591_8 * SEGMENT as f64) as u64);
    // 15 % stay free.
    assert_eq!(control.with_headroom(), control.bounds.long_term * 85 / 100 + 1);
    // Once per probe only.
    control.on_lost(&lossy, Some(&sample(0, 50, 20)));
    assert!(control.bounds.long_term > 98 * SEGMENT);
}

#[test]
fn a_reduction_keeps_at_least_beta_times_the_target() {
    let mut control = steady(State::Up);
    control.probe.pending = true;
    let lossy = Acked { lost: Bytes::new(SEGMENT), ..acked(100, 100, 8) };
    control.on_lost(&lossy, Some(&sample(0, 10, 5)));
    assert_eq!(control.bounds.long_term, (0.7 * 62_500.0) as u64);
}

#[test]
fn a_lossy_round_trip_while_cruising_takes_at_most_three_tenths() {
    let mut control = steady(State::Cruise);
    control.on_lost(&acked(100, 100, 60), None);
    let quarter = RateSample { rate: Rate::from_mbps(2.5), ..sample(100, 60, 1) };
    control.on_rate_sample(&acked(150, 120, 60), &quarter);
    control.end_loss_round();
    assert_eq!(control.bounds.bandwidth, Rate::from_mbps(7.0));
    assert_eq!(control.bounds.short_term, 87_150);
    control.bounds.reset_short_term();
    assert_eq!(control.bounds.short_term, u64::MAX);
}

#[test]
fn loss_while_refilling_does_not_slow_the_flow_down() {
    let mut control = steady(State::Refill);
    control.on_lost(&acked(100, 100, 60), None);
    control.on_rate_sample(&acked(150, 120, 60), &sample(100, 60, 1));
    control.end_loss_round();
    assert_eq!(control.bounds.short_term, u64::MAX);
}

#[test]
fn the_growth_of_the_long_term_bound_doubles_each_round_trip() {
    let mut control = steady(State::Refill);
    control.bounds.long_term = 83 * SEGMENT;
    control.rounds.started = true;
    control.advance_cycle(&acked(100, 100, 82), &sample(50, 80, 0));
    assert_eq!(control.state, State::Up);
    let mut delivered = 100;
    for growth in [1, 2, 4] {
        let before = control.bounds.long_term;
        let window = control.window / SEGMENT;
        for index in 0..window {
            delivered += 1;
            // Growth steepens from the end of the round on.
            control.rounds.started = index + 1 == window;
            control.window_limited = true;
            control.window = control.bounds.long_term;
            let now = acked(100, delivered, 82);
            control.advance_cycle(&now, &sample(delivered - 80, 80, 0));
        }
        let grown = (control.bounds.long_term - before) / SEGMENT;
        assert!(grown.abs_diff(growth) <= 1 && grown >= growth - growth / 4, "{grown} {growth}");
    }
}

#[test]
fn a_probe_waits_two_to_three_seconds_or_reno_s_round_trips() {
    let mut control = steady(State::Up);
    let mut waits = [0.0_f64; 100];
    for wait in &mut waits {
        control.begin_down(Instant::ZERO, Bytes::ZERO);
        *wait = control.probe.wait.as_secs_f64();
        assert!(control.probe.rounds <= 1);
    }
    assert!(waits.iter().all(|wait| (2.0..3.0).contains(wait)));
    assert!((waits.iter().sum::<f64>() / 100.0 - 2.5).abs() < 0.1);
    // 62 500 bytes are 41 whole segments.
    control.probe.rounds = 40;
    assert!(!control.is_time_to_probe(Instant::from_millis(1000)));
    assert!(control.is_time_to_probe(Instant::from_millis(3001)));
    control.probe.rounds = 41;
    assert!(control.is_time_to_probe(Instant::from_millis(1000)));
    control.bandwidth = Rate::from_mbps(100.0);
    control.window = 1000 * SEGMENT;
    control.probe.rounds = 62;
    assert!(!control.is_time_to_probe(Instant::from_millis(1000)));
    control.probe.rounds = 63;
    assert!(control.is_time_to_probe(Instant::from_millis(1000)));
}

#[test]
fn drain_ends_after_three_round_trips_even_with_a_queue() {
    let mut control = steady(State::Drain(10));
    control.rounds.count = 12;
    for (count, state) in [(13, State::Drain(10)), (14, State::Down)] {
        control.measure(&acked(100, count * 100, 80), &sample(count * 100 - 1, 90, 0));
        assert_eq!((control.rounds.count, control.state), (count, state));
    }
}

#[test]
fn startup_ends_after_a_round_trip_of_heavy_loss() {
    let start = |events, recovering, lost| {
        let mut control = steady(State::Startup);
        control.full.ever = false;
        for _ in 0..events {
            control.on_lost(&acked(100, 100, 80), None);
        }
        let end = Acked { recovering, ..acked(150, 180, 80) };
        control.measure(&end, &sample(100, 80, lost));
        (control.full.ever, control.bounds.long_term)
    };
    // The data delivered in the round trip exceeds the bandwidth-delay product.
    assert_eq!(start(6, true, 2), (true, 80 * SEGMENT));
    assert_eq!(start(5, true, 2), (false, u64::MAX));
    assert_eq!(start(6, true, 1), (false, u64::MAX));
    assert_eq!(start(6, false, 2), (false, u64::MAX));
}
