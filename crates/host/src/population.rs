//! Who takes part in a run: the sides of each connection, and the applications that write into them.

use alloc::format;
use alloc::vec::Vec;

use skybraid_traffic::{Source, TrafficConfig};
use skybraid_transport::{Endpoint, Message, PathInfo, Role, TransportConfig};
use skybraid_units::{Bytes, Instant, Seed};

use crate::record::{FlowRecord, Outcome};
use crate::setup::{FlowSetup, Host, Setup};

/// One side of a flow's connection.
pub struct Side {
    pub endpoint: Endpoint,
    /// Which link each of the connection's paths leaves by.
    pub links: Vec<usize>,
    /// The flows that ride in the connection, by the numbers of their streams.
    pub streams: Vec<Stream>,
    /// Bulk applications that keep this side's endpoint filled.
    pub fillers: Vec<usize>,
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
    /// Two per connection: vehicle, ground.
    pub sides: Vec<Side>,
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
        FlowRecord::new(keep, reliable, end, paths, &flow.judged_by).with_copies(flow.copies)
    };
    outcome.flows.extend(setup.flows.iter().map(record_of));
    let mut sides: Vec<Side> = Vec::new();
    let mut apps = Vec::new();
    // The first side of each flow's connection; a flow that rides along has that of its carrier.
    let mut first_side = alloc::vec![usize::MAX; setup.flows.len()];
    for (index, flow) in setup.flows.iter().enumerate() {
        if flow.rides_with.is_none() && carried(index) {
            if let Some(first) = first_side.get_mut(index) {
                *first = sides.len();
            }
            sides.extend(connection(setup, index, flow));
        }
    }
    for (index, flow) in setup.flows.iter().enumerate() {
        let carrier = flow.rides_with.unwrap_or(index);
        let first = first_side.get(carrier).copied().unwrap_or(usize::MAX);
        let answer = flow.traffic.is_answered().then(|| {
            outcome.answers.push(index);
            outcome.flows.push(record_of(flow));
            outcome.flows.len() - 1
        });
        let mut stream = 0;
        for (offset, host) in [Host::Vehicle, Host::Ground].into_iter().enumerate() {
            let Some(side) = sides.get_mut(first.saturating_add(offset)) else { continue };
            let sends = flow.from == host;
            let back = answer.unwrap_or(index);
            stream = side.streams.len() as u8;
            side.streams.push(Stream {
                writes: if sends { index } else { back },
                gets: if sends { back } else { index },
                answers: !sends && answer.is_some(),
                flow: index,
            });
            if sends {
                side.writers += 1;
                if matches!(flow.traffic, TrafficConfig::Bulk { .. }) {
                    side.fillers.push(index);
                }
            }
        }
        apps.push(App {
            source: Source::new(&flow.traffic, flow.start, flow.stop.min(end)),
            side: first.saturating_add(usize::from(flow.from == Host::Ground)),
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
    Population { sides, apps }
}

/// An application hands a message to its side's endpoint.
pub fn write_message(
    now: Instant,
    app: &App,
    side: &mut Side,
    record: &mut FlowRecord,
    bytes: u32,
) {
    let id = record.next_id();
    let deadline = app.deadline.map(|span| now + span);
    record.written(now, bytes);
    if app.refuses && endpoint.unacknowledged() + Bytes::new(u64::from(bytes)) > app.ahead {
        (0..app.copies.max(1)).for_each(|_| record.refused(id));
        return;
    }
    let (stream, class) = (app.stream, app.class);
    side.write(now, Message { stream, id, class, bytes, deadline }, app.copies);
}

impl Side {
    /// Writes `message` so many times, at least once.
    pub fn write(&mut self, now: Instant, message: Message, copies: u8) {
        for _ in 0..copies.max(1) {
            self.endpoint.write(now, message);
        }
    }
}

/// The flow whose connection carries `flow`.
fn carrier_of<'a>(setup: &'a Setup, flow: &'a FlowSetup) -> &'a FlowSetup {
    flow.rides_with.and_then(|carrier| setup.flows.get(carrier)).unwrap_or(flow)
}

/// The two sides of the connection of flow number `index`: vehicle, ground.
fn connection(setup: &Setup, index: usize, flow: &FlowSetup) -> [Side; 2] {
    let paths = flow.paths.iter().filter_map(|path| setup.paths.get(*path));
    let infos: Vec<PathInfo> = paths.map(|path| path.info).collect();
    let seed = setup.seed.stream(&format!("{}.transport", flow.name)).next_u64();
    let transport = TransportConfig { seed: Seed(seed), ..flow.transport.clone() };
    [(Host::Vehicle, Role::Client), (Host::Ground, Role::Server)].map(|(host, role)| {
        let mut endpoint = Endpoint::new(&transport, &infos, role);
        if setup.record.decisions {
            endpoint.record_decisions();
        }
        let direction = usize::from(host == Host::Ground);
        Side {
            endpoint,
            links: flow.paths.iter().map(|path| 2 * path + direction).collect(),
            streams: Vec::new(),
            fillers: Vec::new(),
            writers: 0,
            flow: index,
            sampled: alloc::vec![[0; 4]; flow.paths.len()],
        }
    })
}
