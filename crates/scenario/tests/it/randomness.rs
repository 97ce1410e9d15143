//! Tests of the dependence of a scenario on its seed.

use std::path::Path;

use skybraid_scenario::Scenario;

/// Two paths, of which the flow uses the first.
fn is_random(lte: &str, leo: &str, transport: &str, more: &str) -> bool {
    let text = format!(
        "duration = '10s'\n\
         [path.lte]\nrate = '10Mbit/s'\n{lte}\n\
         [path.leo]\nrate = '10Mbit/s'\n{leo}\n\
         [flow.control]\nfrom = 'vehicle'\n\
         traffic = {{ kind = 'cbr', rate = '100kbit/s', packet = '100B' }}\n\
         transport = {{ paths = ['lte'], {transport} }}\n{more}"
    );
    Scenario::parse(&text, Path::new("x.toml"), &[]).unwrap().is_random()
}

#[test]
fn constant_paths_are_not_random() {
    assert!(!is_random("delay = '30ms'", "", "protocol = 'udp'", ""));
    assert!(!is_random("", "", "protocol = 'tcp', congestion = 'cubic'", ""));
    let event = "[[event]]\nat = '2s'\npath.lte.rate = '1Mbit/s'\npath.lte.down = '1s'\n";
    assert!(!is_random("", "", "protocol = 'udp'", event));
}

#[test]
fn a_random_link_counts_if_a_flow_uses_it() {
    let loss = "loss = { uniform = '1%' }";
    assert!(is_random(loss, "", "protocol = 'udp'", ""));
    assert!(!is_random("", loss, "protocol = 'udp'", ""));
    let event = "[[event]]\nat = '2s'\npath.lte.loss = { uniform = '1%' }\n";
    assert!(is_random("", "", "protocol = 'udp'", event));
}

#[test]
fn shared_outages_and_random_controls_are_random() {
    let outages = |path| format!("[[outages]]\npaths = ['{path}']\nup = '60s'\ndown = '2s'\n");
    assert!(is_random("", "", "protocol = 'udp'", &outages("lte")));
    assert!(!is_random("", "", "protocol = 'udp'", &outages("leo")));
    assert!(is_random("", "", "protocol = 'tcp', congestion = 'bbr'", ""));
}
