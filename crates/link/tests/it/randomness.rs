//! Dependence of links on the seed.

use skybraid_link::Direction;

fn is_random(uplink: &str) -> bool {
    let mut config = crate::common::path(&format!("uplink.rate = '5Mbit/s'\n{uplink}"));
    for source in config.traces_mut() {
        source.load("0,0\n1,100\n").unwrap();
    }
    config.link(Direction::Uplink).unwrap().is_random()
}

#[test]
fn links_without_draws_are_not_random() {
    for keys in [
        "",
        "uplink.delay = '30ms'",
        "uplink.delay = { steps = [['0s', '30ms'], ['5s', '80ms']] }",
        "uplink.delay = { trace = 'f.csv', column = '2', unit = 'ms' }",
        "uplink.delay = { trace = 'f.csv', column = '2', unit = 'ms', start = '0s' }",
        "uplink.loss = { trace = 'f.csv', column = '2', unit = '%' }",
        "uplink.loss = [{ uniform = '0%' }, { uniform = '100%' }, { bit_errors = 0.0 }]",
        "uplink.loss = { on_off = { on = '6s', off = '1s', off_loss = '100%' } }",
        "uplink.harq = { loss = '0%' }",
        "drx = { inactivity = '100ms' }",
        "down = [['1s', '2s']]",
        "reconfiguration = { every = '15s', delay_step = '3ms' }",
        "uplink.queue = { codel = { target = '4ms' } }",
    ] {
        assert!(!is_random(keys), "{keys}");
    }
}

#[test]
fn links_with_draws_are_random() {
    for keys in [
        "uplink.delay = { mean = '30ms' }",
        "uplink.delay = { trace = 'f.csv', column = '2', unit = 'ms', start = 'random' }",
        "uplink.delay = { trace = 'f.csv', column = '2', unit = 'ms', resample = '1s' }",
        "uplink.loss = { trace = 'f.csv', column = '2', unit = 'ppm' }",
        "uplink.loss = { uniform = '1%' }",
        "uplink.loss = { bit_errors = 1e-9 }",
        "uplink.loss = { gilbert_elliott = { good_to_bad = '1%', bad_to_good = '20%' } }",
        "uplink.loss = { on_off = { on = { mean = '6s' }, off = '1s', off_loss = '100%' } }",
        "uplink.harq = { loss = '0.5%' }",
        "handover = { interval = { mean = '20s' }, interruption = '50ms' }",
        "reconfiguration = { delay_step = { min = '0ms', max = '20ms' } }",
        "reconfiguration = { loss = '1%' }",
    ] {
        assert!(is_random(keys), "{keys}");
    }
}
