//! The participants of a run: the sides of each connection, the proxies and the applications.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

use skybraid_traffic::{TrafficConfig, VideoConfig};
use skybraid_transport::{Endpoint, PathInfo, Role, TransportConfig, split};
use skybraid_units::{Instant, Promised, Seed};

use crate::app::App;
use crate::duties::{Duty, StreamRole};
use crate::end_host::EndHost;
use crate::ids::{FlowId, Numbered, RecordId, RelayId, RouteId, SideId};
use crate::record::{FlowRecord, Outcome};
use crate::relay::Relay;
use crate::sender::Sender;
use crate::setup::{FlowSetup, Host, Setup};
use crate::side::{End, Side};

/// All participants of a run.
pub struct Population {
    /// Two per connection, the initiator first. A flow with proxies has a chain of connections.
    pub sides: Vec<Side>,
    pub relays: Vec<Relay>,
    /// One per flow, in the order of the flows.
    pub apps: Vec<App>,
}

/// Creates the participants of the flows for which `carried` returns true, and a record for every flow.
pub fn populate(
    setup: &Setup,
    carried: &impl Fn(usize) -> bool,
    outcome: &mut Outcome,
) -> Population {
    let end = Instant::ZERO + setup.duration;
    let record_of = |flow: &FlowSetup, answers: bool| {
        let carrier = carrier_of(setup, flow);
        let reliable = carrier.transport.protocol.is_reliable();
        let keep = setup.record.messages;
        let vehicle = carrier.paths.len();
        let ground = carrier.proxies.last().map_or(vehicle, |proxy| proxy.paths.len());
        let [sender, receiver] = match flow.from {
            Host::Vehicle => [vehicle, ground],
            Host::Ground => [ground, vehicle],
        };
        let [from, to] = if answers { [receiver, sender] } else { [sender, receiver] };
        FlowRecord::new(keep, reliable, end, from, &flow.judged_by)
            .with_receiver_paths(to)
            .with_copies(flow.copies)
            .with_proxy(!carrier.proxies.is_empty())
            .with_video(flow.traffic.video(), &flow.frames_within)
            .with_percentiles(flow.judges_delays)
    };
    outcome.flows.extend(setup.flows.iter().map(|flow| record_of(flow, false)));
    let count = setup.flows.len();
    let (sides, apps) = (Vec::with_capacity(2 * count), Vec::with_capacity(count));
    let mut population = Population { sides, relays: Vec::new(), apps };
    // Host sides of each flow that has a connection of its own: vehicle, ground.
    let mut hosts = Vec::with_capacity(count);
    for (index, flow) in setup.flows.iter().enumerate() {
        let own = flow.rides_with.is_none() && carried(index);
        hosts.push(own.then(|| population.connect(setup, FlowId::from_index(index), flow)));
    }
    for (index, flow) in setup.flows.iter().enumerate() {
        let carrier = flow.rides_with.unwrap_or(index);
        let ends = hosts.get(carrier).copied().promised("the flow that carries this one").flatten();
        let answer = flow.traffic.is_answered().then(|| {
            outcome.answers.push(index);
            // Answers are no video.
            outcome.flows.push(record_of(flow, true).with_video(None, &[]));
            RecordId::from_index(outcome.flows.len() - 1)
        });
        let record = RecordId::from_index(index);
        let records = [record, answer.unwrap_or(record)];
        let writes_to = population.add_streams(FlowId::from_index(index), flow, ends, records);
        population.apps.push(App::new(flow, record, writes_to, end));
    }
    for side in &mut population.sides {
        let flow = setup.flows.get(side.flow().index()).promised("the flow of a side");
        let sends = match &side.end {
            End::Host(host) => host.sends(),
            // A proxy sends data on the side away from the flow's sender.
            End::Proxy(_, at) => flow.is_some_and(|flow| match flow.from {
                Host::Vehicle => *at == split::Side::Downstream,
                Host::Ground => *at == split::Side::Upstream,
            }),
        };
        side.set_sends(sends);
    }
    population.find_passive();
    population
}

impl Population {
    /// Lets each host know whether its peer only records what it receives.
    fn find_passive(&mut self) {
        for pair in self.sides.chunks_exact_mut(2) {
            if let [Side { end: End::Host(one), .. }, Side { end: End::Host(other), .. }] = pair {
                one.set_peer_is_passive(other.is_passive());
                other.set_peer_is_passive(one.is_passive());
            }
        }
    }

    /// Adds the stream of `flow` to both `ends` of its connection: vehicle, ground. `records` are those of its messages
    /// and of what comes back. Returns the side and the stream in which its application writes.
    fn add_streams(
        &mut self,
        id: FlowId,
        flow: &FlowSetup,
        ends: Option<[SideId; 2]>,
        [own, back]: [RecordId; 2],
    ) -> (Option<SideId>, u8) {
        let reported = flow.traffic.video().is_some_and(VideoConfig::is_reported);
        let (mut writes_to, mut stream) = (None, 0);
        for (place, end) in
            [Host::Vehicle, Host::Ground].into_iter().zip(ends.into_iter().flatten())
        {
            let Some(side) = Side::find_mut(&mut self.sides, end) else { continue };
            let End::Host(host) = &mut side.end else { continue };
            let sends = flow.from == place;
            let role = match (sends, &flow.traffic) {
                (true, _) if reported => Some(StreamRole::ReadsReports),
                (false, _) if reported => Some(StreamRole::SendsReports),
                (false, TrafficConfig::Ping { .. }) => Some(StreamRole::Answers),
                _ => None,
            };
            let (writes, gets) = if sends { (own, back) } else { (back, own) };
            stream = host.add_stream(writes, gets);
            if let Some(role) = role {
                host.add_duty(Duty { stream, role, flow: id, writes });
            }
            if sends {
                writes_to = Some(end);
                host.add_writer(id, matches!(flow.traffic, TrafficConfig::Bulk { .. }));
            }
        }
        (writes_to, stream)
    }

    /// Adds the connections of flow number `id`, their sides from the vehicle to the ground, and the proxies in
    /// between. Returns the sides of the hosts: vehicle, ground.
    fn connect(&mut self, setup: &Setup, id: FlowId, flow: &FlowSetup) -> [SideId; 2] {
        let seed = setup.seed.stream(&format!("{}.transport", flow.name)).next_u64();
        let seeded = |transport: &TransportConfig| {
            Arc::new(TransportConfig { seed: Seed(seed), ..transport.clone() })
        };
        let (mut transport, mut paths) = (seeded(&flow.transport), &flow.paths);
        let vehicle = self.add_host(setup, id, (&transport, paths), Host::Vehicle);
        for (number, proxy) in flow.proxies.iter().enumerate() {
            let next = seeded(&proxy.transport);
            let before = (&*transport, &*infos(setup, paths));
            let after = (&*next, &*infos(setup, &proxy.paths));
            let machine = split::Proxy::new(before, after, proxy.cache);
            let relay = RelayId::from_index(self.relays.len());
            let first = self.sides.len();
            let [up, down] = [first, first + 1].map(SideId::from_index);
            let upstream = Sender::new(up, id, routes(paths, Host::Ground));
            let downstream = Sender::new(down, id, routes(&proxy.paths, Host::Vehicle));
            self.relays.push(Relay::new(machine, upstream, downstream));
            for (at, place) in split::Side::BOTH.into_iter().zip(2 + 2 * number..) {
                self.sides.push(Side::new(End::Proxy(relay, at), id, place as u8));
            }
            (transport, paths) = (next, &proxy.paths);
        }
        [vehicle, self.add_host(setup, id, (&transport, paths), Host::Ground)]
    }

    /// Adds the side of a host.
    fn add_host(
        &mut self,
        setup: &Setup,
        flow: FlowId,
        (transport, paths): (&Arc<TransportConfig>, &[usize]),
        host: Host,
    ) -> SideId {
        let role = if host == Host::Vehicle { Role::Client } else { Role::Server };
        let mut endpoint = Endpoint::new(Arc::clone(transport), &infos(setup, paths), role);
        if setup.record.decisions {
            endpoint.record_decisions();
        }
        let id = SideId::from_index(self.sides.len());
        let end = EndHost::new(endpoint, Sender::new(id, flow, routes(paths, host)));
        self.sides.push(Side::new(End::Host(end), flow, u8::from(host == Host::Ground)));
        id
    }
}

/// Returns the flow whose connection carries `flow`.
fn carrier_of<'a>(setup: &'a Setup, flow: &'a FlowSetup) -> &'a FlowSetup {
    let Some(carrier) = flow.rides_with else { return flow };
    setup.flows.get(carrier).promised("the flow that carries this one").unwrap_or(flow)
}

/// Returns the routes of segments that `from` sends on `paths`.
fn routes(paths: &[usize], from: Host) -> Vec<RouteId> {
    paths.iter().map(|path| RouteId::new(*path, from)).collect()
}

fn infos(setup: &Setup, paths: &[usize]) -> Vec<PathInfo> {
    let paths = paths.iter().filter_map(|path| setup.paths.get(*path).promised("a path"));
    paths.map(|path| path.info).collect()
}
