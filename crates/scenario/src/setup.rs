//! From a scenario to what a driver runs.

use skybraid_host::record::Record;
use skybraid_host::{FlowSetup, Forwarding, Host, LinkSetup, PathSetup, ProxySetup, Route, Setup};
use skybraid_traffic::TrafficConfig;
use skybraid_transport::PathInfo;
use skybraid_units::Seed;

use crate::routing::{Router, Subflow};
use crate::{Flow, Link, Requirement, Scenario};

impl Scenario {
    /// The run of this scenario with the random streams of `seed`, which keeps `record`.
    pub fn setup(&self, seed: Seed, record: Record) -> Setup {
        self.setup_of(self.link_setups(seed), seed, record)
    }

    /// The run without what is drawn for its links: handovers between cells, and shared outages.
    pub(crate) fn plain_setup(&self, seed: Seed, record: Record) -> Setup {
        self.setup_of(self.links.iter().map(plain).collect(), seed, record)
    }

    fn setup_of(&self, links: Vec<LinkSetup>, seed: Seed, record: Record) -> Setup {
        let mut ways = Ways {
            scenario: self,
            router: self.router(),
            seed,
            // Between two hosts each link is a path.
            paths: if self.nodes.len() == 2 { PathSetup::over_each(&links) } else { Vec::new() },
            forwarding: Vec::new(),
        };
        let mut flows: Vec<FlowSetup> = self.flows.iter().map(|flow| ways.flow(flow)).collect();
        make_room_for_key_frames(&mut flows);
        Setup {
            seed,
            duration: self.duration,
            paths: ways.paths,
            forwarding: ways.forwarding,
            links,
            flows,
            address_changes: self.address_changes.clone(),
            record,
        }
    }

    /// The links, with the handovers and outages that `seed` draws.
    fn link_setups(&self, seed: Seed) -> Vec<LinkSetup> {
        let link = |link: &Link| {
            let mut setup = plain(link);
            if let Some(cells) = &link.cells {
                let halts = cells.halts(self.duration, seed, &link.name);
                setup.uplink.halts.extend_from_slice(&halts);
                setup.downlink.halts.extend(halts);
            }
            setup
        };
        let mut links: Vec<LinkSetup> = self.links.iter().map(link).collect();
        for (number, group) in self.outages.iter().enumerate() {
            for (link, down) in group.draw(seed, number, self.duration) {
                let Some(link) = links.get_mut(link) else { continue };
                link.uplink.down.extend_from_slice(&down);
                link.downlink.down.extend(down);
            }
        }
        links
    }

    /// How the subflows of every flow travel in a run with the random streams of `seed`.
    pub fn routes(&self, seed: Seed) -> Vec<SubflowRoute> {
        let (mut router, mut tables, mut found) = (self.router(), Vec::new(), Vec::new());
        for (flow, it) in self.flows.iter().enumerate() {
            for (number, stretch) in stretches(it).iter().enumerate() {
                for subflow in stretch.subflows(it) {
                    let routes = router.routes(&subflow, seed, &mut tables);
                    let ways =
                        [Host::Vehicle, Host::Ground].map(|host| router.ways(&subflow, host));
                    let subflow = subflow.number;
                    found.push(SubflowRoute { flow, stretch: number, subflow, routes, ways });
                }
            }
        }
        found
    }

    /// What finds the routes of the network.
    pub(crate) fn router(&self) -> Router<'_> {
        Router::new(&self.nodes, &self.links, &self.routing)
    }
}

/// Lets the transmit queue of each connection that carries video hold a key frame and as much again of the frames
/// after it, unless its length is given.
fn make_room_for_key_frames(flows: &mut [FlowSetup]) {
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
        let (Some(flow), Some(false)) = (flows.get_mut(carrier), given.get(carrier)) else {
            continue;
        };
        let needed = 2 * packets * u32::from(flow.copies.max(1));
        flow.transport.tx_queue = Some(needed.max(flow.transport.tx_queue()));
    }
}

/// A link as the scenario has it.
fn plain(link: &Link) -> LinkSetup {
    LinkSetup {
        name: link.name.clone(),
        ends: link.ends,
        uplink: link.uplink.clone(),
        downlink: link.downlink.clone(),
        info: link.info,
    }
}

/// How a subflow travels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubflowRoute {
    /// The flow, as a position in [`Scenario::flows`].
    pub flow: usize,
    /// The stretch between its ends and proxies, from the end that opens on.
    pub stretch: usize,
    /// Which of the connection's subflows.
    pub subflow: usize,
    /// Away from the end that opens, and back. [`Route::Spread`] finds its way packet by packet.
    pub routes: [Route; 2],
    /// How many equally good ways there are, away and back.
    pub ways: [u64; 2],
}

/// Part of a flow's way, between two of its ends and proxies: a connection of its own.
pub(crate) struct Stretch<'a> {
    opener: usize,
    other: usize,
    /// Of each subflow.
    interfaces: &'a [Option<usize>],
}

impl<'a> Stretch<'a> {
    /// The subflows of this stretch of `flow`.
    pub fn subflows(&self, flow: &'a Flow) -> impl Iterator<Item = Subflow<'a>> {
        let (opener, other, connection) = (self.opener, self.other, flow.name.as_str());
        self.interfaces.iter().enumerate().map(move |(number, interface)| {
            let interface = *interface;
            Subflow { opener, other, interface, connection, number }
        })
    }
}

/// The stretches of a flow, from the end that opens on.
pub(crate) fn stretches(flow: &Flow) -> Vec<Stretch<'_>> {
    let mut stretches = Vec::new();
    let (mut opener, mut interfaces) = (flow.nodes[0], flow.interfaces.as_slice());
    for proxy in &flow.proxies {
        stretches.push(Stretch { opener, other: proxy.node, interfaces });
        (opener, interfaces) = (proxy.node, proxy.interfaces.as_slice());
    }
    stretches.push(Stretch { opener, other: flow.nodes[1], interfaces });
    stretches
}

/// Collects the paths that the flows of a run use, each once.
struct Ways<'a> {
    scenario: &'a Scenario,
    router: Router<'a>,
    seed: Seed,
    paths: Vec<PathSetup>,
    forwarding: Vec<Forwarding>,
}

impl Ways<'_> {
    fn flow(&mut self, flow: &Flow) -> FlowSetup {
        let judged_by = flow.requirements.iter().filter_map(|requirement| match requirement {
            Requirement::Share { deadline, .. } => *deadline,
            // Not judged by its count, but explained by what was later.
            Requirement::Delay { delay, .. } => Some(*delay),
            _ => None,
        });
        let frames_within = flow.requirements.iter().filter_map(|requirement| match requirement {
            Requirement::Frames { within, .. } => Some(*within),
            _ => None,
        });
        let of_delays =
            |requirement: &Requirement| matches!(requirement, Requirement::Delay { .. });
        let (mut traffic, mut transport) = (flow.traffic.clone(), flow.transport.clone());
        if let TrafficConfig::Video(video) = &mut traffic {
            video.framed = flow.transport.protocol.is_reliable();
            transport.drop_expired |= video.drop_after.is_some();
        }
        let mut stretches = stretches(flow).into_iter();
        let paths = stretches.next().map(|first| self.stretch(flow, &first)).unwrap_or_default();
        let proxies = flow.proxies.iter().zip(stretches).map(|(proxy, stretch)| ProxySetup {
            name: self
                .scenario
                .nodes
                .get(proxy.node)
                .map_or_else(String::new, |it| it.name.clone()),
            cache: proxy.cache,
            transport: proxy.transport.clone(),
            paths: self.stretch(flow, &stretch),
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

    /// The paths of a stretch, one for each subflow.
    fn stretch(&mut self, flow: &Flow, stretch: &Stretch<'_>) -> Vec<usize> {
        let path_of = |subflow: Subflow<'_>| {
            let [uplink, downlink] = self.router.routes(&subflow, self.seed, &mut self.forwarding);
            let name = self.name(&subflow, stretch.interfaces);
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
        stretch.subflows(flow).map(path_of).collect()
    }

    /// A path is called by the link by which it leaves where no other subflow takes it, else by the
    /// subflow. Routes that differ from seed to seed must not change the name.
    fn name(&self, subflow: &Subflow<'_>, interfaces: &[Option<usize>]) -> String {
        let own = || {
            let at_opener = |link: &&Link| link.ends.contains(&subflow.opener);
            let mut own = self.scenario.links.iter().filter(at_opener);
            own.next().filter(|_| own.next().is_none())
        };
        let link = match subflow.interface {
            Some(link) => self.scenario.links.get(link),
            None => own(),
        };
        let twins = interfaces.iter().filter(|other| **other == subflow.interface).count();
        match link {
            Some(link) if twins == 1 => link.name.clone(),
            _ => format!("subflow-{}", subflow.number + 1),
        }
    }

    /// What transports are told of a path: what its first link says, and the least MTU on the way.
    fn info(&self, uplink: &Route, downlink: &Route) -> PathInfo {
        let links = &self.scenario.links;
        let first = match uplink {
            Route::Fixed(hops) => hops.first().and_then(|hop| links.get(hop / 2)),
            Route::Spread { .. } => None,
        };
        let least = |route: &Route| match route {
            Route::Fixed(hops) => {
                hops.iter().filter_map(|hop| links.get(hop / 2)).map(|link| link.info.mtu).min()
            }
            Route::Spread { .. } => links.iter().map(|link| link.info.mtu).min(),
        };
        let info = first.map(|link| link.info).unwrap_or_default();
        let mtu = [least(uplink), least(downlink)].into_iter().flatten().min();
        PathInfo { mtu: mtu.unwrap_or(info.mtu), ..info }
    }
}
