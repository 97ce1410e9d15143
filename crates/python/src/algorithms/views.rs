//! Views for algorithms written in Python: the fields of the Rust types by name, with units.

use std::collections::BTreeSet;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use skybraid_transport::{Class, PathId, PathSet, congestion, scheduler};
use skybraid_units::{Bytes, Duration, Instant, Rate, Seed};

/// Conversion of a field to and from its value in Python: times in s, sizes in bytes, rates in bit/s.
trait Field: Sized {
    type Value;

    fn to_python(self) -> Self::Value;
    fn from_python(value: Self::Value) -> PyResult<Self>;
}

macro_rules! field {
    ($type:ty as $python:ty, $to:expr, $from:expr) => {
        impl Field for $type {
            type Value = $python;

            fn to_python(self) -> $python {
                $to(self)
            }

            fn from_python(value: $python) -> PyResult<Self> {
                Ok($from(value))
            }
        }
    };
    ($($plain:ty)+) => {
        $(field!($plain as $plain, std::convert::identity, std::convert::identity);)+
    };
}

field!(bool u8 u32 u64);
field!(Bytes as u64, Bytes::get, Bytes::new);
field!(Duration as f64, Duration::as_secs_f64, Duration::from_secs_f64);
field!(Instant as f64, Instant::as_secs_f64, Instant::from_secs_f64);
field!(PathId as u8, |path: PathId| path.0, PathId);
field!(PathSet as BTreeSet<u8>, numbers, |paths: BTreeSet<u8>| paths
    .into_iter()
    .map(PathId)
    .collect());
field!(Rate as u64, Rate::as_bps, Rate::from_bps);
field!(Seed as u64, |seed: Seed| seed.0, Seed);
field!(congestion::RateSample as RateSample, RateSample, |sample: RateSample| sample.0);

fn numbers(paths: PathSet) -> BTreeSet<u8> {
    paths.iter().map(|path| path.0).collect()
}

impl Field for Class {
    type Value = String;

    fn to_python(self) -> String {
        self.name().to_string()
    }

    fn from_python(name: String) -> PyResult<Self> {
        Self::ALL.into_iter().find(|class| class.name() == name).ok_or_else(|| {
            let expected = "expected control, video or data";
            PyValueError::new_err(format!("message_class: found {name}, {expected}"))
        })
    }
}

impl<T: Field> Field for Option<T> {
    type Value = Option<T::Value>;

    fn to_python(self) -> Self::Value {
        self.map(T::to_python)
    }

    fn from_python(value: Self::Value) -> PyResult<Self> {
        value.map(T::from_python).transpose()
    }
}

/// Declares a class with the fields of a Rust type: name in Python, field, type, and default if it has one; then
/// further methods.
macro_rules! view {
    (
        $(#[$about:meta])*
        $view:ident($($inner:ident)::+) {
            $($name:ident: $field:ident as $type:ty $(= $default:expr)?,)+
        }
        $($method:item)*
    ) => {
        $(#[$about])*
        #[pyclass(module = "skybraid._core", frozen, from_py_object)]
        #[derive(Clone)]
        pub struct $view(pub $($inner)::+);

        #[pymethods]
        impl $view {
            #[new]
            #[pyo3(signature = (*, $($name $(= $default)?),+))]
            #[allow(clippy::too_many_arguments, reason = "they are keywords in Python")]
            fn new($($name: <$type as Field>::Value),+) -> PyResult<Self> {
                Ok(Self($($inner)::+ { $($field: Field::from_python($name)?),+ }))
            }

            $(
                #[getter]
                fn $name(&self) -> <$type as Field>::Value {
                    self.0.$field.to_python()
                }
            )+

            $($method)*
        }
    };
}

view! {
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
    Unit(scheduler::Unit) {
        bytes: bytes as Bytes,
        message_class: class as Class = "data".to_string(),
        deadline_s: deadline as Option<Instant> = None,
        carried_by: carried_by as PathSet = BTreeSet::new(),
        backlog_bytes: backlog as Bytes = 0,
        window_bytes: window as Bytes = u64::MAX,
        window_room_bytes: window_room as Bytes = u64::MAX,
        blocked: blocked as u64 = 0,
    }
}

view! {
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
    PathView(skybraid_transport::PathView) {
        id: id as PathId,
        usable: usable as bool = true,
        has_room: has_room as bool = true,
        srtt_s: srtt as Option<Duration> = None,
        rtt_deviation_s: rtt_deviation as Duration = 0.0,
        min_rtt_s: min_rtt as Option<Duration> = None,
        window_bytes: window as Bytes = u64::MAX,
        threshold_bytes: threshold as Bytes = u64::MAX,
        pacing_bps: pacing as Option<Rate> = None,
        in_flight_bytes: in_flight as Bytes = 0,
        queued_bytes: queued as Bytes = 0,
        segment_bytes: segment as Bytes = 1400,
        cost: cost as u32 = 1,
        backup: backup as bool = false,
        priority: priority as u8 = 3,
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

view! {
    /// Constants of a path for congestion controls; see [`congestion::PathBasics`].
    PathBasics(congestion::PathBasics) {
        segment_bytes: segment as Bytes,
        initial_window_bytes: initial_window as Bytes,
        initial_threshold_bytes: initial_threshold as Bytes = u64::MAX,
        sack: sack as bool = true,
        seed: seed as Seed = 0,
    }
}

view! {
    /// Acknowledgement; times in s, sizes in bytes.
    ///
    /// Attributes:
    ///     bytes: acknowledged for the first time; `delivered_bytes` since the start.
    ///     rtt_s: round-trip time of the first segment newly acknowledged; None if it was not measured.
    ///     in_flight_bytes: before the acknowledgement; after it `in_flight_after_bytes`.
    ///     window_limited: the window was fully used, so that growth makes sense.
    ///     recovering: between a loss and the end of its recovery.
    ///     rate: delivery rate sample of a control that reads them; None without one.
    Acked(congestion::Acked) {
        now_s: now as Instant,
        bytes: bytes as Bytes,
        delivered_bytes: delivered as Bytes,
        srtt_s: srtt as Duration,
        rtt_s: rtt as Option<Duration> = None,
        latest_rtt_s: latest_rtt as Option<Duration> = None,
        in_flight_bytes: in_flight as Bytes = 0,
        in_flight_after_bytes: in_flight_after as Bytes = 0,
        lost_bytes: lost as Bytes = 0,
        window_limited: window_limited as bool = true,
        recovering: recovering as bool = false,
        rate: rate as Option<congestion::RateSample> = None,
    }
}

view! {
    /// Delivery rate sample; see [`congestion::RateSample`].
    RateSample(congestion::RateSample) {
        rate_bps: rate as Rate,
        interval_s: interval as Duration,
        prior_delivered_bytes: prior_delivered as Bytes = 0,
        app_limited: app_limited as bool = false,
        sent_in_flight_bytes: sent_in_flight as Bytes = 0,
        lost_bytes: lost as Bytes = 0,
    }
}

view! {
    /// Loss event; see [`congestion::Lost`].
    Lost(congestion::Lost) {
        now_s: now as Instant,
        in_flight_bytes: in_flight as Bytes,
    }
}

view! {
    /// State of a sibling control; see [`congestion::Sibling`].
    Sibling(congestion::Sibling) {
        counts: active as bool = true,
        window_bytes: window as Bytes,
        acked_since_loss_bytes: acked_since_loss as Bytes = 0,
        acked_between_losses_bytes: acked_between_losses as Bytes = 0,
        srtt_s: srtt as Duration,
        segment_bytes: segment as Bytes = 1400,
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
