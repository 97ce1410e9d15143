//! Trace readers.

use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;
use skybraid_link::trace::{self, Quantity, Series};

use crate::error::bad_input;

type Arrays<'py> = (Bound<'py, PyArray1<f64>>, Bound<'py, PyArray1<f64>>);

/// Reads a trace from the text of a file; `skybraid.traces.read` takes a file and more formats.
///
/// Args:
///     text: the file's contents.
///     format: `mahimahi` (one row per opportunity, values are bytes), `csv`, `ping`, or `hypatia` (round-trip times).
///     column: of `csv` the column's name; of `ping` `rtt` (the default) or `loss`.
///     unit: of `csv` the values' unit, such as `Mbit/s`, `ms` or `%`.
///
/// Returns:
///     Times in s and values in the base unit (bit/s, ns, ratio, bytes), both float64 of one length.
///
/// Raises:
///     ScenarioError: the text is not of this format; it names the line.
#[pyfunction]
#[pyo3(signature = (text, format, column = None, unit = None))]
pub fn read_trace<'py>(
    py: Python<'py>,
    text: &str,
    format: &str,
    column: Option<&str>,
    unit: Option<&str>,
) -> PyResult<Arrays<'py>> {
    let series = match format {
        "mahimahi" => {
            let opportunities = trace::mahimahi::read(text).map_err(bad_input)?;
            let times: Vec<f64> =
                opportunities.times_ms().iter().map(|ms| *ms as f64 * 1e-3).collect();
            let values = vec![trace::mahimahi::OPPORTUNITY as f64; times.len()];
            return Ok((times.into_pyarray(py), values.into_pyarray(py)));
        }
        "csv" => {
            let quantity = quantity_of(unit)?;
            trace::csv::read(text, &trace::csv::column(column, unit), quantity)
        }
        "ping" => {
            let log = trace::ping::read(text, None, true).map_err(bad_input)?;
            match column.unwrap_or("rtt") {
                "rtt" => Ok(log.rtt),
                "loss" => Ok(log.loss),
                other => {
                    return Err(bad_input(format!(
                        "column: found `{other}`, expected `rtt` or `loss`"
                    )));
                }
            }
        }
        "hypatia" => trace::hypatia::read(text, true),
        other => {
            return Err(bad_input(format!(
                "format: found `{other}`, expected mahimahi, csv, ping or hypatia"
            )));
        }
    };
    let series: Series = series.map_err(bad_input)?;
    let times: Vec<f64> = series.times().iter().map(|at| at.as_secs_f64()).collect();
    Ok((times.into_pyarray(py), series.values().to_vec().into_pyarray(py)))
}

/// Returns the quantity of a unit.
fn quantity_of(unit: Option<&str>) -> PyResult<Quantity> {
    let Some(unit) = unit else {
        return Err(bad_input("unit: found none, expected one such as Mbit/s, ms or %"));
    };
    [Quantity::Rate, Quantity::Delay, Quantity::Loss]
        .into_iter()
        .find(|quantity| quantity.scale(Some(unit)).is_ok())
        .ok_or_else(|| {
            bad_input(format!("unit: found `{unit}`, expected one such as Mbit/s, ms or %"))
        })
}

/// Returns the size of a unit, in any usual spelling, in the base unit of a quantity: bit/s, ns, or a ratio.
///
/// Args:
///     quantity: `rate`, `delay` or `loss`.
///     unit: such as `Mbits/sec`, `msec` or `pct`.
///
/// Returns:
///     None if it is no unit of this quantity.
///
/// Raises:
///     ScenarioError: another quantity.
#[pyfunction]
pub fn unit_size(quantity: &str, unit: &str) -> PyResult<Option<f64>> {
    let quantity = match quantity {
        "rate" => Quantity::Rate,
        "delay" => Quantity::Delay,
        "loss" => Quantity::Loss,
        other => {
            return Err(bad_input(format!(
                "quantity: found `{other}`, expected rate, delay or loss"
            )));
        }
    };
    Ok(quantity.scale(Some(unit)).ok())
}
