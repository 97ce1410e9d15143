//! What a run leaves behind: statistics, and tables that Python takes out piece by piece.

use std::collections::BTreeMap;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use skybraid_host::record::{FlowRecord, Record};
use skybraid_host::{Outcome, Setup};
use skybraid_link::Cause;
use skybraid_units::{Duration, Instant};

use crate::columns;
use crate::error::bad_input;
use crate::statistics::FlowStats;

/// The names that the codes of a table stand for.
pub struct Names {
    /// Scenario flows, then the answers of flows that are answered.
    pub flows: Vec<String>,
    /// The name of the flow of the scenario that each belongs to.
    pub groups: Vec<String>,
    /// Class of each flow.
    pub classes: Vec<u8>,
    /// Links of the scenario.
    pub links: Vec<String>,
    /// Paths, each name once.
    pub paths: Vec<String>,
    /// The name of each path of the setup, as a position in `paths`.
    path_names: Vec<usize>,
    /// The hosts, then each side of each proxy.
    pub sides: Vec<String>,
    /// For each flow, the position in `sides` of its first proxy's sides, and so on.
    proxy_sides: Vec<Vec<usize>>,
    /// The deadline of each flow that has one: the shortest that a requirement names.
    pub deadlines: Vec<Option<Duration>>,
    /// End of the run.
    pub end: Instant,
    /// For each flow, which path of the setup each of its own paths is.
    flow_paths: Vec<Vec<usize>>,
}

impl Names {
    /// The name of a path of the setup, as a position in [`paths`](Self::paths).
    pub fn path(&self, path: usize) -> usize {
        self.path_names.get(path).copied().unwrap_or(usize::MAX)
    }

    /// The name of path number `own` of a flow.
    pub fn path_of(&self, flow: usize, own: usize) -> Option<usize> {
        Some(self.path(*self.flow_paths.get(flow)?.get(own)?))
    }

    /// The name of an end of a flow's connections, as a position in [`sides`](Self::sides).
    pub fn side(&self, flow: usize, end: u8) -> usize {
        let end = usize::from(end);
        let Some(of_proxy) = end.checked_sub(columns::HOSTS.len()) else { return end };
        let own = self.proxy_sides.get(flow).and_then(|sides| sides.get(of_proxy));
        own.copied().unwrap_or(usize::MAX)
    }
}

/// The position of `name` in `names`, where it is added if it is missing.
fn position(names: &mut Vec<String>, name: &str) -> usize {
    names.iter().position(|known| known == name).unwrap_or_else(|| {
        names.push(name.to_string());
        names.len() - 1
    })
}

/// A run.
#[pyclass(module = "skybraid._core")]
pub struct Run {
    #[pyo3(get)]
    seed: u64,
    #[pyo3(get)]
    simulated_s: f64,
    #[pyo3(get)]
    wall_s: f64,
    #[pyo3(get)]
    packet_hops: u64,
    /// What an emulated run tells beside its tables.
    emulation: Option<Py<PyDict>>,
    names: Names,
    active_s: Vec<f64>,
    outcome: Outcome,
}

impl Run {
    /// A run that has ended at `end`.
    pub fn new(setup: &Setup, outcome: Outcome, end: Instant, wall_s: f64) -> Self {
        let of = |index: usize| outcome.answers.get(index - setup.flows.len()).copied();
        let origin: Vec<usize> = (0..outcome.flows.len())
            .map(|index| if index < setup.flows.len() { index } else { of(index).unwrap_or(0) })
            .collect();
        let flow = |index: &usize| setup.flows.get(*index);
        let mut places = BTreeMap::new();
        let mut paths = Vec::new();
        let path_names = setup.paths.iter().map(|path| {
            *places.entry(path.name.as_str()).or_insert_with(|| {
                paths.push(path.name.clone());
                paths.len() - 1
            })
        });
        let path_names = path_names.collect();
        let mut sides = columns::HOSTS.map(String::from).to_vec();
        let proxy_sides = setup.flows.iter().map(|flow| {
            let names = flow.proxies.iter().flat_map(|proxy| {
                ["upstream", "downstream"].map(|side| format!("{}.{side}", proxy.name))
            });
            names.map(|name| position(&mut sides, &name)).collect()
        });
        let proxy_sides = proxy_sides.collect();
        let names = Names {
            flows: origin
                .iter()
                .enumerate()
                .filter_map(|(index, from)| {
                    let name = &flow(from)?.name;
                    let answers = index >= setup.flows.len();
                    Some(if answers { format!("{name}.answer") } else { name.clone() })
                })
                .collect(),
            groups: origin
                .iter()
                .enumerate()
                .filter_map(|(index, from)| {
                    let group = &flow(from)?.group;
                    let answers = index >= setup.flows.len();
                    Some(if answers { format!("{group}.answer") } else { group.clone() })
                })
                .collect(),
            classes: origin.iter().filter_map(|from| Some(flow(from)?.class as u8)).collect(),
            deadlines: origin.iter().filter_map(|from| Some(flow(from)?.deadline)).collect(),
            end,
            links: setup.links.iter().map(|link| link.name.clone()).collect(),
            paths,
            path_names,
            sides,
            proxy_sides,
            flow_paths: origin.iter().filter_map(|from| Some(flow(from)?.paths.clone())).collect(),
        };
        let active_s = origin
            .iter()
            .filter_map(|from| {
                let flow = flow(from)?;
                Some(flow.stop.min(end).since(flow.start).as_secs_f64())
            })
            .collect();
        let simulated_s = end.as_secs_f64();
        let (seed, packet_hops) = (setup.seed.0, outcome.packet_hops);
        Self { seed, simulated_s, wall_s, packet_hops, emulation: None, names, active_s, outcome }
    }

    /// The run was emulated, and this is told of it.
    pub fn with_emulation(self, facts: Py<PyDict>) -> Self {
        Self { emulation: Some(facts), ..self }
    }

    /// The next piece of a table of at most about `rows` rows, taken out of the run.
    fn take<'py>(
        &mut self,
        py: Python<'py>,
        table: &str,
        rows: usize,
    ) -> PyResult<Option<Bound<'py, PyDict>>> {
        let outcome = &mut self.outcome;
        match table {
            "messages" => {
                for (flow, record) in outcome.flows.iter_mut().enumerate() {
                    let first = record.first_id();
                    if let Some(block) = record.take_block() {
                        return columns::messages(py, &self.names, flow, first, &block).map(Some);
                    }
                }
                Ok(None)
            }
            "subflows" => {
                let taken = columns::take(&mut outcome.subflows, rows);
                taken.map(|rows| columns::subflows(py, &self.names, &rows)).transpose()
            }
            "links" => {
                let taken = columns::take(&mut outcome.links, rows);
                taken.map(|rows| columns::links(py, &self.names, &rows)).transpose()
            }
            "decisions" => {
                let taken = columns::take(&mut outcome.decisions, rows);
                taken.map(|rows| columns::decisions(py, &self.names, &rows)).transpose()
            }
            "packets" => {
                let taken = columns::take(&mut outcome.packets, rows);
                taken.map(|rows| columns::packets(py, &self.names, &rows)).transpose()
            }
            "frames" => {
                for (flow, record) in outcome.flows.iter_mut().enumerate() {
                    let frames = record.take_frames();
                    if !frames.is_empty() {
                        return columns::frames(py, &self.names, &[(flow, frames)]).map(Some);
                    }
                }
                Ok(None)
            }
            other => Err(unknown_table("table", other)),
        }
    }
}

fn unknown_table(argument: &str, found: &str) -> PyErr {
    bad_input(format!(
        "{argument}: found `{found}`, expected messages, subflows, links, decisions, packets or frames"
    ))
}

/// Which tables are to be kept, by name.
pub fn record(tables: &[String]) -> PyResult<Record> {
    let mut record = Record::default();
    for table in tables {
        match table.as_str() {
            "messages" => record.messages = true,
            "subflows" => record.subflows = true,
            "links" => record.links = true,
            "decisions" => record.decisions = true,
            "packets" => record.packets = true,
            // They are few, and kept in any case.
            "frames" => {}
            other => return Err(unknown_table("tables", other)),
        }
    }
    Ok(record)
}

#[pymethods]
impl Run {
    /// What an emulated run tells beside its tables.
    #[getter]
    fn emulation(&self, py: Python<'_>) -> Option<Py<PyDict>> {
        self.emulation.as_ref().map(|facts| facts.clone_ref(py))
    }

    /// Statistics of each flow.
    fn flow_stats(&self) -> Vec<FlowStats> {
        let flows = self.names.flows.iter().zip(&self.names.groups).zip(&self.outcome.flows);
        flows
            .zip(self.names.flow_paths.iter().zip(&self.active_s))
            .map(|(((name, group), record), (paths, active_s))| {
                let name_of = |path: &usize| self.names.paths.get(self.names.path(*path)).cloned();
                let paths = paths.iter().filter_map(name_of).collect();
                let (name, group) = (name.clone(), group.clone());
                FlowStats::new(name, group, record.summary.clone(), paths, *active_s)
            })
            .collect()
    }

    /// Statistics of each flow of the scenario, those of several connections or vehicles together.
    fn group_stats(&self) -> Vec<FlowStats> {
        let mut groups: Vec<Vec<FlowStats>> = Vec::new();
        let mut places = BTreeMap::new();
        for flow in self.flow_stats() {
            let place = *places.entry(flow.group().to_string()).or_insert(groups.len());
            match groups.get_mut(place) {
                Some(members) => members.push(flow),
                None => groups.push(vec![flow]),
            }
        }
        let together = |members: Vec<FlowStats>| match <[FlowStats; 1]>::try_from(members) {
            Ok([single]) => Some(single),
            Err(several) => FlowStats::pooled(&several),
        };
        groups.into_iter().filter_map(together).collect()
    }

    /// What each link carried and lost over the whole run.
    fn link_stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for (index, total) in self.outcome.link_totals.iter().enumerate() {
            let entry = PyDict::new(py);
            entry.set_item("path", self.names.links.get(index / 2))?;
            entry.set_item("direction", columns::DIRECTIONS.get(index % 2))?;
            entry.set_item("delivered", total.delivered)?;
            entry.set_item("delivered_bytes", total.delivered_bytes)?;
            for (cause, lost) in Cause::ALL.iter().zip(total.lost) {
                entry.set_item(format!("lost_{}", cause.name()), lost)?;
            }
            list.append(entry)?;
        }
        Ok(list)
    }

    /// What is left of a table, as columns. Leaves it in place.
    fn columns<'py>(&self, py: Python<'py>, table: &str) -> PyResult<Bound<'py, PyDict>> {
        let outcome = &self.outcome;
        match table {
            "messages" => columns::all_messages(py, &self.names, &outcome.flows),
            "subflows" => columns::subflows(py, &self.names, &outcome.subflows),
            "links" => columns::links(py, &self.names, &outcome.links),
            "decisions" => columns::decisions(py, &self.names, &outcome.decisions),
            "packets" => columns::packets(py, &self.names, &outcome.packets),
            "frames" => {
                let flows = outcome.flows.iter().enumerate();
                let frames = flows.map(|(flow, record)| (flow, record.frames()));
                columns::frames(py, &self.names, &frames.collect::<Vec<_>>())
            }
            other => Err(unknown_table("table", other)),
        }
    }

    /// A table in pieces, each taken out of the run's memory as it is read.
    fn batches(slf: Py<Self>, table: String, rows: usize) -> Batches {
        Batches { run: slf, table, rows: rows.max(1) }
    }
}

/// The pieces of a table.
#[pyclass(module = "skybraid._core")]
pub struct Batches {
    run: Py<Run>,
    table: String,
    rows: usize,
}

#[pymethods]
impl Batches {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        self.run.try_borrow_mut(py)?.take(py, &self.table, self.rows)
    }
}

/// Rows of all flows, in order.
pub fn rows_of(flows: &[FlowRecord]) -> usize {
    flows.iter().flat_map(FlowRecord::blocks).map(<[_]>::len).sum()
}
