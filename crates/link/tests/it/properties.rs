//! Properties of any link under any traffic.
//!
//! Strategies that many tests or strategies use are boxed: the compiler spends seconds on their full types.

use std::sync::Arc;

use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use skybraid_link::{
    Access, Cause, Change, Codel, Component, DelaySource, Distribution, Drx, Environment, Extent,
    Factor, Fate, GilbertElliott, Handover, Harq, Link, LinkConfig, LossSource, LutzConfig,
    Mixture, OnOff, Opportunities, Process, Quantiles, QueueConfig, RandomSpans, RateSource,
    Reconfiguration, Series, Shape,
};
use skybraid_units::{Bytes, Decibels, Duration, Instant, Probability, Rate, Seed};

fn instant() -> impl Strategy<Value = Instant> {
    time(3000).prop_map(|time| Instant::ZERO + time)
}

fn time(max_ms: i64) -> impl Strategy<Value = Duration> {
    (0..max_ms * 1_000_000).prop_map(Duration::from_nanos)
}

fn probability() -> impl Strategy<Value = Probability> {
    prop_oneof![Just(0.0), Just(1.0), 0.0..1.0f64].prop_map(|p| Probability::new(p).unwrap())
}

fn distribution() -> BoxedStrategy<Distribution> {
    let positive = || time(200).prop_map(|time| time + Duration::from_millis(1));
    let component = (0.01..1.0f64, positive(), time(50)).prop_map(|(weight, mean, sd)| Component {
        weight,
        mean,
        sd,
    });
    let shape = prop_oneof![
        time(200).prop_map(Shape::Fixed),
        positive().prop_map(|mean| Shape::Exponential { mean }),
        (positive(), time(200)).prop_map(|(mean, sd)| Shape::Normal { mean, sd }),
        (time(100), time(100)).prop_map(|(min, more)| Shape::Uniform { min, max: min + more }),
        vec(component, 1..4).prop_map(|list| Shape::Mixture(Mixture::Components(list))),
    ];
    (shape, time(20)).prop_map(|(shape, plus)| Distribution { shape, plus }).boxed()
}

/// Interruptions short enough that service continues most of the time.
fn interruption() -> impl Strategy<Value = Distribution> {
    (time(50), time(50)).prop_map(|(min, more)| Distribution {
        shape: Shape::Uniform { min, max: min + more },
        plus: Duration::ZERO,
    })
}

fn series(max: f64) -> impl Strategy<Value = Arc<Series>> {
    let value = prop_oneof![Just(0.0), max / 50.0..max];
    (vec((1..500i64, value), 1..6), any::<bool>()).prop_map(|(steps, repeat)| {
        let (mut at, mut times, mut values) = (0, Vec::new(), Vec::new());
        for (length, value) in steps {
            times.push(Instant::from_millis(at));
            values.push(value);
            at += length;
        }
        Arc::new(Series::new(times, values, Instant::from_millis(at), repeat).unwrap())
    })
}

/// A factor along a route, with a part in which nothing happens.
fn factor() -> Factor {
    let parts = [(0, 1.0), (700, 3.0), (1500, 0.0), (2100, 0.5)];
    Factor::new(parts.into_iter().map(|(at, factor)| (Duration::from_millis(at), factor)))
}

/// A process of uniform marginal with a mass at its minimum.
fn random(low: f64, more: f64, step_ms: i64) -> Process {
    let table = std::vec![(0.0, low), (0.2, low), (1.0, low + more)];
    Process {
        quantiles: Arc::new(Quantiles::new(table).unwrap()),
        slow: Duration::from_secs(2),
        fast: Duration::from_millis(300),
        slow_share: 0.6,
        step: Duration::from_millis(step_ms),
        scale: 1.5,
        factor: factor(),
        plus: 0.0,
        both_ways: 0.3,
        shared: None,
    }
}

fn rate() -> BoxedStrategy<RateSource> {
    let process = (0.0..5e7f64, 1e6..5e7f64, 1..500i64);
    prop_oneof![
        process.prop_map(|(low, more, step)| RateSource::Process(random(low, more, step))),
        (1_000_000..200_000_000u64).prop_map(|bps| RateSource::Constant(Rate::from_bps(bps))),
        series(5e7).prop_map(|series| RateSource::Series(series.into())),
        vec(0..40i64, 1..20).prop_map(|mut times| {
            times.sort_unstable();
            times.push(41);
            RateSource::Opportunities(Arc::new(Opportunities::new(times).unwrap()).into())
        }),
    ]
    .boxed()
}

fn delay() -> BoxedStrategy<DelaySource> {
    let process = (0.0..5e7f64, 0.0..3e8f64, 1..500i64);
    prop_oneof![
        process.prop_map(|(low, more, step)| DelaySource::Process(random(low, more, step))),
        distribution().prop_map(DelaySource::Distribution),
        series(3e8).prop_map(|series| DelaySource::Series(series.into())),
    ]
    .boxed()
}

fn queue() -> impl Strategy<Value = QueueConfig> {
    prop_oneof![
        (1..50u64).prop_map(QueueConfig::Packets),
        (1..100_000u64).prop_map(|size| QueueConfig::Bytes(Bytes::new(size))),
        time(500).prop_map(QueueConfig::Time),
        (1..50u64).prop_map(|packets| QueueConfig::Codel(Codel { packets, ..Codel::default() })),
        Just(QueueConfig::Unlimited),
    ]
}

fn loss() -> BoxedStrategy<LossSource> {
    let positive = || {
        distribution()
            .prop_map(|phase| Distribution { plus: phase.plus + Duration::from_millis(5), ..phase })
    };
    prop_oneof![
        probability().prop_map(LossSource::Uniform),
        (0.0..=1e-3f64).prop_map(LossSource::BitErrors),
        (probability(), probability(), probability(), probability()).prop_map(
            |(good_to_bad, bad_to_good, good_loss, bad_loss)| LossSource::GilbertElliott(
                GilbertElliott { good_to_bad, bad_to_good, good_loss, bad_loss }
            )
        ),
        (positive(), positive(), probability(), 0.0..1e-4f64).prop_map(
            |(on, off, off_loss, on_bit_errors)| LossSource::OnOff(OnOff {
                on,
                off,
                off_loss,
                on_bit_errors
            })
        ),
        (0.0..20.0f64, 1..200i64, 1..50i64, -5.0..30.0f64).prop_map(lutz),
        series(1.0).prop_map(|series| LossSource::Series(series.into())),
    ]
    .boxed()
}

fn drx() -> impl Strategy<Value = Drx> {
    let ms = Duration::from_millis;
    (0..300i64, 1..100i64, 1..100i64, 0..60i64).prop_map(
        move |(inactivity, cycle, stay, paging)| Drx {
            inactivity: ms(inactivity),
            short_cycle: ms(cycle),
            short_for: ms(stay),
            long_cycle: ms(cycle * 2),
            long_for: ms(stay * 3),
            listen: ms(1),
            paging_cycle: ms(paging),
            setup: ms(70),
            ramp_from: Rate::from_bps(1_000_000),
            ramp_for: ms(stay * 5),
        },
    )
}

fn lutz((sd, state_ms, coherence_ms, margin): (f64, i64, i64, f64)) -> LossSource {
    let state = Some(Extent::Time(Duration::from_millis(state_ms)));
    let config = LutzConfig {
        environment: Some(Environment::Highway),
        shadow_sd: Some(Decibels::new(sd)),
        good: state,
        bad: state,
        coherence: Some(Extent::Time(Duration::from_millis(coherence_ms))),
        margin: Some(Decibels::new(margin)),
        ..LutzConfig::default()
    };
    LossSource::Lutz(config.resolve().unwrap())
}

/// An access layer of either link, by either rules, with requests or without.
fn access_layer(of: (bool, bool, i64, usize, Probability)) -> Access {
    let (forward, standard, frame, capacity, loss) = of;
    let carrier = match (forward, capacity) {
        (true, _) => "modcod = 4, symbol_rate = \"5MHz\"",
        (_, 0) => "waveform = 3, cra = \"300kbit/s\"",
        (_, 1) => "waveform = 12, fca = \"9Mbit/s\", cra = \"1Mbit/s\"",
        (_, 2) => {
            "waveform = 22, rbdc = \"3Mbit/s\", request_period = \"200ms\", scheduling_latency = \"90ms\""
        }
        _ => {
            "es_n0 = { clear_sky = \"9dB\" }, vbdc = \"3Mbit/s\", rbdc = \"1Mbit/s\", request_period = \"70ms\", scheduling_latency = \"300ms\""
        }
    };
    let rules = if standard { "standard" } else { "opensand" };
    let loss = loss.ratio() * 100.0;
    let text = format!(
        "uplink.access = {{ kind = \"dvb\", link = \"{}\", rules = \"{rules}\", frame = \"{frame}ms\", frame_loss = \"{loss}%\", terminal_delay = \"9ms\", delay_clock = \"1ms\", satellite_frame = \"3ms\", {carrier} }}",
        if forward { "forward" } else { "return" }
    );
    let path = crate::common::path(&text);
    path.link(skybraid_link::Direction::Uplink).unwrap().access.unwrap()
}

fn config() -> BoxedStrategy<LinkConfig> {
    let harq = (0.0..0.9f64, time(20), 1_000_000..1_000_000_000u64).prop_map(
        |(loss, round_trip, catch_up)| Harq {
            loss: Probability::new(loss).unwrap(),
            round_trip,
            catch_up: Rate::from_bps(catch_up),
        },
    );
    let handover = (distribution(), interruption(), 150..500i64).prop_map(
        |(interval, interruption, at_least)| Handover {
            interval,
            interruption,
            at_least: Duration::from_millis(at_least),
            factor: factor(),
        },
    );
    let reconfiguration = (distribution(), interruption(), probability(), 300..900i64, time(300))
        .prop_map(|(delay_step, interruption, loss, every, phase)| Reconfiguration {
            every: Duration::from_millis(every),
            phase,
            delay_step,
            interruption,
            loss,
            loss_for: Duration::from_millis(50),
        });
    let access = of((any::<bool>(), any::<bool>(), 1..30i64, 0..4usize, probability()));
    let down = vec((instant(), time(400)), 0..4);
    let halts = vec((instant(), time(100)), 0..4);
    let change = prop_oneof![
        rate().prop_map(Change::Rate),
        delay().prop_map(Change::Delay),
        vec(loss(), 0..2).prop_map(Change::Loss),
    ];
    let changes = vec((instant(), change), 0..4);
    let first = (rate(), delay(), queue(), vec(loss(), 0..3), any::<bool>(), 100..3000u64);
    let spans = || {
        (distribution(), interruption()).prop_map(|(interval, length)| RandomSpans {
            interval: Distribution { plus: Duration::from_millis(150), ..interval },
            length,
            rate: 0.7,
            factor: factor(),
        })
    };
    let spans = (of(spans()), of(spans()), down, halts, access);
    let second = (of(harq), of(drx()), of(handover), of(reconfiguration), spans, changes);
    (first, second)
        .prop_map(|((rate, delay, queue, losses, reorder, mtu), effects)| {
            let (harq, drx, handover, reconfiguration, spans, changes) = effects;
            let (stall, outage, down, halts, access) = spans;
            LinkConfig {
                mtu: Bytes::new(mtu),
                rate,
                access: access.map(access_layer),
                overhead: Bytes::new(24),
                queue,
                delay,
                reorder,
                losses,
                harq,
                drx,
                handover,
                stall,
                outage,
                reconfiguration,
                down,
                halts,
                changes,
            }
        })
        .boxed()
}

/// Packets: gaps in ns, and sizes.
fn traffic() -> BoxedStrategy<Vec<(i64, u64)>> {
    let gap = prop_oneof![Just(0), 0..2_000_000i64, 0..300_000_000i64];
    vec((gap, 0..3200u64), 1..200).boxed()
}

fn run(link: &mut Link, traffic: &[(i64, u64)]) -> Vec<(Instant, Bytes, Fate)> {
    let mut now = Instant::ZERO;
    let admit = |(gap, size): &(i64, u64)| {
        now += Duration::from_nanos(*gap);
        (now, Bytes::new(*size), link.admit(now, Bytes::new(*size)))
    };
    traffic.iter().map(admit).collect()
}

fn link(config: &LinkConfig, seed: u64) -> Link {
    Link::new(config, "p", "uplink", Seed(seed))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn fates_are_never_in_the_past(config in config(), traffic in traffic()) {
        for (now, size, fate) in run(&mut link(&config, 1), &traffic) {
            match fate {
                Fate::Delivered { at } => {
                    prop_assert!(size <= config.mtu);
                    let serialised = match &config.rate {
                        RateSource::Constant(rate)
                            if config.changes.is_empty() && config.access.is_none() =>
                        {
                            rate.time_for(size + config.overhead)
                        }
                        _ => Duration::ZERO,
                    };
                    prop_assert!(config.drx.is_some() || at >= now + serialised);
                    prop_assert!(at >= now);
                }
                Fate::Held => panic!("held"),
                Fate::Lost { at, cause } => {
                    prop_assert!(at >= now);
                    prop_assert_eq!(cause == Cause::Mtu, size > config.mtu);
                }
            }
        }
    }

    #[test]
    fn packets_arrive_in_order_of_admission(config in config(), traffic in traffic()) {
        let config = LinkConfig { reorder: false, ..config };
        let mut last = Instant::ZERO;
        for (.., fate) in run(&mut link(&config, 1), &traffic) {
            if let Fate::Delivered { at } = fate {
                prop_assert!(at >= last);
                last = at;
            }
        }
    }

    #[test]
    fn equal_seeds_give_equal_fates(config in config(), traffic in traffic(), seed: u64) {
        let first = run(&mut link(&config, seed), &traffic);
        prop_assert_eq!(first, run(&mut link(&config, seed), &traffic));
    }

    #[test]
    fn conditions_depend_on_time_alone(config in config(), traffic in traffic()) {
        let (mut idle, mut busy) = (link(&config, 1), link(&config, 1));
        let mut now = Instant::ZERO;
        for (gap, size) in traffic {
            now += Duration::from_nanos(gap);
            busy.admit(now, Bytes::new(size));
            prop_assert_eq!(idle.conditions(now), busy.conditions(now));
        }
    }

    #[test]
    fn reading_the_conditions_changes_no_fate(config in config(), traffic in traffic()) {
        let (mut read, mut unread) = (link(&config, 1), link(&config, 1));
        let mut now = Instant::ZERO;
        for (gap, size) in traffic {
            now += Duration::from_nanos(gap);
            read.conditions(now + Duration::from_secs(1));
            prop_assert_eq!(read.admit(now, Bytes::new(size)), unread.admit(now, Bytes::new(size)));
        }
    }

    #[test]
    fn the_backlog_is_the_bytes_admitted_and_not_departed(config in config(), traffic in traffic()) {
        let mut link = link(&config, 1);
        let mut now = Instant::ZERO;
        let mut admitted = 0;
        for (gap, size) in traffic {
            now += Duration::from_nanos(gap);
            link.admit(now, Bytes::new(size));
            admitted += size;
            let backlog = link.backlog(now);
            prop_assert!(backlog.get() <= admitted);
            if let QueueConfig::Bytes(limit) = config.queue {
                prop_assert!(backlog <= limit);
            }
        }
        prop_assert_eq!(link.backlog(Instant::FAR_FUTURE), Bytes::ZERO);
    }

    #[test]
    fn harq_changes_no_loss(config in config(), traffic in traffic()) {
        let harq = Harq {
            loss: Probability::new(0.3).unwrap(),
            round_trip: Duration::from_millis(8),
            catch_up: Rate::from_bps(1_000_000_000),
        };
        let with = LinkConfig { harq: Some(harq), ..config.clone() };
        let without = LinkConfig { harq: None, ..config };
        let causes = |config: &LinkConfig| {
            let fates = run(&mut link(config, 1), &traffic);
            fates.into_iter().map(|(.., fate)| crate::common::lost(fate)).collect::<Vec<_>>()
        };
        prop_assert_eq!(causes(&with), causes(&without));
    }

    #[test]
    fn no_time_and_no_size_panics(config in config(), calls in vec((any::<i64>(), any::<u64>()), 1..20)) {
        // Without the processes that are drawn epoch by epoch: 292 years of epochs would take long.
        let config = LinkConfig { handover: None, reconfiguration: None, mtu: Bytes::new(u64::MAX), ..config };
        let config = LinkConfig { stall: None, outage: None, ..config };
        let rate = match config.rate {
            RateSource::Process(_) => RateSource::Constant(Rate::from_mbps(1.0)),
            rate => rate,
        };
        let delay = match config.delay {
            DelaySource::Process(_) => DelaySource::Distribution(Distribution::fixed(Duration::ZERO)),
            delay => delay,
        };
        let config = LinkConfig { rate, delay, ..config };
        let timeless = |loss: &LossSource| !matches!(loss, LossSource::OnOff(_) | LossSource::Lutz(_));
        let losses = config.losses.iter().filter(|loss| timeless(loss)).cloned().collect();
        let config = LinkConfig { losses, changes: Vec::new(), ..config };
        let mut link = link(&config, 1);
        for (at, size) in calls {
            let at = Instant::from_nanos(at);
            if size % 2 == 0 {
                link.conditions(at);
            }
            if config.access.is_some() || !matches!(config.rate, RateSource::Constant(_)) {
                link.admit(at, Bytes::new(size % 100_000));
            } else {
                link.admit(at, Bytes::new(size));
            }
        }
    }
}
