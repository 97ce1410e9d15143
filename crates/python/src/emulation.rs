//! Emulation: links between network namespaces in real time, programs in their nodes, and the sandbox.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use skybraid_emulator::command::{Output, exit_code, run_in};
use skybraid_emulator::emulation::{self, Emulated, EmulationError, Options};
use skybraid_emulator::hosts::kernel::iperf::{Test, iperf_json};
use skybraid_emulator::sandbox;
use skybraid_host::Setup;
use skybraid_units::{Duration, Instant, Seed};

use crate::algorithms::{self, Classes, Fault};
use crate::error::{SkybraidError, bad_input, from_system};
use crate::progress::Progress;
use crate::run::{Run, record};
use crate::scenario::Scenario;

/// Time for a program to end after a request.
const GRACE: Duration = Duration::from_millis(2000);

fn error(error: EmulationError) -> PyErr {
    match error {
        EmulationError::System(error) => from_system(error),
        EmulationError::Hosts(error) => bad_input(error),
        other => SkybraidError::new_err(other.to_string()),
    }
}

/// Links between network namespaces.
#[pyclass(module = "skybraid._core")]
pub struct Emulation {
    emulation: emulation::Emulation,
    /// Whether the kernel's connections are also reported in the format of iperf3.
    iperf3: bool,
    /// Whether the table `subflows` is kept.
    keeps_subflows: bool,
    /// First error of an algorithm in Python.
    fault: Fault,
}

#[pymethods]
impl Emulation {
    #[new]
    #[pyo3(signature = (
        scenario, seed, tables, *, precise = false, captures = None, control = None, ipv6 = false,
        nested = 0, iperf3 = false, keep_privileges = false,
        algorithms = None
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn new(
        py: Python<'_>,
        scenario: &Scenario,
        seed: u64,
        tables: Vec<String>,
        precise: bool,
        captures: Option<PathBuf>,
        control: Option<PathBuf>,
        ipv6: bool,
        nested: usize,
        iperf3: bool,
        keep_privileges: bool,
        algorithms: Option<(Classes, Classes)>,
    ) -> PyResult<Self> {
        let file = &scenario.file;
        let scenario = &scenario.scenario;
        scenario.needs_two_hosts().map_err(bad_input)?;
        let mut record = record(&tables)?;
        let keeps_subflows = record.subflows;
        // The report of iperf3 needs the windows and round-trip times of its samples.
        record.subflows |= iperf3;
        let mut setup = scenario.setup(Seed(seed), record);
        let fault = Fault::default();
        // A shell and a program use the links alone, whatever algorithms the flows name.
        if let Some((schedulers, congestion)) = &algorithms {
            algorithms::supply(py, &mut setup, file, schedulers, congestion, &fault)?;
        }
        let options = Options { precise, captures, control, ipv6, nested, keep_privileges };
        let built = py.detach(|| emulation::Emulation::build(setup, &scenario.testbed, options));
        Ok(Self { emulation: built.map_err(error)?, iperf3, keeps_subflows, fault })
    }

    #[getter]
    fn nodes(&self) -> Vec<String> {
        self.emulation.nodes().map(str::to_string).collect()
    }

    fn environment<'py>(&self, py: Python<'py>, node: &str) -> PyResult<Bound<'py, PyDict>> {
        let variables = PyDict::new(py);
        for (name, value) in self.emulation.environment(node) {
            variables.set_item(name, value)?;
        }
        Ok(variables)
    }

    /// Returns the path of a node's network namespace in this process.
    fn namespace(&self, node: &str) -> PyResult<String> {
        Ok(self.emulation.node(node).map_err(error)?.path())
    }

    #[pyo3(signature = (node, argv, env, output = None))]
    fn start(
        &self,
        py: Python<'_>,
        node: &str,
        argv: Vec<String>,
        env: BTreeMap<String, String>,
        output: Option<(PathBuf, PathBuf)>,
    ) -> PyResult<Program> {
        let output = match &output {
            None => Output::Terminal,
            Some((stdout, stderr)) => Output::Files { stdout, stderr },
        };
        let env: Vec<_> = env.into_iter().collect();
        let started = py.detach(|| self.emulation.start(node, &argv, &env, output));
        Ok(Program { program: started.map_err(error)?, command: argv })
    }

    /// Runs the flows of the scenario for its duration.
    #[pyo3(signature = (progress = None))]
    fn fly(&mut self, py: Python<'_>, progress: Option<Py<PyAny>>) -> PyResult<Run> {
        let mut progress = Progress::new(progress, self.fault.clone());
        let flown = py.detach(|| self.emulation.fly(&mut |now| progress.report(now)));
        self.finish(py, flown.map_err(error)?, progress)
    }

    /// Runs the links until a program ends or the time has elapsed.
    #[pyo3(signature = (programs, limit_s = None, progress = None))]
    fn carry(
        &mut self,
        py: Python<'_>,
        programs: Vec<Py<Program>>,
        limit_s: Option<f64>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Run> {
        let mut progress = Progress::new(progress, self.fault.clone());
        let limit = limit_s.map_or(Instant::FAR_FUTURE, Instant::from_secs_f64);
        let running = || {
            Python::attach(|py| {
                let mut programs = programs.iter();
                programs.all(|program| matches!(program.borrow_mut(py).program.poll(), Ok(None)))
            })
        };
        let mut keep_running = |now| now < limit && running() && progress.report(now);
        let carried = py.detach(|| self.emulation.carry(&mut keep_running));
        self.finish(py, carried.map_err(error)?, progress)
    }
}

impl Emulation {
    fn finish(&self, py: Python<'_>, mut emulated: Emulated, progress: Progress) -> PyResult<Run> {
        progress.finish()?;
        let setup = self.emulation.setup();
        let end = emulated.stopped.unwrap_or(Instant::ZERO + setup.duration);
        let facts = facts(py, setup, &emulated)?;
        if self.iperf3 {
            facts.bind(py).set_item("iperf3", iperf3(py, setup, &emulated)?)?;
        }
        if !self.keeps_subflows {
            emulated.outcome.subflows = Vec::new();
        }
        Ok(Run::new(setup, emulated.outcome, end, end.as_secs_f64()).with_emulation(facts))
    }
}

/// Returns the flows carried by kernel connections in the format of iperf3.
fn iperf3<'py>(
    py: Python<'py>,
    setup: &Setup,
    emulated: &Emulated,
) -> PyResult<Bound<'py, PyDict>> {
    let texts = PyDict::new(py);
    let end = emulated.stopped.unwrap_or(Instant::ZERO + setup.duration);
    let rows = &emulated.outcome.subflows;
    for (index, (flow, carried)) in setup.flows.iter().zip(&emulated.carried).enumerate() {
        let Some(finished) = &carried.connection else { continue };
        let json = iperf_json(&Test { flow, index, rows, finished, end });
        texts.set_item(&flow.name, json.to_string())?;
    }
    Ok(texts)
}

/// Returns the facts of an emulated run that are not in its tables.
fn facts(py: Python<'_>, setup: &Setup, emulated: &Emulated) -> PyResult<Py<PyDict>> {
    let forwarded = &emulated.forwarded;
    let lateness = PyDict::new(py);
    let quantiles = [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)];
    for (name, share) in quantiles {
        let late = forwarded.lateness.quantile(share);
        lateness.set_item(name, late.as_secs_f64() * 1e6)?;
    }
    let stacks = PyDict::new(py);
    let connections = PyDict::new(py);
    for (flow, carried) in setup.flows.iter().zip(&emulated.carried) {
        stacks.set_item(&flow.name, &carried.stack)?;
        let Some(connection) = &carried.connection else { continue };
        let entry = dict!(
            py,
            "handshake_ms": connection.handshake.map(|span| span.as_millis_f64()),
            "fell_back": connection.fell_back,
            "subflows": connection.subflows,
            "retransmitted": connection.retransmitted,
            "ended": connection.ended.as_ref().map(ToString::to_string),
        );
        connections.set_item(&flow.name, entry)?;
    }
    let proxies = PyDict::new(py);
    for (node, done) in &emulated.proxies {
        let counts = dict!(
            py,
            "opened": done.opened,
            "finished": done.finished,
            "reset": done.reset,
            "failed": done.failed,
            "to_server_bytes": done.to_server,
            "to_client_bytes": done.to_client,
            "max_held_bytes": done.max_held,
        );
        proxies.set_item(node, counts)?;
    }
    let facts = dict!(
        py,
        "lateness_us": lateness,
        "early_share": forwarded.lateness.early_share(),
        "emulator_losses": forwarded.lost_by_emulator(),
        "doubtful": forwarded.doubtful(),
        "cpu_s": forwarded.cpu.as_secs_f64(),
        "stopped_s": emulated.stopped.map(Instant::as_secs_f64),
        "proxies": proxies,
        "notes": &emulated.notes,
        "stacks": stacks,
        "connections": connections,
    );
    Ok(facts.unbind())
}

/// A program in a node.
#[pyclass(module = "skybraid._core")]
pub struct Program {
    program: skybraid_emulator::command::Program,
    #[pyo3(get)]
    command: Vec<String>,
}

#[pymethods]
impl Program {
    #[getter]
    fn pid(&self) -> u32 {
        self.program.id()
    }

    /// Returns the exit status, or `None` while the program runs.
    fn poll(&mut self) -> PyResult<Option<i32>> {
        Ok(self.program.poll().map_err(from_system)?.map(exit_code))
    }

    /// Waits for the program to end.
    fn wait(&mut self, py: Python<'_>) -> PyResult<i32> {
        py.detach(|| self.program.wait()).map(exit_code).map_err(from_system)
    }

    /// Stops the program.
    fn stop(&mut self, py: Python<'_>) -> PyResult<i32> {
        py.detach(|| self.program.terminate(GRACE)).map(exit_code).map_err(from_system)
    }
}

/// Runs a command again inside a sandbox, and returns its exit status.
#[pyfunction]
pub fn reenter(
    py: Python<'_>,
    argv: Vec<OsString>,
    env: BTreeMap<OsString, OsString>,
) -> PyResult<i32> {
    let env: Vec<_> = env.into_iter().collect();
    py.detach(|| sandbox::reenter(&argv, &env)).map_err(from_system)
}

/// Runs a program in namespaces of another process, and returns its exit status.
#[pyfunction]
pub fn enter(
    py: Python<'_>,
    namespaces: Vec<PathBuf>,
    argv: Vec<String>,
    env: BTreeMap<String, String>,
) -> PyResult<i32> {
    let env: Vec<_> = env.into_iter().collect();
    py.detach(|| run_in(&namespaces, &argv, &env)).map(exit_code).map_err(from_system)
}

/// Returns the state of the emulator's system requirements.
#[pyfunction]
pub fn capabilities(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let found = py.detach(sandbox::capabilities).map_err(from_system)?;
    let list = PyList::empty(py);
    for capability in found.list {
        list.append(dict!(
            py,
            "name": capability.name,
            "present": capability.present,
            "needed": capability.needed,
            "found": capability.found,
            "fix": capability.remedy.unwrap_or_default(),
        ))?;
    }
    Ok(list)
}

/// Returns whether this process is the first of a sandbox.
#[pyfunction]
pub fn inside_sandbox() -> bool {
    sandbox::is_inside()
}
