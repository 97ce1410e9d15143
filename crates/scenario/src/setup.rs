//! From a scenario to what a driver runs.

use skybraid_host::record::Record;
use skybraid_host::{FlowSetup, PathSetup, Setup};
use skybraid_units::Seed;

use crate::{Requirement, Scenario};

impl Scenario {
    /// The run of this scenario with the random streams of `seed`, which keeps `record`.
    pub fn setup(&self, seed: Seed, record: Record) -> Setup {
        let paths = self.paths.iter().map(|path| PathSetup {
            name: path.name.clone(),
            uplink: path.uplink.clone(),
            downlink: path.downlink.clone(),
            info: path.info,
        });
        let flows = self.flows.iter().map(|flow| {
            let judged_by = flow.requirements.iter().filter_map(|requirement| match requirement {
                Requirement::Share { deadline, .. } => *deadline,
                Requirement::Delay { .. } | Requirement::Goodput { .. } => None,
            });
            FlowSetup {
                name: flow.name.clone(),
                from: flow.from,
                class: flow.class,
                start: flow.start,
                stop: flow.stop,
                traffic: flow.traffic.clone(),
                transport: flow.transport.clone(),
                paths: flow.paths.clone(),
                deadline: flow.deadline,
                judged_by: judged_by.collect(),
                rides_with: flow.rides_with,
                copies: flow.copies,
            }
        });
        Setup {
            seed,
            duration: self.duration,
            paths: paths.collect(),
            flows: flows.collect(),
            address_changes: self.address_changes.clone(),
            record,
        }
    }
}
