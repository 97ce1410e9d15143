//! Tests of networks: groups, routes, and invalid networks.

use std::collections::BTreeMap;
use std::path::Path;

use skybraid_host::DirectedLink;
use skybraid_host::record::Record;
use skybraid_scenario::{Route, Scenario, SubflowRoute};
use skybraid_units::{Bytes, Seed};

use crate::common::first_line;

const FLOW: &str = "traffic = { kind = 'bulk' }\ntransport = { protocol = 'tcp' }\n";

fn read(text: &str) -> Result<Scenario, String> {
    let text = format!("duration = '10s'\n{text}");
    Scenario::parse(&text, Path::new("net.toml"), &[])
        .map_err(|error| first_line(&error.to_string()))
}

/// Returns the table of a group of links between two groups.
fn link(name: &str, from: &str, to: &str) -> String {
    format!("[link.{name}]\nfrom = '{from}'\nto = '{to}'\nrate = '10Mbit/s'\ndelay = '10ms'\n")
}

/// Returns layers of nodes, each connected to all of the next: `a`, `b`, and so on.
fn layers(counts: &[u32]) -> String {
    let names: Vec<char> = ('a'..='z').take(counts.len()).collect();
    let nodes =
        names.iter().zip(counts).map(|(name, count)| format!("[node.{name}]\ncount = {count}\n"));
    let links = names.windows(2).map(|pair| {
        link(&format!("{}{}", pair[0], pair[1]), &pair[0].to_string(), &pair[1].to_string())
    });
    nodes.chain(links).collect()
}

fn hops(route: &SubflowRoute, away: bool) -> &[DirectedLink] {
    match &route.routes[usize::from(!away)] {
        Route::Fixed(hops) => hops,
        Route::Spread { .. } => &[],
    }
}

fn names(scenario: &Scenario, hops: &[DirectedLink]) -> Vec<String> {
    hops.iter().map(|hop| scenario.links[hop.link()].name.clone()).collect()
}

#[test]
fn the_thesis_network_has_as_many_paths_as_published() {
    // Source: Pedrazzi 2020, figure 5 and §5.2.1: 3·4·6·4·3; with six routers 6·4·6·4·6.
    for (routers, ways) in [(3, 864), (6, 3456)] {
        let net = layers(&[5, routers, 4, 6, 4, routers, 5]);
        let scenario = read(&format!("{net}[flow.x]\nfrom = 'a'\nto = 'g'\n{FLOW}")).unwrap();
        for route in scenario.routes(Seed(1)) {
            assert_eq!(route.ways, [ways, ways]);
            assert_eq!((hops(&route, true).len(), hops(&route, false).len()), (6, 6));
        }
    }
}

#[test]
fn ecmp_spreads_connections_and_keeps_each_on_its_path() {
    let net = layers(&[1, 8, 1]);
    let flows = format!("[flow.x]\nfrom = 'a'\nto = 'c'\nconnections = 4000\n{FLOW}");
    let scenario = read(&format!("{net}{flows}")).unwrap();
    let routes = scenario.routes(Seed(3));
    for away in [true, false] {
        let mut taken: BTreeMap<DirectedLink, f64> = BTreeMap::new();
        for route in &routes {
            *taken.entry(hops(route, away)[0]).or_default() += 1.0;
        }
        let expected = 4000.0 / 8.0;
        let chi_squared: f64 =
            taken.values().map(|count| (count - expected).powi(2) / expected).sum();
        // Seven degrees of freedom: 24.32 is exceeded with probability 0.001.
        assert!(taken.len() == 8 && chi_squared < 24.32, "{chi_squared}");
    }
    assert_eq!(routes, scenario.routes(Seed(3)));
    assert_ne!(routes, scenario.routes(Seed(4)));
}

#[test]
fn choices_at_consecutive_nodes_are_independent() {
    let net = layers(&[1, 4, 4, 1]);
    let flows = format!("[flow.x]\nfrom = 'a'\nto = 'd'\nconnections = 4000\n{FLOW}");
    let scenario = read(&format!("{net}{flows}")).unwrap();
    let mut taken: BTreeMap<[DirectedLink; 2], f64> = BTreeMap::new();
    for route in scenario.routes(Seed(1)) {
        let hops = hops(&route, true);
        *taken.entry([hops[0], hops[1]]).or_default() += 1.0;
    }
    let expected = 4000.0 / 16.0;
    let chi_squared: f64 = taken.values().map(|count| (count - expected).powi(2) / expected).sum();
    // Fifteen degrees of freedom: 37.70 is exceeded with probability 0.001.
    assert!(taken.len() == 16 && chi_squared < 37.70, "{chi_squared}");
}

#[test]
fn subflows_of_a_connection_are_routed_independently() {
    let net = layers(&[1, 5, 5, 1]);
    let transport = "transport = { protocol = 'mptcp', subflows = 15 }\n";
    let flow =
        format!("[flow.x]\nfrom = 'a'\nto = 'd'\ntraffic = {{ kind = 'bulk' }}\n{transport}");
    let scenario = read(&format!("{net}{flow}")).unwrap();
    let routes = scenario.routes(Seed(1));
    assert_eq!(routes.len(), 15);
    let mut different: Vec<&[DirectedLink]> =
        routes.iter().map(|route| hops(route, true)).collect();
    different.sort_unstable();
    different.dedup();
    assert!(different.len() > 7, "{different:?}");
}

#[test]
fn shortest_paths_follow_weights_or_delays() {
    let net = "[node.a]\n[node.b]\n[node.c]\n".to_string()
        + &link("direct", "a", "c")
        + "weight = 3\n"
        + &link("first", "a", "b")
        + &link("second", "b", "c");
    let flow = format!("[flow.x]\nfrom = 'a'\nto = 'c'\n{FLOW}");
    let way = |routing: &str| {
        let scenario = read(&format!("{net}{flow}{routing}")).unwrap();
        let routes = scenario.routes(Seed(1));
        names(&scenario, hops(&routes[0], true))
    };
    assert_eq!(way(""), ["first", "second"]);
    assert_eq!(way("[routing]\nby = 'delay'\n"), ["direct"]);
}

#[test]
fn a_static_route_overrides_the_shortest_path() {
    let net = layers(&[1, 2, 1]);
    let flow = format!("[flow.x]\nfrom = 'a'\nto = 'c'\nconnections = 20\n{FLOW}");
    let route = "[[route]]\nat = 'a'\nto = 'c'\nvia = 'b-2'\n";
    let scenario = read(&format!("{net}{flow}{route}")).unwrap();
    for route in scenario.routes(Seed(1)) {
        assert_eq!(names(&scenario, hops(&route, true))[0], "ab.b-2");
    }
}

#[test]
fn vehicles_open_connections_and_do_not_forward() {
    let net = "[node.uav]\nkind = 'vehicle'\ncount = 3\n[node.cell]\n[node.sat]\n[node.ground]\n"
        .to_string()
        + &link("lte", "uav", "cell")
        + &link("leo", "uav", "sat")
        + &link("core", "cell", "ground")
        + &link("gateway", "sat", "ground");
    let control = "[flow.control]\nfrom = 'ground'\nto = 'uav'\n\
                   traffic = { kind = 'cbr', rate = '100kbit/s', packet = '125B' }\n\
                   transport = { protocol = 'udp', scheduler = 'redundant' }\n";
    let scenario = read(&format!("{net}{control}")).unwrap();
    let flows: Vec<&str> = scenario.flows.iter().map(|flow| flow.name.as_str()).collect();
    assert_eq!(flows, ["control.uav-1", "control.uav-2", "control.uav-3"]);
    for route in scenario.routes(Seed(1)) {
        let own = format!("uav-{}", route.flow + 1);
        let (lte, leo) = (format!("lte.{own}"), format!("leo.{own}"));
        let up: [Vec<String>; 2] = [vec![lte, "core".into()], vec![leo, "gateway".into()]];
        assert_eq!(names(&scenario, hops(&route, true)), up[route.subflow]);
        let mut back = names(&scenario, hops(&route, false));
        back.reverse();
        assert_eq!(back, up[route.subflow], "answers come by the same interface");
    }
    // The only other path from the cell to the satellite is through a vehicle.
    let across = format!("[flow.x]\nfrom = 'cell'\nto = 'sat'\n{FLOW}");
    let without_ground = net.replace("[link.gateway]", "[link.gateway]\nweight = 1");
    let scenario = read(&format!("{without_ground}{across}"));
    assert!(scenario.unwrap_err().contains("no route from `cell` to `sat`"));
}

#[test]
fn the_minimum_mtu_of_the_route_holds() {
    let net = "[node.a]\n[node.b]\n[node.c]\n".to_string()
        + &link("first", "a", "b")
        + &link("second", "b", "c")
        + "mtu = '1280B'\n";
    let scenario = read(&format!("{net}[flow.x]\nfrom = 'a'\nto = 'c'\n{FLOW}")).unwrap();
    let setup = scenario.setup(Seed(1), Record::default());
    assert_eq!(setup.paths[setup.flows[0].paths[0]].info.mtu, Bytes::new(1280));
}

#[test]
fn links_between_two_hosts_are_paths() {
    let keys = "preset = 'lte-aerial'\nuplink.rate = '5Mbit/s'\n";
    let plain = "uplink = { rate = '9Mbit/s', delay = '30ms' }\ndownlink = { rate = '9Mbit/s' }\n";
    let ends = "from = 'vehicle'\nto = 'ground'\n";
    let flows = "[flow.video]\nfrom = 'vehicle'\ntraffic = { kind = 'cbr', rate = '1Mbit/s', packet = '1kB' }\n\
                 transport = { protocol = 'mptcp' }\nrequire = { deadline = '300ms', share = '90%' }\n\
                 [flow.control]\nfrom = 'ground'\ntraffic = { kind = 'cbr', rate = '1Mbit/s', packet = '125B' }\n\
                 transport = { protocol = 'tcp', paths = ['leo'] }\n";
    let paths = format!("[path.lte]\n{keys}[path.leo]\n{plain}{flows}");
    let network = format!(
        "[node.vehicle]\n[node.ground]\n[link.lte]\n{ends}{keys}[link.leo]\n{ends}{plain}{flows}"
    );
    let setup = |text: &str| {
        let scenario = read(text).unwrap();
        assert!(scenario.needs_two_hosts().is_ok());
        format!("{:?}", scenario.setup(Seed(7), Record::default()))
    };
    assert_eq!(setup(&paths), setup(&network));
}

#[test]
fn keys_of_one_direction_override_those_of_both() {
    let path = "[path.a]\nrate = '8Mbit/s'\ndelay = '20ms'\ndownlink.rate = '2Mbit/s'\n";
    let each = "[path.a]\nuplink = { rate = '8Mbit/s', delay = '20ms' }\n\
                downlink = { rate = '2Mbit/s', delay = '20ms' }\n";
    let [short, long] = [path, each].map(|text| read(text).unwrap());
    assert_eq!(
        (&short.links[0].uplink, &short.links[0].downlink),
        (&long.links[0].uplink, &long.links[0].downlink)
    );
}

#[test]
fn invalid_networks_and_flows_are_rejected() {
    let chain = layers(&[1, 1]);
    let flow = |keys: &str| format!("[flow.x]\n{keys}\n{FLOW}");
    let cases = [
        (
            format!("{chain}[node.z]\n{}", flow("from = 'a-1'\nto = 'z'")),
            "net.toml:12: flow.x: no route from `a-1` to `z`: no way leads on from `a-1`",
        ),
        (
            format!("{chain}{}", flow("from = 'a-1'\nto = 'q'")),
            "flow.x.to: unknown node `q` (expected one of `a`, `b`)",
        ),
        (
            format!("{chain}{}", flow("from = 'a-1'")).replace("[flow.x]", "[node.z]\n[flow.x]"),
            "flow.x: missing `to`, expected the name of a node or group",
        ),
        (
            format!("{chain}{}", flow("from = 'a'\nto = 'a'")),
            "flow.x.to: found a flow from a node to itself",
        ),
        (
            format!("{}{}", layers(&[2, 3]), flow("from = 'a'\nto = 'b'")),
            "found groups of 2 and 3 nodes, expected as many of both, or a single node",
        ),
        (chain.replace("to = 'b'", "to = 'a'"), "link.ab.to: found a link from `a-1` to itself"),
        (
            chain.replace("to = 'b'\n", ""),
            "link.ab.to: found nothing, expected the name of a node or of a group of nodes",
        ),
        (
            chain.replace("count = 1\n[node.b]", "count = 0\n[node.b]"),
            "node.a.count: found 0, expected 1 to 100000",
        ),
        (format!("{chain}weight = 0\n"), "link.ab.weight: found `0`, expected above zero"),
        (
            format!("{chain}[path.x]\nrate = '1Mbit/s'\n"),
            "path.x: found paths and links, expected either; a network has links only",
        ),
        (
            "[path.x]\nrate = '1Mbit/s'\nweight = 2\n".into(),
            "path.x.weight: a path joins vehicle and ground; expected this key in `[link.NAME]` only",
        ),
        (
            "[node.cell]\n[path.x]\nrate = '1Mbit/s'\n".into(),
            "node.cell: found a node but no link, expected at least one table `[link.NAME]`",
        ),
        (
            format!("{chain}[[route]]\nat = 'a'\nto = 'b'\nvia = 'up'\n"),
            "route[0].via: found no link `up` and no link to a node `up` at `a`",
        ),
        (
            format!("{chain}[[event]]\nat = '1s'\npath.ab.down = '1s'\n"),
            "event[0].path.ab: found `path`, expected `link`, as in the scenario",
        ),
        (
            format!(
                "{chain}{}",
                flow("from = 'a'\nto = 'b'").replace("'tcp' }", "'mptcp', subflows = 65 }")
            ),
            "flow.x.transport.subflows: found 65, expected 1 to 64",
        ),
        (
            format!("{chain}{}", flow("from = 'a'\nto = 'b'\nproxies = [{ at = 'c' }]")),
            "flow.x.proxies[0].at: unknown node `c` (expected one of `a`, `b`)",
        ),
    ];
    for (text, expected) in cases {
        let problem = read(&text).unwrap_err();
        assert!(problem.contains(expected), "{problem}\nexpected {expected}");
    }
}

#[test]
fn static_routes_with_a_loop_are_rejected() {
    let net = layers(&[1, 2, 1]) + &link("across", "b-1", "b-2");
    let flow = format!("[flow.x]\nfrom = 'a'\nto = 'c'\n{FLOW}");
    let routes = "[[route]]\nat = 'b-1'\nto = 'c'\nvia = 'b-2'\n[[route]]\nat = 'b-2'\nto = 'c'\nvia = 'b-1'\n";
    let problem = read(&format!("{net}{flow}{routes}")).unwrap_err();
    assert!(problem.contains("packets go round: b-1 → b-2 → b-1"), "{problem}");
}

#[test]
fn unintended_settings_cause_warnings() {
    let net = layers(&[1, 1, 1]) + "[node.lonely]\n";
    let flow = format!(
        "[flow.x]\nfrom = 'a'\nto = 'c'\nrequire = {{ deadline = '15ms', share = '90%' }}\n{FLOW}"
    );
    let found = read(&format!("{net}{flow}")).unwrap().warnings;
    assert_eq!(found[0], "node.lonely: no link leads to it");
    assert_eq!(
        found[1],
        "flow.x.require: no message can arrive within 15ms, since every path delays it by 20ms or more"
    );
}
