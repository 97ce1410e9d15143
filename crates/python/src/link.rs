//! A link without a network, with many packets per call.

use numpy::ndarray::ArrayView1;
use numpy::{AllowTypeChange, IntoPyArray, PyArray1, PyArrayLike1};
use pyo3::prelude::*;
use skybraid_link::{Cause, Direction, Fate};
use skybraid_units::{Bytes, Instant, Seed};

use crate::error::bad_input;

/// Arrival times in seconds, NaN if lost, and causes of loss.
type Fates<'py> = (Bound<'py, PyArray1<f64>>, Bound<'py, PyArray1<u8>>);

/// One direction of a path, without a network around it.
///
/// Args:
///     toml: contents of a scenario's `[path.NAME]`, such as `preset = "starlink"`.
///     direction: "uplink" or "downlink".
///     seed: root of the link's random streams; 0 to 2^64 - 1.
///     base: folder that the paths of traces are relative to.
///
/// Raises:
///     ScenarioError: a key or a value is wrong; it says where.
#[pyclass(module = "skybraid._core")]
pub struct Link {
    link: skybraid_link::Link,
    direction: Direction,
    seed: u64,
    /// Packets of earlier calls that the receiver holds.
    held: usize,
}

#[pymethods]
impl Link {
    #[new]
    #[pyo3(signature = (toml, direction = "uplink", seed = 1, base = "."))]
    fn new(toml: &str, direction: &str, seed: u64, base: &str) -> PyResult<Self> {
        let config = skybraid_scenario::load_path(toml, base.as_ref()).map_err(bad_input)?;
        let known = Direction::ALL.into_iter().find(|known| known.name() == direction);
        let Some(direction) = known else {
            return Err(bad_input(format!(
                "direction: found `{direction}`, expected `uplink` or `downlink`"
            )));
        };
        let config = config.link(direction).map_err(bad_input)?;
        let link = skybraid_link::Link::new(&config, "path", direction.name(), Seed(seed));
        Ok(Self { link, direction, seed, held: 0 })
    }

    fn __repr__(&self) -> String {
        format!("Link({}, seed {})", self.direction.name(), self.seed)
    }

    /// Pushes packets into the link, in their order; later calls go on where this one ends.
    ///
    /// Args:
    ///     times_s: times in s at which packets enter, not decreasing; one-dimensional, of any length n.
    ///     sizes_bytes: their sizes on the wire in bytes, whole numbers below 2^32; of the same length.
    ///
    /// Returns:
    ///     Arrival times in s (float64, n; NaN where a packet is lost or still held by the receiver), and each packet's
    ///     fate (uint8, n) as a position in `skybraid.causes()`, 0 for delivered.
    ///
    /// Raises:
    ///     ScenarioError: the lengths differ, times decrease, or a size is none.
    fn admit<'py>(
        &mut self,
        py: Python<'py>,
        times_s: PyArrayLike1<'py, f64, AllowTypeChange>,
        sizes_bytes: PyArrayLike1<'py, f64, AllowTypeChange>,
    ) -> PyResult<Fates<'py>> {
        let (times, sizes) = (times_s.as_array(), sizes_bytes.as_array());
        check_packets(times, sizes)?;
        let (arrivals, causes) = py.detach(|| self.admit_all(times, sizes));
        Ok((arrivals.into_pyarray(py), causes.into_pyarray(py)))
    }
}

impl Link {
    /// Admits packets; returns their arrival times in s and their fates.
    fn admit_all(
        &mut self,
        times: ArrayView1<'_, f64>,
        sizes: ArrayView1<'_, f64>,
    ) -> (Vec<f64>, Vec<u8>) {
        let mut arrivals = vec![f64::NAN; times.len()];
        let mut causes = vec![0; times.len()];
        let mut held: Vec<usize> = Vec::new();
        for (index, (time, size)) in times.iter().zip(sizes).enumerate() {
            let fate = self.link.admit(Instant::from_secs_f64(*time), Bytes::new(*size as u64));
            while let Some(release) = self.link.release() {
                // Those of earlier calls stay without a time.
                let old = release.packets.min(self.held);
                self.held -= old;
                for index in held.drain(..release.packets - old) {
                    arrivals[index] = release.at.as_secs_f64();
                }
            }
            match fate {
                Fate::Delivered { at } => arrivals[index] = at.as_secs_f64(),
                Fate::Held => held.push(index),
                Fate::Lost { cause, .. } => causes[index] = 1 + cause as u8,
            }
        }
        self.held += held.len();
        (arrivals, causes)
    }
}

/// Checks that times and sizes can be packets of a link.
fn check_packets(times: ArrayView1<'_, f64>, sizes: ArrayView1<'_, f64>) -> PyResult<()> {
    if times.len() != sizes.len() {
        return Err(bad_input(format!(
            "sizes_bytes: found {} values, expected {} as in times_s",
            sizes.len(),
            times.len()
        )));
    }
    let mut last = 0.0;
    for (index, time) in times.iter().enumerate() {
        if !(*time >= last && *time < 9.2e9) {
            return Err(bad_input(format!(
                "times_s[{index}]: found {time}, expected seconds from {last} on, not decreasing"
            )));
        }
        last = *time;
    }
    let wrong = |size: &f64| size.fract() != 0.0 || !(0.0..=f64::from(u32::MAX)).contains(size);
    match sizes.iter().position(wrong) {
        Some(index) => Err(bad_input(format!(
            "sizes_bytes[{index}]: found {}, expected a whole number below 2^32",
            sizes[index]
        ))),
        None => Ok(()),
    }
}

/// Returns the names of the fates that `Link.admit` gives as numbers: "delivered", then the causes of loss.
#[pyfunction]
pub fn causes() -> Vec<&'static str> {
    std::iter::once("delivered").chain(Cause::ALL.iter().map(|cause| cause.name())).collect()
}
