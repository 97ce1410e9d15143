//! Service over a run, compared with brute-force computations.

use proptest::prelude::*;
use skybraid_orbit::{
    Choice, Constellation, Epoch, Gateway, Satellite, Terminal, Walker, over_ground, serve,
};
use skybraid_track::{Position, Track};
use skybraid_units::{Angle, Duration, Instant, Length, Speed};

const LIGHT: f64 = 299_792_458.0;

fn place(latitude: f64, longitude: f64, altitude: f64) -> Position {
    Position::new(latitude, longitude, altitude).unwrap()
}

fn gateway(latitude: f64, longitude: f64, ground_ms: i64) -> Gateway {
    let track = Track::fixed(place(latitude, longitude, 0.0));
    Gateway { track, ground: Duration::from_millis(ground_ms) }
}

fn terminal(track: Track, gateways: Vec<Gateway>, choice: Choice) -> Terminal {
    Terminal {
        track,
        mask: Angle::from_degrees(25.0),
        gateways,
        gateway_mask: Angle::from_degrees(15.0),
        choice,
        isl: false,
        handover_gap: Duration::ZERO,
        step: Duration::from_millis(100),
    }
}

fn start() -> Epoch {
    Epoch::from_text("2026-01-01T00:00:20Z").unwrap()
}

fn millis(at: i64) -> Duration {
    Duration::from_millis(at)
}

/// A bent-pipe service by brute force in steps of `STEP` ms, directly from its definition.
struct Brute<'a> {
    satellites: &'a [Satellite],
    terminal: &'a Terminal,
    end: i64,
}

const STEP: i64 = 100;

impl Brute<'_> {
    fn elevation(&self, satellite: usize, at: i64) -> f64 {
        let position = self.satellites[satellite].position(start() + millis(at)).unwrap();
        self.terminal.track.at(millis(at)).look(position).elevation
    }

    fn usable(&self, satellite: usize, at: i64) -> bool {
        let position = self.satellites[satellite].position(start() + millis(at)).unwrap();
        self.elevation(satellite, at) >= self.terminal.mask.as_degrees()
            && self.terminal.gateways.iter().any(|gateway| {
                let look = gateway.track.at(millis(at)).look(position);
                look.elevation >= self.terminal.gateway_mask.as_degrees()
            })
    }

    fn all_usable(&self, at: i64) -> Vec<usize> {
        (0..self.satellites.len()).filter(|satellite| self.usable(*satellite, at)).collect()
    }

    fn stays_until(&self, satellite: usize, at: i64) -> i64 {
        (at..self.end)
            .step_by(STEP as usize)
            .find(|at| !self.usable(satellite, *at))
            .unwrap_or(self.end)
    }

    fn highest(&self, of: &[usize], at: i64) -> Option<usize> {
        let height = |satellite: &usize| self.elevation(*satellite, at);
        of.iter().copied().max_by(|a, b| height(a).total_cmp(&height(b)))
    }

    /// Returns the serving satellite at every step.
    fn serve(&self) -> Vec<Option<usize>> {
        let mut served: Vec<Option<usize>> = Vec::new();
        let mut slot = i64::MIN;
        for at in (0..self.end).step_by(STEP as usize) {
            let there = self.all_usable(at);
            let before = served.last().copied().flatten();
            let kept = before.filter(|satellite| there.contains(satellite));
            served.push(match self.terminal.choice {
                Choice::Nearest => self.highest(&there, at),
                Choice::LongestVisible => kept.or_else(|| {
                    there.iter().copied().max_by_key(|satellite| self.stays_until(*satellite, at))
                }),
                Choice::Epoch => {
                    // The run begins at second 20, so slots begin after 7 s, 22 s and so on.
                    let now = (at - 7_000).div_euclid(15_000);
                    if now == slot {
                        kept
                    } else {
                        slot = now;
                        let until = ((now + 1) * 15_000 + 7_000).min(self.end);
                        let stays = |satellite: &usize| self.stays_until(*satellite, at) >= until;
                        let whole: Vec<usize> = there.iter().copied().filter(stays).collect();
                        self.highest(&whole, at).or_else(|| self.highest(&there, at))
                    }
                }
            });
        }
        served
    }
}

fn same_service(choice: Choice) {
    // An aircraft that circles over the Alps, a shell with gaps, and two gateways.
    let constellation =
        Constellation::of_shells("test", &[Walker::from_text("53deg:80/10/4@550km").unwrap()]);
    let centre = place(47.0, 7.4, 3000.0);
    let (radius, speed) = (Length::from_metres(20_000.0), Speed::from_metres_per_second(60.0));
    let track = Track::circle(centre, radius, speed).unwrap();
    let gateways = vec![gateway(45.5, 9.2, 2), gateway(51.5, -0.1, 5)];
    let terminal = terminal(track, gateways, choice);
    let end = 1_800_000;
    let service = serve(&constellation, &terminal, start(), millis(end));
    let satellites = constellation.satellites();
    let brute = Brute { satellites, terminal: &terminal, end };
    let expected = brute.serve();
    let mut found = vec![None; expected.len()];
    for span in &service.serving {
        let is_serving = |satellite: &Satellite| satellite.name() == span.satellite;
        let satellite = satellites.iter().position(is_serving).unwrap();
        // Brute force is up to a step late.
        let first = |at: Instant| (at.as_nanos() + STEP * 1_000_000 - 1) / (STEP * 1_000_000);
        for step in first(span.from)..first(span.to) {
            found[step as usize] = Some(satellite);
        }
    }
    let off: Vec<usize> = (0..found.len()).filter(|step| found[*step] != expected[*step]).collect();
    assert!(off.is_empty(), "{choice:?} at steps {off:?}");
    let gaps: i64 = service.gaps.iter().map(|(_, length)| length.as_nanos()).sum();
    let handovers = service.handovers.len();
    assert!(gaps > 0 && handovers > 0, "{gaps} {handovers}");
    for handover in &service.handovers {
        let changed = service.serving.iter().any(|span| span.from == handover.at);
        assert!(changed && handover.gap == Duration::ZERO);
    }
    for sample in service.samples.iter().step_by(37) {
        let at = (sample.at - Instant::ZERO).as_nanos() / 1_000_000;
        let mut spans = service.serving.iter();
        let span = spans.find(|span| span.from <= sample.at && sample.at < span.to);
        let name = &span.unwrap().satellite;
        let satellite = satellites.iter().find(|satellite| satellite.name() == name).unwrap();
        let position = satellite.position(start() + millis(at)).unwrap();
        let up = terminal.track.at(millis(at)).look(position);
        let down = terminal.gateways.iter().filter_map(|gateway| {
            let look = gateway.track.at(millis(at)).look(position);
            let seen = look.elevation >= 15.0;
            seen.then_some(look.range / LIGHT + gateway.ground.as_secs_f64())
        });
        let expected = up.range / LIGHT + down.fold(f64::MAX, f64::min);
        assert!((sample.delay.as_secs_f64() - expected).abs() < 2e-9);
        assert!((sample.elevation - up.elevation).abs() < 1e-6);
    }
}

#[test]
fn the_nearest_agrees_with_brute_force() {
    same_service(Choice::Nearest);
}

#[test]
fn the_longest_visible_agrees_with_brute_force() {
    same_service(Choice::LongestVisible);
}

#[test]
fn epochs_agree_with_brute_force() {
    same_service(Choice::Epoch);
}

#[test]
fn a_terminal_at_the_pole_sees_no_satellite_over_the_equator() {
    let pole = Track::fixed(place(90.0, 0.0, 0.0));
    let longitudes = (0..36).map(|number| f64::from(number) * 10.0 - 180.0);
    let ring = longitudes.map(Satellite::geostationary).collect();
    let terminal = Terminal {
        mask: Angle::ZERO,
        ..terminal(pole, vec![gateway(50.0, 8.0, 0)], Choice::LongestVisible)
    };
    let service = serve(&Constellation::of(ring), &terminal, start(), Duration::from_secs(3600));
    assert_eq!(service.gaps, [(Instant::ZERO, Duration::from_secs(3600))]);
    assert_eq!((service.serving.len(), service.delays()), (0, None));
}

#[test]
fn links_serve_an_ocean_that_a_bent_pipe_cannot() {
    let constellation = Constellation::named("starlink-550").unwrap();
    let middle = Track::fixed(place(40.0, -40.0, 10_000.0));
    let alone = terminal(middle, vec![gateway(51.0, 0.0, 0)], Choice::LongestVisible);
    let linked = Terminal { isl: true, ..alone.clone() };
    let length = Duration::from_secs(300);
    let without = serve(&constellation, &alone, start(), length);
    assert_eq!(without.gaps, [(Instant::ZERO, length)]);
    let with = serve(&constellation, &linked, start(), length);
    assert_eq!(with.gaps, []);
    let delays = with.delays().unwrap();
    // 3267 km of great circle take 10.9 ms at the speed of light; up, down and the detour of the grid add to it.
    assert!(delays.min > Duration::from_micros(11_000), "{delays:?}");
    assert!(delays.max < Duration::from_millis(30), "{delays:?}");
    assert!(with.samples.iter().all(|sample| sample.hops >= 1));
}

#[test]
fn a_route_over_links_is_never_slower_than_direct() {
    let constellation = Constellation::named("starlink-550").unwrap();
    let berne = Track::fixed(place(46.95, 7.44, 500.0));
    let alone = terminal(berne, vec![gateway(50.1, 8.7, 1)], Choice::LongestVisible);
    let linked = Terminal { isl: true, gateway_mask: alone.gateway_mask, ..alone.clone() };
    let length = Duration::from_secs(120);
    let with = serve(&constellation, &linked, start(), length);
    let straight = with.samples.iter().filter(|sample| sample.hops == 0).count();
    assert!(straight > 0);
    for sample in &with.samples {
        assert!(sample.delay >= Duration::from_micros(4_600), "{sample:?}");
    }
}

#[test]
fn every_handover_has_the_configured_gap() {
    let constellation = Constellation::named("starlink-550").unwrap();
    let berne = Track::fixed(place(46.95, 7.44, 500.0));
    let terminal = Terminal {
        handover_gap: Duration::from_millis(80),
        ..terminal(berne, vec![gateway(47.0, 8.0, 0)], Choice::Epoch)
    };
    let service = serve(&constellation, &terminal, start(), Duration::from_secs(600));
    assert!(!service.handovers.is_empty());
    for handover in &service.handovers {
        assert_eq!(handover.gap, Duration::from_millis(80));
        // :27 is 7 s into the run.
        assert_eq!((handover.at.as_nanos() - 7_000_000_000) % 15_000_000_000, 0);
    }
}

/// Delay up and down of a stationary satellite over the equator, by the cosine rule on WGS 84.
fn still(radius: f64, longitude: f64, place: Position) -> (f64, f64) {
    let (across, along) = (place.latitude().to_radians(), place.longitude().to_radians());
    let (a, e2) = (6_378_137.0, 6.694_379_990_14e-3);
    let normal = a / (1.0 - e2 * across.sin().powi(2)).sqrt();
    let out = (normal + place.altitude()) * across.cos();
    let up = (normal * (1.0 - e2) + place.altitude()) * across.sin();
    let turned = longitude.to_radians() - along;
    let range = (out * out + radius * radius - 2.0 * out * radius * turned.cos() + up * up).sqrt();
    let normal_to = radius * turned.cos() * across.cos() - out * across.cos() - up * across.sin();
    (range, (normal_to / range).asin().to_degrees())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn geostationary_delay_follows_the_geometry(
        latitude in -75.0f64..75.0,
        offset in -60.0f64..60.0,
        longitude in -180.0f64..180.0,
        altitude in 0.0f64..12_000.0,
    ) {
        let east = if longitude + offset > 180.0 { longitude + offset - 360.0 } else { longitude + offset };
        let east = if east < -180.0 { east + 360.0 } else { east };
        let here = place(latitude, east, altitude);
        let (range, elevation) = still(42_164_170.0, longitude, here);
        prop_assume!(elevation > 5.5);
        let under = gateway(0.0, longitude, 7);
        let terminal = Terminal {
            mask: Angle::from_degrees(5.0),
            ..terminal(Track::fixed(here), vec![under], Choice::Nearest)
        };
        let constellation = Constellation::of(vec![Satellite::geostationary(longitude)]);
        let service = serve(&constellation, &terminal, start(), Duration::from_secs(2));
        let expected = (range + 42_164_170.0 - 6_378_137.0) / LIGHT + 0.007;
        prop_assert_eq!(service.gaps.len(), 0);
        for sample in &service.samples {
            prop_assert!((sample.delay.as_secs_f64() - expected).abs() < 1e-7, "{:?}", sample);
            prop_assert!((sample.elevation - elevation).abs() < 1e-5);
        }
    }

    #[test]
    fn medium_orbit_delay_follows_the_geometry(
        latitude in -40.0f64..40.0,
        longitude in -180.0f64..180.0,
        minutes in 0i64..1440,
    ) {
        let here = place(latitude, longitude, 0.0);
        let ring = Constellation::named("o3b").unwrap();
        let begin = start() + Duration::from_secs(60 * minutes);
        let own = Gateway { track: Track::fixed(here), ground: Duration::ZERO };
        let terminal = Terminal {
            mask: Angle::from_degrees(5.0),
            gateway_mask: Angle::from_degrees(5.0),
            ..terminal(Track::fixed(here), vec![own], Choice::Nearest)
        };
        let service = serve(&ring, &terminal, begin, Duration::from_secs(1));
        // Twenty satellites are 18° apart, so the nearest is at most 9° of longitude away.
        let radius = 6_378_137.0 + 8_062_000.0;
        let least = still(radius, longitude, here).0 * 2.0 / LIGHT;
        let most = still(radius, longitude + 9.0, here).0 * 2.0 / LIGHT;
        prop_assert_eq!(service.gaps.len(), 0);
        for sample in &service.samples {
            let delay = sample.delay.as_secs_f64();
            prop_assert!(delay > least - 1e-6 && delay < most + 1e-5, "{delay} {least} {most}");
        }
    }

    #[test]
    fn service_and_gaps_partition_a_run(
        latitude in -90.0f64..90.0,
        longitude in -180.0f64..180.0,
        choice in prop_oneof![
            Just(Choice::Nearest), Just(Choice::LongestVisible), Just(Choice::Epoch)
        ],
    ) {
        let constellation = Constellation::named("iridium").unwrap();
        let here = place(latitude, longitude, 0.0);
        let own = Gateway { track: Track::fixed(here), ground: Duration::ZERO };
        let terminal = terminal(Track::fixed(here), vec![own], choice);
        let length = Duration::from_millis(900_123);
        let service = serve(&constellation, &terminal, start(), length);
        let mut spans: Vec<(Instant, Instant)> =
            service.serving.iter().map(|span| (span.from, span.to)).collect();
        spans.extend(service.gaps.iter().map(|(from, length)| (*from, *from + *length)));
        spans.sort();
        let mut until = Instant::ZERO;
        for (from, to) in spans {
            prop_assert_eq!(from, until);
            prop_assert!(to > from);
            until = to;
        }
        prop_assert_eq!(until, Instant::ZERO + length);
        let held = service.held().fold(Duration::ZERO, |sum, (_, span)| sum + span);
        let gaps = service.gaps.iter().fold(Duration::ZERO, |sum, (_, span)| sum + *span);
        prop_assert_eq!(held + gaps, length);
    }
}

#[test]
fn ground_delay_is_at_two_thirds_of_the_speed_of_light() {
    // 1000 km / (2/3 · 299792.458 km/s) = 5.0035 ms.
    assert!((over_ground(1e6).as_millis_f64() - 5.003_461).abs() < 1e-6);
}
