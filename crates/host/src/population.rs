//! Who takes part in a run: the sides of each connection, and the applications that write into them.

use alloc::format;
use alloc::vec::Vec;

use skybraid_traffic::{Source, TrafficConfig, VideoConfig, Write};
use skybraid_transport::{Endpoint, Message, PathInfo, Role, TransportConfig, split};
use skybraid_units::{Bytes, Instant, Seed};

use crate::record::{FlowRecord, Outcome};
use crate::setup::{FlowSetup, Host, Setup};

/// What stands at one side of a connection.
#[expect(clippy::large_enum_variant, reason = "nearly all are hosts, which every packet looks at")]
pub enum End {
    /// A host.
    Host(Endpoint),
    /// One side of the proxy of this number.
    Proxy(usize, split::Side),
}

/// A proxy between two connections.
pub struct Relay {
    pub proxy: split::Proxy,
    /// Its sides' numbers: upstream, downstream.
    pub sides: [usize; 2],
}

/// One side of a flow's connection.
pub struct Side {
    pub end: End,
    /// Which it is, as in [`SubflowRow::end`](crate::record::SubflowRow::end).
    pub place: u8,
    /// The route that each of the connection's paths leaves by: path number times 2, plus 1 for ground to
    /// vehicle.
    pub routes: Vec<usize>,
    /// The flows that ride in the connection, by the numbers of their streams.
    pub streams: Vec<Stream>,
    /// Bulk applications that keep this side's endpoint filled.
    pub fillers: Vec<usize>,
    /// An application writes here.
    pub writes: bool,
    /// Applications that may still write.
    pub writers: u32,
    pub flow: usize,
    /// Sampled totals of the last sample, by subflow.
    pub sampled: Vec<[u64; 4]>,
}

/// A flow within a side's connection.
#[derive(Clone, Copy)]
pub struct Stream {
    /// Record of the messages that this side writes and of those that it gets.
    pub writes: usize,
    pub gets: usize,
    /// This side answers each message.
    pub answers: bool,
    /// This side reports what it gets.
    pub reports: bool,
    pub flow: usize,
}

pub struct App {
    pub source: Source,
    pub side: usize,
    pub stream: u8,
    pub class: skybraid_transport::Class,
    pub deadline: Option<skybraid_units::Duration>,
    /// How many times each message is written.
    pub copies: u8,
    /// A bulk source keeps this much written ahead.
    pub ahead: Bytes,
    /// What does not fit that is refused rather than kept waiting.
    pub refuses: bool,
}

/// All of them.
pub struct Population {
    /// Two per connection, that which opens it first. A flow with proxies has a row of connections.
    pub sides: Vec<Side>,
    pub relays: Vec<Relay>,
    /// One per flow, in their order.
    pub apps: Vec<App>,
}

/// Makes them for the flows that are `carried`, and a record for every flow.
pub fn populate(
    setup: &Setup,
    carried: &impl Fn(usize) -> bool,
    outcome: &mut Outcome,
) -> Population {
    let end = Instant::ZERO + setup.duration;
    let record_of = |flow: &FlowSetup| {
        let carrier = carrier_of(setup, flow);
        let reliable = carrier.transport.protocol.is_reliable();
        let keep = setup.record.messages;
        let paths = carrier.paths.len();
        FlowRecord::new(keep, reliable, end, paths, &flow.judged_by)
            .with_copies(flow.copies)
            .with_proxy(!carrier.proxies.is_empty())
            .with_video(flow.traffic.video(), &flow.frames_within)
            .with_percentiles(flow.judges_delays)
    };
    outcome.flows.extend(setup.flows.iter().map(record_of));
    let (mut sides, mut relays): (Vec<Side>, Vec<Relay>) = (Vec::new(), Vec::new());
    let mut apps = Vec::new();
    // The sides of each flow that belong to its hosts; a flow that rides along has those of its carrier.
    let mut hosts = alloc::vec![[usize::MAX; 2]; setup.flows.len()];
    for (index, flow) in setup.flows.iter().enumerate() {
        if flow.rides_with.is_none() && carried(index) {
            let first = sides.len();
            connections(setup, index, flow, &mut sides, &mut relays);
            if let Some(own) = hosts.get_mut(index) {
                *own = [first, sides.len() - 1];
            }
        }
    }
    for (index, flow) in setup.flows.iter().enumerate() {
        let carrier = flow.rides_with.unwrap_or(index);
        let ends = hosts.get(carrier).copied().unwrap_or([usize::MAX; 2]);
        let answer = flow.traffic.is_answered().then(|| {
            outcome.answers.push(index);
            // What comes back is no video.
            outcome.flows.push(record_of(flow).with_video(None, &[]));
            outcome.flows.len() - 1
        });
        let mut stream = 0;
        for (host, end) in [Host::Vehicle, Host::Ground].into_iter().zip(ends) {
            let Some(side) = sides.get_mut(end) else { continue };
            let sends = flow.from == host;
            let back = answer.unwrap_or(index);
            stream = side.streams.len() as u8;
            side.streams.push(Stream {
                writes: if sends { index } else { back },
                gets: if sends { back } else { index },
                answers: !sends && matches!(flow.traffic, TrafficConfig::Ping { .. }),
                reports: !sends && flow.traffic.video().is_some_and(VideoConfig::is_reported),
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
            side: ends[usize::from(flow.from == Host::Ground)],
            stream,
            class: flow.class,
            deadline: flow.deadline,
            copies: flow.copies,
            ahead: flow.transport.send_buffer,
            refuses: flow.transport.refuse_when_full
                && flow.transport.protocol.is_reliable()
                && !matches!(flow.traffic, TrafficConfig::Bulk { .. }),
        });
    }
    Population { sides, relays, apps }
}

/// An application hands a message to its side's endpoint.
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
    record.written(now, written);
    if app.refuses && endpoint.unacknowledged() + Bytes::new(u64::from(bytes)) > app.ahead {
        (0..copies.max(1)).for_each(|_| record.refused(id));
        return;
    }
    let (stream, class) = (app.stream, app.class);
    write_copies(now, endpoint, Message { stream, id, class, bytes, deadline }, copies);
}

/// Writes `message` so many times, at least once.
pub fn write_copies(now: Instant, endpoint: &mut Endpoint, message: Message, copies: u8) {
    for _ in 0..copies.max(1) {
        endpoint.write(now, message);
    }
}

/// The flow whose connection carries `flow`.
fn carrier_of<'a>(setup: &'a Setup, flow: &'a FlowSetup) -> &'a FlowSetup {
    flow.rides_with.and_then(|carrier| setup.flows.get(carrier)).unwrap_or(flow)
}

/// Adds the sides of the connections of flow number `index`, from the vehicle to the ground, and the
/// proxies between them.
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
        routes: paths.iter().map(|path| 2 * path + usize::from(host == Host::Ground)).collect(),
        streams: Vec::new(),
        fillers: Vec::new(),
        writes: false,
        writers: 0,
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
    paths.iter().filter_map(|path| setup.paths.get(*path)).map(|path| path.info).collect()
}
