//! Real-time emulation of a scenario: its links between network namespaces, with its flows over real sockets
//! or with any programs.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration as StdDuration;

use serde_json::{Map, Value};
use skybraid_host::record::Outcome;
use skybraid_host::{FlowSetup, LinkSetup, Setup};
use skybraid_link::{Direction, Link, LinkConfig, QueueConfig, RateSource};
use skybraid_scenario::Testbed as Around;
use skybraid_transport::Protocol;
use skybraid_units::{Bytes, Duration, Instant, Rate};

use crate::command::{Output, Program};
use crate::control::Server;
use crate::forward::{self, Forwarded, Forwarder, Lane};
use crate::hosts::{self, Carried, Flown, HostError, Load, Place};
use crate::proxy::{Proxy, Statistics, multipath_warning};
use crate::testbed::{self, Plan, Segment, Testbed};
use skybraid_io::clock::Clock;
use skybraid_io::netlink::{Endpoint, EndpointFlags, Limits, Namespace, PathManager};

/// Delay from creating the sockets to the run's start, so that all threads are ready.
const HEAD_START: Duration = Duration::from_millis(50);
/// Interval at which programs are checked for having ended.
const POLL_INTERVAL: StdDuration = StdDuration::from_millis(20);
/// Rate of a stretch next to a path: Ethernet, as in the testbed of Chavali (2022) §1.3.
const WIRE_BPS: u64 = 1_000_000_000;

/// Options of an emulation.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Use a whole core, if needed, to send packets on time.
    pub precise: bool,
    /// Folder for captures, one file per interface.
    pub captures: Option<PathBuf>,
    /// Path of the control socket.
    pub control: Option<PathBuf>,
    /// Use IPv6 for Skybraid's flows and the kernel's.
    pub ipv6: bool,
    /// Nesting depth: the ground is the network of this process, inside this many emulations; 0 for a ground
    /// of its own.
    pub nested: usize,
    /// Programs keep root's capabilities and may write to root's home.
    pub keep_privileges: bool,
}

/// Error that prevents or ends an emulation.
#[derive(Debug, thiserror::Error)]
pub enum EmulationError {
    /// A permission, a kernel feature or a file is missing.
    #[error("{0}")]
    System(#[from] io::Error),
    /// The flows cannot be carried.
    #[error("{0}")]
    Hosts(#[from] HostError),
    /// The node does not exist.
    #[error("found node `{found}`, expected one of {}", .known.join(", "))]
    Node {
        /// Requested name.
        found: String,
        /// Names of the existing nodes.
        known: Vec<String>,
    },
    /// The emulation has already been run.
    #[error("an emulation runs once")]
    Over,
}

/// Results of an emulated run.
#[derive(Debug)]
pub struct Emulated {
    /// Tables of hosts and links.
    pub outcome: Outcome,
    /// Transport of each flow; empty if programs ran instead.
    pub carried: Vec<Carried>,
    /// Time at which the run was stopped on request, if any.
    pub stopped: Option<Instant>,
    /// Measurements of the forwarder.
    pub forwarded: Forwarded,
    /// Statistics of each proxy, by node.
    pub proxies: Vec<(String, Statistics)>,
    /// Deviations from what a user may expect, as sentences.
    pub notes: Vec<String>,
}

/// Links between namespaces, ready to forward.
pub struct Emulation {
    setup: Setup,
    options: Options,
    testbed: Testbed,
    /// Lanes until forwarding starts.
    lanes: Option<Vec<Lane>>,
    proxies: Vec<ProxyNode>,
}

/// A proxy between two stretches.
struct ProxyNode {
    /// Node name.
    name: String,
    proxy: Proxy,
    /// The stretches toward the vehicle and toward the ground.
    between: [String; 2],
}

impl Emulation {
    /// Creates the namespaces and interfaces of `setup`, with the elements that `around` adds to its paths.
    ///
    /// # Errors
    /// A permission or a kernel feature is missing.
    pub fn build(setup: Setup, around: &Around, options: Options) -> Result<Self, EmulationError> {
        let plan = plan(&setup, around);
        let plan = match options.nested {
            0 => plan,
            _ => plan.nested_here()?,
        };
        let testbed = plan.build()?;
        let_mptcp_use_every_path(&testbed, &options)?;
        let lanes = lanes(&setup, around, &testbed);
        let proxies = proxies(&setup, around, &testbed)?;
        Ok(Self { setup, options, testbed, lanes: Some(lanes), proxies })
    }

    /// Returns the setup being run.
    pub const fn setup(&self) -> &Setup {
        &self.setup
    }

    /// Returns the names of the nodes: vehicle, ground (or server), then all others.
    pub fn nodes(&self) -> impl Iterator<Item = &str> {
        self.testbed.nodes.iter().map(|node| node.name.as_str())
    }

    /// Returns the network namespace of a node, by its name or, for the second node, by `ground`.
    ///
    /// # Errors
    /// The node does not exist.
    pub fn node(&self, name: &str) -> Result<&Namespace, EmulationError> {
        let named = self.testbed.node(name);
        let named = named.or_else(|| (name == "ground").then(|| self.testbed.ground()));
        named.map(|node| &node.namespace).ok_or_else(|| EmulationError::Node {
            found: name.to_string(),
            known: self.nodes().map(str::to_string).collect(),
        })
    }

    /// Returns the environment of programs at a node.
    pub fn environment(&self, node: &str) -> Vec<(String, String)> {
        let depth = ("SKYBRAID_DEPTH".to_string(), (self.options.nested + 1).to_string());
        self.testbed.environment(node).into_iter().chain([depth]).collect()
    }

    /// Starts a program at a node, with `environment` added to that of the node.
    ///
    /// # Errors
    /// The node or the program does not exist.
    pub fn start(
        &self,
        node: &str,
        argv: &[String],
        environment: &[(String, String)],
        output: Output<'_>,
    ) -> Result<Program, EmulationError> {
        let namespace = self.node(node)?;
        let mut all = self.environment(node);
        all.extend_from_slice(environment);
        Ok(Program::start(namespace, argv, &all, output, self.options.keep_privileges)?)
    }

    /// Runs the flows of the scenario for its duration. `watch` receives the time every 100 ms and returns
    /// whether to continue.
    ///
    /// # Errors
    /// See [`EmulationError`]. A failed connection ends only its flow.
    pub fn fly(
        &mut self,
        watch: &mut dyn FnMut(Instant) -> bool,
    ) -> Result<Emulated, EmulationError> {
        let clock = Clock::starting_in(HEAD_START);
        let work = self.begin(clock)?;
        let of_path = |path: &testbed::Path| match self.options.ipv6 {
            false => (IpAddr::V4(path.vehicle.v4), IpAddr::V4(path.ground.v4)),
            true => (IpAddr::V6(path.vehicle.v6), IpAddr::V6(path.ground.v6)),
        };
        let paths: Vec<_> = self.testbed.paths.iter().map(of_path).collect();
        let place = Place {
            vehicle: &self.testbed.vehicle().namespace,
            ground: &self.testbed.ground().namespace,
            paths: &paths,
        };
        let load = Load::open(&self.setup, &place, clock)?;
        let controls = work.forwarder.controls();
        let mut watch = |now| watch(now) && !work.is_stopped();
        let mut flown = load.run(&mut watch, &|| controls.in_flight())?;
        let mut forwarded = work.end()?;
        let mut outcome = std::mem::take(&mut flown.outcome);
        let end = flown.stopped.unwrap_or(Instant::ZERO + self.setup.duration);
        self.add_links(&mut outcome, &mut forwarded, end);
        let notes = self.notes(&flown.carried, forwarded.uncaptured);
        let proxies = self.statistics();
        let Flown { carried, stopped, .. } = flown;
        Ok(Emulated { outcome, carried, stopped, forwarded, proxies, notes })
    }

    /// Runs the links as long as `watch`, which receives the time every 20 ms, returns true.
    ///
    /// # Errors
    /// See [`EmulationError`].
    pub fn carry(
        &mut self,
        watch: &mut dyn FnMut(Instant) -> bool,
    ) -> Result<Emulated, EmulationError> {
        let clock = Clock::starting_now();
        let work = self.begin(clock)?;
        while watch(clock.now()) && !work.is_stopped() {
            std::thread::sleep(POLL_INTERVAL);
        }
        let end = clock.now();
        let mut forwarded = work.end()?;
        let mut outcome = Outcome::default();
        self.add_links(&mut outcome, &mut forwarded, end);
        let notes = self.notes(&[], forwarded.uncaptured);
        let (proxies, stopped) = (self.statistics(), Some(end));
        Ok(Emulated { outcome, carried: Vec::new(), stopped, forwarded, proxies, notes })
    }

    /// Starts the forwarder, and the control socket if requested.
    fn begin(&mut self, clock: Clock) -> Result<Work, EmulationError> {
        let lanes = self.lanes.take().ok_or(EmulationError::Over)?;
        let options = forward::Options {
            precise: self.options.precise,
            end: Instant::ZERO + self.setup.duration,
            record: self.setup.record,
            classifier: Some(Box::new(hosts::flow_of)),
            seed: self.setup.seed,
            captures: self.options.captures.clone(),
            watchers: self
                .proxies
                .iter()
                .flat_map(|ProxyNode { proxy, between: [before, behind], .. }| {
                    proxy.watchers(before, behind)
                })
                .collect(),
            ..forward::Options::new(clock)
        };
        let forwarder = self.testbed.emulator.run(|| Forwarder::start(lanes, options))??;
        let stopped = Arc::new(AtomicBool::new(false));
        let server = self.options.control.as_deref().map(|path| {
            let stop = Arc::clone(&stopped);
            let stop = move || stop.store(true, Ordering::Release);
            Server::start(path, forwarder.controls(), self.facts(), stop)
        });
        Ok(Work { forwarder, server: server.transpose()?, stopped })
    }

    fn statistics(&self) -> Vec<(String, Statistics)> {
        self.proxies
            .iter()
            .map(|proxied| (proxied.name.clone(), proxied.proxy.statistics()))
            .collect()
    }

    /// Returns notes on flows of the kernel's MPTCP over a path with a proxy, failed connections, and frames
    /// missing from captures.
    fn notes(&self, carried: &[Carried], uncaptured: u64) -> Vec<String> {
        let multipath = self.setup.flows.iter().zip(carried).filter(|(flow, carried)| {
            flow.transport.protocol == Protocol::Mptcp && carried.connection.is_some()
        });
        let crossed = |flow: &FlowSetup| {
            let paths = flow.paths.iter().filter_map(|path| self.setup.links.get(*path));
            let proxied = |path: &&LinkSetup| {
                self.proxies.iter().any(|proxied| proxied.between.contains(&path.name))
            };
            let named = paths.filter(proxied).map(|path| multipath_warning(&flow.name, &path.name));
            named.collect::<Vec<_>>()
        };
        let mut notes: Vec<_> = multipath.flat_map(|(flow, _)| crossed(flow)).collect();
        let connections = carried.iter().filter_map(|carried| carried.connection.as_ref());
        let ended = connections.filter_map(|connection| connection.ended.as_ref());
        notes.extend(ended.map(|error| format!("{error}; from then on the flow carried nothing")));
        notes.extend((uncaptured > 0).then(|| {
            format!("the captures lack {uncaptured} packets, for which the disk was too slow")
        }));
        notes
    }

    /// Returns the additional facts of the control socket's status: locations of the nodes' network
    /// namespaces, as seen from this process.
    fn facts(&self) -> Map<String, Value> {
        let nodes = self.testbed.nodes.iter();
        let places = nodes.map(|node| (node.name.clone(), node.namespace.path().into()));
        Map::from_iter([("namespaces".to_string(), Value::Object(places.collect()))])
    }

    /// Adds the forwarder's records of the scenario's paths up to the run's end; other lanes are left out.
    fn add_links(&self, outcome: &mut Outcome, forwarded: &mut Forwarded, end: Instant) {
        let links = 2 * self.setup.links.len();
        let ours = |link: u16| usize::from(link) < links;
        outcome.links = std::mem::take(&mut forwarded.links);
        outcome.links.retain(|row| ours(row.link) && row.at <= end);
        outcome.packets = std::mem::take(&mut forwarded.packets);
        outcome.packets.retain(|row| ours(row.link));
        outcome.link_totals = forwarded.link_totals.iter().take(links).copied().collect();
        let accounts = forwarded.accounts.iter().take(links);
        outcome.packet_hops = accounts.map(|account| account.received - account.unshaped).sum();
        for (record, lost) in outcome.flows.iter_mut().zip(&forwarded.lost_by_flow) {
            for (sum, more) in record.summary.lost_packets.iter_mut().zip(lost) {
                *sum += more;
            }
        }
    }
}

/// Components that run during an emulation.
struct Work {
    forwarder: Forwarder,
    server: Option<Server>,
    /// Stop requested through the control socket.
    stopped: Arc<AtomicBool>,
}

impl Work {
    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    fn end(self) -> io::Result<Forwarded> {
        drop(self.server);
        let mut forwarded = self.forwarder.stop()?;
        forwarded.capture_error.take().map_or(Ok(forwarded), Err)
    }
}

/// Returns the nodes and their connections.
fn plan(setup: &Setup, around: &Around) -> Plan {
    let mtu = |path: &LinkSetup| path.uplink.mtu.max(path.downlink.mtu).get() as u32;
    let paths: Vec<(&str, u32)> =
        setup.links.iter().map(|path| (path.name.as_str(), mtu(path))).collect();
    let mut plan = match around.server {
        None => Plan::direct(&paths),
        Some(_) => {
            let widest = paths.iter().map(|(_, mtu)| *mtu).max().unwrap_or(1500);
            Plan::behind_gateway(&paths).with_server_segment(widest)
        }
    };
    for (path, around) in setup.links.iter().zip(&around.paths) {
        let (vehicle, ground) = (around.proxy.vehicle.is_some(), around.proxy.ground.is_some());
        if vehicle || ground {
            plan = plan.with_proxies(&path.name, vehicle, ground);
        }
    }
    plan
}

/// Maximum addresses, and maximum additional subflows, of the kernel's MPTCP.
const MAX_ENDPOINTS: usize = 8;

/// Makes the kernel's MPTCP open a subflow from each further address of the vehicle.
fn let_mptcp_use_every_path(testbed: &Testbed, options: &Options) -> io::Result<()> {
    let others = testbed.paths.len().saturating_sub(1);
    let limits = Limits { subflows: others.min(MAX_ENDPOINTS) as u32, add_addr_accepted: 0 };
    let mut ground = match PathManager::open(&testbed.ground().namespace) {
        // Without MPTCP in the kernel, all other flows work; a flow that requests MPTCP fails.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    // The ground of a nested testbed already has limits.
    let before = if options.nested > 0 { ground.limits()?.subflows } else { 0 };
    ground.set_limits(Limits { subflows: limits.subflows.max(before), ..limits })?;
    let mut vehicle = PathManager::open(&testbed.vehicle().namespace)?;
    vehicle.set_limits(limits)?;
    let mut netlink = testbed.vehicle().namespace.netlink()?;
    for path in testbed.paths.iter().skip(1).take(MAX_ENDPOINTS) {
        let address = if options.ipv6 { path.vehicle.v6.into() } else { path.vehicle.v4.into() };
        let flags = EndpointFlags { subflow: true, ..EndpointFlags::default() };
        let interface = netlink.link(&path.interface)?.index;
        vehicle.add(&Endpoint { address, interface, flags, id: 0 })?;
    }
    Ok(())
}

/// Starts the proxies of every path.
fn proxies(setup: &Setup, around: &Around, testbed: &Testbed) -> io::Result<Vec<ProxyNode>> {
    let mut started = Vec::new();
    for (path, around) in setup.links.iter().zip(&around.paths) {
        let name = &path.name;
        let sides = [
            (around.proxy.vehicle, format!("{name}-vp"), [format!("{name}.a"), name.clone()]),
            (around.proxy.ground, format!("{name}-gp"), [name.clone(), format!("{name}.b")]),
        ];
        for (proxy, name, between) in sides {
            if let (Some(proxy), Some(node)) = (proxy, testbed.node(&name)) {
                let proxy = Proxy::start(&node.namespace, proxy.congestion.name())?;
                started.push(ProxyNode { name, proxy, between });
            }
        }
    }
    Ok(started)
}

/// Delays and link of an emulated stretch, from the vehicle's side.
#[derive(Default)]
struct Stretch<'a> {
    before: Duration,
    link: Option<&'a LinkSetup>,
    after: Duration,
}

/// Returns the stretch called `name`: a path, with the delays around it unless proxies are between, or the
/// stretch between a proxy or the gateway and its host.
fn stretch<'a>(name: &str, setup: &'a Setup, around: &Around) -> Stretch<'a> {
    let find = |name: &str| {
        let mut paths = setup.links.iter().zip(&around.paths);
        paths.find(|(path, _)| path.name == name)
    };
    if let Some((path, around)) = find(name) {
        let unless = |proxy: Option<_>, delay| if proxy.is_some() { Duration::ZERO } else { delay };
        return Stretch {
            before: unless(around.proxy.vehicle, around.vehicle_delay),
            link: Some(path),
            after: unless(around.proxy.ground, around.ground_delay),
        };
    }
    let beside = |suffix| name.strip_suffix(suffix).and_then(find).map(|(_, around)| around);
    let before = beside(".a").map(|around| around.vehicle_delay);
    let before = before.or(beside(".b").map(|around| around.ground_delay));
    let before = before.or(around.server.map(|server| server.delay)).unwrap_or_default();
    Stretch { before, ..Stretch::default() }
}

/// Returns the lanes of all emulated stretches.
fn lanes(setup: &Setup, around: &Around, testbed: &Testbed) -> Vec<Lane> {
    let lane = |segment: &Segment| {
        let Stretch { before, link, after } = stretch(&segment.name, setup, around);
        let wire = |span: Duration| {
            let config = LinkConfig {
                mtu: Bytes::new(u64::from(segment.mtu)),
                queue: QueueConfig::Unlimited,
                ..LinkConfig::plain(RateSource::Constant(Rate::from_bps(WIRE_BPS)), span)
            };
            Link::new(&config, &segment.name, "wire", setup.seed)
        };
        let of_path = |direction: Direction| {
            link.map(|path| {
                let config = match direction {
                    Direction::Uplink => &path.uplink,
                    Direction::Downlink => &path.downlink,
                };
                Link::new(config, &path.name, direction.name(), setup.seed)
            })
        };
        let chain = |first: Duration, direction, last: Duration| {
            let around = |span: Duration| span.is_positive().then(|| wire(span));
            let links = [around(first), of_path(direction), around(last)];
            let links: Vec<Link> = links.into_iter().flatten().collect();
            if links.is_empty() { vec![wire(Duration::ZERO)] } else { links }
        };
        Lane {
            name: segment.name.clone(),
            ends: segment.ends.each_ref().map(|end| end.index),
            up: chain(before, Direction::Uplink, after),
            down: chain(after, Direction::Downlink, before),
        }
    };
    testbed.segments.iter().map(lane).collect()
}
