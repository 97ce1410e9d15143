//! Defaults that depend on the protocol, the profile and the traffic.

use std::path::Path;

use skybraid_host::FlowSetup;
use skybraid_host::record::Record;
use skybraid_scenario::Scenario;
use skybraid_units::Seed;

fn flow(traffic: &str, transport: &str) -> FlowSetup {
    let text = format!(
        "duration = '1s'\n\
         [path.a]\nuplink.rate = '9Mbit/s'\ndownlink.rate = '9Mbit/s'\n\
         [path.b]\nuplink.rate = '9Mbit/s'\ndownlink.rate = '9Mbit/s'\n\
         [flow.x]\nfrom = 'vehicle'\ntraffic = {{ {traffic} }}\ntransport = {{ {transport} }}"
    );
    let scenario = Scenario::parse(&text, Path::new("x.toml"), &[]).unwrap();
    scenario.setup(Seed(1), Record::default()).flows[0].clone()
}

const CBR: &str = "kind = 'cbr', rate = '1Mbit/s', packet = '1000B'";

#[test]
fn multipath_protocols_use_all_paths_by_default() {
    let scheduler = |keys: &str| flow(CBR, keys).transport.scheduler.name().to_string();
    for (profile, mptcp) in
        [("", "low_rtt"), ("rfc", "low_rtt"), ("ns2", "low_rtt"), ("linux", "linux")]
    {
        let profile =
            if profile.is_empty() { String::new() } else { format!(", profile = '{profile}'") };
        assert_eq!(scheduler(&format!("protocol = 'mptcp'{profile}")), mptcp);
        assert_eq!(scheduler(&format!("protocol = 'mp_dccp'{profile}")), "low_rtt");
        assert_eq!(scheduler(&format!("protocol = 'tcp', paths = ['a']{profile}")), "single");
        assert_eq!(
            scheduler(&format!("protocol = 'mptcp', scheduler = 'single'{profile}")),
            "single"
        );
    }
}

#[test]
fn a_videos_transmit_queue_holds_two_key_frames_by_default() {
    let queue = |traffic: &str, keys: &str| {
        flow(traffic, &format!("protocol = 'mp_dccp'{keys}")).transport.tx_queue()
    };
    assert_eq!(queue(CBR, ""), 5);
    // 8 Mbit/s at 30 frames/s: 33 333 B a frame were they equal; one of 30 is four times as large as the
    // others, which makes it 4 / 33 of the 1 MB of a second: 121 212 B, in packets with 1188 B less 2 B of
    // fragment header.
    let video = "kind = 'video', rate = '8Mbit/s'";
    assert_eq!(queue(video, ""), 2 * 103);
    assert_eq!(queue(video, ", tx_queue = 5"), 5);
    let doubled = "kind = 'video', rate = '8Mbit/s', duplicate = 'keys'";
    assert_eq!(queue(doubled, ""), 2 * 206);
}

#[test]
fn the_name_of_an_algorithm_may_stand_after_its_parameters() {
    let named = |scheduler: &str| {
        let text = format!(
            "duration = '1s'\n[path.a]\nrate = '9Mbit/s'\n[flow.x]\nfrom = 'vehicle'\n\
             traffic = {{ {CBR} }}\n{scheduler}"
        );
        let scenario = Scenario::parse(&text, Path::new("x.toml"), &[]).unwrap();
        scenario.setup(Seed(1), Record::default()).flows[0].transport.scheduler.clone()
    };
    let first = "transport = { protocol = 'udp', scheduler = { name = 'streaming', burst = 4 } }";
    let last = "transport = { protocol = 'udp', scheduler = { burst = 4, name = 'streaming' } }";
    let table =
        "transport.protocol = 'udp'\n[flow.x.transport.scheduler]\nburst = 4\nname = 'streaming'";
    assert_eq!(named(last), named(first));
    assert_eq!(named(table), named(first));
}
