//! Properties of every scheduler over arbitrary paths.

use proptest::prelude::*;
use skybraid_transport::registry::Compat;
use skybraid_transport::scheduler::{
    Choice, SchedulerConfig, Unit, adaptive_cheapest_path, blest, cheapest_path, ecf, handover,
    mutran, otias, redundant, round_robin,
};
use skybraid_transport::{Class, PathId, PathSet, PathView};
use skybraid_units::{Bytes, Duration, Instant, Rate};

/// Every scheduler by name, and variants whose parameters select another algorithm.
fn all_schedulers() -> Vec<SchedulerConfig> {
    use SchedulerConfig as S;
    let compat = Compat::Linux;
    let mut all: Vec<S> = S::ALL.iter().map(|about| S::by_name(about.name).unwrap()).collect();
    all.extend([
        S::RoundRobin(round_robin::Config { compat, segments: 3, ..Default::default() }),
        S::RoundRobin(round_robin::Config { cwnd_limited: false, ..Default::default() }),
        S::CheapestPath(cheapest_path::Config { compat }),
        S::Redundant(redundant::Config { strict: true, version: None }),
        S::Blest(blest::Config { compat, ..Default::default() }),
        S::Ecf(ecf::Config { compat, ..Default::default() }),
        S::Otias(otias::Config { compat, queue: Some(5) }),
        S::Mutran(mutran::Config { data: mutran::Data::RoundRobin, ..Default::default() }),
        S::AdaptiveCheapestPath(adaptive_cheapest_path::Config { compat }),
        S::Handover(handover::Config { compat }),
    ]);
    all
}

/// Schedulers that send whenever a regular path has room.
const WORK_CONSERVING: [&str; 6] =
    ["round_robin", "low_rtt", "cheapest_path", "redundant", "otias", "mutran"];

/// Schedulers that read priorities.
const BY_PRIORITY: [&str; 3] = ["cheapest_path", "adaptive_cheapest_path", "handover"];

fn any_rtt() -> impl Strategy<Value = Option<Duration>> {
    prop_oneof![
        Just(None),
        Just(Some(Duration::ZERO)),
        Just(Some(Duration::MAX)),
        (1i64..2_000_000_000).prop_map(|nanos| Some(Duration::from_nanos(nanos))),
        (1i64..500).prop_map(|millis| Some(Duration::from_millis(millis))),
    ]
}

fn any_bytes() -> impl Strategy<Value = Bytes> {
    prop_oneof![Just(0), Just(u64::MAX), 1..2_000u64, 1..2_000_000u64].prop_map(Bytes::new)
}

fn any_rate() -> impl Strategy<Value = Option<Rate>> {
    let bps = prop_oneof![Just(0), Just(u64::MAX), 1..1_000_000_000u64];
    proptest::option::of(bps.prop_map(Rate::from_bps))
}

fn any_path() -> impl Strategy<Value = PathView> {
    let state = (any::<bool>(), any::<bool>(), proptest::bool::weighted(0.2), 0u8..6, 0u32..3);
    let times = (any_rtt(), any_rtt(), any_rtt(), any_rate());
    let sizes = (any_bytes(), any_bytes(), any_bytes(), any_bytes(), any_bytes());
    (state, times, sizes).prop_map(|(state, times, sizes)| PathView {
        id: PathId(0),
        usable: state.0,
        has_room: state.1,
        backup: state.2,
        priority: state.3,
        cost: state.4,
        srtt: times.0,
        rtt_deviation: times.1.unwrap_or(Duration::ZERO),
        min_rtt: times.2,
        pacing: times.3,
        window: sizes.0,
        threshold: sizes.1,
        in_flight: sizes.2,
        queued: sizes.3,
        segment: sizes.4,
    })
}

/// Paths of a connection in numeric order.
fn any_paths() -> impl Strategy<Value = Vec<PathView>> {
    let count = prop_oneof![8 => 0..5usize, 1 => 0..65usize];
    count.prop_flat_map(|count| proptest::collection::vec(any_path(), count)).prop_map(|paths| {
        paths.into_iter().zip(0..).map(|(path, id)| PathView { id: PathId(id), ..path }).collect()
    })
}

fn any_unit() -> impl Strategy<Value = Unit> {
    let carried_by = prop_oneof![
        2 => Just(PathSet::EMPTY),
        1 => proptest::collection::vec((0u8..65).prop_map(PathId), 0..4)
            .prop_map(|paths| paths.into_iter().collect())
    ];
    let class = prop_oneof![Just(Class::Control), Just(Class::Video), Just(Class::Data)];
    let sizes = (any_bytes(), any_bytes(), any_bytes(), any_bytes());
    (class, carried_by, sizes, any::<u64>()).prop_map(|(class, carried_by, sizes, blocked)| Unit {
        bytes: sizes.0,
        class,
        deadline: None,
        carried_by,
        backlog: sizes.1,
        window_room: sizes.2,
        window: sizes.3,
        blocked,
    })
}

/// Consecutive decisions of one connection.
fn any_history() -> impl Strategy<Value = Vec<(Instant, Unit, Vec<PathView>)>> {
    let step = prop_oneof![Just(0), 0..50_000_000i64, Just(i64::MAX / 3)];
    proptest::collection::vec((step, any_unit(), any_paths()), 1..6).prop_map(|steps| {
        let mut now = Instant::ZERO;
        steps
            .into_iter()
            .map(|(step, unit, paths)| {
                now += Duration::from_nanos(step);
                (now, unit, paths)
            })
            .collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn decisions_use_usable_paths_and_follow_from_the_history(history in any_history()) {
        for config in all_schedulers() {
            let (mut scheduler, mut twin) = (config.build(), config.build());
            for (now, unit, paths) in &history {
                let answer = scheduler.choose(*now, unit, paths);
                prop_assert_eq!(answer, twin.choose(*now, unit, paths));
                let named: Vec<PathId> = match answer {
                    Choice::Send(set, _) => {
                        prop_assert!(!set.is_empty(), "{:?}", config);
                        set.iter().collect()
                    }
                    Choice::Wait { path, .. } => path.into_iter().collect(),
                };
                for id in named {
                    let path = paths.iter().find(|path| path.id == id);
                    prop_assert!(path.is_some_and(|path| path.usable), "{:?}: {:?}", config, answer);
                    prop_assert!(
                        !BY_PRIORITY.contains(&config.name())
                            || path.is_some_and(|path| path.priority > 0),
                        "{:?}: {:?}", config, answer
                    );
                }
            }
        }
    }

    // Only `single` and `by_class` are bound to paths, on standby or not.
    #[test]
    fn a_backup_path_is_left_alone_while_a_regular_one_is_usable(history in any_history()) {
        for config in all_schedulers() {
            if ["single", "by_class"].contains(&config.name()) {
                continue;
            }
            let mut scheduler = config.build();
            for (now, unit, paths) in &history {
                let regular = |path: &PathView| path.usable && !path.backup && path.priority > 0;
                let answer = scheduler.choose(*now, unit, paths);
                if let Choice::Send(set, _) = answer && paths.iter().any(regular) {
                    let on_backup = |path: &PathView| path.backup && set.contains(path.id);
                    prop_assert!(!paths.iter().any(on_backup), "{:?}: {:?}", config, answer);
                }
            }
        }
    }

    #[test]
    fn a_work_conserving_scheduler_uses_any_regular_path_with_room(history in any_history()) {
        for name in WORK_CONSERVING {
            let mut scheduler = SchedulerConfig::by_name(name).unwrap().build();
            for (now, unit, paths) in &history {
                let fresh = Unit { carried_by: PathSet::EMPTY, ..*unit };
                let answer = scheduler.choose(*now, &fresh, paths);
                let open =
                    |path: &PathView| path.usable && path.has_room && !path.backup && path.priority > 1;
                if paths.iter().any(open) {
                    prop_assert!(matches!(answer, Choice::Send(..)), "{}: {:?}", name, answer);
                }
            }
        }
    }

    // `spare_fastest` leaves one path untried on purpose; the others are bound to their paths.
    #[test]
    fn retransmissions_prefer_paths_that_have_not_carried_the_data(
        unit in any_unit(),
        paths in any_paths(),
    ) {
        for config in all_schedulers() {
            if ["single", "by_class", "handover", "spare_fastest"].contains(&config.name()) {
                continue;
            }
            let answer = config.build().choose(Instant::ZERO, &unit, &paths);
            let regular =
                |path: &PathView| path.usable && !path.backup && path.priority > 1;
            let untried = |path: &PathView| regular(path) && !unit.carried_by.contains(path.id);
            if let Choice::Send(set, _) = answer
                && !unit.carried_by.is_empty()
                && paths.iter().any(untried)
            {
                let new = set.iter().all(|path| !unit.carried_by.contains(path));
                prop_assert!(new, "{:?}: {:?}", config, answer);
            }
        }
    }
}

#[test]
fn every_scheduler_has_a_name_a_source_and_valid_defaults() {
    for about in SchedulerConfig::ALL {
        let config = SchedulerConfig::by_name(about.name).unwrap();
        assert_eq!(config.name(), about.name);
        assert!(config.check().is_ok(), "{}", about.name);
        assert!(!about.summary.is_empty() && !about.source.is_empty(), "{}", about.name);
        let has_compat = about.parameters.iter().any(|parameter| parameter.name == "compat");
        assert_eq!(has_compat, !about.linux.is_empty(), "{}", about.name);
    }
}
