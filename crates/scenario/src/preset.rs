//! Presets of paths: built-in ones, and files next to the scenario.

use serde::Deserialize;
use skybraid_link::{PathConfig, presets};

use crate::ScenarioError;
use crate::inputs::Inputs;
use crate::key::KeyPath;
use crate::text::ScenarioText;
use crate::wording::{plain, unknown};

/// Returns `config`, completed by the preset that it names: a built-in one, or a file whose name ends with `.toml`.
pub(crate) fn with_preset(
    inputs: &mut Inputs,
    text: &ScenarioText,
    config: PathConfig,
    key: &KeyPath,
) -> Result<PathConfig, ScenarioError> {
    let Some(name) = &config.preset else { return Ok(config) };
    let key = key.key("preset");
    if name.ends_with(".toml") {
        let read = inputs.text(name, &key)?.to_string();
        let base: PathConfig = toml_edit::de::from_str(&read).map_err(|error| {
            let before = error.span().and_then(|span| read.get(..span.start)).unwrap_or_default();
            let line = before.matches('\n').count() + 1;
            inputs.wrong_file(name, Some(line), plain(error.message(), None), &key)
        })?;
        return Ok(config.with_defaults(&base));
    }
    let Some(preset) = presets::find(name) else {
        let known: Vec<&str> = presets::ALL.iter().map(|preset| preset.name).collect();
        return Err(text.wrong(&key, unknown("preset", name, &known)));
    };
    let base = preset
        .text
        .parse()
        .and_then(|reader: toml_edit::de::Deserializer| PathConfig::deserialize(reader))
        .map_err(|error| text.wrong(&key, format!("the preset is broken: {}", error.message())))?;
    Ok(config.with_defaults(&base))
}
