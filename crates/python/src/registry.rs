//! Registry of everything that can be chosen by name.

use pyo3::prelude::*;
use pyo3::types::PyList;
use skybraid_link::presets;
use skybraid_scenario::requirement_profiles;
use skybraid_transport::Protocol;
use skybraid_transport::congestion::CongestionConfig;
use skybraid_transport::registry::About;
use skybraid_transport::reordering::ReorderingConfig;
use skybraid_transport::scheduler::SchedulerConfig;

use crate::error::bad_input;

/// Returns what a scenario may name: algorithms, link presets, traffic, requirement profiles.
///
/// Args:
///     kind: schedulers, congestion, protocols, reordering, links, traffic, rate_control or requirements.
///
/// Returns:
///     A dict for each entry: `name`, `summary`, `source`, `linux` (what Linux does differently) and `parameters`, of
///     which each has `name`, `unit`, `default` and `summary`.
///
/// Raises:
///     ScenarioError: there is no such kind.
#[pyfunction]
pub fn registry<'py>(py: Python<'py>, kind: &str) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    let add = |name: &str, summary: &str, source: &str, linux: &str, parameters: &[[&str; 4]]| {
        let listed = PyList::empty(py);
        for [name, unit, default, summary] in parameters {
            listed.append(
                dict!(py, "name": name, "unit": unit, "default": default, "summary": summary),
            )?;
        }
        let entry = dict!(
            py, "name": name, "summary": summary, "source": source, "linux": linux, "parameters": listed,
        );
        list.append(&entry)?;
        Ok::<_, PyErr>(entry)
    };
    let mut add_about = |about: &About| {
        let parameters: Vec<_> = about
            .parameters
            .iter()
            .map(|parameter| [parameter.name, parameter.unit, parameter.default, parameter.summary])
            .collect();
        add(about.name, about.summary, about.source, about.linux, &parameters).map(drop)
    };
    match kind {
        "schedulers" => SchedulerConfig::ALL.iter().try_for_each(&mut add_about)?,
        "congestion" => CongestionConfig::ALL.iter().try_for_each(&mut add_about)?,
        "protocols" => {
            for protocol in Protocol::ALL {
                let (summary, source) = protocol.about();
                add(protocol.name(), summary, source, "", &[])?;
            }
        }
        "reordering" => ReorderingConfig::ALL.iter().try_for_each(&mut add_about)?,
        "links" => {
            for preset in presets::ALL {
                let source = "each number's source is next to it in the preset's text";
                add(preset.name, preset.title, source, "", &[])?.set_item("text", preset.text)?;
            }
        }
        "traffic" | "rate_control" => {
            let kinds = if kind == "traffic" {
                skybraid_traffic::about::ALL
            } else {
                skybraid_traffic::video::rate::ALL
            };
            for kind in kinds {
                let parameters: Vec<_> = kind
                    .parameters
                    .iter()
                    .map(|(name, unit, default)| [*name, *unit, *default, ""])
                    .collect();
                add(kind.name, kind.summary, kind.source, "", &parameters)?;
            }
        }
        "requirements" => {
            for profile in requirement_profiles() {
                let parameters: Vec<_> = profile
                    .numbers
                    .iter()
                    .map(|number| {
                        [number.key.as_str(), "", number.value.as_str(), number.sure.as_str()]
                    })
                    .collect();
                let source = profile.numbers.first().map_or("", |number| number.source.as_str());
                add(profile.name, &profile.summary, source, "", &parameters)?;
            }
        }
        _ => {
            return Err(bad_input(format!(
                "kind: found `{kind}`, expected one of schedulers, congestion, protocols, \
                 reordering, links, traffic, rate_control, requirements"
            )));
        }
    }
    Ok(list)
}
