//! Conversion of a scenario into the setup of a run.

use std::sync::Arc;

use skybraid_host::record::Record;
use skybraid_host::{
    DirectedLink, FlowSetup, Forwarding, Host, LinkSetup, PathSetup, ProxySetup, Route, Setup,
};
use skybraid_link::LinkConfig;
use skybraid_traffic::TrafficConfig;
use skybraid_transport::PathInfo;
use skybraid_units::Seed;
use skybraid_units::invariant::Promised as _;

use crate::router::{Router, Subflow};
use crate::{Flow, Link, Requirement, Scenario};

impl Scenario {
    /// Returns the setup of a run with the random streams of `seed`, which keeps `record`.
    pub fn setup(&self, seed: Seed, record: Record) -> Setup {
        self.setup_of(self.link_setups(seed), seed, record)
    }

    /// Returns the setup without drawn flights, random handovers between cells and shared outages.
    pub(crate) fn plain_setup(&self, seed: Seed, record: Record) -> Setup {
        self.setup_of(self.links.iter().map(plain).collect(), seed, record)
    }

    fn setup_of(&self, links: Vec<LinkSetup>, seed: Seed, record: Record) -> Setup {
        let mut collector = Paths {
            scenario: self,
            router: self.router(),
            seed,
            // Between two hosts each link is a path.
            paths: if self.nodes.len() == 2 { PathSetup::over_each(&links) } else { Vec::new() },
            forwarding: Vec::new(),
        };
        let mut flows: Vec<FlowSetup> =
            self.flows.iter().map(|flow| collector.flow(flow)).collect();
        size_queues_for_key_frames(&mut flows);
        Setup {
            seed,
            duration: self.duration,
            paths: collector.paths,
            forwarding: collector.forwarding,
            fragment_size: self.routing.fragment_size.map(|size| size.get() as u32),
            links,
            flows,
            address_changes: self.address_changes.clone(),
            record,
        }
    }

    /// Returns the links with the handovers and outages drawn by `seed`.
    pub(crate) fn link_setups(&self, seed: Seed) -> Vec<LinkSetup> {
        let link = |(number, link): (usize, &Link)| {
            let mut setup = match &link.population {
                None => plain(link),
                Some(family) => {
                    let groups = self.correlations.iter().enumerate().rev();
                    let mut scores = groups
                        .filter_map(|(group, shared)| shared.shared_score(number, seed, group));
                    with_directions(link, family.draw(seed, &link.name, scores.next()))
                }
            };
            if let Some(cells) = &link.cells {
                let halts = cells.halts(self.duration, seed, &link.name);
                setup.uplink.halts.extend_from_slice(&halts);
                setup.downlink.halts.extend(halts);
            }
            setup
        };
        let mut links: Vec<LinkSetup> = self.links.iter().enumerate().map(link).collect();
        for (group, correlation) in self.correlations.iter().enumerate() {
            correlation.share_slow(&mut links, group);
        }
        for (number, group) in self.outages.iter().enumerate() {
            for (link, down) in group.draw(seed, number, self.duration) {
                let link = links.get_mut(link).promised("a link of the outage group");
                let Some(link) = link else { continue };
                link.uplink.down.extend_from_slice(&down);
                link.downlink.down.extend(down);
            }
        }
        links
    }

    /// Returns the routes of all subflows in a run with the random streams of `seed`.
    pub fn routes(&self, seed: Seed) -> Vec<SubflowRoute> {
        let (mut router, mut tables, mut found) = (self.router(), Vec::new(), Vec::new());
        for (index, flow) in self.flows.iter().enumerate() {
            for (number, segment) in segments(flow).iter().enumerate() {
                for subflow in segment.subflows(flow) {
                    let routes = router.routes(&subflow, seed, &mut tables);
                    let ways =
                        [Host::Vehicle, Host::Ground].map(|host| router.path_count(&subflow, host));
                    let subflow = subflow.number;
                    found.push(SubflowRoute {
                        flow: index,
                        segment: number,
                        subflow,
                        routes,
                        ways,
                    });
                }
            }
        }
        found
    }

    /// Returns the router of the network.
    pub(crate) fn router(&self) -> Router<'_> {
        Router::new(&self.nodes, &self.links, &self.routing)
    }
}

/// Sizes the transmit queue of each connection that carries video for a key frame and as many packets of the
/// frames after it, unless its length is configured.
fn size_queues_for_key_frames(flows: &mut [FlowSetup]) {
    let videos: Vec<(usize, u32)> = flows
        .iter()
        .enumerate()
        .filter_map(|(index, flow)| {
            let packets = flow.traffic.video()?.key_frame_packets();
            Some((flow.rides_with.unwrap_or(index), packets))
        })
        .collect();
    let given: Vec<bool> = flows.iter().map(|flow| flow.transport.tx_queue.is_some()).collect();
    for (carrier, packets) in videos {
        if given.get(carrier).copied().promised("a flow with a connection").unwrap_or(true) {
            continue;
        }
        let Some(flow) = flows.get_mut(carrier) else { continue };
        let needed = 2 * packets * u32::from(flow.copies.max(1));
        let transport = Arc::make_mut(&mut flow.transport);
        transport.tx_queue = Some(needed.max(transport.tx_queue()));
    }
}

/// Returns the setup of a link without random events.
fn plain(link: &Link) -> LinkSetup {
    with_directions(link, [link.uplink.clone(), link.downlink.clone()])
}

fn with_directions(link: &Link, [uplink, downlink]: [LinkConfig; 2]) -> LinkSetup {
    LinkSetup { name: link.name.clone(), ends: link.ends, uplink, downlink, info: link.info }
}

/// Route of a subflow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubflowRoute {
    /// Flow, as an index into [`Scenario::flows`].
    pub flow: usize,
    /// Segment between ends and proxies, counted from the opening end.
    pub segment: usize,
    /// Number of the subflow within its connection.
    pub subflow: usize,
    /// Routes away from the opening end, and back. [`Route::Spread`] is routed packet by packet.
    pub routes: [Route; 2],
    /// Number of shortest paths, away and back.
    pub ways: [u64; 2],
}

/// Part of a flow between two of its ends and proxies, with a connection of its own.
pub(crate) struct Segment<'a> {
    opener: usize,
    other: usize,
    /// Interface of each subflow.
    interfaces: &'a [Option<usize>],
}

impl<'a> Segment<'a> {
    /// Returns the subflows of this segment of `flow`.
    pub fn subflows(&self, flow: &'a Flow) -> impl Iterator<Item = Subflow<'a>> {
        let (opener, other, connection) = (self.opener, self.other, flow.name.as_str());
        self.interfaces.iter().enumerate().map(move |(number, interface)| {
            let interface = *interface;
            Subflow { opener, other, interface, connection, number }
        })
    }
}

/// Returns the segments of a flow, from the opening end on.
pub(crate) fn segments(flow: &Flow) -> Vec<Segment<'_>> {
    let mut segments = Vec::new();
    let (mut opener, mut interfaces) = (flow.nodes[0], flow.interfaces.as_slice());
    for proxy in &flow.proxies {
        segments.push(Segment { opener, other: proxy.node, interfaces });
        (opener, interfaces) = (proxy.node, proxy.interfaces.as_slice());
    }
    segments.push(Segment { opener, other: flow.nodes[1], interfaces });
    segments
}

/// Collector of the distinct paths of a run.
struct Paths<'a> {
    scenario: &'a Scenario,
    router: Router<'a>,
    seed: Seed,
    paths: Vec<PathSetup>,
    forwarding: Vec<Forwarding>,
}

impl Paths<'_> {
    fn flow(&mut self, flow: &Flow) -> FlowSetup {
        let judged_by = flow.requirements.iter().filter_map(|requirement| match requirement {
            Requirement::Share { deadline, .. } => *deadline,
            // Not judged by this count, which explains late messages.
            Requirement::Delay { delay, .. } => Some(*delay),
            Requirement::LinkPerformance(performance) => Some(performance.expiration),
            _ => None,
        });
        let frames_within = flow.requirements.iter().filter_map(|requirement| match requirement {
            Requirement::Frames { within, .. } => Some(*within),
            _ => None,
        });
        let of_delays = |requirement: &Requirement| {
            matches!(requirement, Requirement::Delay { .. } | Requirement::LinkPerformance(_))
        };
        let (mut traffic, mut transport) = (flow.traffic.clone(), flow.transport.clone());
        if let TrafficConfig::Video(video) = &mut traffic {
            video.framed = flow.transport.protocol.is_reliable();
            if video.drop_after.is_some() {
                Arc::make_mut(&mut transport).drop_expired = true;
            }
        }
        let node_name = |node: usize| {
            let node = self.scenario.nodes.get(node).promised("the node of a proxy");
            node.map_or_else(String::new, |node| node.name.clone())
        };
        let mut segments = segments(flow).into_iter();
        let first = segments.next().promised("the first segment of a flow");
        let paths = first.map(|first| self.segment(flow, &first)).unwrap_or_default();
        let proxies = flow.proxies.iter().zip(segments).map(|(proxy, segment)| ProxySetup {
            name: node_name(proxy.node),
            cache: proxy.cache,
            transport: proxy.transport.clone(),
            paths: self.segment(flow, &segment),
        });
        FlowSetup {
            name: flow.name.clone(),
            group: flow.group.clone(),
            from: flow.from,
            class: flow.class,
            start: flow.start,
            stop: flow.stop,
            traffic,
            transport,
            proxies: proxies.collect(),
            paths,
            deadline: flow.deadline,
            judged_by: judged_by.collect(),
            frames_within: frames_within.collect(),
            judges_delays: flow.requirements.iter().any(of_delays),
            rides_with: flow.rides_with,
            copies: flow.copies,
        }
    }

    /// Returns the paths of a segment, one for each subflow.
    fn segment(&mut self, flow: &Flow, segment: &Segment<'_>) -> Vec<usize> {
        let path_of = |subflow: Subflow<'_>| {
            let [uplink, downlink] = self.router.routes(&subflow, self.seed, &mut self.forwarding);
            let name = self.name(&subflow, segment.interfaces);
            let info = self.info(&uplink, &downlink);
            let path = PathSetup { name, uplink, downlink, info };
            let same = |known: &PathSetup| {
                known.name == path.name
                    && known.uplink == path.uplink
                    && known.downlink == path.downlink
            };
            let known = self.paths.iter().position(same);
            known.unwrap_or_else(|| {
                self.paths.push(path);
                self.paths.len() - 1
            })
        };
        segment.subflows(flow).map(path_of).collect()
    }

    /// Returns the name of a path: that of its first link if no other subflow uses it, else that of the subflow.
    /// The name must not depend on routes, which may differ from seed to seed.
    fn name(&self, subflow: &Subflow<'_>, interfaces: &[Option<usize>]) -> String {
        let own = || {
            let at_opener = |link: &&Link| link.ends.contains(&subflow.opener);
            let mut own = self.scenario.links.iter().filter(at_opener);
            own.next().filter(|_| own.next().is_none())
        };
        let link = match subflow.interface {
            Some(link) => self.scenario.links.get(link).promised("the link of an interface"),
            None => own(),
        };
        let twins = interfaces.iter().filter(|other| **other == subflow.interface).count();
        match link {
            Some(link) if twins == 1 => link.name.clone(),
            _ => format!("subflow-{}", subflow.number + 1),
        }
    }

    /// Returns the path information for transports: that of the first link, with the minimum MTU along the route.
    fn info(&self, uplink: &Route, downlink: &Route) -> PathInfo {
        let links = &self.scenario.links;
        let link = |hop: &DirectedLink| links.get(hop.link()).promised("a link of the route");
        let first = match uplink {
            Route::Fixed(hops) => hops.first().and_then(link),
            Route::Spread { .. } => None,
        };
        let min_mtu = |route: &Route| match route {
            Route::Fixed(hops) => hops.iter().filter_map(link).map(|link| link.info.mtu).min(),
            Route::Spread { .. } => links.iter().map(|link| link.info.mtu).min(),
        };
        let info = first.map(|link| link.info).unwrap_or_default();
        let mtu = [min_mtu(uplink), min_mtu(downlink)].into_iter().flatten().min();
        PathInfo { mtu: mtu.unwrap_or(info.mtu), ..info }
    }
}
