//! One side of a connection: its machine, and its rows in the tables.

use alloc::vec::Vec;

use skybraid_transport::scheduler::Choice;
use skybraid_transport::{Decision, SubflowSample, split};
use skybraid_units::{Instant, Promised};

use crate::end_host::EndHost;
use crate::ids::{FlowId, Numbered, RelayId, SideId};
use crate::record::{DecisionRow, Outcome, SubflowRow};
use crate::relay::Relay;
use crate::sender::Sender;

/// The machine at one side of a connection.
pub enum End {
    /// A host with its endpoint.
    Host(EndHost),
    /// One side of a proxy.
    Proxy(RelayId, split::Side),
}

/// One side of a flow's connection.
pub struct Side {
    /// The machine.
    pub end: End,
    flow: FlowId,
    /// Position along the flow, as in [`SubflowRow::end`].
    place: u8,
    /// Whether it sends data: its subflows have rows.
    sends: bool,
    /// Totals at the last sample, by subflow.
    sampled: Vec<[u64; 4]>,
}

impl Numbered for Side {
    type Id = SideId;
    const EXPECTED: &'static str = "a side of this number";
}

impl Side {
    /// Creates a side of `flow` at position `place` along it.
    pub const fn new(end: End, flow: FlowId, place: u8) -> Self {
        Self { end, flow, place, sends: false, sampled: Vec::new() }
    }

    /// Sets whether the side sends data.
    pub const fn set_sends(&mut self, sends: bool) {
        self.sends = sends;
    }

    /// Flow that owns the connection.
    pub const fn flow(&self) -> FlowId {
        self.flow
    }

    /// Sender of a host.
    pub const fn sender(&self) -> Option<&Sender> {
        match &self.end {
            End::Host(host) => Some(host.sender()),
            End::Proxy(..) => None,
        }
    }

    /// Records the scheduling decisions since the last call.
    pub fn take_decisions(&mut self, rows: &mut Vec<DecisionRow>) {
        let (flow, vehicle) = (self.flow, self.place == 0);
        if let End::Host(host) = &mut self.end {
            let mut take = |decision| rows.push(decision_row(flow, vehicle, decision));
            host.endpoint_mut().take_decisions(&mut take);
        }
    }

    /// Records the state of the subflows.
    pub fn sample(&mut self, now: Instant, relays: &[Relay], outcome: &mut Outcome) {
        if !self.sends {
            return;
        }
        let (rows, sampled) = (&mut outcome.subflows, &mut self.sampled);
        let (flow, place) = (self.flow, self.place);
        let mut record = |sender: &Sender, sample: SubflowSample| {
            let path = sender.path(sample.path);
            rows.push(subflow_row(now, (flow, place), path, sample, sampled));
        };
        match &self.end {
            End::Host(host) => {
                host.endpoint().samples(&mut |sample| record(host.sender(), sample));
            }
            End::Proxy(relay, at) => {
                if let Some(relay) = Relay::find(relays, *relay) {
                    relay.samples(*at).for_each(|sample| record(relay.sender(*at), sample));
                }
            }
        }
    }
}

/// Returns the row of a decision of the sender of `flow` at the vehicle or at the ground.
fn decision_row(flow: FlowId, vehicle: bool, decision: Decision) -> DecisionRow {
    let (paths, reason, waits_for, until) = match decision.choice {
        Choice::Send(paths, reason) => (paths.bits(), reason, None, None),
        Choice::Wait { reason, path, until } => (0, reason, path, until),
    };
    DecisionRow {
        at: decision.at,
        flow: flow.index() as u16,
        vehicle,
        message: decision.first_message,
        paths,
        reason,
        waits_for,
        until,
    }
}

/// Returns the row of a subflow, with its counts since the previous row; `sampled` keeps the totals.
fn subflow_row(
    at: Instant,
    (flow, end): (FlowId, u8),
    path: usize,
    sample: SubflowSample,
    sampled: &mut Vec<[u64; 4]>,
) -> SubflowRow {
    let totals = [
        sample.totals.acked_bytes,
        sample.totals.retransmitted,
        sample.totals.lost,
        sample.totals.fast_recoveries + sample.totals.timeouts,
    ];
    let place = usize::from(sample.subflow);
    if sampled.len() <= place {
        sampled.resize(place + 1, [0; 4]);
    }
    let before = match sampled.get_mut(place).promised("totals of a subflow") {
        Some(last) => core::mem::replace(last, totals),
        None => totals,
    };
    let mut since = totals;
    since.iter_mut().zip(before).for_each(|(count, before)| *count -= before);
    let [acked_bytes, retransmitted, lost, reductions] = since;
    SubflowRow {
        at,
        flow: flow.index() as u16,
        end,
        path: path as u16,
        subflow: sample.subflow,
        window: sample.window.get(),
        threshold: sample.threshold.get(),
        srtt: sample.srtt,
        in_flight: sample.in_flight.get(),
        acked_bytes,
        retransmitted,
        lost,
        reductions,
        pacing_bps: sample.pacing.map(|rate| rate.as_bps()),
    }
}
