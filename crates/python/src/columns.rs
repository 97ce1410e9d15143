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

/// Builds the columns of a table: for each the method of its kind of values, its name, unit (empty for none) and
/// meaning, its value in a row, and the names of codes.
macro_rules! columns {
    ($py:ident, $row:pat_param in $rows:expr;
     $($kind:ident $name:literal, $unit:literal, $doc:literal: $value:expr $(, $names:expr)?;)*) => {{
        let mut columns = Columns::new($py);
        $(#[allow(unused_variables, reason = "few columns need all parts of a row")]
        columns.$kind(column($name, $unit, $doc), $rows.iter().map(|$row| $value) $(, $names)?)?;)*
        columns
    }};
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
    let class = |flow: usize| names.classes.get(flow).map_or(NONE, |class| usize::from(*class));
    let within = |flow: usize, row: &MessageRow| {
        let limit = (*names.deadlines.get(flow)?)?;
        match row.delivered() {
            Some(at) => Some(at - row.sent() <= limit),
            None => (row.sent() + limit <= names.end).then_some(false),
        }
    };
    let classes = Class::ALL.map(Class::name);
    let delivered_at = |row: &MessageRow| row.delivered().map(Instant::as_nanos);
    let path = |flow: usize, row: &MessageRow| names.path_of(flow, usize::from(row.path));
    Ok(columns! { py, (flow, id, row) in rows;
        codes "flow", "", "flow of the scenario": *flow, &names.flows;
        numbers "id", "", "number of the message within its flow, from 0": *id;
        codes "class", "", "traffic class": class(*flow), &classes;
        numbers "bytes", "B", "payload": row.bytes;
        numbers "sent_ns", "ns", "time at which the application wrote it": row.sent().as_nanos();
        optional "delivered_ns", "ns", "time of delivery; null if lost or in flight": delivered_at(row);
        numbers "copies_sent", "", "copies of its last part sent, with retransmissions": row.copies_sent;
        numbers "copies_arrived", "", "copies of its last part that arrived": row.copies_arrived;
        optional_codes "path", "", "path that delivered it first; null if none did": path(*flow, row), &names.paths;
        numbers "held_us", "µs", "head-of-line blocking: complete reception to delivery": row.held_us;
        optional "within_deadline", "",
            "delivered within the flow's shortest deadline; null without one, or if it falls after the run":
            within(*flow, row);
    })
}

/// Returns rows of `links`.
pub fn links<'py>(py: Python<'py>, names: &Names, rows: &[LinkRow]) -> PyResult<Columns<'py>> {
    let mut columns = columns! { py, row in rows;
        numbers "time_ns", "ns", "time of the sample": row.at.as_nanos();
        codes "path", "", "path, or link of a network": link_of(usize::from(row.link)), &names.links;
        codes "direction", "", "uplink or downlink": direction_of(usize::from(row.link)), &DIRECTIONS;
        numbers "rate_bps", "bit/s", "rate at that time; 0 in a halt": row.rate_bps;
        numbers "delay_ns", "ns", "propagation delay at that time, without the queue": row.delay.as_nanos();
        numbers "loss", "", "loss probability at that time, 0 to 1": row.loss;
        numbers "up", "", "false in an outage": row.up;
        numbers "queue_bytes", "B", "bytes in the queue": row.queue_bytes;
        numbers "delivered", "", "packets delivered since the last sample": row.delivered;
        numbers "delivered_bytes", "B", "bytes delivered since the last sample": row.delivered_bytes;
    };
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
    let threshold = |row: &SubflowRow| (row.threshold < u64::MAX).then_some(row.threshold);
    Ok(columns! { py, row in rows;
        numbers "time_ns", "ns", "time of the sample": row.at.as_nanos();
        codes "flow", "", "flow of the scenario": usize::from(row.flow), &names.flows;
        codes "side", "", "sending end: vehicle, ground, or a side of a proxy":
            names.side(usize::from(row.flow), row.end), &names.sides;
        codes "path", "", "path of the subflow": names.path(usize::from(row.path)), &names.paths;
        numbers "subflow", "", "number of the subflow within its connection": row.subflow;
        numbers "cwnd_bytes", "B", "congestion window": row.window;
        optional "ssthresh_bytes", "B", "slow-start threshold; null before the first loss": threshold(row);
        optional "srtt_ns", "ns", "smoothed round-trip time; null before the first sample":
            row.srtt.map(Duration::as_nanos);
        numbers "in_flight_bytes", "B", "bytes in flight": row.in_flight;
        numbers "acked_bytes", "B", "bytes acknowledged since the last sample": row.acked_bytes;
        numbers "retransmitted", "", "segments retransmitted since the last sample": row.retransmitted;
        numbers "lost", "", "segments marked as lost since the last sample": row.lost;
        numbers "window_reductions", "", "reductions of the window after a loss since the last sample, with timeouts":
            row.reductions;
        optional "pacing_bps", "bit/s", "pacing rate; null if the sender does not pace": row.pacing_bps;
    })
}

/// Returns rows of `decisions`.
pub fn decisions<'py>(
    py: Python<'py>,
    names: &Names,
    rows: &[DecisionRow],
) -> PyResult<Columns<'py>> {
    let reasons = Reason::ALL.map(Reason::name);
    let waits_for =
        |row: &DecisionRow| names.path_of(usize::from(row.flow), row.waits_for?.index());
    Ok(columns! { py, row in rows;
        numbers "time_ns", "ns", "time of the decision": row.at.as_nanos();
        codes "flow", "", "flow of the scenario": usize::from(row.flow), &names.flows;
        codes "side", "", "sending end: vehicle or ground": usize::from(!row.vehicle), &names.sides;
        numbers "message", "", "first message that ends in the scheduled unit": row.message;
        numbers "paths", "", "bit set of the chosen paths, in the order of the flow's; 0 for wait": row.paths;
        codes "reason", "", "reason of the scheduler": row.reason as usize, &reasons;
        optional_codes "waits_for", "", "path worth waiting for; null if none in particular":
            waits_for(row), &names.paths;
        optional "until_s", "s", "time of the next decision at the latest; null if none":
            row.until.map(Instant::as_secs_f64);
    })
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
    let rows: Vec<(usize, &Frame)> = flows
        .iter()
        .flat_map(|(flow, frames)| frames.as_ref().iter().map(|frame| (*flow, frame)))
        .collect();
    let time = |at: Option<Instant>| at.map(Instant::as_nanos);
    let span = |span: Option<Duration>| span.map(Duration::as_nanos);
    Ok(columns! { py, (flow, frame) in rows;
        codes "flow", "", "video flow": *flow, &names.flows;
        numbers "frame", "", "number of the frame, from 0": frame.number;
        numbers "key", "", "key frame, at which a decoder can start": frame.key;
        numbers "bytes", "B", "bytes of the frame's RTP packets": frame.bytes;
        numbers "packets", "", "source packets": frame.packets;
        numbers "arrived", "", "source packets that arrived before the frame was decided": frame.arrived;
        numbers "repaired", "", "source packets recovered from repair packets": frame.repaired;
        texts "missing", "", "missing source packets, for example \"3 7-9\"": ranges(&frame.missing);
        numbers "captured_ns", "ns", "capture time": frame.captured.as_nanos();
        optional "sent_ns", "ns", "time at which the last packet was written; null if none was": time(frame.sent);
        optional "first_ns", "ns", "arrival of the first packet; null if none arrived": time(frame.first);
        optional "last_ns", "ns", "arrival of the last packet; null if none arrived": time(frame.last);
        numbers "complete", "", "all source packets are known": frame.complete;
        numbers "intact", "", "the frame and all frames it refers to are complete": frame.intact;
        optional "shown_ns", "ns", "time at which it was shown, damaged or not; null if never": time(frame.shown);
        optional "latency_ns", "ns", "capture to display; null if it was not shown": span(frame.latency());
        optional "gap_ns", "ns", "time since the frame shown before it; null for the first": span(frame.since_last);
    })
}

/// Returns rows of `packets`.
pub fn packets<'py>(py: Python<'py>, names: &Names, rows: &[PacketRow]) -> PyResult<Columns<'py>> {
    let kinds = PacketKind::ALL.map(PacketKind::name);
    let causes = Cause::ALL.map(Cause::name);
    let left = |row: &PacketRow| (row.left >= Instant::ZERO).then(|| row.left.as_nanos());
    Ok(columns! { py, row in rows;
        codes "path", "", "path, or link of a network": link_of(usize::from(row.link)), &names.links;
        codes "direction", "", "uplink or downlink": direction_of(usize::from(row.link)), &DIRECTIONS;
        numbers "in_ns", "ns", "admission to the link": row.entered.as_nanos();
        optional "out_ns", "ns", "arrival, or time of the loss; null if unknown": left(row);
        numbers "bytes", "B", "size of the IP packet": row.bytes;
        optional_codes "flow", "", "flow of the scenario; null if unknown": Some(usize::from(row.flow)), &names.flows;
        codes "kind", "", "kind of the packet": row.kind as usize, &kinds;
        optional_codes "cause", "", "cause of its loss; null if it arrived":
            row.cause.map(|cause| cause as usize), &causes;
    })
}
