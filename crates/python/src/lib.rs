//! Python bindings: scenarios, runs, tables as columns, and the mapping of errors.

/// Builds a dict of keys and values; an error is returned.
macro_rules! dict {
    ($py:expr, $($key:literal: $value:expr),+ $(,)?) => {{
        let dict = pyo3::types::PyDict::new($py);
        $(pyo3::prelude::PyDictMethods::set_item(&dict, $key, $value)?;)+
        dict
    }};
}

mod algorithms;
mod columns;
mod congestion;
#[cfg(target_os = "linux")]
mod emulation;
#[cfg(not(target_os = "linux"))]
#[path = "elsewhere.rs"]
mod emulation;
mod error;
mod flow_stats;
mod intervals;
mod link;
mod orbit;
mod progress;
mod registry;
mod rtp;
mod run;
mod scenario;
mod schema;
mod trace;
mod video;

/// The native module `skybraid._core`.
#[pyo3::pymodule]
mod _core {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::algorithms::congestion::ask_congestion;
    #[pymodule_export]
    use crate::algorithms::scheduler::ask_scheduler;
    #[pymodule_export]
    use crate::algorithms::views::{
        Acked, Lost, PathBasics, PathView, RateSample, Sibling, Siblings, Unit, Wait,
    };
    #[pymodule_export]
    use crate::columns::table_columns;
    #[pymodule_export]
    use crate::congestion::Congestion;
    #[pymodule_export]
    use crate::emulation::{Emulation, Program, capabilities, enter, inside_sandbox, reenter};
    #[pymodule_export]
    use crate::error::{Interrupted, ScenarioError, SkybraidError};
    #[pymodule_export]
    use crate::flow_stats::FlowStats;
    #[pymodule_export]
    use crate::intervals::{
        KnownLinks, factor_needed, independent_share, mean_over_time, normal_cdf, normal_quantile,
        run_share, share_interval, student_quantile,
    };
    #[pymodule_export]
    use crate::link::{Link, causes};
    #[pymodule_export]
    use crate::orbit::{OrbitService, constellations, satellite_positions};
    #[pymodule_export]
    use crate::registry::registry;
    #[pymodule_export]
    use crate::rtp::{
        RtcpPart, RtpFrame, RtpReceiver, RtpSender, is_rtcp, nal_unit_kind, rtcp_parts,
    };
    #[pymodule_export]
    use crate::run::{Run, bugs};
    #[pymodule_export]
    use crate::scenario::Scenario;
    #[pymodule_export]
    use crate::schema::file_schema;
    #[pymodule_export]
    use crate::trace::{read_trace, unit_size};
    #[pymodule_export]
    use crate::video::packets_of_units;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("RTP_CLOCK_HZ", crate::rtp::CLOCK_HZ)?;
        module.add("RTP_PAYLOAD_TYPE", crate::rtp::PAYLOAD_TYPE)?;
        module.add("CONFIDENCE", skybraid_statistics::CONFIDENCE)?;
        module.add("FEW_EPISODES", skybraid_statistics::FEW)?;
        module.add("RUNS_AS_UNITS", skybraid_statistics::RUNS)?;
        module.add("UNSEEN_OUTAGE_S", skybraid_statistics::UNSEEN_S)?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
