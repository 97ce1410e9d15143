//! Probes of the links that a flow uses, without the flow itself.

use skybraid_host::record::Record;
use skybraid_host::{DirectedLink, Host, LinkSetup, Route};
use skybraid_link::{Direction, Draw, Fate};
use skybraid_statistics::{FEW, FLIGHTS, Family, ProbeDelays};
use skybraid_units::{Bytes, Duration, Instant, Seed};

use crate::Scenario;

/// Seed of the first of the flights that stand for all.
const FIRST_SEED: u64 = 1 << 63;
/// Maximum number of probes of a run.
const PROBES_OF_RUN: i64 = 3_000;
/// The same of a flight that stands for others: many flights say more than many probes of one.
const PROBES_OF_FLIGHT: i64 = 500;
/// Minimum time between probes.
const MIN_INTERVAL: Duration = Duration::from_millis(100);
/// A probe stands for what the flow sends in this time.
const LOAD: Duration = Duration::from_millis(100);
/// Maximum number of packets of a probe. A larger load is extrapolated from the time between the first and the last.
const MAX_PACKETS: u64 = 4;
/// Size of a probe's packets if there are several.
const PACKET: u64 = 1_200;
/// Number of probes of a run in the shortest event that they can count.
const PROBES_OF_EVENT: i64 = 3;
/// Times that a probe for rare events is sent, within the time between two probes of a run. The best counts, so that
/// random losses and short spikes, which every run has, are no events.
const TRIES: usize = 3;
/// Mean number of equally long events in the flights that stand for all: their time down is then known to 10 %.
const EVENTS: f64 = 100.0;
/// Maximum number of flights that stand for all.
const MAX_FLIGHTS: u64 = 16_384;
/// Minimum size of a probe.
const MIN_SIZE: u64 = 100;

/// Links that a flow uses: the directed links of each of its paths, the load of a probe, and how often it is sent.
#[derive(PartialEq)]
struct Probed {
    paths: Vec<Vec<DirectedLink>>,
    load: Bytes,
    tries: usize,
}

impl Scenario {
    /// Returns whether the seed draws the flights of links, so that runs see some flights of many.
    pub fn draws_flights(&self) -> bool {
        let families = self.links.iter().filter_map(|link| link.population.as_ref());
        families.into_iter().any(|family| family.draw == Draw::Random)
    }

    /// Returns whether other runs say more of the links than the runs seen: where the seed draws the flights of links,
    /// or where events are so rare that a run has few of them or none.
    pub fn needs_other_runs(&self) -> bool {
        self.draws_flights() || self.equal_events() < FEW
    }

    /// Returns the mean number of equally long events in a run whose time down would vary as much as that of the
    /// random process of a link that varies most. Events too short for probes do not count: of these, the episodes of
    /// the run say more.
    fn equal_events(&self) -> f64 {
        let (run, shortest) = (self.duration, self.interval(PROBES_OF_RUN) * PROBES_OF_EVENT);
        let links = self.links.iter().flat_map(|link| [&link.uplink, &link.downlink]);
        let events = links.map(|link| link.equal_events(run, shortest));
        let shared = self.outages.iter();
        let shared = shared.map(|group| group.outages.equal_events(run, shortest));
        events.chain(shared).fold(f64::INFINITY, f64::min)
    }

    /// Returns the delays of probes on the paths of a flow in the run of `seed`.
    ///
    /// `None` where the flow is unknown or its routes are not fixed, and for a group of flows with paths of their own.
    pub fn probe(&self, group: &str, seed: Seed) -> Option<ProbeDelays> {
        let probed = self.probed(group)?;
        Some(self.probe_links(&probed, seed, PROBES_OF_RUN, 0.0))
    }

    /// Returns the exposure of [`FLIGHTS`] other flights, or of more runs where these have few rare events.
    pub fn probe_family(&self, group: &str) -> Option<Family> {
        let probed = self.probed(group)?;
        let mut all = Family::default();
        let min = u64::from(FLIGHTS);
        let (flights, later) = if self.draws_flights() {
            (min, 0.0)
        } else {
            let flights = ((EVENTS / self.equal_events()) as u64).clamp(min, MAX_FLIGHTS);
            // What is alike in all runs, such as the spike of a trace, is then seen as often as it lasts.
            (flights, 1.0 / flights as f64)
        };
        for flight in 0..flights {
            let (seed, phase) = (Seed(FIRST_SEED + flight), flight as f64 * later);
            all.add(&self.probe_links(&probed, seed, PROBES_OF_FLIGHT, phase));
        }
        Some(all)
    }

    /// Returns whether probes of a flow have the same delays in another scenario.
    pub fn probes_alike(&self, other: &Self, group: &str) -> bool {
        self.duration == other.duration
            && self.links == other.links
            && self.outages == other.outages
            && self.correlations == other.correlations
            && self.probed(group) == other.probed(group)
    }

    fn probed(&self, group: &str) -> Option<Probed> {
        let setup = self.setup(Seed(0), Record::default());
        let mut flows = setup.flows.iter().filter(|flow| flow.group == group);
        let first = flows.next()?;
        if flows.any(|flow| flow.paths != first.paths) {
            return None;
        }
        let links = |path: &usize| {
            let path = setup.paths.get(*path)?;
            match if first.from == Host::Vehicle { &path.uplink } else { &path.downlink } {
                Route::Fixed(hops) => Some(hops.clone()),
                Route::Spread { .. } => None,
            }
        };
        let bits = first.traffic.rate().map_or(0, |rate| rate.bits_in(LOAD));
        Some(Probed {
            paths: first.paths.iter().map(links).collect::<Option<_>>()?,
            load: Bytes::new((bits / 8).max(MIN_SIZE)),
            tries: if self.draws_flights() { 1 } else { TRIES },
        })
    }

    /// Returns the time between probes.
    fn interval(&self, max_probes: i64) -> Duration {
        Duration::from_nanos(self.duration.as_nanos() / max_probes).max(MIN_INTERVAL)
    }

    /// Returns the delays of probes. The first is sent after `phase` intervals, from 0 to below 1.
    fn probe_links(&self, probed: &Probed, seed: Seed, max_probes: i64, phase: f64) -> ProbeDelays {
        let interval = self.interval(max_probes).as_nanos();
        let between = self.interval(PROBES_OF_RUN).as_nanos() / probed.tries as i64;
        let first = (phase * interval as f64) as i64;
        let sent = |probe: i64| {
            (0..probed.tries as i64)
                .map(move |again| Instant::from_nanos(first + probe * interval + again * between))
        };
        let sent: Vec<Instant> = (0..self.duration.as_nanos() / interval).flat_map(sent).collect();
        let links = self.link_setups(seed);
        let of_path = |path: &Vec<DirectedLink>| {
            let all = delays(path, &links, &sent, probed.load, seed);
            let best = |tries: &[f64]| tries.iter().copied().fold(f64::INFINITY, f64::min);
            all.chunks_exact(probed.tries).map(best).collect()
        };
        let paths: Vec<Vec<f64>> = probed.paths.iter().map(of_path).collect();
        let mut delays = ProbeDelays::default();
        for probe in 0..paths.first().map_or(0, Vec::len) {
            delays.add(paths.iter().filter_map(|path| path.get(probe).copied()));
        }
        delays
    }
}

/// Returns the delay of each probe on a path in s, infinite for a lost one.
fn delays(
    path: &[DirectedLink],
    setups: &[LinkSetup],
    sent: &[Instant],
    load: Bytes,
    seed: Seed,
) -> Vec<f64> {
    let mut links: Vec<_> = path
        .iter()
        .filter_map(|hop| {
            let setup = setups.get(hop.link())?;
            let (config, direction) = match hop.direction() {
                Direction::Uplink => (&setup.uplink, "uplink"),
                Direction::Downlink => (&setup.downlink, "downlink"),
            };
            Some(skybraid_link::Link::new(config, &setup.name, direction, seed))
        })
        .collect();
    let packets = load.get().div_ceil(PACKET).min(MAX_PACKETS);
    let size = Bytes::new(load.get().min(PACKET));
    // Of several packets all but the first follow within the time that the link needs for them.
    let waits = (load.get() as f64 / size.get() as f64 - 1.0) / (packets - 1).max(1) as f64;
    let mut cross = |sent: Instant| {
        let mut now = sent;
        for link in &mut links {
            match link.admit(now, size) {
                Fate::Delivered { at } => now = at,
                Fate::Lost { .. } => return f64::INFINITY,
                // A receiver that restores the order gives it to the next.
                Fate::Held => while link.release().is_some() {},
            }
        }
        now.since(sent).as_secs_f64()
    };
    let probe = |sent: &Instant| {
        let first = cross(*sent);
        let last = (1..packets).fold(first, |_, _| cross(*sent));
        if packets > 1 { first + waits * (last - first).max(0.0) } else { first }
    };
    sent.iter().map(probe).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn scenario(paths: &str, rate: &str, scheduler: &str) -> Scenario {
        let text = format!(
            "duration = '2min'
{paths}
[flow.control]
from = 'ground'
traffic = {{ kind = 'cbr', rate = '{rate}', packet = '125B' }}
transport = {{ protocol = 'udp', scheduler = '{scheduler}' }}
require = {{ deadline = '100ms', share = '90%' }}"
        );
        Scenario::parse(&text, Path::new("probes.toml"), &[]).unwrap()
    }

    const TWO: &str = "[path.a]
rate = '2Mbit/s'
delay = '20ms'
down = [['0s', '60s']]
[path.b]
rate = '2Mbit/s'
delay = '20ms'
down = [['30s', '30s']]";

    #[test]
    fn probes_see_which_part_of_the_time_paths_are_down() {
        let probes = scenario(TWO, "10kbit/s", "redundant").probe("control", Seed(1)).unwrap();
        let exposure = probes.exposure(0.1);
        assert!((exposure.all - 0.25).abs() < 0.01, "{exposure:?}");
        assert!((exposure.some - 0.25).abs() < 0.01, "{exposure:?}");
    }

    #[test]
    fn a_train_sees_that_a_link_is_too_slow_for_its_flow() {
        let path = "[path.a]\nrate = '2Mbit/s'\ndelay = '20ms'";
        let late = |rate| {
            let probes = scenario(path, rate, "single").probe("control", Seed(1)).unwrap();
            probes.exposure(0.15).all
        };
        assert_eq!([late("1Mbit/s"), late("5Mbit/s")], [0.0, 1.0]);
    }

    #[test]
    fn rare_events_need_other_runs() {
        let path = "[path.a]\nrate = '2Mbit/s'\ndelay = '20ms'";
        let needs = |more: &str| {
            scenario(&format!("{path}\n{more}"), "10kbit/s", "single").needs_other_runs()
        };
        let outages = |up: &str| format!("[[outages]]\npaths = ['a']\nup = '{up}'\ndown = '1s'");
        assert!(!needs("loss = { uniform = '0.1%' }\ndown = [['0s', '60s']]"));
        assert!(!needs(&outages("10s")));
        assert!(needs(
            &outages("10s").replace("'1s'", "{ pareto = '100ms', alpha = 0.9, max = '5min' }")
        ));
        assert!(needs(&outages("1h")));
        assert!(needs("outage = { interval = { mean = '1h' }, length = '60s' }"));
        // Probes are 100 ms apart.
        assert!(!needs("outage = { interval = { mean = '1h' }, length = '200ms' }"));
        let lossy = format!("{path}\nloss = {{ uniform = '1%' }}\n{}", outages("1h"));
        let lossy = scenario(&lossy, "400kbit/s", "single").probe("control", Seed(1)).unwrap();
        assert_eq!(lossy.exposure(0.1).all, 0.0, "random losses are no events");
        let rare = scenario(&format!("{path}\n{}", outages("1h")), "10kbit/s", "single");
        let [others, _] = rare.probe_family("control").unwrap().exposure(0.1);
        // 3,000 runs of 2 min have about 100 outages of 1 s, whose number has a standard deviation of 10 %.
        assert!((others.all * 3601.0 - 1.0).abs() < 0.3, "{others:?}");
    }

    #[test]
    fn runs_and_families_of_one_scenario_have_probes_alike() {
        let family = "[path.a]\npreset = 'starlink-car'";
        let single = scenario(family, "10kbit/s", "single");
        assert!(single.draws_flights());
        assert!(single.probes_alike(&scenario(family, "10kbit/s", "redundant"), "control"));
        assert!(!single.probes_alike(&scenario(family, "1Mbit/s", "single"), "control"));
        assert!(!scenario(TWO, "10kbit/s", "single").draws_flights());
        assert_eq!(single.probe("control", Seed(3)), single.probe("control", Seed(3)));
        assert_ne!(single.probe("control", Seed(3)), single.probe("control", Seed(4)));
        assert_eq!(single.probe("video", Seed(1)), None);
    }
}
