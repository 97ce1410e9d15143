//! Satellite access layer, held against the numbers of a published testbed and a simulation frame by frame.

use skybraid_link::{Cause, Direction, Fate, Link, PathConfig};
use skybraid_testing::{Config, print_path};
use skybraid_units::{Bytes, Instant, Seed};

use crate::common::{direction, lost, mean, ms, near, path};

/// The satellite of the testbed of Baltaci et al. 2023: MODCOD 1 and waveform 12, frames of 1 ms.
const ARTICLE: &str = r#"
uplink.access = { kind = "dvb", rules = "opensand", frame = "1ms", waveform = 12, cra = "18.6Mbit/s", frame_loss = "0.166%", terminal_delay = "9ms", gateway_delay = "9ms", delay_clock = "1ms", satellite_frame = "1ms" }
uplink.queue = { packets = 6000 }
downlink.access = { kind = "dvb", rules = "opensand", frame = "1ms", modcod = 1, symbol_rate = "26.4MHz", carriers = 5, frame_loss = "0.166%", terminal_delay = "9ms", gateway_delay = "9ms", delay_clock = "1ms", satellite_frame = "1ms" }
downlink.queue = { packets = 6000 }
"#;

/// Access layer of Chavali 2022: frames of 26 ms and 10 ms, 10 ms on the ground, CRA 100 kbit/s.
const THESIS: &str = r#"
uplink.access = { kind = "dvb", rules = "opensand", frame = "26ms", waveform = 12, cra = "100kbit/s", terminal_delay = "9ms", gateway_delay = "9ms", delay_clock = "1ms", satellite_frame = "10ms", ground = "10ms" }
uplink.queue = { packets = 6000 }
downlink.access = { kind = "dvb", rules = "opensand", frame = "10ms", modcod = 1, symbol_rate = "40MHz", terminal_delay = "9ms", gateway_delay = "9ms", delay_clock = "1ms", satellite_frame = "10ms", ground = "10ms" }
downlink.queue = { packets = 6000 }
"#;

fn lossless(text: &str) -> String {
    text.replace("frame_loss = \"0.166%\"", "frame_loss = \"0%\"")
}

/// Delivered packets of 1500 B per second under overload, in Mbit/s, over two seconds.
fn capacity_mbps(link: &mut Link, offered_mbps: f64) -> f64 {
    let every = 12.0 / offered_mbps;
    let mut bits = 0.0;
    for n in 0.. {
        let at = f64::from(n) * every;
        if at > 5000.0 {
            break;
        }
        if let Fate::Delivered { at } = link.admit(ms(at), Bytes::new(1500))
            && (1000.0..3000.0).contains(&(at.as_nanos() as f64 * 1e-6))
        {
            bits += 12_000.0;
        }
    }
    bits / 2e6
}

fn share(found: &[Option<Cause>]) -> f64 {
    found.iter().filter(|cause| cause.is_some()).count() as f64 / found.len() as f64
}

/// Mean number of packets lost in a row.
fn mean_run(found: &[Option<Cause>]) -> f64 {
    let starts = found.windows(2).filter(|pair| pair[0].is_none() && pair[1].is_some()).count();
    found.iter().filter(|cause| cause.is_some()).count() as f64 / starts as f64
}

fn stream(link: &mut Link, count: u64, every_ms: f64, bytes: u64) -> Vec<Option<Cause>> {
    (0..count).map(|n| lost(link.admit(ms(n as f64 * every_ms), Bytes::new(bytes)))).collect()
}

#[test]
fn testbed_capacities_are_20_7_and_63_9_mbps() {
    let mut up = direction(&lossless(ARTICLE), Direction::Uplink, 1);
    near(capacity_mbps(&mut up, 40.0), 20.7, 0.1);
    let mut down = direction(&lossless(ARTICLE), Direction::Downlink, 1);
    near(capacity_mbps(&mut down, 100.0), 63.9, 0.1);
}

/// Seven bursts a packet: 1 − (1 − 0.00166)^7 = 1.156 %. Five standard deviations at 500,000 packets are 0.08 %; the
/// prototype of the facts has 1.157 ± 0.05 %.
#[test]
fn an_uplink_packet_of_1350_bytes_is_lost_with_seven_bursts() {
    for bytes in [1350, 1500] {
        let mut up = direction(ARTICLE, Direction::Uplink, 3);
        let found = stream(&mut up, 500_000, 1.08, bytes);
        near(share(&found), 0.011_56, 0.0005);
    }
    let mut up = direction(ARTICLE, Direction::Uplink, 3);
    near(share(&stream(&mut up, 500_000, 22.0, 72)), 0.00166, 0.0003);
}

/// A frame of a packet of 1350 B is one IP packet, 0.166 %; of 1500 B two, 0.33 %. In blocks of 128 KiB frames of
/// 1995 B are full: a packet of 1513 B is in 1.76 of them, which is 0.58 %, and a lost frame holds 2.3 packets.
#[test]
fn downlink_loss_depends_on_how_frames_are_filled() {
    let mut down = direction(ARTICLE, Direction::Downlink, 5);
    near(share(&stream(&mut down, 1_000_000, 10.8, 1350)), 0.00166, 0.0002);
    let mut down = direction(ARTICLE, Direction::Downlink, 5);
    near(share(&stream(&mut down, 1_000_000, 12.0, 1500)), 0.003_317, 0.0003);
    let mut down = direction(ARTICLE, Direction::Downlink, 5);
    let mut found = Vec::new();
    for block in 0..10_000 {
        let at = ms(f64::from(block) * 1048.576);
        found.extend((0..92).map(|_| lost(down.admit(at, Bytes::new(1500)))));
    }
    near(share(&found), 0.0058, 0.0003);
    near(mean_run(&found), 1.76 * 1995.0 / 1513.0, 0.05);
}

/// One-way delays in ms of packets of 60 B, 50 for each of 400 draws of the timers' phases.
fn one_way(text: &str, to: Direction) -> Vec<f64> {
    let config = path(text).link(to).unwrap();
    let mut delays = Vec::new();
    for seed in 0..400 {
        let mut link = Link::new(&config, "p", to.name(), Seed(seed));
        for n in 0..50 {
            let at = f64::from(n) * 237.123;
            if let Fate::Delivered { at: arrival } = link.admit(ms(at), Bytes::new(60)) {
                delays.push(arrival.as_nanos() as f64 * 1e-6 - at);
            }
        }
    }
    delays
}

/// A packet waits half a frame for each timer on its way; the clocks of the delay queues round down by half a tick and
/// wait for half a tick. Each delay of 9 ms is thus 9 ms in the mean.
#[test]
fn timers_add_half_of_their_periods_to_the_delay() {
    let up = one_way(THESIS, Direction::Uplink);
    let down = one_way(THESIS, Direction::Downlink);
    // Four standard errors of 400 draws of a phase over 10 ms are 0.6 ms.
    near(mean(&up), 13.0 + 9.0 + 5.0 + 9.0 + 10.0, 0.6);
    near(mean(&down), 10.0 + 5.0 + 9.0 + 5.0 + 9.0, 0.6);
    let mut trips: Vec<f64> = up.iter().zip(down.iter().rev()).map(|(a, b)| a + b).collect();
    trips.sort_by(f64::total_cmp);
    // 56 ms and uniform waits of 26, 10, 10 and 10 ms: 95.8 ms at 90 %. Chavali 2022 measured 92 ms to 96 ms.
    near(trips[trips.len() * 9 / 10], 95.8, 1.0);
    for to in Direction::ALL {
        near(mean(&one_way(&lossless(ARTICLE), to)), 0.5 + 9.0 + 0.5 + 9.0, 0.15);
    }
}

/// CRA of 100 kbit/s is 4 kbit a superframe of 26 ms, 500 B. Acknowledgements of 60 B have 4 B of headers each and 5 B
/// more in each burst: 290 a second, and with the overshoot of the last burst, up to 64 B a superframe, 307.
#[test]
fn a_constant_rate_of_100_kbps_carries_300_acks_a_second() {
    let mut up = direction(THESIS, Direction::Uplink, 1);
    let mut delivered = 0;
    for n in 0..10_000 {
        if let Fate::Delivered { at } = up.admit(ms(f64::from(n)), Bytes::new(60))
            && (Instant::from_millis(1000)..Instant::from_millis(11_000)).contains(&at)
        {
            delivered += 1;
        }
    }
    near(f64::from(delivered) / 10.0, 307.0, 4.0);
}

#[test]
fn presets_of_the_testbed_have_its_numbers() {
    let preset = |name: &str| path(skybraid_link::presets::find(name).unwrap().text);
    let capacity = |name: &str, to: Direction| {
        let mut config = preset(name).link(to).unwrap();
        config.access.as_mut().unwrap().frame_loss = skybraid_units::Probability::ZERO;
        capacity_mbps(&mut Link::new(&config, "p", to.name(), Seed(1)), 100.0)
    };
    near(capacity("testbed-article-satellite", Direction::Uplink), 20.7, 0.1);
    near(capacity("testbed-article-satellite", Direction::Downlink), 63.9, 0.1);
    // 400,000 symbols in 10 ms: about 19 Mbit/s.
    near(capacity("testbed-thesis-satellite", Direction::Downlink), 19.3, 0.3);
    let handover = preset("testbed-article-lte").link(Direction::Uplink).unwrap().handover.unwrap();
    let skybraid_link::Shape::Mixture(mixture) = handover.interruption.shape else {
        panic!("no mixture")
    };
    let components = mixture.components().unwrap();
    near(components.iter().map(|each| each.weight).sum(), 1.0, 1e-9);
    let mean_ms = |each: &skybraid_link::Component| each.weight * each.mean.as_millis_f64();
    near(components.iter().map(mean_ms).sum(), 8.45, 0.03);
}

#[test]
fn a_rate_replaces_an_inherited_access_layer() {
    let base = path(skybraid_link::presets::find("geo-dvb").unwrap().text);
    let merged =
        path("uplink.rate = \"8Mbit/s\"\ndownlink.access.pilots = false").with_defaults(&base);
    assert_eq!(merged.link(Direction::Uplink).unwrap().access, None);
    let down = merged.link(Direction::Downlink).unwrap();
    assert!(down.access.is_some() && down.is_random());
    let base = path("downlink.rate = \"1Mbit/s\"");
    let own = path(
        "downlink.access = { kind = \"dvb\", frame = \"1ms\", modcod = 4, symbol_rate = \"1MHz\" }",
    );
    assert!(own.with_defaults(&base).link(Direction::Downlink).unwrap().access.is_some());
    let both = path(
        "downlink = { rate = \"1Mbit/s\", access = { kind = \"dvb\", frame = \"1ms\", modcod = 4, symbol_rate = \"1MHz\" } }",
    );
    let error = both.link(Direction::Downlink).unwrap_err().to_string();
    assert_eq!(error, "`downlink.rate`: `rate` and `access` exclude one another");
}

#[test]
fn an_access_layer_parses_from_its_text() {
    for name in
        ["geo-dvb", "testbed-article-satellite", "testbed-thesis-satellite", "testbed-article-lte"]
    {
        let config = path(skybraid_link::presets::find(name).unwrap().text);
        let printed = print_path(&config).unwrap();
        assert_eq!(path(&printed), config, "{printed}");
    }
}

#[test]
fn invalid_access_layers_are_rejected_with_their_key() {
    for (text, part) in [
        ("{ }", "`uplink.access.kind`: expected \"dvb\""),
        ("{ kind = \"dvb\" }", "`uplink.access.frame`: expected a time"),
        ("{ kind = \"dvb\", frame = \"1us\" }", "`uplink.access.frame`: found"),
        ("{ kind = \"dvb\", frame = \"1ms\" }", "`uplink.access.cra`: expected a rate"),
        ("{ kind = \"dvb\", frame = \"1ms\", modcod = 1 }", "expected on a forward link only"),
        (
            "{ kind = \"dvb\", link = \"forward\", frame = \"1ms\", modcod = 29 }",
            "`uplink.access.modcod`: expected 1 to 28",
        ),
        (
            "{ kind = \"dvb\", link = \"forward\", frame = \"1ms\", modcod = 1 }",
            "`uplink.access.symbol_rate`: expected a symbol rate",
        ),
        (
            "{ kind = \"dvb\", link = \"forward\", frame = \"1ms\", modcod = 11, fec_frame = \"short\", symbol_rate = \"30MHz\" }",
            "expected one that has short frames",
        ),
        (
            "{ kind = \"dvb\", frame = \"1ms\", cra = \"1Mbit/s\" }",
            "`uplink.access.waveform`: expected a number, or `es_n0`",
        ),
        (
            "{ kind = \"dvb\", frame = \"1ms\", waveform = 12, rbdc = \"1Mbit/s\" }",
            "`uplink.access.request_period`",
        ),
        (
            "{ kind = \"dvb\", frame = \"1ms\", cra = \"1Mbit/s\", es_n0 = { margin = \"1dB\" } }",
            "`uplink.access.es_n0.clear_sky`",
        ),
        (
            "{ kind = \"dvb\", frame = \"1ms\", waveform = 12, cra = \"1Mbit/s\", terminal_delay = { mean = \"1ms\" } }",
            "`uplink.access.terminal_delay`: expected a fixed time",
        ),
        ("{ kind = \"atm\" }", "unknown variant `atm`"),
    ] {
        let text = format!("uplink.access = {text}");
        let found = match PathConfig::parse(&text) {
            Err(error) => error,
            Ok(config) => config.link(Direction::Uplink).unwrap_err().to_string(),
        };
        assert!(found.contains(part), "{text}\nsaid: {found}\nnot: {part}");
    }
}

/// Es/N0 of 17 dB that falls by 8 dB from 10 s to 20 s, with reports 500 ms old.
const FADING: &str = r#"
downlink.access = { kind = "dvb", phase = "0ms", frame = "10ms", symbol_rate = "10MHz", es_n0 = { clear_sky = "17dB", attenuation = { steps = [["0s", "0dB"], ["10s", "8dB"], ["20s", "0dB"]] }, margin = "0.5dB", delay = "500ms" } }
downlink.queue = "unlimited"
"#;

/// 17 dB less 0.5 dB carries 32APSK 9/10 (16.05 dB, 4.453 bit/symbol), 9 dB less 0.5 dB 8PSK 3/4 (7.91 dB, 2.228): QPSK
/// 9/10 is below, 16APSK 2/3 (8.97 dB) and 8PSK 5/6 (9.35 dB) above.
#[test]
fn coding_follows_the_reported_es_n0() {
    let mut down = direction(FADING, Direction::Downlink, 1);
    for (second, mbps) in [(5, 44.53), (15, 22.28), (25, 44.53)] {
        let rate = down.conditions(Instant::from_millis(second * 1000)).rate;
        near(rate.as_bps() as f64 * 1e-6, mbps, 0.01);
    }
}

/// From the fade to its report the frames of 32APSK 9/10 are lost; after it none; and nothing while the report is still
/// worse than the sky.
#[test]
fn frames_are_lost_until_the_coding_has_followed() {
    let mut down = direction(FADING, Direction::Downlink, 1);
    let found = stream(&mut down, 2500, 10.0, 1500);
    for (n, cause) in found.iter().enumerate() {
        // A packet of the tick n is sent at the next one.
        let fades = (999..1049).contains(&n);
        assert_eq!(*cause, fades.then_some(Cause::Burst), "{n}");
    }
}

#[test]
fn without_adaptation_a_fade_loses_every_frame() {
    let fixed = FADING.replace("symbol_rate", "modcod = 28, symbol_rate");
    let mut down = direction(&fixed, Direction::Downlink, 1);
    let found = stream(&mut down, 2500, 10.0, 1500);
    near(share(&found), 0.4, 1e-9);
    // QPSK 1/4 needs -2.35 dB.
    let robust = FADING.replace("symbol_rate", "modcod = 1, symbol_rate");
    let mut down = direction(&robust, Direction::Downlink, 1);
    assert_eq!(share(&stream(&mut down, 2500, 10.0, 1500)), 0.0);
}

/// Waveform 22 (12.04 dB, 599 B) in the clear, 17 (5.94 dB, 333 B) at 7 dB: the constant rate stays, in more bursts,
/// until the carrier has no more of them.
#[test]
fn a_faded_terminal_keeps_its_rate_while_there_are_bursts() {
    let text = |attenuation: u32, symbols: &str| {
        format!(
            "uplink.access = {{ kind = \"dvb\", phase = \"0ms\", frame = \"50ms\", cra = \"2Mbit/s\", symbol_rate = \"{symbols}\", es_n0 = {{ clear_sky = \"14dB\", attenuation = \"{attenuation}dB\" }} }}\nuplink.queue = \"unlimited\""
        )
    };
    let rate = |attenuation, symbols| {
        let mut link = direction(&text(attenuation, symbols), Direction::Uplink, 1);
        link.conditions(Instant::ZERO).rate.as_bps() as f64
    };
    // 100,000 bits are 20.9 bursts of 599 B and 37.5 of 333 B; 32,320 symbols are 20 bursts.
    near(rate(0, "2MHz"), 21.0 * 599.0 * 8.0 * 20.0, 1.0);
    near(rate(7, "2MHz"), 38.0 * 333.0 * 8.0 * 20.0, 1.0);
    near(rate(7, "646.4kHz"), 20.0 * 333.0 * 8.0 * 20.0, 1.0);
}

fn guide() -> String {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/satellite-access.md");
    std::fs::read_to_string(file).unwrap()
}

#[test]
fn the_guide_has_the_tables_of_the_code() {
    use skybraid_link::access::{modcod, waveform};
    let guide = guide();
    let has = |cells: &[String]| {
        let row = cells.join(" | ");
        assert!(guide.contains(&format!("| {row} |")), "no row `{row}`");
    };
    for each in modcod::MODCODS {
        let frame = modcod::FecFrame::Normal;
        let rate = format!("{}/{}", each.rate.0, each.rate.1);
        let bytes = each.data_field(frame).unwrap().to_string();
        let symbols = each.symbols(frame, false).to_string();
        let es_n0 = format!("{:.2}", each.es_n0);
        has(&[each.id.to_string(), each.modulation.name().into(), rate, bytes, symbols, es_n0]);
    }
    for each in waveform::WAVEFORMS {
        let rate = format!("{}/{}", each.rate.0, each.rate.1);
        let sizes = [each.payload.to_string(), each.symbols.to_string()];
        let [bytes, symbols] = sizes;
        let es_n0 = format!("{:.2}", each.es_n0);
        has(&[each.id.to_string(), each.modulation.name().into(), rate, bytes, symbols, es_n0]);
    }
}

#[test]
fn the_guide_names_every_key_of_an_access_table() {
    let guide = guide();
    let table = guide.split("## Forward link").next().unwrap();
    let keys = |text: &str| {
        let error = PathConfig::parse(text).unwrap_err();
        let listed = error.split("expected one of ").nth(1).unwrap().to_string();
        let ticked: Vec<String> =
            listed.split('`').skip(1).step_by(2).map(str::to_string).collect();
        assert!(ticked.len() > 3, "{error}");
        ticked
    };
    for key in keys("uplink.access.x = 1").into_iter().chain(keys("uplink.access.es_n0.x = 1")) {
        assert!(table.contains(&format!("`{key}`")), "`{key}` is missing");
    }
}
