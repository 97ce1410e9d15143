//! Results of a run: statistics, and tables that Python takes piece by piece.

use std::collections::BTreeMap;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use skybraid_host::record::{FlowRecord, Record};
use skybraid_host::{FlowSetup, Outcome, Setup};
use skybraid_link::Cause;
use skybraid_units::invariant::Promised as _;
use skybraid_units::{Duration, Instant};

use crate::columns;
use crate::error::bad_input;
use crate::flow_stats::FlowStats;

/// Names of the codes of tables.
#[derive(Default)]
pub struct Names {
    /// Flows of the scenario, then their replies.
    pub flows: Vec<String>,
    /// Group of each flow in the scenario.
    pub groups: Vec<String>,
    /// Class of each flow.
    pub classes: Vec<u8>,
    /// Links of the scenario.
    pub links: Vec<String>,
    /// Distinct names of paths.
    pub paths: Vec<String>,
    /// Index in `paths` of the name of each path of the setup.
    path_names: Vec<usize>,
    /// Hosts, then each side of each proxy.
    pub sides: Vec<String>,
    /// Indices in `sides` of each flow's proxy sides, proxy by proxy.
    proxy_sides: Vec<Vec<usize>>,
    /// Shortest required deadline of each flow, if any.
    pub deadlines: Vec<Option<Duration>>,
    /// End of the run.
    pub end: Instant,
    /// Paths of the setup that each flow uses.
    flow_paths: Vec<Vec<usize>>,
}

impl Names {
    /// Returns the index in [`paths`](Self::paths) of the name of a path of the setup.
    pub fn path(&self, path: usize) -> usize {
        self.path_names.get(path).copied().unwrap_or(usize::MAX)
    }

    /// Returns the index in [`paths`](Self::paths) of the name of path number `own` of a flow.
    pub fn path_of(&self, flow: usize, own: usize) -> Option<usize> {
        Some(self.path(*self.flow_paths.get(flow)?.get(own)?))
    }

    /// Returns the index in [`sides`](Self::sides) of an end of a flow's connections.
    pub fn side(&self, flow: usize, end: u8) -> usize {
        let end = usize::from(end);
        let Some(of_proxy) = end.checked_sub(columns::HOSTS.len()) else { return end };
        let own = self.proxy_sides.get(flow).and_then(|sides| sides.get(of_proxy));
        own.copied().unwrap_or(usize::MAX)
    }
}

/// Returns the index of `name` in `names`, and adds it if it is missing.
fn position(names: &mut Vec<String>, name: &str) -> usize {
    names.iter().position(|known| known == name).unwrap_or_else(|| {
        names.push(name.to_string());
        names.len() - 1
    })
}

/// Result of a run.
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
    /// Facts of an emulated run that are not in its tables.
    emulation: Option<Py<PyDict>>,
    names: Names,
    active_s: Vec<f64>,
    outcome: Outcome,
}

impl Run {
    /// Creates the result of a run that ended at `end`.
    pub fn new(setup: &Setup, outcome: Outcome, end: Instant, wall_s: f64) -> Self {
        let answered = |index: usize| {
            let flow = outcome.answers.get(index - setup.flows.len()).copied();
            flow.promised("the flow of an answer").unwrap_or(0)
        };
        let origin: Vec<usize> = (0..outcome.flows.len())
            .map(|index| if index < setup.flows.len() { index } else { answered(index) })
            .collect();
        let flow = |index: &usize| setup.flows.get(*index).promised("the flow of a record");
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
        let named = |name_of: fn(&FlowSetup) -> &String| {
            let names = origin.iter().enumerate().filter_map(|(index, from)| {
                let name = name_of(flow(from)?);
                let answers = index >= setup.flows.len();
                Some(if answers { format!("{name}.answer") } else { name.clone() })
            });
            names.collect()
        };
        let names = Names {
            flows: named(|flow| &flow.name),
            groups: named(|flow| &flow.group),
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
        // A division is exact for whole seconds, which the product with 1e-9 is not.
        let simulated_s = end.as_nanos() as f64 / 1e9;
        let (seed, packet_hops) = (setup.seed.0, outcome.packet_hops);
        Self { seed, simulated_s, wall_s, packet_hops, emulation: None, names, active_s, outcome }
    }

    /// Adds the facts of an emulated run.
    #[cfg(target_os = "linux")]
    pub fn with_emulation(self, facts: Py<PyDict>) -> Self {
        Self { emulation: Some(facts), ..self }
    }

    /// Takes the next piece of a table, at most about `rows` rows, out of the run.
    fn take<'py>(
        &mut self,
        py: Python<'py>,
        table: &str,
        rows: usize,
    ) -> PyResult<Option<Bound<'py, PyDict>>> {
        let (names, outcome) = (&self.names, &mut self.outcome);
        let mut flows = outcome.flows.iter_mut().enumerate();
        let columns = match table {
            "messages" => flows.find_map(|(flow, record)| {
                let first = record.first_id();
                record.take_block().map(|rows| columns::messages(py, names, flow, first, &rows))
            }),
            "subflows" => columns::take(&mut outcome.subflows, rows)
                .map(|rows| columns::subflows(py, names, &rows)),
            "links" => {
                columns::take(&mut outcome.links, rows).map(|rows| columns::links(py, names, &rows))
            }
            "decisions" => columns::take(&mut outcome.decisions, rows)
                .map(|rows| columns::decisions(py, names, &rows)),
            "packets" => columns::take(&mut outcome.packets, rows)
                .map(|rows| columns::packets(py, names, &rows)),
            "frames" => flows.find_map(|(flow, record)| {
                let frames = record.take_frames();
                (!frames.is_empty()).then(|| columns::frames(py, names, &[(flow, frames)]))
            }),
            other => return Err(unknown_table("table", other)),
        };
        Ok(columns.transpose()?.map(|columns| columns.dict))
    }
}

fn unknown_table(argument: &str, found: &str) -> PyErr {
    bad_input(format!(
        "{argument}: found `{found}`, expected messages, subflows, links, decisions, packets or frames"
    ))
}

/// Returns the record that keeps the named tables.
pub fn record(tables: &[String]) -> PyResult<Record> {
    let mut record = Record::default();
    for table in tables {
        match table.as_str() {
            "messages" => record.messages = true,
            "subflows" => record.subflows = true,
            "links" => record.links = true,
            "decisions" => record.decisions = true,
            "packets" => record.packets = true,
            // Frames are few and always kept.
            "frames" => {}
            other => return Err(unknown_table("tables", other)),
        }
    }
    Ok(record)
}

#[pymethods]
impl Run {
    /// Returns the facts of an emulated run that are not in its tables.
    #[getter]
    fn emulation(&self, py: Python<'_>) -> Option<Py<PyDict>> {
        self.emulation.as_ref().map(|facts| facts.clone_ref(py))
    }

    /// Returns the statistics of each flow.
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

    /// Returns the statistics of each flow of the scenario, pooled over its connections and vehicles.
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

    /// Returns the totals of packets delivered and lost by each link.
    fn link_stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for (index, total) in self.outcome.link_totals.iter().enumerate() {
            let entry = dict!(
                py,
                "path": self.names.links.get(columns::link_of(index)),
                "direction": columns::DIRECTIONS.get(columns::direction_of(index)),
                "delivered": total.delivered,
                "delivered_bytes": total.delivered_bytes,
            );
            for (cause, lost) in Cause::ALL.iter().zip(total.lost) {
                entry.set_item(format!("lost_{}", cause.name()), lost)?;
            }
            list.append(entry)?;
        }
        Ok(list)
    }

    /// Returns the remaining rows of a table as columns, without taking them.
    fn columns<'py>(&self, py: Python<'py>, table: &str) -> PyResult<Bound<'py, PyDict>> {
        let (names, outcome) = (&self.names, &self.outcome);
        let columns = match table {
            "messages" => columns::all_messages(py, names, &outcome.flows),
            "subflows" => columns::subflows(py, names, &outcome.subflows),
            "links" => columns::links(py, names, &outcome.links),
            "decisions" => columns::decisions(py, names, &outcome.decisions),
            "packets" => columns::packets(py, names, &outcome.packets),
            "frames" => {
                let flows = outcome.flows.iter().enumerate();
                let frames = flows.map(|(flow, record)| (flow, record.frames()));
                columns::frames(py, names, &frames.collect::<Vec<_>>())
            }
            other => Err(unknown_table("table", other)),
        };
        Ok(columns?.dict)
    }

    /// Returns a table in pieces, each of which is taken out of the run as it is read.
    fn batches(slf: Py<Self>, table: String, rows: usize) -> Batches {
        Batches { run: slf, table, rows: rows.max(1) }
    }
}

/// Iterator over the pieces of a table.
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

/// Returns the number of rows of all flows.
pub fn rows_of(flows: &[FlowRecord]) -> usize {
    flows.iter().flat_map(FlowRecord::blocks).map(<[_]>::len).sum()
}

/// Returns the number of broken invariants in this process, and the source line of the first.
#[pyo3::pyfunction]
pub fn bugs() -> (u64, Option<String>) {
    let first = skybraid_units::invariant::first_bug();
    (skybraid_units::invariant::bugs(), first.map(ToString::to_string))
}
