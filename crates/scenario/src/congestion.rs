//! Congestion controls outside a scenario.

use std::path::Path as FilePath;

use serde::Deserialize;
use skybraid_transport::congestion::CongestionConfig;

use crate::ScenarioError;
use crate::key::KeyPath;
use crate::text::ScenarioText;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    congestion: CongestionConfig,
}

/// Reads a value of the key `congestion` of a scenario: `"reno"`, or an inline table.
///
/// # Errors
/// The text is invalid, or a parameter is out of range.
pub fn load_congestion(value: &str) -> Result<CongestionConfig, ScenarioError> {
    let text = format!("congestion = {value}\n");
    let text = ScenarioText::parse(&text, FilePath::new("congestion"), &[])?;
    let Table { congestion } = text.read()?;
    congestion.check().map_err(|(parameter, problem)| {
        text.wrong(&KeyPath::dotted("congestion").key(parameter), problem)
    })?;
    Ok(congestion)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_congestion_control_is_read_as_in_a_scenario() {
        assert!(load_congestion("\"reno\"").is_ok());
        assert!(load_congestion("{ name = \"westwood\", tau = \"1s\" }").is_ok());
        for wrong in ["\"renno\"", "{ name = \"reno\", tau = \"1s\" }", "reno\nseed = 1"] {
            assert!(load_congestion(wrong).is_err(), "{wrong}");
        }
        let error = load_congestion("{ name = \"westwood\", tau = \"0s\" }").unwrap_err();
        assert!(error.to_string().contains("tau"), "{error}");
    }
}
