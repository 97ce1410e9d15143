//! Conversion of rows to columns: numpy arrays, and codes with their names.

use std::borrow::Cow;

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
/// Code for null.
const NONE: usize = usize::MAX;
/// Returns the index of the link of a directed link.
pub const fn link_of(directed: usize) -> usize {
    directed / 2
}

/// Returns the index in [`DIRECTIONS`] of the direction of a directed link.
pub const fn direction_of(directed: usize) -> usize {
    directed % 2
}

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

/// Column of a table, as Python and the documents know it.
pub struct Column {
    name: Cow<'static, str>,
    /// Unit; empty for none.
    unit: &'static str,
    doc: &'static str,
}

/// Declares a column: its name, its unit (empty for none) and its meaning.
fn column(name: impl Into<Cow<'static, str>>, unit: &'static str, doc: &'static str) -> Column {
    Column { name: name.into(), unit, doc }
}

/// Description of a column: name, type, unit, whether it has nulls, meaning.
pub type Description = (String, &'static str, &'static str, bool, &'static str);

/// Columns of a table, and their descriptions.
pub struct Columns<'py> {
    py: Python<'py>,
    pub dict: Bound<'py, PyDict>,
    descriptions: Vec<Description>,
}

impl<'py> Columns<'py> {
    fn new(py: Python<'py>) -> Self {
        Self { py, dict: PyDict::new(py), descriptions: Vec::new() }
    }

    fn describe(&mut self, column: &Column, kind: &'static str, null: bool) {
        self.descriptions.push((column.name.to_string(), kind, column.unit, null, column.doc));
    }

    fn numbers<T: Element>(
        &mut self,
        column: Column,
        values: impl Iterator<Item = T>,
    ) -> PyResult<()> {
        self.describe(&column, std::any::type_name::<T>(), false);
        self.dict.set_item(&column.name, values.collect::<Vec<T>>().into_pyarray(self.py))
    }

    /// Adds a column that may have nulls: values, and if some are null, which are not.
    fn optional<T: Element + Default>(
        &mut self,
        column: Column,
        values: impl Iterator<Item = Option<T>>,
    ) -> PyResult<()> {
        self.describe(&column, std::any::type_name::<T>(), true);
        let mut present = Vec::with_capacity(values.size_hint().0);
        let all = values.map(|value| {
            present.push(value.is_some());
            value.unwrap_or_default()
        });
        let all = all.collect::<Vec<T>>().into_pyarray(self.py);
        if present.iter().all(|present| *present) {
            return self.dict.set_item(&column.name, all);
        }
        self.dict.set_item(&column.name, (all, present.into_pyarray(self.py)))
    }

    fn texts(&mut self, column: Column, values: impl Iterator<Item = String>) -> PyResult<()> {
        self.describe(&column, "text", false);
        self.dict.set_item(&column.name, values.collect::<Vec<String>>())
    }

    /// Adds a column of indices into `names`; an index out of range denotes null.
    fn codes<S: AsRef<str>>(
        &mut self,
        column: Column,
        values: impl Iterator<Item = usize>,
        names: &[S],
    ) -> PyResult<()> {
        self.describe(&column, "name", false);
        self.set_codes(&column, values, names)
    }

    /// Adds a column of indices into `names`, or null.
    fn optional_codes<S: AsRef<str>>(
        &mut self,
        column: Column,
        values: impl Iterator<Item = Option<usize>>,
        names: &[S],
    ) -> PyResult<()> {
        self.describe(&column, "name", true);
        self.set_codes(&column, values.map(|value| value.unwrap_or(NONE)), names)
    }

    fn set_codes<S: AsRef<str>>(
        &self,
        column: &Column,
        values: impl Iterator<Item = usize>,
        names: &[S],
    ) -> PyResult<()> {
        let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
        if names.len() < usize::from(u8::MAX) {
            let code = |value| u8::try_from(value).unwrap_or(u8::MAX);
            let codes = values.map(code).collect::<Vec<u8>>().into_pyarray(self.py);
            return self.dict.set_item(&column.name, (codes, names));
        }
        let code = |value| u32::try_from(value).unwrap_or(u32::MAX);
        let codes = values.map(code).collect::<Vec<u32>>().into_pyarray(self.py);
        self.dict.set_item(&column.name, (codes, names))
    }
}

/// Returns the columns of every table: those of a run without rows.
#[pyo3::pyfunction]
pub fn table_columns(py: Python<'_>) -> PyResult<Vec<(&'static str, Vec<Description>)>> {
    let names = Names::default();
    let no_frames: &[(usize, &[Frame])] = &[];
    let tables = [
        ("messages", message_columns(py, &names, &[])?),
        ("links", links(py, &names, &[])?),
        ("subflows", subflows(py, &names, &[])?),
        ("frames", frames(py, &names, no_frames)?),
        ("decisions", decisions(py, &names, &[])?),
        ("packets", packets(py, &names, &[])?),
    ];
    Ok(tables.map(|(name, columns)| (name, columns.descriptions)).into())
}

/// Returns rows of `messages` of one flow, numbered from `first`.
pub fn messages<'py>(
    py: Python<'py>,
    names: &Names,
    flow: usize,
    first: u32,
    rows: &[MessageRow],
) -> PyResult<Columns<'py>> {
    let numbered = rows.iter().enumerate();
    let numbered = numbered.map(|(index, row)| (flow, first + index as u32, row));
    message_columns(py, names, &numbered.collect::<Vec<_>>())
}

/// Returns all remaining rows of `messages`.
pub fn all_messages<'py>(
    py: Python<'py>,
    names: &Names,
    flows: &[FlowRecord],
) -> PyResult<Columns<'py>> {
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
) -> PyResult<Columns<'py>> {
    let mut columns = Columns::new(py);
    let class = |flow: usize| names.classes.get(flow).map_or(NONE, |class| usize::from(*class));
    let path = |flow: usize, path: u8| names.path_of(flow, usize::from(path));
    let within = |flow: usize, row: &MessageRow| {
        let limit = (*names.deadlines.get(flow)?)?;
        match row.delivered() {
            Some(at) => Some(at - row.sent() <= limit),
            None => (row.sent() + limit <= names.end).then_some(false),
        }
    };
    let class_names: Vec<&str> = Class::ALL.iter().map(|class| class.name()).collect();
    let flows = rows.iter().map(|(flow, ..)| *flow);
    columns.codes(column("flow", "", "flow of the scenario"), flows, &names.flows)?;
    let id = column("id", "", "number of the message within its flow, from 0");
    columns.numbers(id, rows.iter().map(|(_, id, _)| *id))?;
    let classes = rows.iter().map(|(flow, ..)| class(*flow));
    columns.codes(column("class", "", "traffic class"), classes, &class_names)?;
    columns.numbers(column("bytes", "B", "payload"), rows.iter().map(|(.., row)| row.bytes))?;
    let sent = column("sent_ns", "ns", "time at which the application wrote it");
    columns.numbers(sent, rows.iter().map(|(.., row)| row.sent().as_nanos()))?;
    let delivered = column("delivered_ns", "ns", "time of delivery; null if lost or in flight");
    let delivered_at = |row: &MessageRow| row.delivered().map(Instant::as_nanos);
    columns.optional(delivered, rows.iter().map(|(.., row)| delivered_at(row)))?;
    let copies = column("copies_sent", "", "copies of its last part sent, with retransmissions");
    columns.numbers(copies, rows.iter().map(|(.., row)| row.copies_sent))?;
    let copies = column("copies_arrived", "", "copies of its last part that arrived");
    columns.numbers(copies, rows.iter().map(|(.., row)| row.copies_arrived))?;
    let by = column("path", "", "path that delivered it first; null if none did");
    columns.optional_codes(
        by,
        rows.iter().map(|(flow, _, row)| path(*flow, row.path)),
        &names.paths,
    )?;
    let held = column("held_us", "µs", "head-of-line blocking: complete reception to delivery");
    columns.numbers(held, rows.iter().map(|(.., row)| row.held_us))?;
    let in_time = column(
        "within_deadline",
        "",
        "delivered within the flow's shortest deadline; null without one, or if it falls after the run",
    );
    columns.optional(in_time, rows.iter().map(|(flow, _, row)| within(*flow, row)))?;
    Ok(columns)
}

/// Returns rows of `links`.
pub fn links<'py>(py: Python<'py>, names: &Names, rows: &[LinkRow]) -> PyResult<Columns<'py>> {
    let mut columns = Columns::new(py);
    let times = rows.iter().map(|row| row.at.as_nanos());
    columns.numbers(column("time_ns", "ns", "time of the sample"), times)?;
    let links = rows.iter().map(|row| link_of(usize::from(row.link)));
    columns.codes(column("path", "", "path, or link of a network"), links, &names.links)?;
    let directions = rows.iter().map(|row| direction_of(usize::from(row.link)));
    columns.codes(column("direction", "", "uplink or downlink"), directions, &DIRECTIONS)?;
    let rate = column("rate_bps", "bit/s", "rate at that time; 0 in a halt");
    columns.numbers(rate, rows.iter().map(|row| row.rate_bps))?;
    let delay = column("delay_ns", "ns", "propagation delay at that time, without the queue");
    columns.numbers(delay, rows.iter().map(|row| row.delay.as_nanos()))?;
    let loss = column("loss", "", "loss probability at that time, 0 to 1");
    columns.numbers(loss, rows.iter().map(|row| row.loss))?;
    columns.numbers(column("up", "", "false in an outage"), rows.iter().map(|row| row.up))?;
    let queue = column("queue_bytes", "B", "bytes in the queue");
    columns.numbers(queue, rows.iter().map(|row| row.queue_bytes))?;
    let delivered = column("delivered", "", "packets delivered since the last sample");
    columns.numbers(delivered, rows.iter().map(|row| row.delivered))?;
    let delivered = column("delivered_bytes", "B", "bytes delivered since the last sample");
    columns.numbers(delivered, rows.iter().map(|row| row.delivered_bytes))?;
    for (index, cause) in Cause::ALL.iter().enumerate() {
        let lost = |row: &LinkRow| row.lost.get(index).copied().unwrap_or(0);
        let of_cause = column(
            format!("lost_{}", cause.name()),
            "",
            "packets lost for this cause since the last sample",
        );
        columns.numbers(of_cause, rows.iter().map(lost))?;
    }
    Ok(columns)
}

/// Returns rows of `subflows`.
pub fn subflows<'py>(
    py: Python<'py>,
    names: &Names,
    rows: &[SubflowRow],
) -> PyResult<Columns<'py>> {
    let mut columns = Columns::new(py);
    let times = rows.iter().map(|row| row.at.as_nanos());
    columns.numbers(column("time_ns", "ns", "time of the sample"), times)?;
    let flows = rows.iter().map(|row| usize::from(row.flow));
    columns.codes(column("flow", "", "flow of the scenario"), flows, &names.flows)?;
    let side = column("side", "", "sending end: vehicle, ground, or a side of a proxy");
    let sides = rows.iter().map(|row| names.side(usize::from(row.flow), row.end));
    columns.codes(side, sides, &names.sides)?;
    let paths = rows.iter().map(|row| names.path(usize::from(row.path)));
    columns.codes(column("path", "", "path of the subflow"), paths, &names.paths)?;
    let subflow = column("subflow", "", "number of the subflow within its connection");
    columns.numbers(subflow, rows.iter().map(|row| row.subflow))?;
    let window = column("cwnd_bytes", "B", "congestion window");
    columns.numbers(window, rows.iter().map(|row| row.window))?;
    let threshold =
        column("ssthresh_bytes", "B", "slow-start threshold; null before the first loss");
    let thresholds = rows.iter().map(|row| (row.threshold < u64::MAX).then_some(row.threshold));
    columns.optional(threshold, thresholds)?;
    let srtt = column("srtt_ns", "ns", "smoothed round-trip time; null before the first sample");
    columns.optional(srtt, rows.iter().map(|row| row.srtt.map(Duration::as_nanos)))?;
    let in_flight = column("in_flight_bytes", "B", "bytes in flight");
    columns.numbers(in_flight, rows.iter().map(|row| row.in_flight))?;
    let acked = column("acked_bytes", "B", "bytes acknowledged since the last sample");
    columns.numbers(acked, rows.iter().map(|row| row.acked_bytes))?;
    let again = column("retransmitted", "", "segments retransmitted since the last sample");
    columns.numbers(again, rows.iter().map(|row| row.retransmitted))?;
    let lost = column("lost", "", "segments marked as lost since the last sample");
    columns.numbers(lost, rows.iter().map(|row| row.lost))?;
    let reductions = column(
        "window_reductions",
        "",
        "reductions of the window after a loss since the last sample, with timeouts",
    );
    columns.numbers(reductions, rows.iter().map(|row| row.reductions))?;
    let pacing = column("pacing_bps", "bit/s", "pacing rate; null if the sender does not pace");
    columns.optional(pacing, rows.iter().map(|row| row.pacing_bps))?;
    Ok(columns)
}

/// Returns rows of `decisions`.
pub fn decisions<'py>(
    py: Python<'py>,
    names: &Names,
    rows: &[DecisionRow],
) -> PyResult<Columns<'py>> {
    let mut columns = Columns::new(py);
    let reasons: Vec<&str> = Reason::ALL.iter().map(|reason| reason.name()).collect();
    let times = rows.iter().map(|row| row.at.as_nanos());
    columns.numbers(column("time_ns", "ns", "time of the decision"), times)?;
    let flows = rows.iter().map(|row| usize::from(row.flow));
    columns.codes(column("flow", "", "flow of the scenario"), flows, &names.flows)?;
    let sides = rows.iter().map(|row| usize::from(!row.vehicle));
    columns.codes(column("side", "", "sending end: vehicle or ground"), sides, &names.sides)?;
    let message = column("message", "", "first message that ends in the scheduled unit");
    columns.numbers(message, rows.iter().map(|row| row.message))?;
    let paths =
        column("paths", "", "bit set of the chosen paths, in the order of the flow's; 0 for wait");
    columns.numbers(paths, rows.iter().map(|row| row.paths))?;
    let reason = column("reason", "", "reason of the scheduler");
    columns.codes(reason, rows.iter().map(|row| row.reason as usize), &reasons)?;
    let waits_for =
        |row: &DecisionRow| names.path_of(usize::from(row.flow), row.waits_for?.index());
    let path = column("waits_for", "", "path worth waiting for; null if none in particular");
    columns.optional_codes(path, rows.iter().map(waits_for), &names.paths)?;
    let until = column("until_s", "s", "time of the next decision at the latest; null if none");
    columns.optional(until, rows.iter().map(|row| row.until.map(Instant::as_secs_f64)))?;
    Ok(columns)
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
) -> PyResult<Columns<'py>> {
    let mut columns = Columns::new(py);
    let rows: Vec<(usize, &Frame)> = flows
        .iter()
        .flat_map(|(flow, frames)| frames.as_ref().iter().map(|frame| (*flow, frame)))
        .collect();
    let time = |at: Option<Instant>| at.map(Instant::as_nanos);
    let span = |span: Option<Duration>| span.map(Duration::as_nanos);
    let frames = || rows.iter().map(|(_, frame)| frame);
    let flow = column("flow", "", "video flow");
    columns.codes(flow, rows.iter().map(|(flow, _)| *flow), &names.flows)?;
    let number = column("frame", "", "number of the frame, from 0");
    columns.numbers(number, frames().map(|frame| frame.number))?;
    let key = column("key", "", "key frame, at which a decoder can start");
    columns.numbers(key, frames().map(|frame| frame.key))?;
    let bytes = column("bytes", "B", "bytes of the frame's RTP packets");
    columns.numbers(bytes, frames().map(|frame| frame.bytes))?;
    let packets = column("packets", "", "source packets");
    columns.numbers(packets, frames().map(|frame| frame.packets))?;
    let arrived = column("arrived", "", "source packets that arrived before the frame was decided");
    columns.numbers(arrived, frames().map(|frame| frame.arrived))?;
    let repaired = column("repaired", "", "source packets recovered from repair packets");
    columns.numbers(repaired, frames().map(|frame| frame.repaired))?;
    let missing = column("missing", "", "missing source packets, for example \"3 7-9\"");
    columns.texts(missing, frames().map(|frame| ranges(&frame.missing)))?;
    let captured = column("captured_ns", "ns", "capture time");
    columns.numbers(captured, frames().map(|frame| frame.captured.as_nanos()))?;
    let sent =
        column("sent_ns", "ns", "time at which the last packet was written; null if none was");
    columns.optional(sent, frames().map(|frame| time(frame.sent)))?;
    let first = column("first_ns", "ns", "arrival of the first packet; null if none arrived");
    columns.optional(first, frames().map(|frame| time(frame.first)))?;
    let last = column("last_ns", "ns", "arrival of the last packet; null if none arrived");
    columns.optional(last, frames().map(|frame| time(frame.last)))?;
    let complete = column("complete", "", "all source packets are known");
    columns.numbers(complete, frames().map(|frame| frame.complete))?;
    let intact = column("intact", "", "the frame and all frames it refers to are complete");
    columns.numbers(intact, frames().map(|frame| frame.intact))?;
    let shown =
        column("shown_ns", "ns", "time at which it was shown, damaged or not; null if never");
    columns.optional(shown, frames().map(|frame| time(frame.shown)))?;
    let latency = column("latency_ns", "ns", "capture to display; null if it was not shown");
    columns.optional(latency, frames().map(|frame| span(frame.latency())))?;
    let gap = column("gap_ns", "ns", "time since the frame shown before it; null for the first");
    columns.optional(gap, frames().map(|frame| span(frame.since_last)))?;
    Ok(columns)
}

/// Returns rows of `packets`.
pub fn packets<'py>(py: Python<'py>, names: &Names, rows: &[PacketRow]) -> PyResult<Columns<'py>> {
    let mut columns = Columns::new(py);
    let kinds: Vec<&str> = PacketKind::ALL.iter().map(|kind| kind.name()).collect();
    let causes: Vec<&str> = Cause::ALL.iter().map(|cause| cause.name()).collect();
    let links = rows.iter().map(|row| link_of(usize::from(row.link)));
    columns.codes(column("path", "", "path, or link of a network"), links, &names.links)?;
    let directions = rows.iter().map(|row| direction_of(usize::from(row.link)));
    columns.codes(column("direction", "", "uplink or downlink"), directions, &DIRECTIONS)?;
    let entered = column("in_ns", "ns", "admission to the link");
    columns.numbers(entered, rows.iter().map(|row| row.entered.as_nanos()))?;
    let left = column("out_ns", "ns", "arrival, or time of the loss; null if unknown");
    let known = |row: &PacketRow| (row.left >= Instant::ZERO).then(|| row.left.as_nanos());
    columns.optional(left, rows.iter().map(known))?;
    columns
        .numbers(column("bytes", "B", "size of the IP packet"), rows.iter().map(|row| row.bytes))?;
    let flow = column("flow", "", "flow of the scenario; null if unknown");
    columns.optional_codes(
        flow,
        rows.iter().map(|row| Some(usize::from(row.flow))),
        &names.flows,
    )?;
    let kind = column("kind", "", "kind of the packet");
    columns.codes(kind, rows.iter().map(|row| row.kind as usize), &kinds)?;
    let cause = column("cause", "", "cause of its loss; null if it arrived");
    let lost = rows.iter().map(|row| row.cause.map(|cause| cause as usize));
    columns.optional_codes(cause, lost, &causes)?;
    Ok(columns)
}
