//! Conversion of rows to columns: numpy arrays, and codes with their names.

use numpy::{Element, IntoPyArray};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use skybraid_host::record::{
    DecisionRow, FlowRecord, LinkRow, MessageRow, PacketKind, PacketRow, SubflowRow,
};
use skybraid_link::Cause;
use skybraid_traffic::video::Frame;
use skybraid_transport::Class;
use skybraid_transport::scheduler::Reason;
use skybraid_units::{Duration, Instant};

use crate::run::{Names, rows_of};

/// Directions of a path, by code.
pub const DIRECTIONS: [&str; 2] = ["uplink", "downlink"];
/// Hosts at the ends of a connection, by code.
pub const HOSTS: [&str; 2] = ["vehicle", "ground"];
/// Code for "none".
const NONE: usize = usize::MAX;
/// Returns the index of the link of a directed link.
pub const fn link_of(directed: usize) -> usize {
    directed / 2
}

/// Returns the index in [`DIRECTIONS`] of the direction of a directed link.
pub const fn direction_of(directed: usize) -> usize {
    directed % 2
}

/// Value for "none" in a column of times.
const NEVER: i64 = -1;

/// Takes up to `max` rows from the front of a table.
pub fn take<Row>(rows: &mut Vec<Row>, max: usize) -> Option<Vec<Row>> {
    if rows.is_empty() {
        return None;
    }
    if rows.len() <= max {
        return Some(std::mem::take(rows));
    }
    let rest = rows.split_off(max);
    Some(std::mem::replace(rows, rest))
}

struct Columns<'py> {
    py: Python<'py>,
    dict: Bound<'py, PyDict>,
}

impl<'py> Columns<'py> {
    fn new(py: Python<'py>) -> Self {
        Self { py, dict: PyDict::new(py) }
    }

    fn numbers<T: Element>(&self, name: &str, values: impl Iterator<Item = T>) -> PyResult<()> {
        self.dict.set_item(name, values.collect::<Vec<T>>().into_pyarray(self.py))
    }

    fn texts(&self, name: &str, values: impl Iterator<Item = String>) -> PyResult<()> {
        self.dict.set_item(name, values.collect::<Vec<String>>())
    }

    /// Adds a column of indices into `names`; an index out of range denotes none.
    fn codes<S: AsRef<str>>(
        &self,
        name: &str,
        values: impl Iterator<Item = usize>,
        names: &[S],
    ) -> PyResult<()> {
        let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
        if names.len() < usize::from(u8::MAX) {
            let code = |value| u8::try_from(value).unwrap_or(u8::MAX);
            let codes = values.map(code).collect::<Vec<u8>>().into_pyarray(self.py);
            return self.dict.set_item(name, (codes, names));
        }
        let code = |value| u32::try_from(value).unwrap_or(u32::MAX);
        let codes = values.map(code).collect::<Vec<u32>>().into_pyarray(self.py);
        self.dict.set_item(name, (codes, names))
    }
}

/// Returns rows of `messages` of one flow, numbered from `first`.
pub fn messages<'py>(
    py: Python<'py>,
    names: &Names,
    flow: usize,
    first: u32,
    rows: &[MessageRow],
) -> PyResult<Bound<'py, PyDict>> {
    let numbered = rows.iter().enumerate();
    let numbered = numbered.map(|(index, row)| (flow, first + index as u32, row));
    message_columns(py, names, &numbered.collect::<Vec<_>>())
}

/// Returns all remaining rows of `messages`.
pub fn all_messages<'py>(
    py: Python<'py>,
    names: &Names,
    flows: &[FlowRecord],
) -> PyResult<Bound<'py, PyDict>> {
    let mut rows = Vec::with_capacity(rows_of(flows));
    for (flow, record) in flows.iter().enumerate() {
        let numbers = record.first_id()..;
        rows.extend(record.blocks().flatten().zip(numbers).map(|(row, id)| (flow, id, row)));
    }
    message_columns(py, names, &rows)
}

fn message_columns<'py>(
    py: Python<'py>,
    names: &Names,
    rows: &[(usize, u32, &MessageRow)],
) -> PyResult<Bound<'py, PyDict>> {
    let columns = Columns::new(py);
    let class = |flow: usize| names.classes.get(flow).map_or(NONE, |class| usize::from(*class));
    let path = |flow: usize, path: u8| names.path_of(flow, usize::from(path)).unwrap_or(NONE);
    let within = |flow: usize, row: &MessageRow| {
        let Some(Some(limit)) = names.deadlines.get(flow) else { return u8::MAX };
        match row.delivered() {
            Some(at) => u8::from(at - row.sent() <= *limit),
            None if row.sent() + *limit <= names.end => 0,
            None => u8::MAX,
        }
    };
    let class_names: Vec<&str> = Class::ALL.iter().map(|class| class.name()).collect();
    columns.codes("flow", rows.iter().map(|(flow, ..)| *flow), &names.flows)?;
    columns.numbers("id", rows.iter().map(|(_, id, _)| *id))?;
    columns.codes("class", rows.iter().map(|(flow, ..)| class(*flow)), &class_names)?;
    columns.numbers("bytes", rows.iter().map(|(.., row)| row.bytes))?;
    columns.numbers("sent_ns", rows.iter().map(|(.., row)| row.sent().as_nanos()))?;
    let delivered = |row: &MessageRow| row.delivered().map_or(NEVER, |at| at.as_nanos());
    columns.numbers("delivered_ns", rows.iter().map(|(.., row)| delivered(row)))?;
    columns.numbers("copies_sent", rows.iter().map(|(.., row)| row.copies_sent))?;
    columns.numbers("copies_arrived", rows.iter().map(|(.., row)| row.copies_arrived))?;
    columns.codes("path", rows.iter().map(|(flow, _, row)| path(*flow, row.path)), &names.paths)?;
    columns.numbers("held_us", rows.iter().map(|(.., row)| row.held_us))?;
    columns.numbers("within_deadline", rows.iter().map(|(flow, _, row)| within(*flow, row)))?;
    Ok(columns.dict)
}

/// Returns rows of `links`.
pub fn links<'py>(
    py: Python<'py>,
    names: &Names,
    rows: &[LinkRow],
) -> PyResult<Bound<'py, PyDict>> {
    let columns = Columns::new(py);
    columns.numbers("time_ns", rows.iter().map(|row| row.at.as_nanos()))?;
    columns.codes("path", rows.iter().map(|row| link_of(usize::from(row.link))), &names.links)?;
    columns.codes(
        "direction",
        rows.iter().map(|row| direction_of(usize::from(row.link))),
        &DIRECTIONS,
    )?;
    columns.numbers("rate_bps", rows.iter().map(|row| row.rate_bps))?;
    columns.numbers("delay_ns", rows.iter().map(|row| row.delay.as_nanos()))?;
    columns.numbers("loss", rows.iter().map(|row| row.loss))?;
    columns.numbers("up", rows.iter().map(|row| row.up))?;
    columns.numbers("queue_bytes", rows.iter().map(|row| row.queue_bytes))?;
    columns.numbers("delivered", rows.iter().map(|row| row.delivered))?;
    columns.numbers("delivered_bytes", rows.iter().map(|row| row.delivered_bytes))?;
    for (index, cause) in Cause::ALL.iter().enumerate() {
        let lost = |row: &LinkRow| row.lost.get(index).copied().unwrap_or(0);
        columns.numbers(&format!("lost_{}", cause.name()), rows.iter().map(lost))?;
    }
    Ok(columns.dict)
}

/// Returns rows of `subflows`.
pub fn subflows<'py>(
    py: Python<'py>,
    names: &Names,
    rows: &[SubflowRow],
) -> PyResult<Bound<'py, PyDict>> {
    let columns = Columns::new(py);
    columns.numbers("time_ns", rows.iter().map(|row| row.at.as_nanos()))?;
    columns.codes("flow", rows.iter().map(|row| usize::from(row.flow)), &names.flows)?;
    let side = |row: &SubflowRow| names.side(usize::from(row.flow), row.end);
    columns.codes("side", rows.iter().map(side), &names.sides)?;
    let path = |row: &SubflowRow| names.path(usize::from(row.path));
    columns.codes("path", rows.iter().map(path), &names.paths)?;
    columns.numbers("subflow", rows.iter().map(|row| row.subflow))?;
    columns.numbers("cwnd_bytes", rows.iter().map(|row| row.window))?;
    columns.numbers("ssthresh_bytes", rows.iter().map(|row| row.threshold))?;
    let srtt = |row: &SubflowRow| row.srtt.map_or(NEVER, |srtt| srtt.as_nanos());
    columns.numbers("srtt_ns", rows.iter().map(srtt))?;
    columns.numbers("in_flight_bytes", rows.iter().map(|row| row.in_flight))?;
    columns.numbers("acked_bytes", rows.iter().map(|row| row.acked_bytes))?;
    columns.numbers("retransmitted", rows.iter().map(|row| row.retransmitted))?;
    columns.numbers("lost", rows.iter().map(|row| row.lost))?;
    columns.numbers("window_reductions", rows.iter().map(|row| row.reductions))?;
    columns.numbers("pacing_bps", rows.iter().map(|row| row.pacing_bps.unwrap_or(u64::MAX)))?;
    Ok(columns.dict)
}

/// Returns rows of `decisions`.
pub fn decisions<'py>(
    py: Python<'py>,
    names: &Names,
    rows: &[DecisionRow],
) -> PyResult<Bound<'py, PyDict>> {
    let columns = Columns::new(py);
    let reasons: Vec<&str> = Reason::ALL.iter().map(|reason| reason.name()).collect();
    columns.numbers("time_ns", rows.iter().map(|row| row.at.as_nanos()))?;
    columns.codes("flow", rows.iter().map(|row| usize::from(row.flow)), &names.flows)?;
    columns.codes("side", rows.iter().map(|row| usize::from(!row.vehicle)), &names.sides)?;
    columns.numbers("message", rows.iter().map(|row| row.message))?;
    columns.numbers("paths", rows.iter().map(|row| row.paths))?;
    columns.codes("reason", rows.iter().map(|row| row.reason as usize), &reasons)?;
    let waits_for =
        |row: &DecisionRow| names.path_of(usize::from(row.flow), row.waits_for?.index());
    let waits_for = rows.iter().map(|row| waits_for(row).unwrap_or(NONE));
    columns.codes("waits_for", waits_for, &names.paths)?;
    let until = |row: &DecisionRow| row.until.map_or(f64::NAN, Instant::as_secs_f64);
    columns.numbers("until_s", rows.iter().map(until))?;
    Ok(columns.dict)
}

/// Returns ascending numbers as text, for example `3 7-9`.
fn ranges(numbers: &[u16]) -> String {
    let text = |run: &[u16]| match run {
        [only] => only.to_string(),
        [first, .., last] => format!("{first}-{last}"),
        [] => String::new(),
    };
    let runs = numbers.chunk_by(|one, next| one + 1 == *next);
    runs.map(text).collect::<Vec<_>>().join(" ")
}

/// Returns rows of `frames` of these flows.
pub fn frames<'py>(
    py: Python<'py>,
    names: &Names,
    flows: &[(usize, impl AsRef<[Frame]>)],
) -> PyResult<Bound<'py, PyDict>> {
    let columns = Columns::new(py);
    let rows: Vec<(usize, &Frame)> = flows
        .iter()
        .flat_map(|(flow, frames)| frames.as_ref().iter().map(|frame| (*flow, frame)))
        .collect();
    let time = |at: Option<Instant>| at.map_or(NEVER, |at| at.as_nanos());
    let span = |span: Option<Duration>| span.map_or(NEVER, |span| span.as_nanos());
    let frames = || rows.iter().map(|(_, frame)| frame);
    columns.codes("flow", rows.iter().map(|(flow, _)| *flow), &names.flows)?;
    columns.numbers("frame", frames().map(|frame| frame.number))?;
    columns.numbers("key", frames().map(|frame| frame.key))?;
    columns.numbers("bytes", frames().map(|frame| frame.bytes))?;
    columns.numbers("packets", frames().map(|frame| frame.packets))?;
    columns.numbers("arrived", frames().map(|frame| frame.arrived))?;
    columns.numbers("repaired", frames().map(|frame| frame.repaired))?;
    columns.texts("missing", frames().map(|frame| ranges(&frame.missing)))?;
    columns.numbers("captured_ns", frames().map(|frame| frame.captured.as_nanos()))?;
    columns.numbers("sent_ns", frames().map(|frame| time(frame.sent)))?;
    columns.numbers("first_ns", frames().map(|frame| time(frame.first)))?;
    columns.numbers("last_ns", frames().map(|frame| time(frame.last)))?;
    columns.numbers("complete", frames().map(|frame| frame.complete))?;
    columns.numbers("intact", frames().map(|frame| frame.intact))?;
    columns.numbers("shown_ns", frames().map(|frame| time(frame.shown)))?;
    columns.numbers("latency_ns", frames().map(|frame| span(frame.latency())))?;
    columns.numbers("gap_ns", frames().map(|frame| span(frame.since_last)))?;
    Ok(columns.dict)
}

/// Returns rows of `packets`.
pub fn packets<'py>(
    py: Python<'py>,
    names: &Names,
    rows: &[PacketRow],
) -> PyResult<Bound<'py, PyDict>> {
    let columns = Columns::new(py);
    let kinds: Vec<&str> = PacketKind::ALL.iter().map(|kind| kind.name()).collect();
    let causes: Vec<&str> = Cause::ALL.iter().map(|cause| cause.name()).collect();
    columns.codes("path", rows.iter().map(|row| link_of(usize::from(row.link))), &names.links)?;
    columns.codes(
        "direction",
        rows.iter().map(|row| direction_of(usize::from(row.link))),
        &DIRECTIONS,
    )?;
    columns.numbers("in_ns", rows.iter().map(|row| row.entered.as_nanos()))?;
    columns.numbers("out_ns", rows.iter().map(|row| row.left.as_nanos()))?;
    columns.numbers("bytes", rows.iter().map(|row| row.bytes))?;
    columns.codes("flow", rows.iter().map(|row| usize::from(row.flow)), &names.flows)?;
    columns.codes("kind", rows.iter().map(|row| row.kind as usize), &kinds)?;
    let cause = |row: &PacketRow| row.cause.map_or(NONE, |cause| cause as usize);
    columns.codes("cause", rows.iter().map(cause), &causes)?;
    Ok(columns.dict)
}
