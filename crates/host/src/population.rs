//! The participants of a run: the sides of each connection, the proxies and the applications.

use alloc::format;
use alloc::vec::Vec;

use skybraid_traffic::{Source, TrafficConfig, VideoConfig, Write};
use skybraid_transport::{Endpoint, Message, PathInfo, Role, TransportConfig, split};
use skybraid_units::{Bytes, Instant, Promised, Seed};

use crate::ids::RouteId;
use crate::record::{FlowRecord, Outcome};
use crate::reports::Reports;
use crate::setup::{FlowSetup, Host, Setup};

/// The machine at one side of a connection.
#[expect(clippy::large_enum_variant, reason = "nearly all are hosts, which every packet reads")]
pub enum End {
    /// A host with its endpoint.
    Host(Endpoint),
    /// One side of the proxy with this number.
    Proxy(usize, split::Side),
}

/// A proxy between two connections.
pub struct Relay {
    pub proxy: split::Proxy,
    /// Numbers of the upstream and the downstream side.
    pub sides: [usize; 2],
}

/// One side of a flow's connection.
pub struct Side {
    pub end: End,
    /// Position along the flow, as in [`SubflowRow::end`](crate::record::SubflowRow::end).
    pub place: u8,
    /// Outgoing route, by the connection's own path numbers.
    pub routes: Vec<RouteId>,
    /// Flows in the connection, by stream number.
    pub streams: Vec<Stream>,
    /// Bulk applications that keep this side's send buffer full.
    pub fillers: Vec<usize>,
    /// Whether an application writes here.
    pub writes: bool,
    /// Number of applications that may still write.
    pub writers: u32,
    /// Whether a stream of this side sends receiver reports.
    pub reports: bool,
    pub flow: usize,
    /// Totals at the last sample, by subflow.
    pub sampled: Vec<[u64; 4]>,
}

/// A flow within a side's connection.
#[derive(Clone, Copy)]
pub struct Stream {
    /// Record of the messages that this side writes.
    pub writes: usize,
    /// Record of the messages that this side receives.
    pub gets: usize,
    pub role: StreamRole,
    pub flow: usize,
}

/// What a side does with the messages that it receives in a stream.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum StreamRole {
    /// Records them.
    Plain,
    /// Answers each one.
    Answers,
    /// Reports on them to the sender.
    SendsReports,
    /// Passes them, which are reports, to the application.
    ReadsReports,
}

impl Stream {
    /// Whether this side writes in the stream because of what it receives.
    pub fn writes_back(&self) -> bool {
        matches!(self.role, StreamRole::Answers | StreamRole::SendsReports)
    }
}

/// The sending application of a flow.
pub struct App {
    pub source: Source,
    /// Side that it writes to; `None` if the driver carries the flow.
    pub side: Option<usize>,
    pub stream: u8,
    pub class: skybraid_transport::Class,
    pub deadline: Option<skybraid_units::Duration>,
    /// Number of times that each message is written.
    pub copies: u8,
    /// Size of an answer; 0 if messages are not answered.
    pub answer_bytes: u32,
    /// Send buffer: a bulk source keeps it full.
    pub ahead: Bytes,
    /// Whether a message that does not fit into the send buffer is refused rather than queued.
    pub refuses: bool,
    /// Receiver reports on the flow, if its source reads them.
    pub reports: Option<Reports>,
}

impl App {
    /// Unacknowledged bytes up to which the application writes into `endpoint`.
    pub fn ahead_of(&self, endpoint: &Endpoint) -> Bytes {
        endpoint.send_buffer().map_or(self.ahead, |buffer| buffer.min(self.ahead))
    }
}

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
    let (mut sides, mut relays): (Vec<Side>, Vec<Relay>) = (Vec::new(), Vec::new());
    let mut apps = Vec::new();
    // Host sides of each flow that has a connection of its own: vehicle, ground.
    let mut hosts = Vec::with_capacity(setup.flows.len());
    for (index, flow) in setup.flows.iter().enumerate() {
        let own = (flow.rides_with.is_none() && carried(index)).then(|| {
            let first = sides.len();
            connections(setup, index, flow, &mut sides, &mut relays);
            [first, sides.len() - 1]
        });
        hosts.push(own);
    }
    for (index, flow) in setup.flows.iter().enumerate() {
        let carrier = flow.rides_with.unwrap_or(index);
        let ends = hosts.get(carrier).copied().promised("the flow that carries this one").flatten();
        let answer = flow.traffic.is_answered().then(|| {
            outcome.answers.push(index);
            // Answers are no video.
            outcome.flows.push(record_of(flow, true).with_video(None, &[]));
            outcome.flows.len() - 1
        });
        let mut stream = 0;
        for (host, end) in [Host::Vehicle, Host::Ground].into_iter().zip(ends.into_iter().flatten())
        {
            let Some(side) = sides.get_mut(end).promised("a side of the flow") else { continue };
            let sends = flow.from == host;
            let back = answer.unwrap_or(index);
            stream = side.streams.len() as u8;
            let reported = flow.traffic.video().is_some_and(VideoConfig::is_reported);
            let role = match (sends, &flow.traffic) {
                (true, _) if reported => StreamRole::ReadsReports,
                (false, _) if reported => StreamRole::SendsReports,
                (false, TrafficConfig::Ping { .. }) => StreamRole::Answers,
                _ => StreamRole::Plain,
            };
            side.reports |= role == StreamRole::SendsReports;
            side.streams.push(Stream {
                writes: if sends { index } else { back },
                gets: if sends { back } else { index },
                role,
                flow: index,
            });
            if sends {
                side.writes = true;
                side.writers += 1;
                if matches!(flow.traffic, TrafficConfig::Bulk { .. }) {
                    side.fillers.push(index);
                }
            }
        }
        apps.push(App {
            source: Source::new(&flow.traffic, flow.start, flow.stop.min(end)),
            side: ends
                .map(|[vehicle, ground]| if flow.from == Host::Vehicle { vehicle } else { ground }),
            stream,
            class: flow.class,
            deadline: flow.deadline,
            copies: flow.copies,
            answer_bytes: match &flow.traffic {
                TrafficConfig::Ping { packet, .. } => packet.get() as u32,
                _ => 0,
            },
            ahead: flow.transport.send_buffer,
            refuses: flow.transport.refuse_when_full
                && flow.transport.protocol.is_reliable()
                && !matches!(flow.traffic, TrafficConfig::Bulk { .. }),
            reports: Reports::of(flow),
        });
    }
    Population { sides, relays, apps }
}

/// Records a message of `app` and writes it into the endpoint.
pub fn write_message(
    now: Instant,
    app: &App,
    endpoint: &mut Endpoint,
    record: &mut FlowRecord,
    written: Write,
) {
    let bytes = written.bytes;
    let id = record.next_id();
    let deadline = written.deadline.or_else(|| app.deadline.map(|span| now + span));
    let copies = app.copies.max(written.copies);
    record.on_written(now, written);
    let waiting = endpoint.unacknowledged() + Bytes::new(u64::from(bytes));
    if app.refuses && waiting > app.ahead_of(endpoint) {
        (0..copies.max(1)).for_each(|_| record.on_refused(id));
        return;
    }
    let (stream, class) = (app.stream, app.class);
    write_copies(now, endpoint, Message { stream, id, class, bytes, deadline }, copies);
}

/// Writes `message` `copies` times, at least once.
pub fn write_copies(now: Instant, endpoint: &mut Endpoint, message: Message, copies: u8) {
    for _ in 0..copies.max(1) {
        endpoint.write(now, message);
    }
}

/// Returns the flow whose connection carries `flow`.
fn carrier_of<'a>(setup: &'a Setup, flow: &'a FlowSetup) -> &'a FlowSetup {
    let Some(carrier) = flow.rides_with else { return flow };
    setup.flows.get(carrier).promised("the flow that carries this one").unwrap_or(flow)
}

/// Adds the connections of flow number `index`: their sides from the vehicle to the ground, and the proxies in
/// between.
fn connections(
    setup: &Setup,
    index: usize,
    flow: &FlowSetup,
    sides: &mut Vec<Side>,
    relays: &mut Vec<Relay>,
) {
    let seed = setup.seed.stream(&format!("{}.transport", flow.name)).next_u64();
    let seeded =
        |transport: &TransportConfig| TransportConfig { seed: Seed(seed), ..transport.clone() };
    let side = |end: End, place: usize, paths: &[usize], host: Host| Side {
        end,
        place: place as u8,
        routes: paths.iter().map(|path| RouteId::new(*path, host)).collect(),
        streams: Vec::new(),
        fillers: Vec::new(),
        writes: false,
        writers: 0,
        reports: false,
        flow: index,
        sampled: Vec::new(),
    };
    let host = |transport: &TransportConfig, paths: &[usize], host: Host| {
        let role = if host == Host::Vehicle { Role::Client } else { Role::Server };
        let mut endpoint = Endpoint::new(transport, &infos(setup, paths), role);
        if setup.record.decisions {
            endpoint.record_decisions();
        }
        side(End::Host(endpoint), usize::from(host == Host::Ground), paths, host)
    };
    let (mut transport, mut paths) = (seeded(&flow.transport), &flow.paths);
    sides.push(host(&transport, paths, Host::Vehicle));
    for (number, proxy) in flow.proxies.iter().enumerate() {
        let next = seeded(&proxy.transport);
        let before = (&transport, &*infos(setup, paths));
        let after = (&next, &*infos(setup, &proxy.paths));
        let relay = relays.len();
        let first = sides.len();
        relays.push(Relay {
            proxy: split::Proxy::new(before, after, proxy.cache),
            sides: [first, first + 1],
        });
        let place = 2 + 2 * number;
        sides.push(side(End::Proxy(relay, split::Side::Upstream), place, paths, Host::Ground));
        (transport, paths) = (next, &proxy.paths);
        let end = End::Proxy(relay, split::Side::Downstream);
        sides.push(side(end, place + 1, paths, Host::Vehicle));
    }
    sides.push(host(&transport, paths, Host::Ground));
}

fn infos(setup: &Setup, paths: &[usize]) -> Vec<PathInfo> {
    let paths = paths.iter().filter_map(|path| setup.paths.get(*path).promised("a path"));
    paths.map(|path| path.info).collect()
}
