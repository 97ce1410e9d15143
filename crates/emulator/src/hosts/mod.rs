//! Real-time hosts: one thread holds the sockets of both, so that one record with one clock contains when
//! each message was written and when it arrived.

pub mod datagrams;
pub mod kernel;
mod ports;
mod sockets;

use std::io;
use std::net::IpAddr;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use skybraid_host::record::Outcome;
use skybraid_host::record::samples::SAMPLE_INTERVAL;
use skybraid_host::{Carrier, FlowSetup, Hosts, InFlight, RecordId, Setup, SideId};
use skybraid_transport::{Segment, Stack};
use skybraid_units::invariant::Promised;
use skybraid_units::{Duration, Instant};

use crate::forward::thread::Prompt;
use kernel::{Ends, KernelFlow, MakeSocket, stream_socket};
use skybraid_io::clock::Clock;
use skybraid_io::netlink::Namespace;
use sockets::Sockets;

pub use ports::{MAX_FLOWS, flow_of};

/// Grace period for packets in flight at the end of a run, which are neither delivered nor lost.
const GRACE: Duration = Duration::from_secs(3);

/// Error that prevents flows from being carried.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The scenario requires a feature that the kernel or this machine lacks.
    #[error("flow.{flow}.transport.stack: {problem}")]
    Stack {
        /// The flow.
        flow: String,
        /// Value found and value expected.
        problem: String,
    },
    /// The number of flows exceeds the number of ports.
    #[error("found {0} flows, expected at most {MAX_FLOWS} in the emulator")]
    TooMany(usize),
    /// A socket cannot be created or has failed.
    #[error("{0}")]
    Socket(#[from] io::Error),
    /// A kernel connection cannot be opened.
    #[error("{0}")]
    Kernel(#[from] kernel::KernelError),
}

/// Location of the hosts.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// Namespace of the vehicle's sockets.
    pub vehicle: &'a Namespace,
    /// Namespace of the ground's sockets.
    pub ground: &'a Namespace,
    /// Addresses of the vehicle and the ground on each path of the scenario.
    pub paths: &'a [(IpAddr, IpAddr)],
}

impl Place<'_> {
    fn addresses(&self, path: usize) -> io::Result<(IpAddr, IpAddr)> {
        let known = self.paths.get(path).copied();
        known.ok_or_else(|| io::Error::other(format!("path {path} has no addresses")))
    }

    /// Opens a kernel flow.
    fn open(
        &self,
        flow: &FlowSetup,
        index: usize,
        answers: Option<usize>,
        end: Instant,
    ) -> Result<KernelFlow, HostError> {
        let vehicles = flow.paths.iter().map(|path| Ok((self.addresses(*path)?.0, *path as u16)));
        let first = flow.paths.first().copied().unwrap_or(0);
        let (vehicle, ground) = self.addresses(first)?;
        let (at_vehicle, at_ground) = (self.vehicle, self.ground);
        let in_vehicle = |domain, kind| at_vehicle.run(|| stream_socket(domain, kind))?;
        let in_ground = |domain, kind| at_ground.run(|| stream_socket(domain, kind))?;
        let ends = Ends {
            vehicle,
            ground,
            port: ports::ground(index, 0),
            paths: vehicles.collect::<io::Result<_>>()?,
            in_vehicle: &in_vehicle as MakeSocket<'_>,
            in_ground: &in_ground as MakeSocket<'_>,
        };
        Ok(KernelFlow::open(flow, index, answers, end, &ends)?)
    }
}

/// Results of the hosts.
#[derive(Debug)]
pub struct Flown {
    /// Record of the hosts, without the links (recorded by the forwarder).
    pub outcome: Outcome,
    /// Transport of each flow, in the order of the scenario.
    pub carried: Vec<Carried>,
    /// Time at which the run was stopped on request, if any.
    pub stopped: Option<Instant>,
}

/// Transport of a flow.
#[derive(Clone, Debug, Default)]
pub struct Carried {
    /// Description: `kernel tcp cubic`, `skybraid mp_dccp`.
    pub stack: String,
    /// Results of the connection, if the kernel carried the flow.
    pub connection: Option<kernel::Finished>,
}

/// Flows of a run over real sockets.
pub struct Load<'a> {
    setup: &'a Setup,
    clock: Clock,
    hosts: Hosts,
    sockets: Sockets,
    /// Kernel flows with their indices in the scenario.
    kernel: Vec<(usize, KernelFlow)>,
}

/// Returns true if the kernel carries the flow.
fn is_kernels(setup: &Setup, index: usize, flow: &FlowSetup) -> Result<bool, HostError> {
    let carrier = flow
        .rides_with
        .and_then(|with| setup.flows.get(with).promised("a flow of this run"))
        .unwrap_or(flow);
    let shared = |other: &FlowSetup| {
        other.rides_with == Some(index) || (flow.rides_with.is_some() && other.name == flow.name)
    };
    let able = kernel::supports(&carrier.transport).and_then(|()| {
        let problem = "flows that share a connection need `skybraid`";
        if setup.flows.iter().any(shared) { Err(problem.to_string()) } else { Ok(()) }
    });
    match (carrier.transport.stack, able) {
        (Stack::Skybraid, _) | (Stack::Auto, Err(_)) => Ok(false),
        (_, Ok(())) => Ok(true),
        (Stack::Kernel, Err(problem)) => Err(HostError::Stack { flow: flow.name.clone(), problem }),
    }
}

impl<'a> Load<'a> {
    /// Opens the sockets of every flow. Nothing is sent before [`run`](Self::run).
    ///
    /// # Errors
    /// See [`HostError`].
    pub fn open(setup: &'a Setup, place: &Place<'_>, clock: Clock) -> Result<Self, HostError> {
        if setup.flows.len() > MAX_FLOWS {
            return Err(HostError::TooMany(setup.flows.len()));
        }
        let numbered = setup.flows.iter().enumerate();
        let by_kernel = numbered.map(|(index, flow)| is_kernels(setup, index, flow));
        let by_kernel = by_kernel.collect::<Result<Vec<bool>, _>>()?;
        let carried = |flow: usize| !by_kernel.get(flow).copied().unwrap_or(false);
        let mut hosts = Hosts::new(setup, carried);
        hosts.hide_links();
        let sockets = Sockets::open(setup, &hosts, place)?;
        let numbered = setup.flows.iter().enumerate();
        let of_kernel = numbered.filter(|(index, _)| !carried(*index));
        let kernel = of_kernel
            .map(|(index, flow)| {
                let answers = hosts.outcome().answers.iter().position(|of| *of == index);
                let answers = answers.map(|place| setup.flows.len() + place);
                let end = Instant::ZERO + setup.duration;
                let opened = place.open(flow, index, answers, end)?;
                Ok((index, opened))
            })
            .collect::<Result<_, HostError>>()?;
        Ok(Self { setup, clock, hosts, sockets, kernel })
    }

    /// Runs the flows from the clock's zero to the end of the run. `watch` receives the time every 100 ms and
    /// returns whether to continue; `pending` returns the number of packets in flight.
    ///
    /// # Errors
    /// A socket has failed. A failed connection ends only its flow.
    pub fn run(
        mut self,
        watch: &mut dyn FnMut(Instant) -> bool,
        pending: &dyn Fn() -> usize,
    ) -> Result<Flown, HostError> {
        let _prompt = Prompt::new();
        let end = Instant::ZERO + self.setup.duration;
        let mut stopped = None;
        let flows = self.hosts.flows();
        let mut writes: Vec<_> = flows.map(|flow| (flow, self.hosts.next_write(flow))).collect();
        let mut changes = self.setup.address_changes.iter().peekable();
        let mut next_sample = Instant::ZERO;
        let mut begun = false;
        loop {
            let now = self.clock.now();
            if now >= end {
                break;
            }
            if now >= Instant::ZERO {
                if !begun {
                    begun = true;
                    for side in self.hosts.sides() {
                        self.hosts.flush(now, side, &mut self.sockets);
                    }
                }
                while let Some(change) = changes.next_if(|change| change.at <= now) {
                    self.hosts.change_address(now, change, &mut self.sockets);
                }
                for (flow, due) in &mut writes {
                    if *due <= now {
                        *due = self.hosts.write(now, *flow, &mut self.sockets);
                    }
                }
                self.wake(now);
            }
            if now >= next_sample {
                self.sample(now);
                next_sample += SAMPLE_INTERVAL;
                if !watch(now) {
                    stopped = Some(now);
                    break;
                }
            }
            let timers = [
                next_sample,
                end,
                self.sockets.next_due().0,
                changes.peek().map_or(end, |change| change.at),
            ];
            let flows = self.kernel.iter().map(|(_, flow)| flow.next_due());
            let writes = writes.iter().map(|(_, due)| *due);
            let due = writes.chain(timers).chain(flows).min().unwrap_or(end);
            let due = if begun { due } else { Instant::ZERO };
            self.await_and_read(due)?;
        }
        if let Some(end) = stopped {
            self.hosts.end_early(end);
        }
        let in_flight = self.drain(pending)?;
        Ok(self.finish(in_flight, stopped))
    }

    /// Fires expired timers of endpoints and connections.
    fn wake(&mut self, now: Instant) {
        loop {
            let (due, side) = self.sockets.next_due();
            if due > now {
                break;
            }
            self.sockets.clear(side);
            // Timers are often postponed; this is detected only at the old time.
            let due = self.hosts.next_wakeup(side);
            if due > now {
                self.sockets.wake_at(side, due);
            } else {
                self.hosts.wake(now, side, &mut self.sockets);
            }
        }
        for (_, flow) in &mut self.kernel {
            if flow.next_due() <= now {
                step(flow, now, self.hosts.outcome_mut());
            }
        }
    }

    fn sample(&mut self, now: Instant) {
        self.hosts.sample(now);
        if self.setup.record.subflows {
            for (_, flow) in &mut self.kernel {
                flow.sample(now, self.hosts.outcome_mut());
            }
        }
    }

    /// Waits until `due` or until data arrives, and reads it.
    fn await_and_read(&mut self, due: Instant) -> Result<(), HostError> {
        let (sides, flows) = self.ready(due)?;
        let now = self.clock.now();
        for side in sides {
            let Some(mut participant) = self.hosts.participant(side) else { continue };
            self.sockets.receive(now, side, |path, segment| {
                participant.receive(now, path, segment, None);
            })?;
            participant.flush(now, &mut self.sockets);
        }
        for flow in flows {
            if let Some((_, flow)) = self.kernel.get_mut(flow).promised("a flow of the kernel") {
                step(flow, now, self.hosts.outcome_mut());
            }
        }
        Ok(())
    }

    /// Waits until `due` or until a socket is ready. Returns the owners of ready sockets: sides, and kernel
    /// flows.
    fn ready(&self, due: Instant) -> io::Result<(Vec<SideId>, Vec<usize>)> {
        let mut owners = Vec::new();
        let mut polled = Vec::new();
        for (side, socket) in self.sockets.sockets() {
            owners.push(Owner::Side(side));
            polled.push(PollFd::new(socket, PollFlags::POLLIN));
        }
        for (place, (_, flow)) in self.kernel.iter().enumerate() {
            for interest in flow.interest() {
                owners.push(Owner::Flow(place));
                polled.push(interest.polled());
            }
        }
        let left = (due - self.clock.now()).as_nanos().max(0);
        let timeout = TimeSpec::new(left / 1_000_000_000, left % 1_000_000_000);
        match ppoll(&mut polled, Some(timeout), None) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let (mut sides, mut flows) = (Vec::new(), Vec::new());
        for (owner, polled) in owners.iter().zip(&polled) {
            match owner {
                _ if !polled.any().unwrap_or(false) => {}
                Owner::Side(side) if sides.last() != Some(side) => sides.push(*side),
                Owner::Flow(flow) if flows.last() != Some(flow) => flows.push(*flow),
                Owner::Side(_) | Owner::Flow(_) => {}
            }
        }
        Ok((sides, flows))
    }

    /// Receives segments still in flight after the end, and returns them with their record.
    fn drain(
        &mut self,
        pending: &dyn Fn() -> usize,
    ) -> Result<Vec<(RecordId, Segment)>, HostError> {
        let mut arrived = Vec::new();
        let last = self.clock.now() + GRACE;
        loop {
            let now = self.clock.now();
            let empty = pending() == 0;
            for side in self.hosts.sides() {
                let hosts = &self.hosts;
                self.sockets.receive(now, side, |_, segment| {
                    let record = hosts.record_of(side, segment.stream);
                    arrived.extend(record.map(|record| (record, *segment)));
                })?;
            }
            if empty || now >= last || self.hosts.sides().len() == 0 {
                return Ok(arrived);
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    fn finish(mut self, in_flight: Vec<(RecordId, Segment)>, stopped: Option<Instant>) -> Flown {
        let mut carried: Vec<Carried> = self
            .setup
            .flows
            .iter()
            .map(|flow| {
                let carrier = flow
                    .rides_with
                    .and_then(|with| self.setup.flows.get(with).promised("a flow of this run"));
                let protocol = carrier.unwrap_or(flow).transport.protocol.name();
                Carried { stack: format!("skybraid {protocol}"), connection: None }
            })
            .collect();
        for (index, flow) in self.kernel {
            let finished = flow.finish(self.hosts.outcome_mut());
            let Some(carried) = carried.get_mut(index).promised("a flow of this run") else {
                continue;
            };
            let protocol = self.setup.flows.get(index).map(|flow| flow.transport.protocol.name());
            let (protocol, control) = (protocol.unwrap_or_default(), finished.congestion);
            carried.stack = format!("kernel {protocol} {control}");
            carried.connection = Some(finished);
        }
        let in_flight = in_flight.iter().map(|(record, segment)| InFlight {
            record: *record,
            segment,
            arrival: None,
        });
        Flown { outcome: self.hosts.finish(in_flight), carried, stopped }
    }
}

/// Owner of a socket.
enum Owner {
    Side(SideId),
    Flow(usize),
}

/// Steps a kernel flow. An error ends the flow and is reported at the end.
fn step(flow: &mut KernelFlow, now: Instant, outcome: &mut Outcome) {
    let _ = flow.step(now, outcome);
}
