//! Views for algorithms written in Python: the fields of the Rust types by name, with units.

use std::collections::BTreeSet;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use skybraid_transport::{Class, PathId, PathSet, congestion, scheduler};
use skybraid_units::{Bytes, Duration, Instant, Rate, Seed};

fn seconds(span: Duration) -> f64 {
    span.as_secs_f64()
}

/// Unit of data to schedule; times in s, sizes in bytes.
///
/// Attributes:
///     bytes: payload.
///     message_class: class of the unit's first message: "control", "video" or "data".
///     deadline_s: deadline of that message; None without one.
///     carried_by: numbers of the paths that have carried the unit before; empty for new data.
///     backlog_bytes: data after this unit that is on no path yet.
///     window_room_bytes: room in the peer's receive window, this unit included; `NO_LIMIT` for datagrams.
///     blocked: how often so far the receive window blocked data that a path had room for.
#[pyclass(module = "skybraid._core", frozen)]
pub struct Unit(pub scheduler::Unit);

#[pymethods]
impl Unit {
    #[new]
    #[pyo3(signature = (
        *, bytes, message_class = "data", deadline_s = None, carried_by = BTreeSet::new(),
        backlog_bytes = 0, window_bytes = u64::MAX, window_room_bytes = u64::MAX, blocked = 0
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn new(
        bytes: u64,
        message_class: &str,
        deadline_s: Option<f64>,
        carried_by: BTreeSet<u8>,
        backlog_bytes: u64,
        window_bytes: u64,
        window_room_bytes: u64,
        blocked: u64,
    ) -> PyResult<Self> {
        let class = Class::ALL.into_iter().find(|class| class.name() == message_class);
        let class = class.ok_or_else(|| {
            PyValueError::new_err(format!(
                "message_class: found {message_class}, expected control, video or data"
            ))
        })?;
        Ok(Self(scheduler::Unit {
            bytes: Bytes::new(bytes),
            class,
            deadline: deadline_s.map(Instant::from_secs_f64),
            carried_by: carried_by.into_iter().map(PathId).collect(),
            backlog: Bytes::new(backlog_bytes),
            window: Bytes::new(window_bytes),
            window_room: Bytes::new(window_room_bytes),
            blocked,
        }))
    }
    #[getter]
    fn bytes(&self) -> u64 {
        self.0.bytes.get()
    }

    #[getter]
    fn message_class(&self) -> &'static str {
        self.0.class.name()
    }

    #[getter]
    fn deadline_s(&self) -> Option<f64> {
        self.0.deadline.map(Instant::as_secs_f64)
    }

    #[getter]
    fn carried_by(&self) -> BTreeSet<u8> {
        numbers(self.0.carried_by)
    }

    #[getter]
    fn backlog_bytes(&self) -> u64 {
        self.0.backlog.get()
    }

    #[getter]
    fn window_bytes(&self) -> u64 {
        self.0.window.get()
    }

    #[getter]
    fn window_room_bytes(&self) -> u64 {
        self.0.window_room.get()
    }

    #[getter]
    fn blocked(&self) -> u64 {
        self.0.blocked
    }
}

fn numbers(paths: PathSet) -> BTreeSet<u8> {
    paths.iter().map(|path| path.0).collect()
}

/// State of a path for schedulers; times in s, sizes in bytes, rates in bit/s.
///
/// Attributes:
///     id: number of the path in the connection, from 0.
///     usable: established and not suspected of having failed; only usable paths may be chosen.
///     has_room: the unit can be sent at once; on a path without room the copy is queued.
///     srtt_s: smoothed round-trip time, as `min_rtt_s`; None before the first sample.
///     window_bytes: congestion window, as `threshold_bytes`; `NO_LIMIT` without one.
///     pacing_bps: pacing rate; None without pacing.
///     in_flight_bytes: sent and not acknowledged; `queued_bytes` wait, `room_bytes` of the window are free.
#[pyclass(module = "skybraid._core", frozen)]
pub struct PathView(pub skybraid_transport::PathView);

#[pymethods]
impl PathView {
    #[new]
    #[pyo3(signature = (
        *, id, usable = true, has_room = true, srtt_s = None, rtt_deviation_s = 0.0, min_rtt_s = None,
        window_bytes = u64::MAX, threshold_bytes = u64::MAX, pacing_bps = None, in_flight_bytes = 0,
        queued_bytes = 0, segment_bytes = 1400, cost = 1, backup = false, priority = 3
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn new(
        id: u8,
        usable: bool,
        has_room: bool,
        srtt_s: Option<f64>,
        rtt_deviation_s: f64,
        min_rtt_s: Option<f64>,
        window_bytes: u64,
        threshold_bytes: u64,
        pacing_bps: Option<u64>,
        in_flight_bytes: u64,
        queued_bytes: u64,
        segment_bytes: u64,
        cost: u32,
        backup: bool,
        priority: u8,
    ) -> Self {
        Self(skybraid_transport::PathView {
            id: PathId(id),
            usable,
            has_room,
            srtt: srtt_s.map(Duration::from_secs_f64),
            rtt_deviation: Duration::from_secs_f64(rtt_deviation_s),
            min_rtt: min_rtt_s.map(Duration::from_secs_f64),
            window: Bytes::new(window_bytes),
            threshold: Bytes::new(threshold_bytes),
            pacing: pacing_bps.map(Rate::from_bps),
            in_flight: Bytes::new(in_flight_bytes),
            queued: Bytes::new(queued_bytes),
            segment: Bytes::new(segment_bytes),
            cost,
            backup,
            priority,
        })
    }

    #[getter]
    fn id(&self) -> u8 {
        self.0.id.0
    }

    #[getter]
    fn usable(&self) -> bool {
        self.0.usable
    }

    #[getter]
    fn has_room(&self) -> bool {
        self.0.has_room
    }

    #[getter]
    fn srtt_s(&self) -> Option<f64> {
        self.0.srtt.map(seconds)
    }

    #[getter]
    fn rtt_deviation_s(&self) -> f64 {
        seconds(self.0.rtt_deviation)
    }

    #[getter]
    fn min_rtt_s(&self) -> Option<f64> {
        self.0.min_rtt.map(seconds)
    }

    #[getter]
    fn window_bytes(&self) -> u64 {
        self.0.window.get()
    }

    #[getter]
    fn threshold_bytes(&self) -> u64 {
        self.0.threshold.get()
    }

    #[getter]
    fn pacing_bps(&self) -> Option<u64> {
        self.0.pacing.map(Rate::as_bps)
    }

    #[getter]
    fn in_flight_bytes(&self) -> u64 {
        self.0.in_flight.get()
    }

    #[getter]
    fn queued_bytes(&self) -> u64 {
        self.0.queued.get()
    }

    #[getter]
    fn segment_bytes(&self) -> u64 {
        self.0.segment.get()
    }

    #[getter]
    fn cost(&self) -> u32 {
        self.0.cost
    }

    #[getter]
    fn backup(&self) -> bool {
        self.0.backup
    }

    #[getter]
    fn priority(&self) -> u8 {
        self.0.priority
    }

    #[getter]
    fn slow_start(&self) -> bool {
        self.0.slow_start()
    }

    #[getter]
    fn room_bytes(&self) -> u64 {
        self.0.room().get()
    }
}

/// Decision of a scheduler to send nothing yet.
///
/// Attributes:
///     path: number of the path worth waiting for; None for whichever has room first.
///     until_s: time in s of the run's clock at which the scheduler is asked again; None for the next event.
#[pyclass(module = "skybraid._core", frozen, get_all)]
pub struct Wait {
    pub path: Option<i64>,
    pub until_s: Option<f64>,
}

#[pymethods]
impl Wait {
    #[new]
    #[pyo3(signature = (path = None, until_s = None))]
    fn new(path: Option<i64>, until_s: Option<f64>) -> Self {
        Self { path, until_s }
    }
}

/// Constants of a path for congestion controls; see [`congestion::PathBasics`].
#[pyclass(module = "skybraid._core", frozen)]
pub struct PathBasics(pub congestion::PathBasics);

#[pymethods]
impl PathBasics {
    #[new]
    #[pyo3(signature = (
        *, segment_bytes, initial_window_bytes, initial_threshold_bytes = u64::MAX, sack = true,
        seed = 0
    ))]
    fn new(
        segment_bytes: u64,
        initial_window_bytes: u64,
        initial_threshold_bytes: u64,
        sack: bool,
        seed: u64,
    ) -> Self {
        Self(congestion::PathBasics {
            segment: Bytes::new(segment_bytes),
            initial_window: Bytes::new(initial_window_bytes),
            initial_threshold: Bytes::new(initial_threshold_bytes),
            sack,
            seed: Seed(seed),
        })
    }

    #[getter]
    fn sack(&self) -> bool {
        self.0.sack
    }

    #[getter]
    fn seed(&self) -> u64 {
        self.0.seed.0
    }

    #[getter]
    fn segment_bytes(&self) -> u64 {
        self.0.segment.get()
    }

    #[getter]
    fn initial_window_bytes(&self) -> u64 {
        self.0.initial_window.get()
    }

    #[getter]
    fn initial_threshold_bytes(&self) -> u64 {
        self.0.initial_threshold.get()
    }
}

/// Acknowledgement; times in s, sizes in bytes.
///
/// Attributes:
///     bytes: acknowledged for the first time; `delivered_bytes` since the start.
///     rtt_s: round-trip time of the first segment newly acknowledged; None if it was not measured.
///     in_flight_bytes: before the acknowledgement; after it `in_flight_after_bytes`.
///     window_limited: the window was fully used, so that growth makes sense.
///     recovering: between a loss and the end of its recovery.
///     rate: delivery rate sample of a control that reads them; None without one.
#[pyclass(module = "skybraid._core", frozen)]
pub struct Acked(pub congestion::Acked);

#[pymethods]
impl Acked {
    #[new]
    #[pyo3(signature = (
        *, now_s, bytes, delivered_bytes, srtt_s, rtt_s = None, latest_rtt_s = None,
        in_flight_bytes = 0, in_flight_after_bytes = 0, lost_bytes = 0, window_limited = true, recovering = false,
        rate = None
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn new(
        now_s: f64,
        bytes: u64,
        delivered_bytes: u64,
        srtt_s: f64,
        rtt_s: Option<f64>,
        latest_rtt_s: Option<f64>,
        in_flight_bytes: u64,
        in_flight_after_bytes: u64,
        lost_bytes: u64,
        window_limited: bool,
        recovering: bool,
        rate: Option<PyRef<'_, RateSample>>,
    ) -> Self {
        Self(congestion::Acked {
            now: Instant::from_secs_f64(now_s),
            bytes: Bytes::new(bytes),
            delivered: Bytes::new(delivered_bytes),
            srtt: Duration::from_secs_f64(srtt_s),
            rtt: rtt_s.map(Duration::from_secs_f64),
            latest_rtt: latest_rtt_s.map(Duration::from_secs_f64),
            in_flight: Bytes::new(in_flight_bytes),
            in_flight_after: Bytes::new(in_flight_after_bytes),
            lost: Bytes::new(lost_bytes),
            window_limited,
            recovering,
            rate: rate.map(|sample| sample.0),
        })
    }

    #[getter]
    fn now_s(&self) -> f64 {
        self.0.now.as_secs_f64()
    }

    #[getter]
    fn bytes(&self) -> u64 {
        self.0.bytes.get()
    }

    #[getter]
    fn delivered_bytes(&self) -> u64 {
        self.0.delivered.get()
    }

    #[getter]
    fn srtt_s(&self) -> f64 {
        seconds(self.0.srtt)
    }

    #[getter]
    fn rtt_s(&self) -> Option<f64> {
        self.0.rtt.map(seconds)
    }

    #[getter]
    fn latest_rtt_s(&self) -> Option<f64> {
        self.0.latest_rtt.map(seconds)
    }

    #[getter]
    fn in_flight_bytes(&self) -> u64 {
        self.0.in_flight.get()
    }

    #[getter]
    fn in_flight_after_bytes(&self) -> u64 {
        self.0.in_flight_after.get()
    }

    #[getter]
    fn lost_bytes(&self) -> u64 {
        self.0.lost.get()
    }

    #[getter]
    fn window_limited(&self) -> bool {
        self.0.window_limited
    }

    #[getter]
    fn recovering(&self) -> bool {
        self.0.recovering
    }

    #[getter]
    fn rate(&self) -> Option<RateSample> {
        self.0.rate.map(RateSample)
    }
}

/// Delivery rate sample; see [`congestion::RateSample`].
#[pyclass(module = "skybraid._core", frozen)]
pub struct RateSample(pub congestion::RateSample);

#[pymethods]
impl RateSample {
    #[new]
    #[pyo3(signature = (
        *, rate_bps, interval_s, prior_delivered_bytes = 0, app_limited = false,
        sent_in_flight_bytes = 0, lost_bytes = 0
    ))]
    fn new(
        rate_bps: u64,
        interval_s: f64,
        prior_delivered_bytes: u64,
        app_limited: bool,
        sent_in_flight_bytes: u64,
        lost_bytes: u64,
    ) -> Self {
        Self(congestion::RateSample {
            rate: Rate::from_bps(rate_bps),
            interval: Duration::from_secs_f64(interval_s),
            prior_delivered: Bytes::new(prior_delivered_bytes),
            app_limited,
            sent_in_flight: Bytes::new(sent_in_flight_bytes),
            lost: Bytes::new(lost_bytes),
        })
    }

    #[getter]
    fn rate_bps(&self) -> u64 {
        self.0.rate.as_bps()
    }

    #[getter]
    fn interval_s(&self) -> f64 {
        seconds(self.0.interval)
    }

    #[getter]
    fn prior_delivered_bytes(&self) -> u64 {
        self.0.prior_delivered.get()
    }

    #[getter]
    fn app_limited(&self) -> bool {
        self.0.app_limited
    }

    #[getter]
    fn sent_in_flight_bytes(&self) -> u64 {
        self.0.sent_in_flight.get()
    }

    #[getter]
    fn lost_bytes(&self) -> u64 {
        self.0.lost.get()
    }
}

/// Loss event; see [`congestion::Lost`].
#[pyclass(module = "skybraid._core", frozen)]
pub struct Lost(pub congestion::Lost);

#[pymethods]
impl Lost {
    #[new]
    #[pyo3(signature = (*, now_s, in_flight_bytes))]
    fn new(now_s: f64, in_flight_bytes: u64) -> Self {
        let in_flight = Bytes::new(in_flight_bytes);
        Self(congestion::Lost { now: Instant::from_secs_f64(now_s), in_flight })
    }

    #[getter]
    fn now_s(&self) -> f64 {
        self.0.now.as_secs_f64()
    }

    #[getter]
    fn in_flight_bytes(&self) -> u64 {
        self.0.in_flight.get()
    }
}

/// State of a sibling control; see [`congestion::Sibling`].
#[pyclass(module = "skybraid._core", frozen, from_py_object)]
#[derive(Clone)]
pub struct Sibling(pub congestion::Sibling);

#[pymethods]
impl Sibling {
    #[new]
    #[pyo3(signature = (
        *, counts = true, window_bytes, acked_since_loss_bytes = 0, acked_between_losses_bytes = 0,
        srtt_s, segment_bytes = 1400
    ))]
    fn new(
        counts: bool,
        window_bytes: u64,
        acked_since_loss_bytes: u64,
        acked_between_losses_bytes: u64,
        srtt_s: f64,
        segment_bytes: u64,
    ) -> Self {
        Self(congestion::Sibling {
            active: counts,
            window: Bytes::new(window_bytes),
            acked_since_loss: Bytes::new(acked_since_loss_bytes),
            acked_between_losses: Bytes::new(acked_between_losses_bytes),
            srtt: Duration::from_secs_f64(srtt_s),
            segment: Bytes::new(segment_bytes),
        })
    }

    #[getter]
    fn counts(&self) -> bool {
        self.0.active
    }

    #[getter]
    fn window_bytes(&self) -> u64 {
        self.0.window.get()
    }

    #[getter]
    fn acked_since_loss_bytes(&self) -> u64 {
        self.0.acked_since_loss.get()
    }

    #[getter]
    fn acked_between_losses_bytes(&self) -> u64 {
        self.0.acked_between_losses.get()
    }

    #[getter]
    fn srtt_s(&self) -> f64 {
        seconds(self.0.srtt)
    }

    #[getter]
    fn segment_bytes(&self) -> u64 {
        self.0.segment.get()
    }
}

/// All controls of a connection; see [`congestion::Siblings`].
#[pyclass(module = "skybraid._core", frozen)]
pub struct Siblings {
    all: Vec<congestion::Sibling>,
    own: usize,
}

impl From<congestion::Siblings<'_>> for Siblings {
    fn from(siblings: congestion::Siblings<'_>) -> Self {
        Self { all: siblings.all.to_vec(), own: siblings.own }
    }
}

#[pymethods]
impl Siblings {
    #[new]
    #[pyo3(signature = (all = Vec::new(), own = 0))]
    fn new(all: Vec<Sibling>, own: usize) -> Self {
        Self { all: all.into_iter().map(|sibling| sibling.0).collect(), own }
    }

    #[getter]
    fn all(&self) -> Vec<Sibling> {
        self.all.iter().copied().map(Sibling).collect()
    }

    #[getter]
    fn own(&self) -> usize {
        self.own
    }
}
